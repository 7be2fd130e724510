//! Timers: probes, silence, and windows without work.

use super::{Endpoint, Now, ORPHANED, SILENT, Sender};
use crate::endpoint::peer::{Peer, WATCHED};
use crate::endpoint::storage::Storage;
use crate::ids::PeerId;
use crate::list::NONE;
use crate::time::Time;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// The latest time at which [`handle_timeout`](Self::handle_timeout) has to be called. Until then the caller may
    /// sleep, or wait for an interrupt.
    pub fn poll_timeout(&self, now: Now<S, W, BITS>) -> Option<Now<S, W, BITS>> {
        match self.shutdown {
            super::Shutdown::Lingering { until, .. } => return Some(until),
            // A call examines only a few ranks.
            super::Shutdown::SendingBye { kind, .. } if self.may_send_bye(kind) => return Some(now),
            _ => {}
        }
        // Due acknowledgements wait for the next call only.
        if !self.acks_due.is_empty() {
            return Some(now);
        }
        let timer = self.wheel.next_tick(S::Time::tick(now)).map(|tick| S::Time::at_tick(now, tick));
        match (timer, self.delayed_until) {
            (Some(timer), Some(aging)) if S::Time::is_due(timer, aging) => Some(aging),
            (Some(timer), _) => Some(timer),
            (None, aging) => aging,
        }
    }

    /// Whether nothing has arrived from the peer since the last few probes were sent to it.
    pub fn is_unanswered(&self, peer: PeerId) -> bool {
        let sender = self.peers.as_ref().get(peer.0 as usize).map(|peer| peer.sender());
        let sender = sender.and_then(|sender| self.senders.as_ref().get(usize::from(sender)));
        sender.is_some_and(|sender| sender.peer == peer.0 && sender.window.unanswered() >= S::Time::MAX_UNANSWERED)
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Now<S, W, BITS>) {
        self.linger(now);
        let tick = S::Time::tick(now);
        for _ in 0..self.senders.as_ref().len() {
            let expired = self.wheel.expire(self.senders.as_mut(), tick, Sender::timer);
            let Some(sender) = expired else { return };
            self.handle_expired(now, sender);
        }
    }

    fn handle_expired(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let silence = self.config.silence;
        let quiet = self.is_quiet(sender, !self.window_waiters.is_empty());
        let Some(record) = self.senders.as_mut().get_mut(sender as usize) else { return };
        if record.peer == NONE || record.flags & ORPHANED != 0 {
            return;
        }
        if record.window.deadline().is_some_and(|deadline| S::Time::is_due(now, deadline)) && quiet {
            self.retire(now, sender);
            return;
        }
        let mut rails = super::rails::of(&mut record.path, self.rails.as_mut(), self.links.count(), sender);
        let expired = record.window.handle_timeout(now, &mut rails);
        self.links.note(|| rails.dead(), None);
        if expired {
            let silent = record.window.unanswered() >= S::Time::MAX_UNANSWERED
                && S::Time::since(now, record.silent_since).is_some_and(|since| since >= silence);
            if silent {
                record.silent_since = S::Time::stamp(now);
            }
            if silent && record.flags & SILENT == 0 {
                record.flags |= SILENT;
                self.silent.push(self.senders.as_mut(), sender, |sender| &mut sender.event_link);
            }
            self.make_ready(sender);
        }
        self.schedule(now, sender);
    }

    /// Updates a sender after a change: a window that can send becomes ready, a blocked one probes for credit, an idle
    /// one watches its peer or will be retired.
    pub(super) fn update_sender(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let Some(to) = self.senders.as_ref().get(sender as usize).map(|record| record.peer) else { return };
        if to == NONE {
            return;
        }
        let queued = self.queued(to).is_some();
        let units = self.peers.as_ref().get(to as usize).map_or(self.config.idle, |peer| self.watch_interval(peer));
        let Some(record) = self.senders.as_mut().get_mut(sender as usize) else { return };
        let rails = super::rails::of(&mut record.path, self.rails.as_mut(), self.links.count(), sender);
        if record.flags & ORPHANED != 0 {
            if record.window.is_empty() {
                self.free_sender(now, sender);
            }
            return;
        }
        if queued {
            record.window.handle_queued(now, &rails);
        } else if record.window.is_acknowledged() {
            record.window.watch(now, units);
        }
        let ready = record.window.has_lost() && !record.window.is_posted()
            || record.window.wants_probe(&rails)
            || queued && record.window.has_room(&rails);
        if ready {
            self.make_ready(sender);
        }
        self.schedule(now, sender);
    }

    /// How long a window without work waits before it probes its peer, or is retired. Queues that wait for a window
    /// come before watched peers.
    #[inline]
    pub(super) fn watch_interval(&self, peer: &Peer<S::Time, BITS>) -> u32 {
        let watched = self.window_waiters.is_empty() && peer.has(WATCHED);
        if watched { self.config.silence >> 2 } else { self.config.idle }
    }

    /// Sets the wheel no later than the window's deadline; a deadline that moved later is noticed when the timer
    /// expires.
    #[inline(never)]
    pub(super) fn schedule(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let senders = self.senders.as_mut();
        let Some(record) = senders.get_mut(sender as usize) else { return };
        let rails = super::rails::of(&mut record.path, self.rails.as_mut(), self.links.count(), sender);
        let Some(deadline) = record.window.next_deadline(&rails) else { return };
        let tick = S::Time::tick(deadline).wrapping_add(u32::from(S::Time::MAX_BACKOFF > 0));
        let timer = &record.timer;
        if !timer.is_set() || timer.tick().wrapping_sub(tick).wrapping_sub(1) < 1 << 30 {
            self.wheel.set(senders, sender, S::Time::tick(now), tick, Sender::timer);
        }
    }
}
