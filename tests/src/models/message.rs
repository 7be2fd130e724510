//! Model of point-to-point messages with minimal memory, over channels that keep order.
//!
//! All ranks but the last send to the last one, in their program's order; the last one posts receives, any of a choice
//! next, cancels, probes. The order of all events is arbitrary.

mod rank;

use unisono_core::ids::{MessageId, PeerId, PlacementId, ReceiveId, RemoteKey};
use unisono_core::message::point_to_point::{
    Action, Matched, MessageHeader, Mode, Outcome, Outgoing, PayloadStore, ReceiveResult, SendAction, Status,
};
use unisono_core::message::{Context, Envelope, Pattern, Tag};

use self::rank::{EAGER, Machine, machine};
use crate::model_checker::Model;

pub use self::rank::{HEADERS, SLOTS};

/// Messages of all ranks at most, and receives.
const MOST: usize = 4;

/// The model, with `R` ranks.
#[derive(Clone, Copy, Debug)]
pub struct Messages<const R: usize> {
    /// By each rank but the last, in order.
    pub sent: &'static [SentMessage],
    /// Patterns of receives: source and tag.
    pub patterns: &'static [(Option<u32>, Option<u32>)],
    /// How many receives.
    pub receives: usize,
    /// What else may happen.
    pub options: MessageOptions,
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct SentMessage {
    /// Its sender.
    pub from: u8,
    /// Its tag.
    pub tag: u32,
    /// Bytes of payload: to 1 short, to 2 eager.
    pub bytes: u64,
    /// It completes when it is matched.
    pub synchronous: bool,
}

/// What else may happen.
#[derive(Clone, Copy, Debug)]
pub struct MessageOptions {
    /// Receives that are cancelled.
    pub cancels: u8,
    /// Sends that are cancelled.
    pub withdrawals: u8,
    /// A matched probe in place of a receive.
    pub probe: bool,
    /// The receiver copies what it can reach; otherwise it grants.
    pub fetch: bool,
    /// It does so at any later time.
    pub pulls_late: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct InTransit {
    head: MessageHeader,
    payload: Option<u8>,
}

/// A matched payload that the last rank will fetch or grant memory for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Pull {
    receive: ReceiveId,
    user: u32,
    from: PeerId,
    at: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ReceiveState {
    Waits(ReceiveId),
    Matched(u8),
    Done,
    Cancelled,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Message {
    sent: bool,
    taken: bool,
    done: bool,
    /// The number by which its sender cancels it.
    number: u32,
    /// No receive will match it.
    cancelled: bool,
}

/// All ranks, and the messages between them and the last one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State<const R: usize> {
    machines: [Machine; R],
    /// To and from the last rank.
    towards: [Vec<InTransit>; R],
    back: [Vec<InTransit>; R],
    messages: [Message; MOST],
    receives: Vec<(Pattern, ReceiveState)>,
    /// Payloads by their place.
    buffered: Vec<(PayloadStore, u8)>,
    /// Payloads that are not fetched yet.
    pulls: Vec<Pull>,
    /// Payloads on their way to granted memory: message and receive.
    placements: Vec<(u8, u8)>,
    cancels: u8,
    /// Sends that are or were cancelled, at most one of each rank.
    withdrawals: [Option<u8>; R],
    probes: u8,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A rank sends its next message.
    Send(u8),
    /// The last rank posts a receive.
    Receive(usize),
    /// It cancels a receive.
    Cancel(usize),
    /// A rank cancels the send of a message.
    CancelSend(u8),
    /// It probes for any message, and receives what it finds.
    Probe,
    /// A rank's machine is polled for an action.
    Poll(usize),
    /// A header arrives at the last rank.
    Arrive(usize),
    /// A header arrives from the last rank.
    Return(usize),
    /// A payload arrives in granted memory.
    Place,
    /// A matched payload is fetched or granted.
    Pull,
}

/// Kinds of headers.
const CANCEL: u8 = 13;
const CANCEL_REPLY: u8 = 14;
const WITHDRAWN: u8 = 15;
/// The flag of a reply to a cancellation: the message was removed.
const REMOVED: u8 = 32;

/// The answer that a rank will give to another one that cancels a message.
fn will_remove(machine: &Machine, of: usize) -> bool {
    let mut machine = machine.clone();
    core::iter::from_fn(|| machine.poll_action()).any(|action| match action {
        Action::Header { to, head } => {
            to.0 as usize == of && matches!(*head.as_ref(), [CANCEL_REPLY, flags, ..] if flags & REMOVED != 0)
        }
        _ => false,
    })
}

const ANY: Pattern = Pattern { context: Context(0), source: None, tag: None };

impl<const R: usize> Messages<R> {
    fn envelope(&self, message: u8) -> Envelope {
        let SentMessage { from, tag, .. } = self.sent[usize::from(message)];
        Envelope { context: Context(0), source: PeerId(from.into()), tag: Tag(tag) }
    }

    fn next_of(&self, state: &State<R>, rank: u8) -> Option<u8> {
        let next = |i: &u8| self.sent[usize::from(*i)].from == rank && !state.messages[usize::from(*i)].sent;
        (0..self.sent.len() as u8).find(next)
    }

    /// The first unmatched message of a source that matches the pattern.
    fn first(&self, state: &State<R>, pattern: &Pattern, source: PeerId) -> Option<u8> {
        let open = |i: &u8| {
            let Message { sent, taken, .. } = state.messages[usize::from(*i)];
            let envelope = self.envelope(*i);
            sent && !taken && envelope.source == source && pattern.matches(&envelope)
        };
        (0..self.sent.len() as u8).find(open)
    }

    fn send(&self, state: &mut State<R>, message: u8) -> Option<()> {
        let SentMessage { from, tag, bytes, synchronous } = self.sent[usize::from(message)];
        let outgoing = Outgoing {
            to: PeerId(R as u32 - 1),
            context: Context(0),
            tag: Tag(tag),
            bytes,
            eager: EAGER,
            at: message.into(),
            mode: if synchronous { Mode::Synchronous } else { Mode::Standard },
            borrowed: true,
            user: message.into(),
        };
        let from = usize::from(from);
        state.messages[usize::from(message)].number = state.machines[from].next_number(outgoing.to);
        let leaves = state.machines[from].send(&outgoing).ok()?;
        state.messages[usize::from(message)].sent = true;
        let carried = match leaves {
            SendAction::Eager { head, done } => {
                if done {
                    self.end(state, message);
                }
                InTransit { head, payload: Some(message) }
            }
            SendAction::Header(head) => InTransit { head, payload: None },
        };
        state.towards[from].push(carried);
        Some(())
    }

    fn end(&self, state: &mut State<R>, message: u8) {
        let of = &mut state.messages[usize::from(message)];
        if of.done {
            state.broken = Some("a message ends twice");
        } else if self.sent[usize::from(message)].synchronous && !of.taken {
            state.broken = Some("a synchronous message ends before it is matched");
        }
        of.done = true;
    }

    /// No receive will match the message that a rank is cancelling.
    fn cancelled(&self, state: &mut State<R>, from: usize) {
        let Some(message) = state.withdrawals[from] else {
            state.broken = Some("a message is withdrawn that nobody cancels");
            return;
        };
        let of = &mut state.messages[usize::from(message)];
        if of.taken {
            state.broken = Some("a message is cancelled that was matched");
        }
        (of.taken, of.cancelled) = (true, true);
        state.buffered.retain(|(_, kept)| *kept != message);
    }

    /// Checks that a receive or probe matched the message that it must match.
    fn check_match(&self, state: &mut State<R>, pattern: &Pattern, status: &Status) -> u8 {
        let first = self.first(state, pattern, status.envelope.source);
        let Some(message) = first.filter(|first| self.envelope(*first) == status.envelope) else {
            state.broken = Some("a message overtakes another one");
            return first.unwrap_or(0);
        };
        state.messages[usize::from(message)].taken = true;
        message
    }

    fn match_receive(&self, state: &mut State<R>, receive: u32, status: &Status) -> u8 {
        let receive = receive as usize;
        let waits = |(pattern, standing): &(Pattern, ReceiveState)| {
            matches!(standing, ReceiveState::Waits(_)) && pattern.matches(&status.envelope)
        };
        if state.receives[..receive].iter().any(waits) {
            state.broken = Some("a receive overtakes another one");
        }
        let pattern = state.receives[receive].0;
        let message = self.check_match(state, &pattern, status);
        state.receives[receive].1 = ReceiveState::Matched(message);
        message
    }

    fn receive(&self, state: &mut State<R>, pattern: Pattern) -> Option<()> {
        let user = state.receives.len() as u32;
        let received = state.machines[R - 1].receive(pattern, u64::MAX, user).ok()?;
        state.receives.push((pattern, ReceiveState::Done));
        match received {
            ReceiveResult::Posted(id) => state.receives[user as usize].1 = ReceiveState::Waits(id),
            ReceiveResult::Matched(matched) => {
                let (Matched::Unexpected { status, .. } | Matched::Pending(status) | Matched::Truncated(status)) =
                    matched;
                let message = self.match_receive(state, user, &status);
                self.copy_buffered(state, user, message, matched);
            }
        }
        Some(())
    }

    /// Copies a buffered payload.
    fn copy_buffered(&self, state: &mut State<R>, user: u32, message: u8, matched: Matched) {
        let Matched::Unexpected { message: id, place, .. } = matched else { return };
        if state
            .buffered
            .iter()
            .position(|kept| *kept == (place, message))
            .map(|at| state.buffered.remove(at))
            .is_none()
        {
            state.broken = Some("another payload is buffered there");
        }
        state.machines[R - 1].release(id);
        state.receives[user as usize].1 = ReceiveState::Done;
    }

    fn probe(&self, state: &mut State<R>) -> Option<()> {
        if let Some((id, status)) = state.machines[R - 1].matched_probe(ANY) {
            let message = self.check_match(state, &ANY, &status);
            state.probes += 1;
            return self.receive_matched(state, id, message);
        }
        Some(())
    }

    fn receive_matched(&self, state: &mut State<R>, id: MessageId, message: u8) -> Option<()> {
        let user = state.receives.len() as u32;
        let matched = state.machines[R - 1].receive_matched(id, u64::MAX, user).ok()??;
        state.receives.push((ANY, ReceiveState::Matched(message)));
        self.copy_buffered(state, user, message, matched);
        Some(())
    }

    fn poll(&self, state: &mut State<R>, rank: usize) -> Option<()> {
        let action = state.machines[rank].poll_action()?;
        let carry = |state: &mut State<R>, to: PeerId, carried| {
            if rank == R - 1 {
                state.back[to.0 as usize].push(carried);
            } else {
                state.towards[rank].push(carried);
            }
        };
        match action {
            Action::Header { to, head } => {
                if head.as_ref()[0] == WITHDRAWN {
                    self.cancelled(state, rank);
                }
                carry(state, to, InTransit { head, payload: None });
            }
            Action::Eager { to, user, head, done } => {
                carry(state, to, InTransit { head, payload: Some(user as u8) });
                if done {
                    self.end(state, user as u8);
                }
            }
            Action::Sent { user } => self.end(state, user as u8),
            Action::Pull { receive, user, from, at, .. } => {
                let pull = Pull { receive, user, from, at };
                if self.options.pulls_late {
                    state.pulls.push(pull);
                } else {
                    self.pull(state, rank, pull)?;
                }
            }
        }
        Some(())
    }

    /// Fetches a payload, or grants memory for it.
    fn pull(&self, state: &mut State<R>, rank: usize, pull: Pull) -> Option<()> {
        let Pull { receive, user, from, at } = pull;
        let ReceiveState::Matched(message) = state.receives[user as usize].1 else {
            state.broken = Some("a receive pulls without a match");
            return Some(());
        };
        if state.messages[usize::from(message)].done {
            state.broken = Some("a message ends whose payload is still requested");
        }
        if at.is_some_and(|at| at != u64::from(message)) {
            state.broken = Some("another payload is pulled");
        }
        if self.options.fetch && at.is_some() {
            state.machines[rank].fetched(receive);
            state.receives[user as usize].1 = ReceiveState::Done;
        } else {
            let (_, head) = state.machines[rank].grant(receive, PlacementId(user), RemoteKey(0))?;
            state.back[from.0 as usize].push(InTransit { head, payload: None });
        }
        Some(())
    }

    fn handle(&self, state: &mut State<R>, from: usize, to: usize, carried: InTransit) {
        let payload = carried.payload.map_or(0, |message| self.sent[usize::from(message)].bytes);
        let head = carried.head.as_ref();
        let bytes = head.len() as u32 + payload as u32;
        let outcome = state.machines[to].handle(PeerId(from as u32), head, bytes);
        if head[0] == CANCEL && will_remove(&state.machines[to], from) {
            self.cancelled(state, from);
        }
        match outcome {
            Outcome::Nothing => {}
            Outcome::Into { user, status, .. } => {
                let message = self.match_receive(state, user, &status);
                if carried.payload != Some(message) {
                    state.broken = Some("a payload arrives at another receive");
                }
                state.receives[user as usize].1 = ReceiveState::Done;
            }
            Outcome::Store { place, .. } => match carried.payload {
                Some(message) if state.buffered.iter().all(|(kept, _)| *kept != place) => {
                    state.buffered.push((place, message));
                    state.buffered.sort_unstable_by_key(|(_, message)| *message);
                }
                _ => state.broken = Some("a payload overwrites another buffered one"),
            },
            Outcome::Pending { user, status } => {
                self.match_receive(state, user, &status);
            }
            Outcome::Place { user, placement, more: false, .. } => {
                state.placements.push((user as u8, placement.0 as u8))
            }
            Outcome::Place { more: true, .. } => state.broken = Some("a part is granted"),
            Outcome::Sent { user, .. } => self.end(state, user as u8),
            Outcome::Truncated { .. } => state.broken = Some("a message is too long for any"),
            Outcome::ProtocolViolation => state.broken = Some("a rank violates the protocol"),
        }
    }

    fn is_quiet(&self, state: &State<R>) -> bool {
        let empty = |queues: &[Vec<InTransit>; R]| queues.iter().all(Vec::is_empty);
        let idle = state.machines.iter().all(|machine| machine.clone().poll_action().is_none());
        empty(&state.towards) && empty(&state.back) && state.placements.is_empty() && state.pulls.is_empty() && idle
    }
}

impl<const R: usize> Model for Messages<R> {
    type State = State<R>;
    type Action = Step;

    fn initial(&self) -> State<R> {
        State {
            machines: core::array::from_fn(|_| machine(R)),
            towards: core::array::from_fn(|_| Vec::new()),
            back: core::array::from_fn(|_| Vec::new()),
            messages: [Message::default(); MOST],
            receives: Vec::new(),
            buffered: Vec::new(),
            pulls: Vec::new(),
            placements: Vec::new(),
            cancels: 0,
            withdrawals: [None; R],
            probes: 0,
            broken: None,
        }
    }

    fn actions(&self, state: &State<R>, actions: &mut Vec<Step>) {
        for rank in 0..R - 1 {
            if self.next_of(state, rank as u8).is_some() {
                actions.push(Step::Send(rank as u8));
            }
            if !state.towards[rank].is_empty() {
                actions.push(Step::Arrive(rank));
            }
            if !state.back[rank].is_empty() {
                actions.push(Step::Return(rank));
            }
        }
        actions.extend((0..R).map(Step::Poll));
        if !state.placements.is_empty() {
            actions.push(Step::Place);
        }
        if !state.pulls.is_empty() {
            actions.push(Step::Pull);
        }
        if state.receives.len() < self.receives {
            actions.extend((0..self.patterns.len()).map(Step::Receive));
            if self.options.probe && state.probes == 0 {
                actions.push(Step::Probe);
            }
        }
        if state.cancels < self.options.cancels {
            let waits = |i: &usize| matches!(state.receives[*i].1, ReceiveState::Waits(_));
            actions.extend((0..state.receives.len()).filter(waits).map(Step::Cancel));
        }
        if state.withdrawals.iter().flatten().count() < usize::from(self.options.withdrawals) {
            let may = |i: &u8| {
                let from = usize::from(self.sent[usize::from(*i)].from);
                state.messages[usize::from(*i)].sent && state.withdrawals[from].is_none()
            };
            actions.extend((0..self.sent.len() as u8).filter(may).map(Step::CancelSend));
        }
    }

    fn next(&self, state: &State<R>, action: &Step) -> Option<State<R>> {
        let mut next = state.clone();
        match *action {
            Step::Send(rank) => {
                let message = self.next_of(state, rank)?;
                self.send(&mut next, message)?;
            }
            Step::Receive(which) => {
                let (source, tag) = self.patterns[which];
                let pattern = Pattern { context: Context(0), source: source.map(PeerId), tag: tag.map(Tag) };
                self.receive(&mut next, pattern)?;
            }
            Step::Cancel(receive) => {
                let ReceiveState::Waits(id) = state.receives[receive].1 else { return None };
                if next.machines[R - 1].cancel(id) != Some(receive as u32) {
                    next.broken = Some("a receive that waits is not cancelled");
                }
                next.receives[receive].1 = ReceiveState::Cancelled;
                next.cancels += 1;
            }
            Step::CancelSend(message) => {
                let from = usize::from(self.sent[usize::from(message)].from);
                next.withdrawals[from] = Some(message);
                let number = state.messages[usize::from(message)].number;
                if !next.machines[from].cancel_send(PeerId(R as u32 - 1), number) {
                    next.broken = Some("a send cannot be cancelled");
                }
            }
            Step::Probe => self.probe(&mut next)?,
            Step::Poll(rank) => self.poll(&mut next, rank)?,
            Step::Arrive(rank) => {
                let carried = next.towards[rank].remove(0);
                self.handle(&mut next, rank, R - 1, carried);
            }
            Step::Return(rank) => {
                let carried = next.back[rank].remove(0);
                self.handle(&mut next, R - 1, rank, carried);
            }
            Step::Pull => {
                let pull = next.pulls.remove(0);
                self.pull(&mut next, R - 1, pull)?;
            }
            Step::Place => {
                let (message, receive) = next.placements.remove(0);
                if next.receives[usize::from(receive)].1 != ReceiveState::Matched(message) {
                    next.broken = Some("a payload is placed in another receive");
                }
                next.receives[usize::from(receive)].1 = ReceiveState::Done;
                self.end(&mut next, message);
            }
        }
        Some(next)
    }

    fn violation(&self, state: &State<R>) -> Option<&'static str> {
        state.broken.or_else(|| {
            // Nothing moves by itself: then nothing that could complete may wait.
            let sources = || (0..R as u32 - 1).map(PeerId);
            let could = |(pattern, standing): &(Pattern, ReceiveState)| match standing {
                ReceiveState::Waits(_) => sources().any(|source| self.first(state, pattern, source).is_some()),
                ReceiveState::Matched(_) => true,
                ReceiveState::Done | ReceiveState::Cancelled => false,
            };
            let differs = |(machine, message): (&Machine, &Option<u8>)| {
                message.is_some_and(|message| {
                    let result = machine.clone().take_cancel_result(PeerId(R as u32 - 1));
                    result != Some(state.messages[usize::from(message)].cancelled)
                })
            };
            let undone = state.messages.iter().any(|message| message.taken && !message.done);
            if !self.is_quiet(state) {
                None
            } else if state.receives.iter().any(could) {
                Some("a receive waits for a message that was sent")
            } else if state.machines.iter().zip(&state.withdrawals).any(differs) {
                Some("the sender of a cancelled message does not know what became of it")
            } else {
                undone.then_some("a message was matched and does not end")
            }
        })
    }

    fn finished(&self, state: &State<R>) -> bool {
        state.messages[..self.sent.len()].iter().all(|message| message.sent) && self.is_quiet(state)
    }

    /// Nobody has to receive, probe or cancel for things to come to rest.
    fn counts(&self, action: &Step) -> bool {
        !matches!(action, Step::Receive(_) | Step::Probe | Step::Cancel(_) | Step::CancelSend(_))
    }
}
