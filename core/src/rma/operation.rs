//! Operations of a requester: what is asked of a target, and how it ends.

use super::atomic::AtomicOperation;
use super::header::ElementUpdate;
use super::region::{Refusal, RemoteSpan};
use super::stride::Stride;
use crate::ids::{PeerId, PlacementId};
use crate::list::NONE;
use crate::span::Span;

/// An operation: the index of its record in the low 16 bits, and in the high ones the number of earlier operations of
/// that record, modulo 2¹⁶.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RmaOperationId(pub u32);

impl RmaOperationId {
    pub(super) const fn new(record: u32, generation: u16) -> Self {
        Self((generation as u32) << 16 | record & 0xffff)
    }

    pub(super) const fn record(self) -> u32 {
        self.0 & 0xffff
    }

    pub(super) const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// What is asked of the target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RmaRequest {
    /// Writes memory of this process to the target. Complete when the memory is free again: the target has then
    /// received it, and placed or refused it.
    Write {
        /// The memory.
        from: Span,
        /// A value that the target reports after this and all earlier writes.
        immediate: Option<u32>,
    },
    /// Reads memory of the target.
    Read {
        /// Where to.
        into: Span,
        /// The blocks of the target that are read; `None`: adjacent bytes. Blocks fit in one message, and in a staging
        /// slot of the target.
        stride: Option<Stride>,
    },
    /// Updates one word of the target. The result is its old value.
    Atomic(AtomicOperation),
    /// Combines memory of this process with that of the target, element by element. It fits in one message, and in a
    /// staging slot of the target.
    Accumulate {
        /// The memory.
        from: Span,
        /// How.
        update: ElementUpdate,
        /// Where the old values go; as long as `from`.
        result: Option<Span>,
        /// The blocks of the target that the elements lie in; `None`: they are adjacent.
        stride: Option<Stride>,
    },
    /// Complete when the target has placed all earlier writes.
    Flush,
}

impl RmaRequest {
    /// Whether the target keeps it in an entry and answers it.
    pub(super) const fn takes_entry(&self) -> bool {
        !matches!(self, Self::Write { immediate: None, .. } | Self::Flush)
    }

    /// Length of the payload that the request carries.
    pub(super) const fn payload(&self) -> u32 {
        match self {
            Self::Write { from, .. } | Self::Accumulate { from, .. } => from.bytes,
            Self::Read { .. } | Self::Atomic(_) | Self::Flush => 0,
        }
    }
}

/// An operation as it is started.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RmaCall {
    /// The target.
    pub to: PeerId,
    /// The memory of the target.
    pub at: RemoteSpan,
    /// What is asked.
    pub request: RmaRequest,
    /// Starts only after the answers to all earlier reads and updates of this target.
    pub fence: bool,
    /// The host's number for it.
    pub user: u32,
}

/// Why an operation was not started.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RmaStartError {
    /// No peer of that rank is known.
    UnknownPeer,
    /// Every record is in use: poll completions first.
    Full,
    /// It does not fit in one message, or source and result differ in length.
    TooLong,
    /// Its bytes are no whole blocks, or the blocks do not lie within 4 GiB.
    BadStride,
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RmaError {
    /// The target failed. It executed no part.
    PeerFailed,
    /// The target failed, and may have received a part of the write.
    Partial,
    /// The target failed, and may have executed the update.
    Unknown,
    /// The target refused it, and touched no byte.
    Refused(Refusal),
    /// Of a flush: the target refused writes that had been completed.
    RefusedEarlier {
        /// The first of them.
        operation: RmaOperationId,
        /// Why.
        reason: Refusal,
        /// Number of refused messages.
        count: u32,
        /// The digest of their region; `None`: they named several.
        region: Option<u16>,
    },
    /// The answer was too short.
    Truncated,
}

/// An operation that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RmaCompletion {
    /// Its number.
    pub operation: RmaOperationId,
    /// The host's number for it.
    pub user: u32,
    /// Its target.
    pub peer: PeerId,
    /// The old value of an atomic operation, else 0.
    pub result: Result<u64, RmaError>,
    /// A grant for the answer that is to be withdrawn.
    pub withdraw: Option<PlacementId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum OperationStage {
    Free,
    /// In its target's queue; a part may have been sent.
    Queued,
    /// Sent; its answer is to come.
    Sent,
    /// Answered, or without an answer: its memory is not free yet.
    Acknowledging,
    /// In the list of completions.
    Finished,
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OperationRecord {
    pub(super) stage: OperationStage,
    pub(super) request: RmaRequest,
    pub(super) at: RemoteSpan,
    pub(super) peer: u32,
    pub(super) user: u32,
    /// The next record of its list.
    pub(super) link: u32,
    pub(super) generation: u16,
    pub(super) fence: bool,
    /// Something of it was sent that its target may execute.
    pub(super) is_begun: bool,
    /// Payload bytes sent, and those sent before the last message; of a masked compare-and-swap, whether its masks are.
    pub(super) sent: u32,
    pub(super) last: u32,
    /// Messages with payload that are not completed.
    pub(super) unacknowledged: u32,
    pub(super) grant: Option<super::header::ReadPlacement>,
    pub(super) result: Result<u64, RmaError>,
}

impl OperationRecord {
    /// An unused record.
    pub const FREE: Self = Self {
        stage: OperationStage::Free,
        request: RmaRequest::Flush,
        at: RemoteSpan { region: super::region::RKey { index: 0, key: crate::ids::RemoteKey(0) }, offset: 0 },
        peer: NONE,
        user: 0,
        link: NONE,
        generation: 0,
        fence: false,
        is_begun: false,
        sent: 0,
        last: 0,
        unacknowledged: 0,
        grant: None,
        result: Ok(0),
    };

    /// How it ends when its target fails now.
    pub(super) const fn failure(&self) -> RmaError {
        match (self.request, self.is_begun) {
            (_, false) | (RmaRequest::Read { .. } | RmaRequest::Flush, _) => RmaError::PeerFailed,
            (RmaRequest::Write { immediate: None, .. }, true) => RmaError::Partial,
            (RmaRequest::Write { .. }, true) if !matches!(self.stage, OperationStage::Sent) => RmaError::Partial,
            (_, true) => RmaError::Unknown,
        }
    }
}
