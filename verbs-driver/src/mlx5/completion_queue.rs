//! mlx5's completion queue: entries whose owner bit alternates with each pass, the record of consumed entries, and
//! arming.

use super::completion::{Completion, INVALID};
use crate::queue_memory::{Barrier, Progress, QueueAccess, Record};

/// Bytes of an entry's content.
pub const CQE: usize = 64;
/// Indices have 24 bits.
const INDEX_MASK: u32 = 0xff_ffff;
const ENTRIES_MAX: usize = 1 << 22;
/// Only solicited completions raise an event.
const SOLICITED: u32 = 1 << 24;

/// Bytes from one entry to the next. The content is the last [`CQE`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Stride {
    /// 64.
    #[default]
    Short,
    /// 128: for cache lines of that size.
    Long,
}

/// A completion queue. It has at least twice as many entries as can be outstanding, so that it never overruns although
/// consumed entries are returned late.
#[derive(Debug)]
pub struct CompletionQueue<S> {
    seam: S,
    number: u32,
    stride: usize,
    entries: u32,
    /// Entries consumed, and returned, counted without end.
    taken: u32,
    returned: u32,
    /// Number of events, 2 bits: distinguishes a new arming request from an old one.
    events: u32,
}

impl<S: QueueAccess> CompletionQueue<S> {
    /// A fresh queue with this number. `None`: the size is not supported.
    pub fn new(seam: S, number: u32, stride: Stride) -> Option<Self> {
        let stride = match stride {
            Stride::Short => CQE,
            Stride::Long => 2 * CQE,
        };
        let entries = seam.bytes() / stride;
        let fits = entries.is_power_of_two() && entries <= ENTRIES_MAX;
        fits.then_some(Self { seam, number, stride, entries: entries as u32, taken: 0, returned: 0, events: 0 })
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
    pub const fn entries(&self) -> usize {
        self.entries as usize
    }

    /// Whether an entry is available.
    pub fn has_entry(&mut self) -> bool {
        let kind = self.seam.progress(Progress::Owner(self.at() + CQE - 1)) as u8;
        let turn = self.taken & self.entries != 0;
        kind >> 4 != INVALID && (kind & 1 != 0) == turn
    }

    /// The next entry. Consumed entries are returned when none is available, or when they are a quarter of the queue.
    pub fn poll(&mut self) -> Option<Completion> {
        if !self.has_entry() {
            self.give_back();
            return None;
        }
        self.seam.barrier(Barrier::FromDevice);
        let block = self.seam.load(self.at());
        self.taken = self.taken.wrapping_add(1);
        if self.taken.wrapping_sub(self.returned) > self.entries / 4 {
            self.give_back();
        }
        Some(Completion::parse(block))
    }

    /// Asks for an event at the next completion, or the next that was solicited. If one waits already it is raised at
    /// once.
    pub fn arm(&mut self, solicited: bool) {
        let what = if solicited { SOLICITED } else { 0 };
        let request = (self.events & 3) << 28 | what | self.taken & INDEX_MASK;
        self.seam.record(Record::Arm, request.to_be());
        self.seam.barrier(Barrier::ToRegister);
        let value = u64::from(request) << 32 | u64::from(self.number);
        self.seam.doorbell(0, value.to_be_bytes());
        self.seam.barrier(Barrier::Flush);
    }

    /// An event has come: the next [`arm`](Self::arm) is another request.
    pub const fn saw_event(&mut self) {
        self.events = self.events.wrapping_add(1);
    }

    fn give_back(&mut self) {
        if self.taken != self.returned {
            self.seam.barrier(Barrier::FromDevice);
            self.seam.record(Record::Index, (self.taken & INDEX_MASK).to_be());
            self.returned = self.taken;
        }
    }

    const fn at(&self) -> usize {
        (self.taken & (self.entries - 1)) as usize * self.stride + self.stride - CQE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_memory::Violation;
    use crate::queue_memory::recorded::{RecordedMemory, delete_each_barrier};

    /// As an adapter does it: entry `number`, counted for ever.
    fn complete(memory: &mut RecordedMemory, stride: usize, number: usize, index: u16) {
        let entries = memory.entries.len() / stride;
        let end = (number % entries + 1) * stride;
        memory.entries[end - 4..end - 2].copy_from_slice(&index.to_be_bytes());
        memory.entries[end - 1] = (number / entries % 2) as u8;
    }

    fn fresh(bytes: usize) -> RecordedMemory {
        let mut memory = RecordedMemory::new(bytes);
        memory.entries.fill(0xf0);
        memory
    }

    #[test]
    fn entries_change_owner_with_each_turn() {
        for (stride, bytes) in [(Stride::Short, 64), (Stride::Long, 128)] {
            let mut queue = CompletionQueue::new(fresh(8 * bytes), 1, stride).unwrap();
            for number in 0..50 {
                assert_eq!(queue.poll(), None);
                complete(&mut queue.seam, bytes, number, number as u16);
                let Some(Completion::Sent { index, .. }) = queue.poll() else { panic!("{number}") };
                assert_eq!(usize::from(index), number);
            }
            assert_eq!(queue.poll(), None);
            assert_eq!(queue.seam.records[0], 50_u32.to_be());
        }
    }

    #[test]
    fn any_bytes_are_read_without_end_or_panic() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut queue = CompletionQueue::new(RecordedMemory::new(4 * 64), 1, Stride::Short).unwrap();
        let mut seen = 0;
        for _ in 0..100_000 {
            random.fill(&mut queue.seam.entries);
            seen += usize::from(queue.poll().is_some());
        }
        assert!((30_000..70_000).contains(&seen), "{seen}");
        assert_eq!(queue.seam.violation(), None);
    }

    #[test]
    fn arming_names_queue_index_and_request() {
        let mut queue = CompletionQueue::new(fresh(512), 0x1234, Stride::Short).unwrap();
        complete(&mut queue.seam, 64, 0, 0);
        assert!(queue.poll().is_some());
        queue.arm(true);
        queue.saw_event();
        queue.arm(false);
        let rung: alloc::vec::Vec<_> = queue.seam.rung.iter().map(|(_, value)| &value[..]).collect();
        assert_eq!(rung, [[1, 0, 0, 1, 0, 0, 0x12, 0x34], [0x10, 0, 0, 1, 0, 0, 0x12, 0x34]]);
        assert_eq!(queue.seam.records[1], 0x1000_0001_u32.to_be());
    }

    #[test]
    fn loads_are_in_order_and_no_barrier_is_idle() {
        let play = |mut memory: RecordedMemory| {
            memory.entries.fill(0xf0);
            let mut queue = CompletionQueue::new(memory, 1, Stride::Short).unwrap();
            complete(&mut queue.seam, 64, 0, 0);
            assert!(queue.poll().is_some());
            assert!(queue.poll().is_none());
            queue.arm(false);
            queue.seam
        };
        let expected = [
            Violation::EntryBeforeOwner,
            Violation::ReturnedBeforeLoad,
            Violation::DoorbellBeforeRecord,
            Violation::Unflushed,
        ];
        assert_eq!(delete_each_barrier(512, play), expected);
    }
}
