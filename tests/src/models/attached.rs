//! Model of a rank that joins the group of a root itself and leaves it again: the shipped machines of the root, a leader
//! and the rank, over a stream in order and messages in order between two ranks.
//!
//! The root makes calls; the leader forwards each to the rank unless the list that it has seen names the rank. The rank
//! enters the calls in order, and may have several under way.

use unisono_core::ids::Rank;
use unisono_core::multicast::{AttachedList, AttachedRanks, Attachment, AttachmentChange, DataSource};

use crate::model_checker::Model;

/// The rank.
const OWN: Rank = Rank(2);
/// Another rank, of another node, which attaches at any moment.
const OTHER: Rank = Rank(5);
/// Attached ranks at most.
const P: usize = 2;

/// What may happen.
#[derive(Clone, Copy, Debug)]
pub struct AttachOptions {
    /// Calls of the root.
    pub calls: u32,
    /// Calls for which the rank follows its leader after it has asked.
    pub ahead: u32,
    /// How often it may ask to attach, and to detach.
    pub requests: (u8, u8),
    /// Calls of the rank that may be under way at a time.
    pub under_way: u32,
    /// The root may refuse.
    pub refuses: bool,
    /// Another rank attaches.
    pub has_other: bool,
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct AttachingRank {
    options: AttachOptions,
}

/// A message of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Item {
    Call(u32),
    List(AttachedList<P>),
}

/// A message between root and rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Message {
    Attach(u32),
    Detach,
    Left,
    Attached,
    Refused,
}

/// A call at the rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Call {
    NotEntered,
    /// It waits for the stream.
    Undecided,
    /// It waits for the leader.
    Forwarded,
    Complete,
}

/// All machines, and what is under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    root: AttachedRanks<P>,
    sent: u32,
    /// What the root has queued and not sent: a rank that joins gets the stream from there on.
    queued: Vec<Item>,
    has_other: bool,
    /// The stream as the leader has not handled it, and as the rank has not, if it is a member.
    to_leader: Vec<Item>,
    to_rank: Option<Vec<Item>>,
    /// The leader: calls that it has entered, and the list that it has seen.
    entered: u32,
    list: AttachedList<P>,
    forwarded: Vec<u32>,
    rank: Attachment,
    calls: Vec<Call>,
    from_rank: Vec<Message>,
    from_root: Vec<Message>,
    requests: (u8, u8),
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// The root queues a call.
    Send,
    /// The root queues a list.
    List,
    /// The root sends what it has queued first.
    Transmit,
    /// Another rank attaches.
    Other,
    /// The root handles a message; it refuses to attach the rank, or does not.
    Root(bool),
    /// The leader enters a call.
    EnterLeader,
    /// The leader handles a message of the stream.
    Leader,
    /// The rank enters a call.
    Enter,
    /// The rank handles a message of the stream.
    Stream,
    /// The rank handles a message of its leader.
    Forward,
    /// The rank handles a message of the root.
    Rank,
    /// The rank asks to attach.
    Attach,
    /// The rank asks to detach.
    Detach,
}

impl AttachingRank {
    /// The model with these options.
    pub const fn new(options: AttachOptions) -> Self {
        Self { options }
    }

    fn transmit(state: &mut State) {
        let item = state.queued.remove(0);
        state.to_leader.push(item);
        state.to_rank.iter_mut().for_each(|items| items.push(item));
    }

    /// The calls that the rank has entered.
    fn entered(state: &State) -> u32 {
        state.calls.iter().filter(|call| **call != Call::NotEntered).count() as u32
    }

    fn call(state: &mut State, call: u32) -> Option<&mut Call> {
        state.calls.get_mut(call as usize - 1)
    }

    /// Gives undecided calls to the leader that it forwards.
    fn decide(state: &mut State) {
        let rank = state.rank;
        for (number, call) in (1..).zip(&mut state.calls) {
            if *call == Call::Undecided && rank.source(number) == DataSource::Leader {
                *call = Call::Forwarded;
            }
        }
    }

    /// The rank handles the next message of the stream. Returns false if that waits for a call to be entered.
    fn handle_stream(state: &mut State) -> bool {
        let Some(item) = state.to_rank.as_ref().and_then(|items| items.first().copied()) else { return false };
        match item {
            Item::Call(call) if state.rank.takes(call) => match Self::call(state, call) {
                Some(place @ Call::Undecided) => *place = Call::Complete,
                Some(Call::NotEntered) => return false,
                _ => state.broken = Some("a call gets its data once, by multicast or from the leader"),
            },
            Item::Call(_) => {}
            Item::List(list) => {
                let change = state.rank.handle_list(OWN, &list);
                Self::decide(state);
                if change == AttachmentChange::Leave {
                    state.from_rank.push(Message::Left);
                    state.to_rank = None;
                    return true;
                }
            }
        }
        state.to_rank.iter_mut().for_each(|items| _ = items.remove(0));
        true
    }

    fn handle_leader(state: &mut State) -> bool {
        match state.to_leader.first().copied() {
            Some(Item::Call(call)) if call <= state.entered => {
                if !state.list.contains(OWN, call) {
                    state.forwarded.push(call);
                }
            }
            Some(Item::List(list)) => state.list = list,
            _ => return false,
        }
        state.to_leader.remove(0);
        true
    }

    fn handle_at_root(state: &mut State, refuses: bool) {
        match state.from_rank.remove(0) {
            Message::Attach(_) if refuses => state.from_root.push(Message::Refused),
            Message::Attach(promise) => {
                let place = state.root.attach(OWN, promise);
                if place.is_some() {
                    state.to_rank = Some(Vec::new());
                }
                state.from_root.push(if place.is_some() { Message::Attached } else { Message::Refused });
            }
            Message::Detach => state.root.detach(OWN),
            _ => state.root.remove(OWN),
        }
    }
}

impl Model for AttachingRank {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State {
            root: AttachedRanks::default(),
            sent: 0,
            queued: Vec::new(),
            has_other: self.options.has_other,
            to_leader: Vec::new(),
            to_rank: None,
            entered: 0,
            list: AttachedList::default(),
            forwarded: Vec::new(),
            rank: Attachment::default(),
            calls: vec![Call::NotEntered; self.options.calls as usize],
            from_rank: Vec::new(),
            from_root: Vec::new(),
            requests: (0, 0),
            broken: None,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let AttachOptions { calls, requests, under_way, refuses, .. } = self.options;
        let entered = Self::entered(state);
        let complete = state.calls.iter().filter(|call| **call == Call::Complete).count() as u32;
        let possible = [
            (Action::Send, state.sent < calls),
            (Action::List, state.root.has_list()),
            (Action::Transmit, !state.queued.is_empty()),
            (Action::Other, state.has_other),
            (Action::Root(false), !state.from_rank.is_empty()),
            (Action::Root(true), refuses && matches!(state.from_rank.first(), Some(Message::Attach(_)))),
            (Action::EnterLeader, state.entered < calls),
            (Action::Leader, !state.to_leader.is_empty()),
            (Action::Enter, entered < calls && entered - complete < under_way),
            (Action::Stream, state.to_rank.as_ref().is_some_and(|items| !items.is_empty())),
            (Action::Forward, !state.forwarded.is_empty()),
            (Action::Rank, !state.from_root.is_empty()),
            (Action::Attach, state.requests.0 < requests.0 && state.rank.is_following()),
            (Action::Detach, state.requests.1 < requests.1),
        ];
        actions.extend(possible.into_iter().filter_map(|(action, is_possible)| is_possible.then_some(action)));
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = state.clone();
        match *action {
            Action::Send => {
                next.sent += 1;
                next.queued.push(Item::Call(next.sent));
            }
            Action::List => {
                let list = next.root.poll_list(next.sent)?;
                next.queued.push(Item::List(list));
            }
            Action::Transmit => Self::transmit(&mut next),
            Action::Other => {
                next.has_other = false;
                next.root.attach(OTHER, 0);
            }
            Action::Root(refuses) => Self::handle_at_root(&mut next, refuses),
            Action::EnterLeader => next.entered += 1,
            Action::Leader => return Self::handle_leader(&mut next).then_some(next),
            Action::Enter => {
                let call = Self::entered(&next) + 1;
                let source = next.rank.source(call);
                *Self::call(&mut next, call)? =
                    if source == DataSource::Leader { Call::Forwarded } else { Call::Undecided };
            }
            Action::Stream => return Self::handle_stream(&mut next).then_some(next),
            Action::Forward => {
                let call = next.forwarded[0];
                match Self::call(&mut next, call) {
                    Some(place @ Call::Forwarded) => *place = Call::Complete,
                    // It is kept until the call is entered, or decided.
                    Some(Call::NotEntered | Call::Undecided) => return None,
                    _ => next.broken = Some("a leader forwards what a rank does not get by multicast"),
                }
                next.forwarded.remove(0);
            }
            Action::Rank => {
                if next.from_root.remove(0) == Message::Refused {
                    next.rank.handle_refused();
                    Self::decide(&mut next);
                }
            }
            Action::Attach => {
                let entered = Self::entered(&next);
                let promise = next.rank.attach(entered, self.options.ahead)?;
                next.requests.0 += 1;
                next.from_rank.push(Message::Attach(promise));
            }
            Action::Detach => {
                if !next.rank.detach() {
                    return None;
                }
                next.requests.1 += 1;
                next.from_rank.push(Message::Detach);
            }
        }
        Some(next)
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        state.broken
    }

    /// All calls are complete everywhere, and nothing is under way.
    fn finished(&self, state: &State) -> bool {
        state.calls.iter().all(|call| *call == Call::Complete)
            && state.to_leader.is_empty()
            && state.queued.is_empty()
            && state.forwarded.is_empty()
            && state.from_rank.is_empty()
            && state.from_root.is_empty()
            && !state.root.has_list()
            && state.to_rank.as_ref().is_none_or(Vec::is_empty)
    }

    /// Ranks may follow their leaders for ever.
    fn counts(&self, action: &Action) -> bool {
        !matches!(action, Action::Attach | Action::Detach | Action::Other)
    }
}
