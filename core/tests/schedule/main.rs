//! Schedules: the sources' examples, every rank's blocks from every algorithm, rounds and costs.
//!
//! `cargo test -p unisono-core schedule` runs all of it.

extern crate alloc;

mod all_schedules;
mod bounds;
mod bytes;
mod cases;
mod clock;
mod dependencies;
mod failures;
mod group;
mod group_steps;
mod hierarchies;
mod hockney;
mod memory;
mod mutants;
mod progress;
mod selection;
mod verify;
