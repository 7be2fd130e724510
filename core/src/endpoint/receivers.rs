//! The lists of receive windows.

use super::Endpoint;
use crate::endpoint::storage::Storage;
use crate::list::List;
use crate::window::receive_window::ReceiveWindow;

/// The lists of receive windows, and what they hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Receivers {
    pub(super) free: List,
    /// Windows whose front has arrived, and those of ended peers, which have to be emptied.
    pub(super) deferred: List,
    /// Datagrams that are set aside.
    pub(super) held: u32,
}

impl Receivers {
    pub(super) fn new<const W: usize>(records: &mut [ReceiveWindow<W>]) -> Self {
        let free = List::of_all(records, |receiver| &mut receiver.link);
        Self { free, deferred: List::EMPTY, held: 0 }
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Returns a window to the pool.
    pub(super) fn free_receiver(&mut self, i: u32) {
        if let Some(receiver) = self.records.receivers.as_mut().get_mut(i as usize) {
            *receiver = ReceiveWindow::EMPTY;
            self.receivers.free.push_front(self.records.receivers.as_mut(), i, |receiver| &mut receiver.link);
        }
    }
}
