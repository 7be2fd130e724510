//! Benchmarks of unisono and of the peers it is measured against.

#[macro_use]
extern crate alloc;

#[cfg(target_os = "linux")]
pub mod cache_line;
pub mod callgrind;
pub mod comparison;
#[cfg(target_os = "linux")]
pub mod contenders;
pub mod fixtures;
#[cfg(target_os = "linux")]
pub mod intra_node;
