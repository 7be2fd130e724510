//! Checks that run in the virtual machine: an endpoint over a UD device, and comparisons with other programs.

mod address_handles;
mod buffer_release;
mod compare;
mod failed_creation;
mod faults;
mod groups;
mod rc_operations;
mod scale;
mod transfer;
mod wakeup;

use core::error::Error;
use core::time::Duration;
use std::time::Instant;

use unisono_core::counters::{Counters, Metric};
use unisono_core::device::{Device, DeviceEvent, DeviceQueue, PathRequest};
use unisono_core::endpoint::{Config, Event, Handler, Verdict};
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::progress::{make_progress, receive, transmit};
use unisono_memory::endpoint_storage::{EndpointSizes, ProcessEndpoint, grow_windows};
use unisono_memory::memory_regions::{Address, Regions};
use unisono_verbs::ud::{Domain, Path, QueueChoice, Ud, UdOptions};

pub use address_handles::{Handles, handles};
pub use buffer_release::buffer_release;
pub use compare::{Contender, Measure, interval, median, wake_processors};
pub use failed_creation::failed_creation;
pub use faults::{link_failure, overrun, queue_failure, removal};
pub use groups::multicast;
pub use rc_operations::rc_operations;
pub use scale::{Footprint, footprint};
pub use transfer::transfer;
pub use wakeup::interrupt;

/// Result with an error message.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Datagrams that one round receives and sends at most.
const BUDGET: u32 = 64;
/// The job's key.
const KEY: u32 = 0x7e57;

/// An adapter of this host, and the implementation that writes the queues of its devices.
#[derive(Clone, Copy, Debug)]
pub struct Adapter<'a> {
    /// Its name.
    pub name: &'a str,
    /// The implementation that writes the queues.
    pub queues: QueueChoice,
}

impl Adapter<'_> {
    /// Options of a device on it, for `peers` peers.
    pub fn options(self, peers: u32) -> UdOptions {
        UdOptions { queues: self.queues, ..UdOptions::new(peers, KEY) }
    }
}

/// A device on that adapter, for `peers` peers.
pub fn device(adapter: Adapter<'_>, peers: u32) -> Outcome<Ud<Address>> {
    Ok(Ud::new(&Domain::open(Some(adapter.name))?, &adapter.options(peers))?)
}

/// Connects all devices as peers 0, 1, …, each with an address handle.
pub fn connect_devices(devices: &mut [&mut Ud<Address>]) -> Outcome<()> {
    let paths: Vec<_> = devices.iter().map(|device| device.local()).collect();
    for device in devices {
        for (peer, path) in (0..).map(PeerId).zip(&paths) {
            add_path(device, peer, *path)?;
        }
    }
    Ok(())
}

/// Sets a peer's path, and waits for its address handle.
fn add_path(device: &mut Ud<Address>, peer: PeerId, path: Path) -> Outcome<()> {
    let mtu = device.limits().mtu;
    device.set_path(peer, path, mtu)?;
    device.request_path(PathRequest::Resolve(peer));
    let resolved = |fact| matches!(fact, DeviceEvent::Path { peer: of, .. } if of == peer);
    within(Duration::from_secs(5), "an address handle", || Ok(device.poll_event().filter(|fact| resolved(*fact))))?;
    Ok(())
}

/// A handler that only counts messages.
#[derive(Debug, Default)]
pub struct MessageCounter {
    /// Counters.
    pub counters: Counters,
    /// Eager messages.
    pub messages: u32,
}

impl Handler for MessageCounter {
    fn handle_eager(&mut self, _: PeerId, _: &[u8], _: u32) -> Verdict {
        self.messages += 1;
        Verdict::Release
    }

    #[inline(always)]
    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }
}

/// An endpoint with its device and memory.
pub struct VerbsEnd {
    clock: Instant,
    /// The endpoint.
    pub endpoint: ProcessEndpoint,
    /// The device.
    pub device: Ud<Address>,
    /// Regions registered with the adapter.
    pub regions: Regions,
    /// The message handler.
    pub counter: MessageCounter,
}

impl VerbsEnd {
    /// The end of `rank` among `size`, on an adapter. All ends share a clock.
    pub fn new(rank: u32, size: u32, adapter: Adapter<'_>, clock: Instant) -> Outcome<Self> {
        let device = device(adapter, size)?;
        let config = Config::new(PeerId(rank), incarnation(rank), &device.limits());
        Ok(Self {
            clock,
            endpoint: ProcessEndpoint::new(0, config, EndpointSizes::growing(size as usize).pools()),
            // SAFETY: one thread uses the table, and frees nothing that a posting may name.
            regions: unsafe { Regions::of(device.domain().clone()) },
            device,
            counter: MessageCounter::default(),
        })
    }

    /// Two connected ends.
    pub fn pair(adapters: [Adapter<'_>; 2]) -> Outcome<[Self; 2]> {
        let clock = Instant::now();
        let [mut here, mut there] = [Self::new(0, 2, adapters[0], clock)?, Self::new(1, 2, adapters[1], clock)?];
        connect_devices(&mut [&mut here.device, &mut there.device])?;
        here.add_peer(1);
        there.add_peer(0);
        Ok([here, there])
    }

    /// Connects the peer of that rank.
    fn connect(&mut self, rank: u32, path: Path) -> Outcome<()> {
        add_path(&mut self.device, PeerId(rank), path)?;
        self.add_peer(rank);
        Ok(())
    }

    /// Adds the peer of that rank, whose path the device has, to the endpoint.
    fn add_peer(&mut self, rank: u32) {
        let (now, mtu) = (self.now(), self.device.limits().mtu);
        self.endpoint.add_peer(now, PeerId(rank), incarnation(rank), mtu);
    }

    /// Nanoseconds since the clock began.
    pub fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// One round. Returns whether anything moved.
    pub fn drive(&mut self) -> bool {
        let now = self.now();
        self.drive_at(now)
    }

    /// As [`drive`](Self::drive), at that time.
    pub fn drive_at(&mut self, now: u64) -> bool {
        let Self { endpoint, device, regions, counter: above, .. } = self;
        grow_windows(endpoint, now);
        make_progress(now, DeviceQueue::Polled, endpoint, device, regions, above, BUDGET)
    }

    /// Handles arrivals. Returns whether there were any.
    pub fn receive_at(&mut self, now: u64) -> bool {
        let Self { endpoint, device, regions, counter: above, .. } = self;
        receive(now, DeviceQueue::Polled, endpoint, device, regions, above, BUDGET)
    }

    /// Transmits pending datagrams.
    pub fn transmit_at(&mut self, now: u64) {
        let Self { endpoint, device, regions, counter: above, .. } = self;
        transmit(now, DeviceQueue::Polled, endpoint, device, regions, above, BUDGET);
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        let now = self.now();
        self.endpoint.poll_event(now)
    }
}

const fn incarnation(rank: u32) -> Incarnation {
    Incarnation(rank + 0x1000)
}

/// Retries an attempt until it succeeds.
fn within<T>(bound: Duration, what: &str, mut attempt: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
    let started = Instant::now();
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        if started.elapsed() > bound {
            return Err(format!("{what}: not within {} ms", bound.as_millis()).into());
        }
    }
}
