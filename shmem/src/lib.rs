//! Shared memory inside a node: one segment per node and job, rings between every two ranks, flags and collectives.
//!
//! The heart is `no_std` and works over raw memory that anyone gives: a mapping, a PCI BAR, a microcontroller's RAM. It
//! loads and stores 32-bit words with release and acquire, every word has one writer, every index read is checked, and what
//! is read is copied out before it is parsed. Every primitive is a polled step; waiting is outside.
//!
//! [`segment`] is the only file of the heart that knows raw memory, but for [`payload`] and [`kernel`], which copy and combine
//! payload, [`lent`], for copies to and from lent memory, and [`mod@copy`], for long ones. [`layout`] says where everything lies; [`seat`] says who is
//! there. A [`ring`] carries messages from one rank to another, and [`device`] the core's datagrams over rings.
//! [`mod@barrier`] and [`flags`] are the collectives, over the [`board`] of each rank; [`choice`] picks their algorithms,
//! [`wish`] is what they ask of the rim.
//!
//! With the feature `std`, on Linux: [`file`](mod@file) makes a segment and maps it, [`life`] tells whether a process lives,
//! [`rest`] waits, [`storing`] chooses how long copies are stored.
#![cfg_attr(not(any(feature = "std", loom, test)), no_std)]

pub mod barrier;
pub mod board;
mod collective;
#[cfg(not(loom))]
pub mod copy;
#[cfg(not(loom))]
pub mod device;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub mod file;
pub mod flags;
#[cfg(not(loom))]
pub mod kernel;
pub mod layout;
#[cfg(not(loom))]
pub mod lent;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub mod life;
#[cfg(not(loom))]
pub mod note;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub mod pages;
#[cfg(not(loom))]
pub mod payload;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub mod rest;
pub mod ring;
pub mod seat;
pub mod segment;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub mod storing;
#[cfg(all(test, not(loom)))]
mod testing;
pub mod wish;

#[cfg(all(test, loom))]
mod models;

pub use collective::choice;
