//! Synchronization delays of barriers whose ranks enter at different times, at up to 65 536 simulated ranks.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use unisono_bench::plot;
use unisono_core::collective::token_tree::{Position, ReleasePath};
use unisono_core::ids::Rank;
use unisono_core::schedule::Algorithm;
use unisono_tests::collectives::semi_dynamic_tree::SemiDynamicTree;
use unisono_tests::collectives::skew::{BarrierAlgorithm, NetworkCost, barrier, deepest, depth};
use unisono_tests::collectives::skew_charts;
use unisono_tests::harness::report::{Limit, Report};

/// Token trees against combining trees of the same degree and recursive doubling, after Mamidala, Liu, Panda (2004) and
/// Mamidala (2008), ch. 7. The delay is the time from the last rank's entering to the last rank's leaving. A message takes
/// L, and o of its receiver; messages of one sender are a gap apart; a multicast takes M. The gap is o.
#[derive(Parser)]
struct Options {
    /// Ranks.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 512, 4096, 65_536])]
    ranks: Vec<u32>,
    /// Children of a rank.
    #[arg(long, default_value_t = 8)]
    degree: u32,
    /// M.
    #[arg(long, default_value_t = 12_800)]
    multicast_ns: u64,
    /// o, as a share of L: one part in this many.
    #[arg(long, default_value_t = 20)]
    overhead_part: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// Draws the source's Figures 4 to 12 into this file.
    #[arg(long, value_name = "FILE.svg|png", value_parser = plot::file)]
    plot: Option<PathBuf>,
}

/// L / M, as a fraction.
const RATIOS: [(u64, u64, &str); 3] = [(1, 2, "1/2"), (1, 1, "1"), (2, 1, "2")];

/// Long enough for a token to reach the late rank: in hops.
const LATE_HOPS: u64 = 100;

impl Options {
    fn cost(&self, latency: u64) -> NetworkCost {
        let overhead = latency / self.overhead_part.max(1);
        NetworkCost { latency, overhead, gap: overhead, multicast: self.multicast_ns }
    }

    const fn tree(&self, units: u8) -> BarrierAlgorithm {
        BarrierAlgorithm::Tree { degree: self.degree, units, path: ReleasePath::Multicast }
    }

    /// The deepest rank of the root's first subtree, and of its last.
    fn in_two_subtrees(&self, size: u32) -> [u32; 2] {
        let root = Position::new(Rank(0), size, self.degree).expect("a tree that exists");
        [0, root.children().saturating_sub(1)].map(|child| {
            let subtree = root.child(child);
            deepest(subtree.first..subtree.end, size, self.degree)
        })
    }
}

const DOUBLING: BarrierAlgorithm = BarrierAlgorithm::Schedule(Algorithm::Doubling);

fn main() -> ExitCode {
    let options = Options::parse();
    let started = Instant::now();
    let mut report = Report::new(3, options.json);
    for (numerator, denominator, name) in RATIOS {
        let cost = options.cost(options.multicast_ns * numerator / denominator);
        one_late(&options, &mut report, cost, name);
        two_late(&options, &mut report, cost, name);
        no_skew(&options, &mut report, cost, name);
        against_doubling(&options, &mut report, cost, name);
        semi_dynamic(&options, &mut report, cost, name);
    }
    source(&options, &mut report);
    sweep(&options, &mut report);
    if let Some(path) = &options.plot
        && let Err(error) = plot::draw(path, &skew_charts::charts())
    {
        eprintln!("{}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    report.figure("seconds", "", started.elapsed().as_secs_f64(), "s", Limit::None);
    report.end()
}

fn late(cost: NetworkCost) -> u64 {
    LATE_HOPS * cost.hop()
}

/// One late rank, a deepest one: the delay is the same at all sizes, and that of the combining tree the closed form
/// 1 + d (L + o) / M times as long, d being the rank's depth.
fn one_late(options: &Options, report: &mut Report, cost: NetworkCost, name: &str) {
    let mut delays = Vec::new();
    for &size in &options.ranks {
        let rank = deepest(0..size, size, options.degree);
        let [token, combining] =
            [1, 0].map(|units| barrier(options.tree(units), size, cost, &[(rank, late(cost))]).delay() as f64);
        let doubling = barrier(DOUBLING, size, cost, &[(rank, late(cost))]).delay() as f64;
        let of = format!("L/M {name}, {size} ranks");
        report.figure("one_late_token", &of, token / 1e3, "us", Limit::None);
        report.figure("one_late_combining", &of, combining / 1e3, "us", Limit::None);
        report.figure("one_late_doubling", &of, doubling / 1e3, "us", Limit::None);
        let levels = depth(rank, size, options.degree);
        let closed_form = 1.0 + (levels * cost.hop()) as f64 / cost.multicast as f64;
        report.figure("combining_by_token", &of, combining / token, "", Limit::None);
        let error = (combining / token / closed_form - 1.0).abs();
        report.figure("closed_form_error", &of, error, "", Limit::Most(0.05));
        delays.push(token);
    }
    let longest = delays.iter().copied().fold(0.0, f64::max);
    let shortest = delays.iter().copied().fold(f64::INFINITY, f64::min);
    report.figure("one_late_longest_shortest", &format!("L/M {name}"), longest / shortest, "", Limit::Most(1.05));
}

/// Two equally late ranks in different subtrees of the root. A token of one unit, as in the source, waits at the root.
fn two_late(options: &Options, report: &mut Report, cost: NetworkCost, name: &str) {
    for &size in &options.ranks {
        let at = late(cost);
        let one = barrier(options.tree(2), size, cost, &[(deepest(0..size, size, options.degree), at)]).delay();
        let two = options.in_two_subtrees(size).map(|rank| (rank, at));
        for (units, limit) in [(2, Limit::Most(1.1)), (1, Limit::None)] {
            let delay = barrier(options.tree(units), size, cost, &two).delay();
            let of = format!("L/M {name}, {size} ranks, units {units}");
            report.figure("two_late_by_one_late", &of, delay as f64 / one as f64, "", limit);
        }
    }
}

/// All enter at once: a token that crosses an Ack costs a hop at most.
fn no_skew(options: &Options, report: &mut Report, cost: NetworkCost, name: &str) {
    for &size in &options.ranks {
        let combining = barrier(options.tree(0), size, cost, &[]).delay() as f64;
        let limit = ((1.05 + cost.hop() as f64 / combining) * 1e3).round() / 1e3;
        for units in [1, 2] {
            let token = barrier(options.tree(units), size, cost, &[]).delay() as f64;
            let of = format!("L/M {name}, {size} ranks, units {units}");
            report.figure("no_skew_by_combining", &of, token / combining, "", Limit::Most(limit));
        }
    }
}

fn against_doubling(options: &Options, report: &mut Report, cost: NetworkCost, name: &str) {
    const SIZE: u32 = 64;
    let late = [(deepest(0..SIZE, SIZE, options.degree), late(cost))];
    let [token, doubling] =
        [options.tree(1), DOUBLING].map(|algorithm| barrier(algorithm, SIZE, cost, &late).delay() as f64);
    report.figure("token_by_doubling", &format!("L/M {name}, {SIZE} ranks"), token / doubling, "", Limit::Most(0.4));
}

/// A tree whose root was last in the barrier before: as good as the token tree if the same rank is late again, and as the
/// combining tree if it is another one each time.
fn semi_dynamic(options: &Options, report: &mut Report, cost: NetworkCost, name: &str) {
    const CALLS: u32 = 20;
    for &size in options.ranks.iter().filter(|size| **size <= 4096) {
        let mut random = fastrand::Rng::with_seed(size.into());
        let mut anyone = || random.u32(..size);
        let same = deepest(0..size, size, options.degree);
        let all_the_same = [same; CALLS as usize].to_vec();
        let others: Vec<u32> = (0..CALLS).map(|_| anyone()).collect();
        for (late_ranks, pattern, limit) in [(all_the_same, "same", Limit::Most(1.05)), (others, "any", Limit::None)] {
            let mut tree = SemiDynamicTree::new(size, options.degree);
            let (mut by_history, mut token, mut combining) = (0, 0, 0);
            for (call, rank) in late_ranks.into_iter().enumerate() {
                let late = [(rank, late(cost))];
                let delay = tree.barrier(cost, &late).delay();
                // The first call has no history.
                if call > 0 {
                    by_history += delay;
                    token += barrier(options.tree(1), size, cost, &late).delay();
                    combining += barrier(options.tree(0), size, cost, &late).delay();
                }
            }
            let of = format!("L/M {name}, {size} ranks, {pattern} rank late");
            report.figure("semi_dynamic_by_token", &of, by_history as f64 / token as f64, "", limit);
            report.figure("semi_dynamic_by_combining", &of, by_history as f64 / combining as f64, "", Limit::None);
        }
    }
}

/// The source measures 16 nodes, degree 8, and gains 2.28 for barriers and 2.18 for allreduces: at depth 2 these are
/// (L + o) / M = 0.64 and 0.59.
fn source(options: &Options, report: &mut Report) {
    for (part, gain) in [(0.64, 2.28), (0.59, 2.18)] {
        let hop = options.multicast_ns as f64 * part;
        let overhead = (hop / (options.overhead_part.max(1) + 1) as f64) as u64;
        let cost =
            NetworkCost { latency: hop as u64 - overhead, overhead, gap: overhead, multicast: options.multicast_ns };
        let late = [(deepest(0..16, 16, 8), late(cost))];
        let [token, combining] = [1, 0].map(|units| {
            let algorithm = BarrierAlgorithm::Tree { degree: 8, units, path: ReleasePath::Multicast };
            barrier(algorithm, 16, cost, &late).delay() as f64
        });
        let of = format!("(L+o)/M {part}, 16 ranks");
        report.figure("source_gain_error", &of, (combining / token / gain - 1.0).abs(), "", Limit::Most(0.05));
    }
}

/// One rank of 16 that is late by ever more hops (the source's Fig. 8).
fn sweep(options: &Options, report: &mut Report) {
    const SIZE: u32 = 16;
    let cost = options.cost(options.multicast_ns / 2);
    for hops in [0, 1, 2, 3, 4, 5, 6, 8, 10] {
        let late = [(deepest(0..SIZE, SIZE, options.degree), hops * cost.hop())];
        for (name, algorithm) in [
            ("sweep_token", options.tree(1)),
            ("sweep_two_tokens", options.tree(2)),
            ("sweep_combining", options.tree(0)),
            ("sweep_doubling", DOUBLING),
            ("sweep_dissemination", BarrierAlgorithm::Schedule(Algorithm::Dissemination)),
        ] {
            let delay = barrier(algorithm, SIZE, cost, &late).delay() as f64 / 1e3;
            report.figure(name, &format!("late by {hops} hops, {SIZE} ranks"), delay, "us", Limit::None);
        }
    }
}
