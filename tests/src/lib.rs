//! Simulated network, models and harnesses of unisono. Not published.

extern crate alloc;

#[cfg(feature = "host")]
pub mod adapter_cache;
#[cfg(feature = "host")]
pub mod bare_metal;
#[cfg(feature = "host")]
pub mod collectives;
#[cfg(feature = "host")]
pub mod conformance;
#[cfg(feature = "host")]
pub mod differential;
#[cfg(feature = "host")]
pub mod harness;
#[cfg(feature = "host")]
pub mod mlx5;
pub mod model_checker;
pub mod models;
pub mod sample;
#[cfg(feature = "host")]
pub mod scenarios;
#[cfg(feature = "host")]
pub mod sim;
#[cfg(feature = "verbs")]
pub mod verbs;
#[cfg(feature = "host")]
pub mod vm;
#[cfg(feature = "host")]
pub mod windows;
