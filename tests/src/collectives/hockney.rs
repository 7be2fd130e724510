//! The time of a collective under Hockney's model: a message of b bytes takes α + β·b, and occupies one port of its
//! sender and one of its receiver meanwhile (Qian & Afsahi 2008, §3.2). It begins when both sides have reached it.
//! Copies and reductions take no time.
//!
//! The executors are those that ship, one per rank; memory is O(ranks + messages under way).

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use core::cmp::Reverse;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Poll};
use unisono_core::ids::{CollectiveId, Rank, StepId};
use unisono_core::schedule::{BlockMap, Executor, Layout, Plan, Schedule, Spec, StepOperation, Unsupported};

/// The cost of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkCost {
    /// α, in picoseconds.
    pub startup_ps: u64,
    /// β.
    pub ps_per_byte: u64,
}

/// What carries messages.
pub trait Network {
    /// When a message that starts now ends, in picoseconds. Messages are given in the order in which they start.
    fn end(&mut self, now: u64, from: Rank, to: Rank, bytes: u64) -> u64;
    /// The port of either end that a message occupies which the schedule sends on `port`.
    fn port(&self, _from: Rank, _to: Rank, port: u8) -> u8 {
        port
    }
}

impl Network for LinkCost {
    fn end(&mut self, now: u64, _: Rank, _: Rank, bytes: u64) -> u64 {
        now + self.startup_ps + self.ps_per_byte * bytes
    }
}

/// The cost of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Time until all ranks are done, in picoseconds.
    pub picoseconds: u64,
    /// Messages of all ranks.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// A message that both sides have reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Message {
    from: u32,
    sent: StepId,
    to: u32,
    received: StepId,
    port: u8,
    bytes: u64,
}

/// A port's two directions.
#[derive(Clone, Copy, Default)]
struct Busy {
    sending: bool,
    receiving: bool,
}

/// Sender, receiver, key.
type Name = (u32, u32, u32);

/// One side of a message that the other side has not reached.
#[derive(Clone, Copy)]
enum PendingHalf {
    /// Its step, its port, its bytes.
    Sent(StepId, u8, u64),
    Received(StepId),
}

struct Simulation<'l, S, N> {
    executors: Vec<Executor<S>>,
    layout: Layout<'l>,
    network: N,
    ports: Vec<[Busy; Plan::PORTS as usize]>,
    halves: HashMap<Name, PendingHalf, RandomState>,
    /// Messages that wait for a port, by sender, in the order of its steps; and the senders that wait for each
    /// receiver.
    waiting: Vec<BTreeMap<StepId, Message>>,
    blocked_senders: Vec<BTreeSet<u32>>,
    ends: BinaryHeap<Reverse<(u64, Message)>>,
    now: u64,
    cost: Cost,
}

/// The time of a collective in which each rank has `bytes` bytes, of an alltoall for each other rank.
///
/// # Errors
/// There is no such schedule.
pub fn time(call: Spec, bytes: usize, link: LinkCost) -> Result<Cost, Unsupported> {
    let plans: Vec<Plan> =
        (0..call.size).map(|rank| Plan::new(Spec { rank: Rank(rank), ..call })).collect::<Result<_, _>>()?;
    let blocks = plans.first().map_or(1, Plan::blocks);
    Ok(simulate(plans, layout(&call, bytes, blocks), link))
}

/// The layout of a collective of `blocks` blocks in which each rank has `bytes` bytes.
pub fn layout(call: &Spec, bytes: usize, blocks: u32) -> Layout<'static> {
    match call.collective {
        CollectiveKind::Gather
        | CollectiveKind::Scatter
        | CollectiveKind::Allgather
        | CollectiveKind::Alltoall
        | CollectiveKind::ReduceScatter => {
            let (whole, one) = (BlockMap::equal(bytes, blocks), BlockMap::equal(bytes, 1));
            let (input, output) = match call.collective {
                CollectiveKind::Gather | CollectiveKind::Allgather => (one, whole),
                CollectiveKind::Alltoall => (whole, whole),
                _ => (whole, one),
            };
            Layout::new(input, output, whole, blocks, 1, call.segments)
        }
        _ => Layout::vector(bytes, blocks, 1, call.segments),
    }
}

/// The time of the schedules of all ranks over a network.
///
/// # Panics
/// They never end.
pub fn simulate<S: Schedule>(plans: Vec<S>, layout: Layout<'_>, network: impl Network) -> Cost {
    let size = plans.len();
    let mut simulation = Simulation {
        executors: plans.into_iter().map(|plan| Executor::new(CollectiveId::default(), plan)).collect(),
        layout,
        network,
        ports: vec![Default::default(); size],
        halves: HashMap::default(),
        waiting: vec![BTreeMap::new(); size],
        blocked_senders: vec![BTreeSet::new(); size],
        ends: BinaryHeap::new(),
        now: 0,
        cost: Cost::default(),
    };
    simulation.run();
    let done = simulation.executors.iter_mut().all(|executor| executor.poll() == Poll::Complete);
    assert!(done, "a schedule does not end");
    Cost { picoseconds: simulation.now, ..simulation.cost }
}

impl<S: Schedule, N: Network> Simulation<'_, S, N> {
    fn run(&mut self) {
        let mut ready: BTreeSet<u32> = BTreeSet::new();
        let mut polled: BTreeSet<u32> = (0..self.executors.len() as u32).collect();
        loop {
            for rank in core::mem::take(&mut polled) {
                self.poll(rank, &mut ready);
            }
            for rank in core::mem::take(&mut ready) {
                self.start(rank);
            }
            let Some(Reverse((now, _))) = self.ends.peek().copied() else { return };
            self.now = now;
            while let Some(Reverse((at, message))) = self.ends.peek().copied()
                && at == now
            {
                self.ends.pop();
                let port = usize::from(message.port);
                self.ports[message.from as usize][port].sending = false;
                self.ports[message.to as usize][port].receiving = false;
                self.executors[message.from as usize].handle_done(message.sent);
                self.executors[message.to as usize].handle_done(message.received);
                polled.extend([message.from, message.to]);
                ready.insert(message.from);
                ready.append(&mut self.blocked_senders[message.to as usize]);
            }
        }
    }

    /// Begins the runnable steps of a rank, and collects the senders whose messages both sides have reached.
    fn poll(&mut self, rank: u32, ready: &mut BTreeSet<u32>) {
        while let Poll::Request(step, operation) = self.executors[rank as usize].poll() {
            match operation {
                StepOperation::Send { to, port, key, from } => {
                    let bytes = self.layout.pieces(from).map(|piece| piece.bytes as u64).sum();
                    let port = self.network.port(Rank(rank), to, port.number());
                    self.match_halves((rank, to.0, key), PendingHalf::Sent(step, port, bytes), ready);
                }
                StepOperation::Receive { of, key, .. } => {
                    self.match_halves((of.0, rank, key), PendingHalf::Received(step), ready)
                }
                StepOperation::Group(_) => unreachable!("groups use messages"),
                StepOperation::Copy { .. } | StepOperation::Reduce { .. } => {
                    self.executors[rank as usize].handle_done(step)
                }
            }
        }
    }

    fn match_halves(&mut self, name: Name, half: PendingHalf, ready: &mut BTreeSet<u32>) {
        let (from, to, _) = name;
        match (self.halves.remove(&name), half) {
            (Some(PendingHalf::Received(received)), PendingHalf::Sent(sent, port, bytes))
            | (Some(PendingHalf::Sent(sent, port, bytes)), PendingHalf::Received(received)) => {
                self.waiting[from as usize].insert(sent, Message { from, sent, to, received, port, bytes });
                ready.insert(from);
            }
            _ => {
                self.halves.insert(name, half);
            }
        }
    }

    /// Starts those of a rank's messages whose ports are free on both sides, in the order of its steps.
    fn start(&mut self, rank: u32) {
        let (ports, network, now) = (&mut self.ports, &mut self.network, self.now);
        let (suitors, ends, cost) = (&mut self.blocked_senders, &mut self.ends, &mut self.cost);
        self.waiting[rank as usize].retain(|_, message| {
            let port = usize::from(message.port);
            if ports[rank as usize][port].sending {
                return true;
            }
            if ports[message.to as usize][port].receiving {
                suitors[message.to as usize].insert(rank);
                return true;
            }
            ports[rank as usize][port].sending = true;
            ports[message.to as usize][port].receiving = true;
            cost.messages += 1;
            cost.bytes += message.bytes;
            ends.push(Reverse((network.end(now, Rank(rank), Rank(message.to), message.bytes), *message)));
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkCost, time};
    use unisono_core::collective::CollectiveKind;
    use unisono_core::schedule::{Algorithm, Spec};

    const LINK: LinkCost = LinkCost { startup_ps: 1_000_000, ps_per_byte: 100 };

    /// Qian & Afsahi, equations 1, 3 and 5, at sizes that are powers of k + 1.
    #[test]
    fn collectives_take_what_equations_1_3_and_5_say() {
        for (size, rounds, ports) in [(16, 4, 1), (16, 2, 3), (27, 3, 2), (256, 4, 3), (1024, 10, 1)] {
            let (n, k) = (u64::from(size), u64::from(ports));
            let collected = rounds * LINK.startup_ps + (n - 1) / k * 40 * LINK.ps_per_byte;
            let exchanged = rounds * LINK.startup_ps + n / (k + 1) * rounds * 40 * LINK.ps_per_byte;
            for (verb, algorithm, want) in [
                (CollectiveKind::Gather, Algorithm::Knomial, collected),
                (CollectiveKind::Allgather, Algorithm::Bruck, collected),
                (CollectiveKind::Allgather, Algorithm::StandardExchange, collected),
                (CollectiveKind::Alltoall, Algorithm::Bruck, exchanged),
                (CollectiveKind::Alltoall, Algorithm::StandardExchange, exchanged),
            ] {
                let cost = time(Spec::new(verb, algorithm, size, ports), 40, LINK).expect("a schedule");
                assert_eq!(cost.picoseconds, want, "{verb:?} {algorithm:?} of {size} on {ports} ports");
            }
        }
    }

    /// A message waits for its receiver's port as well as for its sender's.
    #[test]
    fn messages_to_one_port_follow_each_other() {
        for ports in 1..=3 {
            let call = Spec::new(CollectiveKind::Gather, Algorithm::Direct, 7, ports);
            let cost = time(call, 10, LINK).expect("a schedule");
            let each = LINK.startup_ps + 10 * LINK.ps_per_byte;
            assert_eq!((cost.picoseconds, cost.messages, cost.bytes), (6 / u64::from(ports) * each, 6, 60));
        }
    }

    #[test]
    fn segments_of_a_chain_overlap() {
        let whole = Spec::new(CollectiveKind::Scan, Algorithm::Ring, 8, 1);
        let one = time(whole, 8000, LINK).expect("a schedule").picoseconds;
        let eight = time(Spec { segments: 8, ..whole }, 8000, LINK).expect("a schedule").picoseconds;
        assert_eq!(one, 7 * (LINK.startup_ps + 8000 * LINK.ps_per_byte));
        assert_eq!(eight, 14 * (LINK.startup_ps + 1000 * LINK.ps_per_byte));
    }
}
