//! Hang reports: which ranks this one asks about operations that wait for too long, and how it answers other ranks.

use unisono_core::collective::{FailureCause, CollectiveKind};
use unisono_core::ids::PeerId;
use unisono_shmem::am_header;

use super::Process;
use super::retire::PATIENCE;
use super::steps::living;
use crate::world::collective::table::Outgoing;
use crate::world::watchdog::{Doing, Means, Question, Standing, Stuck, Subject, say};
use unisono_bootstrap::Rank;

impl Process {
    /// Examines the operations that have waited for longer than the threshold, and reports what it finds.
    pub(super) fn watch(&mut self, now: u64) {
        let Some(patience) = self.collectives.watch.patience() else { return };
        let is_late = |stuck: &Stuck| now.saturating_sub(stuck.since) >= patience;
        let shown = self.collectives.watch.shown().iter().filter(|stuck| is_late(stuck)).cloned();
        let stuck: Vec<Stuck> = self.collectives.waited_for().filter(is_late).chain(shown).collect();
        self.collectives.watch.look(now, self.rank, self.size, &stuck);
        self.ask_on(now);
        let is_under_way = |request| self.requests.result(request).is_none();
        while let Some(found) = self.collectives.watch.poll_finding(now, is_under_way) {
            say(self.rank, &found);
        }
    }

    /// Asks each awaited rank once, after a while, whether it is in the same collective: where each takes the other for
    /// the root, neither would send.
    pub(super) fn doubt(&mut self, now: u64) {
        let running = self.collectives.awaited().map(|awaited| (awaited.peer.into(), awaited.subject, awaited.since));
        let shown = self.collectives.watch.shown().iter();
        let shown = shown.filter(|shown| shown.subject.means == Means::Slots);
        let shown = shown.filter_map(|shown| Some((*shown.awaited.first()?, shown.subject, shown.since)));
        let current: Vec<(Rank, Subject, u64)> = running.chain(shown).collect();
        for (rank, subject, since) in &current {
            if now.wrapping_sub(*since) >= PATIENCE && self.collectives.watch.doubts(*rank, *subject, &current) {
                self.put_words(now, (*rank).into(), Question::Of(*subject));
            }
        }
    }

    /// An awaited rank reports its part in a collective.
    fn hear_standing(&mut self, from: PeerId, subject: Subject, standing: Standing) {
        if !subject.is_contradicted(standing) {
            return;
        }
        if subject.means == Means::Slots {
            self.collectives.watch.note_other(from.into(), subject);
        } else if self.collectives.awaited().any(|awaited| awaited.subject == subject && awaited.peer == from) {
            self.collectives.blame(from, subject.communicator(), FailureCause::Disagrees);
        }
    }

    /// Sends the questions of the open inquiries.
    fn ask_on(&mut self, now: u64) {
        while let Some((rank, subject)) = self.collectives.watch.poll_question(now) {
            self.put_words(now, rank.into(), Question::Of(subject));
        }
    }

    /// Answers the questions of other ranks, and continues the inquiries with their answers.
    pub(super) fn answer(&mut self, now: u64) {
        for (from, question) in core::mem::take(&mut self.collectives.watch.heard) {
            match question {
                Question::Of(subject) => {
                    let standing = self.standing(subject);
                    self.put_words(now, from, Question::Answer(subject, standing));
                }
                Question::Answer(subject, standing) => {
                    self.hear_standing(from, subject, standing);
                    self.collectives.watch.handle_answer(now, from.into(), subject, standing);
                }
            }
        }
        self.ask_on(now);
    }

    fn put_words(&mut self, now: u64, to: PeerId, words: Question) {
        let words = words.write();
        if !self.is_near(to) {
            return self.post(now, Outgoing::new(to, &words));
        }
        if living(&mut self.near, to).is_some_and(|neighbour| neighbour.tell([am_header::STEP, 0], &words).is_err()) {
            self.disown(to);
        }
    }

    fn standing(&self, subject: Subject) -> Standing {
        match subject.means {
            Means::Messages => self.collectives.standing(subject),
            Means::Slots | Means::Barrier => {
                let mut shown = self.collectives.watch.shown().iter();
                shown.find(|shown| shown.subject.is_in_place_of(subject)).map(|shown| {
                    if shown.subject == subject {
                        return Standing::entered(shown.awaited.iter().copied());
                    }
                    let (communicator, sequence) = (subject.communicator(), subject.sequence);
                    Standing::Absent(Doing::Collective { verb: shown.verb, communicator, sequence })
                })
            }
        }
        .unwrap_or_else(|| {
            // Other mechanisms number their collectives separately.
            let elsewhere = Standing::Absent(self.doing());
            if subject.is_contradicted(elsewhere) { Standing::Absent(Doing::Nothing) } else { elsewhere }
        })
    }

    /// What a thread of this process waits for.
    fn doing(&self) -> Doing {
        let stuck = self.collectives.watch.shown().last().cloned().or_else(|| self.collectives.waited_for().next());
        let collective = stuck.map(|Stuck { subject, verb, .. }| {
            let (communicator, sequence) = (subject.communicator(), subject.sequence);
            Doing::Collective { verb, communicator, sequence }
        });
        let is_under_way = |request| self.requests.result(request).is_none();
        collective.or_else(|| self.collectives.watch.awaited(is_under_way)).unwrap_or(Doing::Nothing)
    }

    /// Records that a thread waits for a message or an agreement.
    pub(in crate::world) fn note_waiting(&mut self, request: Option<u32>, what: Doing) {
        let now = self.latest;
        self.collectives.watch.note_waiting(now, request, what);
    }

    /// Records that it no longer waits.
    pub(in crate::world) fn note_over(&mut self, request: Option<u32>, what: Doing) {
        self.collectives.watch.note_over(request, what);
    }

    /// Publishes that a thread waits for these ranks in a collective through shared memory.
    pub(in crate::world) fn show_waiting(&mut self, subject: Subject, verb: CollectiveKind, awaited: impl Iterator<Item = Rank>) {
        let now = self.latest;
        self.collectives.watch.show(now, subject, verb, awaited);
    }

    /// Withdraws what [`show_waiting`](Self::show_waiting) published.
    pub(in crate::world) fn hide_waiting(&mut self, subject: Subject) {
        self.collectives.watch.hide(subject);
    }
}
