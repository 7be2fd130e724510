//! The state of one process of a job: endpoint, device, requests, matching, collectives and shared-memory peers, under
//! one lock.

mod collectives;
mod contexts;
mod deaths;
mod errands;
mod messages;
mod near;
mod retire;
mod steps;
mod watch;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::cell::RefCell;
use std::time::Instant;

use unisono_core::counters::Counters;
use unisono_core::device::{Armed, Device, DeviceQueue};
use unisono_core::endpoint::Event;
use unisono_core::endpoint::operation::OperationError;
use unisono_core::ids::{MessageId, OperationId, PeerId, PlacementId};
use unisono_core::message::point_to_point::MessageHeader;
use unisono_core::message::{Context, Envelope};
use unisono_core::progress::{make_progress, receive, transmit};
use unisono_core::span::Span;
use unisono_core::wire::HEADER;
use unisono_shmem::am_header::EAGER_LIMIT;

pub(super) use collectives::Outcome;
pub(super) use contexts::named;
pub(super) use messages::{Posting, SendFailure};
pub(super) use retire::{ASK, DEAF, GONE, LEFT, REVOKED};

use self::near::Placing;
use super::collective::context::WORLD;
use super::collective::rooms::Rooms;
use super::collective::schedule::Choices;
use super::collective::table::{Collectives, Outgoing};
use super::group::Group;
use super::keys::Keys;
use super::link::Link;
use super::mail::Mail;
use super::mailbox::{Mailbox, SharedRegions};
use super::near::Near;
use super::progress::Leaves;
use super::request::{Failure, Requests, Status, Tag, message_of, parcel_of};
use super::small::{Cell, SmallCells};
use crate::environment::Settings;
use crate::node::Node;
use unisono_bootstrap::{Entry, Membership, Rank};
use unisono_memory::records::{ProcessEndpoint, grow};
use unisono_memory::region::Regions;

/// Most datagrams that one round of progress receives and sends.
const BUDGET: u32 = 64;
/// Most rounds for which the progress thread receives before it sends.
const ROUNDS: u32 = 64;
/// Most payload bytes of an eager message that fit after its header in the endpoint's own record.
const INLINE_MOST: usize = unisono_core::wire::MESSAGE_HEADER_ROOM - MessageHeader::EAGER;
/// Nanoseconds between two checks of membership and watched peers.
const TENDING: u64 = 20_000_000;
/// Most bytes of a message that one CTS grants memory for, unless the settings choose otherwise.
const GRANT: usize = 1 << 31;
/// Bytes of batched sends that are flushed without being asked: a few GSO trains.
const CORKED: usize = 1 << 18;

/// How a peer's silence is interpreted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Silence {
    /// The peer counts as failed: a thread answers even while its program computes, or the user set a silence limit.
    Death,
    /// The peer may be computing, and no thread answers for it: its agent is asked whether it lives.
    Question,
}

/// What the completion of an operation of the endpoint ends.
#[derive(Clone, Copy, Debug)]
enum Use {
    Nothing,
    /// Its payload is in a bounce buffer, which becomes free.
    Cell(Cell),
    /// Its payload is the user buffer of this request.
    Request(u32, PeerId),
}

/// A collective's message that was announced to a rank of this node and waits for its receiver.
#[derive(Clone, Copy, Debug)]
struct Sending {
    to: PeerId,
    from: Span,
    request: u32,
}

/// Memory granted to a remote peer for a receive.
#[derive(Clone, Copy, Debug)]
struct Granted {
    placement: PlacementId,
    to: PeerId,
    request: u32,
}

/// Sends that wait to be flushed together.
#[derive(Clone, Copy, Default, Debug)]
struct Corked {
    sends: usize,
    /// Number of sends after which the batch is flushed: a whole number of GSO trains of the first one's length.
    most: usize,
    bytes: usize,
}

pub(super) struct Process {
    pub(super) rank: Rank,
    pub(super) size: u32,
    pub(super) endpoint: ProcessEndpoint,
    pub(super) device: Link,
    pub(super) requests: Requests,
    pub(super) counters: Counters,
    /// `None` while this process waits at a fence.
    pub(super) membership: Option<Membership>,
    pub(super) silence: Silence,
    /// A digest of the settings that must be equal on all ranks.
    pub(super) settings: u64,
    pub(super) aborted: Option<Failure>,
    /// Whether any communicator was revoked, and the contexts of those that were.
    has_revoked: bool,
    revoked: Vec<Context>,
    /// Messages that matched probes have removed, and that were not received yet.
    pub(super) taken_out: Vec<(MessageId, Envelope)>,
    clock: Instant,
    regions: RefCell<Regions>,
    pub(super) mailbox: Mailbox,
    /// Messages that wait for room in the endpoint.
    outbox: VecDeque<Outgoing>,
    /// Whether a message was given to the endpoint since it last transmitted.
    has_posted: bool,
    /// Rounds that sends have waited for room.
    rounds: u32,
    small: SmallCells,
    keys: Keys,
    uses: Vec<Use>,
    sendings: Vec<Option<Sending>>,
    granted: Vec<Option<Granted>>,
    /// Most bytes of a message that one CTS grants memory for: the same on all ranks.
    grant_most: usize,
    placings: Vec<Option<Placing>>,
    pub(super) collectives: Collectives,
    pub(super) near: Option<Near>,
    watched: Vec<PeerId>,
    /// Ranks that failed while no request depended on them and no receive accepted any source: the next such receive
    /// reports them.
    untold: Vec<Rank>,
    /// Whether this rank has sent its last message, and the ranks that reported the same.
    is_at_end: bool,
    left: Vec<PeerId>,
    /// Whether this rank starts nothing more, and the ranks that reported that they receive no more messages.
    is_deaf: bool,
    deaf: Vec<PeerId>,
    /// Threads of this process that only make progress.
    pub(super) own_threads: usize,
    tended: u64,
    corked: Corked,
    /// The last reading of the clock: the endpoint must never see time go backwards.
    pub(super) latest: u64,
}

impl Process {
    pub(super) fn new(
        seat: (Rank, u32),
        endpoint: ProcessEndpoint,
        device: Link,
        membership: Membership,
        silence: Silence,
        node: Option<Arc<Node>>,
        (settings, pool): (&Settings, usize),
    ) -> Self {
        let near = node.and_then(Near::new);
        let mut regions = device.regions();
        let small = SmallCells::new(&mut regions);
        let mailbox = Mailbox::new(seat.1, pool, &mut regions);
        let own = device.mtu();
        let trailer = own.saturating_sub(device.limits().mtu);
        let is_whole = near.as_ref().is_some_and(|near| near.node.size() == seat.1);
        let digests = settings.digests();
        let choices = [false, true].map(|is_near| Choices::new(settings.tuning.clone(), is_near));
        let rooms = Rooms::new(near.as_ref().map(|near| near.node.clone()));
        let mut collectives = Collectives::new(seat.1, choices, rooms, |peer| {
            let neighbour = near.as_ref().and_then(|near| near.at(peer));
            let theirs = membership.table().get(peer.0 as usize).map_or(own, |entry| entry.mtu);
            steps::eager_limit(neighbour, theirs.min(own).saturating_sub(trailer))
        });
        collectives.open(WORLD, 0, Group::all(seat.1), is_whole);
        let mut process = Self {
            rank: seat.0,
            size: seat.1,
            endpoint,
            device,
            requests: Requests::new(),
            counters: Counters::default(),
            membership: None,
            silence,
            settings: u64::from(digests.tuning) << 32 | u64::from(digests.transport),
            aborted: None,
            has_revoked: false,
            revoked: Vec::new(),
            taken_out: Vec::new(),
            clock: Instant::now(),
            regions: RefCell::new(regions),
            mailbox,
            outbox: VecDeque::new(),
            has_posted: false,
            rounds: 0,
            small,
            keys: Keys::new(),
            uses: Vec::new(),
            sendings: Vec::new(),
            granted: Vec::new(),
            grant_most: settings.transport.grant.map_or(GRANT, |bytes| bytes.get() as usize),
            placings: Vec::new(),
            collectives,
            near,
            watched: Vec::new(),
            untold: Vec::new(),
            is_at_end: false,
            left: Vec::new(),
            is_deaf: false,
            deaf: Vec::new(),
            own_threads: 0,
            tended: 0,
            corked: Corked::default(),
            latest: 0,
        };
        let own = PeerId::from(process.rank);
        process.mailbox.set_limit(own, EAGER_LIMIT as u32);
        for neighbour in process.near.iter().flat_map(|near| near.neighbours.iter()).flatten() {
            let limit = neighbour.longest().saturating_sub(MessageHeader::EAGER as u32).min(EAGER_LIMIT as u32);
            process.mailbox.set_limit(neighbour.peer, limit);
        }
        for (rank, entry) in membership.table().iter().enumerate() {
            process.meet(Rank(rank as u32), entry);
        }
        process.membership = Some(membership);
        process
    }

    /// Reads the clock, in nanoseconds since this process joined.
    fn now(&mut self) -> u64 {
        self.latest = self.clock.elapsed().as_nanos() as u64;
        self.latest
    }

    fn meet(&mut self, rank: Rank, entry: &Entry) {
        // Ranks of this node are connected through the shared segment.
        if rank == self.rank || self.near.as_ref().is_some_and(|near| near.at(rank.into()).is_some()) {
            return;
        }
        if let Err(error) = self.device.set_path(rank.into(), entry.lanes, entry.mtu) {
            tracing::error!(%rank, ?error, "no path");
            return;
        }
        let own = self.device.mtu();
        let trailer = own.saturating_sub(self.device.limits().mtu);
        let mtu = entry.mtu.min(own).saturating_sub(trailer);
        let now = self.now();
        self.endpoint.add_peer(now, rank.into(), entry.incarnation, mtu);
        self.mailbox.machine.reconnect(rank.into());
        self.left.retain(|left| *left != rank.into());
        self.deaf.retain(|deaf| *deaf != rank.into());
        self.collectives.asked.retain(|(asked, _)| *asked != rank.into());
        self.collectives.contexts.forget(rank);
        self.mailbox.set_limit(rank.into(), mtu.saturating_sub((HEADER + MessageHeader::EAGER) as u32));
    }

    /// Whether datagrams may be waiting. If not, a round of progress would only advance timers.
    pub(super) fn look(&mut self) -> bool {
        self.device.look()
    }

    /// Receives what has arrived. Returns whether the rest of the round may be left to the next call, because nothing
    /// that others wait for follows.
    pub(super) fn take_arrivals(&mut self) -> bool {
        let now = self.now();
        let Self { endpoint, device, requests, counters, regions, mailbox, collectives, .. } = self;
        let regions = SharedRegions(regions);
        let mut mail = Mail { mailbox, requests, regions: regions.0, counters, collectives };
        receive(now, DeviceQueue::Polled, endpoint, device, &regions, &mut mail, BUDGET);
        let collects = self.collectives.has_news || !self.requests.moved.is_empty();
        let sends = self.has_posted || !self.outbox.is_empty() || self.endpoint.has_to_transmit();
        // Others wait for these grants.
        !collects && !sends && !self.mailbox.has_news() && self.mailbox.late_grants.is_empty()
    }

    /// Makes one round of progress and runs the work that it deferred. With `interrupt`, also reads the interrupt
    /// queue, whose probes are answered only after everything that was sent before them has been taken off the polled
    /// queue. Returns whether anything moved.
    pub(super) fn progress(&mut self, interrupt: bool) -> bool {
        let now = self.now();
        let moved = self.progress_near();
        self.corked = Corked::default();
        // Without remote peers the endpoint has nothing to do.
        let moved = moved | if self.is_whole() { self.follow(now) } else { self.progress_far(now, interrupt) };
        if now.wrapping_sub(self.tended) >= TENDING {
            self.tended = now;
            self.tend(now);
        }
        moved
    }

    fn progress_far(&mut self, now: u64, interrupt: bool) -> bool {
        let Self { endpoint, device, requests, counters, regions, mailbox, collectives, .. } = self;
        let regions = SharedRegions(regions);
        let mut mail = Mail { mailbox, requests, regions: regions.0, counters, collectives };
        let mut moved = false;
        if interrupt {
            moved = receive(now, DeviceQueue::Interrupt, endpoint, device, &regions, &mut mail, BUDGET);
            let mut rounds = 0..ROUNDS;
            while rounds.next().is_some() && receive(now, DeviceQueue::Polled, endpoint, device, &regions, &mut mail, BUDGET) {
                moved = true;
            }
        }
        grow(endpoint, now);
        moved |= make_progress(now, DeviceQueue::Polled, endpoint, device, &regions, &mut mail, BUDGET);
        moved |= self.follow(now);
        if core::mem::take(&mut self.has_posted) {
            // Sends control messages now, since the next call may be long in coming.
            self.push(now);
        }
        moved | self.follow_collectives()
    }

    /// Advances collectives after a round, and transmits what they send.
    #[inline]
    fn follow_collectives(&mut self) -> bool {
        let now = self.latest;
        if !self.progress_collectives(now) {
            return false;
        }
        if !self.is_whole() {
            self.push(now);
        }
        true
    }

    /// Transmits what is queued, without receiving.
    fn push(&mut self, now: u64) {
        self.corked = Corked::default();
        let Self { endpoint, device, requests, counters, regions, mailbox, collectives, .. } = self;
        let mut mail = Mail { mailbox, requests, regions, counters, collectives };
        grow(endpoint, now);
        transmit(now, DeviceQueue::Polled, endpoint, device, &SharedRegions(regions), &mut mail, BUDGET);
        self.follow(now);
    }

    /// A send of `bytes` bytes was queued: transmits at once, or when the batch is large enough.
    pub(super) fn let_leave(&mut self, leaves: Leaves, bytes: usize) {
        let corked = &mut self.corked;
        if corked.sends == 0 {
            let most = CORKED.checked_div(bytes).unwrap_or(usize::MAX);
            corked.most = self.device.batch_of(bytes.saturating_add(HEADER + MessageHeader::EAGER), most);
        }
        corked.sends += 1;
        corked.bytes = corked.bytes.saturating_add(bytes);
        if leaves == Leaves::AtOnce || corked.sends >= corked.most || corked.bytes >= CORKED {
            // The caller may have computed since the clock was read.
            let now = if leaves == Leaves::AtOnce { self.latest } else { self.now() };
            self.push(now);
        }
    }

    /// Transmits the batched sends.
    pub(super) fn uncork(&mut self) {
        let now = self.now();
        self.push(now);
    }

    /// Handles the endpoint's events and runs deferred work.
    fn follow(&mut self, now: u64) -> bool {
        let mut moved = false;
        while let Some(event) = self.endpoint.poll_event(now) {
            moved = true;
            self.handle_event(now, event);
        }
        moved |= self.follow_messages();
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
                            OperationError::PeerFinished => Failure::Parted(rank),
                            OperationError::Refused => Failure::TooLongForReceive(rank),
                        });
                        let status = Status { source: self.rank, tag: Tag(0), bytes: 0 };
                        match parcel_of(request) {
                            Some(parcel) => self.leave_parcel(parcel, result.err()),
                            None => self.requests.finish(request, result.map(|()| status)),
                        }
                    }
                    Some(Use::Nothing) | None => {}
                }
            }
            Event::Delivered(placement, _) => {
                if let Some(granted) = self.granted.get_mut(placement.record()).and_then(Option::take) {
                    self.mailbox.fill(granted.request, &mut self.requests);
                }
            }
            Event::PeerFailed(peer) => self.lose(peer, Failure::PeerFailed(peer.into()), true),
            Event::PeerFinished(peer) => self.lose(peer, Failure::Parted(peer.into()), false),
            Event::PeerSilent(peer) => match (self.silence, &mut self.membership) {
                (Silence::Question, Some(membership)) => membership.ask(peer.into()),
                (Silence::Question, None) => {}
                (Silence::Death, _) => {
                    tracing::info!(rank = peer.0, "silent for too long");
                    self.endpoint.fail(now, peer);
                }
            },
        }
    }

    #[inline(always)]
    fn note(&mut self, operation: OperationId, what: Use) {
        let i = operation.0 as usize;
        if self.uses.len() <= i {
            self.uses.resize(i + 1, Use::Nothing);
        }
        if let Some(place) = self.uses.get_mut(i) {
            *place = what;
        }
    }

    /// Whether everything that was sent has arrived.
    pub(super) fn is_flushed(&mut self) -> bool {
        self.mailbox.ask_for_parcels();
        let is_over = |sending: &Sending| {
            message_of(sending.request).is_some_and(|message| self.collectives.transfers.is_orphan(message))
        };
        self.sendings.iter().flatten().all(is_over)
            && self.mailbox.parcels.is_empty()
            && self.outbox.is_empty()
            && self.collectives.is_flushed()
            && self.endpoint.is_acknowledged()
            && self.near.as_ref().is_none_or(Near::is_flushed)
    }

    /// Nanoseconds until the endpoint must be polled again; `None`: no timer runs.
    pub(super) fn rest(&mut self) -> Option<u64> {
        let now = self.now();
        self.endpoint.poll_timeout(now).map(|at| at.saturating_sub(now))
    }

    /// Nanoseconds until the next check of membership and watched peers.
    pub(super) fn tends_in(&mut self) -> u64 {
        TENDING.saturating_sub(self.now().wrapping_sub(self.tended))
    }

    /// Enables the queue's notification. Returns false if something already waits there.
    pub(super) fn arm(&mut self, lane: DeviceQueue) -> bool {
        self.device.arm(lane) == Armed::Armed
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
