//! The shared receive queue of an adapter's connections. An entry has no memory: it takes the report of a write with
//! immediate, whose bytes go to memory that the writer names.

use alloc::borrow::ToOwned;
use alloc::sync::Arc;
use core::mem::MaybeUninit;
use core::ptr;
use core::ptr::NonNull;

use rdma_core_sys as sys;

use crate::ud::{Domain, OpenDomain, OpenError, device_attributes};

/// The tag of an entry's completion; tags of operations have 32 bits.
pub(super) const RECEIVE: u64 = u64::MAX;

/// A shared receive queue.
#[derive(Debug)]
pub(super) struct SharedReceives {
    domain: Arc<Domain>,
    number: usize,
    length: u32,
}

impl SharedReceives {
    /// A full queue of at least this length.
    ///
    /// # Errors
    /// [`OpenError::NoSharedReceives`]; [`OpenError::Refused`]: the adapter has none left, or the domain is closed.
    pub(super) fn new(domain: &Arc<Domain>, receives: u32) -> Result<Self, OpenError> {
        let mut open = domain.lock();
        let parts = open.pd.zip(open.context);
        let (pd, context) = parts.ok_or_else(|| OpenError::code("ibv_create_srq", libc::ENODEV))?;
        let longest = device_attributes(context).map_or(0, |attributes| attributes.max_srq_wr);
        if u32::try_from(longest).unwrap_or(0) < receives {
            return Err(OpenError::NoSharedReceives(domain.name().to_owned(), receives));
        }
        let attr = sys::ibv_srq_attr { max_wr: receives, max_sge: 1, srq_limit: 0 };
        let mut wanted = sys::ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: an open protection domain.
        let queue = NonNull::new(unsafe { sys::ibv_create_srq(pd.as_ptr(), &mut wanted) });
        let number = open.receives.insert(queue.ok_or_else(|| OpenError::last("ibv_create_srq"))?);
        // Adapters round lengths up, and say so there: the queue is as long as it takes entries.
        let mut made = Self { domain: Arc::clone(domain), number, length: wanted.attr.max_wr.max(receives) };
        made.length = made.fill(&open);
        Ok(made)
    }

    /// How many entries it holds.
    pub(super) const fn length(&self) -> u32 {
        self.length
    }

    pub(super) fn queue(&self, open: &OpenDomain) -> Option<NonNull<sys::ibv_srq>> {
        open.receives.get(self.number)
    }

    /// Posts as many entries as it takes now, at most its length. Returns their number.
    ///
    /// It is the queue that knows what is missing: completions of a connection may go with its queue pair.
    pub(super) fn fill(&self, open: &OpenDomain) -> u32 {
        // SAFETY: numbers and pointers that may be null.
        let mut entry = unsafe { MaybeUninit::<sys::ibv_recv_wr>::zeroed().assume_init() };
        entry.wr_id = RECEIVE;
        let Some(queue) = self.queue(open) else { return 0 };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue, since the domain is locked, and an entry without memory.
        let is_taken = |_: &u32| unsafe { sys::ibv_post_srq_recv(queue.as_ptr(), &mut entry, &mut bad) } == 0;
        (0..self.length).take_while(is_taken).count() as u32
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        if let Some(queue) = self.domain.lock().receives.take(self.number) {
            // SAFETY: made by `new`, taken once. A connection that still uses it makes the call fail, and leaks it.
            unsafe { sys::ibv_destroy_srq(queue.as_ptr()) };
        }
    }
}
