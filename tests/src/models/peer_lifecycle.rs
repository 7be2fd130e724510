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
use core::hash::{BuildHasher, Hash, Hasher};
use std::collections::HashMap;

use unisono_core::endpoint::peer::PeerState;
use unisono_core::ids::PeerId;
use unisono_core::wire::DatagramKind;

pub use self::datagram::Datagram;
pub use self::rank::{Arrivals, Step};
use self::rank::{Observation, RankState};
use super::network::Network;
use crate::model_checker::Model;

/// The model, with `N` datagrams in flight, `W` segments per window, PSNs of `BITS` bits, and at each rank `M` messages
/// under way.
#[derive(Debug)]
pub struct PeerLifecycle<const N: usize, const W: usize, const BITS: u32, const M: usize> {
    options: LifecycleOptions,
    rank_states: RefCell<RankStates<W, BITS, M>>,
}

/// Events that may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifecycleOptions {
    /// Messages that each incarnation of a rank sends.
    pub messages: [u8; 2],
    /// How many of them it sends at a time.
    pub sends: u8,
    /// Whether a rank may restart.
    pub restart: [bool; 2],
    /// How often a live rank is declared dead.
    pub suspicions: u8,
    /// The device finishes postings later than it makes them.
    pub finish_late: bool,
    /// Datagrams arrive twice.
    pub double: bool,
    /// How many datagrams arrive in one batch, at most 3.
    pub batch: usize,
    /// The ranks know each other from the start, and timers fire only while nothing is in flight.
    pub settled: bool,
    /// Ranks leave.
    pub leave: bool,
}

/// Both ranks, and the datagrams in flight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State<const N: usize, const W: usize, const BITS: u32, const M: usize> {
    sides: [SharedRankState<W, BITS, M>; 2],
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
    /// Datagrams arrive together.
    Arrive {
        /// The receiver.
        to: u8,
        /// Their places, in the order of arrival.
        places: [Option<usize>; 3],
        /// They arrive once more later.
        doubled: bool,
    },
    /// A datagram is lost.
    Lose(usize),
    /// A rank starts again.
    Restart(u8),
}

/// A rank's side, of which equal ones are stored once.
#[derive(Clone)]
struct SharedRankState<const W: usize, const BITS: u32, const M: usize> {
    number: u32,
    /// What it is hashed as, whenever it was found.
    digest: [u64; 2],
    side: Rc<RankState<W, BITS, M>>,
}

impl<const W: usize, const BITS: u32, const M: usize> PartialEq for SharedRankState<W, BITS, M> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<const W: usize, const BITS: u32, const M: usize> Eq for SharedRankState<W, BITS, M> {}

impl<const W: usize, const BITS: u32, const M: usize> Hash for SharedRankState<W, BITS, M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.digest.hash(hasher);
    }
}

impl<const W: usize, const BITS: u32, const M: usize> fmt::Debug for SharedRankState<W, BITS, M> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.side.fmt(to)
    }
}

/// Outcome of a step: the next state of the rank, and the observations. `None`: the step is impossible.
type Outcome<const W: usize, const BITS: u32, const M: usize> =
    Option<(SharedRankState<W, BITS, M>, Rc<[Observation]>)>;

/// All distinct rank states, and the outcomes of their steps.
#[derive(Default)]
struct RankStates<const W: usize, const BITS: u32, const M: usize> {
    numbers: HashMap<Rc<RankState<W, BITS, M>>, u32, foldhash::quality::FixedState>,
    /// Their datagrams' numbers stand for them, since there are few.
    datagrams: HashMap<Datagram, u16, foldhash::quality::FixedState>,
    steps: HashMap<(u32, Step<[u16; 3]>), Outcome<W, BITS, M>, foldhash::quality::FixedState>,
}

impl<const W: usize, const BITS: u32, const M: usize> fmt::Debug for RankStates<W, BITS, M> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} sides", self.numbers.len())
    }
}

impl<const W: usize, const BITS: u32, const M: usize> RankStates<W, BITS, M> {
    fn share(&mut self, side: RankState<W, BITS, M>) -> SharedRankState<W, BITS, M> {
        let digest = [1, 2].map(|seed| foldhash::quality::FixedState::with_seed(seed).hash_one(&side));
        if let Some((side, number)) = self.numbers.get_key_value(&side) {
            return SharedRankState { number: *number, digest, side: Rc::clone(side) };
        }
        let (side, number) = (Rc::new(side), self.numbers.len() as u32);
        self.numbers.insert(Rc::clone(&side), number);
        SharedRankState { number, digest, side }
    }

    /// A datagram's number, from 1 on.
    fn number(&mut self, datagram: Datagram) -> u16 {
        let next = u16::try_from(self.datagrams.len() + 1).expect("fewer than 65536 distinct datagrams");
        *self.datagrams.entry(datagram).or_insert(next)
    }

    /// The outcome of a step.
    fn step(&mut self, from: &SharedRankState<W, BITS, M>, step: Step) -> Outcome<W, BITS, M> {
        let short = step.map_arrivals(|arrivals| arrivals.map(|arrival| arrival.map_or(0, |it| self.number(it))));
        if let Some(known) = self.steps.get(&(from.number, short)) {
            return known.clone();
        }
        let mut side = (*from.side).clone();
        let mut seen = Vec::new();
        let outcome = side.step(step, &mut seen).map(|()| (self.share(side), seen.into()));
        self.steps.insert((from.number, short), outcome.clone());
        outcome
    }
}

impl<const N: usize, const W: usize, const BITS: u32, const M: usize> PeerLifecycle<N, W, BITS, M> {
    /// A model.
    pub fn new(options: LifecycleOptions) -> Self {
        Self { options, rank_states: RefCell::default() }
    }

    /// Number of distinct rank states.
    pub fn rank_states(&self) -> usize {
        self.rank_states.borrow().numbers.len()
    }

    fn rank_state(&self, rank: u8, incarnation: u8, announced: u8) -> SharedRankState<W, BITS, M> {
        self.rank_states.borrow_mut().share(RankState::new(rank, incarnation, announced))
    }

    /// Performs a step at one rank, and checks the observations against the other rank.
    fn step(&self, state: &State<N, W, BITS, M>, rank: u8, step: Step) -> Option<State<N, W, BITS, M>> {
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

impl<const N: usize, const W: usize, const BITS: u32, const M: usize> Model for PeerLifecycle<N, W, BITS, M> {
    type State = State<N, W, BITS, M>;
    type Action = Action;

    fn initial(&self) -> State<N, W, BITS, M> {
        let initial = State {
            sides: [0, 1].map(|rank| self.rank_state(rank, 0, 0)),
            network: Network::EMPTY,
            given: [[0; 2]; 2],
            suspicions: 0,
            broken: None,
        };
        if !self.options.settled {
            return initial;
        }
        let announced = self.step(&initial, 0, Step::AddPeer).and_then(|state| self.step(&state, 1, Step::AddPeer));
        announced.unwrap_or(initial)
    }

    fn actions(&self, state: &State<N, W, BITS, M>, actions: &mut Vec<Action>) {
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
            if side.has_timer() && !(self.options.settled && state.network.iter().next().is_some()) {
                push(Step::Timeout);
            }
            if side.announced() <= other.incarnation() {
                push(Step::AddPeer);
            }
            if side.peer_state() == PeerState::Alive {
                let messages = self.options.messages[at].saturating_sub(side.sent()).min(self.options.sends);
                if messages > 0 && !side.has_left() {
                    push(Step::Send { messages });
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
        actions.extend(state.network.iter().map(|(place, _)| Action::Lose(place)));
        for to in 0..2_u8 {
            if state.sides[usize::from(to)].side.is_gone() {
                continue;
            }
            let to_it = state.network.iter().filter(|(_, datagram)| datagram.rank() != to).map(|(place, _)| place);
            for places in arrangements(&to_it.collect::<Vec<_>>(), self.options.batch) {
                actions.push(Action::Arrive { to, places, doubled: false });
                if self.options.double {
                    actions.push(Action::Arrive { to, places, doubled: true });
                }
            }
        }
    }

    fn next(&self, state: &State<N, W, BITS, M>, action: &Action) -> Option<State<N, W, BITS, M>> {
        match *action {
            Action::At { rank, step, sound } => {
                let mut next = self.step(state, rank, step)?;
                next.suspicions += u8::from(!sound);
                Some(next)
            }
            Action::Arrive { to, places, doubled } => {
                let arrivals = places.map(|place| place.and_then(|place| state.network.get(place)));
                let mut taken = state.clone();
                if !doubled {
                    taken.network.remove_all(&places);
                }
                self.step(&taken, to, Step::Receive(arrivals))
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

    fn violation(&self, state: &State<N, W, BITS, M>) -> Option<&'static str> {
        state.broken
    }

    fn finished(&self, state: &State<N, W, BITS, M>) -> bool {
        state.sides.iter().all(|shared| shared.side.is_gone() == shared.side.has_left() && shared.side.is_clean())
    }

    /// Restarts, suspicions of live ranks, departures and sends are optional.
    fn counts(&self, action: &Action) -> bool {
        match action {
            Action::Restart(_) => false,
            Action::At { step, sound, .. } => match step {
                Step::Send { .. } | Step::Leave => false,
                Step::Fail => *sound,
                _ => true,
            },
            Action::Arrive { .. } | Action::Lose(_) => true,
        }
    }
}

/// Every sequence of at most `most` of the places, each at most once.
fn arrangements(places: &[usize], most: usize) -> Vec<[Option<usize>; 3]> {
    let (mut all, mut begin) = (vec![[None; 3]], 0);
    for length in 0..most.min(3) {
        let end = all.len();
        for shorter in begin..end {
            let shorter = all[shorter];
            for place in places.iter().filter(|place| !shorter.contains(&Some(**place))) {
                let mut longer = shorter;
                longer[length] = Some(*place);
                all.push(longer);
            }
        }
        begin = end;
    }
    all.split_off(1)
}

const fn peer(rank: u8) -> PeerId {
    PeerId(rank as u32)
}
