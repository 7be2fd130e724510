//! mlx5's receive queue: one data segment per entry, and a doorbell record. It has no doorbell register.

use super::segment::{END, data as segment};
use crate::queue_memory::{Barrier, QueueAccess, Record, UNIT};
use crate::raw::Data;

/// An entry's index has 16 bits.
const ENTRIES_MAX: usize = 1 << 15;

/// A receive queue.
#[derive(Debug)]
pub struct ReceiveQueue<'a, S> {
    seam: S,
    /// Bytes from one entry to the next.
    stride: usize,
    /// The tag of each outstanding entry.
    tags: &'a mut [Option<u32>],
    posted: u32,
    rung: u32,
}

impl<'a, S: QueueAccess> ReceiveQueue<'a, S> {
    /// The fresh queue of a queue pair, with as many tags as it has entries. `None`: the size is not supported.
    pub fn new(seam: S, tags: &'a mut [Option<u32>]) -> Option<Self> {
        let entries = tags.len();
        if !entries.is_power_of_two() || entries > ENTRIES_MAX {
            return None;
        }
        let stride = seam.bytes() / entries;
        tags.fill(None);
        (stride >= UNIT && stride.is_power_of_two()).then_some(Self { seam, stride, tags, posted: 0, rung: 0 })
    }

    /// The queue memory.
    pub const fn seam(&self) -> &S {
        &self.seam
    }

    /// As [`seam`](Self::seam).
    pub const fn seam_mut(&mut self) -> &mut S {
        &mut self.seam
    }

    /// Number of entries.
    pub fn entries(&self) -> usize {
        self.tags.len()
    }

    /// Posts a receive of memory for a datagram and its global route header, which [`flush`](Self::flush) publishes.
    /// `tag` is returned with the datagram. Returns whether there was room.
    pub fn post(&mut self, data: Data, tag: u32) -> bool {
        let place = self.place(self.posted as u16);
        let Some(entry) = self.tags.get_mut(place).filter(|tag| tag.is_none()) else { return false };
        *entry = Some(tag);
        let at = place * self.stride;
        self.seam.store(at, segment(data));
        if self.stride > UNIT {
            self.seam.store(at + UNIT, segment(END));
        }
        self.posted = self.posted.wrapping_add(1);
        true
    }

    /// Publishes all entries to the adapter.
    pub fn flush(&mut self) {
        if self.rung != self.posted {
            self.seam.barrier(Barrier::ToDevice);
            self.seam.record(Record::Index, (self.posted & 0xffff).to_be());
            self.rung = self.posted;
        }
    }

    /// Completes the entry with this index. Returns its tag. `None`: it is not outstanding.
    pub fn complete(&mut self, index: u16) -> Option<u32> {
        let place = self.place(index);
        self.tags.get_mut(place)?.take()
    }

    /// Forgets all entries, as the adapter does when the queue pair is reset.
    pub fn reset(&mut self) {
        self.tags.fill(None);
        (self.posted, self.rung) = (0, 0);
        self.seam.barrier(Barrier::ToDevice);
        self.seam.record(Record::Index, 0);
    }

    fn place(&self, index: u16) -> usize {
        usize::from(index) & (self.tags.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::queue_memory::Violation;
    use crate::queue_memory::recorded::{RecordedMemory, delete_each_barrier};

    const DATA: Data = Data { address: 0x0102_0304_0506_0708, bytes: 0x1068, key: 0x99 };

    #[test]
    fn entries_lie_where_the_adapter_looks() {
        let mut tags = vec![None; 4];
        let mut queue = ReceiveQueue::new(RecordedMemory::new(128), &mut tags).unwrap();
        for tag in 10..14 {
            assert!(queue.post(DATA, tag));
        }
        assert!(!queue.post(DATA, 14));
        queue.flush();
        assert_eq!(queue.seam.records[0], 4_u32.to_be());
        let entry = [0, 0, 0x10, 0x68, 0, 0, 0, 0x99, 1, 2, 3, 4, 5, 6, 7, 8];
        let end = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(queue.seam.entries, [entry, end].concat().repeat(4));
        assert_eq!((queue.complete(1), queue.complete(1), queue.complete(0xfffc)), (Some(11), None, Some(10)));
        assert!(queue.post(DATA, 14) && queue.post(DATA, 15) && !queue.post(DATA, 16));
        queue.reset();
        assert_eq!((queue.complete(2), queue.seam.records[0]), (None, 0));
    }

    #[test]
    fn short_entries_have_no_end() {
        let mut tags = vec![None; 8];
        let mut queue = ReceiveQueue::new(RecordedMemory::new(128), &mut tags).unwrap();
        assert!(queue.post(DATA, 1) && queue.post(DATA, 2));
        assert_eq!(queue.seam.entries[..16], queue.seam.entries[16..32]);
        assert!(ReceiveQueue::new(RecordedMemory::new(64), &mut [None; 8]).is_none());
        assert!(ReceiveQueue::new(RecordedMemory::new(64), &mut [None; 3]).is_none());
    }

    #[test]
    fn stores_are_in_order_and_no_barrier_is_idle() {
        let play = |memory| {
            let mut tags = vec![None; 4];
            let mut queue = ReceiveQueue::new(memory, &mut tags).unwrap();
            for tag in 0..3 {
                queue.post(DATA, tag);
                queue.flush();
                queue.flush();
            }
            queue.post(DATA, 3);
            queue.reset();
            queue.seam
        };
        assert_eq!(delete_each_barrier(64, play), [Violation::RecordBeforeEntry; 4]);
    }
}
