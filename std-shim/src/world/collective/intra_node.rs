//! Intra-node collectives: the ranks of a node as a group, all of the job or the members of a communicator with a slot;
//! their barrier, their slot collectives, and how a rank waits for the others.

pub(in crate::world) mod barrier_mode;
mod cache_placement;
mod cma_collectives;
pub(in crate::world) mod communicator_slots;
mod root_check;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

use unisono_core::collective::{
    CollectiveKind, CollectiveMachine as _, CollectiveSpec, DataExecutor as _, Failure, FailureCause, Order, Poll,
};
use unisono_core::ids::{CollectiveId, Rank as Member};
use unisono_shmem::barrier::{FlatBarrier, PairBarrier};
use unisono_shmem::collective_area::CollectiveAreas;
use unisono_shmem::host::store_policy::StorePolicy;
use unisono_shmem::host::wait_strategy::{BlockingWait, CurrentCpu, PollScope};
use unisono_shmem::layout::WaitMode;
use unisono_shmem::reduction_ops::{Element, ReduceOperation};
use unisono_shmem::segment::{Site, Word};
use unisono_shmem::slot_collectives::data_executor::{
    Builtin, CollectiveBuffers, DataError, NoReduction, ReductionOp, RemoteMemory as _, read,
};
use unisono_shmem::slot_collectives::selection::{SlotAlgorithm, fits_communicator_slot, grain_max};
use unisono_shmem::slot_collectives::{CallRecord, SlotCollectives};

use super::engine::context::WORLD;
use super::engine::schedule::hash;
use super::error::CollectiveError;
use super::record::ExecutedInSlots;
use crate::node::{Node, NodeRankState};
use crate::world::communicator::Communicator;
use crate::world::process::Process;
use crate::world::progress::biased_lock::BiasedLock;
use crate::world::watchdog::{CollectiveRef, Mechanism};
use barrier_mode::{CLOSED, SPINNING, UNPLACED, YIELDING};
use cma_collectives::CmaReader;
use communicator_slots::{ALL_GENERATIONS, CommunicatorSlot, LeasedSlots};
use unisono_bootstrap::Rank;

/// Polls before a wait checks anything else, where every rank has a core.
const SPIN_POLLS: u32 = 512;
/// Longest time between the end of a dying process's memory and the release of its locks.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// The memory of a call.
pub(super) enum CallMemory<'a> {
    /// Separate input and output.
    Separate(&'a [u8], &'a mut [u8]),
    /// One buffer for both.
    InPlace(&'a mut [u8]),
}

/// A group of ranks on one node.
pub(in crate::world) struct IntraNodeGroup {
    node: Arc<Node>,
    areas: CollectiveAreas,
    /// This rank's number in the group.
    own: u32,
    /// The communicator's context, and its slot if it has one.
    context: u32,
    slot: Option<CommunicatorSlot>,
    /// The barrier with its words in their initial places, the one with their final places if they move, and the cache
    /// line that this rank has published, plus one.
    barrier: FlatBarrier<'static>,
    placed: OnceLock<(FlatBarrier<'static>, PairBarrier<'static>)>,
    published_line: AtomicU32,
    /// The barrier mode.
    barrier_mode: Arc<AtomicU32>,
    /// Barriers that this rank has entered.
    epoch: AtomicU32,
    /// Whether this rank has written for all others since the last barrier, most likely right after it: it lets them
    /// arrive first in the next one.
    arrives_last: AtomicBool,
    /// The number of the last collective of which this rank was the root and read nothing of the others; 0 when it has
    /// synchronised with them since.
    lead_call: AtomicU32,
    store_policy: StorePolicy,
    state: BiasedLock<GroupState>,
}

struct GroupState {
    flags: SlotCollectives<'static>,
    sequence: u32,
    grain_max: usize,
    /// Whether the ranks have found out who can read whose memory.
    has_probed_cma: bool,
    failed: Option<CollectiveError>,
    /// The collective that was called last.
    called: CollectiveKind,
    /// The last call here.
    executed: Option<ExecutedInSlots>,
    /// The number of the user's call that was the last one in slots; 0: the user did not call it.
    latest: u32,
}

impl IntraNodeGroup {
    /// The group of a node whose ranks are all ranks of a job of this size. `None`: they are not, or there is only one.
    pub(in crate::world) fn new(node: &Arc<Node>, size: u32) -> Option<Self> {
        if size < 2 || node.size() != size {
            return None;
        }
        Self::of(node.clone(), CollectiveAreas::of(&node.layout()), (WORLD, None), node.local())
    }

    /// The group of a communicator whose members have these areas in its slot.
    pub(in crate::world) fn in_slot(
        node: Arc<Node>,
        areas: CollectiveAreas,
        (context, slot): (u32, CommunicatorSlot),
        rank: Rank,
    ) -> Option<Self> {
        Self::of(node, areas, (context, Some(slot)), rank.0)
    }

    fn of(
        node: Arc<Node>,
        areas: CollectiveAreas,
        (context, slot): (u32, Option<CommunicatorSlot>),
        own: u32,
    ) -> Option<Self> {
        let segment = node.segment();
        let barrier = FlatBarrier::new(segment, &areas, own)?;
        let mut flags = SlotCollectives::new(segment, areas, own, false, 0)?;
        flags.set_generation(slot.map_or(0, |slot| slot.generation));
        let state = GroupState {
            flags,
            sequence: 0,
            grain_max: grain_max(&areas),
            has_probed_cma: false,
            failed: None,
            called: CollectiveKind::Barrier,
            executed: None,
            latest: 0,
        };
        let way = match node.waiting() {
            WaitMode::Oversubscribed => YIELDING,
            // With more than two ranks the last arrival determines the time, wherever the words are.
            WaitMode::Dedicated if slot.is_none() && areas.ranks == 2 && node.has_processes() => UNPLACED,
            WaitMode::Dedicated => SPINNING,
        };
        // In a slot the words stay in their initial places.
        let pair = barrier.pair().filter(|_| slot.is_some()).map(|pair| (barrier, pair));
        Some(Self {
            node,
            areas,
            own,
            context,
            slot,
            barrier,
            placed: pair.map_or_else(OnceLock::new, OnceLock::from),
            published_line: AtomicU32::new(0),
            barrier_mode: Arc::new(AtomicU32::new(way)),
            epoch: AtomicU32::new(0),
            arrives_last: AtomicBool::new(false),
            lead_call: AtomicU32::new(0),
            store_policy: StorePolicy::new(),
            state: BiasedLock::new(state),
        })
    }

    /// The areas in which the members publish their calls.
    pub(in crate::world) const fn areas(&self) -> CollectiveAreas {
        self.areas
    }

    /// The barrier mode, which is set to [`CLOSED`] when nothing may be started any more.
    pub(in crate::world) fn barrier_mode(&self) -> Arc<AtomicU32> {
        self.barrier_mode.clone()
    }

    fn next_epoch(&self) -> u32 {
        let epoch = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        self.epoch.store(epoch, Ordering::Relaxed);
        epoch
    }

    /// Enters the barrier. On a dedicated node: one release store and an acquire load of each other rank's word,
    /// without lock or clock.
    #[inline]
    pub(super) fn barrier(&self, communicator: &Communicator) -> Result<(), CollectiveError> {
        if self.lead_call.load(Ordering::Relaxed) != 0 {
            self.expect_same_root(communicator)?;
        }
        let epoch = self.next_epoch();
        match self.barrier_mode.load(Ordering::Relaxed) {
            SPINNING => match self.placed.get() {
                Some((flat, pair)) => {
                    pair.arrive(epoch);
                    for _ in 0..SPIN_POLLS {
                        if pair.poll(epoch) {
                            return Ok(());
                        }
                        core::hint::spin_loop();
                    }
                    self.await_barrier(communicator, flat, epoch, 0)
                }
                None => self.enter_barrier(communicator, &self.barrier, epoch),
            },
            YIELDING => self.enter_barrier_oversubscribed(communicator, epoch),
            UNPLACED => self.place_words(communicator, epoch),
            _ => {
                let failed = self.state.lock().failed;
                Err(self.closed(communicator, failed))
            }
        }
    }

    /// Why nothing is started any more.
    #[cold]
    fn closed(&self, communicator: &Communicator, failed: Option<CollectiveError>) -> CollectiveError {
        communicator.may_begin().err().or(failed).unwrap_or(CollectiveError::Revoked)
    }

    #[inline(always)]
    fn enter_barrier(
        &self,
        communicator: &Communicator,
        barrier: &FlatBarrier<'static>,
        epoch: u32,
    ) -> Result<(), CollectiveError> {
        let mut from = 0;
        barrier.arrive(epoch);
        for _ in 0..SPIN_POLLS {
            if barrier.poll(epoch, &mut from) {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        self.await_barrier(communicator, barrier, epoch, from)
    }

    /// The barrier on an oversubscribed node.
    fn enter_barrier_oversubscribed(&self, communicator: &Communicator, epoch: u32) -> Result<(), CollectiveError> {
        let is_last = self.arrives_last.load(Ordering::Relaxed) && self.await_others(epoch);
        self.barrier.arrive(epoch);
        self.node.sleepers().wake(self.barrier.own());
        if is_last { Ok(()) } else { self.await_barrier(communicator, &self.barrier, epoch, 0) }
    }

    /// Lets the others arrive first, for a while. Returns whether they have.
    fn await_others(&self, epoch: u32) -> bool {
        self.arrives_last.store(false, Ordering::Relaxed);
        let (mut rest, mut from) = (self.node.wait_strategy(), 0);
        while !self.barrier.poll_others(epoch, &mut from) {
            if !rest
                .should_spin(|here| self.is_any_here(here, |rank| self.barrier.has_arrived(rank, epoch) == Some(false)))
                && rest.wait(None) != PollScope::Nothing
            {
                return false;
            }
        }
        true
    }

    /// Whether one of these other ranks may need the processor of this rank.
    fn is_any_here(&self, here: CurrentCpu<'_>, which: impl Fn(u32) -> bool) -> bool {
        self.others().any(|rank| here.may_be_needed_by(self.local(rank)) && which(rank))
    }

    #[cold]
    fn await_barrier(
        &self,
        communicator: &Communicator,
        barrier: &FlatBarrier<'static>,
        epoch: u32,
        mut from: usize,
    ) -> Result<(), CollectiveError> {
        let (mut rest, mut waiting) = (self.node.wait_strategy(), None);
        let is_behind = |rank: &u32| barrier.has_arrived(*rank, epoch) == Some(false);
        while !barrier.poll(epoch, &mut from) {
            if rest.should_spin(|here| self.is_any_here(here, |rank| is_behind(&rank))) {
                continue;
            }
            let missing = barrier.missing(epoch, from);
            let Some((_, word, seen)) = missing else { continue };
            let look = communicator.wait_in_collective(&mut rest, Some((word, seen)));
            if look == PollScope::Nothing {
                continue;
            }
            let subject = self.subject(Mechanism::Barrier, epoch, 0);
            waiting.get_or_insert_with(|| PublishedWait(communicator, subject));
            // Checked before the messages of these ranks are handled, which they sent earlier.
            let gone = (look == PollScope::Everything)
                .then(|| self.find_departed(|rank| is_behind(&rank), |rank| is_behind(&rank)))
                .flatten();
            communicator
                .poll_while_waiting(look, subject, CollectiveKind::Barrier, self.others().filter(is_behind).map(Member))
                .map_err(|error| self.fail(communicator, error))?;
            if look == PollScope::Everything {
                self.diagnose_barrier(communicator, barrier, epoch, gone)?;
            }
        }
        Ok(())
    }

    fn diagnose_barrier(
        &self,
        communicator: &Communicator,
        barrier: &FlatBarrier<'static>,
        epoch: u32,
        gone: Option<u32>,
    ) -> Result<(), CollectiveError> {
        if !self.node.is_intact() {
            return Err(self.fail(communicator, CollectiveError::Corrupted));
        }
        if let Some(failed) = self.state.lock().failed {
            return Err(failed);
        }
        if barrier.own().own() != epoch || !self.is_placement_intact() {
            return Err(self.fail(communicator, CollectiveError::Corrupted));
        }
        let failed = |rank, cause| {
            let failure = Failure {
                rank: Member(rank),
                cause,
                id: self.id(communicator.call()),
                collective: CollectiveKind::Barrier,
            };
            Err(self.fail(communicator, failure.into()))
        };
        if let Some(rank) = self.others().find(|&rank| barrier.has_arrived(rank, epoch).is_none()) {
            return failed(rank, FailureCause::Corrupt);
        }
        let does_otherwise = |rank: &u32| {
            let is_behind = barrier.has_arrived(*rank, epoch) == Some(false);
            is_behind
                && self.state.lock().flags.is_ahead(Member(*rank))
                && barrier.has_arrived(*rank, epoch) == Some(false)
        };
        if let Some(rank) = self.others().find(does_otherwise) {
            return failed(rank, FailureCause::Disagrees);
        }
        gone.map_or(Ok(()), |rank| failed(rank, FailureCause::Missing))
    }

    fn others(&self) -> impl Iterator<Item = u32> {
        (0..self.areas.ranks).filter(|&rank| rank != self.own)
    }

    /// The rank on the node of a member.
    fn local(&self, rank: u32) -> u32 {
        self.areas.members.get(rank).unwrap_or(u32::MAX)
    }

    fn liveness(&self, rank: u32) -> NodeRankState {
        self.node.rank_state(self.local(rank))
    }

    /// Whether a member takes no more part in this group's collectives.
    fn has_retired(&self, rank: u32) -> bool {
        let Some(slot) = self.slot else { return self.node.has_retired(self.local(rank)) };
        let word = self.node.segment().word(self.areas.retired(rank));
        word.is_some_and(|word| [slot.generation, ALL_GENERATIONS].contains(&word.acquire(Site::Plain)))
    }

    const fn id(&self, sequence: u32) -> CollectiveId {
        CollectiveId { context: self.context, sequence }
    }

    /// Identifies a collective in hang reports; the digest covers everything that ranks must agree on.
    fn subject(&self, means: Mechanism, sequence: u32, digest: u32) -> CollectiveRef {
        let generation = self.slot.map_or(0, |slot| slot.generation);
        CollectiveRef { mechanism: means, context: self.context << 16 | (generation ^ digest) & 0xffff, sequence }
    }

    /// A rank that will never catch up: the first one that is not alive, else an awaited one that has retired. A rank
    /// that retires because of a death does so after it, so that all ranks name the dead one, also those that it has
    /// given everything. Called before messages are handled: a rank that revokes a communicator sends the revocation
    /// before it retires.
    fn find_departed(&self, is_behind: impl Fn(u32) -> bool, is_awaited: impl Fn(u32) -> bool) -> Option<u32> {
        let dead = || {
            // It may have done its part before it ended.
            let is_dead =
                |rank: &u32| is_behind(*rank) && self.liveness(*rank) != NodeRankState::Alive && is_behind(*rank);
            self.others().find(is_dead)
        };
        dead().or_else(|| {
            let retired = self.others().find(|&rank| self.has_retired(rank) && is_awaited(rank));
            let cause = || self.others().find(|&rank| self.liveness(rank) == NodeRankState::Dead);
            retired.map(|rank| dead().or_else(cause).unwrap_or(rank))
        })
    }

    /// The ranks that this one waits for: all that are behind, where it needs every rank's part.
    fn missing(&self, flags: &SlotCollectives<'_>, plan: &CollectiveSpec) -> impl Iterator<Item = Member> {
        self.others().map(Member).filter(self.is_missing(flags, plan))
    }

    /// Whether this rank waits for another one.
    fn is_missing(&self, flags: &SlotCollectives<'_>, plan: &CollectiveSpec) -> impl Fn(&Member) -> bool {
        let everyone = match plan.collective {
            CollectiveKind::Gather | CollectiveKind::Reduce => plan.rank == plan.root,
            CollectiveKind::Broadcast | CollectiveKind::Scatter | CollectiveKind::Scan | CollectiveKind::Exscan => {
                false
            }
            CollectiveKind::Barrier
            | CollectiveKind::Allgather
            | CollectiveKind::Alltoall
            | CollectiveKind::Allreduce
            | CollectiveKind::ReduceScatter => true,
        };
        let awaited = flags.awaited().map(|awaited| awaited.rank);
        move |rank| awaited == Some(*rank) || everyone && flags.is_behind(*rank)
    }

    /// Fails every further collective.
    pub(super) fn fail(&self, communicator: &Communicator, error: CollectiveError) -> CollectiveError {
        self.state.lock().failed = Some(error);
        self.retire(communicator, error);
        error
    }

    /// Notifies the others that this rank takes no more part in collectives, over messages either.
    fn retire(&self, communicator: &Communicator, error: CollectiveError) {
        communicator.shared.with_process(|process| process.fail_with(self.context, error));
    }

    fn processes(&self) -> CmaReader<'_> {
        CmaReader { node: &self.node, rank_slots: &self.areas.members, store_policy: &self.store_policy }
    }

    /// Whether a process whose memory cannot be read is alive all the same: a dying process loses its memory slightly
    /// before its locks.
    fn is_still_alive(&self, rank: u32) -> bool {
        let until = Instant::now() + EXIT_TIMEOUT;
        while self.liveness(rank) == NodeRankState::Alive {
            if Instant::now() >= until {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Whether a collective uses the collective area: in a slot only if it fits its chunks.
    pub(super) fn supports(&self, plan: &CollectiveSpec) -> bool {
        self.slot.is_none() || fits_communicator_slot(plan, &self.areas)
    }

    /// Publishes that this rank calls a collective that uses messages, so that a rank that calls another one, in shared
    /// memory, detects it. Returns the record, by which this rank detects the same of the others while it waits.
    pub(super) fn publish_call(
        &self,
        communicator: &Communicator,
        plan: &CollectiveSpec,
    ) -> Result<CallRecord, CollectiveError> {
        let mut state = self.state.lock();
        self.expect_open(communicator, &state)?;
        state.called = plan.collective;
        state.flags.force_algorithm(Some(SlotAlgorithm::External));
        let passed = self.complete(communicator, &mut state, plan, CallMemory::InPlace(&mut []), NoReduction);
        state.flags.force_algorithm(None);
        passed.map(|()| state.flags.call_record())
    }

    /// Whether a collective may start.
    pub(in crate::world) fn may_begin(&self, communicator: &Communicator) -> Result<(), CollectiveError> {
        self.expect_open(communicator, &self.state.lock())
    }

    fn expect_open(&self, communicator: &Communicator, state: &GroupState) -> Result<(), CollectiveError> {
        if self.barrier_mode.load(Ordering::Relaxed) == CLOSED {
            return Err(self.closed(communicator, state.failed));
        }
        state.failed.map_or(Ok(()), Err)
    }

    pub(super) fn run(
        &self,
        communicator: &Communicator,
        plan: &CollectiveSpec,
        places: CallMemory<'_>,
        mut operate: impl ReductionOp,
    ) -> Result<(), CollectiveError> {
        let mut state = self.state.lock();
        self.expect_open(communicator, &state)?;
        if plan.grain > state.grain_max {
            return Err(CollectiveError::ElementTooLong { most: state.grain_max });
        }
        state.called = plan.collective;
        if !state.has_probed_cma {
            // An error names the collective that the user called.
            let named = |error: CollectiveError| error.of(plan.collective.name());
            self.probe_cma(communicator, &mut state).map_err(named)?;
        }
        // By reference, so that it is dropped after the lock is released: its drop runs user code.
        let ended = self.complete(communicator, &mut state, plan, places, &mut operate);
        state.executed = Some((communicator.call(), plan.collective, plan.bytes, state.flags.algorithm()));
        state.latest = communicator.call();
        ended
    }

    /// The last collective here.
    pub(super) fn executed(&self) -> Option<ExecutedInSlots> {
        self.state.lock().executed
    }

    /// Sets what [`executed`](Self::executed) returns.
    pub(super) fn set_executed(&self, executed: Option<ExecutedInSlots>) {
        let mut state = self.state.lock();
        (state.executed, state.latest) = (executed, 0);
    }

    /// Repeats a broadcast like the last call on the fast path, as the user's `call`th collective. Returns the number of
    /// the user's call that it repeats, 0 if none. `None`: it must be [run](Self::run) instead; nothing has happened then.
    #[inline]
    pub(super) fn repeat_broadcast(&self, data: &mut [u8], kind: u32, root: Rank, call: u32) -> Option<u32> {
        let mut state = self.state.lock();
        let GroupState { flags, sequence, failed, executed, latest, .. } = &mut *state;
        if !flags.is_small_broadcast(data.len(), kind, root.0)
            || failed.is_some()
            || self.barrier_mode.load(Ordering::Relaxed) == CLOSED
        {
            return None;
        }
        let (shows, shared) = (self.own == root.0, self.node.waiting() == WaitMode::Oversubscribed);
        let mut looks = if shows || shared { 1 } else { SPIN_POLLS };
        let payload = loop {
            match flags.small_broadcast_payload() {
                Some(payload) => break payload,
                None if looks == 1 => return None,
                None => looks -= 1,
            }
            core::hint::spin_loop();
        };
        if shows {
            self.store_policy.write(data, payload)?
        } else {
            read(payload, data)?
        }
        let published = flags.end_small_broadcast();
        *sequence = sequence.wrapping_add(1);
        *executed = Some((call, CollectiveKind::Broadcast, data.len(), SlotAlgorithm::Flat));
        if shared {
            published.into_iter().flatten().for_each(|word| self.node.sleepers().wake(word));
        }
        self.arrives_last.store(shows, Ordering::Relaxed);
        if shows {
            self.lead_call.store(call, Ordering::Relaxed);
        }
        Some(core::mem::replace(latest, call))
    }

    /// Finds out whether every rank can read every other's memory: each reads a word of each other, and publishes
    /// whether it could.
    #[cold]
    fn probe_cma(&self, communicator: &Communicator, state: &mut GroupState) -> Result<(), CollectiveError> {
        let (own, size) = (self.own, self.areas.ranks);
        let nonce =
            core::hint::black_box(u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(own));
        let shown = [(&raw const nonce).expose_provenance() as u64, nonce].map(u64::to_ne_bytes).concat();
        let mut all = vec![0; 16 * size as usize];
        let of = |verb, bytes, kind| CollectiveSpec {
            collective: verb,
            rank: Member(own),
            size,
            root: Member(0),
            bytes,
            grain: 1,
            order: Order::Any,
            in_place: verb == CollectiveKind::Allreduce,
            reduction_id: kind,
        };
        let places = CallMemory::Separate(&shown, &mut all);
        self.complete(communicator, state, &of(CollectiveKind::Allgather, 16, 0), places, NoReduction)?;
        let reads = |(rank, shown): (u32, &[u8])| {
            let (Some((address, nonce)), mut found) = (shown.split_first_chunk::<8>(), [0; 8]) else { return false };
            let address = u64::from_ne_bytes(*address);
            // SAFETY: the word on the stack is as long.
            let pulled =
                unsafe { self.processes().pull(Member(rank), address, core::ptr::NonNull::from(&mut found).cast(), 8) };
            pulled.is_ok() && found == nonce
        };
        let mut can = [u8::from((0..size).zip(all.chunks_exact(16)).filter(|(rank, _)| *rank != own).all(reads))];
        if let Some(least) = Builtin::new(ReduceOperation::Min, Element::U8) {
            let plan =
                of(CollectiveKind::Allreduce, 1, unisono_shmem::reduction_ops::kind(ReduceOperation::Min, Element::U8));
            self.complete(communicator, state, &plan, CallMemory::InPlace(&mut can), least)?;
        }
        tracing::debug!(single_copy = can[0] == 1, "collectives");
        state.flags.set_pulls(can[0] == 1);
        state.has_probed_cma = true;
        Ok(())
    }

    fn complete(
        &self,
        communicator: &Communicator,
        state: &mut GroupState,
        plan: &CollectiveSpec,
        places: CallMemory<'_>,
        operate: impl ReductionOp,
    ) -> Result<(), CollectiveError> {
        let mut part = GroupCall { group: self, communicator, state, verb: plan.collective, ended: None };
        let ended = part.run(plan, places, operate);
        part.ended = Some(ended);
        ended
    }
}

/// This rank's part in a collective: if it does not end well, the group fails.
struct GroupCall<'a> {
    group: &'a IntraNodeGroup,
    communicator: &'a Communicator,
    state: &'a mut GroupState,
    verb: CollectiveKind,
    /// `None`: a function of the user's panicked.
    ended: Option<Result<(), CollectiveError>>,
}

impl Drop for GroupCall<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.ended != Some(Ok(())) {
            self.abort();
        }
    }
}

impl GroupCall<'_> {
    #[inline]
    fn run(
        &mut self,
        plan: &CollectiveSpec,
        places: CallMemory<'_>,
        operate: impl ReductionOp,
    ) -> Result<(), CollectiveError> {
        let (group, communicator, state) = (self.group, self.communicator, &mut *self.state);
        let (segment, remote) = (group.node.segment(), group.processes());
        let mut buffers = match places {
            CallMemory::Separate(input, output) => CollectiveBuffers::new(segment, input, output, operate, remote),
            CallMemory::InPlace(both) => CollectiveBuffers::in_place(segment, both, operate, remote),
        };
        state.sequence = state.sequence.wrapping_add(1);
        let flags = &mut state.flags;
        let shared = group.node.waiting() == WaitMode::Oversubscribed;
        let (mut rest, mut polls, mut waiting): (Option<BlockingWait<'_>>, _, _) = (None, 0, None);
        flags.start(group.id(state.sequence), plan);
        loop {
            let turn = flags.poll();
            if shared {
                flags.published().for_each(|word| group.node.sleepers().wake(word));
            }
            match turn {
                Poll::Request(step, wish) => match buffers.execute(wish) {
                    Ok(()) => {
                        flags.handle_done(step);
                        (rest, polls) = (None, 0);
                    }
                    Err(DataError::Unreadable(rank)) if group.is_still_alive(rank.0) => {
                        let id = group.id(communicator.call());
                        return Err(
                            Failure { rank, cause: FailureCause::Corrupt, id, collective: plan.collective }.into()
                        );
                    }
                    Err(DataError::Unreadable(rank)) => flags.handle_failed(rank),
                    Err(DataError::Bounds) => return Err(CollectiveError::Corrupted),
                },
                Poll::Pending if !shared && polls < SPIN_POLLS => {
                    polls += 1;
                    core::hint::spin_loop();
                }
                Poll::Pending => {
                    let rest = rest.get_or_insert_with(|| group.node.wait_strategy());
                    let is_missing_here = |here: CurrentCpu<'_>| {
                        let is_missing = group.is_missing(flags, plan);
                        group.is_any_here(here, |rank| is_missing(&Member(rank)))
                    };
                    if rest.should_spin(is_missing_here) {
                        continue;
                    }
                    let awaited = flags.awaited().map(|awaited| (awaited.word, awaited.seen));
                    let look = communicator.wait_in_collective(rest, awaited);
                    if look == PollScope::Nothing {
                        continue;
                    }
                    let subject = group.subject(Mechanism::Slots, state.sequence, hash(plan));
                    waiting.get_or_insert_with(|| PublishedWait(communicator, subject));
                    let awaited = flags.awaited();
                    let is_awaited = |rank| {
                        let own = awaited.filter(|awaited| awaited.rank.0 == rank);
                        own.is_some_and(|awaited| awaited.word.acquire(Site::Plain) == awaited.seen)
                    };
                    let gone = (look == PollScope::Everything)
                        .then(|| group.find_departed(|rank| flags.is_behind(Member(rank)), is_awaited))
                        .flatten();
                    communicator.poll_while_waiting(look, subject, state.called, group.missing(flags, plan))?;
                    if look == PollScope::Everything {
                        if !group.node.is_intact() || !flags.is_intact() {
                            return Err(CollectiveError::Corrupted);
                        }
                        if let Some(rank) = gone {
                            flags.handle_failed(Member(rank));
                        } else if let Some(rank) = flags.differing_rank() {
                            flags.handle_mismatch(rank);
                        } else if let Some(rank) = flags.contradicting_rank()
                            // A rank that failed has withdrawn its buffers.
                            && !group.has_retired(rank.0)
                        {
                            flags.handle_corrupt(rank);
                        }
                    }
                }
                Poll::Complete => {
                    group.record_lead(plan, communicator.call());
                    return Ok(());
                }
                Poll::Failed(failure) => return Err(Failure { id: group.id(communicator.call()), ..failure }.into()),
            }
        }
    }

    #[cold]
    fn abort(&mut self) {
        let Self { group, communicator, verb, .. } = *self;
        let id = group.id(communicator.call());
        let panicked = Failure { rank: Member(group.own), cause: FailureCause::Missing, id, collective: verb };
        let error = self.ended.and_then(Result::err).unwrap_or(panicked.into());
        group.retire(communicator, error);
        self.state.flags.withdraw_buffers();
        // Before the caller gets its buffers back.
        fence(Ordering::SeqCst);
        self.state.failed = Some(error);
    }
}

/// A published wait, withdrawn when this is dropped.
struct PublishedWait<'c>(&'c Communicator, CollectiveRef);

impl Drop for PublishedWait<'_> {
    fn drop(&mut self) {
        self.0.shared.lock().withdraw_wait(self.1);
    }
}

impl Communicator {
    /// Waits a little for a word, for requests to use memory of this rank if others may send some, and for the steps that
    /// groups execute.
    fn wait_in_collective(&self, rest: &mut BlockingWait<'_>, awaited: Option<(&Word, u32)>) -> PollScope {
        let mut words = Vec::new();
        if self.node.as_ref().is_some_and(|node| node.waiting() == WaitMode::Oversubscribed) {
            let process = self.shared.lock();
            // Before those of all other ranks, of which there may be more than can be waited on.
            process.collectives.lane_wait_words(&mut words);
            if process.remote_access.is_exposed() {
                process.wait_words(&mut words);
            }
        }
        if words.is_empty() {
            return rest.wait(awaited);
        }
        rest.wait_on_any(&awaited.into_iter().chain(words).collect::<Vec<_>>())
    }

    /// Progress on other traffic, and now and then an integrity check, while a collective waits for these ranks.
    #[cold]
    fn poll_while_waiting(
        &self,
        look: PollScope,
        subject: CollectiveRef,
        verb: CollectiveKind,
        awaited: impl Iterator<Item = Member>,
    ) -> Result<(), CollectiveError> {
        let mut process = self.shared.lock();
        let named = |member: Member| self.members.world_rank(Rank(member.0));
        process.publish_wait(subject, verb, awaited.filter_map(named));
        self.shared.progress(&mut process);
        if look == PollScope::Everything {
            self.shared.with_wakeup(&mut process, |process| process.check_shm_peers(None));
        }
        let of = process.collectives.contexts.get(self.context);
        if let Some(failed) = of.and_then(|of| of.failed) {
            // It failed during this call, which did not start otherwise.
            return Err(failed.of(verb.name()).numbered(self.call()));
        }
        if let Some(rank) =
            process.collectives.wait_registry.divergent_rank(subject).and_then(|rank| self.members.number(rank))
        {
            let id = CollectiveId { context: self.context, sequence: self.call() };
            return Err(Failure { rank: Member(rank.0), cause: FailureCause::Disagrees, id, collective: verb }.into());
        }
        process.aborted.map_or(Ok(()), |failure| Err(CollectiveError::Ended(failure)))
    }
}

impl Process {
    /// The shared-memory collectives of a communicator in a slot; `None` where its members do not share a node, or
    /// there is only one. `shares_node`: all members agree that each shares memory with all ranks of its node; `is_spare`:
    /// a communicator of several nodes may take slots unasked.
    pub(in crate::world) fn open_slots(
        &mut self,
        context: u32,
        mut slots: LeasedSlots,
        (shares_node, is_spare): (bool, bool),
        rank: Rank,
    ) -> Option<IntraNodeGroup> {
        let of = self.collectives.contexts.get_mut(context)?;
        let (is_intra_node, size, members) = (of.is_intra_node, of.members.size(), &of.members);
        let first = slots.nth(0).filter(|_| is_intra_node && size > 1);
        let areas = first.and_then(|slot| Some((slot, self.collectives.communicator_slots.areas(slot, members)?)));
        let group = areas.and_then(|(slot, (node, areas))| IntraNodeGroup::in_slot(node, areas, (context, slot), rank));
        let used = match &group {
            Some(group) => {
                (of.barrier_mode, of.areas) = (Some(group.barrier_mode()), Some(group.areas()));
                1
            }
            None if !is_intra_node && shares_node => self.open_communicator_lanes(context, slots, is_spare),
            None => 0,
        };
        let unused = slots.split_off(used);
        self.collectives.communicator_slots.release(unused);
        self.collectives.contexts.get_mut(context)?.slots = slots;
        group
    }
}
