//! Records by peer and key: a hash table within the records themselves.

use super::StepKey;
use crate::list::{List, NONE};
use crate::pool::Pool;

/// The state of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum EntryState {
    Free,
    /// Waits for its match.
    Waiting,
    /// Listed: a receive that has to request its RTS, or a send that has to repeat it.
    Wanting,
    /// Listed: a receive whose RTS arrived, to be pulled.
    Pulling,
    /// Listed: a receive whose RTS arrived, to be refused.
    Refusing,
    /// Listed, and not found any more: freed when it is popped.
    Dead,
    /// Not found any more; freed after its payload was copied.
    Hidden,
}

/// One record of any of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// The first record whose key hashes to this bucket.
    first: u32,
    /// The next record in its bucket, or the next free one.
    next: u32,
    /// The next record in a list of pending actions.
    link: u32,
    pub(super) peer: u32,
    pub(super) key: StepKey,
    pub(super) user: u32,
    pub(super) bytes: u32,
    /// Where the payload of an announced message lies, as its sender's host states it.
    pub(super) at: u64,
    pub(super) state: EntryState,
}

impl Entry {
    /// An unused record.
    pub const FREE: Self = Self {
        first: NONE,
        next: NONE,
        link: NONE,
        peer: NONE,
        key: StepKey { context: 0, sequence: 0, step: 0 },
        user: 0,
        bytes: 0,
        at: 0,
        state: EntryState::Free,
    };

    pub(super) const fn is_used(&self) -> bool {
        !matches!(self.state, EntryState::Free)
    }

    /// Whether it can be found by its key.
    pub(super) const fn is_found(&self) -> bool {
        !matches!(self.state, EntryState::Free | EntryState::Dead | EntryState::Hidden)
    }

    /// Whether it is not matched.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, EntryState::Waiting | EntryState::Wanting)
    }

    pub(super) const fn is_listed(&self) -> bool {
        matches!(self.state, EntryState::Wanting | EntryState::Pulling | EntryState::Refusing | EntryState::Dead)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Table<E> {
    entries: E,
    free: List,
    used: u32,
}

impl<E: Pool<Entry>> Table<E> {
    pub(super) fn new(mut entries: E) -> Self {
        let free = List::of_all(entries.as_mut(), |entry| &mut entry.next);
        Self { entries, free, used: 0 }
    }

    pub(super) fn len(&self) -> u32 {
        self.entries.as_ref().len() as u32
    }

    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn get(&self, i: u32) -> Option<&Entry> {
        self.entries.as_ref().get(i as usize)
    }

    pub(super) fn get_mut(&mut self, i: u32) -> Option<&mut Entry> {
        self.entries.as_mut().get_mut(i as usize)
    }

    pub(super) fn set(&mut self, i: u32, stage: EntryState) {
        if let Some(entry) = self.get_mut(i) {
            entry.state = stage;
        }
    }

    /// Records where the payload of an announced message lies.
    pub(super) fn locate(&mut self, i: u32, at: u64) {
        if let Some(entry) = self.get_mut(i) {
            entry.at = at;
        }
    }

    pub(super) fn find(&self, peer: u32, key: StepKey) -> Option<(u32, &Entry)> {
        let mut i = self.get(self.place(peer, key))?.first;
        for _ in 0..self.used {
            let entry = self.get(i)?;
            if entry.peer == peer && entry.key == key {
                return Some((i, entry));
            }
            i = entry.next;
        }
        None
    }

    pub(super) fn find_mut(&mut self, peer: u32, key: StepKey) -> Option<(u32, &mut Entry)> {
        let (i, _) = self.find(peer, key)?;
        Some((i, self.get_mut(i)?))
    }

    /// Inserts a record that can be found; `None` if there is no free one.
    pub(super) fn insert(&mut self, peer: u32, key: StepKey, user: u32, bytes: u32, state: EntryState) -> Option<u32> {
        let i = self.free.pop(self.entries.as_mut(), |entry| &mut entry.next)?;
        let place = self.place(peer, key);
        let next = core::mem::replace(&mut self.get_mut(place)?.first, i);
        let entry = self.get_mut(i)?;
        *entry = Entry { first: entry.first, next, link: NONE, peer, key, user, bytes, at: 0, state };
        self.used = self.used.wrapping_add(1);
        Some(i)
    }

    /// Makes a record unfindable: freed now, or when it is popped from its list.
    pub(super) fn retire(&mut self, i: u32) {
        match self.get(i).filter(|entry| entry.is_found()) {
            Some(entry) if entry.is_listed() => {
                self.unchain(i);
                self.set(i, EntryState::Dead);
            }
            Some(_) => self.remove(i),
            None => {}
        }
    }

    /// Makes a record unfindable, but keeps it in use until it is [taken](Self::take).
    pub(super) fn hide(&mut self, i: u32) {
        if self.get(i).is_some_and(Entry::is_found) {
            self.unchain(i);
            self.set(i, EntryState::Hidden);
        }
    }

    /// Frees a hidden record. Returns its peer, or `None` if it is not hidden.
    pub(super) fn take(&mut self, i: u32) -> Option<u32> {
        let peer = self.get(i).filter(|entry| entry.state == EntryState::Hidden)?.peer;
        self.remove(i);
        Some(peer)
    }

    /// Frees a record that is in no list.
    pub(super) fn remove(&mut self, i: u32) {
        let Some(entry) = self.get(i).filter(|entry| entry.is_used()) else { return };
        if entry.is_found() {
            self.unchain(i);
        }
        if let Some(entry) = self.get_mut(i) {
            *entry = Entry { first: entry.first, ..Entry::FREE };
        }
        self.free.push_front(self.entries.as_mut(), i, |entry| &mut entry.next);
        self.used = self.used.wrapping_sub(1);
    }

    pub(super) fn list(&mut self, list: &mut List, i: u32) {
        list.push(self.entries.as_mut(), i, |entry| &mut entry.link);
    }

    pub(super) fn pop(&mut self, list: &mut List) -> Option<(u32, Entry)> {
        let i = list.pop(self.entries.as_mut(), |entry| &mut entry.link)?;
        Some((i, *self.get(i)?))
    }

    fn unchain(&mut self, i: u32) {
        let Some(entry) = self.get(i) else { return };
        let (place, next) = (self.place(entry.peer, entry.key), entry.next);
        let Some(first) = self.get_mut(place).map(|place| &mut place.first) else { return };
        if *first == i {
            *first = next;
            return;
        }
        let mut before = *first;
        for _ in 0..self.used {
            let Some(entry) = self.get_mut(before) else { return };
            if entry.next == i {
                entry.next = next;
                return;
            }
            before = entry.next;
        }
    }

    /// Number of records in each bucket.
    #[cfg(test)]
    pub(super) fn chains(&self) -> impl Iterator<Item = usize> {
        self.entries.as_ref().iter().map(|place| {
            let next = |entry: &&Entry| self.get(entry.next);
            core::iter::successors(self.get(place.first), next).count()
        })
    }

    /// The bucket of a peer and key.
    fn place(&self, peer: u32, key: StepKey) -> u32 {
        let mut hash = 0_u32;
        for word in [peer, key.context, key.sequence, key.step] {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b1);
            hash ^= hash >> 15;
        }
        (u64::from(hash).wrapping_mul(u64::from(self.len())) >> 32) as u32
    }
}
