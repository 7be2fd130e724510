//! Latency of point-to-point messages: ping-pong between two ranks, and a message around the ring of all ranks.

use core::error::Error;
use std::time::Instant;

use unisono::{Failure, Rank, Tag, World};

use super::buffer;

const BALL: Tag = Tag(5);
/// Round trips before the clock starts.
const WARM_UP: usize = 100;

/// Round trips per batch, between two readings of the clock.
const BATCH: usize = 1000;

/// Half the round-trip times of `rounds` round trips of `bytes` bytes with rank 1, in nanoseconds, sorted, each
/// including a reading of the clock; and half the round-trip time in the median batch of as many more, without that.
/// Empty except on rank 0.
pub(super) fn ping_pong(world: &World, bytes: usize, rounds: usize) -> Result<(Vec<u64>, u64), Box<dyn Error>> {
    let mut ball = buffer::zeroed::<u8>(bytes)?;
    let mut pass = || -> Result<(), Failure> {
        match world.rank() {
            Rank(0) => {
                world.send(&ball, Rank(1), BALL)?;
                world.receive_into(&mut ball, Rank(1), BALL).map(drop)
            }
            Rank(1) => {
                world.receive_into(&mut ball, Rank(0), BALL)?;
                world.send(&ball, Rank(0), BALL)
            }
            _ => Ok(()),
        }
    };
    for _ in 0..WARM_UP {
        pass()?;
    }
    let mut halves = |count: usize, trips: usize| {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let started = Instant::now();
            for _ in 0..trips {
                pass()?;
            }
            times.push(started.elapsed().as_nanos() as u64 / (2 * trips as u64));
        }
        times.sort_unstable();
        Ok::<_, Failure>(times)
    };
    let (single, batches) = (halves(rounds, 1)?, halves(rounds.div_ceil(BATCH), BATCH)?);
    let steady = percentile(&batches, 0.5);
    Ok(if world.rank() == Rank(0) { (single, steady) } else { (Vec::new(), 0) })
}

/// Sends a message around the ring of all ranks `rounds` times. Returns the median time of one hop in nanoseconds, on
/// rank 0; zero elsewhere.
pub(super) fn ring(world: &World, bytes: usize, rounds: usize) -> Result<u64, Box<dyn Error>> {
    let (rank, size) = (world.rank().0, world.size());
    let (next, previous) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
    let mut ball = buffer::zeroed::<u8>(bytes)?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let started = Instant::now();
        if rank == 0 {
            world.send(&ball, next, BALL)?;
        }
        world.receive_into(&mut ball, previous, BALL)?;
        if rank != 0 {
            world.send(&ball, next, BALL)?;
        }
        times.push(started.elapsed().as_nanos() as u64 / u64::from(size));
    }
    times.sort_unstable();
    Ok(times.get(times.len() / 2).copied().unwrap_or(0))
}

/// The value below which `share` of the sorted values lie.
pub(super) fn percentile(sorted: &[u64], share: f64) -> u64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}
