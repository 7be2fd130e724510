//! Devices beyond their conformance: whole transfers, and what a network or an adapter may do to them.

mod ethernet;
mod loopback;
mod mlx5;
mod rings;
