//! The multicast groups through which the trees of communicators release.
//!
//! A group needs no test before it is used: at first a rank sends its releases both ways, by multicast and along the
//! tree. A member that a multicast of another one reaches for the first time confirms that to it, and a rank that all
//! members have confirmed releases by multicast alone. Where that does not happen, the rank soon multicasts only every
//! now and then.

use alloc::collections::BTreeSet;

use unisono_core::collective::token_tree::ReleasePath;
use unisono_core::collective::token_tree::header::{TREE_HEADER, TreeHeader};
use unisono_core::device::Received;
use unisono_core::ids::{PeerId, Rank as Member};
use unisono_core::multicast::{GroupKey, GroupMember, UNRELIABLE_HEADER, UnreliableHeader};

/// Multicasts that are sent although some members have not confirmed any; after them, only those of calls whose number
/// is a power of two.
const TRIES: u32 = 16;

/// The group of a communicator, of which this rank's device is a member.
#[derive(Clone, Debug)]
pub(in crate::world) struct ReleaseGroup {
    pub(in crate::world) context: u32,
    pub(in crate::world) key: GroupKey,
    own: Member,
    members: Vec<GroupMember>,
    /// Calls on the trees, and multicasts of this rank.
    calls: u32,
    multicasts: u32,
    /// The members that have confirmed a multicast of this rank, and those whose multicasts this rank has confirmed.
    confirmed: BTreeSet<u32>,
    reached_by: BTreeSet<u32>,
}

impl ReleaseGroup {
    /// The group of a communicator with these members, the `own`-th of which this rank is.
    pub(in crate::world) fn new(context: u32, key: GroupKey, own: Member, members: Vec<GroupMember>) -> Self {
        let (confirmed, reached_by) = (BTreeSet::new(), BTreeSet::new());
        Self { context, key, own, members, calls: 0, multicasts: 0, confirmed, reached_by }
    }

    fn reaches_all(&self) -> bool {
        self.confirmed.len() + 1 >= self.members.len()
    }

    /// How this rank's next release travels.
    pub(in crate::world) fn path(&self) -> ReleasePath {
        let is_tried = self.multicasts < TRIES || self.calls.is_power_of_two();
        match (self.reaches_all(), is_tried) {
            (true, _) => ReleasePath::Multicast,
            (false, true) => ReleasePath::Both,
            (false, false) => ReleasePath::Tree,
        }
    }

    /// This rank has entered a call.
    pub(in crate::world) const fn record_call(&mut self) {
        self.calls = self.calls.wrapping_add(1);
    }

    /// This rank has multicast a release.
    pub(in crate::world) const fn record_multicast(&mut self) {
        self.multicasts = self.multicasts.saturating_add(1);
    }

    /// A member confirms a multicast of this rank.
    pub(in crate::world) fn confirm(&mut self, member: Member) {
        if member != self.own && (member.0 as usize) < self.members.len() {
            self.confirmed.insert(member.0);
        }
    }

    /// A multicast of a member has arrived. Returns whether it is the first one, which has to be confirmed.
    pub(in crate::world) fn record_arrival(&mut self, member: Member) -> bool {
        self.reached_by.insert(member.0)
    }

    /// The header of a multicast of this rank.
    pub(in crate::world) fn header(&self) -> UnreliableHeader {
        let incarnation = self.members.get(self.own.0 as usize).map(|own| own.incarnation).unwrap_or_default();
        UnreliableHeader { key: self.key, sender: self.own, incarnation }
    }

    /// The sender of a multicast of this group, and the header of its message. `None` if it is this rank, or comes from
    /// elsewhere, or is malformed.
    fn parse(
        &self,
        multicast: &UnreliableHeader,
        rest: &[u8],
        datagram: &impl Received,
    ) -> Option<(PeerId, TreeHeader)> {
        let sender = self.members.get(multicast.sender.0 as usize)?;
        let is_its = multicast.sender != self.own && multicast.incarnation == sender.incarnation;
        let header = TreeHeader::decode(rest).filter(|_| is_its && datagram.is_from(sender.peer))?;
        Some((sender.peer, header))
    }
}

/// The groups of a process.
#[derive(Clone, Debug, Default)]
pub(in crate::world) struct ReleaseGroups {
    groups: Vec<ReleaseGroup>,
    /// Contexts whose groups cannot be used here.
    unusable: Vec<u32>,
}

/// A multicast that has arrived: its sender, the header of its message, and the bytes of the values that follow.
pub(in crate::world) type ReleaseArrival = (PeerId, TreeHeader, u32);

/// Bytes before the values of a release that is sent by multicast.
pub(in crate::world) const RELEASE_HEADER: usize = UNRELIABLE_HEADER + TREE_HEADER;

impl ReleaseGroups {
    /// The group of a communicator.
    pub(in crate::world) fn get_mut(&mut self, context: u32) -> Option<&mut ReleaseGroup> {
        self.groups.iter_mut().find(|group| group.context == context)
    }

    /// Whether a communicator uses its group.
    pub(in crate::world) fn uses(&self, context: u32) -> bool {
        self.groups.iter().any(|group| group.context == context)
    }

    /// Whether it is known whether a communicator uses its group.
    pub(in crate::world) fn knows(&self, context: u32) -> bool {
        self.uses(context) || self.unusable.contains(&context)
    }

    /// Adds the group of a communicator, or records that it cannot be used here.
    pub(in crate::world) fn add(&mut self, context: u32, group: Option<ReleaseGroup>) {
        match group {
            Some(group) => self.groups.push(group),
            None => self.unusable.push(context),
        }
    }

    /// The communicator of this context is over.
    pub(in crate::world) fn remove(&mut self, context: u32) {
        self.groups.retain(|group| group.context != context);
        self.unusable.retain(|other| *other != context);
    }

    /// Parses a multicast. `None` if it is no sound one of another member of a group.
    pub(in crate::world) fn parse(&self, datagram: &impl Received) -> Option<ReleaseArrival> {
        let (header, rest) = UnreliableHeader::parse(datagram.prefix()).ok()?;
        let group = self.groups.iter().find(|group| group.key == header.key)?;
        let (from, header) = group.parse(&header, rest, datagram)?;
        Some((from, header, datagram.bytes().checked_sub(RELEASE_HEADER as u32)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::ids::{GroupId, Incarnation};

    const KEY: GroupKey = GroupKey { group: GroupId(5), epoch: 77 };

    fn group() -> ReleaseGroup {
        let members = (0..3).map(|rank| GroupMember { peer: PeerId(rank), incarnation: Incarnation(rank + 10) });
        ReleaseGroup::new(5, KEY, Member(1), members.collect())
    }

    #[test]
    fn a_rank_releases_both_ways_until_all_members_have_confirmed() {
        let mut group = group();
        assert_eq!(group.path(), ReleasePath::Both);
        for member in [0, 0, 1, 3] {
            group.confirm(Member(member));
        }
        assert_eq!(group.path(), ReleasePath::Both, "member 2 has not");
        group.confirm(Member(2));
        assert_eq!(group.path(), ReleasePath::Multicast);
        assert!(group.record_arrival(Member(2)) && !group.record_arrival(Member(2)) && group.record_arrival(Member(0)));
    }

    #[test]
    fn a_group_that_does_not_reach_all_is_tried_ever_more_rarely() {
        let mut group = group();
        group.confirm(Member(0));
        for _ in 0..1024 {
            group.record_call();
            if group.path() == ReleasePath::Both {
                group.record_multicast();
            }
        }
        assert_eq!(group.multicasts, TRIES + 6, "and those of calls 32 to 1024");
        group.confirm(Member(2));
        assert_eq!(group.path(), ReleasePath::Multicast);
    }
}
