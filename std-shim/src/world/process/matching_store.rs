//! The memory of point-to-point matching: buffers of unexpected messages, posted receives, and sends whose payload may
//! still be asked for.
//!
//! The core's matching machine ([`point_to_point`]) decides what matches and what may be buffered. This module holds
//! the memory: one slot per header for a short payload, one pool for longer ones, and the user buffer of each request.

use alloc::collections::VecDeque;
use core::cell::RefCell;

use unisono_core::ids::{MessageId, PeerId, ReceiveId};
use unisono_core::message::matching::{PostedReceive, Unexpected};
use unisono_core::message::point_to_point::{
    self, Cancelled, Config, Matched, MessageHeader, Outcome, PayloadStore, Pools,
};
use unisono_core::message::{Context, Envelope, Pattern};
use unisono_core::span::{Region, Span};
use unisono_core::transport::Grant;
use unisono_shmem::am_header::{self, SHORT_BYTES};

use super::send_request::SendOps;
use crate::world::request::{Failure, Requests, Status, Tag};
use unisono_memory::endpoint_storage::{ProcessMessages, buckets};
use unisono_memory::memory_regions::{RegionRange, Regions, RegisterError};

/// Bytes of a slot of the pool for unexpected payloads.
const SLOT_BYTES: usize = 1 << 14;
/// Bytes of the pool, unless the settings choose otherwise.
pub(in crate::world) const POOL_BYTES: usize = 1 << 20;
/// Messages that matched probes may have removed, in addition to the unexpected ones.
const MATCHED_PROBES_MAX: usize = 64;
/// Initial number of records for requests.
const INITIAL_RECORDS: usize = 256;

/// A receive that has not ended, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::world) struct ReceiveRecord {
    pub(in crate::world) into: RegionRange,
    pub(in crate::world) state: ReceiveState,
    /// `None`: any source.
    pub(in crate::world) source: Option<PeerId>,
    pub(in crate::world) context: Context,
    /// Granted parts of its buffer that are not filled yet, and whether they are all of it.
    pub(in crate::world) parts: u16,
    pub(in crate::world) is_fully_granted: bool,
}

const _: () = assert!(size_of::<Option<ReceiveRecord>>() == 64);

/// The state of a posted receive.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum ReceiveState {
    /// It has matched no message.
    Unmatched(ReceiveId),
    /// It has matched this message.
    Matched { envelope: Envelope, bytes: u64 },
}

impl ReceiveState {
    const fn matched(point_to_point::Status { envelope, bytes }: point_to_point::Status) -> Self {
        Self::Matched { envelope, bytes }
    }
}

impl ReceiveRecord {
    const fn new(into: RegionRange, state: ReceiveState) -> Self {
        Self { into, state, source: None, context: Context(0), parts: 0, is_fully_granted: false }
    }

    /// The message that it has matched, if any.
    pub(in crate::world) const fn matched(&self) -> Option<point_to_point::Status> {
        match self.state {
            ReceiveState::Unmatched(_) => None,
            ReceiveState::Matched { envelope, bytes } => Some(point_to_point::Status { envelope, bytes }),
        }
    }

    /// Its id in the matching machine, until it has matched.
    pub(in crate::world) const fn unmatched(&self) -> Option<ReceiveId> {
        match self.state {
            ReceiveState::Unmatched(id) => Some(id),
            ReceiveState::Matched { .. } => None,
        }
    }
}

/// Work to be done once the endpoint or the ring is free again.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum Deferred {
    /// Grant memory for a message, from this byte on (CTS).
    Grant { receive: ReceiveId, request: u32, from: PeerId, granted: usize },
    /// Copy the message that lies at `at` for its sender, or grant memory for it.
    Fetch { receive: ReceiveId, request: u32, from: PeerId, at: u64, fetched: usize },
    /// Transmit a message for which the peer granted memory.
    Place { to: PeerId, send: u32, grant: Grant, more: bool },
    /// The peer has taken a message of this rank, or could not.
    Sent { send: u32, failure: Option<Failure> },
    /// The peer violated the protocol.
    ProtocolViolation { peer: PeerId },
}

/// What is to be done with the payload of an arrived message.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum PayloadAction {
    Nothing,
    /// Copy it to this span, from byte `start` on.
    Place {
        to: Span,
        start: usize,
    },
    ProtocolViolation,
}

/// The point-to-point messages of a process.
pub(in crate::world) struct MatchingStore {
    pub(in crate::world) machine: ProcessMessages,
    pub(in crate::world) sends: SendOps,
    pub(in crate::world) deferred: VecDeque<Deferred>,
    /// Grants that found no free record in the endpoint. They are retried only when it has one: there may be thousands.
    pub(in crate::world) late_grants: VecDeque<Deferred>,
    /// By request.
    receives: Vec<Option<ReceiveRecord>>,
    /// Number of posted receives, and of those from each rank.
    receive_count: usize,
    awaited: Box<[u32]>,
    records: [usize; 2],
    slot: usize,
    slots: Region,
    short_slots: Region,
}

impl MatchingStore {
    /// # Errors
    /// [`RegisterError`]: a system without the memory for unexpected messages cannot run the job.
    pub(in crate::world) fn new(size: u32, pool: usize, regions: &mut Regions) -> Result<Self, RegisterError> {
        let headers = am_header::unexpected_per_peer(size);
        let (slot, messages) = (SLOT_BYTES.min(pool), headers as usize * size as usize + MATCHED_PROBES_MAX);
        let slots = pool.checked_div(slot).unwrap_or(0);
        // Reserved, not used yet.
        let (pool, short_slots) = (regions.allocate(slots * slot)?, regions.allocate(messages * SHORT_BYTES)?);
        let mut seed = [0; 4];
        // Without randomness, peers can only fill buckets on purpose more easily.
        let _ = getrandom::fill(&mut seed);
        let config = Config { headers, short: SHORT_BYTES as u32, slot: slot as u32, seed: u32::from_le_bytes(seed) };
        let lent = Pools {
            receives: vec![PostedReceive::default(); INITIAL_RECORDS].into(),
            messages: vec![Unexpected::default(); messages].into(),
            sends: vec![point_to_point::SendRecord::FREE; INITIAL_RECORDS].into(),
            peers: vec![point_to_point::MessagePeer::NEW; size as usize].into(),
            slots: vec![0; slots].into(),
            buckets: [buckets(INITIAL_RECORDS), buckets(messages), buckets(INITIAL_RECORDS)],
        };
        let Some(machine) = ProcessMessages::new(config, lent) else { unreachable!("the tables are large enough") };
        Ok(Self {
            machine,
            sends: SendOps::new(size),
            deferred: VecDeque::new(),
            late_grants: VecDeque::new(),
            receives: Vec::new(),
            receive_count: 0,
            awaited: vec![0; size as usize].into(),
            records: [INITIAL_RECORDS; 2],
            slot,
            slots: pool,
            short_slots,
        })
    }

    /// Adds records for receives. Returns false at the maximum.
    pub(in crate::world) fn add_receives(&mut self) -> bool {
        let [receives, _] = &mut self.records;
        let more = receives.saturating_mul(2);
        let added = self.machine.grow_receives(vec![PostedReceive::default(); more].into(), buckets(more));
        *receives = if added { more } else { *receives };
        added
    }

    /// As [`add_receives`](Self::add_receives), for sends.
    pub(in crate::world) fn add_sends(&mut self) -> bool {
        let [_, sends] = &mut self.records;
        let more = sends.saturating_mul(2);
        let added = self.machine.grow_sends(vec![point_to_point::SendRecord::FREE; more].into(), buckets(more));
        *sends = if added { more } else { *sends };
        added
    }

    /// Adds a receive that has not ended.
    #[inline(always)]
    pub(in crate::world) fn insert(&mut self, request: u32, receiving: ReceiveRecord) {
        self.receive_count += 1;
        self.count_awaited(receiving.source, 1);
        match self.receives.get_mut(request as usize) {
            Some(place) => *place = Some(receiving),
            None => self.insert_at_end(request, receiving),
        }
    }

    /// As [`insert`](Self::insert), beyond the end of the table.
    #[cold]
    fn insert_at_end(&mut self, request: u32, receiving: ReceiveRecord) {
        self.receives.resize(request as usize, None);
        self.receives.push(Some(receiving));
    }

    fn count_awaited(&mut self, source: Option<PeerId>, more: i32) {
        if let Some(count) = source.and_then(|source| self.awaited.get_mut(source.0 as usize)) {
            *count = count.saturating_add_signed(more);
        }
    }

    pub(in crate::world) fn posted(&mut self, request: u32) -> Option<&mut ReceiveRecord> {
        self.receives.get_mut(request as usize)?.as_mut()
    }

    /// The context of a posted receive.
    pub(in crate::world) fn pending_context(&self, request: u32) -> Option<Context> {
        self.receives.get(request as usize)?.as_ref().map(|receiving| receiving.context)
    }

    pub(in crate::world) fn remove(&mut self, request: u32) -> Option<ReceiveRecord> {
        let receiving = self.receives.get_mut(request as usize)?.take()?;
        self.receive_count -= 1;
        self.count_awaited(receiving.source, -1);
        Some(receiving)
    }

    /// As [`remove`](Self::remove), returning only its buffer.
    #[inline(always)]
    fn remove_range(&mut self, request: u32) -> Option<RegionRange> {
        let place = self.receives.get_mut(request as usize)?;
        let ReceiveRecord { into, source, .. } = *place.as_ref()?;
        *place = None;
        self.receive_count -= 1;
        self.count_awaited(source, -1);
        Some(into)
    }

    /// Whether a send to this rank or a receive from it is pending.
    pub(in crate::world) fn awaits_peer(&self, peer: PeerId) -> bool {
        self.sends.has_sends_to(peer) || self.awaited.get(peer.0 as usize).is_some_and(|count| *count > 0)
    }

    /// Whether any receive has not ended.
    pub(in crate::world) const fn has_receives(&self) -> bool {
        self.receive_count > 0
    }

    /// The unmatched receives that satisfy `is`, by request.
    pub(in crate::world) fn unmatched(&self, is: impl Fn(&ReceiveRecord) -> bool) -> Vec<(u32, ReceiveId)> {
        let waits = |(request, receiving): (u32, &Option<ReceiveRecord>)| {
            let receiving = receiving.as_ref().filter(|receiving| is(receiving))?;
            Some((request, receiving.unmatched()?))
        };
        (0..).zip(&self.receives).filter_map(waits).collect()
    }

    /// Asks the receivers of pending sends to acknowledge them, once each.
    pub(in crate::world) fn request_acks(&mut self) {
        let Self { machine, sends: parcels, .. } = self;
        parcels.request_acks(|to| machine.request_report(to));
    }

    /// Whether deferred work or an action of the machine waits.
    #[inline(always)]
    pub(in crate::world) fn has_work(&self) -> bool {
        !self.deferred.is_empty() || !self.machine.has_no_action()
    }

    /// Posts a receive for a started request. Returns false if it can never complete: the probed message went with its
    /// sender, or there are no more records.
    #[inline(always)]
    pub(in crate::world) fn receive(
        &mut self,
        what: ReceiveTarget,
        into: RegionRange,
        request: u32,
        requests: &mut Requests,
        regions: &Regions,
    ) -> bool {
        let room = into.bytes as u64;
        let met = loop {
            let met = match what {
                ReceiveTarget::Pattern(pattern) => match self.machine.receive_unexpected(&pattern, room, request) {
                    Ok(None) => return self.post_receive(pattern, into, request),
                    met => met,
                },
                ReceiveTarget::Matched(message, _) => self.machine.receive_matched(message, room, request),
            };
            match met {
                Ok(Some(met)) => break met,
                Err(_) if self.add_receives() => {}
                Ok(None) | Err(_) => return false,
            }
        };
        self.accept_matched(&met, into, request, requests, regions);
        true
    }

    /// A receive has matched a message that was there.
    #[inline(never)]
    fn accept_matched(
        &mut self,
        matched: &Matched,
        into: RegionRange,
        request: u32,
        requests: &mut Requests,
        regions: &Regions,
    ) {
        match *matched {
            Matched::Unexpected { message, place, status } => {
                let from = self.unexpected_payload(place, status.bytes as u32);
                if let (Some(from), Some(to)) = (address(regions, from), address(regions, into.span(0, into.bytes))) {
                    // SAFETY: both regions live; the source is memory of this table that nobody else names, the target
                    // is borrowed by this request: they do not overlap.
                    unsafe { to.copy_from(from) };
                }
                self.machine.release(message);
                requests.finish(request, receive_result(&status, into.bytes));
            }
            Matched::Pending(status) => {
                let source = Some(status.envelope.source);
                self.insert(
                    request,
                    ReceiveRecord { source, ..ReceiveRecord::new(into, ReceiveState::matched(status)) },
                );
            }
            Matched::Truncated(status) => requests.finish(request, receive_result(&status, into.bytes)),
        }
    }

    /// Posts a receive that matches no message yet. Returns false if there are no more records.
    #[inline(always)]
    fn post_receive(&mut self, pattern: Pattern, into: RegionRange, request: u32) -> bool {
        let id = loop {
            match self.machine.post(pattern, into.bytes as u64, request) {
                Ok(id) => break id,
                Err(_) if self.add_receives() => {}
                Err(_) => return false,
            }
        };
        let Pattern { source, context, .. } = pattern;
        self.insert(
            request,
            ReceiveRecord { source, context, ..ReceiveRecord::new(into, ReceiveState::Unmatched(id)) },
        );
        true
    }

    /// As [`handle`](Self::handle), for a short message that matches a posted receive: returns where its payload goes.
    /// `None`: nothing was done.
    #[inline(always)]
    pub(in crate::world) fn handle_expected(
        &mut self,
        from: PeerId,
        head: &[u8],
        bytes: u32,
        requests: &mut Requests,
    ) -> Option<Span> {
        let (user, tag, payload) = self.machine.handle_expected(from, head, bytes)?;
        let Some(into) = self.remove_range(user) else { return Some(Span::default()) };
        let bytes = payload as usize;
        if bytes <= into.bytes {
            requests.succeed(user, Status { source: from.into(), tag: Tag(tag.0), bytes });
        } else {
            requests.finish(user, Err(Failure::Truncated { bytes: u64::from(payload) }));
        }
        Some(into.span(0, bytes))
    }

    /// Handles a header. The message has `bytes` bytes, header and payload, of which `head` are the first; `without`
    /// bytes of it do not precede the payload in memory.
    pub(in crate::world) fn handle(
        &mut self,
        from: PeerId,
        head: &[u8],
        bytes: usize,
        without: usize,
        requests: &mut Requests,
    ) -> PayloadAction {
        let outcome = self.machine.handle(from, head, bytes as u32);
        self.apply_outcome(from, outcome, bytes, without, requests)
    }

    /// Applies the machine's answer to a header that came with `bytes` bytes, of which the first `without` do not
    /// precede the payload in memory.
    pub(in crate::world) fn apply_outcome(
        &mut self,
        from: PeerId,
        outcome: Outcome,
        bytes: usize,
        without: usize,
        requests: &mut Requests,
    ) -> PayloadAction {
        match outcome {
            Outcome::Nothing => PayloadAction::Nothing,
            Outcome::Into { user, start, status } => {
                let Some(ReceiveRecord { into, .. }) = self.remove(user) else { return PayloadAction::Nothing };
                requests.finish(user, receive_result(&status, into.bytes));
                PayloadAction::Place { to: into.span(0, status.bytes as usize), start: start.saturating_sub(without) }
            }
            Outcome::Store { place, start } => {
                let payload = bytes.saturating_sub(start);
                PayloadAction::Place {
                    to: self.unexpected_payload(place, payload as u32),
                    start: start.saturating_sub(without),
                }
            }
            Outcome::Pending { user, status } => {
                if let Some(receiving) = self.remove(user) {
                    self.insert(
                        user,
                        ReceiveRecord { source: Some(from), state: ReceiveState::matched(status), ..receiving },
                    );
                }
                PayloadAction::Nothing
            }
            Outcome::Truncated { user, status } => {
                if let Some(ReceiveRecord { into, .. }) = self.remove(user) {
                    requests.finish(user, receive_result(&status, into.bytes));
                }
                PayloadAction::Nothing
            }
            Outcome::Place { user, placement, key, more } => {
                let grant = Grant { placement, key };
                self.deferred.push_back(Deferred::Place { to: from, send: user, grant, more });
                PayloadAction::Nothing
            }
            Outcome::Sent { user, truncated } => {
                let failure = truncated.then_some(Failure::RemoteTruncated(from.into()));
                self.deferred.push_back(Deferred::Sent { send: user, failure });
                PayloadAction::Nothing
            }
            Outcome::ProtocolViolation => PayloadAction::ProtocolViolation,
        }
    }

    /// A granted part of a receive's buffer is filled.
    pub(in crate::world) fn finish_part(&mut self, request: u32, requests: &mut Requests) {
        let Some(receiving) = self.posted(request) else { return };
        receiving.parts = receiving.parts.saturating_sub(1);
        if receiving.parts == 0 && receiving.is_fully_granted {
            self.complete(request, requests);
        }
    }

    /// The whole message of a receive has arrived.
    pub(in crate::world) fn complete(&mut self, request: u32, requests: &mut Requests) {
        if let Some((receiving, met)) =
            self.remove(request).and_then(|receiving| Some((receiving, receiving.matched()?)))
        {
            requests.finish(request, receive_result(&met, receiving.into.bytes));
        }
    }

    /// A peer has failed or finished. Returns the requests that end with it, and marks the sends to it.
    pub(in crate::world) fn disconnect(&mut self, peer: PeerId, anyone: bool, failure: Failure) -> Vec<u32> {
        let mut ended = Vec::new();
        self.machine.disconnect(peer, anyone, |lost| {
            if let Cancelled::Receive(request) = lost {
                ended.push(request);
            }
        });
        self.sends.disconnect(peer, failure);
        self.late_grants.retain(|errand| !matches!(errand, Deferred::Grant { from, .. } if *from == peer));
        self.deferred.retain(|deferred| match deferred {
            Deferred::Grant { from: of, .. } | Deferred::Fetch { from: of, .. } => *of != peer,
            Deferred::Place { to: of, .. } | Deferred::ProtocolViolation { peer: of } => *of != peer,
            Deferred::Sent { .. } => true,
        });
        ended
    }

    /// The memory of an unexpected payload.
    fn unexpected_payload(&self, place: PayloadStore, bytes: u32) -> Span {
        let (region, i, each) = match place {
            PayloadStore::Short(message) => (self.short_slots, message, SHORT_BYTES),
            PayloadStore::Slot(slot) => (self.slots, slot, self.slot),
        };
        Span { region, offset: i as usize * each, bytes: bytes.min(each as u32) }
    }
}

/// What a receive asks for.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum ReceiveTarget {
    Pattern(Pattern),
    /// A message that a matched probe has removed, and its sender.
    Matched(MessageId, PeerId),
}

fn address(regions: &Regions, span: Span) -> Option<unisono_memory::memory_regions::Address> {
    unisono_core::device::Memory::address(regions, span)
}

/// The status of a message as its receiver sees it.
pub(in crate::world) fn to_status(status: &point_to_point::Status) -> Status {
    let point_to_point::Status { envelope: Envelope { source, tag, .. }, bytes } = *status;
    Status { source: source.into(), tag: Tag(tag.0), bytes: bytes as usize }
}

/// The result of a receive into a buffer of `room` bytes.
pub(in crate::world) fn receive_result(status: &point_to_point::Status, room: usize) -> Result<Status, Failure> {
    if status.bytes > room as u64 { Err(Failure::Truncated { bytes: status.bytes }) } else { Ok(to_status(status)) }
}

/// The table of regions, shared by the endpoint's driver and the handler of its messages.
#[derive(Debug)]
pub(in crate::world) struct SharedRegions<'a>(pub(in crate::world) &'a RefCell<Regions>);

impl unisono_core::device::Memory for SharedRegions<'_> {
    type Address = unisono_memory::memory_regions::Address;

    fn address(&self, span: Span) -> Option<unisono_memory::memory_regions::Address> {
        self.0.borrow().address(span)
    }
}

const _: () = assert!(MessageHeader::EAGER + SHORT_BYTES <= am_header::EAGER_LIMIT);
