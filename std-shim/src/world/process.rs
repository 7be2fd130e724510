//! A process of a job: its endpoint and device, its messages, its place among the others.

use core::cell::RefCell;
use core::ptr::NonNull;
use std::time::Instant;

use unisono_core::counters::Counters;
use unisono_core::device::{Armed, Device, Lane, PeerId};
use unisono_core::drive::{drive, receive, transmit};
use unisono_core::endpoint::{Event, GrantError};
use unisono_core::operation::{OperationError, OperationId, SendError};
use unisono_core::peer::Life;
use unisono_core::placement::{Key, PlacementId};
use unisono_core::span::{Region, Span};

use super::keys::Keys;
use super::matching::{
    EAGER_HEAD, Errand, Mail, Matching, Posted, SharedRegions, announcement, eager_head, grant, truncation,
};
use super::progress::Leaves;
use super::request::{Failure, Requests, Status, Tag};
use super::small::{Cell, SmallCells};
use crate::bootstrap::{Entry, Liveness, Membership, Notice};
use crate::rank::Rank;
use crate::records::ProcessEndpoint;
use crate::region::Regions;
use crate::udp::{Path, Udp};

/// Datagrams that one round receives and sends at most.
const BUDGET: u32 = 64;
/// Rounds that the progress thread receives before it sends.
const ROUNDS: u32 = 64;
/// Bytes of an eager message that fit behind its head in the endpoint's own.
const SHORT: usize = unisono_core::wire::MESSAGE_HEAD - EAGER_HEAD;
/// Nanoseconds between two looks at membership and watched peers.
const TENDING: u64 = 20_000_000;
/// Sends and their bytes that are collected before they leave by themselves: a batch of the device, and a few of what a
/// system cuts at once.
const CORKED: (u32, usize) = (BUDGET, 1 << 18);

/// What silence of a peer means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Silence {
    /// Something answers for a computing process, or the user said so: death.
    Death,
    /// Nothing does: its agent is asked.
    Question,
}

/// What an operation of the endpoint is for.
#[derive(Clone, Copy, Debug)]
enum Use {
    Nothing,
    /// Its payload is a cell of the slab.
    Cell(Cell),
    /// Its payload is lent.
    Request(u32, PeerId),
}

/// A long message that is announced.
#[derive(Clone, Copy, Debug)]
struct Sending {
    to: PeerId,
    from: Span,
    request: u32,
}

/// Memory granted for a receive.
#[derive(Clone, Copy, Debug)]
struct Granted {
    placement: PlacementId,
    to: PeerId,
    tag: Tag,
    request: u32,
}

pub(super) struct Process {
    pub(super) rank: Rank,
    pub(super) size: u32,
    pub(super) endpoint: ProcessEndpoint,
    pub(super) device: Udp,
    pub(super) requests: Requests,
    pub(super) counters: Counters,
    /// Elsewhere while this process waits at a fence.
    pub(super) membership: Option<Membership>,
    pub(super) silence: Silence,
    pub(super) aborted: Option<Failure>,
    clock: Instant,
    regions: RefCell<Regions>,
    matching: Matching,
    small: SmallCells,
    keys: Keys,
    uses: Vec<Use>,
    sendings: Vec<Option<Sending>>,
    granted: Vec<Option<Granted>>,
    watched: Vec<PeerId>,
    /// Ranks that died while nothing waited for them or for anyone: the next receive from anyone is told.
    untold: Vec<Rank>,
    tended: u64,
    corked: (u32, usize),
    /// The clock when it was last read: what the endpoint is told never goes back.
    pub(super) latest: u64,
}

impl Process {
    pub(super) fn new(
        seat: (Rank, u32),
        clock: Instant,
        endpoint: ProcessEndpoint,
        device: Udp,
        membership: Membership,
        silence: Silence,
    ) -> Self {
        let mut regions = Regions::new();
        let small = SmallCells::new(&mut regions);
        let mut process = Self {
            rank: seat.0,
            size: seat.1,
            endpoint,
            device,
            requests: Requests::new(),
            counters: Counters::default(),
            membership: None,
            silence,
            aborted: None,
            clock,
            regions: RefCell::new(regions),
            matching: Matching::new(),
            small,
            keys: Keys::new(),
            uses: Vec::new(),
            sendings: Vec::new(),
            granted: Vec::new(),
            watched: Vec::new(),
            untold: Vec::new(),
            tended: 0,
            corked: (0, 0),
            latest: 0,
        };
        for (rank, entry) in membership.table().iter().enumerate() {
            process.meet(Rank(rank as u32), entry);
        }
        process.membership = Some(membership);
        process
    }

    /// Reads the clock: nanoseconds since this process joined.
    fn now(&mut self) -> u64 {
        self.latest = self.clock.elapsed().as_nanos() as u64;
        self.latest
    }

    fn meet(&mut self, rank: Rank, entry: &Entry) {
        let [polled, interrupt] = entry.lanes;
        let path = Path { address: polled.ip(), polled: polled.port(), interrupt: interrupt.port() };
        if rank == self.rank {
            return;
        }
        if let Err(error) = self.device.set_path(rank.into(), path, entry.mtu) {
            tracing::error!(%rank, ?error, "no path");
            return;
        }
        let own = self.device.mtu();
        let trailer = own.saturating_sub(self.device.limits().mtu);
        let mtu = entry.mtu.min(own).saturating_sub(trailer);
        let now = self.now();
        self.endpoint.meet(now, rank.into(), entry.incarnation, mtu);
    }

    /// One round, and what follows from it. With `interrupt`, the interrupt lane is read, too: its probes are answered when
    /// everything that was sent before them has been taken off the polled lane. Returns whether anything moved.
    pub(super) fn progress(&mut self, interrupt: bool) -> bool {
        let now = self.now();
        self.corked = (0, 0);
        let Self { endpoint, device, requests, counters, regions, matching, .. } = self;
        let regions = SharedRegions(regions);
        let mut mail = Mail { matching, requests, regions: regions.0, counters };
        let mut moved = false;
        if interrupt {
            moved = receive(now, Lane::Interrupt, endpoint, device, &regions, &mut mail, BUDGET);
            let mut rounds = 0..ROUNDS;
            while rounds.next().is_some() && receive(now, Lane::Polled, endpoint, device, &regions, &mut mail, BUDGET) {
                moved = true;
            }
        }
        moved |= drive(now, Lane::Polled, endpoint, device, &regions, &mut mail, BUDGET);
        moved |= self.follow(now);
        if now.wrapping_sub(self.tended) >= TENDING {
            self.tended = now;
            self.tend(now);
        }
        moved
    }

    /// Lets what was asked for leave, without receiving.
    fn push(&mut self, now: u64) {
        self.corked = (0, 0);
        let Self { endpoint, device, requests, counters, regions, matching, .. } = self;
        let mut mail = Mail { matching, requests, regions, counters };
        transmit(now, Lane::Polled, endpoint, device, &SharedRegions(regions), &mut mail, BUDGET);
        self.follow(now);
    }

    /// A send of `bytes` bytes was queued: it leaves at once, or once enough wait.
    pub(super) fn let_leave(&mut self, leaves: Leaves, bytes: usize) {
        self.corked = (self.corked.0 + 1, self.corked.1.saturating_add(bytes));
        if leaves == Leaves::AtOnce || self.corked.0 >= CORKED.0 || self.corked.1 >= CORKED.1 {
            // Whoever collects may have computed meanwhile.
            let now = if leaves == Leaves::AtOnce { self.latest } else { self.now() };
            self.push(now);
        }
    }

    /// Lets what was collected leave.
    pub(super) fn uncork(&mut self) {
        let now = self.now();
        self.push(now);
    }

    /// Events and errands.
    fn follow(&mut self, now: u64) -> bool {
        let mut moved = false;
        while let Some(event) = self.endpoint.poll_event(now) {
            moved = true;
            self.handle_event(now, event);
        }
        let mut left = self.matching.errands.len();
        while left > 0
            && let Some(errand) = self.matching.errands.pop_front()
        {
            left -= 1;
            moved = true;
            self.run(now, errand);
        }
        moved
    }

    fn handle_event(&mut self, now: u64, event: Event) {
        match event {
            Event::Completed(operation, result) => {
                let what = self.uses.get_mut(operation.0 as usize).map(|what| core::mem::replace(what, Use::Nothing));
                match what {
                    Some(Use::Cell(cell)) => self.small.give_back(cell),
                    Some(Use::Request(request, to)) => {
                        let rank = Rank::from(to);
                        let result = result.map_err(|error| match error {
                            OperationError::PeerFailed => Failure::PeerFailed(rank),
                            OperationError::Parted => Failure::Parted(rank),
                            OperationError::Refused => Failure::TooLongForReceive(rank),
                        });
                        let status = Status { source: self.rank, tag: Tag(0), bytes: 0 };
                        self.requests.finish(request, result.map(|()| status));
                    }
                    Some(Use::Nothing) | None => {}
                }
            }
            Event::Delivered(placement, bytes) => {
                if let Some(granted) = self.granted.get_mut(placement.record()).and_then(Option::take) {
                    let status = Status { source: granted.to.into(), tag: granted.tag, bytes: bytes as usize };
                    self.requests.finish(granted.request, Ok(status));
                }
            }
            Event::Failed(peer) => self.lose(peer, Failure::PeerFailed(peer.into()), true),
            Event::Parted(peer) => self.lose(peer, Failure::Parted(peer.into()), false),
            Event::Silent(peer) => match (self.silence, &mut self.membership) {
                (Silence::Question, Some(membership)) => membership.ask(peer.into()),
                (Silence::Question, None) => {}
                (Silence::Death, _) => {
                    tracing::info!(rank = peer.0, "silent for too long");
                    self.endpoint.fail(now, peer);
                }
            },
        }
    }

    /// A peer is gone: whatever needs it ends. Receives from anyone end too when it died, since it may be the one they
    /// wait for.
    fn lose(&mut self, peer: PeerId, failure: Failure, anyone: bool) {
        let mut ended = self.matching.lose(peer, anyone);
        for place in self.sendings.iter_mut() {
            if let Some(sending) = place.take_if(|sending| sending.to == peer) {
                ended.push(sending.request);
            }
        }
        for place in self.granted.iter_mut() {
            if let Some(granted) = place.take_if(|granted| granted.to == peer) {
                self.endpoint.withdraw(granted.placement);
                ended.push(granted.request);
            }
        }
        if ended.is_empty() && anyone {
            self.untold.push(peer.into());
        }
        for request in ended {
            self.requests.finish(request, Err(failure));
        }
    }

    fn run(&mut self, now: u64, errand: Errand) {
        match errand {
            Errand::Grant { to, sending, into, request, tag } => {
                let key = Key(self.keys.next());
                let placement = match self.endpoint.grant(to, into, key) {
                    Ok(placement) => placement,
                    Err(GrantError::Full) => return self.matching.errands.push_back(errand),
                    Err(GrantError::UnknownPeer) => {
                        return self.requests.finish(request, Err(Failure::PeerFailed(to.into())));
                    }
                };
                match self.endpoint.send(now, to, &grant(sending, placement, key), None) {
                    Ok(operation) => self.note(operation, Use::Nothing),
                    Err(error) => {
                        self.endpoint.withdraw(placement);
                        if error == SendError::Full {
                            self.matching.errands.push_back(errand);
                        } else {
                            self.requests.finish(request, Err(failure(error, to)));
                        }
                        return;
                    }
                }
                put(&mut self.granted, placement.record() as u32, Granted { placement, to, tag, request });
            }
            Errand::Refuse { to, sending } => {
                match self.endpoint.send(now, to, &truncation(sending), None) {
                    Ok(operation) => self.note(operation, Use::Nothing),
                    Err(SendError::Full) => self.matching.errands.push_back(errand),
                    // Who is gone need not be told.
                    Err(_) => {}
                }
            }
            Errand::Place { to, sending, placement, key } => {
                let Some(place) = self.sendings.get_mut(sending as usize) else { return };
                let Some(Sending { from, request, .. }) = place.take_if(|sending| sending.to == to) else { return };
                match self.endpoint.place(now, to, placement, key, from) {
                    Ok(operation) => self.note(operation, Use::Request(request, to)),
                    Err(SendError::Full) => {
                        *place = Some(Sending { to, from, request });
                        self.matching.errands.push_back(errand);
                    }
                    Err(error) => self.requests.finish(request, Err(failure(error, to))),
                }
            }
            Errand::Truncated { to, sending } => {
                let Some(place) = self.sendings.get_mut(sending as usize) else { return };
                if let Some(sending) = place.take_if(|sending| sending.to == to) {
                    self.requests.finish(sending.request, Err(Failure::TooLongForReceive(to.into())));
                }
            }
        }
    }

    fn note(&mut self, operation: OperationId, what: Use) {
        let i = operation.0 as usize;
        if self.uses.len() <= i {
            self.uses.resize(i + 1, Use::Nothing);
        }
        if let Some(place) = self.uses.get_mut(i) {
            *place = what;
        }
    }

    /// Sends `bytes` bytes at `start`. `Ok(None)`: they were copied, the buffer is free. Otherwise they are lent until the
    /// request has ended, and registered as the region that comes with it. [`SendError::Full`]: progress first.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the request has ended and its region is [`revoke`](Self::revoke)d.
    pub(super) unsafe fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        if let Some(failure) = self.aborted {
            return Err(SendFailure::Failed(failure));
        }
        if to.0 >= self.size {
            return Err(SendFailure::Failed(Failure::UnknownRank(to)));
        }
        if bytes > u32::MAX as usize {
            return Err(SendFailure::Failed(Failure::TooLong));
        }
        if self.corked.0 == 0 {
            self.now();
        }
        // Those that leave together are sent at one time.
        let (now, peer) = (self.latest, PeerId::from(to));
        if to == self.rank {
            // SAFETY: the caller says that these bytes are valid and unchanged.
            let payload = unsafe { core::slice::from_raw_parts(start.as_ptr(), bytes) };
            self.matching.deliver_own(peer, tag, payload, &self.regions, &mut self.requests);
            return Ok(None);
        }
        if bytes <= SHORT {
            let mut head = [0; EAGER_HEAD + SHORT];
            let (front, rest) = head.split_at_mut(EAGER_HEAD);
            front.copy_from_slice(&eager_head(tag));
            // SAFETY: the caller says that these bytes are valid; `rest` has room for them and is another object.
            unsafe { start.copy_to_nonoverlapping(NonNull::from(rest).cast(), bytes) };
            let used = head.get(..EAGER_HEAD + bytes).unwrap_or_default();
            let operation = self.endpoint.send(now, peer, used, None).map_err(|error| refused(error, peer))?;
            self.note(operation, Use::Nothing);
            return Ok(None);
        }
        if let Some((cell, span)) = self.small.take(bytes) {
            if let Some(address) = unisono_core::device::Memory::address(self.regions.get_mut(), span) {
                // SAFETY: the cell is free: nobody else uses its bytes, and the caller's bytes are another object.
                unsafe { address.start().copy_from_nonoverlapping(start, bytes) };
            }
            return match self.endpoint.send(now, peer, &eager_head(tag), Some(span)) {
                Ok(operation) => {
                    self.note(operation, Use::Cell(cell));
                    Ok(None)
                }
                Err(error) => {
                    self.small.give_back(cell);
                    Err(refused(error, peer))
                }
            };
        }
        // SAFETY: as the caller says, until `revoke`.
        let region = unsafe { self.regions.get_mut().register(start, bytes) }.map_err(|_| SendFailure::Full)?;
        let from = Span { region, offset: 0, bytes: bytes as u32 };
        let request = self.requests.start();
        let sent = match self.endpoint.send(now, peer, &eager_head(tag), Some(from)) {
            Ok(operation) => {
                self.note(operation, Use::Request(request, peer));
                Ok(())
            }
            Err(SendError::TooLong) => self.announce(now, peer, tag, from, request),
            Err(error) => Err(error),
        };
        sent.map(|()| Some((request, region))).map_err(|error| {
            self.requests.retire(request);
            self.regions.get_mut().revoke(region);
            refused(error, peer)
        })
    }

    fn announce(&mut self, now: u64, to: PeerId, tag: Tag, from: Span, request: u32) -> Result<(), SendError> {
        let free = self.sendings.iter().position(Option::is_none).unwrap_or(self.sendings.len()) as u32;
        let operation = self.endpoint.send(now, to, &announcement(tag, free, u64::from(from.bytes)), None)?;
        self.note(operation, Use::Nothing);
        put(&mut self.sendings, free, Sending { to, from, request });
        Ok(())
    }

    /// Receives into `bytes` bytes at `start`, registered as the region that comes with the request.
    ///
    /// # Safety
    /// The bytes stay valid, and nobody else uses them, until the request has ended and its region is
    /// [`revoke`](Self::revoke)d.
    pub(super) unsafe fn receive(
        &mut self,
        source: Option<Rank>,
        tag: Option<Tag>,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<(u32, Region), Failure> {
        if let Some(failure) = self.aborted {
            return Err(failure);
        }
        if let Some(rank) = source.filter(|rank| rank.0 >= self.size) {
            return Err(Failure::UnknownRank(rank));
        }
        let bytes = bytes.min(u32::MAX as usize);
        // SAFETY: as the caller says, until `revoke`.
        let region = unsafe { self.regions.get_mut().register(start, bytes) }.map_err(|_| Failure::TooLong)?;
        let request = self.requests.start();
        let into = Span { region, offset: 0, bytes: bytes as u32 };
        let posted = Posted { source: source.map(PeerId::from), tag, into, request };
        self.matching.post(posted, &self.regions, &mut self.requests);
        // What came before its sender's end still counts; what has not will not come.
        if self.requests.result(request).is_none()
            && let Some(failure) = self.hopeless(source)
        {
            self.matching.posted.retain(|posted| posted.request != request);
            self.requests.finish(request, Err(failure));
        }
        if !self.matching.errands.is_empty() {
            let now = self.now();
            self.follow(now);
        }
        Ok((request, region))
    }

    /// Why a receive from `source` that matches nothing yet need not wait.
    fn hopeless(&mut self, source: Option<Rank>) -> Option<Failure> {
        let Some(rank) = source else { return self.untold.pop().map(Failure::PeerFailed) };
        match self.endpoint.life(rank.into()) {
            Life::Failed => {
                self.untold.retain(|untold| *untold != rank);
                Some(Failure::PeerFailed(rank))
            }
            Life::Parted => Some(Failure::Parted(rank)),
            Life::Unmet | Life::Alive => None,
        }
    }

    /// A request's memory is its owner's again.
    pub(super) fn revoke(&mut self, request: u32, region: Region) {
        self.requests.retire(request);
        self.regions.get_mut().revoke(region);
    }

    /// Whether everything that was sent has arrived.
    pub(super) fn is_flushed(&self) -> bool {
        self.sendings.iter().all(Option::is_none) && self.endpoint.is_acknowledged()
    }

    /// Nanoseconds that may pass before the endpoint needs to be asked again; `None`: any number.
    pub(super) fn rest(&mut self) -> Option<u64> {
        let now = self.now();
        self.endpoint.poll_timeout(now).map(|at| at.saturating_sub(now))
    }

    /// Nanoseconds until it is time to tend again.
    pub(super) fn tends_in(&mut self) -> u64 {
        TENDING.saturating_sub(self.now().wrapping_sub(self.tended))
    }

    /// Asks for an event on the lane. False: something waits already.
    pub(super) fn arm(&mut self, lane: Lane) -> bool {
        self.device.arm(lane) == Armed::Armed
    }

    /// Hears from the launcher.
    pub(super) fn hear(&mut self) {
        while let Some(notice) = self.membership.as_mut().and_then(Membership::poll) {
            let now = self.now();
            self.handle_notice(now, notice);
        }
    }

    /// Hears from the launcher, and watches those that something waits for.
    fn tend(&mut self, now: u64) {
        self.hear();
        let granted = self.granted.iter().flatten().map(|granted| granted.to);
        let sendings = self.sendings.iter().flatten().map(|sending| sending.to);
        let posted = self.matching.posted.iter();
        let mut wanted: Vec<PeerId> =
            posted.clone().filter_map(|posted| posted.source).chain(granted).chain(sendings).collect();
        let waits_for_anyone = !self.matching.posted.is_empty();
        if waits_for_anyone || !wanted.is_empty() {
            wanted.extend(self.successor());
        }
        wanted.sort_unstable();
        wanted.dedup();
        for peer in core::mem::take(&mut self.watched) {
            if wanted.binary_search(&peer).is_err() {
                self.endpoint.watch(now, peer, false);
            }
        }
        for peer in &wanted {
            // Without a free window: asked again at the next look.
            self.endpoint.watch(now, *peer, true);
        }
        self.watched = wanted;
    }

    /// The next rank that lives.
    fn successor(&self) -> Option<PeerId> {
        let own = self.rank.0;
        let others = (own + 1..self.size).chain(0..own).map(PeerId);
        others.into_iter().find(|peer| self.endpoint.life(*peer) == Life::Alive)
    }

    fn handle_notice(&mut self, now: u64, notice: Notice) {
        match notice {
            Notice::Died { rank, incarnation, ending } => {
                if self.endpoint.incarnation(rank.into()) == Some(incarnation) {
                    tracing::info!(%rank, ?ending, "died");
                    self.endpoint.fail(now, rank.into());
                }
            }
            Notice::Met { rank, entry } => self.meet(rank, &entry),
            Notice::Liveness { rank, liveness } => {
                if liveness != Liveness::Alive {
                    self.endpoint.fail(now, rank.into());
                }
            }
            Notice::Aborted { rank, code } => self.abort(Failure::Aborted { rank, code }),
            Notice::Lost(error) => tracing::debug!(%error, "rendezvous server lost"),
        }
        self.follow(now);
    }

    /// Gives up: whatever is under way ends with `failure`, and the others are told.
    pub(super) fn abort(&mut self, failure: Failure) {
        self.aborted = Some(failure);
        self.endpoint.abort();
        self.requests.fail_all(failure);
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum SendFailure {
    /// Progress makes room.
    Full,
    Failed(Failure),
}

fn refused(error: SendError, to: PeerId) -> SendFailure {
    match error {
        SendError::Full => SendFailure::Full,
        error => SendFailure::Failed(failure(error, to)),
    }
}

fn failure(error: SendError, to: PeerId) -> Failure {
    match error {
        SendError::UnknownPeer => Failure::UnknownRank(to.into()),
        SendError::PeerFailed | SendError::Full => Failure::PeerFailed(to.into()),
        SendError::Parted => Failure::Parted(to.into()),
        SendError::TooLong => Failure::TooLong,
    }
}

fn put<T>(places: &mut Vec<Option<T>>, i: u32, value: T) {
    let i = i as usize;
    while places.len() <= i {
        places.push(None);
    }
    if let Some(place) = places.get_mut(i) {
        *place = Some(value);
    }
}
