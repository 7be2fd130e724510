//! The datagram device of a process, with the batch of sends that it flushes together, and counters.

use unisono_core::counters::Counters;

use crate::world::datagram_transport::DatagramTransport;
use crate::world::rails::RailMonitor;

/// The datagram device.
pub(in crate::world) struct Datagrams {
    pub(in crate::world) device: DatagramTransport,
    pub(in crate::world) counters: Counters,
    pub(super) batch: SendBatch,
    pub(super) rails: RailMonitor,
}

/// Sends that wait to be flushed together.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SendBatch {
    pub(super) sends: usize,
    /// Number of sends after which the batch is flushed: a whole number of GSO trains of the first one's length.
    pub(super) max_sends: usize,
    pub(super) bytes: usize,
}

impl Datagrams {
    pub(super) fn new(device: DatagramTransport) -> Self {
        Self { device, counters: Counters::default(), batch: SendBatch::default(), rails: RailMonitor::default() }
    }
}
