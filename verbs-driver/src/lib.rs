//! The verbs driver: unreliable datagrams and raw work queue entries on InfiniBand and RoCE adapters.
//!
//! `ud` (feature `verbs`) is the device over rdma-core's libraries, which are loaded at run time: the program starts where
//! they are absent, and says so when it is asked for the device.
#![no_std]

#[cfg(feature = "verbs")]
extern crate alloc;
#[cfg(feature = "verbs")]
extern crate std;

#[cfg(feature = "verbs")]
pub mod ud;
