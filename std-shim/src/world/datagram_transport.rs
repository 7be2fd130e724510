//! The datagram device of a process, selected by the settings: UDP sockets, or the UD queue pairs of RDMA adapters.

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::os::fd::BorrowedFd;

use unisono_core::device::{
    Armed, Device, DeviceEvent, DeviceQueue, GroupError, HEADER_ROOM, Limits, PathRequest, Received, Slot, Ticket,
    Token, Transmit,
};
use unisono_core::ids::{GroupId, PeerId, Rail};
use unisono_core::span::Region;
#[cfg(feature = "verbs")]
use unisono_verbs::ud;

use super::collective::engine::multicast_streams::GROUPS_MAX;
use super::rails::{AddRailError, RailCounts};
use crate::environment::{DeviceChoice, GroupsChoice, Integrity, InterfaceName, RailsMax, Settings, TransportSettings};
#[cfg(feature = "verbs")]
use crate::environment::{RailPlaceError, RailsChoice};
use unisono_bootstrap::PeerRecord;
use unisono_memory::memory_regions::{Address, Regions};
use unisono_udp::{BindError, GroupAddress, Options, Path, Udp, UdpCounters};

/// Datagrams that are worth one doorbell.
#[cfg(feature = "verbs")]
const DOORBELL_BATCH: usize = 64;

/// Why the datagram device cannot be opened.
#[derive(Debug)]
pub(super) enum OpenError {
    /// No socket could be bound.
    Bind(BindError),
    /// No RDMA adapter was found, or it cannot be used.
    #[cfg(feature = "verbs")]
    Adapter(ud::OpenError),
    /// Fault injection is requested on a device that does not support it.
    #[cfg(feature = "verbs")]
    Faults,
    /// A rail is no adapter.
    #[cfg(feature = "verbs")]
    Rail(RailPlaceError),
}

#[cfg(feature = "verbs")]
impl From<RailPlaceError> for OpenError {
    fn from(error: RailPlaceError) -> Self {
        Self::Rail(error)
    }
}

impl From<BindError> for OpenError {
    fn from(error: BindError) -> Self {
        Self::Bind(error)
    }
}

#[cfg(feature = "verbs")]
impl From<ud::OpenError> for OpenError {
    fn from(error: ud::OpenError) -> Self {
        Self::Adapter(error)
    }
}

/// A datagram device.
pub(super) enum DatagramTransport {
    Udp(Box<Udp>),
    #[cfg(feature = "verbs")]
    Verbs(Box<ud::Ud<Address>>),
    /// Several rails.
    #[cfg(feature = "verbs")]
    VerbsRails(Box<ud::UdRails<Address>>),
}

/// Evaluates the same expression for either device.
macro_rules! each {
    ($of:ident, $it:expr, $inner:ident => $what:expr) => {
        match $it {
            $of::Udp($inner) => $what,
            #[cfg(feature = "verbs")]
            $of::Verbs($inner) => $what,
            #[cfg(feature = "verbs")]
            $of::VerbsRails($inner) => $what,
        }
    };
}

/// As [`each`], for results whose types differ: wraps each in the variant of its device.
macro_rules! wrapped {
    ($link:expr, $of:ident, $device:ident => $what:expr) => {
        match $link {
            DatagramTransport::Udp($device) => $of::Udp($what),
            #[cfg(feature = "verbs")]
            DatagramTransport::Verbs($device) => $of::Verbs($what),
            #[cfg(feature = "verbs")]
            DatagramTransport::VerbsRails($device) => $of::VerbsRails($what),
        }
    };
}

impl DatagramTransport {
    /// Opens the device that the settings select, with rails at these addresses.
    pub(super) fn open(settings: &Settings, locals: &[IpAddr]) -> Result<Self, OpenError> {
        let transport = &settings.transport;
        let size = settings.position.map_or(1, |rank_slot| rank_slot.size);
        #[cfg(feature = "verbs")]
        if transport.device == DeviceChoice::Verbs {
            return adapter(settings, size);
        }
        let (local, further) = locals.split_first().unwrap_or((&IpAddr::V4(Ipv4Addr::LOCALHOST), &[]));
        let faults = transport.faults;
        let mut options = Options { faults, further_rails: further.to_vec(), ..Options::new(*local, size) };
        options.groups = groups_of(transport);
        options.rails_max = transport.rails_max.map_or(1, RailsMax::get);
        options.mtu = transport.mtu.map(crate::environment::Mtu::bytes);
        if let Some(gso) = transport.gso {
            options.gso = gso.is_on();
        }
        Ok(Self::Udp(Box::new(Udp::bind(&options)?)))
    }

    /// Which device it is.
    pub(super) const fn device_choice(&self) -> DeviceChoice {
        match self {
            Self::Udp(_) => DeviceChoice::Udp,
            #[cfg(feature = "verbs")]
            Self::Verbs(_) | Self::VerbsRails(_) => DeviceChoice::Verbs,
        }
    }

    /// Its addresses on each further rail, as bootstrap publishes them.
    pub(super) fn further_lanes(&self) -> std::io::Result<Vec<[SocketAddr; 2]>> {
        (1..self.open_rails()).map(|rail| self.lanes(Rail(rail))).collect()
    }

    /// Rails that are open, of those that there is room for.
    pub(super) fn open_rails(&self) -> u8 {
        match self {
            Self::Udp(device) => device.open_rails(),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) | Self::VerbsRails(_) => self.limits().rails,
        }
    }

    /// Opens another rail at this address. Returns its number, and its addresses as [`lanes`](Self::lanes) does.
    pub(super) fn open_rail(&mut self, address: IpAddr) -> Result<(Rail, [SocketAddr; 2]), AddRailError> {
        match self {
            Self::Udp(device) => {
                let (rail, path) = device.open_rail(address)?;
                Ok((rail, lanes_of(path)))
            }
            #[cfg(feature = "verbs")]
            Self::Verbs(_) | Self::VerbsRails(_) => Err(AddRailError::Unsupported),
        }
    }

    /// Sets the addresses of a peer on a rail that is open; `None`: it has none there.
    pub(super) fn set_rail_path(&mut self, peer: PeerId, rail: Rail, lanes: Option<[SocketAddr; 2]>, mtu: u32) {
        match self {
            Self::Udp(device) if rail.0 < device.open_rails() => {
                let set = lanes.map(|lanes| device.set_rail_path(peer, rail, path_of(lanes), mtu));
                if let Some(Err(error)) = &set {
                    tracing::warn!(rank = peer.0, rail = rail.0, ?error, "no path on this rail");
                }
                if !matches!(set, Some(Ok(()))) {
                    device.clear_rail_path(peer, rail);
                }
            }
            Self::Udp(_) => {}
            #[cfg(feature = "verbs")]
            Self::Verbs(_) | Self::VerbsRails(_) => {}
        }
    }

    /// The address of its sockets on a rail, or of its adapter's port (GID).
    pub(super) fn local_on(&self, rail: Rail) -> Option<IpAddr> {
        match self {
            Self::Udp(device) => device.local_on(rail).ok().map(|path| path.address),
            #[cfg(feature = "verbs")]
            Self::Verbs(device) => Some(IpAddr::from(device.local().gid.0).to_canonical()),
            #[cfg(feature = "verbs")]
            Self::VerbsRails(device) => device.local(rail).map(|path| IpAddr::from(path.gid.0).to_canonical()),
        }
    }

    /// What a rail carried.
    pub(super) fn rail_counts(&self, rail: Rail) -> RailCounts {
        match self {
            Self::Udp(device) => RailCounts::of_udp(&device.counters(), rail),
            #[cfg(feature = "verbs")]
            Self::Verbs(device) => RailCounts::of_adapter(&device.counters()),
            #[cfg(feature = "verbs")]
            Self::VerbsRails(device) => device.counts(rail).into(),
        }
    }

    /// Its addresses on a rail, as bootstrap publishes them.
    pub(super) fn lanes(&self, rail: Rail) -> std::io::Result<[SocketAddr; 2]> {
        match self {
            Self::Udp(device) => Ok(lanes_of(device.local_on(rail)?)),
            #[cfg(feature = "verbs")]
            Self::Verbs(device) => Ok(lanes::of(&device.local())),
            #[cfg(feature = "verbs")]
            Self::VerbsRails(device) => {
                let path = device.local(rail).ok_or(std::io::ErrorKind::NotFound)?;
                Ok(lanes::of(&path))
            }
        }
    }

    /// Sets a peer's addresses, as bootstrap reports them. Returns why those on the first rail are refused; others that
    /// are refused or missing count as unreachable.
    pub(super) fn set_paths(&mut self, peer: PeerId, entry: &PeerRecord) -> Result<(), String> {
        let (lanes, mtu) = (entry.addresses, entry.mtu);
        match self {
            Self::Udp(device) => {
                let set = device.set_path(peer, path_of(lanes), mtu).map_err(|error| error.to_string());
                for rail in (1..self.open_rails()).map(Rail) {
                    let lanes = entry.further_rails.get(usize::from(rail.0).wrapping_sub(1));
                    self.set_rail_path(peer, rail, lanes.copied(), mtu);
                }
                set
            }
            #[cfg(feature = "verbs")]
            Self::Verbs(device) => {
                let path = lanes::path(lanes).ok_or_else(|| "no address of queue pairs".to_owned())?;
                device.set_path(peer, path, mtu).map_err(|error| error.to_string())
            }
            #[cfg(feature = "verbs")]
            Self::VerbsRails(device) => {
                let further = entry.further_rails.iter().map(Some).chain(core::iter::repeat(None));
                for (rail, lanes) in (1..device.limits().rails).map(Rail).zip(further) {
                    let path = lanes.and_then(|lanes| lanes::path(*lanes));
                    let set = path.map(|path| device.set_path(peer, rail, path, mtu));
                    if !matches!(set, Some(Ok(()))) {
                        device.clear_path(peer, rail);
                        tracing::warn!(rank = peer.0, rail = rail.0, ?set, "no path on this rail");
                    }
                }
                let path = lanes::path(lanes).ok_or_else(|| "no address of queue pairs".to_owned())?;
                device.set_path(peer, Rail(0), path, mtu).map_err(|error| error.to_string())
            }
        }
    }

    /// What finds corrupted datagrams.
    pub(super) const fn integrity(&self) -> Integrity {
        match self {
            Self::Udp(device) if device.checksums() => Integrity::Crc32c,
            _ => Integrity::Link,
        }
    }

    /// Whether checksums are sent and expected from now on.
    pub(super) fn set_checksums(&mut self, used: bool) {
        match self {
            Self::Udp(device) => device.set_checksums(used),
            // The link has its own.
            #[cfg(feature = "verbs")]
            Self::Verbs(_) | Self::VerbsRails(_) => {}
        }
    }

    /// Makes the device a member of the group at this address.
    pub(super) fn join_at(&mut self, group: GroupId, address: GroupAddress) -> Result<(), GroupError> {
        match self {
            Self::Udp(device) => {
                device.set_group(group, address).map_err(|_| GroupError::Refused(group))?;
                device.join(group)
            }
            #[cfg(feature = "verbs")]
            Self::Verbs(device) => {
                device.set_group(group, address.address.ip()).map_err(|_| GroupError::Refused(group))?;
                Device::join(&mut **device, group)
            }
            #[cfg(feature = "verbs")]
            Self::VerbsRails(device) => {
                device.set_group(group, address.address.ip()).map_err(|_| GroupError::Refused(group))?;
                Device::join(&mut **device, group)
            }
        }
    }

    /// Bytes of the largest datagram, checksum included.
    pub(super) fn mtu(&self) -> u32 {
        match self {
            Self::Udp(device) => device.mtu(),
            #[cfg(feature = "verbs")]
            Self::Verbs(device) => device.limits().mtu,
            #[cfg(feature = "verbs")]
            Self::VerbsRails(device) => device.limits().mtu,
        }
    }

    /// Number of datagrams of `bytes` bytes that are best transmitted together: at most `most`.
    pub(super) fn batch_size(&self, bytes: usize, most: usize) -> usize {
        match self {
            Self::Udp(device) => device.best_batch(bytes, most),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) | Self::VerbsRails(_) => most.clamp(1, DOORBELL_BATCH),
        }
    }

    /// Whether the polled queue may have something to receive: cheaper than a round of progress.
    pub(super) fn has_arrivals(&mut self) -> bool {
        each!(Self, self, device => device.poll(DeviceQueue::Polled))
    }

    /// Whether the device is gone for good.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Udp(_) => false,
            #[cfg(feature = "verbs")]
            Self::Verbs(device) => device.is_closed(),
            #[cfg(feature = "verbs")]
            Self::VerbsRails(device) => device.is_closed(),
        }
    }

    /// An empty table of regions that the device can send from.
    pub(super) fn regions(&self) -> Regions {
        match self {
            // SAFETY: the table is the process's, which the World's lock guards: all copies run under it. Memory of
            // users is revoked before their borrow ends, and memory of the table freed when no posting names it.
            Self::Udp(_) => unsafe { Regions::new() },
            #[cfg(feature = "verbs")]
            // SAFETY: the table is the process's, which the World's lock guards: all copies run under it. Memory of
            // users is revoked before their borrow ends, and memory of the table freed when no posting names it.
            Self::Verbs(device) => unsafe { Regions::of(Arc::clone(device.domain())) },
            #[cfg(feature = "verbs")]
            // SAFETY: the table is the process's, which the World's lock guards: all copies run under it. Memory of
            // users is revoked before their borrow ends, and memory of the table freed when no posting names it.
            Self::VerbsRails(device) => unsafe { Regions::of(Arc::clone(device.domain())) },
        }
    }

    /// Whether what is sent was copied when it is flushed: nothing reads memory on its own.
    pub(super) const fn copies(&self) -> bool {
        match self {
            Self::Udp(_) => true,
            #[cfg(feature = "verbs")]
            Self::Verbs(_) | Self::VerbsRails(_) => false,
        }
    }

    /// Waits until no posted send refers to the region, whose memory returns to its owner.
    pub(super) fn wait_for_completions(&mut self, regions: &Regions, region: Region) {
        match self {
            // UDP copies when it flushes.
            Self::Udp(_) => _ = (regions, region),
            #[cfg(feature = "verbs")]
            Self::Verbs(device) => regions.key(region).into_iter().for_each(|key| device.settle(key)),
            #[cfg(feature = "verbs")]
            Self::VerbsRails(device) => regions.key(region).into_iter().for_each(|key| device.settle(key)),
        }
    }

    /// The adapter, if the device is one; of several that of the first rail.
    #[cfg(feature = "verbs")]
    pub(super) fn domain(&self) -> Option<&Arc<ud::Domain>> {
        match self {
            Self::Udp(_) => None,
            Self::Verbs(device) => Some(device.domain()),
            Self::VerbsRails(device) => Some(device.domain()),
        }
    }

    /// A number for what carries its first rail, of which `local` is an address: an adapter and a port, or an interface.
    pub(super) fn first_rail(&self, local: Option<&IpAddr>) -> Option<u32> {
        #[cfg(feature = "verbs")]
        if let Some(domain) = self.domain() {
            let adapter = ud::adapters().ok()?.iter().position(|name| name == domain.name())?;
            return u32::try_from(adapter << 8 | usize::from(domain.port())).ok();
        }
        let known = unisono_udp::link_addresses();
        let link = known.iter().find(|link| Some(&link.address) == local)?;
        // An address of IPv4 may have a label, such as eth0:1.
        InterfaceName::new(link.interface.split(':').next()?)?.index()
    }

    /// The waiter for a queue's arrivals.
    pub(super) fn waiter(&self, lane: DeviceQueue) -> TransportWaiter {
        wrapped!(self, TransportWaiter, device => device.arrival_waiter(lane))
    }

    /// The counters of UDP; zeros for other devices.
    pub(super) fn udp_counters(&self) -> Arc<UdpCounters> {
        match self {
            Self::Udp(device) => device.counters(),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) | Self::VerbsRails(_) => Arc::default(),
        }
    }
}

/// Waits for the arrivals of one queue.
#[derive(Clone, Debug)]
pub(super) enum TransportWaiter {
    Udp(unisono_udp::ArrivalWaiter),
    #[cfg(feature = "verbs")]
    Verbs(ud::ArrivalWaiter),
    #[cfg(feature = "verbs")]
    VerbsRails(ud::RailsWaiter),
}

impl TransportWaiter {
    /// Blocks until something arrives, another thread wakes it, or the time is over.
    pub(super) fn wait(&self, timeout: Option<Duration>) {
        each!(TransportWaiter, self, bell => drop(bell.wait(timeout)))
    }

    /// The descriptor that arrivals make readable, if the device has one.
    pub(super) fn arrivals(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Udp(bell) => Some(bell.arrivals()),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) | Self::VerbsRails(_) => None,
        }
    }

    /// Ends the current wait, or the next one.
    pub(super) fn wake(&self) {
        each!(TransportWaiter, self, bell => bell.notify())
    }
}

/// A free send entry of either device.
pub(super) enum TransportToken<'a> {
    Udp(unisono_udp::UdpToken<'a>),
    #[cfg(feature = "verbs")]
    Verbs(ud::UdToken<'a, Address>),
    #[cfg(feature = "verbs")]
    VerbsRails(ud::RailsToken<'a, Address>),
}

impl Token for TransportToken<'_> {
    type Address = Address;

    #[inline]
    fn ticket(&self) -> Ticket {
        each!(TransportToken, self, token => token.ticket())
    }

    #[inline]
    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        each!(TransportToken, self, token => token.header_room())
    }

    #[inline]
    fn post(self, transmit: &Transmit, payload: Option<Address>) {
        each!(TransportToken, self, token => token.post(transmit, payload))
    }
}

/// A received datagram of either device.
pub(super) enum TransportDatagram<'a> {
    Udp(unisono_udp::ReceivedDatagram<'a>),
    #[cfg(feature = "verbs")]
    Verbs(ud::Datagram<'a>),
    #[cfg(feature = "verbs")]
    VerbsRails(ud::RailDatagram<'a>),
}

impl Received for TransportDatagram<'_> {
    #[inline]
    fn slot(&self) -> Slot {
        each!(TransportDatagram, self, inner => inner.slot())
    }

    #[inline]
    fn bytes(&self) -> u32 {
        each!(TransportDatagram, self, inner => inner.bytes())
    }

    #[inline]
    fn prefix(&self) -> &[u8] {
        each!(TransportDatagram, self, inner => inner.prefix())
    }

    #[inline]
    fn is_from(&self, peer: PeerId) -> bool {
        each!(TransportDatagram, self, inner => inner.is_from(peer))
    }

    #[inline]
    fn rail(&self) -> Rail {
        each!(TransportDatagram, self, inner => inner.rail())
    }

    #[inline]
    fn age_ns(&self) -> Option<u32> {
        each!(TransportDatagram, self, inner => inner.age_ns())
    }
}

impl Device for DatagramTransport {
    type Address = Address;
    type Token<'a> = TransportToken<'a>;
    type Received<'a> = TransportDatagram<'a>;

    #[inline]
    fn limits(&self) -> Limits {
        each!(DatagramTransport, self, device => device.limits())
    }

    #[inline]
    fn token(&mut self, lane: DeviceQueue) -> Option<TransportToken<'_>> {
        Some(wrapped!(self, TransportToken, device => device.token(lane)?))
    }

    #[inline]
    fn flush(&mut self, lane: DeviceQueue) {
        each!(DatagramTransport, self, device => device.flush(lane));
    }

    #[inline]
    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        each!(DatagramTransport, self, device => device.completed(lane))
    }

    #[inline]
    fn receive(&mut self, lane: DeviceQueue) -> Option<TransportDatagram<'_>> {
        Some(wrapped!(self, TransportDatagram, device => device.receive(lane)?))
    }

    #[inline]
    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: Address) {
        each!(DatagramTransport, self, device => device.place(from, start, bytes, to));
    }

    #[inline]
    fn hold(&mut self, slot: Slot) {
        each!(DatagramTransport, self, device => device.hold(slot));
    }

    #[inline]
    fn held(&self, slot: Slot) -> TransportDatagram<'_> {
        wrapped!(self, TransportDatagram, device => device.held(slot))
    }

    #[inline]
    fn release(&mut self, slot: Slot) {
        each!(DatagramTransport, self, device => device.release(slot));
    }

    #[inline]
    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        each!(DatagramTransport, self, device => device.arm(lane))
    }

    #[inline]
    fn request_path(&mut self, wish: PathRequest) {
        each!(DatagramTransport, self, device => device.request_path(wish));
    }

    #[inline]
    fn poll_event(&mut self) -> Option<DeviceEvent> {
        each!(DatagramTransport, self, device => device.poll_event())
    }

    fn join(&mut self, group: GroupId) -> Result<(), GroupError> {
        each!(DatagramTransport, self, device => Device::join(&mut **device, group))
    }

    fn leave(&mut self, group: GroupId) -> Result<(), GroupError> {
        each!(DatagramTransport, self, device => Device::leave(&mut **device, group))
    }
}

/// The groups that a device can be a member of: those of communicators, and those of the pool.
const fn groups_of(transport: &TransportSettings) -> u16 {
    match (transport.multicast.is_on(), transport.groups.pool()) {
        (false, _) => 0,
        (true, 0) => GROUPS_MAX,
        (true, _) => GROUPS_MAX.saturating_add(GroupsChoice::POOL_MAX as u16),
    }
}

/// The addresses of a device's sockets, as bootstrap publishes them.
fn lanes_of(path: Path) -> [SocketAddr; 2] {
    [path.polled, path.interrupt].map(|port| SocketAddr::new(path.address, port))
}

fn path_of([polled, interrupt]: [SocketAddr; 2]) -> Path {
    Path { address: polled.ip(), polled: polled.port(), interrupt: interrupt.port() }
}

/// Opens the adapter of this rank, or those of its rails: the ranks of a node share its adapters evenly.
#[cfg(feature = "verbs")]
fn adapter(settings: &Settings, size: u32) -> Result<DatagramTransport, OpenError> {
    if !settings.transport.faults.is_none() {
        return Err(OpenError::Faults);
    }
    let names = ud::adapters()?;
    let place = settings.locality.rank.unwrap_or(0) as usize;
    let name_at = |number: usize| names.get((place + number) % names.len().max(1)).map(String::as_str);
    let queues = settings.transport.queues.unwrap_or_default().into();
    let groups = groups_of(&settings.transport);
    let options = ud::UdOptions { queues, groups, ..ud::UdOptions::new(size, queue_key(settings)) };
    let rails = &settings.transport.rails;
    if rails.is_default() {
        let device = ud::Ud::new(&ud::Domain::open(name_at(0))?, &options)?;
        report_queues(&device);
        return Ok(DatagramTransport::Verbs(Box::new(device)));
    }
    let domains: Result<Vec<_>, _> = match rails {
        RailsChoice::Count(count) => (0..usize::from(*count)).map(|rail| ud::Domain::open(name_at(rail))).collect(),
        RailsChoice::Places(places) => {
            let ports = places.iter().flatten().map(|place| place.port().ok_or(RailPlaceError(*place)));
            let ports: Vec<_> = ports.collect::<Result<_, _>>()?;
            ports.iter().map(|(name, port)| ud::Domain::open_port(Some(name.as_str()), *port)).collect()
        }
    };
    let device = ud::UdRails::new(&domains?, &options)?;
    device.rails().for_each(report_queues);
    Ok(DatagramTransport::VerbsRails(Box::new(device)))
}

#[cfg(feature = "verbs")]
fn report_queues<A>(device: &ud::Ud<A>) {
    let adapter = device.domain().name();
    if let Some(error) = device.refused() {
        tracing::warn!(adapter, %error, "cannot map the adapter queues, using libibverbs");
    }
    tracing::info!(adapter, "queues {}", device.writer());
}

/// The job's Q_Key, derived from its secret. A process by itself has none, and no peers.
#[cfg(feature = "verbs")]
fn queue_key(settings: &Settings) -> u32 {
    let proof = settings.secret.as_ref().map(|secret| secret.prove(settings.job.as_str(), b"queue key", &[]));
    proof.map_or(0, |[a, b, c, d, ..]| u32::from_le_bytes([a, b, c, d]))
}

/// Queue pair addresses as bootstrap's table holds them: the GID with RoCE's port, and an address of the discard prefix
/// (RFC 6666) that ends in the two queue pair numbers, 24 bits each.
#[cfg(feature = "verbs")]
mod lanes {
    use core::net::{IpAddr, Ipv6Addr, SocketAddr};

    use unisono_verbs::ud::{Gid, Path};

    /// The UDP port of RoCE v2.
    const PORT: u16 = 4791;

    pub(super) fn of(path: &Path) -> [SocketAddr; 2] {
        let mut numbers = [0; 16];
        numbers[0] = 1;
        numbers[10..13].copy_from_slice(&path.polled.to_be_bytes()[1..]);
        numbers[13..].copy_from_slice(&path.interrupt.to_be_bytes()[1..]);
        [path.gid.0, numbers].map(|address| SocketAddr::new(IpAddr::from(address).to_canonical(), PORT))
    }

    pub(super) fn path([gid, numbers]: [SocketAddr; 2]) -> Option<Path> {
        let IpAddr::V6(numbers) = numbers.ip() else { return None };
        let [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f] = Ipv6Addr::octets(&numbers) else { return None };
        let number = |[a, b, c]: [u8; 3]| u32::from_be_bytes([0, a, b, c]);
        Some(Path { gid: Gid::from(gid.ip()), polled: number([a, b, c]), interrupt: number([d, e, f]) })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn queue_pairs_survive_the_table() {
            for gid in ["10.0.0.1", "2001:db8::7"] {
                let gid = Gid::from(gid.parse::<IpAddr>().expect("an address"));
                let one = Path { gid, polled: 0x12_3456, interrupt: 0xff_fffe };
                assert_eq!(path(of(&one)), Some(one));
            }
            assert_eq!(path([SocketAddr::from(([10, 0, 0, 1], 1)); 2]), None);
        }
    }
}
