//! Lives: meeting, resetting, failing.

use super::{Endpoint, Notice, Now, ORPHAN};
use crate::counters::{Happened, Reason};
use crate::device::Fact;
use crate::endpoint::operation::OperationError;
use crate::endpoint::peer::{Life, NEWS, NO_WINDOW, PARTED, Peer, WANTS, WATCHED, WINDOWLESS};
use crate::endpoint::storage::Storage;
use crate::ids::{Incarnation, PeerId, Psn, first_psn};
use crate::list::NONE;
use crate::time::Time;
use crate::window::receive_window::Early;
use crate::wire::{Flags, HEADER, Header, Kind};

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Bootstrap names a peer's present life; `mtu` is the largest datagram, checksum excluded, that both ends and the
    /// path take. Only this replaces an incarnation: what is under way towards another life of that rank fails.
    pub fn meet(&mut self, now: Now<S, W, BITS>, peer: PeerId, incarnation: Incarnation, mtu: u32) {
        self.hear_said(now);
        let own = self.config.incarnation;
        let Some(record) = self.peers.as_ref().get(peer.0 as usize) else { return };
        if peer == self.config.rank || record.life() != Life::Unmet && record.incarnation == incarnation {
            return;
        }
        if record.is_alive() {
            self.end(now, peer.0, Life::Failed);
        }
        let Some(record) = self.peer_mut(peer.0) else { return };
        let inbound = crate::window::receive_state::Inbound::new(first_psn(incarnation, own));
        *record = Peer::met(incarnation, inbound, first_psn(own, incarnation), record);
        record.mtu = mtu.min(u32::from(u16::MAX)) as u16;
    }

    /// What is known of a peer's present life.
    pub fn life(&self, peer: PeerId) -> Life {
        self.peers.as_ref().get(peer.0 as usize).map_or(Life::Unmet, |peer| peer.life())
    }

    /// The incarnation that bootstrap named, while it is not known to have ended.
    pub fn incarnation(&self, peer: PeerId) -> Option<Incarnation> {
        self.peers.as_ref().get(peer.0 as usize).filter(|peer| peer.is_alive()).map(|peer| peer.incarnation)
    }

    /// The peer is known to be dead: final for its incarnation. Everything that needs it fails, and the others are told.
    pub fn fail(&mut self, now: Now<S, W, BITS>, peer: PeerId) {
        self.hear_said(now);
        let Some(record) = self.peers.as_ref().get(peer.0 as usize).filter(|peer| peer.is_alive()) else { return };
        let incarnation = record.incarnation;
        self.end(now, peer.0, Life::Failed);
        self.flood(peer.0, incarnation);
    }

    /// What the peer acknowledges contradicts what was sent to it: it is ended, and told.
    pub(super) fn give_up(&mut self, now: Now<S, W, BITS>, peer: u32) {
        let Some(expected) = self.peers.as_ref().get(peer as usize).map(|peer| peer.incarnation) else { return };
        self.end(now, peer, Life::Failed);
        self.notify(Notice { to: peer, kind: Kind::Abort, expected, ..Notice::FREE });
    }

    /// The device reports a link or a path. Without a path a peer is as good as dead; a link that is down may come up
    /// again: what is lost meanwhile is repaired, and silence is judged as always.
    pub fn handle_fact(&mut self, now: Now<S, W, BITS>, fact: Fact) {
        match fact {
            Fact::NoPath(peer) => self.fail(now, peer),
            Fact::Path { .. } | Fact::Down | Fact::Up => {}
        }
    }

    /// The life that the reset echoes is over: replaced by the sender's, or the sender itself has given up on this process.
    /// It counts while that life is what is still believed.
    pub(super) fn handle_reset(
        &mut self,
        now: Now<S, W, BITS>,
        header: &Header<BITS>,
        above: &mut impl super::Above,
    ) -> Result<(), Reason> {
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(Reason::UnknownPeer)?;
        #[cfg(not(mutant = "reset_unchecked"))]
        let counts = header.expected == self.config.incarnation && header.psn == peer.incarnation.0;
        #[cfg(mutant = "reset_unchecked")]
        let counts = header.expected == self.config.incarnation;
        if !counts || !peer.is_alive() {
            return Err(Reason::Stale);
        }
        self.end(now, header.rank, Life::Failed);
        above.saw(Happened::Accepted { kind: header.kind, bytes: HEADER as u32 });
        Ok(())
    }

    /// A datagram of another life, of its sender or of this process.
    pub(super) fn handle_other_life(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) -> Result<(), Reason> {
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(Reason::UnknownPeer)?;
        if header.incarnation == peer.incarnation {
            self.send_reset(now, header);
        }
        Err(Reason::Stale)
    }

    /// Answers a datagram that expects another life of this process, or that a dead one sent.
    pub(super) fn send_reset(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        if header.kind == Kind::Reset || header.kind == Kind::Abort {
            return;
        }
        if S::Time::since(now, self.reset).is_some_and(|since| since < self.config.granularity) {
            return;
        }
        self.reset = S::Time::stamp(now);
        self.notify(Notice {
            to: header.rank,
            kind: Kind::Reset,
            expected: header.incarnation,
            psn: header.expected.0,
            ..Notice::FREE
        });
    }

    pub(super) fn handle_bye(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        let Some(peer) = self.peer_mut(header.rank) else { return };
        if peer.inbound.next() != header.psn() {
            // Something is missing after all: it is asked for, and the Bye comes again.
            peer.inbound.handle_gap();
            self.list_ack(header.rank);
            return;
        }
        self.end(now, header.rank, Life::Parted);
    }

    pub(super) fn handle_obituary(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        let named = self.peers.as_ref().get(header.psn as usize).filter(|peer| peer.is_alive());
        if named.is_some_and(|peer| peer.incarnation.0 == header.acknowledged) {
            self.fail(now, PeerId(header.psn));
        }
    }

    /// The peer's life has ended one way or the other: everything that needs it fails.
    pub(super) fn end(&mut self, now: Now<S, W, BITS>, rank: u32, life: Life) {
        let error = if life == Life::Parted { OperationError::Parted } else { OperationError::PeerFailed };
        let Some(peer) = self.peers.as_mut().get_mut(rank as usize).filter(|peer| peer.is_alive()) else { return };
        peer.set_life(life);
        peer.unset(WATCHED);
        let (sender, receiver) = (u32::from(peer.sender()), u32::from(peer.receiver));
        peer.leave_sender(Psn::new(0));
        peer.receiver = NO_WINDOW;
        let windowless = peer.has(WINDOWLESS);
        peer.unset(WINDOWLESS);
        self.forget_grant(rank);
        if windowless {
            self.leave_windowless(rank);
        }
        while let Some(first) = self.queued(rank) {
            self.dequeue(rank);
            let operations = self.operations.as_mut();
            let Some(operation) = operations.get_mut(first as usize) else { break };
            operation.error = Some(error);
            operation.parts = operation.sent;
            if operation.released == operation.parts {
                self.completed.push(operations, first, |operation| &mut operation.link);
            }
        }
        if let Some(record) = self.senders.as_mut().get_mut(sender as usize) {
            let operations = self.operations.as_mut();
            #[cfg(not(mutant = "end_forgiven"))]
            for piece in record.window.pieces() {
                if let Some(operation) = operations.get_mut(piece.operation as usize) {
                    operation.error = operation.error.or(Some(error));
                }
            }
            record.window.abandon();
            record.flags |= ORPHAN;
            self.release(now, sender);
        }
        self.abandon_receiver(receiver);
        let Some(peer) = self.peer_mut(rank) else { return };
        if !peer.has(NEWS) {
            peer.set(if life == Life::Parted { NEWS | PARTED } else { NEWS });
            self.news.push(self.peers.as_mut(), rank, |peer| &mut peer.queue);
        } else if life == Life::Failed {
            // One event for two lives: the worse one.
            peer.unset(PARTED);
        }
    }

    /// What is held for a peer that has ended is given back through [`poll_deferred`](Self::poll_deferred).
    fn abandon_receiver(&mut self, receiver: u32) {
        let receivers = self.receivers.as_mut();
        let Some(window) = receivers.get_mut(receiver as usize) else { return };
        window.owner = NONE;
        let deferred = matches!(window.front(), Early::Held(_));
        if !deferred {
            self.deferred.push(receivers, receiver, |receiver| &mut receiver.link);
        }
    }

    /// A death is flooded: to the ranks 1, 2, 4, … behind this one, as far as there is room.
    fn flood(&mut self, dead: u32, incarnation: Incarnation) {
        let size = self.peers.as_ref().len() as u32;
        let mut distance = 1;
        while distance < size {
            let sum = u64::from(self.config.rank.0).wrapping_add(u64::from(distance));
            let to = if sum >= u64::from(size) { sum.wrapping_sub(u64::from(size)) } else { sum } as u32;
            let alive = self.peers.as_ref().get(to as usize).filter(|peer| peer.is_alive());
            if let Some(peer) = alive {
                self.notify(Notice {
                    to,
                    kind: Kind::Obituary,
                    flags: Flags::empty(),
                    expected: peer.incarnation,
                    psn: dead,
                    acknowledged: incarnation.0,
                });
            }
            distance = distance.saturating_mul(2);
        }
    }

    /// The peer neither has nor wants a grant any more.
    pub(super) fn forget_grant(&mut self, rank: u32) {
        let Some(peer) = self.peers.as_mut().get_mut(rank as usize) else { return };
        self.credit.give_back(u32::from(peer.granted));
        peer.granted = 0;
        if peer.has(WANTS) {
            peer.unset(WANTS);
            self.credit.leave();
        }
    }
}
