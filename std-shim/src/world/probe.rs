//! Probes: inspecting, or removing by a matched probe, a message before it is received.

use zerocopy::{FromBytes, IntoBytes};

use unisono_core::ids::MessageId;
use unisono_core::message::Pattern;
use unisono_core::message::point_to_point::Status as MessageStatus;

use super::Communicator;
use super::mailbox::{Wanted, told};
use super::process::Process;
use super::progress::Awaits;
use super::request::{Failure, Status, Tag};
use super::watchdog::Doing;
use unisono_bootstrap::Rank;

/// A message that a matched probe has removed: no other receive matches it. If it is dropped without being received, it
/// is discarded.
#[must_use = "no other receive can match the message"]
pub struct Message<'a> {
    communicator: &'a Communicator,
    id: MessageId,
    status: Status,
}

/// How a probe looks for a message.
type Look<T> = fn(&mut Process, Pattern) -> Option<T>;

impl Communicator {
    /// Waits for a message from `source`, or from any rank, with `tag`, or with any, that a receive with these
    /// arguments would match (`MPI_Probe`). Returns its source, tag and length in bytes.
    ///
    /// # Errors
    /// [`Failure`], as of a receive.
    pub fn probe(&self, source: impl Into<Option<Rank>>, tag: impl Into<Option<Tag>>) -> Result<Status, Failure> {
        self.until_found(Process::look_at, source.into(), tag.into()).map(|status| self.own_status(told(&status)))
    }

    /// Makes progress once, and returns the message that such a receive would match, if there is one (`MPI_Iprobe`). A
    /// message that its sender still holds back, since too many came before it, is found by a later call with the same
    /// arguments.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn immediate_probe(
        &self,
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Option<Status>, Failure> {
        let found = self.find(Process::look_at, source.into(), tag.into())?;
        Ok(found.map(|status| self.own_status(told(&status))))
    }

    /// As [`probe`](Self::probe), and removes the message (`MPI_Mprobe`).
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn matched_probe(
        &self,
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Message<'_>, Failure> {
        let (id, status) = self.until_found(Process::take_out, source.into(), tag.into())?;
        Ok(Message { communicator: self, id, status: self.own_status(told(&status)) })
    }

    /// As [`immediate_probe`](Self::immediate_probe), and removes the message (`MPI_Improbe`).
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn immediate_matched_probe(
        &self,
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Option<Message<'_>>, Failure> {
        let found = self.find(Process::take_out, source.into(), tag.into())?;
        Ok(found.map(|(id, status)| Message { communicator: self, id, status: self.own_status(told(&status)) }))
    }

    fn find<T>(&self, look: Look<T>, source: Option<Rank>, tag: Option<Tag>) -> Result<Option<T>, Failure> {
        let (pattern, mut process) = (self.pattern(source, tag)?, self.shared.lock());
        self.shared.progress(&mut process);
        process.find(look, self.context, pattern).transpose().map_err(|failure| self.own_failure(failure))
    }

    fn until_found<T>(&self, look: Look<T>, source: Option<Rank>, tag: Option<Tag>) -> Result<T, Failure> {
        let pattern = self.pattern(source, tag)?;
        let awaits = pattern.source.map_or(Awaits::Anyone, |source| Awaits::Rank(source.into()));
        let what = Doing::Probe { source: pattern.source.map(Rank::from), tag };
        let mut waits = false;
        let found = self.shared.until_told(awaits, what, |process| {
            let found = process.find(look, self.context, pattern);
            let probed = &mut process.requests.probed;
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
        found.map_err(|failure| self.own_failure(failure))
    }
}

impl Process {
    fn look_at(&mut self, pattern: Pattern) -> Option<MessageStatus> {
        self.mailbox.machine.probe(pattern)
    }

    fn take_out(&mut self, pattern: Pattern) -> Option<(MessageId, MessageStatus)> {
        let (id, status) = self.mailbox.machine.matched_probe(pattern)?;
        self.taken_out.push((id, status.envelope));
        Some((id, status))
    }

    /// Whether a message has arrived that a thread probes for.
    #[cold]
    pub(super) fn finds_what_is_probed(&self) -> bool {
        self.requests.probed.iter().any(|pattern| self.mailbox.machine.would_find(pattern))
    }

    /// What the probe finds, or why it never will.
    fn find<T>(&mut self, look: Look<T>, context: u32, pattern: Pattern) -> Option<Result<T, Failure>> {
        let source = pattern.source.map(Rank::from);
        if let Err(failure) = self.expect_open(context) {
            return Some(Err(failure));
        }
        if let Err(failure) = self.expect_receivable(source) {
            return Some(Err(failure));
        }
        let found = look(self, pattern);
        self.follow_if_needed();
        found.map(Ok).or_else(|| self.hopeless(pattern.context, source).map(Err))
    }
}

impl Message<'_> {
    /// Its source, tag and length.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Receives the message (`MPI_Mrecv`).
    ///
    /// # Errors
    /// [`Failure`], such as [`Failure::PeerFailed`] where its sender died with it; after [`Failure::Truncated`] the
    /// contents of `data` are unspecified.
    pub fn receive_into<T: IntoBytes + FromBytes>(self, data: &mut [T]) -> Result<Status, Failure> {
        let message = core::mem::ManuallyDrop::new(self);
        message.receive(data.as_mut_bytes())
    }

    fn receive(&self, bytes: &mut [u8]) -> Result<Status, Failure> {
        let source = self.communicator.world_rank(self.status.source)?;
        let wanted = Wanted::Matched(self.id, source.into());
        self.communicator.shared.lock().taken_out.retain(|(id, _)| *id != self.id);
        let request = self.communicator.start_receive(bytes, wanted, |_, started| started).inspect_err(|_| {
            // No other receive can match it, and its sender may wait.
            self.communicator.shared.change(|process| process.drop_message(self.id, source.into()));
        })?;
        self.communicator.wait(request)
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        // Ends at once: a message of no bytes has arrived, and any other one is too long.
        let _ = self.receive(&mut []);
    }
}
