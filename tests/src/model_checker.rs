//! Exhaustive exploration of a state machine: every reachable state is visited, or the report is marked incomplete.
//!
//! Three questions are answered about every state: is it safe ([`Model::violation`]), can a finished state still be
//! reached from it ([`Model::finished`], by reverse reachability over all transitions that count), and how does one get
//! there. The answer to a failure is a path from the initial state, the shortest one when the order is
//! [`SearchOrder::Breadth`], found by executing the model again.
//!
//! States are distinguished by 96 bits of two seeded hashes, so any two of n states are confused with odds of n² / 2⁹⁷:
//! of 3 × 10⁷ states, 10⁻¹⁴. Kept per state are 21 to 43 bytes of hash table and 6 for the way back; per transition 8,
//! and 8 more while reachability is decided. Whole states are kept only until they are expanded.

mod fingerprint;
mod reachability;
mod trace;

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use core::{fmt, fmt::Debug, hash::Hash};
use std::time::Instant;

use self::fingerprint::{Fingerprint, Visited};
pub use self::trace::Trace;

/// A machine with its environment. Deterministic: equal states have equal actions with equal outcomes.
pub trait Model {
    /// State of the machine and its environment.
    type State: Clone + Eq + Hash + Debug;
    /// An event.
    type Action: Debug;

    /// The initial state.
    fn initial(&self) -> Self::State;
    /// Adds all possible next actions, at most 65536.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);
    /// The state after an action; `None` when the action is impossible.
    fn next(&self, state: &Self::State, action: &Self::Action) -> Option<Self::State>;
    /// Which rule the state breaks. Nothing is explored beyond such a state.
    fn violation(&self, state: &Self::State) -> Option<&'static str>;
    /// Whether all work is done.
    fn finished(&self, state: &Self::State) -> bool;
    /// Whether finishing may depend on it: what happens by itself, not what a user may happen to do.
    fn counts(&self, action: &Self::Action) -> bool {
        let _ = action;
        true
    }
}

/// Which state is expanded next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SearchOrder {
    /// The oldest: paths to failures are shortest.
    #[default]
    Breadth,
    /// The newest: fewer states wait to be expanded.
    Depth,
}

/// How to explore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explorer {
    /// Which state is expanded next.
    pub order: SearchOrder,
    /// A run that finds more states stops and fails.
    pub most_states: u32,
}

impl Default for Explorer {
    /// Breadth first, up to 3 × 10⁷ states.
    fn default() -> Self {
        Self { order: SearchOrder::Breadth, most_states: 30_000_000 }
    }
}

/// Result of an exploration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Every state is safe, and each can finish.
    Holds,
    /// A state breaks a rule.
    Violated {
        /// The rule.
        rule: &'static str,
        /// The way there.
        trace: Trace,
    },
    /// A state is reached from which no finished one can be.
    Stuck {
        /// Nothing at all can happen in it; otherwise things happen for ever.
        deadlock: bool,
        /// The way there.
        trace: Trace,
    },
    /// There are more states than the run was allowed.
    Capped,
}

/// An exploration.
#[derive(Clone, PartialEq, Debug)]
pub struct ExplorationReport {
    /// The result.
    pub answer: Answer,
    /// States found.
    pub states: u32,
    /// The sum of their fingerprints: explorations of the same states have the same sum.
    pub fingerprint: u64,
    /// Transitions between different states, of actions that count.
    pub transitions: u64,
    /// The longest path that was followed; breadth first, the longest of the shortest paths.
    pub depth: u32,
    /// Wall clock.
    pub seconds: f64,
    /// Largest resident memory of the process meanwhile, where the system reports it.
    pub peak_bytes: Option<u64>,
    /// Every reachable state was visited.
    pub complete: bool,
}

impl ExplorationReport {
    /// Whether everything was explored and nothing found.
    pub fn holds(&self) -> bool {
        self.answer == Answer::Holds && self.complete
    }
}

/// The way back: the state from which another was first found, and by which of its actions.
#[derive(Clone, Copy, Debug)]
struct Origin {
    state: u32,
    action: u16,
}

struct PendingState<S> {
    index: u32,
    depth: u32,
    state: S,
}

struct Exploration<'m, M: Model> {
    model: &'m M,
    explorer: Explorer,
    visited: Visited,
    parents: Vec<u32>,
    ordinals: Vec<u16>,
    finished: Vec<u32>,
    transitions: Vec<[u32; 2]>,
    waiting: VecDeque<PendingState<M::State>>,
    depth: u32,
}

/// Why an exploration ended early.
enum EarlyEnd {
    Violated { rule: &'static str, index: u32 },
    Capped,
}

impl Explorer {
    /// Explores a model.
    ///
    /// # Panics
    /// When the model turns out not to be deterministic.
    pub fn explore<M: Model>(self, model: &M) -> ExplorationReport {
        reset_peak();
        let start = Instant::now();
        let mut exploration = Exploration {
            model,
            explorer: self,
            visited: Visited::default(),
            parents: Vec::new(),
            ordinals: Vec::new(),
            finished: Vec::new(),
            transitions: Vec::new(),
            waiting: VecDeque::new(),
            depth: 0,
        };
        let end = exploration.run();
        let (states, fingerprint) = (exploration.visited.len(), exploration.visited.sum());
        let (depth, transitions) = (exploration.depth, exploration.transitions.len() as u64);
        let (answer, complete) = exploration.answer(end);
        let seconds = start.elapsed().as_secs_f64();
        ExplorationReport { answer, states, fingerprint, transitions, depth, seconds, peak_bytes: peak(), complete }
    }
}

impl<M: Model> Exploration<'_, M> {
    fn run(&mut self) -> Result<(), EarlyEnd> {
        self.visit(self.model.initial(), Origin { state: 0, action: 0 }, 0)?;
        let mut actions = Vec::new();
        while let Some(PendingState { index, depth, state }) = self.take() {
            actions.clear();
            self.model.actions(&state, &mut actions);
            for (ordinal, action) in actions.iter().enumerate() {
                let Some(next) = self.model.next(&state, action) else { continue };
                let action = u16::try_from(ordinal).expect("a state has at most 65536 actions");
                let next = self.visit(next, Origin { state: index, action }, depth + 1)?;
                if next != index && self.model.counts(&actions[usize::from(action)]) {
                    self.transitions.push([index, next]);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Option<PendingState<M::State>> {
        match self.explorer.order {
            SearchOrder::Breadth => self.waiting.pop_front(),
            SearchOrder::Depth => self.waiting.pop_back(),
        }
    }

    /// The index of a state, which waits to be expanded if it is new.
    fn visit(&mut self, state: M::State, origin: Origin, depth: u32) -> Result<u32, EarlyEnd> {
        let (index, new) = self.visited.insert(Fingerprint::of(&state));
        if !new {
            return Ok(index);
        }
        self.parents.push(origin.state);
        self.ordinals.push(origin.action);
        self.depth = self.depth.max(depth);
        if let Some(rule) = self.model.violation(&state) {
            return Err(EarlyEnd::Violated { rule, index });
        }
        if self.visited.len() > self.explorer.most_states {
            return Err(EarlyEnd::Capped);
        }
        if self.model.finished(&state) {
            self.finished.push(index);
        }
        self.waiting.push_back(PendingState { index, depth, state });
        Ok(index)
    }

    /// The answer, and whether every state was visited.
    fn answer(self, end: Result<(), EarlyEnd>) -> (Answer, bool) {
        match end {
            Err(EarlyEnd::Capped) => (Answer::Capped, false),
            Err(EarlyEnd::Violated { rule, index }) => (Answer::Violated { rule, trace: self.trace(index) }, false),
            Ok(()) => (self.stuck().unwrap_or(Answer::Holds), true),
        }
    }

    fn stuck(&self) -> Option<Answer> {
        let index = reachability::first_that_cannot_reach(self.visited.len(), &self.transitions, &self.finished)?;
        let deadlock = !self.transitions.iter().any(|[from, _]| *from == index);
        Some(Answer::Stuck { deadlock, trace: self.trace(index) })
    }

    fn trace(&self, index: u32) -> Trace {
        let mut ordinals = Vec::new();
        let mut at = index;
        while at != 0 {
            ordinals.push(self.ordinals[at as usize]);
            at = self.parents[at as usize];
        }
        ordinals.reverse();
        let (trace, last) = Trace::of(self.model, &ordinals);
        assert!(self.visited.find(Fingerprint::of(&last)) == Some(index), "the model is not deterministic:\n{trace}");
        trace
    }
}

impl fmt::Display for ExplorationReport {
    /// One line of figures; the trace of a failure follows.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answer, states, fingerprint, transitions, depth, seconds, peak_bytes, complete } = self;
        write!(
            to,
            "{states} states (fingerprint {fingerprint:016x}), {transitions} transitions, depth {depth}, {seconds:.1} s"
        )?;
        if let Some(bytes) = peak_bytes {
            write!(to, ", {} MiB", bytes >> 20)?;
        }
        write!(to, ", complete: {}. ", if *complete { "yes" } else { "no" })?;
        match answer {
            Answer::Holds => write!(to, "Safe, and every state can finish."),
            Answer::Violated { rule, trace } => write!(to, "VIOLATED: {rule}\n{trace}"),
            Answer::Stuck { deadlock: true, trace } => write!(to, "STUCK: nothing can happen any more\n{trace}"),
            Answer::Stuck { deadlock: false, trace } => write!(to, "STUCK: it goes on, but cannot finish\n{trace}"),
            Answer::Capped => write!(to, "CAPPED: there are more states than the run was allowed"),
        }
    }
}

/// Resets the kernel's record of the largest resident memory; where that is impossible, later figures include earlier
/// ones.
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}
