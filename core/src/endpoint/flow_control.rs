//! The receiver's side of flow control: how much credit each peer gets.

pub(super) mod credit_pool;

use super::{Endpoint, Now};
use crate::endpoint::peer::PeerFlags;
use crate::endpoint::storage::Storage;
use crate::time::{Time, units};
use crate::wire::Flags;

/// Peers examined per round.
const STRIDE: u32 = 64;
/// Credit that stays unused for this long while other peers wait is reclaimed: 1 ms.
const UNUSED: u32 = units(1_000_000);

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Records that the peer has more to send.
    #[inline]
    pub(super) fn note_backlog(&mut self, from: u32) {
        let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return };
        if !peer.has(PeerFlags::BACKLOGGED) {
            peer.set(PeerFlags::BACKLOGGED);
            self.credit.enter();
        }
    }

    /// A drained datagram returns the peer's credit: its sender has nothing queued after it.
    pub(super) fn handle_drained(&mut self, from: u32, flags: Flags) {
        if flags.contains(Flags::DRAINED) {
            self.revoke_credit(from);
        }
    }

    /// Grants the peer credit up to its share, before an acknowledgement that carries it is sent. While other peers
    /// wait for credit, a peer that used up its own queues after them.
    pub(super) fn grant_credit(&mut self, to: u32) {
        let share = self.credit.share(W as u32);
        let Some(peer) = self.peers.as_mut().get_mut(to as usize) else { return };
        if !peer.has(PeerFlags::BACKLOGGED) || peer.has(PeerFlags::CREDIT_WAIT) {
            return;
        }
        let lacks = share.saturating_sub(u32::from(peer.granted));
        if self.credit.waiting.is_empty() {
            let more = lacks.min(self.credit.available());
            peer.granted = peer.granted.wrapping_add(more as u16);
            self.credit.take(more);
        }
        if peer.granted == 0 {
            peer.set(PeerFlags::CREDIT_WAIT);
            self.credit.waiting.push(self.peers.as_mut(), to, |peer| &mut peer.credit_link);
        }
    }

    /// Grants the peer credit before data that carry it are sent, unless it still has more than half of its share.
    #[inline]
    pub(super) fn top_up_credit(&mut self, to: u32) {
        let half = self.credit.share(W as u32) >> 1;
        if self
            .peers
            .as_ref()
            .get(to as usize)
            .is_some_and(|peer| peer.has(PeerFlags::BACKLOGGED) && u32::from(peer.granted) < half)
        {
            self.grant_credit(to);
        }
    }

    /// Grants free credit to the waiting peers, first come, first served.
    pub(super) fn serve_credit_waiters(&mut self, now: Now<S, W, BITS>) {
        for _ in 0..STRIDE {
            if self.credit.waiting.is_empty() {
                return;
            }
            let more = self.credit.share(W as u32).min(self.credit.available());
            if more == 0 {
                self.reclaim(now);
                return;
            }
            let Some(to) = self.credit.waiting.pop(self.peers.as_mut(), |peer| &mut peer.credit_link) else { return };
            let Some(peer) = self.peer_mut(to) else { return };
            peer.unset(PeerFlags::CREDIT_WAIT);
            if !peer.has(PeerFlags::BACKLOGGED) || !peer.is_alive() {
                continue;
            }
            peer.granted = peer.granted.wrapping_add(more as u16);
            peer.receive_state.ack_immediately();
            self.credit.take(more);
            self.list_ack(to);
        }
    }

    /// Reclaims credit that stayed unused for a while: the datagram that returned it may have been lost.
    fn reclaim(&mut self, now: Now<S, W, BITS>) {
        if S::Time::since(now, self.credit.reclaimed).is_none_or(|since| since < UNUSED) {
            return;
        }
        self.credit.reclaimed = S::Time::stamp(now);
        let size = self.peers.as_ref().len() as u32;
        for _ in 0..STRIDE.min(size) {
            let rank = self.credit.hand;
            self.credit.hand = if rank.wrapping_add(1) < size { rank.wrapping_add(1) } else { 0 };
            let Some(peer) = self.peer_mut(rank) else { return };
            let unused = peer.granted > 0 && !peer.has(PeerFlags::USED);
            peer.unset(PeerFlags::USED);
            if unused {
                self.revoke_credit(rank);
            }
        }
    }
}
