//! Changes of a peer's state: announced, replaced, reset, failed.

use super::{ControlMessage, Endpoint, Now, SenderFlags};
use crate::counters::{DropReason, Metric};
use crate::device::DeviceEvent;
use crate::endpoint::operation::OperationError;
use crate::endpoint::peer::{NO_WINDOW, Peer, PeerFlags, PeerState};
use crate::endpoint::storage::Storage;
use crate::ids::{Incarnation, PeerId, Psn, first_psn};
use crate::time::Time;
use crate::window::rails::Rails;
use crate::wire::{DatagramKind, Flags, HEADER, Header};

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Adds a peer, or replaces its incarnation; `mtu` is the largest datagram, checksum excluded, that both ends and
    /// the path take. Only this call replaces an incarnation: operations to another incarnation of that rank fail.
    pub fn add_peer(&mut self, now: Now<S, W, BITS>, peer: PeerId, incarnation: Incarnation, mtu: u32) {
        let own = self.config.incarnation;
        let Some(record) = self.peers.as_ref().get(peer.0 as usize) else { return };
        if peer == self.config.rank || record.state() != PeerState::Unknown && record.incarnation == incarnation {
            return;
        }
        if record.is_alive() {
            self.close_peer(now, peer.0, PeerState::Failed);
        }
        let Some(record) = self.peer_mut(peer.0) else { return };
        let inbound = crate::window::receive_state::ReceiveState::new(first_psn(incarnation, own));
        *record = Peer::announced(incarnation, inbound, first_psn(own, incarnation), record);
        record.mtu = mtu.min(u32::from(u16::MAX)) as u16;
    }

    /// The state of the peer's present incarnation.
    pub fn peer_state(&self, peer: PeerId) -> PeerState {
        self.peers.as_ref().get(peer.0 as usize).map_or(PeerState::Unknown, |peer| peer.state())
    }

    /// The announced incarnation, unless it is known to have ended.
    pub fn incarnation(&self, peer: PeerId) -> Option<Incarnation> {
        self.peers.as_ref().get(peer.0 as usize).filter(|peer| peer.is_alive()).map(|peer| peer.incarnation)
    }

    /// Declares the peer failed: final for its incarnation. Every operation with it fails, and the failure is
    /// broadcast.
    pub fn fail(&mut self, now: Now<S, W, BITS>, peer: PeerId) {
        let Some(record) = self.peers.as_ref().get(peer.0 as usize).filter(|peer| peer.is_alive()) else { return };
        let incarnation = record.incarnation;
        self.close_peer(now, peer.0, PeerState::Failed);
        self.broadcast_failure(peer.0, incarnation);
    }

    /// Aborts a peer whose acknowledgements contradict what was sent to it.
    pub(super) fn abort_peer(&mut self, now: Now<S, W, BITS>, peer: u32) {
        let Some(expected) = self.peers.as_ref().get(peer as usize).map(|peer| peer.incarnation) else { return };
        self.close_peer(now, peer, PeerState::Failed);
        self.control.push(ControlMessage { to: peer, kind: DatagramKind::Abort, expected, ..ControlMessage::FREE });
    }

    /// Handles a device event. Without a path a peer counts as failed; a link that is down may come up again: losses
    /// are repaired, and the silence limit still applies. Where there are several rails, one that is down, or that has no
    /// path to a peer, is replaced by the others.
    pub fn handle_device_event(&mut self, now: Now<S, W, BITS>, fact: DeviceEvent) {
        match fact {
            DeviceEvent::NoPath { peer, .. } if !self.has_rails() => self.fail(now, peer),
            DeviceEvent::Down(rail) if self.has_rails() => self.handle_link(now, rail, false),
            DeviceEvent::Up(rail) if self.has_rails() => self.handle_link(now, rail, true),
            DeviceEvent::NoPath { peer, rail } => self.handle_no_path(now, peer, rail),
            DeviceEvent::Path { .. } | DeviceEvent::Down(_) | DeviceEvent::Up(_) => {}
        }
    }

    /// Handles a Reset: the echoed incarnation of the sender has ended, or the sender has failed this process. Ignored
    /// unless that incarnation is the one in the peer's record.
    pub(super) fn handle_reset(
        &mut self,
        now: Now<S, W, BITS>,
        header: &Header<BITS>,
        handler: &mut impl super::Handler,
    ) -> Result<(), DropReason> {
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(DropReason::UnknownPeer)?;
        let names_this = header.psn == peer.incarnation.0 || mutant!("reset_unchecked");
        let counts = header.expected == self.config.incarnation && names_this;
        if !counts || !peer.is_alive() {
            return Err(DropReason::Stale);
        }
        self.close_peer(now, header.rank, PeerState::Failed);
        handler.record(Metric::Accepted { kind: header.kind, bytes: HEADER as u32 });
        Ok(())
    }

    /// Handles a datagram that names another incarnation of its sender or of this process.
    pub(super) fn handle_stale_incarnation(
        &mut self,
        now: Now<S, W, BITS>,
        header: &Header<BITS>,
    ) -> Result<(), DropReason> {
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(DropReason::UnknownPeer)?;
        if header.incarnation == peer.incarnation {
            self.send_reset(now, header);
        }
        Err(DropReason::Stale)
    }

    /// Answers a datagram that expects another incarnation of this process, or that a failed one sent.
    pub(super) fn send_reset(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        if header.kind == DatagramKind::Reset || header.kind == DatagramKind::Abort {
            return;
        }
        if S::Time::since(now, self.control.reset_sent).is_some_and(|since| since < self.config.granularity) {
            return;
        }
        self.control.reset_sent = S::Time::stamp(now);
        self.control.push(ControlMessage {
            to: header.rank,
            kind: DatagramKind::Reset,
            expected: header.incarnation,
            psn: header.expected.0,
            ..ControlMessage::FREE
        });
    }

    pub(super) fn handle_bye(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        let Some(peer) = self.peer_mut(header.rank) else { return };
        if peer.receive_state.next() != header.psn() {
            // A datagram is still missing: a NACK requests it, and the Bye is repeated.
            peer.receive_state.handle_gap();
            self.list_ack(header.rank);
            return;
        }
        self.close_peer(now, header.rank, PeerState::Finished);
    }

    pub(super) fn handle_peer_down(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        let named = self.peers.as_ref().get(header.psn as usize).filter(|peer| peer.is_alive());
        if named.is_some_and(|peer| peer.incarnation.0 == header.acknowledged) {
            self.fail(now, PeerId(header.psn));
        }
    }

    /// Closes a peer with the given final state: every operation with it fails.
    pub(super) fn close_peer(&mut self, now: Now<S, W, BITS>, rank: u32, state: PeerState) {
        let error =
            if state == PeerState::Finished { OperationError::PeerFinished } else { OperationError::PeerFailed };
        let Some(peer) = self.peers.as_mut().get_mut(rank as usize).filter(|peer| peer.is_alive()) else { return };
        peer.set_state(state);
        peer.unset(PeerFlags::WATCHED);
        let (sender, receiver) = (u32::from(peer.sender()), u32::from(peer.receiver));
        peer.release_sender(Psn::new(0));
        peer.receiver = NO_WINDOW;
        let windowless = peer.has(PeerFlags::WINDOW_WAIT);
        peer.unset(PeerFlags::WINDOW_WAIT);
        self.revoke_credit(rank);
        if windowless {
            self.operations.cancel_window_wait(rank);
        }
        while let Some(first) = self.queued(rank) {
            self.dequeue(rank);
            let Some(operation) = self.operations.get_mut(first) else { break };
            operation.error = Some(error);
            operation.parts = operation.sent;
            if operation.released == operation.parts {
                self.operations.complete(first);
            }
        }
        if let Some((record, rails)) = self.senders.with_rails(sender) {
            for piece in record.window.undelivered() {
                if let Some(operation) = self.operations.get_mut(piece.operation)
                    && !mutant!("end_forgiven")
                {
                    operation.error = operation.error.or(Some(error));
                }
            }
            record.window.abort(&mut Rails::new(&mut record.path, rails));
            record.flags.insert(SenderFlags::ORPHANED);
            self.release(now, sender);
        }
        self.receivers.orphan(receiver);
        let Some(peer) = self.peer_mut(rank) else { return };
        if !peer.has(PeerFlags::EVENT_PENDING) {
            peer.set(if state == PeerState::Finished {
                PeerFlags::EVENT_PENDING | PeerFlags::EVENT_IS_FINISHED
            } else {
                PeerFlags::EVENT_PENDING
            });
            self.peer_events.push(self.peers.as_mut(), rank, |peer| &mut peer.queue);
        } else if state == PeerState::Failed {
            // One event for two incarnations: the worse one.
            peer.unset(PeerFlags::EVENT_IS_FINISHED);
        }
    }

    /// Broadcasts a failure to the ranks at distances 1, 2, 4, … from this one, while there is room for control
    /// messages.
    fn broadcast_failure(&mut self, dead: u32, incarnation: Incarnation) {
        let size = self.peers.as_ref().len() as u32;
        let mut distance = 1;
        while distance < size {
            let sum = u64::from(self.config.rank.0).wrapping_add(u64::from(distance));
            let to = if sum >= u64::from(size) { sum.wrapping_sub(u64::from(size)) } else { sum } as u32;
            let alive = self.peers.as_ref().get(to as usize).filter(|peer| peer.is_alive());
            if let Some(peer) = alive {
                self.control.push(ControlMessage {
                    to,
                    kind: DatagramKind::PeerDown,
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
    pub(super) fn revoke_credit(&mut self, rank: u32) {
        let Some(peer) = self.peers.as_mut().get_mut(rank as usize) else { return };
        self.credit.give_back(u32::from(peer.granted));
        peer.granted = 0;
        if peer.has(PeerFlags::BACKLOGGED) {
            peer.unset(PeerFlags::BACKLOGGED);
            self.credit.leave();
        }
    }
}
