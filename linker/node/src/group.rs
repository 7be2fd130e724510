//! Collectives of all ranks of the node, compatible with those of its Linux processes.

use core::ptr::NonNull;

use unisono_core::collective::{
    CollectiveKind, CollectiveMachine as _, CollectiveSpec, DataExecutor as _, Failure, FailureCause, Order, Poll,
    type_code,
};
use unisono_core::ids::{CollectiveId, Rank};
use unisono_shmem::barrier::FlatBarrier;
use unisono_shmem::collective_area::CollectiveAreas;
use unisono_shmem::reduction_ops::{Element, ReduceOperation, kind};
use unisono_shmem::slot_collectives::SlotCollectives;
use unisono_shmem::slot_collectives::data_executor::{
    Builtin, CollectiveBuffers, DataError, NoRemoteMemory, ReductionOp,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::Idle;
use crate::member::Member;

/// Idle polls between two checks whether the awaited ranks still take part.
const POLLS_PER_CHECK: u32 = 256;

/// An element type with its reduction operations: only those of the types that an image uses are linked.
pub trait ReduceElement: FromBytes + IntoBytes {
    /// Its name.
    const ELEMENT: Element;
}

impl ReduceElement for i32 {
    const ELEMENT: Element = Element::I32;
}

impl ReduceElement for f32 {
    const ELEMENT: Element = Element::F32;
}

/// Why a collective did not complete. Every further one fails with the same error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupError {
    /// A rank failed.
    Rank(Failure),
    /// The words of this rank were overwritten.
    Corrupted,
    /// The element type has no such operation, or the root is no rank.
    Undefined,
}

/// One rank's side of its node's collectives.
#[derive(Debug)]
pub struct Group<'a> {
    member: Member<'a>,
    barrier: FlatBarrier<'a>,
    flags: SlotCollectives<'a>,
    /// Barriers entered, and other collectives.
    epoch: u32,
    sequence: u32,
    agreed: bool,
    failed: Option<GroupError>,
}

impl<'a> Group<'a> {
    /// The ranks of the node. `None`: the segment is too short for its layout.
    pub fn new(member: Member<'a>) -> Option<Self> {
        let areas = CollectiveAreas::of(&member.layout());
        Some(Self {
            member,
            barrier: FlatBarrier::new(member.segment(), &areas, member.local())?,
            flags: SlotCollectives::new(member.segment(), areas, member.local(), false, 0)?,
            epoch: 0,
            sequence: 0,
            agreed: false,
            failed: None,
        })
    }

    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn barrier(&mut self, idle: &mut impl Idle) -> Result<(), GroupError> {
        self.failed.map_or(Ok(()), Err)?;
        self.epoch = self.epoch.wrapping_add(1);
        let epoch = self.epoch;
        self.barrier.arrive(epoch);
        let (mut from, mut polls) = (0, 0_u32);
        while !self.barrier.poll(epoch, &mut from) {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_CHECK)
                && let Some((rank, _, _)) = self.barrier.missing(epoch, from)
            {
                let id = CollectiveId { context: 0, sequence: epoch };
                let failed = |cause| {
                    GroupError::Rank(Failure { rank: Rank(rank), cause, id, collective: CollectiveKind::Barrier })
                };
                // A rank that violated the protocol, or left without arriving.
                match self.barrier.has_arrived(rank, epoch) {
                    None => return Err(self.fail(failed(FailureCause::Corrupt))),
                    // Words that it published before it left count.
                    Some(false)
                        if self.member.has_retired(rank) && self.barrier.has_arrived(rank, epoch) == Some(false) =>
                    {
                        return Err(self.fail(failed(FailureCause::Missing)));
                    }
                    Some(_) => {}
                }
                if !self.member.is_intact() {
                    return Err(self.fail(GroupError::Corrupted));
                }
            }
            idle.idle();
        }
        Ok(())
    }

    /// The root's `data` replaces everyone else's.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn broadcast<T: ReduceElement>(
        &mut self,
        data: &mut [T],
        root: u32,
        idle: &mut impl Idle,
    ) -> Result<(), GroupError> {
        if root >= self.member.size() {
            return Err(GroupError::Undefined);
        }
        let plan = CollectiveSpec {
            root: Rank(root),
            ..self.plan(CollectiveKind::Broadcast, size_of_val(data), type_code::<T>())
        };
        self.agree_on_memory_access(idle)?;
        let buffers =
            CollectiveBuffers::in_place(self.member.segment(), data.as_mut_bytes(), Combine(None), NoRemoteMemory);
        self.complete(&plan, buffers, idle)
    }

    /// Replaces every rank's `data` by the reduction of all: the same bits on every rank.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn all_reduce<T: ReduceElement>(
        &mut self,
        data: &mut [T],
        operation: ReduceOperation,
        idle: &mut impl Idle,
    ) -> Result<(), GroupError> {
        let combine = Builtin::new(operation, T::ELEMENT).ok_or(GroupError::Undefined)?;
        self.agree_on_memory_access(idle)?;
        self.reduce(data.as_mut_bytes(), combine, kind(operation, T::ELEMENT), idle)
    }

    fn reduce(
        &mut self,
        data: &mut [u8],
        operation: Builtin,
        kind: u32,
        idle: &mut impl Idle,
    ) -> Result<(), GroupError> {
        let plan = CollectiveSpec {
            grain: operation.grain(),
            in_place: true,
            ..self.plan(CollectiveKind::Allreduce, data.len(), kind)
        };
        let buffers =
            CollectiveBuffers::in_place(self.member.segment(), data, Combine(Some(operation)), NoRemoteMemory);
        self.complete(&plan, buffers, idle)
    }

    const fn plan(&self, verb: CollectiveKind, bytes: usize, kind: u32) -> CollectiveSpec {
        CollectiveSpec {
            collective: verb,
            rank: Rank(self.member.local()),
            size: self.member.size(),
            root: Rank(0),
            bytes,
            grain: 1,
            order: Order::Any,
            in_place: false,
            reduction_id: kind,
        }
    }

    /// The first collective other than a barrier finds out which ranks can read each other's memory: every rank
    /// publishes 16 bytes, then whether it could read those of all others. A node reads no memory of others, so no rank
    /// does.
    fn agree_on_memory_access(&mut self, idle: &mut impl Idle) -> Result<(), GroupError> {
        if self.agreed {
            return self.failed.map_or(Ok(()), Err);
        }
        self.agreed = true;
        let shown = [0; 16];
        let plan = self.plan(CollectiveKind::Allgather, shown.len(), 0);
        let buffers = CollectiveBuffers::new(self.member.segment(), &shown, &mut [], Combine(None), NoRemoteMemory);
        self.complete(&plan, buffers, idle)?;
        let least = Builtin::new(ReduceOperation::Min, Element::U8).ok_or(GroupError::Undefined)?;
        self.reduce(&mut [0], least, kind(ReduceOperation::Min, Element::U8), idle)
    }

    fn complete(
        &mut self,
        plan: &CollectiveSpec,
        mut buffers: CollectiveBuffers<'_, Combine, NoRemoteMemory>,
        idle: &mut impl Idle,
    ) -> Result<(), GroupError> {
        self.failed.map_or(Ok(()), Err)?;
        self.sequence = self.sequence.wrapping_add(1);
        self.flags.start(CollectiveId { context: 0, sequence: self.sequence }, plan);
        let mut polls = 0_u32;
        loop {
            match self.flags.poll() {
                Poll::Request(step, op) => match buffers.execute(op) {
                    Ok(()) => self.flags.handle_done(step),
                    // The published words for cross-memory access have no place here.
                    Err(DataError::Bounds) if plan.collective == CollectiveKind::Allgather => {
                        self.flags.handle_done(step)
                    }
                    Err(DataError::Bounds) => return Err(self.fail(GroupError::Corrupted)),
                    Err(DataError::Unreadable(rank)) => self.flags.handle_failed(rank),
                },
                Poll::Pending => {
                    polls = polls.wrapping_add(1);
                    if polls.is_multiple_of(POLLS_PER_CHECK) {
                        self.check_peers()?;
                    }
                    idle.idle();
                }
                Poll::Complete => return Ok(()),
                Poll::Failed(failure) => return Err(self.fail(GroupError::Rank(failure))),
            }
        }
    }

    /// Checks that this rank's words are intact and that the awaited ranks still take part.
    fn check_peers(&mut self) -> Result<(), GroupError> {
        if !self.member.is_intact() || !self.flags.is_intact() {
            return Err(self.fail(GroupError::Corrupted));
        }
        if let Some(awaited) = self.flags.awaited()
            && self.member.has_retired(awaited.rank.0)
            && self.flags.is_behind(awaited.rank)
        {
            self.flags.handle_failed(awaited.rank);
        }
        Ok(())
    }

    fn fail(&mut self, error: GroupError) -> GroupError {
        self.member.retire();
        self.flags.withdraw_buffers();
        self.failed = Some(error);
        error
    }
}

/// The reduction, if any: one type for all collectives, so that their code exists once.
#[derive(Debug)]
struct Combine(Option<Builtin>);

impl ReductionOp for Combine {
    unsafe fn combine(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        if let Some(builtin) = &mut self.0 {
            // SAFETY: the same operands under the same contract, which the caller keeps.
            unsafe { builtin.combine(left, right, into, bytes) };
        }
    }
}

impl Group<'_> {
    /// The rank whose collectives these are.
    pub fn member(&self) -> &Member<'_> {
        &self.member
    }
}
