//! Ranks that report that they are blocked, and the two rounds that show which of them are stuck.
//!
//! A rank reports its waits after some time without progress, and again from time to time. When the reports leave ranks
//! that can never continue, each of these is asked to report once more. If all of them do, with the same progress and
//! nothing in flight, they were all blocked at the moment between the two rounds, and no message was under way to any of
//! them: they are stuck. They are reported once.

use super::{Effect, MemberState, MembershipState, ServerReport};
use crate::{
    agreement::RankRanges,
    membership_state::report::StuckRank,
    message::ServerMessage,
    rank::Rank,
    stuck::{Conditions, stuck_ranks},
    waits::{CONDITIONS_MAX, Wait, WaitCondition, WaitReport},
};
use alloc::collections::{BTreeMap, BTreeSet};

/// The reports of blocked ranks, and the round of confirmation under way.
#[derive(Debug, Default)]
pub(super) struct BlockedRanks {
    reports: BTreeMap<Rank, WaitReport>,
    /// The number of the last round.
    round: u32,
    /// The ranks of the round, and whether each has answered. Empty: no round is under way.
    confirmed: BTreeMap<Rank, bool>,
    /// Ranks that were reported as stuck.
    reported: BTreeSet<Rank>,
}

impl BlockedRanks {
    /// The rank continues, ends or starts anew.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.reports.remove(&rank);
        self.reported.remove(&rank);
        if self.confirmed.contains_key(&rank) {
            self.confirmed.clear();
        }
    }
}

impl MembershipState {
    /// A rank reports its waits.
    pub(crate) fn handle_waits(&mut self, rank: Rank, report: WaitReport) {
        if !matches!(self.member(rank), Some(MemberState::Joined { .. })) || report.waits.is_empty() {
            return self.blocked.forget(rank);
        }
        let (round, progress, is_settled) = (report.round, report.progress, !report.in_flight);
        let before = self.blocked.reports.insert(rank, report);
        let is_same = before.as_ref().is_some_and(|before| before.progress == progress);
        let is_unchanged = is_same && is_settled && before.is_some_and(|before| !before.in_flight);
        // A rank that only asks for what a multicast may have lost is where it was.
        if !is_same {
            self.blocked.reported.remove(&rank);
        }
        let (answers, is_idle) = (round == self.blocked.round, self.blocked.confirmed.is_empty());
        match self.blocked.confirmed.get_mut(&rank) {
            Some(has_answered) if answers && is_unchanged => {
                *has_answered = true;
                if self.blocked.confirmed.values().all(|answered| *answered) {
                    self.conclude();
                }
            }
            // It makes progress, or another rank has not answered for the time between two reports.
            Some(has_answered) if *has_answered || !is_unchanged => {
                self.blocked.confirmed.clear();
                self.start_confirmation();
            }
            Some(_) => {}
            None if is_idle => self.start_confirmation(),
            None => {}
        }
    }

    /// Asks the ranks that seem to be stuck to report again, if any of them was not reported yet.
    fn start_confirmation(&mut self) {
        let stuck = self.stuck_among(|_, report| !report.in_flight);
        if stuck.iter().all(|rank| self.blocked.reported.contains(rank)) {
            return;
        }
        self.blocked.round = self.blocked.round.wrapping_add(1).max(1);
        let links = stuck.iter().filter_map(|rank| match self.member(*rank) {
            Some(MemberState::Joined { link: Some(link), .. }) => Some(*link),
            _ => None,
        });
        let request = ServerMessage::ConfirmWaits(self.blocked.round);
        let requests: Vec<Effect> = links.map(|link| Effect::Send(link, request.clone())).collect();
        self.effects.extend(requests);
        self.blocked.confirmed = stuck.into_iter().map(|rank| (rank, false)).collect();
    }

    /// All ranks of the round have confirmed: reports those that are stuck.
    fn conclude(&mut self) {
        let confirmed = core::mem::take(&mut self.blocked.confirmed);
        let mut stuck = self.stuck_among(|rank, _| confirmed.contains_key(rank));
        stuck.retain(|rank| self.blocked.reported.insert(*rank));
        if stuck.is_empty() {
            return;
        }
        let describe = |rank: Rank| {
            let waits = self.blocked.reports.get(&rank).into_iter().flat_map(|report| &report.waits);
            let waits = waits.map(|wait| wait.what.clone()).filter(|what| !what.is_empty()).collect();
            StuckRank { rank, waits }
        };
        let stuck = stuck.into_iter().map(describe).collect();
        self.effects.push_back(Effect::Report(ServerReport::Stuck(stuck)));
    }

    /// The ranks that are stuck if these reports hold, and every other rank acts.
    fn stuck_among(&self, counts: impl Fn(&Rank, &WaitReport) -> bool) -> Vec<Rank> {
        let size = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let reports = self.blocked.reports.iter().filter(|(rank, report)| counts(rank, report));
        let blocked =
            reports.map(|(rank, report)| (*rank, report.waits.iter().map(|wait| self.conditions(wait)).collect()));
        stuck_ranks(size, &blocked.collect(), |rank| self.has_ended(rank))
    }

    /// Whether a rank takes no more part: it has finished, left or failed.
    fn has_ended(&self, rank: Rank) -> bool {
        let state = self.member(rank);
        matches!(state, Some(MemberState::Finished { .. } | MemberState::Left { .. } | MemberState::Ended { .. }))
    }

    /// The ranks that a wait needs.
    fn conditions(&self, wait: &Wait) -> Conditions {
        let needed = |condition: &WaitCondition| match condition {
            WaitCondition::AnyOf(ranks) => vec![ranks.clone()],
            WaitCondition::Fence => {
                let is_awaited = |member: &MemberState| {
                    matches!(member, MemberState::Awaited | MemberState::Joined { fenced: false, .. })
                };
                let awaited = (0..).zip(&self.members).filter(|(_, member)| is_awaited(member));
                all_of(awaited.map(|(rank, _)| Rank(rank)).collect())
            }
            WaitCondition::Agreement(id) => all_of(self.missing_voters(*id)),
        };
        wait.conditions.iter().flat_map(needed).collect()
    }
}

/// A condition for each of the ranks; of many ranks, that one of them acts, which is easier to satisfy.
fn all_of(ranks: Vec<Rank>) -> Conditions {
    if ranks.len() <= CONDITIONS_MAX {
        ranks.into_iter().filter_map(|rank| RankRanges::new([rank])).collect()
    } else {
        RankRanges::new(ranks).into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
