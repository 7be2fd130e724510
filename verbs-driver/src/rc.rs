//! Reliable connections (RC): the adapter writes, reads and atomically updates registered memory of a peer by itself,
//! and the peer's processor takes no part.
//!
//! A connection is a queue pair at each end. Both ends are created, each end's `RcAddress` goes to the other by
//! datagrams, and `RcConnection::connect` takes it. Peers reach the memory that `Domain::register_for_peers` registers,
//! by its 32-bit key. The connections of an adapter share one completion queue. A write with immediate takes a receive
//! of its target, without memory, from a queue that the connections share, too; while that is empty, the sender's
//! adapter repeats the write. After an error a queue pair executes nothing: its other operations fail, too, and the
//! connection is made anew. Queues are written by libibverbs, or on Soft-RoCE by the driver.
//!
//! A connection costs memory of both hosts and of their adapters, whose caches hold few (Koop et al., ICS 2007, §3;
//! Mamidala, dissertation 2008, §8.2): who makes connections bounds their number.

#[cfg(feature = "verbs")]
mod address;
#[cfg(feature = "verbs")]
mod completions;
#[cfg(feature = "verbs")]
mod connection;
#[cfg(feature = "verbs")]
mod mapped;
#[cfg(feature = "verbs")]
mod objects;
mod operation;
#[cfg(feature = "verbs")]
mod shared_receives;

#[cfg(feature = "verbs")]
pub use address::RcAddress;
#[cfg(feature = "verbs")]
pub use completions::{RcCompletions, RcOptions};
#[cfg(feature = "verbs")]
pub use connection::{RcConnection, RcPostError};
#[cfg(feature = "verbs")]
pub(crate) use objects::{CompletionObject, EndObject, ReceiveObject};
pub(crate) use operation::{EndedWork, RECEIVE};
pub use operation::{RcCompletion, RcOperation, RcRequest};
