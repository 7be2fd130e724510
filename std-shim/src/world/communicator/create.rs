//! Making communicators from the members of another one: the members agree on a free context.
//!
//! Each member proposes the contexts that are free on its side, its settings, and whether it shares memory with its
//! node. An allreduce combines the proposals. An allgather of colors, keys and groups determines the members of each
//! new one.

use alloc::sync::Arc;
use core::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use unisono_core::multicast::{Offer, SlotSet};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Communicator, ContextLease};
use crate::environment::{Location, RankLocation, own_location};
use crate::world::collective::engine::context::{AgreedContext, CreationOrder, Round, WINDOW, message_context};
use crate::world::collective::engine::schedule::mix;
use crate::world::collective::error::CollectiveError;
use crate::world::collective::intra_node::communicator_slots::{LeasedSlots, are_spare};
use crate::world::collective::operation::UserOperation;
use crate::world::group::Group;
use unisono_bootstrap::Rank;

/// No rank.
const NOBODY: u64 = u64::MAX;

/// Why a communicator cannot be made. Ranks are those of the parent communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CreateError {
    /// The collective by which the members agree failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// A member was started with other settings.
    #[error("rank {0} was started with other settings than the ranks before it: start all ranks alike")]
    Differs(Rank),
    /// A member of the group is not in the parent communicator.
    #[error("rank {0} of the group is no member of the communicator")]
    NotMember(Rank),
    /// A member of the group called this with another group.
    #[error("rank {0} is a member of the group, but called this with another group")]
    Disagrees(Rank),
    /// Every context is in use at some member.
    #[error("no context is free at all members: drop communicators that are no longer used")]
    NoContext,
}

/// What the members of a communicator share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SplitType {
    /// The memory of a node.
    Shared,
    /// The socket that has all their processors.
    Socket,
    /// The NUMA node that has all their processors.
    Numa,
    /// The last-level cache of all their processors.
    Cache,
    /// The adapter and port, or the interface, of their first rail.
    Rail,
}

/// A member's proposal, or the combination of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Proposal {
    free: [u64; WINDOW as usize / 64],
    /// 1: no member withholds contexts for another communicator that is being made.
    is_exclusive: u64,
    /// 1: every member shares memory with all ranks of its node.
    shares_node: u64,
    generation: u64,
    /// Communicator slots of the nodes' memory that are free.
    slots: u64,
    /// Multicast groups that were made ahead and may be taken.
    groups: u64,
    settings: u64,
    /// The rank whose settings these are.
    proposer: u64,
    /// The first rank whose settings differ.
    differs: u64,
}

/// A proposal as bytes.
pub type ProposalBytes = [u8; size_of::<Proposal>()];

/// Combines two proposals as bytes.
pub(super) fn combine_bytes(into: &mut ProposalBytes, other: &ProposalBytes) {
    let both: Proposal = zerocopy::transmute!(*into);
    *into = zerocopy::transmute!(both.combine(&zerocopy::transmute!(*other)));
}

impl Proposal {
    /// The proposal's bytes.
    pub(super) fn to_bytes(self) -> ProposalBytes {
        zerocopy::transmute!(self)
    }

    /// Replaces the proposal.
    pub(super) fn read(&mut self, bytes: &ProposalBytes) {
        *self = zerocopy::transmute!(*bytes);
    }

    /// Combines two proposals; associative and commutative.
    fn combine(&self, other: &Self) -> Self {
        let (first, second) = if self.proposer <= other.proposer { (self, other) } else { (other, self) };
        let mut both = *first;
        both.free.iter_mut().zip(second.free).for_each(|(word, other)| *word &= other);
        both.is_exclusive &= second.is_exclusive;
        both.shares_node &= second.shares_node;
        both.slots &= second.slots;
        both.groups &= second.groups;
        both.generation = first.generation.max(second.generation);
        both.differs = first.differs.min(second.differs);
        if first.settings != second.settings {
            both.differs = both.differs.min(second.proposer);
        }
        both
    }

    fn lowest_free(&self) -> Option<u32> {
        let words = (0..).step_by(64).zip(self.free);
        words.into_iter().find(|(_, word)| *word != 0).map(|(first, word)| first + word.trailing_zeros())
    }
}

/// A context that is reserved in this process while the communicator is being made.
pub(super) struct ReservedContext<'c> {
    agreed: AgreedContext,
    parent: &'c Communicator,
    /// Whether the other members know that this rank is not a member of the new communicator.
    is_known: bool,
    /// The multicast groups that this rank offers, and those that all members offer.
    groups: Option<(Offer, SlotSet)>,
}

impl ReservedContext<'_> {
    /// Whether all members offer a group. Equal at all of them.
    fn has_groups(&self) -> bool {
        self.groups.as_ref().is_some_and(|(_, agreed)| *agreed != SlotSet::EMPTY)
    }

    /// Takes a multicast group for the communicator of this rank, the `own`-th of those that the call makes, if one is
    /// left.
    fn take_group(&mut self, communicators: u32, own: Option<u32>) {
        if let Some((offer, agreed)) = self.groups.take() {
            self.agreed.group = self.parent.shared.lock().take_group(offer, agreed, communicators, own);
        }
    }
}

impl Drop for ReservedContext<'_> {
    fn drop(&mut self) {
        let mut process = self.parent.shared.lock();
        if let Some((offer, _)) = self.groups.take() {
            process.decline_groups(offer);
        }
        process.unreserve(&self.agreed, &self.parent.members, self.is_known);
    }
}

/// A [`RankLocation`] as members send it: the node, then 0 for a unit that is not known, else its number + 1.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct GatheredLocation([u64; 7]);

impl From<RankLocation> for GatheredLocation {
    fn from(RankLocation { node, location }: RankLocation) -> Self {
        let Location { switch, socket, numa, cache, rail, group } = location;
        let unit = |number: Option<u32>| number.map_or(0, |number| u64::from(number) + 1);
        Self([node.into(), unit(switch), unit(socket), unit(numa), unit(cache), unit(rail), unit(group)])
    }
}

impl From<GatheredLocation> for RankLocation {
    fn from(GatheredLocation([node, switch, socket, numa, cache, rail, group]): GatheredLocation) -> Self {
        let [switch, socket, numa, cache, rail, group] =
            [switch, socket, numa, cache, rail, group].map(|unit| unit.checked_sub(1).map(|number| number as u32));
        Self { node: node as u32, location: Location { switch, socket, numa, cache, rail, group } }
    }
}

impl Communicator {
    /// Makes another communicator of the same members in the same order (`MPI_Comm_dup`). Collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let copy = world.duplicate()?;
    /// assert_eq!((copy.rank(), copy.size()), (world.rank(), world.size()));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CreateError`], as of all the calls below.
    pub fn duplicate(&self) -> Result<Self, CreateError> {
        let mut reserved = self.agree_on_context()?;
        let needs_group = self.needs_group(&reserved.agreed, &self.members);
        reserved.take_group(needs_group.into(), needs_group.then_some(0));
        let made = self.open(reserved.agreed, self.members.clone(), self.rank);
        self.copy_attributes_to(&made);
        Ok(made)
    }

    /// Makes one communicator per color, of the members that pass it, in the order of this one (`MPI_Comm_split`); a
    /// member that passes no color gets none. Collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let half = world.split_by_color(world.rank().0 % 2)?.expect("it has a color");
    /// half.barrier()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn split_by_color(&self, color: impl Into<Option<u32>>) -> Result<Option<Self>, CreateError> {
        self.split_by_color_with_key(color, 0)
    }

    /// Makes one communicator for the members of each node, or of the unit of a node that all their processors are in
    /// (`MPI_Comm_split_type`). A rank whose processors are in several units, or in one that the system does not number,
    /// gets a communicator of itself. Collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let node = world.split_by_type(SplitType::Shared)?;
    /// assert!(node.size() <= world.size());
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn split_by_type(&self, what: SplitType) -> Result<Self, CreateError> {
        let first_in = |unit: fn(&Location) -> Option<u32>| {
            let first = RankLocation::first_in_unit(&self.locations()?, self.rank.0 as usize, unit);
            Ok::<_, CollectiveError>(first.map_or(self.rank.0, |first| first as u32))
        };
        let color = match what {
            SplitType::Shared => {
                let own = self.members.world_rank(self.rank).unwrap_or(self.rank);
                self.shared.lock().located(own).node
            }
            SplitType::Socket => first_in(|at| at.socket)?,
            SplitType::Numa => first_in(|at| at.numa)?,
            SplitType::Cache => first_in(|at| at.cache)?,
            SplitType::Rail => first_in(|at| at.rail)?,
        };
        let split = self.split_by_color(color)?;
        split.ok_or(CreateError::Collective(CollectiveError::Ended(crate::Failure::Finished)))
    }

    /// Where each member runs: its node, the units of it that have all its processors, and what else `UNISONO_LOCATION`
    /// says. Collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let locations = world.locations()?;
    /// println!("rank 0 is on node {}: {}", locations[0].node, locations[0].location);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn locations(&self) -> Result<Vec<RankLocation>, CollectiveError> {
        let own = self.members.world_rank(self.rank).unwrap_or(self.rank);
        let mut at = self.shared.lock().located(own);
        at.location = at.location.or(own_location());
        let mut all = vec![GatheredLocation::from(RankLocation::default()); self.size() as usize];
        self.uncounted(|| self.all_gather_into(&[GatheredLocation::from(at)][..], &mut all[..]))?;
        Ok(all.into_iter().map(RankLocation::from).collect())
    }

    /// As [`split_by_color`](Self::split_by_color), in the order of the keys, and where they are equal in the order of
    /// this communicator.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // The same ranks in the opposite order.
    /// let reversed = world.split_by_color_with_key(0, -(world.rank().0 as i32))?.expect("it has a color");
    /// assert_eq!(reversed.rank(), Rank(world.size() - 1 - world.rank().0));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn split_by_color_with_key(
        &self,
        color: impl Into<Option<u32>>,
        key: i32,
    ) -> Result<Option<Self>, CreateError> {
        let color = color.into().map(u64::from);
        let mut reserved = self.agree_on_context()?;
        let mut said = vec![[0; 2]; self.size as usize];
        // The addition keeps the order of the keys.
        let own = [[color.map_or(0, |color| color + 1), u64::from(key.abs_diff(i32::MIN))]];
        self.uncounted(|| self.all_gather_into(&own, &mut said))?;
        reserved.is_known = true;
        if reserved.has_groups() {
            let members_of = |color: u64| {
                let ranks = (0..).zip(&said).filter(|(_, [other, _])| *other == color).map(|(rank, _)| Rank(rank));
                Group::of(ranks.filter_map(|rank| self.members.world_rank(rank)).collect())
            };
            let mut colors: Vec<u64> = said.iter().map(|[color, _]| *color).filter(|color| *color != 0).collect();
            colors.sort_unstable();
            colors.dedup();
            colors.retain(|color| self.needs_group(&reserved.agreed, &members_of(*color)));
            let place = color.and_then(|color| colors.iter().position(|other| *other == color + 1));
            reserved.take_group(colors.len() as u32, place.map(|place| place as u32));
        }
        let Some(color) = color else { return Ok(None) };
        let mut own: Vec<(u64, u32)> =
            (0..).zip(&said).filter_map(|(rank, [other, key])| (*other == color + 1).then_some((*key, rank))).collect();
        own.sort_unstable();
        let ranks = own.iter().filter_map(|(_, rank)| self.members.world_rank(Rank(*rank))).collect();
        Ok(self.open_for(&reserved, Group::of(ranks)))
    }

    /// Makes a communicator of the group's members, in its order (`MPI_Comm_create`); the other members get none.
    /// Collective: members of the group all pass the same group, other members any group that they do not belong to.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let first = world.group().include(&[Rank(0)])?;
    /// let alone = world.split_by_subgroup_collective(&first)?;
    /// assert_eq!(alone.is_some(), world.rank() == Rank(0));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CreateError`].
    #[doc(alias = "create")]
    pub fn split_by_subgroup_collective(&self, group: &Group) -> Result<Option<Self>, CreateError> {
        let mut reserved = self.agree_on_context()?;
        let own = self.members.world_rank(self.rank).and_then(|own| group.number(own));
        let needs_group = own.is_some() && self.needs_group(&reserved.agreed, group);
        let (own_digest, mut said) = (digest(group), vec![[0; 2]; self.size as usize]);
        self.uncounted(|| self.all_gather_into(&[[own_digest, needs_group.into()]], &mut said))?;
        reserved.is_known = own.is_none();
        let mut takers: Vec<u64> = said.iter().filter(|[_, needs]| *needs != 0).map(|[digest, _]| *digest).collect();
        takers.sort_unstable();
        takers.dedup();
        let place = takers.iter().position(|taker| needs_group && *taker == own_digest);
        if own.is_none() {
            reserved.take_group(takers.len() as u32, None);
            return Ok(None);
        }
        for rank in group.iter() {
            let number = self.members.number(rank).ok_or(CreateError::NotMember(rank))?;
            if said.get(number.0 as usize).map(|[digest, _]| *digest) != Some(own_digest) {
                return Err(CreateError::Disagrees(number));
            }
        }
        reserved.take_group(takers.len() as u32, place.map(|place| place as u32));
        Ok(self.open_for(&reserved, group.clone()))
    }

    /// Whether multicasts can reach other nodes of a communicator of these ranks.
    fn needs_group(&self, agreed: &AgreedContext, members: &Group) -> bool {
        members.size() > 1 && !(agreed.shares_node && self.shared.lock().are_on_one_node(members))
    }

    /// Agrees with all members on a context that is free everywhere.
    fn agree_on_context(&self) -> Result<ReservedContext<'_>, CreateError> {
        // A call that does not start here fails at all other members, too: no offer is lost.
        match &self.intra_node {
            Some(on_node) => on_node.may_begin(self)?,
            None => self.may_begin()?,
        }
        if self.size == 1 {
            return self.reserve_alone();
        }
        let order = CreationOrder { parent: self.context, number: 0 };
        self.agree_on_context_by(order, false, true, |proposal| {
            let operation = UserOperation::commutative(Proposal::combine);
            self.uncounted(|| self.all_reduce_in_place(core::slice::from_mut(proposal), operation))
        })
    }

    /// Reserves a context for a communicator of this rank alone.
    fn reserve_alone(&self) -> Result<ReservedContext<'_>, CreateError> {
        let mut process = self.shared.lock();
        let (context, generation) = process.collectives.free_context().ok_or(CreateError::NoContext)?;
        let agreed = AgreedContext {
            context,
            generation,
            shares_node: process.shares_its_node(),
            slots: LeasedSlots::default(),
            has_spare_slots: false,
            group: None,
        };
        process.reserve(&agreed);
        Ok(ReservedContext { agreed, parent: self, is_known: true, groups: None })
    }

    /// Agrees on a context that is free at all processes whose proposals `reduce` combines; `is_foreign`: they are not
    /// the members of this communicator; `takes_slot`: it gets a slot of the node's memory if one is free.
    pub(super) fn agree_on_context_by(
        &self,
        order: CreationOrder,
        is_foreign: bool,
        takes_slot: bool,
        mut reduce: impl FnMut(&mut Proposal) -> Result<(), CollectiveError>,
    ) -> Result<ReservedContext<'_>, CreateError> {
        let mut round = Round::First;
        let mut groups = if takes_slot { self.shared.lock().offer_groups() } else { None };
        loop {
            let mut process = self.shared.lock();
            let offered = process.collectives.offer_contexts(order, round, takes_slot);
            let (settings, shares_node) = (process.choices.digest, process.shares_its_node());
            let proposer = if is_foreign { process.rank } else { self.rank };
            drop(process);
            let mut terms = Proposal {
                free: offered.free,
                is_exclusive: offered.is_exclusive.into(),
                shares_node: shares_node.into(),
                generation: offered.generation.into(),
                slots: offered.slots,
                groups: groups.as_ref().map_or(0, |offer| offer.slots().0.into()),
                settings,
                proposer: proposer.0.into(),
                differs: NOBODY,
            };
            let reduced = reduce(&mut terms);
            let found = match reduced {
                Err(error) => Some(Err(error.into())),
                Ok(()) if terms.differs != NOBODY => Some(Err(CreateError::Differs(Rank(terms.differs as u32)))),
                Ok(()) => terms.lowest_free().map(|free| Ok(round.start() + free)),
            };
            let mut process = self.shared.lock();
            if let (None, Some(next)) = (&found, round.next(terms.is_exclusive != 0)) {
                process.collectives.withdraw_offer(order, &offered, false, true);
                round = next;
                continue;
            }
            let agreed = found.unwrap_or(Err(CreateError::NoContext)).map(|context| {
                let generation = terms.generation as u32;
                let slots = LeasedSlots::first(terms.slots, process.choices.hierarchy.slots(), generation);
                let shares_node = terms.shares_node != 0;
                let has_spare_slots = are_spare(terms.slots);
                let agreed = AgreedContext { context, generation, shares_node, slots, has_spare_slots, group: None };
                process.reserve(&agreed);
                agreed
            });
            let is_made = !matches!(agreed, Err(CreateError::Collective(_)));
            process.collectives.withdraw_offer(order, &offered, true, is_made);
            if agreed.is_err()
                && let Some(offer) = groups.take()
            {
                process.decline_groups(offer);
            }
            drop(process);
            let groups = groups.map(|offer| (offer, SlotSet(terms.groups as u32)));
            return agreed.map(|agreed| ReservedContext { agreed, parent: self, is_known: false, groups });
        }
    }

    /// Opens a communicator of these ranks, if this one is among them.
    pub(super) fn open_for(&self, reserved: &ReservedContext<'_>, members: Group) -> Option<Self> {
        let rank = self.members.world_rank(self.rank).and_then(|own| members.number(own))?;
        Some(self.open(reserved.agreed, members, rank))
    }

    pub(super) fn open(&self, agreed: AgreedContext, members: Group, rank: Rank) -> Self {
        let AgreedContext { context, generation, shares_node, slots, has_spare_slots, group } = agreed;
        let mut process = self.shared.lock();
        let is_near = shares_node && process.are_on_one_node(&members);
        process.open_context(context, generation, members.clone(), is_near);
        let log = process.open_log(context);
        let on_node = process.open_slots(context, slots, (shares_node, has_spare_slots), rank);
        process.set_group(context, group);
        process.apply_early_revocation(context);
        drop(process);
        tracing::debug!(context, in_slot = on_node.is_some(), "communicator");
        let (shared, node, size) = (Arc::clone(&self.shared), self.node.clone(), members.size());
        let lease = ContextLease::new(&shared, context);
        Self {
            shared,
            node,
            intra_node: on_node,
            context,
            message_context: message_context(context, generation),
            members,
            agreement_rounds: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            log,
            attributes: Mutex::default(),
            rank,
            size,
            lease,
        }
    }
}

/// A digest of the ranks and their order.
fn digest(group: &Group) -> u64 {
    let [low, high] = [0, 1].map(|seed| group.iter().fold(mix(seed, group.size()), |digest, rank| mix(digest, rank.0)));
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(rank: u64, free: u64, settings: u64) -> Proposal {
        let mut all = [0; WINDOW as usize / 64];
        all[1] = free;
        let (is_whole, shares_node, generation, rooms) = (1, u64::from(rank != 2), 10 - rank, 0b1010 | 1 << rank);
        Proposal {
            free: all,
            is_exclusive: is_whole,
            shares_node,
            generation,
            slots: rooms,
            groups: 0b100 | rank,
            settings,
            proposer: rank,
            differs: NOBODY,
        }
    }

    #[test]
    fn terms_are_agreed_on_in_any_order() {
        let [a, b, c] = [terms(0, 0b1110, 7), terms(1, 0b0110, 7), terms(2, 0b1100, 7)];
        let all = a.combine(&b).combine(&c);
        assert_eq!((all.lowest_free(), all.shares_node, all.generation, all.differs), (Some(66), 0, 10, NOBODY));
        assert_eq!(all.groups, 0b100);
        assert_eq!(all.slots, 0b1010);
        assert_eq!(all, c.combine(&b.combine(&a)));
        assert_eq!(a.combine(&terms(3, 1, 7)).lowest_free(), None);
    }

    #[test]
    fn who_was_started_otherwise_is_named() {
        let [a, b, c] = [terms(0, 1, 7), terms(1, 1, 8), terms(2, 1, 7)];
        for all in [a.combine(&b).combine(&c), c.combine(&a).combine(&b), b.combine(&c.combine(&a))] {
            assert_eq!(all.differs, 1);
        }
    }

    #[test]
    fn groups_differ_by_members_and_order() {
        let group = |ranks: &[u32]| digest(&Group::of(ranks.iter().copied().map(Rank).collect()));
        assert_eq!(group(&[0, 1, 2]), digest(&Group::all(3)));
        assert!(group(&[0, 1]) != group(&[1, 0]) && group(&[0, 1]) != group(&[0, 1, 2]) && group(&[]) != group(&[0]));
    }
}
