//! A token travels around the ranks, and each adds its rank: the first program to run on a new machine.
//!
//! ```text
//! cargo build -p unisono --example ring
//! unisono run -n 4 -- target/debug/examples/ring
//! ```

use std::time::Instant;

use unisono::prelude::*;

const TOKEN: Tag = Tag(1);
const ROUNDS: u64 = 100;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let world = World::join()?;
    let (rank, size) = (world.rank().0, world.size());
    // With one rank, both neighbours are the rank itself.
    let (next, previous) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));

    let started = Instant::now();
    let mut token = [0_u64];
    for _ in 0..ROUNDS {
        // One rank has to send first, or all would wait for each other.
        if rank == 0 {
            world.send(&token, next, TOKEN)?;
            world.receive_into(&mut token, previous, TOKEN)?;
        } else {
            world.receive_into(&mut token, previous, TOKEN)?;
            token[0] += u64::from(rank);
            world.send(&token, next, TOKEN)?;
        }
    }

    if rank == 0 {
        let size = u64::from(size);
        let expected = ROUNDS * (size * (size - 1) / 2);
        if token[0] != expected {
            return Err(format!("the token came back as {}, not {expected}", token[0]).into());
        }
        let hop = started.elapsed() / u32::try_from(ROUNDS * size)?;
        println!("{ROUNDS} rounds of {size} ranks: the token is {expected}, {hop:?} per hop");
    }
    world.finish()?;
    Ok(())
}
