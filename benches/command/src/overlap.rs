//! How much of an immediate collective's time a computation hides, as OSU's benchmarks of non-blocking collectives
//! measure it: the computation takes as long as the collective alone.

use core::error::Error;
use core::hint::black_box;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use unisono::collective::{CollectiveError, SystemOperation};
use unisono::{Communicator, Rank};

use crate::collective::median;
use crate::{Bytes, buffer};

/// Untimed rounds at the start.
const WARM_UP: u32 = 3;
/// The root of rooted collectives.
const ROOT: Rank = Rank(0);
/// Steps of the computation whose time is measured to find out how long one takes.
const CALIBRATION: u64 = 20_000_000;

/// The collectives.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[value(rename_all = "snake_case")]
pub(crate) enum OverlapCollective {
    /// The root's data to all ranks
    Broadcast,
    /// The data of all ranks to all ranks
    #[value(aliases = ["all-gather", "allgather"])]
    AllGather,
    /// A part of each rank's data to each rank
    #[value(aliases = ["all-to-all", "alltoall"])]
    AllToAll,
    /// The sum over all ranks, at all ranks
    #[value(aliases = ["all-reduce", "allreduce"])]
    AllReduce,
}

/// The collective and its size.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// Collective to measure
    #[arg(value_enum)]
    pub(crate) name: OverlapCollective,
    /// Size of a rank's data in bytes, a multiple of 8, such as 8 or 1M; of an alltoall, for each rank
    #[arg(long)]
    pub(crate) bytes: Bytes,
    /// Timed rounds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rounds: u32,
}

/// Times in nanoseconds: the means over all ranks of a rank's medians.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overlap {
    /// The collective without computation.
    alone: f64,
    /// The computation without collective.
    computation: f64,
    /// Both, from the start of the collective to its end.
    both: f64,
}

impl Overlap {
    /// The hidden part of the collective's time, from 0 to 1.
    fn hidden(&self) -> f64 {
        (1.0 - (self.both - self.computation) / self.alone.max(1.0)).clamp(0.0, 1.0)
    }
}

/// Measures on a communicator.
pub(crate) fn measure(on: &Communicator, options: &Options) -> Result<Overlap, Box<dyn Error>> {
    if !options.bytes.0.is_multiple_of(8) {
        return Err("overlap sends doubles: --bytes is a multiple of 8".into());
    }
    let words = usize::try_from(options.bytes.0)? / 8;
    let size = on.size() as usize;
    let many = |is_many: bool| words.saturating_mul(if is_many { size } else { 1 });
    let is_all_to_all = options.name == OverlapCollective::AllToAll;
    let input = buffer::zeroed::<f64>(many(is_all_to_all))?;
    let mut output = buffer::zeroed::<f64>(many(is_all_to_all || options.name == OverlapCollective::AllGather))?;
    let mut round = |steps: u64| -> Result<f64, CollectiveError> {
        on.barrier()?;
        let started = Instant::now();
        on.scope(|scope| {
            let request = match options.name {
                OverlapCollective::Broadcast => scope.immediate_broadcast_into(&mut output, ROOT)?,
                OverlapCollective::AllGather => scope.immediate_all_gather_into(&input, &mut output)?,
                OverlapCollective::AllToAll => scope.immediate_all_to_all_into(&input, &mut output)?,
                OverlapCollective::AllReduce => {
                    scope.immediate_all_reduce_into(&input, &mut output, SystemOperation::sum())?
                }
            };
            compute(steps);
            request.wait()
        })?;
        Ok(started.elapsed().as_nanos() as f64)
    };
    let mut median_of = |rounds: u32, steps: u64| -> Result<f64, CollectiveError> {
        (0..rounds).map(|_| round(steps)).collect::<Result<Vec<_>, _>>().map(median)
    };
    median_of(WARM_UP, 0)?;
    let mut alone = [median_of(options.rounds, 0)? / size as f64];
    on.all_reduce_in_place(&mut alone, SystemOperation::sum())?;
    let [alone] = alone;
    // Every rank computes as long as the collective takes, by the steps that it does in that time.
    let steps = (CALIBRATION as f64 * alone / time_of(CALIBRATION)) as u64;
    let computation = median((0..options.rounds).map(|_| time_of(steps)).collect());
    let both = median_of(options.rounds, steps)?;
    let mut means = [computation, both].map(|time| time / size as f64);
    on.all_reduce_in_place(&mut means, SystemOperation::sum())?;
    let [computation, both] = means;
    Ok(Overlap { alone, computation, both })
}

/// A computation of some steps, which needs no memory.
fn compute(steps: u64) {
    let mut state = black_box(1_u64);
    for _ in 0..steps {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(state);
}

fn time_of(steps: u64) -> f64 {
    let started = Instant::now();
    compute(steps);
    started.elapsed().as_nanos() as f64
}

/// As JSON and as a line.
pub(crate) fn report(options: &Options, ranks: u32, overlap: &Overlap) -> (Value, String) {
    let name = options.name.to_possible_value().map_or_else(String::new, |name| name.get_name().to_owned());
    let Overlap { alone, computation, both } = overlap;
    let line = format!(
        "{name} of {} and {ranks} ranks: {:.1} µs alone, {:.1} µs beside {:.1} µs of computation, {:.0} % hidden",
        options.bytes,
        alone / 1e3,
        both / 1e3,
        computation / 1e3,
        100.0 * overlap.hidden()
    );
    let facts = json!({
        "collective": name,
        "alone_ns": alone.round(),
        "computation_ns": computation.round(),
        "both_ns": both.round(),
        "hidden": overlap.hidden(),
    });
    (facts, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_with_the_computation_is_hidden() {
        let hidden = |both: f64| Overlap { alone: 100.0, computation: 110.0, both }.hidden();
        assert_eq!([100.0, 110.0, 135.0, 210.0, 300.0].map(hidden), [1.0, 1.0, 0.75, 0.0, 0.0]);
    }
}
