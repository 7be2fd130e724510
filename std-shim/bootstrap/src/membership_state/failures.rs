//! Ends of ranks, reported by their process's exit, their agent or their connection; and liveness queries.

use super::{ConnectionId, Effect, MemberState, MembershipState, Participation, ProcessEnd, ServerReport};
use crate::{message::ServerMessage, on_death::OnDeath, peer_record::Ending, rank::Rank};

impl MembershipState {
    /// The failures to report to a rank that has just received the table.
    pub(crate) fn failures(&self) -> Vec<ServerMessage> {
        if self.policy != OnDeath::Tell {
            return Vec::new();
        }
        let dead = |(rank, member): (usize, &MemberState)| match member {
            MemberState::Ended { entry: Some(entry), ending } => {
                let rank = Rank(u32::try_from(rank).ok()?);
                Some(ServerMessage::Failed { rank, incarnation: entry.incarnation, ending: *ending })
            }
            _ => None,
        };
        self.members.iter().enumerate().filter_map(dead).collect()
    }

    /// An agent reports that a rank ended or could not be started.
    pub(crate) fn handle_agent_ended(&mut self, node: u32, rank: Rank, ending: Ending, reason: String) {
        let owner = self.agents.of_ranks.get(&rank);
        let known = owner == Some(&node) || (owner.is_none() && ending == Ending::NotStarted);
        if known && self.member(rank).is_some() {
            self.ends.push_back(ProcessEnd { rank, ending, reason });
        }
    }

    /// The launcher reports that a process of its own host ended.
    pub(crate) fn handle_local_end(&mut self, rank: Rank, ending: Ending) {
        if self.member(rank).is_some() {
            self.ends.push_back(ProcessEnd { rank, ending, reason: String::new() });
        }
    }

    /// An end of a process to [handle](Self::handle_process_end) once everything that it sent has been received.
    pub(crate) fn take_end(&mut self) -> Option<ProcessEnd> {
        self.ends.pop_front()
    }

    /// The process of a rank has ended, and everything that it sent has been received.
    pub(crate) fn handle_process_end(&mut self, end: ProcessEnd) {
        let ProcessEnd { rank, ending, reason } = end;
        let participation = match self.member(rank) {
            Some(MemberState::Awaited) | None => Participation::None,
            Some(MemberState::Joined { watched: true, .. }) => Participation::Unfinished,
            // Or another process has joined with the rank since.
            Some(_) => Participation::Over,
        };
        self.effects.push_back(Effect::Report(ServerReport::Ended { rank, ending, participation, reason }));
        self.handle_ended(rank, ending);
    }

    /// Whether the connection of a rank is open: it may hold messages of the rank that have not been received.
    pub(crate) fn is_connected(&self, rank: Rank) -> bool {
        matches!(self.member(rank), Some(MemberState::Joined { link: Some(_), watched: true, .. }))
    }

    /// An agent's connection is lost.
    pub(crate) fn handle_agent_lost(&mut self, node: u32) {
        if self.agents.connections.remove(&node).is_none() {
            return;
        }
        self.effects.push_back(Effect::Report(ServerReport::AgentLost(node)));
        let mut lost: Vec<Rank> =
            self.agents.of_ranks.iter().filter(|(_, of)| **of == node).map(|(rank, _)| *rank).collect();
        lost.sort_unstable();
        for rank in lost {
            self.handle_ended(rank, Ending::NodeLost);
        }
    }

    /// The process of a rank has ended, as the launcher or an agent reports.
    pub(crate) fn handle_ended(&mut self, rank: Rank, ending: Ending) {
        match self.member(rank) {
            Some(MemberState::Joined { watched: true, .. }) => self.mark_failed(rank, ending),
            Some(MemberState::Awaited) => {
                self.replace(rank, MemberState::Ended { entry: None, ending });
                self.fail_join(rank);
            }
            Some(MemberState::Finished { entry }) => {
                let entry = Some(entry.clone());
                self.replace(rank, MemberState::Ended { entry, ending: Ending::Exited(0) });
            }
            Some(MemberState::Left { entry }) => {
                let entry = Some(entry.clone());
                self.replace(rank, MemberState::Ended { entry, ending });
            }
            _ => {}
        }
    }

    /// A rank's connection is closed.
    pub(crate) fn handle_connection_lost(&mut self, link: ConnectionId, rank: Rank) {
        match self.member_mut(rank) {
            Some(MemberState::Joined { link: current, watched, .. }) if *current == Some(link) => {
                *current = None;
                if !*watched {
                    self.mark_failed(rank, Ending::Disconnected);
                }
            }
            _ => {}
        }
    }

    pub(super) fn mark_failed(&mut self, rank: Rank, ending: Ending) {
        let Some(MemberState::Joined { entry, fenced, .. }) = self.member(rank) else {
            return;
        };
        let (entry, fenced) = (entry.clone(), *fenced);
        let incarnation = entry.incarnation;
        self.replace(rank, MemberState::Ended { entry: Some(entry), ending });
        self.remove_joined(fenced);
        self.effects.push_back(Effect::Report(ServerReport::Failed { rank, ending }));
        match self.policy {
            OnDeath::Tell => {
                self.effects.push_back(Effect::Broadcast(ServerMessage::Failed { rank, incarnation, ending }));
            }
            // A launcher ends the processes itself; without one, they end on this message.
            OnDeath::End if !self.watched && ending != Ending::Replaced => {
                let code = match ending.code() {
                    0 => 1,
                    code => code,
                };
                self.effects.push_back(Effect::Broadcast(ServerMessage::Aborted { rank, code }));
            }
            OnDeath::End | OnDeath::Silent => {}
        }
        self.fail_join(rank);
        self.check_agreements();
        self.check_fence();
        self.check_finish();
    }

    /// A rank queries whether another is alive.
    pub(crate) fn handle_liveness_query(&mut self, link: ConnectionId, asker: Rank, rank: Rank) {
        let alive = match self.member(rank) {
            Some(MemberState::Joined { link, watched, .. }) => *watched || link.is_some(),
            Some(MemberState::Awaited | MemberState::Finished { .. } | MemberState::Left { .. }) => true,
            Some(MemberState::Ended { .. }) | None => false,
        };
        let agent = self.agents.of_ranks.get(&rank).and_then(|node| self.agents.connections.get(node));
        match agent {
            Some(agent) if alive => {
                self.effects.push_back(Effect::Send(*agent, ServerMessage::QueryLiveness { rank, asker }))
            }
            _ => self.effects.push_back(Effect::Send(link, ServerMessage::Liveness { rank, alive })),
        }
    }

    /// A rank queries for how long another one has made progress. Without a connection nobody answers.
    pub(crate) fn handle_polling_query(&mut self, asker: Rank, rank: Rank) {
        if let Some(MemberState::Joined { link: Some(link), .. }) = self.member(rank) {
            let link = *link;
            self.effects.push_back(Effect::Send(link, ServerMessage::QueryPolling { asker }));
        }
    }

    /// A rank answers such a query.
    pub(crate) fn handle_polling(&mut self, rank: Rank, asker: Rank, milliseconds: u64) {
        if let Some(MemberState::Joined { link: Some(link), .. }) = self.member(asker) {
            let link = *link;
            self.effects.push_back(Effect::Send(link, ServerMessage::Polling { rank, milliseconds }));
        }
    }

    /// An agent answers a liveness query.
    pub(crate) fn handle_liveness(&mut self, node: u32, rank: Rank, asker: Rank, alive: bool) {
        if self.agents.of_ranks.get(&rank) != Some(&node) {
            return;
        }
        if let Some(MemberState::Joined { link: Some(link), .. }) = self.member(asker) {
            let link = *link;
            self.effects.push_back(Effect::Send(link, ServerMessage::Liveness { rank, alive }));
        }
    }
}
