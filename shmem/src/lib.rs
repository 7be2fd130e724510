//! Shared memory inside a node: hugepage segments, rings and flag collectives.
//!
//! The crate holds no code yet. Its place is fixed so that shared memory can be added beside the other devices without
//! moving anything: it will implement `unisono_core::device::Device` over rings in one segment per node and job.
#![no_std]
