//! Simulated network, models and harnesses of unisono. Not published.

extern crate alloc;

#[cfg(feature = "rim")]
pub mod bar;
#[cfg(feature = "rim")]
pub mod collectives;
#[cfg(feature = "rim")]
pub mod conformance;
pub mod explore;
#[cfg(feature = "rim")]
pub mod hockney;
#[cfg(feature = "rim")]
pub mod hostile;
#[cfg(feature = "rim")]
pub mod incast;
#[cfg(feature = "rim")]
pub mod job;
pub mod models;
#[cfg(feature = "rim")]
pub mod node;
#[cfg(feature = "rim")]
pub mod oracle;
#[cfg(feature = "rim")]
pub mod repair;
#[cfg(feature = "rim")]
pub mod schedules;
#[cfg(feature = "rim")]
pub mod sim;
#[cfg(feature = "rim")]
pub mod vm;
