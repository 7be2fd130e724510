//! The progress table: all collectives of a process that use messages, their transfers and the state of their
//! transport.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::cell::RefCell;

use unisono_core::collective::token_tree;
use unisono_core::collective::token_tree::header::{TREE_HEADER, TreeHeader};
use unisono_core::collective::{CollectiveMachine as _, FailureCause, Turn};
use unisono_core::device::Received;
use unisono_core::endpoint::Verdict;
use unisono_core::ids::{CollectiveId, PeerId, Rank as Member, StepId};
use unisono_core::message::collective_transport::StepKey;
use unisono_core::message::collective_transport::header::{TransportKind, parse_key};
use unisono_core::messenger::Payload;
use unisono_core::multicast::UnreliableHeader;
use unisono_core::schedule::StepOperation;
use unisono_core::span::Span as Bytes;

use super::active_collective::{ActiveCollective, CollectiveName, CollectiveStart};
use super::context::{
    ALL_CONTEXTS, Context, ContextOffer, Contexts, CreationOrder, RECEIVE_STATUS, RetiredPeer, Round,
};
use super::group_message::{self, GroupMessage};
use super::job_pool;
use super::multicast_call::MulticastStage;
use super::multicast_streams::MulticastStreams;
use super::rdma_all_to_all::RdmaAllToAll;
use super::release_groups::RELEASE_HEADER;
use super::schedule::ScheduleCache;
use super::scratch_pool::ScratchPool;
use super::status::{ASK_STATUS, MEMBER_DIED, RECEIVES_CLOSED, RETIRED, REVOKED, SENDS_DONE};
use super::token_trees::{TokenTrees, TreeArrival, is_sound};
use super::transfer::{Transfers, context_of};
use crate::environment::Subgroups;
use crate::world::collective::intra_node::communicator_slots::CommunicatorSlots;
use crate::world::group::Group;
use crate::world::process::collective_messages::ControlMessage;
use crate::world::process::transport::EarlyPayloads;
use crate::world::watchdog::{
    BlockedOn, CollectiveRef, Mechanism, Participation, StuckCollective, WaitRegistry, WatchMessage,
};
use unisono_bootstrap::Rank;
use unisono_memory::endpoint_storage::ProcessMessenger;
use unisono_memory::memory_regions::Regions;

/// Unexpected eager messages per peer (its credit); fewer in large jobs.
pub(in crate::world) const EAGER_CREDIT: u32 = 16;
/// Most announced messages and most pending receives; the rest waits outside the machine.
pub(in crate::world) const PENDING_MAX: usize = 1024;

/// A fault of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct PeerFault {
    pub(in crate::world) peer: PeerId,
    /// The context; [`ALL_CONTEXTS`]: the message names none.
    pub(in crate::world) context: u32,
    pub(in crate::world) cause: FailureCause,
}

/// A collective that a peer has started and this rank has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct EarlyCollective {
    peer: PeerId,
    sequence: u32,
    context: u32,
}

/// A rank that a collective waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct AwaitedRank {
    pub(in crate::world) peer: PeerId,
    pub(in crate::world) context: u32,
    /// The collective.
    pub(in crate::world) subject: CollectiveRef,
    /// When the collective was started.
    pub(in crate::world) since: u64,
}

/// A change of a peer's status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum StatusEvent {
    /// It takes no more part in the collectives of a context, or of [`ALL_CONTEXTS`].
    Retired { gone: RetiredPeer, context: u32 },
    /// It has failed: its messages are discarded.
    Failed(PeerId),
    /// It reports that this context is revoked.
    Revoked { from: PeerId, context: u32 },
    /// It sends no more messages.
    SendsDone(PeerId),
    /// It receives no more messages.
    ReceivesClosed(PeerId),
    /// It reports that a member of a context has died.
    MemberDied { from: PeerId, context: u32, generation: u8, dead: Rank },
}

/// What is to be done when the table is next advanced.
#[derive(Default)]
pub(in crate::world) struct Work {
    /// Collectives to be advanced.
    pub(in crate::world) ready: VecDeque<u32>,
    /// Steps that found the transport full.
    pub(in crate::world) stalled: VecDeque<(u32, StepId, StepOperation)>,
    /// Messages about communicators that found the messenger full.
    pub(in crate::world) outbox: VecDeque<(PeerId, ControlMessage)>,
    /// Whether something has happened since the table was last advanced.
    pub(in crate::world) has_work: bool,
    /// Whether messages have arrived that are to be discarded.
    pub(in crate::world) has_discardable: bool,
    /// Contexts in which this rank's innermost group executes steps.
    pub(in crate::world) lanes: Vec<u32>,
}

/// Questions and answers about which ranks take part in a context.
#[derive(Default)]
pub(in crate::world) struct StatusMessages {
    /// Ranks that have just asked, and about which context.
    pub(in crate::world) requests: Vec<(PeerId, u32)>,
    /// Changes that are not handled yet.
    pub(in crate::world) events: VecDeque<StatusEvent>,
    /// Ranks that are to be notified when this one takes no more part in a context, and the ranks that this one has
    /// asked for that.
    pub(in crate::world) waiters: Vec<(PeerId, u32)>,
    pub(in crate::world) asked: Vec<(PeerId, u32)>,
}

/// The progress table.
pub(in crate::world) struct CollectiveTable {
    pub(in crate::world) active: Vec<Option<ActiveCollective>>,
    pub(in crate::world) transfers: Transfers,
    /// The trees of communicators.
    pub(in crate::world) trees: TokenTrees,
    /// The multicast streams of communicators.
    pub(in crate::world) multicast: MulticastStreams,
    pub(in crate::world) scratch: ScratchPool,
    pub(in crate::world) contexts: Contexts,
    pub(in crate::world) communicator_slots: CommunicatorSlots,
    /// Schedules between nodes, and within one node.
    pub(in crate::world) schedules: [ScheduleCache; 2],
    pub(in crate::world) work: Work,
    early: Vec<EarlyCollective>,
    pub(in crate::world) faults: Vec<PeerFault>,
    /// Contexts of collectives for which this rank has no memory.
    pub(in crate::world) exhausted: Vec<u32>,
    pub(in crate::world) failed: Vec<PeerId>,
    pub(in crate::world) status: StatusMessages,
    /// Whether this rank has finished.
    pub(in crate::world) is_finished: bool,
    /// The waits that hang reports examine.
    pub(in crate::world) wait_registry: WaitRegistry,
}

impl CollectiveTable {
    pub(in crate::world) fn new(schedules: [ScheduleCache; 2], communicator_slots: CommunicatorSlots) -> Self {
        Self {
            active: Vec::new(),
            transfers: Transfers::default(),
            trees: TokenTrees::default(),
            multicast: MulticastStreams::default(),
            scratch: ScratchPool::new(),
            contexts: Contexts::new(),
            communicator_slots,
            schedules,
            work: Work::default(),
            early: Vec::new(),
            faults: Vec::new(),
            exhausted: Vec::new(),
            failed: Vec::new(),
            status: StatusMessages::default(),
            is_finished: false,
            wait_registry: WaitRegistry::default(),
        }
    }

    /// Handles a message of a collective or about a communicator. Returns what is to be done with its payload.
    pub(in crate::world) fn handle(
        &mut self,
        from: PeerId,
        head: &[u8],
        bytes: u32,
        messenger: &mut ProcessMessenger,
        (early_payloads, regions): (&mut EarlyPayloads, &RefCell<Regions>),
    ) -> Verdict {
        self.work.has_work = true;
        if let Some(question) = WatchMessage::decode(head) {
            self.wait_registry.received.push((from, question));
            return Verdict::Release;
        }
        if head.first() == Some(&token_tree::header::KIND) {
            return self.handle_tree_message(from, head, bytes, &mut regions.borrow_mut());
        }
        if head.first() == Some(&group_message::KIND) {
            return self.handle_group_message(from, head);
        }
        if head.first() == Some(&job_pool::KIND) {
            return self.handle_pool_message(from, head);
        }
        if head.first().is_some_and(|kind| *kind >= ASK_STATUS) {
            self.handle_status_message(from, head);
            return Verdict::Release;
        }
        self.check_agreement(from, head);
        let context = parse_key(head).map_or(ALL_CONTEXTS, |(_, key)| context_of(key));
        self.work.has_discardable |= self.contexts.is_over(context);
        match messenger.handle_step(from, head, bytes) {
            Payload::Copy { to, start } => match early_payloads.resolve(to, &mut regions.borrow_mut()) {
                Some(to) => Verdict::Place { to, start: u16::try_from(start).unwrap_or(u16::MAX) },
                None => self.report_exhausted(context),
            },
            Payload::Nothing => Verdict::Release,
            Payload::ProtocolViolation => self.report_fault(from, context, FailureCause::Corrupt),
        }
    }

    pub(in crate::world) fn report_fault(&mut self, peer: PeerId, context: u32, cause: FailureCause) -> Verdict {
        self.work.has_work = true;
        self.faults.push(PeerFault { peer, context, cause });
        Verdict::Release
    }

    /// This rank has no memory for a message of a collective.
    pub(in crate::world) fn report_exhausted(&mut self, context: u32) -> Verdict {
        self.work.has_work = true;
        self.exhausted.push(context);
        Verdict::Release
    }

    /// The span of a transfer's bytes; allocates staging memory if they are not contiguous. `None`: the system has none.
    pub(in crate::world) fn transfer_span(&mut self, transfer: u32, regions: &mut Regions) -> Option<Bytes> {
        let transfer = self.transfers.get_mut(transfer)?;
        if transfer.place.is_none() {
            let kept = self.scratch.allocate(transfer.bytes as usize, regions)?;
            transfer.staging = Some(kept);
            transfer.place = Some(kept.part(transfer.bytes));
        }
        transfer.place
    }

    /// Handles a message of a tree: it waits for the next round, its values in memory of the process.
    fn handle_tree_message(&mut self, from: PeerId, head: &[u8], bytes: u32, regions: &mut Regions) -> Verdict {
        let bytes = bytes.saturating_sub(TREE_HEADER as u32);
        let header = TreeHeader::decode(head).filter(|header| is_sound(header, bytes as usize));
        let Some(header) = header else { return self.report_fault(from, ALL_CONTEXTS, FailureCause::Corrupt) };
        let context = context_of(header.key());
        if !self.admits(from, &header) || self.trees.is_repeated(from, &header) {
            return Verdict::Release;
        }
        if self.trees.has_too_many_of(from, false) {
            return self.report_fault(from, context, FailureCause::Corrupt);
        }
        match self.queue_tree_arrival(TreeArrival { from, header, is_multicast: false, values: None, bytes }, regions) {
            Some(to) if bytes > 0 => Verdict::Place { to, start: TREE_HEADER as u16 },
            Some(_) => Verdict::Release,
            None => self.report_exhausted(context),
        }
    }

    /// Handles a release that was sent by multicast. What is not of a member of an open communicator is dropped: another
    /// process may have sent it, and what is lost is asked for.
    fn handle_release(&mut self, datagram: &impl Received, regions: &mut Regions) -> Verdict {
        let arrived = self.multicast.releases.parse(datagram);
        let arrived = arrived.filter(|(from, header, bytes)| {
            let of = self.contexts.get(context_of(header.key()));
            let is_its = of.is_some_and(|of| of.failed.is_none() && of.generation as u16 == header.generation);
            let is_sound = header.shape.is_multicast && is_sound(header, *bytes as usize);
            is_its && is_sound && !self.trees.has_too_many_of(*from, true)
        });
        let Some((from, header, bytes)) = arrived else {
            self.multicast.count_foreign();
            return Verdict::Release;
        };
        match self.queue_tree_arrival(TreeArrival { from, header, is_multicast: true, values: None, bytes }, regions) {
            Some(to) if bytes > 0 => Verdict::Place { to, start: RELEASE_HEADER as u16 },
            Some(_) | None => Verdict::Release,
        }
    }

    /// Queues a message of a tree for the next round. Returns the place of its values; `None`: there is no memory.
    fn queue_tree_arrival(&mut self, arrival: TreeArrival, regions: &mut Regions) -> Option<Bytes> {
        let bytes = arrival.bytes;
        let values = if bytes == 0 { None } else { Some(self.scratch.allocate(bytes as usize, regions)?) };
        self.trees.has_work = true;
        self.trees.arrivals.push_back(TreeArrival { values, ..arrival });
        Some(values.map_or_else(Bytes::default, |values| values.part(bytes)))
    }

    /// Whether a tree has to handle a message. Where releases go by multicast, a rank may leave a call, and even end the
    /// communicator, before all messages about it arrive: an Ack that crossed a token, an Ask, a release that is known.
    /// The tree judges those; of any other message the key must be that of this rank's call.
    fn admits(&mut self, from: PeerId, header: &TreeHeader) -> bool {
        let context = context_of(header.key());
        let is_open = |id: CollectiveId| (id.context, id.sequence) == (context, header.sequence);
        let is_ahead = |of: &Context| !of.started.has_started(header.sequence);
        match self.contexts.get(context) {
            _ if !header.shape.is_multicast => self.check_key(from, header.key()),
            // Of an earlier communicator, or the one that is being opened.
            None => self.contexts.is_expecting(context),
            Some(of) if of.generation as u16 != header.generation => false,
            Some(of) if is_ahead(of) || self.active.iter().flatten().any(|running| is_open(running.executor.id())) => {
                self.check_key(from, header.key())
            }
            Some(_) => true,
        }
    }

    /// Handles a datagram to a multicast group. `None`: it is none.
    pub(in crate::world) fn handle_group_datagram(
        &mut self,
        datagram: &impl Received,
        regions: &RefCell<Regions>,
    ) -> Option<Verdict> {
        if UnreliableHeader::is_unreliable(datagram.prefix()) {
            return Some(self.handle_unrepaired(datagram, &mut regions.borrow_mut()));
        }
        let verdict = self.multicast.handle_datagram(datagram)?;
        self.work.has_work |= self.multicast.has_work;
        Some(verdict)
    }

    /// Handles a datagram to a group that nobody repairs: a probe of the pool or a release.
    fn handle_unrepaired(&mut self, datagram: &impl Received, regions: &mut Regions) -> Verdict {
        if self.multicast.pool.as_mut().is_some_and(|pool| pool.handle_probe(datagram)) {
            (self.work.has_work, self.multicast.has_work) = (true, true);
            return Verdict::Release;
        }
        self.handle_release(datagram, regions)
    }

    /// Handles a message about the pool of groups: it waits for the next round. A rank without a pool ignores it.
    fn handle_pool_message(&mut self, from: PeerId, head: &[u8]) -> Verdict {
        let Some(message) = job_pool::decode(head) else {
            return self.report_fault(from, ALL_CONTEXTS, FailureCause::Corrupt);
        };
        self.multicast.has_work = true;
        if self.multicast.pool.as_mut().is_some_and(|pool| !pool.queue(from, message)) {
            return self.report_fault(from, ALL_CONTEXTS, FailureCause::Corrupt);
        }
        Verdict::Release
    }

    /// Handles a message about a communicator's multicast group: it waits for the next round.
    fn handle_group_message(&mut self, from: PeerId, head: &[u8]) -> Verdict {
        let queued = GroupMessage::decode(head).map(|message| self.multicast.queue(from, message));
        if queued != Some(true) {
            return self.report_fault(from, ALL_CONTEXTS, FailureCause::Corrupt);
        }
        Verdict::Release
    }

    /// Checks that a peer calls the same collective as this rank, by the key of its message.
    fn check_agreement(&mut self, from: PeerId, head: &[u8]) {
        if let Some((TransportKind::Eager | TransportKind::Rts, key)) = parse_key(head) {
            self.check_key(from, key);
        }
    }

    /// As [`check_agreement`](Self::check_agreement). Returns whether the message is one of a call that this rank makes,
    /// or may make later.
    fn check_key(&mut self, from: PeerId, key: StepKey) -> bool {
        let StepKey { context, sequence, .. } = key;
        if self.contexts.is_over(context_of(key)) {
            return false;
        }
        // A faster peer may already use a communicator that this rank is still making.
        let known = self.contexts.get(context_of(key));
        if known.is_none() && !self.contexts.is_expecting(context_of(key)) {
            self.report_fault(from, ALL_CONTEXTS, FailureCause::Corrupt);
            return false;
        }
        let last = known.map_or(0, |context| context.started.last.id.sequence);
        if sequence.wrapping_sub(last).cast_signed() > 0 {
            let ahead = EarlyCollective { peer: from, sequence, context };
            if self.early.iter().filter(|other| other.peer == from).count() > PENDING_MAX + EAGER_CREDIT as usize {
                // No correct rank has as many messages in flight.
                self.report_fault(from, context_of(key), FailureCause::Corrupt);
                return false;
            }
            if !self.early.contains(&ahead) {
                self.early.push(ahead);
            }
            return true;
        }
        let same =
            |running: &ActiveCollective| running.executor.id().sequence == sequence && running.context == context;
        let is_same = self.active.iter().flatten().any(same);
        if !is_same {
            self.report_fault(from, context_of(key), FailureCause::Disagrees);
        }
        is_same
    }

    /// Inserts a collective to be started. Returns its index.
    pub(in crate::world) fn insert(&mut self, running: ActiveCollective) -> u32 {
        let place = self.active.iter().position(Option::is_none).unwrap_or(self.active.len());
        if place == self.active.len() {
            self.active.push(None);
        }
        if let Some(free) = self.active.get_mut(place) {
            *free = Some(running);
        }
        place as u32
    }

    /// Starts a collective, as the next one of its communicator.
    pub(in crate::world) fn start(&mut self, now: u64, place: u32, call: u32) {
        let Self { active: running, contexts, early: ahead, faults: blames, failed: dead, .. } = self;
        let Some(running) = running.get_mut(place as usize).and_then(Option::as_mut) else { return };
        let context = running.executor.id().context;
        let Some(own) = contexts.get_mut(context) else { return };
        let sequence = own.started.last.id.sequence.wrapping_add(1);
        running.executor.restart(CollectiveId { context, sequence });
        let first_turns = own.lanes.enter(running.executor.plan());
        running.start = CollectiveStart { call, at: now, waited_since: None, first_turns };
        running.ended = None;
        own.started.record(running.name(), running.context);
        if running.exchange.is_none() {
            own.started.last_record = Some((call, running.executor.plan().record()));
        }
        ahead.retain(|ahead| {
            let is_this = ahead.sequence == sequence && ahead.context >> 16 == context;
            if is_this && ahead.context != running.context {
                blames.push(PeerFault { peer: ahead.peer, context, cause: FailureCause::Disagrees });
            }
            !is_this
        });
        for number in dead.iter().filter_map(|peer| own.members.number((*peer).into())) {
            running.executor.handle_failed(Member(number.0));
        }
        self.enqueue(place);
    }

    /// Queues a collective to be advanced.
    pub(in crate::world) fn enqueue(&mut self, collective: u32) {
        self.work.has_work = true;
        if let Some(running) = self.get_mut(collective)
            && !running.is_queued
        {
            running.is_queued = true;
            self.work.ready.push_back(collective);
        }
    }

    /// Lets a schedule execute a call that waited for the decision between multicast and schedules.
    pub(in crate::world) fn schedule_undecided(&mut self, collective: u32) {
        let running = self.get_mut(collective);
        if let Some(call) = running.and_then(|running| running.executor.multicast_mut())
            && call.stage == MulticastStage::Undecided
        {
            call.stage = MulticastStage::Scheduled;
            self.enqueue(collective);
        }
    }

    pub(in crate::world) fn get_mut(&mut self, collective: u32) -> Option<&mut ActiveCollective> {
        self.active.get_mut(collective as usize)?.as_mut()
    }

    /// A rank asks to be notified when this one takes no more part in a context.
    pub(in crate::world) fn handle_ask(&mut self, from: PeerId, context: u32) {
        self.work.has_work = true;
        self.status.requests.push((from, context));
    }

    /// Queues a status change, to be handled after the messages that preceded it.
    pub(in crate::world) fn queue_status(&mut self, leaving: StatusEvent) {
        self.work.has_work = true;
        self.status.events.push_back(leaving);
    }

    /// Handles a status message.
    pub(in crate::world) fn handle_status_message(&mut self, from: PeerId, head: &[u8]) {
        let Some([kind, generation, low, high, cause @ ..]) = head.first_chunk::<8>() else { return };
        let (context, cause) = (u32::from(u16::from_le_bytes([*low, *high])), Rank(u32::from_le_bytes(*cause)));
        match *kind {
            ASK_STATUS => {
                self.handle_ask(from, context);
                if context == ALL_CONTEXTS {
                    self.handle_ask(from, RECEIVE_STATUS);
                }
            }
            RETIRED => self.queue_status(StatusEvent::Retired { gone: RetiredPeer { peer: from, cause }, context }),
            REVOKED => self.queue_status(StatusEvent::Revoked { from, context }),
            SENDS_DONE => self.queue_status(StatusEvent::SendsDone(from)),
            RECEIVES_CLOSED => self.queue_status(StatusEvent::ReceivesClosed(from)),
            MEMBER_DIED => {
                let generation = *generation;
                self.queue_status(StatusEvent::MemberDied { from, context, generation, dead: cause });
            }
            _ => {}
        }
    }

    /// Records that a rank takes no more part in a context. Returns whether a transfer waits for it; `open` are the sends
    /// that do. Its earlier messages were handled before.
    pub(in crate::world) fn retire(&mut self, gone: RetiredPeer, context: u32, open: &[u32]) -> bool {
        let Some(of) = self.contexts.get_mut(context) else { return false };
        if !of.reports.retired.iter().any(|known| known.peer == gone.peer) {
            // The first cause counts.
            of.reports.retired.push(gone);
        }
        self.transfers.waits_for(gone.peer, context, open) || self.waits_without_transfer(gone.peer, context)
    }

    /// Whether a call of this context waits for a peer, but for no message of it: a call that no schedule executes, or of which
    /// a tree executes a step.
    fn waits_without_transfer(&self, peer: PeerId, context: u32) -> bool {
        let active = (0..).zip(&self.active).filter_map(|(i, running)| Some((i, running.as_ref()?)));
        let mut calls = active.filter(|(_, running)| {
            let has_tree = || running.executor.plan().leaders_tree().is_some();
            let is_its = running.ended.is_none() && running.executor.id().context == context;
            is_its && (running.executor.is_unscheduled() || has_tree())
        });
        calls.any(|(i, _)| self.unscheduled_partners(i, context).contains(&peer))
    }

    /// The peers that the steps of a collective wait for in this rank's subgroups: the rank that the step being executed
    /// waits for, also where it is another collective's and theirs wait for their turn; until the step whose turn it is
    /// has begun, the ranks of which its collective awaits messages.
    fn group_partners(&self, collective: u32, context: u32) -> Vec<PeerId> {
        let Some(of) = self.contexts.get(context) else { return Vec::new() };
        let mut peers = Vec::new();
        for lane in of.lanes.iter().filter(|lane| lane.has_step_of(collective)) {
            if lane.is_executing() {
                peers.extend(lane.awaited().map(PeerId::from));
                continue;
            }
            peers.extend(self.partners_of_next(collective, (context, lane.level()), |turn| lane.is_next(turn)));
        }
        let running = self.active.get(collective as usize).and_then(Option::as_ref);
        if let Some((last, _)) = running.and_then(|running| running.executor.plan().leaders_tree()) {
            peers.extend(self.tree_partners(collective, of));
            if of.lanes.leaders.has_parked(collective) {
                let is_next = |turn| of.lanes.leaders.is_next(turn);
                peers.extend(self.partners_of_next(collective, (context, last), is_next));
            }
        }
        peers
    }

    /// The peers that the collective waits for whose step at this level has the next turn and has not begun: it was started
    /// before `collective`, or is that one.
    fn partners_of_next(
        &self,
        collective: u32,
        (context, level): (u32, u32),
        is_next: impl Fn(Turn) -> bool,
    ) -> Vec<PeerId> {
        let Some(of) = self.contexts.get(context) else { return Vec::new() };
        let has_next = |(_, running): &(u32, &ActiveCollective)| {
            let (plan, first) = (running.executor.plan(), running.start.first_turns.of(level));
            running.executor.id().context == context
                && (0..plan.group_steps_of(level)).any(|step| is_next(first.after(step)))
        };
        let Some((next, running)) = self.pending().find(has_next) else { return Vec::new() };
        let senders = running.executor.partners();
        let senders = senders.filter_map(|rank| Some(PeerId::from(of.members.world_rank(Rank(rank.0))?)));
        let in_group = if next == collective { Vec::new() } else { self.group_partners(next, context) };
        senders.chain(in_group).collect()
    }

    /// The peers that a collective waits for on a tree.
    fn tree_partners(&self, collective: u32, of: &Context) -> impl Iterator<Item = PeerId> {
        let awaited = self.trees.awaited(collective).into_iter();
        awaited.filter_map(|member| Some(of.members.world_rank(Rank(member.0))?.into()))
    }

    /// The peers that a call waits for which no schedule executes.
    pub(in crate::world) fn unscheduled_partners(&self, collective: u32, context: u32) -> Vec<PeerId> {
        let Some(of) = self.contexts.get(context) else { return Vec::new() };
        let rdma = self.active.get(collective as usize).and_then(Option::as_ref).and_then(|one| one.executor.rdma());
        let awaited = rdma.into_iter().flat_map(RdmaAllToAll::awaited);
        let awaited = awaited.filter_map(|member| Some(of.members.world_rank(Rank(member.0))?.into()));
        awaited.chain(self.tree_partners(collective, of)).chain(self.multicast.awaited(collective)).collect()
    }

    /// Records that a rank has failed.
    pub(in crate::world) fn disconnect(&mut self, now: u64, peer: PeerId) {
        self.multicast.handle_failed(now, peer);
        if self.failed.contains(&peer) {
            return;
        }
        self.failed.push(peer);
        self.work.outbox.retain(|(to, _)| *to != peer);
        self.early.retain(|ahead| ahead.peer != peer);
        self.status.waiters.retain(|(asker, _)| *asker != peer);
        for place in 0..self.active.len() as u32 {
            let Self { active: running, contexts, .. } = self;
            let running = running.get_mut(place as usize).and_then(Option::as_mut);
            let Some(running) = running.filter(|running| running.ended.is_none()) else { continue };
            let context = contexts.get(running.executor.id().context);
            let Some(number) = context.and_then(|context| context.members.number(peer.into())) else { continue };
            running.executor.handle_failed(Member(number.0));
            self.enqueue(place);
        }
    }

    /// Whether a rank takes no more part in a context.
    pub(in crate::world) fn has_departed(&self, peer: PeerId, context: u32) -> bool {
        let has_retired = |context: &Context| context.reports.retired.iter().any(|gone| gone.peer == peer);
        self.failed.contains(&peer) || self.contexts.get(context).is_some_and(has_retired)
    }

    /// Offers contexts that are free for a communicator: no collective of theirs and no transfer is under way.
    pub(in crate::world) fn offer_contexts(
        &mut self,
        order: CreationOrder,
        round: Round,
        takes_slot: bool,
    ) -> ContextOffer {
        let busy = self.busy_contexts();
        let Self { contexts, communicator_slots, .. } = self;
        let slots = takes_slot.then_some(communicator_slots);
        contexts.offer((order, round), slots, |context| busy.binary_search(&context).is_ok())
    }

    /// A free context, and a generation, for a communicator of this rank alone.
    pub(in crate::world) fn free_context(&mut self) -> Option<(u32, u32)> {
        let busy = self.busy_contexts();
        self.contexts.free_context(|context| busy.binary_search(&context).is_ok())
    }

    /// The contexts in which something is under way, sorted.
    fn busy_contexts(&self) -> Vec<u32> {
        let running = self.active.iter().flatten().map(|running| running.executor.id().context);
        let sending = self.multicast.busy_contexts().chain(self.trees.busy_contexts());
        let mut busy: Vec<u32> = running.chain(self.transfers.contexts()).chain(sending).collect();
        busy.sort_unstable();
        busy
    }

    /// Withdraws an offer, as [`Contexts::take_back`] does. Where other members may have used it without this rank's
    /// knowledge, this rank stays out of its slots.
    pub(in crate::world) fn withdraw_offer(
        &mut self,
        order: CreationOrder,
        offered: &ContextOffer,
        is_over: bool,
        is_made: bool,
    ) {
        self.contexts.take_back(order, offered, is_over, is_made);
        if !is_made {
            self.communicator_slots.exclude(offered.slots);
        }
    }

    /// Opens the context of a communicator.
    pub(in crate::world) fn open(
        &mut self,
        (context, generation): (u32, u32),
        members: Group,
        is_near: bool,
        subgroups: Option<Arc<Subgroups>>,
    ) {
        // The trees of an earlier communicator. Its last messages have been handled, and those of this one are kept.
        self.trees.trees.retain(|tree| tree.context != context);
        self.trees.has_work = true;
        self.multicast.retire_context(context);
        self.multicast.has_work = true;
        self.work.has_work = true;
        self.contexts.begin((context, generation), members, is_near, subgroups);
        self.status.asked.retain(|(_, about)| *about != context);
    }

    /// Discards messages for contexts in which something failed. The memory of a tree's messages is freed when they are
    /// handled.
    pub(in crate::world) fn discard(&mut self, messenger: &mut ProcessMessenger) {
        let contexts = &self.contexts;
        self.trees.discard(|context| contexts.is_over(context));
        let Self { contexts, early: ahead, work, .. } = self;
        work.has_discardable = false;
        messenger.discard_steps(|context| contexts.is_over(context >> 16));
        ahead.retain(|ahead| !contexts.is_over(ahead.context >> 16));
    }

    /// The ranks that collectives wait for.
    pub(in crate::world) fn awaited(&self) -> impl Iterator<Item = AwaitedRank> {
        self.pending().flat_map(|(i, running)| {
            let CollectiveId { context, sequence } = running.executor.id();
            let subject = CollectiveRef { mechanism: Mechanism::Messages, context: running.context, sequence };
            let since = running.start.at;
            self.first_awaited(i, running).map(move |peer| AwaitedRank { peer, context, subject, since })
        })
    }

    /// The collectives under way, with their indices.
    fn pending(&self) -> impl Iterator<Item = (u32, &ActiveCollective)> {
        let active = (0..).zip(&self.active).filter_map(|(i, running)| Some((i, running.as_ref()?)));
        active.filter(|(_, running)| running.ended.is_none())
    }

    /// The peer of a schedule's first step in progress, or all that another call waits for.
    fn first_awaited(&self, i: u32, running: &ActiveCollective) -> impl Iterator<Item = PeerId> {
        let context = running.executor.id().context;
        let unscheduled = running.executor.is_unscheduled().then(|| self.unscheduled_partners(i, context));
        let members = self.contexts.get(context).map(|context| &context.members);
        let peer = running.executor.awaited().and_then(|rank| members?.world_rank(Rank(rank.0)));
        // All that a tree waits for, of which any may have called something else.
        let in_group = if running.executor.plan().leaders_tree().is_some() { usize::MAX } else { 1 };
        let in_group = self.group_partners(i, context).into_iter().take(in_group);
        peer.map(PeerId::from).into_iter().chain(in_group).chain(unscheduled.into_iter().flatten())
    }

    /// The collectives that a thread waits for.
    pub(in crate::world) fn stuck(&self) -> impl Iterator<Item = StuckCollective> {
        self.pending().filter_map(|(i, running)| {
            let CollectiveName { id, verb, .. } = running.name();
            let subject =
                CollectiveRef { mechanism: Mechanism::Messages, context: running.context, sequence: id.sequence };
            let awaited = self.partners(i, running).collect();
            Some(StuckCollective { subject, verb, since: running.start.waited_since?, awaited })
        })
    }

    /// The ranks that each collective waits for that no thread waits for.
    pub(in crate::world) fn unattended(&self) -> impl Iterator<Item = Vec<Rank>> {
        let idle = self.pending().filter(|(_, running)| running.start.waited_since.is_none());
        idle.map(|(i, running)| self.partners(i, running).collect())
    }

    /// Whether a collective is under way that no thread waits for.
    pub(in crate::world) fn has_unattended(&self) -> bool {
        self.pending().any(|(_, running)| running.start.waited_since.is_none())
    }

    /// The ranks of the job that a collective waits for.
    fn partners(&self, i: u32, running: &ActiveCollective) -> impl Iterator<Item = Rank> {
        let context = running.executor.id().context;
        let unscheduled = running.executor.is_unscheduled().then(|| self.unscheduled_partners(i, context));
        let members = self.contexts.get(context).map(|context| context.members.clone());
        let of_schedule =
            running.executor.partners().filter_map(move |rank| members.as_ref()?.world_rank(Rank(rank.0)));
        let in_group = self.group_partners(i, context);
        of_schedule.chain(in_group.into_iter().chain(unscheduled.into_iter().flatten()).map(Rank::from))
    }

    /// This rank's part in a collective over messages; `None`: it has not started it.
    pub(in crate::world) fn participation(&self, subject: CollectiveRef) -> Option<Participation> {
        let active = (0..).zip(&self.active).filter_map(|(i, running)| Some((i, running.as_ref()?)));
        let mut same = active.filter(|(_, running)| {
            let what = CollectiveRef { context: running.context, ..subject };
            running.executor.id().sequence == subject.sequence && what.communicator() == subject.communicator()
        });
        let elsewhere = |CollectiveName { id, verb, .. }| {
            let communicator = subject.communicator();
            Participation::Absent(BlockedOn::Collective { verb, communicator, sequence: id.sequence })
        };
        match same.next() {
            Some((i, running)) if running.context == subject.context => Some(match running.ended {
                Some(_) => Participation::Done,
                None => Participation::entered(self.partners(i, running)),
            }),
            Some((_, running)) => Some(elsewhere(running.name())),
            None => {
                let started = &self.contexts.get(subject.communicator())?.started;
                match started.contradicting(subject.sequence, subject.context) {
                    Some(other) => Some(elsewhere(other)),
                    None => started.has_started(subject.sequence).then_some(Participation::Done),
                }
            }
        }
    }

    /// Whether no message waits to be posted, and all streams have arrived.
    pub(in crate::world) fn is_flushed(&self) -> bool {
        self.work.outbox.is_empty() && self.work.stalled.is_empty() && self.trees.is_idle() && self.multicast.is_idle()
    }

    /// Detaches the transfers of a failed collective: those that the messenger has `cancelled` end; the others end later,
    /// without a waiter.
    pub(in crate::world) fn orphan_transfers(&mut self, collective: u32, cancelled: &[u32], regions: &mut Regions) {
        let ended = cancelled.iter().filter_map(|i| self.transfers.take(*i)).collect::<Vec<_>>();
        for transfer in ended.into_iter().chain(self.transfers.orphan(collective)) {
            transfer.staging.into_iter().for_each(|kept| self.scratch.discard(kept, regions));
        }
        self.work.stalled.retain(|(of, ..)| *of != collective);
    }
}
