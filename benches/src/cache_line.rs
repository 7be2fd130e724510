//! How far apart two processors are: what a line takes from the one to the other and back.
//!
//! Between virtual processors that changes with the cores that the hypervisor runs them on (`unisono_tests::harness::cpu_latency`), by ten from two
//! threads of one core to two dies. Figures are compared that were taken at one distance.

use alloc::vec::Vec;
use core::{
    fmt, hint,
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Release},
    },
};
use std::{io, thread, time::Instant};

use crate::fixtures::thread_pair::{median, pin};

/// Passes that are timed together, and how many times: the least counts, as what else runs only adds.
const PASSES: u32 = 500;
const BATCHES: u32 = 5;

/// Times of two passes as near to each other are of one distance.
const ALIKE: f64 = 1.6;

/// Times that something is measured, at most, because processors were moved meanwhile.
const MOVES: u32 = 4;

/// A word whose line nothing else is on, nor on the one that is fetched with it.
#[repr(align(128))]
struct Word(AtomicU32);

impl Word {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn wait_for(&self, value: u32) {
        while self.0.load(Acquire) != value {
            hint::spin_loop();
        }
    }
}

/// Nanoseconds of a line's way between the processors of the first two ranks that are pinned, and back.
///
/// # Errors
/// There is one processor, or the system refuses it.
pub fn round_trip() -> io::Result<f64> {
    if thread::available_parallelism()?.get() == 1 {
        return Err(io::Error::other("a line's way needs two processors"));
    }
    let (there, back) = (Word::new(), Word::new());
    let all = PASSES * BATCHES;
    thread::scope(|scope| {
        let pong = scope.spawn(|| {
            let pinned = pin(1);
            for pass in 1..=all {
                there.wait_for(pass);
                back.0.store(pass, Release);
            }
            pinned
        });
        let ping = scope.spawn(|| {
            let pinned = pin(0);
            let mut least = f64::INFINITY;
            for batch in 0..BATCHES {
                let start = Instant::now();
                for pass in batch * PASSES + 1..=(batch + 1) * PASSES {
                    there.0.store(pass, Release);
                    back.wait_for(pass);
                }
                least = least.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(PASSES));
            }
            pinned.map(|()| least)
        });
        pong.join().unwrap_or(Ok(()))?;
        ping.join().unwrap_or(Ok(f64::NAN))
    })
}

/// How far apart the processors were whenever something was measured.
#[derive(Default, Debug)]
pub struct Distances {
    /// Nanoseconds of a line's way, there and back.
    times: Vec<f64>,
    /// How often they were moved each time that something was measured.
    moved: u32,
}

impl Distances {
    /// What `measure` finds, which it is asked for again, a few times at most, if the processors were moved meanwhile.
    ///
    /// # Errors
    /// `measure`'s, or those of [`round_trip`].
    pub fn measure<T>(&mut self, mut measure: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let (mut before, mut turn) = (round_trip()?, 1);
        loop {
            let found = measure()?;
            let behind = round_trip()?;
            let has_stayed = is_alike(before, behind);
            if has_stayed || turn == MOVES {
                self.times.push(behind);
                self.moved += u32::from(!has_stayed);
                return Ok(found);
            }
            (before, turn) = (behind, turn + 1);
        }
    }

    /// The last one.
    pub fn last(&self) -> Option<f64> {
        self.times.last().copied()
    }
}

impl fmt::Display for Distances {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { times, moved } = self;
        let least = times.iter().copied().fold(f64::NAN, f64::min);
        let most = times.iter().copied().fold(f64::NAN, f64::max);
        write!(to, "a line took {:.0} ns there and back ({least:.0} to {most:.0})", median(times.clone()))?;
        if *moved == 0 { Ok(()) } else { write!(to, ", and {moved} times another way in each of {MOVES} turns") }
    }
}

/// Whether two of these times are of one distance.
pub fn is_alike(one: f64, other: f64) -> bool {
    one <= ALIKE * other && other <= ALIKE * one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_time() {
        let time = round_trip().expect("two threads");
        assert!(time > 1.0 && time.is_finite(), "{time}");
    }

    #[test]
    fn distances_differ_by_more_than_noise() {
        let seen = [48.0, 118.0, 530.0];
        for (one, other) in seen.into_iter().zip(seen.into_iter().skip(1)) {
            assert!(!is_alike(one, other) && !is_alike(other, one));
        }
        for (one, other) in [(48.0, 60.0), (112.0, 139.0), (500.0, 620.0)] {
            assert!(is_alike(one, other) && is_alike(other, one));
        }
        assert!(!is_alike(f64::NAN, 1.0));
    }
}
