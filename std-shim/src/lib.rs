//! Messaging and collective communication on clusters.

extern crate alloc;

pub mod bootstrap;
pub mod environment;
pub mod fault;
pub mod launch;
#[cfg(target_os = "linux")]
pub mod node;
pub mod rank;
pub mod records;
pub mod region;
#[cfg(target_os = "linux")]
pub mod udp;
#[cfg(target_os = "linux")]
pub mod world;
