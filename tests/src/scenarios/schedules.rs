//! Collectives over messages in the simulated network: each rank an endpoint, its messages, an executor per collective.
//!
//! A job's ranks run a list of collectives, a few at a time, each as fast as it can: a rank that does not wait for
//! others runs ahead of them. Every result is compared with the expected one, and no rank may leave a barrier that
//! another has not entered.

mod expected_result;
mod rank;
mod running;
mod workloads;

use alloc::rc::Rc;
use core::ops::AddAssign;
use std::collections::HashMap;

use unisono_core::collective::CollectiveKind;
use unisono_udp::fault_injection::Faults;

pub use self::expected_result::ExpectedResult;
pub use self::rank::{ProgressEvent, SimRank};
pub use self::workloads::{LENGTHS, Workload, WorkloadFilter, workloads};
use crate::sim::{Config, Dropped, Network};

/// Bytes of the longest eager step of [`run`]: some of [`LENGTHS`] are longer.
const SHORT: u32 = 64;
/// Virtual time in which a list of collectives must end, for each of them.
const BOUND_NS: u64 = 2_000_000_000;

/// Counts of a list of collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Collectives that ended on all ranks.
    pub collectives: u64,
    /// Results that were compared: one per rank that gets one.
    pub compared: u64,
    /// Wrong results, and barriers that were left too early.
    pub wrong: u64,
    /// Collectives that some rank did not end.
    pub unfinished: u64,
    /// Eager messages, announced ones, and those that had to be fetched.
    pub eager: u64,
    /// See `eager`.
    pub announced: u64,
    /// See `eager`.
    pub asked: u64,
    /// Datagrams, and those that were lost or overtaken.
    pub datagrams: u64,
    /// See `datagrams`.
    pub faults: u64,
    /// How often a rank stopped using a rail.
    pub rail_deaths: u64,
    /// Virtual time.
    pub nanoseconds: u64,
}

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.collectives += other.collectives;
        self.compared += other.compared;
        self.wrong += other.wrong;
        self.unfinished += other.unfinished;
        self.eager += other.eager;
        self.announced += other.announced;
        self.asked += other.asked;
        self.datagrams += other.datagrams;
        self.faults += other.faults;
        self.rail_deaths += other.rail_deaths;
        self.nanoseconds += other.nanoseconds;
    }
}

/// Progress of a list of collectives, as an observer sees it.
struct Progress<'w> {
    works: &'w [Workload],
    size: usize,
    /// Ranks that have entered each, and left it.
    entered: Vec<u32>,
    left: Vec<u32>,
    /// Expected results of the collectives that some rank has not left yet.
    contents: HashMap<usize, Rc<ExpectedResult>>,
    outcome: Outcome,
}

impl Progress<'_> {
    fn record(&mut self, rank: usize, seen: &ProgressEvent) {
        match seen {
            ProgressEvent::Entered(i) => self.entered[*i] += 1,
            ProgressEvent::Left(i, output) => {
                let work = &self.works[*i];
                if work.call.collective == CollectiveKind::Barrier {
                    self.judge(self.entered[*i] as usize == self.size, work, rank);
                }
                let contents = self.contents.entry(*i).or_insert_with(|| Rc::new(ExpectedResult::new(work)));
                if let Some(want) = contents.output(rank) {
                    let right = output.get(..want.len()) == Some(want);
                    self.judge(right, work, rank);
                }
                self.left[*i] += 1;
                if self.left[*i] as usize == self.size {
                    self.contents.remove(i);
                    self.outcome.collectives += 1;
                }
            }
        }
    }

    fn judge(&mut self, right: bool, work: &Workload, rank: usize) {
        self.outcome.compared += 1;
        if !right {
            self.outcome.wrong += 1;
            eprintln!("rank {rank}: {work:?} is wrong");
        }
    }
}

/// Runs collectives of one size, `outstanding` at a time on each rank.
pub fn run(works: &[Workload], outstanding: usize, faults: Faults, seed: u64) -> Outcome {
    run_over(&Network::new(seed, Config { faults, ..Config::default() }), works, outstanding, SHORT)
}

/// As [`run`], over a network that has no nodes yet: rank n becomes node n. Steps of up to `eager` bytes that fit in a
/// datagram are sent at once, others are announced.
pub fn run_over(network: &Network, works: &[Workload], outstanding: usize, eager: u32) -> Outcome {
    run_with(network, works, outstanding, eager, |_| {})
}

/// As [`run_over`]; `after` is called with the time of each step, after it.
pub fn run_with(
    network: &Network,
    works: &[Workload],
    outstanding: usize,
    eager: u32,
    mut after: impl FnMut(u64),
) -> Outcome {
    let Some(size) = works.first().map(|work| work.call.size as usize) else { return Outcome::default() };
    let mut members = rank::job(network, size, outstanding, eager);
    let mut progress = Progress {
        works,
        size,
        entered: vec![0; works.len()],
        left: vec![0; works.len()],
        contents: HashMap::new(),
        outcome: Outcome::default(),
    };
    let deadline = BOUND_NS.saturating_mul(works.len() as u64);
    while progress.outcome.collectives < works.len() as u64
        && let Some(step) = network.step_until(deadline)
    {
        let rank = step.node.0 as usize;
        for seen in members[rank].drive(step.lane, works) {
            progress.record(rank, &seen);
        }
        after(step.at);
    }
    let counts = network.counts();
    let mut outcome = Outcome {
        unfinished: works.len() as u64 - progress.outcome.collectives,
        datagrams: counts.sent,
        faults: counts.dropped(Dropped::Lost) + counts.reordered,
        nanoseconds: network.now(),
        ..progress.outcome
    };
    for member in &members {
        let said = member.counts();
        outcome.eager += said.eager;
        outcome.announced += said.announced;
        outcome.asked += said.asked;
        outcome.rail_deaths += u64::from(member.rail_deaths());
        outcome.wrong += u64::from(!member.is_idle());
    }
    outcome
}
