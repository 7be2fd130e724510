//! The completion queue of all connections of an adapter.

use alloc::borrow::ToOwned;
use alloc::sync::Arc;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use core::ptr::NonNull;

use rdma_core_sys as sys;

use super::shared_receives::{RECEIVE, SharedReceives};
use crate::raw::Failure;
use crate::ud::{Domain, OpenError};

/// Completions that are taken in one call.
const POLLED: usize = 16;

/// What the connections of an adapter do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcOptions {
    /// Operations of all connections that are outstanding at a time.
    pub operations: u32,
    /// Immediates that arrive, at least, until the completions are polled; the writes of further ones wait at their
    /// senders. 0: the connections accept none.
    pub receives: u32,
    /// Whether atomics are executed, for peers, too.
    pub atomics: bool,
}

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RcCompletion {
    /// The end of an operation that was posted here.
    Operation {
        /// The queue pair number of its connection's end here.
        qpn: u32,
        /// The tag that it was posted with.
        tag: u32,
        /// Whether it was executed; a write or an atomic that failed may have been, in part or whole.
        result: Result<(), Failure>,
    },
    /// A peer has written bytes, which are in place, with an immediate.
    Immediate {
        /// The queue pair number of the connection's end here.
        qpn: u32,
        /// The immediate.
        value: u32,
        /// How many bytes were written.
        bytes: u32,
    },
}

/// A completion queue that connections share.
pub struct RcCompletions {
    domain: Arc<Domain>,
    pub(super) number: usize,
    // Dropped after the completion queue, to which its entries complete.
    pub(super) receives: Option<SharedReceives>,
    pub(super) atomics: bool,
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
    /// A queue for connections that do this.
    ///
    /// # Errors
    /// [`OpenError::NoAtomics`], [`OpenError::NoSharedReceives`]: the adapter does not. [`OpenError::Refused`]: it holds
    /// fewer completions, or the domain is closed.
    pub fn new(domain: &Arc<Domain>, options: &RcOptions) -> Result<Self, OpenError> {
        let RcOptions { operations, receives, atomics } = *options;
        if atomics && !domain.has_atomics() {
            return Err(OpenError::NoAtomics(domain.name().to_owned()));
        }
        let receives = (receives > 0).then(|| SharedReceives::new(domain, receives)).transpose()?;
        // Receives are posted only when this queue was found empty: those that were posted before, and those that are
        // posted then, can complete until it is found empty again.
        let arrivals = receives.as_ref().map_or(0, |receives| receives.length().saturating_mul(2));
        let entries = c_int::try_from(operations.saturating_add(arrivals)).unwrap_or(c_int::MAX);
        let mut open = domain.lock();
        let context = open.context.ok_or_else(|| OpenError::code("ibv_create_cq", libc::ENODEV))?;
        // SAFETY: an open context, and no channel.
        let queue = unsafe { sys::ibv_create_cq(context.as_ptr(), entries, ptr::null_mut(), ptr::null_mut(), 0) };
        let queue = NonNull::new(queue).ok_or_else(|| OpenError::last("ibv_create_cq"))?;
        let number = open.queues.insert(queue);
        drop(open);
        let polled = [const { MaybeUninit::zeroed() }; POLLED];
        Ok(Self { domain: Arc::clone(domain), number, receives, atomics, polled, next: 0, count: 0 })
    }

    /// The adapter.
    pub const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The next completion.
    pub fn poll(&mut self) -> Option<RcCompletion> {
        loop {
            if self.next == self.count {
                self.poll_queue()?;
            }
            let completion = self.polled.get(..self.count)?.get(self.next)?;
            self.next += 1;
            // SAFETY: numbers, all zeros at first: what the library leaves out of the first `count` that it wrote is
            // initialised, too.
            let completion = read(unsafe { completion.assume_init_ref() });
            if completion.is_some() {
                return completion;
            }
        }
    }

    /// Takes completions. `None`: the domain is closed.
    fn poll_queue(&mut self) -> Option<()> {
        (self.next, self.count) = (0, 0);
        let open = self.domain.lock();
        let queue = open.queues.get(self.number)?;
        // SAFETY: a live completion queue, since the domain is locked, and room for all of them.
        let count = unsafe { sys::ibv_poll_cq(queue.as_ptr(), POLLED as c_int, self.polled.as_mut_ptr().cast()) };
        self.count = usize::try_from(count).unwrap_or(0).min(POLLED);
        if self.count < POLLED
            && let Some(receives) = &self.receives
        {
            receives.fill(&open);
        }
        Some(())
    }
}

/// Reads a completion. `None`: of a receive that reports nothing, since its write failed, or since a peer has sent a
/// message.
fn read(completion: &sys::ibv_wc) -> Option<RcCompletion> {
    let result = Failure::of(completion.status).map_or(Ok(()), Err);
    let qpn = completion.qp_num;
    if completion.wr_id != RECEIVE {
        return Some(RcCompletion::Operation { qpn, tag: completion.wr_id as u32, result });
    }
    if result.is_err() || completion.opcode != sys::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM {
        return None;
    }
    // SAFETY: 32 bits, whichever way they are looked at; a write with immediate has one.
    let value = u32::from_be(unsafe { completion.imm_data_invalidated_rkey_union.imm_data });
    Some(RcCompletion::Immediate { qpn, value, bytes: completion.byte_len })
}

impl Drop for RcCompletions {
    fn drop(&mut self) {
        if let Some(queue) = self.domain.lock().queues.take(self.number) {
            // SAFETY: made by `new`, taken once. A connection that still uses it makes the call fail, and leaks it.
            unsafe { sys::ibv_destroy_cq(queue.as_ptr()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(wr_id: u64, status: u32, opcode: u32) -> sys::ibv_wc {
        // SAFETY: numbers.
        let zeros = unsafe { MaybeUninit::<sys::ibv_wc>::zeroed().assume_init() };
        let immediate = sys::imm_data_invalidated_rkey_union_t { imm_data: 0x0102_0304_u32.to_be() };
        let known = sys::ibv_wc { wr_id, status, opcode, imm_data_invalidated_rkey_union: immediate, ..zeros };
        sys::ibv_wc { qp_num: 5, byte_len: 9, ..known }
    }

    #[test]
    fn completions_are_read() {
        use sys::ibv_wc_opcode as opcode;
        let ended = |tag, result| Some(RcCompletion::Operation { qpn: 5, tag, result });
        assert_eq!(read(&completion(7, 0, opcode::IBV_WC_FETCH_ADD)), ended(7, Ok(())));
        let last = u32::MAX;
        assert_eq!(read(&completion(last.into(), 10, 0)), ended(last, Err(Failure::RemoteAccess)));
        let arrived = Some(RcCompletion::Immediate { qpn: 5, value: 0x0102_0304, bytes: 9 });
        assert_eq!(read(&completion(RECEIVE, 0, opcode::IBV_WC_RECV_RDMA_WITH_IMM)), arrived);
        assert_eq!(read(&completion(RECEIVE, 0, opcode::IBV_WC_RECV)), None, "a message of a peer");
        assert_eq!(read(&completion(RECEIVE, 5, opcode::IBV_WC_RECV_RDMA_WITH_IMM)), None, "its write failed");
    }
}
