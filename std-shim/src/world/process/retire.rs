//! Ranks that take no part in collectives any more: who asks is told.
//!
//! A collective that has waited for a rank for a while asks it, once. That rank answers when it has finished, or one of its
//! collectives has failed: at once, or whenever that is. What it said before arrives before.

use unisono_core::collective::Rank as Member;
use unisono_core::device::PeerId;

use super::Process;
use super::steps::living;
use crate::world::collective::table::Outgoing;
use crate::world::near;

/// Kinds of messages that are neither of two ranks nor of steps: who asks is told when this rank takes no part any more.
pub(in crate::world) const ASK: u8 = 32;
pub(in crate::world) const GONE: u8 = 33;
/// Nanoseconds after which the rank that a collective waits for is asked.
const PATIENCE: u64 = 40_000_000;

impl Process {
    /// This rank begins no collective any more.
    pub(in crate::world) fn retire_at_end(&mut self) {
        let now = self.now();
        self.retire(now, Member(self.rank.0));
    }

    /// This rank takes no part in collectives any more: it has finished, or one of them failed, because of that
    /// rank.
    pub(super) fn retire(&mut self, now: u64, cause: Member) {
        if self.collectives.over.is_some() {
            return;
        }
        self.collectives.over = Some(cause);
        for asker in core::mem::take(&mut self.collectives.askers) {
            self.tell_gone(now, asker, cause);
        }
        if !self.is_whole() {
            self.push(now);
        }
    }

    fn tell_gone(&mut self, now: u64, to: PeerId, cause: Member) {
        if self.is_near(to) {
            let told = living(&mut self.near, to).map(|one| one.tell([near::GONE, cause.0], &[]));
            if told.is_some_and(|told| told.is_err()) {
                self.disown(to);
            }
            return;
        }
        let mut outgoing = Outgoing::new(to, &[GONE, 0, 0, 0]);
        outgoing.append(&cause.0.to_le_bytes());
        self.post(now, outgoing);
    }

    /// Asks a rank, once, to tell when it takes no part any more.
    pub(super) fn ask(&mut self, now: u64, to: PeerId) {
        if self.collectives.asked.contains(&to) {
            return;
        }
        self.collectives.asked.push(to);
        if !self.is_near(to) {
            return self.post(now, Outgoing::new(to, &[ASK, 0, 0, 0, 0, 0, 0, 0]));
        }
        if living(&mut self.near, to).is_some_and(|neighbour| neighbour.tell([near::ASK, 0], &[]).is_err()) {
            self.disown(to);
        }
    }

    /// A rank wants to hear when this one takes no part in collectives any more.
    pub(super) fn handle_ask(&mut self, now: u64, from: PeerId) {
        match self.collectives.over {
            Some(cause) => self.tell_gone(now, from, cause),
            None if self.collectives.askers.contains(&from) => {}
            None => self.collectives.askers.push(from),
        }
    }

    /// Asks those that collectives have waited for for a while.
    pub(super) fn tend_collectives(&mut self, now: u64) {
        let late: Vec<PeerId> = self
            .collectives
            .awaited()
            .filter(|(_, since)| now.wrapping_sub(*since) >= PATIENCE)
            .map(|(peer, _)| peer)
            .collect();
        for peer in late {
            self.ask(now, peer);
        }
        self.watch(now);
    }
}
