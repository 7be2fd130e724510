//! The interface of collectives, in terms of buffers and bytes. The core never touches payload: it requests copies and
//! reductions, and the host, which owns every byte, carries them out.
//!
//! A [`CollectiveMachine`] collective runs in one group over one means: shared-memory flags, messages, a tree. Each
//! rank owns one machine; one collective at a time is in progress in it.

mod buffer;
mod lane;
mod machine;
mod spec;
pub mod token_tree;

pub use buffer::{DataExecutor, Piece, Place};
pub use lane::{Lane, Turn};
pub use machine::{CollectiveMachine, Failure, FailureCause, Poll};
pub use spec::{CollectiveKind, CollectiveSpec, Order, type_code};
