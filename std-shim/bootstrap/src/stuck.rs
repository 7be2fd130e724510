//! Deadlock detection: which of the blocked ranks can never continue.
//!
//! Waits are conditions on ranks, as in Chandy, Misra, Haas, "Distributed Deadlock Detection" (TOCS 1983, §4): one of
//! several ranks must act (the OR model), or all of them (the AND model).

use crate::{agreement::RankRanges, rank::Rank};
use alloc::collections::BTreeMap;

/// A wait: of every set of ranks, one must act. A rank acts unless it is stuck, has finished or has failed.
pub(crate) type Conditions = Vec<RankRanges>;

/// The blocked ranks that can never continue, in order. A rank can continue if one of its waits can end; that can end
/// if each of its conditions names a rank that can continue, or is not blocked. `has_ended`: finished or failed.
pub(crate) fn stuck_ranks(
    size: u32,
    blocked: &BTreeMap<Rank, Vec<Conditions>>,
    has_ended: impl Fn(Rank) -> bool,
) -> Vec<Rank> {
    let can_act = |rank: &u32| !blocked.contains_key(&Rank(*rank)) && !has_ended(Rank(*rank));
    let mut acts: Vec<bool> = (0..size).map(|rank| can_act(&rank)).collect();
    let mut stuck: Vec<Rank> = blocked.keys().copied().filter(|rank| rank.0 < size).collect();
    loop {
        let before = stuck.len();
        // A rank that can continue counts at once for those after it; the order alternates for chains of either
        // direction.
        stuck.reverse();
        stuck.retain(|rank| {
            let holds = |ranks: &RankRanges| ranks.below(size).take(acts.len()).any(|rank| is_set(&acts, rank));
            let continues = blocked.get(rank).is_none_or(|waits| waits.iter().any(|wait| wait.iter().all(holds)));
            if continues && let Some(acts) = usize::try_from(rank.0).ok().and_then(|rank| acts.get_mut(rank)) {
                *acts = true;
            }
            !continues
        });
        if stuck.len() == before {
            stuck.sort_unstable();
            return stuck;
        }
    }
}

fn is_set(acts: &[bool], rank: Rank) -> bool {
    usize::try_from(rank.0).ok().and_then(|rank| acts.get(rank)).copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::{collection::vec, prelude::*};

    const SIZE: u32 = 6;

    fn set(mask: u32) -> RankRanges {
        RankRanges::new((0..SIZE).filter(|rank| mask >> rank & 1 != 0).map(Rank)).expect("few")
    }

    /// A rank's state: ended, acting, or blocked in these waits, each a list of sets of ranks.
    #[derive(Clone, Debug)]
    enum State {
        Ended,
        Acts,
        Blocked(Vec<Vec<u32>>),
    }

    fn states() -> impl Strategy<Value = Vec<State>> {
        let state = prop_oneof![
            1 => Just(State::Ended),
            1 => Just(State::Acts),
            6 => vec(vec(0..1_u32 << SIZE, 1..3), 1..3).prop_map(State::Blocked),
            6 => (0..SIZE).prop_map(|rank| State::Blocked(vec![vec![1 << rank]])),
        ];
        vec(state, SIZE as usize)
    }

    /// The union of all sets of blocked ranks in which no rank can continue before another one of the set does.
    fn oracle(states: &[State]) -> Vec<Rank> {
        let of = |rank: u32| &states[rank as usize];
        let is_closed = |set: u32| {
            (0..SIZE).filter(|rank| set >> rank & 1 != 0).all(|rank| match of(rank) {
                State::Blocked(waits) => waits.iter().all(|wait| {
                    wait.iter().any(|any| {
                        let mut named = (0..SIZE).filter(|rank| any >> rank & 1 != 0);
                        named.all(|rank| set >> rank & 1 != 0 || matches!(of(rank), State::Ended))
                    })
                }),
                State::Ended | State::Acts => false,
            })
        };
        let stuck = (0..1 << SIZE).filter(|set| is_closed(*set)).fold(0, |all, set| all | set);
        (0..SIZE).filter(|rank| stuck >> rank & 1 != 0).map(Rank).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn stuck_are_the_largest_set_that_waits_for_itself(states in states()) {
            let of = |(rank, state): (u32, &State)| match state {
                State::Blocked(waits) => {
                    let waits = waits.iter().map(|wait| wait.iter().copied().map(set).collect()).collect();
                    Some((Rank(rank), waits))
                }
                State::Ended | State::Acts => None,
            };
            let blocked = (0..).zip(&states).filter_map(of).collect();
            let ended: BTreeSet<Rank> =
                (0..).zip(&states).filter(|(_, state)| matches!(state, State::Ended)).map(|(rank, _)| Rank(rank)).collect();
            prop_assert_eq!(stuck_ranks(SIZE, &blocked, |rank| ended.contains(&rank)), oracle(&states));
        }
    }

    #[test]
    fn a_chain_to_a_rank_that_computes_is_not_stuck_and_a_ring_is() {
        let waits = |to: u32| vec![vec![RankRanges(vec![(to, 1)])]];
        let ring: BTreeMap<Rank, Vec<Conditions>> = (0..9).map(|rank| (Rank(rank), waits((rank + 1) % 9))).collect();
        assert_eq!(stuck_ranks(9, &ring, |_| false).len(), 9);
        assert_eq!(stuck_ranks(10, &(0..9).map(|rank| (Rank(rank), waits(rank + 1))).collect(), |_| false), []);
        let late = stuck_ranks(10, &(0..9).map(|rank| (Rank(rank), waits(rank + 1))).collect(), |rank| rank == Rank(9));
        assert_eq!(late.len(), 9, "the last one waits for a rank that has ended");
        assert_eq!(stuck_ranks(2, &[(Rank(7), waits(7))].into(), |_| false), [], "no such rank");
    }
}
