//! Waiting until all ranks of a node have attached to the shared-memory segment.

use core::time::Duration;
use std::time::Instant;

use unisono_shmem::host::liveness::{LivenessLocks, LockOwner};
use unisono_shmem::layout::SegmentLayout;
use unisono_shmem::rank_slot::{Occupancy, RankSlot};
use unisono_shmem::segment::Segment;

use super::fd_passing::SegmentSender;
use super::{NodeError, NodePeer, PeerPlace};
use unisono_bootstrap::{Incarnation, Membership, MembershipEvent, Rank};

/// Pause between two checks, initial and maximum.
const CHECK_PAUSE: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// A wait for other ranks of the node, with a deadline, that also handles events from the rendezvous server.
pub(super) struct AttachDeadline<'a> {
    pub(super) membership: &'a mut Membership,
    pub(super) deadline: Instant,
    pause: Duration,
}

/// The result of one step of the wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitStep {
    /// The rank may still come.
    Continue,
    /// The rank has failed.
    Failed,
    /// The deadline has passed.
    TimedOut,
}

impl<'a> AttachDeadline<'a> {
    pub(super) const fn new(membership: &'a mut Membership, deadline: Instant) -> Self {
        Self { membership, deadline, pause: CHECK_PAUSE[0] }
    }

    /// The incarnation of a rank that joined the job.
    pub(super) fn incarnation(&self, rank: Rank) -> Incarnation {
        self.membership.table().get(rank.0 as usize).map_or(Incarnation(0), |entry| entry.incarnation)
    }

    /// Sleeps for a short while, and checks for events about the rank.
    ///
    /// # Errors
    /// A rank aborted the job.
    pub(super) fn wait_step(&mut self, awaited: Rank) -> Result<WaitStep, NodeError> {
        for notice in self.membership.queued_events() {
            match *notice {
                MembershipEvent::Aborted { rank, code } => return Err(NodeError::Aborted { rank, code }),
                MembershipEvent::Failed { rank, .. } if rank == awaited => return Ok(WaitStep::Failed),
                _ => {}
            }
        }
        if Instant::now() >= self.deadline {
            return Ok(WaitStep::TimedOut);
        }
        std::thread::sleep(self.pause);
        self.pause = (2 * self.pause).min(CHECK_PAUSE[1]);
        Ok(WaitStep::Continue)
    }
}

/// The ranks that are expected to attach.
pub(super) struct AttachWait<'a> {
    pub(super) segment: Segment<'static>,
    pub(super) layout: &'a SegmentLayout,
    pub(super) liveness: &'a LivenessLocks,
    pub(super) ranks: &'a [Rank],
    pub(super) own: u32,
    /// Passes them the segment, if this process created it.
    pub(super) sender: Option<SegmentSender>,
}

impl AttachWait<'_> {
    /// Waits until all ranks have attached or are known to have failed.
    pub(super) fn wait(mut self, mut patience: AttachDeadline<'_>) -> Result<Box<[NodePeer]>, NodeError> {
        let mut come: Vec<NodePeer> = Vec::with_capacity(self.ranks.len());
        while let (Some(rank), Ok(local)) = (self.ranks.get(come.len()).copied(), u32::try_from(come.len())) {
            if let Some(giver) = &mut self.sender {
                giver.send_to_all(Some(self.liveness.file()));
            }
            if let Some(neighbour) = self.check(local, rank, patience.incarnation(rank))? {
                come.push(neighbour);
                continue;
            }
            match patience.wait_step(rank)? {
                WaitStep::Continue => {}
                WaitStep::Failed => come.push(NodePeer::absent(rank)),
                WaitStep::TimedOut => return Err(NodeError::AttachTimeout(rank)),
            }
        }
        Ok(come.into())
    }

    /// Checks the slot of one rank. `None` if the rank has not attached yet.
    fn check(&self, local: u32, rank: Rank, incarnation: Incarnation) -> Result<Option<NodePeer>, NodeError> {
        let stranger = NodeError::SlotMismatch(rank);
        let Some(slot) = RankSlot::of(self.segment, self.layout, local) else { return Err(stranger) };
        let sitter = match slot.state() {
            Occupancy::Free => return Ok(None),
            Occupancy::Active(sitter)
            | Occupancy::Retired(sitter)
            | Occupancy::Left(sitter)
            | Occupancy::Failed(sitter) => sitter,
            Occupancy::Corrupt => return Err(stranger),
        };
        let holder = self.liveness.owner(local)?;
        if (sitter.rank, sitter.incarnation) != (rank.0, incarnation.0) {
            // An earlier incarnation used the slot; the present one does not share memory.
            return if holder == LockOwner::Nobody { Ok(Some(NodePeer::absent(rank))) } else { Err(stranger) };
        }
        let here = local == self.own || (holder == LockOwner::Nobody && sitter.process == std::process::id());
        let (process, presence) = match holder {
            _ if here => (std::process::id(), PeerPlace::SameProcess),
            LockOwner::Process(process) => (process, PeerPlace::OtherProcess),
            LockOwner::Nobody => (0, PeerPlace::OtherProcess),
        };
        Ok(Some(NodePeer { rank, incarnation, process, place: presence }))
    }
}
