//! Silent rails, and which of them are dead.
//!
//! A rail whose timer expires may be dead. But it may also be slow, its probe may be lost, or the peer's process may
//! wait for a processor. Therefore it is probed together with the others: first the silent rail, then, at the same
//! moment, each living one. When the peer answers over another rail only, and the silent one had twice as long as that
//! took, a second such pair follows. When the peer answers that over the other rail only, too, the silent one is dead
//! after a timeout since its second probe, after it had twice as long as the other took, and when what it has not
//! answered is twice as old as the longest answer of late over any rail, or as the delay that the loads and congestion
//! control allow. An answer over it, or an acknowledgement of a segment that it carried, ends its silence. While no rail
//! answers, the peer is silent, and no rail dies.
//!
//! What a rail carried moves at most three timeouts after it was cut if the others answer within a third of one, or when
//! twice the allowed delay is over, if that is longer: a timeout until it is silent, the first pair, a timeout since the
//! second, and a probe for what has arrived.

use super::state::{Standing, pairs};
use super::{RailLoad, RailMask, Rails, bit};
use crate::ids::Rail;
use crate::time::Time;

/// What a rail does not answer is this number of times as old as the longest answer of late before the rail is dead:
/// queues of other peers, which grow and shrink faster than a round trip is smoothed, make rails differ by more than a
/// timeout.
const PATIENCE: u32 = 2;

impl<T: Time> Rails<'_, T> {
    /// Handles the timers that are due. Returns whether any was.
    pub(in crate::window) fn handle_timeout(&mut self, now: T::Instant) -> bool {
        let mut is_due = false;
        for rail in self.all() {
            let others_live = self.dead() | bit(rail) != bit(Rail(self.states.len() as u8)).wrapping_sub(1);
            let Some(state) = self.get_mut(rail) else { break };
            if !state.timer.expire(now) {
                continue;
            }
            is_due = true;
            let was_silent = state.is_silent();
            let is_missing = |missed| missed >= pairs() || mutant!("rail_death_unpaired");
            let silence = T::since(now, state.silent_since).unwrap_or(u32::MAX);
            match state.standing {
                Standing::Dead | Standing::Unproven if state.in_flight == 0 => {}
                Standing::Dead | Standing::Unproven => self.handle_death(rail),
                Standing::Silent { missed, .. } if others_live && is_missing(missed) && state.is_judged() => {
                    let patience = self.patience();
                    if silence < patience {
                        self.wait(now, rail, patience.wrapping_sub(silence));
                    } else if !mutant!("rail_death_ignored") {
                        self.handle_death(rail);
                    }
                }
                Standing::Silent { .. } | Standing::Alive => self.handle_silence(now, rail),
            }
            // Segments have left the queues of a dead rail, or of a silent one by now: other peers need not wait for them.
            if self.dead() & bit(rail) != 0 || was_silent && silence >= self.patience() {
                self.unload(rail, u16::MAX);
            }
        }
        is_due
    }

    /// Units for which a rail has to be silent before it is dead. Answers may take as long as a full rail, and as
    /// congestion control, allow.
    fn patience(&self) -> u32 {
        let answers = self.states.iter().map(|state| state.longest.max(state.path.parameters.control.target()));
        let longest = answers.chain(self.loads.iter().map(RailLoad::full_round_trip)).max();
        longest.unwrap_or(0).saturating_mul(PATIENCE)
    }

    /// A rail that may be dead is given more time.
    fn wait(&mut self, now: T::Instant, rail: Rail, units: u32) {
        if let Some(state) = self.get_mut(rail) {
            state.timer.arm(now, units);
        }
    }

    /// A rail is silent: the living ones are probed with it, but for those whose unanswered probe already serves.
    fn handle_silence(&mut self, now: T::Instant, rail: Rail) {
        for (i, state) in self.states.iter_mut().enumerate() {
            let serves = state.timer.unanswered() > 0 && state.paired & bit(rail) != 0;
            if i == usize::from(rail.0) {
                state.begin_pair(now);
            } else if !state.is_dead() && !serves {
                state.timer.request_probe();
            }
        }
    }

    /// The latest probe over the rail was answered after `units`. It was the second one of the pairs of the rails
    /// `paired`; other silent rails are probed together with this one.
    pub(super) fn handle_missed_pairs(&mut self, now: T::Instant, rail: Rail, paired: RailMask, units: u32) {
        let mut missed = 0;
        let mut needs_probe = false;
        for (i, state) in self.states.iter_mut().enumerate() {
            let other = bit(Rail(i as u8));
            if other == bit(rail) {
                continue;
            }
            if paired & other != 0 || mutant!("pair_unordered") {
                missed |= other;
                state.handle_missed_pair(now, units);
            } else {
                needs_probe |= state.may_miss_pair();
            }
        }
        self.forget_pairs(missed);
        if needs_probe {
            self.request_probe(Some(rail));
        }
    }

    /// Silent rails whose probe of the next pair has left.
    pub(super) fn open_pairs(&self) -> RailMask {
        let open = self.numbered().filter(|(_, state)| state.may_miss_pair());
        open.fold(0, |mask, (rail, _)| mask | bit(rail))
    }

    /// Unanswered probes no longer are the second ones of these rails' pairs.
    pub(super) fn forget_pairs(&mut self, of: RailMask) {
        for state in self.states.iter_mut() {
            state.paired &= !of;
        }
    }
}
