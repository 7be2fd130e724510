//! Timers: probes, silence, and windows without work.

use super::{Endpoint, Now, Sender, SenderFlags};
use crate::endpoint::operation::Operation;
use crate::endpoint::peer::{Peer, PeerFlags};
use crate::endpoint::storage::Storage;
use crate::ids::PeerId;
use crate::list::NONE;
use crate::time::Time;
use crate::window::rails::{RailChoice, Rails};

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
        if self.acks.has_due() {
            return Some(now);
        }
        let timer = self.wheel.next_tick(S::Time::tick(now)).map(|tick| S::Time::at_tick(now, tick));
        match (timer, self.acks.deadline()) {
            (Some(timer), Some(aging)) if S::Time::is_due(timer, aging) => Some(aging),
            (Some(timer), _) => Some(timer),
            (None, aging) => aging,
        }
    }

    /// Whether nothing has arrived from the peer since the last few probes were sent to it.
    pub fn is_unanswered(&self, peer: PeerId) -> bool {
        let sender = self.peers.as_ref().get(peer.0 as usize).map(|peer| peer.sender());
        let sender = sender.and_then(|sender| self.senders.get(u32::from(sender)));
        sender.is_some_and(|sender| sender.peer == peer.0 && sender.window.unanswered() >= S::Time::MAX_UNANSWERED)
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Now<S, W, BITS>) {
        self.linger(now);
        let tick = S::Time::tick(now);
        for _ in 0..self.senders.len() {
            let expired = self.wheel.expire(self.senders.as_mut_slice(), tick, Sender::timer);
            let Some(sender) = expired else { return };
            self.handle_expired(now, sender);
        }
    }

    fn handle_expired(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let silence = self.config.silence;
        let quiet = self.is_quiet(sender, self.operations.has_window_waiters());
        let has_rails = self.has_rails();
        let Some((record, rails)) = self.senders.with_rails(sender) else { return };
        if record.peer == NONE || record.flags.contains(SenderFlags::ORPHANED) {
            return;
        }
        if record.window.deadline().is_some_and(|deadline| S::Time::is_due(now, deadline)) && quiet {
            self.retire(now, sender);
            return;
        }
        let mut rails = Rails::new(&mut record.path, rails);
        let expired = record.window.handle_timeout(now, &mut rails);
        let died = if has_rails { rails.died() } else { 0 };
        if expired {
            let silent = record.window.unanswered() >= S::Time::MAX_UNANSWERED
                && S::Time::since(now, record.silent_since).is_some_and(|since| since >= silence);
            if silent {
                record.silent_since = S::Time::stamp(now);
                self.senders.report_silent(sender);
            }
            self.make_ready(sender);
        }
        if has_rails {
            self.note_rails(died, None);
        }
        self.schedule(now, sender);
    }

    /// Updates a sender after a change: a window that can send becomes ready, a blocked one probes for credit, an idle
    /// one watches its peer or will be retired.
    pub(super) fn update_sender(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let Some(to) = self.senders.get(sender).map(|record| record.peer) else { return };
        if to == NONE {
            return;
        }
        let choice_of = |first| match self.has_rails() {
            true => self.operations.get(first).map_or(RailChoice::ANY, Operation::rail_choice),
            false => RailChoice::ANY,
        };
        let queued = self.queued(to).map(choice_of);
        let units = self.peers.as_ref().get(to as usize).map_or(self.config.idle, |peer| self.watch_interval(peer));
        let Some((record, rails)) = self.senders.with_rails(sender) else { return };
        let rails = Rails::new(&mut record.path, rails);
        if record.flags.contains(SenderFlags::ORPHANED) {
            if record.window.is_empty() {
                self.free_sender(now, sender);
            }
            return;
        }
        if let Some(choice) = queued {
            record.window.handle_queued(now, &rails, choice);
        } else if record.window.is_acknowledged() {
            record.window.watch(now, units);
        }
        let ready = record.window.has_lost() && !record.window.is_posted()
            || record.window.wants_probe(&rails)
            || queued.is_some_and(|choice| record.window.has_room(&rails, choice));
        if ready {
            self.make_ready(sender);
        }
        self.schedule(now, sender);
    }

    /// How long a window without work waits before it probes its peer, or is retired. Queues that wait for a window
    /// come before watched peers.
    #[inline]
    pub(super) fn watch_interval(&self, peer: &Peer<S::Time, BITS>) -> u32 {
        let watched = !self.operations.has_window_waiters() && peer.has(PeerFlags::WATCHED);
        if watched { self.config.silence >> 2 } else { self.config.idle }
    }

    /// Sets the wheel no later than the window's deadline; a deadline that moved later is noticed when the timer
    /// expires.
    #[inline(never)]
    pub(super) fn schedule(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let Some((record, rails)) = self.senders.with_rails(sender) else { return };
        let rails = Rails::new(&mut record.path, rails);
        let Some(deadline) = record.window.next_deadline(&rails) else { return };
        let tick = S::Time::tick(deadline).wrapping_add(u32::from(S::Time::MAX_BACKOFF > 0));
        let timer = &record.timer;
        if !timer.is_set() || timer.tick().wrapping_sub(tick).wrapping_sub(1) < 1 << 30 {
            self.wheel.set(self.senders.as_mut_slice(), sender, S::Time::tick(now), tick, Sender::timer);
        }
    }
}
