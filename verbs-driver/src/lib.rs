//! The verbs driver: unreliable datagrams, reliable connections and directly written work queues on InfiniBand and RoCE
//! adapters.
//!
//! `ud` (feature `verbs`) is the device over rdma-core's libraries, which are loaded at run time: the program starts
//! where they are absent, and reports an error when the device is opened. [`rc`] (the same feature) lets the adapter
//! access memory of peers. [`mlx5`] writes the work queues of ConnectX adapters, [`rxe`] those of Soft-RoCE, both through
//! [`queue_memory`], which does all stores, loads and barriers; [`raw`] is the core's device over them.
//! [`registered_memory`] describes memory that an adapter may access.
#![no_std]

#[cfg(all(feature = "verbs", not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("the order of accesses to an adapter's queues is known of x86-64 and AArch64 only");

#[cfg(any(test, feature = "recorded", feature = "verbs"))]
extern crate alloc;
#[cfg(any(test, feature = "verbs"))]
extern crate std;

pub mod mlx5;
pub mod queue_memory;
pub mod raw;
pub mod rc;
pub mod registered_memory;
pub mod rxe;
#[cfg(feature = "verbs")]
pub mod ud;
#[cfg(feature = "verbs")]
mod uverbs;
