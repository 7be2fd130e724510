//! Messaging and collective communication on clusters: the library, and the parts of the `unisono` launcher.
//!
//! A program joins its job with [`World::join`](world::World::join) and communicates through [`world`]: point-to-point
//! messages by rank and tag, collectives, and communicators that shrink after a rank has failed. [`environment`] reads
//! the job's settings, which [`launch`] or any other launcher sets.
//!
//! The layers below:
//! - [`rank`]: rank numbers; [`fault`]: fault injection for tests; [`region`]: memory registered with a device.
//! - [`udp`]: the device over UDP sockets; [`records`]: the storage of an endpoint.
//! - [`bootstrap`]: the rendezvous through which the ranks find each other.
//! - [`node`]: the shared-memory segment of a node.

extern crate alloc;

pub mod bootstrap;
pub mod environment;
pub mod fault;
pub mod launch;
#[cfg(target_os = "linux")]
pub mod node;
pub mod rank;
pub mod records;
pub mod region;
#[cfg(target_os = "linux")]
pub mod udp;
#[cfg(target_os = "linux")]
pub mod world;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
