//! A peer's record: credit in both directions, and dropped headers.

use crate::list::NONE;

/// The record of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CollectivePeer {
    /// Bytes of the longest eager payload, in both directions.
    limit: u32,
    /// RTS headers from it that were dropped and not repeated yet.
    dropped: u32,
    /// The next peer that is owed credit.
    pub(super) link: u32,
    /// Eager messages that may be sent to it.
    ours: u8,
    /// Eager messages that it may send.
    theirs: u8,
    /// Consumed eager messages from it that were not reported.
    owed: u8,
    pub(super) listed: bool,
}

impl CollectivePeer {
    /// A peer with eager payloads of up to `limit` bytes: the same value on both sides.
    pub const fn new(limit: u32) -> Self {
        Self { limit, dropped: 0, link: NONE, ours: 0, theirs: 0, owed: 0, listed: false }
    }

    /// Resets the record for a new incarnation.
    pub(super) const fn reset(&mut self, credit: u8) {
        *self = Self { ours: credit, theirs: credit, owed: 0, dropped: 0, ..*self };
    }

    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Takes credit for one eager message to it. False if there is none.
    pub(super) const fn spend(&mut self) -> bool {
        let some = self.ours != 0;
        self.ours = self.ours.saturating_sub(1);
        some
    }

    /// Adds returned credit. False if it is more than was used.
    pub(super) fn earn(&mut self, back: u8, credit: u8) -> bool {
        match self.ours.checked_add(back).filter(|ours| *ours <= credit) {
            Some(ours) => {
                self.ours = ours;
                true
            }
            None => false,
        }
    }

    /// Counts an eager message from it. False if it had no credit.
    pub(super) const fn use_up(&mut self) -> bool {
        let some = self.theirs != 0;
        self.theirs = self.theirs.saturating_sub(1);
        some
    }

    /// Counts one of its eager messages as consumed.
    pub(super) const fn take(&mut self) {
        self.owed = self.owed.saturating_add(1);
    }

    /// Whether a credit message to it is due.
    pub(super) const fn owes(&self, credit: u8) -> bool {
        self.owed != 0 && self.owed >= credit.div_ceil(2)
    }

    /// Takes the credit that the next header returns.
    pub(super) const fn take_credit(&mut self) -> u8 {
        self.theirs = self.theirs.saturating_add(self.owed);
        core::mem::replace(&mut self.owed, 0)
    }

    pub(super) const fn has_dropped(&self) -> bool {
        self.dropped != 0
    }

    pub(super) const fn drop_header(&mut self) {
        self.dropped = self.dropped.saturating_add(1);
    }

    pub(super) const fn find_header(&mut self) {
        self.dropped = self.dropped.saturating_sub(1);
    }
}
