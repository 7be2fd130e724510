//! Communicator slots of the node's segment: collective areas for communicators other than the World.
//!
//! A communicator whose members share a node has a slot that was free at all of them when it was made; without one, its
//! collectives use messages. Every member has its own area of the slot and writes nothing else, so that disjoint groups
//! can use the same slot at the same time. An area is free again when all members have published in theirs that they
//! are done with the communicator, or are dead: no rank reads it any more, and its owner resets it.

use alloc::sync::Arc;

use unisono_shmem::collective_area::CollectiveAreas;
use unisono_shmem::layout::COMMUNICATOR_SLOTS;
use unisono_shmem::segment::Site;

use crate::node::{Node, NodeRankState};
use crate::world::group::Group;
use unisono_bootstrap::Rank;

/// In place of a generation: all generations.
pub(in crate::world::collective) const ALL_GENERATIONS: u32 = u32::MAX;

/// A slot that belongs to a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct CommunicatorSlot {
    pub(in crate::world) number: u32,
    /// The communicator's generation: greater than those of all that had the slot before.
    pub(in crate::world) generation: u32,
}

/// The slots that belong to a communicator: of one node, one; over several nodes one for each level of subgroups with
/// shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::world) struct LeasedSlots {
    /// Bitmap of their numbers.
    numbers: u64,
    generation: u32,
}

impl LeasedSlots {
    /// The first `most` of the free slots.
    pub(in crate::world) fn first(free: u64, most: u32, generation: u32) -> Self {
        let beyond = (0..most).fold(free, |left, _| left & left.wrapping_sub(1));
        Self { numbers: free & !beyond, generation }
    }

    /// Those of the World, which are the last ones.
    pub(in crate::world) fn of_world(count: u32) -> Self {
        let count = count.min(COMMUNICATOR_SLOTS);
        Self { numbers: ((1 << count) - 1) << (COMMUNICATOR_SLOTS - count), generation: 1 }
    }

    /// Slot `n` of them.
    pub(in crate::world) fn nth(self, n: u32) -> Option<CommunicatorSlot> {
        self.iter().nth(n as usize)
    }

    pub(in crate::world) fn iter(self) -> impl Iterator<Item = CommunicatorSlot> {
        let numbers = (0..COMMUNICATOR_SLOTS).filter(move |number| self.numbers >> number & 1 == 1);
        numbers.map(move |number| CommunicatorSlot { number, generation: self.generation })
    }

    /// Leaves the first `count` of them. Returns the others.
    pub(in crate::world) fn split_off(&mut self, count: u32) -> Self {
        let kept = Self::first(self.numbers, count, self.generation);
        let rest = Self { numbers: self.numbers & !kept.numbers, ..*self };
        *self = kept;
        rest
    }
}

/// The state of this rank's area of a slot.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
enum SlotState {
    /// Unused and reset.
    #[default]
    Free,
    /// Used by a communicator that is being made, or that this rank is a member of.
    InUse,
    /// Free once these ranks of the node have released this generation, too.
    Leaving { generation: u32, members: Vec<u32> },
    /// Never used again.
    Excluded,
}

/// The slots of a process.
#[derive(Debug)]
pub(in crate::world) struct CommunicatorSlots {
    node: Option<Arc<Node>>,
    states: [SlotState; COMMUNICATOR_SLOTS as usize],
}

impl CommunicatorSlots {
    pub(in crate::world) fn new(node: Option<Arc<Node>>) -> Self {
        Self { node, states: Default::default() }
    }

    /// Bitmap of the slots that are free here. A rank without shared memory does not restrict the choice.
    pub(in crate::world) fn offer(&mut self) -> u64 {
        let Some(node) = &self.node else { return (1 << COMMUNICATOR_SLOTS) - 1 };
        let mut free = 0;
        for (number, place) in (0..).zip(&mut self.states) {
            let Some(own) = own_area(node, number) else { continue };
            if let SlotState::Leaving { generation, members } = place
                && members.iter().all(|member| has_freed(node, number, *member, *generation))
                && own.initialize_rank(node.segment(), 0, 0).is_some()
            {
                *place = SlotState::Free;
            }
            free |= u64::from(*place == SlotState::Free) << number;
        }
        free
    }

    /// Reserves slots that all members agreed on.
    pub(in crate::world) fn reserve(&mut self, slots: LeasedSlots) {
        slots.iter().for_each(|slot| self.set(slot, &SlotState::InUse));
    }

    /// Releases reserved slots in which nothing was started: this rank is no member, or its group does not share the
    /// node.
    pub(in crate::world) fn release(&mut self, slots: LeasedSlots) {
        for slot in slots.iter() {
            self.set(slot, &SlotState::Free);
            // Others may not know that, and wait for this rank as for a member.
            self.publish_freed(slot);
        }
    }

    fn set(&mut self, slot: CommunicatorSlot, state: &SlotState) {
        if let Some(place) = self.states.get_mut(slot.number as usize) {
            state.clone_into(place);
        }
    }

    /// An agreement to which these slots were offered has failed here: others may have made a communicator there, and
    /// wait for this rank. It takes no part in anything there any more.
    pub(in crate::world) fn exclude(&mut self, offered: u64) {
        let Some(node) = &self.node else { return };
        for (number, place) in (0..).zip(&mut self.states) {
            if offered >> number & 1 == 1 && *place == SlotState::Free {
                *place = SlotState::Excluded;
                for at in [CollectiveAreas::retired, CollectiveAreas::freed] {
                    publish(node, number, at, ALL_GENERATIONS);
                }
            }
        }
    }

    /// This rank takes no more part in the collectives of any slot.
    pub(in crate::world) fn retire_from_all(&self) {
        self.retire(LeasedSlots { numbers: u64::MAX, generation: ALL_GENERATIONS });
    }

    /// This rank is done with the communicator of these members, or of some of them.
    pub(in crate::world) fn free(&mut self, slots: LeasedSlots, members: &Group) {
        self.retire(slots);
        let Some(node) = &self.node else { return };
        let members = members.iter().filter_map(|rank| node.local_of(rank)).filter(|local| *local != node.local());
        let left = SlotState::Leaving { generation: slots.generation, members: members.collect() };
        for slot in slots.iter() {
            self.set(slot, &left);
            self.publish_freed(slot);
        }
    }

    fn publish_freed(&self, slot: CommunicatorSlot) {
        self.node.iter().for_each(|node| publish(node, slot.number, CollectiveAreas::freed, slot.generation));
    }

    /// Publishes that this rank takes no more part in the collectives of these slots.
    pub(in crate::world) fn retire(&self, slots: LeasedSlots) {
        let Some(node) = &self.node else { return };
        slots.iter().for_each(|slot| publish(node, slot.number, CollectiveAreas::retired, slot.generation));
    }

    /// The areas that members have in a slot, in their order. `None`: one of them is not on this node.
    pub(in crate::world) fn areas(
        &self,
        slot: CommunicatorSlot,
        members: &Group,
    ) -> Option<(Arc<Node>, CollectiveAreas)> {
        let node = self.node.as_ref()?;
        let locals: Vec<u32> = members.iter().map(|rank: Rank| node.local_of(rank)).collect::<Option<_>>()?;
        Some((node.clone(), CollectiveAreas::in_communicator_slot(&node.layout(), slot.number, &locals)?))
    }
}

/// Whether at least half of the slots are in this bitmap of free ones: then a communicator of several nodes takes one of
/// them that the user has not asked for. The others are for those of one node, whose collectives have no other means in
/// shared memory.
pub(in crate::world) const fn are_spare(free: u64) -> bool {
    free.count_ones() >= COMMUNICATOR_SLOTS / 2
}

/// This rank's area of a slot, as for a group of one.
fn own_area(node: &Node, slot: u32) -> Option<CollectiveAreas> {
    CollectiveAreas::in_communicator_slot(&node.layout(), slot, &[node.local()])
}

/// Publishes a generation in a word of this rank's area, unless it already holds all generations.
fn publish(node: &Node, slot: u32, at: impl Fn(&CollectiveAreas, u32) -> usize, generation: u32) {
    let word = own_area(node, slot).and_then(|own| node.segment().word(at(&own, 0)));
    if let Some(word) = word.filter(|word| word.own() != ALL_GENERATIONS) {
        word.publish(generation, Site::Plain);
    }
}

/// Whether a rank of the node has released a generation of a slot, or is not alive.
fn has_freed(node: &Node, slot: u32, local: u32, generation: u32) -> bool {
    let area = CollectiveAreas::in_communicator_slot(&node.layout(), slot, &[local]);
    let freed = area.and_then(|area| node.segment().word(area.freed(0))).map(|word| word.acquire(Site::Plain));
    freed.is_some_and(|freed| freed == ALL_GENERATIONS || freed.wrapping_sub(generation).cast_signed() >= 0)
        || node.rank_state(local) != NodeRankState::Alive
}
