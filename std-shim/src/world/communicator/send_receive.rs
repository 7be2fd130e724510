//! A send and a receive at once, of which neither waits for the other.

use core::ptr::NonNull;

use unisono_core::message::point_to_point::Mode;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Communicator;
use crate::world::collective::store::Kept;
use crate::world::mailbox::Wanted;
use crate::world::process::Posting;
use crate::world::progress::{Leaves, Started};
use crate::world::request::{Failure, Status, Tag};
use unisono_bootstrap::Rank;

/// Bytes that were copied out of a buffer into which others come.
struct Copied<'c> {
    communicator: &'c Communicator,
    kept: Kept,
    start: NonNull<u8>,
    bytes: usize,
}

impl Communicator {
    /// Sends a message and receives another one, at once: ranks that exchange messages in pairs or in rings do not wait for each
    /// other. Destination and source may differ, or be this rank; the other side may as well call [`send`](Self::send) or
    /// [`receive_into`](Self::receive_into). Ends when the buffer that is sent is free, too, as `send` does.
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
    /// [`Failure`] of the send or of the receive, whichever fails first; then what lies in `into` is unspecified. Where the send fails,
    /// a receive that has met no message is taken back: a message that comes later is for another receive. Where the receive fails, the
    /// send goes on, and is waited for.
    pub fn send_receive_into<S: IntoBytes + Immutable, R: IntoBytes + FromBytes>(
        &self,
        data: &[S],
        to: Rank,
        send_tag: Tag,
        into: &mut [R],
        source: impl Into<Option<Rank>>,
        receive_tag: impl Into<Option<Tag>>,
    ) -> Result<Status, Failure> {
        let posting = self.posting(to, send_tag, Mode::Standard, Leaves::AtOnce)?;
        let wanted = self.wanted(source.into(), receive_tag.into())?;
        self.exchange(data.as_bytes(), &posting, into.as_mut_bytes(), wanted)
    }

    /// As [`send_receive_into`](Self::send_receive_into), where the message that comes takes the place of the one that is sent, of
    /// which `data` has all: a shorter one leaves the rest. What is sent is copied, into memory that is kept for the next time (up to
    /// 64 MiB in all).
    ///
    /// # Errors
    /// As there; [`Failure::Refused`] where the system has no memory for the copy, and nothing was sent.
    pub fn send_receive_replace_into<T: IntoBytes + FromBytes>(
        &self,
        data: &mut [T],
        to: Rank,
        send_tag: Tag,
        source: impl Into<Option<Rank>>,
        receive_tag: impl Into<Option<Tag>>,
    ) -> Result<Status, Failure> {
        let posting = self.posting(to, send_tag, Mode::Standard, Leaves::AtOnce)?;
        let wanted = self.wanted(source.into(), receive_tag.into())?;
        let data = data.as_mut_bytes();
        let copied = Copied::of(self, data)?;
        self.exchange(copied.bytes(), &posting, data, wanted)
    }

    fn exchange(&self, data: &[u8], posting: &Posting, into: &mut [u8], wanted: Wanted) -> Result<Status, Failure> {
        let receive = self.start_receive(into, wanted, |_, started| started)?;
        match self.start_send(data, posting, |_, started| started) {
            Ok(None) => self.wait(receive),
            Ok(Some(send)) => self.wait_for_both(receive, send),
            Err(failure) => self.take_back(receive, failure),
        }
    }

    /// Waits for a send and a receive: for either, then for the other as if it were alone. The one that has ended is noted no longer, and
    /// its peer is not looked for any more.
    fn wait_for_both(&self, receive: Started, send: Started) -> Result<Status, Failure> {
        let (is_sent, ended) = self.shared.wait_for_several(&[send, receive], |process| {
            let mut take = |started| process.take_ended(started).map(|ended| self.ended_while(process, started, ended));
            match take(&send) {
                Some(sent) => Some((true, sent)),
                None => take(&receive).map(|received| (false, received)),
            }
        });
        match (is_sent, ended) {
            (true, Ok(_)) => self.wait(receive),
            (true, Err(failure)) => self.take_back(receive, failure),
            (false, received) => {
                let sent = self.wait(send);
                received.and_then(|status| sent.map(|_| status))
            }
        }
    }

    /// Ends a receive whose send has failed.
    fn take_back(&self, receive: Started, failure: Failure) -> Result<Status, Failure> {
        let cancelled = self.shared.lock().cancel(receive.request, receive.region);
        if !cancelled {
            // It has met its message: the buffer is lent until that is there.
            let _ = self.wait(receive);
        }
        Err(failure)
    }
}

impl<'c> Copied<'c> {
    fn of(communicator: &'c Communicator, data: &[u8]) -> Result<Self, Failure> {
        let copy = communicator.shared.lock().take_copy(data.len());
        let (kept, start) = copy.ok_or(Failure::Refused)?;
        // SAFETY: so many bytes were taken, and nobody else knows where they lie.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
        Ok(Self { communicator, kept, start, bytes: data.len() })
    }

    const fn bytes(&self) -> &[u8] {
        // SAFETY: written when they were taken; nobody writes them as long as this lives, which gives them back.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        self.communicator.shared.lock().give_back_copy(self.kept);
    }
}
