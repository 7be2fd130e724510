//! Queues of reliable connections on Soft-RoCE that the kernel creates and maps, without libibverbs.

use std::io;
use std::os::fd::RawFd;

use rdma_core_sys as sys;

use super::operation::{EndedWork, RcRequest};
use crate::queue_memory::Mapped;
use crate::rxe::ring::{INDICES, Shape};
use crate::rxe::{DoorbellCall, RxeEnded, RxeReceives, RxeSends, SyscallDoorbell};
use crate::uverbs::command::{
    CREATE_RECEIVES, DESTROY_RECEIVES, MODIFY_PAIR, ring, send_command, send_command_with_answer,
};
use crate::uverbs::mapping::{Map, mapped, wrong_size};
use crate::uverbs::objects::{Completions, Object, QueuePair, completions, queue_pair};

/// The element of asynchronous events: odd, so that it is no address of a libibverbs object, and no lane's.
const ELEMENT: u32 = 5;
/// In one word: `sq_sig_all`, then `IBV_QPT_RC`, then `is_srq`.
const SIGNAL_ALL: u32 = 1;
const RELIABLE: u32 = 2 << 8;
const HAS_SHARED_RECEIVES: u32 = 1 << 16;

/// The doorbell of a send queue; other queues have none.
#[derive(Debug)]
pub(super) struct Doorbell {
    file: RawFd,
    pair: Option<u32>,
}

impl DoorbellCall for Doorbell {
    fn call(&mut self, _: [u8; 8]) {
        // A queue pair that is connected, or in error, accepts it.
        let _ = self.pair.map(|pair| ring(self.file, pair));
    }
}

type Queue = SyscallDoorbell<Mapped, Doorbell>;

/// The queue pair of a connection's end.
pub(crate) struct MappedEnd {
    // Dropped in this order: the kernel does not destroy objects in use, and the queue uses the mapping.
    sends: RxeSends<Queue>,
    object: Object,
    _map: Map,
    number: u32,
}

impl MappedEnd {
    /// A queue pair of this protection domain for as many outstanding operations.
    ///
    /// # Safety
    /// The file is the adapter's, and stays open as long as this lives. Every operation that is posted names memory for
    /// which its poster answers.
    pub(super) unsafe fn new(
        (file, pd): (RawFd, u32),
        completions: &MappedCompletions,
        receives: Option<&MappedReceives>,
        operations: u32,
    ) -> io::Result<Self> {
        let queue = completions.of.object.handle;
        let shared = receives.map_or(0, |receives| receives.object.handle);
        let handles = [ELEMENT, 0, pd, queue, queue, shared];
        let kind = SIGNAL_ALL | RELIABLE | if receives.is_some() { HAS_SHARED_RECEIVES } else { 0 };
        // One receive, which is never posted, and one piece of each.
        let fields = [handles, [operations, 1, 1, 1, 0, kind]].concat();
        let QueuePair { object, number, send, .. } = queue_pair(file, &fields)?;
        let map = Map::new(file, send)?;
        let (shape, [put, taken]) = (map.shape()?, INDICES);
        // SAFETY: mapped as long as this lives, whose fields are dropped in order; nobody else uses it but the kernel. The
        // poster of an operation answers for its memory.
        let queue = unsafe { mapped(&map, shape, [put, taken], Doorbell { file, pair: Some(object.handle) }) }?;
        let sends = RxeSends::new(shape, queue).ok_or_else(wrong_size)?;
        Ok(Self { sends, object, _map: map, number })
    }

    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn post(&mut self, request: &RcRequest, tag: u32) -> bool {
        self.sends.post(request, tag)
    }

    pub(super) fn modify(&self, to: &sys::ibv_qp_attr, mask: sys::ibv_qp_attr_mask) -> io::Result<()> {
        send_command(self.object.file, MODIFY_PAIR, &modification(self.object.handle, to, mask))
    }
}

/// The command that gives a queue pair these attributes (`ib_uverbs_modify_qp`): the path to the peer and none beside it,
/// of 32 bytes each, then handle and mask, then numbers of 32 bits, then bytes.
fn modification(handle: u32, to: &sys::ibv_qp_attr, mask: sys::ibv_qp_attr_mask) -> [u32; 28] {
    let (path, bytes) = (&to.ah_attr, u32::from_le_bytes);
    // SAFETY: sixteen bytes, whichever way they are looked at.
    let gid = unsafe { path.grh.dgid.raw };
    let [a, b, c, d]: [u32; 4] = zerocopy::transmute!(gid);
    let mut fields = [0; 28];
    let of_path = [
        a,
        b,
        c,
        d,
        path.grh.flow_label,
        path.dlid.into(),
        bytes([path.grh.sgid_index, path.grh.hop_limit, path.grh.traffic_class, path.sl]),
        bytes([path.src_path_bits, path.static_rate, path.is_global, path.port_num]),
    ];
    let rest = [
        handle,
        mask.0,
        to.qkey,
        to.rq_psn,
        to.sq_psn,
        to.dest_qp_num,
        to.qp_access_flags,
        to.pkey_index.into(),
        bytes([to.qp_state as u8, 0, to.path_mtu as u8, 0]),
        bytes([0, to.max_rd_atomic, to.max_dest_rd_atomic, to.min_rnr_timer]),
        bytes([to.port_num, to.timeout, to.retry_cnt, to.rnr_retry]),
        0,
    ];
    fields.iter_mut().zip(of_path).for_each(|(into, field)| *into = field);
    fields.iter_mut().skip(16).zip(rest).for_each(|(into, field)| *into = field);
    fields
}

/// The completion queue of connections.
pub(crate) struct MappedCompletions {
    queue: RxeEnded<Queue>,
    of: Completions,
}

impl MappedCompletions {
    /// A queue of as many completions.
    ///
    /// # Safety
    /// The file is the adapter's, and stays open as long as this lives.
    pub(super) unsafe fn new(file: RawFd, entries: u32) -> io::Result<Self> {
        let of = completions(file, entries, -1, ELEMENT)?;
        let (shape, [put, taken]) = (of.map.shape()?, INDICES);
        // SAFETY: mapped as long as this lives; nobody else uses it but the kernel. Completions name no memory.
        let queue = unsafe { mapped(&of.map, shape, [taken, put], Doorbell { file, pair: None }) }?;
        Ok(Self { queue: RxeEnded::new(shape, queue).ok_or_else(wrong_size)?, of })
    }

    pub(super) fn poll(&mut self) -> Option<EndedWork> {
        self.queue.poll()
    }

    /// Returns the entries of all completions that were taken.
    pub(super) fn give_back(&mut self) {
        self.queue.give_back();
    }
}

/// The shared receive queue of connections.
pub(crate) struct MappedReceives {
    queue: RxeReceives<Queue>,
    object: Object,
    _map: Map,
}

impl MappedReceives {
    /// A queue of at least as many receives of this protection domain.
    ///
    /// # Safety
    /// The file is the adapter's, and stays open as long as this lives.
    pub(super) unsafe fn new((file, pd): (RawFd, u32), receives: u32) -> io::Result<Self> {
        // The common response; offset, size and padding; the queue's number.
        let mut answer = [0; 4 + 4 + 2];
        send_command_with_answer(file, CREATE_RECEIVES, &[ELEMENT, 0, pd, receives, 1, 0], &mut answer)?;
        let [handle, _, _, _, place @ .., _, _] = answer;
        let object = Object { file, handle, destroy: DESTROY_RECEIVES, answer: 1 };
        let map = Map::new(file, place)?;
        let (shape, [put, taken]): (Shape, _) = (map.shape()?, INDICES);
        // SAFETY: mapped as long as this lives; nobody else uses it but the kernel. Its entries name no memory.
        let queue = unsafe { mapped(&map, shape, [put, taken], Doorbell { file, pair: None }) }?;
        Ok(Self { queue: RxeReceives::new(shape, queue).ok_or_else(wrong_size)?, object, _map: map })
    }

    pub(super) fn fill(&mut self) -> u32 {
        self.queue.fill()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ud::no_attributes;

    #[test]
    fn attributes_lie_where_the_kernel_looks() {
        let mut to = no_attributes();
        to.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        to.path_mtu = 3;
        (to.qkey, to.rq_psn, to.sq_psn, to.dest_qp_num, to.qp_access_flags) = (1, 2, 3, 4, 7);
        (to.max_rd_atomic, to.max_dest_rd_atomic, to.min_rnr_timer) = (16, 15, 12);
        (to.port_num, to.timeout, to.retry_cnt, to.rnr_retry) = (1, 14, 6, 7);
        (to.ah_attr.is_global, to.ah_attr.port_num) = (1, 1);
        to.ah_attr.grh.dgid = sys::ibv_gid { raw: core::array::from_fn(|i| i as u8) };
        (to.ah_attr.grh.sgid_index, to.ah_attr.grh.hop_limit) = (2, 64);
        let fields = modification(9, &to, sys::ibv_qp_attr_mask::IBV_QP_STATE);
        assert_eq!(fields[..8], [0x0302_0100, 0x0706_0504, 0x0b0a_0908, 0x0f0e_0d0c, 0, 0, 0x4002, 0x0101_0000]);
        assert_eq!(fields[16..], [9, 1, 1, 2, 3, 4, 7, 0, 0x0003_0002, 0x0c0f_1000, 0x0706_0e01, 0]);
    }
}
