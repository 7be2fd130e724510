//! Whether the kernel is asked to cut runs: not for a while after it refused.

/// Batches for which nothing is cut after the first refusal, and after many.
const PAUSE: (u32, u32) = (1 << 6, 1 << 20);

/// A refusal may be one path's (a link that is narrower, or sums no checksums), a moment's, or the system's: each one in a row
/// doubles the pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cutting {
    wanted: bool,
    /// Batches that are left of the pause, and of the next one.
    pause: u32,
    next_pause: u32,
}

impl Cutting {
    pub(super) const fn new(wanted: bool) -> Self {
        Self { wanted, pause: 0, next_pause: PAUSE.0 }
    }

    /// Whether runs are cut at present.
    pub(super) const fn is_on(&self) -> bool {
        self.wanted && self.pause == 0
    }

    /// A batch leaves.
    pub(super) const fn pass(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// The kernel took a run.
    pub(super) const fn handle_taken(&mut self) {
        self.next_pause = PAUSE.0;
    }

    /// The kernel refused a run.
    pub(super) const fn handle_refused(&mut self) {
        self.pause = self.next_pause;
        self.next_pause = if self.next_pause < PAUSE.1 { self.next_pause << 1 } else { PAUSE.1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(cutting: &mut Cutting) -> u32 {
        cutting.handle_refused();
        let mut batches = 0;
        while !cutting.is_on() {
            cutting.pass();
            batches += 1;
        }
        batches
    }

    #[test]
    fn refusals_in_a_row_pause_it_for_longer_and_none_for_good() {
        let mut cutting = Cutting::new(true);
        assert!(cutting.is_on());
        let pauses: Vec<u32> = (0..16).map(|_| pause(&mut cutting)).collect();
        assert_eq!(pauses[..3], [64, 128, 256]);
        assert_eq!(pauses[14..], [1 << 20; 2]);
        cutting.handle_taken();
        assert_eq!(pause(&mut cutting), 64, "what was taken forgives");
    }

    #[test]
    fn what_is_not_wanted_stays_off() {
        let mut cutting = Cutting::new(false);
        cutting.handle_refused();
        for _ in 0..100 {
            cutting.pass();
            assert!(!cutting.is_on());
        }
    }
}
