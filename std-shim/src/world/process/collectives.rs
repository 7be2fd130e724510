//! Collectives over messages: starting them, advancing their schedules, and ending them with a result or a failure.

use core::ptr::NonNull;

use unisono_core::collective::{CollectiveSpec, FailureCause, Poll};
use unisono_core::ids::{CollectiveId, PeerId, Rank as Member};
use unisono_core::messenger::Class;
use unisono_shmem::slot_collectives::CallRecord;
use unisono_shmem::slot_collectives::data_executor::NoReduction;

use super::Process;
use super::shutdown::ASK_AFTER;
use crate::world::collective::engine::active_collective::{ActiveCollective, CollectiveStart, Outcome, Reducer};
use crate::world::collective::engine::context::{ALL_CONTEXTS, RetiredPeer};
use crate::world::collective::engine::machine::Machine;
use crate::world::collective::engine::progress_table::{PeerFault, StatusEvent};
use crate::world::collective::engine::rdma_all_to_all::RdmaAllToAll;
use crate::world::collective::engine::schedule::{Groups, layout, mix};
use crate::world::collective::engine::status::StatusMessage;
use crate::world::collective::error::CollectiveError;
use crate::world::collective::partition::Shape;
use crate::world::collective::record::CollectiveRecord;
use crate::world::request::Failure;
use unisono_bootstrap::Rank;
use unisono_memory::user_buffer::UserBuffer;

impl Process {
    /// Prepares a collective, to be [started](Self::start_collective) once or repeatedly, and returns its index in the
    /// table. Takes `combine` on success; on failure leaves it to the caller, which drops it outside the lock.
    ///
    /// # Safety
    /// The buffers, which may be one, are as long as their layouts in `shape`, and stay valid until the collective has ended, or is
    /// [released](Self::release_collective) if it is kept; so does what `combine` borrows. While it is under way the
    /// first is not written but as the second, which nobody else uses.
    pub(in crate::world) unsafe fn prepare_collective(
        &mut self,
        (context, is_kept): (u32, bool),
        plan: &CollectiveSpec,
        shape: Shape,
        (input, inward): (NonNull<u8>, usize),
        (output, outward): (NonNull<u8>, usize),
        combine: &mut Option<Reducer>,
    ) -> Result<u32, CollectiveError> {
        self.may_begin(context)?;
        let of = self.collectives.contexts.get(context).ok_or(CollectiveError::Ended(Failure::Finished))?;
        let (generation, [remote, intra_node]) = (of.generation, &mut self.collectives.schedules);
        let choices = if of.is_intra_node { intra_node } else { remote };
        let groups = Groups { subgroups: of.subgroups.as_ref(), levels: of.lanes.levels(plan) };
        let prepared = choices.schedule(plan, shape.tables.is_some(), groups)?;
        let (schedule, digest) = (prepared.schedule(), prepared.digest());
        // With blocks of different lengths, this rank may be the only one that knows the one that is too long.
        let Ok(layout) = layout(plan, schedule, &shape) else { return Err(self.fail_locally(context)) };
        // SAFETY: the caller promises that both buffers stay valid until the collective has ended or is released, which
        // revokes the regions, and how they are used until then.
        let lent = unsafe {
            let buffer = |start, bytes, layout: &Option<_>| UserBuffer::with(start, bytes, layout.as_ref());
            let input = buffer(input, inward, &shape.layouts.input);
            self.transport.regions.get_mut().register_both(input, buffer(output, outward, &shape.layouts.output))
        };
        let Ok([input, output]) = lent else { return Err(self.fail_locally(context)) };
        let scratch = match layout.scratch_bytes(schedule.scratch_blocks()) {
            0 => Some(None),
            bytes => self.collectives.scratch.allocate(bytes, self.transport.regions.get_mut()).map(Some),
        };
        let Some(scratch) = scratch else {
            [input, output].into_iter().for_each(|lent| self.unregister(lent));
            return Err(self.fail_locally(context));
        };
        let id = CollectiveId { context, sequence: 0 };
        Ok(self.collectives.insert(ActiveCollective {
            executor: Machine::new(id, prepared),
            layout,
            _tables: shape.tables,
            input,
            output,
            scratch,
            reducer: combine.take().unwrap_or_else(|| Box::new(NoReduction)),
            context: id.context << 16 | mix(digest, generation) >> 16,
            start: CollectiveStart::default(),
            is_queued: false,
            exchange: None,
            call_record: None,
            is_persistent: is_kept,
            ended: Some(Ok(())),
            panic: None,
        }))
    }

    /// This rank cannot start a collective that others may have started: the context fails, and they are notified.
    pub(super) fn fail_locally(&mut self, context: u32) -> CollectiveError {
        self.fail_with(context, CollectiveError::TooLong);
        CollectiveError::TooLong
    }

    /// Starts a prepared collective that is not under way, the user's `call`th of its communicator, and transmits its
    /// first messages.
    pub(in crate::world) fn start_collective(&mut self, collective: u32, call: u32) -> Result<(), CollectiveError> {
        let running = self.collectives.active.get(collective as usize).and_then(Option::as_ref);
        let context = running.map_or(ALL_CONTEXTS, |running| running.executor.id().context);
        self.may_begin(context)?;
        let now = self.now();
        self.collectives.start(now, collective, call);
        self.start_exchange(now, collective);
        self.poll_collectives();
        Ok(())
    }

    /// The number, among the user's calls, and the record of a communicator's last collective over messages.
    pub(in crate::world) fn last_record(&self, context: u32) -> Option<(u32, CollectiveRecord)> {
        self.collectives.contexts.get(context)?.started.last_record
    }

    /// Sets what [`last_record`](Self::last_record) returns.
    pub(in crate::world) fn set_last_record(&mut self, context: u32, record: Option<(u32, CollectiveRecord)>) {
        if let Some(of) = self.collectives.contexts.get_mut(context) {
            of.started.last_record = record;
        }
    }

    /// Records the call that this rank published in the collective area for members that expect another transport.
    pub(in crate::world) fn record_call(&mut self, collective: u32, passed: Option<CallRecord>) {
        if let Some(running) = self.collectives.get_mut(collective) {
            running.call_record = passed;
        }
    }

    /// Compares late collectives with the calls that other members published in shared memory, and reports members that
    /// call something else.
    pub(super) fn detect_divergence(&mut self, now: u64) {
        let Some(segment) = self.transport.shm.as_ref().map(|shm| shm.node.segment()) else { return };
        let running = self.collectives.active.iter().flatten();
        let late = running.filter(|running| running.ended.is_none() && now.wrapping_sub(running.start.at) >= ASK_AFTER);
        let others: Vec<(u32, Rank)> = late
            .filter_map(|running| {
                let (passed, context) = (running.call_record?, running.executor.id().context);
                let of = self.collectives.contexts.get(context)?;
                let own = of.members.number(self.rank)?;
                let other = passed.contradicting_rank(segment, of.areas.as_ref()?, Member(own.0))?;
                Some((context, of.members.world_rank(Rank(other.0))?))
            })
            .collect();
        for (context, rank) in others {
            self.collectives.report_fault(rank.into(), context, FailureCause::Disagrees);
        }
    }

    /// Whether a collective may start on this context.
    pub(in crate::world) fn may_begin(&self, context: u32) -> Result<(), CollectiveError> {
        match self.aborted {
            Some(failure) => Err(CollectiveError::Ended(failure)),
            None => self.collectives.contexts.get(context).and_then(|of| of.failed).map_or(Ok(()), Err),
        }
    }

    /// Releases a persistent collective that is not under way. Returns what is left of it, to be dropped outside the
    /// lock.
    pub(in crate::world) fn release_collective(&mut self, collective: u32) -> Option<Outcome> {
        let place = self.collectives.active.get_mut(collective as usize)?;
        let is_idle = |running: &mut ActiveCollective| running.is_persistent && running.ended.is_some();
        let ActiveCollective { input, output, scratch, reducer: combine, panic, mut executor, .. } =
            place.take_if(is_idle)?;
        let context = executor.id().context;
        if let Some(opened) = executor.rdma_mut().map(RdmaAllToAll::close) {
            self.close_outputs(context, opened);
        }
        [input, output].into_iter().for_each(|region| self.unregister(region));
        if let Some(block) = scratch {
            self.collectives.scratch.release(block, self.transport.regions.get_mut());
        }
        Some(Outcome { result: Ok(()), panic, _combine: Some(combine) })
    }

    /// Returns whether and how a collective has ended, and frees its index unless it ended well and is persistent.
    pub(in crate::world) fn outcome(&mut self, collective: u32) -> Option<Outcome> {
        let now = self.transport.now;
        let place = self.collectives.active.get_mut(collective as usize)?;
        if let Some(running) = place.as_mut().filter(|running| running.ended.is_none()) {
            running.start.waited_since.get_or_insert(now);
        }
        if let Some(running) = place.as_mut().filter(|running| running.is_persistent) {
            return running.ended.map(|result| Outcome { result, panic: None, _combine: None });
        }
        let ActiveCollective { ended, panic, reducer: combine, .. } =
            place.take_if(|running| running.ended.is_some())?;
        Some(Outcome { result: ended?, panic, _combine: Some(combine) })
    }

    /// Returns whether and how a collective has ended; it stays in the table.
    pub(in crate::world) fn peek_outcome(&mut self, collective: u32) -> Option<Result<(), CollectiveError>> {
        self.collectives.get_mut(collective)?.ended
    }

    /// Whether a collective has ended.
    pub(in crate::world) fn has_ended(&self, collective: u32) -> bool {
        let running = self.collectives.active.get(collective as usize).and_then(Option::as_ref);
        running.is_none_or(|running| running.ended.is_some())
    }

    /// Advances the collectives that have work. Returns whether anything moved.
    #[inline]
    pub(in crate::world) fn progress_collectives(&mut self, now: u64) -> bool {
        let collectives = &self.collectives;
        if !self.has_collective_work() && !collectives.trees.is_due(now) && !collectives.multicast.is_due(now) {
            return false;
        }
        self.advance_collectives(now)
    }

    /// Whether a collective, or a message of one, has something to do: also one that waits for room in the transport.
    #[inline]
    pub(super) fn has_collective_work(&self) -> bool {
        self.collectives.work.has_work || self.messenger.has_steps() || !self.collectives.work.lanes.is_empty()
    }

    fn advance_collectives(&mut self, now: u64) -> bool {
        let mut moved = false;
        self.collectives.work.has_work = false;
        self.handle_completions();
        if self.collectives.work.has_discardable {
            // Discards messages that arrived since for contexts that have failed.
            self.collectives.discard(&mut self.messenger);
        }
        for (collective, step, operation) in core::mem::take(&mut self.collectives.work.stalled) {
            self.start_step(now, collective, step, operation);
        }
        if !self.collectives.trees.outbox.is_empty() {
            self.flush_trees();
        }
        self.answer_questions(now);
        loop {
            if let Some((asker, context)) = self.collectives.status.requests.pop() {
                self.handle_ask(asker, context);
            } else if let Some(context) = self.collectives.exhausted.pop() {
                self.fail_locally(context);
            } else if let Some(blame) = self.collectives.faults.pop() {
                self.handle_fault(now, blame);
            } else if let Some(event) = self.messenger.poll_class_event(Class::Collective) {
                self.handle_messenger_event(now, event);
            } else if let Some(collective) = self.collectives.work.ready.pop_front() {
                self.advance(now, collective);
            } else if self.collectives.trees.is_due(now) {
                // Before what reports that a rank takes no more part: it was sent after these messages.
                self.progress_trees(now);
            } else if self.collectives.multicast.is_due(now) {
                self.progress_multicast(now);
            } else if let Some(leaving) = self.collectives.status.events.pop_front() {
                self.handle_status(now, leaving);
            } else if self.progress_lanes(now) {
                // A step of a group is complete, or a collective has failed.
            } else {
                break;
            }
            moved = true;
        }
        moved | self.progress_messenger()
    }

    /// Advances a collective until it must wait or has ended.
    fn advance(&mut self, now: u64, collective: u32) {
        loop {
            let Some(running) = self.collectives.get_mut(collective) else { return };
            running.is_queued = false;
            if running.ended.is_some() {
                return;
            }
            let has_entered = match running.executor {
                Machine::Schedule(_) => {
                    // A member may have failed that the leaders' tree waits for.
                    self.collectives.trees.has_work |= running.executor.plan().leaders_tree().is_some();
                    true
                }
                Machine::Tree(_) => self.enter_tree(collective),
                Machine::Multicast(_) => self.enter_multicast(now, collective),
                Machine::Rdma(_) => self.write_blocks(now, collective),
            };
            if !has_entered {
                return;
            }
            let Some(running) = self.collectives.get_mut(collective) else { return };
            let turn = running.advance(self.transport.regions.get_mut());
            let context = running.executor.id().context;
            if running.panic.is_some() {
                return self.fail_context(now, context, FailureCause::Missing, self.rank);
            }
            match turn {
                Ok(Poll::Request(step, operation)) => self.start_step(now, collective, step, operation),
                Ok(Poll::Pending) => return,
                Ok(Poll::Complete) => return self.end_collective(collective, Ok(())),
                Ok(Poll::Failed(failure)) => {
                    let of = self.collectives.contexts.get(context);
                    let rank = of
                        .and_then(|of| Some(of.cause(of.members.world_rank(Rank(failure.rank.0))?.into(), self.rank)));
                    return self.fail_context(now, context, failure.cause, rank.unwrap_or(self.rank));
                }
                Err(_) => return self.fail_context(now, context, FailureCause::Corrupt, self.rank),
            }
        }
    }

    /// Ends a collective and unregisters its buffers.
    fn end_collective(&mut self, collective: u32, result: Result<(), CollectiveError>) {
        let Some(running) = self.collectives.get_mut(collective) else { return };
        if running.ended.is_some() {
            return;
        }
        running.ended = Some(result);
        if running.executor.tree().is_some() || running.executor.plan().leaders_tree().is_some() {
            self.collectives.trees.forget(collective);
        } else if running.executor.multicast().is_some() {
            self.collectives.multicast.forget(collective);
        }
        let Some(running) = self.collectives.get_mut(collective) else { return };
        if running.is_persistent && result.is_ok() {
            return self.requests.record_finished();
        }
        running.is_persistent = false;
        let exchange = running.exchange.take();
        let context = running.executor.id().context;
        if let Some(opened) = running.executor.rdma_mut().map(RdmaAllToAll::close) {
            self.close_outputs(context, opened);
        }
        let is_writing = result.is_err() && self.is_writing(collective);
        let Some(running) = self.collectives.get_mut(collective) else { return };
        let (input, output, scratch) = (running.input, running.output, running.scratch.take());
        let regions = self.transport.regions.get_mut();
        let messenger = &self.messenger;
        for region in [input, output] {
            self.datagrams.device.wait_for_completions(regions, region);
            // Only a failed collective can still have a message in transmission.
            if is_writing && region == input || result.is_err() && messenger.is_sending_from(region) {
                regions.detach(region);
            } else {
                regions.revoke(region);
            }
        }
        match scratch {
            Some(block) if result.is_ok() => self.collectives.scratch.release(block, regions),
            Some(block) if !messenger.is_sending_from(block.region) => self.collectives.scratch.discard(block, regions),
            Some(_) | None => {}
        }
        if let Some(exchange) = exchange {
            // Nobody asks how it ends.
            self.collectives.active.get_mut(collective as usize).map(Option::take);
            return self.end_exchange(exchange, result.is_ok());
        }
        self.requests.record_collective(result.is_err());
    }

    fn handle_fault(&mut self, now: u64, blame: PeerFault) {
        let rank = Rank::from(blame.peer);
        if blame.context == ALL_CONTEXTS {
            for context in self.collectives.contexts.all() {
                self.fail_context(now, context, blame.cause, rank);
            }
        } else if self.collectives.contexts.get(blame.context).is_some() {
            self.fail_context(now, blame.context, blame.cause, rank);
        }
    }

    fn handle_status(&mut self, now: u64, leaving: StatusEvent) {
        match leaving {
            StatusEvent::Failed(peer) => {
                self.follow_leaders_without(peer);
                self.collectives.disconnect(now, peer);
                self.messenger.disconnect_steps(&mut self.transport, peer);
                self.answer_status_waiters(now);
            }
            StatusEvent::Retired { gone, context: ALL_CONTEXTS } => {
                self.follow_leaders_without(gone.peer);
                for context in self.collectives.contexts.all() {
                    if self.retire_peer(gone, context) {
                        self.fail_missing(now, gone.peer, context);
                    }
                }
            }
            StatusEvent::Retired { gone, context } => {
                if self.retire_peer(gone, context) {
                    self.fail_missing(now, gone.peer, context);
                }
            }
            StatusEvent::Revoked { from, context } => {
                if self.collectives.contexts.handle_revoked(from.into(), context) {
                    self.revoke_context(now, context);
                }
            }
            StatusEvent::SendsDone(peer) => self.handle_sends_done(peer),
            StatusEvent::ReceivesClosed(peer) => self.handle_receives_closed(peer),
            StatusEvent::MemberDied { from, context, generation, dead } => {
                let is_known = dead == self.rank || self.why_gone(dead).is_some();
                let of = self.collectives.contexts.get_mut(context).filter(|_| !is_known);
                if of.is_some_and(|of| of.handle_member_died(from, generation, dead)) {
                    self.answer_status_waiters(now);
                }
            }
        }
    }

    /// A rank takes no more part in a context. Returns whether a message waits for it.
    fn retire_peer(&mut self, gone: RetiredPeer, context: u32) -> bool {
        let open: Vec<u32> = self.messenger.open_sends().filter(|(to, _)| *to == gone.peer).map(|(_, i)| i).collect();
        self.collectives.retire(gone, context, &open)
    }

    /// Fails all collectives of a context, those under way and all later ones, and answers the ranks that asked for its
    /// status.
    pub(super) fn fail_context(&mut self, now: u64, context: u32, cause: FailureCause, rank: Rank) {
        self.record_cause(Some(rank));
        let Some(of) = self.collectives.contexts.get_mut(context) else { return };
        let number = of.number(rank);
        // The notification may concern a collective that has ended here.
        of.failed.get_or_insert(of.started.last.failure(number, cause).into());
        of.close_areas();
        self.end_collectives_of(context, |running| running.name().failure(number, cause).into());
        self.retire(now, context, if cause == FailureCause::Missing { rank } else { self.rank });
    }

    /// As [`fail_context`](Self::fail_context), with the error of a collective that did not use messages.
    pub(in crate::world) fn fail_with(&mut self, context: u32, error: CollectiveError) {
        let now = self.now();
        let Some(of) = self.collectives.contexts.get_mut(context) else { return };
        let error = *of.failed.insert(of.failed.filter(|failed| !failed.is_unnumbered()).unwrap_or(error));
        of.close_areas();
        let (cause, named) = match error {
            CollectiveError::Missing { rank, .. } => {
                let rank = of.members.world_rank(rank);
                (rank, rank)
            }
            CollectiveError::Corrupt { rank, .. } | CollectiveError::Disagrees { rank, .. } => {
                (None, of.members.world_rank(rank))
            }
            _ => (None, None),
        };
        self.record_cause(named);
        self.end_collectives_of(context, |_| error);
        self.retire(now, context, cause.unwrap_or(self.rank));
    }

    /// A context fails because a rank will not do its part.
    pub(super) fn fail_missing(&mut self, now: u64, peer: PeerId, context: u32) {
        let rank = self.collectives.contexts.get(context).map(|of| of.cause(peer, self.rank));
        self.fail_context(now, context, FailureCause::Missing, rank.unwrap_or(peer.into()));
    }

    /// Fails all collectives because the job is being aborted.
    pub(super) fn abort_collectives(&mut self, failure: Failure) {
        for context in self.collectives.contexts.all() {
            if let Some(of) = self.collectives.contexts.get_mut(context) {
                of.failed.get_or_insert(CollectiveError::Ended(failure));
                of.close_areas();
            }
            self.end_collectives_of(context, |_| CollectiveError::Ended(failure));
        }
    }

    /// Revokes a context: nothing is started on it any more, by any member, and all members are notified.
    pub(in crate::world) fn revoke_context(&mut self, now: u64, context: u32) {
        let Some(of) = self.collectives.contexts.get_mut(context).filter(|of| !of.is_revoked) else { return };
        of.is_revoked = true;
        of.close_areas();
        of.failed = Some(CollectiveError::Revoked);
        let members = of.members.clone();
        self.end_collectives_of(context, |_| CollectiveError::Revoked);
        let own = self.rank;
        for member in members.iter().filter(|member| *member != own) {
            self.send_status_message(member.into(), StatusMessage::Revoked, context, own);
        }
        // Probes of this context end, too.
        self.requests.record_finished();
        // The revocation reaches the senders before their messages are dropped.
        self.revoke_messages(context);
        self.retire(now, context, self.rank);
    }

    fn end_collectives_of(&mut self, context: u32, error: impl Fn(&ActiveCollective) -> CollectiveError) {
        for collective in 0..self.collectives.active.len() as u32 {
            let Some(running) = self.collectives.get_mut(collective) else { continue };
            if running.ended.is_some() || running.executor.id().context != context {
                continue;
            }
            let error = error(running);
            self.cancel_transfers(collective);
            self.end_collective(collective, Err(error));
        }
        self.collectives.discard(&mut self.messenger);
    }
}
