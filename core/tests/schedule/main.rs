//! Schedules: what the sources show, every rank's blocks from every algorithm, rounds and costs.
//!
//! `cargo test -p unisono-core schedule` runs all of it.

extern crate alloc;

mod bounds;
mod bytes;
mod cases;
mod choice;
mod clock;
mod every;
mod failing;
mod group;
mod hockney;
mod memory;
mod mutants;
mod order;
mod progress;
mod verify;
