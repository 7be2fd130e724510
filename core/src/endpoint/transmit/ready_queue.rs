//! The senders that can send: each sends a burst of datagrams before the next has its turn.

use crate::endpoint::{Sender, SenderFlags};
use crate::list::List;
use crate::time::Time;

/// Datagrams that one window may send in a row while others wait.
pub(in crate::endpoint) const BURST: u8 = 16;

/// Senders that can send.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::endpoint) struct ReadyQueue {
    senders: List,
    /// Datagrams that the first of them has sent in a row.
    burst: u8,
}

impl ReadyQueue {
    pub(in crate::endpoint) const EMPTY: Self = Self { senders: List::EMPTY, burst: 0 };

    #[inline]
    pub(in crate::endpoint) const fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// The sender whose turn it is.
    #[inline]
    pub(in crate::endpoint) const fn first(&self) -> Option<u32> {
        self.senders.first()
    }

    /// Adds a sender, unless it is in the queue.
    pub(in crate::endpoint) fn push<T: Time, const W: usize, const BITS: u32>(
        &mut self,
        senders: &mut [Sender<T, W, BITS>],
        i: u32,
    ) {
        let Some(record) = senders.get_mut(i as usize) else { return };
        if !record.flags.contains(SenderFlags::READY) {
            record.flags.insert(SenderFlags::READY);
            self.senders.push(senders, i, |sender| &mut sender.link);
        }
    }

    /// Removes the first sender.
    pub(in crate::endpoint) fn pop<T: Time, const W: usize, const BITS: u32>(
        &mut self,
        senders: &mut [Sender<T, W, BITS>],
    ) {
        self.burst = 0;
        if let Some(i) = self.senders.pop(senders, |sender| &mut sender.link)
            && let Some(record) = senders.get_mut(i as usize)
        {
            record.flags.remove(SenderFlags::READY);
        }
    }

    /// How many datagrams the first sender may send before another has its turn.
    #[inline]
    pub(in crate::endpoint) fn turn(&self) -> u32 {
        if self.senders.only().is_some() { u32::MAX } else { u32::from(BURST.wrapping_sub(self.burst)) }
    }

    /// Counts datagrams of the first sender. After a whole burst the next one has its turn.
    #[inline]
    pub(in crate::endpoint) fn count<T: Time, const W: usize, const BITS: u32>(
        &mut self,
        senders: &mut [Sender<T, W, BITS>],
        datagrams: u32,
    ) {
        let burst = u32::from(self.burst).wrapping_add(datagrams);
        self.burst = burst.checked_rem(u32::from(BURST)).unwrap_or(0) as u8;
        if burst >= u32::from(BURST)
            && let Some(first) = self.senders.pop(senders, |sender| &mut sender.link)
        {
            self.senders.push(senders, first, |sender| &mut sender.link);
        }
    }
}
