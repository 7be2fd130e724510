//! Model of ranks that run one collective: the shipped executors and message transport, over channels that are ordered
//! per pair.
//!
//! Ranks begin at any time, and make progress at any later moment; channels deliver one message at a time. Payload is
//! read when it arrives, as an adapter may do: until then it belongs to the send, which ends with it. Contents are
//! lists of what was contributed, combined by joining them.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Poll};
use unisono_core::ids::{self, CollectiveId, PeerId, PlacementId, Rank, StepId};
use unisono_core::message::collective_transport::{
    Arrival, CollectivePeer, CollectiveTransport, Entry, Pools, Posted, ReceiveError, Sent, StepHeader, StepKey,
    TransportAction as Wish,
};
use unisono_core::schedule::{
    BlockBuffer, BlockSpan, Executor, Fold, HierarchicalPlan, Hierarchy, HierarchyOptions, Plan, Schedule, Spec, Step,
    StepOperation,
};

use crate::model_checker::Model;

/// The model.
#[derive(Debug)]
pub struct Collective {
    plans: Vec<AnyPlan>,
    limits: MessageLimits,
}

/// Words of the table of four ranks in groups.
const TABLE: usize = 9;

/// A rank's schedule, shared by all states.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum AnyPlan {
    Flat(Arc<Plan>),
    Composed(Arc<HierarchicalPlan<[u32; TABLE]>>),
}

impl AnyPlan {
    fn spec(&self) -> &Spec {
        match self {
            Self::Flat(plan) => plan.spec(),
            Self::Composed(plan) => plan.spec(),
        }
    }

    fn blocks(&self) -> u32 {
        match self {
            Self::Flat(plan) => plan.blocks(),
            Self::Composed(plan) => plan.blocks(),
        }
    }

    fn scratch_blocks(&self) -> u32 {
        match self {
            Self::Flat(plan) => plan.scratch_blocks(),
            Self::Composed(plan) => plan.scratch_blocks(),
        }
    }
}

impl Schedule for AnyPlan {
    fn collective(&self) -> CollectiveKind {
        self.spec().collective
    }

    fn steps(&self) -> u32 {
        match self {
            Self::Flat(plan) => plan.steps(),
            Self::Composed(plan) => plan.steps(),
        }
    }

    fn step(&self, i: u32) -> Option<Step> {
        match self {
            Self::Flat(plan) => plan.step(i),
            Self::Composed(plan) => plan.step(i),
        }
    }
}

/// Limits of the message transport of each rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageLimits {
    /// Blocks of the longest eager message.
    pub limit: u32,
    /// Eager messages without a receive, for each peer.
    pub credit: u8,
    /// Headers without a receive.
    pub headers: usize,
}

/// A block's content: who contributed, in order.
type Value = Vec<u8>;

/// A message on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Message {
    head: StepHeader,
    /// The step whose payload follows, and the grant that it goes to.
    payload: Option<(u32, Option<PlacementId>)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct RankState {
    executor: Executor<AnyPlan>,
    steps: CollectiveTransport<Box<[CollectivePeer]>, Box<[Entry]>>,
    /// Input, output, scratch; a block's segments one behind the other.
    memory: [Vec<Value>; 3],
    slots: Vec<Vec<Value>>,
    is_final: bool,
}

/// All ranks, and the messages in flight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    sides: Vec<RankState>,
    /// By sender and receiver.
    channels: Vec<VecDeque<Message>>,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A rank makes all possible progress.
    Progress(usize),
    /// The first message from one to the other arrives.
    Deliver(usize, usize),
}

impl Collective {
    /// A collective as all ranks call it.
    ///
    /// # Panics
    /// There is no such schedule.
    pub fn new(call: Spec, limits: MessageLimits) -> Self {
        let plan = |rank| Plan::new(Spec { rank: Rank(rank), ..call }).expect("a schedule that exists");
        Self { plans: (0..call.size).map(plan).map(|plan| AnyPlan::Flat(Arc::new(plan))).collect(), limits }
    }

    /// A collective of up to four ranks, composed over these groups with these options.
    ///
    /// # Panics
    /// There is no such schedule.
    pub fn over_groups(call: Spec, groups: &[u32], options: HierarchyOptions, limits: MessageLimits) -> Self {
        let hierarchy = Hierarchy::new(&[groups], [0; TABLE]).expect("a table of that length");
        let plan = |rank| HierarchicalPlan::new(Spec { rank: Rank(rank), ..call }, options, hierarchy);
        let plans = (0..call.size).map(|rank| AnyPlan::Composed(Arc::new(plan(rank).expect("a schedule that exists"))));
        Self { plans: plans.collect(), limits }
    }

    fn call(&self) -> &Spec {
        self.plans[0].spec()
    }

    fn place(&self, place: BlockBuffer) -> usize {
        match place {
            BlockBuffer::Input => usize::from(self.call().collective == CollectiveKind::Broadcast),
            BlockBuffer::Output => 1,
            BlockBuffer::Scratch => 2,
        }
    }

    fn cells(&self, span: BlockSpan) -> impl Iterator<Item = (usize, usize)> {
        let (place, segments) = (self.place(span.buffer), self.call().segments);
        span.blocks.iter().map(move |block| (place, (block * segments + span.segment) as usize))
    }

    fn load(&self, side: &RankState, span: BlockSpan) -> Vec<Value> {
        self.cells(span).map(|(place, cell)| side.memory[place][cell].clone()).collect()
    }

    fn store(&self, side: &mut RankState, span: BlockSpan, values: Vec<Value>) {
        for ((place, cell), value) in self.cells(span).zip(values) {
            side.memory[place][cell] = value;
        }
    }

    fn key(operation: &StepOperation) -> StepKey {
        let (StepOperation::Send { key: step, .. } | StepOperation::Receive { key: step, .. }) = *operation else {
            return StepKey::default();
        };
        StepKey { context: 1, sequence: 0, step }
    }

    fn span_of(&self, rank: usize, step: u32) -> BlockSpan {
        match self.plans[rank].step(step).map(|step| step.operation) {
            Some(StepOperation::Send { from: span, .. } | StepOperation::Receive { into: span, .. }) => span,
            _ => unreachable!("a step of the schedule that is a message"),
        }
    }

    fn push(
        &self,
        state: &mut State,
        from: usize,
        to: PeerId,
        head: StepHeader,
        payload: Option<(u32, Option<PlacementId>)>,
    ) {
        state.channels[from * self.plans.len() + to.0 as usize].push_back(Message { head, payload });
    }

    fn begin(&self, state: &mut State, rank: usize, step: StepId, operation: &StepOperation) {
        let side = &mut state.sides[rank];
        let key = Self::key(operation);
        match *operation {
            StepOperation::Send { to, from, .. } => {
                match side.steps.send(PeerId(to.0), key, (from.blocks.len(), 0), step.0) {
                    Ok(Sent::Eager(head)) => self.push(state, rank, PeerId(to.0), head, Some((step.0, None))),
                    Ok(Sent::Rts(head)) => self.push(state, rank, PeerId(to.0), head, None),
                    Err(_) => state.broken = Some("room for every send"),
                }
            }
            StepOperation::Receive { of, into, .. } => {
                match side.steps.receive(PeerId(of.0), key, into.blocks.len(), step.0) {
                    Ok(Posted::Waits) => {}
                    Ok(Posted::Early { slot }) => {
                        let values = core::mem::take(&mut side.slots[slot as usize]);
                        side.steps.release_slot(slot);
                        self.store(side, into, values);
                        side.executor.handle_done(step);
                    }
                    Err(ReceiveError::Disagrees { .. }) => state.broken = Some("lengths agree"),
                    Err(_) => state.broken = Some("room for every receive"),
                }
            }
            StepOperation::Copy { from, into } => {
                let values = self.load(side, from);
                self.store(side, into, values);
                side.executor.handle_done(step);
            }
            StepOperation::Group(_) => unreachable!("a schedule of messages"),
            StepOperation::Reduce { from, into, fold } => {
                let pairs = self.load(side, from).into_iter().zip(self.load(side, into));
                let joined = pairs.map(|(from, into)| match fold {
                    Fold::Left => [from, into].concat(),
                    Fold::Right => [into, from].concat(),
                });
                let joined = joined.collect();
                self.store(side, into, joined);
                side.executor.handle_done(step);
            }
        }
    }

    fn progress(&self, state: &mut State, rank: usize) {
        loop {
            match state.sides[rank].executor.poll() {
                Poll::Request(step, operation) => self.begin(state, rank, step, &operation),
                Poll::Complete => {
                    state.sides[rank].is_final = true;
                    if !self.is_right(state, rank) {
                        state.broken = Some("the result is correct");
                    }
                    break;
                }
                _ => break,
            }
        }
        while let Some(action) = state.sides[rank].steps.poll_action() {
            match action {
                Wish::Pull { to, user, key, .. } => {
                    let head = StepHeader::cts(key, PlacementId(user), ids::RemoteKey(7));
                    self.push(state, rank, to, head, None);
                }
                Wish::Send { to, head } => self.push(state, rank, to, head, None),
            }
        }
    }

    fn deliver(&self, state: &mut State, from: usize, to: usize) -> Option<()> {
        let Message { head, payload } = state.channels[from * self.plans.len() + to].pop_front()?;
        let values = payload.map(|(step, _)| self.load(&state.sides[from], self.span_of(from, step)));
        if let Some((step, _)) = payload {
            state.sides[from].executor.handle_done(StepId(step));
        }
        let side = &mut state.sides[to];
        let values = values.unwrap_or_default();
        if let Some((_, Some(PlacementId(user)))) = payload {
            self.store(side, self.span_of(to, user), values);
            side.executor.handle_done(StepId(user));
            return Some(());
        }
        let length = head.as_ref().len() + values.len();
        match side.steps.handle(PeerId(from as u32), head.as_ref(), length as u32) {
            Arrival::Into { user, .. } => {
                self.store(side, self.span_of(to, user), values);
                side.executor.handle_done(StepId(user));
            }
            Arrival::Keep { slot, .. } => side.slots[slot as usize] = values,
            Arrival::Place { user, placement, .. } => {
                self.push(state, to, PeerId(from as u32), head, Some((user, Some(placement))));
            }
            Arrival::Nothing => {}
            Arrival::Fetched { .. } | Arrival::Refused { .. } | Arrival::Disagrees { .. } => {
                state.broken = Some("lengths agree")
            }
            Arrival::ProtocolViolation => state.broken = Some("messages keep the protocol"),
        }
        Some(())
    }

    /// Whether the rank's output is correct.
    fn is_right(&self, state: &State, rank: usize) -> bool {
        let Spec { collective: verb, size, root, segments, .. } = *self.call();
        let everyone: Value = (0..size as u8).collect();
        let side = &state.sides[rank];
        side.memory[1].iter().enumerate().all(|(cell, got)| {
            let block = (cell as u32 / segments) as u8;
            match verb {
                CollectiveKind::Broadcast => *got == [root.0 as u8],
                CollectiveKind::Allgather => *got == [block],
                CollectiveKind::Allreduce => *got == everyone,
                CollectiveKind::Reduce => Rank(rank as u32) != root || *got == everyone,
                CollectiveKind::Scan => *got == everyone[..=rank],
                CollectiveKind::Exscan => *got == everyone[..rank],
                _ => true,
            }
        })
    }
}

impl Model for Collective {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let Spec { collective: verb, size, root, segments, .. } = *self.call();
        let side = |(rank, plan): (u32, &AnyPlan)| {
            let free = |count| vec![Entry::FREE; count].into_boxed_slice();
            let slots = usize::from(self.limits.credit) * (size as usize - 1);
            let pools = Pools {
                peers: vec![CollectivePeer::new(self.limits.limit); size as usize].into(),
                sends: free(plan.steps() as usize),
                receives: free(plan.steps() as usize),
                slots: free(slots),
                headers: free(self.limits.headers),
            };
            let cells = |blocks: u32, value: Value| vec![value; (blocks * segments) as usize];
            let own = || vec![rank as u8];
            let input = if verb == CollectiveKind::Allgather { 1 } else { plan.blocks() };
            let shown = if verb == CollectiveKind::Broadcast && Rank(rank) == root { own() } else { Value::new() };
            RankState {
                executor: Executor::new(CollectiveId::default(), plan.clone()),
                steps: CollectiveTransport::new(self.limits.credit, pools).expect("slots for all credit"),
                memory: [cells(input, own()), cells(plan.blocks(), shown), cells(plan.scratch_blocks(), Value::new())],
                slots: vec![Vec::new(); slots],
                is_final: false,
            }
        };
        State {
            sides: (0..).zip(&self.plans).map(side).collect(),
            channels: vec![VecDeque::new(); (size * size) as usize],
            broken: None,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let ranks = state.sides.len();
        actions.extend((0..ranks).map(Action::Progress));
        let busy = |(from, to): &(usize, usize)| !state.channels[from * ranks + to].is_empty();
        let pairs = (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
        actions.extend(pairs.filter(busy).map(|(from, to)| Action::Deliver(from, to)));
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = state.clone();
        match *action {
            Action::Progress(rank) => self.progress(&mut next, rank),
            Action::Deliver(from, to) => self.deliver(&mut next, from, to)?,
        }
        (next != *state).then_some(next)
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        state.broken
    }

    fn finished(&self, state: &State) -> bool {
        let idle = |side: &RankState| {
            side.is_final && side.steps.in_use() == unisono_core::message::collective_transport::RecordUsage::default()
        };
        state.sides.iter().all(idle) && state.channels.iter().all(VecDeque::is_empty)
    }
}
