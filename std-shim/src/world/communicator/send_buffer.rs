//! Buffered sends (`MPI_Bsend`): messages are copied to an attached buffer, and are sent from there.

use alloc::collections::VecDeque;
use core::ptr::NonNull;

use unisono_core::message::point_to_point::Mode;
use zerocopy::{Immutable, IntoBytes};

use super::Communicator;
use crate::world::collective::AsView;
use crate::world::process::Process;
use crate::world::process::message_table::Flush;
use crate::world::request::handle::RequestHandle;
use crate::world::request::{Failure, Tag};
use unisono_bootstrap::Rank;
use unisono_memory::user_buffer::UserBuffer;

/// A buffer for sends that return whether or not their receives are posted. It is a ring, as in MPI's model (MPI 4.1,
/// §3.6.1): a message takes its length in adjacent bytes, at least one, which are free again when that message and all
/// earlier ones have been sent. Dropping it waits for them, as [`detach`](Self::detach) does.
#[must_use = "dropping it waits for its sends"]
pub struct SendBuffer<'c> {
    communicator: &'c Communicator,
    memory: NonNull<[u8]>,
    /// The memory's owner, unless it is the caller's. It is not used before all messages have been sent.
    owner: Vec<u8>,
    ring: MessageRing,
    /// The first failure of a send that was not reported.
    failure: Option<Failure>,
}

/// The messages in a buffer, in the order of sending.
#[derive(Debug)]
struct MessageRing {
    length: usize,
    messages: VecDeque<BufferedMessage>,
}

/// A message under way, and its place in the buffer.
#[derive(Debug)]
struct BufferedMessage {
    handle: RequestHandle,
    start: usize,
    end: usize,
}

// SAFETY: it owns the memory, or the caller lent it; the sends from it any thread may start and complete under the
// World's lock.
unsafe impl Send for SendBuffer<'_> {}

impl Communicator {
    /// Attaches memory for buffered sends on this communicator (`MPI_Comm_attach_buffer`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut buffer = world.attach_buffer(vec![0; 1 << 20]);
    /// buffer.buffered_send(&[1_u32, 2], world.rank(), Tag(1))?;
    /// let (values, _) = world.receive::<u32>(world.rank(), Tag(1))?;
    /// assert_eq!(values, [1, 2]);
    /// let refused = buffer.buffered_send(&vec![0_u8; 2 << 20], world.rank(), Tag(1));
    /// assert_eq!(refused, Err(Failure::BufferFull { bytes: 2 << 20, free: 1 << 20 }));
    /// let (sent, memory) = buffer.detach();
    /// assert_eq!((sent, memory.len()), (Ok(()), 1 << 20));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn attach_buffer(&self, mut memory: Vec<u8>) -> SendBuffer<'_> {
        let bytes = NonNull::from(memory.as_mut_slice());
        SendBuffer::new(self, bytes, memory)
    }

    /// As [`attach_buffer`](Self::attach_buffer), with memory that the caller answers for.
    ///
    /// # Safety
    /// The memory stays valid, and nobody else uses it, until the result is detached or dropped; it is not leaked.
    #[doc(hidden)]
    pub unsafe fn raw_attach_buffer(&self, memory: NonNull<[u8]>) -> SendBuffer<'_> {
        SendBuffer::new(self, memory, Vec::new())
    }
}

impl<'c> SendBuffer<'c> {
    const fn new(communicator: &'c Communicator, memory: NonNull<[u8]>, owner: Vec<u8>) -> Self {
        let ring = MessageRing { length: memory.len(), messages: VecDeque::new() };
        Self { communicator, memory, owner, ring, failure: None }
    }

    /// Copies a message to the buffer and starts to send it (`MPI_Bsend`). Returns without waiting for its receive.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut buffer = world.attach_buffer(vec![0; 4096]);
    /// buffer.buffered_send(&[1_u8, 2], world.rank(), Tag(1))?;
    /// assert_eq!(world.receive::<u8>(None, None)?.0, [1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::BufferFull`]: the message was not sent. Otherwise as of [`send`](Communicator::send). The failure of
    /// a send that has started is reported by [`flush`](Self::flush) and [`detach`](Self::detach).
    pub fn buffered_send<T: IntoBytes + Immutable>(
        &mut self,
        data: &(impl AsView<T> + ?Sized),
        to: Rank,
        tag: Tag,
    ) -> Result<(), Failure> {
        let args = self.communicator.send_args(to, tag, Mode::Standard, Flush::Batched)?;
        let view = data.as_view();
        let (from, layout) = view.bytes();
        let bytes = layout.as_ref().map_or(from.len(), |layout| layout.size());
        let start = self.allocate(bytes)?;
        self.ring.messages.try_reserve(1).map_err(|_| Failure::ResourceExhausted)?;
        // SAFETY: `allocate` returned a place for these bytes within the memory.
        let place = unsafe { self.memory.cast::<u8>().add(start) };
        {
            // SAFETY: no message under way uses this place; nothing else refers to it in this block.
            let into = unsafe { core::slice::from_raw_parts_mut(place.as_ptr(), bytes) };
            match layout {
                // The view has checked that the layout lies within its buffer.
                Some(layout) => _ = layout.pack(from, 0, into),
                None => into.copy_from_slice(from),
            }
        }
        let buffer = UserBuffer::plain(place, bytes).of(view.element());
        let handle = self.communicator.start_send_buffer(&buffer, &args, |_, started| started)?;
        let message = |handle| BufferedMessage { handle, start, end: start + bytes.max(1) };
        self.ring.messages.extend(handle.map(message));
        // Not `Flush::Now`, which may copy the message once more.
        self.communicator.shared.with_process(Process::flush);
        Ok(())
    }

    /// Waits until all messages have been sent (`MPI_Comm_flush_buffer`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut buffer = world.attach_buffer(vec![0; 4096]);
    /// buffer.buffered_send(&[1_u8, 2], world.rank(), Tag(1))?;
    /// # world.receive::<u8>(None, None)?;
    /// buffer.flush()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`] of the first send that failed since the last call.
    pub fn flush(&mut self) -> Result<(), Failure> {
        while let Some(BufferedMessage { handle, .. }) = self.ring.messages.front() {
            let ended = self.communicator.wait(*handle);
            self.ring.messages.pop_front();
            self.failure = self.failure.or(ended.err());
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Waits until all messages have been sent, and returns the memory (`MPI_Comm_detach_buffer`), with the result of
    /// [`flush`](Self::flush).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let buffer = world.attach_buffer(vec![0; 4096]);
    /// let (sent, memory) = buffer.detach();
    /// assert_eq!((sent, memory.len()), (Ok(()), 4096));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn detach(mut self) -> (Result<(), Failure>, Vec<u8>) {
        let ended = self.flush();
        (ended, core::mem::take(&mut self.owner))
    }

    /// Finds a place for a message.
    fn allocate(&mut self, bytes: usize) -> Result<usize, Failure> {
        self.release_ended(false);
        let place = self.ring.place(bytes);
        if place.is_ok() {
            return place;
        }
        self.release_ended(true);
        self.ring.place(bytes)
    }

    /// Releases the first messages that have been sent.
    fn release_ended(&mut self, makes_progress: bool) {
        let Self { communicator, ring, failure, .. } = self;
        let mut process = communicator.shared.lock();
        if makes_progress {
            communicator.shared.progress(&mut process);
        }
        while let Some(BufferedMessage { handle, .. }) = ring.messages.front()
            && let Some(ended) = process.take_ended(handle)
        {
            let ended = communicator.request_result_locked(&process, handle, ended);
            *failure = failure.or(ended.err());
            ring.messages.pop_front();
        }
    }
}

impl MessageRing {
    /// Where `bytes` adjacent bytes are free: after the last message, or before the first one.
    fn place(&self, bytes: usize) -> Result<usize, Failure> {
        let (start, free) = match (self.messages.front(), self.messages.back()) {
            (Some(first), Some(last)) if first.start >= last.end => (last.end, first.start - last.end),
            (Some(first), Some(last)) => {
                let behind = self.length - last.end;
                // Where neither is enough, the error names the larger one.
                if behind >= bytes.max(1) || behind >= first.start { (last.end, behind) } else { (0, first.start) }
            }
            _ => (0, self.length),
        };
        if free >= bytes.max(1) {
            Ok(start)
        } else {
            Err(Failure::BufferFull { bytes: bytes as u64, free: free as u64 })
        }
    }
}

impl Drop for SendBuffer<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.ring.messages.is_empty() {
            // The receivers may depend on what this thread would have done next.
            self.communicator.abort();
        }
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::watchdog::BlockedOn;
    use proptest::prelude::*;
    use unisono_core::span::Region;

    proptest! {
        /// `Some(bytes)` sends, `None` ends the first message.
        #[test]
        fn places_are_within_the_buffer_and_apart(
            length in 0_usize..40,
            steps in proptest::collection::vec(proptest::option::of(0_usize..20), 0..60),
        ) {
            let handle = RequestHandle {
                request: 0,
                region: Region::default(),
                peer: None,
                blocked_on: BlockedOn::Receive { source: None, tag: None },
            };
            let mut ring = MessageRing { length, messages: VecDeque::new() };
            for step in steps {
                let Some(bytes) = step else {
                    ring.messages.pop_front();
                    continue;
                };
                let needed = bytes.max(1);
                match ring.place(bytes) {
                    Ok(start) => {
                        let end = start + needed;
                        prop_assert!(end <= length);
                        prop_assert!(ring.messages.iter().all(|other| end <= other.start || other.end <= start));
                        ring.messages.push_back(BufferedMessage { handle, start, end });
                    }
                    Err(failure) => {
                        // Nothing of this length is free behind the last message, nor before the first one.
                        let (first, last) = (ring.messages.front(), ring.messages.back());
                        let gaps = match (first, last) {
                            (Some(first), Some(last)) if first.start >= last.end => vec![first.start - last.end],
                            (Some(first), Some(last)) => vec![length - last.end, first.start],
                            _ => vec![length],
                        };
                        let free = gaps.into_iter().max().unwrap_or(0);
                        prop_assert!(free < needed);
                        prop_assert_eq!(failure, Failure::BufferFull { bytes: bytes as u64, free: free as u64 });
                    }
                }
            }
        }
    }
}
