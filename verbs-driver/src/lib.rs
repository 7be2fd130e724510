//! The verbs driver: unreliable datagrams and raw work queue entries on InfiniBand and RoCE adapters.
//!
//! [`mlx5`] writes the work queues of ConnectX adapters, through [`order`], the one seam for stores, loads and
//! barriers. [`registered`] names memory that an adapter may use.
#![no_std]

#[cfg(test)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod mlx5;
pub mod order;
pub mod registered;
