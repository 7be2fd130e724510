//! Simulated network, models and harnesses of unisono. Not published.

extern crate alloc;

pub mod conformance;
pub mod explore;
pub mod node;
pub mod sim;
