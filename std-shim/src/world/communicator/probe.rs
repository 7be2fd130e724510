//! Probes: inspecting, or removing by a matched probe, a message before it is received.

use core::ptr::NonNull;

use zerocopy::{FromBytes, IntoBytes};

use unisono_core::ids::MessageId;
use unisono_core::message::Pattern;
use unisono_core::message::point_to_point::Status as MessageStatus;

use super::Communicator;
use crate::world::collective::AsViewMut;
use crate::world::process::Process;
use crate::world::process::deferred_work::to_status;
use crate::world::process::messages::ReceiveTarget;
use crate::world::progress::WaitFor;
use crate::world::request::{Failure, Status, Tag};
use crate::world::watchdog::BlockedOn;
use unisono_bootstrap::Rank;
use unisono_memory::element_type::ElementType;
use unisono_memory::user_buffer::UserBuffer;

/// A message that a matched probe has removed: no other receive matches it. If it is dropped without being received, it
/// is discarded.
#[must_use = "no other receive can match the message"]
pub struct Message<'a> {
    communicator: &'a Communicator,
    id: MessageId,
    status: Status,
}

/// How a probe looks for a message.
pub(super) type ProbeFn<T> = fn(&mut Process, Pattern) -> Option<T>;

impl Communicator {
    /// Waits for a message from `source`, or from any rank, with `tag`, or with any, that a receive with these
    /// arguments would match (`MPI_Probe`). Returns its source, tag and length in bytes.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&[1_u8, 2], world.rank(), Tag(3))?;
    /// let status = world.probe(None, None)?;
    /// assert_eq!((status.tag, status.bytes), (Tag(3), 2));
    /// # world.receive::<u8>(None, None)?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`], as of a receive.
    pub fn probe(&self, source: impl Into<Option<Rank>>, tag: impl Into<Option<Tag>>) -> Result<Status, Failure> {
        self.wait_for_probe(Process::probe_message, source.into(), tag.into())
            .map(|status| self.local_status(to_status(&status)))
    }

    /// Makes progress once, and returns the message that such a receive would match, if there is one (`MPI_Iprobe`). A
    /// message that its sender still holds back, since too many came before it, is found by a later call with the same
    /// arguments.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.immediate_probe(world.rank(), Tag(3))?, None);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn immediate_probe(
        &self,
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Option<Status>, Failure> {
        let found = self.poll_probe(Process::probe_message, source.into(), tag.into())?;
        Ok(found.map(|status| self.local_status(to_status(&status))))
    }

    /// As [`probe`](Self::probe), and removes the message (`MPI_Mprobe`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&[1_u8, 2], world.rank(), Tag(3))?;
    /// let message = world.matched_probe(None, Tag(3))?;
    /// let mut data = vec![0_u8; message.status().bytes];
    /// message.receive_into(&mut data)?;
    /// assert_eq!(data, [1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn matched_probe(
        &self,
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Message<'_>, Failure> {
        let (id, status) = self.wait_for_probe(Process::probe_matched, source.into(), tag.into())?;
        Ok(Message { communicator: self, id, status: self.local_status(to_status(&status)) })
    }

    /// As [`immediate_probe`](Self::immediate_probe), and removes the message (`MPI_Improbe`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert!(world.immediate_matched_probe(world.rank(), Tag(3))?.is_none());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn immediate_matched_probe(
        &self,
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Option<Message<'_>>, Failure> {
        let found = self.poll_probe(Process::probe_matched, source.into(), tag.into())?;
        Ok(found.map(|(id, status)| Message { communicator: self, id, status: self.local_status(to_status(&status)) }))
    }

    pub(super) fn poll_probe<T>(
        &self,
        look: ProbeFn<T>,
        source: Option<Rank>,
        tag: Option<Tag>,
    ) -> Result<Option<T>, Failure> {
        let (pattern, mut process) = (self.pattern(source, tag)?, self.shared.lock());
        self.shared.progress(&mut process);
        process.try_probe(look, self.context, pattern).transpose().map_err(|failure| self.local_failure(failure))
    }

    pub(super) fn wait_for_probe<T>(
        &self,
        look: ProbeFn<T>,
        source: Option<Rank>,
        tag: Option<Tag>,
    ) -> Result<T, Failure> {
        let pattern = self.pattern(source, tag)?;
        let awaits = pattern.source.map_or(WaitFor::AnyRank, |source| WaitFor::Rank(source.into()));
        let what = BlockedOn::Probe { source: pattern.source.map(Rank::from), tag };
        let mut waits = false;
        let found = self.shared.wait_until_recorded(awaits, what, |process| {
            let found = process.try_probe(look, self.context, pattern);
            let probed = &mut process.requests.probe_patterns;
            match &found {
                None if !waits => {
                    probed.push(pattern);
                    waits = true;
                }
                Some(_) if waits => {
                    let over = probed.iter().position(|probed| *probed == pattern);
                    over.into_iter().for_each(|over| _ = probed.swap_remove(over));
                }
                _ => {}
            }
            found
        });
        found.map_err(|failure| self.local_failure(failure))
    }
}

impl Process {
    fn probe_message(&mut self, pattern: Pattern) -> Option<MessageStatus> {
        let status = self.messenger.matching_mut().probe(pattern)?;
        Some(MessageStatus { bytes: self.payload_bytes(status.bytes), ..status })
    }

    pub(super) fn probe_matched(&mut self, pattern: Pattern) -> Option<(MessageId, MessageStatus)> {
        let (id, status) = self.messenger.matching_mut().matched_probe(pattern)?;
        self.messages.matched_probes.push((id, status.envelope));
        Some((id, MessageStatus { bytes: self.payload_bytes(status.bytes), ..status }))
    }

    /// Whether a message has arrived that a thread probes for.
    #[cold]
    pub(in crate::world) fn has_probed_message(&self) -> bool {
        self.requests.probe_patterns.iter().any(|pattern| self.messenger.matching().would_find(pattern))
    }

    /// What the probe finds, or why it never will.
    fn try_probe<T>(&mut self, look: ProbeFn<T>, context: u32, pattern: Pattern) -> Option<Result<T, Failure>> {
        let source = pattern.source.map(Rank::from);
        if let Err(failure) = self.expect_open(context) {
            return Some(Err(failure));
        }
        if let Err(failure) = self.expect_receivable(source) {
            return Some(Err(failure));
        }
        let found = look(self, pattern);
        self.run_deferred_if_any();
        found.map(Ok).or_else(|| self.unsatisfiable(pattern.context, source).map(Err))
    }
}

impl Message<'_> {
    /// Its source, tag and length.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&[1_u8, 2], world.rank(), Tag(3))?;
    /// assert_eq!(world.matched_probe(None, None)?.status().bytes, 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Receives the message (`MPI_Mrecv`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&[1_u8, 2], world.rank(), Tag(3))?;
    /// let mut data = [0_u8; 2];
    /// world.matched_probe(None, None)?.receive_into(&mut data)?;
    /// assert_eq!(data, [1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`], such as [`Failure::PeerFailed`] where its sender died with it; after [`Failure::Truncated`] the
    /// contents of `data` are unspecified.
    pub fn receive_into<T: IntoBytes + FromBytes>(
        self,
        data: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<Status, Failure> {
        let message = core::mem::ManuallyDrop::new(self);
        message.receive(data.as_view_mut().user_buffer())
    }

    /// As [`receive_into`](Self::receive_into), the bytes of elements of this type.
    pub(super) fn receive_elements(self, into: &mut [u8], element: ElementType) -> Result<Status, Failure> {
        let message = core::mem::ManuallyDrop::new(self);
        message.receive(UserBuffer::plain(NonNull::from(&mut *into).cast(), into.len()).of(element))
    }

    fn receive(&self, into: UserBuffer) -> Result<Status, Failure> {
        let source = self.communicator.world_rank(self.status.source)?;
        let wanted = ReceiveTarget::Matched(self.id, source.into());
        self.communicator.shared.lock().messages.matched_probes.retain(|(id, _)| *id != self.id);
        let request = self.communicator.start_receive_buffer(into, wanted, |_, started| started).inspect_err(|_| {
            // No other receive can match it, and its sender may wait.
            self.communicator.shared.with_process(|process| process.drop_message(self.id, source.into()));
        })?;
        self.communicator.wait(request)
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        // Ends at once: a message of no bytes has arrived, and any other one is too long.
        let _ = self.receive(UserBuffer::plain(NonNull::dangling(), 0));
    }
}
