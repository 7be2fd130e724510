//! The datagram device of a process, with the batch of sends that it flushes together, and counters.

use unisono_core::counters::Counters;
use unisono_core::ids::Rail;

use crate::world::datagram_transport::DatagramTransport;
use crate::world::rails::RailMonitor;

/// The datagram device.
pub(in crate::world) struct Datagrams {
    pub(in crate::world) device: DatagramTransport,
    pub(in crate::world) counters: Counters,
    pub(super) batch: SendBatch,
    pub(super) rails: RailMonitor,
    /// Whether the user says that links corrupt nothing.
    pub(super) trusts_links: bool,
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
    pub(super) fn new(device: DatagramTransport, trusts_links: bool) -> Self {
        let mut rails = RailMonitor::default();
        (0..device.open_rails()).for_each(|rail| rails.open(Rail(rail)));
        Self { device, counters: Counters::default(), batch: SendBatch::default(), rails, trusts_links }
    }
}
