//! Messages between two ranks.

pub mod admission;
pub mod matching;

mod envelope;
mod queues;

pub use envelope::{Context, Envelope, Pattern, Tag};
