//! Messages over an endpoint or any other ordered channel: which payload belongs to which receive, and how much may be
//! sent to a receiver that has not posted a receive.
//!
//! [`matching`] and [`point_to_point`]: messages between two ranks, by context, source and tag, with wildcards.
//! [`collective_transport`]: the messages of collectives, which have exact keys.

pub mod collective_transport;
pub mod matching;
pub mod point_to_point;

mod envelope;
mod queues;

pub use envelope::{Context, Envelope, Pattern, Tag};
