//! A stream of placements between two processes that are connected by several rails.

use alloc::rc::Rc;
use core::{cell::RefCell, num::NonZeroU64};
use std::collections::HashMap;

use unisono_core::device::TxReason;
use unisono_core::endpoint::Event;
use unisono_core::ids::{Rail, RemoteKey};
use unisono_core::span::Span;
use unisono_core::wire::Header;

use crate::sim::node::{SimProcess, job};
use crate::sim::{CHECKSUM, Config, DatagramFate, DatagramTrace, Link, Network, NodeId};

/// The process that sends.
pub const SENDER: NodeId = NodeId(0);
/// The process that receives.
pub const RECEIVER: NodeId = NodeId(1);
/// Segments of a window.
const WINDOW: usize = 256;
/// Placements under way.
const PLACEMENTS: u32 = 8;
/// Nanoseconds in which the answer to a probe returns at the latest, on a rail without load in that direction.
const ANSWER_NS: u64 = 100_000;

/// What the wire saw of data.
#[derive(Debug, Default)]
struct Wire {
    /// When each PSN arrived first.
    arrived: HashMap<u32, u64>,
    /// Data sent again although an earlier copy had arrived so early that the answer to a probe showed it.
    resent_arrived: u64,
    resent: u64,
}

/// A stream in progress.
#[derive(Debug)]
pub struct RailStream {
    /// The network.
    pub network: Network,
    /// Sender and receiver.
    pub nodes: Vec<SimProcess<WINDOW>>,
    rates: Vec<u64>,
    source: Span,
    target: Span,
    /// When each placement was delivered.
    deliveries: Vec<u64>,
    /// When data arrived first, and its bytes.
    arrivals: Rc<RefCell<Vec<(u64, u32)>>>,
    wire: Rc<RefCell<Wire>>,
    keys: u64,
    is_ending: bool,
    under_way: u32,
    sent: u32,
    failures: u32,
    /// Of each node: the rails in doubt, one bit for each.
    doubtful: [u8; 2],
    deaths: u32,
}

impl RailStream {
    /// Rails of these rates in bits/s, with a round trip of 20 µs and queues of 512 datagrams. Placements have
    /// `bytes` bytes.
    pub fn new(seed: u64, bits_per_s: &[u64], bytes: u32) -> Self {
        let rails = bits_per_s.len() as u8;
        let config = Config { rails, receive_slots: 1024, holdable: 512, link: link(0), ..Config::default() };
        let network = Network::new(seed, config);
        let mut nodes: Vec<SimProcess<WINDOW>> = job(&network, 2, |_, _| {});
        for (rail, rate) in bits_per_s.iter().enumerate() {
            for node in [SENDER, RECEIVER] {
                network.set_rail_link(node, Rail(rail as u8), link(*rate));
            }
        }
        let whole = |node: &mut SimProcess<WINDOW>| Span { region: node.memory.make(bytes as usize), offset: 0, bytes };
        let (source, target) = (whole(&mut nodes[0]), whole(&mut nodes[1]));
        let (wire, arrivals) = (Rc::<RefCell<Wire>>::default(), Rc::<RefCell<Vec<(u64, u32)>>>::default());
        let (seen, times) = (Rc::clone(&wire), Rc::clone(&arrivals));
        network.watch(move |trace| note(&mut seen.borrow_mut(), &mut times.borrow_mut(), trace));
        let rates = bits_per_s.to_vec();
        let mut stream = Self {
            network,
            nodes,
            rates,
            source,
            target,
            deliveries: Vec::new(),
            arrivals,
            wire,
            keys: 0,
            is_ending: false,
            under_way: 0,
            sent: 0,
            failures: 0,
            doubtful: [0; 2],
            deaths: 0,
        };
        for _ in 0..PLACEMENTS {
            stream.place();
        }
        stream
    }

    fn place(&mut self) {
        self.keys += 1;
        let key = RemoteKey(self.keys);
        let [sender, receiver] = &mut self.nodes[..] else { return };
        let placement = receiver.endpoint.grant(SENDER.into(), self.target, key).expect("a free record");
        let now = self.network.now();
        sender.endpoint.place(now, RECEIVER.into(), placement, key, self.source).expect("a free record");
        sender.wake();
        self.under_way += 1;
        self.sent += 1;
    }

    /// Lets time pass until `deadline`.
    pub fn run_until(&mut self, deadline: u64) {
        while let Some(step) = self.network.step_until(deadline) {
            let node = step.node.0 as usize;
            let events = self.nodes[node].drive(step.lane);
            let doubtful = self.nodes[node].endpoint.doubtful_rails();
            self.deaths += (doubtful & !self.doubtful[node]).count_ones();
            self.doubtful[node] = doubtful;
            for event in events {
                match event {
                    Event::Delivered(..) => {
                        self.deliveries.push(step.at);
                        self.under_way -= 1;
                        if !self.is_ending {
                            self.place();
                        }
                    }
                    Event::Completed(_, Ok(())) => {}
                    _ => self.failures += 1,
                }
            }
        }
    }

    /// Starts no more placements, and waits for those under way, at most until `deadline`. Returns the number that is
    /// missing, and of failures.
    pub fn finish(&mut self, deadline: u64) -> (u32, u32) {
        self.is_ending = true;
        self.run_until(deadline);
        (self.sent - self.deliveries.len() as u32, self.failures)
    }

    /// Share of the rails' sum of rates that data used which arrived first between two times.
    pub fn utilization(&self, from: u64, to: u64, rails: impl IntoIterator<Item = usize>) -> f64 {
        let arrivals = self.arrivals.borrow();
        let bytes: u64 =
            arrivals.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, bytes)| u64::from(*bytes)).sum();
        let rate: u64 = rails.into_iter().map(|rail| self.rates[rail]).sum();
        (bytes * 8) as f64 / ((to - from) as f64 * rate as f64 / 1e9)
    }

    /// The longest time between two arrivals of new data, the first after `from`.
    pub fn longest_pause(&self, from: u64) -> u64 {
        let arrivals = self.arrivals.borrow();
        let later: Vec<u64> = arrivals.iter().map(|(at, _)| *at).filter(|at| *at >= from).collect();
        later.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX)
    }

    /// The same, of in-order deliveries of whole placements.
    pub fn longest_gap(&self, from: u64) -> u64 {
        let later: Vec<u64> = self.deliveries.iter().copied().filter(|at| *at >= from).collect();
        later.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX)
    }

    /// Data sent again, and of those the ones of which a copy had arrived.
    pub fn resent(&self) -> (u64, u64) {
        let wire = self.wire.borrow();
        (wire.resent, wire.resent_arrived)
    }

    /// How often either node stopped using a rail.
    pub const fn deaths(&self) -> u32 {
        self.deaths
    }

    /// A node's process gets no processor for that time.
    pub fn suspend(&self, node: NodeId, ns: u64) {
        self.network.busy(node, self.network.now() + ns);
    }

    /// From now on the way over the rail to the receiver takes that much longer than the way back.
    pub fn set_delay(&self, rail: Rail, ns: u64) {
        let link = link(self.rates[usize::from(rail.0)]);
        self.network.set_rail_link(RECEIVER, rail, Link { propagation_ns: link.propagation_ns + ns, ..link });
    }

    /// Cuts a rail both ways, without a sign of it.
    pub fn cut(&self, rail: Rail) {
        self.network.cut_rail(SENDER, RECEIVER, rail);
        self.network.cut_rail(RECEIVER, SENDER, rail);
    }

    /// Undoes [`cut`](Self::cut).
    pub fn restore(&self, rail: Rail) {
        self.network.restore_rail(SENDER, RECEIVER, rail);
        self.network.restore_rail(RECEIVER, SENDER, rail);
    }

    /// The sender's longest retransmission timeout, in nanoseconds.
    pub fn timeout_ns(&self) -> u64 {
        let states = self.nodes[0].endpoint.rail_states(RECEIVER.into());
        states.iter().map(|state| u64::from(state.path().timeout()) << 6).max().unwrap_or(0)
    }
}

/// A link of this rate in bits/s; without limit if that is 0.
fn link(bits_per_s: u64) -> Link {
    let rate = NonZeroU64::new(bits_per_s / 8);
    Link { ingress_bytes_per_s: rate, egress_bytes_per_s: rate, propagation_ns: 10_000, queue: 512, ..Link::default() }
}

fn note(wire: &mut Wire, arrivals: &mut Vec<(u64, u32)>, trace: &DatagramTrace<'_>) {
    if trace.from != SENDER {
        return;
    }
    let Ok(header) = Header::<32>::parse(trace.head) else { return };
    if !header.kind.is_data() {
        return;
    }
    match trace.what {
        DatagramFate::Sent if trace.cause != Some(TxReason::First) => {
            wire.resent += 1;
            let arrived = wire.arrived.get(&header.psn);
            wire.resent_arrived += u64::from(arrived.is_some_and(|at| at + ANSWER_NS < trace.at));
        }
        DatagramFate::Delivered if !wire.arrived.contains_key(&header.psn) => {
            wire.arrived.insert(header.psn, trace.at);
            arrivals.push((trace.at, trace.bytes + CHECKSUM));
        }
        _ => {}
    }
}
