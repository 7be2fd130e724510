//! Benchmarks of unisono and of the peers it is measured against.

#[macro_use]
extern crate alloc;

pub mod admitted;
#[cfg(target_os = "linux")]
pub mod bare;
pub mod callgrind;
#[cfg(target_os = "linux")]
pub mod floor;
#[cfg(target_os = "linux")]
pub mod iceoryx2;
#[cfg(target_os = "linux")]
pub mod line;
#[cfg(target_os = "linux")]
pub mod node;
pub mod null;
#[cfg(target_os = "linux")]
pub mod ours;
#[cfg(target_os = "linux")]
pub mod peer;
#[cfg(target_os = "linux")]
pub mod race;
#[cfg(target_os = "linux")]
pub mod record;
#[cfg(target_os = "linux")]
pub mod table;
#[cfg(target_os = "linux")]
pub mod udp;
pub mod verdict;
