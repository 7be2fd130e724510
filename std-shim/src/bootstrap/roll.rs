//! Who is here: the rendezvous server's knowledge of the job, without any I/O.
//!
//! `handle_*` takes what a link said or the launcher knows; [`Roll::poll`] gives what is to be done, in order.

use super::{
    entry::{Ending, Entry, Incarnation, Offer},
    message::{KEY_MAX, Refusal, Tell, VALUE_MAX},
};
use crate::{environment::OnDeath, rank::Rank};
use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;
use std::collections::HashMap;

/// Bytes of all stored keys and values.
const STORE_MAX: usize = 16 << 20;

/// The number that the server gave a connection.
pub(crate) type LinkId = usize;

/// What happened, for who runs the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// Every rank has joined.
    Assembled,
    /// A rank that had joined died.
    Died {
        /// The rank.
        rank: Rank,
        /// How.
        ending: Ending,
    },
    /// A rank asked for the end of the job.
    Aborted {
        /// The rank.
        rank: Rank,
        /// With this exit code.
        code: i32,
    },
    /// A node's agent is connected.
    AgentHere(u32),
    /// A node's agent is gone, and so are its ranks.
    AgentLost(u32),
    /// An agent started a rank.
    Started {
        /// The rank.
        rank: Rank,
        /// Its process on that node.
        pid: u32,
    },
    /// An agent's rank ended.
    Ended {
        /// The rank.
        rank: Rank,
        /// How.
        ending: Ending,
        /// Why it did not start, if it did not.
        reason: String,
    },
    /// No rank is left that could speak.
    Finished,
}

/// What the server is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Tell one link.
    Tell(LinkId, Tell),
    /// Tell every member.
    TellAll(Tell),
    /// Send the whole table, from the first line on.
    SendTable(LinkId),
    /// Close a link, after what it is still to be told.
    Close(LinkId),
    /// Say what happened.
    Report(Report),
}

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

/// The job as the server knows it.
#[derive(Debug)]
pub(crate) struct Roll {
    members: Vec<State>,
    agents: HashMap<u32, LinkId>,
    agent_of: HashMap<Rank, u32>,
    nodes: HashMap<String, u32>,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    stored: usize,
    policy: OnDeath,
    watched: bool,
    here: usize,
    fenced: usize,
    awaited: usize,
    doomed: bool,
    acts: VecDeque<Act>,
}

impl Roll {
    /// A job of `size` ranks. `watched` says that a launcher knows how processes end; otherwise a broken connection is
    /// a death.
    pub(crate) fn new(size: u32, policy: OnDeath, watched: bool) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            members: vec![State::Awaited; size],
            agents: HashMap::new(),
            agent_of: HashMap::new(),
            nodes: HashMap::new(),
            store: BTreeMap::new(),
            stored: 0,
            policy,
            watched,
            here: 0,
            fenced: 0,
            awaited: size,
            doomed: false,
            acts: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub(crate) fn poll(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// Whether ranks wait for others to join.
    pub(crate) const fn is_assembling(&self) -> bool {
        self.awaited > 0 && self.here > 0 && !self.doomed
    }

    /// Up to `limit` lines of the table from `first` on; empty behind the last.
    pub(crate) fn lines(&self, first: u32, limit: usize) -> Vec<Entry> {
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        self.members.iter().skip(first).take(limit).map_while(|member| member.entry().copied()).collect()
    }

    /// The deaths that who has just received the table is to be told.
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

    /// A member's first words. `seen` is the host its connection comes from.
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
            if lane.ip().is_unspecified() {
                lane.set_ip(seen.to_canonical());
            }
        }
        let entry = Entry { incarnation: offer.incarnation, node, mtu: offer.mtu, lanes };
        if let Some(State::Here { link: Some(old), .. }) = self.member(rank) {
            let old = *old;
            self.handle_death(rank, Ending::Replaced);
            self.acts.push_back(Act::Close(old));
        }
        // The launcher knows the process it started, not one that took its rank later.
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

    /// The time to assemble is over.
    pub(crate) fn handle_assembly_timeout(&mut self) {
        let awaited = |member: &State| matches!(member, State::Awaited);
        let Some(first) = self.members.iter().position(awaited).and_then(|first| u32::try_from(first).ok()) else {
            return;
        };
        let count = u32::try_from(self.awaited).unwrap_or(u32::MAX);
        self.doomed = true;
        self.acts.push_back(Act::TellAll(Tell::Refused(Refusal::Missing { count, first })));
    }

    /// An agent has proved itself.
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

    /// An agent's rank ended, or could not be started.
    pub(crate) fn handle_agent_ended(&mut self, node: u32, rank: Rank, ending: Ending, reason: String) {
        let owner = self.agent_of.get(&rank);
        let known = owner == Some(&node) || (owner.is_none() && ending == Ending::NotStarted);
        if known && self.member(rank).is_some() {
            self.acts.push_back(Act::Report(Report::Ended { rank, ending, reason }));
            self.handle_ended(rank, ending);
        }
    }

    /// An agent is gone.
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

    /// The process of a rank has ended, as the launcher or an agent knows.
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

    /// A member's connection is closed.
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

    fn handle_death(&mut self, rank: Rank, ending: Ending) {
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
            // Under a launcher the processes are ended; elsewhere they end themselves.
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
        self.check_fence();
        self.check_finish();
    }

    fn cannot_assemble(&mut self) {
        if self.awaited > 0 && !self.doomed {
            self.doomed = true;
            self.acts.push_back(Act::TellAll(Tell::Refused(Refusal::Ending)));
        }
    }

    /// A member asks about another.
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

    /// An agent answers.
    pub(crate) fn handle_liveness(&mut self, node: u32, rank: Rank, asker: Rank, alive: bool) {
        if self.agent_of.get(&rank) != Some(&node) {
            return;
        }
        if let Some(State::Here { link: Some(link), .. }) = self.member(asker) {
            let link = *link;
            self.acts.push_back(Act::Tell(link, Tell::Liveness { rank, alive }));
        }
    }

    /// A member has reached the next fence.
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

    /// A member stores a value.
    pub(crate) fn handle_put(&mut self, link: LinkId, key: Vec<u8>, value: Vec<u8>) {
        let bytes = key.len() + value.len();
        let before = self.store.get(&key).map_or(0, |old| key.len() + old.len());
        let fits = key.len() <= KEY_MAX && value.len() <= VALUE_MAX && self.stored - before + bytes <= STORE_MAX;
        if fits {
            self.stored = self.stored - before + bytes;
            self.store.insert(key, value);
        }
        self.acts.push_back(Act::Tell(link, Tell::Stored(fits)));
    }

    /// A member asks for a value.
    pub(crate) fn handle_get(&mut self, link: LinkId, key: &[u8]) {
        self.acts.push_back(Act::Tell(link, Tell::Value(self.store.get(key).cloned())));
    }

    /// A member asks for the end of the job.
    pub(crate) fn handle_abort(&mut self, rank: Rank, code: i32) {
        self.doomed = true;
        self.acts.push_back(Act::Report(Report::Aborted { rank, code }));
        self.acts.push_back(Act::TellAll(Tell::Aborted { rank, code }));
    }

    /// A member has finished.
    pub(crate) fn handle_leave(&mut self, link: LinkId, rank: Rank) {
        if let Some(State::Here { entry, fenced, .. }) = self.member(rank) {
            let (entry, fenced) = (*entry, *fenced);
            self.replace(rank, State::Left { entry });
            self.absent(fenced);
            self.acts.push_back(Act::Tell(link, Tell::Farewell));
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

    /// The link of an agent.
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
