//! Measures the repair time of lost datagrams, in round trips of the simulated network.
//!
//! The clock starts when the original leaves its sender and stops when a copy reaches the receiver's device. Half a
//! round trip each is unavoidable for something later to arrive, for the NACK, and for the copy: 1.5 in all.

mod recording_device;
pub mod udp;

use alloc::rc::Rc;
use core::{cell::RefCell, num::NonZeroU64};
use std::collections::HashMap;

use unisono_core::counters::Counters;
use unisono_core::device::TxReason;
use unisono_core::endpoint::Event;
use unisono_core::span::Span;
use unisono_core::wire::Header;

use crate::sim::node::{SimProcess, job};
use crate::sim::{Config, DatagramFate, DatagramTrace, Link, Network, NodeId, OutgoingDatagram, TamperVerdict};

/// Nanoseconds of a round trip of the empty network.
pub const ROUND_TRIP_NS: u64 = 10_000;
/// Bytes of a message's payload.
const PAYLOAD: u32 = 1024;
/// 400 Gbit/s: a whole window fits in a round trip. On a slower link the queue that the window leaves there adds to
/// every time, repaired or not.
const RATE: u64 = 50_000_000_000;

/// Bursts before the first loss: the estimators know the path.
const WARM_UP: usize = 20;

const SENDER: NodeId = NodeId(0);
const RECEIVER: NodeId = NodeId(1);
/// As in processes.
const WINDOW: usize = 256;

/// The measurements.
#[derive(Clone, Debug)]
pub struct Repairs {
    /// Nanoseconds from the lost original's departure to a copy's arrival, in order of repair.
    pub times_ns: Vec<u64>,
    /// Losses that were never repaired.
    pub unrepaired: usize,
    /// Messages delivered, all in order.
    pub delivered: u32,
    /// The sender's counters.
    pub counters: Counters,
}

/// The lost originals, and the times of their loss.
#[derive(Debug, Default)]
struct Losses {
    /// Originals that pass before the next is lost; `None`: no more losses.
    pass: Option<u32>,
    missing: HashMap<u32, u64>,
    times_ns: Vec<u64>,
}

impl Losses {
    fn passes(&mut self, passing: &OutgoingDatagram<'_>) -> TamperVerdict {
        let (Some(TxReason::First), RECEIVER, Some(left)) = (passing.cause, passing.to, self.pass) else {
            return TamperVerdict::Pass;
        };
        self.pass = left.checked_sub(1);
        let Ok(header) = Header::<32>::parse(passing.bytes) else { return TamperVerdict::Pass };
        if left > 0 {
            return TamperVerdict::Pass;
        }
        self.missing.insert(header.psn, passing.at);
        TamperVerdict::Take
    }

    fn observe(&mut self, sighting: &DatagramTrace<'_>) {
        if (sighting.what, sighting.to) != (DatagramFate::Delivered, RECEIVER) || sighting.cause.is_none_or(is_control)
        {
            return;
        }
        if let Ok(header) = Header::<32>::parse(sighting.head)
            && let Some(since) = self.missing.remove(&header.psn)
        {
            self.times_ns.push(sighting.at - since);
        }
    }
}

const fn is_control(cause: TxReason) -> bool {
    matches!(cause, TxReason::Probe | TxReason::Acknowledge | TxReason::Control)
}

struct RepairBench {
    network: Network,
    nodes: Vec<SimProcess<WINDOW>>,
    losses: Rc<RefCell<Losses>>,
    payload: Span,
    sent: u32,
    completed: u32,
    delivered: u32,
}

impl RepairBench {
    fn new(seed: u64) -> Self {
        let rate = NonZeroU64::new(RATE);
        let link = Link { egress_bytes_per_s: rate, propagation_ns: ROUND_TRIP_NS / 2, ..Link::default() };
        let network = Network::new(seed, Config { link, receive_slots: 1024, holdable: 1024, ..Config::default() });
        let mut nodes = job::<WINDOW>(&network, 2, |_, _| {});
        let region = nodes[0].memory.make(PAYLOAD as usize);
        let losses: Rc<RefCell<Losses>> = Rc::default();
        let (passes, sees) = (Rc::clone(&losses), Rc::clone(&losses));
        network.tamper(move |passing| passes.borrow_mut().passes(passing));
        network.watch(move |sighting| sees.borrow_mut().observe(sighting));
        let payload = Span { region, offset: 0, bytes: PAYLOAD };
        Self { network, nodes, losses, payload, sent: 0, completed: 0, delivered: 0 }
    }

    fn send(&mut self) -> bool {
        let node = &mut self.nodes[0];
        let head = self.sent.to_le_bytes();
        let taken = node.endpoint.send(self.network.now(), RECEIVER.into(), &head, Some(self.payload)).is_ok();
        self.sent += u32::from(taken);
        taken
    }

    /// Runs until the deadline, or until `done` returns true after a step. Returns whether it did.
    fn run(&mut self, deadline: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        while let Some(step) = self.network.step_until(deadline) {
            let node = &mut self.nodes[step.node.0 as usize];
            let events = node.drive(step.lane);
            self.completed += events.iter().filter(|event| matches!(event, Event::Completed(_, Ok(())))).count() as u32;
            for (_, bytes) in node.take_messages() {
                assert_eq!(bytes.get(..4), Some(&self.delivered.to_le_bytes()[..]), "in order");
                self.delivered += 1;
            }
            if done(self) {
                return true;
            }
        }
        false
    }

    fn finish(self) -> Repairs {
        let losses = self.losses.borrow();
        Repairs {
            times_ns: losses.times_ns.clone(),
            unrepaired: losses.missing.len(),
            delivered: self.delivered,
            counters: self.nodes[SENDER.0 as usize].inbox.counters,
        }
    }
}

/// A stream of messages back to back, of which `losses` single ones are lost, 300 to 600 datagrams apart.
pub fn stream(seed: u64, losses: usize) -> Repairs {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bench = RepairBench::new(seed);
    // A warm-up: the estimators know the path.
    bench.losses.borrow_mut().pass = Some(2000);
    let deadline = 1_000_000_000 + losses as u64 * 1_000_000;
    bench.nodes[0].wake();
    let lost = |bench: &RepairBench| bench.losses.borrow().times_ns.len();
    bench.run(deadline, |bench| {
        let before = bench.sent;
        while bench.sent - bench.completed < 1024 && lost(bench) < losses && bench.send() {}
        if bench.sent > before {
            bench.nodes[0].wake();
        }
        let mut at = bench.losses.borrow_mut();
        if at.pass.is_none() && at.missing.is_empty() && at.times_ns.len() < losses {
            at.pass = Some(random.u32(300..600));
        }
        drop(at);
        lost(bench) >= losses && bench.completed == bench.sent
    });
    bench.finish()
}

/// Bursts of 1 to 64 messages, back to back, of which the last one's original is lost.
pub fn tail(seed: u64, bursts: usize) -> Repairs {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bench = RepairBench::new(seed);
    for burst in 0..WARM_UP + bursts {
        let count = random.u32(1..=64);
        if burst >= WARM_UP {
            bench.losses.borrow_mut().pass = Some(count - 1);
        }
        for _ in 0..count {
            bench.send();
        }
        bench.nodes[0].wake();
        let deadline = bench.network.now() + 1_000_000_000;
        if !bench.run(deadline, |bench| bench.completed == bench.sent) {
            break;
        }
        let pause = bench.network.now() + random.u64(20_000..200_000);
        bench.run(pause, |_| false);
    }
    bench.finish()
}
