//! An inquiry about one stuck collective: follows the ranks that are waited for to those that are missing.

use core::fmt::Write as _;

use unisono_core::collective::CollectiveKind;

use super::words::{Doing, Standing, Subject};
use super::{Stuck, seconds};
use unisono_bootstrap::Rank;

/// Most ranks that are asked.
const ASKED: usize = 64;
/// Nanoseconds after which a rank without an answer is taken to be in no call: the progress thread of the hybrid mode
/// wakes sooner.
const ANSWER: u64 = 600_000_000;
/// Nanoseconds without a new answer before the finding is reported, so that answers under way arrive.
const SETTLED: u64 = 10_000_000;

/// What is known of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// It is to be asked.
    Named,
    /// It was asked at this time.
    Asked(u64),
    Stands(Standing),
    /// It did not answer.
    Mute,
}

/// The ranks that were asked, and their answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Inquiry {
    subject: Subject,
    verb: CollectiveKind,
    since: u64,
    own: Rank,
    size: u32,
    asked: Vec<(Rank, Known)>,
    /// When the last question or answer was handled.
    latest: u64,
    /// Whether the finding was reported: it is reported once.
    is_over: bool,
}

impl Inquiry {
    pub(super) fn new(stuck: &Stuck, own: Rank, size: u32) -> Self {
        let Stuck { subject, verb, since, ref awaited } = *stuck;
        let mut inquiry = Self { subject, verb, since, own, size, asked: Vec::new(), latest: since, is_over: false };
        awaited.iter().for_each(|rank| inquiry.name(*rank));
        inquiry
    }

    pub(super) const fn subject(&self) -> Subject {
        self.subject
    }

    pub(super) fn is_about(&self, subject: Subject) -> bool {
        self.subject == subject
    }

    fn name(&mut self, rank: Rank) {
        let known = self.asked.iter().any(|(asked, _)| *asked == rank);
        if !known && rank != self.own && rank.0 < self.size && self.asked.len() < ASKED {
            self.asked.push((rank, Known::Named));
        }
    }

    /// The next rank to ask.
    pub(super) fn poll(&mut self, now: u64) -> Option<Rank> {
        let (rank, known) = self.asked.iter_mut().find(|(_, known)| *known == Known::Named)?;
        (*known, self.latest) = (Known::Asked(now), now);
        Some(*rank)
    }

    /// Handles the answer of a rank that was asked, and ignores others.
    pub(super) fn handle_answer(&mut self, now: u64, from: Rank, standing: Standing) {
        let Some((_, known)) = self.asked.iter_mut().find(|(asked, _)| *asked == from) else { return };
        if !matches!(known, Known::Asked(_) | Known::Mute) {
            return;
        }
        (*known, self.latest) = (Known::Stands(standing), now);
        if let Standing::Entered(awaited) = standing {
            awaited.into_iter().flatten().for_each(|rank| self.name(rank));
        }
    }

    /// The missing ranks, as a line for people, once every rank that was asked has answered or had the time to.
    pub(super) fn poll_finding(&mut self, now: u64) -> Option<String> {
        for (_, known) in &mut self.asked {
            if let Known::Asked(at) = *known
                && now.saturating_sub(at) >= ANSWER
            {
                *known = Known::Mute;
            }
        }
        let is_open = self.asked.iter().any(|(_, known)| matches!(known, Known::Named | Known::Asked(_)));
        if self.is_over || is_open || now.saturating_sub(self.latest) < SETTLED {
            return None;
        }
        let absent = |(rank, known): &(Rank, Known)| match known {
            Known::Stands(Standing::Absent(doing)) => Some((*rank, Some(*doing))),
            Known::Mute => Some((*rank, None)),
            Known::Named | Known::Asked(_) | Known::Stands(Standing::Entered(_) | Standing::Done) => None,
        };
        let missing: Vec<(Rank, Option<Doing>)> = self.asked.iter().filter_map(absent).collect();
        if missing.is_empty() {
            return None;
        }
        self.is_over = true;
        let mut line = format!(
            "waits in {} {} of communicator {} since {}; missing: ",
            self.verb.name(),
            self.subject.sequence,
            self.subject.communicator(),
            seconds(now.saturating_sub(self.since)),
        );
        for (n, (rank, doing)) in missing.into_iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            let _ = match doing {
                Some(doing @ Doing::Collective { verb, .. })
                    if self.subject.is_contradicted(Standing::Absent(doing)) =>
                {
                    let with = if verb == self.verb { " with another root, length, type or operation" } else { "" };
                    write!(line, "{comma}rank {rank} (calls {} there{with})", verb.name())
                }
                Some(doing) => write!(line, "{comma}rank {rank} ({doing})"),
                None => write!(line, "{comma}rank {rank} (does not answer)"),
            };
        }
        Some(line)
    }

    /// Starts over when no rank was missing and the collective is still stuck: asks all ranks again.
    pub(super) fn repeat(&mut self, now: u64, patience: u64, awaited: &[Rank]) {
        let is_open = self.asked.iter().any(|(_, known)| matches!(known, Known::Named | Known::Asked(_)));
        if !self.is_over && !is_open && now.saturating_sub(self.latest) >= patience.max(SETTLED) {
            self.asked.clear();
            self.latest = now;
            awaited.iter().for_each(|rank| self.name(*rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::Means;
    use super::*;

    const SUBJECT: Subject = Subject { means: Means::Messages, context: 5 << 16 | 77, sequence: 3 };

    fn inquiry(awaited: &[u32]) -> Inquiry {
        let awaited = awaited.iter().copied().map(Rank).collect();
        Inquiry::new(&Stuck { subject: SUBJECT, verb: CollectiveKind::Allreduce, since: 0, awaited }, Rank(0), 6)
    }

    fn entered(awaited: &[u32]) -> Standing {
        Standing::entered(awaited.iter().copied().map(Rank))
    }

    /// Asks until no rank is left to ask; `answers` returns a rank's answer, if it gives one.
    fn ask(inquiry: &mut Inquiry, answers: impl Fn(u32) -> Option<Standing>) -> Vec<u32> {
        let mut asked = Vec::new();
        while let Some(rank) = inquiry.poll(1) {
            asked.push(rank.0);
            answers(rank.0).into_iter().for_each(|standing| inquiry.handle_answer(2, rank, standing));
        }
        asked
    }

    #[test]
    fn who_waits_leads_to_who_is_missing() {
        let mut inquiry = inquiry(&[1]);
        let asked = ask(&mut inquiry, |rank| (rank < 3).then(|| entered(&[rank + 1, 0])));
        assert_eq!(asked, [1, 2, 3]);
        assert_eq!(inquiry.poll_finding(ANSWER), None, "the last one may still answer");
        let found = "waits in all_reduce 3 of communicator 5 since 1.5 s; missing: rank 3 (does not answer)";
        assert_eq!(inquiry.poll_finding(1_500_000_000).as_deref(), Some(found));
        assert_eq!(inquiry.poll_finding(3_000_000_000), None, "reported once");
        inquiry.repeat(u64::MAX, 1, &[Rank(1)]);
        assert_eq!(inquiry.poll(u64::MAX), None);
    }

    #[test]
    fn all_who_are_missing_are_named_with_what_they_do() {
        let mut inquiry = inquiry(&[1, 2, 3, 1, 9]);
        let doing = |rank| match rank {
            1 => Doing::Collective { verb: CollectiveKind::Scan, communicator: 0, sequence: 8 },
            _ => Doing::Receive { source: Some(Rank(4)), tag: None },
        };
        ask(&mut inquiry, |rank| Some(if rank == 2 { Standing::Done } else { Standing::Absent(doing(rank)) }));
        inquiry.handle_answer(3, Rank(1), Standing::Done);
        inquiry.handle_answer(3, Rank(5), Standing::Absent(Doing::Nothing));
        assert_eq!(inquiry.poll_finding(3), None, "messages under way may end it");
        let found = inquiry.poll_finding(2 * SETTLED).expect("a finding");
        let named = "missing: rank 1 (waits in scan 8 of communicator 0), rank 3 (waits for a message from rank 4)";
        assert!(found.ends_with(named), "{found}");
    }

    #[test]
    fn who_calls_something_else_instead_is_told_apart() {
        let mut inquiry = inquiry(&[1, 2]);
        let verbs = [CollectiveKind::Allreduce, CollectiveKind::Barrier];
        let doing = |rank: u32| Doing::Collective { verb: verbs[rank as usize - 1], communicator: 5, sequence: 3 };
        ask(&mut inquiry, |rank| Some(Standing::Absent(doing(rank))));
        let found = inquiry.poll_finding(2 * SETTLED).expect("a finding");
        let named = "rank 1 (calls all_reduce there with another root, length, type or operation), rank 2 (calls barrier there)";
        assert!(found.ends_with(named), "{found}");
    }

    #[test]
    fn where_nobody_is_missing_it_is_asked_again() {
        let mut inquiry = inquiry(&[1]);
        assert_eq!(ask(&mut inquiry, |rank| Some(entered(&[3 - rank]))), [1, 2]);
        assert_eq!(inquiry.poll_finding(SETTLED * 2), None);
        inquiry.repeat(SETTLED * 2, SETTLED * 3, &[Rank(1)]);
        assert_eq!(inquiry.poll(SETTLED * 2), None);
        inquiry.repeat(SETTLED * 4, SETTLED * 3, &[Rank(2)]);
        assert_eq!(inquiry.poll(SETTLED * 4), Some(Rank(2)));
    }

    #[test]
    fn as_many_are_asked_as_there_is_room_for() {
        let awaited = (0..200).map(Rank).collect();
        let stuck = Stuck { subject: SUBJECT, verb: CollectiveKind::Reduce, since: 0, awaited };
        assert_eq!(ask(&mut Inquiry::new(&stuck, Rank(0), 300), |_| None).len(), ASKED);
    }
}
