//! Waiting until all ranks of a node have attached to the shared-memory segment.

use core::time::Duration;
use std::time::Instant;

use unisono_shmem::host::liveness::{LivenessLocks, LockOwner};
use unisono_shmem::layout::SegmentLayout;
use unisono_shmem::rank_slot::{Occupancy, RankSlot};
use unisono_shmem::segment::Segment;

use super::handover::Giver;
use super::{Neighbour, NodeError, Presence};
use unisono_bootstrap::{Incarnation, Membership, Notice, Rank};

/// Pause between two checks, initial and maximum.
const LOOKS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// A wait for other ranks of the node, with a deadline, that also handles events from the rendezvous server.
pub(super) struct Patience<'a> {
    pub(super) membership: &'a mut Membership,
    pub(super) deadline: Instant,
    pause: Duration,
}

/// The result of one step of the wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// The rank may still come.
    Wait,
    /// The rank has failed.
    Dead,
    /// The deadline has passed.
    Late,
}

impl<'a> Patience<'a> {
    pub(super) const fn new(membership: &'a mut Membership, deadline: Instant) -> Self {
        Self { membership, deadline, pause: LOOKS[0] }
    }

    /// The incarnation of a rank that joined the job.
    pub(super) fn incarnation(&self, rank: Rank) -> Incarnation {
        self.membership.table().get(rank.0 as usize).map_or(Incarnation(0), |entry| entry.incarnation)
    }

    /// Sleeps for a short while, and checks for events about the rank.
    ///
    /// # Errors
    /// A rank aborted the job.
    pub(super) fn rest(&mut self, awaited: Rank) -> Result<Word, NodeError> {
        for notice in self.membership.heard() {
            match *notice {
                Notice::Aborted { rank, code } => return Err(NodeError::Aborted { rank, code }),
                Notice::Died { rank, .. } if rank == awaited => return Ok(Word::Dead),
                _ => {}
            }
        }
        if Instant::now() >= self.deadline {
            return Ok(Word::Late);
        }
        std::thread::sleep(self.pause);
        self.pause = (2 * self.pause).min(LOOKS[1]);
        Ok(Word::Wait)
    }
}

/// The ranks that are expected to attach.
pub(super) struct Arrivals<'a> {
    pub(super) segment: Segment<'static>,
    pub(super) layout: &'a SegmentLayout,
    pub(super) life: &'a LivenessLocks,
    pub(super) ranks: &'a [Rank],
    pub(super) own: u32,
    /// Passes them the segment, if this process created it.
    pub(super) giver: Option<Giver>,
}

impl Arrivals<'_> {
    /// Waits until all ranks have attached or are known to have failed.
    pub(super) fn wait(mut self, mut patience: Patience<'_>) -> Result<Box<[Neighbour]>, NodeError> {
        let mut come: Vec<Neighbour> = Vec::with_capacity(self.ranks.len());
        while let (Some(rank), Ok(local)) = (self.ranks.get(come.len()).copied(), u32::try_from(come.len())) {
            if let Some(giver) = &mut self.giver {
                giver.give(Some(self.life.file()));
            }
            if let Some(neighbour) = self.look(local, rank, patience.incarnation(rank))? {
                come.push(neighbour);
                continue;
            }
            match patience.rest(rank)? {
                Word::Wait => {}
                Word::Dead => come.push(Neighbour::absent(rank)),
                Word::Late => return Err(NodeError::Absent(rank)),
            }
        }
        Ok(come.into())
    }

    /// Checks the slot of one rank. `None` if the rank has not attached yet.
    fn look(&self, local: u32, rank: Rank, incarnation: Incarnation) -> Result<Option<Neighbour>, NodeError> {
        let stranger = NodeError::Stranger(rank);
        let Some(seat) = RankSlot::of(self.segment, self.layout, local) else { return Err(stranger) };
        let sitter = match seat.state() {
            Occupancy::Free => return Ok(None),
            Occupancy::Active(sitter)
            | Occupancy::Retired(sitter)
            | Occupancy::Left(sitter)
            | Occupancy::Failed(sitter) => sitter,
            Occupancy::Corrupt => return Err(stranger),
        };
        let holder = self.life.owner(local)?;
        if (sitter.rank, sitter.incarnation) != (rank.0, incarnation.0) {
            // An earlier incarnation used the slot; the present one does not share memory.
            return if holder == LockOwner::Nobody { Ok(Some(Neighbour::absent(rank))) } else { Err(stranger) };
        }
        let here = local == self.own || (holder == LockOwner::Nobody && sitter.process == std::process::id());
        let (process, presence) = match holder {
            _ if here => (std::process::id(), Presence::Here),
            LockOwner::Process(process) => (process, Presence::Elsewhere),
            LockOwner::Nobody => (0, Presence::Elsewhere),
        };
        Ok(Some(Neighbour { rank, incarnation, process, presence }))
    }
}
