//! The pool of send windows: which peer gets one, and which returns one.

use super::{ControlMessage, Endpoint, Now, SenderFlags};
use crate::endpoint::peer::{NO_WINDOW, PeerFlags};
use crate::endpoint::storage::Storage;
use crate::ids::PeerId;
use crate::list::NONE;
use crate::time::Time;
use crate::window::rails::Rails;
use crate::wire::{DatagramKind, Flags};

/// Windows examined in one search for an idle one.
const STRIDE: u32 = 64;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Starts or stops watching for the peer's silence. Returns false if no send window is free for it: call again.
    /// Where peers outnumber windows, call from time to time in any case: sends take windows from watched peers that
    /// answer, and watched peers share the rest: four times in the configured silence each gets one and is probed at
    /// once.
    pub fn watch(&mut self, now: Now<S, W, BITS>, peer: PeerId, on: bool) -> bool {
        let Some(record) = self.peers.as_mut().get_mut(peer.0 as usize).filter(|peer| peer.is_alive()) else {
            return true;
        };
        if !on {
            record.unset(PeerFlags::WATCHED);
            return true;
        }
        if S::Time::since(now, self.senders.watch_epoch_since).is_some_and(|since| since >= self.config.silence >> 2) {
            self.senders.watch_epoch_since = S::Time::stamp(now);
            self.senders.watch_epoch = !self.senders.watch_epoch;
        }
        let asked = record.has(PeerFlags::WATCHED) && record.has(PeerFlags::WATCH_EPOCH) == self.senders.watch_epoch;
        record.set(PeerFlags::WATCHED | PeerFlags::CONTACTED);
        let mut sender = u32::from(record.sender());
        if sender == u32::from(NO_WINDOW) {
            let scarce = !self.senders.has_free();
            if scarce && asked {
                return true;
            }
            let Some(taken) = self.take_sender(now, peer.0, true) else { return false };
            sender = taken;
            if scarce && let Some((record, rails)) = self.senders.with_rails(taken) {
                let mut rails = Rails::new(&mut record.path, rails);
                record.window.probe_now(now, &rails);
                rails.request_probe(None);
                let epoch = self.senders.watch_epoch;
                if let Some(peer) = self.peer_mut(peer.0) {
                    peer.unset(PeerFlags::WATCH_EPOCH);
                    if epoch {
                        peer.set(PeerFlags::WATCH_EPOCH);
                    }
                }
            }
        }
        self.update_sender(now, sender);
        true
    }

    /// Takes a send window for the peer: a free one, an idle one, or, if `watching`, one that watches a peer that
    /// answers.
    pub(super) fn take_sender(&mut self, now: Now<S, W, BITS>, to: u32, watching: bool) -> Option<u32> {
        let i = match self.senders.take() {
            Some(i) => i,
            None => {
                self.retire_some(now, watching);
                self.senders.take()?
            }
        };
        let parameters = self.path_parameters();
        let peer = self.peers.as_mut().get_mut(to as usize)?;
        let (record, rails) = self.senders.with_rails(i)?;
        record.window.set_first_psn(peer.send_next());
        record.path.parameters = parameters;
        Rails::new(&mut record.path, rails).start(parameters, self.links.unproven());
        record.peer = to;
        record.ack_requested = S::Time::stamp(now);
        record.silent_since = record.ack_requested;
        peer.set_sender(i as u16);
        Some(i)
    }

    /// Examines a few windows and retires one that is idle.
    pub(super) fn retire_some(&mut self, now: Now<S, W, BITS>, watching: bool) {
        for _ in 0..STRIDE.min(self.senders.len()) {
            let sender = self.senders.advance_clock_hand();
            if self.is_quiet(sender, watching) {
                self.retire(now, sender);
                return;
            }
        }
    }

    /// Whether the window has no work and its peer is not watched, or, if `watching`, answers.
    pub(super) fn is_quiet(&self, sender: u32, watching: bool) -> bool {
        let Some(record) = self.senders.get(sender) else { return false };
        record.peer != NONE
            && !record.flags.intersects(SenderFlags::READY | SenderFlags::ORPHANED)
            && record.window.is_empty()
            && !record.window.has_invalid_acks()
            && self.queued(record.peer).is_none()
            && (watching && record.window.unanswered() == 0
                || self.peers.as_ref().get(record.peer as usize).is_some_and(|peer| !peer.has(PeerFlags::WATCHED)))
    }

    /// Returns an idle window to the pool, and the rest of its credit to the peer.
    pub(super) fn retire(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let Some(record) = self.senders.get(sender) else { return };
        let (to, admitted, next) = (record.peer, record.window.is_admitted(), record.window.next());
        let Some(peer) = self.peer_mut(to) else { return };
        peer.release_sender(next);
        let expected = peer.incarnation;
        if admitted {
            let (kind, flags) = (DatagramKind::Acknowledge, Flags::DRAINED);
            self.control.push(ControlMessage { to, kind, flags, expected, psn: next.get(), ..ControlMessage::FREE });
        }
        self.free_sender(now, sender);
    }

    pub(super) fn free_sender(&mut self, now: Now<S, W, BITS>, sender: u32) {
        if self.senders.free_one(sender, &mut self.wheel) {
            self.serve_window_waiters(now);
        }
    }

    /// Whether a pool of windows is empty, so that another peer would have to wait. A host that can adds windows.
    pub const fn lacks_windows(&self) -> bool {
        !self.senders.has_free() || !self.receivers.has_free()
    }

    /// Adds windows: the closure appends unused records to the pools, whose records stay in place, with those of the
    /// senders' rails. Queues that wait for a window get one.
    pub fn add_windows(
        &mut self,
        now: Now<S, W, BITS>,
        add: impl FnOnce(&mut S::Senders, &mut S::Rails, &mut S::Receivers),
    ) {
        self.senders.grow(|senders, rails| self.receivers.grow(|receivers| add(senders, rails, receivers)));
        while self.operations.has_window_waiters() && self.senders.has_free() {
            self.serve_window_waiters(now);
        }
    }

    /// Gives a free window to the first queue that waits for one.
    fn serve_window_waiters(&mut self, now: Now<S, W, BITS>) {
        if let Some(first) = self.operations.pop_window_waiter() {
            let to = self.operations.get(first).map_or(NONE, |operation| operation.peer.0);
            if let Some(peer) = self.peer_mut(to) {
                peer.unset(PeerFlags::WINDOW_WAIT);
            }
            if let Some(sender) = self.take_sender(now, to, false) {
                self.make_ready(sender);
            }
        }
    }
}
