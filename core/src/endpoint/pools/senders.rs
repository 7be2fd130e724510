//! The pool of send windows.

use crate::endpoint::{Sender, SenderFlags};
use crate::ids::Rail;
use crate::list::List;
use crate::pool::Pool;
use crate::time::Time;
use crate::time::wheel::Wheel;
#[cfg(not(feature = "optimize_for_size"))]
use crate::window::rails::RailLoad;
use crate::window::rails::{MAX_RAILS, RailRecords, RailState};

/// Send windows, in use and free, with the states of their rails.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::endpoint) struct SenderPool<P, R, T: Time, const W: usize, const BITS: u32> {
    records: P,
    /// The states of sender i follow those of sender i − 1.
    rails: R,
    /// The load of each rail, over all senders.
    #[cfg(not(feature = "optimize_for_size"))]
    loads: [RailLoad<T>; MAX_RAILS as usize],
    /// Rails to each peer.
    rail_count: u8,
    free: List,
    /// Senders with uncompleted postings.
    posted: List,
    /// Senders whose silence has to be reported.
    silent: List,
    /// The clock hand of the search for an idle window.
    clock_hand: u32,
    /// When the epoch in which watched peers share scarce windows began, and its number modulo 2, as in their flags.
    pub(in crate::endpoint) watch_epoch_since: T::Stamp,
    pub(in crate::endpoint) watch_epoch: bool,
}

impl<P, R, T: Time, const W: usize, const BITS: u32> SenderPool<P, R, T, W, BITS>
where
    P: Pool<Sender<T, W, BITS>>,
    R: Pool<RailState<T>>,
{
    pub(in crate::endpoint) fn new(mut records: P, rails: R, now: T::Stamp) -> Self {
        let rail_count = rails.as_ref().len().checked_div(records.as_ref().len()).unwrap_or(0);
        Self {
            free: List::of_all(records.as_mut(), |sender| &mut sender.link),
            rail_count: rail_count.clamp(1, usize::from(MAX_RAILS)) as u8,
            records,
            rails,
            #[cfg(not(feature = "optimize_for_size"))]
            loads: [RailLoad::IDLE; MAX_RAILS as usize],
            posted: List::EMPTY,
            silent: List::EMPTY,
            clock_hand: 0,
            watch_epoch_since: now,
            watch_epoch: false,
        }
    }

    /// Rails to each peer.
    #[inline]
    pub(in crate::endpoint) const fn rail_count(&self) -> u8 {
        if MAX_RAILS == 1 { 1 } else { self.rail_count }
    }

    #[inline]
    pub(in crate::endpoint) fn as_slice(&self) -> &[Sender<T, W, BITS>] {
        self.records.as_ref()
    }

    #[inline]
    pub(in crate::endpoint) fn as_mut_slice(&mut self) -> &mut [Sender<T, W, BITS>] {
        self.records.as_mut()
    }

    #[inline]
    pub(in crate::endpoint) fn len(&self) -> u32 {
        self.as_slice().len() as u32
    }

    #[inline]
    pub(in crate::endpoint) fn get(&self, i: u32) -> Option<&Sender<T, W, BITS>> {
        self.as_slice().get(i as usize)
    }

    #[inline]
    pub(in crate::endpoint) fn get_mut(&mut self, i: u32) -> Option<&mut Sender<T, W, BITS>> {
        self.as_mut_slice().get_mut(i as usize)
    }

    /// A sender and the records of its rails: none if there is one rail.
    #[inline]
    pub(in crate::endpoint) fn with_rails(&mut self, i: u32) -> Option<(&mut Sender<T, W, BITS>, RailRecords<'_, T>)> {
        #[cfg(not(feature = "optimize_for_size"))]
        let states = states_of(self.rail_count(), i);
        let sender = self.records.as_mut().get_mut(i as usize)?;
        #[cfg(not(feature = "optimize_for_size"))]
        if !states.is_empty() {
            let states = self.rails.as_mut().get_mut(states).unwrap_or_default();
            return Some((sender, RailRecords { states, loads: &mut self.loads }));
        }
        Some((sender, RailRecords::none()))
    }

    /// The states of the rails of all senders.
    pub(in crate::endpoint) fn rail_states(&self) -> &[RailState<T>] {
        self.rails.as_ref()
    }

    /// The states of one of several rails, of all senders.
    fn states_over(&self, rail: Rail) -> impl Iterator<Item = &RailState<T>> {
        self.rails.as_ref().iter().skip(usize::from(rail.0)).step_by(usize::from(self.rail_count()))
    }

    /// Whether the rail to some peer has died.
    pub(in crate::endpoint) fn has_died(&self, rail: Rail) -> bool {
        self.states_over(rail).any(RailState::has_died)
    }

    /// The states of a sender's rails: none if there is one rail.
    pub(in crate::endpoint) fn rails_of(&self, i: u32) -> &[RailState<T>] {
        self.rails.as_ref().get(states_of(self.rail_count(), i)).unwrap_or_default()
    }

    /// Whether each rail's load is the sum of what it counts of each sender.
    #[cfg(debug_assertions)]
    pub(in crate::endpoint) fn loads_agree(&self) -> bool {
        #[cfg(not(feature = "optimize_for_size"))]
        let agree = (0_u8..).zip(&self.loads).all(|(rail, load)| {
            let counted = self.states_over(Rail(rail)).map(|state| u32::from(state.loaded()));
            rail >= self.rail_count() || counted.fold(0, u32::wrapping_add) == load.in_flight()
        });
        #[cfg(feature = "optimize_for_size")]
        let agree = true;
        agree
    }

    #[inline]
    pub(in crate::endpoint) const fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The free senders.
    pub(in crate::endpoint) const fn free(&self) -> List {
        self.free
    }

    /// Takes a free sender.
    pub(in crate::endpoint) fn take(&mut self) -> Option<u32> {
        self.free.pop(self.records.as_mut(), |sender| &mut sender.link)
    }

    /// Returns a sender; one that is in a list is only marked, and is freed when it leaves the list. Returns whether it
    /// is free now.
    pub(in crate::endpoint) fn free_one(&mut self, i: u32, wheel: &mut Wheel) -> bool {
        let states = states_of(self.rail_count(), i);
        let records = self.records.as_mut();
        wheel.clear(records, i, Sender::timer);
        let Some(record) = records.get_mut(i as usize) else { return false };
        if record.flags.intersects(SenderFlags::READY | SenderFlags::POSTING | SenderFlags::SILENT) {
            record.flags.insert(SenderFlags::ORPHANED);
            return false;
        }
        *record = Sender::FREE;
        self.free.push_front(records, i, |sender| &mut sender.link);
        if MAX_RAILS > 1 {
            self.rails.as_mut().get_mut(states).unwrap_or_default().fill(RailState::FREE);
        }
        true
    }

    /// Adds the records that `add` appends.
    pub(in crate::endpoint) fn grow(&mut self, add: impl FnOnce(&mut P, &mut R)) {
        let before = self.len();
        add(&mut self.records, &mut self.rails);
        let records = self.records.as_mut();
        for i in before..records.len() as u32 {
            self.free.push(records, i, |sender| &mut sender.link);
        }
    }

    /// Moves the clock hand to the next window, and returns it.
    pub(in crate::endpoint) fn advance_clock_hand(&mut self) -> u32 {
        let next = self.clock_hand.wrapping_add(1);
        self.clock_hand = if next < self.len() { next } else { 0 };
        self.clock_hand
    }

    #[inline]
    pub(in crate::endpoint) const fn has_posted(&self) -> bool {
        !self.posted.is_empty()
    }

    /// Lists a sender with uncompleted postings.
    #[inline]
    pub(in crate::endpoint) fn push_posted(&mut self, i: u32) {
        self.posted.push(self.records.as_mut(), i, |sender| &mut sender.posted_link);
    }

    /// Takes the whole list of senders with uncompleted postings, for [`pop_posted`](Self::pop_posted).
    pub(in crate::endpoint) const fn take_posted(&mut self) -> List {
        core::mem::replace(&mut self.posted, List::EMPTY)
    }

    pub(in crate::endpoint) fn pop_posted(&mut self, list: &mut List) -> Option<u32> {
        list.pop(self.records.as_mut(), |sender| &mut sender.posted_link)
    }

    /// Lists a sender whose silence has to be reported, unless it is listed.
    pub(in crate::endpoint) fn report_silent(&mut self, i: u32) {
        if let Some(record) = self.records.as_mut().get_mut(i as usize)
            && !record.flags.contains(SenderFlags::SILENT)
        {
            record.flags.insert(SenderFlags::SILENT);
            self.silent.push(self.records.as_mut(), i, |sender| &mut sender.event_link);
        }
    }

    /// The next sender whose silence is reported now.
    pub(in crate::endpoint) fn pop_silent(&mut self) -> Option<u32> {
        let i = self.silent.pop(self.records.as_mut(), |sender| &mut sender.event_link)?;
        self.get_mut(i)?.flags &= !SenderFlags::SILENT;
        Some(i)
    }
}

/// The indices of the states of sender `i`: none if there is one rail.
#[inline]
const fn states_of(count: u8, i: u32) -> core::ops::Range<usize> {
    if MAX_RAILS == 1 || count <= 1 {
        return 0..0;
    }
    let count = count as usize;
    let first = (i as usize).saturating_mul(count);
    first..first.saturating_add(count)
}
