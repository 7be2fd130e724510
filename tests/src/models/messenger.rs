//! Model of two ranks that exchange point-to-point messages and the message of a collective: the shipped messengers and
//! endpoints, over a network that keeps order and loses one datagram.
//!
//! Users post in any order that their program allows, also between the end of an operation and the progress that
//! follows it. A buffer is overwritten as soon as its send is reported as complete, and is not written any more once its
//! receive has ended, whichever way. Timers fire while nothing is in flight and something is unacknowledged.

mod rank;

use alloc::collections::VecDeque;

pub use self::rank::Fetches;
use self::rank::{Datagram, Observation, Side};
use crate::model_checker::Model;

/// The model: rank 0 sends, rank 1 receives.
#[derive(Clone, Copy, Debug)]
pub struct Messengers {
    /// Bytes of each point-to-point message, in order: all have the same tag.
    pub messages: &'static [usize],
    /// Point-to-point receives are posted only after the collective's message has arrived.
    pub flood: bool,
    /// Datagrams that are lost at most.
    pub losses: u8,
    /// Bytes of the collective's message.
    pub step: usize,
    /// How the receiver reads announced payloads in the sender's memory.
    pub fetches: Fetches,
    /// Reads that fail at most.
    pub failures: u8,
    /// The receiver may cancel the collective's message, and its peer may die.
    pub gives_up: bool,
}

/// Bytes of a message that is sent eagerly, and of one that is announced.
pub const EAGER: usize = 1;
/// See [`EAGER`].
pub const ANNOUNCED: usize = 20;

/// Both ranks, and the datagrams to each of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    sides: [Side; 2],
    towards: [VecDeque<Datagram>; 2],
    /// Point-to-point messages, and collective messages, that each rank has posted.
    posted: [[usize; 2]; 2],
    /// Those that are complete.
    ended: [[usize; 2]; 2],
    losses: u8,
    failures: u8,
    is_cancelled: bool,
    is_dead: bool,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A rank posts its next point-to-point message, or that of the collective.
    Post(usize, bool),
    /// The first datagram to a rank arrives; perhaps the rank posts before it makes progress.
    Deliver(usize, bool),
    /// The first datagram to a rank is lost.
    Lose(usize),
    /// A timer of a rank fires.
    Timeout(usize),
    /// The receiver copies.
    Copy,
    /// A read of the receiver ends, or fails.
    EndRead(usize, bool),
    /// A rank cancels the collective's message: the receiver first.
    Cancel(usize),
    /// The sender dies.
    Die,
}

impl Messengers {
    fn observe(&self, state: &mut State, rank: usize, seen: Vec<Observation>) {
        for seen in seen {
            match seen {
                Observation::Sent(datagram) => state.towards[1 - rank].push_back(datagram),
                Observation::Ended { is_step, number } => {
                    let next = &mut state.ended[rank][usize::from(is_step)];
                    if number as usize >= state.posted[rank][usize::from(is_step)] {
                        state.broken = Some("something completes that was not posted");
                    }
                    *next += 1;
                    if *next > state.posted[rank][usize::from(is_step)] {
                        state.broken = Some("a message completes twice");
                    }
                }
                Observation::Broken(rule) => state.broken = Some(rule),
            }
        }
    }

    fn post(&self, state: &mut State, rank: usize, is_step: bool) -> Option<()> {
        let next = state.posted[rank][usize::from(is_step)];
        let length = if is_step { self.step } else { *self.messages.get(next)? };
        if is_step && next == 1 {
            return None;
        }
        state.posted[rank][usize::from(is_step)] += 1;
        state.sides[rank].post(is_step, next as u32, length)
    }
}

impl Model for Messengers {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State {
            sides: [0, 1].map(|rank| Side::new(rank, if rank == 1 { self.fetches } else { Fetches::default() })),
            towards: [const { VecDeque::new() }; 2],
            posted: [[0; 2]; 2],
            ended: [[0; 2]; 2],
            losses: 0,
            failures: 0,
            is_cancelled: false,
            is_dead: false,
            broken: None,
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let is_quiet = state.towards.iter().all(VecDeque::is_empty);
        if state.sides[1].is_copying() {
            actions.push(Action::Copy);
        }
        for which in 0..state.sides[1].reads() {
            actions.push(Action::EndRead(which, true));
            if state.failures < self.failures {
                actions.push(Action::EndRead(which, false));
            }
        }
        if state.is_dead {
            return;
        }
        if self.gives_up {
            actions.extend([Action::Cancel(usize::from(!state.is_cancelled)), Action::Die]);
        }
        for rank in 0..2 {
            actions.push(Action::Post(rank, true));
            if !self.flood || rank == 0 || state.ended[rank][1] == 1 {
                actions.push(Action::Post(rank, false));
            }
            if !state.towards[rank].is_empty() {
                actions.push(Action::Deliver(rank, false));
                if rank == 0 {
                    actions.push(Action::Deliver(rank, true));
                }
                if state.losses < self.losses {
                    actions.push(Action::Lose(rank));
                }
            } else if is_quiet && state.sides[rank].waits_for_acknowledgement() {
                actions.push(Action::Timeout(rank));
            }
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = state.clone();
        let [sender, receiver] = &mut next.sides;
        receiver.reach(sender);
        let (rank, seen) = match *action {
            Action::Post(rank, is_step) => {
                self.post(&mut next, rank, is_step)?;
                (rank, next.sides[rank].progress())
            }
            Action::Deliver(rank, posts) => {
                let datagram = next.towards[rank].pop_front()?;
                next.sides[rank].deliver(&datagram);
                if posts {
                    self.post(&mut next, rank, false)?;
                }
                (rank, next.sides[rank].progress())
            }
            Action::Lose(rank) => {
                next.towards[rank].pop_front();
                next.losses += 1;
                (rank, Vec::new())
            }
            Action::Timeout(rank) => (rank, next.sides[rank].time_out()),
            Action::Copy => (1, next.sides[1].progress()),
            Action::EndRead(which, is_ok) => {
                next.failures += u8::from(!is_ok);
                next.sides[1].end_read(which, is_ok);
                (1, next.sides[1].progress())
            }
            Action::Cancel(rank) => {
                if next.posted[rank][1] == next.ended[rank][1] {
                    return None;
                }
                next.is_cancelled = true;
                (rank, next.sides[rank].cancel())
            }
            Action::Die => {
                next.is_dead = true;
                next.towards = Default::default();
                (1, next.sides[1].disconnect())
            }
        };
        next.sides[1].leave();
        self.observe(&mut next, rank, seen);
        (next != *state).then_some(next)
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        state.broken
    }

    fn finished(&self, state: &State) -> bool {
        if state.is_dead {
            return state.ended[1] == state.posted[1] && state.sides[1].is_idle() && state.sides[1].reads() == 0;
        }
        state.ended == [[self.messages.len(), 1]; 2]
            && state.sides.iter().all(Side::is_idle)
            && state.towards.iter().all(VecDeque::is_empty)
    }

    fn counts(&self, action: &Action) -> bool {
        !matches!(action, Action::Lose(_))
    }
}
