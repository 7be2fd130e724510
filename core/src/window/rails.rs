//! The rails to one peer: which one a segment is sent over, what is in flight on each, and which of them answer.
//!
//! All rails share one sequence of PSNs and one window. Each has a [`Path`] of its own, and a probe timer that runs
//! while segments or a probe are unanswered on it. A segment goes over the rail whose queue would empty first: segments
//! in flight to all peers times the measured time that the rail takes for one. In balance every rail has work for the
//! same time, so rails of different rates are all busy. The [`RailLoad`] limits what is in flight to all peers. A message
//! may prefer some rails: its segments go over those while one of them lives. A rail is dead while its link is down, or
//! when it leaves probes unanswered that the peer answers over another rail. It gets no segments, and is probed until it
//! answers.
//!
//! With one rail there are no states, and the only path is used for everything.

mod drain_time;
mod load;
mod silence;
mod state;

pub use load::RailLoad;
pub use state::RailState;
use state::Standing;

use crate::ids::Rail;
use crate::path::{Path, PathParameters};
use crate::time::Time;

/// Most rails of an endpoint; 1 with the feature `optimize_for_size`.
pub const MAX_RAILS: u8 = if cfg!(feature = "optimize_for_size") { 1 } else { 4 };

/// The rails of a set, one bit for each.
pub type RailMask = u8;

/// Every rail.
pub const ALL_RAILS: RailMask = RailMask::MAX;

/// What a new segment asks of the rails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RailChoice {
    /// The rails that it prefers.
    pub among: RailMask,
    /// It is one of the many whole segments of a placement: it waits while the rails are full, and shows their rate.
    pub is_bulk: bool,
}

impl RailChoice {
    /// Any rail, also a full one.
    pub const ANY: Self = Self { among: ALL_RAILS, is_bulk: false };
}

pub(crate) const fn bit(rail: Rail) -> RailMask {
    1 << (rail.0 & 7)
}

/// The records of several rails to one peer; none if there is one rail.
#[derive(Debug)]
pub struct RailRecords<'a, T: Time> {
    /// The state of each rail.
    pub states: &'a mut [RailState<T>],
    /// The load of each rail, which is shared with the rails to other peers.
    pub loads: &'a mut [RailLoad<T>],
}

impl<T: Time> RailRecords<'_, T> {
    /// Of one rail.
    #[inline]
    pub const fn none() -> Self {
        Self { states: &mut [], loads: &mut [] }
    }
}

#[cfg(not(feature = "optimize_for_size"))]
type Records<'a, R> = &'a mut [R];
#[cfg(feature = "optimize_for_size")]
type Records<'a, R> = [R; 0];

/// The rails to one peer: the only one, or the records of several.
#[derive(Debug)]
pub struct Rails<'a, T: Time> {
    only: &'a mut Path<T>,
    states: Records<'a, RailState<T>>,
    loads: Records<'a, RailLoad<T>>,
}

impl<'a, T: Time> Rails<'a, T> {
    /// One rail.
    pub const fn one(path: &'a mut Path<T>) -> Self {
        Self::new(path, RailRecords::none())
    }

    /// Several rails; or one, with `path`, if there are no records.
    #[inline]
    pub const fn new(path: &'a mut Path<T>, records: RailRecords<'a, T>) -> Self {
        let RailRecords { states, loads } = records;
        #[cfg(feature = "optimize_for_size")]
        let (states, loads) = {
            let _ = (states, loads);
            ([], [])
        };
        Self { only: path, states, loads }
    }

    /// Takes unused records into use; rails of `unproven` are not used before they answer.
    pub fn start(&mut self, parameters: PathParameters, unproven: RailMask) {
        for (i, state) in self.states.iter_mut().enumerate() {
            *state = RailState { path: Path::new(parameters), ..RailState::FREE };
            if unproven & bit(Rail(i as u8)) != 0 {
                state.standing = Standing::Unproven;
                state.timer.request_probe();
            }
        }
    }

    /// Whether there is one rail.
    #[inline]
    pub(super) const fn is_single(&self) -> bool {
        MAX_RAILS == 1 || self.states.is_empty()
    }

    /// The path of the only rail.
    #[inline]
    pub(super) fn single(&self) -> Option<&Path<T>> {
        self.is_single().then_some(&*self.only)
    }

    /// The path over the rail.
    #[inline]
    pub(super) fn path(&self, rail: Rail) -> &Path<T> {
        if self.is_single() {
            return self.only;
        }
        self.states.get(usize::from(rail.0)).map_or(self.only, |state| &state.path)
    }

    /// As [`path`](Self::path).
    #[inline]
    pub(super) fn path_mut(&mut self, rail: Rail) -> &mut Path<T> {
        if self.is_single() {
            return self.only;
        }
        self.states.get_mut(usize::from(rail.0)).map_or(self.only, |state| &mut state.path)
    }

    /// The path with the longest timeout among the rails in use.
    pub(super) fn slowest(&self) -> &Path<T> {
        let used = self.states.iter().filter(|state| !state.is_dead()).map(|state| &state.path);
        if self.is_single() { self.only } else { used.max_by_key(|path| path.timeout()).unwrap_or(self.only) }
    }

    fn numbered(&self) -> impl Iterator<Item = (Rail, &RailState<T>)> {
        self.states.iter().enumerate().map(|(i, state)| (Rail(i as u8), state))
    }

    fn get_mut(&mut self, rail: Rail) -> Option<&mut RailState<T>> {
        self.states.get_mut(usize::from(rail.0))
    }

    /// The load of the rail.
    fn load(&self, rail: Rail) -> RailLoad<T> {
        self.loads.get(usize::from(rail.0)).copied().unwrap_or(RailLoad::IDLE)
    }

    /// The load of the rail; `None` for an unknown one.
    fn load_mut(&mut self, rail: Rail) -> Option<&mut RailLoad<T>> {
        self.loads.get_mut(usize::from(rail.0))
    }

    /// The dead rails.
    pub(crate) fn dead(&self) -> u8 {
        self.numbered().filter(|(_, state)| state.is_dead()).fold(0, |mask, (rail, _)| mask | bit(rail))
    }

    /// The dead rails that lived before.
    pub(crate) fn died(&self) -> RailMask {
        self.numbered().filter(|(_, state)| state.has_died()).fold(0, |mask, (rail, _)| mask | bit(rail))
    }

    /// The rails that may be used: those that live, or all if none does.
    fn usable(&self) -> impl Iterator<Item = (Rail, &RailState<T>)> {
        let none_lives = self.states.iter().all(RailState::is_dead);
        self.numbered().filter(move |(_, state)| none_lives || !state.is_dead())
    }

    /// The rails of `among` that may be used; if there are none, all that may be.
    fn usable_among(&self, among: RailMask) -> impl Iterator<Item = (Rail, &RailState<T>)> {
        let is_within = move |rail: Rail| among & bit(rail) != 0;
        let is_free = among == ALL_RAILS || !self.usable().any(|(rail, _)| is_within(rail));
        self.usable().filter(move |(rail, _)| is_free || is_within(*rail) || mutant!("preferred_rail_ignored"))
    }

    /// Of these rails the one whose queue empties first; where some rate is unknown, the one with the fewest segments.
    fn emptiest<'r>(&'r self, rails: impl Iterator<Item = (Rail, &'r RailState<T>)>) -> Option<Rail> {
        let is_measured = self.usable().all(|(rail, _)| self.load(rail).is_measured());
        let backlog = |rail: Rail| if is_measured { self.load(rail).backlog() } else { self.load(rail).in_flight() };
        rails.min_by_key(|(rail, _)| backlog(*rail)).map(|(rail, _)| rail)
    }

    /// The rail for the next new segment of a window of `W`: of those whose congestion window and load have room, the one
    /// whose queue empties first. `None` if none has room. A peer with nothing in flight is sent one segment in any case,
    /// and no load holds back a message that prefers some rails.
    pub(super) fn choose<const W: usize>(&self, choice: RailChoice) -> Option<Rail> {
        let is_idle = || self.states.iter().all(|state| state.in_flight == 0) && !mutant!("full_rail_closed");
        let is_exempt = !choice.is_bulk || choice.among != ALL_RAILS || is_idle();
        let admits = |rail: Rail, state: &RailState<T>| {
            let path = &state.path;
            let is_closed = || self.load(rail).is_closed(&path.parameters.control);
            path.congestion.admits(state.in_flight, W as u16) && (is_exempt || !is_closed())
        };
        self.emptiest(self.usable_among(choice.among).filter(|(rail, state)| admits(*rail, state)))
    }

    /// The rail for a segment that is sent again, whose room was granted before.
    pub(super) fn choose_for_resend(&self) -> Rail {
        self.emptiest(self.usable()).unwrap_or_default()
    }

    /// The rail for a datagram without segment: `preferred` if it lives, else the first that does.
    pub(crate) fn choose_for_control(&self, preferred: Rail) -> Rail {
        let lives = |rail: Rail| self.states.get(usize::from(rail.0)).is_some_and(|state| !state.is_dead());
        if lives(preferred) {
            return preferred;
        }
        self.numbered().find(|(_, state)| !state.is_dead()).map_or(preferred, |(rail, _)| rail)
    }

    /// A segment is posted.
    pub(super) fn handle_posted(&mut self, now: T::Instant, rail: Rail) {
        if let Some(load) = self.load_mut(rail) {
            load.handle_posted();
        }
        let Some(state) = self.get_mut(rail) else { return };
        state.in_flight = state.in_flight.wrapping_add(1);
        state.loaded = state.loaded.wrapping_add(1);
        state.posted = T::stamp(now);
        // A probe that is to be sent arms it.
        if !state.timer.is_armed() && !state.timer.wants_probe() {
            state.arm(now);
        }
    }

    /// A segment that was last sent over this rail is acknowledged.
    #[inline]
    pub(super) fn handle_acknowledged(&mut self, rail: Rail, was_in_flight: bool, is_bulk: bool) {
        if self.is_single() {
            return;
        }
        if let Some(state) = self.get_mut(rail) {
            state.fresh = state.fresh.wrapping_add(1);
            state.fresh_bulk = state.fresh_bulk.wrapping_add(u16::from(is_bulk));
            state.in_flight = state.in_flight.wrapping_sub(u16::from(was_in_flight));
        }
        self.unload(rail, u16::from(was_in_flight));
    }

    /// A number of segments in flight counts as lost.
    #[inline]
    pub(super) fn handle_lost(&mut self, rail: Rail, segments: u32) {
        if self.is_single() || segments == 0 {
            return;
        }
        if let Some(state) = self.get_mut(rail) {
            state.in_flight = state.in_flight.wrapping_sub(segments as u16);
            state.has_lost = true;
        }
        self.unload(rail, segments as u16);
    }

    /// Segments to this peer are not in the rail's queues any more.
    fn unload(&mut self, rail: Rail, segments: u16) {
        let Some(state) = self.get_mut(rail) else { return };
        let counted = segments.min(state.loaded);
        state.loaded = state.loaded.wrapping_sub(counted);
        if let Some(load) = self.load_mut(rail) {
            load.handle_left(counted);
        }
    }

    /// The rail's segments that the present acknowledgement acknowledges first.
    pub(super) fn fresh(&self, rail: Rail) -> u32 {
        self.states.get(usize::from(rail.0)).map_or(0, |state| u32::from(state.fresh))
    }

    /// All rails.
    pub(super) fn all(&self) -> impl Iterator<Item = Rail> + use<T> {
        (0..self.states.len()).map(|i| Rail(i as u8))
    }

    /// Whether a probe of this number and PSN is the rail's latest. While the peer is suspended more probes may be sent
    /// than numbers distinguish.
    pub(super) fn is_latest_probe(&self, rail: Rail, number: u8, psn: u32) -> bool {
        let is_latest = |state: &RailState<T>| state.timer.number() == number && state.probe_psn == psn as u8;
        self.states.get(usize::from(rail.0)).is_some_and(is_latest)
    }

    /// A probe over the rail is answered: it lives. Returns the rails whose segments the answer judges: none if it is
    /// not the latest probe.
    pub(super) fn handle_answer(&mut self, now: T::Instant, rail: Rail, is_latest: bool) -> RailMask {
        let Some(state) = self.get_mut(rail) else { return 0 };
        let (covered, paired) = if is_latest { state.take_asked() } else { (0, 0) };
        let units = T::since(now, state.probed).unwrap_or(0);
        let revived = state.is_dead();
        if is_latest {
            state.record_answer(units);
        }
        if state.is_silent() || revived {
            state.record_silence(now);
        }
        state.end_silence();
        if state.is_awaited() {
            state.arm(now);
        } else {
            state.timer.disarm();
        }
        self.forget_pairs(bit(rail));
        if revived {
            // Probes on other rails no longer judge what it carries; it asks for what dead ones carried.
            for (i, state) in self.states.iter_mut().enumerate() {
                state.covered &= if i == usize::from(rail.0) { u8::MAX } else { !bit(rail) };
            }
            if self.dead() != 0 {
                self.request_probe(Some(rail));
            }
        }
        if is_latest {
            self.handle_missed_pairs(now, rail, paired, units);
        }
        covered
    }

    /// An acknowledgement was handled that echoes a datagram of `echoed` with that round trip. Rails with fresh
    /// segments make progress.
    pub(super) fn settle<const W: usize>(&mut self, now: T::Instant, echoed: Option<(Rail, u32)>) {
        let mut ended = 0;
        for (i, state) in self.states.iter_mut().enumerate() {
            let round_trip = echoed.filter(|(rail, _)| usize::from(rail.0) == i).map(|(_, units)| units);
            if core::mem::take(&mut state.has_lost) {
                state.path.handle_loss::<W>(now, round_trip);
            }
            if let Some(units) = round_trip {
                state.path.handle_round_trip::<W>(now, units);
                state.record_answer(units);
            }
            let (fresh, bulk) = (core::mem::take(&mut state.fresh), core::mem::take(&mut state.fresh_bulk));
            if fresh > 0
                && let Some(load) = self.loads.get_mut(i)
            {
                load.handle_acknowledged(now, fresh, bulk, &state.path);
            }
            if fresh > 0 && !state.is_dead() {
                ended |= bit(Rail(i as u8));
                state.end_silence();
                state.arm(now);
            }
            if !state.is_awaited() && state.timer.is_armed() {
                state.timer.disarm();
            }
        }
        self.forget_pairs(ended);
    }

    /// Every segment is released.
    pub(super) fn handle_abort(&mut self) {
        for state in self.states.iter_mut() {
            (state.fresh, state.fresh_bulk) = (0, 0);
            state.timer.disarm();
        }
    }

    /// A rail is dead: a probe on another asks which of its segments have arrived, unless one does already.
    pub(crate) fn handle_death(&mut self, rail: Rail) {
        self.leave(rail, Standing::Dead);
    }

    /// No path leads to the peer over the rail, as its link is down or the peer lacks it: it has to answer before it is
    /// used.
    pub(crate) fn handle_no_path(&mut self, rail: Rail) {
        self.leave(rail, Standing::Unproven);
    }

    fn leave(&mut self, rail: Rail, standing: Standing) {
        if let Some(state) = self.get_mut(rail).filter(|state| state.standing != Standing::Unproven) {
            state.standing = standing;
        }
        self.forget_pairs(bit(rail));
        let asked = self.choose_for_control(rail);
        if let Some(state) = self.get_mut(asked) {
            let is_asked = state.timer.unanswered() > 0 && state.covered & bit(rail) != 0;
            if !is_asked {
                state.timer.request_probe();
            }
        }
    }

    /// Sends a probe over every rail, or over one.
    pub(crate) fn request_probe(&mut self, rail: Option<Rail>) {
        let (first, count) = rail.map_or((0, usize::MAX), |rail| (usize::from(rail.0), 1));
        self.states.iter_mut().skip(first).take(count).for_each(|state| state.timer.request_probe());
    }

    /// Whether a probe is to be sent over some rail.
    #[inline]
    pub(super) fn wants_probe(&self) -> bool {
        self.states.iter().any(|state| state.timer.wants_probe())
    }

    /// Takes the next probe that is to be sent, of this PSN: its rail, its number, and the rails whose segments it asks
    /// for. A silent rail's leaves before those of the others, which are the second ones of its pair.
    pub(super) fn take_probe(&mut self, now: T::Instant, psn: u32) -> Option<(Rail, u8, RailMask)> {
        let (dead, probed) = (self.dead(), self.open_pairs());
        let wanting = || self.numbered().filter(|(_, state)| state.timer.wants_probe());
        let (rail, _) = wanting().find(|(_, state)| state.is_silent()).or_else(|| wanting().next())?;
        let state = self.get_mut(rail)?;
        let (number, _) = state.timer.take_probe()?;
        state.handle_probed(now, psn);
        state.covered = if state.is_dead() { bit(rail) } else { bit(rail) | dead };
        state.paired = probed & !bit(rail);
        if !state.timer.is_armed() {
            state.arm(now);
        }
        Some((rail, number, state.covered))
    }

    /// The next of these moments: `other`, and when a rail's timer is due.
    pub(super) fn next_deadline(&self, other: Option<T::Instant>) -> Option<T::Instant> {
        self.states.iter().filter_map(|state| state.timer.deadline()).fold(other, |first, next| match first {
            Some(first) if T::is_due(next, first) => Some(first),
            _ => Some(next),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Nanos;

    #[test]
    fn the_rate_of_a_rail_is_measured_by_its_own_acknowledgements() {
        let (mut path, mut states) = (Path::new(PathParameters::NONE), [RailState::<Nanos>::FREE; 2]);
        let mut loads = [RailLoad::IDLE; 2];
        let mut rails = Rails::new(&mut path, RailRecords { states: &mut states, loads: &mut loads });
        for rail in [0, 0, 0, 0, 1, 1, 1, 1].map(Rail) {
            rails.handle_posted(0, rail);
        }
        for now in [1_000_000, 2_000_000] {
            rails.handle_acknowledged(Rail(0), true, true);
            rails.settle::<8>(now, None);
            rails.handle_posted(now, Rail(0));
        }
        assert_eq!(loads.map(|load| load.is_measured()), [true, false]);
    }
}
