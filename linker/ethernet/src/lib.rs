//! Datagrams on Ethernet without an operating system: UDP over IPv4 over any [`smoltcp::phy::Device`].
//!
//! ```text
//!  core ── EthernetDevice ── frame (Ethernet, IPv4, UDP, CRC-32C) ── smoltcp::phy::Device ── wire
//!                 └── neighbours (ARP: asked, answered, learnt)
//! ```
//!
//! A datagram is what the UDP device of `unisono` sends: head, payload, and a CRC-32C of both, least significant byte first. A rank
//! with that device and one with this speak to each other. [`transfer`] is what the proofs do with it.
#![no_std]
#![forbid(unsafe_code)]

pub mod address_table;
mod crc;
pub mod device;
pub mod frame;
pub mod transfer;

pub use smoltcp;
