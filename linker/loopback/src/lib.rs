//! Two endpoints in static memory, joined by a faulty wire. No board, no clock: the host tests it, the image runs it.
//!
//! - [`exchange`]: what the two do with each other, and whether it came out right.
//! - [`node`]: one process's worth: an endpoint, its device, its memory and what lies above.
//! - [`pattern`]: bytes that tell their place.
//! - [`end`]: the device at either end of the wire, in memory of constant size.
//! - [`wire`]: carries datagrams between two ends; drops, duplicates and overtakes some.
//! - [`regions`]: user memory, named by region and span.
//!
//! Nothing allocates, indexes or panics, and no address is ever formed: payload memory is lent as slices of atomic bytes.
#![no_std]
#![forbid(unsafe_code)]

pub mod device;
pub mod exchange;
pub mod node;
pub mod pattern;
pub mod regions;
pub mod wire;
