//! CPU affinity of pinned ranks.

use rustix::thread::{CpuSet, sched_getaffinity};

/// The processors of one of `count` processes of this host, among those that this process may use: a contiguous, equal
/// share, or one processor shared with other processes if there are too few. `None` if the system does not report its
/// processors.
pub(crate) fn processors_of(index: usize, count: usize) -> Option<CpuSet> {
    let allowed = sched_getaffinity(None).ok()?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    let mut set = CpuSet::new();
    for processor in share_of(&processors, index, count) {
        set.set(*processor);
    }
    (set.count() > 0).then_some(set)
}

fn share_of(processors: &[usize], index: usize, count: usize) -> &[usize] {
    let all = processors.len();
    if all == 0 || count == 0 {
        return &[];
    }
    let range = if count <= all {
        let from = |index: usize| index * all / count;
        from(index)..from(index + 1)
    } else {
        index % all..index % all + 1
    };
    processors.get(range).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn surplus_processes_share_in_turn() {
        assert_eq!(share_of(&[4, 7], 0, 3), [4]);
        assert_eq!(share_of(&[4, 7], 1, 3), [7]);
        assert_eq!(share_of(&[4, 7], 2, 3), [4]);
        assert!(share_of(&[], 0, 1).is_empty());
        assert!(processors_of(0, 1).is_some_and(|set| set.count() > 0));
    }

    proptest! {
        #[test]
        fn every_processor_has_one_owner(all in 1_usize..64, count in 1_usize..64) {
            prop_assume!(count <= all);
            let processors: Vec<usize> = (0..all).map(|index| 3 * index).collect();
            let shares: Vec<&[usize]> = (0..count).map(|index| share_of(&processors, index, count)).collect();
            prop_assert!(shares.iter().all(|share| !share.is_empty()));
            prop_assert_eq!(shares.concat(), processors);
        }
    }
}
