//! Programs in C that measure an MPI as `unisono bench` measures unisono, to be compiled by its own `mpicc`.

/// Messages between two ranks: `exchange latency|bandwidth|same|rate BYTES` prints nanoseconds one way, bytes per second
/// (`same`: with one buffer) or messages per second.
pub const EXCHANGE: &str = include_str!("programs/exchange.c");

/// Collectives: `collective NAME BYTES…` prints a line "BYTES NANOSECONDS" for each size.
pub const COLLECTIVE: &str = include_str!("programs/collective.c");
