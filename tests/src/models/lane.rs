//! Model of two hosts of two ranks that run two collectives of one communicator at a time: the shipped schedules over
//! subgroups, executors and lanes. Where a host's ranks have steps of their group, both execute the same one.
//!
//! Messages complete when they are sent and arrive in any order; contents are the subject of core's tests.

use alloc::collections::BTreeSet;

use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Lane as Turns, Poll, Turn};
use unisono_core::ids::{CollectiveId, Rank, StepId};
use unisono_core::schedule::{
    Algorithm, Executor, GroupStep, HierarchicalPlan, Hierarchy, HierarchyOptions, LowerTrees, Schedule as _, Spec,
    StepOperation,
};

use crate::model_checker::Model;

/// Ranks, two on each host.
pub const RANKS: u32 = 4;
/// Words of the table of the hosts.
const TABLE: usize = 9;

type Plan = HierarchicalPlan<[u32; TABLE]>;

/// The model.
#[derive(Debug)]
pub struct Lane {
    /// The schedules of each collective, by rank.
    plans: Vec<Vec<Plan>>,
}

impl Lane {
    /// These collectives, in this order, with these roots, in parts where they can be. `hosts`: whose ranks have steps of their group.
    ///
    /// # Panics
    /// There is no such schedule.
    pub fn new(calls: &[(CollectiveKind, u32, u32)], hosts: [bool; 2]) -> Self {
        let options = HierarchyOptions { in_parts: true, ..LowerTrees { radix: 2, ports: 1 }.into() };
        let hierarchy = Hierarchy::new(&[&[0, 0, 1, 1]], [0; TABLE]).expect("a table of that length");
        let plan = |&(kind, root, segments): &(CollectiveKind, u32, u32), rank: u32| {
            let algorithm = if kind == CollectiveKind::Allgather { Algorithm::Ring } else { Algorithm::Knomial };
            let spec = Spec { segments, root: Rank(root), ..Spec::new(kind, algorithm, RANKS, 1) };
            let spec = Spec { rank: Rank(rank), ..spec };
            let [first, second] = hosts;
            match if rank < 2 { first } else { second } {
                true => Plan::with_group_steps(spec, options, hierarchy),
                false => Plan::new(spec, options, hierarchy),
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

/// A step of the group that has begun, with its turn and its number among those of its collective.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Parked {
    step: Step,
    number: u32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct RankState {
    /// The collectives that it has started, with the turn of the first step of the group.
    started: Vec<(Executor<Plan>, Turn)>,
    lane: Turns,
    receiving: BTreeSet<Step>,
    parked: BTreeSet<Parked>,
}

/// All ranks, and the messages that have been sent: collective, sender, receiver, key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    ranks: Vec<RankState>,
    sent: BTreeSet<(usize, u32, u32, u32)>,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A rank starts its next collective.
    Start(usize),
    /// The message of a step arrives at a rank.
    Arrive(usize, Step),
    /// The ranks of a host execute these steps of the group.
    Execute(usize, [Step; 2]),
}

impl RankState {
    /// Begins all steps that may begin.
    fn progress(&mut self, rank: u32, sent: &mut BTreeSet<(usize, u32, u32, u32)>) {
        for (call, (executor, _)) in self.started.iter_mut().enumerate() {
            while let Poll::Request(step, operation) = executor.poll() {
                match operation {
                    StepOperation::Send { to, key, .. } => _ = sent.insert((call, rank, to.0, key)),
                    StepOperation::Receive { .. } => {
                        self.receiving.insert((call, step.0));
                        continue;
                    }
                    StepOperation::Group(_) => {
                        let is_group = |i: &u32| group_step(executor.plan(), *i).is_some();
                        let number = (0..step.0).filter(is_group).count() as u32;
                        self.parked.insert(Parked { step: (call, step.0), number });
                        continue;
                    }
                    StepOperation::Copy { .. } | StepOperation::Reduce { .. } => {}
                }
                executor.handle_done(step);
            }
        }
    }

    /// The steps of the group that may be executed now.
    fn next(&self) -> impl Iterator<Item = Step> {
        let may = |parked: &&Parked| {
            let (call, _) = parked.step;
            self.started.get(call).is_some_and(|(_, first)| self.lane.is_next(first.after(parked.number)))
        };
        self.parked.iter().filter(may).map(|parked| parked.step)
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

fn group_step(plan: &Plan, i: u32) -> Option<GroupStep> {
    match plan.step(i)?.operation {
        StepOperation::Group(step) => Some(step),
        _ => None,
    }
}

impl Model for Lane {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let idle = RankState {
            started: Vec::new(),
            lane: Turns::default(),
            receiving: BTreeSet::new(),
            parked: BTreeSet::new(),
        };
        State { ranks: vec![idle; RANKS as usize], sent: BTreeSet::new(), broken: None }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (rank, own) in state.ranks.iter().enumerate() {
            if own.started.len() < self.calls() {
                actions.push(Action::Start(rank));
            }
            for &(call, step) in &own.receiving {
                let plan = own.started.get(call).map(|(executor, _)| executor.plan());
                if let Some(StepOperation::Receive { of, key, .. }) =
                    plan.and_then(|plan| plan.step(step)).map(|step| step.operation)
                    && state.sent.contains(&(call, of.0, rank as u32, key))
                {
                    actions.push(Action::Arrive(rank, (call, step)));
                }
            }
        }
        for (host, pair) in state.ranks.chunks_exact(2).enumerate() {
            if let [one, other] = pair {
                for first in one.next() {
                    actions.extend(other.next().map(|second| Action::Execute(host, [first, second])));
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
                let steps = (0..plan.steps()).filter(|i| group_step(plan, *i).is_some()).count() as u32;
                let id = CollectiveId { context: 0, sequence: call as u32 + 1 };
                let turn = own.lane.enter(steps);
                own.started.push((Executor::new(id, plan.clone()), turn));
                own.progress(rank as u32, sent);
            }
            Action::Arrive(rank, step) => {
                let own = ranks.get_mut(rank)?;
                own.end(step);
                own.progress(rank as u32, sent);
            }
            Action::Execute(host, steps) => {
                let number = |of: &RankState, step: Step| {
                    of.parked.iter().find(|parked| parked.step == step).map(|parked| parked.number)
                };
                let (first, pair) = (2 * host, ranks.get_mut(2 * host..2 * host + 2)?);
                let [one, other] = steps;
                let same = |a: &RankState, b: &RankState| {
                    let ((call, _), (its, _)) = (one, other);
                    call == its && number(a, one) == number(b, other)
                };
                if let [a, b] = &*pair
                    && !same(a, b)
                {
                    *broken = Some("the ranks of a group execute the same step");
                }
                for (rank, (own, step)) in (first..).zip(pair.iter_mut().zip(steps)) {
                    own.end(step);
                    own.lane.leave();
                    own.progress(rank as u32, sent);
                }
            }
        }
        Some(next)
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        state.broken
    }

    fn finished(&self, state: &State) -> bool {
        state.ranks.iter().all(|own| own.is_done(self.calls()) && own.lane.is_idle())
    }
}
