//! Model of four ranks that run collectives of one communicator at a time: the shipped schedules over subgroups, executors
//! and lanes. Where the two members of a subgroup have steps of their own, both execute the same one.
//!
//! Messages complete when they are sent and arrive in any order. Of each block the model knows the ranks whose contributions
//! it has; their order is the subject of core's tests.

mod memory;

use alloc::collections::{BTreeMap, BTreeSet};

use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Lane as Turns, Poll, Turn};
use unisono_core::ids::{CollectiveId, Rank, StepId};
use unisono_core::schedule::{
    Algorithm, Executor, GroupLevels, GroupStep, HierarchicalPlan, Hierarchy, HierarchyOptions, Schedule as _, Spec,
    StepOperation,
};

use crate::model_checker::Model;
use memory::{Bits, Memory};

/// Ranks.
pub const RANKS: u32 = 4;
/// Levels with lanes.
const LEVELS: usize = 2;

type Plan = HierarchicalPlan<[u32; Hierarchy::<()>::table_len(RANKS as usize, LEVELS)]>;

/// The model.
#[derive(Debug)]
pub struct Lane {
    /// The schedules of each collective, by rank.
    plans: Vec<Vec<Plan>>,
}

impl Lane {
    /// These collectives, in this order, with these roots and segments, so composed over subgroups of two members: the group of each rank, by grouping, innermost first. `levels`: where each rank's subgroups have steps of
    /// their own.
    ///
    /// # Panics
    /// There is no such schedule.
    pub fn new(
        calls: &[(CollectiveKind, u32, u32)],
        groupings: &[&[u32]],
        options: HierarchyOptions,
        levels: [GroupLevels; RANKS as usize],
    ) -> Self {
        let table = [0; Hierarchy::<()>::table_len(RANKS as usize, LEVELS)];
        let hierarchy = Hierarchy::new(groupings, table).expect("a table of that length");
        let plan = |&(kind, root, segments): &(CollectiveKind, u32, u32), rank: u32| {
            let algorithm = if kind == CollectiveKind::Allgather { Algorithm::Ring } else { Algorithm::Knomial };
            let spec = Spec { segments, root: Rank(root), ..Spec::new(kind, algorithm, RANKS, 1) };
            let spec = Spec { rank: Rank(rank), ..spec };
            match levels.get(rank as usize) {
                Some(levels) if *levels != GroupLevels::NONE => {
                    Plan::with_group_steps(spec, options, hierarchy, *levels)
                }
                _ => Plan::new(spec, options, hierarchy),
            }
        };
        let of = |call| (0..RANKS).map(|rank| plan(call, rank).expect("a schedule that exists")).collect();
        Self { plans: calls.iter().map(of).collect() }
    }

    fn calls(&self) -> usize {
        self.plans.len()
    }
}

/// A step of a collective of a rank.
type Step = (usize, u32);

/// A step of a subgroup that has begun: its level and group, and its number among those of its collective at that level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Parked {
    subgroup: (u32, u32),
    step: Step,
    number: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct RankState {
    /// The collectives that it has started, with the turn of the first step of its subgroup of each level.
    started: Vec<(Executor<Plan>, [Turn; LEVELS])>,
    memories: Vec<Memory>,
    lanes: [Turns; LEVELS],
    receiving: BTreeSet<Step>,
    parked: BTreeSet<Parked>,
}

/// The messages that have been sent, by collective, sender, receiver and key.
type Sent = BTreeMap<(usize, u32, u32, u32), Vec<Bits>>;

/// All ranks, and the messages that have been sent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    ranks: Vec<RankState>,
    sent: Sent,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A rank starts its next collective.
    Start(usize),
    /// The message of a step arrives at a rank.
    Arrive(usize, Step),
    /// These ranks, the members of a subgroup of this level, execute these steps.
    Execute(u32, [(usize, Step); 2]),
}

const TWICE: &str = "no contribution is combined twice";
const RESULT: &str = "a collective gives what it means";

impl RankState {
    /// Begins all steps that may begin.
    fn progress(&mut self, rank: u32, sent: &mut Sent) -> Result<(), &'static str> {
        for ((call, (executor, _)), memory) in self.started.iter_mut().enumerate().zip(&mut self.memories) {
            while let Poll::Request(step, operation) = executor.poll() {
                match operation {
                    StepOperation::Send { to, key, from, .. } => {
                        sent.insert((call, rank, to.0, key), memory.load(from));
                    }
                    StepOperation::Receive { .. } => {
                        self.receiving.insert((call, step.0));
                        continue;
                    }
                    StepOperation::Group(GroupStep { level, group, .. }) => {
                        let number = group_steps(executor.plan(), level, step.0);
                        self.parked.insert(Parked { subgroup: (level, group), step: (call, step.0), number });
                        continue;
                    }
                    StepOperation::Copy { from, into } => {
                        let blocks = memory.load(from);
                        memory.store(into, &blocks).then_some(()).ok_or(RESULT)?;
                    }
                    StepOperation::Reduce { from, into, .. } => {
                        memory.combine(from, into).then_some(()).ok_or(TWICE)?;
                    }
                }
                executor.handle_done(step);
            }
            let is_done = executor.completed() == executor.plan().steps();
            if is_done && !memory.is_result(executor.plan().spec(), RANKS) {
                return Err(RESULT);
            }
        }
        Ok(())
    }

    fn operation(&self, (call, step): Step) -> Option<StepOperation> {
        let (executor, _) = self.started.get(call)?;
        Some(executor.plan().step(step)?.operation)
    }

    /// The steps of subgroups that may be executed now.
    fn next(&self) -> impl Iterator<Item = &Parked> {
        self.parked.iter().filter(|Parked { subgroup: (level, _), step: (call, _), number }| {
            let first = self.started.get(*call).and_then(|(_, first)| first.get(*level as usize));
            let lane = self.lanes.get(*level as usize);
            lane.zip(first).is_some_and(|(lane, first)| lane.is_next(first.after(*number)))
        })
    }

    fn end(&mut self, (call, step): Step) {
        self.receiving.remove(&(call, step));
        self.parked.retain(|parked| parked.step != (call, step));
        if let Some((executor, _)) = self.started.get_mut(call) {
            executor.handle_done(StepId(step));
        }
    }

    fn is_done(&self, calls: usize) -> bool {
        self.started.len() == calls
            && self.started.iter().all(|(executor, _)| executor.completed() == executor.plan().steps())
    }
}

/// Steps of this rank's subgroup of a level before step `end`.
fn group_steps(plan: &Plan, level: u32, end: u32) -> u32 {
    let is_of_level = |i: &u32| match plan.step(*i).map(|step| step.operation) {
        Some(StepOperation::Group(step)) => step.level == level,
        _ => false,
    };
    (0..end).filter(is_of_level).count() as u32
}

impl Model for Lane {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let idle = RankState {
            started: Vec::new(),
            memories: Vec::new(),
            lanes: [Turns::default(); LEVELS],
            receiving: BTreeSet::new(),
            parked: BTreeSet::new(),
        };
        State { ranks: vec![idle; RANKS as usize], sent: Sent::new(), broken: None }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (rank, own) in state.ranks.iter().enumerate() {
            if own.started.len() < self.calls() {
                actions.push(Action::Start(rank));
            }
            for &(call, step) in &own.receiving {
                if let Some(StepOperation::Receive { of, key, .. }) = own.operation((call, step))
                    && state.sent.contains_key(&(call, of.0, rank as u32, key))
                {
                    actions.push(Action::Arrive(rank, (call, step)));
                }
            }
        }
        for (rank, own) in state.ranks.iter().enumerate() {
            for (other, its) in state.ranks.iter().enumerate().skip(rank + 1) {
                for first in own.next() {
                    let same = its.next().filter(|second| second.subgroup == first.subgroup);
                    let (level, _) = first.subgroup;
                    actions
                        .extend(same.map(|second| Action::Execute(level, [(rank, first.step), (other, second.step)])));
                }
            }
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = state.clone();
        let State { ranks, sent, broken } = &mut next;
        match *action {
            Action::Start(rank) => {
                let own = ranks.get_mut(rank)?;
                let call = own.started.len();
                let plan = self.plans.get(call)?.get(rank)?;
                let id = CollectiveId { context: 0, sequence: call as u32 + 1 };
                let steps = [0, 1].map(|level| group_steps(plan, level, plan.steps()));
                let [ranks, leaders] = own.lanes.each_mut();
                let [own_steps, leaders_steps] = steps;
                let turns = [ranks.enter(own_steps), leaders.enter(leaders_steps)];
                own.memories.push(Memory::new(plan));
                own.started.push((Executor::new(id, plan.clone()), turns));
                *broken = own.progress(rank as u32, sent).err();
            }
            Action::Arrive(rank, step) => {
                let own = ranks.get_mut(rank)?;
                if let Some(StepOperation::Receive { of, key, into, .. }) = own.operation(step) {
                    let blocks = sent.get(&(step.0, of.0, rank as u32, key))?;
                    *broken = (!own.memories.get_mut(step.0)?.store(into, blocks)).then_some(RESULT);
                }
                own.end(step);
                *broken = broken.or(own.progress(rank as u32, sent).err());
            }
            Action::Execute(level, steps) => {
                let of = |(rank, step): (usize, Step)| {
                    let parked = ranks.get(rank)?.parked.iter().find(|parked| parked.step == step)?;
                    Some((step.0, parked.number))
                };
                let [one, other] = steps.map(of);
                *broken = (one != other).then_some("the members of a subgroup execute the same step");
                let [(first, step), (second, other)] = steps;
                let operations = [ranks.get(first)?.operation(step)?, ranks.get(second)?.operation(other)?];
                let [StepOperation::Group(of_first), StepOperation::Group(of_second)] = operations else { return None };
                let [one, two] = ranks.get_disjoint_mut([first, second]).ok()?;
                let memories = [one.memories.get_mut(step.0)?, two.memories.get_mut(other.0)?];
                if broken.is_none() && !memory::execute([of_first, of_second], memories) {
                    *broken = Some("the members of a subgroup execute the same collective");
                }
                for (rank, step) in steps {
                    let own = ranks.get_mut(rank)?;
                    own.end(step);
                    own.lanes.get_mut(level as usize)?.leave();
                    *broken = broken.or(own.progress(rank as u32, sent).err());
                }
            }
        }
        Some(next)
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        state.broken
    }

    fn finished(&self, state: &State) -> bool {
        state.ranks.iter().all(|own| own.is_done(self.calls()) && own.lanes.iter().all(Turns::is_idle))
    }
}
