//! Barriers whose ranks enter at different times, by the machines that ship, in simulated time.
//!
//! A message leaves its sender at once, or `gap` after the one before it, and arrives `latency` later. Its receiver
//! handles messages one after the other, `overhead` each: a hop takes latency + overhead. A multicast reaches all other
//! ranks `multicast` after it left, their overhead included. As in LogP (Culler et al. 1993), with the sender's overhead
//! part of the latency. Nothing is lost, and a rank handles all messages that have arrived before it acts.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use unisono_core::collective::token_tree::{
    Body, Epoch, Message, Position, ReleasePath, Request, TokenTree, TreeConfig,
};
use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Poll};
use unisono_core::ids::{CollectiveId, Rank, StepId};
use unisono_core::schedule::{Algorithm, Executor, Plan, Spec, StepOperation};
use unisono_core::time::{Nanos, units};

/// The costs of the network, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkCost {
    /// From leaving to arriving.
    pub latency: u64,
    /// Of the receiver, per message.
    pub overhead: u64,
    /// Between the messages of one sender.
    pub gap: u64,
    /// From the sending of a multicast until every rank has handled it.
    pub multicast: u64,
}

impl NetworkCost {
    /// A message between two idle ranks.
    pub const fn hop(&self) -> u64 {
        self.latency + self.overhead
    }
}

/// How ranks wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarrierAlgorithm {
    /// A token tree; without units the combining tree.
    Tree {
        /// Children of a rank.
        degree: u32,
        /// Units of the root's token.
        units: u8,
        /// How releases travel.
        path: ReleasePath,
    },
    /// A schedule.
    Schedule(Algorithm),
}

/// Times of a barrier, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierTimes {
    /// When the last rank entered.
    pub last_in: u64,
    /// When the last rank left.
    pub last_out: u64,
    /// Messages between two ranks.
    pub messages: u64,
    /// Multicasts.
    pub multicasts: u64,
}

impl BarrierTimes {
    /// The synchronization delay (Mamidala 2008, §7.2): from the last entering to the last leaving.
    pub const fn delay(&self) -> u64 {
        self.last_out - self.last_in
    }
}

/// Hops from the root to a rank.
///
/// # Panics
/// There is no such rank.
pub fn depth(rank: u32, size: u32, degree: u32) -> u64 {
    let parent = |rank: &u32| Position::new(Rank(*rank), size, degree).expect("a rank of the tree").parent();
    core::iter::successors(Some(rank), |rank| parent(rank).map(|rank| rank.0)).count() as u64 - 1
}

/// The last of the deepest ranks of a range.
pub fn deepest(ranks: core::ops::Range<u32>, size: u32, degree: u32) -> u32 {
    ranks.max_by_key(|rank| depth(*rank, size, degree)).unwrap_or(0)
}

/// The barrier of ranks that enter at time 0, but for those of `late`, which enter at theirs.
///
/// # Panics
/// There is no such tree or schedule, or a rank leaves before all have entered, twice or never.
pub fn barrier(algorithm: BarrierAlgorithm, size: u32, cost: NetworkCost, late: &[(u32, u64)]) -> BarrierTimes {
    let participant = |rank| match algorithm {
        BarrierAlgorithm::Tree { degree, units: tokens, path } => {
            // A unit of 64 ns more than a hop, so that an Ack in time is in time.
            let patience = units(cost.hop()) + 1;
            let config = TreeConfig { size, degree, units: tokens, path, patience, repair: Some(u32::MAX) };
            let tree = TokenTree::new(Rank(rank), &config, Epoch(0)).expect("a tree that exists");
            Participant::Tree(Box::new(tree))
        }
        BarrierAlgorithm::Schedule(algorithm) => {
            let spec = Spec { rank: Rank(rank), ..Spec::new(CollectiveKind::Barrier, algorithm, size, 1) };
            let plan = Plan::new(spec).expect("a schedule that exists");
            Participant::Schedule(Box::new(Executor::new(CollectiveId::default(), plan)))
        }
    };
    let mut simulation = Simulation {
        cost,
        ranks: (0..size).map(participant).map(RankState::new).collect(),
        halves: HashMap::default(),
        events: BinaryHeap::new(),
        pushed: 0,
        entered: 0,
        left: 0,
        times: BarrierTimes { last_in: 0, last_out: 0, messages: 0, multicasts: 0 },
    };
    let mut entering = vec![0; size as usize];
    for &(rank, at) in late {
        entering[rank as usize] = at;
    }
    for (rank, at) in (0..).zip(entering) {
        simulation.push(at, rank, Event::Enter);
    }
    simulation.run();
    assert!(simulation.left == size, "{algorithm:?} of {size} ranks: {} leave", simulation.left);
    simulation.times
}

enum Participant {
    Tree(Box<TokenTree<Nanos, 4, 2>>),
    Schedule(Box<Executor>),
}

struct RankState {
    participant: Participant,
    has_entered: bool,
    /// When the next message can be sent; when the next one can be handled.
    sends_from: u64,
    handles_from: u64,
    /// Messages that have arrived and are not handled.
    backlog: u32,
    /// The deadline for which an event is pushed.
    armed: Option<u64>,
}

impl RankState {
    const fn new(participant: Participant) -> Self {
        Self { participant, has_entered: false, sends_from: 0, handles_from: 0, backlog: 0, armed: None }
    }
}

/// A message between two ranks.
#[derive(Clone, Copy)]
enum Payload {
    Tree(Message),
    /// The key of a step.
    Step(u32),
}

#[derive(Clone, Copy)]
enum Event {
    Enter,
    Arrive(u32, Payload),
    Handle(u32, Payload),
    Multicast(Message),
    Timeout(Epoch),
    Poll,
}

impl Event {
    /// Of the events of one moment a rank handles the messages first, and acts last.
    const fn class(&self) -> u8 {
        match self {
            Self::Enter | Self::Arrive(..) | Self::Handle(..) | Self::Multicast(_) => 0,
            Self::Timeout(_) => 1,
            Self::Poll => 2,
        }
    }
}

struct Pending {
    /// Time, class, number.
    key: (u64, u8, u64),
    rank: u32,
    event: Event,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// One side of a step's message: it arrived, or its receive was begun.
enum Half {
    Arrived,
    Begun(StepId),
}

struct Simulation {
    cost: NetworkCost,
    ranks: Vec<RankState>,
    /// By receiver, sender and key.
    halves: HashMap<(u32, u32, u32), Half, RandomState>,
    events: BinaryHeap<Reverse<Pending>>,
    pushed: u64,
    entered: u32,
    left: u32,
    times: BarrierTimes,
}

impl Simulation {
    fn push(&mut self, at: u64, rank: u32, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse(Pending { key: (at, event.class(), self.pushed), rank, event }));
    }

    fn run(&mut self) {
        while let Some(Reverse(Pending { key: (now, ..), rank, event })) = self.events.pop() {
            self.handle(now, rank, event);
        }
    }

    fn handle(&mut self, now: u64, rank: u32, event: Event) {
        let side = &mut self.ranks[rank as usize];
        match event {
            Event::Enter => {
                side.has_entered = true;
                self.entered += 1;
                self.times.last_in = self.times.last_in.max(now);
                if let Participant::Tree(tree) = &mut side.participant {
                    tree.enter(now, false).expect("the first call");
                }
            }
            Event::Arrive(from, payload) => {
                side.backlog += 1;
                side.handles_from = side.handles_from.max(now) + self.cost.overhead;
                let at = side.handles_from;
                self.push(at, rank, Event::Handle(from, payload));
                return;
            }
            Event::Handle(from, payload) => {
                side.backlog -= 1;
                match (&mut side.participant, payload) {
                    (Participant::Tree(tree), Payload::Tree(message)) => {
                        tree.handle_message(now, Rank(from), &message);
                    }
                    (Participant::Schedule(executor), Payload::Step(key)) => {
                        match self.halves.remove(&(rank, from, key)) {
                            Some(Half::Begun(step)) => executor.handle_done(step),
                            _ => {
                                self.halves.insert((rank, from, key), Half::Arrived);
                            }
                        }
                    }
                    _ => unreachable!("a message of the algorithm"),
                }
            }
            Event::Multicast(message) => {
                if let Participant::Tree(tree) = &mut side.participant {
                    tree.handle_multicast(now, &message);
                }
            }
            Event::Timeout(epoch) => {
                side.armed = None;
                if side.backlog == 0
                    && let Participant::Tree(tree) = &mut side.participant
                {
                    tree.handle_timeout(now, epoch);
                }
            }
            Event::Poll => {
                // It acts after the last of the messages that have arrived.
                if side.backlog == 0 {
                    self.poll(now, rank);
                }
                return;
            }
        }
        self.arm(now, rank);
        self.push(now, rank, Event::Poll);
    }

    fn arm(&mut self, now: u64, rank: u32) {
        let side = &mut self.ranks[rank as usize];
        if side.backlog != 0 {
            return;
        }
        let Participant::Tree(tree) = &side.participant else { return };
        let Some((epoch, at)) = tree.deadlines().next() else { return };
        let at = at.max(now);
        // Never: the repair of what is not lost.
        if side.armed != Some(at) && at < NEVER {
            side.armed = Some(at);
            self.push(at, rank, Event::Timeout(epoch));
        }
    }

    fn poll(&mut self, now: u64, rank: u32) {
        if !self.ranks[rank as usize].has_entered && matches!(self.algorithm(rank), Participant::Schedule(_)) {
            return;
        }
        loop {
            match self.algorithm(rank) {
                Participant::Tree(tree) => match tree.poll(now) {
                    None => return,
                    Some(Request::Send { to, message, .. }) => self.send(now, rank, to.0, Payload::Tree(message)),
                    Some(Request::Multicast { message, .. }) => self.multicast(now, rank, message),
                    Some(Request::Leave { .. }) => self.leave(now),
                    Some(request) => unreachable!("a barrier without failures has no {request:?}"),
                },
                Participant::Schedule(executor) => match executor.poll() {
                    Poll::Request(step, operation) => self.begin(now, rank, step, operation),
                    Poll::Complete => return self.leave_once(now, rank),
                    _ => return,
                },
            }
        }
    }

    fn algorithm(&mut self, rank: u32) -> &mut Participant {
        &mut self.ranks[rank as usize].participant
    }

    fn begin(&mut self, now: u64, rank: u32, step: StepId, operation: StepOperation) {
        let is_done = match operation {
            StepOperation::Send { to, key, .. } => {
                self.send(now, rank, to.0, Payload::Step(key));
                true
            }
            StepOperation::Receive { of, key, .. } => match self.halves.remove(&(rank, of.0, key)) {
                Some(Half::Arrived) => true,
                _ => {
                    self.halves.insert((rank, of.0, key), Half::Begun(step));
                    false
                }
            },
            StepOperation::Copy { .. } | StepOperation::Reduce { .. } => true,
            StepOperation::Group(_) => unreachable!("a flat schedule"),
        };
        if is_done && let Participant::Schedule(executor) = self.algorithm(rank) {
            executor.handle_done(step);
        }
    }

    /// When the next message of a rank leaves.
    fn departure(&mut self, now: u64, rank: u32) -> u64 {
        let gap = self.cost.gap;
        let from = &mut self.ranks[rank as usize].sends_from;
        let at = now.max(*from);
        *from = at + gap;
        at
    }

    fn send(&mut self, now: u64, from: u32, to: u32, payload: Payload) {
        let at = self.departure(now, from) + self.cost.latency;
        self.times.messages += 1;
        self.push(at, to, Event::Arrive(from, payload));
    }

    fn multicast(&mut self, now: u64, from: u32, message: Message) {
        debug_assert!(matches!(message.body, Body::Release(_)));
        let at = self.departure(now, from) + self.cost.multicast;
        self.times.multicasts += 1;
        for to in (0..self.ranks.len() as u32).filter(|to| *to != from) {
            self.push(at, to, Event::Multicast(message));
        }
    }

    /// An executor that is complete stays so.
    fn leave_once(&mut self, now: u64, rank: u32) {
        if core::mem::take(&mut self.ranks[rank as usize].has_entered) {
            self.leave(now);
        }
    }

    fn leave(&mut self, now: u64) {
        assert!(self.entered as usize == self.ranks.len(), "a rank leaves before all have entered");
        self.left += 1;
        self.times.last_out = self.times.last_out.max(now);
    }
}

/// No simulation lasts this long.
const NEVER: u64 = 1 << 36;

#[cfg(test)]
mod tests {
    use super::*;

    const COST: NetworkCost = NetworkCost { latency: 6400, overhead: 640, gap: 640, multicast: 12_800 };
    const LATE: u64 = 1_000_000;

    const fn tree(units: u8) -> BarrierAlgorithm {
        BarrierAlgorithm::Tree { degree: 8, units, path: ReleasePath::Multicast }
    }

    #[test]
    fn a_late_rank_of_a_combining_tree_costs_a_hop_per_level() {
        for size in [2, 9, 10, 100, 700] {
            let rank = deepest(0..size, size, 8);
            let times = barrier(tree(0), size, COST, &[(rank, LATE)]);
            assert_eq!(times.delay(), depth(rank, size, 8) * COST.hop() + COST.multicast);
            assert_eq!((times.messages, times.multicasts), (u64::from(size) - 1, 1));
        }
    }

    #[test]
    fn a_late_rank_of_a_token_tree_costs_one_multicast() {
        for size in [2, 9, 10, 100, 700] {
            let times = barrier(tree(1), size, COST, &[(deepest(0..size, size, 8), LATE)]);
            assert_eq!((times.delay(), times.multicasts), (COST.multicast, 1));
        }
    }

    #[test]
    fn a_late_rank_of_doubling_costs_a_hop_per_round() {
        for size in [2, 8, 64] {
            let times = barrier(BarrierAlgorithm::Schedule(Algorithm::Doubling), size, COST, &[(size - 1, LATE)]);
            assert_eq!(times.delay(), u64::from(size.ilog2()) * COST.hop());
        }
    }

    #[test]
    fn releases_along_the_tree_cost_a_hop_per_edge() {
        let algorithm = BarrierAlgorithm::Tree { degree: 8, units: 1, path: ReleasePath::Tree };
        let cost = NetworkCost { overhead: 0, gap: 0, ..COST };
        // From a leaf below one child of the root to a leaf below another.
        let times = barrier(algorithm, 17, cost, &[(deepest(0..17, 17, 8), LATE)]);
        assert_eq!((times.delay(), times.multicasts), (4 * cost.latency, 0));
    }
}
