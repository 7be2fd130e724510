//! Model of ranks that call barriers and allreduces on a token tree: the shipped machines, over channels that are
//! reliable and ordered per pair of neighbours, and multicasts whose copies arrive in any order, get lost or arrive
//! twice.
//!
//! Each rank has a way for its releases. A rank may end when it has left all its calls, and takes nothing any more.
//!
//! A value is the range of ranks whose contributions it combines, and their epoch; only neighbouring ranges may be
//! combined. Every armed timer may fire at any moment. The first epoch is the last before the wrap.

pub mod random_runs;
mod rank;
mod state;

use alloc::collections::VecDeque;

use unisono_core::collective::token_tree::{
    Arrival, Body, Epoch, Operand, Payload, Release, ReleasePath, Request, TreeConfig,
};
use unisono_core::ids::Rank;

use self::rank::{RankState, Value, epoch_of, number};
pub use self::state::State;
use self::state::{Copies, InTransit};
use crate::model_checker::Model;

/// The model, with up to `M` releases and `S` epochs with a record.
#[derive(Clone, Debug)]
pub struct TokenTrees<const M: usize, const S: usize> {
    trees: Vec<ModelTree>,
    options: TreeOptions,
}

/// A tree, and how the releases of each rank travel.
#[derive(Clone, Debug)]
struct ModelTree {
    config: TreeConfig,
    paths: Vec<ReleasePath>,
}

/// Trees by their parameters: ranks, degree, units of the root's token.
#[derive(Clone, Copy, Debug)]
pub struct TreeSizes<'s> {
    /// Numbers of ranks.
    pub ranks: &'s [u32],
    /// Degrees.
    pub degrees: &'s [u32],
    /// Units.
    pub units: &'s [u8],
}

/// How the releases of the ranks travel.
#[derive(Clone, Copy, Debug)]
pub enum ReleasePaths {
    /// Those of all ranks this way.
    Same(ReleasePath),
    /// Every assignment of paths to ranks.
    Every,
}

impl ReleasePaths {
    /// All assignments to `size` ranks.
    fn all(self, size: u32) -> Vec<Vec<ReleasePath>> {
        const PATHS: [ReleasePath; 3] = [ReleasePath::Multicast, ReleasePath::Tree, ReleasePath::Both];
        match self {
            Self::Same(path) => vec![vec![path; size as usize]],
            Self::Every => (0..3_usize.pow(size))
                .map(|number| (0..size).map(|rank| PATHS[number / 3_usize.pow(rank) % 3]).collect())
                .collect(),
        }
    }

    /// How long a rank waits before it asks for a release, if one can get lost.
    const fn repair(self) -> Option<u32> {
        if matches!(self, Self::Same(ReleasePath::Tree)) { None } else { Some(1) }
    }
}

/// What may happen.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// Calls of each rank.
    pub epochs: u8,
    /// They are allreduces, not barriers.
    pub has_values: bool,
    /// How releases travel.
    pub paths: ReleasePaths,
    /// Copies of releases that get lost.
    pub losses: u8,
    /// Copies that arrive twice.
    pub doubles: u8,
    /// A rank dies.
    pub crash: bool,
    /// Ranks end after their last call.
    pub ends: bool,
    /// Ranks ask for releases.
    pub asks: bool,
    /// Asks for a release of which no copy was lost. A rank whose copy was lost asks at any moment, one ask at a time.
    pub early_asks: u8,
    /// Machines are polled at any later moment, not with each event.
    pub polls_late: bool,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// The tree is that one.
    Choose(usize),
    /// A rank enters its next call.
    Enter(usize),
    /// A rank is polled until it has no request.
    Poll(usize),
    /// The first message of a child to its parent, or the other way, arrives.
    Deliver {
        /// The child.
        child: usize,
        /// To the child.
        down: bool,
    },
    /// A copy of a release arrives.
    Receive {
        /// Which release.
        release: usize,
        /// The receiver.
        rank: usize,
    },
    /// A copy gets lost.
    Lose {
        /// Which release.
        release: usize,
        /// The receiver.
        rank: usize,
    },
    /// A copy arrives, and will arrive again.
    Double {
        /// Which release.
        release: usize,
        /// The receiver.
        rank: usize,
    },
    /// A deadline passes.
    Timeout(usize, Epoch),
    /// A rank dies.
    Crash(usize),
    /// The last message that the dead rank sent to a neighbour did not leave.
    Cut {
        /// The child of the two.
        child: usize,
        /// To the child.
        down: bool,
    },
    /// A rank learns of the failed one.
    Report(usize),
    /// A rank that has left all its calls ends.
    End(usize),
}

/// More requests than one event can cause: of all epochs with a record, those of all operands and neighbours.
const MOST_REQUESTS: u32 = 1000;

impl<const M: usize, const S: usize> TokenTrees<M, S> {
    /// All trees of these sizes.
    pub fn new(sizes: TreeSizes<'_>, options: TreeOptions) -> Self {
        let repair = options.paths.repair();
        let mut trees = Vec::new();
        for &size in sizes.ranks {
            for &degree in sizes.degrees {
                for &units in sizes.units {
                    let path = ReleasePath::Tree;
                    let config = TreeConfig { size, degree, units, path, patience: 1, repair };
                    trees.extend(options.paths.all(size).into_iter().map(|paths| ModelTree { config, paths }));
                }
            }
        }
        Self { trees, options }
    }

    /// The state of a tree before any call.
    ///
    /// # Panics
    /// When `units` exceeds `M`.
    pub fn start(&self, number: usize) -> State<M, S> {
        let tree = &self.trees[number];
        State {
            ranks: tree.paths.iter().zip(0..).map(|(path, rank)| RankState::new(rank, &tree.config, *path)).collect(),
            channels: vec![[VecDeque::new(), VecDeque::new()]; tree.paths.len()],
            copies: Vec::new(),
            claims: vec![Vec::new(); self.options.epochs.into()],
            lost: vec![0; self.options.epochs.into()],
            losses: 0,
            doubles: 0,
            early_asks: 0,
            tree: number,
            dead: None,
            broken: None,
        }
    }

    /// The number of trees.
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    fn all_epochs(&self) -> u8 {
        (1_u8 << self.options.epochs) - 1
    }

    /// Whether the action was possible; otherwise the state is spoiled.
    pub fn apply(&self, state: &mut State<M, S>, action: &Action) -> bool {
        match *action {
            Action::Choose(tree) => *state = self.start(tree),
            Action::Enter(rank) => {
                if state.ranks[rank].machine.enter((), self.options.has_values).is_err() {
                    return false;
                }
                state.ranks[rank].entered += 1;
                self.poll_soon(state, rank);
            }
            Action::Poll(rank) => return self.poll(state, rank),
            Action::Deliver { child, down } => {
                let Some(parent) = state.parent(child) else { return false };
                let Some(message) = state.channels[child][usize::from(down)].pop_front() else { return false };
                let (from, to) = if down { (parent, child) } else { (child, parent) };
                self.arrive(state, Some(from), to, message);
            }
            Action::Receive { release, rank } => {
                let message = state.copies[release].sent;
                state.remove_copy(release, rank);
                self.arrive(state, None, rank, message);
            }
            Action::Double { release, rank } => {
                state.doubles += 1;
                let message = state.copies[release].sent;
                self.arrive(state, None, rank, message);
            }
            Action::Lose { release, rank } => {
                let Copies { sent, from, .. } = state.copies[release];
                state.losses += u8::from(state.dead != Some(from));
                state.lost[usize::from(number(sent.message.epoch))] |= 1 << rank;
                state.remove_copy(release, rank);
            }
            Action::Timeout(rank, epoch) => {
                let was_asking = state.is_asking(rank);
                state.ranks[rank].machine.handle_timeout((), epoch);
                self.poll(state, rank);
                if state.is_asking(rank) {
                    let is_early = state.lost[usize::from(number(epoch))] & 1 << rank == 0;
                    state.early_asks += u8::from(is_early);
                    return self.options.asks && !was_asking && state.early_asks <= self.options.early_asks;
                }
            }
            Action::Crash(rank) => self.crash(state, rank),
            Action::End(rank) => {
                state.ranks[rank].machine.end();
                self.poll(state, rank);
                state.ranks[rank].has_ended = true;
                state.drop_messages_to(rank);
            }
            Action::Cut { child, down } => return state.channels[child][usize::from(down)].pop_back().is_some(),
            Action::Report(rank) => {
                let Some(dead) = state.dead else { return false };
                let side = &mut state.ranks[rank];
                side.machine.handle_failed(Rank(dead.into()));
                side.knows_failed = true;
                self.poll(state, rank);
                let side = &state.ranks[rank];
                if side.left | side.failed != (1 << side.entered) - 1 {
                    state.violate("a rank that knows of a failure waits for nothing");
                }
            }
        }
        true
    }

    fn poll_soon(&self, state: &mut State<M, S>, rank: usize) {
        if !self.options.polls_late {
            self.poll(state, rank);
        }
    }

    /// Messages to and in the dead rank vanish.
    fn crash(&self, state: &mut State<M, S>, rank: usize) {
        let tree = &self.trees[state.tree];
        state.dead = Some(rank as u8);
        let entered = state.ranks[rank].entered;
        state.ranks[rank] = RankState::new(rank as u32, &tree.config, tree.paths[rank]);
        state.ranks[rank].entered = entered;
        state.drop_messages_to(rank);
    }

    fn arrive(&self, state: &mut State<M, S>, from: Option<usize>, to: usize, arriving: InTransit) {
        let InTransit { message, values } = arriving;
        let machine = &mut state.ranks[to].machine;
        let arrival = match from {
            Some(from) => machine.handle_message((), Rank(from as u32), &message),
            None => machine.handle_multicast((), &message),
        };
        let Arrival::Store(payload) = arrival else {
            state.violate("every message keeps the protocol");
            return;
        };
        for (operand, value) in payload.into_iter().zip(values) {
            let Some(operand) = operand else { continue };
            if self.options.has_values && value.is_none() {
                state.violate("messages bring the values that are expected");
            }
            state.ranks[to].store(message.epoch, operand, value);
        }
        self.poll_soon(state, to);
    }

    /// Whether there was a request.
    fn poll(&self, state: &mut State<M, S>, rank: usize) -> bool {
        let before = state.ranks[rank].machine;
        for _ in 0..MOST_REQUESTS {
            let Some(request) = state.ranks[rank].machine.poll(()) else { break };
            self.carry_out(state, rank, request);
        }
        if state.ranks[rank].machine.poll(()).is_some() {
            state.violate("a machine comes to rest");
        }
        let side = &mut state.ranks[rank];
        side.free_buffers();
        before != side.machine
    }

    fn carry_out(&self, state: &mut State<M, S>, rank: usize, request: Request) {
        let load = |state: &mut State<M, S>, epoch, payload: Payload| {
            payload.map(|operand| operand.and_then(|operand| state.ranks[rank].load(rank, epoch, operand)))
        };
        let has_values = self.options.has_values;
        let is_carried = |payload: Payload, values: [Option<Value>; 2]| {
            payload.iter().zip(values).all(|(operand, value)| operand.is_none() || value.is_some() || !has_values)
        };
        match request {
            Request::Combine { epoch, combination } => {
                if !state.ranks[rank].combine(rank, epoch, combination) {
                    state.violate("only neighbouring values are combined, in rank order");
                }
            }
            Request::Copy { epoch, from, into } => {
                let value = state.ranks[rank].load(rank, epoch, from);
                state.ranks[rank].store(epoch, into, value);
            }
            Request::Send { to, message, payload } => {
                let values = load(state, message.epoch, payload);
                if !is_carried(payload, values) {
                    state.violate("every value that is sent is known");
                }
                if let Body::Release(Release { claim, .. }) = message.body {
                    state.claim(message.epoch, claim, false);
                }
                let to = to.0 as usize;
                let (child, down) = if state.parent(to) == Some(rank) { (to, true) } else { (rank, false) };
                if state.takes(to) {
                    state.channels[child][usize::from(down)].push_back(InTransit { message, values });
                }
            }
            Request::Multicast { message, payload } => {
                let values = load(state, message.epoch, payload);
                if !is_carried(payload, values) {
                    state.violate("every value that is sent is known");
                }
                let Body::Release(Release { claim, is_passed_on: false }) = message.body else {
                    state.violate("only releases are sent by multicast");
                    return;
                };
                state.claim(message.epoch, claim, true);
                let others = (0..state.ranks.len()).filter(|to| *to != rank && state.takes(*to));
                let receivers = others.fold(0, |set, to| set | 1 << to);
                if receivers != 0 {
                    state.copies.push(Copies { sent: InTransit { message, values }, from: rank as u8, receivers });
                    state.copies.sort_unstable_by_key(|copies| (number(copies.sent.message.epoch), copies.from));
                }
            }
            Request::Leave { epoch } => self.leave(state, rank, epoch),
            Request::Fail { epoch, rank: failed } => {
                let side = &mut state.ranks[rank];
                let is_new = (side.left | side.failed) & 1 << number(epoch) == 0;
                side.failed |= 1 << number(epoch);
                if !is_new || state.dead != Some(failed.0 as u8) {
                    state.violate("an epoch that fails names the failed rank, once");
                }
            }
        }
    }

    /// Whether a host that watches the awaited neighbours would wait for ever, or fail for no reason.
    fn misjudged_wait(&self, state: &State<M, S>) -> Option<&'static str> {
        for rank in state.living() {
            let side = &state.ranks[rank];
            let open = (0..side.entered).filter(|epoch| (side.left | side.failed) & 1 << epoch == 0);
            for epoch in open {
                let mut awaited = side.machine.awaited(epoch_of(epoch)).map(|rank| rank.0 as usize).peekable();
                if awaited.peek().is_none() && !self.options.polls_late {
                    return Some("a rank that cannot leave awaits a neighbour");
                }
                let has_all = |peer: usize| {
                    let (child, down) = if state.parent(rank) == Some(peer) { (rank, 1) } else { (peer, 0) };
                    state.ranks[peer].left & 1 << epoch != 0 && state.channels[child][down].is_empty()
                };
                if self.options.paths.repair().is_none() && awaited.any(|peer| state.is_alive(peer) && has_all(peer)) {
                    return Some("an awaited neighbour that has left has sent what is lacking");
                }
            }
        }
        None
    }

    fn leave(&self, state: &mut State<M, S>, rank: usize, epoch: Epoch) {
        let size = state.ranks.len() as u8;
        if state.ranks.iter().any(|each| each.entered <= number(epoch)) {
            state.violate("no rank leaves before every rank has entered");
        }
        let result = Value { epoch: number(epoch), first: 0, end: size };
        let side = &mut state.ranks[rank];
        let output = side.load(rank, epoch, Operand::Output);
        side.store(epoch, Operand::Output, None);
        let has_left = side.left & 1 << number(epoch) != 0;
        side.left |= 1 << number(epoch);
        if self.options.has_values && output != Some(result) {
            state.violate("the result combines every rank's value once");
        }
        if has_left {
            state.violate("a rank leaves once");
        }
    }
}

impl<const M: usize, const S: usize> Model for TokenTrees<M, S> {
    type State = State<M, S>;
    type Action = Action;

    /// No tree is chosen yet.
    fn initial(&self) -> State<M, S> {
        State { ranks: Vec::new(), channels: Vec::new(), ..self.start(0) }
    }

    fn actions(&self, state: &State<M, S>, actions: &mut Vec<Action>) {
        let TreeOptions { epochs, losses, doubles, crash, ends, polls_late, .. } = self.options;
        if state.ranks.is_empty() {
            actions.extend((0..self.trees.len()).map(Action::Choose));
            return;
        }
        for rank in state.living() {
            let side = &state.ranks[rank];
            if side.has_ended {
                continue;
            }
            if ends && side.left == self.all_epochs() {
                actions.push(Action::End(rank));
            }
            if side.entered < epochs {
                actions.push(Action::Enter(rank));
            }
            actions.extend(side.machine.deadlines().map(|(epoch, ())| Action::Timeout(rank, epoch)));
            if polls_late {
                actions.push(Action::Poll(rank));
            }
            if state.dead.is_some() && !side.knows_failed {
                actions.push(Action::Report(rank));
            }
            if crash && state.dead.is_none() {
                actions.push(Action::Crash(rank));
            }
        }
        for child in 1..state.ranks.len() {
            for down in [false, true] {
                if !state.channels[child][usize::from(down)].is_empty() {
                    actions.push(Action::Deliver { child, down });
                    let sender = if down { state.parent(child) } else { Some(child) };
                    if state.dead.is_some() && sender == state.dead.map(usize::from) {
                        actions.push(Action::Cut { child, down });
                    }
                }
            }
        }
        for (release, rank) in state.receivers() {
            actions.push(Action::Receive { release, rank });
            if state.losses < losses || state.dead == Some(state.copies[release].from) {
                actions.push(Action::Lose { release, rank });
            }
            if state.doubles < doubles {
                actions.push(Action::Double { release, rank });
            }
        }
    }

    fn next(&self, state: &State<M, S>, action: &Action) -> Option<State<M, S>> {
        let mut next = state.clone();
        self.apply(&mut next, action).then_some(next)
    }

    fn violation(&self, state: &State<M, S>) -> Option<&'static str> {
        state.broken.or_else(|| self.misjudged_wait(state))
    }

    /// Every living rank has left every epoch, or knows who failed, and nothing is on its way.
    fn finished(&self, state: &State<M, S>) -> bool {
        let is_done = |rank: usize| state.ranks[rank].left == self.all_epochs() || state.ranks[rank].knows_failed;
        let is_quiet = state.copies.is_empty() && state.channels.iter().flatten().all(VecDeque::is_empty);
        !state.ranks.is_empty() && is_quiet && state.living().all(is_done)
    }

    /// No rank has to die or end for the others to finish.
    fn counts(&self, action: &Action) -> bool {
        !matches!(action, Action::Crash(_) | Action::End(_) | Action::Lose { .. } | Action::Double { .. })
    }
}
