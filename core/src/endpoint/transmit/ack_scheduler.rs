//! The acknowledgements that are owed: which are delayed, until when, and which are due.

use crate::endpoint::peer::{Peer, PeerFlags};
use crate::list::List;
use crate::time::Time;

/// Peers that are owed an acknowledgement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::endpoint) struct AckScheduler<T: Time> {
    delayed: List,
    due: List,
    /// Until when delayed acknowledgements wait for data to carry them.
    until: Option<T::Instant>,
    /// When the first of them was delayed.
    since: T::Stamp,
    /// One of their peers has no credit left.
    pub(in crate::endpoint) lacks_credit: bool,
    /// Some acknowledgement must be sent at once.
    pub(in crate::endpoint) urgent: bool,
}

impl<T: Time> AckScheduler<T> {
    pub(in crate::endpoint) const IDLE: Self = Self {
        delayed: List::EMPTY,
        due: List::EMPTY,
        until: None,
        since: T::ZERO,
        lacks_credit: false,
        urgent: false,
    };

    /// Lists the peer as owed an acknowledgement.
    #[inline]
    pub(in crate::endpoint) fn list<const BITS: u32>(&mut self, peers: &mut [Peer<T, BITS>], to: u32) {
        let Some(peer) = peers.get_mut(to as usize) else { return };
        self.urgent |= peer.receive_state.is_urgent();
        if !peer.has(PeerFlags::ACK_LISTED) {
            peer.set(PeerFlags::ACK_LISTED);
            self.delayed.push(peers, to, |peer| &mut peer.ack_link);
        }
    }

    #[inline]
    pub(in crate::endpoint) const fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Until when delayed acknowledgements wait.
    pub(in crate::endpoint) const fn deadline(&self) -> Option<T::Instant> {
        self.until
    }

    /// Takes the next peer whose acknowledgement is due.
    pub(in crate::endpoint) fn pop_due<const BITS: u32>(&mut self, peers: &mut [Peer<T, BITS>]) -> Option<u32> {
        self.due.pop(peers, |peer| &mut peer.ack_link)
    }

    /// Ends a round: delays acknowledgements for `margin` / 4, so that data may carry them; if a peer has no credit
    /// left, only while no other datagram arrives for a shorter time.
    pub(in crate::endpoint) fn handle_round<const BITS: u32>(
        &mut self,
        now: T::Instant,
        margin: u32,
        peers: &mut [Peer<T, BITS>],
    ) {
        let ungranted = core::mem::take(&mut self.lacks_credit);
        if self.delayed.is_empty() {
            return;
        }
        if self.until.is_none() {
            self.since = T::stamp(now);
        }
        let waited = T::since(now, self.since).unwrap_or(0);
        let left = (margin >> 2).saturating_sub(waited);
        if ungranted && left > 0 {
            self.until = Some(T::after(now, left.min(margin >> 4)));
        } else {
            match self.until {
                None => self.until = Some(T::after(now, left)),
                Some(until) if T::is_due(now, until) => self.expire(peers),
                Some(_) => {}
            }
        }
    }

    /// Makes the delayed acknowledgements due.
    pub(in crate::endpoint) fn expire<const BITS: u32>(&mut self, peers: &mut [Peer<T, BITS>]) {
        self.until = None;
        self.since = T::ZERO;
        let mut delayed = core::mem::replace(&mut self.delayed, List::EMPTY);
        self.due.append(&mut delayed, peers, |peer| &mut peer.ack_link);
    }
}

#[cfg(test)]
mod tests {
    use super::AckScheduler;
    use crate::endpoint::peer::Peer;
    use crate::time::Nanos;

    /// The round in which the acknowledgement is due, if one comes every 64 ns, and the margin is 64 times that.
    fn rounds_until_due(lacks_credit: impl Fn(u64) -> bool) -> Option<u64> {
        let mut peers = [Peer::<Nanos, 32>::UNKNOWN];
        let mut acks = AckScheduler::<Nanos>::IDLE;
        acks.list(&mut peers, 0);
        (0..100).find(|round| {
            acks.lacks_credit = lacks_credit(*round);
            acks.handle_round(1_000_000 + round * 64, 64, &mut peers);
            acks.has_due()
        })
    }

    #[test]
    fn acknowledgements_wait_for_a_quarter_of_the_margin_at_most() {
        assert_eq!(rounds_until_due(|_| false), Some(16));
        assert_eq!(rounds_until_due(|_| true), Some(16), "however often datagrams arrive");
        assert_eq!(rounds_until_due(|round| round == 0), Some(4), "a peer has no credit, and no datagram arrives");
        assert_eq!(rounds_until_due(|round| round < 14), Some(16));
    }
}
