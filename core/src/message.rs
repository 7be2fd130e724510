//! Messages over what an endpoint delivers: which payload belongs to which receive, and how much may be on its way to one that
//! is not there yet.
//!
//! [`matching`] and [`admission`]: messages between two ranks, by context, source and tag, with wildcards.
//! [`steps`]: the messages of collectives, whose keys are exact.

pub mod admission;
pub mod matching;
pub mod steps;

mod envelope;
mod queues;

pub use envelope::{Context, Envelope, Pattern, Tag};
