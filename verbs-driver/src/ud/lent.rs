//! Memory that users lend to the device.

pub use crate::registered::Registered as Lent;
