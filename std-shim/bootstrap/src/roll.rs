//! The rendezvous server's state of the job: which ranks have joined, finished or failed; fences, the key-value store
//! and agreements. No I/O.
//!
//! `handle_*` takes an event from a connection or the launcher; [`Roll::poll`] returns the resulting effects, in order.

mod agreements;
mod deaths;
mod report;
mod store;

pub(crate) use report::Act;
pub use report::Report;

use super::on_death::OnDeath;
use super::{
    ballot::Name,
    entry::{Ending, Entry, Offer},
    message::{Refusal, Tell},
};
use crate::rank::Rank;
use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;
use std::collections::HashMap;

/// The server's number of a connection.
pub(crate) type LinkId = usize;

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Awaited,
    Here { entry: Entry, link: Option<LinkId>, fenced: bool, watched: bool },
    Left { entry: Entry },
    Ended { entry: Option<Entry>, ending: Ending },
}

impl State {
    const fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Here { entry, .. } | Self::Left { entry } => Some(entry),
            Self::Ended { entry, .. } => entry.as_ref(),
            Self::Awaited => None,
        }
    }
}

/// The state of the job.
#[derive(Debug)]
pub(crate) struct Roll {
    members: Vec<State>,
    agents: HashMap<u32, LinkId>,
    agent_of: HashMap<Rank, u32>,
    nodes: HashMap<String, u32>,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    stored: usize,
    agreements: HashMap<Name, agreements::Agreement>,
    policy: OnDeath,
    watched: bool,
    here: usize,
    fenced: usize,
    awaited: usize,
    doomed: bool,
    acts: VecDeque<Act>,
}

impl Roll {
    /// A job of `size` ranks. `watched`: a launcher reports how processes end; otherwise a broken connection counts as
    /// a failure.
    pub(crate) fn new(size: u32, policy: OnDeath, watched: bool) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            members: vec![State::Awaited; size],
            agents: HashMap::new(),
            agent_of: HashMap::new(),
            nodes: HashMap::new(),
            store: BTreeMap::new(),
            stored: 0,
            agreements: HashMap::new(),
            policy,
            watched,
            here: 0,
            fenced: 0,
            awaited: size,
            doomed: false,
            acts: VecDeque::new(),
        }
    }

    /// The next effect to carry out.
    pub(crate) fn poll(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// Whether ranks that have joined wait for others to join.
    pub(crate) const fn is_assembling(&self) -> bool {
        self.awaited > 0 && self.here > 0 && !self.doomed
    }

    /// Up to `limit` records of the table from rank `first` on; empty past the end.
    pub(crate) fn lines(&self, first: u32, limit: usize) -> Vec<Entry> {
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        self.members.iter().skip(first).take(limit).map_while(|member| member.entry().copied()).collect()
    }

    /// A rank joins. `seen` is the peer address of its connection.
    pub(crate) fn handle_join(
        &mut self,
        link: LinkId,
        rank: Rank,
        offer: Offer,
        node: Option<u32>,
        host: String,
        seen: IpAddr,
    ) {
        let assembling = self.awaited > 0;
        let refusal = match self.member(rank) {
            None => Some(Refusal::NoSuchRank),
            Some(_) if self.doomed => Some(Refusal::Ending),
            Some(State::Here { .. } | State::Left { .. }) if assembling => Some(Refusal::Taken),
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            self.acts.extend([Act::Tell(link, Tell::Refused(refusal)), Act::Close(link)]);
            return;
        }
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let node = node.unwrap_or_else(|| *self.nodes.entry(host).or_insert(next));
        let mut lanes = offer.lanes;
        for lane in &mut lanes {
            lane.set_ip(lane.ip().to_canonical());
            if lane.ip().is_unspecified() {
                lane.set_ip(seen.to_canonical());
            }
        }
        let entry = Entry { incarnation: offer.incarnation, node, mtu: offer.mtu, lanes, digests: offer.digests };
        if let Some(State::Here { link: Some(old), .. }) = self.member(rank) {
            let old = *old;
            self.handle_death(rank, Ending::Replaced);
            self.acts.push_back(Act::Close(old));
        }
        // The launcher watches only the process that it started, not a later one with the same rank.
        let watched = self.watched && assembling;
        let member = State::Here { entry, link: Some(link), fenced: false, watched };
        let before = self.replace(rank, member);
        if !matches!(before, Some(State::Here { .. })) {
            self.here += 1;
        }
        if !assembling {
            self.acts.push_back(Act::TellAll(Tell::Met { rank, entry }));
            self.acts.push_back(Act::SendTable(link));
            return;
        }
        if matches!(before, Some(State::Awaited)) {
            self.awaited -= 1;
        }
        if self.awaited == 0 {
            let links = self.members.iter().filter_map(|member| match member {
                State::Here { link, .. } => *link,
                _ => None,
            });
            self.acts.extend(links.map(Act::SendTable));
            self.acts.push_back(Act::Report(Report::Assembled));
        }
    }

    /// The join timeout has expired.
    pub(crate) fn handle_assembly_timeout(&mut self) {
        let awaited = |member: &State| matches!(member, State::Awaited);
        let Some(first) = self.members.iter().position(awaited).and_then(|first| u32::try_from(first).ok()) else {
            return;
        };
        let count = u32::try_from(self.awaited).unwrap_or(u32::MAX);
        self.doomed = true;
        self.acts.push_back(Act::TellAll(Tell::Refused(Refusal::Missing { count, first })));
    }

    /// An agent has authenticated.
    pub(crate) fn handle_agent(&mut self, link: LinkId, node: u32) {
        if self.agents.contains_key(&node) {
            self.acts.extend([Act::Tell(link, Tell::Refused(Refusal::Taken)), Act::Close(link)]);
            return;
        }
        self.agents.insert(node, link);
        self.acts.extend([Act::Tell(link, Tell::Welcome), Act::Report(Report::AgentHere(node))]);
    }

    /// An agent started a rank.
    pub(crate) fn handle_started(&mut self, node: u32, rank: Rank, pid: u32) {
        if self.member(rank).is_some() {
            self.agent_of.insert(rank, node);
            self.acts.push_back(Act::Report(Report::Started { rank, pid }));
        }
    }

    fn cannot_assemble(&mut self) {
        if self.awaited > 0 && !self.doomed {
            self.doomed = true;
            self.acts.push_back(Act::TellAll(Tell::Refused(Refusal::Ending)));
        }
    }

    /// A rank has entered the next fence.
    pub(crate) fn handle_fence(&mut self, rank: Rank) {
        if let Some(State::Here { fenced, .. }) = self.member_mut(rank) {
            if !core::mem::replace(fenced, true) {
                self.fenced += 1;
            }
            self.check_fence();
        }
    }

    fn check_fence(&mut self) {
        if self.fenced == 0 || self.fenced < self.here || self.awaited > 0 {
            return;
        }
        self.fenced = 0;
        for member in &mut self.members {
            if let State::Here { fenced, .. } = member {
                *fenced = false;
            }
        }
        self.acts.push_back(Act::TellAll(Tell::Fenced));
    }

    /// A rank aborts the job.
    pub(crate) fn handle_abort(&mut self, rank: Rank, code: i32) {
        self.doomed = true;
        self.acts.push_back(Act::Report(Report::Aborted { rank, code }));
        self.acts.push_back(Act::TellAll(Tell::Aborted { rank, code }));
    }

    /// A rank has finished.
    pub(crate) fn handle_leave(&mut self, link: LinkId, rank: Rank) {
        if let Some(State::Here { entry, fenced, .. }) = self.member(rank) {
            let (entry, fenced) = (*entry, *fenced);
            self.replace(rank, State::Left { entry });
            self.absent(fenced);
            self.acts.push_back(Act::Tell(link, Tell::Farewell));
            self.check_agreements();
            self.check_fence();
            self.check_finish();
        }
    }

    fn absent(&mut self, fenced: bool) {
        self.here = self.here.saturating_sub(1);
        if fenced {
            self.fenced = self.fenced.saturating_sub(1);
        }
    }

    fn check_finish(&mut self) {
        if self.here == 0 && (self.awaited == 0 || self.doomed) {
            self.acts.push_back(Act::Report(Report::Finished));
        }
    }

    /// The connection of a node's agent.
    pub(crate) fn agent(&self, node: u32) -> Option<LinkId> {
        self.agents.get(&node).copied()
    }

    fn member(&self, rank: Rank) -> Option<&State> {
        self.members.get(usize::try_from(rank.0).ok()?)
    }

    fn member_mut(&mut self, rank: Rank) -> Option<&mut State> {
        self.members.get_mut(usize::try_from(rank.0).ok()?)
    }

    fn replace(&mut self, rank: Rank, state: State) -> Option<State> {
        self.member_mut(rank).map(|member| core::mem::replace(member, state))
    }
}

#[cfg(test)]
mod tests;
