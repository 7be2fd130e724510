//! A process's part in the shared memory of its node: one segment per node and job, a seat for each of its ranks.
//!
//! `unisono run` makes the segment and hands it to the ranks as a descriptor (`UNISONO_SEGMENT`). It has no name anywhere, and
//! goes with its last process.

use core::fmt;
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::time::Instant;

use unisono_shmem::file::{FileError, Mapping, SegmentFile, reopen};
use unisono_shmem::layout::{Layout, RANKS_MAX, Sizes, Waiting};
use unisono_shmem::life::{Holder, Life};
use unisono_shmem::rest::{Rest, Sleepers};
use unisono_shmem::seat::{Occupant, Own, Seat, Sitter};
use unisono_shmem::segment::Segment;

use crate::bootstrap::{Incarnation, Membership, Notice};
use crate::environment::{DeviceChoice, GivenSegment, Settings};
use crate::rank::Rank;

/// Between two looks at the seats of those who have not come, at first and at most.
const LOOKS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// Why a process has no part in the shared memory of its node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// There is no segment, or it cannot be used.
    #[error("shared memory: {0}")]
    File(#[from] FileError),
    /// The system refuses something.
    #[error("shared memory: {0}")]
    System(#[from] std::io::Error),
    /// The device is `shm`, and the job has several nodes.
    #[error("the device shm needs all ranks on one node, not on {nodes}")]
    Apart {
        /// How many.
        nodes: usize,
    },
    /// The device is `shm`, and the starter gave no segment.
    #[error("the device shm needs shared memory, which the starter of this process does not give")]
    NotGiven,
    /// A node has too many ranks.
    #[error("{ranks} ranks of a node cannot share memory: at most {RANKS_MAX} can")]
    TooMany {
        /// How many.
        ranks: usize,
    },
    /// The segment is not that of this node.
    #[error("the segment that was given has {seats} seats for {ranks} ranks")]
    Seats {
        /// Of the segment.
        seats: u32,
        /// Of the node.
        ranks: usize,
    },
    /// Another process sits on this one's seat.
    #[error("another process sits on the seat of rank {0}")]
    Taken(Rank),
    /// An earlier life of this rank sat on its seat: nobody follows it there. With the device `auto` this one does without.
    #[error("an earlier life of rank {0} has its seat")]
    Former(Rank),
    /// Whoever sits on a rank's seat is not the one that joined the job.
    #[error("the seat of rank {0} is not its own")]
    Stranger(Rank),
    /// A rank has not come in time.
    #[error("rank {0} has not taken its seat in time")]
    Absent(Rank),
    /// The job was ended meanwhile.
    #[error("rank {rank} ended the job with code {code}")]
    Aborted {
        /// Who asked for it.
        rank: Rank,
        /// The exit code to end with.
        code: i32,
    },
}

/// What is known of a rank of the node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// It lives.
    Alive,
    /// It has finished.
    Left,
    /// It has died or given up.
    Dead,
}

/// A rank of the node.
#[derive(Clone, Copy, Debug)]
struct Neighbour {
    rank: Rank,
    incarnation: Incarnation,
    process: u32,
    presence: Presence,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    /// A process of its own, whose life its lock tells.
    Elsewhere,
    /// A thread of this process.
    Here,
    /// This life of it has no seat.
    Never,
}

impl Neighbour {
    const fn absent(rank: Rank) -> Self {
        Self { rank, incarnation: Incarnation(0), process: 0, presence: Presence::Never }
    }
}

/// A process's part in the shared memory of its node.
pub struct Node {
    mapping: Mapping,
    layout: Layout,
    local: u32,
    own: Own<'static>,
    sleepers: Sleepers<'static>,
    neighbours: Box<[Neighbour]>,
    // Closed last: with it goes the lock that says that this process lives.
    life: Life,
}

impl fmt::Debug for Node {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Node({} of {}, {:?})", self.local, self.size(), self.layout.sizes().waiting)
    }
}

impl Node {
    /// Takes this process's seat and waits until all ranks of the node have, or are known to be dead. `None`: its ranks do
    /// not share memory, since there is only one, or another device was chosen, or there is no memory to share.
    pub(crate) fn join(settings: &Settings, membership: &mut Membership) -> Result<Option<Self>, NodeError> {
        let (device, own) = (settings.transport.device, membership.rank());
        let node_of = |rank: Rank| membership.table().get(rank.0 as usize).map(|entry| entry.node);
        let nodes = || membership.table().iter().filter(|entry| Some(entry.node) != node_of(own)).count();
        if device == DeviceChoice::Shm && nodes() > 0 {
            let mut nodes: Vec<u32> = membership.table().iter().map(|entry| entry.node).collect();
            nodes.sort_unstable();
            nodes.dedup();
            return Err(NodeError::Apart { nodes: nodes.len() });
        }
        let ranks: Vec<Rank> = (0..membership.size()).map(Rank).filter(|rank| node_of(*rank) == node_of(own)).collect();
        if !device.shares(ranks.len()) {
            return Ok(None);
        }
        if ranks.len() > RANKS_MAX as usize {
            let error = NodeError::TooMany { ranks: ranks.len() };
            tracing::info!("{error}");
            return if device == DeviceChoice::Shm { Err(error) } else { Ok(None) };
        }
        let file = match settings.locality.segment {
            Some(GivenSegment::Descriptor(number)) => Some(reopen(i32::try_from(number).unwrap_or(-1))?),
            None if ranks.len() == 1 => Some(make(1)?),
            Some(GivenSegment::Nothing) | None => None,
        };
        match file {
            Some(file) => {
                let deadline = Instant::now() + settings.assembly();
                match Self::attach(file, &ranks, membership, deadline) {
                    Err(error @ NodeError::Former(_)) if device == DeviceChoice::Auto => {
                        tracing::info!("{error}");
                        Ok(None)
                    }
                    attached => attached.map(Some),
                }
            }
            None if device == DeviceChoice::Shm => Err(NodeError::NotGiven),
            None => Ok(None),
        }
    }

    fn attach(
        file: OwnedFd,
        ranks: &[Rank],
        membership: &mut Membership,
        deadline: Instant,
    ) -> Result<Self, NodeError> {
        let (life, rank) = (Life::new(file), membership.rank());
        let (mapping, layout) = Mapping::open(life.file())?;
        let (seats, segment) = (layout.sizes().ranks, mapping.segment());
        let local = ranks.iter().position(|one| *one == rank).and_then(|local| u32::try_from(local).ok());
        let wrong = NodeError::Seats { seats, ranks: ranks.len() };
        let (Some(local), true) = (local, seats as usize == ranks.len()) else { return Err(wrong) };
        let (Some(seat), Some(sleepers)) = (Seat::of(segment, &layout, local), Sleepers::new(segment, &layout, local))
        else {
            return Err(wrong);
        };
        let incarnation = incarnation(membership, rank);
        let sitter = Sitter { rank: rank.0, incarnation: incarnation.0, process: std::process::id() };
        if !life.hold(local)? {
            return Err(NodeError::Taken(rank));
        }
        let own = seat.take(sitter).ok_or(NodeError::Former(rank))?;
        let arrivals = Arrivals { segment, layout: &layout, life: &life, ranks, own: local };
        let neighbours = arrivals.wait(membership, deadline).inspect_err(|_| own.fail())?;
        Ok(Self { mapping, layout, local, own, sleepers, neighbours, life })
    }

    /// The segment. Useful as long as the node is held; kept longer, it is memory of this process alone.
    pub const fn segment(&self) -> Segment<'static> {
        self.mapping.segment()
    }

    /// Where everything lies in it.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// This process's number among the ranks of the node.
    pub const fn local(&self) -> u32 {
        self.local
    }

    /// Ranks of the node.
    pub const fn size(&self) -> u32 {
        self.layout.sizes().ranks
    }

    /// The rank with this number on the node; the largest number there is if there is none.
    pub fn rank_of(&self, local: u32) -> Rank {
        self.neighbours.get(local as usize).map_or(Rank(u32::MAX), |neighbour| neighbour.rank)
    }

    /// A rank's number on the node, if it is there. O(log n).
    pub fn local_of(&self, rank: Rank) -> Option<u32> {
        let found = self.neighbours.binary_search_by_key(&rank, |neighbour| neighbour.rank).ok()?;
        u32::try_from(found).ok()
    }

    /// Whether a rank of the node lives, as the system sees it. One system call.
    pub fn is_alive(&self, local: u32) -> bool {
        self.standing(local) == Standing::Alive
    }

    /// How it stands with a rank of the node, as the system sees it. One system call.
    pub fn standing(&self, local: u32) -> Standing {
        let Some(neighbour) = self.neighbours.get(local as usize) else { return Standing::Dead };
        let said = || Seat::of(self.segment(), &self.layout, local).map(|seat| seat.occupant());
        let ended = || if matches!(said(), Some(Occupant::Left(_))) { Standing::Left } else { Standing::Dead };
        match neighbour.presence {
            _ if local == self.local => Standing::Alive,
            Presence::Never => Standing::Dead,
            Presence::Here => match said() {
                Some(Occupant::Left(_) | Occupant::Failed(_)) => ended(),
                _ => Standing::Alive,
            },
            Presence::Elsewhere => match self.life.holder(local) {
                Ok(Holder::Nobody) => ended(),
                // Who cannot be asked is not declared dead here.
                Ok(Holder::Process(_)) | Err(_) => Standing::Alive,
            },
        }
    }

    /// The process of a rank of the node, as this one sees it. `None`: it never came, or is out of sight.
    pub fn pid(&self, local: u32) -> Option<u32> {
        let neighbour = self.neighbours.get(local as usize)?;
        (neighbour.process != 0).then_some(neighbour.process)
    }

    /// The life of a rank that shares memory; none of a later life does.
    pub fn incarnation(&self, local: u32) -> Option<Incarnation> {
        let neighbour = self.neighbours.get(local as usize)?;
        (neighbour.presence != Presence::Never).then_some(neighbour.incarnation)
    }

    /// Whether this process's own seat is as it was written. If not, somebody writes where he should not, and nothing in the
    /// segment can be trusted.
    pub fn is_intact(&self) -> bool {
        self.own.is_intact()
    }

    /// How the ranks of the node wait.
    pub const fn waiting(&self) -> Waiting {
        self.layout.sizes().waiting
    }

    /// Who sleeps on what: to wake them.
    pub const fn sleepers(&self) -> Sleepers<'static> {
        self.sleepers
    }

    /// A wait that begins.
    pub const fn rest(&self) -> Rest<'static> {
        Rest::new(self.sleepers)
    }

    /// Says farewell to the others: the end of this process will be no death. Without it, it is one.
    pub(crate) fn leave(&self) {
        self.own.leave();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Threads of this process do not see the lock go.
        let said = Seat::of(self.segment(), &self.layout, self.local).map(|seat| seat.occupant());
        if !matches!(said, Some(Occupant::Left(_))) {
            self.own.fail();
        }
    }
}

fn incarnation(membership: &Membership, rank: Rank) -> Incarnation {
    membership.table().get(rank.0 as usize).map_or(Incarnation(0), |entry| entry.incarnation)
}

/// A segment for ranks that no launcher gave one.
fn make(ranks: u32) -> Result<OwnedFd, FileError> {
    let waiting = if ranks > processors() { Waiting::Shared } else { Waiting::Dedicated };
    let made = SegmentFile::create(&Layout::new(Sizes::of_node(ranks, waiting))?)?;
    tracing::info!(?waiting, "shared memory in {}", made.pages());
    Ok(made.into())
}

/// Processors that the ranks of this node share: those of this process, or of its parent, which may have pinned it to some of
/// its own.
pub(crate) fn processors() -> u32 {
    let of = |process| rustix::thread::sched_getaffinity(process).map_or(1, |processors| processors.count());
    of(None).max(of(rustix::process::getppid()))
}

/// Those who are to come.
struct Arrivals<'a> {
    segment: Segment<'static>,
    layout: &'a Layout,
    life: &'a Life,
    ranks: &'a [Rank],
    own: u32,
}

impl Arrivals<'_> {
    fn wait(&self, membership: &mut Membership, deadline: Instant) -> Result<Box<[Neighbour]>, NodeError> {
        let [mut pause, longest] = LOOKS;
        let mut come: Vec<Neighbour> = Vec::with_capacity(self.ranks.len());
        while let (Some(rank), Ok(local)) = (self.ranks.get(come.len()).copied(), u32::try_from(come.len())) {
            if let Some(neighbour) = self.look(local, rank, incarnation(membership, rank))? {
                come.push(neighbour);
                continue;
            }
            let mut heard = membership.heard();
            let word = heard.find_map(|notice| match *notice {
                Notice::Aborted { rank, code } => Some(Err(NodeError::Aborted { rank, code })),
                Notice::Died { rank: dead, .. } if dead == rank => Some(Ok(())),
                _ => None,
            });
            match word {
                Some(Err(aborted)) => return Err(aborted),
                Some(Ok(())) => come.push(Neighbour::absent(rank)),
                None if Instant::now() >= deadline => return Err(NodeError::Absent(rank)),
                None => {
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(longest);
                }
            }
        }
        Ok(come.into())
    }

    /// What there is to see of one of them, if it has come.
    fn look(&self, local: u32, rank: Rank, incarnation: Incarnation) -> Result<Option<Neighbour>, NodeError> {
        let stranger = NodeError::Stranger(rank);
        let Some(seat) = Seat::of(self.segment, self.layout, local) else { return Err(stranger) };
        let sitter = match seat.occupant() {
            Occupant::Nobody => return Ok(None),
            Occupant::Sits(sitter) | Occupant::Left(sitter) | Occupant::Failed(sitter) => sitter,
            Occupant::Garbage => return Err(stranger),
        };
        let holder = self.life.holder(local)?;
        if (sitter.rank, sitter.incarnation) != (rank.0, incarnation.0) {
            // An earlier life has the seat; the present one does without.
            return if holder == Holder::Nobody { Ok(Some(Neighbour::absent(rank))) } else { Err(stranger) };
        }
        let here = local == self.own || (holder == Holder::Nobody && sitter.process == std::process::id());
        let (process, presence) = match holder {
            _ if here => (std::process::id(), Presence::Here),
            Holder::Process(process) => (process, Presence::Elsewhere),
            Holder::Nobody => (0, Presence::Elsewhere),
        };
        Ok(Some(Neighbour { rank, incarnation, process, presence }))
    }
}
