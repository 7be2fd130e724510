//! An inquiry about one stuck collective: follows the ranks that are waited for to those that are missing.

use core::fmt;
use core::fmt::Write as _;

use unisono_core::collective::CollectiveKind;

use super::wire::{BlockedOn, CollectiveRef, Participation};
use unisono_bootstrap::Rank;

/// A collective that a thread waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::world) struct StuckCollective {
    pub(in crate::world) subject: CollectiveRef,
    pub(in crate::world) verb: CollectiveKind,
    /// When the wait began, in nanoseconds.
    pub(in crate::world) since: u64,
    /// The ranks that it waits for.
    pub(in crate::world) awaited: Vec<Rank>,
}

/// Most ranks that are asked.
const ASKED_MAX: usize = 64;
/// Nanoseconds after which a rank without an answer is taken to be in no call: the progress thread of the hybrid mode
/// wakes sooner.
const ANSWER_TIMEOUT: u64 = 600_000_000;
/// Nanoseconds without a new answer before the finding is reported, so that answers under way arrive.
const QUIET_TIME: u64 = 10_000_000;

/// What is known of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RankState {
    /// It is to be asked.
    Named,
    /// It was asked at this time.
    Asked(u64),
    Answered(Participation),
    /// It did not answer.
    Silent,
}

/// The ranks that were asked, and their answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Inquiry {
    subject: CollectiveRef,
    verb: CollectiveKind,
    since: u64,
    own: Rank,
    size: u32,
    asked: Vec<(Rank, RankState)>,
    /// When the last question or answer was handled.
    latest: u64,
    /// Whether the finding was reported: it is reported once.
    is_over: bool,
}

impl Inquiry {
    pub(super) fn new(stuck: &StuckCollective, own: Rank, size: u32) -> Self {
        let StuckCollective { subject, verb, since, ref awaited } = *stuck;
        let mut inquiry = Self { subject, verb, since, own, size, asked: Vec::new(), latest: since, is_over: false };
        awaited.iter().for_each(|rank| inquiry.add_rank(*rank));
        inquiry
    }

    pub(super) const fn subject(&self) -> CollectiveRef {
        self.subject
    }

    pub(super) fn is_about(&self, subject: CollectiveRef) -> bool {
        self.subject == subject
    }

    fn add_rank(&mut self, rank: Rank) {
        let known = self.asked.iter().any(|(asked, _)| *asked == rank);
        if !known && rank != self.own && rank.0 < self.size && self.asked.len() < ASKED_MAX {
            self.asked.push((rank, RankState::Named));
        }
    }

    /// The next rank to ask.
    pub(super) fn poll(&mut self, now: u64) -> Option<Rank> {
        let (rank, known) = self.asked.iter_mut().find(|(_, known)| *known == RankState::Named)?;
        (*known, self.latest) = (RankState::Asked(now), now);
        Some(*rank)
    }

    /// Handles the answer of a rank that was asked, and ignores others.
    pub(super) fn handle_answer(&mut self, now: u64, from: Rank, participation: Participation) {
        let Some((_, known)) = self.asked.iter_mut().find(|(asked, _)| *asked == from) else { return };
        if !matches!(known, RankState::Asked(_) | RankState::Silent) {
            return;
        }
        (*known, self.latest) = (RankState::Answered(participation), now);
        if let Participation::Entered(awaited) = participation {
            awaited.into_iter().flatten().for_each(|rank| self.add_rank(rank));
        }
    }

    /// The missing ranks, as a line for people, once every rank that was asked has answered or had the time to.
    pub(super) fn poll_finding(&mut self, now: u64) -> Option<String> {
        for (_, known) in &mut self.asked {
            if let RankState::Asked(at) = *known
                && now.saturating_sub(at) >= ANSWER_TIMEOUT
            {
                *known = RankState::Silent;
            }
        }
        let is_open = self.asked.iter().any(|(_, known)| matches!(known, RankState::Named | RankState::Asked(_)));
        if self.is_over || is_open || now.saturating_sub(self.latest) < QUIET_TIME {
            return None;
        }
        let absent = |(rank, known): &(Rank, RankState)| match known {
            RankState::Answered(Participation::Absent(doing)) => Some((*rank, Some(*doing))),
            RankState::Silent => Some((*rank, None)),
            RankState::Named
            | RankState::Asked(_)
            | RankState::Answered(Participation::Entered(_) | Participation::Done) => None,
        };
        let missing: Vec<(Rank, Option<BlockedOn>)> = self.asked.iter().filter_map(absent).collect();
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
                Some(doing @ BlockedOn::Collective { verb, .. })
                    if self.subject.is_contradicted_by(Participation::Absent(doing)) =>
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
        let is_open = self.asked.iter().any(|(_, known)| matches!(known, RankState::Named | RankState::Asked(_)));
        if !self.is_over && !is_open && now.saturating_sub(self.latest) >= patience.max(QUIET_TIME) {
            self.asked.clear();
            self.latest = now;
            awaited.iter().for_each(|rank| self.add_rank(*rank));
        }
    }
}

/// Formats nanoseconds as seconds.
pub(super) fn seconds(ns: u64) -> impl fmt::Display {
    fmt::from_fn(move |to| write!(to, "{}.{} s", ns / 1_000_000_000, ns / 100_000_000 % 10))
}

#[cfg(test)]
mod tests {
    use super::super::wire::Mechanism;
    use super::*;

    const SUBJECT: CollectiveRef = CollectiveRef { mechanism: Mechanism::Messages, context: 5 << 16 | 77, sequence: 3 };

    fn inquiry(awaited: &[u32]) -> Inquiry {
        let awaited = awaited.iter().copied().map(Rank).collect();
        Inquiry::new(
            &StuckCollective { subject: SUBJECT, verb: CollectiveKind::Allreduce, since: 0, awaited },
            Rank(0),
            6,
        )
    }

    fn entered(awaited: &[u32]) -> Participation {
        Participation::entered(awaited.iter().copied().map(Rank))
    }

    /// Asks until no rank is left to ask; `answers` returns a rank's answer, if it gives one.
    fn ask(inquiry: &mut Inquiry, answers: impl Fn(u32) -> Option<Participation>) -> Vec<u32> {
        let mut asked = Vec::new();
        while let Some(rank) = inquiry.poll(1) {
            asked.push(rank.0);
            answers(rank.0).into_iter().for_each(|participation| inquiry.handle_answer(2, rank, participation));
        }
        asked
    }

    #[test]
    fn who_waits_leads_to_who_is_missing() {
        let mut inquiry = inquiry(&[1]);
        let asked = ask(&mut inquiry, |rank| (rank < 3).then(|| entered(&[rank + 1, 0])));
        assert_eq!(asked, [1, 2, 3]);
        assert_eq!(inquiry.poll_finding(ANSWER_TIMEOUT), None, "the last one may still answer");
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
            1 => BlockedOn::Collective { verb: CollectiveKind::Scan, communicator: 0, sequence: 8 },
            _ => BlockedOn::Receive { source: Some(Rank(4)), tag: None },
        };
        ask(&mut inquiry, |rank| {
            Some(if rank == 2 { Participation::Done } else { Participation::Absent(doing(rank)) })
        });
        inquiry.handle_answer(3, Rank(1), Participation::Done);
        inquiry.handle_answer(3, Rank(5), Participation::Absent(BlockedOn::Nothing));
        assert_eq!(inquiry.poll_finding(3), None, "messages under way may end it");
        let found = inquiry.poll_finding(2 * QUIET_TIME).expect("a finding");
        let named = "missing: rank 1 (waits in scan 8 of communicator 0), rank 3 (waits for a message from rank 4)";
        assert!(found.ends_with(named), "{found}");
    }

    #[test]
    fn rank_in_another_collective_is_named_with_it() {
        let mut inquiry = inquiry(&[1, 2]);
        let verbs = [CollectiveKind::Allreduce, CollectiveKind::Barrier];
        let doing = |rank: u32| BlockedOn::Collective { verb: verbs[rank as usize - 1], communicator: 5, sequence: 3 };
        ask(&mut inquiry, |rank| Some(Participation::Absent(doing(rank))));
        let found = inquiry.poll_finding(2 * QUIET_TIME).expect("a finding");
        let named = "rank 1 (calls all_reduce there with another root, length, type or operation), rank 2 (calls barrier there)";
        assert!(found.ends_with(named), "{found}");
    }

    #[test]
    fn where_nobody_is_missing_it_is_asked_again() {
        let mut inquiry = inquiry(&[1]);
        assert_eq!(ask(&mut inquiry, |rank| Some(entered(&[3 - rank]))), [1, 2]);
        assert_eq!(inquiry.poll_finding(QUIET_TIME * 2), None);
        inquiry.repeat(QUIET_TIME * 2, QUIET_TIME * 3, &[Rank(1)]);
        assert_eq!(inquiry.poll(QUIET_TIME * 2), None);
        inquiry.repeat(QUIET_TIME * 4, QUIET_TIME * 3, &[Rank(2)]);
        assert_eq!(inquiry.poll(QUIET_TIME * 4), Some(Rank(2)));
    }

    #[test]
    fn as_many_are_asked_as_there_is_room_for() {
        let awaited = (0..200).map(Rank).collect();
        let stuck = StuckCollective { subject: SUBJECT, verb: CollectiveKind::Reduce, since: 0, awaited };
        assert_eq!(ask(&mut Inquiry::new(&stuck, Rank(0), 300), |_| None).len(), ASKED_MAX);
    }
}
