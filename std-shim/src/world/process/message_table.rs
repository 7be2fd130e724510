//! The point-to-point messages of a process beside the messenger's records: which receive a request is, and the copies
//! that are sent.

use unisono_core::ids::MessageId;
use unisono_core::message::Envelope;
use unisono_core::messenger::ReceiveHandle;
use unisono_core::span::{Region, RegionRange};

use super::bounce_buffers::BounceBuffer;
use super::cancelled_sends::CancelledSends;
use super::checked_messages::CheckedReceive;
use unisono_bootstrap::Rank;

/// Numbers from here on are no requests, but copies.
const FIRST_COPY: u32 = 1 << 31;

/// When a send is transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum Flush {
    /// Before the call returns, or when the window has room.
    Now,
    /// Together with other sends.
    Batched,
}

/// The copy of a payload: in a bounce buffer, or a region of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum PayloadCopy {
    Bounce(BounceBuffer, RegionRange),
    Region(RegionRange),
}

impl PayloadCopy {
    pub(in crate::world) const fn range(self) -> RegionRange {
        match self {
            Self::Bounce(_, range) | Self::Region(range) => range,
        }
    }
}

/// The owner of a send: a request, whose buffer is sent, or a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum SendOwner {
    Request(u32),
    Copy(PayloadCopy),
}

/// The point-to-point messages of a process.
#[derive(Debug, Default)]
pub(in crate::world) struct MessageTable {
    /// The receives, by request.
    receives: Vec<Option<ReceiveHandle>>,
    /// Copies that are being sent, by number.
    copies: Vec<Option<PayloadCopy>>,
    free_copies: Vec<u32>,
    /// Packed copies of buffers with a layout, by the request that sends them.
    packed: Vec<(u32, Region)>,
    /// Receives of a job that checks types.
    pub(in crate::world) checked: Vec<CheckedReceive>,
    /// Messages that matched probes have removed, and that were not received yet.
    pub(in crate::world) matched_probes: Vec<(MessageId, Envelope)>,
    /// Sends that are being cancelled.
    pub(in crate::world) cancelled: CancelledSends,
    /// Ranks for whose header credit, or for room to which, sends have waited in vain, and how many.
    pub(in crate::world) vain_waits: Vec<(Rank, u32)>,
    /// Rounds that sends have waited for room.
    pub(in crate::world) rounds: u32,
}

impl MessageTable {
    /// Records the receive of a request.
    #[inline(always)]
    pub(in crate::world) fn record_receive(&mut self, request: u32, handle: ReceiveHandle) {
        match self.receives.get_mut(request as usize) {
            Some(place) => *place = Some(handle),
            None => self.record_beyond(request, handle),
        }
    }

    #[cold]
    fn record_beyond(&mut self, request: u32, handle: ReceiveHandle) {
        self.receives.resize(request as usize, None);
        self.receives.push(Some(handle));
    }

    /// The receive of a request, which may have ended.
    pub(in crate::world) fn receive(&self, request: u32) -> Option<ReceiveHandle> {
        self.receives.get(request as usize).copied().flatten()
    }

    /// Records a copy that is being sent. Returns the `user` value of its send.
    pub(in crate::world) fn record_copy(&mut self, copy: PayloadCopy) -> u32 {
        let i = self.free_copies.pop().unwrap_or(self.copies.len() as u32);
        match self.copies.get_mut(i as usize) {
            Some(place) => *place = Some(copy),
            None => self.copies.push(Some(copy)),
        }
        FIRST_COPY | i
    }

    /// The owner of a send with this `user` value, which has ended.
    pub(in crate::world) fn take_owner(&mut self, user: u32) -> Option<SendOwner> {
        let Some(i) = user.checked_sub(FIRST_COPY) else { return Some(SendOwner::Request(user)) };
        let copy = self.copies.get_mut(i as usize)?.take()?;
        self.free_copies.push(i);
        Some(SendOwner::Copy(copy))
    }

    /// Records the packed copy that a request sends.
    pub(in crate::world) fn record_packed(&mut self, request: u32, packed: Region) {
        self.packed.push((request, packed));
    }

    /// The packed copy that a request has sent.
    #[inline]
    pub(in crate::world) fn take_packed(&mut self, request: u32) -> Option<Region> {
        let place = self.packed.iter().position(|(packed, _)| *packed == request)?;
        Some(self.packed.swap_remove(place).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_copy_is_reused_after_its_send_has_ended() {
        let mut table = MessageTable::default();
        let copy = |offset| PayloadCopy::Region(RegionRange { offset, ..RegionRange::EMPTY });
        let [first, second] = [1, 2].map(|offset| table.record_copy(copy(offset)));
        assert_eq!(table.take_owner(first), Some(SendOwner::Copy(copy(1))));
        assert_eq!(table.take_owner(first), None, "it has ended");
        assert_eq!(table.record_copy(copy(3)), first);
        assert_eq!(table.take_owner(second), Some(SendOwner::Copy(copy(2))));
        assert_eq!(table.take_owner(7), Some(SendOwner::Request(7)));
    }
}
