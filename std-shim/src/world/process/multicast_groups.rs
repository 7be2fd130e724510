//! The multicast groups of communicators: how they are joined, and, for broadcasts, tested and reported to the other
//! members.
//!
//! A root and a member make their ends of a stream when they first call a broadcast with that root, and a member then
//! reports to the root whether it takes part.

use unisono_core::device::{Device as _, DeviceQueue, GroupError, Token as _};
use unisono_core::ids::{GroupId, PeerId, Rank as Member};
use unisono_core::multicast::{GroupMember, SlotSet, StreamCounters, TestState};

use super::Process;
use crate::environment::tuning::MULTICAST_MEMBERS_MAX;
use crate::environment::{AcksChoice, AttachThreshold, TransportSettings};
use crate::world::collective::engine::group_message::{GroupBody, GroupMessage};
use crate::world::collective::engine::group_names::GroupNames;
use crate::world::collective::engine::job_pool::{JobPool, group_number};
use crate::world::collective::engine::multicast_streams::GROUPS_MAX;
use crate::world::collective::engine::rooted_stream::{
    GroupStream, Part, RootedStream, StreamLimits, StreamName, WINDOW, segment_bytes,
};
use crate::world::collective::engine::scratch_pool::ScratchBlock;
use crate::world::collective::engine::token_trees::TreeCounters;
use crate::world::group::Group;
use unisono_bootstrap::{Membership, Rank};

impl Process {
    /// The groups of the job have these names.
    pub(in crate::world) fn set_groups(&mut self, names: Option<GroupNames>, settings: &TransportSettings) {
        let is_single_node = self.is_single_node();
        let multicast = &mut self.collectives.multicast;
        multicast.names = names.filter(|_| self.datagrams.device.limits().groups > 0);
        (multicast.groups, multicast.acks) = (settings.groups, settings.multicast_acks);
        let micros = |threshold: AttachThreshold| threshold.duration().as_micros().try_into().unwrap_or(u32::MAX);
        multicast.attach_threshold = settings.attach.map(micros);
        let incarnation = self.membership.as_ref().and_then(|all| all.table().first()).map(|root| root.incarnation);
        if let (Some(names), Some(incarnation)) = (&multicast.names, incarnation) {
            let ranks = (self.rank.0, self.size);
            let groups = if is_single_node { 0 } else { settings.groups.pool() };
            multicast.pool = JobPool::new(self.transport.now, ranks, groups, names, incarnation);
            multicast.has_work = multicast.pool.is_some();
        }
    }

    /// Whether the device is a member of groups, whose arrivals wake a thread in a call alone.
    pub(in crate::world) fn uses_groups(&self) -> bool {
        let multicast = &self.collectives.multicast;
        let has_taken = |pool: &JobPool| pool.member.taken() != SlotSet::EMPTY;
        !multicast.joined.is_empty() || multicast.pool.as_ref().is_some_and(has_taken)
    }

    /// The counters of the releases of all trees.
    pub(in crate::world) const fn tree_counters(&self) -> TreeCounters {
        self.collectives.trees.counters
    }

    /// The counters of all streams.
    pub(in crate::world) fn stream_counters(&self) -> StreamCounters {
        self.collectives.multicast.counters()
    }

    /// The index of a root's broadcasts, by its rank in the communicator, made if there are none. `None`: the context is
    /// not open, or this rank is not a member of the group.
    pub(super) fn open_stream(&mut self, now: u64, context: u32, caller: Member) -> Option<usize> {
        if let Some(found) = self.collectives.multicast.find(context, caller) {
            return Some(found);
        }
        let name = self.stream_name(context, caller)?;
        if name.own.0 >= name.members.size() {
            return None;
        }
        let is_filtered = name.own == name.root && self.collectives.multicast.is_filtered;
        let stream = if is_filtered { None } else { self.make_stream(&name) };
        let is_usable = stream.is_some();
        tracing::debug!(context, root = caller.0, is_usable, "multicast group");
        Some(self.collectives.multicast.add(now, name, stream))
    }

    /// The stream of a root; a rank that is no leader has the first number beyond the leaders. `None`: the context is not
    /// open.
    pub(super) fn stream_name(&self, context: u32, caller: Member) -> Option<StreamName> {
        let of = self.collectives.contexts.get(context)?;
        let members = match &of.subgroups {
            None => of.members.clone(),
            Some(over) => {
                let world_rank = |leader: Member| of.members.world_rank(Rank(leader.0));
                Group::of(over.leaders(caller).filter_map(world_rank).collect())
            }
        };
        let number = |rank: Rank| members.number(rank).map(|number| Member(number.0));
        let root = number(of.members.world_rank(Rank(caller.0))?)?;
        let own = number(self.rank).unwrap_or(Member(members.size()));
        let (generation, group) = (of.generation, of.group.map_or(context, group_number));
        Some(StreamName { context, generation, group, caller, members, root, own })
    }

    /// Joins the group of a communicator and makes a stream over it. `None`: it cannot be used here.
    fn make_stream(&mut self, name: &StreamName) -> Option<GroupStream> {
        let (members, ring) = self.reserve_stream(name)?;
        let limits = self.stream_limits(name);
        let multicast = &self.collectives.multicast;
        let key = multicast.names.as_ref()?.key(name);
        Some(GroupStream::new(name, key, members, (&limits, multicast.acks.mode()), ring))
    }

    /// What a device offers to the streams of these members.
    pub(super) fn stream_limits(&self, name: &StreamName) -> StreamLimits {
        let limits = self.datagrams.device.limits();
        StreamLimits {
            mtu: self.longest_datagram(name),
            receive_slots: limits.receive_slots,
            granularity_ns: limits.granularity_ns,
        }
    }

    /// Joins the group of a communicator, and allocates the ring of a stream over it.
    pub(super) fn reserve_stream(&mut self, name: &StreamName) -> Option<(Vec<GroupMember>, ScratchBlock)> {
        if name.members.size() as usize > MULTICAST_MEMBERS_MAX || !self.collectives.multicast.has_room() {
            return None;
        }
        self.join_group(name.context)?;
        let members = self.group_members(&name.members)?;
        let bytes = WINDOW.saturating_mul(segment_bytes(&self.stream_limits(name)) as usize);
        let ring = self.collectives.scratch.allocate(bytes, self.transport.regions.get_mut())?;
        Some((members, ring))
    }

    /// The members of a group, as datagrams name them. `None`: one of them is unknown.
    pub(super) fn group_members(&self, members: &Group) -> Option<Vec<GroupMember>> {
        let table = self.membership.as_ref().map_or(&[][..], Membership::table);
        let member = |rank: Rank| {
            let incarnation = table.get(rank.0 as usize)?.incarnation;
            Some(GroupMember { peer: rank.into(), incarnation })
        };
        members.iter().map(member).collect()
    }

    /// The shortest MTU of all members, which all of them know.
    pub(super) fn shortest_member_mtu(&self, name: &StreamName) -> Option<u32> {
        let table = self.membership.as_ref().map_or(&[][..], Membership::table);
        name.members.iter().filter_map(|rank| table.get(rank.0 as usize)).map(|entry| entry.mtu).min()
    }

    /// The length of the longest datagram that reaches all members.
    fn longest_datagram(&self, name: &StreamName) -> u32 {
        let (own, limits) = (self.datagrams.device.mtu(), self.datagrams.device.limits());
        let shortest = self.shortest_member_mtu(name).unwrap_or(own).min(own);
        shortest.saturating_sub(own.saturating_sub(limits.mtu))
    }

    /// Makes the device a member of a communicator's group, unless it is one since the group was made for the pool.
    pub(super) fn join_group(&mut self, context: u32) -> Option<GroupId> {
        let Self { collectives, datagrams, .. } = self;
        let multicast = &mut collectives.multicast;
        if let Some(slot) = collectives.contexts.get(context).and_then(|of| of.group) {
            return Some(GroupId(group_number(slot)));
        }
        let (group, address) = (GroupId(context), multicast.names.as_ref()?.address(context));
        if multicast.joined.contains(&context) {
            return Some(group);
        }
        let is_full = multicast.joined.len() >= usize::from(GROUPS_MAX);
        let mut joined = if is_full { Err(GroupError::Full) } else { datagrams.device.join_at(group, address) };
        if joined == Err(GroupError::Full)
            && let Some(unused) = multicast.unused_group()
        {
            self.leave_unused(unused);
            joined = self.datagrams.device.join_at(group, address);
        }
        joined.inspect_err(|error| tracing::debug!(%error, "multicast is not used")).ok()?;
        self.collectives.multicast.joined.push(context);
        Some(group)
    }

    /// A rank of the communicator that a call with this root needs, and that takes no more part.
    pub(super) fn departed_partner(&self, i: usize, context: u32) -> Option<Member> {
        let of = self.collectives.multicast.streams.get(i)?;
        let needed =
            if of.name.own == of.name.root { 0..of.name.members.size() } else { of.name.root.0..of.name.root.0 + 1 };
        let mut peers = needed.filter(|member| *member != of.name.own.0).filter_map(|member| of.peer(Member(member)));
        let departed = peers.find(|peer| self.collectives.has_departed(*peer, context))?;
        Some(self.collectives.contexts.get(context)?.number(departed.into()))
    }

    /// Sends all members a message about this rank's broadcasts.
    pub(super) fn notify_members(&mut self, i: usize, body: GroupBody) {
        let Some(of) = self.collectives.multicast.streams.get(i) else { return };
        let message = GroupMessage { context: of.name.context, generation: of.name.generation, body };
        let peers: Vec<PeerId> = of.others().collect();
        for peer in peers {
            self.send_control(peer, &message.encode());
        }
    }

    /// Reports to the root, once, whether this rank takes part in its stream.
    pub(super) fn notify_root(&mut self, i: usize) {
        let Some(of) = self.collectives.multicast.streams.get_mut(i) else { return };
        let Part::Member { has_reported, .. } = &mut of.part else { return };
        if core::mem::replace(has_reported, true) {
            return;
        }
        let body = if of.stream.is_some() { GroupBody::Joined } else { GroupBody::Refused };
        let message = GroupMessage { context: of.name.context, generation: of.name.generation, body };
        if let Some(root) = of.peer(of.name.root) {
            self.send_control(root, &message.encode());
        }
    }

    pub(super) fn handle_group_message(&mut self, now: u64, from: PeerId, message: GroupMessage) {
        let context = message.context;
        if message.body == GroupBody::Left {
            // Of an earlier communicator, too.
            return self.handle_left(now, from, message);
        }
        let of = self.collectives.contexts.get(context).filter(|of| message.is_of(of.generation));
        if of.is_none() && self.answer_stale(from, message) {
            return;
        }
        let Some(of) = self.collectives.contexts.get(context) else {
            if self.collectives.contexts.is_expecting(context) {
                // Until the communicator is opened here.
                self.collectives.multicast.arrivals.push_back((from, message));
            }
            return;
        };
        if !message.is_of(of.generation) {
            return;
        }
        let Some(member) = of.members.number(from.into()).map(|rank| Member(rank.0)) else { return };
        if message.body == GroupBody::Reached {
            if let Some(group) = self.collectives.multicast.releases.get_mut(context) {
                group.confirm(member);
            }
            return;
        }
        if message.body.is_about_attached() {
            return self.handle_attach_message(now, from, member, message);
        }
        let own = of.members.number(self.rank).map(|rank| Member(rank.0));
        let is_of_root = matches!(message.body, GroupBody::Scheduled(_) | GroupBody::AlwaysScheduled);
        let Some(root) = (if is_of_root { Some(member) } else { own }) else { return };
        if of.is_freed() && self.collectives.multicast.find(context, root).is_none() {
            // Nothing is called here any more.
            return;
        }
        let Some(i) = self.open_stream(now, context, root) else { return };
        let Some(of) = self.collectives.multicast.streams.get_mut(i) else { return };
        let number = of.member(from);
        match (&mut of.part, message.body) {
            (Part::Member { scheduled, .. }, GroupBody::Scheduled(sequence)) => *scheduled = Some(sequence),
            (Part::Member { is_always_scheduled, .. }, GroupBody::AlwaysScheduled) => *is_always_scheduled = true,
            (Part::Root { test, .. }, GroupBody::Joined) => {
                number.into_iter().for_each(|number| test.handle_joined(now, number));
                if of.name.is_tested() {
                    number.into_iter().for_each(|number| test.handle_answer(now, number));
                }
            }
            (Part::Root { test, .. }, GroupBody::Refused) => {
                number.into_iter().for_each(|number| test.handle_refused(number));
            }
            _ => {}
        }
        self.notify_root(i);
        self.decide(i);
        if message.body == GroupBody::AlwaysScheduled {
            self.drop_unused(i);
            self.leave_stream(i);
        }
    }

    /// A member of an earlier communicator, or of this one, takes no more part in the streams of other roots.
    fn handle_left(&mut self, now: u64, from: PeerId, message: GroupMessage) {
        for of in &mut self.collectives.multicast.streams {
            let is_its = of.name.context == message.context && message.is_of(of.name.generation);
            if is_its && of.member(from) != Some(of.name.root) {
                of.handle_failed(now, from);
            }
        }
    }

    /// Advances the test of a group. Notifies the members if it has failed.
    pub(super) fn advance_test(&mut self, now: u64, i: usize) {
        let Some(of) = self.collectives.multicast.streams.get_mut(i) else { return };
        let Part::Root { test, has_reported, .. } = &mut of.part else { return };
        let was_testing = test.state() == TestState::Testing;
        test.handle_timeout(now);
        if test.state() == TestState::Failed && !core::mem::replace(has_reported, true) {
            tracing::debug!(context = of.name.context, "the multicast group is not usable");
            let is_filtered = was_testing && !test.has_answers();
            self.collectives.multicast.is_filtered |= is_filtered;
            self.notify_members(i, GroupBody::AlwaysScheduled);
            return self.drop_unused(i);
        }
        if !test.poll_transmit() {
            return;
        }
        let device = &mut self.datagrams.device;
        if let (Some(stream), Some(mut token)) = (&of.stream, device.token(DeviceQueue::Polled))
            && let Some(transmit) = stream.machine.group_probe(token.header_room())
        {
            token.post(&transmit, None);
            device.flush(DeviceQueue::Polled);
        }
    }

    /// Decides the calls that have waited until their group was tested.
    pub(super) fn decide_untested(&mut self, i: usize) {
        let Some(RootedStream { part: Part::Root { test, untested, .. }, .. }) =
            self.collectives.multicast.streams.get_mut(i)
        else {
            return;
        };
        let state = test.state();
        if matches!(state, TestState::Joining | TestState::Testing) {
            return;
        }
        for collective in core::mem::take(untested) {
            if state == TestState::Passed {
                self.send_by_multicast(i, collective);
            } else {
                self.collectives.schedule_undecided(collective);
            }
        }
    }

    /// Stops using a group with a deaf member once all members have what was sent; schedules then execute the deferred
    /// calls and all later ones.
    pub(super) fn abandon_deaf_group(&mut self, i: usize) {
        let Some(of) = self.collectives.multicast.streams.get_mut(i) else { return };
        if !of.is_idle() || !of.is_deaf() {
            return;
        }
        let Part::Root { test, has_reported, deferred, .. } = &mut of.part else { return };
        test.abandon();
        *has_reported = true;
        tracing::debug!(context = of.name.context, "multicasts do not reach a member any more");
        let deferred = core::mem::take(deferred);
        self.notify_members(i, GroupBody::AlwaysScheduled);
        for collective in deferred {
            self.collectives.schedule_undecided(collective);
        }
        self.drop_unused(i);
    }

    /// Drops the stream of broadcasts that schedules execute from now on: every member has what its root sent.
    fn drop_unused(&mut self, i: usize) {
        if let Some(stream) = self.collectives.multicast.take_stream(i) {
            self.release_ring(stream.ring);
        }
        let context = self.collectives.multicast.streams.get(i).map(|of| of.name.context);
        context.into_iter().for_each(|context| self.leave_unused(context));
    }

    /// Releases the memory of a stream, which repairs that nobody needs may still be sent from.
    pub(super) fn release_ring(&mut self, ring: ScratchBlock) {
        let regions = self.transport.regions.get_mut();
        self.datagrams.device.wait_for_completions(regions, ring.region);
        self.collectives.scratch.release(ring, regions);
    }

    /// Leaves the group of a context if no stream and no tree uses it.
    pub(super) fn leave_unused(&mut self, context: u32) {
        let multicast = &mut self.collectives.multicast;
        if multicast.uses_group(context) || !multicast.joined.contains(&context) {
            return;
        }
        let left = self.datagrams.device.leave(GroupId(context));
        tracing::debug!(context, ?left, "left its group");
        multicast.joined.retain(|other| *other != context);
    }

    /// Drops a stream that is over here, and reports that to its root and, if they may wait for acknowledgements of this
    /// rank, to the other members.
    pub(super) fn drop_stream(&mut self, of: RootedStream) {
        let Some(stream) = of.stream.as_ref() else { return };
        self.release_ring(stream.ring);
        if of.name.own == of.name.root {
            return;
        }
        let message = GroupMessage { context: of.name.context, generation: of.name.generation, body: GroupBody::Left };
        let only_root = of.is_attached() || self.collectives.multicast.acks == AcksChoice::Basic;
        let root = of.peer(of.name.root);
        for peer in of.others().filter(|peer| !only_root || Some(*peer) == root) {
            if !self.collectives.failed.contains(&peer) {
                self.send_control(peer, &message.encode());
            }
        }
    }
}
