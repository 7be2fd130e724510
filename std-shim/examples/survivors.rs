//! π by quadrature, although a rank is killed meanwhile: the others shrink the communicator, agree on what is done, and
//! continue.
//!
//! ```text
//! cargo build -p unisono --example survivors
//! unisono run -n 4 --on-death tell -- target/debug/examples/survivors
//! ```
//! The job's exit code is that of the rank that was killed (137).

use core::f64::consts::PI;

use rustix::process::{Signal, getpid, kill_process};
use unisono::prelude::*;

const ROUNDS: u64 = 100;
/// Intervals of a round.
const INTERVALS: u64 = 10_000;
const WIDTH: f64 = 1.0 / (ROUNDS * INTERVALS) as f64;
/// The rank that is killed, and the round before which it is.
const VICTIM: Rank = Rank(1);
const LAST: u64 = ROUNDS / 2;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let world = World::join()?;
    let (mut survivors, mut sums) = (None::<Communicator>, Vec::new());
    while (sums.len() as u64) < ROUNDS {
        let now = survivors.as_ref().unwrap_or(&world);
        let round = sums.len() as u64;
        if world.rank() == VICTIM && round == LAST {
            kill_process(getpid(), Signal::KILL)?;
        }
        match sum(now, round) {
            Ok(sum) => sums.push(sum),
            Err(CollectiveError::Missing { .. } | CollectiveError::Revoked) => {
                // Releases the ranks that wait for one that has failed here.
                now.revoke();
                survivors = Some(recover(now, &mut sums)?);
            }
            Err(error) => return Err(error.into()),
        }
    }

    let now = survivors.as_ref().unwrap_or(&world);
    let (pi, left) = (sums.iter().sum::<f64>(), now.size());
    // The rule's error is at most width² / 24 times the largest second derivative, which is 8, plus rounding errors.
    let (error, bound) = ((pi - PI).abs(), WIDTH * WIDTH / 3.0 + 1e-11);
    if error.is_nan() || error > bound {
        return Err(format!("π is not {pi}: the error {error:e} exceeds {bound:e}").into());
    }
    if now.rank() == Rank(0) {
        println!("π = {pi:.15} by {left} of {} ranks, error {error:.1e}", world.size());
    }
    drop(survivors);
    world.finish()?;
    Ok(())
}

/// The area under 4 / (1 + x²) over the intervals of a round, which the members share.
fn sum(members: &Communicator, round: u64) -> Result<f64, CollectiveError> {
    let (rank, size) = (u64::from(members.rank().0), members.size() as usize);
    let own = (rank..INTERVALS).step_by(size).map(|i| {
        let x = ((round * INTERVALS + i) as f64 + 0.5) * WIDTH;
        4.0 / (1.0 + x * x)
    });
    let mut sum = [own.sum::<f64>() * WIDTH];
    members.all_reduce_in_place(&mut sum, SystemOperation::sum())?;
    Ok(sum[0])
}

/// Makes a communicator of the live ranks, and truncates the sums to the rounds that all of them have completed.
fn recover(broken: &Communicator, sums: &mut Vec<f64>) -> Result<Communicator, AgreeError> {
    let mut left = broken.shrink()?;
    loop {
        let mut done = [sums.len() as u64];
        if left.all_reduce_in_place(&mut done, SystemOperation::min()).is_ok() {
            sums.truncate(done[0] as usize);
            return Ok(left);
        }
        left.revoke();
        left = left.shrink()?;
    }
}
