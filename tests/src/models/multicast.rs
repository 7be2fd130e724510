//! Model of a reliable multicast stream: the shipped root and members, over a network that loses and reorders datagrams,
//! and drops copies that are equal to one in flight.
//!
//! Every message is one segment, whose payload is the message's number. The PSN wraps during the run. The root's timer
//! fires when nothing is in flight, and a stated number of times earlier. Datagrams that have become duplicates, which
//! their receiver will ignore whenever they arrive, disappear.

use unisono_core::ids::{Psn, Rank};
use unisono_core::multicast::{AckMode, Audience, Body, Placement, Receiver, Request, Root, StreamConfig, Topology};
use unisono_core::time::AbstractTime;

use crate::model_checker::Model;

/// Members, the root included.
const N: usize = 4;
/// Segments of the window.
const W: usize = 2;
const BITS: u32 = 3;
/// The first PSN.
const FIRST: u32 = 6;
/// Messages.
const MESSAGES: u8 = 4;
/// The member that may join later.
const JOINER: usize = 3;

/// What may happen.
#[derive(Clone, Copy, Debug)]
pub struct MulticastOptions {
    /// Who acknowledges to whom.
    pub mode: AckMode,
    /// Segments per acknowledgement.
    pub ack_every: u32,
    /// Messages of the root.
    pub messages: u8,
    /// Datagrams that get lost.
    pub losses: u8,
    /// Times that the timer fires although something is in flight.
    pub early_timeouts: u8,
    /// Members that may die, as bits, at most one.
    pub mortal: u8,
    /// The last member is no founder: it joins at any moment.
    pub joins: bool,
    /// From any moment on the network delivers nothing to the group. The root may handle two reports at a time.
    pub goes_deaf: bool,
}

impl MulticastOptions {
    /// All four messages without faults, acknowledged like this.
    pub const fn new(mode: AckMode) -> Self {
        Self {
            mode,
            ack_every: 1,
            messages: MESSAGES,
            losses: 0,
            early_timeouts: 0,
            mortal: 0,
            joins: false,
            goes_deaf: false,
        }
    }
}

/// The model. Rank 0 is the root.
#[derive(Clone, Copy, Debug)]
pub struct MulticastStream {
    options: MulticastOptions,
    config: StreamConfig,
}

/// A datagram in flight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InFlight {
    from: u8,
    to: u8,
    body: Body<BITS>,
    /// The message's number, of a segment.
    payload: u8,
    is_repair: bool,
}

/// A member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Member {
    machine: Receiver<N, W, BITS>,
    ring: [u8; W],
    /// The next message.
    expected: u8,
    has_joined: bool,
    knows_failed: bool,
}

/// All machines, and the network.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    root: Root<AbstractTime, N, W, BITS>,
    ring: [u8; W],
    sent: u8,
    knows_failed: bool,
    /// Ranks 1 to N − 1.
    members: [Member; N - 1],
    network: Vec<InFlight>,
    losses: u8,
    early_timeouts: u8,
    dead: Option<u8>,
    is_deaf: bool,
    /// A segment was sent to the group before that: then nothing is required. Always without `goes_deaf`.
    is_heard: bool,
    /// Messages that the root has sent to all again, as bits.
    sent_again: u8,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// The root sends this number of messages.
    Send(u8),
    /// A datagram arrives.
    Deliver(usize),
    /// Two reports arrive at the root before it sends anything.
    DeliverBoth(usize, usize),
    /// A datagram gets lost.
    Lose(usize),
    /// The root's timer fires.
    Timeout,
    /// The last member joins.
    Join,
    /// A member dies.
    Crash(u8),
    /// A member learns of the failed one.
    Report(u8),
    /// The network stops delivering to the group.
    Deafen,
}

impl MulticastStream {
    /// The model with these options.
    pub const fn new(options: MulticastOptions) -> Self {
        let founders = if options.joins { JOINER as u32 } else { N as u32 };
        let topology = Topology { mode: options.mode, founders, root: Rank(0) };
        let deaf_sample = if options.goes_deaf { options.messages as u32 } else { 0 };
        let config =
            StreamConfig { topology, ack_every: options.ack_every, granularity: 1, max_interval: 1, deaf_sample };
        Self { options, config }
    }

    fn transmit(state: &mut State, from: u8, request: Request<BITS>) {
        let payload = match (&request.body, from) {
            (Body::Segment(segment), 0) => state.ring[segment.psn.get() as usize % W],
            (Body::Segment(segment), _) => state.members[usize::from(from) - 1].ring[segment.psn.get() as usize % W],
            _ => 0,
        };
        if request.is_repair && request.to == Audience::Group {
            if state.sent_again & 1 << payload != 0 {
                state.broken =
                    Some("what was lost although it was sent to all again goes to each member that lacks it");
            }
            state.sent_again |= 1 << payload;
        }
        state.is_heard |= request.to == Audience::Group && !state.is_deaf;
        for to in 0..N as u8 {
            let is_receiver = match request.to {
                Audience::Group => {
                    to != from && !state.is_deaf && (to == 0 || state.members[usize::from(to) - 1].has_joined)
                }
                Audience::Member(rank) => rank.0 == u32::from(to),
            };
            let datagram = InFlight { from, to, body: request.body, payload, is_repair: request.is_repair };
            if is_receiver && state.dead != Some(to) && !state.network.contains(&datagram) {
                state.network.push(datagram);
            }
        }
    }

    /// Polls a rank until it has nothing to do.
    fn poll(&self, state: &mut State, rank: u8) {
        if rank == 0 {
            for _ in 0..64 {
                let Some(request) = state.root.poll_transmit(()) else { break };
                Self::transmit(state, 0, request);
            }
            if state.root.poll_transmit(()).is_some() {
                state.broken = Some("a root comes to rest");
            }
            return;
        }
        let member = &mut state.members[usize::from(rank) - 1];
        while let Some(segment) = member.machine.poll_delivery() {
            let payload = member.ring[segment.psn.get() as usize % W];
            if payload != member.expected || member.expected >= state.sent {
                state.broken = Some("messages are delivered in order, each once, as they were sent");
                return;
            }
            member.expected += 1;
        }
        for _ in 0..64 {
            let Some(request) = state.members[usize::from(rank) - 1].machine.poll_transmit() else { return };
            Self::transmit(state, rank, request);
        }
        state.broken = Some("a member comes to rest");
    }

    fn deliver(&self, state: &mut State, index: usize) {
        let to = Self::hand_over(state, index);
        self.poll(state, to);
    }

    /// Hands a datagram to its receiver, which it returns.
    fn hand_over(state: &mut State, index: usize) -> u8 {
        let InFlight { from, to, body, payload, .. } = state.network.remove(index);
        if to == 0 {
            if let Body::Report(report) = &body {
                state.root.handle_report((), Rank(from.into()), report);
            }
        } else {
            let member = &mut state.members[usize::from(to) - 1];
            match &body {
                Body::Segment(segment) => {
                    if member.machine.handle_segment(segment) == Placement::Place {
                        member.ring[segment.psn.get() as usize % W] = payload;
                    }
                }
                Body::Report(report) => member.machine.handle_report(Rank(from.into()), report),
                Body::Probe(probe) => member.machine.handle_probe(Rank(from.into()), probe),
            }
        }
        to
    }

    fn report(&self, state: &mut State, rank: u8) {
        let Some(dead) = state.dead else { return };
        let failed = Rank(dead.into());
        if rank == 0 {
            state.knows_failed = true;
            state.root.handle_failed((), failed);
        } else {
            let member = &mut state.members[usize::from(rank) - 1];
            member.knows_failed = true;
            member.machine.handle_failed(failed);
        }
        self.poll(state, rank);
        let had_dead_parent = rank != 0 && self.config.topology.parent(Rank(rank.into())) == Some(failed);
        let reports = |datagram: &InFlight| (datagram.from, datagram.to) == (rank, 0);
        if dead != 0 && had_dead_parent && Self::is_alive(state, 0) && !state.network.iter().any(reports) {
            state.broken = Some("a member whose parent has failed reports to the next one at once");
        }
        if dead == 0 && rank != 0 {
            let member = &state.members[usize::from(rank) - 1];
            let missing = Psn::new(FIRST + u32::from(member.expected));
            if member.machine.ended() != Some(missing) {
                state.broken = Some("a stream whose root has failed names the first segment that is missing");
            }
        }
    }

    /// Forgets segments that their receiver has delivered, and reports that say nothing new.
    fn drop_stale(state: &mut State) {
        let State { root, members, network, .. } = state;
        network.retain(|datagram| {
            let InFlight { from, to, body, payload, .. } = datagram;
            match body {
                Body::Segment(segment) => {
                    let mut after = members[usize::from(*to) - 1].machine;
                    let is_old = *payload < members[usize::from(*to) - 1].expected;
                    !is_old || after.handle_segment(segment) == Placement::Place
                }
                Body::Report(report) if *to == 0 => {
                    let mut after = *root;
                    after.handle_report((), Rank((*from).into()), report);
                    after != *root
                }
                Body::Report(report) => {
                    let before = members[usize::from(*to) - 1].machine;
                    let mut after = before;
                    after.handle_report(Rank((*from).into()), report);
                    after != before
                }
                Body::Probe(_) => true,
            }
        });
    }

    fn is_alive(state: &State, rank: u8) -> bool {
        state.dead != Some(rank)
    }
}

impl Model for MulticastStream {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let first = Psn::new(FIRST);
        let member = |rank: u32| Member {
            machine: Receiver::new(self.config, Rank(rank), first),
            ring: [u8::MAX; W],
            expected: 0,
            has_joined: rank < self.config.topology.founders,
            knows_failed: false,
        };
        State {
            root: Root::new(self.config, first),
            ring: [u8::MAX; W],
            sent: 0,
            knows_failed: false,
            members: [member(1), member(2), member(3)],
            network: Vec::new(),
            losses: 0,
            early_timeouts: 0,
            dead: None,
            is_deaf: false,
            is_heard: !self.options.goes_deaf,
            sent_again: 0,
            broken: None,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if Self::is_alive(state, 0) {
            if state.sent < self.options.messages {
                actions.push(Action::Send(1));
            }
            if state.sent + 2 <= self.options.messages && state.root.room() > 1 && self.options.ack_every > 1 {
                actions.push(Action::Send(2));
            }
            let is_in_time = state.network.is_empty() || state.early_timeouts < self.options.early_timeouts;
            if state.root.poll_timeout().is_some() && is_in_time {
                actions.push(Action::Timeout);
            }
            if !state.members[JOINER - 1].has_joined {
                actions.push(Action::Join);
            }
        }
        if self.options.goes_deaf && !state.is_deaf {
            actions.push(Action::Deafen);
        }
        for (index, datagram) in state.network.iter().enumerate() {
            actions.push(Action::Deliver(index));
            if self.options.goes_deaf && datagram.to == 0 {
                let others = state.network.iter().enumerate().take(index).filter(|(_, other)| other.to == 0);
                actions.extend(others.map(|(other, _)| Action::DeliverBoth(other, index)));
            }
            if state.losses < self.options.losses || state.dead == Some(datagram.from) {
                actions.push(Action::Lose(index));
            }
        }
        for rank in 0..N as u8 {
            if state.dead.is_none() && self.options.mortal & 1 << rank != 0 {
                actions.push(Action::Crash(rank));
            }
            let knows = if rank == 0 { state.knows_failed } else { state.members[usize::from(rank) - 1].knows_failed };
            if state.dead.is_some_and(|dead| dead != rank) && !knows {
                actions.push(Action::Report(rank));
            }
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = state.clone();
        match *action {
            Action::Send(count) => {
                for _ in 0..count {
                    let had_room = next.root.room() > 0;
                    let psn = next.root.enqueue(0, 1, true).ok()?;
                    if !had_room {
                        next.broken = Some("nothing is queued beyond the window");
                    }
                    next.ring[psn.get() as usize % W] = next.sent;
                    next.sent += 1;
                }
                self.poll(&mut next, 0);
            }
            Action::Deliver(index) => self.deliver(&mut next, index),
            Action::DeliverBoth(first, second) => {
                Self::hand_over(&mut next, second);
                self.deliver(&mut next, first);
            }
            Action::Lose(index) => {
                let lost = next.network.remove(index);
                next.losses += u8::from(next.dead != Some(lost.from));
            }
            Action::Timeout => {
                // A joiner drops what arrives before the first probe.
                let founders = next.members.iter().take(self.config.topology.founders as usize - 1);
                let has_gap = founders.into_iter().any(|member| member.machine.has_gap());
                if has_gap && next.network.is_empty() && next.losses <= 1 && next.dead.is_none() && !next.is_deaf {
                    next.broken = Some("a gap that was noticed waits for no timer");
                }
                next.early_timeouts += u8::from(!next.network.is_empty());
                next.root.handle_timeout(());
                self.poll(&mut next, 0);
            }
            Action::Join => {
                let member = &mut next.members[JOINER - 1];
                (member.has_joined, member.expected) = (true, next.sent);
                next.root.add_member((), Rank(JOINER as u32));
                self.poll(&mut next, 0);
            }
            Action::Crash(rank) => {
                next.dead = Some(rank);
                next.network.retain(|datagram| datagram.to != rank);
            }
            Action::Report(rank) => self.report(&mut next, rank),
            Action::Deafen => next.is_deaf = true,
        }
        Self::drop_stale(&mut next);
        next.network.sort_unstable_by_key(|datagram| {
            let InFlight { from, to, body, payload, is_repair } = *datagram;
            let key = match body {
                Body::Segment(segment) => (0, segment.psn.get(), u32::from(segment.ack_now), 0),
                Body::Report(report) => {
                    (1, report.own.get(), report.below.get(), report.missing.words().next().unwrap_or(0))
                }
                Body::Probe(probe) => (2, probe.next.get(), probe.start.get(), 0),
            };
            (to, from, key, payload, is_repair)
        });
        (next != *state).then_some(next)
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        let is_over = state.sent == self.options.messages && state.root.is_idle();
        let is_unnoticed = is_over && !state.is_heard && !state.root.has_deaf_member();
        state.broken.or(is_unnoticed.then_some("a root notices that its multicasts reach a member no more"))
    }

    /// The root has freed every message, which all living members have, or the living know that it failed.
    fn finished(&self, state: &State) -> bool {
        let has_all = |rank: u8| {
            let member = &state.members[usize::from(rank) - 1];
            !Self::is_alive(state, rank)
                || !member.has_joined
                || member.expected == self.options.messages && member.machine.has_joined()
        };
        let knows = |rank: u8| !Self::is_alive(state, rank) || state.members[usize::from(rank) - 1].knows_failed;
        let ranks = 1..N as u8;
        if !Self::is_alive(state, 0) {
            return ranks.into_iter().all(knows);
        }
        state.sent == self.options.messages
            && state.root.is_idle()
            && state.network.is_empty()
            && ranks.into_iter().all(has_all)
    }

    /// Nobody has to die or join, and nothing has to be lost.
    fn counts(&self, action: &Action) -> bool {
        !matches!(action, Action::Crash(_) | Action::Join | Action::Lose(_) | Action::Deafen)
    }
}
