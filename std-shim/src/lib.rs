//! Messaging and collective communication on clusters.
//!
//! A program joins its job with [`World::join`](world::World::join), and talks to the other ranks by [`world`]: messages by rank and tag,
//! collectives, groups that shrink when a rank has died. [`environment`] says which job that is: `unisono run` sets it, or any other starter.
//!
//! What they stand on:
//! - [`unisono_udp`]: datagrams of the operating system; [`unisono_memory`]: regions and the records of an endpoint.
//! - [`unisono_bootstrap`]: how the ranks find each other.
//! - [`node`]: the memory that the ranks of one host share.

extern crate alloc;

pub mod environment;
#[cfg(target_os = "linux")]
pub mod node;
#[cfg(target_os = "linux")]
pub mod world;

pub use unisono_bootstrap::Rank;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
