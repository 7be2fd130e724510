//! The processes that communicate with each other apart from others: messages between them, what they do together.

mod create;

use alloc::sync::Arc;
use core::ptr::NonNull;
use std::time::Instant;

use unisono_core::device::Device as _;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::collective::NodeGroup;
use super::group::Group;
use super::near::{AllocateError, Buffer, Near};
use super::process::SendFailure;
use super::progress::{Awaits, Leaves, Shared, Started};
use super::request::{Failure, Status, Tag};
use super::scope::{Scope, run};
use super::watchdog::Doing;
pub use create::CreateError;

use super::{FAREWELL, PANICKED, matching};
use crate::node::Node;
use crate::rank::Rank;

/// Processes of the job, numbered from 0 on. Messages and collectives are called on it.
pub struct Communicator {
    pub(super) shared: Arc<Shared>,
    pub(super) node: Option<Arc<Node>>,
    /// Where all ranks of the job share memory, and are members.
    pub(super) on_node: Option<NodeGroup>,
    pub(super) context: u32,
    pub(super) members: Group,
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
        let far = mtu.saturating_sub(unisono_core::wire::HEADER + matching::EAGER_HEAD);
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
        if self.shared.lock().send_at_once(bytes, to, tag) {
            return Ok(());
        }
        match self.start_send(bytes, to, tag, Leaves::AtOnce)? {
            None => Ok(()),
            Some(request) => self.shared.wait(request).map(|_| ()),
        }
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
        if let Some(ended) = self.shared.lock().receive_at_once(bytes, source, tag) {
            return ended;
        }
        let request = self.start_receive(bytes, Some(source), Some(tag))?;
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
        let request = self.start_receive(data.as_mut_bytes(), None, tag)?;
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

    pub(super) fn start_send(
        &self,
        bytes: &[u8],
        to: Rank,
        tag: Tag,
        leaves: Leaves,
    ) -> Result<Option<Started>, Failure> {
        let start = NonNull::from(bytes).cast();
        loop {
            let mut process = self.shared.lock();
            let started =
                |(request, region)| Started { request, region, peer: Some(to), what: Doing::Send { to, tag } };
            // SAFETY: whoever asked waits for the request before its borrow of these bytes ends (see `send` and `Scope`).
            if let Some(sent) = unsafe { process.send_near(to, tag, start, bytes.len()) } {
                return sent.map(|sent| sent.map(started));
            }
            // SAFETY: as above.
            match unsafe { process.send(to, tag, start, bytes.len()) } {
                Ok(sent) => {
                    process.let_leave(leaves, bytes.len());
                    return Ok(sent.map(started));
                }
                Err(SendFailure::Failed(failure)) => return Err(failure),
                Err(SendFailure::Full) => {
                    process.progress(false);
                }
            }
        }
    }

    pub(super) fn start_receive(
        &self,
        bytes: &mut [u8],
        source: Option<Rank>,
        tag: Option<Tag>,
    ) -> Result<Started, Failure> {
        let count = bytes.len();
        // SAFETY: as in `start_send`; the borrow is exclusive.
        let (request, region) = unsafe { self.shared.lock().receive(source, tag, NonNull::from(bytes).cast(), count) }?;
        Ok(Started { request, region, peer: source, what: Doing::Receive { source, tag } })
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

impl Drop for Communicator {
    fn drop(&mut self) {
        self.shared.lock().free_context(self.context);
    }
}
