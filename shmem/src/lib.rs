//! Shared memory inside a node: one segment per node and job, rings between every two ranks, flags and collectives.
//!
//! The heart is `no_std` and works over raw memory that anyone gives: a mapping, a PCI BAR, a microcontroller's RAM. It
//! loads and stores 32-bit words with release and acquire, every word has one writer, every index read is checked, and what
//! is read is copied out before it is parsed. Every primitive is a polled step; waiting is outside.
//!
//! [`segment`] is the only file that knows raw memory, but for [`payload`] and [`kernel`], which copy and combine payload through raw
//! pointers. [`layout`] says where everything lies, [`board`] where what collectives share does; [`mod@barrier`] and [`flags`] are the
//! collectives, [`choice`] picks their algorithms, [`wish`] is what they ask of the rim.
#![cfg_attr(not(any(feature = "std", loom, test)), no_std)]

pub mod barrier;
pub mod board;
mod collective;
pub mod flags;
#[cfg(not(loom))]
pub mod kernel;
pub mod layout;
#[cfg(not(loom))]
pub mod payload;
pub mod segment;
#[cfg(all(test, not(loom)))]
mod testing;
pub mod wish;

pub use collective::choice;
