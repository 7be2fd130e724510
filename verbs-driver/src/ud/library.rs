//! A queue pair whose queues libibverbs writes and reads: created, started, reset, destroyed.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ffi::c_int;
use core::mem::{self, MaybeUninit};
use core::ptr::{self, NonNull};
use std::os::fd::{BorrowedFd, RawFd};

use rdma_core_sys as sys;

use super::arrival_waiter::set_nonblocking;
use super::domain::{Domain, OpenError, no_attributes};
use super::queue::{Depth, INLINE_MAX, PIECES, Posting, SgEntry};
use crate::raw::{Arrived, Failure, Origin, WorkResult};

/// Completions taken in one call.
const POLLED: usize = 16;
/// Inline bytes to request, largest first.
const INLINE: [u32; 4] = [INLINE_MAX as u32, 128, 64, 0];

/// A work request that links to the next one.
trait Link {
    fn link(&mut self, behind: *mut Self);
}

impl Link for sys::ibv_send_wr {
    fn link(&mut self, behind: *mut Self) {
        self.next = behind;
    }
}

impl Link for sys::ibv_recv_wr {
    fn link(&mut self, behind: *mut Self) {
        self.next = behind;
    }
}

/// Work requests that are posted in one call, with up to `N` pieces of memory each.
struct Chain<R, const N: usize> {
    requests: Box<[R]>,
    pieces: Box<[[sys::ibv_sge; N]]>,
    count: usize,
}

impl<R: Link, const N: usize> Chain<R, N> {
    fn new(depth: u32, request: impl Fn() -> R) -> Self {
        let none = sys::ibv_sge { addr: 0, length: 0, lkey: 0 };
        let requests = (0..depth).map(|_| request()).collect();
        Self { requests, pieces: alloc::vec![[none; N]; depth as usize].into(), count: 0 }
    }

    /// The next request, linked to the one before it, the list of its pieces and their number. `None`: there is no
    /// room.
    #[inline(always)]
    fn next(&mut self, first: SgEntry, second: Option<SgEntry>) -> Option<(&mut R, *mut sys::ibv_sge, c_int)> {
        let (before, behind) = self.requests.split_at_mut_checked(self.count)?;
        let (request, list) = (behind.first_mut()?, self.pieces.get_mut(self.count)?);
        if let Some(before) = before.last_mut() {
            before.link(request);
        }
        request.link(ptr::null_mut());
        let mut places = list.iter_mut();
        *places.next()? = entry(first);
        let mut count = 1;
        if let Some(second) = second {
            *places.next()? = entry(second);
            count = 2;
        }
        self.count += 1;
        // Behind the last use of the borrow: one after it would end the pointer's.
        Some((request, list.as_mut_ptr(), count))
    }

    /// All requests of the chain, which is empty afterwards.
    fn take(&mut self) -> &mut [R] {
        self.requests.get_mut(..mem::take(&mut self.count)).unwrap_or_default()
    }
}

fn entry(piece: SgEntry) -> sys::ibv_sge {
    sys::ibv_sge { addr: piece.address, length: piece.bytes as u32, lkey: piece.key }
}

/// Completions that were polled and not processed yet.
struct PolledCompletions {
    queue: NonNull<sys::ibv_cq>,
    completions: [MaybeUninit<sys::ibv_wc>; POLLED],
    next: usize,
    count: usize,
}

impl PolledCompletions {
    const fn new(queue: NonNull<sys::ibv_cq>) -> Self {
        Self { queue, completions: [const { MaybeUninit::zeroed() }; POLLED], next: 0, count: 0 }
    }

    /// The next completion. After a poll that returned fewer than it could, `None` is returned once before the next
    /// poll.
    fn next(&mut self) -> Option<&sys::ibv_wc> {
        if self.next == self.count {
            let was_short = (1..POLLED).contains(&self.count);
            (self.next, self.count) = (0, 0);
            if was_short {
                return None;
            }
            let room = self.completions.as_mut_ptr().cast();
            // SAFETY: a live completion queue and room for all of them.
            let count = unsafe { sys::ibv_poll_cq(self.queue.as_ptr(), POLLED as c_int, room) };
            self.count = usize::try_from(count).unwrap_or(0).min(POLLED);
        }
        let completion = self.completions.get(..self.count)?.get(self.next)?;
        self.next += 1;
        // SAFETY: numbers, all zeros at first: what the library leaves out of the first `count` that it wrote is
        // initialised, too.
        Some(unsafe { completion.assume_init_ref() })
    }

    /// Discards all completions.
    fn clear(&mut self) {
        while self.next().is_some() || self.next().is_some() {}
    }
}

/// A UD queue pair, its completion queues and the completion channel of receives.
pub(super) struct VerbsQueuePair {
    domain: Arc<Domain>,
    channel: NonNull<sys::ibv_comp_channel>,
    sent: Option<PolledCompletions>,
    received: Option<PolledCompletions>,
    pair: Option<NonNull<sys::ibv_qp>>,
    key: u32,
    inline: u32,
    sends: Chain<sys::ibv_send_wr, PIECES>,
    receives: Chain<sys::ibv_recv_wr, 1>,
}

// SAFETY: used by its owner only; rdma-core locks what its queues share. The pointers in requests lead to the chains'
// own arrays, and to memory that the poster promised for.
unsafe impl Send for VerbsQueuePair {}

impl VerbsQueuePair {
    /// A queue pair that sends and receives. `key` is the job's.
    pub(super) fn new(domain: &Arc<Domain>, depth: Depth, key: u32) -> Result<Self, OpenError> {
        let (context, pd) = domain.parts().ok_or_else(|| OpenError::code("ibv_create_qp", libc::ENODEV))?;
        // SAFETY: an open context.
        let channel = NonNull::new(unsafe { sys::ibv_create_comp_channel(context.as_ptr()) });
        let channel = channel.ok_or_else(|| OpenError::last("ibv_create_comp_channel"))?;
        let domain = Arc::clone(domain);
        // SAFETY: numbers and pointers that may be null.
        let send = || unsafe { MaybeUninit::<sys::ibv_send_wr>::zeroed().assume_init() };
        let receive = || sys::ibv_recv_wr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };
        let (sends, receives) = (Chain::new(depth.sends, send), Chain::new(depth.receives, receive));
        let mut queue =
            Self { domain, channel, sent: None, received: None, pair: None, key, inline: 0, sends, receives };
        // SAFETY: the channel's descriptor, open as long as it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(queue.descriptor()) };
        set_nonblocking(descriptor).map_err(|error| OpenError::Refused { what: "fcntl", error })?;
        let completions = |entries: u32, channel: *mut sys::ibv_comp_channel| {
            let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
            // SAFETY: an open context, a live channel or none.
            let raw = unsafe { sys::ibv_create_cq(context.as_ptr(), entries, ptr::null_mut(), channel, 0) };
            NonNull::new(raw).map(PolledCompletions::new).ok_or_else(|| OpenError::last("ibv_create_cq"))
        };
        queue.sent = Some(completions(depth.sends, ptr::null_mut())?);
        queue.received = Some(completions(depth.completions, channel.as_ptr())?);
        let mut refused = None;
        for inline in INLINE {
            // SAFETY: numbers and pointers that may be null.
            let mut wanted = unsafe { MaybeUninit::<sys::ibv_qp_init_attr>::zeroed().assume_init() };
            let raw = |taken: &Option<PolledCompletions>| {
                taken.as_ref().map_or(ptr::null_mut(), |taken| taken.queue.as_ptr())
            };
            (wanted.send_cq, wanted.recv_cq) = (raw(&queue.sent), raw(&queue.received));
            wanted.qp_type = sys::ibv_qp_type::IBV_QPT_UD;
            wanted.cap = sys::ibv_qp_cap {
                max_send_wr: depth.sends,
                max_recv_wr: depth.receives,
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data: inline,
            };
            // SAFETY: an open protection domain and live completion queues.
            match NonNull::new(unsafe { sys::ibv_create_qp(pd.as_ptr(), &mut wanted) }) {
                Some(pair) => {
                    (queue.pair, queue.inline) = (Some(pair), wanted.cap.max_inline_data);
                    break;
                }
                None => refused = Some(OpenError::last("ibv_create_qp")),
            }
        }
        match refused {
            Some(refused) if queue.pair.is_none() => return Err(refused),
            _ => {}
        }
        queue.start()?;
        Ok(queue)
    }

    /// The queue pair number.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: a live queue pair, whose number does not change.
        self.pair.map_or(0, |pair| unsafe { pair.as_ref() }.qp_num)
    }

    /// Most bytes of an inline datagram.
    pub(super) const fn inline(&self) -> usize {
        self.inline as usize
    }

    /// Whether the event is about one of its parts.
    pub(super) fn is(&self, element: usize) -> bool {
        let is = |address: Option<usize>| address == Some(element);
        let queue = |taken: &Option<PolledCompletions>| taken.as_ref().map(|taken| taken.queue.addr().get());
        is(self.pair.map(|part| part.addr().get())) || is(queue(&self.sent)) || is(queue(&self.received))
    }

    /// The queue pair, for groups to be attached to.
    pub(super) const fn pair(&self) -> Option<NonNull<sys::ibv_qp>> {
        self.pair
    }

    /// Adds a datagram to the chain. Returns whether there was room.
    #[inline]
    pub(super) fn post(&mut self, to: NonNull<sys::ibv_ah>, number: u32, posting: &Posting) -> bool {
        let Some((request, list, count)) = self.sends.next(posting.head, posting.payload) else { return false };
        request.wr_id = posting.tag.into();
        (request.sg_list, request.num_sge) = (list, count);
        request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
        let flag = |set, flag: sys::ibv_send_flags| if set { flag.0 } else { 0 };
        request.send_flags = flag(posting.inline, sys::ibv_send_flags::IBV_SEND_INLINE)
            | flag(posting.solicited, sys::ibv_send_flags::IBV_SEND_SOLICITED);
        request.wr.ud = sys::ud_t { ah: to.as_ptr(), remote_qpn: number, remote_qkey: self.key };
        true
    }

    /// Posts the chain of sends. `false`: not all of them were taken.
    ///
    /// # Safety
    /// Pieces, keys and handles are live; the bytes stay until their completion.
    #[inline]
    pub(super) unsafe fn flush(&mut self, signal: bool) -> bool {
        let chain = self.sends.take();
        if let (true, Some(last)) = (signal, chain.last_mut()) {
            last.send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        let (Some(pair), mut bad) = (self.pair, ptr::null_mut()) else { return false };
        if chain.is_empty() {
            return true;
        }
        // SAFETY: a live queue pair and a linked chain; the caller promises that its pieces, keys and handles are live
        // and stay so until their completion.
        unsafe { sys::ibv_post_send(pair.as_ptr(), chain.as_mut_ptr(), &mut bad) == 0 }
    }

    /// Adds a receive to the chain. Returns whether there was room.
    pub(super) fn post_receive(&mut self, piece: SgEntry, tag: u32) -> bool {
        let Some((request, list, count)) = self.receives.next(piece, None) else { return false };
        (request.wr_id, request.sg_list, request.num_sge) = (tag.into(), list, count);
        true
    }

    /// Posts the chain of receives. `false`: not all of them were taken.
    ///
    /// # Safety
    /// As [`flush`](Self::flush), and nobody else uses the bytes.
    pub(super) unsafe fn flush_receives(&mut self) -> bool {
        let chain = self.receives.take();
        let (Some(pair), mut bad) = (self.pair, ptr::null_mut()) else { return false };
        if chain.is_empty() {
            return true;
        }
        // SAFETY: a live queue pair and a linked chain; the caller promises that its memory is live, and nobody else's
        // until a datagram has come there.
        unsafe { sys::ibv_post_recv(pair.as_ptr(), chain.as_mut_ptr(), &mut bad) == 0 }
    }

    /// The next send completion.
    pub(super) fn sent(&mut self) -> Option<WorkResult<u32>> {
        let completion = self.sent.as_mut()?.next()?;
        let tag = completion.wr_id as u32;
        Some(match Failure::of(completion.status) {
            None => WorkResult::Done(tag),
            Some(failure) => WorkResult::Failed(Some(tag), failure),
        })
    }

    /// The next receive completion.
    #[inline]
    pub(super) fn received(&mut self) -> Option<WorkResult<Arrived>> {
        let completion = self.received.as_mut()?.next()?;
        let tag = completion.wr_id as u32;
        Some(match Failure::of(completion.status) {
            None => {
                let grh = completion.wc_flags & sys::ibv_wc_flags::IBV_WC_GRH.0 != 0;
                let origin = Origin { qpn: completion.src_qp, lid: completion.slid, grh };
                WorkResult::Done(Arrived { tag, bytes: completion.byte_len, origin })
            }
            Some(failure) => WorkResult::Failed(Some(tag), failure),
        })
    }

    /// Arms the completion channel: an event at the next receive, or the next solicited one.
    pub(super) fn arm(&mut self, solicited: bool) {
        self.drain();
        if let Some(received) = &self.received {
            // SAFETY: a live completion queue.
            unsafe { sys::ibv_req_notify_cq(received.queue.as_ptr(), c_int::from(solicited)) };
        }
    }

    /// The descriptor that is readable after an event.
    pub(super) fn descriptor(&self) -> RawFd {
        // SAFETY: a live channel, whose descriptor does not change.
        unsafe { self.channel.as_ref() }.fd
    }

    /// Restarts after an error, under the same number. Nothing is posted afterwards.
    pub(super) fn restart(&mut self) -> Result<(), OpenError> {
        let mut attributes = no_attributes();
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RESET;
        self.modify(&mut attributes, sys::ibv_qp_attr_mask::IBV_QP_STATE)?;
        [&mut self.sent, &mut self.received].into_iter().flatten().for_each(PolledCompletions::clear);
        (self.sends.count, self.receives.count) = (0, 0);
        self.start()
    }

    /// Moves to the error state, as a failing adapter does: for tests of recovery.
    pub(super) fn fail(&mut self) -> Result<(), OpenError> {
        let mut attributes = no_attributes();
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_ERR;
        self.modify(&mut attributes, sys::ibv_qp_attr_mask::IBV_QP_STATE)
    }

    /// From reset to ready to send.
    fn start(&mut self) -> Result<(), OpenError> {
        use sys::ibv_qp_attr_mask as mask;
        let mut attributes = no_attributes();
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_INIT;
        (attributes.port_num, attributes.qkey) = (self.domain.port(), self.key);
        let all = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY;
        self.modify(&mut attributes, all)?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        self.modify(&mut attributes, mask::IBV_QP_STATE)?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTS;
        self.modify(&mut attributes, mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN)
    }

    fn modify(&mut self, to: &mut sys::ibv_qp_attr, mask: sys::ibv_qp_attr_mask) -> Result<(), OpenError> {
        let pair = self.pair.ok_or_else(|| OpenError::code("ibv_modify_qp", libc::ENODEV))?;
        // SAFETY: a live queue pair and filled attributes.
        match unsafe { sys::ibv_modify_qp(pair.as_ptr(), to, mask.0 as c_int) } {
            0 => Ok(()),
            code => Err(OpenError::code("ibv_modify_qp", code)),
        }
    }

    /// Drains the completion channel.
    fn drain(&mut self) {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a live channel that does not block, and places for the answers.
        while unsafe { sys::ibv_get_cq_event(self.channel.as_ptr(), &mut queue, &mut context) } == 0 {
            // SAFETY: the completion queue that the event names, which is this one's.
            unsafe { sys::ibv_ack_cq_events(queue, 1) };
        }
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        self.drain();
        if let Some(pair) = self.pair.take() {
            // SAFETY: made by `new`, taken once.
            unsafe { sys::ibv_destroy_qp(pair.as_ptr()) };
        }
        for part in [self.sent.take(), self.received.take()].into_iter().flatten() {
            // SAFETY: made by `new`, taken once; its events are acknowledged.
            unsafe { sys::ibv_destroy_cq(part.queue.as_ptr()) };
        }
        // SAFETY: made by `new`; its completion queue is gone.
        unsafe { sys::ibv_destroy_comp_channel(self.channel.as_ptr()) };
    }
}
