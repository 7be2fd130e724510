//! The one simulated network: virtual time, seeded faults, a million endpoints in one process.
//!
//! A [`Network`] is a star: each node has an egress link and an ingress link with a finite queue before it, and a
//! device with receive slots behind it. [`Network::step`] jumps to the next event that concerns a node and names the
//! node; the harness then drives that node with its [`SimDevice`] and [`SimMemory`] and schedules its next step
//! ([`Network::wake_at`]). Idle nodes cost 56 bytes and no time. Equal seeds and equal calls give equal runs.
//!
//! A node has one link of each kind per rail ([`Config::rails`]); a datagram to a group leaves once, over the first rail,
//! and a copy of it takes the rest of the way to each other member, with faults of its own.
//!
//! The way of a datagram: `flush` → adapter → egress link → faults (the injector of [`unisono_udp::fault_injection`], cuts,
//! links that are down) → propagation → queue → ingress link → adapter → checksum → slot. Adapters cost nothing unless
//! [`Config::adapter`] says what; between nodes [with connections](Network::set_connections), datagrams take those, each
//! of which has a context in the caches of both adapters.
//!
//! # Example
//! ```
//! use unisono_core::device::{Device, DeviceQueue, Received, Token, Transmit, TxReason};
//! use unisono_core::ids::{PeerId, Rail};
//! use unisono_tests::sim::{Config, Network};
//!
//! let network = Network::new(7, Config::default());
//! let (here, there) = (network.add_node(), network.add_node());
//! let mut device = network.device(here);
//! let queue = DeviceQueue::Polled;
//! let reason = TxReason::First;
//! let transmit =
//!     Transmit { to: PeerId(there.0).into(), queue, header_bytes: 3, payload: None, solicited: false, reason };
//! let mut token = device.token(queue).unwrap();
//! token.header_room()[..3].copy_from_slice(b"one");
//! token.post(&transmit, None);
//! device.flush(queue);
//!
//! let step = network.step().unwrap();
//! assert_eq!((step.at, step.node), (5_000, there));
//! assert_eq!(network.device(there).receive(queue).unwrap().prefix(), b"one");
//! ```

mod adapter;
mod config;
pub mod context_cache;
mod counts;
mod device;
pub mod ethernet_hub;
mod event_queue;
mod fabric;
mod frame;
mod groups;
mod memory;
pub mod node;
mod port;
mod subnet_manager;
mod transit;

#[cfg(test)]
mod tests;

use alloc::rc::Rc;
use core::cell::RefCell;

use unisono_core::device::{DeviceQueue, TxReason};
use unisono_core::ids::{PeerId, Rail};
use unisono_udp::fault_injection::Faults;

pub use self::{
    adapter::AdapterCost,
    config::{CHECKSUM, Completion, Config, Link},
    counts::{DatagramCounts, Dropped},
    device::{SimDevice, SimReceived, SimToken},
    memory::{SimAddress, SimMemory},
    subnet_manager::SubnetDelays,
};
use self::{
    fabric::Fabric,
    frame::{Frame, Place},
};

/// A node, by its index. Devices know it as the peer of the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl From<NodeId> for PeerId {
    fn from(node: NodeId) -> Self {
        Self(node.0)
    }
}

/// A node should be driven now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The time, in nanoseconds.
    pub at: u64,
    /// The node.
    pub node: NodeId,
    /// [`DeviceQueue::Interrupt`]: the event asked for on that lane was raised; the node may be busy otherwise.
    pub lane: DeviceQueue,
}

/// An event of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramFate {
    /// It was flushed.
    Sent,
    /// It reached a receive slot.
    Delivered,
    /// It never will.
    Dropped(Dropped),
}

/// A datagram at one point of its way.
#[derive(Clone, Copy, Debug)]
pub struct DatagramTrace<'a> {
    /// The time, in nanoseconds.
    pub at: u64,
    /// What happened.
    pub what: DatagramFate,
    /// Its sender, as its address says.
    pub from: NodeId,
    /// Its receiver.
    pub to: NodeId,
    /// Its rail.
    pub rail: Rail,
    /// Why it was sent; `None` when it was forged.
    pub cause: Option<TxReason>,
    /// Its first bytes, as [`Received::prefix`](unisono_core::device::Received::prefix) shows them.
    pub head: &'a [u8],
    /// Its length, checksum excluded.
    pub bytes: u32,
}

/// A datagram that leaves, for [`Network::tamper`].
#[derive(Debug)]
pub struct OutgoingDatagram<'a> {
    /// The time, in nanoseconds.
    pub at: u64,
    /// Its sender.
    pub from: NodeId,
    /// Its receiver.
    pub to: NodeId,
    /// Why it is sent; `None` when it was forged.
    pub cause: Option<TxReason>,
    /// Header and payload. The checksum does not detect changes made here.
    pub bytes: &'a mut Vec<u8>,
}

/// Decision about a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TamperVerdict {
    /// It is forwarded.
    Pass,
    /// It is lost.
    Take,
}

/// A simulated network. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Network {
    fabric: Rc<RefCell<Fabric>>,
}

impl Network {
    /// A network without nodes, at time 0.
    pub fn new(seed: u64, config: Config) -> Self {
        Self { fabric: Rc::new(RefCell::new(Fabric::new(seed, config))) }
    }

    /// One more node, up and linked.
    pub fn add_node(&self) -> NodeId {
        NodeId(self.fabric.borrow_mut().add_node())
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.fabric.borrow().len()
    }

    /// The device of the node's present incarnation. Handles are cheap; make one when the node is driven.
    pub fn device(&self, node: NodeId) -> SimDevice {
        SimDevice::new(Rc::clone(&self.fabric), node)
    }

    /// The memory of the node.
    pub fn memory(&self, node: NodeId) -> SimMemory {
        SimMemory::new(Rc::clone(&self.fabric), node)
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.fabric.borrow().now
    }

    /// Jumps to the next event that concerns a node: an arrival, a completion, a fact, a wake-up. `None`: nothing will
    /// ever happen again.
    pub fn step(&self) -> Option<Step> {
        self.fabric.borrow_mut().step(u64::MAX)
    }

    /// As [`step`](Self::step), but not beyond `deadline`, at which the clock stops when nothing concerns a node until
    /// then.
    pub fn step_until(&self, deadline: u64) -> Option<Step> {
        let mut fabric = self.fabric.borrow_mut();
        let step = fabric.step(deadline);
        if step.is_none() {
            fabric.now = fabric.now.max(deadline);
        }
        step
    }

    /// Schedules a step of the node at `at` (or now, if that is past) at the latest. Of several times the earliest
    /// counts; a step for any other reason leaves it standing.
    pub fn wake_at(&self, node: NodeId, at: u64) {
        self.fabric.borrow_mut().wake_at(node.0, at);
    }

    /// The node computes until then: whatever concerns it is put off, except events of its interrupt lane.
    pub fn busy(&self, node: NodeId, until: u64) {
        self.fabric.borrow_mut().busy(node.0, until);
    }

    /// Gives a node other links than [`Config::link`], on all rails.
    pub fn set_link(&self, node: NodeId, link: Link) {
        let fabric = &mut *self.fabric.borrow_mut();
        fabric.links.extend(fabric.rails().map(|rail| ((node.0, rail), link)));
    }

    /// Connects a node by the first link of another one, as the processes of a host: their datagrams follow each other on
    /// it, and a datagram to a group comes once for each of them. Before either has sent anything.
    ///
    /// # Panics
    /// The network has adapters that cost something: nodes do not share those.
    pub fn share_link(&self, node: NodeId, of: NodeId) {
        let fabric = &mut *self.fabric.borrow_mut();
        assert!(fabric.config.adapter.is_none(), "nodes share no adapters that cost something");
        fabric.link_owners.insert(node.0, of.0);
    }

    /// Gives a node another link on one rail.
    pub fn set_rail_link(&self, node: NodeId, rail: Rail, link: Link) {
        self.fabric.borrow_mut().links.insert((node.0, rail), link);
    }

    /// Has frames towards a node suffer other faults than [`Config::faults`].
    pub fn set_faults(&self, towards: NodeId, faults: Faults) {
        let fabric = &mut *self.fabric.borrow_mut();
        let injector = Fabric::injector(faults, &mut fabric.random);
        fabric.injectors.insert(towards.0, injector);
    }

    /// Has frames towards a node over one rail suffer other faults than those of the node.
    pub fn set_rail_faults(&self, towards: NodeId, rail: Rail, faults: Faults) {
        let fabric = &mut *self.fabric.borrow_mut();
        let injector = Fabric::injector(faults, &mut fabric.random);
        fabric.rail_injectors.insert((towards.0, rail), injector);
    }

    /// Has all frames suffer other faults than before, except towards nodes with faults of their own.
    pub fn set_all_faults(&self, faults: Faults) {
        let fabric = &mut *self.fabric.borrow_mut();
        fabric.injector = Fabric::injector(faults, &mut fabric.random);
    }

    /// Gives two nodes this number of reliable connections with each other, over which their datagrams go in turn, in
    /// each direction. Faults and finite queues lose datagrams there, too. 0: they have datagrams only.
    pub fn set_connections(&self, one: NodeId, other: NodeId, count: u32) {
        self.fabric.borrow_mut().adapters.connect(one.0, other.0, count);
    }

    /// Bytes of the largest datagram from one node to another, checksum excluded: [`Config::mtu`], but with adapters and
    /// without connections a packet.
    pub fn path_mtu(&self, from: NodeId, to: NodeId) -> u32 {
        self.fabric.borrow().path_mtu(from.0, to.0)
    }

    /// Uses of contexts that were not in the cache of the node's adapters.
    pub fn context_misses(&self, node: NodeId) -> u64 {
        self.fabric.borrow().adapters.misses(node.0)
    }

    /// Drops all datagrams that `from` flushes to `to` from now on. One way only.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.fabric.borrow_mut().cuts.insert((from.0, to.0));
    }

    /// Undoes a [`cut`](Self::cut).
    pub fn restore(&self, from: NodeId, to: NodeId) {
        self.fabric.borrow_mut().cuts.remove(&(from.0, to.0));
    }

    /// As [`cut`](Self::cut), of one rail.
    pub fn cut_rail(&self, from: NodeId, to: NodeId, rail: Rail) {
        self.fabric.borrow_mut().rail_cuts.insert((from.0, to.0, rail));
    }

    /// Undoes a [`cut_rail`](Self::cut_rail).
    pub fn restore_rail(&self, from: NodeId, to: NodeId, rail: Rail) {
        self.fabric.borrow_mut().rail_cuts.remove(&(from.0, to.0, rail));
    }

    /// Cuts all ways between the two sides.
    pub fn partition(&self, one: &[NodeId], other: &[NodeId]) {
        for &left in one {
            for &right in other {
                self.cut(left, right);
                self.cut(right, left);
            }
        }
    }

    /// Undoes all cuts.
    pub fn restore_all(&self) {
        let fabric = &mut *self.fabric.borrow_mut();
        fabric.cuts.clear();
        fabric.rail_cuts.clear();
    }

    /// Takes a node's links down or up; its device reports the facts. Datagrams that reach it meanwhile are lost.
    pub fn set_linked(&self, node: NodeId, linked: bool) {
        let fabric = &mut *self.fabric.borrow_mut();
        fabric.rails().for_each(|rail| fabric.set_linked(node.0, rail, linked));
    }

    /// As [`set_linked`](Self::set_linked), of one rail.
    pub fn set_rail_linked(&self, node: NodeId, rail: Rail, linked: bool) {
        self.fabric.borrow_mut().set_linked(node.0, rail, linked);
    }

    /// Crashes the node's process: its device stops, its memory is gone, and no peer is notified.
    pub fn crash(&self, node: NodeId) {
        self.fabric.borrow_mut().crash(node.0);
    }

    /// A new process under the same address, with a device of its own. Datagrams to the former one may still arrive.
    pub fn restart(&self, node: NodeId) -> SimDevice {
        self.fabric.borrow_mut().restart(node.0);
        self.device(node)
    }

    /// Sends a datagram that no device sent, with a correct checksum and any sender's address.
    pub fn forge(&self, from: NodeId, to: NodeId, lane: DeviceQueue, bytes: &[u8]) {
        let fabric = &mut *self.fabric.borrow_mut();
        let id = fabric.frames.take();
        let frame = &mut fabric.frames[id];
        let mut kept = core::mem::take(&mut frame.bytes);
        kept.extend_from_slice(bytes);
        let place = Place::Flying;
        *frame = Frame { bytes: kept, from: from.0, to: to.0, lane, place, ..Frame::default() };
        fabric.counts.forged += 1;
        fabric.depart(id);
    }

    /// Shows every datagram when it is sent, delivered or dropped. `watch` must not use the network.
    pub fn watch(&self, watch: impl FnMut(&DatagramTrace<'_>) + 'static) {
        self.fabric.borrow_mut().watch = Some(Box::new(watch));
    }

    /// Lets the harness change or take each datagram as it leaves. `tamper` must not use the network.
    pub fn tamper(&self, tamper: impl FnMut(&mut OutgoingDatagram<'_>) -> TamperVerdict + 'static) {
        self.fabric.borrow_mut().tamper = Some(Box::new(tamper));
    }

    /// Counts of all datagrams.
    pub fn counts(&self) -> DatagramCounts {
        self.fabric.borrow().counts
    }

    /// Datagrams that are on their way or that a device has not released.
    pub fn in_flight(&self) -> usize {
        self.fabric.borrow().frames.in_use()
    }

    /// Nodes that are not idle: they have a datagram, an unfinished posting or an armed lane.
    pub fn active_nodes(&self) -> usize {
        self.fabric.borrow().ports_in_use()
    }
}
