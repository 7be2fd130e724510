//! What is stuck for too long: whom this rank asks, and what it answers itself.

use unisono_core::collective::Verb;
use unisono_core::device::PeerId;
use unisono_shmem::note;

use super::Process;
use super::steps::living;
use crate::rank::Rank;
use crate::world::collective::table::Outgoing;
use crate::world::watchdog::{Doing, Means, Question, Standing, Stuck, Subject, say};

impl Process {
    /// Looks into what has waited for too long.
    pub(super) fn watch(&mut self, now: u64) {
        let Some(patience) = self.collectives.watch.patience() else { return };
        let is_late = |stuck: &Stuck| now.saturating_sub(stuck.since) >= patience;
        let shown = self.collectives.watch.shown().iter().filter(|stuck| is_late(stuck)).cloned();
        let stuck: Vec<Stuck> = self.collectives.waited_for().filter(is_late).chain(shown).collect();
        self.collectives.watch.look(now, self.rank, self.size, &stuck);
        self.ask_on(now);
        while let Some(found) = self.collectives.watch.poll_finding(now) {
            say(self.rank, &found);
        }
    }

    /// Asks whoever is to be asked.
    fn ask_on(&mut self, now: u64) {
        while let Some((rank, subject)) = self.collectives.watch.poll_question(now) {
            self.put_words(now, rank.into(), Question::Of(subject));
        }
    }

    /// Answers what others ask, and goes on asking.
    pub(super) fn answer(&mut self, now: u64) {
        for (from, question) in core::mem::take(&mut self.collectives.watch.heard) {
            match question {
                Question::Of(subject) => {
                    let standing = self.standing(subject);
                    self.put_words(now, from, Question::Answer(subject, standing));
                }
                Question::Answer(subject, standing) => {
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
        if living(&mut self.near, to).is_some_and(|neighbour| neighbour.tell([note::STEP, 0], &words).is_err()) {
            self.disown(to);
        }
    }

    fn standing(&self, subject: Subject) -> Standing {
        match subject.means {
            Means::Messages => self.collectives.standing(subject),
            Means::Slots | Means::Barrier => {
                let shown = self.collectives.watch.shown().iter().find(|shown| shown.subject == subject);
                shown.map(|shown| Standing::entered(shown.awaited.iter().copied()))
            }
        }
        .unwrap_or_else(|| Standing::Absent(self.doing()))
    }

    /// What a thread of this process waits for.
    fn doing(&self) -> Doing {
        let stuck = self.collectives.watch.shown().last().cloned().or_else(|| self.collectives.waited_for().next());
        let collective = stuck.map(|Stuck { subject, verb, .. }| {
            let (communicator, sequence) = (subject.communicator(), subject.sequence);
            Doing::Collective { verb, communicator, sequence }
        });
        collective.or_else(|| self.collectives.watch.awaited_message()).unwrap_or(Doing::Nothing)
    }

    /// A thread waits for a message.
    pub(in crate::world) fn note_waiting(&mut self, request: u32, what: Doing) {
        let now = self.latest;
        self.collectives.watch.note_waiting(now, request, what);
    }

    /// It waits for it no more.
    pub(in crate::world) fn note_over(&mut self, request: u32) {
        self.collectives.watch.note_over(request);
    }

    /// A thread waits in a collective through shared memory, for these ranks.
    pub(in crate::world) fn show_waiting(&mut self, subject: Subject, verb: Verb, awaited: impl Iterator<Item = Rank>) {
        let now = self.latest;
        self.collectives.watch.show(now, subject, verb, awaited);
    }

    /// It waits there no more.
    pub(in crate::world) fn hide_waiting(&mut self, subject: Subject) {
        self.collectives.watch.hide(subject);
    }
}
