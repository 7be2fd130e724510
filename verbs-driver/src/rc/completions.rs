//! The completion queue of all connections of an adapter.

use alloc::sync::Arc;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use core::ptr::NonNull;

use rdma_core_sys as sys;

use crate::raw::Failure;
use crate::ud::{Domain, OpenError};

/// Completions that are taken in one call.
const POLLED: usize = 16;

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcCompletion {
    /// The queue pair number of its connection's end here.
    pub qpn: u32,
    /// The tag that it was posted with.
    pub tag: u64,
    /// Whether the bytes have been placed; a write that failed may have been executed, in part or whole.
    pub result: Result<(), Failure>,
}

/// A completion queue that connections share.
pub struct RcCompletions {
    domain: Arc<Domain>,
    pub(super) number: usize,
    polled: [MaybeUninit<sys::ibv_wc>; POLLED],
    next: usize,
    count: usize,
}

impl core::fmt::Debug for RcCompletions {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.debug_struct("RcCompletions").field("number", &self.number).finish_non_exhaustive()
    }
}

impl RcCompletions {
    /// A queue for as many operations: those of all connections that are outstanding at a time.
    ///
    /// # Errors
    /// [`OpenError::Refused`]: the adapter holds fewer, or the domain is closed.
    pub fn new(domain: &Arc<Domain>, operations: u32) -> Result<Self, OpenError> {
        let mut open = domain.lock();
        let context = open.context.ok_or_else(|| OpenError::code("ibv_create_cq", libc::ENODEV))?;
        let entries = c_int::try_from(operations).unwrap_or(c_int::MAX);
        // SAFETY: an open context, and no channel.
        let queue = unsafe { sys::ibv_create_cq(context.as_ptr(), entries, ptr::null_mut(), ptr::null_mut(), 0) };
        let queue = NonNull::new(queue).ok_or_else(|| OpenError::last("ibv_create_cq"))?;
        let number = open.queues.insert(queue);
        drop(open);
        let polled = [const { MaybeUninit::zeroed() }; POLLED];
        Ok(Self { domain: Arc::clone(domain), number, polled, next: 0, count: 0 })
    }

    /// The adapter.
    pub const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The next completion.
    pub fn poll(&mut self) -> Option<RcCompletion> {
        if self.next == self.count {
            (self.next, self.count) = (0, 0);
            let open = self.domain.lock();
            let queue = open.queues.get(self.number)?;
            // SAFETY: a live completion queue, since the domain is locked, and room for all of them.
            let count = unsafe { sys::ibv_poll_cq(queue.as_ptr(), POLLED as c_int, self.polled.as_mut_ptr().cast()) };
            self.count = usize::try_from(count).unwrap_or(0).min(POLLED);
        }
        let completion = self.polled.get(..self.count)?.get(self.next)?;
        self.next += 1;
        // SAFETY: numbers, all zeros at first: what the library leaves out of the first `count` that it wrote is
        // initialised, too.
        let completion = unsafe { completion.assume_init_ref() };
        let result = Failure::of(completion.status).map_or(Ok(()), Err);
        Some(RcCompletion { qpn: completion.qp_num, tag: completion.wr_id, result })
    }
}

impl Drop for RcCompletions {
    fn drop(&mut self) {
        if let Some(queue) = self.domain.lock().queues.take(self.number) {
            // SAFETY: made by `new`, taken once. A connection that still uses it makes the call fail, and leaks it.
            unsafe { sys::ibv_destroy_cq(queue.as_ptr()) };
        }
    }
}
