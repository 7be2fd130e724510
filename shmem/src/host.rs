//! The parts of shared memory that need Linux: the segment's file and its pages, the liveness of processes, waiting in
//! the kernel, and the choice between cached and streaming stores.

pub mod file;
pub mod liveness;
pub mod pages;
pub mod store_policy;
pub mod wait_strategy;
