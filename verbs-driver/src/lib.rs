//! The verbs driver: unreliable datagrams and raw work queue entries on InfiniBand and RoCE adapters.
//!
//! [`mlx5`] writes the work queues of ConnectX adapters, [`rxe`] those of Soft-RoCE, both through [`order`], the one seam for
//! stores, loads and barriers; [`raw`] is the core's device over them. [`registered`] names memory that an adapter may use.
#![no_std]

#[cfg(test)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod mlx5;
pub mod order;
pub mod raw;
pub mod registered;
pub mod rxe;
