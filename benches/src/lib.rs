//! Benchmarks of unisono and of the peers it is measured against.
