//! The endpoint's own shutdown: Bye or Abort to every peer, then a linger for the peers' Byes.

use super::{Endpoint, Leaving, Now, ORPHAN};
use crate::device::{Cause, HEAD, Lane, Transmit};
use crate::endpoint::peer::{TOLD, TOUCHED};
use crate::endpoint::storage::Storage;
use crate::ids::PeerId;
use crate::list::NONE;
use crate::time::Time;
use crate::wire::{HEADER, Kind};

/// Ranks examined per call.
const STRIDE: u32 = 64;

/// Rounds of Byes.
const FAREWELLS: u8 = 3;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Starts an orderly shutdown: after everything is acknowledged, sends Bye to every contacted peer and lingers for
    /// their Byes.
    pub fn leave(&mut self) {
        if self.leaving == Leaving::No {
            self.leaving = Leaving::Telling { kind: Kind::Bye, rank: 0, round: 0 };
        }
    }

    /// Aborts: sends Abort to every contacted peer, even to those that were sent a Bye, so that none of them waits. No
    /// more data are sent: memory is free as soon as the device has completed the postings.
    pub fn abort(&mut self) {
        if self.leaving != Leaving::No {
            for peer in self.peers.as_mut() {
                peer.unset(TOLD);
            }
        }
        self.leaving = Leaving::Telling { kind: Kind::Abort, rank: 0, round: FAREWELLS - 1 };
    }

    /// Whether only Aborts may still be sent.
    pub(super) const fn gives_up(&self) -> bool {
        matches!(
            self.leaving,
            Leaving::Telling { kind: Kind::Abort, .. } | Leaving::Lingering { kind: Kind::Abort, .. } | Leaving::Gone
        )
    }

    /// Whether [`leave`](Self::leave) or [`abort`](Self::abort) has finished.
    pub fn is_gone(&self) -> bool {
        self.leaving == Leaving::Gone
    }

    /// Whether a Bye or Abort may be sent: a Bye waits until everything is acknowledged.
    pub(super) fn may_tell(&self, kind: Kind) -> bool {
        #[cfg(mutant = "bye_early")]
        let kind = if kind == Kind::Bye { Kind::Abort } else { kind };
        kind != Kind::Bye || self.is_acknowledged()
    }

    /// Builds the next Bye or Abort.
    pub(super) fn transmit_farewell(&mut self, now: Now<S, W, BITS>, head: &mut [u8; HEAD]) -> Option<Transmit> {
        let Leaving::Telling { kind, mut rank, round } = self.leaving else { return None };
        if !self.may_tell(kind) {
            return None;
        }
        let size = self.peers.as_ref().len() as u32;
        let end = rank.saturating_add(STRIDE).min(size);
        while rank < end {
            let to = rank;
            rank = rank.wrapping_add(1);
            let Some(peer) = self.peers.as_ref().get(to as usize) else { break };
            if peer.is_alive() && peer.has(TOUCHED) && !peer.has(TOLD) {
                let mut header = self.header_to(peer);
                header.kind = kind;
                let sender = self.senders.as_ref().get(usize::from(peer.sender()));
                header.psn = sender.map_or(peer.send_next(), |sender| sender.window.next()).get();
                header.emit(head);
                if let Some(peer) = self.peer_mut(to) {
                    peer.set(TOLD);
                }
                self.leaving = Leaving::Telling { kind, rank, round };
                return Some(Transmit {
                    to: PeerId(to),
                    at: Lane::Polled,
                    head: HEADER as u8,
                    payload: None,
                    solicited: false,
                    cause: Cause::Control,
                });
            }
        }
        self.leaving = if rank < size {
            Leaving::Telling { kind, rank, round }
        } else {
            let round = round.wrapping_add(1);
            Leaving::Lingering { kind, until: S::Time::after(now, self.config.granularity.saturating_mul(4)), round }
        };
        None
    }

    /// Ends the linger, or repeats the Byes to peers that did not answer.
    pub(super) fn linger(&mut self, now: Now<S, W, BITS>) {
        let Leaving::Lingering { kind, until, round } = self.leaving else { return };
        if !S::Time::is_due(now, until) {
            return;
        }
        let mut missing = false;
        for peer in self.peers.as_mut() {
            missing |= peer.is_alive() && peer.has(TOLD);
            peer.unset(TOLD);
        }
        self.leaving =
            if missing && round < FAREWELLS { Leaving::Telling { kind, rank: 0, round } } else { Leaving::Gone };
    }

    /// Whether everything that was to be sent is acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        let idle = |sender: &super::Sender<S::Time, W, BITS>| sender.window.is_acknowledged();
        self.windowless.is_empty()
            && self.senders.as_ref().iter().all(|sender| {
                sender.peer == NONE || sender.flags & ORPHAN != 0 || idle(sender) && self.queued(sender.peer).is_none()
            })
    }
}
