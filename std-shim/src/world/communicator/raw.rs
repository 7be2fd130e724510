//! Raw messages: point-to-point calls on memory that the caller answers for, without a scope. Other programming
//! interfaces, such as the MPI library, are built on them. A message is either the program's or internal: the two never
//! match each other, so that an interface can exchange messages of its own in any communicator.

use core::ptr::NonNull;

use unisono_core::ids::{MessageId, PeerId};
use unisono_core::message::point_to_point::Mode;
use unisono_core::message::{Context, Pattern};

use super::Communicator;
use super::create::{CreateError, ProposalBytes};
use crate::world::collective::engine::context::{CreationOrder, WORLD};
use crate::world::collective::error::CollectiveError;
use crate::world::group::Group;
use crate::world::process::Process;
use crate::world::process::cancelled_sends::SentMessage;
use crate::world::process::deferred_work::to_status;
use crate::world::process::message_table::Flush;
use crate::world::process::messages::{ReceiveTarget, SendArgs, WhenFull};
use crate::world::progress::WaitFor;
use crate::world::request::handle::RequestHandle;
use crate::world::request::{Failure, Status, Tag};
use unisono_bootstrap::Rank;
use unisono_memory::element_type::ElementType;
use unisono_memory::user_buffer::UserBuffer;

/// The bit of a message context that internal messages have. Generations of communicators count from 0 on and stay
/// below it.
const INTERNAL: u32 = 1 << 31;

/// Whose messages match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// The program's.
    User,
    /// The interface's own.
    Internal,
}

/// A started operation. It ends once: [`raw_wait`](Communicator::raw_wait), a [`raw_test`](Communicator::raw_test) that
/// returns its result, or a [`raw_cancel`](Communicator::raw_cancel) that returns true.
#[derive(Clone, Copy, Debug)]
pub struct RawRequest(RequestHandle);

/// A message that a matched probe has removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawMessage {
    id: MessageId,
    source: Rank,
}

#[doc(hidden)]
impl Communicator {
    pub(in crate::world) fn channel(&self, channel: Channel) -> Context {
        match channel {
            Channel::User => self.message_context,
            Channel::Internal => Context(self.message_context.0 ^ INTERNAL),
        }
    }

    pub(in crate::world) fn raw_pattern(
        &self,
        channel: Channel,
        source: Option<Rank>,
        tag: Option<Tag>,
    ) -> Result<Pattern, Failure> {
        Ok(Pattern { context: self.channel(channel), ..self.pattern(source, tag)? })
    }

    /// Sends the program's bytes, elements of a type, as [`send`](Self::send). The type is asked for only if it is needed.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    #[inline(always)]
    pub fn raw_send_bytes(
        &self,
        bytes: &[u8],
        element: impl FnOnce() -> ElementType,
        to: Rank,
        tag: Tag,
    ) -> Result<(), Failure> {
        let there = self.world_rank(to)?;
        if self.send_inline(bytes, there, tag) { Ok(()) } else { self.send_general(bytes, element(), there, tag) }
    }

    /// Receives the program's bytes, elements of a type, as [`receive_into`](Self::receive_into). Returns their length.
    /// The type is asked for only if it is needed.
    ///
    /// # Errors
    /// As of [`receive_into`](Self::receive_into).
    #[inline(always)]
    pub fn raw_receive_bytes(
        &self,
        into: &mut [u8],
        element: impl FnOnce() -> ElementType,
        source: Rank,
        tag: Tag,
    ) -> Result<usize, Failure> {
        let from = self.world_rank(source)?;
        match self.receive_inline(into, from, tag) {
            Some(bytes) if bytes <= into.len() => Ok(bytes),
            Some(bytes) => Err(Failure::Truncated { bytes: bytes as u64 }),
            None => self.receive_general(into, element(), Some(source), Some(tag)).map(|status| status.bytes),
        }
    }

    /// Starts a send of elements of a type. Returns what [cancels](Self::raw_cancel_send) it, and its request. `None`:
    /// the message was copied, and the memory is free.
    ///
    /// # Errors
    /// [`Failure`].
    ///
    /// # Safety
    /// The memory stays valid and unchanged until the request has ended.
    pub unsafe fn raw_send(
        &self,
        (data, element): (NonNull<[u8]>, ElementType),
        to: Rank,
        tag: Tag,
        synchronous: bool,
        channel: Channel,
    ) -> Result<(SentMessage, Option<RawRequest>), Failure> {
        let mode = if synchronous { Mode::Synchronous } else { Mode::Standard };
        let context = self.channel(channel);
        let arguments = SendArgs { context, when_full: WhenFull::Queue, ..self.send_args(to, tag, mode, Flush::Now)? };
        // SAFETY: the caller promises that the memory is valid and unchanged until the request has ended.
        let bytes = unsafe { data.as_ref() };
        let buffer = UserBuffer::plain(NonNull::from(bytes).cast(), bytes.len()).of(element);
        let (message, started) = self.start_cancellable_send(&buffer, &arguments, |_, started| started)?;
        Ok((message, started.map(RawRequest)))
    }

    /// Starts a receive.
    ///
    /// # Errors
    /// [`Failure`].
    ///
    /// # Safety
    /// The memory stays valid, and nobody else uses it, until the request has ended.
    pub unsafe fn raw_receive(
        &self,
        (into, element): (NonNull<[u8]>, ElementType),
        source: Option<Rank>,
        tag: Option<Tag>,
        channel: Channel,
    ) -> Result<RawRequest, Failure> {
        let wanted = ReceiveTarget::Pattern(self.raw_pattern(channel, source, tag)?);
        let buffer = UserBuffer::plain(into.cast(), into.len()).of(element);
        self.start_receive_buffer(buffer, wanted, |_, started| started).map(RawRequest)
    }

    /// Starts to receive a message that a matched probe has removed.
    ///
    /// # Errors
    /// [`Failure`]: then the message is gone.
    ///
    /// # Safety
    /// As for [`raw_receive`](Self::raw_receive).
    pub unsafe fn raw_receive_matched(
        &self,
        message: RawMessage,
        (into, element): (NonNull<[u8]>, ElementType),
    ) -> Result<RawRequest, Failure> {
        let source = PeerId::from(message.source);
        self.shared.lock().messages.matched_probes.retain(|(id, _)| *id != message.id);
        let buffer = UserBuffer::plain(into.cast(), into.len()).of(element);
        let started =
            self.start_receive_buffer(buffer, ReceiveTarget::Matched(message.id, source), |_, started| started);
        // No other receive can match it, and its sender may wait.
        let dropped = |_: &Failure| self.shared.with_process(|process| process.drop_message(message.id, source));
        started.inspect_err(dropped).map(RawRequest)
    }

    /// Waits for a message, or looks once for one, and removes it.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn raw_matched_probe(
        &self,
        source: Option<Rank>,
        tag: Option<Tag>,
        waits: bool,
    ) -> Result<Option<(RawMessage, Status)>, Failure> {
        let found = if waits {
            Some(self.wait_for_probe(Process::probe_matched, source, tag)?)
        } else {
            self.poll_probe(Process::probe_matched, source, tag)?
        };
        Ok(found.map(|(id, status)| {
            let status = to_status(&status);
            (RawMessage { id, source: status.source }, self.local_status(status))
        }))
    }

    /// Waits for a request.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn raw_wait(&self, request: &RawRequest) -> Result<Status, Failure> {
        self.wait(request.0)
    }

    /// Makes progress once, and returns the result of a request that has ended.
    pub fn raw_test(&self, request: &RawRequest) -> Option<Result<Status, Failure>> {
        let ended = self.shared.test(&request.0, |process| process.take_ended(&request.0))?;
        Some(self.request_result(&request.0, ended))
    }

    /// Makes progress once, and returns whether a request has ended.
    pub fn raw_is_done(&self, request: &RawRequest) -> bool {
        self.shared.is_done(&request.0)
    }

    /// Withdraws a receive that has matched no message.
    pub fn raw_cancel(&self, request: &RawRequest) -> bool {
        self.shared.lock().cancel(request.0.request, request.0.region)
    }

    /// Starts to cancel a message, whose request ends as if it had been received if it is cancelled. Whether it is, the
    /// receiver decides when it makes progress.
    pub fn raw_cancel_send(&self, message: SentMessage) {
        let mut process = self.shared.lock();
        self.shared.with_wakeup(&mut process, |process| process.cancel_send(message));
    }

    /// Whether a message was cancelled, so that no receive matches it: waits for it, or makes progress once. `None`: the
    /// receiver has not decided.
    pub fn raw_cancel_result(&self, message: SentMessage, waits: bool) -> Option<bool> {
        if waits {
            let to = WaitFor::Rank(message.to.into());
            return Some(self.shared.wait_until(to, |process| process.cancel_result(message)));
        }
        let mut process = self.shared.lock();
        self.shared.progress(&mut process);
        process.cancel_result(message)
    }

    /// Nobody asks any more whether a message was cancelled.
    pub fn raw_forget_cancelled(&self, message: SentMessage) {
        self.shared.lock().forget_cancelled(message);
    }

    /// Makes progress once.
    pub fn raw_progress(&self) {
        let mut process = self.shared.lock();
        self.shared.progress(&mut process);
        drop(process);
        self.shared.yield_if_oversubscribed();
    }

    /// Waits until one of these requests or collectives of this World has ended, whichever communicator it is of. Ends
    /// none of them.
    pub fn raw_wait_for_one(&self, requests: &[RawRequest], collectives: &[u32]) {
        let has_ended = |process: &mut Process| {
            let ended = requests.iter().any(|request| process.requests.result(request.0.request).is_some())
                || collectives.iter().any(|begun| process.has_ended(*begun));
            ended.then_some(())
        };
        if collectives.is_empty() {
            let handles: Vec<RequestHandle> = requests.iter().map(|request| request.0).collect();
            let awaits = WaitFor::common(handles.iter().map(|handle| handle.peer));
            self.shared.wait_for_several(&handles, awaits, true, has_ended);
        } else {
            self.shared.wait_until(WaitFor::AnyRank, has_ended);
        }
    }

    /// Makes a communicator of these ranks of the job, of which this process is one; no other ranks take part. It is no
    /// collective of this communicator, and any thread may call it meanwhile, each with a `number` of its own, which is
    /// the same on all members. `reduce` combines a proposal with those of all other members, by
    /// [`raw_combine`](Self::raw_combine_proposals), and gives all of them the result.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn raw_create(
        &self,
        members: Group,
        number: u32,
        mut reduce: impl FnMut(&mut ProposalBytes) -> Result<(), CollectiveError>,
    ) -> Result<Option<Self>, CreateError> {
        let is_foreign = members != self.members;
        let parent = if is_foreign { WORLD } else { self.context };
        let order = CreationOrder { parent, number: number.saturating_add(1) };
        // A slot of the node's memory might be another group's, too.
        let reserved = self.agree_on_context_by(order, is_foreign, false, |proposal| {
            let mut bytes = proposal.to_bytes();
            reduce(&mut bytes)?;
            proposal.read(&bytes);
            Ok(())
        })?;
        Ok(self.open_for(&reserved, members))
    }

    /// Combines two proposals of [`raw_create`](Self::raw_create), in any order.
    pub fn raw_combine_proposals(into: &mut ProposalBytes, other: &ProposalBytes) {
        super::create::combine_bytes(into, other);
    }
}
