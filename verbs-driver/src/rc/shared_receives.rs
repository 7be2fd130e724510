//! The shared receive queue of an adapter's connections. An entry has no memory: it takes the report of a write with
//! immediate, whose bytes go to memory that the writer names.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr;
use core::ptr::NonNull;

use rdma_core_sys as sys;

use super::mapped::MappedReceives;
use super::objects::{LibraryReceives, ReceiveObject};
use crate::ud::{Domain, OpenDomain, OpenError, Provider, Writer, device_attributes};

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
    pub(super) fn new((domain, writer): (&Arc<Domain>, Writer), receives: u32) -> Result<Self, OpenError> {
        let mut open = domain.lock();
        let parts = open.pd.zip(open.context).zip(open.file_and_pd());
        let ((pd, context), file_and_pd) = parts.ok_or_else(|| OpenError::code("ibv_create_srq", libc::ENODEV))?;
        let longest = device_attributes(context).map_or(0, |attributes| attributes.max_srq_wr);
        if u32::try_from(longest).unwrap_or(0) < receives {
            return Err(OpenError::NoSharedReceives(domain.name().to_owned(), receives));
        }
        let (queue, most) = match writer {
            Writer::Library => {
                let attr = sys::ibv_srq_attr { max_wr: receives, max_sge: 1, srq_limit: 0 };
                let mut wanted = sys::ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
                // SAFETY: an open protection domain.
                let queue = NonNull::new(unsafe { sys::ibv_create_srq(pd.as_ptr(), &mut wanted) });
                let queue = queue.ok_or_else(|| OpenError::last("ibv_create_srq"))?;
                // Adapters round lengths up, and say so there.
                (ReceiveObject::Library(LibraryReceives(queue)), wanted.attr.max_wr.max(receives))
            }
            Writer::Raw(Provider::Rxe) => {
                // SAFETY: the adapter drops its objects before it closes its file.
                let made = unsafe { MappedReceives::new(file_and_pd, receives) };
                let made = made.map_err(|error| OpenError::Refused { what: "CREATE_SRQ", error })?;
                (ReceiveObject::Mapped(Box::new(made)), u32::MAX)
            }
        };
        let number = open.receives.insert(queue);
        let mut made = Self { domain: Arc::clone(domain), number, length: most };
        // The queue is as long as it takes entries.
        made.length = made.fill(&mut open);
        Ok(made)
    }

    /// How many entries it holds.
    pub(super) const fn length(&self) -> u32 {
        self.length
    }

    pub(super) fn queue<'a>(&self, open: &'a OpenDomain) -> Option<&'a ReceiveObject> {
        open.receives.get(self.number)
    }

    /// Posts as many entries as it takes now, at most its length. Returns their number.
    pub(super) fn fill(&self, open: &mut OpenDomain) -> u32 {
        open.receives.get_mut(self.number).map_or(0, |queue| queue.fill(self.length))
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        // A connection that still uses it leaks it.
        drop(self.domain.lock().receives.take(self.number));
    }
}
