//! The endpoint's own shutdown: Bye or Abort to every peer, then a linger for the peers' Byes.

use super::{Endpoint, Now, SenderFlags, Shutdown};
use crate::device::{Destination, DeviceQueue, HEADER_ROOM, Transmit, TxReason};
use crate::endpoint::peer::PeerFlags;
use crate::endpoint::storage::Storage;
use crate::ids::PeerId;
use crate::list::NONE;
use crate::time::Time;
use crate::wire::{DatagramKind, HEADER};

/// Ranks examined per call.
const STRIDE: u32 = 64;

/// Rounds of Byes.
const BYE_ROUNDS: u8 = 3;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Starts an orderly shutdown: after everything is acknowledged, sends Bye to every contacted peer and lingers for
    /// their Byes.
    pub fn shutdown(&mut self) {
        if self.shutdown == Shutdown::Running {
            self.shutdown = Shutdown::SendingBye { kind: DatagramKind::Bye, rank: 0, round: 0 };
        }
    }

    /// Counts every live peer as contacted: [`shutdown`](Self::shutdown) and [`abort`](Self::abort) notify them all. For
    /// a rank that leaves while peers that it never met may wait for it.
    pub fn contact_all(&mut self) {
        for peer in self.peers.as_mut() {
            if peer.is_alive() {
                peer.set(PeerFlags::CONTACTED);
            }
        }
    }

    /// Aborts: sends Abort to every contacted peer, even to those that were sent a Bye, so that none of them waits. No
    /// more data are sent: memory is free as soon as the device has completed the postings.
    pub fn abort(&mut self) {
        if self.shutdown != Shutdown::Running {
            for peer in self.peers.as_mut() {
                peer.unset(PeerFlags::BYE_SENT);
            }
        }
        self.shutdown = Shutdown::SendingBye { kind: DatagramKind::Abort, rank: 0, round: BYE_ROUNDS - 1 };
    }

    /// Whether only Aborts may still be sent.
    pub(super) const fn is_aborting(&self) -> bool {
        matches!(
            self.shutdown,
            Shutdown::SendingBye { kind: DatagramKind::Abort, .. }
                | Shutdown::Lingering { kind: DatagramKind::Abort, .. }
                | Shutdown::Closed
        )
    }

    /// Whether [`shutdown`](Self::shutdown) or [`abort`](Self::abort) has finished.
    pub fn is_closed(&self) -> bool {
        self.shutdown == Shutdown::Closed
    }

    /// Whether a Bye or Abort may be sent: a Bye waits until everything is acknowledged.
    pub(super) fn may_send_bye(&self, kind: DatagramKind) -> bool {
        kind != DatagramKind::Bye || self.is_acknowledged() || mutant!("bye_early")
    }

    /// Builds the next Bye or Abort.
    pub(super) fn transmit_bye(&mut self, now: Now<S, W, BITS>, head: &mut [u8; HEADER_ROOM]) -> Option<Transmit> {
        let Shutdown::SendingBye { kind, mut rank, round } = self.shutdown else { return None };
        if !self.may_send_bye(kind) {
            return None;
        }
        let size = self.peers.as_ref().len() as u32;
        let end = rank.saturating_add(STRIDE).min(size);
        while rank < end {
            let to = rank;
            rank = rank.wrapping_add(1);
            let Some(peer) = self.peers.as_ref().get(to as usize) else { break };
            if peer.is_alive() && peer.has(PeerFlags::CONTACTED) && !peer.has(PeerFlags::BYE_SENT) {
                // A Bye tries another rail in each round; an Abort is sent once.
                let rail = if kind == DatagramKind::Bye { self.bye_rail(peer, round) } else { self.control_rail(peer) };
                let mut header = self.header_to(peer);
                header.kind = kind;
                let sender = self.senders.get(u32::from(peer.sender()));
                header.psn = sender.map_or(peer.send_next(), |sender| sender.window.next()).get();
                header.emit(head);
                if let Some(peer) = self.peer_mut(to) {
                    peer.set(PeerFlags::BYE_SENT);
                }
                self.shutdown = Shutdown::SendingBye { kind, rank, round };
                return Some(Transmit {
                    to: Destination::Peer { peer: PeerId(to), rail },
                    queue: DeviceQueue::Polled,
                    header_bytes: HEADER as u8,
                    payload: None,
                    solicited: false,
                    reason: TxReason::Control,
                });
            }
        }
        self.shutdown = if rank < size {
            Shutdown::SendingBye { kind, rank, round }
        } else {
            let round = round.wrapping_add(1);
            Shutdown::Lingering { kind, until: S::Time::after(now, self.config.granularity.saturating_mul(4)), round }
        };
        None
    }

    /// Ends the linger, or repeats the Byes to peers that did not answer.
    pub(super) fn linger(&mut self, now: Now<S, W, BITS>) {
        let Shutdown::Lingering { kind, until, round } = self.shutdown else { return };
        if !S::Time::is_due(now, until) {
            return;
        }
        let mut missing = false;
        for peer in self.peers.as_mut() {
            missing |= peer.is_alive() && peer.has(PeerFlags::BYE_SENT);
            peer.unset(PeerFlags::BYE_SENT);
        }
        self.shutdown = if missing && round < BYE_ROUNDS {
            Shutdown::SendingBye { kind, rank: 0, round }
        } else {
            Shutdown::Closed
        };
    }

    /// Whether everything that was to be sent is acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        let idle = |sender: &super::Sender<S::Time, W, BITS>| sender.window.is_acknowledged();
        !self.operations.has_window_waiters()
            && self.senders.as_slice().iter().all(|sender| {
                sender.peer == NONE
                    || sender.flags.contains(SenderFlags::ORPHANED)
                    || idle(sender) && self.queued(sender.peer).is_none()
            })
    }
}
