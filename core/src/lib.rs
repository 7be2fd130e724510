//! The protocol core of unisono: reliable messages, placements and collectives over unreliable datagrams or any ordered
//! channel, as state machines without I/O.
//!
//! The transport follows Koop, Sur, Gao, Panda, "High Performance MPI Design using Unreliable Datagram" (ICS 2007), §4:
//! one connectionless endpoint for all peers, a sliding window of segments per active peer, NACK-based repair, and
//! three ways to make progress (polling, interrupts, hybrid).
//!
//! The core is a stack of layers, described here from top to bottom. A layer uses only those below it, and each can be
//! used without those above.
//!
//! # Collectives
//! [`collective`] is the interface: what a group of ranks computes together, and a machine that is polled for requests.
//! [`schedule`] implements it over messages: each algorithm is a pure function from a step's number to a send, receive,
//! copy or reduction with its dependencies; [`schedule::choose`] selects an algorithm by its cost.
//!
//! # Messages
//! [`message::point_to_point`] implements MPI's semantics: matching with wildcards, eager and rendezvous protocols,
//! probes, with bounded memory at the receiver. [`message::collective_transport`] carries the messages of schedules,
//! which have exact keys. Both only build and handle message headers, so they run over an endpoint as well as over
//! shared-memory rings.
//!
//! [`messenger`] joins both with a [`transport`], a way to peers, of which an endpoint is one: it follows every send and
//! receive to its end, so that a host only posts them, hands over arrivals and drains completions.
//!
//! # Remote memory access
//! [`rma`] lets peers read, write and update regions of memory under keys, by requests over an endpoint.
//!
//! # Multicast
//! [`multicast`] carries messages from one root to all members of a device's group, reliably and in order.
//!
//! # The endpoint and the progress loop
//! [`endpoint`] provides reliable, ordered messages of one datagram, and placements of any length into granted memory,
//! between one process and all its peers. It owns the peers' records, the pools of windows, flow control, timers and
//! shutdown. [`progress`] is the loop that joins an endpoint and a device: receive, completions, timers, transmit.
//!
//! # Windows
//! [`window`] holds one peer's state: the send window with repair by send order, congestion control and its probe
//! timer, and the receiver's state and reorder window.
//!
//! # Devices
//! [`device`] is what a host implements to move datagrams: UDP, verbs, shared memory, a simulator. [`counters`] counts
//! what an endpoint reports; counters are not part of its state.
//!
//! # Headers and basic types
//! [`wire`] parses and builds the headers. [`ids`] has a newtype for every identity, [`span`] names memory without
//! addresses, [`time`] makes the clock a type parameter and has the timer wheel, [`pool`] abstracts from the memory of
//! records.
//!
//! # The contract of every machine
//! The machines do no I/O, own no clock, allocate nothing, contain no `unsafe` and have no panic path. The host calls
//! `handle_*` with events and the present time, polls requests with `poll_*` until they return `None`, and carries each
//! out; commands are plain verbs. The calling contract stands on each main type, first of all on
//! [`endpoint::Endpoint`].
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

#[cfg(not(mutants))]
#[macro_use]
mod mutant;
#[cfg(mutants)]
#[macro_use]
pub mod mutant;

pub mod collective;
pub mod counters;
pub mod device;
pub mod endpoint;
pub mod ids;
mod list;
pub mod message;
pub mod messenger;
pub mod multicast;
pub mod path;
pub mod pool;
pub mod progress;
pub mod rma;
pub mod schedule;
pub mod span;
pub mod time;
pub mod transport;
pub mod window;
pub mod wire;
