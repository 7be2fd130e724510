//! Chooses how a long message is copied: read out of the sender's memory by the receiver, in one copy (CMA), or twice,
//! in fragments, by both in parallel.
//!
//! The single copy wins when the message is still in caches as the sender left it; bytes that were just written, or
//! come from memory, are copied faster by two. So the single copy is tried only where messages are sent from the same
//! place in short succession. Both ways are timed and the faster one is taken; now and then the other one is timed
//! again.

/// Places that are remembered.
const PLACES_MAX: usize = 32;
/// Most bytes announced since the last message from the same place for caches still to hold it.
const REUSE_BYTES: u64 = 1 << 21;
/// Messages from such places between two that try the slower way.
const TRY_EVERY: u32 = 32;

/// The measured cost of both ways.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct CopySelector {
    /// The places that messages were last sent from, and how many bytes had been announced by then.
    places: [(u64, u64); PLACES_MAX],
    /// The place that is replaced next.
    next: usize,
    announced: u64,
    /// Number of messages from a recently used place.
    reused: u32,
    /// Picoseconds per byte for reading by CMA, and for copying fragments out; 0: unknown.
    cma_cost: u64,
    fragment_cost: u64,
}

impl CopySelector {
    pub(super) const fn new() -> Self {
        Self { places: [(0, 0); PLACES_MAX], next: 0, announced: 0, reused: 0, cma_cost: 0, fragment_cost: 0 }
    }

    /// Whether to read the message that is announced at this place by CMA.
    pub(in crate::world) fn uses_cma(&mut self, place: u64, bytes: u64) -> bool {
        if self.distance(place, bytes).is_none_or(|distance| distance > REUSE_BYTES) {
            return false;
        }
        self.reused = self.reused.wrapping_add(1);
        // A fragment costs more than its copy: two processes signal and poll for it.
        let better = self.fragment_cost > 0 && self.cma_cost <= self.fragment_cost + self.fragment_cost / 4;
        if self.reused.is_multiple_of(TRY_EVERY) { !better } else { better }
    }

    /// Records how long CMA took for these bytes.
    pub(in crate::world) fn record_cma(&mut self, bytes: usize, ns: u64) {
        self.cma_cost = running_mean(self.cma_cost, bytes, ns);
    }

    /// Records how long the copy of a fragment of these bytes took.
    pub(in crate::world) fn record_fragment(&mut self, bytes: usize, ns: u64) {
        self.fragment_cost = running_mean(self.fragment_cost, bytes, ns);
    }

    /// Bytes announced since the last message from this place; `None`: there was none that is remembered.
    fn distance(&mut self, place: u64, bytes: u64) -> Option<u64> {
        let before = self.announced;
        self.announced += bytes;
        if let Some((_, last)) = self.places.iter_mut().find(|(at, _)| *at == place) {
            return Some(before - core::mem::replace(last, before));
        }
        if let Some(forgotten) = self.places.get_mut(self.next) {
            *forgotten = (place, before);
        }
        self.next = (self.next + 1) % PLACES_MAX;
        None
    }
}

/// The first value, then a running mean that ignores outliers: a copy that took more than four times the mean was
/// preempted.
fn running_mean(mean: u64, bytes: usize, ns: u64) -> u64 {
    let new = (ns.saturating_mul(1000) / bytes.max(1) as u64).max(1);
    if mean == 0 { new } else { (3 * mean + new.min(4 * mean)) / 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_what_was_announced_since() {
        let mut pace = CopySelector::new();
        assert_eq!(pace.distance(64, 10), None);
        assert_eq!(pace.distance(64, 10), Some(10));
        assert_eq!(pace.distance(128, 100), None);
        assert_eq!(pace.distance(64, 10), Some(110));
        for other in 0..PLACES_MAX as u64 {
            assert_eq!(pace.distance(1000 + other, 1), None);
        }
        assert_eq!(pace.distance(64, 10), None, "forgotten");
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_one_tried() {
        let mut pace = CopySelector::new();
        let reads = |pace: &mut CopySelector| (0..TRY_EVERY).filter(|_| pace.uses_cma(64, 1 << 16)).count() as u32;
        assert_eq!(reads(&mut pace), 0, "nothing is known");
        pace.record_fragment(1000, 100);
        assert!(reads(&mut pace) >= 1, "tried");
        pace.record_cma(1000, 200);
        assert_eq!(reads(&mut pace), 1, "slower, but tried");
        (0..20).for_each(|_| pace.record_cma(1000, 80));
        assert_eq!(reads(&mut pace), TRY_EVERY - 1, "faster");
        (0..20).for_each(|_| pace.record_fragment(1000, 20));
        assert_eq!(reads(&mut pace), 1, "slower again");
        assert!((0..9).all(|place| !pace.uses_cma(place << 20, 1 << 20)), "from elsewhere each time");
    }
}
