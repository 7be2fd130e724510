//! A histogram in the windows of all ranks: every rank adds what it draws to the bin's owner, which takes no part.
//!
//! ```text
//! cargo build -p unisono --example histogram
//! unisono run -n 4 -- target/debug/examples/histogram 10000
//! ```

use std::env;

use unisono::prelude::*;

/// Bins of each rank.
const BINS: u64 = 64;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let world = World::join()?;
    let draws: u64 = env::args().nth(1).map_or(Ok(2000), |argument| argument.parse())?;
    let window = world.allocate_window(BINS as usize * size_of::<u64>())?;

    // Numbers without a pattern; each rank has a sequence of its own.
    let mut state = u64::from(world.rank().0) + 1;
    for _ in 0..draws {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bin = (state >> 33) % (BINS * u64::from(world.size()));
        let (owner, own_bin) = (Rank((bin / BINS) as u32), (bin % BINS) as usize);
        window.accumulate(&[1_u64], owner, own_bin * size_of::<u64>(), SystemOperation::sum())?;
    }

    // All are there after the fence.
    window.fence()?;
    let mut bins = [0_u64; BINS as usize];
    window.read(0, &mut bins)?;
    let mut total = [0];
    world.all_reduce_into(&[bins.iter().sum::<u64>()], &mut total, SystemOperation::sum())?;
    let drawn = draws * u64::from(world.size());
    if total != [drawn] {
        return Err(format!("{} of {drawn} draws were counted", total[0]).into());
    }
    if world.rank() == Rank(0) {
        println!("all {drawn} draws counted in {} bins", BINS * u64::from(world.size()));
    }
    window.free()?;
    world.finish()?;
    Ok(())
}
