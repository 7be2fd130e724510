//! Counters of a verbs device: one writer, readable at any time from any thread.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds without a locked instruction: the thread that holds the device exclusively is the only writer.
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }
}

/// Counters of one device, both lanes together. Datagrams unless said otherwise.
#[derive(Debug, Default)]
pub struct UdCounters {
    /// Handed to the adapter.
    pub sent: Counter,
    /// Of these, in the work queue entry itself.
    pub sent_inline: Counter,
    /// Of these, copied because their payload was not registered.
    pub sent_copied: Counter,
    /// Doorbells of send queues.
    pub send_calls: Counter,
    /// Lost: the peer has no path, or its address handle was refused or took too long.
    pub lost_no_path: Counter,
    /// Lost: the queue was in error, or the device closed.
    pub lost_in_error: Counter,
    /// Received.
    pub received: Counter,
    /// Dropped: shorter than the global routing header that precedes every datagram.
    pub too_short: Counter,
    /// Completions in error, sends and receives.
    pub failed: Counter,
    /// Restarts of queue pairs that were in error.
    pub rebuilt: Counter,
    /// Address handles created.
    pub handles_made: Counter,
    /// Reported overruns of completion queues.
    pub overruns: Counter,
}
