//! The state of the whole network: nodes, events, frames and memory.

use core::fmt;
use std::collections::{HashMap, HashSet};

use unisono_core::device::{DeviceEvent, DeviceQueue};
use unisono_core::ids::Rail;
use unisono_udp::fault_injection::{FaultInjector, ReorderQueue};

use super::{
    DatagramTrace, OutgoingDatagram, Step, TamperVerdict,
    adapter::Adapters,
    config::{Config, Link},
    counts::DatagramCounts,
    event_queue::{Event, EventQueue},
    frame::{FrameId, Frames, Place},
    groups::Groups,
    memory::SimRegions,
    port::{Ingress, Port},
};

/// No port, no time.
const NONE: u32 = u32::MAX;
const NEVER: u64 = u64::MAX;

/// All that an idle node costs.
#[derive(Debug)]
struct NodeState {
    incarnation: u32,
    port: u32,
    /// Of the last postings on the polled and on the interrupt lane.
    tickets: [u32; 2],
    /// When it wants to be stepped.
    wake: u64,
    /// The earliest wake-up among the events, at most `wake`.
    scheduled: u64,
    busy: u64,
    egress_free_ps: u64,
    up: bool,
    /// Rails whose link is down, as bits.
    down: u8,
}

const _: () = assert!(size_of::<NodeState>() <= 56);

/// The links of a node's further rails.
#[derive(Debug, Default)]
struct FurtherRail {
    egress_free_ps: u64,
    ingress: Ingress,
}

/// Frames that wait for later ones between two nodes.
#[derive(Debug, Default)]
pub(super) struct HeldBackFrames {
    pub(super) frames: ReorderQueue<FrameId>,
    pub(super) last_push: u64,
}

/// Sees every datagram.
pub(super) type Watch = Box<dyn FnMut(&DatagramTrace<'_>)>;
/// May change or take every datagram.
pub(super) type Tamper = Box<dyn FnMut(&mut OutgoingDatagram<'_>) -> TamperVerdict>;

/// The state that all handles share.
pub(super) struct Fabric {
    pub(super) config: Config,
    pub(super) now: u64,
    pub(super) queue: EventQueue,
    nodes: Vec<NodeState>,
    ports: Vec<Port>,
    free_ports: Vec<u32>,
    pub(super) frames: Frames,
    pub(super) stores: SimRegions,
    pub(super) random: fastrand::Rng,
    pub(super) injector: Option<FaultInjector>,
    pub(super) injectors: HashMap<u32, Option<FaultInjector>>,
    pub(super) rail_injectors: HashMap<(u32, Rail), Option<FaultInjector>>,
    pub(super) links: HashMap<(u32, Rail), Link>,
    further_rails: HashMap<(u32, Rail), FurtherRail>,
    pub(super) adapters: Adapters,
    /// The node whose first link a node uses, if it has none of its own.
    pub(super) link_owners: HashMap<u32, u32>,
    pub(super) groups: Groups,
    pub(super) held_back: HashMap<(u32, u32, Rail), HeldBackFrames>,
    pub(super) cuts: HashSet<(u32, u32)>,
    pub(super) rail_cuts: HashSet<(u32, u32, Rail)>,
    pub(super) counts: DatagramCounts,
    pub(super) watch: Option<Watch>,
    pub(super) tamper: Option<Tamper>,
}

impl fmt::Debug for Fabric {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { now, counts, .. } = self;
        to.debug_struct("Fabric").field("now", now).field("counts", counts).finish_non_exhaustive()
    }
}

impl Fabric {
    pub(super) fn new(seed: u64, config: Config) -> Self {
        assert!((1..=8).contains(&config.rails), "{} rails", config.rails);
        let mut random = fastrand::Rng::with_seed(seed);
        let injector = Self::injector(config.faults, &mut random);
        Self {
            config,
            now: 0,
            queue: EventQueue::default(),
            nodes: Vec::new(),
            ports: Vec::new(),
            free_ports: Vec::new(),
            frames: Frames::default(),
            stores: SimRegions::default(),
            random,
            injector,
            injectors: HashMap::new(),
            rail_injectors: HashMap::new(),
            links: HashMap::new(),
            further_rails: HashMap::new(),
            adapters: Adapters::default(),
            link_owners: HashMap::new(),
            groups: Groups::new(&config),
            held_back: HashMap::new(),
            cuts: HashSet::new(),
            rail_cuts: HashSet::new(),
            counts: DatagramCounts::default(),
            watch: None,
            tamper: None,
        }
    }

    pub(super) fn injector(
        faults: unisono_udp::fault_injection::Faults,
        random: &mut fastrand::Rng,
    ) -> Option<FaultInjector> {
        (!faults.is_none())
            .then(|| FaultInjector::new(unisono_udp::fault_injection::Faults { seed: random.u64(..), ..faults }))
    }

    pub(super) fn add_node(&mut self) -> u32 {
        let node = u32::try_from(self.nodes.len()).expect("fewer than 2^32 nodes");
        self.nodes.push(NodeState {
            incarnation: 0,
            port: NONE,
            tickets: [0; 2],
            wake: NEVER,
            scheduled: NEVER,
            busy: 0,
            egress_free_ps: 0,
            up: true,
            down: 0,
        });
        node
    }

    pub(super) const fn len(&self) -> usize {
        self.nodes.len()
    }

    fn node(&self, node: u32) -> &NodeState {
        &self.nodes[node as usize]
    }

    fn node_mut(&mut self, node: u32) -> &mut NodeState {
        &mut self.nodes[node as usize]
    }

    pub(super) fn exists(&self, node: u32) -> bool {
        (node as usize) < self.nodes.len()
    }

    pub(super) fn incarnation(&self, node: u32) -> u32 {
        self.node(node).incarnation
    }

    /// Whether this is the current incarnation of the node.
    pub(super) fn is_current(&self, node: u32, incarnation: u32) -> bool {
        self.node(node).incarnation == incarnation && self.node(node).up
    }

    pub(super) fn is_up(&self, node: u32) -> bool {
        self.node(node).up
    }

    pub(super) fn is_linked(&self, node: u32, rail: Rail) -> bool {
        self.node(node).down & 1 << rail.0 == 0
    }

    pub(super) fn link(&self, node: u32, rail: Rail) -> Link {
        self.links.get(&(node, rail)).copied().unwrap_or(self.config.link)
    }

    pub(super) fn rails(&self) -> impl Iterator<Item = Rail> + use<> {
        (0..self.config.rails).map(Rail)
    }

    pub(super) fn ticket_mut(&mut self, node: u32, lane: DeviceQueue) -> &mut u32 {
        &mut self.node_mut(node).tickets[lane as usize]
    }

    pub(super) fn ticket(&self, node: u32, lane: DeviceQueue) -> u32 {
        self.node(node).tickets[lane as usize]
    }

    /// The node whose first link this one uses.
    pub(super) fn link_owner(&self, node: u32) -> u32 {
        self.link_owners.get(&node).copied().unwrap_or(node)
    }

    /// When a frame that occupies the node's egress link for `ps` picoseconds has left.
    pub(super) fn leave_ps(&mut self, node: u32, rail: Rail, ps: u64) -> u64 {
        let now_ps = self.now * 1000;
        let free_ps = match rail {
            Rail(0) => {
                let owner = self.link_owner(node);
                &mut self.node_mut(owner).egress_free_ps
            }
            _ => &mut self.further_rails.entry((node, rail)).or_default().egress_free_ps,
        };
        *free_ps = now_ps.max(*free_ps) + ps;
        *free_ps
    }

    /// The largest datagram from one node to another, checksum excluded.
    pub(super) fn path_mtu(&self, from: u32, to: u32) -> u32 {
        match &self.config.adapter {
            Some(cost) if !self.adapters.are_connected(from, to) => self.config.mtu.min(cost.packet),
            _ => self.config.mtu,
        }
    }

    /// The rail's link towards a node.
    pub(super) fn ingress_mut(&mut self, node: u32, rail: Rail) -> &mut Ingress {
        match rail {
            Rail(0) => &mut self.port_mut(self.link_owner(node)).ingress,
            _ => &mut self.further_rails.entry((node, rail)).or_default().ingress,
        }
    }

    pub(super) fn port(&self, node: u32) -> Option<&Port> {
        self.ports.get(self.node(node).port as usize)
    }

    pub(super) fn active_port(&mut self, node: u32) -> Option<&mut Port> {
        self.ports.get_mut(self.nodes[node as usize].port as usize)
    }

    /// The node's port, made if it was idle.
    pub(super) fn port_mut(&mut self, node: u32) -> &mut Port {
        let mut port = self.node(node).port;
        if port == NONE {
            port = self.free_ports.pop().unwrap_or_else(|| {
                self.ports.push(Port::default());
                (self.ports.len() - 1) as u32
            });
            self.node_mut(node).port = port;
        }
        &mut self.ports[port as usize]
    }

    /// Releases the port if the node is idle.
    pub(super) fn release_port(&mut self, node: u32) {
        let port = self.node(node).port;
        if port != NONE && self.ports[port as usize].is_idle() {
            self.node_mut(node).port = NONE;
            self.free_ports.push(port);
        }
    }

    pub(super) const fn ports_in_use(&self) -> usize {
        self.ports.len() - self.free_ports.len()
    }

    /// Steps the node at `at` at the latest.
    pub(super) fn wake_at(&mut self, node: u32, at: u64) {
        let at = at.max(self.now);
        let entry = self.node_mut(node);
        entry.wake = entry.wake.min(at);
        if entry.wake < entry.scheduled {
            entry.scheduled = entry.wake;
            let at = entry.wake;
            self.queue.push(at, Event::Wake(node));
        }
    }

    pub(super) fn busy(&mut self, node: u32, until: u64) {
        self.node_mut(node).busy = until;
    }

    /// Processes events up to `deadline` until one concerns a node.
    pub(super) fn step(&mut self, deadline: u64) -> Option<Step> {
        while let Some((at, event)) = self.queue.pop(deadline) {
            if matches!(event, Event::Wake(node) if self.node(node).scheduled != at) {
                continue;
            }
            self.now = at;
            let step = match event {
                Event::Reach(frame) => self.reach(frame),
                Event::Arrive(frame) => self.leave_queue(frame),
                Event::Processed { frame, engine } => self.leave_adapter(frame, engine),
                Event::Wake(node) => self.wake(node),
                Event::Complete { node, incarnation, lane, postings } => {
                    self.complete(node, incarnation, lane, postings)
                }
                Event::Idle { from, to, rail } => {
                    self.release_held_back(from, to, rail);
                    None
                }
            };
            if step.is_some() {
                return step;
            }
        }
        None
    }

    fn wake(&mut self, node: u32) -> Option<Step> {
        let now = self.now;
        let entry = self.node_mut(node);
        entry.scheduled = NEVER;
        if entry.wake > now {
            let wake = core::mem::replace(&mut entry.wake, NEVER);
            if wake != NEVER {
                self.wake_at(node, wake);
            }
            return None;
        }
        entry.wake = NEVER;
        self.notify(node)
    }

    /// Something happened that the node should see: now, or when it is no longer busy.
    pub(super) fn notify(&mut self, node: u32) -> Option<Step> {
        let NodeState { busy, up, .. } = *self.node(node);
        if !up {
            return None;
        }
        if busy > self.now {
            self.wake_at(node, busy);
            return None;
        }
        Some(self.step_of(node, DeviceQueue::Polled))
    }

    pub(super) const fn step_of(&self, node: u32, lane: DeviceQueue) -> Step {
        Step { at: self.now, node: super::NodeId(node), lane }
    }

    pub(super) fn crash(&mut self, node: u32) {
        if !self.is_up(node) {
            return;
        }
        let entry = self.node_mut(node);
        entry.up = false;
        entry.incarnation = entry.incarnation.wrapping_add(1);
        entry.wake = NEVER;
        entry.busy = 0;
        entry.tickets = [0; 2];
        self.stores.retire_all(node);
        self.groups.leave_all(node);
        let Some(port) = self.active_port(node) else { return };
        // The link before the node is not part of it.
        *port = Port { ingress: port.ingress, ..Port::default() };
        self.release_port(node);
        for id in self.frames.of(node, |place| place != Place::Flying) {
            self.frames.give_back(id);
        }
    }

    pub(super) fn restart(&mut self, node: u32) {
        self.crash(node);
        self.adapters.forget_contexts(node);
        self.node_mut(node).up = true;
    }

    pub(super) fn set_linked(&mut self, node: u32, rail: Rail, linked: bool) {
        if self.is_linked(node, rail) == linked {
            return;
        }
        self.node_mut(node).down ^= 1 << rail.0;
        if self.is_up(node) {
            self.port_mut(node).facts.push_back(if linked { DeviceEvent::Up(rail) } else { DeviceEvent::Down(rail) });
            let now = self.now;
            self.wake_at(node, now);
        }
    }
}
