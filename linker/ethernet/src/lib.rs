//! Datagrams on Ethernet without an operating system: UDP over IPv4 over any [`smoltcp::phy::Device`].
//!
//! ```text
//!  core ── EthernetDevice ── frame (Ethernet, IPv4, UDP, CRC-32C) ── smoltcp::phy::Device ── wire
//!                 └── address table (ARP: requests, replies, updates)
//! ```
//!
//! A datagram has the format of the UDP device of `unisono`: header, payload, and a CRC-32C of both, least significant
//! byte first. Ranks with either device interoperate. [`transfer`] is the program that the proofs run over it.
#![no_std]
#![forbid(unsafe_code)]

pub mod address_table;
mod crc;
pub mod device;
pub mod frame;
pub mod transfer;

pub use smoltcp;
