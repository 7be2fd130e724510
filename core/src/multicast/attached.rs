//! Ranks that get the calls of a root by multicast although they are not their node's leader: how root, leaders and ranks
//! agree from which call on, and until which.
//!
//! Source: Mamidala's dissertation (2008), §6.3.2 ("dynamic attach"), which does not state how they agree. Here the root's
//! stream does: between two of its calls it lists the attached ranks. All its members see the list between the same two
//! calls, so a leader forwards a call to exactly those ranks that do not get it by multicast.

use crate::ids::Rank;

/// Whether a call comes after another one: numbers wrap.
const fn is_after(call: u32, other: u32) -> bool {
    call.wrapping_sub(other).cast_signed() > 0
}

const fn later(call: u32, other: u32) -> u32 {
    if is_after(call, other) { call } else { other }
}

/// A rank that gets calls by multicast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttachedRank {
    /// The rank.
    pub rank: Rank,
    /// It gets the calls after this one.
    pub after: u32,
}

/// The attached ranks of a root, at most `P`, as its stream states them: they get the calls that the stream carries next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttachedList<const P: usize> {
    ranks: [Option<AttachedRank>; P],
}

impl<const P: usize> Default for AttachedList<P> {
    fn default() -> Self {
        Self { ranks: [None; P] }
    }
}

impl<const P: usize> AttachedList<P> {
    /// A list of these ranks. `None`: there are more than `P`.
    pub fn new(ranks: impl IntoIterator<Item = AttachedRank>) -> Option<Self> {
        let mut list = Self::default();
        let mut places = list.ranks.iter_mut();
        for rank in ranks {
            *places.next()? = Some(rank);
        }
        Some(list)
    }

    /// The ranks.
    pub fn ranks(&self) -> impl Iterator<Item = &AttachedRank> {
        self.ranks.iter().flatten()
    }

    /// Whether a rank gets a call by multicast, of which the stream carries the data after this list.
    pub fn contains(&self, rank: Rank, call: u32) -> bool {
        self.ranks().any(|attached| attached.rank == rank && is_after(call, attached.after))
    }

    /// After which call a rank gets calls by multicast.
    fn after(&self, rank: Rank) -> Option<u32> {
        self.ranks().find(|attached| attached.rank == rank).map(|attached| attached.after)
    }
}

/// What the root knows of an attached rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    /// It follows its leader up to this call, and is to be listed.
    Promised(u32),
    /// It is listed, for the calls after this one.
    Listed(u32),
    /// It is not to be listed any more, and has not left.
    Detached,
}

/// The attached ranks of a stream at its root, at most `P`. The member number of a rank is its place among them.
///
/// Contract: a rank that is [added](Self::attach) is a member of the stream from before the next list on. The host sends
/// each [`poll_list`](Self::poll_list) as a message of the stream before all later calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttachedRanks<const P: usize> {
    places: [Option<(Rank, Place)>; P],
    has_changed: bool,
}

impl<const P: usize> Default for AttachedRanks<P> {
    fn default() -> Self {
        Self { places: [None; P], has_changed: false }
    }
}

impl<const P: usize> AttachedRanks<P> {
    /// A rank wants to get calls by multicast, and follows its leader up to call `promise` in any case. Returns its place.
    /// `None`: no place is left, or it has one.
    pub fn attach(&mut self, rank: Rank, promise: u32) -> Option<u32> {
        if self.place(rank).is_some() {
            return None;
        }
        let number = self.places.iter().position(Option::is_none)?;
        *self.places.get_mut(number)? = Some((rank, Place::Promised(promise)));
        self.has_changed = true;
        Some(number as u32)
    }

    /// A rank wants to get calls from its leader again.
    pub fn detach(&mut self, rank: Rank) {
        let place = self.places.iter_mut().flatten().find(|(other, place)| *other == rank && *place != Place::Detached);
        if let Some((_, place)) = place {
            (*place, self.has_changed) = (Place::Detached, true);
        }
    }

    /// A rank has left the stream, or has failed.
    pub fn remove(&mut self, rank: Rank) {
        for place in &mut self.places {
            if let Some((_, state)) = place.take_if(|(other, _)| *other == rank) {
                self.has_changed |= state != Place::Detached;
            }
        }
    }

    /// The place of a rank.
    pub fn place(&self, rank: Rank) -> Option<u32> {
        let number = self.places.iter().position(|place| place.is_some_and(|(other, _)| other == rank))?;
        Some(number as u32)
    }

    /// The rank at a place.
    pub fn rank(&self, place: u32) -> Option<Rank> {
        self.places.get(place as usize)?.map(|(rank, _)| rank)
    }

    /// All ranks that have a place.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + '_ {
        self.places.iter().flatten().map(|(rank, _)| *rank)
    }

    /// Whether the members are to be sent a list.
    pub const fn has_list(&self) -> bool {
        self.has_changed
    }

    /// The list that the members are sent next, if it has changed. `last` is the last call that the root has decided or
    /// sent.
    pub fn poll_list(&mut self, last: u32) -> Option<AttachedList<P>> {
        if !core::mem::take(&mut self.has_changed) {
            return None;
        }
        let mut list = AttachedList::default();
        for (into, place) in list.ranks.iter_mut().zip(&mut self.places) {
            let Some((rank, place)) = place else { continue };
            if let Place::Promised(promise) = *place {
                let after = match (mutant!("attached_unpromised"), mutant!("attached_behind")) {
                    (true, _) => last,
                    (_, true) => promise,
                    _ => later(promise, last),
                };
                *place = Place::Listed(after);
            }
            if let Place::Listed(after) = *place {
                *into = Some(AttachedRank { rank: *rank, after });
            }
        }
        Some(list)
    }
}

/// Where a rank gets a call's data from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DataSource {
    /// Its leader forwards it.
    Leader,
    /// The stream carries it, or the stream will say that the leader forwards it.
    Stream,
}

/// How a rank has changed its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttachmentChange {
    /// Calls that wait for the stream may have got another [source](Attachment::source).
    Sources,
    /// So may they, and the rank leaves the stream.
    Leave,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum AttachmentState {
    /// The leader forwards all calls.
    #[default]
    Following,
    /// The root was asked. The leader forwards the calls up to this one.
    Asked { promise: u32 },
    /// The stream carries the calls after this one.
    Attached { after: u32 },
    /// As before, and the root was asked to list the rank no more.
    Leaving { after: u32 },
}

/// A rank that is not its node's leader in the calls of a root. Work and memory are O(1), per list O(`P`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attachment {
    state: AttachmentState,
}

impl Attachment {
    /// Begins to attach, if it follows its leader. Returns the call up to which it does so in any case, `ahead` calls after
    /// the last one that it has entered: the more, the less often it has to wait for the root's answer.
    pub const fn attach(&mut self, entered: u32, ahead: u32) -> Option<u32> {
        if !matches!(self.state, AttachmentState::Following) {
            return None;
        }
        let promise = entered.wrapping_add(ahead);
        self.state = AttachmentState::Asked { promise };
        Some(promise)
    }

    /// Begins to detach, if it is attached. Returns whether the root is to be asked.
    pub fn detach(&mut self) -> bool {
        let AttachmentState::Attached { after } = self.state else { return false };
        self.state =
            if mutant!("detached_at_once") { AttachmentState::Following } else { AttachmentState::Leaving { after } };
        true
    }

    /// The root has refused it, or has finished before it answered: calls that wait are forwarded by the leader.
    pub const fn handle_refused(&mut self) {
        if matches!(self.state, AttachmentState::Asked { .. }) {
            self.state = AttachmentState::Following;
        }
    }

    /// The root lists no rank any more: schedules execute all calls.
    pub const fn end(&mut self) {
        self.state = AttachmentState::Following;
    }

    /// Whether the rank is a member of the stream, or is about to be one.
    pub const fn is_following(&self) -> bool {
        matches!(self.state, AttachmentState::Following)
    }

    /// Handles a list, in its place in the stream, at the rank `own`.
    pub fn handle_list<const P: usize>(&mut self, own: Rank, list: &AttachedList<P>) -> AttachmentChange {
        self.state = match (list.after(own), self.state) {
            (Some(after), AttachmentState::Leaving { .. }) => AttachmentState::Leaving { after },
            (Some(after), _) => AttachmentState::Attached { after },
            // It was made before the rank joined.
            (None, state @ AttachmentState::Asked { .. }) if !mutant!("attached_impatient") => state,
            (None, _) => AttachmentState::Following,
        };
        if self.is_following() { AttachmentChange::Leave } else { AttachmentChange::Sources }
    }

    /// Where the data of a call comes from, if it is known already.
    pub const fn source(&self, call: u32) -> DataSource {
        let follows = match self.state {
            AttachmentState::Following => return DataSource::Leader,
            AttachmentState::Asked { promise } => promise,
            AttachmentState::Attached { after } | AttachmentState::Leaving { after } => after,
        };
        if is_after(call, follows) { DataSource::Stream } else { DataSource::Leader }
    }

    /// Whether a call that the stream carries now is this rank's. Otherwise its leader forwards it.
    pub const fn takes(&self, call: u32) -> bool {
        match self.state {
            AttachmentState::Following | AttachmentState::Asked { .. } => false,
            AttachmentState::Attached { after } | AttachmentState::Leaving { after } => is_after(call, after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Rank = Rank(3);

    #[test]
    fn a_rank_follows_its_leader_as_far_as_it_promised_and_the_root_has_sent() {
        for (entered, ahead, last, after) in [(4_u32, 2, 5, 6_u32), (4, 2, 9, 9), (u32::MAX, 2, u32::MAX, 1)] {
            let (mut root, mut rank) = (AttachedRanks::<2>::default(), Attachment::default());
            let promise = rank.attach(entered, ahead).expect("it follows");
            assert_eq!(rank.attach(entered, ahead), None);
            assert_eq!(rank.source(promise), DataSource::Leader);
            assert_eq!(rank.source(promise.wrapping_add(1)), DataSource::Stream);
            assert_eq!((root.attach(OWN, promise), root.attach(OWN, promise)), (Some(0), None));
            let list = root.poll_list(last).expect("it has changed");
            assert_eq!(rank.handle_list(OWN, &list), AttachmentChange::Sources);
            for (call, is_by_multicast) in [(after, false), (after.wrapping_add(1), true)] {
                assert_eq!((list.contains(OWN, call), rank.takes(call)), (is_by_multicast, is_by_multicast));
            }
            assert_eq!(root.poll_list(last), None);
        }
    }

    #[test]
    fn it_leaves_when_the_list_does_not_name_it() {
        let (mut root, mut rank) = (AttachedRanks::<2>::default(), Attachment::default());
        let promise = rank.attach(0, 0).expect("it follows");
        assert!(!rank.detach(), "it is not attached");
        assert_eq!(root.attach(OWN, promise), Some(0));
        let list = root.poll_list(0).expect("it has changed");
        rank.handle_list(OWN, &list);
        assert!(rank.detach() && !rank.detach() && rank.takes(1));
        root.detach(OWN);
        let list = root.poll_list(7).expect("it has changed");
        assert_eq!((rank.handle_list(OWN, &list), rank.source(8)), (AttachmentChange::Leave, DataSource::Leader));
        root.detach(OWN);
        assert_eq!((root.rank(0), root.poll_list(7)), (Some(OWN), None), "until it has left");
        root.remove(OWN);
        assert_eq!((root.rank(0), root.ranks().count()), (None, 0));
    }

    #[test]
    fn places_are_limited() {
        let mut root = AttachedRanks::<2>::default();
        assert_eq!([1, 2, 3].map(|rank| root.attach(Rank(rank), 0)), [Some(0), Some(1), None]);
        let mut rank = Attachment::default();
        rank.attach(0, 0);
        rank.handle_refused();
        assert!(rank.is_following());
        assert!(AttachedList::<1>::new([1, 2].map(|rank| AttachedRank { rank: Rank(rank), after: 0 })).is_none());
    }
}
