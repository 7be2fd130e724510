//! The event queue: events by time, then by order of scheduling, so that equal seeds give equal runs.

use alloc::collections::BinaryHeap;
use core::cmp::Ordering;

use unisono_core::device::DeviceQueue;
use unisono_core::ids::Rail;

use super::adapter::Engine;
use super::frame::FrameId;

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A frame reaches the queue of its receiver's ingress link.
    Reach(FrameId),
    /// A frame leaves that queue and reaches the device.
    Arrive(FrameId),
    /// An engine of an adapter, at the frame's sender or at its receiver, has processed a frame.
    Processed { frame: FrameId, engine: Engine },
    /// A node asked to be stepped.
    Wake(u32),
    /// Postings finish, if the node still is the incarnation that posted them.
    Complete { node: u32, incarnation: u32, lane: DeviceQueue, postings: u16 },
    /// Nothing may have overtaken the frames that wait between two nodes on a rail for a while.
    Idle { from: u32, to: u32, rail: Rail },
}

#[derive(Debug)]
struct Entry {
    at: u64,
    serial: u64,
    event: Event,
}

impl Entry {
    const fn key(&self) -> (u64, u64) {
        (self.at, self.serial)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest: the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The pending events.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Entry>,
    serial: u64,
}

impl EventQueue {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.heap.push(Entry { at, serial: self.serial, event });
    }

    /// The next event at or before `deadline`, with its time.
    pub(super) fn pop(&mut self, deadline: u64) -> Option<(u64, Event)> {
        if self.heap.peek()?.at > deadline {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

const _: () = assert!(size_of::<Entry>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_by_scheduling() {
        let mut queue = EventQueue::default();
        for (at, node) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            queue.push(at, Event::Wake(node));
        }
        let mut order = Vec::new();
        while let Some((at, Event::Wake(node))) = queue.pop(4) {
            order.push((at, node));
        }
        assert_eq!(order, [(3, 1), (3, 3)]);
        while let Some((at, Event::Wake(node))) = queue.pop(u64::MAX) {
            order.push((at, node));
        }
        assert_eq!(order, [(3, 1), (3, 3), (5, 0), (5, 2)]);
    }
}
