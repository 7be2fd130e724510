//! Shared memory inside a node: one segment per node and job, rings between every two ranks, flags and collectives.
//!
//! The heart is `no_std` and works over raw memory that anyone gives: a mapping, a PCI BAR, a microcontroller's RAM. It
//! loads and stores 32-bit words with release and acquire, every word has one writer, every index read is checked, and what
//! is read is copied out before it is parsed. Every primitive is a polled step; waiting is outside.
//!
//! [`segment`] is the only file of the heart that knows raw memory, but for [`slot_collectives::data_executor`] and [`reduction_ops`], which copy and combine
//! payload, [`user_memory`], for copies to and from lent memory, and [`mod@copy`], for long ones. [`layout`] says where everything lies; [`rank_slot`] says who is
//! there. A [`ring`] carries messages from one rank to another, and [`device`] the core's datagrams over rings.
//! [`mod@barrier`] and [`slot_collectives`] are the collectives, over the [`collective_area`] of each rank; [`slot_collectives::selection`] picks their algorithms,
//! [`slot_collectives::data_op`] is what they ask of the rim.
//!
//! With the feature `std`, on Linux: [`host::file`] makes a segment and maps it, [`host::liveness`] tells whether a process lives,
//! [`host::wait_strategy`] waits, [`host::store_policy`] chooses how long copies are stored.
#![cfg_attr(not(any(feature = "std", loom, test)), no_std)]

#[cfg(not(loom))]
pub mod am_header;
pub mod barrier;
pub mod collective_area;
#[cfg(not(loom))]
pub mod copy;
#[cfg(not(loom))]
pub mod device;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub mod host;
pub mod layout;
pub mod rank_slot;
#[cfg(not(loom))]
pub mod reduction_ops;
pub mod ring;
pub mod segment;
pub mod slot_collectives;
#[cfg(all(test, not(loom)))]
mod testing;
#[cfg(not(loom))]
pub mod user_memory;

#[cfg(all(test, loom))]
mod models;
