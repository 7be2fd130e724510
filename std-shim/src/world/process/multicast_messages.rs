//! Broadcasts by multicast: how calls and streams exchange their bytes.
//!
//! Until the root has tested the group, its calls wait, or it notifies the members of each that a schedule executes it,
//! as the policy says; once the test has failed, or multicasts do not reach a member any more, of all calls at once. A
//! member does nothing in a call before it receives that, or the call's first segment: no rank guesses.

use unisono_core::collective::FailureCause;
use unisono_core::device::{Device as _, DeviceQueue, Memory as _, Token as _};
use unisono_core::ids::Rank as Member;
use unisono_core::multicast::{BroadcastPath, Delivery};
use unisono_core::span::{Region, Span as Bytes};

use super::{POLL_BUDGET, Process};
use crate::world::collective::engine::attached::{self, PeerList};
use crate::world::collective::engine::group_message::GroupBody;
use crate::world::collective::engine::multicast_call::MulticastStage;
use crate::world::collective::engine::progress_table::CollectiveTable;
use crate::world::collective::engine::rooted_stream::{GroupStream, Part, RootedStream};
use unisono_bootstrap::Rank;

/// Bytes before a message's data: the call's context and number, little-endian.
const CALL_HEADER: u32 = 8;

/// What a member does with the next message of a stream.
enum Matched {
    /// It is this call's.
    Call(u32),
    /// It is of a call that was not started here.
    Wait,
    /// It is of no call here.
    Nobody,
    /// It lists attached ranks.
    List(PeerList),
    /// The root makes another call.
    Disagrees,
}

impl Process {
    /// Decides how a call that was started is executed, or waits until its root has decided. Returns false if the
    /// context has failed.
    pub(super) fn enter_multicast(&mut self, now: u64, collective: u32) -> bool {
        let Some(running) = self.collectives.get_mut(collective) else { return false };
        let (context, sequence) = (running.executor.id().context, running.executor.id().sequence);
        let Some(call) = running.executor.multicast_mut().filter(|call| call.stage == MulticastStage::Started) else {
            return true;
        };
        let (root, is_root) = (call.root(), call.is_root());
        if !call.uses_stream() {
            self.enter_as_follower(now, collective, root);
            return true;
        }
        call.stage = MulticastStage::Undecided;
        let Some(i) = self.open_stream(now, context, root) else { return false };
        let CollectiveTable { multicast, active, .. } = &mut self.collectives;
        multicast.has_work = true;
        let policy = multicast.groups.policy();
        let Some(of) = multicast.streams.get_mut(i) else { return false };
        let call = active.get_mut(collective as usize).and_then(Option::as_mut);
        let Some(call) = call.and_then(|running| running.executor.multicast_mut()) else { return false };
        let is_deaf = of.is_deaf();
        match &mut of.part {
            Part::Root { deferred, .. } if is_deaf => deferred.push(collective),
            Part::Root { test, has_reported, untested, .. } => match policy.path(test.state()) {
                BroadcastPath::Multicast => self.send_by_multicast(i, collective),
                BroadcastPath::Wait => {
                    untested.push(collective);
                    if untested.len() == 1 {
                        // No earlier call waits: the members only learn that they are to join.
                        self.notify_members(i, GroupBody::Scheduled(sequence.wrapping_sub(1)));
                    }
                }
                BroadcastPath::Schedule => {
                    call.stage = MulticastStage::Scheduled;
                    if !*has_reported {
                        self.notify_members(i, GroupBody::Scheduled(sequence));
                    }
                }
            },
            Part::Member { undecided, .. } => undecided.push(collective),
        }
        if !is_root {
            if self.collectives.multicast.attach_threshold.is_some() {
                // What has arrived before this rank entered its call counts as early.
                self.receive_arrivals();
            }
            self.notify_root(i);
            self.decide(i);
            // What a rank has sent stands, even if it takes no more part.
            while self.deliver_segment(now, i) {}
            self.report_lateness(collective);
        }
        let departed = self.departed_partner(i, context);
        let call = self.collectives.get_mut(collective).and_then(|running| running.executor.multicast_mut());
        if let (Some(gone), Some(call)) = (departed, call)
            && !call.is_scheduled()
        {
            call.abort(gone, FailureCause::Missing);
        }
        true
    }

    /// Queues the segments of a call of this root.
    pub(super) fn send_by_multicast(&mut self, i: usize, collective: u32) {
        let CollectiveTable { multicast, active, .. } = &mut self.collectives;
        let running = active.get_mut(collective as usize).and_then(Option::as_mut);
        if let Some(call) = running.and_then(|running| running.executor.multicast_mut())
            && let Some(RootedStream { part: Part::Root { sends, .. }, .. }) = multicast.streams.get_mut(i)
        {
            call.stage = MulticastStage::Sending;
            sends.push_back(collective);
        }
    }

    /// Hands calls to their schedules, if the root has notified this rank that schedules execute them.
    pub(super) fn decide(&mut self, i: usize) {
        let CollectiveTable { multicast, active, .. } = &mut self.collectives;
        let Some(RootedStream { part: Part::Member { scheduled, is_always_scheduled, undecided, .. }, .. }) =
            multicast.streams.get_mut(i)
        else {
            return;
        };
        let is_scheduled = |collective: &mut u32| {
            let running = active.get(*collective as usize).and_then(Option::as_ref);
            let until = |last: u32, number: u32| last.wrapping_sub(number).cast_signed() >= 0;
            running.is_none_or(|running| {
                *is_always_scheduled || scheduled.is_some_and(|last| until(last, running.executor.id().sequence))
            })
        };
        let decided: Vec<u32> = undecided.extract_if(.., is_scheduled).collect();
        for collective in decided {
            self.collectives.schedule_undecided(collective);
        }
    }

    /// Hands what has arrived to calls, queues what calls send, and transmits.
    pub(super) fn progress_multicast(&mut self, now: u64) {
        self.collectives.multicast.has_work = false;
        self.progress_pool(now);
        self.drop_followers();
        for (from, message) in core::mem::take(&mut self.collectives.multicast.arrivals) {
            self.handle_group_message(now, from, message);
        }
        for i in 0..self.collectives.multicast.streams.len() {
            self.advance_test(now, i);
            self.decide_untested(i);
            while self.queue_attached_list(i) || self.queue_segment(i) {}
            while self.deliver_segment(now, i) {}
            self.transmit_stream(now, i);
            self.abandon_deaf_group(i);
            // Where no member is left, nothing has to be sent.
            self.collectives.multicast.has_work |= self.queue_segment(i);
        }
        while let Some(of) = self.collectives.multicast.take_stale() {
            self.drop_stream(of);
        }
        let multicast = &mut self.collectives.multicast;
        multicast.deadline = multicast.poll_timeout();
    }

    /// Copies the next segment of the first call into the ring. Returns whether there was one, and room for it.
    fn queue_segment(&mut self, i: usize) -> bool {
        let Self { collectives, transport, .. } = self;
        let CollectiveTable { multicast, active, .. } = collectives;
        let Some(RootedStream { part: Part::Root { sends, next, .. }, stream: Some(stream), .. }) =
            multicast.streams.get_mut(i)
        else {
            return false;
        };
        let Some(&collective) = sends.front() else { return false };
        let running = active.get_mut(collective as usize).and_then(Option::as_mut);
        let Some(running) = running else {
            sends.pop_front();
            return true;
        };
        if !stream.has_room() {
            return false;
        }
        let data = running.executor.plan().bytes() as u32;
        let bytes = data.saturating_add(CALL_HEADER);
        let Ok(place) = stream.machine.enqueue(*next, bytes) else { return false };
        let at = next.saturating_mul(stream.segment_bytes);
        let (header, rest) = split(place, *next);
        let regions = transport.regions.get_mut();
        if let Some(to) = header.and_then(|header| regions.address(header)) {
            let [a, b, c, d] = running.context.to_le_bytes();
            let [e, f, g, h] = running.executor.id().sequence.to_le_bytes();
            // SAFETY: a place of the ring that the stream has just given to this segment.
            unsafe { to.write(&[a, b, c, d, e, f, g, h]) };
        }
        let from = part_of(running.input, at, rest);
        if let Some((from, to)) = regions.address(from).zip(regions.address(rest)).filter(|_| rest.bytes > 0) {
            // SAFETY: the user's buffer is borrowed by this call, during which nobody writes it; the place is this
            // segment's.
            unsafe { to.copy_from(from) };
        }
        *next = next.saturating_add(1);
        if at.saturating_add(place.bytes) >= bytes {
            *next = 0;
            sends.pop_front();
            if let Some(call) = running.executor.multicast_mut() {
                call.end_stream();
            }
            collectives.enqueue(collective);
        }
        true
    }

    /// Copies the next segment that has arrived into its call's buffer. Returns whether there was one, and its call was
    /// started.
    pub(super) fn deliver_segment(&mut self, now: u64, i: usize) -> bool {
        let Some(of) = self.collectives.multicast.streams.get(i) else { return false };
        let (Part::Member { receives, discards, .. }, Some(stream)) = (&of.part, &of.stream) else { return false };
        let Some(delivery) = stream.machine.peek_delivery() else { return false };
        let (context, root) = (of.name.context, of.peer(of.name.root));
        let (mut call, mut discards) = (*receives, *discards);
        let mut list = None;
        // The first segments of a rank that has just been attached may be the rest of a message.
        discards |= call.is_none() && delivery.index > 0 && of.is_attached();
        if call.is_none() && !discards {
            match self.match_message(i, &delivery) {
                Matched::Call(collective) => call = Some(collective),
                Matched::Wait => return false,
                Matched::Nobody => discards = true,
                Matched::List(ranks) => (discards, list) = (true, Some(ranks)),
                Matched::Disagrees => {
                    discards = true;
                    if let Some(root) = root {
                        self.collectives.report_fault(root, context, FailureCause::Disagrees);
                    }
                }
            }
        }
        let is_whole = call.is_none_or(|collective| self.store_segment(i, collective, &delivery));
        let ended = delivery.is_last;
        let CollectiveTable { multicast, .. } = &mut self.collectives;
        if let Some(RootedStream {
            part: Part::Member { receives, discards: is_rest, .. }, stream: Some(stream), ..
        }) = multicast.streams.get_mut(i)
        {
            stream.machine.poll_delivery();
            *receives = call.filter(|_| !ended);
            *is_rest = discards && !ended;
        }
        if let Some(list) = list {
            self.handle_attached_list(i, &list);
            return true;
        }
        let Some(collective) = call else { return true };
        if !is_whole {
            self.fail_context(now, context, FailureCause::Corrupt, root.map_or(self.rank, Rank::from));
        } else if ended {
            let running = self.collectives.get_mut(collective);
            if let Some(call) = running.and_then(|running| running.executor.multicast_mut()) {
                call.end_stream();
            }
            self.collectives.enqueue(collective);
        }
        true
    }

    /// The call of the message that begins with this segment.
    fn match_message(&mut self, i: usize, delivery: &Delivery) -> Matched {
        let (header, rest) = split(delivery.payload, delivery.index);
        let mut bytes = [0; CALL_HEADER as usize];
        let from = header.and_then(|header| self.transport.regions.get_mut().address(header));
        let Some(from) = from.filter(|from| from.bytes() == bytes.len()) else { return Matched::Disagrees };
        // SAFETY: a place of the ring, whose segment has arrived.
        unsafe { from.read(&mut bytes) };
        let [a, b, c, d, number @ ..] = bytes;
        let (key, sequence) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(number));
        let list = attached::is_list(key).then(|| self.read_attached_list(rest, delivery));
        let of = self.collectives.multicast.streams.get(i).map(|of| (of.is_attached(), &of.name));
        let is_foreign =
            of.is_some_and(|(is_attached, name)| is_attached && !self.takes(name.context, name.caller, sequence));
        let CollectiveTable { multicast, active, contexts, .. } = &mut self.collectives;
        let Some(of) = multicast.streams.get_mut(i) else { return Matched::Nobody };
        let Part::Member { undecided, attached, .. } = &mut of.part else { return Matched::Nobody };
        let known = contexts.get(of.name.context).filter(|known| known.failed.is_none() && !of.is_stale);
        let Some(known) = known else { return Matched::Nobody };
        if let Some(list) = list {
            let Some(list) = list else { return Matched::Disagrees };
            *attached = list;
            return Matched::List(list);
        }
        if is_foreign {
            return Matched::Nobody;
        }
        if !known.started.has_started(sequence) {
            return if self.collectives.is_finished { Matched::Nobody } else { Matched::Wait };
        }
        let place = undecided.iter().position(|collective| {
            let running = active.get(*collective as usize).and_then(Option::as_ref);
            running.is_some_and(|running| running.executor.id().sequence == sequence && running.context == key)
        });
        let Some(place) = place else { return Matched::Disagrees };
        let collective = undecided.remove(place);
        let running = active.get_mut(collective as usize).and_then(Option::as_mut);
        if let Some(call) = running.and_then(|running| running.executor.multicast_mut()) {
            call.stage = MulticastStage::Receiving;
            let of_call = attached.ranks().filter(|one| attached.contains(one.rank, sequence));
            let number = |rank: Member| Some(Member(known.members.number(Rank(rank.0))?.0));
            call.attached = of_call.filter_map(|one| number(one.rank)).collect();
        }
        Matched::Call(collective)
    }

    /// Copies a segment into the buffer of its call. Returns false if the message is not as long as the buffer.
    fn store_segment(&mut self, i: usize, collective: u32, delivery: &Delivery) -> bool {
        let Self { collectives, transport, .. } = self;
        let segment_bytes = collectives.multicast.streams.get(i).and_then(|of| Some(of.stream.as_ref()?.segment_bytes));
        let Some(running) = collectives.get_mut(collective) else { return true };
        let data = running.executor.plan().bytes() as u32;
        if delivery.bytes != data.saturating_add(CALL_HEADER) {
            return false;
        }
        let at = delivery.index.saturating_mul(segment_bytes.unwrap_or(0));
        let (_, rest) = split(delivery.payload, delivery.index);
        let (regions, to) = (transport.regions.get_mut(), part_of(running.output, at, rest));
        if let Some((from, to)) = regions.address(rest).zip(regions.address(to)).filter(|_| rest.bytes > 0) {
            // SAFETY: the user's buffer is borrowed by this call, and nobody else uses it; the place of the ring holds a
            // segment until it is delivered.
            unsafe { to.copy_from(from) };
        }
        true
    }

    /// Handles a stream's timer, and transmits what it sends.
    fn transmit_stream(&mut self, now: u64, i: usize) {
        let Self { collectives, transport, datagrams, .. } = self;
        let stream = collectives.multicast.streams.get_mut(i).and_then(|of| of.stream.as_mut());
        let Some(GroupStream { machine: stream, .. }) = stream else { return };
        if stream.poll_timeout().is_some_and(|at| now >= at) {
            stream.handle_timeout(now);
        }
        let (regions, queue) = (transport.regions.get_mut(), DeviceQueue::Polled);
        let mut posted = 0;
        while let Some(mut token) = datagrams.device.token(queue) {
            let Some(transmit) = stream.poll_transmit(now, token.header_room()) else { break };
            token
                .post(&transmit, transmit.payload.filter(|span| span.bytes > 0).and_then(|span| regions.address(span)));
            posted += 1;
            if posted % POLL_BUDGET == 0 {
                datagrams.device.flush(queue);
            }
        }
        if posted > 0 {
            datagrams.device.flush(queue);
        }
    }
}

/// The header of a message and the data after it in a segment's place.
fn split(place: Bytes, index: u32) -> (Option<Bytes>, Bytes) {
    if index > 0 {
        return (None, place);
    }
    let header = Bytes { bytes: place.bytes.min(CALL_HEADER), ..place };
    let rest = Bytes {
        offset: place.offset.saturating_add(header.bytes as usize),
        bytes: place.bytes.saturating_sub(header.bytes),
        ..place
    };
    (Some(header), rest)
}

/// The bytes of a user's buffer that the data of the segment at byte `at` of its message is from or for.
const fn part_of(buffer: Region, at: u32, data: Bytes) -> Bytes {
    Bytes { region: buffer, offset: at.saturating_sub(CALL_HEADER) as usize, bytes: data.bytes }
}
