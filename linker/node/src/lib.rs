//! A rank without an operating system in the segment of a node: it takes its seat and takes part in collectives and messages, by
//! the machines of `unisono-shmem`. No clock, no wait of the system, no allocation: who waits calls the [`Idle`] that it was given.
//!
//! - [`member`]: the seat, the heart, who else is there.
//! - [`group`]: barrier, broadcast, allreduce.
//! - [`messages`]: messages with processes and nodes, matched as World's.
//! - [`mailbox`]: messages over bare rings, between two who know what to expect.
//! - [`rounds`], [`letters`]: programs that check themselves, which the proofs run on both sides.
#![no_std]

pub mod group;
pub mod member;
pub mod messages;
pub mod raw_ring;
pub mod self_check;

/// What a rank does between two polls that were fruitless: nothing, sleep until an interrupt, serve a device.
pub trait Idle {
    /// Called again and again while the rank waits.
    fn idle(&mut self);
}

impl<F: FnMut()> Idle for F {
    fn idle(&mut self) {
        self();
    }
}
