//! The processes that communicate with each other apart from others: messages between them, what they do together.

mod create;
mod recover;
mod send_receive;

use alloc::sync::Arc;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use std::time::Instant;

use unisono_core::device::{Device as _, PeerId};
use unisono_core::message::admission::{Head, Mode};
use unisono_core::message::{Context, Pattern, Tag as MessageTag};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::collective::{CollectiveError, NodeGroup};
use super::group::Group;
use super::mailbox::Wanted;
use super::near::{AllocateError, Buffer, Near};
use super::process::{Posting, Process, SendFailure};
use super::progress::{Awaits, Leaves, Shared, Started};
use super::request::{Failure, Status, Tag};
use super::scope::{Scope, run};
use super::watchdog::Doing;
pub(super) use create::Agreed;
pub use create::CreateError;
pub use recover::{AgreeError, Agreement};

use super::{FAREWELL, PANICKED};
use crate::node::Node;
use crate::rank::Rank;

/// Rounds of progress that a send makes before it offers what may not leave, if it is the first.
const ROUNDS: u32 = 1024;

/// Pauses between two looks whether a full carrier has room.
const PAUSES: u32 = 32;

/// Processes of the job, numbered from 0 on. Messages and collectives are called on it.
pub struct Communicator {
    pub(super) shared: Arc<Shared>,
    pub(super) node: Option<Arc<Node>>,
    /// Where all members share memory, which is all ranks of the job, or they have a room.
    pub(super) on_node: Option<NodeGroup>,
    pub(super) context: u32,
    /// What its messages of two ranks name.
    pub(super) named: Context,
    pub(super) members: Group,
    /// Agreements so far.
    pub(super) rounds: AtomicU32,
    pub(super) rank: Rank,
    pub(super) size: u32,
}

impl Communicator {
    /// This process's number within it.
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Its processes.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Whether more ranks than processors share this host, as far as is known: then who waits lets others run.
    pub fn is_crowded(&self) -> bool {
        self.shared.crowded
    }

    /// Its members, in order.
    pub fn group(&self) -> Group {
        self.members.clone()
    }

    /// Whether messages to this rank go through shared memory.
    pub fn shares_memory_with(&self, rank: Rank) -> bool {
        self.members.world_rank(rank).is_some_and(|rank| self.shared.lock().is_near(rank.into()))
    }

    /// Bytes of the largest message that needs no receive to be posted before it leaves, whoever it is for: it travels in one
    /// datagram, or in one piece of a ring.
    pub fn eager_limit(&self) -> usize {
        let process = self.shared.lock();
        let mtu = process.device.limits().mtu as usize;
        let far = mtu.saturating_sub(unisono_core::wire::HEADER + Head::EAGER);
        let near = process.near.as_ref().map(Near::eager_limit);
        near.map_or(far, |near| if process.is_whole() { near } else { near.min(far) })
    }

    /// Sends a message and waits until the buffer is free. A short message is copied; one that exceeds
    /// [`eager_limit`](Self::eager_limit) waits for the receive.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn send<T: IntoBytes + Immutable>(&self, data: &[T], to: Rank, tag: Tag) -> Result<(), Failure> {
        self.send_bytes(data.as_bytes(), to, tag)
    }

    fn send_bytes(&self, bytes: &[u8], to: Rank, tag: Tag) -> Result<(), Failure> {
        let there = self.world_rank(to)?;
        let has_left = match self.shared.enter() {
            Some(mut process) => process.send_at_once(bytes, self.named, there, tag),
            None => self.queue_and_send(bytes, there, tag),
        };
        if has_left { Ok(()) } else { self.send_otherwise(bytes, there, tag) }
    }

    #[inline(never)]
    fn queue_and_send(&self, bytes: &[u8], to: Rank, tag: Tag) -> bool {
        self.shared.lock().send_at_once(bytes, self.named, to, tag)
    }

    /// What does not leave at the first go.
    #[inline(never)]
    fn send_otherwise(&self, bytes: &[u8], to: Rank, tag: Tag) -> Result<(), Failure> {
        let posting = Posting { context: self.named, to, tag, mode: Mode::Standard, leaves: Leaves::AtOnce };
        match self.start_send(bytes, &posting, |_, started| started)? {
            None => Ok(()),
            Some(request) => self.wait(request).map(|_| ()),
        }
    }

    /// As [`send`](Self::send), and waits until the message has met its receive.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn synchronous_send<T: IntoBytes + Immutable>(&self, data: &[T], to: Rank, tag: Tag) -> Result<(), Failure> {
        let posting = self.posting(to, tag, Mode::Synchronous, Leaves::AtOnce)?;
        match self.start_send(data.as_bytes(), &posting, |_, started| started)? {
            None => Ok(()),
            Some(request) => self.wait(request).map(|_| ()),
        }
    }

    /// As [`send`](Self::send), where the receive is known to be posted. Nothing is made of that: it may be wrong.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn ready_send<T: IntoBytes + Immutable>(&self, data: &[T], to: Rank, tag: Tag) -> Result<(), Failure> {
        self.send(data, to, tag)
    }

    /// Receives the next message from `source`, or from anyone; with `tag`, or with any.
    ///
    /// # Errors
    /// [`Failure`]; after [`Failure::Truncated`] what lies in `data` is unspecified. A rank that dies meanwhile ends a receive from anyone,
    /// since it may be the one that is waited for.
    pub fn receive_into<T: IntoBytes + FromBytes>(
        &self,
        data: &mut [T],
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Status, Failure> {
        let bytes = data.as_mut_bytes();
        match (source.into(), tag.into()) {
            (Some(source), Some(tag)) => self.receive_bytes(bytes, source, tag),
            (source, tag) => self.receive_otherwise(bytes, source, tag),
        }
    }

    fn receive_bytes(&self, into: &mut [u8], source: Rank, tag: Tag) -> Result<Status, Failure> {
        let from = self.world_rank(source)?;
        let came = match self.shared.enter() {
            Some(mut process) => process.receive_at_once(into, self.named, from, tag),
            None => self.queue_and_receive(into, from, tag),
        };
        match came {
            Some(bytes) if bytes <= into.len() => Ok(Status { source, tag, bytes }),
            Some(bytes) => Err(Failure::Truncated { bytes: bytes as u64 }),
            None => self.receive_otherwise(into, Some(source), Some(tag)),
        }
    }

    #[inline(never)]
    fn queue_and_receive(&self, into: &mut [u8], source: Rank, tag: Tag) -> Option<usize> {
        self.shared.lock().receive_at_once(into, self.named, source, tag)
    }

    /// What does not come at the first go, or may come from several.
    #[inline(never)]
    fn receive_otherwise(&self, into: &mut [u8], source: Option<Rank>, tag: Option<Tag>) -> Result<Status, Failure> {
        let request = self.start_receive(into, self.wanted(source, tag)?, |_, started| started)?;
        self.wait(request)
    }

    /// As [`receive_into`](Self::receive_into), from anyone.
    ///
    /// # Errors
    /// As there.
    pub fn receive_any_into<T: IntoBytes + FromBytes>(
        &self,
        data: &mut [T],
        tag: Option<Tag>,
    ) -> Result<Status, Failure> {
        self.receive_into(data, None, tag)
    }

    /// Memory for `count` values, all bytes zero. What is sent from it to a rank of this node is copied once, by the receiver.
    ///
    /// # Errors
    /// [`AllocateError`]: this rank's part of the shared memory is used up, or the system's where there is none.
    pub fn allocate<T: FromBytes + IntoBytes>(&self, count: usize) -> Result<Buffer<T>, AllocateError> {
        let pool = self.shared.lock().near.as_ref().map(|near| Arc::clone(&near.pool));
        Buffer::new(pool.as_ref(), count)
    }

    /// Lends buffers to requests that end within `body`: when it returns, all of them have. When it panics while some are under
    /// way, this process gives up: they end, and the others are told that it failed.
    ///
    /// Sends are collected and leave together: when 64 or 256 KiB wait, with the next call that waits or tests, or with
    /// [`Scope::flush`].
    pub fn scope<'env, R>(&'env self, body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
        run(self, body)
    }

    /// Whether a collective may begin at all, as far as this rank knows.
    pub(super) fn may_begin(&self) -> Result<(), CollectiveError> {
        self.shared.lock().may_begin(self.context)
    }

    /// The job's rank of a member.
    pub(super) fn world_rank(&self, rank: Rank) -> Result<Rank, Failure> {
        self.members.world_rank(rank).ok_or(Failure::UnknownRank(rank))
    }

    /// A message to a member.
    pub(super) fn posting(&self, to: Rank, tag: Tag, mode: Mode, leaves: Leaves) -> Result<Posting, Failure> {
        Ok(Posting { context: self.named, to: self.world_rank(to)?, tag, mode, leaves })
    }

    /// What a receive or a probe asks for.
    pub(super) fn pattern(&self, source: Option<Rank>, tag: Option<Tag>) -> Result<Pattern, Failure> {
        let source = source.map(|source| self.world_rank(source)).transpose()?.map(PeerId::from);
        Ok(Pattern { context: self.named, source, tag: tag.map(|tag| MessageTag(tag.0)) })
    }

    /// As that, to be received.
    pub(super) fn wanted(&self, source: Option<Rank>, tag: Option<Tag>) -> Result<Wanted, Failure> {
        self.pattern(source, tag).map(Wanted::Like)
    }

    /// A message as this communicator numbers its sender.
    pub(super) fn own_status(&self, status: Status) -> Status {
        Status { source: self.members.number(status.source).unwrap_or(status.source), ..status }
    }

    /// A failure as this communicator numbers its members; who ends the job keeps its number there.
    pub(super) fn own_failure(&self, failure: Failure) -> Failure {
        self.own_failure_if(failure, || self.is_revoked())
    }

    fn own_failure_if(&self, failure: Failure, is_revoked: impl FnOnce() -> bool) -> Failure {
        let number = |rank| self.members.number(rank).unwrap_or(rank);
        match failure {
            Failure::PeerFailed(rank) => Failure::PeerFailed(number(rank)),
            Failure::Parted(rank) => Failure::Parted(number(rank)),
            // Who has heard of it takes nothing any more.
            Failure::TooLongForReceive(_) if is_revoked() => Failure::Revoked,
            Failure::TooLongForReceive(rank) => Failure::TooLongForReceive(number(rank)),
            Failure::Corrupted(rank) => Failure::Corrupted(number(rank)),
            Failure::UnknownRank(rank) => Failure::UnknownRank(number(rank)),
            _ => failure,
        }
    }

    /// Waits for a request of this communicator's.
    pub(super) fn wait(&self, started: Started) -> Result<Status, Failure> {
        self.ended(&started, self.shared.wait(&started, |process| process.take_ended(&started)))
    }

    /// How a request has ended. In one piece with who asks: what is written in parts and read whole stalls the processor.
    #[inline(always)]
    pub(super) fn ended(&self, started: &Started, ended: Result<Status, Failure>) -> Result<Status, Failure> {
        self.ended_if(started, ended, || self.is_revoked())
    }

    /// As that, for whoever has the lock.
    pub(super) fn ended_while(
        &self,
        process: &Process,
        started: &Started,
        ended: Result<Status, Failure>,
    ) -> Result<Status, Failure> {
        self.ended_if(started, ended, || process.expect_open(self.context).is_err())
    }

    #[inline(always)]
    fn ended_if(
        &self,
        started: &Started,
        ended: Result<Status, Failure>,
        is_revoked: impl Fn() -> bool,
    ) -> Result<Status, Failure> {
        match (ended, started.what) {
            // It may have been dropped by who had heard of it, and told of that before.
            (Ok(_), Doing::Send { .. }) if is_revoked() => Err(Failure::Revoked),
            (Ok(status), _) => Ok(self.own_status(status)),
            (Err(failure), _) => Err(self.own_failure_if(failure, is_revoked)),
        }
    }

    /// Starts a send, and notes it before anyone else has the lock.
    #[inline]
    pub(super) fn start_send<R>(
        &self,
        bytes: &[u8],
        posting: &Posting,
        note: impl FnOnce(&mut Process, Started) -> R,
    ) -> Result<Option<R>, Failure> {
        let start = NonNull::from(bytes).cast();
        let mut rounds = 0..ROUNDS;
        loop {
            let mut process = self.shared.lock();
            process.expect_open(self.context)?;
            if process.is_out_of_headers(posting.to) && rounds.next().is_some() {
                self.shared.progress_towards(&mut process, posting.to);
                drop(process);
                self.shared.yield_if_crowded();
                continue;
            }
            let sent = self.shared.tell(&mut process, |process| {
                // SAFETY: whoever asked, `send` or a `Scope`, waits for the request before its borrow of these bytes
                // ends.
                unsafe { process.send(posting, start, bytes.len()) }
            });
            match sent {
                Ok(sent) => {
                    let (peer, what) = (Some(posting.to), Doing::Send { to: posting.to, tag: posting.tag });
                    return Ok(
                        sent.map(|(request, region)| note(&mut process, Started { request, region, peer, what }))
                    );
                }
                Err(SendFailure::Failed(failure)) => return Err(self.own_failure(failure)),
                Err(SendFailure::Full) => {
                    self.shared.progress_towards(&mut process, posting.to);
                    drop(process);
                    // Who looks for each place that becomes free takes the line from who frees them.
                    (0..PAUSES).for_each(|_| core::hint::spin_loop());
                    self.shared.yield_if_crowded();
                }
            }
        }
    }

    /// As [`start_send`](Self::start_send).
    #[inline]
    pub(super) fn start_receive<R>(
        &self,
        bytes: &mut [u8],
        what: Wanted,
        note: impl FnOnce(&mut Process, Started) -> R,
    ) -> Result<R, Failure> {
        let (count, mut process) = (bytes.len(), self.shared.lock());
        process.expect_open(self.context)?;
        let received = self.shared.tell(&mut process, |process| {
            // SAFETY: whoever asked, `receive` or a `Scope`, waits for the request before its exclusive borrow of these
            // bytes ends.
            unsafe { process.receive(what, NonNull::from(bytes).cast(), count) }
        });
        let (request, region) = received.map_err(|failure| self.own_failure(failure))?;
        let (peer, tag) = match what {
            Wanted::Like(Pattern { source, tag, .. }) => (source.map(Rank::from), tag.map(|tag| Tag(tag.0))),
            Wanted::Matched(_, source) => (Some(source.into()), None),
        };
        Ok(note(&mut process, Started { request, region, peer, what: Doing::Receive { source: peer, tag } }))
    }

    /// Ends everything that is under way because of a panic, and tells the others.
    pub(super) fn give_up(&self) {
        if let Some(node) = &self.node {
            node.retire();
        }
        self.shared.change(|process| process.abort(Failure::Aborted { rank: process.rank, code: PANICKED }));
        self.wait_until_gone();
    }

    pub(super) fn wait_until_gone(&self) {
        let deadline = Instant::now() + FAREWELL;
        self.shared.until(Awaits::Bell, |process| (process.is_gone() || Instant::now() >= deadline).then_some(()));
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.shared.change(|process| process.free_context(self.context));
    }
}
