//! A rank without an operating system in the shared-memory segment of a node: it occupies its rank slot and takes part
//! in collectives and messages, with the state machines of `unisono-shmem`. Needs no clock, system call or allocator: a
//! waiting call invokes the caller's [`Idle`].
//!
//! - [`member`]: the rank slot, the heartbeat, the other ranks.
//! - [`group`]: barrier, broadcast, allreduce.
//! - [`messages`]: messages with processes and nodes, with the matching rules of processes; memory that others access.
//! - [`raw_ring`]: unmatched messages over the rings between two ranks.
//! - [`self_check`]: programs that check themselves, which the proofs run on processes and nodes.
#![no_std]

pub mod group;
pub mod member;
pub mod messages;
pub mod raw_ring;
pub mod self_check;

/// The work of a rank between two idle polls: none, sleeping until an interrupt, serving a device.
pub trait Idle {
    /// Called repeatedly while the rank waits.
    fn idle(&mut self);
}

impl<F: FnMut()> Idle for F {
    fn idle(&mut self) {
        self();
    }
}
