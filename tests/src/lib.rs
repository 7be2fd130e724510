//! Simulated network, models and harnesses of unisono. Not published.

extern crate alloc;

pub mod conformance;
pub mod explore;
pub mod models;
pub mod node;
pub mod sim;
