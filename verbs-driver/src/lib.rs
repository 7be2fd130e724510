//! The verbs driver: unreliable datagrams and raw work queue entries on InfiniBand and RoCE adapters.
//!
//! `ud` (feature `verbs`) is the device over rdma-core's libraries, which are loaded at run time: the program starts where
//! they are absent, and says so when it is asked for the device. [`mlx5`] writes the work queues of ConnectX adapters,
//! through [`order`], the one seam for stores, loads and barriers. [`registered`] names memory that an adapter may use.
#![no_std]

#[cfg(any(test, feature = "verbs"))]
extern crate alloc;
#[cfg(any(test, feature = "verbs"))]
extern crate std;

pub mod mlx5;
pub mod order;
pub mod registered;
#[cfg(feature = "verbs")]
pub mod ud;
