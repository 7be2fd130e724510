//! A queue pair with its completion queues: made, brought to work, reset, given back.

use alloc::sync::Arc;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::os::fd::{BorrowedFd, RawFd};

use rdma_core_sys as sys;

use super::domain::{Domain, OpenError};

/// Completions taken in one call.
pub(super) const POLLED: usize = 16;
/// Bytes of a work queue entry's own data that are asked for, most first.
const INLINE: [u32; 4] = [256, 128, 64, 0];

/// How large a queue is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    pub(super) sends: u32,
    pub(super) receives: u32,
    /// Entries of the completion queue of receives: at least `receives`, so that it cannot overrun.
    pub(super) completions: u32,
}

/// A UD queue pair, its completion queues and the channel that tells of receives.
#[derive(Debug)]
pub(super) struct Queue {
    domain: Arc<Domain>,
    channel: NonNull<sys::ibv_comp_channel>,
    sent: Option<NonNull<sys::ibv_cq>>,
    received: Option<NonNull<sys::ibv_cq>>,
    pair: Option<NonNull<sys::ibv_qp>>,
    key: u32,
    inline: u32,
}

// SAFETY: used by its owner only; rdma-core locks what its queues share.
unsafe impl Send for Queue {}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) number: u64,
    pub(super) ok: bool,
    pub(super) bytes: u32,
    pub(super) source: u32,
    pub(super) has_route: bool,
}

impl Queue {
    /// A queue pair that sends and receives. `key` is the job's.
    pub(super) fn new(domain: &Arc<Domain>, depth: Depth, key: u32) -> Result<Self, OpenError> {
        let (context, pd) = domain.parts().ok_or_else(|| OpenError::code("ibv_create_qp", libc::ENODEV))?;
        // SAFETY: an open context.
        let channel = NonNull::new(unsafe { sys::ibv_create_comp_channel(context.as_ptr()) });
        let channel = channel.ok_or_else(|| OpenError::last("ibv_create_comp_channel"))?;
        let domain = Arc::clone(domain);
        let mut queue = Self { domain, channel, sent: None, received: None, pair: None, key, inline: 0 };
        queue.set_nonblocking()?;
        let completions = |entries: u32, channel: *mut sys::ibv_comp_channel| {
            let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
            // SAFETY: an open context, a live channel or none.
            let raw = unsafe { sys::ibv_create_cq(context.as_ptr(), entries, ptr::null_mut(), channel, 0) };
            NonNull::new(raw).ok_or_else(|| OpenError::last("ibv_create_cq"))
        };
        queue.sent = Some(completions(depth.sends, ptr::null_mut())?);
        queue.received = Some(completions(depth.completions, channel.as_ptr())?);
        let mut refused = None;
        for inline in INLINE {
            // SAFETY: numbers and pointers that may be null.
            let mut wanted = unsafe { MaybeUninit::<sys::ibv_qp_init_attr>::zeroed().assume_init() };
            wanted.send_cq = queue.sent.map_or(ptr::null_mut(), NonNull::as_ptr);
            wanted.recv_cq = queue.received.map_or(ptr::null_mut(), NonNull::as_ptr);
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

    /// What peers call it.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: a live queue pair, whose number does not change.
        self.pair.map_or(0, |pair| unsafe { pair.as_ref() }.qp_num)
    }

    /// Bytes of a datagram that fit in a work queue entry.
    pub(super) const fn inline(&self) -> usize {
        self.inline as usize
    }

    /// Whether the event is about one of its parts.
    pub(super) fn is(&self, element: usize) -> bool {
        let is = |address: Option<usize>| address == Some(element);
        is(self.pair.map(|part| part.addr().get()))
            || is(self.sent.map(|part| part.addr().get()))
            || is(self.received.map(|part| part.addr().get()))
    }

    /// The queue pair, for groups to be attached to.
    pub(super) const fn pair(&self) -> Option<NonNull<sys::ibv_qp>> {
        self.pair
    }

    /// Posts a chain of sends. `false`: not all of them were taken.
    ///
    /// # Safety
    /// The chain, its pieces, keys and handles are live; the bytes stay until their completion.
    pub(super) unsafe fn post_sends(&mut self, first: *mut sys::ibv_send_wr) -> bool {
        let (Some(pair), mut bad) = (self.pair, ptr::null_mut()) else { return false };
        // SAFETY: a live queue pair; the caller's promise.
        unsafe { sys::ibv_post_send(pair.as_ptr(), first, &mut bad) == 0 }
    }

    /// Posts a chain of receives. `false`: not all of them were taken.
    ///
    /// # Safety
    /// As [`post_sends`](Self::post_sends), and nobody else uses the bytes.
    pub(super) unsafe fn post_receives(&mut self, first: *mut sys::ibv_recv_wr) -> bool {
        let (Some(pair), mut bad) = (self.pair, ptr::null_mut()) else { return false };
        // SAFETY: a live queue pair; the caller's promise.
        unsafe { sys::ibv_post_recv(pair.as_ptr(), first, &mut bad) == 0 }
    }

    /// Hands completions of sends to `each`, at most [`POLLED`].
    pub(super) fn poll_sent(&mut self, each: impl FnMut(Completion)) -> usize {
        poll(self.sent, each)
    }

    /// Hands completions of receives to `each`, at most [`POLLED`].
    pub(super) fn poll_received(&mut self, each: impl FnMut(Completion)) -> usize {
        poll(self.received, each)
    }

    /// Asks for an event at the next receive, or at the next one whose sender solicits it.
    pub(super) fn arm(&mut self, solicited: bool) {
        self.drain();
        if let Some(received) = self.received {
            // SAFETY: a live completion queue.
            unsafe { sys::ibv_req_notify_cq(received.as_ptr(), c_int::from(solicited)) };
        }
    }

    /// The descriptor that becomes readable at an event.
    pub(super) fn descriptor(&self) -> RawFd {
        // SAFETY: a live channel, whose descriptor does not change.
        unsafe { self.channel.as_ref() }.fd
    }

    /// Back to work after an error, under the same number. Nothing is posted afterwards.
    pub(super) fn restart(&mut self) -> Result<(), OpenError> {
        let mut attributes = no_attributes();
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RESET;
        self.modify(&mut attributes, sys::ibv_qp_attr_mask::IBV_QP_STATE)?;
        while self.poll_sent(|_| ()) == POLLED {}
        while self.poll_received(|_| ()) == POLLED {}
        self.start()
    }

    /// Into the error state, as an adapter does when something fails: for tests of the way back.
    pub(super) fn fail(&mut self) -> Result<(), OpenError> {
        let mut attributes = no_attributes();
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_ERR;
        self.modify(&mut attributes, sys::ibv_qp_attr_mask::IBV_QP_STATE)
    }

    /// From reset to ready.
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

    fn set_nonblocking(&self) -> Result<(), OpenError> {
        set_nonblocking(self.descriptor()).map_err(|error| OpenError::Refused { what: "fcntl", error })
    }

    /// Takes the events that were raised.
    fn drain(&mut self) {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a live channel that does not block, and places for the answers.
        while unsafe { sys::ibv_get_cq_event(self.channel.as_ptr(), &mut queue, &mut context) } == 0 {
            // SAFETY: the completion queue that the event names, which is this one's.
            unsafe { sys::ibv_ack_cq_events(queue, 1) };
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.drain();
        if let Some(pair) = self.pair.take() {
            // SAFETY: made by `new`, taken once.
            unsafe { sys::ibv_destroy_qp(pair.as_ptr()) };
        }
        for part in [self.sent.take(), self.received.take()].into_iter().flatten() {
            // SAFETY: made by `new`, taken once; its events are acknowledged.
            unsafe { sys::ibv_destroy_cq(part.as_ptr()) };
        }
        // SAFETY: made by `new`; its completion queue is gone.
        unsafe { sys::ibv_destroy_comp_channel(self.channel.as_ptr()) };
    }
}

/// Makes a descriptor answer at once.
pub(super) fn set_nonblocking(descriptor: RawFd) -> std::io::Result<()> {
    // SAFETY: whoever calls has the descriptor open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let number = std::os::fd::AsRawFd::as_raw_fd(&borrowed);
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(number, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

fn no_attributes() -> sys::ibv_qp_attr {
    // SAFETY: numbers and addresses; all zeros are some.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn poll(queue: Option<NonNull<sys::ibv_cq>>, mut each: impl FnMut(Completion)) -> usize {
    let Some(queue) = queue else { return 0 };
    let mut completions = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; POLLED];
    // SAFETY: a live completion queue and room for so many.
    let count = unsafe { sys::ibv_poll_cq(queue.as_ptr(), POLLED as c_int, completions.as_mut_ptr().cast()) };
    let count = usize::try_from(count).unwrap_or(0);
    for completion in completions.iter().take(count) {
        // SAFETY: the first `count` were written.
        let completion = unsafe { completion.assume_init_ref() };
        each(Completion {
            number: completion.wr_id,
            ok: completion.status == sys::ibv_wc_status::IBV_WC_SUCCESS,
            bytes: completion.byte_len,
            source: completion.src_qp,
            has_route: completion.wc_flags & sys::ibv_wc_flags::IBV_WC_GRH.0 != 0,
        });
    }
    count
}
