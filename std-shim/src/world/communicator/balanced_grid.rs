//! The lengths of the most balanced grid with a given number of points (`MPI_Dims_create`).

use core::cmp::Reverse;

/// Lengths of `dimensions` dimensions, in descending order, whose product is `points`: those with the least difference
/// between the greatest and the least, of these with the greatest least one, then with the least sum, then with the
/// greatest first lengths.
pub(super) fn balanced_lengths(points: u32, dimensions: usize) -> Vec<u32> {
    let mut search = Search { divisors: divisors(points), chosen: Vec::with_capacity(dimensions), best: None };
    search.extend(points, dimensions, u32::MAX);
    search.best.map_or_else(|| vec![1; dimensions], |(_, best)| best)
}

/// All divisors, in ascending order.
fn divisors(number: u32) -> Vec<u32> {
    let small = (1..).take_while(|factor| u64::from(*factor) * u64::from(*factor) <= u64::from(number));
    let mut all: Vec<u32> =
        small.filter(|factor| number.is_multiple_of(*factor)).flat_map(|factor| [factor, number / factor]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A number that is not less than the root, and at most one greater than it.
fn root_above(of: u32, power: usize) -> u32 {
    (f64::from(of).powf((power as f64).recip()) + 1e-6) as u32
}

/// Difference of the greatest and the least length, the least one, and the sum of all.
type Imbalance = (u32, Reverse<u32>, u64);

/// A search of the descending factors with the least imbalance.
struct Search {
    divisors: Vec<u32>,
    chosen: Vec<u32>,
    best: Option<(Imbalance, Vec<u32>)>,
}

impl Search {
    /// Tries all ways to complete the chosen factors by `left` more, none greater than `most`, of the product `rest`.
    fn extend(&mut self, rest: u32, left: usize, most: u32) {
        if left == 0 {
            if rest == 1 {
                self.compare_with_best();
            }
            return;
        }
        for at in 0..self.divisors.len() {
            let Some(&factor) = self.divisors.get(at).filter(|factor| **factor <= most) else { return };
            let is_enough = u64::from(factor).checked_pow(left as u32).is_none_or(|all| all >= u64::from(rest));
            if !rest.is_multiple_of(factor) || !is_enough {
                continue;
            }
            // The last one is at most the geometric mean of those that follow.
            let first = self.chosen.first().copied().unwrap_or(factor);
            let last = if left == 1 { factor } else { root_above(rest / factor, left - 1) };
            let is_worse = |((difference, ..), _): &(Imbalance, Vec<u32>)| *difference < first.saturating_sub(last);
            if self.best.as_ref().is_some_and(is_worse) {
                // Greater factors leave less for the last one.
                match left {
                    1 => continue,
                    _ => return,
                }
            }
            self.chosen.push(factor);
            self.extend(rest / factor, left - 1, factor);
            self.chosen.pop();
        }
    }

    fn compare_with_best(&mut self) {
        let (first, last) = self.chosen.first().zip(self.chosen.last()).map_or((0, 0), |(first, last)| (*first, *last));
        let imbalance = (first - last, Reverse(last), self.chosen.iter().map(|length| u64::from(*length)).sum());
        let is_better =
            |(least, best): &(Imbalance, Vec<u32>)| imbalance < *least || (imbalance == *least && self.chosen > *best);
        if self.best.as_ref().is_none_or(is_better) {
            self.best = Some((imbalance, self.chosen.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_are_as_equal_as_possible() {
        let cases: [(u32, usize, &[u32]); 12] = [
            (1, 2, &[1, 1]),
            (6, 2, &[3, 2]),
            (16, 2, &[4, 4]),
            (7, 3, &[7, 1, 1]),
            (24, 3, &[4, 3, 2]),
            (72, 2, &[9, 8]),
            (540, 2, &[27, 20]),
            (216_000, 4, &[27, 20, 20, 20]),
            (98_784, 5, &[14, 14, 9, 8, 7]),
            (233_856, 4, &[29, 24, 21, 16]),
            (590_520, 4, &[38, 37, 21, 20]),
            (4, 0, &[]),
        ];
        for (points, dimensions, lengths) in cases {
            assert_eq!(balanced_lengths(points, dimensions), lengths, "{points} points");
        }
        assert_eq!(balanced_lengths(1 << 31, 31), [2; 31]);
        assert_eq!(balanced_lengths(4_294_967_291, 3), [4_294_967_291, 1, 1], "a prime");
    }

    /// All descending factorizations.
    fn factorizations(rest: u32, left: usize, most: u32) -> Vec<Vec<u32>> {
        if left == 0 {
            return if rest == 1 { vec![vec![]] } else { vec![] };
        }
        let factors = (1..=most.min(rest)).filter(|factor| rest.is_multiple_of(*factor));
        let with = |factor: u32| {
            let tails = factorizations(rest / factor, left - 1, factor).into_iter();
            tails.map(move |tail| [vec![factor], tail].concat())
        };
        factors.flat_map(with).collect()
    }

    proptest! {
        #[test]
        fn no_factorization_is_more_balanced(points in 1_u32..3000, dimensions in 1_usize..5) {
            let order = |all: &Vec<u32>| (all[0] - all[dimensions - 1], Reverse(all[dimensions - 1]), all.iter().sum::<u32>());
            let least = factorizations(points, dimensions, points).into_iter().map(|all| order(&all)).min();
            let found = balanced_lengths(points, dimensions);
            prop_assert_eq!(found.iter().product::<u32>(), points);
            prop_assert!(found.is_sorted_by(|one, next| one >= next));
            prop_assert_eq!(Some(order(&found)), least);
        }
    }
}
