//! Changes of a peer's state: announced, replaced, reset, failed.

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
    /// Adds a peer, or replaces its incarnation; `mtu` is the largest datagram, checksum excluded, that both ends and
    /// the path take. Only this call replaces an incarnation: operations to another incarnation of that rank fail.
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

    /// The state of the peer's present incarnation.
    pub fn life(&self, peer: PeerId) -> Life {
        self.peers.as_ref().get(peer.0 as usize).map_or(Life::Unmet, |peer| peer.life())
    }

    /// The announced incarnation, unless it is known to have ended.
    pub fn incarnation(&self, peer: PeerId) -> Option<Incarnation> {
        self.peers.as_ref().get(peer.0 as usize).filter(|peer| peer.is_alive()).map(|peer| peer.incarnation)
    }

    /// Declares the peer failed: final for its incarnation. Every operation with it fails, and the failure is
    /// broadcast.
    pub fn fail(&mut self, now: Now<S, W, BITS>, peer: PeerId) {
        self.hear_said(now);
        let Some(record) = self.peers.as_ref().get(peer.0 as usize).filter(|peer| peer.is_alive()) else { return };
        let incarnation = record.incarnation;
        self.end(now, peer.0, Life::Failed);
        self.flood(peer.0, incarnation);
    }

    /// Aborts a peer whose acknowledgements contradict what was sent to it.
    pub(super) fn give_up(&mut self, now: Now<S, W, BITS>, peer: u32) {
        let Some(expected) = self.peers.as_ref().get(peer as usize).map(|peer| peer.incarnation) else { return };
        self.end(now, peer, Life::Failed);
        self.notify(Notice { to: peer, kind: Kind::Abort, expected, ..Notice::FREE });
    }

    /// Handles a device event. Without a path a peer counts as failed; a link that is down may come up again: losses
    /// are repaired, and the silence limit still applies.
    pub fn handle_fact(&mut self, now: Now<S, W, BITS>, fact: Fact) {
        match fact {
            Fact::NoPath(peer) => self.fail(now, peer),
            Fact::Path { .. } | Fact::Down | Fact::Up => {}
        }
    }

    /// Handles a Reset: the echoed incarnation of the sender has ended, or the sender has failed this process. Ignored
    /// unless that incarnation is the one in the peer's record.
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

    /// Handles a datagram that names another incarnation of its sender or of this process.
    pub(super) fn handle_other_life(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) -> Result<(), Reason> {
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(Reason::UnknownPeer)?;
        if header.incarnation == peer.incarnation {
            self.send_reset(now, header);
        }
        Err(Reason::Stale)
    }

    /// Answers a datagram that expects another incarnation of this process, or that a failed one sent.
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
            // A datagram is still missing: a NACK requests it, and the Bye is repeated.
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

    /// Closes a peer with the given final state: every operation with it fails.
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
            // One event for two incarnations: the worse one.
            peer.unset(PARTED);
        }
    }

    /// Marks a receive window of an ended peer: [`poll_deferred`](Self::poll_deferred) returns its held datagrams.
    fn abandon_receiver(&mut self, receiver: u32) {
        let receivers = self.receivers.as_mut();
        let Some(window) = receivers.get_mut(receiver as usize) else { return };
        window.owner = NONE;
        let deferred = matches!(window.front(), Early::Held(_));
        if !deferred {
            self.deferred.push(receivers, receiver, |receiver| &mut receiver.link);
        }
    }

    /// Broadcasts a failure to the ranks at distances 1, 2, 4, … from this one, while there is room for control
    /// messages.
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

    /// Takes all credit from the peer, and removes it from those that share the receive slots.
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
