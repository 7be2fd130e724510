//! Two endpoints in static memory, joined by a faulty wire. Needs no hardware: the host tests it, the Cortex-M image
//! runs it.
//!
//! - [`exchange`]: runs the two nodes and judges the result.
//! - [`node`]: one process: an endpoint, its device, its memory and its handler.
//! - [`pattern`]: bytes that depend on their offset.
//! - [`device`]: the device at either end of the wire, in memory of constant size.
//! - [`wire`]: carries datagrams between two ends; drops, duplicates and overtakes some.
//! - [`regions`]: user memory, named by region and span.
//!
//! Nothing allocates, indexes or panics, and no address is ever formed: payload memory is passed as slices of atomic
//! bytes.
#![no_std]
#![forbid(unsafe_code)]

pub mod device;
pub mod exchange;
pub mod node;
pub mod pattern;
pub mod regions;
pub mod wire;
