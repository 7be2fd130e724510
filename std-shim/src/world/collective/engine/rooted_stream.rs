//! The broadcasts of one root of a communicator by multicast: the stream, and the calls that it carries.

use alloc::collections::VecDeque;

use unisono_core::ids::{PeerId, Rank as Member};
use unisono_core::multicast::{
    AckMode, GroupKey, GroupMember, GroupTest, Ring, SEGMENT_HEADER, Stream, StreamConfig, TestState, Topology,
};
use unisono_core::time::{Nanos, units};

use super::attached::{AttachedPeers, PeerList};
use super::scratch_pool::ScratchBlock;
use crate::environment::tuning::MULTICAST_MEMBERS_MAX as MEMBERS_MAX;
use crate::world::group::Group;
use unisono_bootstrap::Rank;

/// The segments of a stream's ring.
pub(in crate::world) const WINDOW: usize = 256;
/// Bytes of a segment's payload, at most.
const SEGMENT_MAX: u32 = 8192;
/// Members acknowledge each time that this number of segments has arrived.
const ACK_EVERY: u32 = 8;
/// Acknowledged segments after which the root decides whether a member is deaf.
const DEAF_SAMPLE: u32 = 2 * WINDOW as u32;
/// Longest time between two probes, in nanoseconds.
const PROBE_MAX: u64 = 20_000_000;

/// The communicator, the members and the root of a stream. Members have numbers of their own.
#[derive(Clone, Debug)]
pub(in crate::world) struct StreamName {
    pub(in crate::world) context: u32,
    pub(in crate::world) generation: u32,
    /// The number of its group: that of the context, or one of the pool's.
    pub(in crate::world) group: u32,
    /// The root's rank in the communicator.
    pub(in crate::world) caller: Member,
    pub(in crate::world) members: Group,
    pub(in crate::world) root: Member,
    pub(in crate::world) own: Member,
}

impl StreamName {
    /// Whether its group comes from the pool: it has been tested.
    pub(in crate::world) const fn is_tested(&self) -> bool {
        self.group != self.context
    }
}

/// A stream and its memory.
#[derive(Debug)]
pub(in crate::world) struct GroupStream {
    pub(in crate::world) machine: Box<Stream<Nanos, MEMBERS_MAX, WINDOW, 32>>,
    pub(in crate::world) ring: ScratchBlock,
    pub(in crate::world) segment_bytes: u32,
    /// Segments that are under way at a time: as many as receivers can buffer.
    window: u32,
    pub(super) key: GroupKey,
}

impl GroupStream {
    /// A stream over the joined group of its communicator. `members` are all of the communicator's.
    pub(in crate::world) fn new(
        name: &StreamName,
        key: GroupKey,
        members: Vec<GroupMember>,
        (limits, mode): (&StreamLimits, AckMode),
        ring: ScratchBlock,
    ) -> Self {
        let segment_bytes = segment_bytes(limits);
        let config = StreamConfig {
            topology: Topology { mode, founders: name.members.size(), root: name.root },
            ack_every: ACK_EVERY,
            granularity: units(limits.granularity_ns.into()),
            max_interval: units(PROBE_MAX),
            deaf_sample: DEAF_SAMPLE,
        };
        let bytes = u64::from(limits.receive_slots).saturating_mul(limits.mtu.into());
        // Half of what a receiver can buffer: other roots send, too.
        let slots = bytes.checked_div(u64::from(segment_bytes) << 1).unwrap_or(0);
        let window = u32::try_from(slots).unwrap_or(u32::MAX).clamp(4, WINDOW as u32);
        let places = Ring { region: ring.region, offset: 0, segment_bytes };
        let machine = Box::new(Stream::new(key, config, name.own, members, places));
        Self { machine, ring, segment_bytes, window, key }
    }

    /// Whether the root may queue another segment.
    pub(in crate::world) const fn has_room(&self) -> bool {
        (WINDOW as u32).saturating_sub(self.machine.room()) < self.window
    }
}

/// This rank's part in the broadcasts of a root.
#[derive(Debug)]
pub(in crate::world) enum Part {
    /// It is the root.
    Root {
        test: Box<GroupTest<Nanos, MEMBERS_MAX>>,
        /// Whether the members know that schedules execute all calls.
        has_reported: bool,
        /// Calls that wait until the group has been tested.
        untested: Vec<u32>,
        /// Calls whose segments are queued, in their order, and the next segment of the first of them.
        sends: VecDeque<u32>,
        next: u32,
        /// Calls that wait until all members have what was sent, since one of them is deaf: then schedules execute these
        /// calls and all later ones.
        deferred: Vec<u32>,
        /// The ranks beside the leaders.
        attached: AttachedPeers,
    },
    /// It is another member.
    Member {
        /// Schedules execute the calls up to this number, or all of them.
        scheduled: Option<u32>,
        is_always_scheduled: bool,
        /// Whether it was asked for, and the root knows whether this rank takes part.
        has_reported: bool,
        /// Calls that wait for the root's decision.
        undecided: Vec<u32>,
        /// The call whose segments arrive.
        receives: Option<u32>,
        /// The rest of the message that arrives is nobody's.
        discards: bool,
        /// The ranks beside the leaders that get calls by multicast.
        attached: PeerList,
    },
}

/// The broadcasts of one root of a communicator.
#[derive(Debug)]
pub(in crate::world) struct RootedStream {
    pub(in crate::world) name: StreamName,
    pub(in crate::world) part: Part,
    /// `None`: the group cannot be used here.
    pub(in crate::world) stream: Option<GroupStream>,
    /// The communicator is over, and its context's number is in use again.
    pub(in crate::world) is_stale: bool,
}

impl RootedStream {
    /// The number of a peer among the members.
    pub(in crate::world) fn member(&self, peer: PeerId) -> Option<Member> {
        let leader = self.name.members.number(peer.into()).map(|rank| Member(rank.0));
        leader.or_else(|| {
            let Part::Root { attached, .. } = &self.part else { return None };
            Some(Member(self.name.members.size().saturating_add(attached.place(Member(peer.0))?)))
        })
    }

    /// The peer of a member.
    pub(in crate::world) fn peer(&self, member: Member) -> Option<PeerId> {
        match (member.0.checked_sub(self.name.members.size()), &self.part) {
            (None, _) => self.name.members.world_rank(Rank(member.0)).map(PeerId::from),
            (Some(place), Part::Root { attached, .. }) => attached.rank(place).map(|rank| PeerId(rank.0)),
            (Some(_), Part::Member { .. }) => None,
        }
    }

    /// The other members, which get messages about the stream.
    pub(in crate::world) fn others(&self) -> impl Iterator<Item = PeerId> + '_ {
        let own = self.name.own;
        let leaders = (0..self.name.members.size()).map(Member).filter(move |member| *member != own);
        let attached = match &self.part {
            Part::Root { attached, .. } => Some(attached),
            Part::Member { .. } => None,
        };
        let attached = attached.into_iter().flat_map(AttachedPeers::ranks).map(|rank| PeerId(rank.0));
        leaders.filter_map(|member| self.peer(member)).chain(attached)
    }

    /// Whether this rank is a member beside the leaders.
    pub(in crate::world) fn is_attached(&self) -> bool {
        self.name.own.0 >= self.name.members.size()
    }

    /// Whether it is a stream of a root of which this rank is such a member.
    pub(in crate::world) fn is_attached_to(&self, context: u32, caller: Member) -> bool {
        !self.is_stale && (self.name.context, self.name.caller) == (context, caller) && self.is_attached()
    }

    /// A member takes no more part.
    pub(in crate::world) fn handle_failed(&mut self, now: u64, peer: PeerId) {
        let Some(member) = self.member(peer) else { return };
        if let Some(stream) = &mut self.stream {
            stream.machine.handle_failed(now, member);
        }
        if let Part::Root { test, attached, .. } = &mut self.part {
            test.handle_failed(now, member);
            attached.remove(Member(peer.0));
        }
    }

    /// Whether this root's group has passed its test, and multicasts do not reach a member any more. It stays so until the
    /// deferred calls are decided, even if the deaf member leaves.
    pub(in crate::world) fn is_deaf(&self) -> bool {
        let Part::Root { test, deferred, .. } = &self.part else { return false };
        let has_deaf_member = self.stream.as_ref().is_some_and(|stream| stream.machine.has_deaf_member());
        test.state() == TestState::Passed && (has_deaf_member || !deferred.is_empty())
    }

    /// Whether all members have what this rank sent as the root.
    pub(in crate::world) fn is_idle(&self) -> bool {
        match &self.part {
            Part::Root { sends, .. } => {
                sends.is_empty() && self.stream.as_ref().is_none_or(|stream| stream.machine.is_idle())
            }
            Part::Member { .. } => true,
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<u64> {
        let of_test = match &self.part {
            Part::Root { test, .. } => test.poll_timeout(),
            Part::Member { .. } => None,
        };
        let of_stream = self.stream.as_ref().and_then(|stream| stream.machine.poll_timeout());
        of_test.into_iter().chain(of_stream).min()
    }

    pub(super) fn forget(&mut self, collective: u32) {
        match &mut self.part {
            Part::Root { untested, sends, next, deferred, .. } => {
                if sends.front() == Some(&collective) {
                    *next = 0;
                }
                sends.retain(|of| *of != collective);
                deferred.retain(|of| *of != collective);
                untested.retain(|of| *of != collective);
            }
            Part::Member { undecided, receives, discards, .. } => {
                undecided.retain(|of| *of != collective);
                *discards |= receives.take_if(|of| *of == collective).is_some();
            }
        }
    }
}

/// What a device offers to streams.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct StreamLimits {
    pub(in crate::world) mtu: u32,
    pub(in crate::world) receive_slots: u32,
    pub(in crate::world) granularity_ns: u32,
}

/// Bytes of a segment's payload.
pub(in crate::world) fn segment_bytes(limits: &StreamLimits) -> u32 {
    limits.mtu.saturating_sub(SEGMENT_HEADER as u32).min(SEGMENT_MAX)
}
