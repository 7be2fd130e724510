//! Pairs of machines, devices and threads that benchmarks measure.

pub mod message_pair;
pub mod null_device;
#[cfg(target_os = "linux")]
pub mod thread_pair;
#[cfg(target_os = "linux")]
pub mod udp_pair;
