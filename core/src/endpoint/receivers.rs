//! The pool of receive windows.

use super::Endpoint;
use crate::endpoint::storage::Storage;
use crate::list::List;
use crate::pool::Pool;
use crate::window::receive_window::ReceiveWindow;

/// The receive windows, for peers with a gap.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Receivers<P> {
    pub(super) records: P,
    pub(super) free: List,
    /// Windows whose front has arrived, and those of ended peers, which have to be emptied.
    pub(super) deferred: List,
    /// Datagrams that are set aside.
    pub(super) held: u32,
}

impl<P> Receivers<P> {
    pub(super) fn new<const W: usize>(mut records: P) -> Self
    where
        P: Pool<ReceiveWindow<W>>,
    {
        let free = List::of_all(records.as_mut(), |receiver| &mut receiver.link);
        Self { records, free, deferred: List::EMPTY, held: 0 }
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Returns a window to the pool.
    pub(super) fn free_receiver(&mut self, i: u32) {
        if let Some(receiver) = self.receivers.records.as_mut().get_mut(i as usize) {
            *receiver = ReceiveWindow::EMPTY;
            self.receivers.free.push_front(self.receivers.records.as_mut(), i, |receiver| &mut receiver.link);
        }
    }
}
