//! The adapter's asynchronous events, read by a thread of its own, since each query costs a system call.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rdma_core_sys as sys;

use super::arrival_waiter::{self, ArrivalWaiter, set_nonblocking};
use super::domain::Domain;

/// An asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Report {
    /// A queue pair failed: the address of its `ibv_qp`, or the number that was assigned to it.
    QueueFailed(usize),
    /// As above, for a completion queue that was overrun.
    Overrun(usize),
    /// The port is down.
    PortDown,
    /// The port is active.
    PortUp,
    /// The port's addresses changed. The only event when an interface is removed: the kernel reports no port that it
    /// can no longer query.
    Changed,
    /// The adapter is gone for good.
    Fatal,
}

/// Events that the device has not taken yet.
#[derive(Debug, Default)]
struct Inbox {
    any: AtomicBool,
    reports: Mutex<Vec<Report>>,
}

/// The thread and the events that it has read.
#[derive(Debug)]
pub(super) struct Events {
    inbox: Arc<Inbox>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// The context's address, for the thread.
struct Context(*mut sys::ibv_context);

// SAFETY: rdma-core lets any thread read events; the thread ends before the context is closed.
unsafe impl Send for Context {}

impl Events {
    /// Starts the thread. Every event also wakes the waiters.
    pub(super) fn start(domain: &Domain, bells: [ArrivalWaiter; 2]) -> io::Result<Self> {
        let (context, _) = domain.parts().ok_or(io::ErrorKind::NotConnected)?;
        // SAFETY: an open context, whose descriptor does not change.
        let descriptor = unsafe { context.as_ref() }.async_fd;
        // SAFETY: open as long as the context.
        set_nonblocking(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
        let (inbox, stop) = (Arc::<Inbox>::default(), Arc::new(arrival_waiter::counter()?));
        let port = domain.port();
        let (filled, stopped, context) = (Arc::clone(&inbox), Arc::clone(&stop), Context(context.as_ptr()));
        let run = move || {
            let context = context;
            while let [_, false] = arrival_waiter::wait([descriptor, stopped.as_raw_fd()], None) {
                while let Some(report) = next(&context, port) {
                    let Some(report) = report else { continue };
                    filled.reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
                    filled.any.store(true, Ordering::Release);
                    bells.iter().for_each(ArrivalWaiter::notify);
                }
            }
        };
        let thread = thread::Builder::new().name("unisono-verbs".into()).spawn(run)?;
        Ok(Self { inbox, stop, thread: Some(thread) })
    }

    /// Takes the events since the last call. One load when there are none.
    pub(super) fn take(&self) -> Vec<Report> {
        if !self.inbox.any.load(Ordering::Relaxed) || !self.inbox.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        core::mem::take(&mut self.inbox.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        arrival_waiter::ring(&self.stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The next event: `None` if there is none, `Some(None)` if it is irrelevant, as those of other ports than `own` are.
fn next(context: &Context, own: u8) -> Option<Option<Report>> {
    let mut event = MaybeUninit::<sys::ibv_async_event>::zeroed();
    // SAFETY: an open context whose descriptor does not block, and a place for the answer.
    if unsafe { sys::ibv_get_async_event(context.0, event.as_mut_ptr()) } != 0 {
        return None;
    }
    // Not read as the binding's enumeration: the kernel may know more events.
    // SAFETY: within the event.
    let kind = unsafe { &raw const (*event.as_ptr()).event_type }.cast::<u32>();
    // SAFETY: the enumeration is a C one, of 32 bits, and was written above.
    let kind = unsafe { kind.read() };
    // SAFETY: within the event.
    let element = unsafe { &raw const (*event.as_ptr()).element }.cast::<usize>();
    // SAFETY: an address or a port number, in a place that was all zeros before it was written.
    let element = unsafe { element.read() };
    // SAFETY: within the event.
    let port = unsafe { &raw const (*event.as_ptr()).element }.cast::<c_int>();
    // SAFETY: the beginning of an address, or a port number, in a place that was all zeros before it was written.
    let port = unsafe { port.read() };
    // An odd number is a mapped queue pair's, or a port's: no object of libibverbs, which counts acknowledgements.
    if element.is_multiple_of(2) {
        // SAFETY: got above. What it names lives: the code that destroys it waits for this.
        unsafe { sys::ibv_ack_async_event(event.as_mut_ptr()) };
    }
    use sys::ibv_event_type as is;
    let is_one_of = |kinds: &[sys::ibv_event_type]| kinds.iter().any(|one| *one as u32 == kind);
    Some(if is_one_of(&[is::IBV_EVENT_CQ_ERR]) {
        Some(Report::Overrun(element))
    } else if is_one_of(&[is::IBV_EVENT_QP_FATAL, is::IBV_EVENT_QP_REQ_ERR, is::IBV_EVENT_QP_ACCESS_ERR]) {
        Some(Report::QueueFailed(element))
    } else if is_one_of(&[is::IBV_EVENT_PORT_ERR, is::IBV_EVENT_PORT_ACTIVE]) && port != c_int::from(own) {
        None
    } else if is_one_of(&[is::IBV_EVENT_PORT_ERR]) {
        Some(Report::PortDown)
    } else if is_one_of(&[is::IBV_EVENT_PORT_ACTIVE]) {
        Some(Report::PortUp)
    } else if is_one_of(&[is::IBV_EVENT_GID_CHANGE]) {
        Some(Report::Changed)
    } else if is_one_of(&[is::IBV_EVENT_DEVICE_FATAL]) {
        Some(Report::Fatal)
    } else {
        None
    })
}
