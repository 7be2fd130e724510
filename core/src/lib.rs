//! The protocol core of unisono: reliable messages and placement over unreliable datagrams.
//!
//! The design follows Koop, Sur, Gao, Panda, "High Performance MPI Design using Unreliable Datagram" (ICS 2007), §4: one
//! connectionless endpoint for all peers, a sliding window of segments per peer that is active, NACK-based repair, and
//! three ways to make progress.
//!
//! # Layers
//! A layer uses only those below it in this list.
//! - [`collective`], [`schedule`]: what a group does together; what each rank does for it, step by step, over messages.
//! - [`message`]: payload and receives, and how much may be under way to whom.
//! - [`progress`]: the loop that joins an endpoint and a device.
//! - [`endpoint`]: all peers of a process, its records and its pools.
//! - [`window`]: one peer's two half-windows.
//! - [`device`]: what a rim implements; [`counters`]: what happened, counted beside the machine.
//! - [`wire`]: the headers.
//! - [`ids`], [`span`], [`time`], [`pool`]: identities, names of memory, time as a parameter, records.
//!
//! The machines do no I/O, own no clock, allocate nothing, contain no `unsafe` and have no panic path. They take facts
//! (`handle_*`) and give wishes (`poll_*`).
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

pub mod collective;
pub mod counters;
pub mod device;
pub mod endpoint;
pub mod ids;
mod list;
pub mod message;
pub mod pool;
pub mod progress;
pub mod schedule;
pub mod span;
pub mod time;
pub mod window;
pub mod wire;
