//! The UDP device: a socket for each rail and queue (polled and interrupt), and many datagrams per system call.
//!
//! ```text
//!  post → send ring ┬ rail 0: (faulty link) → transmitter ─ sendmmsg, UDP_SEGMENT → kernel
//!                   └ rail 1: …
//!  receive ← checksum ← receive pool ┬ rail 0: recvmmsg, UDP_GRO ← kernel    arrival waiter ─ ppoll
//!                                    └ rail 1: …
//! ```
//!
//! A frame is header, payload and a CRC-32C trailer of 4 bytes, which is zero where checksums are off. The fault injector
//! acts on whole frames, below the checksum.

extern crate alloc;

mod address_table;
mod arrival_waiter;
mod buffer_pool;
mod checksum;
mod counters;
pub mod fault_injection;
mod faulty_link;
mod group;
mod gso;
mod options;
mod queue;
mod receive_pool;
mod send_ring;
mod socket;
mod transmitter;

#[cfg(test)]
mod tests;

pub use address_table::{Path, PathError, RECORD_BYTES};
pub use arrival_waiter::{ArrivalWaiter, WakeReason};
pub use counters::{Counter, RailCounters, UdpCounters};
pub use group::{GroupAddress, GroupAddressError};
pub use options::{BindError, Options};
pub use receive_pool::ReceivedDatagram;
pub use send_ring::UdpToken;
pub use socket::{LinkAddress, link_addresses};
pub use unisono_core::window::rails::MAX_RAILS;

use alloc::{collections::VecDeque, sync::Arc};
use core::net::{IpAddr, SocketAddr};
use std::io;

use unisono_core::device::{Armed, Device, DeviceEvent, DeviceQueue, GroupError, Limits, PathRequest, Slot, Ticket};
use unisono_core::ids::{GroupId, PeerId, Rail};

use address_table::AddressTable;
use checksum::TRAILER;
use fault_injection::Faults;
use faulty_link::FaultyLink;
use group::{GroupSocket, GroupSockets};
use queue::{RailSocket, SocketQueue};
use receive_pool::ReceivePool;
use send_ring::SendRing;
use socket::Socket;
use transmitter::{BATCH, LinkState, Transmitter, run_length};
use unisono_memory::memory_regions::Address;

/// Smallest MTU: bytes of UDP payload, header and checksum included.
pub const MTU_MIN: u32 = 576;

/// Largest MTU: bytes of UDP payload over IPv4.
pub const MTU_MAX: u32 = 65507;

/// MTU assumed for a link that reports none.
const LINK_MTU: u32 = 1500;

/// Shortest useful timeout: delays of the kernel and its scheduler are shorter.
const GRANULARITY_NS: u32 = 250_000;

/// A [`Device`] over UDP.
///
/// It never blocks except in [`flush`](Device::flush), which waits up to 4 ms for room in a full send buffer. Posted
/// payload must stay valid until after [`flush`](Device::flush), as
/// [`Regions::register`](unisono_memory::memory_regions::Regions::register) requires.
pub struct Udp {
    polled: SocketQueue,
    interrupt: SocketQueue,
    /// By rail.
    transmitters: Vec<Transmitter>,
    pool: ReceivePool,
    table: AddressTable,
    counters: Arc<UdpCounters>,
    events: VecDeque<DeviceEvent>,
    /// The rails whose link is down, as bits.
    down: u8,
    limits: Limits,
    faulty: bool,
    groups: GroupSockets,
    opener: RailOpener,
}

/// What the sockets of every rail have in common.
struct RailOpener {
    receive_buffer: u32,
    gso: bool,
    faults: Faults,
    /// The first rail's address.
    first: IpAddr,
    /// Whether rails are bound to their interfaces.
    is_bound: bool,
}

impl RailOpener {
    fn socket(&self, local: IpAddr, port: u16) -> Result<Socket, BindError> {
        Socket::bind(SocketAddr::new(local, port), self.receive_buffer, self.gso)
            .map_err(|error| BindError::Socket { local, error })
    }

    /// The rail's socket of the polled queue, or of the interrupt queue.
    fn open(
        &self,
        rail: Rail,
        local: IpAddr,
        port: u16,
        lane: DeviceQueue,
        pool: &ReceivePool,
    ) -> Result<RailSocket, BindError> {
        let socket = self.socket(local, port)?;
        if let Some(interface) = socket::interface_of(local).filter(|_| self.is_bound) {
            // Before Linux 5.7 it needs a privilege.
            let _ = socket.bind_to(&interface);
        }
        let seed = if lane == DeviceQueue::Polled { self.faults.seed } else { !self.faults.seed };
        let seed = seed.wrapping_add(u64::from(rail.0).rotate_right(8));
        let link = (!self.faults.is_none()).then(|| FaultyLink::new(rail, Faults { seed, ..self.faults }));
        Ok(RailSocket::new(socket, pool.batch(rail), link))
    }
}

/// Bytes of UDP payload that the link with this address carries, if it says so.
fn link_mtu(local: IpAddr) -> Option<u32> {
    let header = if local.is_ipv4() { 28 } else { 48 };
    socket::link_mtu(local).map(|mtu| mtu.saturating_sub(header).clamp(MTU_MIN, MTU_MAX))
}

/// The path to the sockets of a rail.
fn path_to(polled: &Socket, interrupt: &Socket) -> io::Result<Path> {
    let [polled, interrupt] = [polled.local()?, interrupt.local()?];
    Ok(Path { address: polled.ip(), polled: polled.port(), interrupt: interrupt.port() })
}

impl Udp {
    /// Binds the sockets.
    pub fn bind(options: &Options) -> Result<Self, BindError> {
        let locals: Vec<IpAddr> = [options.local].into_iter().chain(options.further_rails.iter().copied()).collect();
        let rails_max = locals.len().max(options.rails_max.into());
        if rails_max > usize::from(MAX_RAILS) {
            return Err(BindError::Rails(rails_max));
        }
        let linked = |local: &IpAddr| {
            let assumed = LINK_MTU - if local.is_ipv4() { 28 } else { 48 };
            link_mtu(*local).unwrap_or(assumed)
        };
        let mtu = options.mtu.or_else(|| locals.iter().map(linked).min()).unwrap_or(MTU_MIN);
        let narrow =
            u16::try_from(mtu).ok().filter(|_| (MTU_MIN..=MTU_MAX).contains(&mtu)).ok_or(BindError::Mtu(mtu))?;
        let (first, faults) = (options.local, options.faults);
        let is_bound = locals.iter().any(|local| *local != first);
        let probing = RailOpener { receive_buffer: 0, gso: false, faults, first, is_bound };
        let gso = options.gso && probing.socket(first, 0)?.has_offload();
        let opener = RailOpener { receive_buffer: options.receive_buffer, gso, ..probing };
        let pool = ReceivePool::new(mtu as usize, options.holdable, rails_max, options.groups, gso)?;
        let queue = |port, lane| -> Result<SocketQueue, BindError> {
            let ports = core::iter::once(port).chain(core::iter::repeat(0));
            let rails = (0..).map(Rail).zip(&locals).zip(ports);
            let rails = rails.map(|((rail, local), port)| opener.open(rail, *local, port, lane, &pool));
            Ok(SocketQueue::new(SendRing::new(mtu as usize, gso)?, rails.collect::<Result<_, _>>()?, rails_max)?)
        };
        let [polled, interrupt] = options.ports;
        let (polled, interrupt) = (queue(polled, DeviceQueue::Polled)?, queue(interrupt, DeviceQueue::Interrupt)?);
        // All that peers may send can come over any one rail.
        let granted = polled.rails.iter().map(|rail| rail.socket.granted).min().unwrap_or(0);
        let limits = Limits {
            mtu: mtu - TRAILER as u32,
            receive_slots: socket::receive_slots(granted, mtu),
            holdable: options.holdable.into(),
            granularity_ns: GRANULARITY_NS,
            lossless: false,
            interrupts: true,
            rails: rails_max as u8,
            groups: options.groups.into(),
        };
        Ok(Self {
            polled,
            interrupt,
            transmitters: (0..locals.len() as u8).map(|rail| Transmitter::new(Rail(rail), gso)).collect(),
            pool,
            table: AddressTable::new(options.peers, narrow, locals.iter().map(|local| !local.is_ipv4())),
            counters: Arc::default(),
            // No datagram leaves over a rail that is not open.
            events: (locals.len() as u8..limits.rails).map(|rail| DeviceEvent::Down(Rail(rail))).collect(),
            down: 0,
            limits,
            faulty: !faults.is_none(),
            groups: GroupSockets {
                joined: Vec::new(),
                next: 0,
                budget: 0,
                local: options.local,
                receive_buffer: options.receive_buffer,
                gro: gso,
            },
            opener,
        })
    }

    /// Rails that are open: the first ones of those that there is room for ([`Limits::rails`]).
    pub fn open_rails(&self) -> u8 {
        self.transmitters.len() as u8
    }

    /// Opens another rail at this address, which has no paths yet. If the address is not the first rail's, it uses the
    /// interface with its address alone, where the system allows that. Returns its number and its addresses, as
    /// [`local_on`](Self::local_on) does.
    ///
    /// # Errors
    /// [`BindError`]; nothing has changed.
    pub fn open_rail(&mut self, local: IpAddr) -> Result<(Rail, Path), BindError> {
        let rail = Rail(self.open_rails());
        if rail.0 >= self.limits.rails {
            return Err(BindError::Rails(usize::from(rail.0) + 1));
        }
        let mtu = self.mtu();
        if let Some(link) = link_mtu(local).filter(|link| *link < mtu) {
            return Err(BindError::Narrow { link, mtu });
        }
        self.opener.is_bound = local != self.opener.first;
        let [polled, interrupt] = [DeviceQueue::Polled, DeviceQueue::Interrupt]
            .map(|lane| self.opener.open(rail, local, 0, lane, &self.pool));
        let (polled, interrupt) = (polled?, interrupt?);
        let path = path_to(&polled.socket, &interrupt.socket)?;
        self.polled.add(polled)?;
        if let Err(error) = self.interrupt.add(interrupt) {
            self.polled.remove_last();
            return Err(error.into());
        }
        self.table.add_rail(!local.is_ipv4());
        self.transmitters.push(Transmitter::new(rail, self.opener.gso));
        self.events.push_back(DeviceEvent::Up(rail));
        Ok((rail, path))
    }

    /// The addresses of the two sockets on the first rail, which the peers pass to [`set_path`](Self::set_path). An
    /// unspecified address is returned as such.
    pub fn local(&self) -> io::Result<Path> {
        self.local_on(Rail(0))
    }

    /// The same on any rail, for [`set_rail_path`](Self::set_rail_path).
    ///
    /// # Errors
    /// There is no such rail.
    pub fn local_on(&self, rail: Rail) -> io::Result<Path> {
        fn socket(queue: &SocketQueue, rail: Rail) -> io::Result<&Socket> {
            queue.rails.get(usize::from(rail.0)).map(|rail| &*rail.socket).ok_or(io::ErrorKind::NotFound.into())
        }
        path_to(socket(&self.polled, rail)?, socket(&self.interrupt, rail)?)
    }

    /// Sets a peer's address on the first rail. `mtu` is the peer's MTU in bytes of UDP payload, header and checksum
    /// included; the smaller of it and the device's own applies, and [`DeviceEvent::Path`] reports it when the path is
    /// requested.
    pub fn set_path(&mut self, peer: PeerId, path: Path, mtu: u32) -> Result<(), PathError> {
        self.table.set(peer, Rail(0), path, mtu)
    }

    /// Sets a peer's address on a rail. The MTU is the same on all.
    pub fn set_rail_path(&mut self, peer: PeerId, rail: Rail, path: Path, mtu: u32) -> Result<(), PathError> {
        self.table.set(peer, rail, path, mtu)
    }

    /// Forgets a peer's address on a rail: datagrams to it are lost there, as [`DeviceEvent::NoPath`] reports.
    pub fn clear_rail_path(&mut self, peer: PeerId, rail: Rail) {
        self.table.clear(peer, rail);
        self.events.push_back(DeviceEvent::NoPath { peer, rail });
    }

    /// Whether frames have checksums from now on, those that are sent and those that are received: they do at first. All
    /// devices that exchange datagrams have the same setting; without, the link must not corrupt frames.
    pub fn set_checksums(&mut self, used: bool) {
        self.pool.checksums = used;
        for queue in [&mut self.polled, &mut self.interrupt] {
            queue.ring.checksums = used;
        }
    }

    /// Whether frames have checksums.
    pub const fn checksums(&self) -> bool {
        self.pool.checksums
    }

    /// Binds the number of a group to its address, for [`join`](Device::join).
    ///
    /// # Errors
    /// [`GroupAddressError`]; nothing has changed.
    pub fn set_group(&mut self, group: GroupId, address: GroupAddress) -> Result<(), GroupAddressError> {
        if self.groups.joined.iter().any(|joined| joined.group == group) {
            return Err(GroupAddressError::Joined);
        }
        self.table.groups.set(group, address, !self.groups.local.is_ipv4())
    }

    /// Datagrams of a group that the kernel dropped since the device joined it, because the socket's receive memory was
    /// full. `None` for a group that it is no member of.
    pub fn group_drops(&self, group: GroupId) -> Option<u32> {
        self.groups.joined.iter().find(|joined| joined.group == group)?.socket.drops().ok()
    }

    /// Sends to groups over the first rail, as these options say.
    fn set_multicast(&self, options: &socket::MulticastOptions) -> io::Result<()> {
        self.polled.rails.first().map_or(Ok(()), |rail| rail.socket.set_multicast(options))
    }

    /// The MTU in bytes of UDP payload, header and checksum included: the value that peers pass to
    /// [`set_path`](Self::set_path).
    pub const fn mtu(&self) -> u32 {
        self.limits.mtu + TRAILER as u32
    }

    /// The best number of datagrams of `bytes` bytes, checksum excluded, to send together: at most `most`, and a
    /// multiple of the GSO run length where the kernel segments.
    pub fn best_batch(&self, bytes: usize, most: usize) -> usize {
        let run = if self.transmitters.iter().all(Transmitter::uses_gso) {
            run_length(bytes.saturating_add(TRAILER))
        } else {
            1
        };
        let most = most.clamp(1, BATCH);
        if most < run { most } else { most - most % run }
    }

    /// Waits for arrivals on a queue without holding the device.
    pub fn arrival_waiter(&self, lane: DeviceQueue) -> ArrivalWaiter {
        match lane {
            DeviceQueue::Polled => self.polled.waiter.clone(),
            DeviceQueue::Interrupt => self.interrupt.waiter.clone(),
        }
    }

    /// The counters, readable while the device is in use.
    pub fn counters(&self) -> Arc<UdpCounters> {
        Arc::clone(&self.counters)
    }

    /// Whether there may be something to [`receive`](Device::receive): at most one system call per rail, and one per
    /// group. With fault injection it always returns true, since the faulty link counts idle calls of `receive`.
    pub fn poll(&mut self, lane: DeviceQueue) -> bool {
        self.faulty
            || match lane {
                DeviceQueue::Polled if self.groups.joined.is_empty() => {
                    self.polled.poll(&mut self.pool, &self.counters)
                }
                DeviceQueue::Polled => self.groups.poll(&mut self.polled, &mut self.pool, &self.counters),
                DeviceQueue::Interrupt => self.interrupt.poll(&mut self.pool, &self.counters),
            }
    }

    fn queue(&mut self, lane: DeviceQueue) -> &mut SocketQueue {
        match lane {
            DeviceQueue::Polled => &mut self.polled,
            DeviceQueue::Interrupt => &mut self.interrupt,
        }
    }

    /// Sends the reordered frames of both queues: after a number of idle polls, or at once.
    fn flush_idle(&mut self, at_once: bool) {
        for queue in [&mut self.polled, &mut self.interrupt] {
            queue.flush_idle(at_once, &mut self.transmitters, &self.table, &self.counters);
        }
    }
}

/// Reports a change of a link.
fn handle_link_state(
    (rail, answer): (Rail, LinkState),
    down: &mut u8,
    events: &mut VecDeque<DeviceEvent>,
    counters: &UdpCounters,
) {
    let (bit, was_down) = (1 << rail.0, *down & 1 << rail.0 != 0);
    match answer {
        LinkState::Up if was_down => {
            *down &= !bit;
            events.push_back(DeviceEvent::Up(rail));
        }
        LinkState::Down if !was_down => {
            *down |= bit;
            counters.rail(rail).link_downs.add(1);
            events.push_back(DeviceEvent::Down(rail));
        }
        LinkState::Up | LinkState::Down | LinkState::Unknown => {}
    }
}

impl Device for Udp {
    type Address = Address;
    type Token<'a> = UdpToken<'a>;
    type Received<'a> = ReceivedDatagram<'a>;

    fn limits(&self) -> Limits {
        self.limits
    }

    fn token(&mut self, lane: DeviceQueue) -> Option<UdpToken<'_>> {
        self.queue(lane).ring.token()
    }

    fn flush(&mut self, lane: DeviceQueue) {
        let queue = match lane {
            DeviceQueue::Polled => &mut self.polled,
            DeviceQueue::Interrupt => &mut self.interrupt,
        };
        let Self { transmitters, table, counters, down, events, .. } = self;
        queue.flush(transmitters, table, counters, |rail, state| {
            handle_link_state((rail, state), down, events, counters);
        });
    }

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        self.queue(lane).ring.completed
    }

    /// May return `None` while more datagrams wait in the kernel; [`arm`](Self::arm) reports whether that is so.
    #[inline(always)]
    fn receive(&mut self, lane: DeviceQueue) -> Option<ReceivedDatagram<'_>> {
        let slot = match lane {
            DeviceQueue::Polled if self.groups.joined.is_empty() => self.polled.receive(&mut self.pool, &self.counters),
            DeviceQueue::Polled => self.groups.receive(&mut self.polled, &mut self.pool, &self.counters),
            DeviceQueue::Interrupt => self.interrupt.receive(&mut self.pool, &self.counters),
        };
        match slot {
            Some(slot) => Some(self.pool.datagram(slot, &self.table)),
            None => {
                if self.faulty {
                    self.flush_idle(false);
                }
                None
            }
        }
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: Address) {
        self.pool.place(from, start.into(), bytes as usize, to);
    }

    /// Copies nothing: beyond the receive batches there is one buffer for each datagram that can be held.
    fn hold(&mut self, _slot: Slot) {}

    fn held(&self, slot: Slot) -> ReceivedDatagram<'_> {
        self.pool.datagram(slot, &self.table)
    }

    fn release(&mut self, slot: Slot) {
        self.pool.release(slot);
    }

    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        if self.faulty {
            self.flush_idle(true);
        }
        let in_groups =
            lane == DeviceQueue::Polled && self.groups.joined.iter().any(|joined| joined.batch.may_have_more());
        if in_groups || self.queue(lane).may_have_more() { Armed::Pending } else { Armed::Armed }
    }

    fn request_path(&mut self, request: PathRequest) {
        if let PathRequest::Resolve(peer) = request {
            self.events.extend((0..self.open_rails()).map(Rail).map(|rail| match self.table.mtu(peer, rail) {
                Some(mtu) => DeviceEvent::Path { peer, rail, mtu: u32::from(mtu) - TRAILER as u32 },
                None => DeviceEvent::NoPath { peer, rail },
            }));
        }
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.events.pop_front()
    }

    fn join(&mut self, group: GroupId) -> Result<(), GroupError> {
        if self.limits.groups == 0 {
            return Err(GroupError::Unsupported);
        }
        let address = *self.table.groups.get(group).ok_or(GroupError::Unknown(group))?;
        if self.groups.joined.iter().any(|joined| joined.group == group) {
            return Ok(());
        }
        if self.groups.joined.len() >= self.limits.groups as usize {
            return Err(GroupError::Full);
        }
        let options = address.options(self.groups.local);
        let joined = Socket::join(&options, self.groups.receive_buffer, self.groups.gro)
            .and_then(|socket| self.set_multicast(&options).map(|()| Arc::new(socket)));
        let socket = joined.map_err(|_| GroupError::Refused(group))?;
        self.polled.waiter.watch(Arc::clone(&socket));
        self.groups.joined.push(GroupSocket { group, socket, batch: self.pool.batch(Rail(0)) });
        Ok(())
    }

    /// Datagrams of the group that have been received stay valid; those that have not are lost.
    fn leave(&mut self, group: GroupId) -> Result<(), GroupError> {
        if self.limits.groups == 0 {
            return Err(GroupError::Unsupported);
        }
        let place = self.groups.joined.iter().position(|joined| joined.group == group);
        let mut left = self.groups.joined.swap_remove(place.ok_or(GroupError::NotMember(group))?);
        self.pool.discard(&mut left.batch, &self.counters);
        self.polled.waiter.ignore(&left.socket);
        self.groups.next = 0;
        Ok(())
    }
}

/// Sends the reordered frames, so that only the injected losses are lost.
impl Drop for Udp {
    fn drop(&mut self) {
        self.flush_idle(true);
    }
}
