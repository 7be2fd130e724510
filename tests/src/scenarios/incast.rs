//! Incast: many senders, one receiver with few slots after one link, under credit-based flow control.

use alloc::rc::Rc;
use core::{cell::RefCell, num::NonZeroU64};

use unisono_core::device::TxReason;
use unisono_core::endpoint::operation::EnqueueError;
use unisono_core::ids::Psn;
use unisono_core::span::Span;
use unisono_core::wire::Header;

use crate::sim::node::{SimProcess, job};
use crate::sim::{Config, DatagramFate, DatagramTrace, Link, Network, NodeId};

const RECEIVER: NodeId = NodeId(0);
/// Segments of a window.
const WINDOW: usize = 64;
/// Messages that each sender keeps in its queue.
const BACKLOG: u32 = 16;

/// One incast.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// How many send to one.
    pub senders: u32,
    /// The receiver's slots.
    pub slots: u32,
    /// Datagrams that fit in the queue before the last link.
    pub queue: u32,
    /// Bytes of a message's payload; a message is one datagram.
    pub payload: u32,
    /// Rate of the receiver's link.
    pub bits_per_s: u64,
    /// Nanoseconds that the receiver computes after each look at its device.
    pub busy_ns: u64,
    /// Nanoseconds before the measurement begins.
    pub start_ns: u64,
    /// Nanoseconds of the measurement.
    pub steady_ns: u64,
}

impl Scenario {
    /// 256 senders to 64 slots behind a queue that is no longer than that, a round trip of 10 µs, the first millisecond
    /// apart.
    pub const fn new(bits_per_s: u64, payload: u32) -> Self {
        Self {
            senders: 256,
            slots: 64,
            queue: 64,
            payload,
            bits_per_s,
            busy_ns: 0,
            start_ns: 1_000_000,
            steady_ns: 20_000_000,
        }
    }
}

/// Counts of a period.
#[derive(Clone, Debug, PartialEq)]
pub struct Period {
    /// Datagrams with data that were sent under credit.
    pub granted: u64,
    /// Those of them that the link's queue or the slots dropped.
    pub granted_dropped: u64,
    /// Datagrams with data that were sent without credit: one per sender that is not admitted.
    pub unadmitted: u64,
    /// Those of them that were dropped.
    pub unadmitted_dropped: u64,
    /// Messages delivered, by sender.
    pub delivered: Vec<u64>,
    /// Payload bytes delivered ÷ what the link can carry in the period.
    pub goodput: f64,
}

impl Period {
    /// Share of the granted datagrams that were dropped.
    pub fn loss(&self) -> f64 {
        self.granted_dropped as f64 / self.granted.max(1) as f64
    }

    /// Jain's index over the senders' deliveries: 1 when all are equal, 1/n when one has everything.
    pub fn fairness(&self) -> f64 {
        let (sum, squares) = self.delivered.iter().fold((0.0, 0.0), |(sum, squares), count| {
            let count = *count as f64;
            (sum + count, squares + count * count)
        });
        sum * sum / (self.delivered.len() as f64 * squares)
    }
}

/// Distinguishes granted datagrams from others by the first PSN not granted, per sender, from the credit that has
/// arrived there.
#[derive(Debug)]
struct CreditObserver {
    edges: Vec<Option<Psn<32>>>,
    period: Period,
}

impl CreditObserver {
    fn observe(&mut self, sighting: &DatagramTrace<'_>) {
        let Ok(header) = Header::<32>::parse(sighting.head) else { return };
        if (sighting.from, sighting.what) == (RECEIVER, DatagramFate::Delivered) {
            let Some(known) = self.edges.get_mut(sighting.to.0 as usize) else { return };
            let edge = Psn::new(header.acknowledged).add(u32::from(header.credit));
            if header.credit > 0 && known.is_none_or(|known| edge.is_after(known)) {
                *known = Some(edge);
            }
            return;
        }
        let data = matches!(sighting.cause, Some(TxReason::First | TxReason::ResentNack | TxReason::ResentProbe));
        if sighting.to != RECEIVER || !data {
            return;
        }
        let edge = self.edges.get(sighting.from.0 as usize).copied().flatten();
        let granted = edge.is_some_and(|edge| edge.is_after(header.psn()));
        let period = &mut self.period;
        match (sighting.what, granted) {
            (DatagramFate::Sent, true) => period.granted += 1,
            (DatagramFate::Sent, false) => period.unadmitted += 1,
            (DatagramFate::Dropped(_), true) => period.granted_dropped += 1,
            (DatagramFate::Dropped(_), false) => period.unadmitted_dropped += 1,
            (DatagramFate::Delivered, _) => {}
        }
    }
}

/// Runs a scenario. Returns the start period and the steady period after it.
pub fn run(scenario: &Scenario, seed: u64) -> [Period; 2] {
    let nodes = scenario.senders + 1;
    let config = Config {
        mtu: scenario.payload + 64,
        receive_slots: scenario.slots,
        holdable: scenario.slots,
        ..Config::default()
    };
    let network = Network::new(seed, config);
    let mut nodes = job::<WINDOW>(&network, nodes, |config, sizes| {
        let many = config.rank == RECEIVER.into();
        sizes.windows = if many { scenario.senders as usize } else { 2 };
        (sizes.operations, sizes.placements) = (64, 1);
    });
    let rate = NonZeroU64::new(scenario.bits_per_s / 8);
    network.set_link(RECEIVER, Link { ingress_bytes_per_s: rate, queue: scenario.queue, ..config.link });
    let edges = vec![None; nodes.len()];
    let blank = Period {
        granted: 0,
        granted_dropped: 0,
        unadmitted: 0,
        unadmitted_dropped: 0,
        delivered: vec![0; scenario.senders as usize],
        goodput: 0.0,
    };
    let observer = Rc::new(RefCell::new(CreditObserver { edges, period: blank.clone() }));
    let sees = Rc::clone(&observer);
    network.watch(move |sighting| sees.borrow_mut().observe(sighting));
    let payloads: Vec<Span> = nodes
        .iter_mut()
        .map(|node| {
            let region = node.memory.make(scenario.payload as usize);
            Span { region, offset: 0, bytes: scenario.payload }
        })
        .collect();
    let mut pending = vec![0_u32; nodes.len()];
    let ends = [scenario.start_ns, scenario.start_ns + scenario.steady_ns];
    let mut since = 0;
    ends.map(|end| {
        while let Some(step) = network.step_until(end) {
            let i = step.node.0 as usize;
            let node = &mut nodes[i];
            pending[i] -= node.drive(step.lane).len() as u32;
            if step.node == RECEIVER {
                let mut observed = observer.borrow_mut();
                for (from, _) in node.take_messages() {
                    observed.period.delivered[from.0 as usize - 1] += 1;
                }
                if scenario.busy_ns > 0 {
                    network.busy(RECEIVER, network.now() + scenario.busy_ns);
                }
            } else {
                pending[i] += refill(&network, node, payloads[i], BACKLOG - pending[i]);
            }
        }
        let mut period = core::mem::replace(&mut observer.borrow_mut().period, blank.clone());
        let bytes = period.delivered.iter().sum::<u64>() * u64::from(scenario.payload);
        period.goodput = bytes as f64 * 8e9 / (scenario.bits_per_s as f64 * (end - since) as f64);
        since = end;
        period
    })
}

/// Queues messages; returns how many.
fn refill(network: &Network, node: &mut SimProcess<WINDOW>, payload: Span, room: u32) -> u32 {
    let send = |node: &mut SimProcess<WINDOW>| node.endpoint.send(network.now(), RECEIVER.into(), b"", Some(payload));
    let sent = (0..room).map_while(|_| match send(node) {
        Ok(_) => Some(()),
        Err(EnqueueError::Full) => None,
        Err(why) => panic!("the receiver is alive: {why:?}"),
    });
    let sent = sent.count() as u32;
    if sent > 0 {
        node.wake();
    }
    sent
}
