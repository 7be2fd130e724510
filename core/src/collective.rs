//! Collectives: what a group of ranks does together, in terms of places and bytes. The core never touches payload: what is to be
//! copied and combined is wished, and the rim, which owns every byte, does it.
//!
//! A [`Basic`] collective runs in one group over one means: flags in shared memory, messages, a tree. Each rank owns one machine;
//! one collective is under way in it at a time.

mod basic;
mod piece;
mod plan;

pub use basic::{Basic, Cause, CollectiveId, Failure, StepId, Turn};
pub use piece::{Payload, Piece, Place};
pub use plan::{Order, Plan, Verb};

/// A member of the group, by its number in it: 0 to size − 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rank(pub u32);
