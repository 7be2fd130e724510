//! Combined send and receive (`MPI_Sendrecv`), without deadlock in pairs and rings.

use core::ptr::NonNull;

use unisono_core::message::point_to_point::Mode;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Communicator;
use crate::world::collective::engine::scratch_pool::ScratchBlock;
use crate::world::collective::{AsView, AsViewMut};
use crate::world::process::message_table::Flush;
use crate::world::process::messages::ReceiveTarget;
use crate::world::process::messages::SendArgs;
use crate::world::progress::WaitFor;
use crate::world::request::handle::RequestHandle;
use crate::world::request::{Failure, Status, Tag};
use unisono_bootstrap::Rank;
use unisono_memory::element_type::ElementType;
use unisono_memory::user_buffer::UserBuffer;

/// A copy of a buffer that is sent while a receive overwrites it.
struct SendCopy<'c> {
    communicator: &'c Communicator,
    block: ScratchBlock,
    start: NonNull<u8>,
    bytes: usize,
}

impl Communicator {
    /// Sends one message and receives another at the same time (`MPI_Sendrecv`), so that ranks that exchange messages
    /// in pairs or rings do not deadlock. Destination and source may differ, and may be this rank; the peers may as
    /// well call [`send`](Self::send) or [`receive_into`](Self::receive_into). Returns the status of the received
    /// message, once the send buffer is free, too.
    ///
    /// ```
    /// use unisono::{Rank, Tag, World};
    ///
    /// let world = World::join()?;
    /// let (own, size) = (world.rank().0, world.size());
    /// let (right, left) = (Rank((own + 1) % size), Rank((own + size - 1) % size));
    /// let mut from_left = [0_u32];
    /// let status = world.send_receive_into(&[own], right, Tag(1), &mut from_left, left, Tag(1))?;
    /// assert_eq!((status.source, from_left), (left, [left.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`] of the send or of the receive, whichever fails first; then the contents of `into` are unspecified.
    /// When the send fails, a receive that has matched no message is cancelled, and the message remains for another
    /// receive. When the receive fails, the send continues, and is waited for.
    pub fn send_receive_into<S: IntoBytes + Immutable, R: IntoBytes + FromBytes>(
        &self,
        data: &(impl AsView<S> + ?Sized),
        to: Rank,
        send_tag: Tag,
        into: &mut (impl AsViewMut<R> + ?Sized),
        source: impl Into<Option<Rank>>,
        receive_tag: impl Into<Option<Tag>>,
    ) -> Result<Status, Failure> {
        let posting = self.send_args(to, send_tag, Mode::Standard, Flush::Now)?;
        let wanted = self.receive_target(source.into(), receive_tag.into())?;
        self.exchange(&data.as_view().user_buffer(), &posting, into.as_view_mut().user_buffer(), wanted)
    }

    /// As [`send_receive_into`](Self::send_receive_into), with one buffer: the received message replaces the sent one,
    /// which is all of `data` (`MPI_Sendrecv_replace`); a shorter one leaves the rest unchanged. The sent message is
    /// copied to memory that is reused (up to 64 MiB in all).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (own, size) = (world.rank().0, world.size());
    /// let (right, left) = (Rank((own + 1) % size), Rank((own + size - 1) % size));
    /// let mut token = [own];
    /// world.send_receive_replace_into(&mut token, right, Tag(1), left, Tag(1))?;
    /// assert_eq!(token, [left.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`send_receive_into`](Self::send_receive_into), and [`Failure::ResourceExhausted`] where the system has no
    /// memory for the copy: then nothing was sent.
    pub fn send_receive_replace_into<T: IntoBytes + FromBytes>(
        &self,
        data: &mut [T],
        to: Rank,
        send_tag: Tag,
        source: impl Into<Option<Rank>>,
        receive_tag: impl Into<Option<Tag>>,
    ) -> Result<Status, Failure> {
        let posting = self.send_args(to, send_tag, Mode::Standard, Flush::Now)?;
        let wanted = self.receive_target(source.into(), receive_tag.into())?;
        let data = data.as_mut_bytes();
        let copied = SendCopy::of(self, data)?;
        let (copy, data) = (NonNull::from(copied.bytes()), NonNull::from(&mut *data));
        let buffer = |bytes: NonNull<[u8]>| UserBuffer::plain(bytes.cast(), bytes.len()).of(ElementType::of::<T>());
        self.exchange(&buffer(copy), &posting, buffer(data), wanted)
    }

    fn exchange(
        &self,
        data: &UserBuffer,
        posting: &SendArgs,
        into: UserBuffer,
        wanted: ReceiveTarget,
    ) -> Result<Status, Failure> {
        let receive = self.start_receive_buffer(into, wanted, |_, started| started)?;
        match self.start_send_buffer(data, posting, |_, started| started) {
            Ok(None) => self.wait(receive),
            Ok(Some(send)) => self.wait_for_both(receive, send),
            Err(failure) => self.cancel_receive(receive, failure),
        }
    }

    /// Waits for either the send or the receive, then for the other one alone, so that hang reports and liveness checks
    /// no longer concern the one that has ended.
    fn wait_for_both(&self, receive: RequestHandle, send: RequestHandle) -> Result<Status, Failure> {
        let awaits = WaitFor::common([send.peer, receive.peer]);
        let (is_sent, ended) = self.shared.wait_for_several(&[send, receive], awaits, false, |process| {
            let mut take =
                |started| process.take_ended(started).map(|ended| self.request_result_locked(process, started, ended));
            match take(&send) {
                Some(sent) => Some((true, sent)),
                None => take(&receive).map(|received| (false, received)),
            }
        });
        match (is_sent, ended) {
            (true, Ok(_)) => self.wait(receive),
            (true, Err(failure)) => self.cancel_receive(receive, failure),
            (false, received) => {
                let sent = self.wait(send);
                received.and_then(|status| sent.map(|_| status))
            }
        }
    }

    /// Cancels the receive of an exchange whose send has failed.
    fn cancel_receive(&self, receive: RequestHandle, failure: Failure) -> Result<Status, Failure> {
        let cancelled = self.shared.lock().cancel(receive.request, receive.region);
        if !cancelled {
            // It has matched its message: its buffer is in use until that has arrived.
            let _ = self.wait(receive);
        }
        Err(failure)
    }
}

impl<'c> SendCopy<'c> {
    fn of(communicator: &'c Communicator, data: &[u8]) -> Result<Self, Failure> {
        let copy = communicator.shared.lock().allocate_copy(data.len());
        let (kept, start) = copy.ok_or(Failure::ResourceExhausted)?;
        // SAFETY: these bytes were allocated, and nobody else knows where they lie.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
        Ok(Self { communicator, block: kept, start, bytes: data.len() })
    }

    const fn bytes(&self) -> &[u8] {
        // SAFETY: written when they were taken; nobody writes them as long as this lives, which gives them back.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for SendCopy<'_> {
    fn drop(&mut self) {
        self.communicator.shared.lock().free_copy(self.block);
    }
}
