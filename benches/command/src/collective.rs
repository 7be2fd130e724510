//! Timing of collectives and barriers, by the same loop as the benchmarks of other libraries (`benches/`).

use core::error::Error;
use std::time::Instant;

use unisono::collective::{CollectiveError, CollectiveRecord, SystemOperation};
use unisono::{Communicator, Rank};
use zerocopy::IntoBytes;

use super::buffer;

/// Untimed calls at the start.
const WARM_UP: usize = 3;
/// Duration of the timed calls in nanoseconds, within bounds of their number.
const TIME_NS: f64 = 2e8;
const LEAST: u64 = 5;
const MOST: u64 = 1000;
/// The root of rooted collectives.
const ROOT: Rank = Rank(0);

/// The collectives.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[value(rename_all = "snake_case")]
pub(crate) enum CollectiveName {
    /// The root's data to all ranks
    Broadcast,
    /// The data of all ranks to the root
    Gather,
    /// A part of the root's data to each rank
    Scatter,
    /// The data of all ranks to all ranks
    #[value(aliases = ["all-gather", "allgather"])]
    AllGather,
    /// A part of each rank's data to each rank
    #[value(aliases = ["all-to-all", "alltoall"])]
    AllToAll,
    /// The sum over all ranks, at the root
    Reduce,
    /// The sum over all ranks, at all ranks
    #[value(aliases = ["all-reduce", "allreduce"])]
    AllReduce,
    /// A part of the sum over all ranks, at each rank
    #[value(aliases = ["reduce-scatter", "reducescatter"])]
    ReduceScatter,
    /// The sum over all ranks up to one's own
    Scan,
    /// The sum over all ranks before one's own
    Exscan,
}

/// The median of batches of barriers, in nanoseconds per barrier.
pub(super) fn barrier(world: &Communicator) -> Result<f64, CollectiveError> {
    let each = if world.is_oversubscribed() { 100 } else { 1000 };
    let batch = || -> Result<f64, CollectiveError> {
        let started = Instant::now();
        for _ in 0..each {
            world.barrier()?;
        }
        Ok(started.elapsed().as_nanos() as f64)
    };
    // The first batch waits for late ranks.
    batch()?;
    let count = calls(world, batch()?)?;
    let times = (0..count).map(|_| batch()).collect::<Result<Vec<f64>, _>>()?;
    Ok(median(times) / f64::from(each))
}

/// The mean over all ranks of a rank's median call, in nanoseconds. `bytes` are per rank; of an alltoall per pair; of
/// reductions the vector of doubles; of a reduce-scatter a rank's part of it.
///
/// Before each call every rank (of a broadcast and a scatter: the root) rewrites its whole input, and an untimed
/// barrier follows: a program communicates data that it has just computed, and unchanged data would be found in the
/// readers' caches. With `unchanged` the input stays as it is, as in OSU's benchmarks. Returns the record of the last
/// call, too.
pub(super) fn collective(
    world: &Communicator,
    name: CollectiveName,
    bytes: usize,
    unchanged: bool,
) -> Result<(f64, Option<CollectiveRecord>), Box<dyn Error>> {
    let (size, sum, first) = (world.size() as usize, SystemOperation::sum(), world.rank() == ROOT);
    let words = bytes.div_ceil(8);
    let many = |many| words.saturating_mul(if many { size } else { 1 });
    let many_in = matches!(name, CollectiveName::AllToAll | CollectiveName::ReduceScatter)
        || (name == CollectiveName::Scatter && first);
    let many_out = matches!(name, CollectiveName::AllGather | CollectiveName::AllToAll)
        || (name == CollectiveName::Gather && first);
    let (mut input, mut output) = (buffer::zeroed::<f64>(many(many_in))?, buffer::zeroed::<f64>(many(many_out))?);
    let gives = first || !matches!(name, CollectiveName::Broadcast | CollectiveName::Scatter);
    let given = if gives && !unchanged { input.len() } else { 0 };
    let mut timed = |number: usize| -> Result<f64, CollectiveError> {
        for (i, word) in input[..given].iter_mut().enumerate() {
            *word = (number + i) as f64;
        }
        world.barrier()?;
        let started = Instant::now();
        let (from, into) = (input.as_bytes(), output.as_mut_bytes());
        match name {
            CollectiveName::Broadcast if first => world.broadcast_into(&mut input.as_mut_bytes()[..bytes], ROOT)?,
            CollectiveName::Broadcast => world.broadcast_into(&mut into[..bytes], ROOT)?,
            CollectiveName::Gather if first => world.gather_into(&from[..bytes], &mut into[..bytes * size], ROOT)?,
            CollectiveName::Gather => world.gather_into(&from[..bytes], &mut [], ROOT)?,
            CollectiveName::Scatter if first => world.scatter_into(&from[..bytes * size], &mut into[..bytes], ROOT)?,
            CollectiveName::Scatter => world.scatter_into(&[], &mut into[..bytes], ROOT)?,
            CollectiveName::AllGather => world.all_gather_into(&from[..bytes], &mut into[..bytes * size])?,
            CollectiveName::AllToAll => world.all_to_all_into(&from[..bytes * size], &mut into[..bytes * size])?,
            CollectiveName::Reduce => world.reduce_into(&input, &mut output, sum, ROOT)?,
            CollectiveName::AllReduce => world.all_reduce_into(&input, &mut output, sum)?,
            CollectiveName::ReduceScatter => world.reduce_scatter_block_into(&input, &mut output, sum)?,
            CollectiveName::Scan => world.scan_into(&input, &mut output, sum)?,
            CollectiveName::Exscan => world.exclusive_scan_into(&input, &mut output, sum)?,
        }
        Ok(started.elapsed().as_nanos() as f64)
    };
    // Wait for late ranks.
    world.barrier()?;
    let started = Instant::now();
    for number in 0..WARM_UP {
        timed(number)?;
    }
    let count = calls(world, started.elapsed().as_nanos() as f64 / WARM_UP as f64)?;
    let times = (0..count).map(timed).collect::<Result<Vec<f64>, _>>()?;
    let record = world.last_collective();
    let mut mean = [median(times) / size as f64];
    world.all_reduce_in_place(&mut mean, sum)?;
    Ok((mean[0], record))
}

/// The number of calls that fill the time, if one takes `each` nanoseconds: rank 0 decides for all ranks.
fn calls(world: &Communicator, each: f64) -> Result<usize, CollectiveError> {
    let mut count = [((TIME_NS / each.max(1.0)) as u64).clamp(LEAST, MOST)];
    world.broadcast_into(&mut count, ROOT)?;
    Ok(count[0] as usize)
}

/// The median; NaN if there are no times.
pub(super) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
