//! The root of a pool of groups: has all ranks join them, tests them, and fills the slots of those that were used.

use super::group_test::{GroupTest, TestState};
use super::pool_message::{PoolBody, PoolMessage};
use crate::ids::Rank;
use crate::time::Time;
use crate::wire::Bitmap;

/// The parameters of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PoolConfig {
    /// Ranks.
    pub size: u32,
    /// The rank of the root.
    pub root: Rank,
    /// Groups that are ready or being made, as long as there are slots.
    pub target: u32,
    /// Probes of a test at most, the time between the first two, and between any two at most, in units of 64 ns.
    pub probes: (u32, u32, u32),
}

/// The state of a slot of the pool at the root.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum SlotState {
    /// No rank is a member.
    #[default]
    Vacant,
    /// The ranks join, and the group is tested.
    Making,
    /// All ranks have answered, and no report says that it was taken.
    Ready,
    /// It was taken, a rank has left, or the test failed: it is filled again when all have left.
    Draining,
}

/// A slot of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Slot {
    state: SlotState,
    round: u16,
    /// Ranks that have not released it.
    holders: Bitmap,
    /// The message that the ranks have not been sent yet.
    announced: Option<PoolBody>,
}

/// The root's present work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Work<T: Time, const N: usize> {
    /// Enough groups are ready, or no slot is vacant.
    Idle,
    /// The test of the group that is being made.
    Making(u8, GroupTest<T, N>),
    /// A group could not be made: no other is until a rank has failed.
    Closed,
}

/// The root of a pool of up to `P` groups of up to `N` ranks, whose ranks have a [`GroupPool`](super::GroupPool) each,
/// the root's own too.
///
/// It makes one group at a time, in the background of what the ranks do otherwise. A test by this root stands for all
/// roots: in InfiniBand every member's datagrams take the same tree. Whether other members' datagrams reach this root is
/// not tested; it gets by repair what does not. After a group that a rank cannot join or that does not reach a rank, no
/// other is made until a rank has failed. Work per call is O(`N` + `P`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PoolRoot<T: Time, const P: usize, const N: usize> {
    config: PoolConfig,
    slots: [Slot; P],
    work: Work<T, N>,
    failed: Bitmap,
}

impl<T: Time, const P: usize, const N: usize> PoolRoot<T, P, N> {
    /// The root of a pool without groups, of which it begins the first. A pool of more than `N` ranks has none.
    pub fn new(now: T::Instant, config: PoolConfig) -> Self {
        const { assert!(P <= 32 && N <= Bitmap::BITS as usize, "groups and ranks are bits") };
        let work = if config.size as usize > N { Work::Closed } else { Work::Idle };
        let mut root = Self { config, slots: [Slot::default(); P], work, failed: Bitmap::EMPTY };
        root.advance(now);
        root
    }

    /// Groups that are ready.
    pub fn ready(&self) -> u32 {
        self.slots.iter().filter(|place| place.state == SlotState::Ready).count() as u32
    }

    /// Whether a group could not be made.
    pub const fn is_closed(&self) -> bool {
        matches!(self.work, Work::Closed)
    }

    /// Handles a message of a rank.
    pub fn handle_message(&mut self, now: T::Instant, from: Rank, message: PoolMessage) {
        let Some(place) = self.slots.get_mut(usize::from(message.slot)) else { return };
        if message.round != place.round || from.0 >= self.config.size {
            return;
        }
        let test = match &mut self.work {
            Work::Making(slot, test) if *slot == message.slot => Some(test),
            _ => None,
        };
        match (message.body, test) {
            (PoolBody::Joined, Some(test)) => {
                test.handle_joined(now, from);
                if from == self.config.root {
                    // Its own datagrams need not reach it.
                    test.handle_answer(now, from);
                }
            }
            (PoolBody::Answered, Some(test)) => test.handle_answer(now, from),
            (PoolBody::Refused, test) => {
                place.holders.remove(from.0);
                test.into_iter().for_each(|test| test.handle_refused(from));
            }
            (PoolBody::Taken, _) => self.withdraw(message.slot),
            (PoolBody::Released, _) => {
                place.holders.remove(from.0);
                self.withdraw(message.slot);
            }
            _ => {}
        }
        self.advance(now);
    }

    /// A rank has failed: nothing is expected of it any more. If a group could not be made, which may have been because of
    /// it, another one is tried.
    pub fn handle_failed(&mut self, now: T::Instant, rank: Rank) {
        self.failed.insert(rank.0);
        self.slots.iter_mut().for_each(|place| place.holders.remove(rank.0));
        match &mut self.work {
            Work::Making(_, test) => test.handle_failed(now, rank),
            Work::Closed if self.config.size as usize <= N => self.work = Work::Idle,
            Work::Closed | Work::Idle => {}
        }
        self.advance(now);
    }

    /// The next message to all ranks, the root included.
    pub fn poll_transmit(&mut self, now: T::Instant) -> Option<PoolMessage> {
        let (slot, place) = (0_u8..).zip(&mut self.slots).find(|(_, place)| place.announced.is_some())?;
        let message = PoolMessage { slot, round: place.round, body: place.announced.take()? };
        self.advance(now);
        Some(message)
    }

    /// The next probe, which goes to the group that it names.
    pub fn poll_probe(&mut self) -> Option<PoolMessage> {
        let Work::Making(slot, test) = &mut self.work else { return None };
        let round = self.slots.get(usize::from(*slot))?.round;
        test.poll_transmit().then_some(PoolMessage { slot: *slot, round, body: PoolBody::Probe })
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub const fn poll_timeout(&self) -> Option<T::Instant> {
        match &self.work {
            Work::Making(_, test) => test.poll_timeout(),
            _ => None,
        }
    }

    /// Handles a deadline that has passed.
    pub fn handle_timeout(&mut self, now: T::Instant) {
        if let Work::Making(_, test) = &mut self.work {
            test.handle_timeout(now);
            self.advance(now);
        }
    }

    /// A communicator has taken a group, or a rank has left it: the ranks that have no part in it leave, too.
    fn withdraw(&mut self, slot: u8) {
        if let Some(place) = self.slots.get_mut(usize::from(slot)).filter(|place| place.state == SlotState::Ready) {
            (place.state, place.announced) = (SlotState::Draining, Some(PoolBody::Withdraw));
        }
    }

    /// The group that is being made cannot be used.
    fn give_up(&mut self, slot: u8) {
        self.work = Work::Closed;
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            (place.state, place.announced) = (SlotState::Draining, Some(PoolBody::Withdraw));
        }
    }

    fn advance(&mut self, now: T::Instant) {
        for place in &mut self.slots {
            if place.state == SlotState::Draining && (place.holders.is_empty() || mutant!("pool_refilled_early")) {
                *place = Slot { round: place.round.wrapping_add(1), ..Slot::default() };
            }
        }
        if let Work::Making(slot, test) = &self.work {
            let (slot, state) = (*slot, test.state());
            let Some(place) = self.slots.get_mut(usize::from(slot)) else { return };
            match state {
                // Not before the ranks have been sent that they join it.
                TestState::Passed if place.announced.is_none() => {
                    (place.state, place.announced) = (SlotState::Ready, Some(PoolBody::Ready));
                    self.work = Work::Idle;
                }
                TestState::Failed => self.give_up(slot),
                _ => {}
            }
        }
        if matches!(self.work, Work::Idle) && self.ready() < self.config.target {
            self.make(now);
        }
    }

    /// Begins to make a group, if a slot is vacant.
    fn make(&mut self, now: T::Instant) {
        let config = self.config;
        let mut slots = (0_u8..).zip(&mut self.slots);
        let Some((slot, place)) = slots.find(|(_, place)| place.state == SlotState::Vacant) else { return };
        // The root is a member like the others, which joins by the message to itself.
        let mut test = GroupTest::new(now, Rank(u32::MAX), config.size, config.probes);
        (place.state, place.announced) = (SlotState::Making, Some(PoolBody::Make));
        for rank in 0..config.size {
            if self.failed.contains(rank) {
                test.handle_failed(now, Rank(rank));
            } else {
                place.holders.insert(rank);
            }
        }
        self.work = Work::Making(slot, test);
    }
}

#[cfg(test)]
mod tests;
