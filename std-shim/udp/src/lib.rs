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
}

impl Udp {
    /// Binds the sockets.
    pub fn bind(options: &Options) -> Result<Self, BindError> {
        let locals: Vec<IpAddr> = [options.local].into_iter().chain(options.further_rails.iter().copied()).collect();
        if locals.len() > usize::from(MAX_RAILS) {
            return Err(BindError::Rails(locals.len()));
        }
        let linked = |local: &IpAddr| {
            let header = if local.is_ipv4() { 28 } else { 48 };
            socket::link_mtu(*local).unwrap_or(LINK_MTU).saturating_sub(header).clamp(MTU_MIN, MTU_MAX)
        };
        let mtu = options.mtu.or_else(|| locals.iter().map(linked).min()).unwrap_or(MTU_MIN);
        let narrow =
            u16::try_from(mtu).ok().filter(|_| (MTU_MIN..=MTU_MAX).contains(&mtu)).ok_or(BindError::Mtu(mtu))?;
        let opened = |local: IpAddr, port, receive_buffer, gro| {
            Socket::bind(SocketAddr::new(local, port), receive_buffer, gro)
                .map_err(|error| BindError::Socket { local, error })
        };
        let gso = options.gso && opened(options.local, 0, 0, false)?.has_offload();
        let pool = ReceivePool::new(mtu as usize, options.holdable, locals.len(), options.groups, gso)?;
        let faulty = !options.faults.is_none();
        let is_bound = locals.iter().any(|local| *local != options.local);
        let rail_socket = |rail: Rail, local: IpAddr, port, seed: u64| -> Result<RailSocket, BindError> {
            let socket = opened(local, port, options.receive_buffer, gso)?;
            if let Some(interface) = socket::interface_of(local).filter(|_| is_bound) {
                // Before Linux 5.7 it needs a privilege.
                let _ = socket.bind_to(&interface);
            }
            let seed = seed.wrapping_add(u64::from(rail.0).rotate_right(8));
            let link = faulty.then(|| FaultyLink::new(rail, Faults { seed, ..options.faults }));
            Ok(RailSocket::new(socket, pool.batch(rail), link))
        };
        let queue = |port, seed| -> Result<SocketQueue, BindError> {
            let ports = core::iter::once(port).chain(core::iter::repeat(0));
            let rails = (0..).map(Rail).zip(&locals).zip(ports);
            let rails = rails.map(|((rail, local), port)| rail_socket(rail, *local, port, seed));
            Ok(SocketQueue::new(SendRing::new(mtu as usize, gso)?, rails.collect::<Result<_, _>>()?)?)
        };
        let (seed, [polled, interrupt]) = (options.faults.seed, options.ports);
        let (polled, interrupt) = (queue(polled, seed)?, queue(interrupt, !seed)?);
        // All that peers may send can come over any one rail.
        let granted = polled.rails.iter().map(|rail| rail.socket.granted).min().unwrap_or(0);
        let limits = Limits {
            mtu: mtu - TRAILER as u32,
            receive_slots: socket::receive_slots(granted, mtu),
            holdable: options.holdable.into(),
            granularity_ns: GRANULARITY_NS,
            lossless: false,
            interrupts: true,
            rails: locals.len() as u8,
            groups: options.groups.into(),
        };
        Ok(Self {
            polled,
            interrupt,
            transmitters: (0..limits.rails).map(|rail| Transmitter::new(Rail(rail), gso)).collect(),
            pool,
            table: AddressTable::new(options.peers, narrow, locals.iter().map(|local| !local.is_ipv4())),
            counters: Arc::default(),
            events: VecDeque::new(),
            down: 0,
            limits,
            faulty,
            groups: GroupSockets {
                joined: Vec::new(),
                next: 0,
                budget: 0,
                local: options.local,
                receive_buffer: options.receive_buffer,
                gro: gso,
            },
        })
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
        let socket = |queue: &SocketQueue| match queue.rails.get(usize::from(rail.0)) {
            Some(rail) => rail.socket.local(),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let [polled, interrupt] = [socket(&self.polled)?, socket(&self.interrupt)?];
        Ok(Path { address: polled.ip(), polled: polled.port(), interrupt: interrupt.port() })
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

    /// Forgets a peer's address on a rail: datagrams to it are lost there.
    pub fn clear_rail_path(&mut self, peer: PeerId, rail: Rail) {
        self.table.clear(peer, rail);
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
            self.events.extend((0..self.limits.rails).map(Rail).map(|rail| match self.table.mtu(peer, rail) {
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
