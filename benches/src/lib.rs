//! Benchmarks of unisono and of the peers it is measured against.

#[cfg(target_os = "linux")]
pub mod bare;
