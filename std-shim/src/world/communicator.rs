//! The processes that communicate with each other apart from others: messages between them, what they do together.

use alloc::sync::Arc;
use core::ptr::NonNull;
use std::time::Instant;

use unisono_core::device::{Device as _, PeerId};
use unisono_core::message::admission::{Head, Mode};
use unisono_core::message::{Context, Pattern, Tag as MessageTag};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::collective::Group;
use super::mailbox::Wanted;
use super::near::{AllocateError, Buffer, Near};
use super::process::{Posting, SendFailure};
use super::progress::{Awaits, Leaves, Shared, Started};
use super::request::{Failure, Status, Tag};
use super::scope::{Scope, run};
use super::watchdog::Doing;
use super::{FAREWELL, PANICKED};
use crate::node::Node;
use crate::rank::Rank;

/// That of all processes.
pub(super) const CONTEXT: Context = Context(0);
/// Rounds of progress that a send makes before it offers what may not leave, if it is the first.
const ROUNDS: u32 = 1024;

/// Pauses between two looks whether a full carrier has room.
const PAUSES: u32 = 32;

/// What a receive or a probe asks for.
pub(super) fn pattern(context: Context, source: Option<Rank>, tag: Option<Tag>) -> Pattern {
    Pattern { context, source: source.map(PeerId::from), tag: tag.map(|tag| MessageTag(tag.0)) }
}

/// As that, to be received.
pub(super) fn wanted(context: Context, source: Option<Rank>, tag: Option<Tag>) -> Wanted {
    Wanted::Like(pattern(context, source, tag))
}

/// Processes of the job, numbered from 0 on. Messages and collectives are called on it.
pub struct Communicator {
    pub(super) shared: Arc<Shared>,
    pub(super) node: Option<Arc<Node>>,
    /// Where all share memory.
    pub(super) group: Option<Group>,
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

    /// Whether messages to this rank go through shared memory.
    pub fn shares_memory_with(&self, rank: Rank) -> bool {
        self.shared.lock().is_near(rank.into())
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
        let bytes = data.as_bytes();
        if self.shared.lock().send_at_once(bytes, CONTEXT, to, tag) {
            return Ok(());
        }
        match self
            .start_send(bytes, &Posting { context: CONTEXT, to, tag, mode: Mode::Standard, leaves: Leaves::AtOnce })?
        {
            None => Ok(()),
            Some(request) => self.shared.wait(request).map(|_| ()),
        }
    }

    /// As [`send`](Self::send), and waits until the message has met its receive.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn synchronous_send<T: IntoBytes + Immutable>(&self, data: &[T], to: Rank, tag: Tag) -> Result<(), Failure> {
        let posting = Posting { context: CONTEXT, to, tag, mode: Mode::Synchronous, leaves: Leaves::AtOnce };
        match self.start_send(data.as_bytes(), &posting)? {
            None => Ok(()),
            Some(request) => self.shared.wait(request).map(|_| ()),
        }
    }

    /// As [`send`](Self::send), where the receive is known to be posted. Nothing is made of that: it may be wrong.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn ready_send<T: IntoBytes + Immutable>(&self, data: &[T], to: Rank, tag: Tag) -> Result<(), Failure> {
        self.send(data, to, tag)
    }

    /// Receives a message from `source` with `tag`.
    ///
    /// # Errors
    /// [`Failure`]; after [`Failure::Truncated`] what lies in `data` is unspecified.
    pub fn receive_into<T: IntoBytes + FromBytes>(
        &self,
        data: &mut [T],
        source: Rank,
        tag: Tag,
    ) -> Result<Status, Failure> {
        let bytes = data.as_mut_bytes();
        if let Some(ended) = self.shared.lock().receive_at_once(bytes, CONTEXT, source, tag) {
            return ended;
        }
        let request = self.start_receive(bytes, wanted(CONTEXT, Some(source), Some(tag)))?;
        self.shared.wait(request)
    }

    /// Receives the next message from anyone, with any tag where `tag` is `None`.
    ///
    /// # Errors
    /// [`Failure`]; a rank that dies meanwhile ends this, since it may be the one that is waited for.
    pub fn receive_any_into<T: IntoBytes + FromBytes>(
        &self,
        data: &mut [T],
        tag: Option<Tag>,
    ) -> Result<Status, Failure> {
        let request = self.start_receive(data.as_mut_bytes(), wanted(CONTEXT, None, tag))?;
        self.shared.wait(request)
    }

    /// Memory for `count` values, all bytes zero. What is sent from it to a rank of this node is copied once, by the receiver.
    ///
    /// # Errors
    /// [`AllocateError`]: this rank's part of the shared memory is used up.
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

    pub(super) fn start_send(&self, bytes: &[u8], posting: &Posting) -> Result<Option<Started>, Failure> {
        let start = NonNull::from(bytes).cast();
        let mut rounds = 0..ROUNDS;
        loop {
            let mut process = self.shared.lock();
            if process.is_out_of_headers(posting.to) && rounds.next().is_some() {
                process.progress_towards(posting.to);
                drop(process);
                self.shared.yield_if_crowded();
                continue;
            }
            // SAFETY: whoever asked waits for the request before its borrow of these bytes ends (see `send` and `Scope`).
            match unsafe { process.send(posting, start, bytes.len()) } {
                Ok(sent) => {
                    let (peer, what) = (Some(posting.to), Doing::Send { to: posting.to, tag: posting.tag });
                    return Ok(sent.map(|(request, region)| Started { request, region, peer, what }));
                }
                Err(SendFailure::Failed(failure)) => return Err(failure),
                Err(SendFailure::Full) => {
                    process.progress_towards(posting.to);
                    drop(process);
                    // Who looks for each place that becomes free takes the line from who frees them.
                    (0..PAUSES).for_each(|_| core::hint::spin_loop());
                    self.shared.yield_if_crowded();
                }
            }
        }
    }

    pub(super) fn start_receive(&self, bytes: &mut [u8], what: Wanted) -> Result<Started, Failure> {
        let count = bytes.len();
        // SAFETY: as in `start_send`; the borrow is exclusive.
        let (request, region) = unsafe { self.shared.lock().receive(what, NonNull::from(bytes).cast(), count) }?;
        let (peer, tag) = match what {
            Wanted::Like(Pattern { source, tag, .. }) => (source.map(Rank::from), tag.map(|tag| Tag(tag.0))),
            Wanted::Matched(_) => (None, None),
        };
        Ok(Started { request, region, peer, what: Doing::Receive { source: peer, tag } })
    }

    /// Ends everything that is under way because of a panic, and tells the others.
    pub(super) fn give_up(&self) {
        if let Some(node) = &self.node {
            node.retire();
        }
        self.shared.lock().abort(Failure::Aborted { rank: self.rank, code: PANICKED });
        self.wait_until_gone();
    }

    pub(super) fn wait_until_gone(&self) {
        let deadline = Instant::now() + FAREWELL;
        self.shared.until(Awaits::Bell, |process| (process.is_gone() || Instant::now() >= deadline).then_some(()));
    }
}
