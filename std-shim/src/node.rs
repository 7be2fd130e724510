//! A process's part in the shared memory of its node: one segment per node and job, a seat for each of its ranks.
//!
//! `unisono run` makes the segment and hands it to the ranks as a descriptor (`UNISONO_SEGMENT`); under another starter the
//! first rank of the node does. It has no name anywhere, and goes with its last process.

mod arrivals;
mod handover;

use core::fmt;
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity};
use unisono_shmem::host::file::{FileError, Mapping, SegmentFile, reopen};
use unisono_shmem::host::liveness::{Holder, Life};
use unisono_shmem::host::wait_strategy::{Rest, Sleepers};
use unisono_shmem::layout::{Layout, RANKS_MAX, Sizes, Waiting};
use unisono_shmem::rank_slot::{Occupant, Own, Seat, Sitter};
use unisono_shmem::segment::Segment;

use arrivals::{Arrivals, Patience, Word};
use handover::{Giver, Taken, Taker};

use crate::environment::{DeviceChoice, GivenSegment, Settings};
use unisono_bootstrap::{Incarnation, Membership, Rank};

/// Time that the first rank of a node has to make a segment and hand it over, once all ranks have joined the job.
const HANDOVER: Duration = Duration::from_secs(10);

/// Time that the others of the node have to come for a segment before it is made.
const GATHERING: Duration = Duration::from_secs(1);

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
    /// The device is `shm`, and whoever should have made a segment gave none.
    #[error("the device shm needs shared memory, and nobody gave any")]
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
    segment: Segment<'static>,
    _mapping: Mapping,
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
        if !settings.transport.shares(ranks.len(), membership.size() as usize) {
            return Ok(None);
        }
        if ranks.len() > RANKS_MAX as usize {
            let error = NodeError::TooMany { ranks: ranks.len() };
            tracing::info!("{error}");
            return if device == DeviceChoice::Shm { Err(error) } else { Ok(None) };
        }
        let file = match settings.locality.segment {
            Some(GivenSegment::Descriptor { number, holder }) => Some((reopen(number, holder)?, None)),
            Some(GivenSegment::Nothing) => None,
            None => without_launcher(settings, &ranks, membership)?,
        };
        match file {
            Some((file, giver)) => {
                let patience = Patience::new(membership, Instant::now() + settings.assembly());
                match Self::attach(file, giver, own, &ranks, patience) {
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
        giver: Option<Giver>,
        rank: Rank,
        ranks: &[Rank],
        patience: Patience<'_>,
    ) -> Result<Self, NodeError> {
        let life = Life::new(file);
        let (mapping, layout) = Mapping::open(life.file())?;
        // SAFETY: the node is the only user of the mapping in this process, and gives the segment to this crate alone, or to those who
        // keep the same promise (`raw_segment`). Of this crate, `NodeGroup` and `Near` take this rank's ends and parts, once each,
        // under the lock of the World; its pool, which `Buffer`s refer to, no cells are made of.
        let segment = unsafe { mapping.segment() };
        let seats = layout.sizes().ranks;
        let local = ranks.iter().position(|one| *one == rank).and_then(|local| u32::try_from(local).ok());
        let wrong = NodeError::Seats { seats, ranks: ranks.len() };
        let (Some(local), true) = (local, seats as usize == ranks.len()) else { return Err(wrong) };
        let (Some(seat), Some(sleepers)) = (Seat::of(segment, &layout, local), Sleepers::new(segment, &layout, local))
        else {
            return Err(wrong);
        };
        let incarnation = patience.incarnation(rank);
        let sitter = Sitter { rank: rank.0, incarnation: incarnation.0, process: std::process::id() };
        if !life.hold(local)? {
            return Err(NodeError::Taken(rank));
        }
        let own = seat.take(sitter).ok_or(NodeError::Former(rank))?;
        let arrivals = Arrivals { segment, layout: &layout, life: &life, ranks, own: local, giver };
        let neighbours = arrivals.wait(patience).inspect_err(|_| own.fail())?;
        Ok(Self { segment, layout, local, own, sleepers, neighbours, life, _mapping: mapping })
    }

    /// The segment. Useful as long as the node is held; kept longer, it is memory of this process alone.
    pub(crate) const fn segment(&self) -> Segment<'static> {
        self.segment
    }

    /// The segment, for tests that write there what a broken process might.
    ///
    /// Safe code cannot get it, for it could write below a [`Buffer`](crate::world::Buffer) that is borrowed:
    /// ```compile_fail,E0133
    /// fn write(world: &unisono::world::World) {
    ///     let node = world.node().unwrap();
    ///     node.raw_segment().cells(node.layout().pool(node.local()).unwrap().at, 8).unwrap().write(&[0; 8]);
    /// }
    /// ```
    ///
    /// # Safety
    /// No bytes of a `Buffer` of this process are used through it. Whatever else is written comes when another process could have
    /// written it: the World and its progress thread use the same words and cells.
    pub const unsafe fn raw_segment(&self) -> Segment<'static> {
        self.segment
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

    /// Whether a rank of the node lives and has not given up. One system call.
    pub fn is_alive(&self, local: u32) -> bool {
        self.standing(local) == Standing::Alive
    }

    /// How it stands with a rank of the node, as the system sees it and the rank says. One system call.
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
                Ok(Holder::Process(_)) | Err(_) if matches!(said(), Some(Occupant::Failed(_))) => Standing::Dead,
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

    /// Whether every rank of the node is a process, as it says itself. All ranks say the same.
    pub fn has_processes(&self) -> bool {
        let sits = |local| Seat::of(self.segment(), &self.layout, local).map(|seat| seat.occupant());
        (0..self.size()).all(|local| match sits(local) {
            Some(
                Occupant::Sits(sitter) | Occupant::Retired(sitter) | Occupant::Left(sitter) | Occupant::Failed(sitter),
            ) => sitter.process != 0,
            Some(Occupant::Nobody | Occupant::Garbage) | None => false,
        })
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

    /// Whether a rank takes part in no collective any more, since one of its failed, or it finishes or gives up. One load.
    pub fn has_retired(&self, local: u32) -> bool {
        Seat::of(self.segment(), &self.layout, local).is_some_and(|seat| seat.has_retired())
    }

    /// Tells the others that this rank takes part in no collective any more.
    pub(crate) fn retire(&self) {
        self.own.retire();
    }

    /// Gives up, since what this rank wrote was overwritten: the others take it for dead.
    pub(crate) fn give_up(&self) {
        self.own.fail();
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

/// The segment of ranks that no launcher gave one: the first of them makes it, the others get it from that one.
fn without_launcher(
    settings: &Settings,
    ranks: &[Rank],
    membership: &mut Membership,
) -> Result<Option<(OwnedFd, Option<Giver>)>, NodeError> {
    let (own, auto) = (membership.rank(), settings.transport.device == DeviceChoice::Auto);
    let first = *ranks.first().unwrap_or(&own);
    let line = membership.table().get(first.0 as usize);
    let (Some(secret), Some(line), true) = (&settings.secret, line, ranks.len() > 1) else {
        return Ok(Some((make(ranks.len(), processors())?, None)));
    };
    let place = handover::place(secret, settings.job.as_str(), line)?;
    if first != own {
        let taken = take(place, first, Patience::new(membership, Instant::now() + HANDOVER))?;
        return Ok(taken.map(|file| (file, None)));
    }
    let mut giver = Giver::open(&place)?;
    let processors = together(&mut giver, ranks, membership)?;
    match make(ranks.len(), processors) {
        Ok(file) => Ok(Some((file, Some(giver)))),
        Err(error) => {
            let patience = Patience::new(membership, Instant::now() + HANDOVER);
            decline(&mut giver, ranks, patience)?;
            tracing::warn!("no shared memory: {error}");
            if auto { Ok(None) } else { Err(error.into()) }
        }
    }
}

/// The segment that the first rank of the node gives. `None`: it has none, or does not come.
fn take(
    place: std::os::unix::net::SocketAddr,
    first: Rank,
    mut patience: Patience<'_>,
) -> Result<Option<OwnedFd>, NodeError> {
    let mut taker = Taker::new(place);
    loop {
        match taker.take()? {
            Taken::Segment(file) => return Ok(Some(file)),
            Taken::Nothing => return Ok(None),
            Taken::NotYet => {}
        }
        match patience.rest(first)? {
            Word::Wait => {}
            Word::Dead | Word::Late => {
                tracing::warn!(%first, "the first rank of the node gives no shared memory");
                return Ok(None);
            }
        }
    }
}

/// Tells the other ranks of the node that there is nothing to share.
fn decline(giver: &mut Giver, ranks: &[Rank], mut patience: Patience<'_>) -> Result<(), NodeError> {
    let mut left = ranks.len().saturating_sub(1);
    while left > 0 && patience.rest(ranks[0])? == Word::Wait {
        left = left.saturating_sub(giver.give(None));
    }
    Ok(())
}

/// Processors of all ranks of the node together, each of which its starter may have pinned to some. Who does not come soon is not
/// asked.
fn together(giver: &mut Giver, ranks: &[Rank], membership: &mut Membership) -> Result<u32, NodeError> {
    let mut patience = Patience::new(membership, Instant::now() + GATHERING);
    while giver.gather() + 1 < ranks.len() && patience.rest(ranks[0])? == Word::Wait {}
    let mut all = CpuSet::new();
    for process in giver.processes().map(Some).chain([None]) {
        if let Ok(own) = sched_getaffinity(process) {
            (0..CpuSet::MAX_CPU).filter(|processor| own.is_set(*processor)).for_each(|processor| all.set(processor));
        }
    }
    Ok(processors().max(all.count()))
}

/// A segment for ranks that no launcher gave one.
fn make(ranks: usize, processors: u32) -> Result<OwnedFd, FileError> {
    let waiting = Waiting::of(ranks, processors as usize);
    let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
    let made = SegmentFile::create(&Layout::new(Sizes::of_node(ranks, waiting))?)?;
    tracing::info!(?waiting, "shared memory in {}", made.pages());
    Ok(made.into())
}

/// Processors that the ranks of this node share, as far as this process knows: its own, or those of its parent, which may have
/// pinned it to some.
pub(crate) fn processors() -> u32 {
    let of = |process| sched_getaffinity(process).map_or(1, |processors| processors.count());
    of(None).max(of(rustix::process::getppid()))
}
