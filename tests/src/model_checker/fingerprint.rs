//! The set of visited states, by their fingerprints.

use core::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;

/// 96 bits that stand for a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fingerprint([u32; 3]);

impl Fingerprint {
    pub(super) fn of(state: &impl Hash) -> Self {
        let [low, high] =
            [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344].map(|seed| FixedState::with_seed(seed).hash_one(state));
        Self([low as u32, (low >> 32) as u32, high as u32])
    }

    const fn home(self, mask: usize) -> usize {
        (self.0[0] as usize | (self.0[1] as usize) << 32) & mask
    }
}

/// A visited state and its index in order of discovery.
#[derive(Clone, Copy, Debug)]
struct Entry {
    fingerprint: Fingerprint,
    index: u32,
}

const EMPTY: Entry = Entry { fingerprint: Fingerprint([0; 3]), index: u32::MAX };

const _: () = assert!(size_of::<Entry>() == 16);

/// Open addressing, so that a look costs one miss of the cache; a power of two, at most three quarters full.
#[derive(Debug)]
pub(super) struct Visited {
    table: Vec<Entry>,
    found: u32,
    sum: u64,
}

impl Default for Visited {
    fn default() -> Self {
        Self { table: vec![EMPTY; 1 << 10], found: 0, sum: 0 }
    }
}

impl Visited {
    pub(super) const fn len(&self) -> u32 {
        self.found
    }

    /// The sum of all fingerprints, which does not depend on the order of discovery.
    pub(super) const fn sum(&self) -> u64 {
        self.sum
    }

    /// Its index, and whether it is new.
    pub(super) fn insert(&mut self, fingerprint: Fingerprint) -> (u32, bool) {
        if self.found as usize >= self.table.len() / 4 * 3 {
            self.grow();
        }
        let place = self.place(fingerprint);
        let index = self.table[place].index;
        if index != EMPTY.index {
            return (index, false);
        }
        let index = self.found;
        assert!(index != EMPTY.index, "fewer than 2^32 - 1 states");
        self.table[place] = Entry { fingerprint, index };
        self.found += 1;
        let [low, high, _] = fingerprint.0.map(u64::from);
        self.sum = self.sum.wrapping_add(low | high << 32);
        (index, true)
    }

    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<u32> {
        Some(self.table[self.place(fingerprint)].index).filter(|index| *index != EMPTY.index)
    }

    /// Where its entry stands, or would.
    fn place(&self, fingerprint: Fingerprint) -> usize {
        let mask = self.table.len() - 1;
        let mut place = fingerprint.home(mask);
        while self.table[place].index != EMPTY.index && self.table[place].fingerprint != fingerprint {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let larger = vec![EMPTY; self.table.len() * 2];
        for entry in core::mem::replace(&mut self.table, larger) {
            if entry.index != EMPTY.index {
                let place = self.place(entry.fingerprint);
                self.table[place] = entry;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fingerprint_keeps_its_index_while_the_table_grows() {
        let mut visited = Visited::default();
        for round in 0..2 {
            for number in 0..100_000_u32 {
                assert_eq!(visited.insert(Fingerprint::of(&number)), (number, round == 0));
            }
        }
        assert_eq!((visited.len(), visited.find(Fingerprint::of(&100_000_u32))), (100_000, None));
    }
}
