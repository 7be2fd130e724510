//! The two ends of a mapped ring: put entries in, or take them out.

use crate::queue_memory::{BLOCK, Barrier, Block, Progress, QueueAccess, Record, UNIT, Unit, Word};

/// Bytes of a queue in front of its entries.
pub const HEADER: usize = 384;
/// Offsets of its indices.
pub const INDICES: [usize; 2] = [128, 256];

/// The geometry of a queue's entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// Bytes of an entry.
    pub entry: usize,
    /// How many there are; one stays empty.
    pub count: u32,
}

impl Shape {
    /// From the header's first 8 bytes, which never change. `None`: `mapped` bytes cannot hold such a queue.
    pub fn new(header: [u32; 2], mapped: usize) -> Option<Self> {
        let [log2, mask] = header;
        let entry = 1_usize.checked_shl(log2).filter(|entry| *entry >= UNIT)?;
        let count = mask.checked_add(1).filter(|count| count.is_power_of_two())?;
        let bytes = entry.checked_mul(count as usize)?;
        (bytes >= BLOCK && bytes.checked_add(HEADER)? <= mapped).then_some(Self { entry, count })
    }

    /// Bytes of all entries.
    pub const fn bytes(self) -> usize {
        self.entry * self.count as usize
    }

    const fn next(self, index: u32) -> u32 {
        index.wrapping_add(1) & (self.count - 1)
    }

    const fn at(self, index: u32) -> usize {
        (index & (self.count - 1)) as usize * self.entry
    }
}

/// The producer's end of a queue.
#[derive(Debug)]
pub struct Producer<S> {
    memory: S,
    shape: Shape,
    /// The next entry, and the first that is not yet published to the kernel.
    next: u32,
    published: u32,
    /// The kernel's index, as last seen.
    consumed: u32,
}

impl<S: QueueAccess> Producer<S> {
    /// An empty queue. `None`: the memory has another size.
    pub fn new(mut seam: S, shape: Shape) -> Option<Self> {
        let index = seam.progress(Progress::Index) & (shape.count - 1);
        seam.barrier(Barrier::FromDevice);
        (seam.bytes() == shape.bytes()).then_some(Self {
            memory: seam,
            shape,
            next: index,
            published: index,
            consumed: index,
        })
    }

    /// The queue memory.
    #[cfg(test)]
    pub(super) const fn seam(&self) -> &S {
        &self.memory
    }

    /// As [`seam`](Self::seam).
    #[cfg(test)]
    pub(super) const fn seam_mut(&mut self) -> &mut S {
        &mut self.memory
    }

    /// The geometry of its entries.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether an entry is free.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if self.shape.next(self.next) == self.consumed {
            self.consumed = self.memory.progress(Progress::Index) & (self.shape.count - 1);
            if self.shape.next(self.next) == self.consumed {
                return false;
            }
            self.memory.barrier(Barrier::FromDevice);
        }
        true
    }

    /// Stores units of the next entry, from its unit `first` on. Those beyond it are left out.
    pub fn store(&mut self, first: usize, units: impl IntoIterator<Item = Unit>) {
        let entry = self.shape.at(self.next);
        let (mut at, end) = (entry + first * UNIT, entry + self.shape.entry);
        for unit in units {
            if at >= end {
                break;
            }
            self.memory.store(at, unit);
            at += UNIT;
        }
    }

    /// Stores words of the next entry, from its byte `at` on, a multiple of their size. Words beyond the entry are left
    /// out.
    #[inline(always)]
    pub fn store_words(&mut self, at: usize, words: &[Word]) {
        let room = self.shape.entry.saturating_sub(at) / size_of::<Word>();
        let words = words.get(..room).unwrap_or(words);
        self.memory.store_words(self.shape.at(self.next) + at, words);
    }

    /// As [`store`](Self::store), for a constant number of units, so that the stores are unrolled.
    #[inline(always)]
    pub fn store_some<const N: usize>(&mut self, first: usize, units: &[Unit; N]) {
        if (first + N) * UNIT <= self.shape.entry {
            self.memory.store_all(self.shape.at(self.next) + first * UNIT, units);
        }
    }

    /// Rewrites a unit of the last complete entry, which must not be published yet.
    pub fn restore(&mut self, place: usize, unit: Unit) {
        if self.next != self.published && place < self.shape.entry / UNIT {
            self.memory.store(self.shape.at(self.next.wrapping_sub(1)) + place * UNIT, unit);
        }
    }

    /// Completes the next entry.
    pub const fn commit(&mut self) {
        self.next = self.shape.next(self.next);
    }

    /// Publishes all entries to the kernel, and rings the doorbell if `ring`. Returns whether there was a new one.
    #[inline(always)]
    pub fn publish(&mut self, ring: bool) -> bool {
        if self.published == self.next {
            return false;
        }
        self.memory.barrier(Barrier::ToDevice);
        self.memory.record(Record::Index, self.next);
        if ring {
            self.memory.barrier(Barrier::ToRegister);
            self.memory.doorbell(0, [0; 8]);
            self.memory.barrier(Barrier::Flush);
        }
        self.published = self.next;
        true
    }

    /// Follows a reset by the kernel: the queue is empty, wherever its index is.
    pub fn reset(&mut self) {
        let index = self.memory.progress(Progress::Index) & (self.shape.count - 1);
        self.memory.barrier(Barrier::FromDevice);
        self.memory.barrier(Barrier::ToDevice);
        self.memory.record(Record::Index, index);
        (self.next, self.published, self.consumed) = (index, index, index);
    }
}

/// The consumer's end of a queue.
#[derive(Debug)]
pub struct Consumer<S> {
    memory: S,
    shape: Shape,
    next: u32,
    returned: u32,
    /// The kernel's index, as last seen.
    put: u32,
}

impl<S: QueueAccess> Consumer<S> {
    /// A queue whose present entries are skipped. `None`: the memory has another size, or entries are smaller than what
    /// is read of them.
    pub fn new(mut seam: S, shape: Shape) -> Option<Self> {
        let index = seam.progress(Progress::Index) & (shape.count - 1);
        let fits = seam.bytes() == shape.bytes() && shape.entry >= BLOCK;
        fits.then_some(Self { memory: seam, shape, next: index, returned: index, put: index })
    }

    /// The queue memory.
    pub const fn seam(&self) -> &S {
        &self.memory
    }

    /// As [`seam`](Self::seam).
    #[cfg(test)]
    pub(super) const fn seam_mut(&mut self) -> &mut S {
        &mut self.memory
    }

    /// The geometry of its entries.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether an entry is available.
    #[inline]
    pub fn has_entry(&mut self) -> bool {
        if self.next == self.put {
            self.put = self.memory.progress(Progress::Index) & (self.shape.count - 1);
            if self.next == self.put {
                return false;
            }
            self.memory.barrier(Barrier::FromDevice);
        }
        true
    }

    /// Whether an entry is known to be available, without a load of the kernel's index.
    #[inline]
    pub const fn has_more(&self) -> bool {
        self.next != self.put
    }

    /// The first bytes of the next entry. Consumed entries are returned when none is available, or when they are a
    /// quarter of the queue.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<Block> {
        if !self.has_entry() {
            self.give_back();
            return None;
        }
        let block = self.memory.load(self.shape.at(self.next));
        self.next = self.shape.next(self.next);
        if self.next.wrapping_sub(self.returned) & (self.shape.count - 1) > self.shape.count / 4 {
            self.give_back();
        }
        Some(block)
    }

    /// Arms the queue: an event at the next entry, or the next solicited one. An entry that is there already raises
    /// none.
    pub fn arm(&mut self, solicited: bool) {
        self.memory.barrier(Barrier::FromDevice);
        self.memory.record(Record::Index, self.next);
        self.returned = self.next;
        self.memory.barrier(Barrier::ToRegister);
        self.memory.doorbell(0, [solicited.into(), 0, 0, 0, 0, 0, 0, 0]);
        self.memory.barrier(Barrier::Flush);
    }

    /// Returns all consumed entries.
    pub fn give_back(&mut self) {
        if self.next != self.returned {
            self.memory.barrier(Barrier::FromDevice);
            self.memory.record(Record::Index, self.next);
            self.returned = self.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_memory::Violation;
    use crate::queue_memory::recorded::{RecordedMemory, delete_each_barrier};

    const SHAPE: Shape = Shape { entry: 64, count: 4 };

    #[test]
    fn header_is_checked() {
        assert_eq!(Shape::new([6, 3], 640), Some(SHAPE));
        for (header, mapped) in [([6, 3], 639), ([6, 2], 4096), ([3, 7], 4096), ([64, 3], 4096), ([6, u32::MAX], 4096)]
        {
            assert_eq!(Shape::new(header, mapped), None, "{header:?}");
        }
        assert_eq!(Shape::new([63, 3], usize::MAX), None);
    }

    #[test]
    fn one_entry_stays_empty() {
        let mut producer = Producer::new(RecordedMemory::new(256), SHAPE).unwrap();
        for round in 0..20_u32 {
            let mut put = 0;
            while producer.has_room() {
                producer.store(1, [[round as u8; 16]; 9]);
                producer.commit();
                put += 1;
            }
            assert_eq!(put, 3);
            assert!(producer.publish(false) && !producer.publish(false));
            assert_eq!(producer.memory.records[0], (round + 1) * 3 % 4);
            producer.memory.progress = producer.memory.records[0];
        }
        assert!(producer.memory.entries.iter().step_by(16).step_by(4).all(|byte| *byte == 0), "the first units");
    }

    #[test]
    fn any_index_of_the_kernel_is_within() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut producer = Producer::new(RecordedMemory::new(256), SHAPE).unwrap();
        let mut consumer = Consumer::new(RecordedMemory::new(256), SHAPE).unwrap();
        for _ in 0..10_000 {
            producer.memory.progress = random.u32(..);
            if producer.has_room() {
                producer.store(0, [[1; 16]; 4]);
                producer.commit();
                producer.publish(true);
            }
            consumer.memory.progress = random.u32(..);
            consumer.poll();
        }
        assert_eq!((producer.memory.violation(), consumer.memory.violation()), (None, None));
    }

    #[test]
    fn no_barrier_is_idle() {
        let sending = |memory| {
            let mut producer = Producer::new(memory, SHAPE).unwrap();
            for _ in 0..2 {
                assert!(producer.has_room());
                producer.store(0, [[1; 16]; 4]);
                producer.commit();
                producer.restore(0, [2; 16]);
                producer.publish(true);
            }
            producer.store(0, [[1; 16]]);
            producer.reset();
            producer.store(0, [[1; 16]; 4]);
            producer.commit();
            producer.publish(false);
            producer.memory
        };
        let of_flush = [Violation::RecordBeforeEntry, Violation::DoorbellBeforeRecord, Violation::Unflushed];
        let start = [Violation::EntryBeforeOwner];
        let reset = [Violation::EntryBeforeOwner, Violation::RecordBeforeEntry];
        let end = [Violation::RecordBeforeEntry];
        let expected: [&[Violation]; 5] = [&start, &of_flush, &of_flush, &reset, &end];
        assert_eq!(delete_each_barrier(256, sending), expected.concat());
        let taking = |memory: RecordedMemory| {
            let mut consumer = Consumer::new(memory, SHAPE).unwrap();
            consumer.memory.progress = 1;
            assert!(consumer.poll().is_some() && consumer.poll().is_none());
            consumer.memory.progress = 2;
            assert!(consumer.poll().is_some());
            consumer.arm(true);
            consumer.memory
        };
        let once = [Violation::EntryBeforeOwner, Violation::ReturnedBeforeLoad];
        let arming = [Violation::DoorbellBeforeRecord, Violation::Unflushed];
        assert_eq!(delete_each_barrier(256, taking), [once, once, arming].concat());
    }
}
