//! Messaging and collective communication on clusters.

extern crate alloc;

pub mod fault;
pub mod records;
pub mod region;
#[cfg(target_os = "linux")]
pub mod udp;
