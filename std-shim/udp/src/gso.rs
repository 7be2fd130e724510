//! Use of generic segmentation offload (GSO): paused for a while after the kernel rejected it.

/// Length of the pause in batches: after the first rejection, and at most.
const PAUSE: (u32, u32) = (1 << 6, 1 << 20);

/// Whether GSO is used at present. A rejection may be due to one path (a link with a smaller MTU, or without checksum
/// offload), to the moment, or to the system: each consecutive one doubles the pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GsoState {
    enabled: bool,
    /// Remaining batches of this pause, and the length of the next one.
    pause: u32,
    next_pause: u32,
}

impl GsoState {
    pub(super) const fn new(enabled: bool) -> Self {
        Self { enabled, pause: 0, next_pause: PAUSE.0 }
    }

    /// Whether GSO is in use at present.
    pub(super) const fn is_on(&self) -> bool {
        self.enabled && self.pause == 0
    }

    /// Counts a batch.
    pub(super) const fn begin_batch(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// The kernel accepted a GSO message.
    pub(super) const fn handle_accepted(&mut self) {
        self.next_pause = PAUSE.0;
    }

    /// The kernel rejected a GSO message.
    pub(super) const fn handle_rejected(&mut self) {
        self.pause = self.next_pause;
        self.next_pause = if self.next_pause < PAUSE.1 { self.next_pause << 1 } else { PAUSE.1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(cutting: &mut GsoState) -> u32 {
        cutting.handle_rejected();
        let mut batches = 0;
        while !cutting.is_on() {
            cutting.begin_batch();
            batches += 1;
        }
        batches
    }

    #[test]
    fn refusals_in_a_row_pause_it_for_longer_and_none_for_good() {
        let mut cutting = GsoState::new(true);
        assert!(cutting.is_on());
        let pauses: Vec<u32> = (0..16).map(|_| pause(&mut cutting)).collect();
        assert_eq!(pauses[..3], [64, 128, 256]);
        assert_eq!(pauses[14..], [1 << 20; 2]);
        cutting.handle_accepted();
        assert_eq!(pause(&mut cutting), 64, "a success resets the pause");
    }

    #[test]
    fn disabled_offload_stays_off() {
        let mut cutting = GsoState::new(false);
        cutting.handle_rejected();
        for _ in 0..100 {
            cutting.begin_batch();
            assert!(!cutting.is_on());
        }
    }
}
