//! The pool of receive windows.

use crate::device::Slot;
use crate::list::{List, NONE};
use crate::pool::Pool;
use crate::window::receive_window::{Early, ReceiveWindow};

/// Receive windows, in use and free, and how many datagrams they hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::endpoint) struct ReceiverPool<P, const W: usize> {
    records: P,
    free: List,
    /// Windows whose front has arrived, and those of ended peers, which have to be emptied.
    deferred: List,
    /// Datagrams that are held until their predecessors have arrived.
    pub(in crate::endpoint) held: u32,
}

impl<P: Pool<ReceiveWindow<W>>, const W: usize> ReceiverPool<P, W> {
    pub(in crate::endpoint) fn new(mut records: P) -> Self {
        let free = List::of_all(records.as_mut(), |receiver| &mut receiver.link);
        Self { records, free, deferred: List::EMPTY, held: 0 }
    }

    #[inline]
    pub(in crate::endpoint) fn as_slice(&self) -> &[ReceiveWindow<W>] {
        self.records.as_ref()
    }

    /// The window with this index, `NO_WINDOW` included.
    #[inline]
    pub(in crate::endpoint) fn get(&self, i: u16) -> Option<&ReceiveWindow<W>> {
        self.as_slice().get(usize::from(i))
    }

    #[inline]
    pub(in crate::endpoint) fn get_mut(&mut self, i: u32) -> Option<&mut ReceiveWindow<W>> {
        self.records.as_mut().get_mut(i as usize)
    }

    #[inline]
    pub(in crate::endpoint) const fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The free windows.
    pub(in crate::endpoint) const fn free(&self) -> List {
        self.free
    }

    /// Takes a free window for a peer.
    pub(in crate::endpoint) fn take(&mut self, owner: u32) -> Option<u32> {
        let records = self.records.as_mut();
        let i = self.free.pop(records, |receiver| &mut receiver.link)?;
        records.get_mut(i as usize)?.owner = owner;
        Some(i)
    }

    /// Returns a window.
    pub(in crate::endpoint) fn free_one(&mut self, i: u32) {
        let records = self.records.as_mut();
        if let Some(receiver) = records.get_mut(i as usize) {
            *receiver = ReceiveWindow::EMPTY;
            self.free.push_front(records, i, |receiver| &mut receiver.link);
        }
    }

    /// Adds the records that `add` appends.
    pub(in crate::endpoint) fn grow(&mut self, add: impl FnOnce(&mut P)) {
        let before = self.as_slice().len() as u32;
        add(&mut self.records);
        let records = self.records.as_mut();
        for i in before..records.len() as u32 {
            self.free.push(records, i, |receiver| &mut receiver.link);
        }
    }

    /// Marks the window of an ended peer: [`next_deferred`](Self::next_deferred) returns what it holds.
    pub(in crate::endpoint) fn orphan(&mut self, i: u32) {
        let Some(window) = self.get_mut(i) else { return };
        window.owner = NONE;
        if !matches!(window.front(), Early::Held(_)) {
            self.defer(i);
        }
    }

    /// Lists a window whose front has arrived.
    pub(in crate::endpoint) fn defer(&mut self, i: u32) {
        self.deferred.push(self.records.as_mut(), i, |receiver| &mut receiver.link);
    }

    #[inline]
    pub(in crate::endpoint) const fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// The first held datagram that is in order now, or that is not needed any more.
    #[inline(never)]
    pub(in crate::endpoint) fn next_deferred(&mut self) -> Option<Slot> {
        loop {
            let i = self.deferred.first()?;
            let window = self.records.as_ref().get(i as usize)?;
            let waiting = if window.owner == NONE { window.first() } else { window.front() };
            if let Early::Held(slot) = waiting {
                return Some(slot);
            }
            let is_orphan = window.owner == NONE;
            self.deferred.pop(self.records.as_mut(), |receiver| &mut receiver.link);
            if is_orphan {
                self.free_one(i);
            }
        }
    }

    /// Takes the first held datagram out. Returns the peer that it is to be delivered to, if any.
    pub(in crate::endpoint) fn take_deferred(&mut self) -> Option<u32> {
        self.held = self.held.saturating_sub(1);
        let i = self.deferred.first()?;
        let window = self.records.as_mut().get_mut(i as usize)?;
        if window.owner == NONE {
            window.take_first();
            return None;
        }
        let owner = window.owner;
        self.deferred.pop(self.records.as_mut(), |receiver| &mut receiver.link);
        Some(owner)
    }
}
