//! First-in first-out queues of records by key: a hash table whose buckets link the queues' first records.
//!
//! A record is in at most one queue per class. To append a record, to find the first one and to remove any record costs
//! expected O(1), whatever the lengths of the queues; the only memory is the links in the records and one word per
//! bucket.

use crate::list::NONE;
use crate::pool::Pool;

/// A record's links in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct QueueLink {
    pub(super) next: u32,
    /// For the first record: the last one.
    previous: u32,
    /// For the first record: the first record of the next queue in its bucket.
    chain: u32,
}

impl QueueLink {
    /// In no queue.
    pub(super) const NONE: Self = Self { next: NONE, previous: NONE, chain: NONE };
}

/// The key that the records of one queue share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct QueueKey {
    pub(super) class: u8,
    pub(super) context: u32,
    pub(super) peer: u32,
    pub(super) tag: u32,
}

/// A record that can be in queues.
pub(super) trait Queued {
    /// The key of its queue of that class.
    fn key(&self, class: u8) -> QueueKey;
    /// Its links in the queue of that class.
    fn link(&self, class: u8) -> &QueueLink;
    /// As [`link`](Self::link).
    fn link_mut(&mut self, class: u8) -> &mut QueueLink;
}

/// A single queue whose first record its owner stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RecordQueue {
    first: u32,
}

impl RecordQueue {
    pub(super) const EMPTY: Self = Self { first: NONE };

    pub(super) const fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// The first record.
    pub(super) fn first(&self) -> Option<u32> {
        (!self.is_empty()).then_some(self.first)
    }

    /// Appends record `i`, which is in no queue of that class.
    #[inline]
    pub(super) fn push<R: Queued>(&mut self, records: &mut [R], i: u32, class: u8) {
        if self.is_empty() {
            self.first = i;
            if let Some(record) = records.get_mut(i as usize) {
                *record.link_mut(class) = QueueLink { previous: i, ..QueueLink::NONE };
            }
        } else {
            append(records, self.first, i, class);
        }
    }

    /// Removes record `i`, which is in this queue.
    #[inline]
    pub(super) fn remove<R: Queued>(&mut self, records: &mut [R], i: u32, class: u8) {
        let Some(record) = records.get_mut(i as usize) else { return };
        let QueueLink { next, previous, .. } = core::mem::replace(record.link_mut(class), QueueLink::NONE);
        if self.first == i {
            self.first = next;
        } else if let Some(before) = records.get_mut(previous as usize) {
            before.link_mut(class).next = next;
        }
        let behind = if next == NONE { self.first } else { next };
        if let Some(behind) = records.get_mut(behind as usize) {
            behind.link_mut(class).previous = previous;
        }
    }
}

/// Appends record `i` to the queue whose first record is `first`.
#[inline]
fn append<R: Queued>(records: &mut [R], first: u32, i: u32, class: u8) {
    let Some(head) = records.get_mut(first as usize) else { return };
    let last = core::mem::replace(&mut head.link_mut(class).previous, i);
    if let Some(last) = records.get_mut(last as usize) {
        last.link_mut(class).next = i;
    }
    if let Some(record) = records.get_mut(i as usize) {
        *record.link_mut(class) = QueueLink { previous: last, ..QueueLink::NONE };
    }
}

/// Queues of `CLASSES` classes, with the same number of buckets for each class.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct QueueTable<B, const CLASSES: u8> {
    buckets: B,
    /// Buckets per class.
    each: u32,
    seed: u32,
}

impl<B: Pool<u32>, const CLASSES: u8> QueueTable<B, CLASSES> {
    /// Empty queues. The seed makes the hash differ from process to process.
    pub(super) fn new(mut buckets: B, seed: u32) -> Self {
        buckets.as_mut().fill(NONE);
        Self { each: Self::each(&buckets), buckets, seed }
    }

    /// The number of buckets.
    pub(super) fn buckets(&self) -> usize {
        self.buckets.as_ref().len()
    }

    /// Moves all queues to other buckets, at least as many.
    pub(super) fn rehash<R: Queued>(&mut self, records: &mut [R], mut buckets: B) {
        buckets.as_mut().fill(NONE);
        let each = self.each.max(1);
        self.each = Self::each(&buckets);
        let old = core::mem::replace(&mut self.buckets, buckets);
        for (bucket, first) in old.as_ref().iter().enumerate() {
            let class = (bucket as u32).checked_div(each).unwrap_or(0) as u8;
            let mut at = *first;
            while let Some(record) = records.get(at as usize) {
                let (key, chain) = (record.key(class), record.link(class).chain);
                let bucket = self.bucket(&key);
                let Some(head) = self.buckets.as_mut().get_mut(bucket) else { return };
                let behind = core::mem::replace(head, at);
                if let Some(record) = records.get_mut(at as usize) {
                    record.link_mut(class).chain = behind;
                }
                at = chain;
            }
        }
    }

    /// Whether there is at least one bucket per class.
    pub(super) fn has_buckets(&self) -> bool {
        self.buckets.as_ref().len() >= CLASSES as usize
    }

    /// The first record with that key.
    #[inline]
    pub(super) fn first<R: Queued>(&self, records: &[R], key: &QueueKey) -> Option<u32> {
        self.find(records, key, self.bucket(key)).map(|(first, _)| first)
    }

    /// The first record with that key, and the first record of the queue before it in the bucket.
    #[inline]
    fn find<R: Queued>(&self, records: &[R], key: &QueueKey, bucket: usize) -> Option<(u32, u32)> {
        let (mut at, mut before) = (*self.buckets.as_ref().get(bucket)?, NONE);
        while let Some(record) = records.get(at as usize) {
            if record.key(key.class) == *key {
                return Some((at, before));
            }
            before = core::mem::replace(&mut at, record.link(key.class).chain);
        }
        None
    }

    /// Removes the first record with that key, if `may` accepts it: equals [`first`](Self::first) and
    /// [`remove`](Self::remove).
    #[inline]
    pub(super) fn pop_if<R: Queued>(
        &mut self,
        records: &mut [R],
        key: &QueueKey,
        may: impl Fn(&R) -> bool,
    ) -> Option<u32> {
        let bucket = self.bucket(key);
        let (first, before) = self.find(records, key, bucket)?;
        let record = records.get_mut(first as usize).filter(|record| may(record))?;
        let QueueLink { next, previous, chain } = core::mem::replace(record.link_mut(key.class), QueueLink::NONE);
        let instead = match records.get_mut(next as usize) {
            Some(second) => {
                let link = second.link_mut(key.class);
                (link.previous, link.chain) = (previous, chain);
                next
            }
            None => chain,
        };
        match records.get_mut(before as usize) {
            Some(before) => before.link_mut(key.class).chain = instead,
            None => *self.buckets.as_mut().get_mut(bucket)? = instead,
        }
        Some(first)
    }

    /// The record after `i` in its queue.
    pub(super) fn next<R: Queued>(records: &[R], i: u32, class: u8) -> Option<u32> {
        let next = records.get(i as usize)?.link(class).next;
        (next != NONE).then_some(next)
    }

    /// The last record of the queue whose first record is `first`.
    pub(super) fn last<R: Queued>(records: &[R], first: u32, class: u8) -> Option<u32> {
        Some(records.get(first as usize)?.link(class).previous)
    }

    /// Appends record `i`, which is in no queue of that class.
    #[inline]
    pub(super) fn push<R: Queued>(&mut self, records: &mut [R], i: u32, class: u8) {
        let Some(record) = records.get(i as usize) else { return };
        let key = record.key(class);
        let bucket = self.bucket(&key);
        match self.find(records, &key, bucket) {
            Some((first, _)) => append(records, first, i, class),
            None => {
                let Some(head) = self.buckets.as_mut().get_mut(bucket) else { return };
                let chain = core::mem::replace(head, i);
                if let Some(record) = records.get_mut(i as usize) {
                    *record.link_mut(class) = QueueLink { next: NONE, previous: i, chain };
                }
            }
        }
    }

    /// Removes record `i` from its queue of that class.
    #[inline]
    pub(super) fn remove<R: Queued>(&mut self, records: &mut [R], i: u32, class: u8) {
        let Some(record) = records.get_mut(i as usize) else { return };
        let key = record.key(class);
        let QueueLink { next, previous, chain } = core::mem::replace(record.link_mut(class), QueueLink::NONE);
        // Only the first record's `previous` is the last one, whose `next` is none.
        let is_first = previous == i || records.get(previous as usize).is_none_or(|last| last.link(class).next != i);
        if !is_first {
            if let Some(before) = records.get_mut(previous as usize) {
                before.link_mut(class).next = next;
            }
            let behind = if next == NONE { self.first(records, &key) } else { Some(next) };
            if let Some(behind) = behind.and_then(|behind| records.get_mut(behind as usize)) {
                behind.link_mut(class).previous = previous;
            }
            return;
        }
        let instead = match records.get_mut(next as usize) {
            Some(successor) => {
                let link = successor.link_mut(class);
                link.previous = if previous == i { next } else { previous };
                link.chain = chain;
                next
            }
            None => chain,
        };
        let bucket = self.bucket(&key);
        let Some(head) = self.buckets.as_mut().get_mut(bucket) else { return };
        if *head == i {
            *head = instead;
            return;
        }
        let mut at = *head;
        while let Some(record) = records.get_mut(at as usize) {
            let link = record.link_mut(class);
            if link.chain == i {
                link.chain = instead;
                return;
            }
            at = link.chain;
        }
    }

    fn each(buckets: &B) -> u32 {
        (buckets.as_ref().len() as u32).checked_div(CLASSES as u32).unwrap_or(0)
    }

    #[inline]
    fn bucket(&self, key: &QueueKey) -> usize {
        let from = u64::from(key.context ^ self.seed) << 32 | u64::from(key.peer);
        let mixed = from.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (mixed ^ mixed >> 32 ^ u64::from(key.tag)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let within = (hash >> 32).wrapping_mul(u64::from(self.each)) >> 32;
        (u64::from(key.class).wrapping_mul(u64::from(self.each))).wrapping_add(within) as usize
    }
}
