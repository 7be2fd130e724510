//! Figures of each contender in each of several interleaved rounds.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

use crate::fixtures::thread_pair::median;

/// Which of two figures is the better one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// The smaller: a time.
    Less,
    /// The larger: a rate.
    More,
}

impl Better {
    /// The better of two; a NaN is no figure.
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Less => a.min(b),
            Self::More => a.max(b),
        }
    }

    /// How many times as good `ours` is as `theirs`.
    fn ratio(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Self::Less => theirs / ours,
            Self::More => ours / theirs,
        }
    }
}

/// Figures by quantity, contender and round.
#[derive(Default, Debug)]
pub struct Record {
    rounds: usize,
    figures: BTreeMap<(String, &'static str), Vec<f64>>,
}

impl Record {
    /// Begins a round, in which each contender has at most one figure per quantity.
    pub fn begin_round(&mut self) {
        self.rounds += 1;
    }

    /// Records a figure of the contender `who` for the quantity `what` in this round.
    pub fn add(&mut self, what: &str, who: &'static str, figure: f64) {
        let figures = self.figures.entry((what.to_string(), who)).or_default();
        figures.resize(self.rounds.max(1), f64::NAN);
        if let Some(last) = figures.last_mut() {
            *last = figure;
        }
    }

    /// The best figure of `who` for `what` in each round; NaN where there is none.
    pub fn best(&self, what: &str, who: &[&'static str], better: Better) -> Vec<f64> {
        let shown: Vec<&Vec<f64>> = who.iter().filter_map(|who| self.figures.get(&(what.to_string(), *who))).collect();
        let best = |round: usize| {
            let figures = shown.iter().filter_map(|figures| figures.get(round));
            figures.fold(f64::NAN, |best, figure| better.of(best, *figure))
        };
        (0..self.rounds).map(best).collect()
    }
}

/// The median of the figures, without NaN.
pub fn middle(figures: &[f64]) -> f64 {
    median(figures.iter().copied().filter(|figure| figure.is_finite()).collect())
}

/// How many times as good ours are as theirs: the median over the rounds in which both have a figure; NaN if there is
/// none.
pub fn ratio(ours: &[f64], theirs: &[f64], better: Better) -> f64 {
    middle(&ours.iter().zip(theirs).map(|(ours, theirs)| better.ratio(*ours, *theirs)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rounds: &[[Option<f64>; 2]]) -> Record {
        let mut record = Record::default();
        for round in rounds {
            record.begin_round();
            for (who, figure) in ["a", "b"].into_iter().zip(round) {
                figure.iter().for_each(|figure| record.add("time", who, *figure));
            }
        }
        record
    }

    #[test]
    fn the_better_variant_of_each_round_counts() {
        let record = record(&[[Some(4.0), Some(3.0)], [Some(1.0), Some(2.0)], [None, Some(9.0)]]);
        assert_eq!(record.best("time", &["a", "b"], Better::Less), [3.0, 1.0, 9.0]);
        assert_eq!(record.best("time", &["a", "b"], Better::More), [4.0, 2.0, 9.0]);
    }

    #[test]
    fn rounds_without_a_figure_do_not_count() {
        let record = record(&[[Some(2.0), Some(4.0)], [None, Some(1.0)], [Some(2.0), None], [Some(1.0), Some(3.0)]]);
        let [a, b] = ["a", "b"].map(|who| record.best("time", &[who], Better::Less));
        assert_eq!((ratio(&a, &b, Better::Less), ratio(&a, &b, Better::More)), (3.0, 0.5));
        assert!(ratio(&a, &record.best("time", &["c"], Better::Less), Better::Less).is_nan());
        assert_eq!(middle(&a), 2.0);
    }
}
