//! Messages over what an endpoint delivers: which payload belongs to which receive, and how much may be on its way to one that
//! is not there yet.
//!
//! [`matching`] and [`point_to_point`]: messages between two ranks, by context, source and tag, with wildcards.
//! [`collective_transport`]: the messages of collectives, whose keys are exact.

pub mod collective_transport;
pub mod matching;
pub mod point_to_point;

mod envelope;
mod queues;

pub use envelope::{Context, Envelope, Pattern, Tag};
