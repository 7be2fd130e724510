//! Credit, both ways, and what else is known of a peer.

use crate::list::NONE;

/// A peer's record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Bytes of the longest payload that travels eagerly, either way.
    limit: u32,
    /// Headers of its that found no room and have not been announced again.
    dropped: u32,
    /// The next peer that is owed credit.
    pub(super) link: u32,
    /// Eager messages that may be sent to it.
    ours: u8,
    /// Eager messages that it may send.
    theirs: u8,
    /// Eager messages of its that were taken, and that it has not been told of.
    owed: u8,
    pub(super) listed: bool,
}

impl Peer {
    /// A peer with which payload of up to `limit` bytes travels eagerly: the same number on both sides.
    pub const fn new(limit: u32) -> Self {
        Self { limit, dropped: 0, link: NONE, ours: 0, theirs: 0, owed: 0, listed: false }
    }

    /// A new life.
    pub(super) const fn reset(&mut self, credit: u8) {
        *self = Self { ours: credit, theirs: credit, owed: 0, dropped: 0, ..*self };
    }

    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Credit for one eager message to it, if there is any.
    pub(super) const fn spend(&mut self) -> bool {
        let some = self.ours != 0;
        self.ours = self.ours.saturating_sub(1);
        some
    }

    /// It gives credit back. False if that is more than it has taken.
    pub(super) fn earn(&mut self, back: u8, credit: u8) -> bool {
        match self.ours.checked_add(back).filter(|ours| *ours <= credit) {
            Some(ours) => {
                self.ours = ours;
                true
            }
            None => false,
        }
    }

    /// It sent an eager message. False if it had no credit.
    pub(super) const fn use_up(&mut self) -> bool {
        let some = self.theirs != 0;
        self.theirs = self.theirs.saturating_sub(1);
        some
    }

    /// One of its eager messages was taken.
    pub(super) const fn take(&mut self) {
        self.owed = self.owed.saturating_add(1);
    }

    /// Whether it should be told even if nothing else is to be said.
    pub(super) const fn owes(&self, credit: u8) -> bool {
        self.owed != 0 && self.owed >= credit.div_ceil(2)
    }

    /// What it is told now.
    pub(super) const fn give_back(&mut self) -> u8 {
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
