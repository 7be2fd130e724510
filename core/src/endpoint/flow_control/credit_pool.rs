//! The credit pool, which prevents incast: a receiver shares its receive slots among the peers that send to it.
//!
//! Grants are absolute edges (acknowledgement + credit), so that loss and duplication are harmless. Their sum stays
//! within 7/8 of the receive slots; control datagrams need no credit. A peer that returned its credit, or used it up
//! while others wait, queues for the next grant.

use crate::list::List;
use crate::time::Time;

/// The receive slots that peers share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CreditPool<T: Time> {
    /// Datagrams that may be granted in total.
    capacity: u32,
    /// Datagrams granted and not yet arrived.
    out: u32,
    /// Peers that have credit or wait for it.
    sharing: u32,
    /// The capacity divided by the sharing peers, at least 1.
    share: u32,
    /// Peers that wait, linked by `credit_link`.
    pub(crate) waiting: List,
    /// The clock hand of the search for unused credit.
    pub(crate) hand: u32,
    /// When unused credit was last reclaimed.
    pub(crate) reclaimed: T::Stamp,
}

impl<T: Time> CreditPool<T> {
    pub(crate) const fn new(slots: u32, now: T::Stamp) -> Self {
        let capacity = slots.wrapping_sub(slots >> 3);
        Self { capacity, out: 0, sharing: 0, share: capacity, waiting: List::EMPTY, hand: 0, reclaimed: now }
    }

    /// Datagrams that can still be granted.
    pub(crate) const fn available(&self) -> u32 {
        self.capacity.saturating_sub(self.out)
    }

    /// Outstanding credit, and the peers that share.
    #[cfg(debug_assertions)]
    pub(crate) const fn accounts(&self) -> (u32, u32) {
        (self.out, self.sharing)
    }

    /// The most credit that one peer may have, with windows of `w` segments.
    pub(crate) const fn share(&self, w: u32) -> u32 {
        if self.share < w { self.share } else { w }
    }

    pub(crate) const fn take(&mut self, datagrams: u32) {
        self.out = self.out.wrapping_add(datagrams);
    }

    pub(crate) const fn give_back(&mut self, datagrams: u32) {
        self.out = self.out.saturating_sub(datagrams);
    }

    /// Adds a peer to those that share.
    pub(crate) const fn enter(&mut self) {
        self.sharing = self.sharing.wrapping_add(1);
        self.divide();
    }

    /// Removes one.
    pub(crate) const fn leave(&mut self) {
        self.sharing = self.sharing.saturating_sub(1);
        self.divide();
    }

    const fn divide(&mut self) {
        self.share = match self.capacity.checked_div(self.sharing) {
            Some(0) => 1,
            Some(share) => share,
            None => self.capacity,
        };
    }
}
