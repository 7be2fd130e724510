//! Shared memory inside a node: one segment per node and job, rings between every two ranks, flags and collectives.
//!
//! The heart is `no_std` and works over raw memory that anyone gives: a mapping, a PCI BAR, a microcontroller's RAM. It
//! loads and stores 32-bit words with release and acquire, every word has one writer, every index read is checked, and what
//! is read is copied out before it is parsed. Every primitive is a polled step; waiting is outside.
//!
//! [`segment`] is the only file that knows raw memory; [`layout`] says where everything lies; a [`ring`] carries messages from
//! one rank to another.
#![cfg_attr(not(any(feature = "std", loom, test)), no_std)]

pub mod layout;
pub mod ring;
pub mod segment;

#[cfg(all(test, loom))]
mod models;
