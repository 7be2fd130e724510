//! Communicators: a group of ranks with its own message context, and blocking point-to-point calls on it.

pub(super) mod attributes;
mod balanced_grid;
pub(super) mod cartesian;
pub(super) mod create;
pub(super) mod graph;
pub(super) mod neighbourhood;
pub(super) mod peer;
pub(super) mod probe;
pub(super) mod raw;
pub(super) mod recover;
pub(super) mod send_buffer;
mod send_receive;
mod values;

use alloc::sync::Arc;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use attributes::Attributes;
use parking_lot::Mutex;
use unisono_core::device::Device as _;
use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point::{MessageHeader, Mode};
use unisono_core::message::{Context, Pattern, Tag as MessageTag};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::collective::call_log::{CollectiveCall, SharedCallLog};
use super::collective::error::CollectiveError;
use super::collective::intra_node::IntraNodeGroup;
use super::collective::{AsView, AsViewMut};
use super::process::Process;
use super::process::cancelled_sends::SentMessage;
use super::process::message_table::Flush;
use super::process::messages::ReceiveTarget;
use super::process::messages::{SendArgs, SendFailure, WhenFull};
use super::progress::{SharedProcess, WaitFor};
use super::request::handle::RequestHandle;
use super::request::{Failure, Status, Tag};
use super::shm_transport::{AllocateError, Buffer, ShmTransport};
use super::watchdog::BlockedOn;
use crate::node::Node;
use crate::world::group::Group;
use unisono_bootstrap::Rank;
use unisono_memory::element_type::ElementType;
use unisono_memory::user_buffer::UserBuffer;

/// Exit code of a Rust program that panicked.
const PANIC_EXIT_CODE: i32 = 101;

/// Longest time that the shutdown messages to the other ranks take.
pub(super) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Rounds of progress that a send makes while it has no header credit, before it announces the message anyway, or while
/// the ring is full, before it queues the message.
const WAIT_ROUNDS: u32 = 1024;

/// Spins between two attempts to send through a full ring or window.
const FULL_SPINS: u32 = 32;

/// A group of ranks of the job, numbered from 0 on, on which messages are exchanged and collectives are called.
pub struct Communicator {
    pub(super) shared: Arc<SharedProcess>,
    pub(super) node: Option<Arc<Node>>,
    /// The shared-memory collectives, where all members share memory and are all ranks of the job, or have a
    /// communicator slot.
    pub(super) intra_node: Option<IntraNodeGroup>,
    pub(super) context: u32,
    /// The context that its point-to-point messages carry.
    pub(super) message_context: Context,
    pub(super) members: Group,
    /// Number of agreements since it was made.
    pub(super) agreement_rounds: AtomicU32,
    /// Number of collectives that the user has called, for errors.
    pub(super) calls: AtomicU32,
    /// The latest of them.
    pub(super) log: Arc<SharedCallLog>,
    pub(super) attributes: Mutex<Attributes>,
    pub(super) rank: Rank,
    pub(super) size: u32,
    pub(super) lease: Arc<ContextLease>,
}

/// A context that is freed when its communicator, and every region that was made or imported over it, is gone.
pub(super) struct ContextLease {
    shared: Arc<SharedProcess>,
    context: u32,
}

impl ContextLease {
    pub(super) fn new(shared: &Arc<SharedProcess>, context: u32) -> Arc<Self> {
        Arc::new(Self { shared: Arc::clone(shared), context })
    }
}

impl Drop for ContextLease {
    fn drop(&mut self) {
        self.shared.with_process(|process| process.free_context(self.context));
    }
}

impl Communicator {
    /// The same group and context, for operations that are no collectives.
    pub(super) fn share(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            node: self.node.clone(),
            intra_node: None,
            context: self.context,
            message_context: self.message_context,
            members: self.members.clone(),
            agreement_rounds: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            log: Arc::clone(&self.log),
            attributes: Mutex::default(),
            rank: self.rank,
            size: self.size,
            lease: Arc::clone(&self.lease),
        }
    }

    /// Counts a collective that the user calls. Collectives of a communicator are started by one thread at a time.
    #[inline(always)]
    pub(super) fn count_call(&self) {
        self.calls.store(self.call().wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts and records a collective that the user calls. Returns a digest of the earlier calls that it has to
    /// compare.
    pub(super) fn record(&self, call: CollectiveCall) -> u32 {
        self.count_call();
        self.log.record(self.call(), call)
    }

    /// As [`record`](Self::record), for a collective that compares nothing.
    pub(super) fn record_open(&self, call: CollectiveCall) {
        self.count_call();
        self.log.record_open(self.call(), call);
    }

    /// As [`record_open`](Self::record_open), of a call that is equal to the one of number `repeated`.
    #[inline]
    pub(super) fn record_repeat(&self, repeated: u32, call: impl FnOnce() -> CollectiveCall) {
        self.count_call();
        if !self.log.repeat(repeated, self.call()) {
            self.log.record_open(self.call(), call());
        }
    }

    /// Runs collectives that the user did not call: they are not counted.
    pub(super) fn uncounted<R>(&self, run: impl FnOnce() -> R) -> R {
        let (calls, log, executed) = (self.call(), self.log.lock().clone(), self.executed());
        let result = run();
        self.log.replace(log);
        self.calls.store(calls, Ordering::Relaxed);
        self.set_executed(executed);
        result
    }

    /// The number of the collective that the user called last.
    #[inline(always)]
    pub(super) fn call(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// This process's rank in the communicator.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert!(world.rank() < Rank(world.size()));
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of ranks in the communicator.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert!(world.size() > 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Whether this host runs more ranks than it has processors, if that is known: then waiting ranks yield the
    /// processor.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let polls = if world.is_oversubscribed() { 1 } else { 1000 };
    /// # assert!(polls > 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_oversubscribed(&self) -> bool {
        self.shared.oversubscribed
    }

    /// The group of its members, in order.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.group().size(), world.size());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn group(&self) -> Group {
        self.members.clone()
    }

    /// Whether messages to this rank go through shared memory.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let sharing = (0..world.size()).filter(|rank| world.shares_memory_with(Rank(*rank))).count();
    /// println!("{sharing} ranks are reached through shared memory");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn shares_memory_with(&self, rank: Rank) -> bool {
        self.members.world_rank(rank).is_some_and(|rank| self.shared.lock().is_shm_peer(rank.into()))
    }

    /// Bytes of the largest message that is sent without waiting for its receive (eager), whatever the destination: it
    /// fits in one datagram, or in one entry of a ring.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert!(world.eager_limit() > 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn eager_limit(&self) -> usize {
        let process = self.shared.lock();
        let mtu = process.datagrams.device.limits().mtu as usize;
        let remote = mtu.saturating_sub(unisono_core::wire::HEADER + MessageHeader::EAGER);
        let shm = process.transport.shm.as_ref().map(ShmTransport::eager_limit);
        shm.map_or(remote, |shm| if process.is_single_node() { shm } else { shm.min(remote) })
    }

    /// Sends a message and waits until the buffer is free (`MPI_Send`). A short message is copied; one longer than
    /// [`eager_limit`](Self::eager_limit) waits for its receive.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&[1.5, 2.5], world.rank(), Tag(1))?;
    /// assert_eq!(world.receive::<f64>(None, None)?.0, [1.5, 2.5]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`].
    #[inline]
    pub fn send<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        to: Rank,
        tag: Tag,
    ) -> Result<(), Failure> {
        let view = data.as_view();
        match view.dense() {
            Some(bytes) => self.send_bytes(bytes, view.element(), to, tag),
            None => self.send_buffer(&view.user_buffer(), Mode::Standard, to, tag),
        }
    }

    pub(super) fn send_bytes(&self, bytes: &[u8], element: ElementType, to: Rank, tag: Tag) -> Result<(), Failure> {
        let there = self.world_rank(to)?;
        if self.send_inline(bytes, there, tag) { Ok(()) } else { self.send_general(bytes, element, there, tag) }
    }

    /// Sends a short message to a rank of the World at once. Returns false if the general path must send it.
    #[inline(always)]
    pub(super) fn send_inline(&self, bytes: &[u8], to: Rank, tag: Tag) -> bool {
        match self.shared.try_enter() {
            Some(mut process) => process.send_inline(bytes, self.message_context, to, tag),
            None => self.send_locked(bytes, to, tag),
        }
    }

    #[inline(never)]
    fn send_locked(&self, bytes: &[u8], to: Rank, tag: Tag) -> bool {
        self.shared.lock().send_inline(bytes, self.message_context, to, tag)
    }

    /// The general path, for a message that cannot leave at once.
    #[inline(never)]
    pub(super) fn send_general(&self, bytes: &[u8], element: ElementType, to: Rank, tag: Tag) -> Result<(), Failure> {
        let (context, mode) = (self.message_context, Mode::Standard);
        let posting = SendArgs { context, to, tag, mode, flush: Flush::Now, when_full: WhenFull::Retry };
        let buffer = UserBuffer::plain(NonNull::from(bytes).cast(), bytes.len()).of(element);
        match self.start_send_buffer(&buffer, &posting, |_, started| started)? {
            None => Ok(()),
            Some(request) => self.wait(request).map(|_| ()),
        }
    }

    /// Sends a buffer that the caller borrows, and waits.
    fn send_buffer(&self, buffer: &UserBuffer, mode: Mode, to: Rank, tag: Tag) -> Result<(), Failure> {
        let posting = self.send_args(to, tag, mode, Flush::Now)?;
        match self.start_send_buffer(buffer, &posting, |_, started| started)? {
            None => Ok(()),
            Some(request) => self.wait(request).map(|_| ()),
        }
    }

    /// As [`send`](Self::send), and waits until a receive has matched the message (`MPI_Ssend`).
    ///
    /// ```no_run
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// match world.rank() {
    ///     Rank(0) => world.synchronous_send(&[1_u8], Rank(1), Tag(1))?,
    ///     _ => drop(world.receive::<u8>(Rank(0), Tag(1))?),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`].
    pub fn synchronous_send<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        to: Rank,
        tag: Tag,
    ) -> Result<(), Failure> {
        self.send_buffer(&data.as_view().user_buffer(), Mode::Synchronous, to, tag)
    }

    /// As [`send`](Self::send), where the receive is known to be posted (`MPI_Rsend`). It is sent like a standard send,
    /// so that a wrong assumption does no harm.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut data = [0_u8; 2];
    /// world.scope(|scope| {
    ///     let receive = scope.immediate_receive_into(&mut data, world.rank(), Tag(1))?;
    ///     world.ready_send(&[1_u8, 2], world.rank(), Tag(1))?;
    ///     receive.wait()
    /// })?;
    /// assert_eq!(data, [1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`].
    pub fn ready_send<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        to: Rank,
        tag: Tag,
    ) -> Result<(), Failure> {
        self.send(data, to, tag)
    }

    /// Receives the next message from `source`, or from any rank; with `tag`, or with any (`MPI_Recv`). Returns its
    /// source, tag and length in bytes, which may be less than the buffer's.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&[1_u16, 2], world.rank(), Tag(4))?;
    /// let mut data = [0_u16; 3];
    /// let status = world.receive_into(&mut data, None, Tag(4))?;
    /// assert_eq!((status.source, status.bytes, data), (world.rank(), 4, [1, 2, 0]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`]; after [`Failure::Truncated`] the contents of `data` are unspecified. A rank that dies meanwhile
    /// ends a receive from any rank, since it may be the one that is waited for.
    #[inline]
    pub fn receive_into<T: IntoBytes + FromBytes>(
        &self,
        data: &mut (impl AsViewMut<T> + ?Sized),
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Status, Failure> {
        let mut view = data.as_view_mut();
        let element = view.element();
        let Some(bytes) = view.dense() else {
            let target = self.receive_target(source.into(), tag.into())?;
            let request = self.start_receive_buffer(view.user_buffer(), target, |_, started| started)?;
            return self.wait(request);
        };
        match (source.into(), tag.into()) {
            (Some(source), Some(tag)) => self.receive_bytes(bytes, element, source, tag),
            (source, tag) => self.receive_general(bytes, element, source, tag),
        }
    }

    fn receive_bytes(&self, into: &mut [u8], element: ElementType, source: Rank, tag: Tag) -> Result<Status, Failure> {
        let from = self.world_rank(source)?;
        match self.receive_inline(into, from, tag) {
            Some(bytes) if bytes <= into.len() => Ok(Status { source, tag, bytes }),
            Some(bytes) => Err(Failure::Truncated { bytes: bytes as u64 }),
            None => self.receive_general(into, element, Some(source), Some(tag)),
        }
    }

    /// Receives a short message of a rank of the World that is there, or arrives soon. Returns its length. `None`: the
    /// general path must decide.
    #[inline(always)]
    pub(super) fn receive_inline(&self, into: &mut [u8], source: Rank, tag: Tag) -> Option<usize> {
        match self.shared.try_enter() {
            Some(mut process) => process.receive_inline(into, self.message_context, source, tag),
            None => self.receive_locked(into, source, tag),
        }
    }

    #[inline(never)]
    fn receive_locked(&self, into: &mut [u8], source: Rank, tag: Tag) -> Option<usize> {
        self.shared.lock().receive_inline(into, self.message_context, source, tag)
    }

    /// The general path, for a message that has not arrived yet, or may come from any rank.
    #[inline(never)]
    pub(super) fn receive_general(
        &self,
        into: &mut [u8],
        element: ElementType,
        source: Option<Rank>,
        tag: Option<Tag>,
    ) -> Result<Status, Failure> {
        let buffer = UserBuffer::plain(NonNull::from(&mut *into).cast(), into.len()).of(element);
        let request = self.start_receive_buffer(buffer, self.receive_target(source, tag)?, |_, started| started)?;
        self.wait(request)
    }

    /// As [`receive_into`](Self::receive_into), from any rank.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&7_u64, world.rank(), Tag(4))?;
    /// let mut number = 0_u64;
    /// assert_eq!(world.receive_any_into(&mut number, None)?.tag, Tag(4));
    /// assert_eq!(number, 7);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`receive_into`](Self::receive_into).
    pub fn receive_any_into<T: IntoBytes + FromBytes>(
        &self,
        data: &mut (impl AsViewMut<T> + ?Sized),
        tag: Option<Tag>,
    ) -> Result<Status, Failure> {
        self.receive_into(data, None, tag)
    }

    /// Allocates memory for `count` values, all bytes zero (`MPI_Alloc_mem`). A message sent from it to a rank of this
    /// node is copied once, by the receiver.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut data = world.allocate::<f64>(1000)?;
    /// data[999] = 1.0;
    /// assert_eq!((data.len(), data[0]), (1000, 0.0));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`AllocateError`]: this rank's part of the shared memory is used up, or the system's memory where none is
    /// shared.
    pub fn allocate<T: FromBytes + IntoBytes>(&self, count: usize) -> Result<Buffer<T>, AllocateError> {
        let pool = self.shared.lock().transport.shm.as_ref().map(|shm| Arc::clone(&shm.pool));
        Buffer::new(pool.as_ref(), count)
    }

    /// Whether a collective may start, to the knowledge of this rank.
    pub(super) fn may_begin(&self) -> Result<(), CollectiveError> {
        self.shared.lock().may_begin(self.context)
    }

    /// The rank in the job of a member.
    #[inline]
    pub(super) fn world_rank(&self, rank: Rank) -> Result<Rank, Failure> {
        self.members.world_rank(rank).ok_or(Failure::UnknownRank(rank))
    }

    /// The arguments of a send to a member.
    pub(super) fn send_args(&self, to: Rank, tag: Tag, mode: Mode, leaves: Flush) -> Result<SendArgs, Failure> {
        let when_full = if leaves == Flush::Now { WhenFull::Retry } else { WhenFull::Queue };
        Ok(SendArgs { context: self.message_context, to: self.world_rank(to)?, tag, mode, flush: leaves, when_full })
    }

    /// The pattern of a receive or a probe.
    pub(super) fn pattern(&self, source: Option<Rank>, tag: Option<Tag>) -> Result<Pattern, Failure> {
        let source = source.map(|source| self.world_rank(source)).transpose()?.map(PeerId::from);
        Ok(Pattern { context: self.message_context, source, tag: tag.map(|tag| MessageTag(tag.0)) })
    }

    /// The same pattern, as the target of a receive.
    pub(super) fn receive_target(&self, source: Option<Rank>, tag: Option<Tag>) -> Result<ReceiveTarget, Failure> {
        self.pattern(source, tag).map(ReceiveTarget::Pattern)
    }

    /// A status with the source's rank in this communicator.
    pub(super) fn local_status(&self, status: Status) -> Status {
        Status { source: self.members.number(status.source).unwrap_or(status.source), ..status }
    }

    /// A failure with the peer's rank in this communicator; the rank that aborted the job keeps its rank in the job.
    pub(super) fn local_failure(&self, failure: Failure) -> Failure {
        self.local_failure_if(failure, || self.is_revoked())
    }

    /// As [`local_failure`](Self::local_failure), for the holder of the lock.
    pub(super) fn local_failure_locked(&self, process: &Process, failure: Failure) -> Failure {
        self.local_failure_if(failure, || process.expect_open(self.context).is_err())
    }

    fn local_failure_if(&self, failure: Failure, is_revoked: impl FnOnce() -> bool) -> Failure {
        let number = |rank| self.members.number(rank).unwrap_or(rank);
        match failure {
            Failure::PeerFailed(rank) => Failure::PeerFailed(number(rank)),
            Failure::PeerFinished(rank) => Failure::PeerFinished(number(rank)),
            // A receiver that knows of the revocation takes no message any more.
            Failure::RemoteTruncated(_) if is_revoked() => Failure::Revoked,
            Failure::RemoteTruncated(rank) => Failure::RemoteTruncated(number(rank)),
            Failure::Corrupted(rank) => Failure::Corrupted(number(rank)),
            Failure::UnknownRank(rank) => Failure::UnknownRank(number(rank)),
            Failure::TypeMismatch { rank, sent, expected } => {
                Failure::TypeMismatch { rank: number(rank), sent, expected }
            }
            _ => failure,
        }
    }

    /// Waits for a request on this communicator.
    pub(super) fn wait(&self, started: RequestHandle) -> Result<Status, Failure> {
        self.request_result(&started, self.shared.wait(&started, |process| process.take_ended(&started)))
    }

    /// The result of a request, in terms of this communicator. Inlined into its callers: a struct that is written in
    /// parts and read whole stalls the processor (store forwarding).
    #[inline(always)]
    pub(super) fn request_result(
        &self,
        started: &RequestHandle,
        ended: Result<Status, Failure>,
    ) -> Result<Status, Failure> {
        self.request_result_if(started, ended, || self.is_revoked())
    }

    /// As [`request_result`](Self::request_result), for the holder of the lock.
    pub(super) fn request_result_locked(
        &self,
        process: &Process,
        started: &RequestHandle,
        ended: Result<Status, Failure>,
    ) -> Result<Status, Failure> {
        self.request_result_if(started, ended, || process.expect_open(self.context).is_err())
    }

    #[inline(always)]
    fn request_result_if(
        &self,
        started: &RequestHandle,
        ended: Result<Status, Failure>,
        is_revoked: impl Fn() -> bool,
    ) -> Result<Status, Failure> {
        match (ended, started.blocked_on) {
            // The receiver may have dropped the message after it had forwarded the revocation.
            (Ok(_), BlockedOn::Send { .. }) if is_revoked() => Err(Failure::Revoked),
            (Ok(_), BlockedOn::Send { .. }) => Ok(Status::EMPTY),
            (Ok(status), _) => Ok(self.local_status(status)),
            (Err(failure), _) => Err(self.local_failure_if(failure, is_revoked)),
        }
    }

    /// Starts a send, and records it before any other thread has the lock.
    #[inline]
    pub(super) fn start_send_buffer<R>(
        &self,
        buffer: &UserBuffer,
        posting: &SendArgs,
        note: impl FnOnce(&mut Process, RequestHandle) -> R,
    ) -> Result<Option<R>, Failure> {
        self.start_cancellable_send(buffer, posting, note).map(|(_, started)| started)
    }

    /// As [`start_send_buffer`](Self::start_send_buffer), and returns what cancels the message.
    #[inline]
    pub(super) fn start_cancellable_send<R>(
        &self,
        buffer: &UserBuffer,
        posting: &SendArgs,
        note: impl FnOnce(&mut Process, RequestHandle) -> R,
    ) -> Result<(SentMessage, Option<R>), Failure> {
        let to = PeerId::from(posting.to);
        let mut rounds = 0..WAIT_ROUNDS;
        loop {
            let mut process = self.shared.lock();
            process.expect_open(self.context)?;
            if process.should_await(posting) {
                if rounds.next().is_some() {
                    self.shared.progress_towards(&mut process, posting.to);
                    drop(process);
                    (0..FULL_SPINS).for_each(|_| core::hint::spin_loop());
                    self.shared.yield_if_oversubscribed();
                    continue;
                }
                process.record_vain_wait(posting.to);
            }
            let number = process.messenger.matching().next_number(to);
            let sent = self.shared.with_wakeup(&mut process, |process| {
                // SAFETY: the caller, `send` or a `Scope`, waits for the request before its borrow of these bytes
                // ends.
                unsafe { process.send(posting, buffer) }
            });
            match sent {
                Ok(sent) => {
                    let (peer, what) = (Some(posting.to), BlockedOn::Send { to: posting.to, tag: posting.tag });
                    let started = sent.map(|(request, region)| {
                        note(&mut process, RequestHandle { request, region, peer, blocked_on: what })
                    });
                    return Ok((SentMessage { to, number }, started));
                }
                Err(SendFailure::Failed(failure)) => {
                    process.record_cause(failure.named_rank());
                    drop(process);
                    return Err(self.local_failure(failure));
                }
                Err(SendFailure::Full) => {
                    self.shared.progress_towards(&mut process, posting.to);
                    drop(process);
                    // Polling for every freed entry would take the cache line from the peer that frees them.
                    (0..FULL_SPINS).for_each(|_| core::hint::spin_loop());
                    self.shared.yield_if_oversubscribed();
                }
            }
        }
    }

    /// As [`start_send_buffer`](Self::start_send_buffer), for a receive.
    #[inline]
    pub(super) fn start_receive_buffer<R>(
        &self,
        buffer: UserBuffer,
        what: ReceiveTarget,
        note: impl FnOnce(&mut Process, RequestHandle) -> R,
    ) -> Result<R, Failure> {
        let mut process = self.shared.lock();
        process.expect_open(self.context)?;
        let received = self.shared.with_wakeup(&mut process, |process| {
            // SAFETY: the caller, `receive` or a `Scope`, waits for the request before its exclusive borrow of these
            // bytes ends.
            unsafe { process.receive(what, buffer) }
        });
        let (request, region) = received.map_err(|failure| {
            process.record_cause(failure.named_rank());
            self.local_failure_if(failure, || process.expect_open(self.context).is_err())
        })?;
        let (peer, tag) = match what {
            ReceiveTarget::Pattern(Pattern { source, tag, .. }) => (source.map(Rank::from), tag.map(|tag| Tag(tag.0))),
            ReceiveTarget::Matched(_, source) => (Some(source.into()), None),
        };
        Ok(note(
            &mut process,
            RequestHandle { request, region, peer, blocked_on: BlockedOn::Receive { source: peer, tag } },
        ))
    }

    /// Ends everything under way because of a panic, and notifies the other ranks.
    pub(super) fn abort(&self) {
        if let Some(node) = &self.node {
            node.retire();
        }
        self.shared
            .with_process(|process| process.abort(Failure::Aborted { rank: process.rank, code: PANIC_EXIT_CODE }));
        self.wait_until_departed(SHUTDOWN_TIMEOUT);
    }

    /// Waits until the other ranks know that this process has ended its part, at most for this time.
    pub(super) fn wait_until_departed(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        self.shared.wait_until(WaitFor::Notification, |process| {
            (process.has_announced_exit() || Instant::now() >= deadline).then_some(())
        });
    }
}
