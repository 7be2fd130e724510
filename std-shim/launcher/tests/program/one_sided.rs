//! What the tests of windows and of regions share.

use core::error::Error;
use std::env;

use crate::program::{expect, run};

/// All means, with several progress modes.
const MEANS: [&str; 6] = [
    "-n 1",
    "-n 4 --device shm",
    "-n 4 --device udp",
    "-n 4 --nodes 2 --progress hybrid",
    "-n 3 --nodes 2 --progress thread",
    "-n 3 --device udp --loss 5% --dup 2% --reorder 5% --seed 7",
];

/// The number of ranks that the options say.
fn ranks(options: &str) -> usize {
    options.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number of ranks")
}

/// The means that `TEST_MEANS` names, options of a job separated by `;`; without it, these.
pub(crate) fn means_or(usual: &[&str]) -> Vec<String> {
    let given = env::var("TEST_MEANS").ok();
    given.map_or_else(
        || usual.iter().map(ToString::to_string).collect(),
        |given| given.split(';').map(str::to_owned).collect(),
    )
}

/// A part of the program is right at every rank, by all means.
pub(crate) fn everywhere(part: &str) {
    for means in means_or(&MEANS) {
        expect(&run(&means, part), 0, &vec!["right"; ranks(&means)]);
    }
}

/// One rank is killed, and all others see that.
pub(crate) fn expect_death(part: &str) {
    for means in means_or(&["-n 3 --device shm", "-n 3 --device udp", "-n 4 --nodes 2"]) {
        expect(&run(&format!("{means} --on-death tell"), part), 137, &vec!["failed"; ranks(&means) - 1]);
    }
}

pub(crate) type Outcome = Result<(), Box<dyn Error>>;

pub(crate) fn check(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// Bytes that differ between ranks and places.
pub(crate) fn pattern(rank: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i as u32).wrapping_mul(31).wrapping_add(rank * 7 + 1) as u8).collect()
}
