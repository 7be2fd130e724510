//! The UDP device: two sockets, one for each queue (polled and interrupt), and many datagrams per system call.
//!
//! ```text
//!  post → send ring → (faulty link) → transmitter ─ sendmmsg, UDP_SEGMENT → kernel
//!  receive ← checksum ← receive pool ─ recvmmsg, UDP_GRO ← kernel    arrival waiter ─ ppoll
//! ```
//!
//! A frame is header, payload and a CRC-32C trailer of 4 bytes. The fault injector acts on whole frames, below the
//! checksum.

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
mod receive_pool;
mod send_ring;
mod socket;
mod transmitter;

#[cfg(test)]
mod tests;

pub use address_table::{Path, PathError, RECORD_BYTES};
pub use arrival_waiter::{ArrivalWaiter, WakeReason};
pub use counters::{Counter, UdpCounters};
pub use group::{GroupAddress, GroupAddressError};
pub use receive_pool::ReceivedDatagram;
pub use send_ring::UdpToken;

use alloc::{collections::VecDeque, sync::Arc};
use core::{
    error::Error,
    fmt,
    net::{IpAddr, SocketAddr},
};
use std::io;

use unisono_core::device::{Armed, Device, DeviceEvent, DeviceQueue, GroupError, Limits, PathRequest, Slot, Ticket};
use unisono_core::ids::{GroupId, PeerId, Rail};

use address_table::AddressTable;
use checksum::TRAILER;
use fault_injection::Faults;
use faulty_link::FaultyLink;
use group::GroupSocket;
use receive_pool::{Batch, ReceivePool};
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

/// The settings of a device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of both sockets. An unspecified IPv6 address accepts IPv4 peers, too.
    pub local: IpAddr,
    /// Ports of the polled and of the interrupt queue; 0 lets the kernel choose.
    pub ports: [u16; 2],
    /// Capacity of the address table in peers, 20 bytes each.
    pub peers: u32,
    /// Largest UDP payload in bytes, header and checksum included. Default: the MTU of the link with the local address
    /// − 28 (IPv6 − 48), at most [`MTU_MAX`].
    pub mtu: Option<u32>,
    /// Whether to use segmentation offload (GSO, GRO) where the kernel supports it.
    pub gso: bool,
    /// Early datagrams that can be held. Each may occupy one buffer: of one MTU, or of 64 KiB with `gso`.
    pub holdable: u16,
    /// Requested socket receive memory in bytes. The kernel grants at most twice `net.core.rmem_max` without privilege.
    pub receive_buffer: u32,
    /// Multicast groups that the device can be a member of, each with a socket of its own.
    pub groups: u16,
    /// Faults injected into outgoing frames.
    pub faults: Faults,
}

impl Options {
    /// Defaults for `peers` peers: GSO, 256 held datagrams, 8 MiB of receive memory, no faults.
    pub fn new(local: IpAddr, peers: u32) -> Self {
        Self {
            local,
            ports: [0; 2],
            peers,
            mtu: None,
            gso: true,
            holdable: 256,
            receive_buffer: 8 << 20,
            groups: 0,
            faults: Faults::default(),
        }
    }
}

/// Why a device cannot be opened.
#[derive(Debug)]
pub enum BindError {
    /// The MTU is not in [`MTU_MIN`]`..=`[`MTU_MAX`].
    Mtu(u32),
    /// The kernel refused a socket.
    Socket(io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mtu(mtu) => write!(to, "the MTU of {mtu} bytes is not within {MTU_MIN}..={MTU_MAX}"),
            Self::Socket(error) => write!(to, "the UDP socket cannot be opened: {error}"),
        }
    }
}

impl Error for BindError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Mtu(_) | Self::Socket(_) => None,
        }
    }
}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

/// One socket with its send ring and its receive batch.
struct SocketQueue {
    socket: Arc<Socket>,
    waiter: ArrivalWaiter,
    ring: SendRing,
    batch: Batch,
    link: Option<FaultyLink>,
}

/// A [`Device`] over UDP.
///
/// It never blocks except in [`flush`](Device::flush), which waits up to 4 ms for room in a full send buffer. Posted
/// payload must stay valid until after [`flush`](Device::flush), as
/// [`Regions::register`](unisono_memory::memory_regions::Regions::register) requires.
pub struct Udp {
    polled: SocketQueue,
    interrupt: SocketQueue,
    transmitter: Transmitter,
    pool: ReceivePool,
    table: AddressTable,
    counters: Arc<UdpCounters>,
    events: VecDeque<DeviceEvent>,
    down: bool,
    limits: Limits,
    faulty: bool,
    groups: GroupSockets,
}

/// The groups that the device is a member of.
struct GroupSockets {
    joined: Vec<GroupSocket>,
    /// The socket that is polled first next time.
    next: usize,
    local: IpAddr,
    receive_buffer: u32,
    gro: bool,
}

impl Udp {
    /// Binds both sockets.
    pub fn bind(options: &Options) -> Result<Self, BindError> {
        let header = if options.local.is_ipv4() { 28 } else { 48 };
        let linked =
            || socket::link_mtu(options.local).unwrap_or(LINK_MTU).saturating_sub(header).clamp(MTU_MIN, MTU_MAX);
        let mtu = options.mtu.unwrap_or_else(linked);
        let narrow =
            u16::try_from(mtu).ok().filter(|_| (MTU_MIN..=MTU_MAX).contains(&mtu)).ok_or(BindError::Mtu(mtu))?;
        let [polled, interrupt] = options.ports.map(|port| SocketAddr::new(options.local, port));
        let probe = Socket::bind(SocketAddr::new(options.local, 0), 0, false)?;
        let gso = options.gso && probe.has_offload();
        let pool = ReceivePool::new(mtu as usize, options.holdable, options.groups, gso)?;
        let faulty = !options.faults.is_none();
        let queue = |local, seed| -> Result<SocketQueue, BindError> {
            let socket = Arc::new(Socket::bind(local, options.receive_buffer, gso)?);
            Ok(SocketQueue {
                waiter: ArrivalWaiter::new(Arc::clone(&socket))?,
                ring: SendRing::new(mtu as usize, gso)?,
                batch: pool.batch(),
                link: faulty.then(|| FaultyLink::new(Faults { seed, ..options.faults })),
                socket,
            })
        };
        let seed = options.faults.seed;
        let (polled, interrupt) = (queue(polled, seed)?, queue(interrupt, !seed)?);
        let limits = Limits {
            mtu: mtu - TRAILER as u32,
            receive_slots: socket::receive_slots(polled.socket.granted, mtu),
            holdable: options.holdable.into(),
            granularity_ns: GRANULARITY_NS,
            lossless: false,
            interrupts: true,
            rails: 1,
            groups: options.groups.into(),
        };
        Ok(Self {
            polled,
            interrupt,
            transmitter: Transmitter::new(gso),
            pool,
            table: AddressTable::new(options.peers, narrow, !options.local.is_ipv4()),
            counters: Arc::default(),
            events: VecDeque::new(),
            down: false,
            limits,
            faulty,
            groups: GroupSockets {
                joined: Vec::new(),
                next: 0,
                local: options.local,
                receive_buffer: options.receive_buffer,
                gro: gso,
            },
        })
    }

    /// The addresses of the two sockets, which the peers pass to [`set_path`](Self::set_path). An unspecified address
    /// is returned as such.
    pub fn local(&self) -> io::Result<Path> {
        let [polled, interrupt] = [self.polled.socket.local()?, self.interrupt.socket.local()?];
        Ok(Path { address: polled.ip(), polled: polled.port(), interrupt: interrupt.port() })
    }

    /// Sets a peer's address. `mtu` is the peer's MTU in bytes of UDP payload, header and checksum included; the
    /// smaller of it and the device's own applies, and [`DeviceEvent::Path`] reports it when the path is requested.
    pub fn set_path(&mut self, peer: PeerId, path: Path, mtu: u32) -> Result<(), PathError> {
        self.table.set(peer, path, mtu)
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

    /// The next datagram of a group, of each group in turn.
    fn receive_from_groups(&mut self) -> Option<Slot> {
        let Self { groups, pool, counters, .. } = self;
        for _ in 0..groups.joined.len() {
            let joined = groups.joined.get_mut(groups.next);
            let slot = joined.and_then(|joined| pool.next(&mut joined.batch, &joined.socket, counters));
            if slot.is_some() {
                return slot;
            }
            groups.next = (groups.next + 1) % groups.joined.len();
        }
        None
    }

    /// The MTU in bytes of UDP payload, header and checksum included: the value that peers pass to
    /// [`set_path`](Self::set_path).
    pub const fn mtu(&self) -> u32 {
        self.limits.mtu + TRAILER as u32
    }

    /// The best number of datagrams of `bytes` bytes, checksum excluded, to send together: at most `most`, and a
    /// multiple of the GSO run length where the kernel segments.
    pub fn best_batch(&self, bytes: usize, most: usize) -> usize {
        let run = if self.transmitter.uses_gso() { run_length(bytes.saturating_add(TRAILER)) } else { 1 };
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

    /// Whether there may be something to [`receive`](Device::receive): at most one system call, and one per group. With fault injection it
    /// always returns true, since the faulty link counts idle calls of `receive`.
    pub fn poll(&mut self, lane: DeviceQueue) -> bool {
        let queue = match lane {
            DeviceQueue::Polled => &mut self.polled,
            DeviceQueue::Interrupt => &mut self.interrupt,
        };
        self.faulty
            || self.pool.poll(&mut queue.batch, &queue.socket, &self.counters)
            || lane == DeviceQueue::Polled && {
                let mut groups = self.groups.joined.iter_mut();
                groups.any(|joined| self.pool.poll(&mut joined.batch, &joined.socket, &self.counters))
            }
    }

    fn queue(&mut self, lane: DeviceQueue) -> &mut SocketQueue {
        match lane {
            DeviceQueue::Polled => &mut self.polled,
            DeviceQueue::Interrupt => &mut self.interrupt,
        }
    }

    fn handle_link_state(&mut self, answer: LinkState) {
        let down = match answer {
            LinkState::Up => false,
            LinkState::Down => true,
            LinkState::Unknown => return,
        };
        if down != self.down {
            self.down = down;
            self.events.push_back(if down { DeviceEvent::Down(Rail(0)) } else { DeviceEvent::Up(Rail(0)) });
        }
    }

    /// Sends the reordered frames of both queues: after a number of idle polls, or at once.
    fn flush_idle(&mut self, at_once: bool) {
        for queue in [&mut self.polled, &mut self.interrupt] {
            let Some(link) = &mut queue.link else { continue };
            if at_once || link.count_idle_poll() {
                let leaving = link.flush_idle();
                // SAFETY: all pieces are frames that belong to the link, which is borrowed.
                unsafe { self.transmitter.send(&queue.socket, &self.table, leaving, &self.counters) };
            }
        }
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
        let posted = queue.ring.with_checksums();
        if posted.is_empty() {
            return;
        }
        let leaving = match &mut queue.link {
            None => posted,
            // SAFETY: heads lie in the ring; of payload, the creator of its table promised that it stays unchanged
            // until the posting ends (`Regions::new`), which it does below.
            Some(link) => unsafe { link.inject(posted, &self.counters) },
        };
        // SAFETY: heads lie in the ring, and frames of a faulty link belong to it, which is borrowed; of payload, the
        // creator of its table promised that it stays until the posting ends (`Regions::new`), which it does below.
        let answer = unsafe { self.transmitter.send(&queue.socket, &self.table, leaving, &self.counters) };
        queue.ring.finish();
        self.handle_link_state(answer);
    }

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        self.queue(lane).ring.completed
    }

    /// May return `None` while more datagrams wait in the kernel; [`arm`](Self::arm) reports whether that is so.
    #[inline(always)]
    fn receive(&mut self, lane: DeviceQueue) -> Option<ReceivedDatagram<'_>> {
        // A datagram to one member overtakes none to its group.
        if lane == DeviceQueue::Polled
            && !self.groups.joined.is_empty()
            && let Some(slot) = self.receive_from_groups()
        {
            return Some(self.pool.datagram(slot, &self.table));
        }
        let queue = match lane {
            DeviceQueue::Polled => &mut self.polled,
            DeviceQueue::Interrupt => &mut self.interrupt,
        };
        match self.pool.next(&mut queue.batch, &queue.socket, &self.counters) {
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
        if in_groups || self.queue(lane).batch.may_have_more() { Armed::Pending } else { Armed::Armed }
    }

    fn request_path(&mut self, request: PathRequest) {
        if let PathRequest::Resolve(peer) = request {
            self.events.push_back(match self.table.mtu(peer) {
                Some(mtu) => DeviceEvent::Path { peer, rail: Rail(0), mtu: u32::from(mtu) - TRAILER as u32 },
                None => DeviceEvent::NoPath { peer, rail: Rail(0) },
            });
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
            .and_then(|socket| self.polled.socket.set_multicast(&options).map(|()| Arc::new(socket)));
        let socket = joined.map_err(|_| GroupError::Refused(group))?;
        self.polled.waiter.watch(Arc::clone(&socket));
        self.groups.joined.push(GroupSocket { group, socket, batch: self.pool.batch() });
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
