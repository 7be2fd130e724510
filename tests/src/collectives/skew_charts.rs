//! Charts of synchronization delays: Figures 4 to 12 of Mamidala, Liu, Panda (2004), by simulation.
//!
//! The source measured 16 nodes of an InfiniBand cluster. Here a hop is half as long as a multicast, o = gap = L / 20, and
//! an allreduce of 128 doubles lengthens both by the time of 1 KiB at 800 MB/s. The source's trees are in its Fig. 3, which
//! is lost: barriers have degree 8, allreduces 4. Its late ranks 1 and 15 are two deepest ranks of different subtrees here.

use unisono_bench::plot::{Chart, Line, Stroke};
use unisono_core::collective::token_tree::ReleasePath;
use unisono_core::schedule::Algorithm;

use super::skew::{BarrierAlgorithm, BarrierTimes, NetworkCost, barrier, deepest};

/// Ranks of the charts over lateness, as in the source.
const RANKS: u32 = 16;
/// Ranks of the charts over ranks: the source's, and more.
const SIZES: [u32; 11] = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];
/// How much later than the others late ranks enter, in eighths of a hop.
const LATENESS: [u64; 9] = [1, 4, 8, 16, 24, 32, 48, 80, 160];

/// A collective that synchronizes all ranks.
struct Synchronizer {
    name: &'static str,
    degree: u32,
    cost: NetworkCost,
    /// The algorithm without a tree.
    flat: (&'static str, Algorithm),
}

const BARRIER: Synchronizer = Synchronizer {
    name: "barrier",
    degree: 8,
    cost: NetworkCost { latency: 6_400, overhead: 320, gap: 320, multicast: 12_800 },
    flat: ("dissemination", Algorithm::Dissemination),
};

const ALLREDUCE: Synchronizer = Synchronizer {
    name: "allreduce",
    degree: 4,
    cost: NetworkCost { latency: 7_680, overhead: 320, gap: 320, multicast: 14_080 },
    flat: ("pairwise exchange", Algorithm::Doubling),
};

impl Synchronizer {
    /// The source's algorithms, and a token of two units.
    fn algorithms(&self) -> [(&'static str, BarrierAlgorithm); 4] {
        let tree = |units| BarrierAlgorithm::Tree { degree: self.degree, units, path: ReleasePath::Multicast };
        [
            ("token tree", tree(1)),
            ("token tree, two units", tree(2)),
            ("combining tree", tree(0)),
            (self.flat.0, BarrierAlgorithm::Schedule(self.flat.1)),
        ]
    }

    /// A chart with a line for each algorithm: `time` gives the point of a place on the horizontal axis.
    fn chart<X: Copy>(
        &self,
        figure: u32,
        about: &str,
        axis: (&str, fn(f64) -> String),
        places: &[X],
        point: impl Fn(BarrierAlgorithm, X) -> (f64, u64),
    ) -> Chart {
        let line = |(colour, (label, algorithm)): (usize, (&str, BarrierAlgorithm))| {
            let points = places.iter().map(|place| point(algorithm, *place)).map(|(x, ns)| (x, ns as f64 / 1e3));
            let stroke = [Stroke::Solid, Stroke::Dashed, Stroke::Solid, Stroke::Dotted][colour];
            Line { label: label.to_owned(), colour, stroke, points: points.collect(), bars: Vec::new() }
        };
        let NetworkCost { latency, multicast, .. } = self.cost;
        Chart {
            caption: format!("Fig. {figure}: {}, {about}", self.name),
            x: axis.0.to_owned(),
            y: format!("µs (simulated, L {}, M {})", latency as f64 / 1e3, multicast as f64 / 1e3),
            x_label: axis.1,
            lines: self.algorithms().into_iter().enumerate().map(line).collect(),
        }
    }

    fn run(&self, algorithm: BarrierAlgorithm, size: u32, late: &[(u32, u64)]) -> BarrierTimes {
        barrier(algorithm, size, self.cost, late)
    }

    /// The last of the deepest ranks, and a deepest rank of another subtree of the root.
    fn deepest(&self) -> [u32; 2] {
        let last = deepest(0..RANKS, RANKS, self.degree);
        [last, deepest(0..last.min(RANKS / 2), RANKS, self.degree)]
    }

    /// Latency where all enter at once, by ranks.
    fn without_skew(&self, figure: u32) -> Chart {
        let point = |algorithm, size: u32| (f64::from(size), self.run(algorithm, size, &[]).last_out);
        self.chart(figure, "all enter at once", ("ranks", whole), &SIZES, point)
    }

    /// Delay where the last rank is late by twice the latency, by ranks.
    fn scalability(&self, figure: u32) -> Chart {
        let point = |algorithm, size: u32| {
            let late = 2 * self.run(algorithm, size, &[]).last_out;
            (f64::from(size), self.run(algorithm, size, &[(size - 1, late)]).delay())
        };
        self.chart(figure, "the last rank late by twice the latency", ("ranks", whole), &SIZES, point)
    }

    /// Delay where these ranks of 16 are equally late, by their lateness.
    fn lateness(&self, figure: u32, about: &str, late_ranks: &[u32]) -> Chart {
        let point = |algorithm, eighths: u64| {
            let at = eighths * self.cost.hop() / 8;
            let late: Vec<_> = late_ranks.iter().map(|rank| (*rank, at)).collect();
            (at as f64 / 1e3, self.run(algorithm, RANKS, &late).delay())
        };
        self.chart(figure, &format!("{about} of {RANKS}"), ("late by µs", tenths), &LATENESS, point)
    }
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

/// The source's figures, in its order.
pub fn charts() -> Vec<Chart> {
    let [of_barrier, of_allreduce] = [BARRIER, ALLREDUCE].map(|of| of.deepest());
    vec![
        BARRIER.without_skew(4),
        ALLREDUCE.without_skew(5),
        BARRIER.scalability(6),
        ALLREDUCE.scalability(7),
        BARRIER.lateness(8, "one deepest rank late", &of_barrier[..1]),
        ALLREDUCE.lateness(9, "one deepest rank late", &of_allreduce[..1]),
        BARRIER.lateness(10, "two deepest ranks equally late", &of_barrier),
        BARRIER.lateness(11, "one child of the root late", &[1]),
        ALLREDUCE.lateness(12, "two deepest ranks equally late", &of_allreduce),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::collective::token_tree::Position;
    use unisono_core::ids::Rank;

    #[test]
    fn equally_late_ranks_are_in_different_subtrees_of_the_root() {
        for (of, number) in [(&BARRIER, 10), (&ALLREDUCE, 12)] {
            let all = charts();
            assert!(all.iter().any(|chart| chart.caption.starts_with(&format!("Fig. {number}: {}", of.name))));
            let [bottom, first] = of.deepest();
            let root = Position::new(Rank(0), RANKS, of.degree).expect("a tree");
            let subtree = |rank: u32| {
                (0..root.children()).find(|child| {
                    let at = root.child(*child);
                    (at.first..at.end).contains(&rank)
                })
            };
            assert!(subtree(first) != subtree(bottom) && subtree(first).is_some(), "{first} and {bottom}");
        }
    }

    #[test]
    fn token_trees_end_with_the_multicast_and_two_late_ranks_need_two_units() {
        let all = charts();
        let last = |figure: usize, line: usize| all[figure - 4].lines[line].points.last().expect("a point").1;
        let multicast = BARRIER.cost.multicast as f64 / 1e3;
        // Fig. 8: the token waits at the late rank. Fig. 10: one of one unit stays at the root.
        assert_eq!(last(8, 0), multicast);
        assert_eq!(last(10, 1), multicast);
        assert!(last(10, 0) > multicast);
        // Fig. 6: the same at every number of ranks; the combining tree grows.
        let delays: Vec<f64> = all[2].lines[0].points.iter().map(|point| point.1).collect();
        assert!(delays.iter().all(|delay| *delay == multicast), "{delays:?}");
        assert!(all[2].lines[2].points.is_sorted_by(|one, other| one.1 <= other.1));
    }
}
