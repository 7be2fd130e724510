//! Whether a message's bytes are likely to be in a cache: how much else was announced since its place was last sent from.

/// Places that are remembered.
const PLACES: usize = 32;

/// The places that messages were last sent from, and how many bytes had been announced by then.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Reuse {
    places: [(u64, u64); PLACES],
    /// The one that is forgotten next.
    next: usize,
    announced: u64,
}

impl Reuse {
    pub(super) const fn new() -> Self {
        Self { places: [(0, 0); PLACES], next: 0, announced: 0 }
    }

    /// A message of `bytes` bytes is announced there. Bytes announced since the last one there began; `None`: there was none, as
    /// far as is remembered.
    pub(in crate::world) fn distance(&mut self, place: u64, bytes: u32) -> Option<u64> {
        let before = self.announced;
        self.announced += u64::from(bytes);
        if let Some((_, last)) = self.places.iter_mut().find(|(at, _)| *at == place) {
            return Some(before - core::mem::replace(last, before));
        }
        if let Some(forgotten) = self.places.get_mut(self.next) {
            *forgotten = (place, before);
        }
        self.next = (self.next + 1) % PLACES;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_what_was_announced_since() {
        let mut reuse = Reuse::new();
        assert_eq!(reuse.distance(64, 10), None);
        assert_eq!(reuse.distance(64, 10), Some(10));
        assert_eq!(reuse.distance(128, 100), None);
        assert_eq!(reuse.distance(64, 10), Some(110));
        for other in 0..PLACES as u64 {
            assert_eq!(reuse.distance(1000 + other, 1), None);
        }
        assert_eq!(reuse.distance(64, 10), None, "forgotten");
    }
}
