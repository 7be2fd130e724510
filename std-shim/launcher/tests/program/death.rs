//! A rank that dies amid collectives, and what the others learn.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use rustix::process::{Signal, getpid, kill_process};
use unisono::collective::CollectiveError;
use unisono::{Rank, World};

/// Longest time until a survivor detects a failure.
const BOUND: Duration = Duration::from_secs(2);

/// The victim is killed after this time. The others repeat the call, which gets its number, until it fails: in time, and
/// because of the victim. They print `named`.
pub(crate) fn die_amid(
    world: &World,
    victim: Rank,
    after: Duration,
    mut call: impl FnMut(u32) -> Result<(), CollectiveError>,
) {
    if world.rank() == victim {
        thread::spawn(move || {
            thread::sleep(after);
            kill_process(getpid(), Signal::KILL).expect("own process");
        });
    }
    let (mut number, mut started) = (0_u32, Instant::now());
    let error = loop {
        started = started.max(Instant::now());
        number += 1;
        if let Err(error) = call(number) {
            break error;
        }
    };
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    assert!(matches!(error, CollectiveError::Missing { rank, .. } if rank == victim), "{error:?}");
    println!("named");
}
