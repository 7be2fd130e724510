//! From which size on which algorithm is the fastest, between sizes at which all were measured.
//!
//! Between two of them the time of an algorithm is taken as α + β·bytes (Hockney 1994): the fastest ones are the lower
//! envelope of straight lines, so that an algorithm wins from where its line crosses, and one that is the fastest at neither
//! end may win between them.

/// What an algorithm takes at two adjacent sizes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Times<A> {
    pub(super) algorithm: A,
    /// At the smaller and the larger size; not finite: it was not measured there.
    pub(super) at: [f64; 2],
}

impl<A: Copy> Times<A> {
    fn is_line(&self) -> bool {
        self.at.iter().all(|time| time.is_finite())
    }

    fn slope(&self) -> f64 {
        let [smaller, larger] = self.at;
        larger - smaller
    }

    /// Its time at a part of the way from the smaller to the larger size.
    fn at_part(&self, part: f64) -> f64 {
        self.at[0] + part * self.slope()
    }

    /// Where another line falls below this one, which is not above it at `from`.
    fn crossing(&self, other: &Self, from: f64) -> Option<f64> {
        let falls = self.slope() - other.slope();
        (falls > 0.0).then(|| (from + (other.at_part(from) - self.at_part(from)) / falls).max(from))
    }
}

/// Each algorithm that is the fastest from some size on, with that size, in their order, up to the larger of two sizes. An
/// algorithm that was measured at one of them only is considered up to their geometric mean.
pub(super) fn fastest_between<A: Copy + PartialEq>(sizes: [u64; 2], times: &[Times<A>]) -> Vec<(u64, A)> {
    let [smaller, larger] = sizes;
    let bytes = larger.saturating_sub(smaller) as f64;
    let middle = smaller.saturating_mul(larger).isqrt();
    let part_of = |size: u64| (size - smaller) as f64 / bytes.max(1.0);
    let fastest_at = |end: usize| {
        let known = times.iter().filter(move |one| one.at[end].is_finite());
        known
            .min_by(move |one, other| one.at[end].total_cmp(&other.at[end]).then(one.slope().total_cmp(&other.slope())))
    };
    let fastest_of_lines = |part: f64| {
        let lines = times.iter().filter(|one| one.is_line());
        lines.min_by(|one, other| {
            one.at_part(part).total_cmp(&other.at_part(part)).then(one.slope().total_cmp(&other.slope()))
        })
    };
    let Some(first) = fastest_at(0) else {
        return fastest_at(1).map(|last| (middle, last.algorithm)).into_iter().collect();
    };
    let mut found = vec![(smaller, first.algorithm)];
    let (mut part, mut fastest) = (0.0, first);
    if !first.is_line() {
        let Some(line) = fastest_of_lines(part_of(middle)) else {
            found.extend(fastest_at(1).map(|last| (middle, last.algorithm)));
            return found;
        };
        (part, fastest) = (part_of(middle), line);
        found.push((middle, line.algorithm));
    }
    // Where the fastest one at the larger size was measured only there, lines end at the mean.
    let last = fastest_at(1).filter(|last| !last.is_line());
    let end = if last.is_some() { part_of(middle) } else { 1.0 };
    loop {
        let lines = times.iter().filter(|one| one.is_line());
        let crossings = lines.filter_map(|one| Some((fastest.crossing(one, part)?, one)));
        let next = crossings
            .filter(|(at, _)| *at < end)
            .min_by(|(at, one), (other_at, other)| at.total_cmp(other_at).then(one.slope().total_cmp(&other.slope())));
        let Some((at, line)) = next else { break };
        (part, fastest) = (at, line);
        found.push((smaller + (at * bytes).ceil() as u64, line.algorithm));
    }
    found.extend(last.map(|last| (middle, last.algorithm)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn between(times: &[(char, f64, f64)]) -> Vec<(u64, char)> {
        let times: Vec<_> = times.iter().map(|&(algorithm, a, b)| Times { algorithm, at: [a, b] }).collect();
        fastest_between([1000, 3000], &times)
    }

    const NEVER: f64 = f64::INFINITY;

    #[test]
    fn an_algorithm_wins_from_where_its_line_crosses() {
        assert_eq!(between(&[('a', 1.0, 9.0)]), [(1000, 'a')]);
        assert_eq!(between(&[('a', 1.0, 9.0), ('b', 3.0, 7.0)]), [(1000, 'a'), (2000, 'b')]);
        assert_eq!(between(&[('a', 1.0, 9.0), ('b', 8.0, 8.0)]), [(1000, 'a'), (2750, 'b')]);
        assert_eq!(between(&[('a', 2.0, 4.0), ('b', 2.0, 3.0)]), [(1000, 'b')]);
    }

    #[test]
    fn one_that_wins_at_neither_end_may_win_between() {
        assert_eq!(
            between(&[('a', 0.0, 12.0), ('b', 3.0, 7.0), ('c', 6.0, 6.0)]),
            [(1000, 'a'), (1750, 'b'), (2500, 'c')]
        );
        assert_eq!(between(&[('a', 0.0, 12.0), ('b', 5.5, 7.5), ('c', 6.0, 6.0)]), [(1000, 'a'), (2000, 'c')]);
    }

    #[test]
    fn one_that_was_measured_at_one_end_only_is_considered_up_to_the_mean() {
        assert_eq!(between(&[('a', 1.0, NEVER), ('b', 2.0, 3.0)]), [(1000, 'a'), (1732, 'b')]);
        assert_eq!(between(&[('a', 2.0, 3.0), ('b', NEVER, 1.0)]), [(1000, 'a'), (1732, 'b')]);
        assert_eq!(between(&[('a', 1.0, NEVER), ('b', NEVER, 1.0)]), [(1000, 'a'), (1732, 'b')]);
        assert_eq!(between(&[('a', NEVER, 1.0)]), [(1732, 'a')]);
        assert_eq!(between(&[('a', NEVER, NEVER)]), []);
    }

    proptest! {
        /// At any size the algorithm that is found takes no longer than any other, but for the rounding of a size.
        #[test]
        fn the_envelope_is_lowest_everywhere(times in prop::collection::vec((1.0..100.0, 1.0..100.0), 1..6)) {
            let lines: Vec<Times<usize>> =
                times.iter().enumerate().map(|(algorithm, &(a, b))| Times { algorithm, at: [a, b] }).collect();
            let found = fastest_between([1000, 3000], &lines);
            prop_assert!(found.is_sorted_by_key(|(size, _)| *size));
            for size in 1000..3000_u64 {
                let part = (size - 1000) as f64 / 2000.0;
                let chosen = found.iter().rfind(|(from, _)| *from <= size).expect("one from the start").1;
                let least = lines.iter().map(|one| one.at_part(part)).fold(f64::INFINITY, f64::min);
                prop_assert!(lines[chosen].at_part(part) <= least + 0.1, "{size}: {found:?}");
            }
        }
    }
}
