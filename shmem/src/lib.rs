//! Shared memory inside a node: one segment per node and job, rings between every two ranks, flags and collectives.
//!
//! The heart is `no_std` and works over raw memory that anyone gives: a mapping, a PCI BAR, a microcontroller's RAM. It
//! loads and stores 32-bit words with release and acquire, every word has one writer, every index read is checked, and what
//! is read is copied out before it is parsed. Every primitive is a polled step; waiting is outside.
//!
//! Only [`segment`] and, for copies to and from lent memory, [`lent`] know raw memory. [`layout`] says where everything lies;
//! [`seat`] says who is there; a [`ring`] carries messages from one to another, and [`device`] the core's datagrams over rings.
//! With the feature `std`, on Linux: [`file`](mod@file) makes a segment and maps it, [`life`] tells whether a process lives,
//! [`rest`] waits.
#![cfg_attr(not(any(feature = "std", loom, test)), no_std)]

#[cfg(not(loom))]
pub mod device;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub mod file;
pub mod layout;
#[cfg(not(loom))]
pub mod lent;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub mod life;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub mod pages;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub mod rest;
pub mod ring;
pub mod seat;
pub mod segment;

#[cfg(all(test, loom))]
mod models;
