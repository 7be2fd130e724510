//! Time as a type parameter: the core reads no clock.

pub mod wheel;

use core::fmt::Debug;
use core::hash::Hash;

/// A clock's types: nanoseconds in production, a microcontroller's ticks, or a model's abstract time.
///
/// Durations are in units of 64 ns.
pub trait Time: Copy + Eq + Hash + Debug + 'static {
    /// A point in time, monotonic.
    type Instant: Copy + Eq + Hash + Debug;
    /// A point in time in short form, stored per segment; may wrap.
    type Stamp: Copy + Eq + Hash + Debug + Default;
    /// The stamp of an unused record.
    const ZERO: Self::Stamp;
    /// Largest exponent of the exponential backoff.
    const MAX_BACKOFF: u8;
    /// Unanswered probes are counted up to this; silence is reported only after that many.
    const MAX_UNANSWERED: u8 = 3;
    /// Whether a peer's contradictions are counted. Models do not: counters multiply states.
    const DETECT_MISBEHAVIOUR: bool = true;
    /// Mask of transmission counts and probe numbers: the 2 bits on the wire, fewer in models.
    const COUNT_MASK: u8 = 3;

    /// The short form of an instant.
    fn stamp(now: Self::Instant) -> Self::Stamp;
    /// The short form of the instant `units` before `now`.
    fn before(now: Self::Instant, units: u32) -> Self::Stamp;
    /// Units of 64 ns since `stamp`; `None` if time is not measured.
    fn since(now: Self::Instant, stamp: Self::Stamp) -> Option<u32>;
    /// The instant `units` after `now`.
    fn after(now: Self::Instant, units: u32) -> Self::Instant;
    /// Whether `deadline` is reached.
    fn is_due(now: Self::Instant, deadline: Self::Instant) -> bool;
    /// The instant as a tick of the timer wheel (about 1 µs); wraps.
    fn tick(at: Self::Instant) -> u32;
    /// The instant of a tick less than 2³¹ ticks away from that instant.
    fn at_tick(reference: Self::Instant, tick: u32) -> Self::Instant;
}

/// Units of 64 ns in `ns` nanoseconds.
pub const fn units(ns: u64) -> u32 {
    let units = ns >> 6;
    if units > u32::MAX as u64 { u32::MAX } else { units as u32 }
}

/// Nanoseconds in a `u64`; stamps wrap after 274 s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Nanos;

impl Time for Nanos {
    type Instant = u64;
    type Stamp = u32;
    const ZERO: Self::Stamp = 0;
    const MAX_BACKOFF: u8 = 20;

    #[inline]
    fn stamp(now: u64) -> u32 {
        (now >> 6) as u32
    }
    #[inline]
    fn before(now: u64, units: u32) -> u32 {
        Self::stamp(now).wrapping_sub(units)
    }
    #[inline]
    fn since(now: u64, stamp: u32) -> Option<u32> {
        Some(Self::stamp(now).wrapping_sub(stamp))
    }
    #[inline]
    fn after(now: u64, units: u32) -> u64 {
        now.saturating_add(u64::from(units) << 6)
    }
    #[inline]
    fn is_due(now: u64, deadline: u64) -> bool {
        now >= deadline
    }
    #[inline]
    fn tick(at: u64) -> u32 {
        (at >> 10) as u32
    }
    #[inline]
    fn at_tick(reference: u64, tick: u32) -> u64 {
        let ahead = tick.wrapping_sub(Self::tick(reference)) as i32;
        (reference & !1023).saturating_add_signed(i64::from(ahead) << 10)
    }
}

/// Microseconds in a wrapping `u32`, for microcontrollers: no deadline may be more than 35 minutes ahead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Micros;

impl Time for Micros {
    type Instant = u32;
    type Stamp = u32;
    const ZERO: Self::Stamp = 0;
    const MAX_BACKOFF: u8 = 20;

    #[inline]
    fn stamp(now: u32) -> u32 {
        now
    }
    #[inline]
    fn before(now: u32, units: u32) -> u32 {
        now.wrapping_sub(units >> 4)
    }
    #[cfg_attr(feature = "optimize_for_size", inline(never))]
    #[cfg_attr(not(feature = "optimize_for_size"), inline)]
    fn since(now: u32, stamp: u32) -> Option<u32> {
        // 1 µs is 15.625 units.
        let micros = now.wrapping_sub(stamp);
        Some(micros.saturating_mul(15).saturating_add(micros >> 1).saturating_add(micros >> 3))
    }
    #[inline]
    fn after(now: u32, units: u32) -> u32 {
        // 0.064 µs per unit, within 0.1 %, rounded up.
        now.wrapping_add((units >> 4).wrapping_add(units >> 10).wrapping_add(1))
    }
    #[inline]
    fn is_due(now: u32, deadline: u32) -> bool {
        now.wrapping_sub(deadline) < 1 << 31
    }
    #[inline]
    fn tick(at: u32) -> u32 {
        at
    }
    #[inline]
    fn at_tick(_: u32, tick: u32) -> u32 {
        tick
    }
}

/// Abstract time of models: nothing is measured, and every armed timer may fire at any moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AbstractTime;

impl Time for AbstractTime {
    type Instant = ();
    type Stamp = ();
    const ZERO: Self::Stamp = ();
    const MAX_BACKOFF: u8 = 0;
    const MAX_UNANSWERED: u8 = 0;
    const DETECT_MISBEHAVIOUR: bool = false;

    fn stamp((): ()) {}
    fn before((): (), _: u32) {}
    fn since((): (), (): ()) -> Option<u32> {
        None
    }
    fn after((): (), _: u32) {}
    fn is_due((): (), (): ()) -> bool {
        true
    }
    fn tick((): ()) -> u32 {
        0
    }
    fn at_tick((): (), _: u32) {}
}

#[cfg(test)]
mod tests {
    use super::{Micros, Nanos, Time, units};

    #[test]
    fn nanos_ticks_survive_the_wrap() {
        let reference = (1_u64 << 42) - 1;
        let later = reference + 5_000_000;
        let back = Nanos::at_tick(reference, Nanos::tick(later));
        assert!(back <= later && later - back < 1024);
    }

    #[test]
    fn micros_convert_within_a_tenth_of_a_percent() {
        for micros in [1_u32, 10, 999, 1_000_000, 60_000_000] {
            let exact = u64::from(micros) * 1000;
            let there = Micros::since(micros, 0).unwrap_or(0);
            assert!(units(exact).abs_diff(there) <= there / 100 + 1);
            let back = Micros::after(0, there);
            assert!(back.abs_diff(micros) <= micros / 100 + 2, "{back} {micros}");
        }
    }
}
