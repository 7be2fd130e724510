//! The executor of one rank's schedule: hands out steps whose dependencies are complete, and tracks completion.

use super::{Plan, Step, StepOperation};
use crate::collective::{CollectiveKind, CollectiveMachine, CollectiveSpec, Failure, FailureCause, Poll};
use crate::ids::{CollectiveId, Rank, StepId};

/// The most steps in progress, counted from the first incomplete one.
const WINDOW: u32 = 64;

/// One rank's steps in one collective: a [`Plan`], or in tests a list of steps with a defect.
pub trait Schedule {
    /// The kind of collective.
    fn collective(&self) -> CollectiveKind;
    /// The number of steps.
    fn steps(&self) -> u32;
    /// Step `i`; `None` from [`steps`](Self::steps) on. Any step may be computed in any order.
    fn step(&self, i: u32) -> Option<Step>;
}

impl Schedule for Plan {
    fn collective(&self) -> CollectiveKind {
        self.spec().collective
    }

    fn steps(&self) -> u32 {
        self.steps()
    }

    fn step(&self, i: u32) -> Option<Step> {
        self.step(i)
    }
}

/// One rank's execution of one collective over messages.
///
/// Each poll returns a step whose dependencies are complete; any number of steps may be in progress, and they complete
/// in any order. It needs no memory beyond this value. A step is computed twice in total, and its dependencies are
/// checked once for each step that completes while it is among the 64 that may be in progress.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Executor<S = Plan> {
    plan: S,
    id: CollectiveId,
    /// The first incomplete step; bit b of the masks stands for step base + b.
    base: u32,
    begun: u64,
    done: u64,
    /// Steps before this one were begun, or found to be blocked, since the last completion.
    from: u32,
    /// Steps before this one were computed: the dependencies of the last 64 of them, by their number modulo 64.
    computed: u32,
    dependencies: [u64; WINDOW as usize],
    failure: Option<Failure>,
}

impl<S: Schedule> Executor<S> {
    /// An execution without begun steps.
    pub const fn new(id: CollectiveId, plan: S) -> Self {
        Self {
            plan,
            id,
            base: 0,
            begun: 0,
            done: 0,
            from: 0,
            computed: 0,
            dependencies: [0; WINDOW as usize],
            failure: None,
        }
    }

    /// Restarts the same schedule as another collective. Dependencies stay computed if all of them fit.
    pub const fn restart(&mut self, id: CollectiveId) {
        self.id = id;
        (self.base, self.from) = (0, 0);
        (self.begun, self.done) = (0, 0);
        self.failure = None;
        if self.computed > WINDOW {
            self.computed = 0;
        }
    }

    /// The schedule.
    pub const fn plan(&self) -> &S {
        &self.plan
    }

    /// The identity of the collective.
    pub const fn id(&self) -> CollectiveId {
        self.id
    }

    /// The peer of the first incomplete step, if that is a message in progress.
    pub fn awaited(&self) -> Option<Rank> {
        (self.begun & 1 != 0).then(|| self.plan.step(self.base)).flatten().and_then(|step| partner(&step.operation))
    }

    /// The peers of the messages in progress; a rank appears once per message.
    pub fn partners(&self) -> impl Iterator<Item = Rank> {
        let under_way = self.begun & !self.done;
        let steps = (0..WINDOW).filter(move |b| under_way & bit(*b) != 0).map(|b| self.base.wrapping_add(b));
        steps.filter_map(|i| partner(&self.plan.step(i)?.operation))
    }

    /// The dependencies of step `i` of the window. The steps before it were computed.
    fn dependencies(&mut self, i: u32) -> Option<u64> {
        let needs = self.dependencies.get_mut((i % WINDOW) as usize)?;
        if i >= self.computed {
            *needs = self.plan.step(i)?.dependencies;
            self.computed = i.wrapping_add(1);
        }
        Some(*needs)
    }

    fn is_open_with(&self, i: u32, rank: Rank) -> bool {
        let is_done = self.done & bit(i.wrapping_sub(self.base)) != 0;
        !is_done && self.plan.step(i).is_some_and(|step| partner(&step.operation) == Some(rank))
    }

    /// The incomplete steps before the one at `b`, in the order of its dependencies: bit x for the one at b − 1 − x.
    const fn pending(&self, b: u32) -> u64 {
        match WINDOW.checked_sub(b) {
            Some(0) | None => 0,
            // The lowest b bits, reversed; every step before the base is complete.
            Some(WINDOW) => 0,
            Some(above) => match (!self.done).reverse_bits().checked_shr(above) {
                Some(pending) => pending,
                None => 0,
            },
        }
    }
}

/// [`CollectiveMachine::handle_failed`] takes O(steps).
impl<S: Schedule> CollectiveMachine for Executor<S> {
    type Request = StepOperation;

    /// Starts the schedule once more, as [`restart`](Self::restart) does: it was made for this specification.
    fn start(&mut self, id: CollectiveId, _: &CollectiveSpec) {
        if self.failure.is_none() {
            self.restart(id);
        }
    }

    /// [`Poll::Pending`]: some step in progress has to complete first.
    fn poll(&mut self) -> Poll<StepOperation> {
        if let Some(failure) = self.failure {
            return Poll::Failed(failure);
        }
        let end = self.plan.steps().min(self.base.saturating_add(WINDOW));
        while self.from < end {
            let i = self.from;
            self.from = i.wrapping_add(1);
            let b = i.wrapping_sub(self.base);
            if self.begun & bit(b) != 0 {
                continue;
            }
            let Some(needs) = self.dependencies(i) else { break };
            let may = needs & self.pending(b) == 0 || mutant!("needs_ignored");
            if may && let Some(Step { operation, .. }) = self.plan.step(i) {
                self.begun |= bit(b);
                return Poll::Request(StepId(i), operation);
            }
        }
        if self.base >= self.plan.steps() { Poll::Complete } else { Poll::Pending }
    }

    fn handle_done(&mut self, step: StepId) {
        let b = step.0.wrapping_sub(self.base);
        if b >= WINDOW || self.begun & !self.done & bit(b) == 0 {
            return;
        }
        self.done |= bit(b);
        let whole = self.done.trailing_ones();
        self.base = self.base.wrapping_add(whole);
        self.done = self.done.checked_shr(whole).unwrap_or(0);
        if !mutant!("begun_kept") {
            self.begun = self.begun.checked_shr(whole).unwrap_or(0);
        }
        if !mutant!("blocked_forgotten") {
            self.from = self.base;
        }
    }

    fn handle_failed(&mut self, rank: Rank) {
        if self.failure.is_none() && (self.base..self.plan.steps()).any(|i| self.is_open_with(i, rank)) {
            self.abort(rank, FailureCause::Missing);
        }
    }

    fn abort(&mut self, peer: Rank, cause: FailureCause) {
        if self.failure.is_none() && self.base < self.plan.steps() {
            self.failure = Some(Failure { rank: peer, cause, id: self.id, collective: self.plan.collective() });
        }
    }

    fn completed(&self) -> u32 {
        self.base
    }
}

/// Bit `b`; zero beyond the window.
const fn bit(b: u32) -> u64 {
    match 1_u64.checked_shl(b) {
        Some(bit) => bit,
        None => 0,
    }
}

/// The peer of a message.
const fn partner(operation: &StepOperation) -> Option<Rank> {
    match operation {
        StepOperation::Send { to, .. } => Some(*to),
        StepOperation::Receive { of, .. } => Some(*of),
        StepOperation::Copy { .. } | StepOperation::Reduce { .. } | StepOperation::Group(_) => None,
    }
}
