//! Collectives over messages: their transport, and their schedules in the simulated network.

mod schedules;
mod transport;
