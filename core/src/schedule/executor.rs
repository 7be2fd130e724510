//! Runs one rank's schedule: which step may begin, which are under way, when all are done.

use super::{Operation, Plan, Step};
use crate::collective::{Cause, Failure, Turn, Verb};
use crate::ids::{CollectiveId, Rank, StepId};

/// Steps that are under way at most: those from the first that is not done on.
const WINDOW: u32 = 64;

/// One rank's steps in one collective: a [`Plan`], or in tests a list of steps with something wrong.
pub trait Schedule {
    /// What the group does.
    fn verb(&self) -> Verb;
    /// How many steps there are.
    fn steps(&self) -> u32;
    /// Step `i`; `None` from [`steps`](Self::steps) on. Any step may be asked for in any order.
    fn step(&self, i: u32) -> Option<Step>;
}

impl Schedule for Plan {
    fn verb(&self) -> Verb {
        self.call().verb
    }

    fn steps(&self) -> u32 {
        self.steps()
    }

    fn step(&self, i: u32) -> Option<Step> {
        self.step(i)
    }
}

/// One rank's part in one collective over messages.
///
/// Each poll hands out a step whose needs are done; any number of steps is under way, and they are done in any order. No
/// memory beyond this value. A step is computed twice in all, and its needs are looked at once for each step that is done while
/// it is among the 64 that may be under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Executor<S = Plan> {
    plan: S,
    id: CollectiveId,
    /// The first step that is not done; bit b below stands for step base + b.
    base: u32,
    begun: u64,
    done: u64,
    /// Steps before this one were begun, or found to need others, since the last one was done.
    from: u32,
    /// Steps before this one were computed: the needs of the last 64 of them, by their number modulo 64.
    computed: u32,
    needs: [u64; WINDOW as usize],
    failure: Option<Failure>,
}

impl<S: Schedule> Executor<S> {
    /// Nothing begun.
    pub const fn new(id: CollectiveId, plan: S) -> Self {
        Self { plan, id, base: 0, begun: 0, done: 0, from: 0, computed: 0, needs: [0; WINDOW as usize], failure: None }
    }

    /// The same schedule once more, as another collective. What was computed stays so where all of it was kept.
    pub const fn restart(&mut self, id: CollectiveId) {
        self.id = id;
        (self.base, self.from) = (0, 0);
        (self.begun, self.done) = (0, 0);
        self.failure = None;
        if self.computed > WINDOW {
            self.computed = 0;
        }
    }

    /// Its schedule.
    pub const fn plan(&self) -> &S {
        &self.plan
    }

    /// Which collective.
    pub const fn id(&self) -> CollectiveId {
        self.id
    }

    /// The next step to begin. [`Turn::Pending`]: some step that is under way has to be done first.
    pub fn poll(&mut self) -> Turn<Operation> {
        if let Some(failure) = self.failure {
            return Turn::Failed(failure);
        }
        let end = self.plan.steps().min(self.base.saturating_add(WINDOW));
        while self.from < end {
            let i = self.from;
            self.from = i.wrapping_add(1);
            let b = i.wrapping_sub(self.base);
            if self.begun & bit(b) != 0 {
                continue;
            }
            let Some(needs) = self.needs(i) else { break };
            #[cfg(not(mutant = "needs_ignored"))]
            let may = needs & self.pending(b) == 0;
            #[cfg(mutant = "needs_ignored")]
            let may = needs | 1 != 0;
            if may && let Some(Step { operation, .. }) = self.plan.step(i) {
                self.begun |= bit(b);
                return Turn::Do(StepId(i), operation);
            }
        }
        if self.base >= self.plan.steps() { Turn::Final } else { Turn::Pending }
    }

    /// A step is done. One that is not under way is ignored.
    pub fn handle_done(&mut self, step: StepId) {
        let b = step.0.wrapping_sub(self.base);
        if b >= WINDOW || self.begun & !self.done & bit(b) == 0 {
            return;
        }
        self.done |= bit(b);
        let whole = self.done.trailing_ones();
        self.base = self.base.wrapping_add(whole);
        self.done = self.done.checked_shr(whole).unwrap_or(0);
        #[cfg(not(mutant = "begun_kept"))]
        {
            self.begun = self.begun.checked_shr(whole).unwrap_or(0);
        }
        #[cfg(not(mutant = "blocked_forgotten"))]
        {
            self.from = self.base;
        }
    }

    /// A rank is gone: if some step with it is not done, the collective fails. O(steps).
    pub fn handle_failed(&mut self, rank: Rank) {
        if self.failure.is_none() && (self.base..self.plan.steps()).any(|i| self.is_open_with(i, rank)) {
            self.fail(rank, Cause::Missing);
        }
    }

    /// A rank does what none that follows the schedule does.
    pub fn fail(&mut self, rank: Rank, cause: Cause) {
        self.failure = Some(Failure { rank, cause, id: self.id, verb: self.plan.verb() });
    }

    /// Steps that are done, not counting those behind the first that is not.
    pub const fn done(&self) -> u32 {
        self.base
    }

    /// Whom the first step that is not done waits for, if it is under way and a message.
    pub fn awaited(&self) -> Option<Rank> {
        (self.begun & 1 != 0).then(|| self.plan.step(self.base)).flatten().and_then(|step| partner(&step.operation))
    }

    /// Whom the messages that are under way are with; a rank as often as there are messages with it.
    pub fn partners(&self) -> impl Iterator<Item = Rank> {
        let under_way = self.begun & !self.done;
        let steps = (0..WINDOW).filter(move |b| under_way & bit(*b) != 0).map(|b| self.base.wrapping_add(b));
        steps.filter_map(|i| partner(&self.plan.step(i)?.operation))
    }

    /// What step `i` of the window needs. The steps before it were asked for.
    fn needs(&mut self, i: u32) -> Option<u64> {
        let needs = self.needs.get_mut((i % WINDOW) as usize)?;
        if i >= self.computed {
            *needs = self.plan.step(i)?.needs;
            self.computed = i.wrapping_add(1);
        }
        Some(*needs)
    }

    fn is_open_with(&self, i: u32, rank: Rank) -> bool {
        let is_done = self.done & bit(i.wrapping_sub(self.base)) != 0;
        !is_done && self.plan.step(i).is_some_and(|step| partner(&step.operation) == Some(rank))
    }

    /// Steps before the one at `b` that are not done, in the order of its needs: bit x for the one at b − 1 − x.
    const fn pending(&self, b: u32) -> u64 {
        match WINDOW.checked_sub(b) {
            Some(0) | None => 0,
            // The lowest b bits, reversed; what is before the base is done.
            Some(WINDOW) => 0,
            Some(above) => match (!self.done).reverse_bits().checked_shr(above) {
                Some(pending) => pending,
                None => 0,
            },
        }
    }
}

/// Bit `b`; none beyond the window.
const fn bit(b: u32) -> u64 {
    match 1_u64.checked_shl(b) {
        Some(bit) => bit,
        None => 0,
    }
}

/// The other side of a message.
const fn partner(operation: &Operation) -> Option<Rank> {
    match operation {
        Operation::Send { to, .. } => Some(*to),
        Operation::Receive { of, .. } => Some(*of),
        Operation::Copy { .. } | Operation::Reduce { .. } => None,
    }
}
