//! The addresses of peers and joined groups, one record of 23 bytes each, and a cache of address handles, or of their
//! equivalents for queues that the driver writes itself.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use core::mem::MaybeUninit;
use core::net::{IpAddr, Ipv6Addr};
use core::ptr::NonNull;
use std::collections::HashMap;

use rdma_core_sys as sys;
use unisono_core::device::{self, DeviceEvent, DeviceQueue};
use unisono_core::ids::{GroupId, PeerId, Rail};

use super::counters::UdCounters;
use super::domain::{Domain, OpenError};
use super::gid::Gid;
use super::queue::Writer;
use super::resolver::Resolver;
use crate::rxe;

/// Most address handles at a time: more than datagrams can be under way, so that one handle is always idle.
const HANDLES_MAX: usize = 1024;
/// Postings after which a handle is idle: the queues of both lanes hold fewer.
const IDLE: u64 = 2 * super::send_ring::ENTRIES as u64;
/// Largest queue pair number.
const NUMBER_MAX: u32 = (1 << 24) - 1;
/// The queue pair number of every group.
const GROUP: u32 = NUMBER_MAX;
/// Routers that a datagram to a peer may pass, and one to a group: it stays in the subnet.
const HOPS: u8 = 64;
const GROUP_HOPS: u8 = 1;
/// Smallest path MTU: 256 bytes.
const MTU_MIN: u32 = 256;

/// The two queue pairs of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// Of the port.
    pub gid: Gid,
    /// Queue pair number of the polled lane, 24 bits.
    pub polled: u32,
    /// Queue pair number of the interrupt lane, 24 bits.
    pub interrupt: u32,
}

/// Why a path was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathError {
    /// The table has fewer peers.
    UnknownPeer,
    /// Not the GID of a port.
    NotAnAddress,
    /// Not a queue pair number.
    NotAQueue,
    /// The peer accepts less than 256 bytes.
    TooNarrow,
    /// The device has no such rail.
    UnknownRail,
}

impl fmt::Display for PathError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::UnknownPeer => "the rank exceeds the number of peers of the device",
            Self::NotAnAddress => "not the GID of a port",
            Self::NotAQueue => "not a queue pair number",
            Self::TooNarrow => "the MTU is below 256 bytes",
            Self::UnknownRail => "the device has no such rail",
        })
    }
}

impl Error for PathError {}

/// A peer's record: bytes only, without padding.
#[derive(Clone, Copy)]
struct Record {
    gid: Gid,
    lanes: [[u8; 3]; 2],
    /// The path's MTU as a power of two; 0 without a path.
    mtu: u8,
}

impl Record {
    fn numbers(&self) -> [u32; 2] {
        self.lanes.map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]))
    }

    const fn bytes(&self) -> u32 {
        if self.mtu < 32 { 1 << self.mtu } else { u32::MAX }
    }
}

const NO_PATH: Record = Record { gid: Gid::NONE, lanes: [[0; 3]; 2], mtu: 0 };

/// Bytes per peer.
pub const RECORD: usize = size_of::<Record>();
const _: () = assert!(RECORD <= 24);

/// The source of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Source {
    /// `None` where the link does not carry it.
    pub(super) gid: Option<Gid>,
    pub(super) queue: u32,
}

/// The address handle of a peer, as postings use it.
#[derive(Debug)]
pub(super) enum AddressHandle {
    /// libibverbs' address handle.
    Verbs(NonNull<sys::ibv_ah>),
    /// The address part of Soft-RoCE's entries.
    Rxe(Box<rxe::RxePath>),
}

impl AddressHandle {
    /// # Safety
    /// Nothing that is posted names it.
    unsafe fn destroy(self) {
        if let Self::Verbs(raw) = self {
            // SAFETY: made by `maker` and given back once; the caller promises that nothing posted names it.
            unsafe { sys::ibv_destroy_ah(raw.as_ptr()) };
        }
    }
}

/// A lane of a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneAddress<'a> {
    pub(super) handle: &'a AddressHandle,
    pub(super) lane: DeviceQueue,
    /// Its queue pair.
    pub(super) number: u32,
}

/// The result of the resolver.
#[derive(Debug)]
enum ResolvedAddress {
    Handle(NonNull<sys::ibv_ah>),
    Route(rxe::RxeRoute),
}

// SAFETY: rdma-core lets any thread use or destroy what another made; one at a time has it.
unsafe impl Send for ResolvedAddress {}

impl ResolvedAddress {
    /// The handle for postings to these queue pairs.
    fn into_handle(self, record: &Record, key: u32) -> AddressHandle {
        match self {
            Self::Handle(raw) => AddressHandle::Verbs(raw),
            Self::Route(route) => {
                AddressHandle::Rxe(Box::new(rxe::RxePath::new(&route, record.numbers(), key, record.bytes())))
            }
        }
    }
}

/// The protection domain, for the resolver's thread.
struct Pd(NonNull<sys::ibv_pd>);

// SAFETY: rdma-core's control calls may come from any thread; the thread ends before the domain is closed.
unsafe impl Send for Pd {}

impl Pd {
    const fn get(&self) -> *mut sys::ibv_pd {
        self.0.as_ptr()
    }
}

/// The destination of a posting.
#[derive(Clone, Copy, Debug)]
pub(super) enum Destination<'a> {
    /// There.
    Ready(LaneAddress<'a>),
    /// The handle is being created.
    Pending,
    /// There is no path, or too many handles are being created.
    Nowhere,
}

/// The result of a handle request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Resolved {
    pub(super) peer: PeerId,
    pub(super) made: bool,
    /// Whether it was requested explicitly, not by a posting.
    pub(super) requested: bool,
}

struct CachedHandle {
    peer: u32,
    handle: AddressHandle,
    /// The posting count at its last use.
    used: u64,
}

/// The last destination: peer, queue pair numbers, index of its handle.
#[derive(Clone, Copy)]
struct Last {
    peer: u32,
    numbers: [u32; 2],
    place: usize,
}

impl Last {
    /// No destination.
    const NONE: Self = Self { peer: 0, numbers: [0; 2], place: usize::MAX };
}

/// Records by peer, and cached handles.
pub(super) struct AddressTable {
    /// Of the peers, then of the groups.
    records: Vec<Record>,
    groups: Box<[Option<GroupId>]>,
    handles: Vec<CachedHandle>,
    places: HashMap<u32, usize>,
    /// Handles of paths that changed, and the posting count at that time.
    retired: Vec<(AddressHandle, u64)>,
    /// Most datagrams go to the same peer as the previous one.
    last: Last,
    postings: u64,
    /// Creates handles. `None`: the domain is closed.
    resolver: Option<Resolver<ResolvedAddress>>,
    /// Peers whose handle is being created, and whether it was requested explicitly.
    asked: HashMap<u32, bool>,
    key: u32,
}

// SAFETY: the handles are used by the owner of the table only.
unsafe impl Send for AddressTable {}

impl AddressTable {
    /// A table for queues with this writer, and peers and groups that accept this Q_Key.
    pub(super) fn new(domain: &Domain, by: Writer, (peers, groups): (u32, usize), key: u32) -> Result<Self, OpenError> {
        let resolver =
            Resolver::start(maker(domain, by)?).map_err(|error| OpenError::Refused { what: "a thread", error })?;
        Ok(Self {
            resolver: Some(resolver),
            asked: HashMap::new(),
            key,
            records: alloc::vec![NO_PATH; (peers as usize).saturating_add(groups)],
            groups: alloc::vec![None; groups].into(),
            handles: Vec::new(),
            places: HashMap::new(),
            retired: Vec::new(),
            last: Last::NONE,
            postings: 0,
        })
    }

    pub(super) fn set(&mut self, peer: PeerId, path: Path, mtu: u32) -> Result<(), PathError> {
        if !self.is_peer(peer) {
            return Err(PathError::UnknownPeer);
        }
        self.set_record(peer, path, mtu)
    }

    /// Forgets the path to a peer.
    pub(super) fn unset(&mut self, peer: PeerId) {
        if self.is_peer(peer)
            && let Some(record) = self.records.get_mut(peer.0 as usize)
        {
            *record = NO_PATH;
            self.retire(peer);
        }
    }

    /// Sets the path to the group of this slot, and requests its handle. Returns whether that was requested: else there
    /// are many requests, and the first posting requests it.
    ///
    /// # Errors
    /// [`PathError`].
    pub(super) fn open_group(
        &mut self,
        slot: usize,
        (group, gid): (GroupId, Gid),
        mtu: u32,
    ) -> Result<bool, PathError> {
        let index = self.group_index(slot);
        self.set_record(index, Path { gid, polled: GROUP, interrupt: GROUP }, mtu)?;
        if let Some(number) = self.groups.get_mut(slot) {
            *number = Some(group);
        }
        Ok(!matches!(self.destination(index, DeviceQueue::Polled), Destination::Nowhere))
    }

    /// Whether the handle of this slot's group was created; `None`: it is being created.
    pub(super) fn group_handle(&self, slot: usize) -> Option<bool> {
        let index = self.group_index(slot).0;
        (!self.asked.contains_key(&index)).then(|| self.places.contains_key(&index))
    }

    /// Removes the path to the group of this slot.
    pub(super) fn close_group(&mut self, slot: usize) {
        let (index, Some(number)) = (self.group_index(slot), self.groups.get_mut(slot)) else { return };
        *number = None;
        if let Some(record) = self.records.get_mut(index.0 as usize) {
            *record = NO_PATH;
        }
        self.retire(index);
    }

    const fn peers(&self) -> usize {
        self.records.len().saturating_sub(self.groups.len())
    }

    /// The index of a group's record, which no peer has.
    fn group_index(&self, slot: usize) -> PeerId {
        PeerId(self.peers().saturating_add(slot) as u32)
    }

    const fn is_peer(&self, peer: PeerId) -> bool {
        (peer.0 as usize) < self.peers()
    }

    /// The index of the record of a destination. `None`: an unknown peer, a further rail, or a group that was not joined.
    #[inline(always)]
    pub(super) fn index(&self, to: device::Destination) -> Option<PeerId> {
        match to {
            device::Destination::Peer { peer, rail: Rail(0) } if self.is_peer(peer) => Some(peer),
            device::Destination::Peer { .. } => None,
            device::Destination::Group(group) => self.index_of_group(group),
        }
    }

    #[cold]
    #[inline(never)]
    fn index_of_group(&self, group: GroupId) -> Option<PeerId> {
        let slot = self.groups.iter().position(|number| *number == Some(group))?;
        Some(self.group_index(slot))
    }

    fn set_record(&mut self, peer: PeerId, path: Path, mtu: u32) -> Result<(), PathError> {
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
        let moved = (record.gid, record.lanes) != (path.gid, lanes);
        *record = Record { gid: path.gid, lanes, mtu: mtu.ilog2() as u8 };
        if moved {
            self.retire(peer);
        }
        Ok(())
    }

    /// The event for a peer whose handle was created, or not.
    pub(super) fn fact(&self, peer: PeerId, made: bool) -> DeviceEvent {
        match self.records.get(peer.0 as usize) {
            Some(record) if made && record.mtu != 0 => DeviceEvent::Path { peer, rail: Rail(0), mtu: record.bytes() },
            _ => DeviceEvent::NoPath { peer, rail: Rail(0) },
        }
    }

    /// Whether the source is one of the peer's queue pairs.
    pub(super) fn is(&self, peer: PeerId, source: &Source) -> bool {
        // The queue pair number of a group's record is no source's.
        let Some(record) = self.records.get(peer.0 as usize).filter(|record| record.mtu != 0) else { return false };
        let [a, b, c, _] = source.queue.to_le_bytes();
        record.lanes.contains(&[a, b, c]) && source.gid.is_none_or(|gid| gid == record.gid)
    }

    /// The destination of a posting to the peer's lane. A missing handle is requested.
    #[inline]
    pub(super) fn destination(&mut self, peer: PeerId, lane: DeviceQueue) -> Destination<'_> {
        // The cached result is valid until a path or a handle changes.
        if (self.last.peer != peer.0 || self.last.place >= self.handles.len())
            && let Err(nowhere) = self.find(peer.0)
        {
            return nowhere;
        }
        let Some(handle) = self.handles.get_mut(self.last.place) else { return Destination::Nowhere };
        let [polled, interrupt] = self.last.numbers;
        let number = if lane == DeviceQueue::Polled { polled } else { interrupt };
        self.postings += 1;
        handle.used = self.postings;
        Destination::Ready(LaneAddress { handle: &handle.handle, lane, number })
    }

    /// Finds the peer's queue pairs and its handle, which is requested if there is none.
    #[inline(never)]
    fn find(&mut self, peer: u32) -> Result<(), Destination<'static>> {
        let record = self.records.get(peer as usize).filter(|record| record.mtu != 0);
        let (gid, numbers) = record.map(|record| (record.gid, record.numbers())).ok_or(Destination::Nowhere)?;
        match self.places.get(&peer).copied() {
            Some(place) => {
                self.last = Last { peer, numbers, place };
                Ok(())
            }
            None if self.ask(peer, gid, false) => Err(Destination::Pending),
            None => Err(Destination::Nowhere),
        }
    }

    /// Requests the peer's handle explicitly. `None`: it is being created, and [`answers`](Self::answers) will return
    /// the result.
    pub(super) fn resolve(&mut self, peer: PeerId) -> Option<bool> {
        if !self.is_peer(peer) {
            return Some(false);
        }
        match self.destination(peer, DeviceQueue::Polled) {
            Destination::Ready(..) => Some(true),
            Destination::Nowhere => Some(false),
            Destination::Pending => {
                self.asked.insert(peer.0, true);
                None
            }
        }
    }

    /// Requests a handle, once. `false`: it cannot be created.
    fn ask(&mut self, peer: u32, gid: Gid, requested: bool) -> bool {
        if self.asked.contains_key(&peer) {
            return true;
        }
        let asked = self.resolver.as_ref().is_some_and(|resolver| resolver.ask(peer, gid));
        if asked {
            self.asked.insert(peer, requested);
        }
        asked
    }

    /// Whether results of handle requests are available. One load.
    pub(super) fn has_answers(&self) -> bool {
        self.resolver.as_ref().is_some_and(Resolver::has_answered)
    }

    /// Takes the results of handle requests since the last call.
    pub(super) fn answers(&mut self, tally: &UdCounters) -> Vec<Resolved> {
        let answers = self.resolver.as_ref().map(Resolver::answers).unwrap_or_default();
        let mut resolved = Vec::with_capacity(answers.len());
        for answer in answers {
            let requested = self.asked.remove(&answer.peer).unwrap_or(false);
            let record = self.records.get(answer.peer as usize).copied().unwrap_or(NO_PATH);
            let moved = record.gid != answer.gid;
            if moved {
                if let Some(made) = answer.made {
                    // SAFETY: of a path that the peer had before; never posted with.
                    unsafe { made.into_handle(&record, self.key).destroy() };
                }
                if record.mtu != 0 && self.ask(answer.peer, record.gid, requested) {
                    continue;
                }
            } else if let Some(made) = answer.made {
                tally.handles_made.add(1);
                self.insert(answer.peer, made.into_handle(&record, self.key));
                resolved.push(Resolved { peer: PeerId(answer.peer), made: true, requested });
                continue;
            }
            resolved.push(Resolved { peer: PeerId(answer.peer), made: false, requested });
        }
        resolved
    }

    /// Drops the peer's handle, which is not needed for now.
    pub(super) fn forget(&mut self, peer: PeerId) {
        if self.is_peer(peer) {
            self.retire(peer);
        }
    }

    /// Number of handles.
    pub(super) fn handles(&self) -> usize {
        self.handles.len()
    }

    fn insert(&mut self, peer: u32, way: AddressHandle) {
        self.reap();
        if self.handles.len() == HANDLES_MAX
            && let Some(oldest) = self.handles.iter().min_by_key(|handle| handle.used)
        {
            self.retire(PeerId(oldest.peer));
        }
        self.places.insert(peer, self.handles.len());
        self.handles.push(CachedHandle { peer, handle: way, used: self.postings });
    }

    /// Retires the peer's handle. Postings with it may still be under way.
    fn retire(&mut self, peer: PeerId) {
        self.last = Last::NONE;
        let Some(place) = self.places.remove(&peer.0).filter(|place| *place < self.handles.len()) else { return };
        let handle = self.handles.swap_remove(place);
        if let Some(moved) = self.handles.get(place) {
            self.places.insert(moved.peer, place);
        }
        self.retired.push((handle.handle, handle.used));
        self.reap();
    }

    /// Destroys retired handles that are idle.
    fn reap(&mut self) {
        let postings = self.postings;
        for (way, _) in self.retired.extract_if(.., |(_, used)| postings.wrapping_sub(*used) > IDLE) {
            // SAFETY: taken out of the table, and everything posted with it is complete.
            unsafe { way.destroy() };
        }
    }

    /// Destroys every handle, after the one that is being created. The queue pairs are gone.
    pub(super) fn clear(&mut self) {
        let untaken = self.resolver.take().map(|mut resolver| resolver.stop()).unwrap_or_default();
        for made in untaken.into_iter().filter_map(|answer| answer.made) {
            // SAFETY: never posted with.
            unsafe { made.into_handle(&NO_PATH, self.key).destroy() };
        }
        self.asked.clear();
        self.places.clear();
        self.last = Last::NONE;
        let retired = self.retired.drain(..).map(|(way, _)| way);
        for way in self.handles.drain(..).map(|handle| handle.handle).chain(retired) {
            // SAFETY: nothing is posted any more.
            unsafe { way.destroy() };
        }
    }
}

/// Creates the address handle or route for a GID. May resolve the neighbour's link address first, and block for that.
fn maker(domain: &Domain, by: Writer) -> Result<impl Fn(Gid) -> Option<ResolvedAddress> + Send + use<>, OpenError> {
    let (_, pd) = domain.parts().ok_or_else(|| OpenError::code("ibv_create_ah", libc::ENODEV))?;
    let (pd, port, index, from) = (Pd(pd), domain.port(), domain.gid().index, address(domain.gid().gid));
    Ok(move |gid: Gid| {
        // SAFETY: numbers and an address; all zeros are some.
        let mut attributes = unsafe { MaybeUninit::<sys::ibv_ah_attr>::zeroed().assume_init() };
        attributes.is_global = 1;
        attributes.port_num = port;
        attributes.grh.dgid = sys::ibv_gid { raw: gid.0 };
        attributes.grh.sgid_index = index;
        let hop_limit = if gid.is_group() { GROUP_HOPS } else { HOPS };
        attributes.grh.hop_limit = hop_limit;
        if by == Writer::Library {
            // SAFETY: a protection domain that is open as long as this thread runs, and filled attributes.
            return NonNull::new(unsafe { sys::ibv_create_ah(pd.get(), &mut attributes) }).map(ResolvedAddress::Handle);
        }
        // SAFETY: the protection domain is open as long as this thread runs, and has its context.
        let context = unsafe { (*pd.get()).context };
        let (mut mac, mut vlan) = ([0; 6], 0);
        // SAFETY: an open context, filled attributes, and places for the answers.
        let found = unsafe { sys::ibv_resolve_eth_l2_from_gid(context, &mut attributes, mac.as_mut_ptr(), &mut vlan) };
        let route = rxe::RxeRoute { port, gid_index: index, from, to: address(gid), mac, hop_limit };
        (found == 0).then_some(ResolvedAddress::Route(route))
    })
}

fn address(gid: Gid) -> IpAddr {
    gid.ipv4().map_or(IpAddr::V6(Ipv6Addr::from(gid.0)), IpAddr::V4)
}
