//! Dynamic attach: how a rank joins the group of a root itself while its leader is late, and leaves it again.
//!
//! A leader that enters a call after its data has arrived reports that to the ranks that it forwards to. A rank that has
//! waited for such a leader for too long in the mean asks the root, becomes a member of its stream, and gets the calls
//! that the root's lists say by multicast (`unisono_core::multicast::Attachment`).

use unisono_core::collective::FailureCause;
use unisono_core::device::Memory as _;
use unisono_core::ids::{PeerId, Psn, Rank as Member};
use unisono_core::multicast::{AttachChange, AttachmentChange, DataSource, Delivery, GroupMember, TestState};
use unisono_core::span::Span as Bytes;

use super::Process;
use crate::environment::tuning::MULTICAST_MEMBERS_MAX;
use crate::world::collective::engine::attached::{self, AHEAD, Follower, PeerList};
use crate::world::collective::engine::group_message::{GroupBody, GroupMessage};
use crate::world::collective::engine::multicast_call::MulticastStage;
use crate::world::collective::engine::multicast_streams::AttachCounters;
use crate::world::collective::engine::progress_table::CollectiveTable;
use crate::world::collective::engine::rooted_stream::{GroupStream, Part, RootedStream, StreamName};
use crate::world::group::Group;
use unisono_bootstrap::Rank;

impl Process {
    /// This rank, which is no leader, enters a call: its leader forwards it, or it waits for the stream.
    pub(super) fn enter_as_follower(&mut self, now: u64, collective: u32, root: Member) {
        self.follow(now, collective, root);
        let CollectiveTable { multicast, active, .. } = &mut self.collectives;
        let running = active.get_mut(collective as usize).and_then(Option::as_mut);
        let Some(running) = running else { return };
        let (context, sequence) = (running.executor.id().context, running.executor.id().sequence);
        let Some(call) = running.executor.multicast_mut() else { return };
        let mut followers = multicast.followers.iter_mut();
        let follower = followers.find(|follower| (follower.context, follower.caller) == (context, root));
        let waiting = follower.filter(|follower| follower.attachment.source(sequence) == DataSource::Stream);
        let Some(follower) = waiting else {
            call.stage = MulticastStage::Scheduled;
            return;
        };
        (call.stage, call.is_attached) = (MulticastStage::Undecided, true);
        let i = multicast.streams.iter().position(|of| of.is_attached_to(context, root));
        match i.and_then(|i| multicast.streams.get_mut(i)) {
            Some(RootedStream { part: Part::Member { undecided, .. }, .. }) => undecided.push(collective),
            _ => follower.undecided.push(collective),
        }
        let root_peer = follower.root;
        if let Some(i) = i {
            self.decide(i);
            while self.deliver_segment(now, i) {}
        }
        if self.collectives.has_departed(root_peer, context)
            && let Some(running) = self.collectives.get_mut(collective)
            && let Some(call) = running.executor.multicast_mut().filter(|call| !call.is_scheduled())
        {
            call.abort(root, FailureCause::Missing);
        }
    }

    /// Records when this rank has entered a call.
    fn follow(&mut self, now: u64, collective: u32, root: Member) {
        let CollectiveTable { multicast, active, contexts, .. } = &mut self.collectives;
        let Some(threshold) = multicast.attach_threshold else { return };
        let running = active.get_mut(collective as usize).and_then(Option::as_mut);
        let Some(running) = running else { return };
        let (context, sequence) = (running.executor.id().context, running.executor.id().sequence);
        let Some(of) = contexts.get(context) else { return };
        let (generation, root_peer) = (of.generation, of.members.world_rank(Rank(root.0)).map(PeerId::from));
        let Some(root_peer) = root_peer else { return };
        let known = |follower: &Follower| (follower.context, follower.caller) == (context, root);
        let place = match multicast.followers.iter().position(known) {
            Some(place) => place,
            None => {
                let call = running.executor.multicast_mut();
                if call.and_then(|call| call.leader()).is_none() {
                    return;
                }
                multicast.followers.push(Follower::new((context, generation), (root, root_peer), threshold));
                multicast.followers.len() - 1
            }
        };
        let change = multicast.followers.get_mut(place).and_then(|follower| follower.enter(now, sequence));
        self.carry_out_change(place, change);
    }

    /// How often this rank joined a group although it is no leader, and left one.
    pub(in crate::world) const fn attach_counters(&self) -> AttachCounters {
        self.collectives.multicast.attach_counters
    }

    /// Reports to the ranks that this one, a leader, forwards a call to that the data waited for it.
    pub(super) fn report_lateness(&mut self, collective: u32) {
        let CollectiveTable { multicast, active, contexts, .. } = &mut self.collectives;
        let running = active.get_mut(collective as usize).and_then(Option::as_mut);
        let Some(running) = running.filter(|_| multicast.attach_threshold.is_some()) else { return };
        let (context, sequence) = (running.executor.id().context, running.executor.id().sequence);
        let Some(call) = running.executor.multicast_mut() else { return };
        let has_data =
            matches!(call.stage, MulticastStage::Receiving | MulticastStage::Forwarding | MulticastStage::Complete);
        let Some(of) = contexts.get(context).filter(|_| has_data && !call.is_root()) else { return };
        let message = GroupMessage { context, generation: of.generation, body: GroupBody::Late(sequence) };
        let world_rank = |member: Member| of.members.world_rank(Rank(member.0)).map(PeerId::from);
        let peers: Vec<PeerId> = call.forwards_to().into_iter().filter_map(world_rank).collect();
        for peer in peers {
            self.send_control(peer, &message.encode());
        }
    }

    /// Handles a message about attached ranks. `from` is the sender's rank in the communicator.
    pub(super) fn handle_attach_message(&mut self, now: u64, peer: PeerId, from: Member, message: GroupMessage) {
        let context = message.context;
        match message.body {
            GroupBody::Attach(promise) => {
                let place = self.add_attached(now, context, peer, promise);
                let body = place.map_or(GroupBody::Detached, |(member, start)| GroupBody::Attached(member, start));
                self.send_control(peer, &GroupMessage { body, ..message }.encode());
            }
            GroupBody::Detach => {
                if let Some(RootedStream { part: Part::Root { attached, .. }, .. }) = self.own_stream(context) {
                    attached.detach(Member(peer.0));
                }
            }
            GroupBody::Attached(member, start) => {
                let is_attached = self.attach(now, context, from, (Member(member.into()), Psn::new(start))).is_some();
                let left = (!is_attached).then_some(GroupMessage { body: GroupBody::Left, ..message });
                left.into_iter().for_each(|message| self.send_control(peer, &message.encode()));
            }
            GroupBody::Detached => self.follow_leader(context, from),
            GroupBody::Late(sequence) => {
                let followers = (0..).zip(&mut self.collectives.multicast.followers);
                let mut of_context = followers.filter(|(_, follower)| follower.context == context);
                let change = of_context.find_map(|(i, follower)| Some((i, follower.handle_late(now, sequence)?)));
                if let Some((place, change)) = change {
                    self.carry_out_change(place, Some(change));
                }
            }
            _ => {}
        }
    }

    /// Answers a message about attached ranks of a communicator that is over here. Returns whether it is one.
    pub(super) fn answer_stale(&mut self, peer: PeerId, message: GroupMessage) -> bool {
        let body = match message.body {
            GroupBody::Attach(_) => Some(GroupBody::Detached),
            GroupBody::Attached(..) => Some(GroupBody::Left),
            _ => None,
        };
        body.into_iter().for_each(|body| self.send_control(peer, &GroupMessage { body, ..message }.encode()));
        message.body.is_about_attached()
    }

    fn follower(&mut self, context: u32, caller: Member) -> Option<&mut Follower> {
        let mut all = self.collectives.multicast.followers.iter_mut();
        all.find(|follower| (follower.context, follower.caller) == (context, caller))
    }

    /// The root has not made this rank a member of its stream: its leader forwards all calls.
    fn follow_leader(&mut self, context: u32, caller: Member) {
        let Some(follower) = self.follower(context, caller) else { return };
        follower.attachment.handle_refused();
        follower.is_refused = true;
        let (undecided, reserved) = (core::mem::take(&mut follower.undecided), follower.reserved.take());
        for collective in undecided {
            self.leave_to_leader(collective);
        }
        if let Some((_, ring)) = reserved {
            self.release_ring(ring);
            self.leave_unused(context);
        }
    }

    /// A rank has finished: it will not answer what it has not answered.
    pub(super) fn follow_leaders_without(&mut self, root: PeerId) {
        let followers = self.collectives.multicast.followers.iter();
        let unanswered = followers.filter(|follower| follower.reserved.is_some() && follower.root == root);
        let unanswered: Vec<(u32, Member)> = unanswered.map(|follower| (follower.context, follower.caller)).collect();
        for (context, caller) in unanswered {
            self.follow_leader(context, caller);
        }
    }

    /// Forgets the followers of communicators that are over.
    pub(super) fn drop_followers(&mut self) {
        let CollectiveTable { multicast, contexts, .. } = &mut self.collectives;
        let is_over = |follower: &mut Follower| {
            contexts.get(follower.context).is_none_or(|of| of.generation != follower.generation)
        };
        let over: Vec<Follower> = multicast.followers.extract_if(.., is_over).collect();
        for (_, ring) in over.into_iter().filter_map(|follower| follower.reserved) {
            self.release_ring(ring);
        }
    }

    /// This rank's stream as the root.
    fn own_stream(&mut self, context: u32) -> Option<&mut RootedStream> {
        let own = self.collectives.contexts.get(context)?.members.number(self.rank)?;
        let i = self.collectives.multicast.find(context, Member(own.0))?;
        self.collectives.multicast.streams.get_mut(i)
    }

    /// Carries out what a follower has decided.
    fn carry_out_change(&mut self, place: usize, change: Option<AttachChange>) {
        let Some(follower) = self.collectives.multicast.followers.get(place) else { return };
        let (context, generation, caller) = (follower.context, follower.generation, follower.caller);
        let body = match change {
            Some(AttachChange::Attach) if !follower.is_refused && follower.attachment.is_following() => {
                self.promise(place).map(GroupBody::Attach)
            }
            Some(AttachChange::Detach) => {
                let follower = self.collectives.multicast.followers.get_mut(place);
                follower.is_some_and(|follower| follower.attachment.detach()).then_some(GroupBody::Detach)
            }
            _ => None,
        };
        let root = self.collectives.contexts.get(context).and_then(|of| of.members.world_rank(Rank(caller.0)));
        if let (Some(body), Some(root)) = (body, root) {
            tracing::debug!(context, root = caller.0, ?body, "dynamic attach");
            self.send_control(root.into(), &GroupMessage { context, generation, body }.encode());
        }
    }

    /// Reserves what a stream needs, and promises up to which call this rank follows its leader. `None`: there is no
    /// memory or no group for it, or the root's segments are too long.
    fn promise(&mut self, place: usize) -> Option<u32> {
        let follower = self.collectives.multicast.followers.get(place)?;
        let (context, caller) = (follower.context, follower.caller);
        let of = self.collectives.contexts.get(context).filter(|of| !of.is_freed())?;
        let entered = of.started.last.id.sequence;
        let name = self.stream_name(context, caller)?;
        if self.datagrams.device.mtu() < self.shortest_member_mtu(&name)? {
            // The root sends longer segments than arrive here.
            return None;
        }
        let reserved = self.reserve_stream(&name)?;
        let follower = self.collectives.multicast.followers.get_mut(place)?;
        follower.reserved = Some(reserved);
        follower.attachment.attach(entered, AHEAD)
    }

    /// Adds a rank to this rank's stream. Returns its member number and the PSN of the first segment that it gets. `None`:
    /// it stays with its leader.
    fn add_attached(&mut self, now: u64, context: u32, peer: PeerId, promise: u32) -> Option<(u16, u32)> {
        let member: GroupMember = *self.group_members(&Group::of(vec![peer.into()]))?.first()?;
        if self.collectives.is_finished {
            return None;
        }
        let of = self.own_stream(context)?;
        let leaders = of.name.members.size();
        if of.is_deaf() || of.member(peer).is_some() {
            return None;
        }
        let (Part::Root { test, attached, .. }, Some(stream)) = (&mut of.part, &mut of.stream) else { return None };
        let has_room = leaders as usize + attached.ranks().count() < MULTICAST_MEMBERS_MAX;
        if test.state() != TestState::Passed || !has_room {
            return None;
        }
        let number = leaders.saturating_add(attached.attach(Member(peer.0), promise)?);
        let start = stream.machine.add_member(now, Member(number), member)?;
        self.collectives.multicast.has_work = true;
        Some((u16::try_from(number).ok()?, start.get()))
    }

    /// Becomes a member of a root's stream. `None`: it was not asked for.
    fn attach(&mut self, now: u64, context: u32, caller: Member, (own, start): (Member, Psn<32>)) -> Option<()> {
        let member: GroupMember = *self.group_members(&Group::of(vec![self.rank]))?.first()?;
        if self.collectives.contexts.get(context)?.is_freed() {
            self.follow_leader(context, caller);
            return None;
        }
        let name = StreamName { own, ..self.stream_name(context, caller)? };
        let follower = self.follower(context, caller).filter(|_| own.0 >= name.members.size())?;
        let (members, ring) = follower.reserved.take()?;
        let waiting = core::mem::take(&mut follower.undecided);
        let Some(key) = self.collectives.multicast.names.as_ref().map(|names| names.key(&name)) else {
            self.release_ring(ring);
            return None;
        };
        let (limits, mode) = (self.stream_limits(&name), self.collectives.multicast.acks.mode());
        let mut stream = GroupStream::new(&name, key, members, (&limits, mode), ring);
        stream.machine.begin(member, start);
        self.collectives.multicast.attach_counters.attached += 1;
        let i = self.collectives.multicast.add(now, name, Some(stream));
        if let Some(RootedStream { part: Part::Member { undecided, has_reported, .. }, .. }) =
            self.collectives.multicast.streams.get_mut(i)
        {
            (*undecided, *has_reported) = (waiting, true);
        }
        Some(())
    }

    /// Queues the list of attached ranks, if it has changed, between two messages of this root. Returns whether it did.
    pub(super) fn queue_attached_list(&mut self, i: usize) -> bool {
        let Self { collectives, transport, .. } = self;
        let CollectiveTable { multicast, active, contexts, .. } = collectives;
        let Some(RootedStream {
            name, part: Part::Root { sends, next: 0, attached, .. }, stream: Some(stream), ..
        }) = multicast.streams.get_mut(i)
        else {
            return false;
        };
        let known = contexts.get(name.context).filter(|known| known.failed.is_none());
        let Some(known) = known.filter(|_| stream.has_room()) else { return false };
        let number = |place: u32| Member(name.members.size().saturating_add(place));
        let is_deaf = |rank: &Member| attached.place(*rank).is_some_and(|place| stream.machine.is_deaf(number(place)));
        // A deaf rank gets calls from its leader again.
        let deaf = attached.ranks().find(is_deaf);
        deaf.into_iter().for_each(|rank| attached.detach(rank));
        if !attached.has_list() {
            return false;
        }
        // The calls that are queued after the list are not sent yet.
        let last = match sends.front() {
            Some(call) => {
                let running = active.get(*call as usize).and_then(Option::as_ref);
                running.map(|running| running.executor.id().sequence.wrapping_sub(1))
            }
            None => Some(known.started.last.id.sequence),
        };
        let Some(list) = last.and_then(|last| attached.poll_list(last)) else { return false };
        let bytes = attached::encode(&list);
        let Ok(place) = stream.machine.enqueue(0, bytes.len() as u32) else { return false };
        tracing::debug!(context = name.context, ?list, "attached ranks");
        if let Some(to) = transport.regions.get_mut().address(place) {
            // SAFETY: a place of the ring that the stream has just given to this segment.
            unsafe { to.write(&bytes) };
        }
        true
    }

    /// Reads the list of attached ranks that a message is. `None`: it is malformed.
    pub(super) fn read_attached_list(&mut self, ranks: Bytes, delivery: &Delivery) -> Option<PeerList> {
        let mut bytes = vec![0; ranks.bytes as usize];
        if !bytes.is_empty() {
            let from = self.transport.regions.get_mut().address(ranks)?;
            // SAFETY: a place of the ring, whose segment has arrived.
            unsafe { from.read(&mut bytes) };
        }
        attached::parse(&bytes).filter(|_| delivery.is_last)
    }

    /// Whether a call that a stream carries is this rank's, which is no leader.
    pub(super) fn takes(&self, context: u32, caller: Member, sequence: u32) -> bool {
        let mut followers = self.collectives.multicast.followers.iter();
        let follower = followers.find(|follower| (follower.context, follower.caller) == (context, caller));
        follower.is_some_and(|follower| follower.attachment.takes(sequence))
    }

    /// A list has arrived at a rank that is no leader: its leader forwards the calls that it does not get by multicast,
    /// and it leaves the stream if the list does not name it.
    pub(super) fn handle_attached_list(&mut self, i: usize, list: &PeerList) {
        let Some(of) = self.collectives.multicast.streams.get(i).filter(|of| of.is_attached()) else { return };
        let (context, caller, own) = (of.name.context, of.name.caller, Member(self.rank.0));
        let Some(follower) = self.follower(context, caller) else { return };
        let change = follower.attachment.handle_list(own, list);
        let attachment = follower.attachment;
        let CollectiveTable { multicast, active, .. } = &mut self.collectives;
        let Some(RootedStream { part: Part::Member { undecided, .. }, .. }) = multicast.streams.get_mut(i) else {
            return;
        };
        let is_forwarded = |collective: &mut u32| {
            let running = active.get(*collective as usize).and_then(Option::as_ref);
            running.is_none_or(|running| attachment.source(running.executor.id().sequence) == DataSource::Leader)
        };
        let forwarded: Vec<u32> = undecided.extract_if(.., is_forwarded).collect();
        for collective in forwarded {
            self.leave_to_leader(collective);
        }
        if change == AttachmentChange::Leave {
            self.leave_stream(i);
        }
    }

    /// The leader of this rank forwards a call.
    fn leave_to_leader(&mut self, collective: u32) {
        let running = self.collectives.get_mut(collective);
        if let Some(call) = running.and_then(|running| running.executor.multicast_mut()) {
            call.is_attached = false;
        }
        self.collectives.schedule_undecided(collective);
    }

    /// Takes no more part in a stream of which this rank is no leader.
    pub(super) fn leave_stream(&mut self, i: usize) {
        if !self.collectives.multicast.streams.get(i).is_some_and(RootedStream::is_attached) {
            return;
        }
        let of = self.collectives.multicast.remove(i);
        self.collectives.multicast.attach_counters.detached += 1;
        // Another stream has its index now.
        self.collectives.multicast.has_work = true;
        let (context, caller) = (of.name.context, of.name.caller);
        let threshold = self.collectives.multicast.attach_threshold.unwrap_or(u32::MAX);
        if let Some(follower) = self.follower(context, caller) {
            follower.attachment.end();
            follower.begin_anew(threshold);
        }
        self.drop_stream(of);
        self.leave_unused(context);
    }
}
