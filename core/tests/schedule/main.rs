//! Schedules: what the sources show, every rank's blocks from every algorithm, rounds and costs.
//!
//! `cargo test -p unisono-core schedule` runs all of it.

mod bounds;
mod cases;
mod every;
mod group;
mod hockney;
mod memory;
mod order;
mod progress;
mod verify;
mod window;
