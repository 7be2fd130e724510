//! The rendezvous server's state of the job: which ranks have joined, finished or failed; fences, the key-value store
//! and agreements. No I/O.
//!
//! `handle_*` takes an event from a connection or the launcher; [`MembershipState::poll`] returns the resulting
//! effects, in order.

mod agreements;
mod blocked;
mod failures;
mod report;
mod store;

pub(crate) use report::Effect;
pub use report::{Participation, ServerReport, StuckRank};

use super::on_death::OnDeath;
use super::{
    agreement::AgreementId,
    message::{Refusal, ServerMessage},
    peer_record::{Ending, LocalRecord, PeerRecord, reachable},
};
use crate::{
    fence::{FenceRecord, first_difference},
    rank::Rank,
    version::Version,
};
use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

/// The server's number of a connection.
pub(crate) type ConnectionId = usize;

#[derive(Clone, PartialEq, Eq, Debug)]
enum MemberState {
    Awaited,
    Joined {
        entry: PeerRecord,
        link: Option<ConnectionId>,
        fenced: bool,
        /// The records of the fence that it has entered.
        records: Option<Vec<FenceRecord>>,
        watched: bool,
    },
    Finished {
        entry: PeerRecord,
    },
    /// It left without finishing.
    Left {
        entry: PeerRecord,
    },
    Ended {
        entry: Option<PeerRecord>,
        ending: Ending,
    },
}

impl MemberState {
    const fn entry(&self) -> Option<&PeerRecord> {
        match self {
            Self::Joined { entry, .. } | Self::Finished { entry } | Self::Left { entry } => Some(entry),
            Self::Ended { entry, .. } => entry.as_ref(),
            Self::Awaited => None,
        }
    }

    const fn entry_mut(&mut self) -> Option<&mut PeerRecord> {
        match self {
            Self::Joined { entry, .. } | Self::Finished { entry } | Self::Left { entry } => Some(entry),
            Self::Ended { entry, .. } => entry.as_mut(),
            Self::Awaited => None,
        }
    }
}

/// The end of a rank's process, as the launcher or an agent reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProcessEnd {
    pub(crate) rank: Rank,
    pub(crate) ending: Ending,
    /// Why it did not start; empty if it did.
    pub(crate) reason: String,
}

/// The agents of other nodes.
#[derive(Default, Debug)]
struct Agents {
    /// The connection of each node's agent.
    connections: HashMap<u32, ConnectionId>,
    /// The node of each rank that an agent started.
    of_ranks: HashMap<Rank, u32>,
}

/// The state of the job.
#[derive(Debug)]
pub(crate) struct MembershipState {
    members: Vec<MemberState>,
    agents: Agents,
    nodes: HashMap<String, u32>,
    store: store::KeyValueStore,
    agreements: HashMap<AgreementId, agreements::Agreement>,
    blocked: blocked::BlockedRanks,
    policy: OnDeath,
    watched: bool,
    joined: usize,
    fenced: usize,
    awaited: usize,
    /// The slowest link that is known when all have joined, in millions of bits per second; 0: none.
    slowest_link: u32,
    ending: bool,
    /// The rank that ended before all had joined.
    absent: Option<Rank>,
    effects: VecDeque<Effect>,
    ends: VecDeque<ProcessEnd>,
}

impl MembershipState {
    /// A job of `size` ranks. `watched`: a launcher reports how processes end; otherwise a broken connection counts as
    /// a failure.
    pub(crate) fn new(size: u32, policy: OnDeath, watched: bool) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            members: vec![MemberState::Awaited; size],
            agents: Agents::default(),
            nodes: HashMap::new(),
            store: store::KeyValueStore::default(),
            agreements: HashMap::new(),
            blocked: blocked::BlockedRanks::default(),
            policy,
            watched,
            joined: 0,
            fenced: 0,
            awaited: size,
            slowest_link: 0,
            ending: false,
            absent: None,
            effects: VecDeque::new(),
            ends: VecDeque::new(),
        }
    }

    /// The next effect to carry out.
    pub(crate) fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Whether ranks that have joined wait for others to join.
    pub(crate) const fn is_joining(&self) -> bool {
        self.awaited > 0 && self.joined > 0 && !self.ending
    }

    /// Up to `limit` records of the table from rank `first` on; empty past the end.
    pub(crate) fn records(&self, first: u32, limit: usize) -> Vec<PeerRecord> {
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        self.members.iter().skip(first).take(limit).map_while(|member| member.entry().cloned()).collect()
    }

    /// A rank joins. `seen` is the peer address of its connection.
    pub(crate) fn handle_join(
        &mut self,
        link: ConnectionId,
        rank: Rank,
        offer: LocalRecord,
        node: Option<u32>,
        host: String,
        seen: IpAddr,
    ) {
        let assembling = self.awaited > 0;
        let refusal = match self.member(rank) {
            None => Some(Refusal::NoSuchRank),
            Some(_) if self.ending => Some(Refusal::Ending),
            Some(MemberState::Joined { .. } | MemberState::Finished { .. } | MemberState::Left { .. })
                if assembling =>
            {
                Some(Refusal::RankTaken)
            }
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            if refusal == Refusal::Ending
                && let Some(cause) = self.absent
            {
                self.effects.push_back(Effect::Report(ServerReport::Cause { rank, cause }));
            }
            self.effects.extend([Effect::Send(link, ServerMessage::Refused(refusal)), Effect::Close(link)]);
            return;
        }
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let node = node.unwrap_or_else(|| *self.nodes.entry(host).or_insert(next));
        let mut entry = offer.into_record(node, |_| seen);
        if !assembling {
            // Algorithms are selected by it: it stays as it was.
            entry.link_megabits = self.slowest_link;
        }
        if let Some(MemberState::Joined { link: Some(old), .. }) = self.member(rank) {
            let old = *old;
            self.mark_failed(rank, Ending::Replaced);
            self.effects.push_back(Effect::Close(old));
        }
        // The launcher watches only the process that it started, not a later one with the same rank.
        let watched = self.watched && assembling;
        let member =
            MemberState::Joined { entry: entry.clone(), link: Some(link), fenced: false, records: None, watched };
        let before = self.replace(rank, member);
        if !matches!(before, Some(MemberState::Joined { .. })) {
            self.joined += 1;
        }
        if !assembling {
            self.effects.push_back(Effect::Broadcast(ServerMessage::Joined { rank, entry }));
            self.effects.push_back(Effect::SendTable(link));
            return;
        }
        if matches!(before, Some(MemberState::Awaited)) {
            self.awaited -= 1;
        }
        if self.awaited == 0 {
            self.fix_link_speed();
            let links = self.members.iter().filter_map(|member| match member {
                MemberState::Joined { link, .. } => *link,
                _ => None,
            });
            self.effects.extend(links.map(Effect::SendTable));
            self.effects.push_back(Effect::Report(ServerReport::AllJoined));
        }
    }

    /// A rank has opened its next rail, of this number. `seen` is the peer address of its connection.
    pub(crate) fn handle_rail(&mut self, rank: Rank, (rail, lanes): (u8, [SocketAddr; 2]), seen: IpAddr) {
        let lanes = lanes.map(|lane| reachable(lane, seen));
        if let Some(MemberState::Joined { entry, .. }) = self.member_mut(rank)
            && entry.add_rail(rail, lanes)
        {
            let incarnation = entry.incarnation;
            self.effects.push_back(Effect::Broadcast(ServerMessage::Rail { rank, incarnation, rail, lanes }));
        }
    }

    /// All ranks select algorithms by the slowest link that is known.
    fn fix_link_speed(&mut self) {
        let entries = self.members.iter().filter_map(MemberState::entry);
        let known = entries.map(|entry| entry.link_megabits).filter(|megabits| *megabits > 0);
        self.slowest_link = known.min().unwrap_or(0);
        for entry in self.members.iter_mut().filter_map(MemberState::entry_mut) {
            entry.link_megabits = self.slowest_link;
        }
    }

    /// A process with another version of the library wants to join.
    pub(crate) fn refuse_version(&mut self, link: ConnectionId, own: Version) {
        let refusal = Refusal::Version { own, server: Version::CURRENT };
        self.effects.extend([Effect::Send(link, ServerMessage::Refused(refusal)), Effect::Close(link)]);
    }

    /// The join timeout has expired.
    pub(crate) fn handle_join_timeout(&mut self) {
        let awaited = |member: &MemberState| matches!(member, MemberState::Awaited);
        let Some(first) = self.members.iter().position(awaited).and_then(|first| u32::try_from(first).ok()) else {
            return;
        };
        let count = u32::try_from(self.awaited).unwrap_or(u32::MAX);
        self.ending = true;
        self.effects.push_back(Effect::Broadcast(ServerMessage::Refused(Refusal::MissingRanks { count, first })));
    }

    /// An agent has authenticated.
    pub(crate) fn handle_agent(&mut self, link: ConnectionId, node: u32) {
        if self.agents.connections.contains_key(&node) {
            self.effects.extend([Effect::Send(link, ServerMessage::Refused(Refusal::RankTaken)), Effect::Close(link)]);
            return;
        }
        self.agents.connections.insert(node, link);
        self.effects
            .extend([Effect::Send(link, ServerMessage::Welcome), Effect::Report(ServerReport::AgentConnected(node))]);
    }

    /// An agent started a rank.
    pub(crate) fn handle_started(&mut self, node: u32, rank: Rank, pid: u32) {
        if self.member(rank).is_some() {
            self.agents.of_ranks.insert(rank, node);
            self.effects.push_back(Effect::Report(ServerReport::Started { rank, pid }));
        }
    }

    /// A rank has ended: if others wait for it to join, the job can never be complete.
    fn fail_join(&mut self, cause: Rank) {
        if self.awaited > 0 && !self.ending {
            self.ending = true;
            self.absent = Some(cause);
            let joined = |(rank, member): (u32, &MemberState)| {
                matches!(member, MemberState::Joined { .. }).then_some(Rank(rank))
            };
            let waiting: Vec<Rank> = (0..).zip(&self.members).filter_map(joined).collect();
            self.effects.extend(waiting.into_iter().map(|rank| Effect::Report(ServerReport::Cause { rank, cause })));
            self.effects.push_back(Effect::Broadcast(ServerMessage::Refused(Refusal::Ending)));
        }
    }

    /// A rank has entered the next fence.
    pub(crate) fn handle_fence(&mut self, rank: Rank, compared: Option<Vec<FenceRecord>>) {
        if let Some(MemberState::Joined { fenced, records, .. }) = self.member_mut(rank) {
            *records = compared;
            if !core::mem::replace(fenced, true) {
                self.fenced += 1;
            }
            self.check_fence();
        }
    }

    fn check_fence(&mut self) {
        if self.fenced == 0 || self.fenced < self.joined || self.awaited > 0 {
            return;
        }
        self.fenced = 0;
        let records = |(rank, member): (u32, &'_ MemberState)| match member {
            MemberState::Joined { records: Some(records), .. } => Some((Rank(rank), records.clone())),
            _ => None,
        };
        let all: Vec<(Rank, Vec<FenceRecord>)> = (0..).zip(&self.members).filter_map(records).collect();
        let difference = first_difference(all.iter().map(|(rank, records)| (*rank, records.as_slice())));
        for member in &mut self.members {
            if let MemberState::Joined { fenced, records, .. } = member {
                (*fenced, *records) = (false, None);
            }
        }
        self.effects.push_back(Effect::Broadcast(ServerMessage::Fenced(difference)));
    }

    /// A rank aborts the job.
    pub(crate) fn handle_abort(&mut self, rank: Rank, code: i32) {
        self.ending = true;
        self.effects.push_back(Effect::Report(ServerReport::Aborted { rank, code }));
        self.effects.push_back(Effect::Broadcast(ServerMessage::Aborted { rank, code }));
    }

    /// A rank has finished.
    pub(crate) fn handle_finish(&mut self, link: ConnectionId, rank: Rank) {
        if let Some(MemberState::Joined { entry, .. }) = self.member(rank) {
            let entry = entry.clone();
            self.depart(rank, MemberState::Finished { entry }, Effect::Send(link, ServerMessage::FinishAck));
        }
    }

    /// A rank leaves without finishing.
    pub(crate) fn handle_leave(&mut self, rank: Rank) {
        if let Some(MemberState::Joined { entry, .. }) = self.member(rank) {
            let entry = entry.clone();
            self.depart(rank, MemberState::Left { entry }, Effect::Report(ServerReport::Left(rank)));
        }
    }

    /// A rank takes no more part: the others neither wait for it nor vote with it.
    fn depart(&mut self, rank: Rank, state: MemberState, effect: Effect) {
        let before = self.replace(rank, state);
        self.remove_joined(matches!(before, Some(MemberState::Joined { fenced: true, .. })));
        self.effects.push_back(effect);
        self.check_agreements();
        self.check_fence();
        self.check_finish();
    }

    /// An operation of a rank failed because of another rank. A rank that has finished did its part: the error is the
    /// program's.
    pub(crate) fn handle_cause(&mut self, rank: Rank, cause: Rank) {
        let is_cause = rank != cause && !matches!(self.member(cause), None | Some(MemberState::Finished { .. }));
        if is_cause {
            self.effects.push_back(Effect::Report(ServerReport::Cause { rank, cause }));
        }
    }

    fn remove_joined(&mut self, fenced: bool) {
        self.joined = self.joined.saturating_sub(1);
        if fenced {
            self.fenced = self.fenced.saturating_sub(1);
        }
    }

    fn check_finish(&mut self) {
        if self.joined == 0 && (self.awaited == 0 || self.ending) {
            self.effects.push_back(Effect::Report(ServerReport::Finished));
        }
    }

    /// The connection of a node's agent.
    pub(crate) fn agent(&self, node: u32) -> Option<ConnectionId> {
        self.agents.connections.get(&node).copied()
    }

    fn member(&self, rank: Rank) -> Option<&MemberState> {
        self.members.get(usize::try_from(rank.0).ok()?)
    }

    fn member_mut(&mut self, rank: Rank) -> Option<&mut MemberState> {
        self.members.get_mut(usize::try_from(rank.0).ok()?)
    }

    fn replace(&mut self, rank: Rank, state: MemberState) -> Option<MemberState> {
        self.blocked.forget(rank);
        self.member_mut(rank).map(|member| core::mem::replace(member, state))
    }
}

#[cfg(test)]
mod tests;
