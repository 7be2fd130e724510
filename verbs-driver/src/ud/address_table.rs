//! Where peers are, one record of 23 bytes each, and the address handles of those that datagrams go to.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::collections::HashMap;

use rdma_core_sys as sys;
use unisono_core::device::{Lane, PeerId};

use super::domain::Domain;
use super::gid::Gid;
use super::tally::Tally;

/// Most address handles at a time: more than datagrams can be under way, so that one of them is always idle.
const HANDLES_MAX: usize = 1024;
/// After so many later postings a handle is idle: the queues of both lanes hold fewer.
const IDLE: u64 = 2 * super::send_ring::ENTRIES as u64;
/// Largest queue pair number.
const NUMBER_MAX: u32 = (1 << 24) - 1;
/// The queue pair number of every group.
const GROUP: u32 = NUMBER_MAX;
/// Smallest path MTU: 256 bytes.
const MTU_MIN: u32 = 256;

/// The two queue pairs of a process, or a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// Of the port or the group.
    pub gid: Gid,
    /// Queue pair number of the polled lane, 24 bits.
    pub polled: u32,
    /// Queue pair number of the interrupt lane, 24 bits.
    pub interrupt: u32,
}

impl Path {
    /// Everyone that joined the group.
    pub const fn group(gid: Gid) -> Self {
        Self { gid, polled: GROUP, interrupt: GROUP }
    }
}

/// Why a path was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathError {
    /// The table was made for fewer peers.
    UnknownPeer,
    /// No GID of a port or group.
    NotAnAddress,
    /// Not a queue pair number.
    NotAQueue,
    /// The peer takes less than 256 bytes.
    TooNarrow,
}

impl fmt::Display for PathError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::UnknownPeer => "rank beyond the number of peers",
            Self::NotAnAddress => "not the address of a port or a group",
            Self::NotAQueue => "not the number of a queue pair",
            Self::TooNarrow => "MTU below 256 bytes",
        })
    }
}

impl Error for PathError {}

/// A peer: bytes only, so that nothing is lost to alignment.
#[derive(Clone, Copy)]
struct Record {
    gid: Gid,
    lanes: [[u8; 3]; 2],
    /// The path's MTU as a power of two; 0 without a path.
    mtu: u8,
}

const NO_PATH: Record = Record { gid: Gid::NONE, lanes: [[0; 3]; 2], mtu: 0 };

/// Bytes that a peer costs.
pub const RECORD: usize = size_of::<Record>();
const _: () = assert!(RECORD <= 24);

/// The source of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Source {
    /// `None` where the link does not say it.
    pub(super) gid: Option<Gid>,
    pub(super) queue: u32,
}

struct Handle {
    peer: u32,
    raw: NonNull<sys::ibv_ah>,
    /// How many postings there were when it was used last.
    used: u64,
}

/// Records by peer, handles by use.
pub(super) struct AddressTable {
    domain: Arc<Domain>,
    records: Vec<Record>,
    handles: Vec<Handle>,
    places: HashMap<u32, usize>,
    /// Handles of paths that changed, and how many postings there were then.
    retired: Vec<(NonNull<sys::ibv_ah>, u64)>,
    /// The last peer and where its handle is: most datagrams go where the one before went.
    last: (u32, usize),
    postings: u64,
}

// SAFETY: the handles are used by the owner of the table only.
unsafe impl Send for AddressTable {}

impl AddressTable {
    pub(super) fn new(domain: Arc<Domain>, peers: u32) -> Self {
        Self {
            domain,
            records: alloc::vec![NO_PATH; peers as usize],
            handles: Vec::new(),
            places: HashMap::new(),
            retired: Vec::new(),
            last: (0, usize::MAX),
            postings: 0,
        }
    }

    pub(super) fn set(&mut self, peer: PeerId, path: Path, mtu: u32) -> Result<(), PathError> {
        let record = self.records.get_mut(peer.0 as usize).ok_or(PathError::UnknownPeer)?;
        if path.gid == Gid::NONE {
            return Err(PathError::NotAnAddress);
        }
        let number = |queue: u32| {
            let [a, b, c, _] = queue.to_le_bytes();
            (1..=NUMBER_MAX).contains(&queue).then_some([a, b, c]).ok_or(PathError::NotAQueue)
        };
        let lanes = [number(path.polled)?, number(path.interrupt)?];
        if mtu < MTU_MIN {
            return Err(PathError::TooNarrow);
        }
        let moved = record.gid != path.gid;
        *record = Record { gid: path.gid, lanes, mtu: mtu.ilog2() as u8 };
        if moved {
            self.retire(peer);
        }
        Ok(())
    }

    /// Bytes of the largest datagram to the peer, where there is a path.
    pub(super) fn mtu(&self, peer: PeerId) -> Option<u32> {
        let record = self.records.get(peer.0 as usize)?;
        (record.mtu != 0).then(|| 1 << record.mtu.min(31))
    }

    /// Whether the source is one of the peer's queue pairs.
    pub(super) fn is(&self, peer: PeerId, source: &Source) -> bool {
        let Some(record) = self.records.get(peer.0 as usize).filter(|record| record.mtu != 0) else { return false };
        let [a, b, c, _] = source.queue.to_le_bytes();
        record.lanes.contains(&[a, b, c]) && source.gid.is_none_or(|gid| gid == record.gid)
    }

    /// Where a posting to the peer's lane goes: the handle, made now if need be, and the queue pair number.
    pub(super) fn destination(
        &mut self,
        peer: PeerId,
        lane: Lane,
        tally: &Tally,
    ) -> Option<(NonNull<sys::ibv_ah>, u32)> {
        let record = *self.records.get(peer.0 as usize).filter(|record| record.mtu != 0)?;
        let [polled, interrupt] = record.lanes;
        let [a, b, c] = match lane {
            Lane::Polled => polled,
            Lane::Interrupt => interrupt,
        };
        self.postings += 1;
        let place = match self.last {
            (last, place) if last == peer.0 && place < self.handles.len() => place,
            _ => match self.places.get(&peer.0) {
                Some(place) => *place,
                None => self.make(peer, record.gid, tally)?,
            },
        };
        self.last = (peer.0, place);
        let handle = self.handles.get_mut(place)?;
        handle.used = self.postings;
        Some((handle.raw, u32::from_le_bytes([a, b, c, 0])))
    }

    /// Makes the peer's handle, if there is a path.
    pub(super) fn resolve(&mut self, peer: PeerId, tally: &Tally) -> bool {
        self.destination(peer, Lane::Polled, tally).is_some()
    }

    /// The peer's handle is not needed for now.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.retire(peer);
    }

    /// How many handles there are.
    pub(super) fn handles(&self) -> usize {
        self.handles.len()
    }

    fn make(&mut self, peer: PeerId, gid: Gid, tally: &Tally) -> Option<usize> {
        let (_, pd) = self.domain.parts()?;
        self.reap();
        if self.handles.len() == HANDLES_MAX {
            let oldest = self.handles.iter().min_by_key(|handle| handle.used).map(|handle| PeerId(handle.peer))?;
            self.retire(oldest);
        }
        // SAFETY: numbers and an address; all zeros are some.
        let mut attributes = unsafe { MaybeUninit::<sys::ibv_ah_attr>::zeroed().assume_init() };
        attributes.is_global = 1;
        attributes.port_num = self.domain.port();
        attributes.grh.dgid = sys::ibv_gid { raw: gid.0 };
        attributes.grh.sgid_index = self.domain.gid().index;
        attributes.grh.hop_limit = 64;
        // SAFETY: an open protection domain and filled attributes.
        let raw = NonNull::new(unsafe { sys::ibv_create_ah(pd.as_ptr(), &mut attributes) })?;
        tally.handles_made.add(1);
        let place = self.handles.len();
        self.handles.push(Handle { peer: peer.0, raw, used: self.postings });
        self.places.insert(peer.0, place);
        Some(place)
    }

    /// Takes the peer's handle out. What was posted with it may still be under way.
    fn retire(&mut self, peer: PeerId) {
        self.last = (0, usize::MAX);
        let Some(place) = self.places.remove(&peer.0).filter(|place| *place < self.handles.len()) else { return };
        let handle = self.handles.swap_remove(place);
        if let Some(moved) = self.handles.get(place) {
            self.places.insert(moved.peer, place);
        }
        self.retired.push((handle.raw, handle.used));
        self.reap();
    }

    /// Gives back what was retired and is idle.
    fn reap(&mut self) {
        let postings = self.postings;
        self.retired.retain(|(raw, used)| {
            let idle = postings.wrapping_sub(*used) > IDLE;
            if idle {
                // SAFETY: made by `make`, taken out of the table, and everything posted with it is complete.
                unsafe { sys::ibv_destroy_ah(raw.as_ptr()) };
            }
            !idle
        });
    }

    /// Gives every handle back. The queues are gone.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.last = (0, usize::MAX);
        let retired = self.retired.drain(..).map(|(raw, _)| raw);
        for raw in self.handles.drain(..).map(|handle| handle.raw).chain(retired) {
            // SAFETY: made by `make`, and nothing is posted any more.
            unsafe { sys::ibv_destroy_ah(raw.as_ptr()) };
        }
    }
}
