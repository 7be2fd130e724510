//! The completion queue of all connections of an adapter.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::ffi::c_int;
use core::ptr;
use core::ptr::NonNull;

use rdma_core_sys as sys;

use super::connection::make;
use super::mapped::MappedCompletions;
use super::objects::{CompletionObject, EndObject, LibraryCompletions};
use super::operation::RcCompletion;
use super::shared_receives::SharedReceives;
use crate::ud::{Domain, OpenDomain, OpenError, Provider, QueueChoice, Writer};
use crate::uverbs::objects::check_version;

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
    /// Who writes the queues.
    pub queues: QueueChoice,
}

/// A completion queue that connections share.
pub struct RcCompletions {
    domain: Arc<Domain>,
    pub(super) number: usize,
    // Dropped after the completion queue, to which its entries complete.
    pub(super) receives: Option<SharedReceives>,
    pub(super) atomics: bool,
    writer: Writer,
    refused: Option<OpenError>,
    /// Completions that were taken.
    taken: VecDeque<RcCompletion>,
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
        if options.atomics && !domain.has_atomics() {
            return Err(OpenError::NoAtomics(domain.name().to_owned()));
        }
        let writers = options.queues.writers(domain.provider());
        let (writer, other) = writers.ok_or_else(|| OpenError::NoProvider(domain.name().to_owned()))?;
        let version = if writer == Writer::Library { Ok(()) } else { check_version(domain.name()) };
        let refused = |error| OpenError::Refused { what: "creating queues through uverbs", error };
        let made = version.map_err(refused).and_then(|()| Self::with(domain, options, writer));
        match (made, other) {
            (Err(error @ OpenError::Refused { .. }), Some(other)) => {
                let mut made = Self::with(domain, options, other)?;
                made.refused = Some(error);
                Ok(made)
            }
            (made, _) => made,
        }
    }

    fn with(domain: &Arc<Domain>, options: &RcOptions, writer: Writer) -> Result<Self, OpenError> {
        let RcOptions { operations, receives, atomics, .. } = *options;
        let receives = (receives > 0).then(|| SharedReceives::new((domain, writer), receives)).transpose()?;
        // Receives are posted only when this queue was found empty: those that were posted before, and those that are
        // posted then, can complete until it is found empty again.
        let arrivals = receives.as_ref().map_or(0, |receives| receives.length().saturating_mul(2));
        let entries = c_int::try_from(operations.saturating_add(arrivals)).unwrap_or(c_int::MAX);
        let mut open = domain.lock();
        let parts = open.context.zip(open.file_and_pd());
        let (context, (file, _)) = parts.ok_or_else(|| OpenError::code("ibv_create_cq", libc::ENODEV))?;
        let queue = match writer {
            Writer::Library => {
                // SAFETY: an open context, and no channel.
                let queue =
                    unsafe { sys::ibv_create_cq(context.as_ptr(), entries, ptr::null_mut(), ptr::null_mut(), 0) };
                let queue = NonNull::new(queue).ok_or_else(|| OpenError::last("ibv_create_cq"))?;
                CompletionObject::Library(LibraryCompletions(queue))
            }
            Writer::Raw(Provider::Rxe) => {
                // SAFETY: the adapter drops its objects before it closes its file.
                let made = unsafe { MappedCompletions::new(file, entries as u32) };
                let made = made.map_err(|error| OpenError::Refused { what: "CREATE_CQ", error })?;
                CompletionObject::Mapped(Box::new(made))
            }
        };
        if matches!(writer, Writer::Raw(_)) {
            // Whether the kernel makes queue pairs over them, too.
            drop(make(&open, &queue, receives.as_ref().and_then(|receives| receives.queue(&open)), 1)?);
        }
        let number = open.queues.insert(queue);
        drop(open);
        let (domain, taken) = (Arc::clone(domain), VecDeque::new());
        Ok(Self { domain, number, receives, atomics, writer, refused: None, taken })
    }

    /// The adapter.
    pub const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Who writes the queues.
    pub const fn writer(&self) -> Writer {
        self.writer
    }

    /// Why the driver does not write them itself, though it would.
    pub const fn refused(&self) -> Option<&OpenError> {
        self.refused.as_ref()
    }

    /// The next completion.
    pub fn poll(&mut self) -> Option<RcCompletion> {
        while self.taken.is_empty() {
            let mut open = self.domain.lock();
            let OpenDomain { queues, pairs, .. } = &mut *open;
            let mut has_any = false;
            let has_more = queues.get_mut(self.number)?.poll(|work| {
                has_any = true;
                let completion = work.completion();
                if let Some(RcCompletion::Operation { qpn, .. }) = completion {
                    let end = pairs.iter_mut().find(|end| end.number() == qpn);
                    end.into_iter().for_each(EndObject::handle_completed);
                }
                self.taken.extend(completion);
            });
            if !has_more && let Some(receives) = &self.receives {
                receives.fill(&mut open);
            }
            if !has_any {
                return None;
            }
        }
        self.taken.pop_front()
    }
}

impl Drop for RcCompletions {
    fn drop(&mut self) {
        // A connection that still uses it leaks it.
        drop(self.domain.lock().queues.take(self.number));
    }
}
