//! A software adapter: executes the queues that [`unisono_verbs::mlx5`] writes as a ConnectX does, so that its device
//! runs without hardware.
//!
//! It learns of send entries by doorbell record and doorbell only, reads them from what is visible at that moment, and
//! delivers datagrams with a global route header into the receive queues of other queue pairs. Stores become visible at
//! barriers; stores that a doorbell overtakes are not seen. A [`Checker`](unisono_verbs::queue_memory::Checker) watches
//! every queue besides.
//!
//! It reads and writes the formats on its own, by offsets of the Programmer's Reference Manual, and shares no code with
//! the driver.

mod completion;
mod datagram;
mod memory;
mod network;
mod queue_memory;
mod queue_pair;

use alloc::rc::Rc;
use core::cell::RefCell;
use core::ptr::NonNull;

use unisono_core::device::{DeviceQueue, HEADER_ROOM};
use unisono_core::ids::PeerId;
use unisono_udp::fault_injection::Faults;
use unisono_verbs::mlx5::{
    BlueFlame, CompletionQueue, Grh, Link, Mlx5Path, Mlx5Queues, ReceiveQueue, Route, SendQueue, SendRecord, Stride,
};
use unisono_verbs::raw::{Raw, RawOptions, ReceiveBuffer, Slabs};
use unisono_verbs::registered_memory::Slab;

pub use memory::{AdapterAddress, AdapterMemory};
pub use network::Omitted;
pub use queue_memory::QueueHandle;

use network::AdapterNetwork;
use queue_memory::QueueKind;

/// The driver's device over the adapter.
pub type AdapterDevice = Raw<'static, Mlx5Queues<'static, QueueHandle>, AdapterAddress>;

/// Queue pairs take datagrams with this key.
const QKEY: u32 = 0x8765_4321;

/// The fabric between adapters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fabric {
    /// Addressed by local identifiers.
    InfiniBand,
    /// RoCE v2 over IPv6.
    Ethernet6,
    /// RoCE v2 over IPv4.
    Ethernet4,
}

/// Configuration of adapters and devices.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The fabric.
    pub fabric: Fabric,
    /// Bytes of the longest datagram.
    pub mtu: u32,
    /// Datagrams of a lane that can wait.
    pub receive_slots: u32,
    /// Datagrams that can be set aside.
    pub holdable: u32,
    /// Blocks of each send queue.
    pub blocks: u32,
    /// Bytes of the longest inline datagram.
    pub inline: usize,
    /// Whether there is a lane with events.
    pub interrupts: bool,
    /// Bytes of a half of BlueFlame; 0: none.
    pub flame: usize,
    /// Of the completion queues.
    pub stride: Stride,
    /// Faults of the fabric.
    pub faults: Faults,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            fabric: Fabric::InfiniBand,
            mtu: 4096,
            receive_slots: 64,
            holdable: 32,
            blocks: 128,
            inline: 124,
            interrupts: true,
            flame: 256,
            stride: Stride::Short,
            faults: Faults::default(),
        }
    }
}

/// Adapters and their fabric.
#[derive(Clone, Debug)]
pub struct Adapters {
    config: Config,
    network: Rc<RefCell<AdapterNetwork>>,
}

impl Adapters {
    /// Adapters like this, without a queue pair.
    pub fn new(config: Config) -> Self {
        Self { config, network: Rc::new(RefCell::new(AdapterNetwork::new(config))) }
    }

    /// As [`new`](Self::new), and all barriers of this kind are left out.
    pub fn without(config: Config, omitted: Omitted) -> Self {
        let adapters = Self::new(config);
        adapters.network.borrow_mut().omitted = Some(omitted);
        adapters
    }

    /// `count` adapters with a device each, connected with each other, and their memories.
    pub fn connect(&self, count: u32) -> Vec<(AdapterDevice, AdapterMemory)> {
        let make = |port| (self.device(port, count), AdapterMemory::new(self.network.clone()));
        (0..count).map(make).collect()
    }

    /// Delivers the datagrams that were held back for reordering.
    pub fn settle(&self) {
        self.network.borrow_mut().arrive_all();
    }

    /// Violations of the driver, and malformed entries.
    pub fn violations(&self) -> Vec<String> {
        self.network.borrow().violations.clone()
    }

    /// The lane's queue pair fails, as it does when the port goes down.
    pub fn fail(&self, port: u32, lane: DeviceQueue) {
        self.network.borrow_mut().fail(qpn(port, lane));
    }

    /// Resets the lane's queue pair and makes it ready again.
    pub fn reset(&self, port: u32, lane: DeviceQueue) {
        self.network.borrow_mut().reset(qpn(port, lane));
    }

    /// Writes bytes over a completion queue, as a defective adapter might.
    pub fn scribble(&self, port: u32, lane: DeviceQueue, mut byte: impl FnMut(usize) -> u8) {
        let mut network = self.network.borrow_mut();
        for queue in network.completion_memory(qpn(port, lane)) {
            queue.iter_mut().enumerate().for_each(|(at, place)| *place = byte(at));
        }
    }

    fn device(&self, port: u32, count: u32) -> AdapterDevice {
        let config = self.config;
        let lanes = if config.interrupts { 2 } else { 1 };
        let options = RawOptions {
            mtu: config.mtu,
            receive_slots: config.receive_slots,
            inline: config.inline,
            granularity_ns: 10_000,
            lossless: config.faults.is_none(),
        };
        let buffers = config.receive_slots * lanes + config.holdable;
        let bytes = buffers as usize * (config.mtu as usize + 40).next_multiple_of(64);
        let slabs =
            Slabs { heads: self.slab((config.blocks * lanes) as usize * HEADER_ROOM), buffers: self.slab(bytes) };
        let polled = self.queues(port, DeviceQueue::Polled);
        let interrupt = config.interrupts.then(|| self.queues(port, DeviceQueue::Interrupt));
        let table = vec![ReceiveBuffer::FREE; buffers as usize].leak();
        let paths: Vec<_> = (0..count).map(|peer| Some(self.path(peer))).collect();
        Raw::new(options, [Some(polled), interrupt], slabs, table, paths.leak()).expect("sizes that fit")
    }

    fn path(&self, port: u32) -> Mlx5Path {
        let at = |lane| if self.config.interrupts { qpn(port, lane) } else { qpn(port, DeviceQueue::Polled) };
        let address = network::address(self.config.fabric, port);
        let grh = Grh { gid: address.gid, hop_limit: 64, ..Grh::default() };
        let (link, grh) = match self.config.fabric {
            Fabric::InfiniBand => (Link::InfiniBand { lid: address.lid, path_bits: 0 }, None),
            Fabric::Ethernet6 | Fabric::Ethernet4 => {
                (Link::Ethernet { mac: address.mac, source_port: 0xc001 }, Some(grh))
            }
        };
        let route = Route { link, service_level: 0, rate: 0, grh };
        Mlx5Path::new(&route, [at(DeviceQueue::Polled), at(DeviceQueue::Interrupt)], QKEY, self.config.mtu)
    }

    /// A test's devices live as long as it does, and so does their memory.
    fn slab(&self, bytes: usize) -> Slab {
        let memory = vec![[0_u64; 8]; bytes.div_ceil(64)].leak();
        let start = NonNull::from(&mut *memory).cast();
        let key = self.network.borrow_mut().memory.register(start, bytes);
        // SAFETY: leaked, known to the device and the adapter only, and registered above.
        unsafe { Slab::new(start, bytes, key) }
    }

    fn queues(&self, port: u32, lane: DeviceQueue) -> Mlx5Queues<'static, QueueHandle> {
        let (config, qpn) = (self.config, qpn(port, lane));
        let entries = (config.receive_slots as usize).next_power_of_two();
        let cqe = if config.stride == Stride::Short { 64 } else { 128 };
        let completions = |entries: usize| {
            let id = self.network.borrow_mut().add_completions(entries, cqe);
            let queue = CompletionQueue::new(self.shared(id), id as u32, config.stride);
            (id, queue.expect("a size of queues"))
        };
        let (send_to, sent) = completions(2 * config.blocks as usize);
        let (receive_to, received) = completions(2 * entries);
        let (send, receive) = {
            let mut network = self.network.borrow_mut();
            let send = network.add_queue(QueueKind::Send(qpn), config.blocks as usize * 64);
            // One segment and room for the mark that ends a list.
            let receive = network.add_queue(QueueKind::Receive, entries * 32);
            network.add_pair(
                qpn,
                port,
                queue_pair::Queues { send, receive, send_to, receive_to, receive_entries: entries },
            );
            (send, receive)
        };
        let table = vec![SendRecord::default(); config.blocks as usize].leak();
        let flame = BlueFlame { bytes: config.flame, takes_entries: config.flame > 0, prefers: false };
        let send = SendQueue::new(self.shared(send), qpn, flame, table).expect("a size of queues");
        let tags = vec![None; entries].leak();
        let receive = ReceiveQueue::new(self.shared(receive), tags).expect("a size of queues");
        Mlx5Queues { send, sent, receive, received }
    }

    fn shared(&self, id: usize) -> QueueHandle {
        QueueHandle::new(self.network.clone(), id)
    }
}

/// Takes the event of a lane, if one was raised.
pub fn take_event(device: &mut AdapterDevice, lane: DeviceQueue) -> bool {
    let raised = device.queues_mut(lane).is_some_and(|queues| queues.received.seam_mut().take_event());
    if raised {
        device.event_received(lane);
    }
    raised
}

/// Peers are numbered as their ports.
pub const fn peer(port: u32) -> PeerId {
    PeerId(port)
}

const fn qpn(port: u32, lane: DeviceQueue) -> u32 {
    0x100 + port * 2 + lane as u32
}
