//! A lane's queue pair, written by libibverbs or, on known adapters, by the driver itself.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;
use core::slice;
use std::os::fd::{AsRawFd, RawFd};

use unisono_core::device::DeviceQueue;

use super::address_table::{AddressHandle, LaneAddress};
use super::arrival_waiter::set_nonblocking;
use super::domain::{Domain, OpenError};
use super::library::VerbsQueuePair;
use super::multicast::Member;
use super::uverbs::{self, UverbsQueue, UverbsQueuePair};
use crate::raw::{Arrived, Data, QueuePair, SendPayload, WorkResult};
use crate::rxe;
use crate::uverbs::objects::is_rxe;

/// Most inline bytes of a work queue entry.
pub(super) const INLINE_MAX: usize = 256;
/// Pieces of a datagram: head and payload.
pub(super) const PIECES: usize = 2;

/// Which writer of a device's queues is requested.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum QueueChoice {
    /// The driver, where there is a [`Provider`] and the kernel creates queues for it; else libibverbs.
    #[default]
    Auto,
    /// libibverbs.
    Library,
    /// The driver itself; opening fails where it cannot.
    Raw,
}

impl QueueChoice {
    /// The writer to try on an adapter with this provider, and the one to try if that fails. `None`: there is none.
    pub(crate) const fn writers(self, provider: Option<Provider>) -> Option<(Writer, Option<Writer>)> {
        match (self, provider) {
            (Self::Auto, Some(provider)) => Some((Writer::Raw(provider), Some(Writer::Library))),
            (Self::Raw, Some(provider)) => Some((Writer::Raw(provider), None)),
            (Self::Auto, None) | (Self::Library, _) => Some((Writer::Library, None)),
            (Self::Raw, None) => None,
        }
    }
}

/// Who writes and reads a device's queues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Writer {
    /// libibverbs.
    Library,
    /// The driver itself.
    Raw(Provider),
}

impl fmt::Display for Writer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library => to.write_str("library"),
            Self::Raw(provider) => write!(to, "raw ({provider})"),
        }
    }
}

/// A kind of adapter whose queues the driver writes and reads itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Provider {
    /// Soft-RoCE: [`rxe`].
    Rxe,
}

impl Provider {
    /// The provider of the adapter of this name.
    pub fn of(adapter: &str) -> Option<Self> {
        is_rxe(adapter).then_some(Self::Rxe)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Rxe => "rxe",
        })
    }
}

/// How large a queue is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    pub(super) sends: u32,
    pub(super) receives: u32,
    /// Entries of the completion queue of receives: at least `receives`, so that it cannot overrun. Those that we read
    /// have four times as many as there are receives.
    pub(super) completions: u32,
}

/// A gather or scatter element, at most [`PIECES`] to a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct SgEntry {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
    /// The adapter's address of the first byte, under the key.
    pub(super) address: u64,
    pub(super) key: u32,
}

impl SgEntry {
    /// Of memory that the adapter knows by its own addresses.
    pub(super) fn new(start: NonNull<u8>, bytes: usize, key: u32) -> Self {
        Self { start, bytes, address: start.expose_provenance().get() as u64, key }
    }

    /// Its bytes.
    ///
    /// # Safety
    /// They are live, and stay as they are as long as the slice is used.
    const unsafe fn get<'a>(self) -> &'a [u8] {
        // SAFETY: the caller promises that the bytes are live and stay as they are as long as the slice is used.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl From<SgEntry> for Data {
    fn from(piece: SgEntry) -> Self {
        Self { address: piece.address, bytes: piece.bytes as u32, key: piece.key }
    }
}

/// A datagram to post.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting {
    pub(super) head: SgEntry,
    pub(super) payload: Option<SgEntry>,
    /// Whether it is inline.
    pub(super) inline: bool,
    pub(super) solicited: bool,
    pub(super) tag: u32,
}

/// A queue pair with its completion queues and the completion channel of receives.
pub(super) enum Queue {
    Library(Box<VerbsQueuePair>),
    Rxe(Box<MappedQueuePair>),
}

/// A queue pair whose queues are mapped and written directly.
pub(super) struct MappedQueuePair {
    pair: Arc<UverbsQueuePair>,
    queues: rxe::RxeQueues<UverbsQueue, UverbsQueue, UverbsQueue>,
}

impl Queue {
    /// A queue pair that sends and receives. `key` is the job's.
    pub(super) fn new(
        domain: &Arc<Domain>,
        (by, lane): (Writer, DeviceQueue),
        depth: Depth,
        key: u32,
    ) -> Result<Self, OpenError> {
        match by {
            Writer::Library => {
                return VerbsQueuePair::new(domain, depth, key).map(|library| Self::Library(Box::new(library)));
            }
            Writer::Raw(Provider::Rxe) => {}
        }
        let depth = uverbs::UverbsDepth { sends: depth.sends, receives: depth.receives, inline: INLINE_MAX as u32 };
        // Odd, so that it is no address of a libibverbs object.
        let element = 2 * lane as u32 + 1;
        // SAFETY: entries are posted by `post` and `post_receive`, followed by `flush` and `flush_receives`, whose
        // callers promise it of the memory that they name.
        let made = unsafe { UverbsQueuePair::new(domain, depth, key, element) }.and_then(|(pair, queues)| {
            set_nonblocking(pair.events())?;
            Ok(Self::Rxe(Box::new(MappedQueuePair { pair, queues })))
        });
        made.map_err(|error| OpenError::Refused { what: "creating a queue pair through uverbs", error })
    }

    /// The queue pair number.
    pub(super) fn number(&self) -> u32 {
        match self {
            Self::Library(library) => library.number(),
            Self::Rxe(mapped) => mapped.pair.number(),
        }
    }

    /// Most bytes of an inline datagram.
    pub(super) fn inline(&self) -> usize {
        match self {
            Self::Library(library) => library.inline(),
            Self::Rxe(mapped) => mapped.queues.inline_max().min(INLINE_MAX),
        }
    }

    /// Whether an asynchronous event with this element is about one of its parts.
    pub(super) fn is(&self, element: usize) -> bool {
        match self {
            Self::Library(library) => library.is(element),
            Self::Rxe(mapped) => element == mapped.pair.element() as usize,
        }
    }

    /// The queue pair, to attach groups to.
    pub(super) fn member(&self) -> Option<Member> {
        match self {
            Self::Library(library) => library.pair().map(Member::Library),
            Self::Rxe(mapped) => Some(Member::Mapped(Arc::clone(&mapped.pair))),
        }
    }

    /// Posts a datagram, which the next flush hands to the adapter. Returns whether there was room.
    ///
    /// # Safety
    /// Its pieces are live until it is complete; if they travel in the entry, until it is flushed, and nobody writes to
    /// them. The way lives as long.
    #[inline(always)]
    pub(super) unsafe fn post(&mut self, to: LaneAddress<'_>, posting: &Posting) -> bool {
        match (self, to.handle) {
            (Self::Library(library), AddressHandle::Verbs(handle)) => library.post(*handle, to.number, posting),
            (Self::Rxe(mapped), AddressHandle::Rxe(path)) => {
                let to = (&**path, to.lane);
                if posting.inline {
                    // SAFETY: the caller promises that the pieces of an inline posting are live and not written to
                    // until it is flushed.
                    let bytes = |piece: SgEntry| unsafe { piece.get() };
                    let pieces = [bytes(posting.head), posting.payload.map_or(&[], bytes)];
                    return mapped.queues.post_inline(to, pieces, posting.solicited, posting.tag);
                }
                let data = [posting.head.into(), posting.payload.map(Data::from).unwrap_or_default()];
                mapped.queues.post(to, SendPayload::Gather(&data), posting.solicited, posting.tag)
            }
            _ => false,
        }
    }

    /// Hands all postings to the adapter; with `signal` the last one is signalled. Returns whether all were accepted.
    ///
    /// # Safety
    /// What [`post`](Self::post) was promised still holds.
    #[inline(always)]
    pub(super) unsafe fn flush(&mut self, signal: bool) -> bool {
        match self {
            // SAFETY: the caller promises that pieces and handles of all postings are live until they are complete.
            Self::Library(library) => unsafe { library.flush(signal) },
            Self::Rxe(mapped) => {
                mapped.queues.flush(signal);
                true
            }
        }
    }

    /// The tag of a posting that is complete with all before it, or a failure.
    pub(super) fn sent(&mut self) -> Option<WorkResult<u32>> {
        match self {
            Self::Library(library) => library.sent(),
            Self::Rxe(mapped) => mapped.queues.sent(),
        }
    }

    /// Posts a receive, which the next flush hands to the adapter. Returns whether there was room.
    pub(super) fn post_receive(&mut self, piece: SgEntry, tag: u32) -> bool {
        match self {
            Self::Library(library) => library.post_receive(piece, tag),
            Self::Rxe(mapped) => mapped.queues.post_receive(piece.into(), tag),
        }
    }

    /// Hands all posted receives to the adapter. Returns whether all were accepted.
    ///
    /// # Safety
    /// The memory is live, and nobody else's until its datagram comes or the queue pair is reset or dropped.
    pub(super) unsafe fn flush_receives(&mut self) -> bool {
        match self {
            // SAFETY: the caller promises that borrowed memory is live, and nobody else's until its datagram comes.
            Self::Library(library) => unsafe { library.flush_receives() },
            Self::Rxe(mapped) => {
                mapped.queues.flush_receives();
                true
            }
        }
    }

    /// Whether a poll is worthwhile; always, for libibverbs.
    #[inline(always)]
    pub(super) fn may_have_arrival(&mut self) -> bool {
        match self {
            Self::Library(_) => true,
            Self::Rxe(mapped) => mapped.queues.has_arrival(),
        }
    }

    /// The next datagram, or a failed receive.
    #[inline(always)]
    pub(super) fn received(&mut self) -> Option<WorkResult<Arrived>> {
        match self {
            Self::Library(library) => library.received(),
            Self::Rxe(mapped) => mapped.queues.received(),
        }
    }

    /// The next datagram of those already found. After `None`, [`received`](Self::received) polls again.
    #[inline]
    pub(super) fn received_more(&mut self) -> Option<WorkResult<Arrived>> {
        match self {
            Self::Library(library) => library.received(),
            Self::Rxe(mapped) => mapped.queues.received_more(),
        }
    }

    /// Arms the completion channel: an event at the next receive, or the next solicited one.
    pub(super) fn arm(&mut self, solicited: bool) {
        match self {
            Self::Library(library) => library.arm(solicited),
            Self::Rxe(mapped) => {
                mapped.pair.drain_events();
                mapped.queues.arm(solicited);
            }
        }
    }

    /// The descriptor that is readable after an event.
    pub(super) fn descriptor(&self) -> RawFd {
        match self {
            Self::Library(library) => library.descriptor(),
            Self::Rxe(mapped) => mapped.pair.events().as_raw_fd(),
        }
    }

    /// Restarts after an error, under the same number. Nothing is posted afterwards.
    pub(super) fn restart(&mut self) -> Result<(), OpenError> {
        match self {
            Self::Library(library) => library.restart(),
            Self::Rxe(mapped) => {
                mapped.pair.stop().map_err(refused)?;
                mapped.queues.reset();
                mapped.pair.start().map_err(refused)
            }
        }
    }

    /// Moves to the error state, as a failing adapter does: for tests of recovery.
    pub(super) fn fail(&mut self) -> Result<(), OpenError> {
        match self {
            Self::Library(library) => library.fail(),
            Self::Rxe(mapped) => mapped.pair.fail().map_err(refused),
        }
    }
}

const fn refused(error: std::io::Error) -> OpenError {
    OpenError::Refused { what: "MODIFY_QP", error }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn known_adapters_are_posted_to_directly_unless_libibverbs_is_asked_for() {
        let (known, library) = (Some(Provider::Rxe), Writer::Library);
        let raw = Writer::Raw(Provider::Rxe);
        assert_eq!(QueueChoice::default().writers(known), Some((raw, Some(library))));
        assert_eq!(QueueChoice::default().writers(None), Some((library, None)));
        for provider in [known, None] {
            assert_eq!(QueueChoice::Library.writers(provider), Some((library, None)));
        }
        // An explicit request is never replaced.
        assert_eq!(QueueChoice::Raw.writers(known), Some((raw, None)));
        assert_eq!(QueueChoice::Raw.writers(None), None);
        assert_eq!([raw, library].map(|writer| writer.to_string()), ["raw (rxe)", "library"]);
    }
}
