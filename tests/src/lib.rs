//! Simulated network, models and harnesses of unisono. Not published.

extern crate alloc;

pub mod bar;
pub mod conformance;
pub mod explore;
pub mod hostile;
pub mod incast;
pub mod node;
pub mod repair;
pub mod sim;
