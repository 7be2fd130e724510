//! How fixtures of real devices let time pass.

use core::time::Duration;
use std::{thread, time::Instant};

/// Shorter times are not worth a sleep.
const SPIN: Duration = Duration::from_micros(60);

/// Yields to other threads for `ns` nanoseconds.
pub(super) fn spin(ns: u64) {
    let (start, time) = (Instant::now(), Duration::from_nanos(ns));
    while start.elapsed() < time {
        thread::yield_now();
    }
}

/// Sleeps for at least `ns` nanoseconds; spins where that is too short.
pub(super) fn sleep(ns: u64) {
    let time = Duration::from_nanos(ns);
    if time > SPIN { thread::sleep(time) } else { spin(ns) }
}
