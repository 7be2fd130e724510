//! The members of a group, as the one that collects their acknowledgements and repairs their losses knows them.

use super::datagram::Report;
use super::topology::Topology;
use crate::ids::{Psn, Rank};
use crate::wire::Bitmap;

/// Whether a member takes part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum MemberState {
    /// There is no such member, or it has failed.
    #[default]
    Absent,
    /// It has joined and not reported yet.
    Joining,
    /// It takes part.
    Living,
}

/// A member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Member<const BITS: u32> {
    state: MemberState,
    /// Its own edge: it has delivered every segment before this one.
    own: Psn<BITS>,
    /// The edge of it and of all members below it.
    below: Psn<BITS>,
    /// Bit i: it lacks `own` + i, which is to be repaired.
    wanted: Bitmap,
    /// A probe is to be sent to it.
    probe: bool,
}

impl<const BITS: u32> Member<BITS> {
    fn absent() -> Self {
        Self {
            state: MemberState::Absent,
            own: Psn::default(),
            below: Psn::default(),
            wanted: Bitmap::EMPTY,
            probe: false,
        }
    }
}

/// What a report has changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    /// By how many segments its sender's own edge has moved.
    pub(super) moved: u32,
    /// Segments that its sender lacks and was not known to lack.
    pub(super) missed: u32,
}

/// Whom a repair is sent to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Audience {
    /// All other members of the group.
    Group,
    /// One member.
    Member(Rank),
}

/// The sent and not yet freed part of a stream, from `first` to before `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent<const BITS: u32> {
    pub(super) first: Psn<BITS>,
    pub(super) end: Psn<BITS>,
}

impl<const BITS: u32> Extent<BITS> {
    /// The distance of a PSN from `first`, if it is not beyond `end`.
    fn place(&self, psn: Psn<BITS>) -> Option<u32> {
        let place = psn.since(self.first);
        (place <= self.end.since(self.first)).then_some(place)
    }
}

/// The members of one stream, at its root or at one of its members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Members<const N: usize, const BITS: u32> {
    topology: Topology,
    /// The member that has these records.
    own: Rank,
    records: [Member<BITS>; N],
}

impl<const N: usize, const BITS: u32> Members<N, BITS> {
    /// The founders, for a stream whose first PSN is `first`.
    pub(super) fn new(topology: Topology, own: Rank, first: Psn<BITS>) -> Self {
        let mut records = [Member::absent(); N];
        for record in records.iter_mut().take(topology.founders as usize) {
            *record = Member { state: MemberState::Living, own: first, below: first, ..Member::absent() };
        }
        Self { topology, own, records }
    }

    pub(super) const fn topology(&self) -> &Topology {
        &self.topology
    }

    fn ranks() -> impl Iterator<Item = Rank> {
        (0..N as u32).map(Rank)
    }

    fn record(&self, rank: Rank) -> Option<&Member<BITS>> {
        self.records.get(rank.0 as usize).filter(|member| member.state != MemberState::Absent)
    }

    fn record_mut(&mut self, rank: Rank) -> Option<&mut Member<BITS>> {
        self.records.get_mut(rank.0 as usize).filter(|member| member.state != MemberState::Absent)
    }

    /// The living member that `rank` acknowledges to: its nearest living ancestor.
    pub(super) fn parent(&self, rank: Rank) -> Option<Rank> {
        let mut parent = self.topology.parent(rank)?;
        // The root stands even where it has no record, and a path has at most N steps.
        for _ in 0..N {
            if parent == self.topology.root || self.record(parent).is_some() {
                break;
            }
            parent = self.topology.parent(parent)?;
        }
        Some(parent)
    }

    fn is_child(&self, rank: Rank) -> bool {
        rank != self.own && self.record(rank).is_some() && self.parent(rank) == Some(self.own)
    }

    /// Members that acknowledge to this one.
    pub(super) fn children(&self) -> impl Iterator<Item = Rank> + '_ {
        Self::ranks().filter(|rank| self.is_child(*rank))
    }

    /// Whether the member takes part.
    pub(super) fn contains(&self, rank: Rank) -> bool {
        self.record(rank).is_some()
    }

    /// The edge of all children, at most `limit`; both lie in `extent`.
    pub(super) fn edge(&self, extent: Extent<BITS>, limit: Psn<BITS>) -> Psn<BITS> {
        let place = |member: &Member<BITS>| {
            let edge = if mutant!("freed_at_own_edge") { member.own } else { member.below };
            extent.place(edge).unwrap_or(0)
        };
        let places = || self.children().filter_map(|rank| self.record(rank)).map(place);
        let edge = if mutant!("freed_by_first_ack") { places().max() } else { places().min() };
        extent.first.add(edge.unwrap_or(u32::MAX).min(limit.since(extent.first)))
    }

    /// Everything before `extent.first` was delivered at all members that this one has to know of.
    pub(super) fn raise(&mut self, extent: Extent<BITS>) {
        for member in &mut self.records {
            if extent.place(member.own).is_none() {
                (member.own, member.wanted) = (extent.first, Bitmap::EMPTY);
            }
            if extent.place(member.below).is_none() {
                member.below = extent.first;
            }
        }
    }

    /// Adds a member that gets the stream from `start` on.
    pub(super) fn add(&mut self, rank: Rank, start: Psn<BITS>) {
        if let Some(member) = self.records.get_mut(rank.0 as usize).filter(|member| member.state == MemberState::Absent)
        {
            *member = Member { state: MemberState::Joining, own: start, below: start, probe: true, ..Member::absent() };
        }
    }

    /// Handles a report about segments of `extent`. Returns what it has changed, if it is valid and not older than an
    /// earlier one.
    pub(super) fn handle_report(
        &mut self,
        from: Rank,
        report: &Report<BITS>,
        extent: Extent<BITS>,
    ) -> Option<Reported> {
        let member = self.record_mut(from)?;
        let (own, below) = (extent.place(report.own)?, extent.place(report.below)?);
        let (before, reached) = (extent.place(member.own)?, extent.place(member.below)?);
        let moved = own.checked_sub(before)?;
        if below > own {
            return None;
        }
        member.state = MemberState::Living;
        member.own = report.own;
        if below > reached {
            member.below = report.below;
        }
        // What it lacked before its new edge has come.
        (0..moved).for_each(|_| member.wanted.shift());
        let (room, known) = (extent.end.since(report.own), member.wanted);
        let new = report.missing.iter().filter(|bit| *bit < room && !known.contains(*bit));
        let mut missed = 0_u32;
        for bit in new.filter(|_| !mutant!("nack_ignored")) {
            member.wanted.insert(bit);
            missed = missed.saturating_add(1);
        }
        Some(Reported { moved, missed })
    }

    /// A member has failed: it is not waited for, and members that acknowledged to it do so to this one, if this one is
    /// its parent. Of those at least the edge that it reported is known.
    pub(super) fn fail(&mut self, failed: Rank, extent: Extent<BITS>) {
        let Some(&Member { own, below, .. }) = self.record(failed) else { return };
        let known = if mutant!("adopted_at_own_edge") { own } else { below };
        for rank in Self::ranks() {
            if rank == failed || self.parent(rank) != Some(failed) {
                continue;
            }
            let Some(member) = self.record_mut(rank) else { continue };
            let place = |edge| extent.place(edge).unwrap_or(0);
            if place(known) > place(member.own) {
                (member.own, member.wanted) = (known, Bitmap::EMPTY);
            }
            if place(known) > place(member.below) {
                member.below = known;
            }
        }
        if let Some(member) = self.record_mut(failed) {
            *member = Member::absent();
        }
    }

    /// The next repair of a segment of `extent` that this member `has`. By multicast, where that is allowed, if at least
    /// half of the children lack the same segment.
    pub(super) fn poll_repair(
        &mut self,
        extent: Extent<BITS>,
        may_multicast: impl Fn(Psn<BITS>) -> bool,
        has: impl Fn(Psn<BITS>) -> bool,
    ) -> Option<(Psn<BITS>, Audience)> {
        let (rank, psn) = Self::ranks().find_map(|rank| {
            let member = self.record(rank).filter(|member| !member.wanted.is_empty())?;
            let held = |psn: &Psn<BITS>| extent.place(*psn).is_some() && *psn != extent.end && has(*psn);
            let psn = member.wanted.iter().map(|bit| member.own.add(bit)).find(held)?;
            Some((rank, psn))
        })?;
        let lacking = Self::ranks().filter(|rank| self.wants(*rank, psn)).count();
        let is_common = may_multicast(psn) && lacking > 1 && lacking.saturating_mul(2) >= self.children().count();
        for other in Self::ranks().filter(|other| is_common || *other == rank) {
            if let Some(member) = self.record_mut(other) {
                let bit = psn.since(member.own);
                member.wanted.remove(bit);
            }
        }
        Some((psn, if is_common { Audience::Group } else { Audience::Member(rank) }))
    }

    fn wants(&self, rank: Rank, psn: Psn<BITS>) -> bool {
        self.record(rank).is_some_and(|member| member.wanted.contains(psn.since(member.own)))
    }

    /// Whether a child has not acknowledged everything before `end`, or has not reported since it joined.
    pub(super) fn is_lagging(&self, end: Psn<BITS>) -> bool {
        self.lagging(end).next().is_some()
    }

    /// The children that lag.
    pub(super) fn lagging(&self, end: Psn<BITS>) -> impl Iterator<Item = Rank> + '_ {
        self.children().filter(move |rank| self.lags(*rank, end))
    }

    fn lags(&self, rank: Rank, end: Psn<BITS>) -> bool {
        let is_joining = |member: &Member<BITS>| member.state == MemberState::Joining && !mutant!("joiner_unprobed");
        self.record(rank).is_some_and(|member| member.below != end || is_joining(member))
    }

    /// Asks the children that lag for reports.
    pub(super) fn probe(&mut self, end: Psn<BITS>) {
        for rank in Self::ranks() {
            if self.is_child(rank)
                && self.lags(rank, end)
                && let Some(member) = self.record_mut(rank)
            {
                member.probe = true;
            }
        }
    }

    /// The next member to be asked, and the first PSN that it does not acknowledge.
    pub(super) fn poll_probe(&mut self) -> Option<(Rank, Psn<BITS>)> {
        let rank = Self::ranks().find(|rank| self.record(*rank).is_some_and(|member| member.probe))?;
        let member = self.record_mut(rank)?;
        member.probe = false;
        Some((rank, member.own))
    }

    /// Whether a repair or a probe may be due.
    pub(super) fn has_requests(&self) -> bool {
        self.records.iter().any(|member| member.probe || !member.wanted.is_empty())
    }
}
