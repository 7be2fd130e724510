//! Model of the lifecycle of two peers: they connect, may restart once each, may be suspected, leave, and exchange
//! messages meanwhile.
//!
//! The network carries the datagrams' bytes, which are lost, duplicated and reordered, and never expire. Bootstrap
//! announces a rank's incarnations to the other rank in order, at any later moment. Every armed timer may fire at any
//! moment. A gone rank, or one whose incarnation was replaced, may be declared dead; so may, once, a live one.

mod datagram;
mod rank;

use alloc::rc::Rc;
use core::cell::RefCell;
use core::fmt;
use core::hash::{Hash, Hasher};
use std::collections::HashMap;

use unisono_core::endpoint::peer::PeerState;
use unisono_core::ids::PeerId;
use unisono_core::wire::DatagramKind;

pub use self::datagram::{BITS, Datagram, W as WINDOW};
pub use self::rank::Step;
use self::rank::{Observation, RankState};
use super::network::Network;
use crate::model_checker::Model;

/// The model, with `N` datagrams in flight.
#[derive(Debug)]
pub struct PeerLifecycle<const N: usize> {
    options: LifecycleOptions,
    rank_states: RefCell<RankStates>,
}

/// Events that may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifecycleOptions {
    /// Messages that each incarnation of a rank sends.
    pub messages: [u8; 2],
    /// Whether a rank may restart.
    pub restart: [bool; 2],
    /// How often a live rank is declared dead.
    pub suspicions: u8,
    /// The device finishes postings later than it makes them.
    pub finish_late: bool,
    /// Datagrams arrive twice.
    pub double: bool,
    /// Ranks leave.
    pub leave: bool,
}

/// Both ranks, and the datagrams in flight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State<const N: usize> {
    sides: [SharedRankState; 2],
    network: Network<Datagram, N>,
    /// Messages of a rank's present incarnation that were delivered to each incarnation of the other one.
    given: [[u8; 2]; 2],
    suspicions: u8,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Something happens at a rank.
    At {
        /// The rank.
        rank: u8,
        /// What.
        step: Step,
        /// It is not the suspicion of a live rank.
        sound: bool,
    },
    /// A datagram arrives.
    Arrive {
        /// The receiver.
        to: u8,
        /// Its place.
        place: usize,
        /// It arrives once more later.
        doubled: bool,
    },
    /// A datagram is lost.
    Lose(usize),
    /// A rank starts again.
    Restart(u8),
}

/// A rank's side, of which equal ones are stored once.
#[derive(Clone)]
struct SharedRankState {
    number: u32,
    side: Rc<RankState>,
}

impl PartialEq for SharedRankState {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for SharedRankState {}

impl Hash for SharedRankState {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl fmt::Debug for SharedRankState {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.side.fmt(to)
    }
}

/// Outcome of a step: the next state of the rank, and the observations. `None`: the step is impossible.
type Outcome = Option<(SharedRankState, Rc<[Observation]>)>;

/// All distinct rank states, and the outcomes of their steps.
#[derive(Default)]
struct RankStates {
    numbers: HashMap<Rc<RankState>, u32, foldhash::quality::FixedState>,
    steps: HashMap<(u32, Step), Outcome, foldhash::quality::FixedState>,
}

impl fmt::Debug for RankStates {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} sides", self.numbers.len())
    }
}

impl RankStates {
    fn share(&mut self, side: RankState) -> SharedRankState {
        let side = Rc::new(side);
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(Rc::clone(&side)).or_insert(next);
        SharedRankState { number, side }
    }

    /// The outcome of a step.
    fn step(&mut self, from: &SharedRankState, step: Step) -> Option<(SharedRankState, Rc<[Observation]>)> {
        if let Some(known) = self.steps.get(&(from.number, step)) {
            return known.clone();
        }
        let mut side = (*from.side).clone();
        let mut seen = Vec::new();
        let outcome = side.step(step, &mut seen).map(|()| (self.share(side), seen.into()));
        self.steps.insert((from.number, step), outcome.clone());
        outcome
    }
}

impl<const N: usize> PeerLifecycle<N> {
    /// A model.
    pub fn new(options: LifecycleOptions) -> Self {
        Self { options, rank_states: RefCell::default() }
    }

    /// Number of distinct rank states.
    pub fn rank_states(&self) -> usize {
        self.rank_states.borrow().numbers.len()
    }

    fn rank_state(&self, rank: u8, incarnation: u8, announced: u8) -> SharedRankState {
        self.rank_states.borrow_mut().share(RankState::new(rank, incarnation, announced))
    }

    /// Performs a step at one rank, and checks the observations against the other rank.
    fn step(&self, state: &State<N>, rank: u8, step: Step) -> Option<State<N>> {
        let at = usize::from(rank);
        let other = &state.sides[1 - at].side;
        let (side, seen) = self.rank_states.borrow_mut().step(&state.sides[at], step)?;
        let mut next = state.clone();
        let before = &state.sides[at].side;
        next.sides[at] = side;
        for seen in seen.iter() {
            match *seen {
                Observation::Sent(datagram) => {
                    if datagram.kind() == Some(DatagramKind::Bye) {
                        let to = datagram.expected_incarnation();
                        if to == Some(other.incarnation())
                            && next.given[at][usize::from(other.incarnation())] < before.sent_to(other.incarnation())
                        {
                            next.broken = Some("a Bye leaves before everything is acknowledged");
                        }
                    }
                    next.network.send(datagram);
                }
                Observation::Delivered(message) => {
                    if message.from_incarnation == other.incarnation() {
                        next.given[1 - at][usize::from(message.to_incarnation & 1)] = message.number.wrapping_add(1);
                    }
                }
                Observation::Completed { message, ok } => {
                    if ok && next.given[at][usize::from(message.to_incarnation)] <= message.number {
                        next.broken = Some("an operation completes that the peer's incarnation did not receive");
                    }
                }
                Observation::Broken(rule) => next.broken = Some(rule),
            }
        }
        let after = next.sides[at].side.peer_state();
        if matches!(step, Step::Receive(_)) && before.peer_state() == PeerState::Alive && after != PeerState::Alive {
            let current = before.believed_incarnation() == Some(other.incarnation());
            let mutual = other.believed_incarnation() == Some(before.incarnation());
            if current && mutual && other.peer_state() == PeerState::Alive && !other.has_left() {
                next.broken = Some("a datagram ends a pair of present incarnations");
            }
        }
        Some(next)
    }
}

impl<const N: usize> Model for PeerLifecycle<N> {
    type State = State<N>;
    type Action = Action;

    fn initial(&self) -> State<N> {
        State {
            sides: [self.rank_state(0, 0, 0), self.rank_state(1, 0, 0)],
            network: Network::EMPTY,
            given: [[0; 2]; 2],
            suspicions: 0,
            broken: None,
        }
    }

    fn actions(&self, state: &State<N>, actions: &mut Vec<Action>) {
        for rank in 0..2_u8 {
            let at = usize::from(rank);
            let (side, other) = (&state.sides[at].side, &state.sides[1 - at].side);
            let mut push = |step| actions.push(Action::At { rank, step, sound: true });
            if side.has_postings() {
                push(Step::Finish);
            }
            if side.is_gone() {
                continue;
            }
            push(Step::Transmit { finish: !self.options.finish_late });
            if side.has_timer() {
                push(Step::Timeout);
            }
            if side.announced() <= other.incarnation() {
                push(Step::AddPeer);
            }
            if side.peer_state() == PeerState::Alive {
                if side.sent() < self.options.messages[at] && !side.has_left() {
                    push(Step::Send);
                }
                let sound = other.is_gone() || side.believed_incarnation() != Some(other.incarnation());
                if sound || state.suspicions < self.options.suspicions {
                    actions.push(Action::At { rank, step: Step::Fail, sound });
                }
            }
            if self.options.leave && !side.has_left() {
                actions.push(Action::At { rank, step: Step::Leave, sound: true });
            }
            if self.options.restart[at] && side.incarnation() == 0 {
                actions.push(Action::Restart(rank));
            }
        }
        for (place, datagram) in state.network.iter() {
            actions.push(Action::Lose(place));
            let to = 1 - datagram.rank();
            if !state.sides[usize::from(to)].side.is_gone() {
                actions.push(Action::Arrive { to, place, doubled: false });
                if self.options.double {
                    actions.push(Action::Arrive { to, place, doubled: true });
                }
            }
        }
    }

    fn next(&self, state: &State<N>, action: &Action) -> Option<State<N>> {
        match *action {
            Action::At { rank, step, sound } => {
                let mut next = self.step(state, rank, step)?;
                next.suspicions += u8::from(!sound);
                Some(next)
            }
            Action::Arrive { to, place, doubled } => {
                let datagram = state.network.get(place)?;
                let mut taken = state.clone();
                if !doubled {
                    taken.network.remove(place);
                }
                self.step(&taken, to, Step::Receive(datagram))
            }
            Action::Lose(place) => {
                let mut next = state.clone();
                next.network.remove(place);
                Some(next)
            }
            Action::Restart(rank) => {
                let at = usize::from(rank);
                let mut next = state.clone();
                let other = &state.sides[1 - at].side;
                next.sides[at] = self.rank_state(rank, 1, other.incarnation());
                next.given[at] = [0; 2];
                Some(next)
            }
        }
    }

    fn violation(&self, state: &State<N>) -> Option<&'static str> {
        state.broken
    }

    fn finished(&self, state: &State<N>) -> bool {
        state.sides.iter().all(|shared| shared.side.is_gone() == shared.side.has_left() && shared.side.is_clean())
    }

    /// Restarts, suspicions of live ranks, departures and sends are optional.
    fn counts(&self, action: &Action) -> bool {
        match action {
            Action::Restart(_) => false,
            Action::At { step, sound, .. } => match step {
                Step::Send | Step::Leave => false,
                Step::Fail => *sound,
                _ => true,
            },
            Action::Arrive { .. } | Action::Lose(_) => true,
        }
    }
}

const fn peer(rank: u8) -> PeerId {
    PeerId(rank as u32)
}
