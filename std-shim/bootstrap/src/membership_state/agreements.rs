//! Fault-tolerant agreement among a set of ranks (the server's side of agree and shrink, as in ULFM).
//!
//! The server decides an agreement once, when every member has voted, has failed or finished, or is reported as failed
//! by a member that has voted. Every voter gets the same decision, whenever ranks fail: a member that votes and then
//! fails counts as a vote and is among the failed; a failure after the decision changes nothing.

use alloc::collections::BTreeSet;
use std::collections::HashSet;

use super::{ConnectionId, Effect, MemberState, MembershipState};
use crate::{
    agreement::{AgreementId, AgreementOutcome, RankRanges, Vote},
    message::ServerMessage,
    rank::Rank,
};

/// Largest number of undecided agreements.
const AGREEMENTS_MAX: usize = 1 << 14;

/// An agreement in progress.
#[derive(Debug)]
pub(super) struct Agreement {
    members: Vec<Rank>,
    voted: HashSet<Rank>,
    /// Members that voters report as failed.
    failed: BTreeSet<Rank>,
    most: u32,
    words: Vec<u64>,
    verdict: Option<AgreementOutcome>,
}

impl MembershipState {
    /// A rank votes. Returns `None` for a vote that no member can cast: the connection is closed.
    pub(crate) fn handle_vote(&mut self, link: ConnectionId, rank: Rank, ballot: Vote) -> Option<()> {
        let size = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let Vote { id: name, members, failed, maximum: most, words } = ballot;
        if !self.agreements.contains_key(&name) {
            let members: Vec<Rank> = members.below(size).take(self.members.len()).collect();
            if self.agreements.len() >= AGREEMENTS_MAX || !members.contains(&rank) {
                return None;
            }
            let (voted, failed, words) = (HashSet::new(), BTreeSet::new(), vec![u64::MAX; words.len()]);
            self.agreements.insert(name, Agreement { members, voted, failed, most: 0, words, verdict: None });
        }
        let agreement = self.agreements.get_mut(&name)?;
        if !agreement.members.contains(&rank) || agreement.words.len() != words.len() {
            return None;
        }
        agreement.voted.insert(rank);
        if let Some(verdict) = &agreement.verdict {
            // The rank was counted as failed: it gets the same decision.
            self.effects.push_back(Effect::Send(link, ServerMessage::Agreed(verdict.clone())));
        } else {
            agreement.words.iter_mut().zip(words).for_each(|(word, other)| *word &= other);
            agreement.most = agreement.most.max(most);
            agreement.failed.extend(failed.below(size));
        }
        self.check_agreement(name);
        Some(())
    }

    /// The members that an undecided agreement waits for.
    pub(super) fn missing_voters(&self, name: AgreementId) -> Vec<Rank> {
        let Some(agreement) = self.agreements.get(&name).filter(|agreement| agreement.verdict.is_none()) else {
            return Vec::new();
        };
        let Agreement { members, voted, failed, .. } = agreement;
        members.iter().filter(|rank| !voted.contains(rank) && !failed.contains(rank)).copied().collect()
    }

    /// Checks all agreements after a rank has failed or finished.
    pub(super) fn check_agreements(&mut self) {
        let names: Vec<AgreementId> = self.agreements.keys().copied().collect();
        names.into_iter().for_each(|name| self.check_agreement(name));
    }

    fn check_agreement(&mut self, name: AgreementId) {
        let Self { agreements, members: roll, effects: acts, .. } = self;
        let Some(agreement) = agreements.get_mut(&name) else { return };
        let state = |rank: &Rank| roll.get(usize::try_from(rank.0).ok()?);
        let is_gone = |rank: &Rank| {
            matches!(
                state(rank),
                Some(MemberState::Ended { .. } | MemberState::Finished { .. } | MemberState::Left { .. })
            )
        };
        let Agreement { members, voted, failed, most, words, verdict } = agreement;
        let is_heard = |rank: &Rank| voted.contains(rank) || is_gone(rank);
        if verdict.is_none() && members.iter().all(|rank| is_heard(rank) || failed.contains(rank)) {
            failed.extend(members.iter().filter(|rank| is_gone(rank)));
            let among: HashSet<&Rank> = members.iter().collect();
            let failed =
                RankRanges::new(failed.iter().copied().filter(|rank| among.contains(rank))).unwrap_or_default();
            let decided = AgreementOutcome { id: name, failed, maximum: *most, words: core::mem::take(words) };
            words.resize(decided.words.len(), 0);
            for rank in members.iter().filter(|rank| voted.contains(rank)) {
                if let Some(MemberState::Joined { link: Some(link), .. }) = state(rank) {
                    acts.push_back(Effect::Send(*link, ServerMessage::Agreed(decided.clone())));
                }
            }
            *verdict = Some(decided);
        }
        if verdict.is_some() && members.iter().all(is_heard) {
            agreements.remove(&name);
        }
    }
}
