//! Invariants of the endpoint between any two calls: checked by tests, absent from release builds.

use super::{Endpoint, SenderFlags};
use crate::endpoint::peer::{NO_WINDOW, PeerFlags};
use crate::endpoint::placement::PlacementState;
use crate::endpoint::storage::Storage;
use crate::list::NONE;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Checks that records and lists agree.
    ///
    /// # Errors
    /// The invariant that is violated.
    pub fn check_invariants(&self) -> Result<(), &'static str> {
        let (peers, senders, operations) = (self.peers.as_ref(), self.senders.as_slice(), self.operations.as_slice());
        let holds = |condition: bool, what: &'static str| if condition { Ok(()) } else { Err(what) };
        let granted = peers.iter().fold(0_u32, |sum, peer| sum.wrapping_add(u32::from(peer.granted)));
        let sharing = peers.iter().filter(|peer| peer.has(PeerFlags::BACKLOGGED)).count() as u32;
        holds(self.credit.accounts() == (granted, sharing), "the outstanding credit is the sum of the peers' grants")?;
        holds(
            self.credit.available() > 0 || granted <= self.config.receive_slots,
            "no more credit is granted than there are receive slots",
        )?;
        for (rank, peer) in peers.iter().enumerate() {
            let sender = senders.get(usize::from(peer.sender()));
            let owned = sender
                .is_some_and(|sender| sender.peer as usize == rank && !sender.flags.contains(SenderFlags::ORPHANED));
            holds(owned || peer.sender() == NO_WINDOW, "a peer's send window is its own")?;
            let receiver = self.receivers.get(peer.receiver);
            let owned = receiver.is_some_and(|receiver| receiver.owner as usize == rank && !receiver.is_empty());
            holds(owned || peer.receiver == NO_WINDOW, "a receive window belongs to its peer, which has a gap")?;
            holds(
                !peer.has(PeerFlags::WINDOW_WAIT) || peer.sender() == NO_WINDOW,
                "a peer with a send window does not wait for one",
            )?;
        }
        for (i, sender) in senders.iter().enumerate().filter(|(_, sender)| sender.peer != NONE) {
            let known = peers.get(sender.peer as usize).is_some_and(|peer| usize::from(peer.sender()) == i);
            holds(known || sender.flags.contains(SenderFlags::ORPHANED), "a send window is known to its peer")?;
            let is_timed = sender.window.deadline().is_none() || sender.timer.is_set();
            holds(is_timed || sender.flags.contains(SenderFlags::ORPHANED), "a deadline has a timer")?;
        }
        holds(self.senders.loads_agree(), "a rail's load is the sum of what it counts of each peer")?;
        for sender in self.senders.free().iter(senders, |sender| sender.link) {
            let free = senders.get(sender as usize).is_some_and(|sender| sender.peer == NONE && !sender.timer.is_set());
            holds(free, "a free window has neither peer nor timer")?;
        }
        let waiting = self.operations.window_waiters().iter(operations, |operation| operation.waiting);
        let heads = waiting.filter(|i| {
            let peer = operations.get(*i as usize).map_or(NONE, |operation| operation.peer.0);
            self.queued(peer) == Some(*i)
                && peers.get(peer as usize).is_some_and(|peer| peer.has(PeerFlags::WINDOW_WAIT))
        });
        let windowless = peers.iter().filter(|peer| peer.has(PeerFlags::WINDOW_WAIT)).count();
        holds(heads.count() == windowless, "every queue without a send window is listed once")?;
        let ended = |operation: &crate::endpoint::operation::Operation| operation.released > operation.parts;
        holds(!operations.iter().any(ended), "no part is released twice")?;
        let filled = |i: &u32| {
            let placement = self.placements.as_slice().get(*i as usize);
            placement.is_some_and(|placement| matches!(placement.state, PlacementState::Filled { .. }))
        };
        let delivered = self.placements.delivered().iter(self.placements.as_slice(), |placement| placement.link);
        let stages = self.placements.as_slice().iter();
        let filled_in_all = stages.filter(|placement| matches!(placement.state, PlacementState::Filled { .. })).count();
        holds(delivered.filter(filled).count() == filled_in_all, "every filled placement is in the list of deliveries")
    }
}
