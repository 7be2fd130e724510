//! Model of a pool of groups: the shipped root and the shipped pools of three ranks, over messages in order between two
//! ranks and probes that get lost.
//!
//! Two creations are scripted, each in steps that the ranks take at different times: every rank of the parent offers, then
//! each takes its group, then each member frees it. The test's timer fires when nothing is in flight.

use unisono_core::ids::Rank;
use unisono_core::multicast::{GroupPool, Offer, PoolBody, PoolConfig, PoolMessage, PoolRoot, SlotSet};
use unisono_core::time::AbstractTime;

use crate::model_checker::Model;

/// Ranks; rank 0 is the root.
const N: usize = 3;
/// Slots of the pool.
const P: usize = 2;

/// A creation: the ranks of the parent, and the members of the first communicator; the others form the second one.
#[derive(Clone, Copy, Debug)]
pub struct Creation {
    /// The ranks of the parent, as bits.
    pub parent: u8,
    /// The members of the first communicator, as bits.
    pub first: u8,
}

/// What may happen.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// The creations.
    pub creations: [Creation; 2],
    /// Groups that are ready or being made.
    pub target: u32,
    /// Probes that get lost.
    pub losses: u8,
    /// The last rank cannot join a group.
    pub refuses: bool,
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct PooledGroups {
    options: PoolOptions,
}

/// A rank's part in a creation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Part {
    Outside,
    Before,
    Offered(Option<Offer>),
    Member(Option<u8>),
    Freed,
}

/// All machines, and the network.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    root: PoolRoot<AbstractTime, P, N>,
    pools: [GroupPool<P>; N],
    to_rank: [Vec<PoolMessage>; N],
    to_root: [Vec<PoolMessage>; N],
    probes: Vec<(u8, PoolMessage)>,
    /// The ranks that are members of each group at their devices, and those that its present test has reached.
    joined: [u8; P],
    reached: [u8; P],
    parts: [[Part; N]; 2],
    agreed: [Option<SlotSet>; 2],
    losses: u8,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// The next message of the root arrives at a rank.
    Deliver(usize),
    /// The next message of a rank arrives at the root.
    Report(usize),
    /// A probe arrives.
    Probe(usize),
    /// A probe gets lost.
    Lose(usize),
    /// The test's timer fires.
    Timeout,
    /// A rank offers groups to a creation.
    Offer(usize, usize),
    /// A rank ends its part in a creation.
    Take(usize, usize),
    /// A rank frees its communicator.
    Free(usize, usize),
}

const fn has(ranks: u8, rank: usize) -> bool {
    ranks & 1 << rank != 0
}

impl PooledGroups {
    /// The model with these options.
    pub const fn new(options: PoolOptions) -> Self {
        Self { options }
    }

    /// Carries out what the machines request.
    fn poll(&self, state: &mut State) {
        while let Some(message) = state.root.poll_transmit(()) {
            if message.body == PoolBody::Make {
                state.reached[usize::from(message.slot)] = 0;
            }
            state.to_rank.iter_mut().for_each(|queue| queue.push(message));
        }
        while let Some(probe) = state.root.poll_probe() {
            let members = state.joined[usize::from(probe.slot)];
            for rank in (1..N as u8).filter(|rank| has(members, usize::from(*rank))) {
                if !state.probes.contains(&(rank, probe)) {
                    state.probes.push((rank, probe));
                }
            }
        }
        for rank in 0..N {
            let pool = &mut state.pools[rank];
            while let Some(slot) = pool.poll_join() {
                let is_joined = !(self.options.refuses && rank == N - 1);
                state.joined[usize::from(slot)] |= u8::from(is_joined) << rank;
                pool.handle_joined(slot, is_joined);
            }
            while let Some(slot) = pool.poll_leave() {
                state.joined[usize::from(slot)] &= !(1 << rank);
            }
            while let Some(message) = pool.poll_transmit() {
                if message.body == PoolBody::Answered {
                    state.reached[usize::from(message.slot)] |= 1 << rank;
                }
                state.to_root[rank].push(message);
            }
        }
        // A probe of a test that is over is ignored whenever it arrives.
        let State { probes, pools, .. } = state;
        probes.retain(|(rank, probe)| {
            let mut after = pools[usize::from(*rank)];
            after.handle_message(*probe);
            after != pools[usize::from(*rank)]
        });
        probes.sort_unstable();
    }

    /// What all ranks of the parent offered; `None` as long as one has not.
    fn agree(parts: &[Part; N]) -> Option<SlotSet> {
        let mut agreed = SlotSet::ALL;
        for part in parts {
            match part {
                Part::Before => return None,
                Part::Offered(offer) => {
                    agreed = agreed.and(offer.as_ref().map_or(SlotSet::EMPTY, Offer::slots));
                }
                _ => {}
            }
        }
        Some(agreed)
    }

    /// Whether a rank is a member of the group of another communicator of its creation.
    fn has_stayed(state: &State) -> bool {
        state.parts.iter().any(|parts| {
            let slots = || parts.iter().filter_map(|part| if let Part::Member(slot) = part { *slot } else { None });
            let stays = |(rank, part): (usize, &Part)| {
                let Part::Member(own) = part else { return false };
                slots().any(|slot| *own != Some(slot) && has(state.joined[usize::from(slot)], rank))
            };
            parts.iter().enumerate().any(stays)
        })
    }

    /// Whether nothing is under way although fewer groups than wanted may be taken, and no rank is in one of the slots.
    fn lacks_group(state: &State, target: u32) -> bool {
        let is_quiet = state.to_rank.iter().chain(&state.to_root).all(Vec::is_empty)
            && state.probes.is_empty()
            && state.root.poll_timeout().is_none();
        let is_offered = state.parts.iter().flatten().any(|part| matches!(part, Part::Offered(_)));
        let has_free_slot = state.joined.contains(&0);
        let is_short = state.pools.iter().any(|pool| pool.ready().0.count_ones() < target);
        is_quiet && !is_offered && has_free_slot && is_short && !state.root.is_closed()
    }

    fn members(&self, creation: usize, rank: usize) -> u8 {
        let Creation { parent, first } = self.options.creations[creation];
        if has(first, rank) { parent & first } else { parent & !first }
    }

    fn offer(&self, state: &mut State, creation: usize, rank: usize) {
        let offer = state.pools[rank].offer();
        for slot in (0..P).filter(|slot| offer.as_ref().is_some_and(|offer| offer.slots().0 & 1 << slot != 0)) {
            if state.reached[slot] | 1 != (1 << N) - 1 {
                state.broken = Some("a group is offered only after its test has passed");
            }
        }
        state.parts[creation][rank] = Part::Offered(offer);
        state.agreed[creation] = Self::agree(&state.parts[creation]);
    }

    fn take(&self, state: &mut State, creation: usize, rank: usize) {
        let (Part::Offered(offer), Some(agreed)) = (state.parts[creation][rank].clone(), state.agreed[creation]) else {
            return;
        };
        let own = u32::from(!has(self.options.creations[creation].first, rank));
        let taken = offer.and_then(|offer| state.pools[rank].take(offer, agreed, 2, Some(own)));
        state.parts[creation][rank] = Part::Member(taken);
        if taken.is_some_and(|slot| !has(state.joined[usize::from(slot)], rank)) {
            state.broken = Some("a member of a communicator is in its group");
        }
        let members = self.members(creation, rank);
        for (other, parts) in state.parts.iter().enumerate() {
            for (peer, part) in parts.iter().enumerate() {
                let Part::Member(theirs) = part else { continue };
                let is_same = other == creation && has(members, peer);
                if is_same && *theirs != taken {
                    state.broken = Some("all members of a communicator get the same group");
                }
                let overlaps = self.members(other, peer) & members != 0;
                if !is_same && overlaps && taken.is_some() && *theirs == taken {
                    state.broken = Some("two communicators that share a rank share no group");
                }
            }
        }
    }
}

impl Model for PooledGroups {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let config = PoolConfig { size: N as u32, root: Rank(0), target: self.options.target, probes: (3, 1, 1) };
        let part = |creation: usize, rank: usize| {
            if has(self.options.creations[creation].parent, rank) { Part::Before } else { Part::Outside }
        };
        let mut state = State {
            root: PoolRoot::new((), config),
            pools: [GroupPool::new(); N],
            to_rank: Default::default(),
            to_root: Default::default(),
            probes: Vec::new(),
            joined: [0; P],
            reached: [0; P],
            parts: [0, 1].map(|creation| [0, 1, 2].map(|rank| part(creation, rank))),
            agreed: [None; 2],
            losses: 0,
            broken: None,
        };
        self.poll(&mut state);
        state
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for rank in 0..N {
            if !state.to_rank[rank].is_empty() {
                actions.push(Action::Deliver(rank));
            }
            if !state.to_root[rank].is_empty() {
                actions.push(Action::Report(rank));
            }
        }
        for index in 0..state.probes.len() {
            actions.push(Action::Probe(index));
            if state.losses < self.options.losses {
                actions.push(Action::Lose(index));
            }
        }
        let is_quiet = state.to_rank.iter().chain(&state.to_root).all(Vec::is_empty) && state.probes.is_empty();
        if is_quiet && state.root.poll_timeout().is_some() {
            actions.push(Action::Timeout);
        }
        for creation in 0..2 {
            for rank in 0..N {
                match &state.parts[creation][rank] {
                    Part::Before => actions.push(Action::Offer(creation, rank)),
                    Part::Offered(_) if state.agreed[creation].is_some() => actions.push(Action::Take(creation, rank)),
                    Part::Member(_) if !state.parts[creation].iter().any(|part| matches!(part, Part::Offered(_))) => {
                        actions.push(Action::Free(creation, rank));
                    }
                    _ => {}
                }
            }
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = state.clone();
        match *action {
            Action::Deliver(rank) => {
                let message = next.to_rank[rank].remove(0);
                next.pools[rank].handle_message(message);
            }
            Action::Report(rank) => {
                let message = next.to_root[rank].remove(0);
                next.root.handle_message((), Rank(rank as u32), message);
            }
            Action::Probe(index) => {
                let (rank, probe) = next.probes.remove(index);
                next.pools[usize::from(rank)].handle_message(probe);
            }
            Action::Lose(index) => {
                next.probes.remove(index);
                next.losses += 1;
            }
            Action::Timeout => next.root.handle_timeout(()),
            Action::Offer(creation, rank) => self.offer(&mut next, creation, rank),
            Action::Take(creation, rank) => self.take(&mut next, creation, rank),
            Action::Free(creation, rank) => {
                if let Part::Member(Some(slot)) = next.parts[creation][rank] {
                    next.pools[rank].release(slot);
                }
                next.parts[creation][rank] = Part::Freed;
            }
        }
        self.poll(&mut next);
        if Self::has_stayed(&next) {
            next.broken = Some("ranks of the parent that are no members of a communicator leave its group");
        }
        Some(next)
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        state.broken.or_else(|| {
            Self::lacks_group(state, self.options.target)
                .then_some("where a slot is free, a group that is taken is replaced before it is free again")
        })
    }

    /// All communicators are freed, and the pool is full again at all ranks, or closed with all ranks outside.
    fn finished(&self, state: &State) -> bool {
        let is_over = |part: &Part| matches!(part, Part::Outside | Part::Freed);
        let are_over = state.parts.iter().flatten().all(is_over);
        let ready = state.pools[0].ready();
        let all = (1 << N) - 1;
        let is_full = ready.0.count_ones() == self.options.target
            && state.root.ready() == self.options.target
            && state.pools.iter().all(|pool| pool.ready() == ready)
            && (0..P).all(|slot| state.joined[slot] == if ready.0 & 1 << slot != 0 { all } else { 0 });
        let is_closed = state.root.is_closed() && state.joined == [0; P];
        are_over && if self.options.refuses { is_closed } else { is_full }
    }
}
