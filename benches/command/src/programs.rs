//! Programs in C that measure an MPI as `unisono bench` measures unisono, to be compiled by its own `mpicc`.

/// Messages between two ranks: `exchange latency|bandwidth|same|rate BYTES` prints nanoseconds one way, bytes per second
/// (`same`: with one buffer) or messages per second.
pub const EXCHANGE: &str = include_str!("programs/exchange.c");

/// Collectives: `collective NAME BYTES…` prints a line "BYTES NANOSECONDS" for each size.
pub const COLLECTIVE: &str = include_str!("programs/collective.c");

/// One-sided operations: `one_sided get|put|fetch_and_op|stream BYTES` prints nanoseconds of an operation that has completed
/// at its target, or bytes per second of puts (`stream`).
pub const ONE_SIDED: &str = include_str!("programs/one_sided.c");
