//! Scenarios, mostly in the simulated network, that tests and harnesses share.

pub mod hostile;
pub mod incast;
pub mod multicast;
pub mod ports;
pub mod rails;
pub mod remote_access;
pub mod repair;
pub mod schedules;
