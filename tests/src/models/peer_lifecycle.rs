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
use self::rank::{Seen, Side};
use super::network::Network;
use crate::model_checker::Model;

/// The model, with `N` datagrams in flight.
#[derive(Debug)]
pub struct Lives<const N: usize> {
    may: May,
    sides: RefCell<Sides>,
}

/// Events that may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct May {
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
    sides: [Shared; 2],
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
struct Shared {
    number: u32,
    side: Rc<Side>,
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Shared {}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.side.fmt(to)
    }
}

/// Outcome of a step: the next state of the rank, and the observations. `None`: the step is impossible.
type Outcome = Option<(Shared, Rc<[Seen]>)>;

/// All distinct rank states, and the outcomes of their steps.
#[derive(Default)]
struct Sides {
    numbers: HashMap<Rc<Side>, u32, foldhash::quality::FixedState>,
    steps: HashMap<(u32, Step), Outcome, foldhash::quality::FixedState>,
}

impl fmt::Debug for Sides {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} sides", self.numbers.len())
    }
}

impl Sides {
    fn share(&mut self, side: Side) -> Shared {
        let side = Rc::new(side);
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(Rc::clone(&side)).or_insert(next);
        Shared { number, side }
    }

    /// The outcome of a step.
    fn step(&mut self, from: &Shared, step: Step) -> Option<(Shared, Rc<[Seen]>)> {
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

impl<const N: usize> Lives<N> {
    /// A model.
    pub fn new(may: May) -> Self {
        Self { may, sides: RefCell::default() }
    }

    /// Number of distinct rank states.
    pub fn sides(&self) -> usize {
        self.sides.borrow().numbers.len()
    }

    fn side(&self, rank: u8, life: u8, told: u8) -> Shared {
        self.sides.borrow_mut().share(Side::new(rank, life, told))
    }

    /// Performs a step at one rank, and checks the observations against the other rank.
    fn step(&self, state: &State<N>, rank: u8, step: Step) -> Option<State<N>> {
        let at = usize::from(rank);
        let other = &state.sides[1 - at].side;
        let (side, seen) = self.sides.borrow_mut().step(&state.sides[at], step)?;
        let mut next = state.clone();
        let before = &state.sides[at].side;
        next.sides[at] = side;
        for seen in seen.iter() {
            match *seen {
                Seen::Sent(datagram) => {
                    if datagram.kind() == Some(DatagramKind::Bye) {
                        let to = datagram.expected_life();
                        if to == Some(other.life())
                            && next.given[at][usize::from(other.life())] < before.sent_to(other.life())
                        {
                            next.broken = Some("a Bye leaves before everything is acknowledged");
                        }
                    }
                    next.network.send(datagram);
                }
                Seen::Delivered(message) => {
                    if message.from_life == other.life() {
                        next.given[1 - at][usize::from(message.to_life & 1)] = message.number.wrapping_add(1);
                    }
                }
                Seen::Completed { message, ok } => {
                    if ok && next.given[at][usize::from(message.to_life)] <= message.number {
                        next.broken = Some("an operation completes that the peer's incarnation did not receive");
                    }
                }
                Seen::Broken(rule) => next.broken = Some(rule),
            }
        }
        let after = next.sides[at].side.peer_life();
        if matches!(step, Step::Receive(_)) && before.peer_life() == PeerState::Alive && after != PeerState::Alive {
            let current = before.believes() == Some(other.life());
            let mutual = other.believes() == Some(before.life());
            if current && mutual && other.peer_life() == PeerState::Alive && !other.has_left() {
                next.broken = Some("a datagram ends a pair of present incarnations");
            }
        }
        Some(next)
    }
}

impl<const N: usize> Model for Lives<N> {
    type State = State<N>;
    type Action = Action;

    fn initial(&self) -> State<N> {
        State {
            sides: [self.side(0, 0, 0), self.side(1, 0, 0)],
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
            push(Step::Transmit { finish: !self.may.finish_late });
            if side.has_timer() {
                push(Step::Timeout);
            }
            if side.told() <= other.life() {
                push(Step::Meet);
            }
            if side.peer_life() == PeerState::Alive {
                if side.sent() < self.may.messages[at] && !side.has_left() {
                    push(Step::Send);
                }
                let sound = other.is_gone() || side.believes() != Some(other.life());
                if sound || state.suspicions < self.may.suspicions {
                    actions.push(Action::At { rank, step: Step::Fail, sound });
                }
            }
            if self.may.leave && !side.has_left() {
                actions.push(Action::At { rank, step: Step::Leave, sound: true });
            }
            if self.may.restart[at] && side.life() == 0 {
                actions.push(Action::Restart(rank));
            }
        }
        for (place, datagram) in state.network.iter() {
            actions.push(Action::Lose(place));
            let to = 1 - datagram.rank();
            if !state.sides[usize::from(to)].side.is_gone() {
                actions.push(Action::Arrive { to, place, doubled: false });
                if self.may.double {
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
                next.sides[at] = self.side(rank, 1, other.life());
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
