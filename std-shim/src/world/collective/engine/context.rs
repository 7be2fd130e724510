//! The contexts of a process: its communicators by the number that their messages carry.
//!
//! A context is reused when all of its operations have ended here and at all other ranks that take part in choosing it.
//! A context in which something failed is never reused, so that its late messages match nothing else.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use unisono_core::ids::{PeerId, Rank as Member};

use unisono_core::message::Context as Message;
use unisono_shmem::collective_area::CollectiveAreas;

use super::group_lanes::GroupLanes;
use super::job_pool::GROUPS;
use super::started_calls::StartedCalls;
use crate::environment::Subgroups;
use crate::world::collective::call_log::SharedCallLog;
use crate::world::collective::error::CollectiveError;
use crate::world::collective::intra_node::barrier_mode::CLOSED;
use crate::world::collective::intra_node::communicator_slots::{CommunicatorSlots, LeasedSlots};
use crate::world::group::Group;
use unisono_bootstrap::Rank;

/// The context, and what belongs to it, that all members have agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct AgreedContext {
    pub(in crate::world) context: u32,
    pub(in crate::world) generation: u32,
    pub(in crate::world) shares_node: bool,
    /// Slots of the node's memory, for groups whose members share one.
    pub(in crate::world) slots: LeasedSlots,
    /// Whether a communicator of several nodes takes slots that the user has not asked for.
    pub(in crate::world) has_spare_slots: bool,
    /// A multicast group of the job's pool, by its slot there.
    pub(in crate::world) group: Option<u8>,
}

/// Number of contexts of a process: all that 16 bits distinguish, except [`ALL_CONTEXTS`] and the numbers of the
/// multicast groups that were made ahead.
pub(in crate::world) const CONTEXTS: u32 = ALL_CONTEXTS - GROUPS as u32;
/// The context of the World.
pub(in crate::world) const WORLD: u32 = 0;
/// Stands for all contexts.
pub(in crate::world) const ALL_CONTEXTS: u32 = u16::MAX as u32;
/// In status requests: stands for the end of receiving, which a rank that asks about [`ALL_CONTEXTS`] is notified of as
/// well.
pub(in crate::world) const RECEIVE_STATUS: u32 = ALL_CONTEXTS + 1;
/// Number of contexts that are offered at a time.
pub(in crate::world) const WINDOW: u32 = 1024;

/// A live rank that takes no more part in a communicator's collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct RetiredPeer {
    pub(in crate::world) peer: PeerId,
    /// The rank of the job that is the cause.
    pub(in crate::world) cause: Rank,
}

/// A communicator's collectives.
#[derive(Debug)]
pub(in crate::world) struct Context {
    pub(in crate::world) members: Group,
    /// Distinguishes it from earlier communicators with the same context.
    pub(in crate::world) generation: u32,
    /// Whether all members share the memory of one node.
    pub(in crate::world) is_intra_node: bool,
    /// The subgroups over which collectives are composed.
    pub(in crate::world) subgroups: Option<Arc<Subgroups>>,
    /// The collectives that were started.
    pub(in crate::world) started: StartedCalls,
    /// Why every further collective fails.
    pub(in crate::world) failed: Option<CollectiveError>,
    /// The rank because of which this rank takes no more part.
    pub(in crate::world) retired_by: Option<Rank>,
    pub(in crate::world) reports: MemberReports,
    pub(in crate::world) is_revoked: bool,
    /// How barriers in shared memory wait; `None` where there are none.
    pub(in crate::world) barrier_mode: Option<Arc<AtomicU32>>,
    /// Its slots of the node's memory, and the collective areas in which members publish their calls. The World has its
    /// own areas.
    pub(in crate::world) slots: LeasedSlots,
    pub(in crate::world) areas: Option<CollectiveAreas>,
    /// This rank's subgroups that execute their steps of composed collectives in shared memory.
    pub(in crate::world) lanes: GroupLanes,
    /// Its multicast group of the job's pool, by its slot there, until it is freed.
    pub(in crate::world) group: Option<u8>,
    /// The latest collectives that were called on it.
    pub(in crate::world) log: Arc<SharedCallLog>,
    /// Whether nothing will be called on the communicator any more.
    is_freed: bool,
}

/// What members report of themselves and of each other.
#[derive(Debug, Default)]
pub(in crate::world) struct MemberReports {
    /// Those that take no more part.
    pub(in crate::world) retired: Vec<RetiredPeer>,
    /// A member that has died.
    pub(in crate::world) dead: Option<Rank>,
}

impl Context {
    /// The rank that is to blame for a missing rank.
    pub(in crate::world) fn cause(&self, peer: PeerId, own: Rank) -> Rank {
        let gone = self.reports.retired.iter().find(|gone| gone.peer == peer);
        let cause = gone.map(|gone| gone.cause).filter(|cause| *cause != own && self.members.number(*cause).is_some());
        cause.unwrap_or(peer.into())
    }

    /// Whether nothing will be called on the communicator any more.
    pub(in crate::world) const fn is_freed(&self) -> bool {
        self.is_freed
    }

    /// Closes the collective areas: nothing is started in shared memory any more.
    pub(in crate::world) fn close_areas(&mut self) {
        self.lanes = GroupLanes::default();
        if let Some(way) = &self.barrier_mode {
            way.store(CLOSED, Ordering::Relaxed);
        }
    }

    /// A rank reports that another one has died. Only members are believed, about members. Returns whether it is the first
    /// such report.
    pub(in crate::world) fn handle_member_died(&mut self, from: PeerId, generation: u8, dead: Rank) -> bool {
        let is_member = |rank: Rank| self.members.number(rank).is_some();
        let is_believed = from != PeerId::from(dead)
            && generation == self.status_generation()
            && is_member(from.into())
            && is_member(dead);
        let is_first = is_believed && self.reports.dead.is_none();
        if is_first {
            self.reports.dead = Some(dead);
        }
        is_first
    }

    /// The part of the generation that status messages carry.
    pub(in crate::world) const fn status_generation(&self) -> u8 {
        self.generation as u8
    }

    /// A member's rank in the communicator; for any other rank, which no member's message names, its rank in the job.
    pub(in crate::world) fn number(&self, rank: Rank) -> Member {
        Member(self.members.number(rank).unwrap_or(rank).0)
    }
}

#[derive(Debug, Default)]
enum ContextEntry {
    #[default]
    Free,
    /// Agreed on, and not opened yet.
    Reserved,
    Used(Box<Context>),
    /// Something failed there, and this rank takes no more part, because of that rank.
    Retired(Option<Rank>),
}

/// All contexts of a process.
#[derive(Debug)]
pub(in crate::world) struct Contexts {
    entries: Vec<ContextEntry>,
    /// The latest generation that this rank has taken part in.
    generation: u32,
    /// Communicators that are being made.
    creating: Vec<Creation>,
    /// The first context of the window that is offered for the one whose turn it is.
    offered: Option<u32>,
    /// Whether the first window is offered for one whose members may not all have called yet.
    is_offered_early: bool,
    /// Whether communicator slots are offered for one of them.
    are_slots_offered: bool,
    /// Ranks that failed, as was agreed.
    pub(in crate::world) agreed_failed: BTreeSet<Rank>,
    /// Whether messages may name a communicator that this rank does not know: one that it is making, or failed to make.
    is_expecting: bool,
    /// Revocations of communicators that this rank has not opened yet, with their senders.
    early_revocations: BTreeSet<(u32, Rank)>,
}

/// Which of several communicators that are being made at a time all ranks serve first: the least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::world) struct CreationOrder {
    /// The context of the communicator that it is made from.
    pub(in crate::world) parent: u32,
    /// A number that distinguishes those of one parent.
    pub(in crate::world) number: u32,
}

/// A communicator that is being made.
#[derive(Clone, Copy, Debug)]
struct Creation {
    order: CreationOrder,
    /// Whether all members are known to have called.
    have_all_called: bool,
}

/// A round of the members' agreement on a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum Round {
    /// The first one. A member may call late, or wait for another communicator before it does: nothing else waits for
    /// this round.
    First,
    /// All members have called. Contexts from this one on are offered, for one communicator after the other.
    From(u32),
}

impl Round {
    /// The first context that it may offer.
    pub(in crate::world) const fn start(self) -> u32 {
        match self {
            Self::First => 0,
            Self::From(first) => first,
        }
    }

    /// The round after one in which no offered context was free at all members. `is_exclusive`: all members offered
    /// theirs. `None`: no context is left.
    pub(in crate::world) fn next(self, is_exclusive: bool) -> Option<Self> {
        match self {
            Self::First => Some(Self::From(0)),
            Self::From(first) if is_exclusive => Some(first + WINDOW).filter(|next| *next < CONTEXTS).map(Self::From),
            Self::From(_) => Some(self),
        }
    }
}

/// What a rank offers to the members with which it makes a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct ContextOffer {
    round: Round,
    /// Free contexts of a window; none unless `is_exclusive`.
    pub(in crate::world) free: [u64; WINDOW as usize / 64],
    /// Free communicator slots.
    pub(in crate::world) slots: u64,
    /// Whether they are offered for no other communicator.
    pub(in crate::world) is_exclusive: bool,
    /// Greater than the generations of all communicators that this rank has been a member of.
    pub(in crate::world) generation: u32,
}

impl Contexts {
    pub(in crate::world) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            generation: 0,
            creating: Vec::new(),
            offered: None,
            is_offered_early: false,
            are_slots_offered: false,
            agreed_failed: BTreeSet::new(),
            is_expecting: false,
            early_revocations: BTreeSet::new(),
        }
    }

    /// Whether a rank's revocation concerns the communicator that has this context here: it does if the rank is a
    /// member, since it never reuses a context that it has revoked. A revocation of a communicator that this rank has
    /// not opened yet is [remembered](Self::take_early_revocation).
    pub(in crate::world) fn handle_revoked(&mut self, from: Rank, context: u32) -> bool {
        match self.get(context) {
            Some(used) => used.members.number(from).is_some(),
            None => {
                if self.is_expecting(context) {
                    self.early_revocations.insert((context, from));
                }
                false
            }
        }
    }

    /// Whether a member revoked a new communicator before it was opened here.
    pub(in crate::world) fn take_early_revocation(&mut self, context: u32) -> bool {
        let of: Vec<_> =
            self.early_revocations.extract_if((context, Rank(0))..(context + 1, Rank(0)), |_| true).collect();
        of.into_iter().any(|(_, from)| self.get(context).is_some_and(|used| used.members.number(from).is_some()))
    }

    /// A rank has a new incarnation: the revocations of the former one, and its death, do not concern it.
    pub(in crate::world) fn handle_new_incarnation(&mut self, rank: Rank) {
        self.early_revocations.retain(|(_, from)| *from != rank);
        for entry in &mut self.entries {
            if let ContextEntry::Used(used) = entry {
                used.reports.dead.take_if(|dead| *dead == rank);
            }
        }
    }

    #[inline]
    pub(in crate::world) fn get(&self, context: u32) -> Option<&Context> {
        match self.entries.get(context as usize)? {
            ContextEntry::Used(used) => Some(used),
            ContextEntry::Free | ContextEntry::Reserved | ContextEntry::Retired(_) => None,
        }
    }

    #[inline]
    pub(in crate::world) fn get_mut(&mut self, context: u32) -> Option<&mut Context> {
        match self.entries.get_mut(context as usize)? {
            ContextEntry::Used(used) => Some(used),
            ContextEntry::Free | ContextEntry::Reserved | ContextEntry::Retired(_) => None,
        }
    }

    /// Whether messages for this context are to be discarded.
    pub(in crate::world) fn is_over(&self, context: u32) -> bool {
        match self.entries.get(context as usize) {
            Some(ContextEntry::Used(used)) => used.failed.is_some(),
            Some(ContextEntry::Retired(_)) => true,
            Some(ContextEntry::Free | ContextEntry::Reserved) | None => false,
        }
    }

    /// The rank because of which this rank takes no more part there.
    pub(in crate::world) fn retired_by(&self, context: u32) -> Option<Rank> {
        match self.entries.get(context as usize)? {
            ContextEntry::Used(used) => used.retired_by,
            ContextEntry::Retired(cause) => *cause,
            ContextEntry::Free | ContextEntry::Reserved => None,
        }
    }

    /// Whether a message of a communicator that this rank does not know may be legitimate.
    pub(in crate::world) fn is_expecting(&self, context: u32) -> bool {
        self.is_expecting || matches!(self.entries.get(context as usize), Some(ContextEntry::Reserved))
    }

    /// The contexts that are in use.
    pub(in crate::world) fn all(&self) -> impl Iterator<Item = u32> + use<> {
        let used = |(context, place): (u32, &ContextEntry)| matches!(place, ContextEntry::Used(_)).then_some(context);
        let all: Vec<u32> = (0..).zip(&self.entries).filter_map(used).collect();
        all.into_iter()
    }

    /// Opens the context of a new communicator.
    pub(in crate::world) fn begin(
        &mut self,
        (context, generation): (u32, u32),
        members: Group,
        is_intra_node: bool,
        subgroups: Option<Arc<Subgroups>>,
    ) {
        let (failed, over, is_revoked, is_freed) = (None, None, false, false);
        let (way, slots, areas) = (None, LeasedSlots::default(), None);
        let begun = Context {
            members,
            generation,
            is_intra_node,
            subgroups,
            started: StartedCalls::new(context),
            failed,
            retired_by: over,
            reports: MemberReports::default(),
            is_revoked,
            barrier_mode: way,
            slots,
            areas,
            lanes: GroupLanes::default(),
            group: None,
            log: Arc::default(),
            is_freed,
        };
        self.set(context, ContextEntry::Used(Box::new(begun)));
    }

    fn set(&mut self, context: u32, to: ContextEntry) {
        let place = context as usize;
        while self.entries.len() <= place {
            self.entries.push(ContextEntry::Free);
        }
        if let Some(place) = self.entries.get_mut(place) {
            *place = to;
        }
    }

    /// Reserves a context that all members agreed on.
    pub(in crate::world) fn reserve(&mut self, context: u32, generation: u32) {
        self.generation = self.generation.max(generation);
        self.set(context, ContextEntry::Reserved);
    }

    /// Releases a reserved context: this rank is no member of the communicator, or does not know, and others may count
    /// it as one. Returns false if the communicator was opened.
    pub(in crate::world) fn give_back(&mut self, context: u32, is_known: bool, own: Rank) -> bool {
        let is_reserved = matches!(self.entries.get(context as usize), Some(ContextEntry::Reserved));
        if is_reserved {
            self.set(context, if is_known { ContextEntry::Free } else { ContextEntry::Retired(Some(own)) });
        }
        is_reserved
    }

    /// Offers free contexts for a communicator, to no two at a time. Those whose members have all called are served one
    /// after the other, at all ranks from the least on. One whose members may not all have called yet gets the first
    /// window if that is not offered, and holds up no other (as in MPICH's nonblocking duplicates). `slots`: `None` for
    /// one that takes none.
    pub(in crate::world) fn offer(
        &mut self,
        (order, round): (CreationOrder, Round),
        slots: Option<&mut CommunicatorSlots>,
        is_busy: impl Fn(u32) -> bool,
    ) -> ContextOffer {
        let have_all_called = round != Round::First;
        match self.creating.iter_mut().find(|creation| creation.order == order) {
            Some(creation) => creation.have_all_called = have_all_called,
            None => self.creating.push(Creation { order, have_all_called }),
        }
        self.is_expecting = true;
        let is_exclusive = match round {
            Round::First => !self.is_offered_early && self.offered != Some(0),
            Round::From(_) => self.offered.is_none() && self.next_creation() == Some(order),
        };
        let mut free = [0; _];
        match round {
            _ if !is_exclusive => {}
            Round::First => {
                self.is_offered_early = true;
                free = self.free_map(0, is_busy);
            }
            Round::From(first) => {
                self.offered = Some(first);
                if first != 0 || !self.is_offered_early {
                    free = self.free_map(first, is_busy);
                }
            }
        }
        let slots = slots.filter(|_| is_exclusive && !self.are_slots_offered).map_or(0, CommunicatorSlots::offer);
        self.are_slots_offered |= slots != 0;
        ContextOffer { round, free, slots, is_exclusive, generation: self.generation.wrapping_add(1) }
    }

    /// The least of the communicators whose members have all called.
    fn next_creation(&self) -> Option<CreationOrder> {
        self.creating.iter().filter(|creation| creation.have_all_called).map(|creation| creation.order).min()
    }

    /// Withdraws an offer. With `is_made`, this rank knows the outcome of the agreement.
    pub(in crate::world) fn take_back(
        &mut self,
        order: CreationOrder,
        offered: &ContextOffer,
        is_over: bool,
        is_made: bool,
    ) {
        self.are_slots_offered &= offered.slots == 0;
        match offered.round {
            _ if !offered.is_exclusive => {}
            Round::First => self.is_offered_early = false,
            Round::From(_) => self.offered = None,
        }
        if is_over {
            self.creating.retain(|creation| creation.order != order);
            // After a failure, other members may have made the communicator.
            self.is_expecting &= !(is_made && self.creating.is_empty());
            let Self { early_revocations: early, entries: places, is_expecting, .. } = self;
            let is_reserved = |context: u32| matches!(places.get(context as usize), Some(ContextEntry::Reserved));
            early.retain(|(context, _)| *is_expecting || is_reserved(*context));
        }
    }

    /// A free context, and a generation, for a communicator of this rank alone, on which no other rank has to agree.
    /// It is none of those that are offered meanwhile: their members may wait for what this thread does next.
    pub(in crate::world) fn free_context(&mut self, is_busy: impl Fn(u32) -> bool) -> Option<(u32, u32)> {
        let first = self.is_offered_early.then_some(0);
        let offered = [first, self.offered].map(|first| first.map_or(0..0, |first| first..first + WINDOW));
        let is_offered = |context: &u32| offered.iter().any(|window| window.contains(context));
        let context = (WORLD + 1..CONTEXTS).filter(|context| !is_offered(context)).find(|context| {
            self.reap(*context, &is_busy);
            matches!(self.entries.get(*context as usize), Some(ContextEntry::Free) | None)
        })?;
        Some((context, self.generation.wrapping_add(1)))
    }

    /// Nothing will be called on the communicator any more. Returns its slots and members.
    pub(in crate::world) fn free(&mut self, context: u32) -> Option<(LeasedSlots, Group)> {
        let used = self.get_mut(context)?;
        used.is_freed = true;
        Some((core::mem::take(&mut used.slots), used.members.clone()))
    }

    /// Bitmap of the free ones among the [`WINDOW`] contexts from `first` on. A freed context counts once nothing is
    /// under way there.
    fn free_map(&mut self, first: u32, is_busy: impl Fn(u32) -> bool) -> [u64; WINDOW as usize / 64] {
        let mut map = [0; _];
        for (word, context) in map.iter_mut().zip((first..).step_by(64)) {
            for context in context..(context + 64).min(CONTEXTS) {
                self.reap(context, &is_busy);
                let is_free = matches!(self.entries.get(context as usize), Some(ContextEntry::Free) | None);
                *word |= u64::from(is_free) << (context % 64);
            }
        }
        map
    }

    fn reap(&mut self, context: u32, is_busy: impl Fn(u32) -> bool) {
        let Some(ContextEntry::Used(used)) = self.entries.get(context as usize) else { return };
        if !used.is_freed || is_busy(context) {
            return;
        }
        let has_failed = used.failed.is_some() || used.is_revoked;
        let left = if has_failed { ContextEntry::Retired(used.retired_by) } else { ContextEntry::Free };
        self.set(context, left);
    }
}

/// The context that a communicator's point-to-point messages carry: it includes the generation, so that no other
/// generation matches them.
pub(in crate::world) const fn message_context(context: u32, generation: u32) -> Message {
    Message(generation << 16 | context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_free(contexts: &mut Contexts) -> Option<u32> {
        let map = contexts.free_map(0, |_| false);
        (0..WINDOW).find(|context| map[*context as usize / 64] >> (context % 64) & 1 == 1)
    }

    #[test]
    fn a_context_is_free_again_when_nothing_is_under_way_there() {
        let mut contexts = Contexts::new();
        contexts.begin((0, 0), Group::all(4), false, None);
        contexts.begin((1, 1), Group::all(4), false, None);
        assert_eq!(first_free(&mut contexts), Some(2));
        contexts.free(1);
        assert!(contexts.free_map(0, |context| context == 1)[0] & 2 == 0, "busy");
        assert_eq!(first_free(&mut contexts), Some(1));
        assert!(contexts.get(1).is_none());
    }

    #[test]
    fn a_death_is_believed_of_members_in_the_same_generation_until_the_rank_joins_again() {
        let mut contexts = Contexts::new();
        contexts.begin((1, 0x107), Group::of([0, 1, 2].map(Rank).into()), false, None);
        let mut handle = |from, generation, dead| {
            let of = contexts.get_mut(1).expect("a context");
            (of.handle_member_died(PeerId(from), generation, Rank(dead)), of.reports.dead)
        };
        for (from, generation, dead) in [(0, 6, 1), (3, 7, 1), (0, 7, 3), (1, 7, 1)] {
            assert_eq!(handle(from, generation, dead), (false, None), "{from} {generation} {dead}");
        }
        assert_eq!(handle(0, 7, 1), (true, Some(Rank(1))));
        assert_eq!(handle(2, 7, 1), (false, Some(Rank(1))));
        for (joins, left) in [(2, Some(Rank(1))), (1, None)] {
            contexts.handle_new_incarnation(Rank(joins));
            assert_eq!(contexts.get(1).expect("a context").reports.dead, left);
        }
    }

    #[test]
    fn a_rank_alone_takes_no_context_that_is_offered() {
        let (mut contexts, mut slots) = (Contexts::new(), CommunicatorSlots::new(None));
        contexts.begin((0, 0), Group::all(4), false, None);
        let order = CreationOrder { parent: 0, number: 0 };
        assert_eq!(contexts.free_context(|_| false), Some((1, 1)));
        for round in [Round::First, Round::From(0)] {
            let offered = contexts.offer((order, round), Some(&mut slots), |_| false);
            assert_eq!(contexts.free_context(|_| false), Some((WINDOW, 1)));
            contexts.take_back(order, &offered, true, true);
        }
    }

    #[test]
    fn one_that_awaits_a_member_holds_up_no_other() {
        let (mut contexts, mut slots) = (Contexts::new(), CommunicatorSlots::new(None));
        contexts.begin((0, 0), Group::all(4), false, None);
        let [first, second, third] = [0, 1, 2].map(|number| CreationOrder { parent: 0, number });
        let mut offer = |order, round| contexts.offer((order, round), Some(&mut slots), |_| false);
        let early = offer(first, Round::First);
        assert!(early.is_exclusive && early.free[0] == !1 && early.slots != 0);
        let late = offer(second, Round::First);
        assert!(!late.is_exclusive && late.free == [0; _]);
        let turn = offer(second, Round::From(0));
        assert!(turn.is_exclusive && turn.free == [0; _] && turn.slots == 0, "the first one may get these");
        let other = offer(third, Round::From(0));
        assert!(!other.is_exclusive, "another one's turn");
        contexts.take_back(second, &turn, false, true);
        let next = contexts.offer((second, Round::From(WINDOW)), Some(&mut slots), |_| false);
        assert!(next.is_exclusive && next.free == [u64::MAX; _]);
        contexts.take_back(second, &next, true, true);
        contexts.take_back(first, &early, false, true);
        let last = contexts.offer((third, Round::From(0)), Some(&mut slots), |_| false);
        assert!(last.is_exclusive && last.free[0] == !1 && last.slots != 0);
        assert!(!contexts.offer((second, Round::First), None, |_| false).is_exclusive, "offered to the third");
        assert!(!contexts.offer((first, Round::From(0)), None, |_| false).is_exclusive, "after the third");
        contexts.take_back(third, &last, true, true);
        let mine = contexts.offer((first, Round::From(0)), None, |_| false);
        assert!(mine.is_exclusive && mine.slots == 0);
    }

    #[test]
    fn one_that_failed_is_never_used_again() {
        let mut contexts = Contexts::new();
        contexts.begin((0, 0), Group::all(4), false, None);
        let used = contexts.get_mut(0).expect("in use");
        (used.failed, used.retired_by) = (Some(CollectiveError::Corrupted), Some(Rank(3)));
        contexts.free(0);
        assert_eq!(first_free(&mut contexts), Some(1));
        assert!(contexts.get(0).is_none() && contexts.is_over(0));
        assert_eq!(contexts.retired_by(0), Some(Rank(3)), "the cause remains known");
    }

    #[test]
    fn the_last_window_ends_before_the_one_that_stands_for_all() {
        let mut contexts = Contexts::new();
        let map = contexts.free_map(CONTEXTS / WINDOW * WINDOW, |_| false);
        assert_eq!(map.iter().map(|word| word.count_ones()).sum::<u32>(), WINDOW - 1 - GROUPS as u32);
    }
}
