//! Counters of a UDP device: one writer, readable at any time from any thread.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use unisono_core::ids::Rail;
use unisono_core::window::rails::MAX_RAILS;

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The current count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds without a locked instruction: the thread that holds the device exclusively is the only writer.
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }
}

/// Counters of one rail, for both queues together, in datagrams unless stated otherwise.
#[derive(Debug, Default)]
pub struct RailCounters {
    /// Accepted by the kernel.
    pub sent: Counter,
    /// Bytes of UDP payload accepted by the kernel, checksum included.
    pub sent_bytes: Counter,
    /// Not accepted by the kernel.
    pub lost: Counter,
    /// Received with a correct checksum.
    pub received: Counter,
    /// Bytes received with a correct checksum, checksum excluded.
    pub received_bytes: Counter,
    /// Times that the kernel reported the link down after it had carried datagrams.
    pub link_downs: Counter,
    /// Injected: frames lost because the rail is cut.
    pub injected_cut: Counter,
}

/// Counters of one device, for both queues and all rails together, in datagrams unless stated otherwise.
#[derive(Debug, Default)]
pub struct UdpCounters {
    /// Of each rail; zeros for those that the device does not have.
    pub rails: [RailCounters; MAX_RAILS as usize],
    /// Accepted by the kernel.
    pub sent: Counter,
    /// Bytes of UDP payload accepted by the kernel, checksum included.
    pub sent_bytes: Counter,
    /// System calls that sent.
    pub send_calls: Counter,
    /// Lost: the peer has no path.
    pub lost_no_path: Counter,
    /// Lost: the send buffer stayed full (`EAGAIN`).
    pub lost_would_block: Counter,
    /// Lost: no memory or no room in the link's queue (`ENOBUFS`, `ENOMEM`).
    pub lost_no_buffers: Counter,
    /// Lost: link down or gone, no route or refused (`ENETDOWN`, `ENETUNREACH`, `EHOSTUNREACH`, `EHOSTDOWN`, `ENODEV`,
    /// `ENXIO`, `EADDRNOTAVAIL`, `ECONNREFUSED`, `EPERM`, `EACCES`).
    pub lost_unreachable: Counter,
    /// Lost: larger than the path carries (`EMSGSIZE`).
    pub lost_too_large: Counter,
    /// Lost: any other error.
    pub lost_other: Counter,
    /// Rejections of segmentation offload by the kernel; each pauses the offload for a while.
    pub gso_refused: Counter,
    /// Received with a correct checksum.
    pub received: Counter,
    /// Bytes received with a correct checksum, checksum excluded.
    pub received_bytes: Counter,
    /// System calls that received something.
    pub receive_calls: Counter,
    /// Dropped: the checksum is wrong.
    pub bad_checksum: Counter,
    /// Dropped: larger than the MTU.
    pub truncated: Counter,
    /// Dropped: shorter than a checksum.
    pub too_short: Counter,
    /// Errors of the receiving system calls other than `EAGAIN` and `EINTR`.
    pub receive_errors: Counter,
    /// Injected: frames lost.
    pub injected_loss: Counter,
    /// Injected: frames duplicated.
    pub injected_duplicates: Counter,
    /// Injected: copies reordered.
    pub injected_reorders: Counter,
    /// Injected: copies corrupted.
    pub injected_corruptions: Counter,
    /// Injected: frames lost on a rail that is cut.
    pub injected_cut: Counter,
}

impl UdpCounters {
    /// Of one rail.
    pub(super) fn rail(&self, rail: Rail) -> &RailCounters {
        let [first, further @ ..] = &self.rails;
        usize::from(rail.0).checked_sub(1).and_then(|further_rail| further.get(further_rail)).unwrap_or(first)
    }

    /// Datagrams that the kernel did not accept.
    pub fn lost(&self) -> u64 {
        [
            &self.lost_no_path,
            &self.lost_would_block,
            &self.lost_no_buffers,
            &self.lost_unreachable,
            &self.lost_too_large,
            &self.lost_other,
        ]
        .into_iter()
        .map(Counter::get)
        .sum()
    }
}
