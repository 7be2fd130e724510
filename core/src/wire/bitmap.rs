//! The bitmap of a selective acknowledgement: which of 256 datagrams beyond a gap have arrived.

/// Bits relative to a moving base.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bitmap([u32; Bitmap::WORDS]);

impl Bitmap {
    /// Words of 32 bits.
    pub const WORDS: usize = 8;
    /// Bits.
    pub const BITS: u32 = 256;

    /// No bit set.
    pub const EMPTY: Self = Self([0; Self::WORDS]);

    /// Builds a bitmap from its words, lowest first; missing words are zero, surplus ones are ignored.
    pub fn from_words(words: impl IntoIterator<Item = u32>) -> Self {
        let mut map = Self::default();
        for (into, from) in map.0.iter_mut().zip(words) {
            *into = from;
        }
        map
    }

    /// Its words, lowest first, without zero words at the end.
    pub fn words(&self) -> impl Iterator<Item = u32> + '_ {
        let used = self.0.iter().rposition(|word| *word != 0).map_or(0, |last| last.wrapping_add(1));
        self.0.iter().copied().take(used)
    }

    /// Whether bit `i` is set; false beyond the end.
    pub fn contains(&self, i: u32) -> bool {
        self.0.get((i >> 5) as usize).is_some_and(|word| word & bit(i) != 0)
    }

    /// Sets bit `i`; no effect beyond the end.
    pub fn insert(&mut self, i: u32) {
        if let Some(word) = self.0.get_mut((i >> 5) as usize) {
            *word |= bit(i);
        }
    }

    /// Clears bit `i`; no effect beyond the end.
    pub fn remove(&mut self, i: u32) {
        if let Some(word) = self.0.get_mut((i >> 5) as usize) {
            *word &= !bit(i);
        }
    }

    /// Drops bit 0 and moves every other bit one down.
    pub fn shift(&mut self) {
        let mut carry = 0;
        for word in self.0.iter_mut().rev() {
            let next = *word << 31;
            *word = *word >> 1 | carry;
            carry = next;
        }
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The index of the highest set bit.
    pub fn highest(&self) -> Option<u32> {
        let (i, word) = self.0.iter().enumerate().rev().find(|(_, word)| **word != 0)?;
        Some(((i as u32) << 5) | (31_u32.wrapping_sub(word.leading_zeros())))
    }

    /// The indices of the set bits, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let mut from = 0;
        core::iter::from_fn(move || {
            let place = self.first_from(from)?;
            from = place.wrapping_add(1);
            Some(place)
        })
    }

    /// The index of the lowest set bit that is at least `from`.
    fn first_from(&self, mut from: u32) -> Option<u32> {
        loop {
            let left = self.0.get((from >> 5) as usize)? >> (from & 31);
            if left != 0 {
                return Some(from.wrapping_add(left.trailing_zeros()));
            }
            from = (from | 31).wrapping_add(1);
        }
    }
}

const fn bit(i: u32) -> u32 {
    1 << (i & 31)
}

#[cfg(test)]
mod tests {
    use crate::wire::Bitmap;

    #[test]
    fn bits_move_down_across_words() {
        let mut map = Bitmap::default();
        for i in [0, 31, 32, 64, 255] {
            map.insert(i);
        }
        map.insert(256);
        assert!(map.iter().eq([0, 31, 32, 64, 255]));
        assert_eq!(map.highest(), Some(255));
        map.shift();
        assert!(map.iter().eq([30, 31, 63, 254]));
        assert!(!map.contains(0) && map.contains(63) && !map.contains(700));
    }

    #[test]
    fn words_end_with_the_last_set_one() {
        let mut map = Bitmap::default();
        assert_eq!(map.words().count(), 0);
        map.insert(40);
        assert!(map.words().eq([0, 256]));
        assert_eq!(Bitmap::from_words(map.words()), map);
        assert_eq!(Bitmap::from_words([1; 20]).iter().count(), 8);
    }
}
