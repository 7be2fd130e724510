//! Groups made ahead, of which a communicator takes one ("group pool").
//!
//! Source: Mamidala's dissertation (2008), §5.2.4, which does not state how the ranks agree on a group. Here the ranks of a
//! parent choose by what the creation agrees on anyway.

use super::pool_message::{PoolBody, PoolMessage};

/// Groups of a pool, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SlotSet(pub u32);

impl SlotSet {
    /// No group.
    pub const EMPTY: Self = Self(0);
    /// All groups: what the ranks' offers are combined with.
    pub const ALL: Self = Self(u32::MAX);

    /// The groups of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    const fn contains(self, slot: u8) -> bool {
        self.0 & bit(slot) != 0
    }
}

const fn bit(slot: u8) -> u32 {
    match 1_u32.checked_shl(slot as u32) {
        Some(bit) => bit,
        None => 0,
    }
}

/// The groups that a rank offers to a creation, until [`GroupPool::take`] or [`GroupPool::decline`] gets it back.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub struct Offer(SlotSet);

impl Offer {
    /// The groups. A rank without an offer contributes [`SlotSet::EMPTY`] to the creation.
    pub const fn slots(&self) -> SlotSet {
        self.0
    }
}

/// The state of a group of the pool at one rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum SlotState {
    /// This rank is no member.
    #[default]
    Absent,
    /// The device is to join.
    Joining,
    /// It has joined. The root has not reported that all members have answered.
    Testing,
    /// It may be taken.
    Ready,
    /// It is offered to a creation, and the root has withdrawn it: the rank leaves if the creation does not take it.
    Withdrawn,
    /// A communicator of this rank has it.
    Taken,
    /// The device is to leave.
    Leaving,
}

/// A slot of the pool at one rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Slot {
    state: SlotState,
    round: u16,
    /// The message that the root has not been sent yet.
    owed: Option<PoolBody>,
}

/// The pool of up to `P` groups at one rank. The groups' root is a [`PoolRoot`](super::PoolRoot) at one of the ranks,
/// which sends itself the same messages as the others.
///
/// # Life of a group
/// The root has all ranks join a group ([`poll_join`](Self::poll_join), [`handle_joined`](Self::handle_joined)), tests
/// it, and reports when every other rank has answered. From then on the group is ready. When a communicator takes it, the
/// members report that to the root, and the other ranks of the creation leave it ([`poll_leave`](Self::poll_leave)); the
/// root then has the ranks leave that were not part of the creation, and fills other slots. When the communicator is freed
/// ([`release`](Self::release)), its members leave, too, and the root fills the slot again.
///
/// # Contract of a creation
/// 1. Each rank of the parent calls [`offer`](Self::offer), contributes its [`slots`](Offer::slots) to the agreement that
///    the creation performs anyway (the library's: an allreduce on the parent), and gets the groups that all of them
///    offer ([`SlotSet::and`]). No further message is sent.
/// 2. Each then calls [`take`](Self::take) with that set and the number of communicators that the call creates:
///    communicator number i gets the i-th lowest group of the set. All arguments but the rank's own communicator are
///    equal, so all members get the same group. A communicator for which no group is left gets none.
///
/// A rank offers only groups that are ready, and each to one creation at a time, so two communicators that are alive at
/// once and share a rank never share a group. Two without a common rank may, as they may share a context: the host gives
/// their streams different epochs ([`GroupKey`](super::GroupKey)), so that each drops the other's datagrams.
///
/// Nothing here fails: without a group a communicator makes its own, and uses schedules meanwhile
/// ([`GroupPolicy::Pool`](super::GroupPolicy::Pool)). If the root fails, the groups that are ready may still be taken.
///
/// Memory is O(`P`), and so is the work per call. Messages that a rank does not expect are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupPool<const P: usize> {
    slots: [Slot; P],
    /// The groups of the offer that was not returned yet.
    offered: Option<SlotSet>,
}

impl<const P: usize> Default for GroupPool<P> {
    fn default() -> Self {
        const { assert!(P <= 32, "a set of groups has 32 bits") };
        Self { slots: [Slot::default(); P], offered: None }
    }
}

impl<const P: usize> GroupPool<P> {
    /// A pool without groups.
    pub fn new() -> Self {
        Self::default()
    }

    fn slots(&self) -> impl Iterator<Item = (u8, &Slot)> {
        (0_u8..).zip(&self.slots)
    }

    fn find(&self, is_it: impl Fn(&Slot) -> bool) -> Option<u8> {
        self.slots().find(|(_, slot)| is_it(slot)).map(|(number, _)| number)
    }

    fn set(&self, is_in: impl Fn(SlotState) -> bool) -> SlotSet {
        let slots = self.slots().filter(|(_, slot)| is_in(slot.state));
        SlotSet(slots.fold(0, |set, (number, _)| set | bit(number)))
    }

    /// The groups that may be taken.
    pub fn ready(&self) -> SlotSet {
        self.set(|state| state == SlotState::Ready)
    }

    /// The groups that communicators of this rank have.
    pub fn taken(&self) -> SlotSet {
        self.set(|state| state == SlotState::Taken)
    }

    /// Handles a message of the root.
    pub fn handle_message(&mut self, message: PoolMessage) {
        let is_offered = self.offered.is_some_and(|offered| offered.contains(message.slot));
        let Some(slot) = self.slots.get_mut(usize::from(message.slot)) else { return };
        if message.body == PoolBody::Make {
            if slot.state == SlotState::Absent {
                *slot = Slot { state: SlotState::Joining, round: message.round, owed: None };
            }
            return;
        }
        if message.round != slot.round {
            return;
        }
        match (message.body, slot.state) {
            (PoolBody::Probe, SlotState::Testing) => slot.owed = Some(PoolBody::Answered),
            (PoolBody::Ready, SlotState::Testing) => slot.state = SlotState::Ready,
            (PoolBody::Withdraw, SlotState::Joining) => {
                (slot.state, slot.owed) = (SlotState::Absent, Some(PoolBody::Released));
            }
            (PoolBody::Withdraw, SlotState::Ready) if is_offered => slot.state = SlotState::Withdrawn,
            (PoolBody::Withdraw, SlotState::Testing | SlotState::Ready) => slot.state = SlotState::Leaving,
            _ => {}
        }
    }

    /// The next group that the device is to join: until [`handle_joined`](Self::handle_joined) the same.
    pub fn poll_join(&self) -> Option<u8> {
        self.find(|slot| slot.state == SlotState::Joining)
    }

    /// The device has joined the group of [`poll_join`](Self::poll_join), or cannot join it. To be called before the next
    /// message is handled.
    pub fn handle_joined(&mut self, slot: u8, is_joined: bool) {
        let Some(slot) = self.slots.get_mut(usize::from(slot)) else { return };
        if slot.state == SlotState::Joining {
            (slot.state, slot.owed) = if is_joined {
                (SlotState::Testing, Some(PoolBody::Joined))
            } else {
                (SlotState::Absent, Some(PoolBody::Refused))
            };
        }
    }

    /// The next group that the device leaves.
    pub fn poll_leave(&mut self) -> Option<u8> {
        let number = self.find(|slot| slot.state == SlotState::Leaving)?;
        let slot = self.slots.get_mut(usize::from(number))?;
        (slot.state, slot.owed) = (SlotState::Absent, Some(PoolBody::Released));
        Some(number)
    }

    /// The next message to the root.
    pub fn poll_transmit(&mut self) -> Option<PoolMessage> {
        let number = self.find(|slot| slot.owed.is_some())?;
        let slot = self.slots.get_mut(usize::from(number))?;
        Some(PoolMessage { slot: number, round: slot.round, body: slot.owed.take()? })
    }

    /// Begins this rank's part in a creation. `None` while another creation has the rank's offer.
    pub fn offer(&mut self) -> Option<Offer> {
        if self.offered.is_some() {
            return None;
        }
        let is_offered = |state| match state {
            SlotState::Ready => true,
            SlotState::Testing => mutant!("pool_untested"),
            SlotState::Taken => mutant!("pool_taken_again"),
            _ => false,
        };
        let offered = self.set(is_offered);
        self.offered = Some(offered);
        Some(Offer(offered))
    }

    /// Ends this rank's part in a creation of `communicators` communicators, of which it is a member of number `own`.
    /// `agreed` is what all ranks of the parent offered. Returns the group of its communicator.
    pub fn take(&mut self, offer: Offer, agreed: SlotSet, communicators: u32, own: Option<u32>) -> Option<u8> {
        let granted = if mutant!("pool_own_choice") { offer.slots() } else { agreed.and(offer.slots()) };
        let chosen = (0_u8..32).filter(|slot| granted.contains(*slot));
        let mut taken = None;
        for (communicator, number) in (0..communicators).zip(chosen) {
            let Some(slot) = self.slots.get_mut(usize::from(number)) else { break };
            if own == Some(communicator) {
                (slot.state, taken) = (SlotState::Taken, Some(number));
                slot.owed = if mutant!("pool_taken_silently") { None } else { Some(PoolBody::Taken) };
            } else if !mutant!("pool_stays") {
                slot.state = SlotState::Leaving;
            }
        }
        self.decline(offer);
        taken
    }

    /// Ends this rank's part in a creation that failed.
    pub fn decline(&mut self, offer: Offer) {
        debug_assert!(self.offered == Some(offer.slots()), "it is the one offer of this pool");
        self.offered = None;
        for slot in &mut self.slots {
            if slot.state == SlotState::Withdrawn {
                slot.state = SlotState::Leaving;
            }
        }
    }

    /// The communicator that took the group is freed at this rank.
    pub fn release(&mut self, slot: u8) {
        if let Some(slot) = self.slots.get_mut(usize::from(slot))
            && slot.state == SlotState::Taken
        {
            slot.state = SlotState::Leaving;
        }
    }
}
