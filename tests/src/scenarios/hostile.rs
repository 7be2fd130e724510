//! Two processes exchange messages and placements over a network that damages, replays and forges datagrams.
//!
//! Two phases, each until a given number of datagrams were damaged or made of random bytes. [`noise`]: datagrams are
//! damaged in transit and the device's check, a real CRC-32C, drops them; then everything must arrive, once, in order,
//! unchanged. [`lies`]: damaged datagrams carry a correct check, earlier ones are replayed, also those of earlier
//! incarnations, and random bytes are injected; then bytes may be wrong, but nothing may panic, nothing may be written
//! outside what was granted, every operation ends within a bound of virtual time, and every datagram is counted once.

mod choices;
mod damage;
mod remote_access;
mod user;

use alloc::rc::Rc;
use core::cell::RefCell;

use unisono_core::device::DeviceQueue;
use unisono_core::endpoint::Event;

pub use self::choices::Choices;
use self::damage::{AttackStyle, Attacker};
pub use self::remote_access::{rma_lies, rma_noise};
use self::user::User;
use crate::sim::node::SimProcess;
use crate::sim::{Config, Network, NodeId, TamperVerdict};

/// Virtual nanoseconds within which every operation ends: 16 probes half a second apart, a silence of 2 s, and their
/// repetition when the notice is lost.
pub const BOUND_NS: u64 = 30_000_000_000;

/// Segments of a window.
const WINDOW: usize = 64;

/// Counts of a run. All violations are zero in a run that passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Datagrams that were sent, or made by the attacker.
    pub datagrams: u64,
    /// Of those, handed to an endpoint.
    pub handed: u64,
    /// Of those, damaged: with a broken check (noise) or a correct one (lies).
    pub damaged: u64,
    /// Of those, random bytes with a correct check.
    pub random: u64,
    /// Datagrams that a device's check dropped.
    pub checked: u64,
    /// Sum of the endpoints' counters of arrivals.
    pub counted: u64,
    /// Operations and grants that ended.
    pub ended: u64,
    /// Of those, without an error.
    pub succeeded: u64,
    /// Requests of remote memory access that were refused.
    pub refused: u64,
    /// Incarnations that ended early on either side.
    pub restarts: u64,
    /// Virtual nanoseconds that the slowest operation took.
    pub slowest_ns: u64,
    /// Violation: messages or placements with other bytes, out of order, or more than once (phase of noise only).
    pub corrupt: u64,
    /// Violation: bytes changed outside what was granted, or after its end.
    pub outside: u64,
    /// Violation: operations that did not end within the bound, ended twice, or outlived their peer.
    pub endless: u64,
}

impl Outcome {
    /// Whether nothing was violated.
    pub const fn is_clean(&self) -> bool {
        self.corrupt == 0 && self.outside == 0 && self.endless == 0 && self.handed == self.counted
    }

    /// The sums of two runs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            datagrams: self.datagrams + other.datagrams,
            handed: self.handed + other.handed,
            damaged: self.damaged + other.damaged,
            random: self.random + other.random,
            checked: self.checked + other.checked,
            counted: self.counted + other.counted,
            ended: self.ended + other.ended,
            succeeded: self.succeeded + other.succeeded,
            refused: self.refused + other.refused,
            restarts: self.restarts + other.restarts,
            slowest_ns: self.slowest_ns.max(other.slowest_ns),
            corrupt: self.corrupt + other.corrupt,
            outside: self.outside + other.outside,
            endless: self.endless + other.endless,
        }
    }
}

/// Half of the datagrams are damaged, which the check notices, until `damaged` were or the choices are used up.
pub fn noise(choices: Choices, damaged: u64) -> Outcome {
    HostileRun::new(choices, AttackStyle::Noise).run(damaged)
}

/// A quarter of the datagrams are damaged with a correct check; one in eight is followed by a former one, one in
/// sixteen by random bytes; until `damaged` were damaged or random, or the choices are used up.
pub fn lies(choices: Choices, damaged: u64) -> Outcome {
    HostileRun::new(choices, AttackStyle::Lies).run(damaged)
}

struct HostileRun {
    network: Network,
    style: AttackStyle,
    attacker: Rc<RefCell<Attacker>>,
    nodes: Vec<SimProcess<WINDOW>>,
    users: Vec<User>,
    incarnations: u32,
    outcome: Outcome,
}

impl HostileRun {
    fn new(choices: Choices, style: AttackStyle) -> Self {
        let network = Network::new(7, Config::default());
        network.add_node();
        network.add_node();
        let attacker = Rc::new(RefCell::new(Attacker::new(choices, style)));
        let tamper = Rc::clone(&attacker);
        network.tamper(
            move |passing| if tamper.borrow_mut().passes(passing) { TamperVerdict::Pass } else { TamperVerdict::Take },
        );
        let mut world = Self {
            network,
            style,
            attacker,
            nodes: Vec::new(),
            users: Vec::new(),
            incarnations: 0,
            outcome: Outcome::default(),
        };
        world.start();
        world
    }

    /// Starts a new incarnation of both processes.
    fn start(&mut self) {
        self.incarnations += 1;
        let incarnation = |node: u32| 0x9e37_79b9_u32.wrapping_mul(self.incarnations * 2 + node);
        self.nodes = (0..2)
            .map(|i| {
                SimProcess::new(&self.network, NodeId(i), incarnation(i), |_, sizes| {
                    (sizes.windows, sizes.operations, sizes.placements, sizes.control_messages) = (2, 32, 8, 16);
                })
            })
            .collect();
        for i in 0..2 {
            self.nodes[i as usize].add_peer(NodeId(1 - i), incarnation(1 - i));
        }
        self.users = self.nodes.iter_mut().map(User::new).collect();
    }

    /// Ends both processes and adds their counters.
    fn stop(&mut self) {
        for i in 0..2 {
            let events = self.nodes[i].drive(DeviceQueue::Polled);
            self.handle_events(i, events);
            self.users[i].end_grants(&mut self.nodes[i], &mut self.outcome);
            self.users[i].check_unwritable_memory(&self.nodes[i], &mut self.outcome);
            self.outcome.counted += self.nodes[i].inbox.counters.arrivals();
            self.network.restart(NodeId(i as u32));
        }
    }

    fn run(mut self, damaged: u64) -> Outcome {
        loop {
            let going_on = self.attacker.borrow().goes_on(damaged);
            if !going_on && self.users.iter().all(User::is_done) {
                break;
            }
            let Some(step) = self.network.step() else { break };
            let i = step.node.0 as usize;
            let events = self.nodes[i].drive(step.lane);
            self.handle_events(i, events);
            if self.style == AttackStyle::Lies {
                self.users[i].expire_grants(&mut self.nodes[i], self.network.now(), &mut self.outcome);
            }
            self.users[i].take_messages(&mut self.nodes[i], self.style, &mut self.outcome);
            if self.users.iter().all(|user| user.has_lost_its_peer) {
                self.stop();
                self.outcome.restarts += 1;
                if !going_on {
                    return self.sum_up();
                }
                self.start();
                continue;
            }
            if going_on {
                self.submit(i);
                self.attacker.borrow_mut().invent();
            }
            self.forge();
            let overdue = |user: &User| user.is_overdue(self.network.now());
            if self.users.iter().any(overdue) {
                self.outcome.endless += 1;
                break;
            }
        }
        self.stop();
        self.sum_up()
    }

    fn sum_up(mut self) -> Outcome {
        let counts = self.network.counts();
        let attacker = self.attacker.borrow();
        self.outcome.datagrams = counts.sent + counts.forged;
        self.outcome.handed = counts.delivered;
        self.outcome.damaged = attacker.damaged;
        self.outcome.random = attacker.random;
        self.outcome.checked = attacker.checked;
        self.outcome
    }

    /// New messages and placements from this side, and a grant to the other one.
    fn submit(&mut self, i: usize) {
        let now = self.network.now();
        let choice = self.attacker.borrow_mut().choices.word();
        self.users[i].send(&mut self.nodes[i], now, choice);
        let peer = 1 - i;
        if let Some(offer) = self.users[i].grant(&mut self.nodes[i], now, choice >> 16) {
            self.users[peer].place(&mut self.nodes[peer], now, &offer);
        }
    }

    fn forge(&self) {
        let forgeries = core::mem::take(&mut self.attacker.borrow_mut().forgeries);
        for forgery in forgeries {
            self.network.forge(NodeId(forgery.from), NodeId(forgery.to), DeviceQueue::Polled, &forgery.bytes);
        }
    }

    fn handle_events(&mut self, i: usize, events: Vec<Event>) {
        let now = self.network.now();
        for event in events {
            match event {
                Event::Completed(operation, result) => {
                    self.users[i].complete(operation, result.is_ok(), now, &mut self.outcome);
                }
                Event::Delivered(placement, bytes) => {
                    let node = &self.nodes[i];
                    self.users[i].deliver(node, placement, bytes, self.style, now, &mut self.outcome);
                }
                // Under noise an answering peer proves that the other process is alive.
                Event::PeerSilent(peer) if self.style == AttackStyle::Lies => {
                    self.nodes[i].endpoint.fail(now, peer);
                    self.nodes[i].wake();
                }
                Event::PeerSilent(_) => {}
                Event::PeerFailed(_) | Event::PeerFinished(_) => {
                    self.users[i].lose_peer(&mut self.nodes[i], &mut self.outcome);
                }
            }
        }
    }
}
