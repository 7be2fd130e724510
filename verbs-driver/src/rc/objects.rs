//! The objects of reliable connections, made by libibverbs, or by the driver itself where it knows the adapter's queues.
//! The opened adapter holds them, and drops those that are left when it is closed.

use alloc::boxed::Box;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use rdma_core_sys as sys;

use super::mapped::{MappedCompletions, MappedEnd, MappedReceives};
use super::operation::{EndedWork, RECEIVE, RcOperation, RcRequest};
use crate::raw::{Data, Failure, RemoteMemory};
use crate::ud::OpenError;

/// Completions that are taken in one call.
const POLLED: usize = 16;

/// The queue pair of a connection's end, and its operations.
pub(crate) struct EndObject {
    pair: PairObject,
    number: u32,
    /// Operations that are outstanding: their completions were not taken. As many as there may be.
    outstanding: u32,
    operations: u32,
    is_connected: bool,
}

/// A queue pair.
pub(super) enum PairObject {
    Library(LibraryPair),
    Mapped(Box<MappedEnd>),
}

/// A completion queue.
pub(crate) enum CompletionObject {
    Library(LibraryCompletions),
    Mapped(Box<MappedCompletions>),
}

/// A shared receive queue.
pub(crate) enum ReceiveObject {
    Library(LibraryReceives),
    Mapped(Box<MappedReceives>),
}

/// A queue pair of libibverbs, until this is dropped.
pub(crate) struct LibraryPair(pub(super) NonNull<sys::ibv_qp>);
/// A completion queue of libibverbs, until this is dropped.
pub(crate) struct LibraryCompletions(pub(super) NonNull<sys::ibv_cq>);
/// A shared receive queue of libibverbs, until this is dropped.
pub(crate) struct LibraryReceives(pub(super) NonNull<sys::ibv_srq>);

impl Drop for LibraryPair {
    fn drop(&mut self) {
        // SAFETY: made by a connection; the adapter is still open, since it drops its objects when it is closed.
        unsafe { sys::ibv_destroy_qp(self.0.as_ptr()) };
    }
}

impl Drop for LibraryCompletions {
    fn drop(&mut self) {
        // SAFETY: made by connections; the adapter is still open, since it drops its objects when it is closed. A queue
        // pair that still uses it makes the call fail, and leaks it.
        unsafe { sys::ibv_destroy_cq(self.0.as_ptr()) };
    }
}

impl Drop for LibraryReceives {
    fn drop(&mut self) {
        // SAFETY: made by connections; the adapter is still open, since it drops its objects when it is closed. A queue
        // pair that still uses it makes the call fail, and leaks it.
        unsafe { sys::ibv_destroy_srq(self.0.as_ptr()) };
    }
}

impl EndObject {
    pub(super) fn new(pair: PairObject, operations: u32) -> Self {
        let number = match &pair {
            // SAFETY: a live queue pair.
            PairObject::Library(pair) => unsafe { pair.0.as_ref() }.qp_num,
            PairObject::Mapped(end) => end.number(),
        };
        Self { pair, number, outstanding: 0, operations, is_connected: false }
    }

    /// The queue pair number.
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    /// Posts an operation and rings the doorbell. Returns whether it was accepted: adapters may have room for more
    /// operations than the completion queue was made for.
    ///
    /// # Safety
    /// The local memory stays registered, and nobody else uses it, until the completion has been polled or the end is
    /// dropped; of a write, others may read it.
    pub(super) unsafe fn post(&mut self, request: &RcRequest, tag: u32) -> bool {
        let is_posted = self.is_connected
            && self.outstanding < self.operations
            && match &mut self.pair {
                // SAFETY: the caller answers for the memory.
                PairObject::Library(pair) => unsafe { pair.post(request, tag) },
                // The caller answers for the memory.
                PairObject::Mapped(end) => end.post(request, tag),
            };
        self.outstanding += u32::from(is_posted);
        is_posted
    }

    /// The completion of an operation was taken.
    pub(super) const fn handle_completed(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    pub(super) fn modify(&mut self, to: &mut sys::ibv_qp_attr, mask: sys::ibv_qp_attr_mask) -> Result<(), OpenError> {
        let made = self.pair.modify(to, mask);
        self.is_connected |= made.is_ok() && to.qp_state == sys::ibv_qp_state::IBV_QPS_RTS;
        made
    }
}

impl PairObject {
    fn modify(&self, to: &mut sys::ibv_qp_attr, mask: sys::ibv_qp_attr_mask) -> Result<(), OpenError> {
        match self {
            // SAFETY: a live queue pair, and filled attributes.
            Self::Library(pair) => match unsafe { sys::ibv_modify_qp(pair.0.as_ptr(), to, mask.0 as c_int) } {
                0 => Ok(()),
                code => Err(OpenError::code("ibv_modify_qp", code)),
            },
            Self::Mapped(end) => end.modify(to, mask).map_err(|error| OpenError::Refused { what: "MODIFY_QP", error }),
        }
    }
}

impl LibraryPair {
    /// As [`EndObject::post`].
    ///
    /// # Safety
    /// As there.
    unsafe fn post(&self, request: &RcRequest, tag: u32) -> bool {
        let Data { address, bytes, key } = request.local;
        let mut piece = sys::ibv_sge { addr: address, length: bytes, lkey: key };
        // SAFETY: numbers and pointers that may be null.
        let mut entry = unsafe { MaybeUninit::<sys::ibv_send_wr>::zeroed().assume_init() };
        entry.wr_id = tag.into();
        (entry.sg_list, entry.num_sge) = (&mut piece, c_int::from(bytes > 0));
        entry.send_flags = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        let RemoteMemory { address: remote_addr, key: rkey } = request.remote;
        let rdma = sys::wr_t { rdma: sys::rdma_t { remote_addr, rkey } };
        let atomic = |compare_add, swap| sys::wr_t { atomic: sys::atomic_t { remote_addr, compare_add, swap, rkey } };
        use sys::ibv_wr_opcode as opcode;
        (entry.opcode, entry.wr) = match request.operation {
            RcOperation::Write => (opcode::IBV_WR_RDMA_WRITE, rdma),
            RcOperation::WriteImmediate(value) => {
                entry.imm_data_invalidated_rkey_union.imm_data = value.to_be();
                (opcode::IBV_WR_RDMA_WRITE_WITH_IMM, rdma)
            }
            RcOperation::Read => (opcode::IBV_WR_RDMA_READ, rdma),
            RcOperation::FetchAdd(add) => (opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, atomic(add, 0)),
            RcOperation::CompareSwap { compare, swap } => (opcode::IBV_WR_ATOMIC_CMP_AND_SWP, atomic(compare, swap)),
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair, and one request; the caller answers for its memory.
        unsafe { sys::ibv_post_send(self.0.as_ptr(), &mut entry, &mut bad) == 0 }
    }
}

impl CompletionObject {
    /// Takes completions. Returns whether more may be there.
    pub(super) fn poll(&mut self, mut each: impl FnMut(EndedWork)) -> bool {
        match self {
            Self::Library(queue) => {
                let mut polled = [const { MaybeUninit::<sys::ibv_wc>::zeroed() }; POLLED];
                // SAFETY: a live completion queue, and room for as many completions.
                let count = unsafe { sys::ibv_poll_cq(queue.0.as_ptr(), POLLED as c_int, polled.as_mut_ptr().cast()) };
                let count = usize::try_from(count).unwrap_or(0).min(POLLED);
                // SAFETY: numbers, all zeros at first: what the library leaves out is initialised, too.
                let read = |completion: &MaybeUninit<_>| ended(unsafe { completion.assume_init_ref() });
                polled.iter().take(count).map(read).for_each(each);
                count == POLLED
            }
            Self::Mapped(queue) => {
                let taken = core::iter::from_fn(|| queue.poll()).take(POLLED);
                let count = taken.fold(0, |count, work| {
                    each(work);
                    count + 1
                });
                queue.give_back();
                count == POLLED
            }
        }
    }
}

/// Reads a completion.
fn ended(completion: &sys::ibv_wc) -> EndedWork {
    let has_immediate = completion.opcode == sys::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
    // SAFETY: 32 bits, whichever way they are looked at.
    let value = u32::from_be(unsafe { completion.imm_data_invalidated_rkey_union.imm_data });
    EndedWork {
        tag: completion.wr_id,
        result: Failure::of(completion.status).map_or(Ok(()), Err),
        qpn: completion.qp_num,
        immediate: has_immediate.then_some(value),
        bytes: completion.byte_len,
    }
}

impl ReceiveObject {
    /// Posts as many entries as it takes, at most `length`. Returns their number.
    ///
    /// It is the queue that knows what is missing: completions of a connection may go with its queue pair.
    pub(super) fn fill(&mut self, length: u32) -> u32 {
        match self {
            Self::Library(queue) => {
                // SAFETY: numbers and pointers that may be null.
                let mut entry = unsafe { MaybeUninit::<sys::ibv_recv_wr>::zeroed().assume_init() };
                entry.wr_id = RECEIVE;
                let mut bad = ptr::null_mut();
                // SAFETY: a live queue, and an entry without memory.
                let is_taken = |_: &u32| unsafe { sys::ibv_post_srq_recv(queue.0.as_ptr(), &mut entry, &mut bad) } == 0;
                (0..length).take_while(is_taken).count() as u32
            }
            Self::Mapped(queue) => queue.fill(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::operation::RcCompletion;
    use super::*;

    #[test]
    fn completions_are_read() {
        // SAFETY: numbers.
        let zeros = unsafe { MaybeUninit::<sys::ibv_wc>::zeroed().assume_init() };
        let read = |wr_id, status, opcode| {
            let immediate = sys::imm_data_invalidated_rkey_union_t { imm_data: 0x0102_0304_u32.to_be() };
            let known = sys::ibv_wc { wr_id, status, opcode, imm_data_invalidated_rkey_union: immediate, ..zeros };
            ended(&sys::ibv_wc { qp_num: 5, byte_len: 9, ..known }).completion()
        };
        use sys::ibv_wc_opcode as opcode;
        let refused = RcCompletion::Operation { qpn: 5, tag: 7, result: Err(Failure::RemoteAccess) };
        assert_eq!(read(7, 10, opcode::IBV_WC_FETCH_ADD), Some(refused));
        let arrived = RcCompletion::Immediate { qpn: 5, value: 0x0102_0304, bytes: 9 };
        assert_eq!(read(RECEIVE, 0, opcode::IBV_WC_RECV_RDMA_WITH_IMM), Some(arrived));
        assert_eq!(read(RECEIVE, 0, opcode::IBV_WC_RECV), None, "a message of a peer");
    }
}
