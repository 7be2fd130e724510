//! One end of a reliable connection: its queue pair, created, connected, posted to, destroyed.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use rdma_core_sys as sys;

use super::address::{BITS_24, RcAddress};
use super::completions::RcCompletions;
use super::mapped::MappedEnd;
use super::objects::{CompletionObject, EndObject, LibraryPair, PairObject, ReceiveObject};
use super::operation::RcRequest;
use crate::raw::Data;
use crate::ud::{Domain, OpenDomain, OpenError, device_attributes, no_attributes};

/// Reads that one end has outstanding at most.
const READS: u8 = 16;
/// Routers that packets may pass.
const HOPS: u8 = 64;
/// The time to wait for an acknowledgement, 4.096 µs · 2¹⁴ = 67 ms, and how often to wait again: a peer that is gone is
/// noticed after about 0.5 s. Adapters may wait up to four times as long (InfiniBand, vol. 1, §9.7.6.1.3). On Soft-RoCE 7
/// retries are retries for ever.
const TIMEOUT: u8 = 14;
const RETRIES: u8 = 6;
/// When a write whose target has no receive is repeated: after 0.64 ms, for ever. A target that is gone is noticed as
/// above.
const RNR_TIMER: u8 = 12;
const RNR_RETRIES: u8 = 7;

/// Bytes of the memory of an atomic, and its alignment.
const ATOMIC_BYTES: u32 = 8;

/// Why an operation was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RcPostError {
    /// There is no room, the end was not connected, or the adapter is closed.
    #[error(
        "as many operations are outstanding as the connection holds, it is not connected, or the adapter is closed"
    )]
    Refused,
    /// The memory of an atomic has another length, or another alignment, here or at the peer.
    #[error("the memory of an atomic operation is not 8 bytes that are aligned to 8")]
    Misaligned,
    /// The connection was made without atomics.
    #[error("the connection was made without atomic operations")]
    NoAtomics,
}

/// One end of a connection.
#[derive(Debug)]
pub struct RcConnection {
    domain: Arc<Domain>,
    number: usize,
    address: RcAddress,
    atomics: bool,
}

impl RcConnection {
    /// An end for as many outstanding operations, whose first packet has this PSN. Its completions come to that queue,
    /// which is dropped after it.
    ///
    /// # Errors
    /// [`OpenError::Refused`]: the adapter has no queue pair left, or the domain is closed.
    pub fn new(completions: &RcCompletions, operations: u32, psn: u32) -> Result<Self, OpenError> {
        let domain = Arc::clone(completions.domain());
        let mut open = domain.lock();
        let parts = open.context.zip(open.queues.get(completions.number));
        let (context, queue) = parts.ok_or_else(|| OpenError::code("ibv_create_qp", libc::ENODEV))?;
        let receives = completions.receives.as_ref().and_then(|receives| receives.queue(&open));
        let pair = make(&open, queue, receives, operations)?;
        let end = EndObject::new(pair, operations);
        let (qpn, reads) = (end.number(), reads(context));
        let number = open.pairs.insert(end);
        drop(open);
        let address = RcAddress { gid: domain.gid().gid, qpn, psn: psn & BITS_24, mtu: domain.mtu(), reads };
        // From here on, dropping it destroys the queue pair.
        let connection = Self { domain, number, address, atomics: completions.atomics };
        let (mut attributes, mask) = connection.initial();
        connection.modify(&mut attributes, mask)?;
        Ok(connection)
    }

    /// What the peer has to know.
    pub const fn address(&self) -> RcAddress {
        self.address
    }

    /// Connects this end to that of the peer, which accepts packets when it is connected, too. May wait for the
    /// neighbour's link address.
    ///
    /// # Errors
    /// [`OpenError::Refused`]: the peer cannot be reached, or this end was connected before.
    pub fn connect(&self, to: &RcAddress) -> Result<(), OpenError> {
        use sys::ibv_qp_attr_mask as mask;
        let mut attributes = no_attributes();
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        // 256 bytes are number 1.
        attributes.path_mtu = self.address.mtu.min(to.mtu).trailing_zeros().saturating_sub(7);
        (attributes.dest_qp_num, attributes.rq_psn) = (to.qpn, to.psn);
        (attributes.max_dest_rd_atomic, attributes.min_rnr_timer) = (self.address.reads, RNR_TIMER);
        let path = &mut attributes.ah_attr;
        (path.is_global, path.port_num) = (1, self.domain.port());
        path.grh.dgid = sys::ibv_gid { raw: to.gid.0 };
        (path.grh.sgid_index, path.grh.hop_limit) = (self.domain.gid().index, HOPS);
        let receiving = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attributes, receiving)?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTS;
        attributes.sq_psn = self.address.psn;
        (attributes.timeout, attributes.retry_cnt, attributes.rnr_retry) = (TIMEOUT, RETRIES, RNR_RETRIES);
        attributes.max_rd_atomic = self.address.reads.min(to.reads);
        let sending = mask::IBV_QP_STATE
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attributes, sending)
    }

    /// Posts an operation of an end that is connected, and rings the doorbell. `tag` is that of its completion.
    ///
    /// # Errors
    /// [`RcPostError`]: it is not executed, and has no completion.
    ///
    /// # Safety
    /// The local memory stays registered, and nobody else uses it, until the completion has been polled or the end is
    /// dropped; of a write, others may read it.
    pub unsafe fn post(&self, request: &RcRequest, tag: u32) -> Result<(), RcPostError> {
        let Data { address, bytes, .. } = request.local;
        if request.operation.is_atomic() {
            let is_aligned = |address: u64| address.is_multiple_of(ATOMIC_BYTES.into());
            if !self.atomics {
                return Err(RcPostError::NoAtomics);
            }
            if bytes != ATOMIC_BYTES || !is_aligned(address) || !is_aligned(request.remote.address) {
                return Err(RcPostError::Misaligned);
            }
        }
        let mut open = self.domain.lock();
        let end = open.pairs.get_mut(self.number).ok_or(RcPostError::Refused)?;
        // SAFETY: the caller answers for the memory.
        if unsafe { end.post(request, tag) } { Ok(()) } else { Err(RcPostError::Refused) }
    }

    /// Ends all outstanding operations, which fail, as a failing adapter does.
    ///
    /// # Errors
    /// [`OpenError::Refused`]: the domain is closed.
    pub fn fail(&self) -> Result<(), OpenError> {
        let mut attributes = no_attributes();
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_ERR;
        self.modify(&mut attributes, sys::ibv_qp_attr_mask::IBV_QP_STATE)
    }

    /// The state in which peers may be connected.
    fn initial(&self) -> (sys::ibv_qp_attr, sys::ibv_qp_attr_mask) {
        use sys::ibv_access_flags as access;
        use sys::ibv_qp_attr_mask as mask;
        let mut attributes = no_attributes();
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_INIT;
        attributes.port_num = self.domain.port();
        let atomics = if self.atomics { access::IBV_ACCESS_REMOTE_ATOMIC.0 } else { 0 };
        attributes.qp_access_flags = (access::IBV_ACCESS_REMOTE_WRITE | access::IBV_ACCESS_REMOTE_READ).0 | atomics;
        let all = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        (attributes, all)
    }

    fn modify(&self, to: &mut sys::ibv_qp_attr, mask: sys::ibv_qp_attr_mask) -> Result<(), OpenError> {
        let mut open = self.domain.lock();
        let end = open.pairs.get_mut(self.number).ok_or_else(|| OpenError::code("ibv_modify_qp", libc::ENODEV))?;
        end.modify(to, mask)
    }
}

impl Drop for RcConnection {
    fn drop(&mut self) {
        drop(self.domain.lock().pairs.take(self.number));
    }
}

/// A queue pair over these queues, of the same maker as they are.
pub(super) fn make(
    open: &OpenDomain,
    queue: &CompletionObject,
    receives: Option<&ReceiveObject>,
    operations: u32,
) -> Result<PairObject, OpenError> {
    let parts = open.pd.zip(open.file_and_pd());
    let (pd, file_and_pd) = parts.ok_or_else(|| OpenError::code("ibv_create_qp", libc::ENODEV))?;
    match (queue, receives) {
        (CompletionObject::Library(queue), None | Some(ReceiveObject::Library(_))) => {
            // SAFETY: numbers and pointers that may be null.
            let mut wanted = unsafe { MaybeUninit::<sys::ibv_qp_init_attr>::zeroed().assume_init() };
            (wanted.send_cq, wanted.recv_cq) = (queue.0.as_ptr(), queue.0.as_ptr());
            wanted.qp_type = sys::ibv_qp_type::IBV_QPT_RC;
            wanted.sq_sig_all = 1;
            let (max_send_wr, one) = (operations, 1);
            wanted.cap = sys::ibv_qp_cap {
                max_send_wr,
                max_recv_wr: one,
                max_send_sge: one,
                max_recv_sge: one,
                max_inline_data: 0,
            };
            if let Some(ReceiveObject::Library(receives)) = receives {
                wanted.srq = receives.0.as_ptr();
            }
            // SAFETY: an open protection domain, a live completion queue, and a live shared receive queue or none.
            let pair = NonNull::new(unsafe { sys::ibv_create_qp(pd.as_ptr(), &mut wanted) });
            pair.map(|pair| PairObject::Library(LibraryPair(pair))).ok_or_else(|| OpenError::last("ibv_create_qp"))
        }
        (CompletionObject::Mapped(queue), None | Some(ReceiveObject::Mapped(_))) => {
            let receives = match receives {
                Some(ReceiveObject::Mapped(receives)) => Some(&**receives),
                _ => None,
            };
            // SAFETY: the adapter drops its objects before it closes its file; who posts answers for the memory.
            let made = unsafe { MappedEnd::new(file_and_pd, queue, receives, operations) };
            made.map(|end| PairObject::Mapped(Box::new(end)))
                .map_err(|error| OpenError::Refused { what: "creating a queue pair through uverbs", error })
        }
        _ => Err(OpenError::code("ibv_create_qp", libc::EINVAL)),
    }
}

/// Reads that an adapter issues and serves at a time on one queue pair, at most [`READS`].
fn reads(context: NonNull<sys::ibv_context>) -> u8 {
    let both =
        device_attributes(context).map(|attributes| attributes.max_qp_rd_atom.min(attributes.max_qp_init_rd_atom));
    both.map_or(1, |both| u8::try_from(both).unwrap_or(READS).clamp(1, READS))
}
