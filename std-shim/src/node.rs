//! A process's attachment to the shared-memory segment of its node: one segment per node and job, with a slot for each
//! local rank.
//!
//! `unisono run` creates the segment and passes it to the ranks as a file descriptor (`UNISONO_SEGMENT`); under another
//! launcher the lowest rank of the node does. The segment has no name in the file system, and is freed when its last
//! process ends.

mod attach;
mod fd_passing;

use core::fmt;
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity};
use unisono_shmem::host::file::{FileError, Mapping, SegmentFile, reopen};
use unisono_shmem::host::liveness::{LivenessLocks, LockOwner};
use unisono_shmem::host::wait_strategy::{BlockingWait, Sleepers};
use unisono_shmem::layout::{RANKS_MAX, SegmentLayout, SegmentSizes, WaitMode};
use unisono_shmem::rank_slot::{Occupancy, Occupant, OwnedSlot, RankSlot};
use unisono_shmem::segment::Segment;

use attach::{AttachDeadline, AttachWait, WaitStep};
use fd_passing::{SegmentReceiver, SegmentReply, SegmentSender};

use crate::environment::{DeviceChoice, InheritedSegment, Settings};
use unisono_bootstrap::{Incarnation, Membership, Rank};

/// Time limit for the first rank of a node to create the segment and pass it on, once all ranks have joined the job.
const FD_PASSING_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that the first rank waits for the other ranks of the node to ask for the segment before it creates the segment.
const GATHER_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a process is not attached to the shared memory of its node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The segment cannot be created, or cannot be mapped.
    #[error("the shared-memory segment cannot be used: {0}")]
    File(#[from] FileError),
    /// A system call failed.
    #[error("the shared-memory segment cannot be set up: {0}")]
    System(#[from] std::io::Error),
    /// The device is `shm`, and the job has several nodes.
    #[error("the device shm needs all ranks on one node, but the job has {nodes} nodes: use the device auto or udp")]
    MultipleNodes {
        /// Nodes of the job.
        nodes: usize,
    },
    /// The device is `shm`, and the launcher or the first rank of the node provided no segment.
    #[error("the device shm needs a shared-memory segment, and none was provided: use the device auto or udp")]
    NoSegment,
    /// A node has too many ranks.
    #[error("{ranks} ranks on one node are too many to share memory: at most {RANKS_MAX} can")]
    TooManyRanks {
        /// Ranks of the node.
        ranks: usize,
    },
    /// The segment was made for another number of ranks.
    #[error("the provided shared-memory segment has {slots} rank slots, but the node has {ranks} ranks")]
    SlotCount {
        /// Slots of the segment.
        slots: u32,
        /// Ranks of the node.
        ranks: usize,
    },
    /// Another process holds the slot of this rank.
    #[error("another process holds the shared-memory slot of rank {0}: start each rank once")]
    SlotTaken(Rank),
    /// An earlier incarnation of this rank used the slot, which is not reused. With the device `auto` the rank works
    /// without shared memory.
    #[error(
        "an earlier incarnation of rank {0} used its shared-memory slot, which cannot be reused: use the device auto"
    )]
    SlotOfEarlierIncarnation(Rank),
    /// The process in a rank's slot is not the one that joined the job.
    #[error("the shared-memory slot of rank {0} is held by a process that is not this job's rank {0}")]
    SlotMismatch(Rank),
    /// A rank did not attach in time.
    #[error("rank {0} did not attach to the shared-memory segment in time")]
    AttachTimeout(Rank),
    /// A rank aborted the job meanwhile.
    #[error("rank {rank} aborted the job with exit code {code}")]
    Aborted {
        /// The rank that aborted.
        rank: Rank,
        /// The exit code of the job.
        code: i32,
    },
}

/// The state of a rank of the node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NodeRankState {
    /// It runs.
    Alive,
    /// It has finished.
    Left,
    /// It has failed.
    Dead,
}

/// A rank of the node.
#[derive(Clone, Copy, Debug)]
struct NodePeer {
    rank: Rank,
    incarnation: Incarnation,
    process: u32,
    place: PeerPlace,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PeerPlace {
    /// Another process; the lock on its slot shows whether it is alive.
    OtherProcess,
    /// A thread of this process.
    SameProcess,
    /// This incarnation of it has no slot.
    Absent,
}

impl NodePeer {
    const fn absent(rank: Rank) -> Self {
        Self { rank, incarnation: Incarnation(0), process: 0, place: PeerPlace::Absent }
    }
}

/// A process's attachment to the shared-memory segment of its node.
pub struct Node {
    segment: Segment<'static>,
    _mapping: Mapping,
    layout: SegmentLayout,
    local: u32,
    own_slot: OwnedSlot<'static>,
    sleepers: Sleepers<'static>,
    peers: Box<[NodePeer]>,
    // Dropped last: closing it releases the lock that shows that this process is alive.
    liveness: LivenessLocks,
}

impl fmt::Debug for Node {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Node({} of {}, {:?})", self.local, self.size(), self.layout.sizes().waiting)
    }
}

impl Node {
    /// Claims this process's slot and waits until all ranks of the node have attached or are known to have failed.
    /// `None`: the ranks do not share memory, since there is only one, another device was chosen, or no segment is
    /// available.
    pub(crate) fn join(settings: &Settings, membership: &mut Membership) -> Result<Option<Self>, NodeError> {
        let (device, own) = (settings.transport.device, membership.rank());
        let node_of = |rank: Rank| membership.table().get(rank.0 as usize).map(|entry| entry.node);
        let nodes = || membership.table().iter().filter(|entry| Some(entry.node) != node_of(own)).count();
        if device == DeviceChoice::Shm && nodes() > 0 {
            let mut nodes: Vec<u32> = membership.table().iter().map(|entry| entry.node).collect();
            nodes.sort_unstable();
            nodes.dedup();
            return Err(NodeError::MultipleNodes { nodes: nodes.len() });
        }
        let ranks: Vec<Rank> = (0..membership.size()).map(Rank).filter(|rank| node_of(*rank) == node_of(own)).collect();
        if !settings.transport.shares_memory(ranks.len(), membership.size() as usize) {
            return Ok(None);
        }
        if ranks.len() > RANKS_MAX as usize {
            let error = NodeError::TooManyRanks { ranks: ranks.len() };
            tracing::info!("{error}");
            return if device == DeviceChoice::Shm { Err(error) } else { Ok(None) };
        }
        let file = match settings.locality.segment {
            Some(InheritedSegment::Descriptor { number, holder }) => Some((reopen(number, holder)?, None)),
            Some(InheritedSegment::Nothing) => None,
            None => without_launcher(settings, &ranks, membership)?,
        };
        match file {
            Some((file, giver)) => {
                let patience = AttachDeadline::new(membership, Instant::now() + settings.join_timeout());
                match Self::attach(file, giver, own, &ranks, patience) {
                    Err(error @ NodeError::SlotOfEarlierIncarnation(_)) if device == DeviceChoice::Auto => {
                        tracing::info!("{error}");
                        Ok(None)
                    }
                    attached => attached.map(Some),
                }
            }
            None if device == DeviceChoice::Shm => Err(NodeError::NoSegment),
            None => Ok(None),
        }
    }

    fn attach(
        file: OwnedFd,
        giver: Option<SegmentSender>,
        rank: Rank,
        ranks: &[Rank],
        patience: AttachDeadline<'_>,
    ) -> Result<Self, NodeError> {
        let liveness = LivenessLocks::new(file);
        let (mapping, layout) = Mapping::open(liveness.file())?;
        // SAFETY: the node is the only user of the mapping in this process, and gives the segment to this crate alone,
        // or to those who keep the same promise (`raw_segment`). Of this crate, `IntraNodeGroup`, or in its place
        // `GroupLane`, and `ShmTransport` take this rank's ends and parts, once each, under the lock of the World; its
        // pool, which `Buffer`s refer to, no cells are made of.
        let segment = unsafe { mapping.segment() };
        let slots = layout.sizes().ranks;
        let local = ranks.iter().position(|one| *one == rank).and_then(|local| u32::try_from(local).ok());
        let wrong = NodeError::SlotCount { slots, ranks: ranks.len() };
        let (Some(local), true) = (local, slots as usize == ranks.len()) else { return Err(wrong) };
        let (Some(slot), Some(sleepers)) =
            (RankSlot::of(segment, &layout, local), Sleepers::new(segment, &layout, local))
        else {
            return Err(wrong);
        };
        let incarnation = patience.incarnation(rank);
        let occupant = Occupant { rank: rank.0, incarnation: incarnation.0, process: std::process::id() };
        // A used slot cannot be claimed, and the others treat the lock of another incarnation than its occupant as that
        // of a stranger: this rank does not lock it.
        if slot.state() != Occupancy::Free {
            return Err(match liveness.owner(local)? {
                LockOwner::Nobody => NodeError::SlotOfEarlierIncarnation(rank),
                LockOwner::Process(_) => NodeError::SlotTaken(rank),
            });
        }
        if !liveness.acquire(local)? {
            return Err(NodeError::SlotTaken(rank));
        }
        let own = slot.claim(occupant).ok_or(NodeError::SlotOfEarlierIncarnation(rank))?;
        let arrivals = AttachWait { segment, layout: &layout, liveness: &liveness, ranks, own: local, sender: giver };
        let neighbours = arrivals.wait(patience).inspect_err(|_| own.fail())?;
        Ok(Self { segment, layout, local, own_slot: own, sleepers, peers: neighbours, liveness, _mapping: mapping })
    }

    /// The segment. Shared only while the node is held; afterwards it is private memory of this process.
    pub(crate) const fn segment(&self) -> Segment<'static> {
        self.segment
    }

    /// The segment, for tests that write there what a broken process might.
    ///
    /// Safe code cannot get it, for it could write below a [`Buffer`](crate::world::Buffer) that is borrowed:
    /// ```compile_fail,E0133
    /// fn write(world: &unisono::World) {
    ///     let node = world.node().unwrap();
    ///     node.raw_segment().shared_bytes(node.layout().pool(node.local()).unwrap().offset, 8).unwrap().write(&[0; 8]);
    /// }
    /// ```
    ///
    /// # Safety
    /// No bytes of a `Buffer` of this process are used through it. Whatever else is written comes when another process
    /// could have written it: the World and its progress thread use the same words and cells.
    pub const unsafe fn raw_segment(&self) -> Segment<'static> {
        self.segment
    }

    /// The layout of the segment.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     assert_eq!(node.layout().sizes().ranks, node.size());
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn layout(&self) -> SegmentLayout {
        self.layout
    }

    /// This process's number among the ranks of the node.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     assert_eq!(node.rank_of(node.local()), world.rank());
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn local(&self) -> u32 {
        self.local
    }

    /// Ranks of the node.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// println!("{} ranks share memory", world.node().map_or(1, |node| node.size()));
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn size(&self) -> u32 {
        self.layout.sizes().ranks
    }

    /// The rank with this number on the node; `Rank(u32::MAX)` if there is none.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     assert_eq!(node.local_of(node.rank_of(0)), Some(0));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rank_of(&self, local: u32) -> Rank {
        self.peers.get(local as usize).map_or(Rank(u32::MAX), |neighbour| neighbour.rank)
    }

    /// A rank's number on the node, if it is there. O(log n).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     assert_eq!(node.local_of(world.rank()), Some(node.local()));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn local_of(&self, rank: Rank) -> Option<u32> {
        let found = self.peers.binary_search_by_key(&rank, |neighbour| neighbour.rank).ok()?;
        u32::try_from(found).ok()
    }

    /// Whether a rank of the node is running. One system call.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     assert!(node.is_alive(node.local()));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_alive(&self, local: u32) -> bool {
        self.rank_state(local) == NodeRankState::Alive
    }

    /// The state of a rank of the node, from its lock and from its slot. One system call.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     assert_eq!(node.rank_state(node.local()), unisono::NodeRankState::Alive);
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rank_state(&self, local: u32) -> NodeRankState {
        let Some(neighbour) = self.peers.get(local as usize) else { return NodeRankState::Dead };
        let said = || RankSlot::of(self.segment(), &self.layout, local).map(|slot| slot.state());
        let ended =
            || if matches!(said(), Some(Occupancy::Left(_))) { NodeRankState::Left } else { NodeRankState::Dead };
        match neighbour.place {
            _ if local == self.local => NodeRankState::Alive,
            PeerPlace::Absent => NodeRankState::Dead,
            PeerPlace::SameProcess => match said() {
                Some(Occupancy::Left(_) | Occupancy::Failed(_)) => ended(),
                _ => NodeRankState::Alive,
            },
            PeerPlace::OtherProcess => match self.liveness.owner(local) {
                Ok(LockOwner::Nobody) => ended(),
                Ok(LockOwner::Process(_)) | Err(_) if matches!(said(), Some(Occupancy::Failed(_))) => {
                    NodeRankState::Dead
                }
                // A failed query does not declare the rank failed.
                Ok(LockOwner::Process(_)) | Err(_) => NodeRankState::Alive,
            },
        }
    }

    /// The process ID of a rank of the node, in this process's PID namespace. `None`: it never attached, or is in
    /// another namespace.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     println!("{:?}", node.pid(node.local()));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn pid(&self, local: u32) -> Option<u32> {
        let neighbour = self.peers.get(local as usize)?;
        (neighbour.process != 0).then_some(neighbour.process)
    }

    /// Whether every rank of the node has recorded a process ID in its slot. Equal on all ranks.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     println!("{}", node.has_processes());
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn has_processes(&self) -> bool {
        let sits = |local| RankSlot::of(self.segment(), &self.layout, local).map(|slot| slot.state());
        (0..self.size()).all(|local| match sits(local) {
            Some(
                Occupancy::Active(sitter)
                | Occupancy::Retired(sitter)
                | Occupancy::Left(sitter)
                | Occupancy::Failed(sitter),
            ) => sitter.process != 0,
            Some(Occupancy::Free | Occupancy::Corrupt) | None => false,
        })
    }

    /// The incarnation of a rank that shares memory; later incarnations do not.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     assert!(node.incarnation(node.local()).is_some());
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn incarnation(&self, local: u32) -> Option<Incarnation> {
        let neighbour = self.peers.get(local as usize)?;
        (neighbour.place != PeerPlace::Absent).then_some(neighbour.incarnation)
    }

    /// Whether this process's own slot is unchanged. If not, another process wrote where it must not, and nothing in
    /// the segment can be trusted.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert!(world.node().is_none_or(|node| node.is_intact()));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_intact(&self) -> bool {
        self.own_slot.is_intact()
    }

    /// Whether waiting ranks of the node spin or sleep.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     println!("{:?}", node.waiting());
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn waiting(&self) -> WaitMode {
        self.layout.sizes().waiting
    }

    /// The sleeping ranks, to wake them.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     println!("{:?}", node.sleepers());
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn sleepers(&self) -> Sleepers<'static> {
        self.sleepers
    }

    /// The wait strategy for a new wait.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     println!("{:?}", node.wait_strategy());
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn wait_strategy(&self) -> BlockingWait<'static> {
        BlockingWait::new(self.sleepers)
    }

    /// Whether a rank has left the collectives for good, since one of its collectives failed, or it finishes or fails.
    /// One load.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     assert!(!node.has_retired(node.local()));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn has_retired(&self, local: u32) -> bool {
        RankSlot::of(self.segment(), &self.layout, local).is_some_and(|slot| slot.has_retired())
    }

    /// Announces to the other ranks that this rank takes part in no further collective.
    pub(crate) fn retire(&self) {
        self.own_slot.retire();
    }

    /// Marks this rank failed, since its data in the segment was overwritten: the other ranks treat it as failed.
    pub(crate) fn fail(&self) {
        self.own_slot.fail();
    }

    /// Announces that this rank finishes: the other ranks do not treat its end as a failure. Without this call, they
    /// do.
    pub(crate) fn depart(&self) {
        self.own_slot.leave();
    }
}

#[cfg(test)]
impl Node {
    /// The attachments of two ranks of this process to one segment.
    pub(crate) fn pair(waiting: WaitMode) -> [alloc::sync::Arc<Self>; 2] {
        use std::os::fd::AsFd as _;

        let layout = SegmentLayout::new(SegmentSizes::of_node(2, waiting)).expect("a layout");
        let file = SegmentFile::create(&layout).expect("a segment");
        let process = std::process::id();
        let peers = [0, 1].map(|rank| NodePeer {
            rank: Rank(rank),
            incarnation: Incarnation(1),
            process,
            place: PeerPlace::SameProcess,
        });
        [0, 1].map(|local| {
            let liveness = LivenessLocks::new(file.as_fd().try_clone_to_owned().expect("a descriptor"));
            let (mapping, layout) = Mapping::open(liveness.file()).expect("a segment");
            // SAFETY: the test uses it as a process does.
            let segment = unsafe { mapping.segment() };
            let slot = RankSlot::of(segment, &layout, local).expect("a slot");
            let own_slot = slot.claim(Occupant { rank: local, incarnation: 1, process }).expect("it is free");
            let sleepers = Sleepers::new(segment, &layout, local).expect("a rank");
            let peers = peers.into();
            alloc::sync::Arc::new(Self {
                segment,
                _mapping: mapping,
                layout,
                local,
                own_slot,
                sleepers,
                peers,
                liveness,
            })
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Other ranks that are threads of this process do not see the lock released.
        let said = RankSlot::of(self.segment(), &self.layout, self.local).map(|slot| slot.state());
        if !matches!(said, Some(Occupancy::Left(_))) {
            self.own_slot.fail();
        }
    }
}

/// The segment of ranks whose launcher provided none: the first of them creates it, and the others receive it from that
/// one.
fn without_launcher(
    settings: &Settings,
    ranks: &[Rank],
    membership: &mut Membership,
) -> Result<Option<(OwnedFd, Option<SegmentSender>)>, NodeError> {
    let (own, auto) = (membership.rank(), settings.transport.device == DeviceChoice::Auto);
    let first = *ranks.first().unwrap_or(&own);
    let line = membership.table().get(first.0 as usize);
    let (Some(secret), Some(line), true) = (&settings.secret, line, ranks.len() > 1) else {
        return Ok(Some((create_segment(ranks.len(), processors())?, None)));
    };
    let place = fd_passing::socket_address(secret, settings.job.as_str(), line)?;
    if first != own {
        let taken =
            receive_segment(place, first, AttachDeadline::new(membership, Instant::now() + FD_PASSING_TIMEOUT))?;
        return Ok(taken.map(|file| (file, None)));
    }
    let mut giver = SegmentSender::open(&place)?;
    let processors = node_processors(&mut giver, ranks, membership)?;
    match create_segment(ranks.len(), processors) {
        Ok(file) => Ok(Some((file, Some(giver)))),
        Err(error) => {
            let patience = AttachDeadline::new(membership, Instant::now() + FD_PASSING_TIMEOUT);
            send_no_segment(&mut giver, ranks, patience)?;
            if !auto {
                return Err(error.into());
            }
            tracing::warn!("no shared memory on this node: {error}");
            Ok(None)
        }
    }
}

/// The segment that the first rank of the node gives. `None`: it has none, or does not come.
fn receive_segment(
    place: std::os::unix::net::SocketAddr,
    first: Rank,
    mut patience: AttachDeadline<'_>,
) -> Result<Option<OwnedFd>, NodeError> {
    let mut taker = SegmentReceiver::new(place);
    loop {
        match taker.poll()? {
            SegmentReply::Segment(file) => return Ok(Some(file)),
            SegmentReply::NoSegment => return Ok(None),
            SegmentReply::NotYet => {}
        }
        match patience.wait_step(first)? {
            WaitStep::Continue => {}
            WaitStep::Failed | WaitStep::TimedOut => {
                tracing::warn!(%first, "the first rank of the node provided no shared memory in time: using messages");
                return Ok(None);
            }
        }
    }
}

/// Reports to the other ranks of the node that there is no segment.
fn send_no_segment(
    giver: &mut SegmentSender,
    ranks: &[Rank],
    mut patience: AttachDeadline<'_>,
) -> Result<(), NodeError> {
    let mut left = ranks.len().saturating_sub(1);
    while left > 0 && patience.wait_step(ranks[0])? == WaitStep::Continue {
        left = left.saturating_sub(giver.send_to_all(None));
    }
    Ok(())
}

/// The number of processors of all ranks of the node together; the launcher may have pinned each rank to some. Ranks
/// that do not connect within [`GATHER_TIMEOUT`] are left out.
fn node_processors(giver: &mut SegmentSender, ranks: &[Rank], membership: &mut Membership) -> Result<u32, NodeError> {
    let mut patience = AttachDeadline::new(membership, Instant::now() + GATHER_TIMEOUT);
    while giver.accept() + 1 < ranks.len() && patience.wait_step(ranks[0])? == WaitStep::Continue {}
    let mut all = CpuSet::new();
    for process in giver.processes().map(Some).chain([None]) {
        if let Ok(own) = sched_getaffinity(process) {
            (0..CpuSet::MAX_CPU).filter(|processor| own.is_set(*processor)).for_each(|processor| all.set(processor));
        }
    }
    Ok(processors().max(all.count()))
}

/// Creates a segment for ranks whose launcher provided none.
fn create_segment(ranks: usize, processors: u32) -> Result<OwnedFd, FileError> {
    let waiting = WaitMode::of(ranks, processors as usize);
    let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
    let made = SegmentFile::create(&SegmentLayout::new(SegmentSizes::of_node(ranks, waiting))?)?;
    tracing::info!(?waiting, "shared memory in {}", made.pages());
    Ok(made.into())
}

/// The number of processors that the ranks of this node share, as visible to this process: its own or its parent's,
/// since the parent may have pinned this process to some.
pub(crate) fn processors() -> u32 {
    let of = |process| sched_getaffinity(process).map_or(1, |processors| processors.count());
    of(None).max(of(rustix::process::getppid()))
}
