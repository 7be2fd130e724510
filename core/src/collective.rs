//! Collectives: what a group of ranks does together, in terms of places and bytes. The core never touches payload: what is to be
//! copied and combined is wished, and the rim, which owns every byte, does it.
//!
//! A [`Basic`] collective runs in one group over one means: flags in shared memory, messages, a tree. Each rank owns one machine;
//! one collective is under way in it at a time.

mod buffer;
mod machine;
mod spec;

pub use buffer::{Payload, Piece, Place};
pub use machine::{Basic, Cause, Failure, Turn};
pub use spec::{Order, Plan, Verb};
