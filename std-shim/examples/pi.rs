//! π by quadrature: every rank sums its share of the intervals, and a reduction adds up the shares.
//!
//! ```text
//! cargo build -p unisono --example pi
//! unisono run -n 4 -- target/debug/examples/pi 1000000
//! ```

use core::f64::consts::PI;
use std::env;

use unisono::prelude::*;

const ROOT: Rank = Rank(0);

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let world = World::join()?;
    let (rank, size) = (u64::from(world.rank().0), u64::from(world.size()));

    // The root reads the argument and broadcasts it.
    let mut intervals = 0_u64;
    if world.rank() == ROOT {
        intervals = env::args().nth(1).map_or(Ok(1_000_000), |argument| argument.parse())?;
    }
    world.broadcast_into(&mut intervals, ROOT)?;

    // The area under 4 / (1 + x²) between 0 and 1, by the midpoint rule.
    // Rank r takes the intervals r, r + size, r + 2 size, …
    let width = 1.0 / intervals as f64;
    let own = (rank..intervals).step_by(size as usize).map(|i| {
        let x = (i as f64 + 0.5) * width;
        4.0 / (1.0 + x * x)
    });
    let share = own.sum::<f64>() * width;

    let mut pi = 0.0;
    world.reduce_into(&share, &mut pi, SystemOperation::sum(), ROOT)?;

    if world.rank() == ROOT {
        // The rule's error is at most width² / 24 times the largest second derivative, which is 8, plus rounding
        // errors.
        let (error, bound) = ((pi - PI).abs(), width * width / 3.0 + 1e-11);
        if error.is_nan() || error > bound {
            return Err(format!("π is not {pi}: the error {error:e} exceeds {bound:e}").into());
        }
        println!("π = {pi:.15} by {intervals} intervals on {size} ranks, error {error:.1e}");
    }
    world.finish()?;
    Ok(())
}
