//! Rounds of collectives that check themselves: contributions are functions of round and rank, so that every rank,
//! process or node, knows every result.

/// Elements of a broadcast and of an allreduce. A power of two, so that sums of floats are exact.
pub const COUNT: usize = 8;

/// Element of a rank's contribution to an allreduce, or of a root's broadcast.
pub const fn number(round: u32, rank: u32, index: u32) -> i32 {
    let mixed = round.wrapping_mul(0x9e37_79b9).wrapping_add(rank.wrapping_mul(0x85eb_ca6b)).wrapping_add(index);
    // 16 bits: sums over 256 ranks are exact as floats, too.
    (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d).cast_signed() >> 16
}

/// A rank's contribution to a round.
pub fn contribution(round: u32, rank: u32) -> [i32; COUNT] {
    let mut numbers = [0; COUNT];
    for (index, into) in (0_u32..).zip(&mut numbers) {
        *into = number(round, rank, index);
    }
    numbers
}

/// The sum of all contributions.
pub fn sum(round: u32, ranks: u32) -> [i32; COUNT] {
    let mut sums = [0_i32; COUNT];
    for rank in 0..ranks {
        for (into, number) in sums.iter_mut().zip(contribution(round, rank)) {
            *into = into.wrapping_add(number);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_round_rank_and_index() {
        let first = contribution(1, 0);
        assert_ne!(first, contribution(2, 0));
        assert_ne!(first, contribution(1, 1));
        let [a, b, ..] = first;
        assert_ne!(a, b);
        assert!((0..1000).all(|round| number(round, 3, 0).unsigned_abs() < 1 << 15));
    }

    #[test]
    fn the_sum_is_over_all_ranks() {
        let [of_two, ..] = sum(5, 2);
        assert_eq!(of_two, number(5, 0, 0) + number(5, 1, 0));
    }
}
