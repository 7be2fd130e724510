//! The pool of operations.

use crate::endpoint::operation::{Operation, OperationError};
use crate::list::List;
use crate::pool::Pool;

/// Operations: free, queued, and completed. Those of a peer's queue are linked in a circle (`Peer::queue`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::endpoint) struct OperationPool<P> {
    records: P,
    free: List,
    completed: List,
    /// First operations of the queues that wait for a send window.
    window_waiters: List,
}

impl<P: Pool<Operation>> OperationPool<P> {
    pub(in crate::endpoint) fn new(mut records: P) -> Self {
        let free = List::of_all(records.as_mut(), |operation| &mut operation.link);
        Self { records, free, completed: List::EMPTY, window_waiters: List::EMPTY }
    }

    #[inline]
    pub(in crate::endpoint) fn as_slice(&self) -> &[Operation] {
        self.records.as_ref()
    }

    #[inline]
    pub(in crate::endpoint) fn as_mut_slice(&mut self) -> &mut [Operation] {
        self.records.as_mut()
    }

    #[inline]
    pub(in crate::endpoint) fn get(&self, i: u32) -> Option<&Operation> {
        self.as_slice().get(i as usize)
    }

    #[inline]
    pub(in crate::endpoint) fn get_mut(&mut self, i: u32) -> Option<&mut Operation> {
        self.as_mut_slice().get_mut(i as usize)
    }

    #[inline]
    pub(in crate::endpoint) const fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The free operations.
    pub(in crate::endpoint) const fn free(&self) -> List {
        self.free
    }

    /// Takes a free operation.
    #[inline]
    pub(in crate::endpoint) fn take(&mut self) -> Option<u32> {
        self.free.pop(self.records.as_mut(), |operation| &mut operation.link)
    }

    /// Lists a completed operation, to be reported.
    #[inline]
    pub(in crate::endpoint) fn complete(&mut self, i: u32) {
        self.completed.push(self.records.as_mut(), i, |operation| &mut operation.link);
    }

    /// Takes the next completed operation, whose record is free from now on, and its error.
    pub(in crate::endpoint) fn pop_completed(&mut self) -> Option<(u32, Option<OperationError>)> {
        let records = self.records.as_mut();
        let i = self.completed.pop(records, |operation| &mut operation.link)?;
        let operation = records.get_mut(i as usize)?;
        let error = operation.error;
        *operation = Operation::FREE;
        self.free.push_front(records, i, |operation| &mut operation.link);
        Some((i, error))
    }

    #[inline]
    pub(in crate::endpoint) const fn has_window_waiters(&self) -> bool {
        !self.window_waiters.is_empty()
    }

    /// First operations of the queues that wait for a send window.
    #[cfg(debug_assertions)]
    pub(in crate::endpoint) const fn window_waiters(&self) -> List {
        self.window_waiters
    }

    /// Lists the first operation of a queue that waits for a send window.
    pub(in crate::endpoint) fn push_window_waiter(&mut self, i: u32) {
        self.window_waiters.push(self.records.as_mut(), i, |operation| &mut operation.waiting);
    }

    pub(in crate::endpoint) fn pop_window_waiter(&mut self) -> Option<u32> {
        self.window_waiters.pop(self.records.as_mut(), |operation| &mut operation.waiting)
    }

    /// Removes the peer's queue from those that wait for a send window.
    pub(in crate::endpoint) fn cancel_window_wait(&mut self, peer: u32) {
        let mut others = List::EMPTY;
        while let Some(i) = self.pop_window_waiter() {
            if self.get(i).is_some_and(|operation| operation.peer.0 != peer) {
                others.push(self.records.as_mut(), i, |operation| &mut operation.waiting);
            }
        }
        self.window_waiters = others;
    }
}
