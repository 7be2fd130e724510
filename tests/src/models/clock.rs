//! The clocks of the models: abstract and relative time.

use unisono_core::path::{Path, PathParameters};
use unisono_core::time::Time;
use unisono_core::window::congestion::CongestionControl;
use unisono_core::window::send_window::SendWindow;

/// A clock that a model can advance.
pub trait Clock: Time<Stamp = ()> {
    /// Printed name.
    const NAME: &str;
    /// The present moment: deadlines are relative to it.
    const NOW: Self::Instant;
    /// The constants of the windows' path.
    const PARAMETERS: PathParameters;

    /// The path of the windows: nothing is measured of it.
    fn path() -> Path<Self> {
        Path::new(Self::PARAMETERS)
    }

    /// The window one tick later; `None` where time does not pass.
    fn after_tick<const W: usize, const BITS: u32>(
        window: &SendWindow<Self, W, BITS>,
    ) -> Option<SendWindow<Self, W, BITS>>;
    /// Whether the deadline is later than the timing parameters allow.
    fn is_too_far_ahead(deadline: Self::Instant) -> bool;
}

/// Abstract time: nothing is measured, and every armed timer may fire at any moment. Counts have the bits of `COUNTS`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Abstract<const COUNTS: u8>;

impl<const COUNTS: u8> Time for Abstract<COUNTS> {
    type Instant = ();
    type Stamp = ();
    const ZERO: () = ();
    const MAX_BACKOFF: u8 = 0;
    const MAX_UNANSWERED: u8 = 0;
    const DETECT_MISBEHAVIOUR: bool = false;
    const COUNT_MASK: u8 = COUNTS;

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

impl<const COUNTS: u8> Clock for Abstract<COUNTS> {
    const NAME: &str = "abstract";
    const NOW: () = ();
    const PARAMETERS: PathParameters =
        PathParameters { granularity: 1, max_probe_interval: 8, control: CongestionControl::Fixed };

    fn after_tick<const W: usize, const BITS: u32>(_: &SendWindow<Self, W, BITS>) -> Option<SendWindow<Self, W, BITS>> {
        None
    }

    fn is_too_far_ahead((): ()) -> bool {
        false
    }
}

/// Relative time: a moment is the number of ticks from now on, and what has passed is now. A tick is the timeout of a
/// window without a sample, and none is ever taken, so that no absolute moment enters a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Relative<const COUNTS: u8>;

/// Units of 64 ns in a tick.
const TICK: u32 = 4;

impl<const COUNTS: u8> Time for Relative<COUNTS> {
    type Instant = u8;
    type Stamp = ();
    const ZERO: () = ();
    const MAX_BACKOFF: u8 = 2;
    const MAX_UNANSWERED: u8 = 0;
    const DETECT_MISBEHAVIOUR: bool = false;
    const COUNT_MASK: u8 = COUNTS;

    fn stamp(_: u8) {}
    fn before(_: u8, _: u32) {}
    fn since(_: u8, (): ()) -> Option<u32> {
        None
    }
    fn after(now: u8, units: u32) -> u8 {
        now.saturating_add(u8::try_from(units.div_ceil(TICK)).unwrap_or(u8::MAX))
    }
    fn is_due(now: u8, deadline: u8) -> bool {
        deadline <= now
    }
    fn tick(at: u8) -> u32 {
        u32::from(at)
    }
    fn at_tick(_: u8, tick: u32) -> u8 {
        u8::try_from(tick).unwrap_or(u8::MAX)
    }
}

impl<const COUNTS: u8> Clock for Relative<COUNTS> {
    const NAME: &str = "relative";
    const NOW: u8 = 0;
    /// The backoff doubles the first timeout once and is cut short the second time.
    const PARAMETERS: PathParameters =
        PathParameters { granularity: 1, max_probe_interval: 2 * TICK, control: CongestionControl::Fixed };

    fn after_tick<const W: usize, const BITS: u32>(
        window: &SendWindow<Self, W, BITS>,
    ) -> Option<SendWindow<Self, W, BITS>> {
        Some(window.with_times(|moment| moment.saturating_sub(1)))
    }

    fn is_too_far_ahead(deadline: u8) -> bool {
        u32::from(deadline) * TICK > Self::PARAMETERS.max_probe_interval
    }
}
