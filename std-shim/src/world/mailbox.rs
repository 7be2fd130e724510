//! The memory of point-to-point matching: buffers of unexpected messages, posted receives, and sends whose payload may
//! still be asked for.
//!
//! The core's matching machine ([`admission`](unisono_core::message::point_to_point)) decides what matches and what may be
//! buffered. This module holds the memory: one slot per header for a short payload, one pool for longer ones, and the
//! user buffer of each request.

use alloc::collections::VecDeque;
use core::cell::RefCell;

use unisono_core::ids::{RemoteKey, MessageId, PeerId, PlacementId, ReceiveId};
use unisono_core::message::matching::{Unexpected, PostedReceive};
use unisono_core::message::point_to_point::{self, Config, MessageHeader, Pools, Cancelled, Matched, Outcome, PayloadStore};
use unisono_core::message::{Context, Envelope, Pattern};
use unisono_core::span::{Region, Span};
use unisono_shmem::am_header::{self, SHORT_BYTES};

use super::parcel::Parcels;
use super::request::{Failure, Requests, Status, Tag, message_of};
use unisono_bootstrap::Rank;
use unisono_memory::records::{ProcessMessages, buckets};
use unisono_memory::region::{Extent, Regions};

/// Bytes of a slot of the pool for unexpected payloads.
const SLOT: usize = 1 << 14;
/// Bytes of the pool, unless the settings choose otherwise.
pub(super) const POOL: usize = 1 << 20;
/// Messages that matched probes may have removed, in addition to the unexpected ones.
const SPARE: usize = 64;
/// Initial number of records for requests.
const REQUESTS: usize = 256;

/// A receive that has not ended, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Receiving {
    pub(super) into: Extent,
    pub(super) state: State,
    /// `None`: any source.
    pub(super) source: Option<PeerId>,
    pub(super) context: Context,
    /// Granted parts of its buffer that are not filled yet, and whether they are all of it.
    pub(super) parts: u16,
    pub(super) is_granted: bool,
}

const _: () = assert!(size_of::<Option<Receiving>>() == 64);

/// The state of a posted receive.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// It has matched no message.
    Waits(ReceiveId),
    /// It has matched this message.
    Met { envelope: Envelope, bytes: u64 },
}

impl State {
    const fn of(point_to_point::Status { envelope, bytes }: point_to_point::Status) -> Self {
        Self::Met { envelope, bytes }
    }
}

impl Receiving {
    const fn new(into: Extent, state: State) -> Self {
        Self { into, state, source: None, context: Context(0), parts: 0, is_granted: false }
    }

    /// The message that it has matched, if any.
    pub(super) const fn met(&self) -> Option<point_to_point::Status> {
        match self.state {
            State::Waits(_) => None,
            State::Met { envelope, bytes } => Some(point_to_point::Status { envelope, bytes }),
        }
    }

    /// Its id in the matching machine, until it has matched.
    pub(super) const fn waits(&self) -> Option<ReceiveId> {
        match self.state {
            State::Waits(id) => Some(id),
            State::Met { .. } => None,
        }
    }
}

/// Work to be done once the endpoint or the ring is free again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Errand {
    /// Grant memory for a message, from this byte on (CTS).
    Grant { receive: ReceiveId, request: u32, from: PeerId, granted: usize },
    /// Copy the message that a rank of this node announced.
    Fetch { from: PeerId, place: am_header::MessageLocation, into: Extent, fetched: usize, ends: Fetched },
    /// Transmit a message for which the peer granted memory.
    Place { to: PeerId, parcel: u32, placement: PlacementId, key: RemoteKey, more: bool },
    /// The peer has taken a message of this rank, or could not.
    Sent { parcel: u32, failure: Option<Failure> },
    /// The peer violated the protocol.
    GiveUp { peer: PeerId },
}

/// The receive that ends when a message was fetched.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fetched {
    /// A collective's; `sending` is its index at the sender.
    Step {
        sending: u32,
        request: u32,
    },
    Message {
        receive: ReceiveId,
        request: u32,
    },
}

/// What is to be done with the payload of an arrived message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrival {
    Nothing,
    /// Copy it to this span, from byte `start` on.
    Place {
        to: Span,
        start: usize,
    },
    Nonsense,
}

/// The point-to-point messages of a process.
pub(super) struct Mailbox {
    pub(super) machine: ProcessMessages,
    pub(super) parcels: Parcels,
    pub(super) errands: VecDeque<Errand>,
    /// Grants that found no free record in the endpoint. They are retried only when it has one: there may be thousands.
    pub(super) late_grants: VecDeque<Errand>,
    /// By request.
    receives: Vec<Option<Receiving>>,
    /// Number of posted receives, and of those from each rank.
    receiving: usize,
    awaited: Box<[u32]>,
    /// Most bytes that each peer's transport carries after a header.
    limits: Box<[u32]>,
    records: [usize; 2],
    slot: usize,
    slots: Region,
    shorts: Region,
}

impl Mailbox {
    pub(super) fn new(size: u32, pool: usize, regions: &mut Regions) -> Self {
        let headers = am_header::unexpected_per_peer(size);
        let (slot, messages) = (SLOT.min(pool), headers as usize * size as usize + SPARE);
        let mut allocate = |bytes: usize| regions.allocate(bytes);
        let slots = pool.checked_div(slot).unwrap_or(0);
        let memory = allocate(slots * slot).and_then(|slots| Ok((slots, allocate(messages * SHORT_BYTES)?)));
        // Reserved, not used yet: a system without this memory cannot run the job.
        let (pool, shorts) = memory.unwrap_or_default();
        let mut seed = [0; 4];
        // Without randomness, peers can only fill buckets on purpose more easily.
        let _ = getrandom::fill(&mut seed);
        let config = Config { headers, short: SHORT_BYTES as u32, slot: slot as u32, seed: u32::from_le_bytes(seed) };
        let lent = Pools {
            receives: vec![PostedReceive::default(); REQUESTS].into(),
            messages: vec![Unexpected::default(); messages].into(),
            sends: vec![point_to_point::SendRecord::FREE; REQUESTS].into(),
            peers: vec![point_to_point::MessagePeer::NEW; size as usize].into(),
            slots: vec![0; slots].into(),
            buckets: [buckets(REQUESTS), buckets(messages), buckets(REQUESTS)],
        };
        let Some(machine) = ProcessMessages::new(config, lent) else { unreachable!("the tables are large enough") };
        Self {
            machine,
            parcels: Parcels::new(size),
            errands: VecDeque::new(),
            late_grants: VecDeque::new(),
            receives: Vec::new(),
            receiving: 0,
            awaited: vec![0; size as usize].into(),
            limits: vec![0; size as usize].into(),
            records: [REQUESTS; 2],
            slot,
            slots: pool,
            shorts,
        }
    }

    /// Most bytes that this peer's transport carries after a header.
    pub(super) fn limit(&self, peer: PeerId) -> u32 {
        self.limits.get(peer.0 as usize).copied().unwrap_or(0)
    }

    pub(super) fn set_limit(&mut self, peer: PeerId, bytes: u32) {
        if let Some(limit) = self.limits.get_mut(peer.0 as usize) {
            *limit = bytes;
        }
    }

    /// Adds records for receives. Returns false at the maximum.
    pub(super) fn add_receives(&mut self) -> bool {
        let [receives, _] = &mut self.records;
        let more = receives.saturating_mul(2);
        let lent = self.machine.grow_receives(vec![PostedReceive::default(); more].into(), buckets(more));
        *receives = if lent { more } else { *receives };
        lent
    }

    /// As [`add_receives`](Self::add_receives), for sends.
    pub(super) fn add_sends(&mut self) -> bool {
        let [_, sends] = &mut self.records;
        let more = sends.saturating_mul(2);
        let lent = self.machine.grow_sends(vec![point_to_point::SendRecord::FREE; more].into(), buckets(more));
        *sends = if lent { more } else { *sends };
        lent
    }

    /// Adds a receive that has not ended.
    #[inline(always)]
    pub(super) fn put(&mut self, request: u32, receiving: Receiving) {
        self.receiving += 1;
        self.await_from(receiving.source, 1);
        match self.receives.get_mut(request as usize) {
            Some(place) => *place = Some(receiving),
            None => self.put_behind(request, receiving),
        }
    }

    /// As [`put`](Self::put), beyond the end of the table.
    #[cold]
    fn put_behind(&mut self, request: u32, receiving: Receiving) {
        self.receives.resize(request as usize, None);
        self.receives.push(Some(receiving));
    }

    fn await_from(&mut self, source: Option<PeerId>, more: i32) {
        if let Some(count) = source.and_then(|source| self.awaited.get_mut(source.0 as usize)) {
            *count = count.saturating_add_signed(more);
        }
    }

    pub(super) fn receiving(&mut self, request: u32) -> Option<&mut Receiving> {
        self.receives.get_mut(request as usize)?.as_mut()
    }

    pub(super) fn take(&mut self, request: u32) -> Option<Receiving> {
        let receiving = self.receives.get_mut(request as usize)?.take()?;
        self.receiving -= 1;
        self.await_from(receiving.source, -1);
        Some(receiving)
    }

    /// As [`take`](Self::take), returning only its buffer.
    #[inline(always)]
    fn take_into(&mut self, request: u32) -> Option<Extent> {
        let place = self.receives.get_mut(request as usize)?;
        let Receiving { into, source, .. } = *place.as_ref()?;
        *place = None;
        self.receiving -= 1;
        self.await_from(source, -1);
        Some(into)
    }

    /// Whether a send to this rank or a receive from it is pending.
    pub(super) fn needs(&self, peer: PeerId) -> bool {
        self.parcels.are_towards(peer) || self.awaited.get(peer.0 as usize).is_some_and(|count| *count > 0)
    }

    /// Whether any receive has not ended.
    pub(super) const fn receives(&self) -> bool {
        self.receiving > 0
    }

    /// The unmatched receives that satisfy `is`, by request.
    pub(super) fn waiting(&self, is: impl Fn(&Receiving) -> bool) -> Vec<(u32, ReceiveId)> {
        let waits = |(request, receiving): (u32, &Option<Receiving>)| {
            let receiving = receiving.as_ref().filter(|receiving| is(receiving))?;
            Some((request, receiving.waits()?))
        };
        (0..).zip(&self.receives).filter_map(waits).collect()
    }

    /// Asks the receivers of pending sends to acknowledge them, once each.
    pub(super) fn ask_for_parcels(&mut self) {
        let Self { machine, parcels, .. } = self;
        parcels.ask(|to| machine.request_report(to));
    }

    /// Whether deferred work or an action of the machine waits.
    #[inline(always)]
    pub(super) fn has_news(&self) -> bool {
        !self.errands.is_empty() || !self.machine.has_no_action()
    }

    /// Posts a receive for a started request. Returns false if it can never complete: the probed message went with its
    /// sender, or there are no more records.
    #[inline(always)]
    pub(super) fn receive(
        &mut self,
        what: Wanted,
        into: Extent,
        request: u32,
        requests: &mut Requests,
        regions: &Regions,
    ) -> bool {
        let room = into.bytes as u64;
        let met = loop {
            let met = match what {
                Wanted::Like(pattern) => match self.machine.receive_unexpected(&pattern, room, request) {
                    Ok(None) => return self.wait_for(pattern, into, request),
                    met => met,
                },
                Wanted::Matched(message, _) => self.machine.receive_matched(message, room, request),
            };
            match met {
                Ok(Some(met)) => break met,
                Err(_) if self.add_receives() => {}
                Ok(None) | Err(_) => return false,
            }
        };
        self.meet(&met, into, request, requests, regions);
        true
    }

    /// A receive has matched a message that was there.
    #[inline(never)]
    fn meet(&mut self, met: &Matched, into: Extent, request: u32, requests: &mut Requests, regions: &Regions) {
        match *met {
            Matched::Unexpected { message, place, status } => {
                let from = self.kept(place, status.bytes as u32);
                if let (Some(from), Some(to)) = (address(regions, from), address(regions, into.part(0, into.bytes))) {
                    let bytes = from.bytes().min(to.bytes());
                    // SAFETY: both regions live; the source is memory of this table that nobody else names, the target is lent
                    // to this request: they do not overlap.
                    unsafe { to.start().copy_from_nonoverlapping(from.start(), bytes) };
                }
                self.machine.release(message);
                requests.finish(request, ended(&status, into.bytes));
            }
            Matched::Pending(status) => {
                let source = Some(status.envelope.source);
                self.put(request, Receiving { source, ..Receiving::new(into, State::of(status)) });
            }
            Matched::Truncated(status) => requests.finish(request, ended(&status, into.bytes)),
        }
    }

    /// Posts a receive that matches no message yet. Returns false if there are no more records.
    #[inline(always)]
    fn wait_for(&mut self, pattern: Pattern, into: Extent, request: u32) -> bool {
        let id = loop {
            match self.machine.post(pattern, into.bytes as u64, request) {
                Ok(id) => break id,
                Err(_) if self.add_receives() => {}
                Err(_) => return false,
            }
        };
        let Pattern { source, context, .. } = pattern;
        self.put(request, Receiving { source, context, ..Receiving::new(into, State::Waits(id)) });
        true
    }

    /// As [`handle`](Self::handle), for a short message that matches a posted receive: returns where its payload goes.
    /// `None`: nothing was done.
    #[inline(always)]
    pub(super) fn handle_expected(
        &mut self,
        from: PeerId,
        head: &[u8],
        bytes: u32,
        requests: &mut Requests,
    ) -> Option<Span> {
        let (user, tag, payload) = self.machine.handle_expected(from, head, bytes)?;
        let Some(into) = self.take_into(user) else { return Some(Span::default()) };
        let bytes = payload as usize;
        if bytes <= into.bytes {
            requests.succeed(user, Status { source: from.into(), tag: Tag(tag.0), bytes });
        } else {
            requests.finish(user, Err(Failure::Truncated { bytes: u64::from(payload) }));
        }
        Some(into.part(0, bytes))
    }

    /// Handles a header. The message has `bytes` bytes, header and payload, of which `head` are the first; `without`
    /// bytes of it do not precede the payload in memory.
    pub(super) fn handle(
        &mut self,
        from: PeerId,
        head: &[u8],
        bytes: usize,
        without: usize,
        requests: &mut Requests,
    ) -> Arrival {
        let outcome = self.machine.handle(from, head, bytes as u32);
        self.follow(from, outcome, bytes, without, requests)
    }

    /// Applies the machine's answer to a header that came with `bytes` bytes, of which the first `without` do not
    /// precede the payload in memory.
    pub(super) fn follow(
        &mut self,
        from: PeerId,
        outcome: Outcome,
        bytes: usize,
        without: usize,
        requests: &mut Requests,
    ) -> Arrival {
        match outcome {
            Outcome::Nothing => Arrival::Nothing,
            Outcome::Into { user, start, status } => {
                let Some(Receiving { into, .. }) = self.take(user) else { return Arrival::Nothing };
                requests.finish(user, ended(&status, into.bytes));
                Arrival::Place { to: into.part(0, status.bytes as usize), start: start.saturating_sub(without) }
            }
            Outcome::Store { place, start } => {
                let payload = bytes.saturating_sub(start);
                Arrival::Place { to: self.kept(place, payload as u32), start: start.saturating_sub(without) }
            }
            Outcome::Pending { user, status } => {
                if let Some(receiving) = self.take(user) {
                    self.put(user, Receiving { source: Some(from), state: State::of(status), ..receiving });
                }
                Arrival::Nothing
            }
            Outcome::Truncated { user, status } => {
                if let Some(Receiving { into, .. }) = self.take(user) {
                    requests.finish(user, ended(&status, into.bytes));
                }
                Arrival::Nothing
            }
            Outcome::Place { user, placement, key, more } => {
                self.errands.push_back(Errand::Place { to: from, parcel: user, placement, key, more });
                Arrival::Nothing
            }
            Outcome::Sent { user, truncated } => {
                let failure = truncated.then_some(Failure::TooLongForReceive(from.into()));
                self.errands.push_back(Errand::Sent { parcel: user, failure });
                Arrival::Nothing
            }
            Outcome::ProtocolViolation => Arrival::Nonsense,
        }
    }

    /// A granted part of a receive's buffer, or a collective's, is filled.
    pub(super) fn fill(&mut self, request: u32, requests: &mut Requests) {
        if message_of(request).is_some() {
            let nobody = Status { source: Rank(0), tag: Tag(0), bytes: 0 };
            return requests.finish(request, Ok(nobody));
        }
        let Some(receiving) = self.receiving(request) else { return };
        receiving.parts = receiving.parts.saturating_sub(1);
        if receiving.parts == 0 && receiving.is_granted {
            self.arrive(request, requests);
        }
    }

    /// The whole message of a receive has arrived.
    pub(super) fn arrive(&mut self, request: u32, requests: &mut Requests) {
        if let Some((receiving, met)) = self.take(request).and_then(|receiving| Some((receiving, receiving.met()?))) {
            requests.finish(request, ended(&met, receiving.into.bytes));
        }
    }

    /// A peer has failed or finished. Returns the requests that end with it, a collective's among them, and marks the
    /// sends to it.
    pub(super) fn lose(&mut self, peer: PeerId, anyone: bool, failure: Failure) -> Vec<u32> {
        let mut ended = Vec::new();
        self.machine.disconnect(peer, anyone, |lost| {
            if let Cancelled::Receive(request) = lost {
                ended.push(request);
            }
        });
        self.parcels.lose(peer, failure);
        self.late_grants.retain(|errand| !matches!(errand, Errand::Grant { from, .. } if *from == peer));
        self.errands.retain(|errand| {
            let gone = match errand {
                Errand::Grant { from, .. } | Errand::Fetch { from, .. } => from,
                Errand::Place { to, .. } => to,
                Errand::GiveUp { peer } => peer,
                Errand::Sent { .. } => return true,
            };
            if let Errand::Fetch { ends: Fetched::Step { request, .. }, .. } = errand
                && *gone == peer
            {
                ended.push(*request);
            }
            *gone != peer
        });
        ended
    }

    /// The memory of an unexpected payload.
    fn kept(&self, place: PayloadStore, bytes: u32) -> Span {
        let (region, i, each) = match place {
            PayloadStore::Short(message) => (self.shorts, message, SHORT_BYTES),
            PayloadStore::Slot(slot) => (self.slots, slot, self.slot),
        };
        Span { region, offset: i as usize * each, bytes: bytes.min(each as u32) }
    }
}

/// What a receive asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Like(Pattern),
    /// A message that a matched probe has removed, and its sender.
    Matched(MessageId, PeerId),
}

fn address(regions: &Regions, span: Span) -> Option<unisono_memory::region::Address> {
    unisono_core::device::Memory::address(regions, span)
}

/// The status of a message as its receiver sees it.
pub(super) fn told(status: &point_to_point::Status) -> Status {
    let point_to_point::Status { envelope: Envelope { source, tag, .. }, bytes } = *status;
    Status { source: source.into(), tag: Tag(tag.0), bytes: bytes as usize }
}

/// The result of a receive into a buffer of `room` bytes.
pub(super) fn ended(status: &point_to_point::Status, room: usize) -> Result<Status, Failure> {
    if status.bytes > room as u64 { Err(Failure::Truncated { bytes: status.bytes }) } else { Ok(told(status)) }
}

/// The table of regions, shared by the endpoint's driver and the handler of its messages.
#[derive(Debug)]
pub(super) struct SharedRegions<'a>(pub(super) &'a RefCell<Regions>);

impl unisono_core::device::Memory for SharedRegions<'_> {
    type Address = unisono_memory::region::Address;

    fn address(&self, span: Span) -> Option<unisono_memory::region::Address> {
        self.0.borrow().address(span)
    }
}

const _: () = assert!(MessageHeader::EAGER + SHORT_BYTES <= am_header::EAGER_LIMIT);
