//! Reverse reachability: finds a state from which no finished one can be reached.

/// The first of `states` states from which none of `targets` can be reached along `transitions`.
pub(super) fn first_that_cannot_reach(states: u32, transitions: &[[u32; 2]], targets: &[u32]) -> Option<u32> {
    // The transitions into each state, side by side: those into state n lie from starts[n] to starts[n + 1].
    let mut starts = vec![0_u64; states as usize + 1];
    for [_, to] in transitions {
        starts[*to as usize] += 1;
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    let mut sources = vec![0_u32; transitions.len()];
    for [from, to] in transitions {
        let start = &mut starts[*to as usize];
        *start -= 1;
        sources[*start as usize] = *from;
    }
    let mut reaches = vec![false; states as usize];
    let mut open = targets.to_vec();
    for target in targets {
        reaches[*target as usize] = true;
    }
    while let Some(state) = open.pop() {
        let into = starts[state as usize] as usize..starts[state as usize + 1] as usize;
        for source in &sources[into] {
            if !core::mem::replace(&mut reaches[*source as usize], true) {
                open.push(*source);
            }
        }
    }
    reaches.iter().position(|reaches| !reaches).map(|state| state as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reachability_follows_transitions_backwards() {
        // 0 → 1 → 2 → 0, 2 → 3 (finished), 1 → 4 ⇄ 5.
        let transitions = [[0, 1], [1, 2], [2, 0], [2, 3], [1, 4], [4, 5], [5, 4]];
        assert_eq!(first_that_cannot_reach(6, &transitions, &[3]), Some(4));
        assert_eq!(first_that_cannot_reach(6, &transitions, &[3, 5]), None);
        assert_eq!(first_that_cannot_reach(6, &transitions, &[]), Some(0));
        assert_eq!(first_that_cannot_reach(1, &[], &[0]), None);
    }
}
