//! The state of a device while it is not idle. Idle nodes have none, so that a million of them cost little.

use alloc::collections::VecDeque;

use unisono_core::device::{Destination, DeviceEvent, DeviceQueue, HEADER_ROOM, TxReason};

use super::{frame::FrameId, memory::SimAddress};

/// A posting.
#[derive(Clone, Debug)]
pub(super) struct Posting {
    /// Peers are nodes here.
    pub(super) to: Destination,
    pub(super) at: DeviceQueue,
    pub(super) cause: TxReason,
    pub(super) head: [u8; HEADER_ROOM],
    pub(super) head_bytes: u8,
    pub(super) payload: Option<SimAddress>,
    /// Of the payload when it was flushed, if it must not change until later.
    pub(super) fingerprint: Option<u64>,
}

/// One lane of a device.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Arrived and not yet received.
    pub(super) waiting: VecDeque<FrameId>,
    /// Arrived and neither released nor set aside.
    pub(super) occupied: u32,
    /// Not finished; the first `flushed` of them were flushed.
    pub(super) postings: VecDeque<Posting>,
    pub(super) flushed: usize,
    pub(super) armed: bool,
    pub(super) raised: bool,
}

/// The link towards a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ingress {
    /// Frames in the queue before it.
    pub(super) queued: u32,
    /// When it has carried all of them, in picoseconds.
    pub(super) free_ps: u64,
}

/// The active state of a device and of the link before it.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) polled: Queues,
    pub(super) interrupt: Queues,
    /// Of the first rail.
    pub(super) ingress: Ingress,
    pub(super) held: u32,
    pub(super) facts: VecDeque<DeviceEvent>,
}

impl Queues {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.occupied == 0 && self.postings.is_empty() && !self.armed && !self.raised
    }
}

impl Port {
    pub(super) const fn lane(&self, lane: DeviceQueue) -> &Queues {
        match lane {
            DeviceQueue::Polled => &self.polled,
            DeviceQueue::Interrupt => &self.interrupt,
        }
    }

    pub(super) const fn lane_mut(&mut self, lane: DeviceQueue) -> &mut Queues {
        match lane {
            DeviceQueue::Polled => &mut self.polled,
            DeviceQueue::Interrupt => &mut self.interrupt,
        }
    }

    /// Whether nothing is lost by forgetting it.
    pub(super) fn is_idle(&self) -> bool {
        self.ingress.queued == 0
            && self.held == 0
            && self.facts.is_empty()
            && self.polled.is_idle()
            && self.interrupt.is_idle()
    }
}
