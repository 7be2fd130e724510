//! Shared memory inside a node: one segment per node and job, a message ring between every two ranks, barriers and
//! collectives.
//!
//! The core of the crate is `no_std` and works over any raw memory: a mapping, a PCI BAR, a microcontroller's RAM. It
//! loads and stores 32-bit words with acquire and release; every word has one writer, every index read from shared
//! memory is checked, and data are copied out before they are parsed. Every primitive is a polled step; the host does
//! the waiting.
//!
//! [`segment`] wraps raw memory. Besides it only [`slot_collectives::data_executor`] and [`reduction_ops`], which copy
//! and combine payload, [`user_memory`], which copies to and from user buffers, and [`mod@copy`], which does long
//! copies, use raw pointers. [`layout`] places everything in the segment; [`rank_slot`] records which ranks are
//! present. A [`ring`] carries messages from one rank to another, [`am_header`] defines their headers, and [`device`]
//! runs the core's datagrams over rings. [`mod@barrier`] and [`slot_collectives`] are the collectives, over the
//! [`collective_area`] of each rank; [`slot_collectives::selection`] picks their algorithms,
//! [`slot_collectives::data_op`] is the data movement that they request from the host.
//!
//! With the feature `std`, on Linux: [`host`] creates and maps the segment, reports whether a process is alive, waits,
//! and chooses between cached and streaming stores.
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
