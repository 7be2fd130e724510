//! Ends of ranks, reported by their process's exit, their agent or their connection; and liveness queries.

use super::{Act, LinkId, Report, Roll, State};
use crate::{
    entry::{Ending, Incarnation},
    message::Tell,
    on_death::OnDeath,
    rank::Rank,
};

impl Roll {
    /// The failures to report to a rank that has just received the table.
    pub(crate) fn deaths(&self) -> Vec<Tell> {
        if self.policy != OnDeath::Tell {
            return Vec::new();
        }
        let dead = |(rank, member): (usize, &State)| match member {
            State::Ended { entry: Some(entry), ending } => {
                let rank = Rank(u32::try_from(rank).ok()?);
                Some(Tell::Died { rank, incarnation: entry.incarnation, ending: *ending })
            }
            _ => None,
        };
        self.members.iter().enumerate().filter_map(dead).collect()
    }

    /// An agent reports that a rank ended or could not be started.
    pub(crate) fn handle_agent_ended(&mut self, node: u32, rank: Rank, ending: Ending, reason: String) {
        let owner = self.agent_of.get(&rank);
        let known = owner == Some(&node) || (owner.is_none() && ending == Ending::NotStarted);
        if known && self.member(rank).is_some() {
            self.acts.push_back(Act::Report(Report::Ended { rank, ending, reason }));
            self.handle_ended(rank, ending);
        }
    }

    /// An agent's connection is lost.
    pub(crate) fn handle_agent_lost(&mut self, node: u32) {
        if self.agents.remove(&node).is_none() {
            return;
        }
        self.acts.push_back(Act::Report(Report::AgentLost(node)));
        let mut lost: Vec<Rank> = self.agent_of.iter().filter(|(_, of)| **of == node).map(|(rank, _)| *rank).collect();
        lost.sort_unstable();
        for rank in lost {
            self.handle_ended(rank, Ending::NodeLost);
        }
    }

    /// The process of a rank has ended, as the launcher or an agent reports.
    pub(crate) fn handle_ended(&mut self, rank: Rank, ending: Ending) {
        match self.member(rank) {
            Some(State::Here { watched: true, .. }) => self.handle_death(rank, ending),
            Some(State::Awaited) => {
                self.replace(rank, State::Ended { entry: None, ending });
                self.cannot_assemble();
            }
            Some(State::Left { entry }) => {
                let entry = Some(*entry);
                self.replace(rank, State::Ended { entry, ending: Ending::Exited(0) });
            }
            _ => {}
        }
    }

    /// A rank's connection is closed.
    pub(crate) fn handle_link_lost(&mut self, link: LinkId, rank: Rank) {
        match self.member_mut(rank) {
            Some(State::Here { link: current, watched, .. }) if *current == Some(link) => {
                *current = None;
                if !*watched {
                    self.handle_death(rank, Ending::Disconnected);
                }
            }
            _ => {}
        }
    }

    pub(super) fn handle_death(&mut self, rank: Rank, ending: Ending) {
        let Some(State::Here { entry, fenced, .. }) = self.member(rank) else {
            return;
        };
        let (entry, fenced) = (*entry, *fenced);
        self.replace(rank, State::Ended { entry: Some(entry), ending });
        self.absent(fenced);
        self.acts.push_back(Act::Report(Report::Died { rank, ending }));
        match self.policy {
            OnDeath::Tell => {
                let incarnation: Incarnation = entry.incarnation;
                self.acts.push_back(Act::TellAll(Tell::Died { rank, incarnation, ending }));
            }
            // A launcher ends the processes itself; without one, they end on this message.
            OnDeath::End if !self.watched && ending != Ending::Replaced => {
                let code = match ending.code() {
                    0 => 1,
                    code => code,
                };
                self.acts.push_back(Act::TellAll(Tell::Aborted { rank, code }));
            }
            OnDeath::End | OnDeath::Silent => {}
        }
        self.cannot_assemble();
        self.check_agreements();
        self.check_fence();
        self.check_finish();
    }

    /// A rank queries whether another is alive.
    pub(crate) fn handle_ask(&mut self, link: LinkId, asker: Rank, rank: Rank) {
        let alive = match self.member(rank) {
            Some(State::Here { link, watched, .. }) => *watched || link.is_some(),
            Some(State::Awaited | State::Left { .. }) => true,
            Some(State::Ended { .. }) | None => false,
        };
        let agent = self.agent_of.get(&rank).and_then(|node| self.agents.get(node));
        match agent {
            Some(agent) if alive => self.acts.push_back(Act::Tell(*agent, Tell::Ask { rank, asker })),
            _ => self.acts.push_back(Act::Tell(link, Tell::Liveness { rank, alive })),
        }
    }

    /// An agent answers a liveness query.
    pub(crate) fn handle_liveness(&mut self, node: u32, rank: Rank, asker: Rank, alive: bool) {
        if self.agent_of.get(&rank) != Some(&node) {
            return;
        }
        if let Some(State::Here { link: Some(link), .. }) = self.member(asker) {
            let link = *link;
            self.acts.push_back(Act::Tell(link, Tell::Liveness { rank, alive }));
        }
    }
}
