//! Collectives and barriers, timed by the same loop as the peers' (`benches/`).

use std::time::Instant;

use unisono::rank::Rank;
use unisono::world::World;
use unisono::world::collective::{CollectiveError, SystemOperation};

/// Calls before the clock starts.
const WARM_UP: usize = 5;
/// Barriers before the clock starts.
const BARRIER_WARM_UP: usize = 100;
/// The root of rooted ones.
const ROOT: Rank = Rank(0);

/// Which collective.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[value(rename_all = "snake_case")]
pub(crate) enum Name {
    /// The root's data to everyone
    Broadcast,
    /// Everyone's data to the root
    Gather,
    /// A part of the root's data to everyone
    Scatter,
    /// Everyone's data to everyone
    AllGather,
    /// A part of everyone's data to everyone
    AllToAll,
    /// The sum at the root
    Reduce,
    /// The sum everywhere
    AllReduce,
    /// A part of the sum everywhere
    ReduceScatter,
    /// The sum of all ranks up to one's own
    Scan,
}

/// The median of batches of barriers, in nanoseconds per barrier.
pub(super) fn barrier(world: &World) -> Result<f64, CollectiveError> {
    let (batches, each) = if world.size() > 2 { (20, 200) } else { (100, 1000) };
    for _ in 0..BARRIER_WARM_UP {
        world.barrier()?;
    }
    let mut times = Vec::with_capacity(batches);
    for _ in 0..batches {
        let started = Instant::now();
        for _ in 0..each {
            world.barrier()?;
        }
        times.push(started.elapsed().as_nanos() as f64 / f64::from(each));
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// The mean over ranks of a rank's median call, in nanoseconds, with an untimed barrier after each. `bytes` are per rank, of an alltoall
/// per pair, of reductions the vector of doubles.
pub(super) fn collective(world: &World, name: Name, bytes: usize) -> Result<f64, CollectiveError> {
    let (size, sum) = (world.size() as usize, SystemOperation::sum());
    let calls = if bytes >= 65536 { 100 } else { 500 } / if size > 2 { 2 } else { 1 };
    // Written, so that memory is there.
    let (mut source, mut target) = (vec![1_u8; bytes * size], vec![1_u8; bytes * size]);
    let doubles = bytes / 8 * if name == Name::ReduceScatter { size } else { 1 };
    let (numbers, mut results) = (vec![1.0_f64; doubles], vec![1.0_f64; doubles]);
    let mut times = Vec::with_capacity(calls);
    for call in 0..WARM_UP + calls {
        let started = Instant::now();
        match name {
            Name::Broadcast => world.broadcast_into(&mut source[..bytes], ROOT)?,
            Name::Gather => world.gather_into(&source[..bytes], &mut target, ROOT)?,
            Name::Scatter => world.scatter_into(&source, &mut target[..bytes], ROOT)?,
            Name::AllGather => world.all_gather_into(&source[..bytes], &mut target)?,
            Name::AllToAll => world.all_to_all_into(&source, &mut target)?,
            Name::Reduce => world.reduce_into(&numbers, &mut results, sum, ROOT)?,
            Name::AllReduce => world.all_reduce_into(&numbers, &mut results, sum)?,
            Name::ReduceScatter => world.reduce_scatter_block_into(&numbers, &mut results[..bytes / 8], sum)?,
            Name::Scan => world.scan_into(&numbers, &mut results, sum)?,
        }
        let time = started.elapsed();
        if call >= WARM_UP {
            times.push(time.as_nanos() as f64);
        }
        world.barrier()?;
    }
    times.sort_unstable_by(f64::total_cmp);
    let mut mean = [times[times.len() / 2] / size as f64];
    world.all_reduce_in_place(&mut mean, sum)?;
    Ok(mean[0])
}
