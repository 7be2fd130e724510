//! Congestion, incast and repair in the simulated network, in short runs of the harnesses.

mod congestion;
mod incast;
mod multicast;
mod rails;
mod repair;
