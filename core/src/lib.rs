//! The protocol core of unisono: reliable messages and placement over unreliable datagrams.
//!
//! The design follows Koop, Sur, Gao, Panda, "High Performance MPI Design using Unreliable Datagram" (ICS 2007), §4: one
//! connectionless endpoint for all peers, a sliding window of segments per peer that is active, NACK-based repair, and
//! three ways to make progress.
//!
//! # Layers
//! A layer uses only those above it in this list.
//! - [`wire`]: the headers; [`psn`], [`bitmap`], [`span`], [`time`]: the numbers they are made of.
//! - [`send_window`], [`inbound`], [`receive_window`], [`rtt`], [`congestion`]: one peer's two half-windows.
//! - [`endpoint`]: all peers of a process; [`peer`], [`operation`], [`placement`]: its records; [`storage`]: where they lie.
//! - [`device`]: what a rim implements; [`drive`](mod@drive): the loop that joins an endpoint and a device.
//! - [`message`]: payload and receives, and how much may be under way to whom.
//! - [`collective`]: what a group does together, whatever carries it.
//! - [`schedule`]: what each rank does in a collective over messages, step by step.
//! - [`counters`]: what happened, counted beside the machine.
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

pub mod bitmap;
pub mod collective;
pub mod congestion;
pub mod counters;
mod credit;
pub mod device;
pub mod drive;
pub mod endpoint;
pub mod inbound;
mod list;
pub mod message;
pub mod operation;
pub mod peer;
pub mod placement;
pub mod psn;
pub mod receive_window;
pub mod rtt;
pub mod schedule;
pub mod send_window;
pub mod span;
pub mod storage;
pub mod time;
pub mod wheel;
pub mod wire;
