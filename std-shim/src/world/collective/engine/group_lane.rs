//! The members of a subgroup of this rank, if they share a node: they execute the subgroup's steps of composed collectives
//! in shared memory, one at a time, in the order of a [`Lane`].

use alloc::sync::Arc;
use core::ptr::NonNull;

use unisono_core::collective::{
    CollectiveKind, CollectiveMachine as _, CollectiveSpec, DataExecutor as _, Failure, Lane, Poll, Turn,
};
use unisono_core::device::Memory as _;
use unisono_core::ids::{CollectiveId, Rank as Member, StepId};
use unisono_core::schedule::{BlockBuffer, BlockSpan, Blocks, GroupStep};
use unisono_shmem::collective_area::CollectiveAreas;
use unisono_shmem::segment::{Site, Word};
use unisono_shmem::slot_collectives::SlotCollectives;
use unisono_shmem::slot_collectives::data_executor::{CollectiveBuffers, NoRemoteMemory, ReductionOp};
use unisono_shmem::slot_collectives::selection::grain_max;

use super::active_collective::{ActiveCollective, InvalidSpan};
use super::schedule::mix;
use crate::node::Node;
use crate::world::collective::intra_node::communicator_slots::CommunicatorSlot;
use unisono_bootstrap::Rank;
use unisono_memory::memory_regions::Regions;

/// A step that has begun, and waits for its turn.
#[derive(Debug)]
struct ParkedStep {
    turn: Turn,
    collective: u32,
    step: StepId,
    operation: GroupStep,
}

/// A buffer of the step that is being executed.
#[derive(Debug)]
enum StepBuffer {
    /// Adjacent bytes of a buffer of the collective.
    Adjacent(NonNull<u8>, usize),
    /// A copy of these bytes, which are not adjacent.
    Packed(Vec<u8>, BlockSpan),
}

// SAFETY: the pointer leads to memory that the collective borrows until it ends, and is used only with the collective,
// under the lock of the World.
unsafe impl Send for StepBuffer {}
// SAFETY: nothing is read or written through a shared reference.
unsafe impl Sync for StepBuffer {}

/// The step that is being executed.
#[derive(Debug)]
struct ExecutingStep {
    collective: u32,
    step: StepId,
    /// `None`: it is the output.
    input: Option<StepBuffer>,
    output: StepBuffer,
    /// Whether it writes the output.
    writes: bool,
}

/// What advancing a lane has led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum LaneEvent {
    /// It has nothing to do, or waits for this rank, which has not done its part.
    Waits(Option<Rank>),
    /// A step of a collective is complete.
    Done(u32, StepId),
    /// A function of the user's has panicked.
    Panicked,
    /// A collective has failed, because of this rank of the group.
    Failed(Rank, Failure),
    /// A step of a collective names bytes that are not in its buffers.
    Invalid,
    /// The system has no memory to pack a buffer.
    NoMemory,
}

/// Why a step was not started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BeginError {
    Invalid,
    NoMemory,
}

impl From<InvalidSpan> for BeginError {
    fn from(_: InvalidSpan) -> Self {
        Self::Invalid
    }
}

/// A subgroup of this rank in a communicator.
#[derive(Debug)]
pub(in crate::world) struct GroupLane {
    node: Arc<Node>,
    level: u32,
    areas: CollectiveAreas,
    /// The ranks of the job, by their numbers in the subgroup.
    members: Box<[Rank]>,
    slots: SlotCollectives<'static>,
    lane: Lane,
    context: u32,
    sequence: u32,
    parked: Vec<ParkedStep>,
    executing: Option<ExecutingStep>,
}

/// The reduction of a collective.
struct Reduction<'a>(&'a mut ActiveCollective);

impl ReductionOp for Reduction<'_> {
    unsafe fn combine(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        self.0.operate(left, right, into, bytes);
    }
}

impl GroupLane {
    /// The subgroup of this level of these ranks of the job, `own` among them, in a communicator with this context: in a
    /// slot, or in the areas of all ranks of the node. `None`: this rank is none of them, they do not share the node, or
    /// there is only one.
    pub(in crate::world) fn new(
        node: &Arc<Node>,
        level: u32,
        (context, slot): (u32, Option<CommunicatorSlot>),
        members: Box<[Rank]>,
        own: Rank,
    ) -> Option<Self> {
        let locals = members.iter().map(|rank| node.local_of(*rank)).collect::<Option<Vec<u32>>>()?;
        let number = members.iter().position(|rank| *rank == own).filter(|_| members.len() > 1)?;
        let layout = node.layout();
        let areas = match slot {
            Some(slot) => CollectiveAreas::in_communicator_slot(&layout, slot.number, &locals)?,
            None => CollectiveAreas::of_ranks(&layout, &locals)?,
        };
        let mut slots = SlotCollectives::new(node.segment(), areas, u32::try_from(number).ok()?, false, 0)?;
        slots.set_generation(slot.map_or(0, |slot| slot.generation));
        Some(Self {
            node: node.clone(),
            level,
            areas,
            members,
            slots,
            lane: Lane::default(),
            context,
            sequence: 0,
            parked: Vec::new(),
            executing: None,
        })
    }

    /// The level of the subgroup.
    pub(in crate::world) const fn level(&self) -> u32 {
        self.level
    }

    /// Whether the group can execute its part of this collective, of any length: ranks that give different ones are to
    /// meet there.
    pub(in crate::world) const fn supports(&self, plan: &CollectiveSpec) -> bool {
        plan.grain <= grain_max(&self.areas)
    }

    /// A collective with this number of steps of the group starts: the turn of the first one.
    pub(in crate::world) fn enter(&mut self, steps: u32) -> Turn {
        self.lane.enter(steps)
    }

    /// A step has begun.
    pub(in crate::world) fn park(&mut self, turn: Turn, collective: u32, step: StepId, operation: GroupStep) {
        self.parked.push(ParkedStep { turn, collective, step, operation });
    }

    /// Whether a step has begun and is not complete.
    pub(in crate::world) fn is_busy(&self) -> bool {
        self.executing.is_some() || !self.parked.is_empty()
    }

    /// Whether a collective has a step that has begun and is not complete.
    pub(in crate::world) fn has_step_of(&self, collective: u32) -> bool {
        let is_executing = self.executing.as_ref().is_some_and(|executing| executing.collective == collective);
        is_executing || self.parked.iter().any(|parked| parked.collective == collective)
    }

    /// Whether a step is being executed: those that are parked wait for it.
    pub(in crate::world) const fn is_executing(&self) -> bool {
        self.executing.is_some()
    }

    /// Whether the step of this turn is the next one that is executed.
    pub(in crate::world) fn is_next(&self, turn: Turn) -> bool {
        self.lane.is_next(turn)
    }

    /// The rank of the job that the step being executed waits for.
    pub(in crate::world) fn awaited(&self) -> Option<Rank> {
        self.executing.as_ref()?;
        let awaited = self.slots.awaited()?;
        let is_missing = awaited.word.acquire(Site::Plain) == awaited.seen;
        self.members.get(awaited.rank.0 as usize).copied().filter(|_| is_missing)
    }

    /// The word that the step being executed waits for, and the value that it had.
    pub(in crate::world) fn wait_word(&self) -> Option<(&'static Word, u32)> {
        self.executing.as_ref()?;
        self.slots.awaited().map(|awaited| (awaited.word, awaited.seen))
    }

    /// Executes steps whose turn it is until one is complete or waits for other ranks.
    pub(in crate::world) fn advance(
        &mut self,
        active: &mut [Option<ActiveCollective>],
        regions: &Regions,
    ) -> LaneEvent {
        if self.executing.is_none() {
            let Some(next) = self.parked.iter().position(|parked| self.lane.is_next(parked.turn)) else {
                return LaneEvent::Waits(None);
            };
            let parked = self.parked.swap_remove(next);
            let collective = parked.collective;
            let Some(Some(running)) = active.get(collective as usize) else { return LaneEvent::Invalid };
            match self.begin(parked, running, regions) {
                Ok(()) => {}
                Err(BeginError::Invalid) => return LaneEvent::Invalid,
                Err(BeginError::NoMemory) => return LaneEvent::NoMemory,
            }
        }
        let Some(ExecutingStep { collective, step, input, output, writes }) = &mut self.executing else {
            return LaneEvent::Waits(None);
        };
        let (collective, step) = (*collective, *step);
        let Some(Some(running)) = active.get_mut(collective as usize) else { return LaneEvent::Invalid };
        loop {
            let turn = self.slots.poll();
            self.slots.published().for_each(|word| self.node.sleepers().wake(word));
            match turn {
                Poll::Request(operation, data) => {
                    let output = output.bytes();
                    let input = input.as_mut().map_or(output, StepBuffer::bytes);
                    // SAFETY: the collective borrows its buffers until it ends, and its schedule lets nobody write the
                    // first, or use the second, while the step is executed; copies belong to the step.
                    let mut buffers = unsafe {
                        CollectiveBuffers::from_raw(
                            self.node.segment(),
                            input,
                            output,
                            Reduction(running),
                            NoRemoteMemory,
                        )
                    };
                    if buffers.execute(data).is_err() {
                        return LaneEvent::Invalid;
                    }
                    // What a function that has panicked was to write is not published.
                    if running.panic.is_some() {
                        return LaneEvent::Panicked;
                    }
                    self.slots.handle_done(operation);
                }
                Poll::Pending => return LaneEvent::Waits(self.awaited()),
                Poll::Complete => {
                    let is_unpacked = !*writes || output.unpack(running, regions).is_ok();
                    self.executing = None;
                    self.lane.leave();
                    return if is_unpacked { LaneEvent::Done(collective, step) } else { LaneEvent::Invalid };
                }
                Poll::Failed(failure) => {
                    let rank = self.members.get(failure.rank.0 as usize);
                    return rank.map_or(LaneEvent::Invalid, |rank| LaneEvent::Failed(*rank, failure));
                }
            }
        }
    }

    /// Starts a step in the slots.
    fn begin(&mut self, parked: ParkedStep, running: &ActiveCollective, regions: &Regions) -> Result<(), BeginError> {
        let ParkedStep { collective, step, operation, .. } = parked;
        let GroupStep { collective: kind, members, number, root, in_place, each, from, into, .. } = operation;
        if members != self.areas.ranks || self.members.len() != members as usize {
            return Err(BeginError::Invalid);
        }
        let (input, output) = match kind {
            CollectiveKind::Broadcast => {
                let span = if from.blocks.is_empty() { into } else { from };
                (None, StepBuffer::of(span, running, regions)?)
            }
            _ => (Some(StepBuffer::of(from, running, regions)?), StepBuffer::of(into, running, regions)?),
        };
        let plan = running.executor.plan();
        let has_vector =
            matches!(plan.kind(), CollectiveKind::Broadcast | CollectiveKind::Reduce | CollectiveKind::Allreduce);
        let has_blocks = matches!(
            kind,
            CollectiveKind::Gather
                | CollectiveKind::Scatter
                | CollectiveKind::Allgather
                | CollectiveKind::ReduceScatter
        );
        // The last parts of a vector are shorter where the ranks do not divide it.
        let vector = (has_vector && has_blocks).then(|| plan.bytes());
        let bytes = match kind {
            CollectiveKind::Barrier => 0,
            _ if vector.is_some() => {
                let first = BlockSpan { buffer: BlockBuffer::Output, blocks: Blocks::range(0, each), segment: 0 };
                running.message_extent(first).0
            }
            _ if has_blocks => plan.bytes().saturating_mul(each as usize),
            _ => input.as_ref().map_or(0, StepBuffer::len).max(output.len()),
        };
        self.sequence = self.sequence.wrapping_add(1);
        let spec = CollectiveSpec {
            collective: kind,
            rank: Member(number),
            size: members,
            root: Member(root),
            bytes,
            grain: plan.grain(),
            order: plan.order(),
            in_place: in_place || kind == CollectiveKind::Broadcast,
            // Ranks that call another collective, or have called another one before, find another signature.
            reduction_id: mix(plan.digest(), running.context),
        };
        let id = CollectiveId { context: self.context, sequence: self.sequence };
        match vector {
            None => self.slots.start(id, &spec),
            Some(bytes) => self.slots.start_parts(id, &spec, bytes),
        }
        // A root of a broadcast has sent, and a root that scatters in place has its block where it was.
        let is_giver =
            number == root && (kind == CollectiveKind::Broadcast || kind == CollectiveKind::Scatter && in_place);
        self.executing = Some(ExecutingStep { collective, step, input, output, writes: !is_giver });
        Ok(())
    }
}

impl StepBuffer {
    const EMPTY: Self = Self::Adjacent(NonNull::dangling(), 0);

    /// The bytes of a span; a copy of them if they are not adjacent.
    fn of(span: BlockSpan, running: &ActiveCollective, regions: &Regions) -> Result<Self, BeginError> {
        let (bytes, place) = running.message_extent(span);
        if bytes == 0 {
            return Ok(Self::EMPTY);
        }
        if let Some(start) = place.and_then(|place| regions.address(place)).and_then(|address| address.adjacent()) {
            return Ok(Self::Adjacent(start, bytes));
        }
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes).map_err(|_| BeginError::NoMemory)?;
        copy.resize(bytes, 0);
        running.pack(span, NonNull::from(copy.as_mut_slice()), regions)?;
        Ok(Self::Packed(copy, span))
    }

    const fn len(&self) -> usize {
        match self {
            Self::Adjacent(_, bytes) => *bytes,
            Self::Packed(copy, _) => copy.len(),
        }
    }

    fn bytes(&mut self) -> (NonNull<u8>, usize) {
        match self {
            Self::Adjacent(start, bytes) => (*start, *bytes),
            Self::Packed(copy, _) => (NonNull::from(copy.as_mut_slice()).cast(), copy.len()),
        }
    }

    /// Writes a copy back.
    fn unpack(&mut self, running: &ActiveCollective, regions: &Regions) -> Result<(), InvalidSpan> {
        match self {
            Self::Adjacent(..) => Ok(()),
            Self::Packed(copy, span) => running.unpack(NonNull::from(copy.as_mut_slice()), *span, regions),
        }
    }
}

#[cfg(test)]
mod tests;
