//! What a host asks about point-to-point messages under way.

use super::operations::{ReceiveOp, ReceiveState, SendOp, SendState};
use super::{Messenger, MessengerStorage, ReceiveHandle};
use crate::ids::PeerId;
use crate::message::point_to_point::PointToPoint;
use crate::message::{Pattern, Tag};
use crate::span::RegionRange;

/// A receive that a short message completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpectedMessage {
    /// The receive, by its `user` value.
    pub user: u32,
    /// Its buffer.
    pub into: RegionRange,
    /// The message's tag.
    pub tag: Tag,
    /// Bytes of its payload.
    pub bytes: u32,
}

impl<S: MessengerStorage> Messenger<S> {
    /// Point-to-point matching, for probes and for messages that need no record.
    pub const fn matching(&self) -> &PointToPoint<S> {
        &self.matching
    }

    /// See [`matching`](Self::matching).
    pub const fn matching_mut(&mut self) -> &mut PointToPoint<S> {
        &mut self.matching
    }

    /// As [`handle`](Self::handle), for a short message that matches a posted receive in the simplest case: no event
    /// follows. `None`: nothing was done.
    #[inline]
    pub fn handle_expected(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Option<ExpectedMessage> {
        let (receive, tag, bytes) = self.matching.handle_expected(from, head, bytes)?;
        let ReceiveOp { user, into, .. } = *self.messages.receive(receive)?;
        self.messages.free_receive(receive);
        Some(ExpectedMessage { user, into, tag, bytes })
    }

    /// The `user` value and the pattern of a receive that is not matched.
    pub fn posted(&self, handle: ReceiveHandle) -> Option<(u32, Pattern)> {
        let receive = self.messages.receives.as_ref().get(handle.0 as usize)?;
        let ReceiveState::Posted(id) = receive.state else { return None };
        Some((receive.user, self.matching.pattern(id)?))
    }

    /// The receives that are not matched: their `user` values and patterns. O(records).
    pub fn all_posted(&self) -> impl Iterator<Item = (ReceiveHandle, u32, Pattern)> {
        let handles = (0..self.messages.receives.as_ref().len() as u32).map(ReceiveHandle);
        handles.filter_map(|handle| self.posted(handle).map(|(user, pattern)| (handle, user, pattern)))
    }

    /// Whether a receive is under way. O(records).
    pub fn has_receives(&self) -> bool {
        let is_open = |op: &ReceiveOp| !matches!(op.state, ReceiveState::Free | ReceiveState::Ended(_));
        self.messages.receives.as_ref().iter().any(is_open)
    }

    /// The peers of sends under way; some repeatedly. O(records).
    pub fn receivers(&self) -> impl Iterator<Item = PeerId> {
        let is_open = |op: &&SendOp| !matches!(op.state, SendState::Free | SendState::Abandoned | SendState::Ended);
        self.messages.sends.as_ref().iter().filter(is_open).map(|send| send.to)
    }

    /// The peers that receives under way name, or that have sent their messages; some repeatedly. O(records).
    pub fn senders(&self) -> impl Iterator<Item = PeerId> {
        self.messages.receives.as_ref().iter().filter_map(|receive| match receive.state {
            ReceiveState::Free | ReceiveState::Ended(_) => None,
            ReceiveState::Posted(id) => self.matching.pattern(id)?.source,
            _ => receive.status.map(|status| status.envelope.source),
        })
    }

    /// Whether [`progress`](Self::progress) or [`poll_event`](Self::poll_event) has something to do for point-to-point
    /// messages, other than to send those that wait for room.
    #[inline]
    pub const fn has_messages(&self) -> bool {
        self.violator.is_some() || self.messages.has_work() || !self.matching.has_no_action()
    }
}
