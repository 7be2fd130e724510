//! Runs two nodes and the two directions of the wire between them until both have left, and judges the result.

use unisono_core::device::TxReason;

use crate::node::{BULK, MESSAGES, Node};
use crate::wire::{FaultCounts, Wire};

/// A clock in microseconds.
pub trait Clock {
    /// The time in microseconds; wraps.
    fn now(&mut self) -> u32;
    /// Lets the processor sleep for at most `micros` microseconds.
    fn sleep(&mut self, micros: u32);
}

/// Time limit of an exchange in microseconds.
const TIMEOUT_MICROS: u32 = 60_000_000;

/// Messages and placed bytes of both nodes.
const ALL_MESSAGES: u32 = 2 * MESSAGES;
const ALL_PLACED: u32 = 2 * (BULK as u32);

/// Result of an exchange. Counts are sums over both nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Duration in microseconds.
    pub micros: u32,
    /// Microseconds of these that the processor slept.
    pub idle_micros: u32,
    /// How often it slept.
    pub idle_periods: u32,
    /// Both nodes have left within the limit.
    pub ended: bool,
    /// Messages that arrived in their order.
    pub delivered: u32,
    /// Messages that arrived out of their order, twice or cut.
    pub misordered: u32,
    /// Bytes placed.
    pub placed: u32,
    /// Bytes that are not what was sent.
    pub wrong: u32,
    /// Failed operations and other events that should not be.
    pub failures: u32,
    /// Counts of injected faults.
    pub faults: FaultCounts,
    /// Data datagrams posted, resends included.
    pub data_sent: u32,
    /// Data resent after a NACK.
    pub resent_nack: u32,
    /// Data resent after the answer to a probe.
    pub resent_probe: u32,
    /// Resends that were not needed.
    pub spurious: u32,
}

impl Outcome {
    /// Whether everything arrived once, in order and intact although the wire lost some of it.
    pub const fn is_proven(&self) -> bool {
        let whole = self.ended && self.delivered == ALL_MESSAGES && self.placed == ALL_PLACED;
        let clean = self.misordered == 0 && self.wrong == 0 && self.failures == 0;
        whole && clean && self.faults.dropped > 0 && self.resent_nack > 0
    }
}

/// Runs both nodes until they have left. While nothing moves, the processor sleeps until the earlier of their timeouts.
pub fn run(clock: &mut impl Clock, [a, b]: [&mut Node<'_, '_>; 2], [there, back]: [&mut Wire; 2]) -> Outcome {
    let started = clock.now();
    let mut outcome = Outcome::default();
    while outcome.micros < TIMEOUT_MICROS && !outcome.ended {
        let mut moved = a.step(clock.now());
        moved |= there.carry(a.device(), b.device());
        moved |= b.step(clock.now());
        moved |= back.carry(b.device(), a.device());
        outcome.ended = a.has_left() && b.has_left();
        let now = clock.now();
        let rest = a.idle_time(now).unwrap_or(TIMEOUT_MICROS).min(b.idle_time(now).unwrap_or(TIMEOUT_MICROS));
        if !moved && !outcome.ended && rest > 0 {
            clock.sleep(rest);
            outcome.idle_micros = outcome.idle_micros.saturating_add(clock.now().wrapping_sub(now));
            outcome.idle_periods = outcome.idle_periods.saturating_add(1);
        }
        outcome.micros = clock.now().wrapping_sub(started);
    }
    for node in [a, b] {
        let ((delivered, misordered), progress, counters) = (node.delivered(), node.progress(), node.counters());
        let sent = |cause| count(counters.sent_for(cause));
        add(&mut outcome.delivered, delivered);
        add(&mut outcome.misordered, misordered);
        add(&mut outcome.placed, progress.placed);
        add(&mut outcome.wrong, node.wrong_bytes());
        add(&mut outcome.failures, progress.failures);
        add(&mut outcome.data_sent, count(counters.data_sent()));
        add(&mut outcome.resent_nack, sent(TxReason::ResentNack));
        add(&mut outcome.resent_probe, sent(TxReason::ResentProbe));
        add(&mut outcome.spurious, count(counters.spurious));
    }
    outcome.faults = there.counts().with(back.counts());
    outcome
}

fn add(sum: &mut u32, part: u32) {
    *sum = sum.saturating_add(part);
}

fn count(total: u64) -> u32 {
    u32::try_from(total).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU8;

    use super::{ALL_MESSAGES, ALL_PLACED, Clock, Outcome, run};
    use crate::device::LoopbackDevice;
    use crate::node::{BULK, Node, SOURCE, STREAM};
    use crate::wire::{Faults, Wire};

    const NO_FAULTS: Faults = Faults { dropped: 0, duplicated: 0, overtaken: 0 };

    /// Each reading is `tick` microseconds later than the last.
    struct Ticking {
        now: u32,
        tick: u32,
    }

    impl Clock for Ticking {
        fn now(&mut self) -> u32 {
            self.now = self.now.wrapping_add(self.tick);
            self.now
        }

        fn sleep(&mut self, micros: u32) {
            self.now = self.now.wrapping_add(micros);
        }
    }

    fn exchange(faults: Faults, seed: u32, tick: u32) -> Outcome {
        let source = [const { [const { AtomicU8::new(0) }; SOURCE] }; 2];
        let inbox = [const { [const { AtomicU8::new(0) }; STREAM] }; 2];
        let bulk = [const { [const { AtomicU8::new(0) }; BULK] }; 2];
        let [mut first, mut second] = [LoopbackDevice::new(), LoopbackDevice::new()];
        let mut nodes = [
            Node::new(0, 0, &mut first, &source[0], &inbox[0], &bulk[0]),
            Node::new(0, 1, &mut second, &source[1], &inbox[1], &bulk[1]),
        ];
        let [a, b] = &mut nodes;
        let (mut there, mut back) = (Wire::new(faults, seed), Wire::new(faults, seed ^ 0xFFFF));
        run(&mut Ticking { now: 0, tick }, [a, b], [&mut there, &mut back])
    }

    #[test]
    fn a_clean_wire_needs_no_resend() {
        let outcome = exchange(NO_FAULTS, 1, 20);
        assert!(outcome.ended && outcome.wrong == 0 && outcome.failures == 0, "{outcome:?}");
        assert_eq!((outcome.delivered, outcome.placed), (ALL_MESSAGES, ALL_PLACED));
        assert_eq!(outcome.resent_nack + outcome.resent_probe, 0);
    }

    #[test]
    fn a_faulty_wire_is_repaired() {
        for seed in 1..20 {
            let outcome = exchange(Faults { dropped: 13, duplicated: 13, overtaken: 13 }, seed * 77, 20);
            assert!(outcome.is_proven(), "seed {seed}: {outcome:?}");
            assert!(outcome.idle_periods > 0 && outcome.idle_micros < outcome.micros, "seed {seed}: {outcome:?}");
        }
    }

    #[test]
    fn a_dead_wire_ends_the_exchange_unproven() {
        let outcome = exchange(Faults { dropped: 255, ..NO_FAULTS }, 1, 1000);
        assert!(!outcome.is_proven() && outcome.failures > 0, "{outcome:?}");
    }
}
