//! Model of the congestion window of one peer, with arbitrary round-trip samples and losses during a short time.

use unisono_core::time::Time;
use unisono_core::window::congestion::{Congestion as Window, CongestionControl};
use unisono_core::window::rtt::Rtt;

use crate::model_checker::Model;

/// Segments of a full window.
pub const FULL: u16 = 8;
/// Delay above the least round trip that is aimed at, in units of 64 ns.
const TARGET: u32 = 4;
/// The round trip of the path, and one that is later than the aim.
const ROUND_TRIP: u32 = 3;
const LATE: u32 = 12;
/// Moments, one unit of 64 ns apart.
const END: u8 = 12;

/// A few units of 64 ns in a `u8`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Short;

impl Time for Short {
    type Instant = u8;
    type Stamp = u8;
    const ZERO: u8 = 0;
    const MAX_BACKOFF: u8 = 0;

    fn stamp(now: u8) -> u8 {
        now
    }
    fn before(now: u8, units: u32) -> u8 {
        now.saturating_sub(u8::try_from(units).unwrap_or(u8::MAX))
    }
    fn since(now: u8, stamp: u8) -> Option<u32> {
        Some(u32::from(now.saturating_sub(stamp)))
    }
    fn after(now: u8, units: u32) -> u8 {
        now.saturating_add(u8::try_from(units).unwrap_or(u8::MAX))
    }
    fn is_due(now: u8, deadline: u8) -> bool {
        deadline <= now
    }
    fn tick(at: u8) -> u32 {
        u32::from(at)
    }
    fn at_tick(_: u8, tick: u32) -> u8 {
        u8::try_from(tick).unwrap_or(u8::MAX)
    }
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct Congestion;

/// A window, and the history that the rules need.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    window: Window<Short>,
    now: u8,
    /// When it last had to shrink, or may have.
    shrunk: u8,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Time passes.
    Wait,
    /// A round trip was measured.
    RoundTrip(u32),
    /// Something was lost when the round trip was this.
    Loss(u32),
}

/// Segments that may be in flight.
fn width(window: &Window<Short>) -> u16 {
    (0..=FULL).find(|in_flight| !window.admits(*in_flight, FULL)).unwrap_or(FULL)
}

impl Model for Congestion {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        // A round trip after the beginning of time, when it never shrank.
        let now = ROUND_TRIP as u8 + 1;
        State { window: Window::NEW, now, shrunk: 0, broken: None }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let samples = [ROUND_TRIP, LATE].into_iter().flat_map(|units| [Action::RoundTrip(units), Action::Loss(units)]);
        actions.extend(samples);
        if state.now < END {
            actions.push(Action::Wait);
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = *state;
        let mut rtt = Rtt::NONE;
        rtt.sample(ROUND_TRIP);
        let control = CongestionControl::Delay { target: TARGET };
        let units = match *action {
            Action::Wait => {
                next.now += 1;
                return Some(next);
            }
            Action::RoundTrip(units) => {
                next.window.handle_round_trip(next.now, units, &rtt, &control, FULL);
                units
            }
            Action::Loss(units) => {
                next.window.handle_loss(next.now, units, &rtt, &control, FULL);
                units
            }
        };
        let [before, after] = [width(&state.window), width(&next.window)];
        let due = u32::from(state.now - state.shrunk) > ROUND_TRIP;
        let (late, loss) = (units == LATE, matches!(action, Action::Loss(_)));
        next.broken = if after == 0 {
            Some("one segment always may be in flight")
        } else if after < before && !late {
            Some("a round trip in time shrinks no window")
        } else if after < before && !due {
            Some("it shrinks at most once a round trip")
        } else if 2 * after < before {
            Some("it shrinks to a half at most")
        } else if loss && late && due && after > before.div_ceil(2) {
            Some("loss with delay halves it")
        } else if loss && after > before {
            Some("loss lets no window grow")
        } else {
            None
        };
        if late && due {
            next.shrunk = next.now;
        }
        Some(next)
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        state.broken
    }

    fn finished(&self, state: &State) -> bool {
        width(&state.window) == FULL
    }
}
