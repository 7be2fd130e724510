//! Distance of two processors: the time of a cache line from one to the other and back.
//!
//! Between virtual processors it changes with the cores that the hypervisor runs them on
//! (`unisono_tests::harness::cpu_latency`), by a factor of ten from two threads of one core to two dies. Only figures
//! taken at one distance are compared.

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

/// Passes that are timed together, and number of such batches: the least time counts, because other load only adds.
const PASSES: u32 = 500;
const BATCHES: u32 = 5;

/// Times whose ratio is below this are of one distance.
const ALIKE: f64 = 1.6;

/// Attempts at a measurement if the hypervisor moves processors meanwhile.
const MOVES: u32 = 4;

/// A word alone on its cache line and on the adjacent one that is prefetched with it.
#[repr(align(128))]
struct PaddedWord(AtomicU32);

impl PaddedWord {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn wait_for(&self, value: u32) {
        while self.0.load(Acquire) != value {
            hint::spin_loop();
        }
    }
}

/// Nanoseconds of a round trip of a cache line between the processors of the first two pinned ranks.
///
/// # Errors
/// There is one processor, or the system refuses it.
pub fn round_trip() -> io::Result<f64> {
    if thread::available_parallelism()?.get() == 1 {
        return Err(io::Error::other("the round trip of a cache line needs two processors"));
    }
    let (there, back) = (PaddedWord::new(), PaddedWord::new());
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

/// The distance of the processors at every measurement.
#[derive(Default, Debug)]
pub struct CacheLineDistances {
    /// Round trips in nanoseconds.
    times: Vec<f64>,
    /// Measurements during which every attempt was disturbed by a move.
    moved: u32,
}

impl CacheLineDistances {
    /// Runs `measure`, and repeats it a few times if the processors were moved meanwhile.
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

    /// The last round trip in nanoseconds.
    pub fn last(&self) -> Option<f64> {
        self.times.last().copied()
    }
}

impl fmt::Display for CacheLineDistances {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { times, moved } = self;
        let least = times.iter().copied().fold(f64::NAN, f64::min);
        let most = times.iter().copied().fold(f64::NAN, f64::max);
        write!(to, "round trip of a cache line {:.0} ns ({least:.0} to {most:.0})", median(times.clone()))?;
        if *moved == 0 { Ok(()) } else { write!(to, ", {moved} measurements with a move in each of {MOVES} attempts") }
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
