//! Scenarios in the simulated network, shared by the tests and the harnesses.

pub mod hostile;
pub mod incast;
pub mod repair;
pub mod schedules;
