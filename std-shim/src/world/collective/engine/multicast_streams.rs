//! The multicast streams of a process: one for each root of a communicator that broadcasts by multicast.

use alloc::collections::VecDeque;

use unisono_core::device::Received;
use unisono_core::endpoint::Verdict;
use unisono_core::ids::{PeerId, Rank as Member};
use unisono_core::multicast::{Datagram, GroupTest, SEGMENT_HEADER, StreamCounters, TestState};
use unisono_core::time::units;

use super::attached::{AttachedPeers, Follower, PeerList};
use super::group_message::{GroupBody, GroupMessage};
use super::group_names::GroupNames;
use super::job_pool::JobPool;
use super::release_groups::ReleaseGroups;
use super::rooted_stream::{GroupStream, Part, RootedStream, StreamName};
use crate::environment::{AcksChoice, GroupsChoice};

/// Most groups of communicators that a process joins, beside those of the pool, and most streams that it takes part in.
pub(in crate::world) const GROUPS_MAX: u16 = 4;
const STREAMS_MAX: usize = 16;
/// Probes to a group that is tested, and nanoseconds between the first two, and between any two at most: 4 s in all.
const TEST: (u32, u32, u32) = (40, units(1_000_000), units(128_000_000));
/// Messages about groups that wait until their communicators are opened here, of a peer.
const ARRIVALS_MAX: usize = 256;

/// The streams of a process.
#[derive(Debug, Default)]
pub(in crate::world) struct MulticastStreams {
    pub(in crate::world) names: Option<GroupNames>,
    /// When groups are made, and who acknowledges to whom.
    pub(in crate::world) groups: GroupsChoice,
    pub(in crate::world) acks: AcksChoice,
    pub(in crate::world) streams: Vec<RootedStream>,
    /// Groups that were made ahead.
    pub(in crate::world) pool: Option<JobPool>,
    /// The groups through which trees release.
    pub(in crate::world) releases: ReleaseGroups,
    /// Contexts whose groups the device has joined.
    pub(in crate::world) joined: Vec<u32>,
    /// Mean wait for a late leader, in µs, from which on a rank joins a group itself. `None`: never.
    pub(in crate::world) attach_threshold: Option<u32>,
    /// This rank where it is no leader.
    pub(in crate::world) followers: Vec<Follower>,
    pub(in crate::world) attach_counters: AttachCounters,
    /// Messages about groups that have arrived.
    pub(in crate::world) arrivals: VecDeque<(PeerId, GroupMessage)>,
    /// The time of the round in which datagrams arrive.
    pub(in crate::world) now: u64,
    /// Whether a stream has something to do.
    pub(in crate::world) has_work: bool,
    /// Multicasts of this rank have reached no member of a group: it tests no other one.
    pub(in crate::world) is_filtered: bool,
    /// The first deadline of a stream.
    pub(in crate::world) deadline: Option<u64>,
    /// Counters of streams that are over, and datagrams of none.
    past: StreamCounters,
}

/// How often this rank has joined a group where it is no leader, and left one.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::world) struct AttachCounters {
    pub(in crate::world) attached: u64,
    pub(in crate::world) detached: u64,
}

impl MulticastStreams {
    /// Whether a stream has something to do now.
    #[inline]
    pub(in crate::world) fn is_due(&self, now: u64) -> bool {
        self.has_work || self.deadline.is_some_and(|at| now >= at)
    }

    /// The index of the broadcasts of a root, by its rank in the communicator.
    pub(in crate::world) fn find(&self, context: u32, caller: Member) -> Option<usize> {
        self.streams.iter().position(|of| !of.is_stale && (of.name.context, of.name.caller) == (context, caller))
    }

    /// Whether there may be another stream.
    pub(in crate::world) fn has_room(&self) -> bool {
        self.streams.iter().filter(|of| of.stream.is_some()).count() < STREAMS_MAX
    }

    /// Adds the broadcasts of a root, with or without a stream. Returns their index.
    pub(in crate::world) fn add(&mut self, now: u64, name: StreamName, stream: Option<GroupStream>) -> usize {
        let size = if stream.is_some() { name.members.size() } else { u32::MAX };
        let part = if name.own == name.root {
            // Without a stream it fails at once.
            let test = Box::new(GroupTest::new(now, name.root, size, TEST));
            Part::Root {
                test,
                has_reported: false,
                untested: Vec::new(),
                sends: VecDeque::new(),
                next: 0,
                deferred: Vec::new(),
                attached: AttachedPeers::default(),
            }
        } else {
            Part::Member {
                scheduled: None,
                is_always_scheduled: false,
                has_reported: false,
                undecided: Vec::new(),
                receives: None,
                discards: false,
                attached: PeerList::default(),
            }
        };
        self.streams.push(RootedStream { name, part, stream, is_stale: false });
        self.has_work = true;
        self.streams.len() - 1
    }

    /// Handles a datagram of a stream. `None`: it is none.
    pub(in crate::world) fn handle_datagram(&mut self, datagram: &impl Received) -> Option<Verdict> {
        let parsed = Datagram::<32>::is_multicast(datagram.prefix())
            .then(|| Datagram::<32>::parse(datagram.prefix(), datagram.bytes()).ok())??;
        let is_its = |of: &&mut RootedStream| {
            of.name.root == parsed.root && of.stream.as_ref().is_some_and(|stream| stream.key == parsed.key)
        };
        let Some(RootedStream { name, part, stream: Some(stream), .. }) = self.streams.iter_mut().find(is_its) else {
            self.count_foreign();
            return Some(Verdict::Release);
        };
        if parsed.sender == name.own {
            // The system returns what this rank sends to a group that it is a member of.
            return Some(Verdict::Release);
        }
        self.has_work = true;
        if let Part::Root { test, .. } = part
            && test.state() == TestState::Testing
        {
            if let Some(rank) = stream.machine.reporter(datagram) {
                test.handle_answer(self.now, rank);
            }
            return Some(Verdict::Release);
        }
        Some(match stream.machine.handle_datagram(self.now, datagram) {
            Some(to) => Verdict::Place { to, start: SEGMENT_HEADER as u16 },
            None => Verdict::Release,
        })
    }

    /// Counts a datagram of no stream and no tree.
    pub(in crate::world) const fn count_foreign(&mut self) {
        self.past.foreign = self.past.foreign.saturating_add(1);
    }

    /// Queues a message about a group. Returns false if its sender has sent more than any correct rank.
    pub(in crate::world) fn queue(&mut self, from: PeerId, message: GroupMessage) -> bool {
        self.has_work = true;
        let is_same = |(other, known): &&mut (PeerId, GroupMessage)| {
            let same_kind = core::mem::discriminant(&known.body) == core::mem::discriminant(&message.body);
            *other == from && (known.context, known.generation) == (message.context, message.generation) && same_kind
        };
        let waiting = self.arrivals.iter().filter(|(other, _)| *other == from).count();
        if matches!(message.body, GroupBody::Late(_)) {
            // Each counts, but nothing is wrong without it.
            if waiting < ARRIVALS_MAX / 2 {
                self.arrivals.push_back((from, message));
            }
            return true;
        }
        if let Some((_, known)) = self.arrivals.iter_mut().find(is_same) {
            // The later number includes the earlier ones.
            *known = message;
            return true;
        }
        self.arrivals.push_back((from, message));
        waiting < ARRIVALS_MAX
    }

    /// A rank has failed or finished.
    pub(in crate::world) fn handle_failed(&mut self, now: u64, peer: PeerId) {
        self.has_work = true;
        self.arrivals.retain(|(from, _)| *from != peer);
        if let Some(pool) = &mut self.pool {
            pool.handle_failed(now, peer);
        }
        self.streams.iter_mut().for_each(|of| of.handle_failed(now, peer));
    }

    /// The context's number is used for another communicator.
    pub(in crate::world) fn retire_context(&mut self, context: u32) {
        for of in self.streams.iter_mut().filter(|of| of.name.context == context) {
            (of.is_stale, self.has_work) = (true, true);
        }
        self.releases.remove(context);
    }

    /// Takes the stream of a root's broadcasts, which schedules execute from now on.
    pub(in crate::world) fn take_stream(&mut self, i: usize) -> Option<GroupStream> {
        let stream = self.streams.get_mut(i)?.stream.take()?;
        self.past = sum(&self.past, stream.machine.counters());
        Some(stream)
    }

    /// Removes the broadcasts of a root.
    pub(in crate::world) fn remove(&mut self, i: usize) -> RootedStream {
        let of = self.streams.swap_remove(i);
        if let Some(stream) = &of.stream {
            self.past = sum(&self.past, stream.machine.counters());
        }
        of
    }

    /// Takes a stream that is over at this rank: one of another root, or one that all members have received.
    pub(in crate::world) fn take_stale(&mut self) -> Option<RootedStream> {
        let place = self.streams.iter().position(|of| of.is_stale && of.is_idle())?;
        Some(self.remove(place))
    }

    /// A group that no stream and no tree uses.
    pub(in crate::world) fn unused_group(&self) -> Option<u32> {
        self.joined.iter().copied().find(|context| !self.uses_group(*context))
    }

    /// Whether a stream or a tree uses the group of a context.
    pub(in crate::world) fn uses_group(&self, context: u32) -> bool {
        let mut streams = self.streams.iter().filter(|of| of.name.context == context);
        let mut followers = self.followers.iter().filter(|follower| follower.context == context);
        streams.any(|of| of.stream.is_some())
            || followers.any(|follower| follower.reserved.is_some())
            || self.releases.uses(context)
    }

    /// Whether all that was sent has arrived.
    pub(in crate::world) fn is_idle(&self) -> bool {
        self.streams.iter().all(RootedStream::is_idle)
    }

    /// The contexts of which members may still lack what this rank sent.
    pub(in crate::world) fn busy_contexts(&self) -> impl Iterator<Item = u32> {
        self.streams.iter().filter(|of| !of.is_idle()).map(|of| of.name.context)
    }

    /// The peers that lack what this rank sent, or, where they acknowledge to it, what another root sent.
    pub(in crate::world) fn lagging(&self) -> impl Iterator<Item = PeerId> {
        self.streams.iter().flat_map(|of| {
            let stream = of.stream.as_ref().map(|stream| &stream.machine);
            stream.into_iter().flat_map(|stream| stream.lagging()).filter_map(|member| of.peer(member))
        })
    }

    /// The peers that a call waits for.
    pub(in crate::world) fn awaited(&self, collective: u32) -> Vec<PeerId> {
        let of = self.streams.iter().find_map(|of| match &of.part {
            Part::Root { test, untested, .. } if untested.contains(&collective) => {
                Some(test.awaited().filter_map(|member| of.peer(member)).collect())
            }
            Part::Root { sends, deferred, .. } => {
                let is_its = sends.contains(&collective) || deferred.contains(&collective);
                let stream = of.stream.as_ref().filter(|_| is_its)?;
                Some(stream.machine.lagging().filter_map(|member| of.peer(member)).collect::<Vec<_>>())
            }
            Part::Member { undecided, receives, .. } => {
                let is_its = undecided.contains(&collective) || *receives == Some(collective);
                is_its.then(|| of.peer(of.name.root).into_iter().collect())
            }
        });
        let mut followers = self.followers.iter().filter(|follower| follower.undecided.contains(&collective));
        of.or_else(|| Some(vec![followers.next()?.root])).unwrap_or_default()
    }

    /// Forgets a call that has ended.
    pub(in crate::world) fn forget(&mut self, collective: u32) {
        self.streams.iter_mut().for_each(|of| of.forget(collective));
        self.followers.iter_mut().for_each(|follower| follower.undecided.retain(|of| *of != collective));
        self.has_work = true;
    }

    /// The first deadline of a stream.
    pub(in crate::world) fn poll_timeout(&self) -> Option<u64> {
        let of_pool = self.pool.as_ref().and_then(JobPool::poll_timeout);
        self.streams.iter().filter_map(RootedStream::poll_timeout).chain(of_pool).min()
    }

    /// The counters of all streams. `foreign` includes datagrams of no stream.
    pub(in crate::world) fn counters(&self) -> StreamCounters {
        let all = self.streams.iter().filter_map(|of| of.stream.as_ref());
        all.fold(self.past, |sums, stream| sum(&sums, stream.machine.counters()))
    }
}

fn sum(one: &StreamCounters, other: &StreamCounters) -> StreamCounters {
    StreamCounters {
        sent: one.sent.saturating_add(other.sent),
        co_root_copies: one.co_root_copies.saturating_add(other.co_root_copies),
        repaired: one.repaired.saturating_add(other.repaired),
        repaired_all: one.repaired_all.saturating_add(other.repaired_all),
        probes: one.probes.saturating_add(other.probes),
        reports_sent: one.reports_sent.saturating_add(other.reports_sent),
        reports: one.reports.saturating_add(other.reports),
        placed: one.placed.saturating_add(other.placed),
        duplicates: one.duplicates.saturating_add(other.duplicates),
        foreign: one.foreign.saturating_add(other.foreign),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rooted_stream::StreamLimits;
    use super::super::scratch_pool::ScratchPool;
    use super::*;
    use crate::world::group::Group;
    use proptest::prelude::*;
    use unisono_core::device::Slot;
    use unisono_core::ids::{GroupId, Incarnation};
    use unisono_core::multicast::{AckMode, Body, GroupKey, GroupMember, Report, Segment};
    use unisono_memory::memory_regions::Regions;

    const KEY: GroupKey = GroupKey { group: GroupId(5), epoch: 77 };

    struct Arrived {
        head: [u8; 64],
        length: usize,
        bytes: u32,
        from: PeerId,
    }

    impl Received for Arrived {
        fn slot(&self) -> Slot {
            Slot(0)
        }

        fn bytes(&self) -> u32 {
            self.bytes
        }

        fn prefix(&self) -> &[u8] {
            &self.head[..self.length]
        }

        fn is_from(&self, peer: PeerId) -> bool {
            peer == self.from
        }

        fn age_ns(&self) -> Option<u32> {
            None
        }
    }

    /// The streams of rank 1 of three: one of its own, and one of rank 0.
    fn streams() -> MulticastStreams {
        // SAFETY: no address is used.
        let (mut scratch, mut regions) = (ScratchPool::new(), unsafe { Regions::new() });
        let mut streams = MulticastStreams::default();
        for root in [0, 1].map(Member) {
            let (members, own) = (Group::all(3), Member(1));
            let name = StreamName { context: 5, generation: 1, group: 5, caller: root, members, root, own };
            let limits = StreamLimits { mtu: 1000, receive_slots: 64, granularity_ns: 1000 };
            let members = (0..3).map(|rank| GroupMember { peer: PeerId(rank), incarnation: Incarnation(rank + 10) });
            let ring = scratch.allocate(1 << 18, &mut regions).expect("memory");
            let stream = GroupStream::new(&name, KEY, members.collect(), (&limits, AckMode::Basic), ring);
            streams.add(0, name, Some(stream));
        }
        streams
    }

    fn datagram(root: u32, sender: u32, incarnation: u32, body: Body<32>) -> Arrived {
        let incarnation = Incarnation(incarnation);
        let datagram = Datagram { key: KEY, root: Member(root), sender: Member(sender), incarnation, body };
        let mut head = [0; 64];
        let length = usize::from(datagram.emit(&mut head));
        let bytes = length as u32 + if let Body::Segment(segment) = body { segment.bytes } else { 0 };
        Arrived { head, length, bytes, from: PeerId(sender) }
    }

    fn body() -> impl Strategy<Value = Body<32>> {
        let psn =
            || (0_u32..8).prop_map(|ahead| unisono_core::ids::first_psn(Incarnation(10), Incarnation(77)).add(ahead));
        let report = (psn(), psn(), any::<bool>()).prop_map(|(own, below, lacks)| {
            let mut missing = unisono_core::wire::Bitmap::EMPTY;
            (0..u32::from(lacks)).for_each(|bit| missing.insert(bit));
            Body::Report(Report { own, below, missing })
        });
        let segment = (psn(), 0_u32..3, 0_u32..1000).prop_map(|(psn, index, bytes)| {
            Body::Segment(Segment { psn, index, bytes, is_last: true, ack_now: false })
        });
        prop_oneof![report, segment]
    }

    proptest! {
        /// Whatever arrives, nothing panics, and nothing but a segment of the root's own stream, from its address and its
        /// incarnation, is placed, within the ring.
        #[test]
        fn hostile_datagrams_are_dropped(
            arriving in prop::collection::vec((0_u32..3, 0_u32..4, 9_u32..14, 0_u32..4, body(), 0_usize..65), 1..60),
        ) {
            let mut streams = streams();
            for (root, sender, incarnation, from, body, cut) in arriving {
                let mut arrived = datagram(root, sender, incarnation, body);
                arrived.from = PeerId(from);
                if cut < arrived.length && cut % 3 == 0 {
                    (arrived.length, arrived.bytes) = (cut, cut as u32);
                }
                let is_sound = (root, sender, from, incarnation) == (0, 0, 0, 10) && arrived.length == SEGMENT_HEADER;
                if let Some(Verdict::Place { to, start }) = streams.handle_datagram(&arrived) {
                    prop_assert!(is_sound && usize::from(start) == SEGMENT_HEADER && to.offset + to.bytes as usize <= 1 << 18);
                }
            }
        }

        #[test]
        fn any_bytes_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..64), more in 0_u32..100) {
            let mut head = [0; 64];
            head[..bytes.len()].copy_from_slice(&bytes);
            let arrived = Arrived { head, length: bytes.len(), bytes: bytes.len() as u32 + more, from: PeerId(0) };
            let is_placed = matches!(streams().handle_datagram(&arrived), Some(Verdict::Place { .. }));
            prop_assert!(!is_placed);
        }
    }

    #[test]
    fn datagrams_of_no_stream_are_counted() {
        let mut streams = streams();
        let report = Report { own: Default::default(), below: Default::default(), missing: Default::default() };
        assert_eq!(streams.handle_datagram(&datagram(2, 0, 10, Body::Report(report))), Some(Verdict::Release));
        assert_eq!(streams.handle_datagram(&datagram(0, 2, 11, Body::Report(report))), Some(Verdict::Release));
        assert_eq!(streams.counters().foreign, 2);
        assert_eq!(streams.handle_datagram(&datagram(1, 1, 11, Body::Report(report))), Some(Verdict::Release));
        assert_eq!(streams.counters().foreign, 2, "its own");
    }
}
