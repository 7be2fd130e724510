//! Headers of remote memory access (RMA): requests to a target, and its answers; little-endian.
//!
//! ```text
//! +--------+--------+--------+--------+
//! |  kind  |  form  |     region      |  form: operation and width of an atomic; flags
//! +--------+--------+-----------------+
//! |             operation             |  the requester's number; the answer repeats it
//! +-----------------------------------+ 8: flush
//! |           key (64 bits)           |  masks: of the comparison, and of the swap (24 in all)
//! |                                   |
//! +-----------------------------------+
//! |          offset (64 bits)         |
//! |                                   |
//! +-----------------------------------+
//! | rest | immediate | bytes | element|
//! +-----------------------------------+ 28: write, write with immediate, accumulate (payload follows)
//! |       read: placement; its key    |  atomic: from 24 on, two operands of 64 bits
//! |  of blocks: block; distance; 0    |
//! +-----------------------------------+ 40: read, atomic, read of blocks, accumulate of blocks (payload follows)
//!
//! +--------+--------+-----------------+
//! |  kind  | reason |        0        |
//! +--------+--------+-----------------+
//! |             operation             |
//! +-----------------------------------+ 8: data (payload follows), done, retry, flushed
//! | value (64 bits) | refused requests|
//! +-----------------------------------+ 12: refused; 16: value
//! ```

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::atomic::{AtomicKind, AtomicOperation, Width};
use super::region::{RKey, Refusal, RemoteSpan};
use super::stride::Stride;
use crate::ids::{PlacementId, RemoteKey};
use crate::wire::MESSAGE_HEADER_ROOM;

/// The first of the first bytes of these messages.
pub const FIRST: u8 = 64;
/// The last one.
pub const LAST: u8 = 85;

/// Bytes before the payload of a write or an accumulate.
pub const WRITE: usize = 28;
/// Bytes before the payload of an accumulate of blocks.
pub const BLOCKS: usize = 40;
/// Bytes before the payload of an answer.
pub const ANSWER: usize = 8;

const READ: usize = 40;
const ATOMIC: usize = 40;
const MASKS: usize = 24;

/// The request is the first one after its target asked for it again.
const RETRY: u8 = 1 << 7;
/// Read: answer by placement. Accumulate: return the old values.
const OPTION: u8 = 1;

/// Kinds.
mod kind {
    pub(super) const WRITE: u8 = 64;
    pub(super) const WRITE_IMMEDIATE: u8 = 65;
    pub(super) const READ: u8 = 66;
    pub(super) const ATOMIC: u8 = 67;
    pub(super) const MASKS: u8 = 68;
    pub(super) const ACCUMULATE: u8 = 69;
    pub(super) const FLUSH: u8 = 70;
    pub(super) const READ_BLOCKS: u8 = 71;
    pub(super) const ACCUMULATE_BLOCKS: u8 = 72;
    pub(super) const VALUE: u8 = 80;
    pub(super) const DATA: u8 = 81;
    pub(super) const DONE: u8 = 82;
    pub(super) const REFUSED: u8 = 83;
    pub(super) const RETRY: u8 = 84;
    pub(super) const FLUSHED: u8 = 85;
}

/// No region: the refused writes of a report named several.
pub const SEVERAL: u16 = u16::MAX;

/// Where the answer to a read goes: memory that the reader granted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadPlacement {
    /// The grant.
    pub placement: PlacementId,
    /// Its key.
    pub key: RemoteKey,
}

/// The element-wise update of an accumulate: the host's numbers of an operation and a type, which the core passes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ElementUpdate {
    /// The operation.
    pub operation: u8,
    /// The type.
    pub datatype: u8,
}

/// A message of remote memory access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RmaMessage {
    /// Writes the payload.
    Write {
        /// Where to.
        at: RemoteSpan,
        /// Bytes of the same operation that later messages write behind it: all of them must be allowed.
        rest: u32,
    },
    /// Writes the payload, and reports a value to the target.
    WriteImmediate {
        /// Where to.
        at: RemoteSpan,
        /// The value.
        immediate: u32,
    },
    /// Reads.
    Read {
        /// Where.
        at: RemoteSpan,
        /// Length in bytes.
        bytes: u32,
        /// `None`: the answer is one message.
        into: Option<ReadPlacement>,
    },
    /// Reads blocks. The answer is one message.
    ReadBlocks {
        /// Where the first one is.
        at: RemoteSpan,
        /// Length in bytes of all blocks.
        bytes: u32,
        /// The blocks.
        stride: Stride,
    },
    /// Updates one word. A masked compare-and-swap has the masks of the message before.
    Atomic {
        /// The word.
        at: RemoteSpan,
        /// What is done.
        operation: AtomicOperation,
    },
    /// The masks of the masked compare-and-swap that follows.
    Masks {
        /// Bits that are compared.
        compare: u64,
        /// Bits that are stored.
        swap: u64,
    },
    /// Combines the payload with memory, element by element.
    Accumulate {
        /// Where.
        at: RemoteSpan,
        /// How.
        update: ElementUpdate,
        /// The answer carries the old values.
        fetch: bool,
        /// The blocks that the elements lie in; `None`: they are adjacent.
        stride: Option<Stride>,
    },
    /// Asks for an answer after all earlier writes.
    Flush,
    /// Answer to an atomic operation: the old value.
    Value(u64),
    /// Answer with a payload: of a read, or the old values of an accumulate.
    Data,
    /// Answer without a value.
    Done,
    /// Answer: nothing was executed.
    Refused {
        /// The [digest](super::region::RKey::digest) of the region that the refused writes named, or [`SEVERAL`]; 0 with an
        /// answer.
        region: u16,
        /// Why.
        reason: Refusal,
        /// 0: it answers this request. Otherwise refused messages of writes that no earlier answer reported.
        count: u32,
    },
    /// The target had no room for the request: send it again, and those after it.
    Retry,
    /// Answer to all flushes up to this one.
    Flushed,
}

/// A parsed header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RmaHeader {
    /// What it says.
    pub message: RmaMessage,
    /// The requester's number of the operation.
    pub operation: u32,
    /// Of a request: it is sent again because its target asked for it.
    pub retry: bool,
    /// Bytes of payload behind it.
    pub payload: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    kind: u8,
    form: u8,
    region: U16,
    operation: U32,
    /// Key; mask of the comparison; value; number of refused requests in the low half.
    key: U64,
    /// Offset; mask of the swap.
    offset: U64,
    /// Rest of a write; immediate; bytes of a read; operation and type of an accumulate; low half of the first operand.
    word: U32,
    /// Placement; high half of the first operand.
    next: U32,
    /// Key of the placement; second operand.
    last: U64,
}

const _: () = assert!(size_of::<Wire>() == MESSAGE_HEADER_ROOM);

/// The bytes of a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RmaBytes {
    bytes: [u8; MESSAGE_HEADER_ROOM],
    length: u8,
}

impl AsRef<[u8]> for RmaBytes {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl RmaHeader {
    /// Parses the first bytes of a message of `bytes` bytes: at least 40 of them, or all. `None`: no correct peer sends
    /// it.
    pub fn parse(head: &[u8], bytes: u32) -> Option<Self> {
        let length = length_of(*head.first()?)?;
        let shown = head.get(..length)?;
        let payload = bytes.checked_sub(length as u32)?;
        let mut wire = Wire::new_zeroed();
        wire.as_mut_bytes().iter_mut().zip(shown).for_each(|(into, byte)| *into = *byte);
        let is_answer = wire.kind >= kind::VALUE;
        let retry = !is_answer && wire.form & RETRY != 0;
        let form = if is_answer { wire.form } else { wire.form & !RETRY };
        let (message, may_retry, has_payload) = wire.message(form)?;
        // Fields that a kind does not use are zero: the bytes of a message are those of exactly one header.
        let header = Self { message, operation: wire.operation.get(), retry, payload };
        if retry && !may_retry || payload > 0 && !has_payload || header.emit().as_ref() != shown {
            return None;
        }
        Some(header)
    }

    /// Its bytes.
    pub fn emit(&self) -> RmaBytes {
        let mut wire = Wire::new_zeroed();
        wire.operation = U32::new(self.operation);
        let form = |option: bool| if option { OPTION } else { 0 };
        wire.kind = match self.message {
            RmaMessage::Write { at, rest } => {
                wire.set_target(at);
                wire.word = U32::new(rest);
                kind::WRITE
            }
            RmaMessage::WriteImmediate { at, immediate } => {
                wire.set_target(at);
                wire.word = U32::new(immediate);
                kind::WRITE_IMMEDIATE
            }
            RmaMessage::Read { at, bytes, into } => {
                wire.set_target(at);
                wire.word = U32::new(bytes);
                wire.form = form(into.is_some());
                if let Some(ReadPlacement { placement, key }) = into {
                    (wire.next, wire.last) = (U32::new(placement.0), U64::new(key.0));
                }
                kind::READ
            }
            RmaMessage::Atomic { at, operation } => {
                wire.set_target(at);
                wire.set_atomic(operation);
                kind::ATOMIC
            }
            RmaMessage::Masks { compare, swap } => {
                (wire.key, wire.offset) = (U64::new(compare), U64::new(swap));
                kind::MASKS
            }
            RmaMessage::ReadBlocks { at, bytes, stride } => {
                wire.set_target(at);
                wire.word = U32::new(bytes);
                wire.set_stride(stride);
                kind::READ_BLOCKS
            }
            RmaMessage::Accumulate { at, update, fetch, stride } => {
                wire.set_target(at);
                wire.word = U32::new(u32::from(update.datatype) << 8 | u32::from(update.operation));
                wire.form = form(fetch);
                match stride {
                    Some(stride) => {
                        wire.set_stride(stride);
                        kind::ACCUMULATE_BLOCKS
                    }
                    None => kind::ACCUMULATE,
                }
            }
            RmaMessage::Flush => kind::FLUSH,
            RmaMessage::Value(value) => {
                wire.key = U64::new(value);
                kind::VALUE
            }
            RmaMessage::Data => kind::DATA,
            RmaMessage::Done => kind::DONE,
            RmaMessage::Refused { reason, count, region } => {
                wire.form = reason as u8;
                wire.region = U16::new(region);
                wire.key = U64::new(count.into());
                kind::REFUSED
            }
            RmaMessage::Retry => kind::RETRY,
            RmaMessage::Flushed => kind::FLUSHED,
        };
        if self.retry {
            wire.form |= RETRY;
        }
        let mut bytes = [0; MESSAGE_HEADER_ROOM];
        bytes.copy_from_slice(wire.as_bytes());
        RmaBytes { bytes, length: length_of(wire.kind).unwrap_or_default() as u8 }
    }
}

/// Bytes of a header, by kind.
const fn length_of(kind: u8) -> Option<usize> {
    Some(match kind {
        kind::WRITE | kind::WRITE_IMMEDIATE | kind::ACCUMULATE => WRITE,
        kind::READ_BLOCKS | kind::ACCUMULATE_BLOCKS => BLOCKS,
        kind::READ => READ,
        kind::ATOMIC => ATOMIC,
        kind::MASKS => MASKS,
        kind::FLUSH | kind::DATA | kind::DONE | kind::RETRY | kind::FLUSHED => ANSWER,
        kind::REFUSED => 12,
        kind::VALUE => 16,
        _ => return None,
    })
}

impl Wire {
    const fn target(&self) -> RemoteSpan {
        let region = RKey { index: self.region.get(), key: RemoteKey(self.key.get()) };
        RemoteSpan { region, offset: self.offset.get() }
    }

    fn set_target(&mut self, at: RemoteSpan) {
        self.region = U16::new(at.region.index);
        (self.key, self.offset) = (U64::new(at.region.key.0), U64::new(at.offset));
    }

    const fn stride(&self) -> Stride {
        Stride { block: self.next.get(), distance: self.last.get() as u32 }
    }

    fn set_stride(&mut self, stride: Stride) {
        (self.next, self.last) = (U32::new(stride.block), U64::new(stride.distance.into()));
    }

    /// The message, whether it may be sent again, and whether a payload may follow.
    fn message(&self, form: u8) -> Option<(RmaMessage, bool, bool)> {
        let (at, option) = (self.target(), form & OPTION != 0);
        Some(match self.kind {
            kind::WRITE => (RmaMessage::Write { at, rest: self.word.get() }, false, true),
            kind::WRITE_IMMEDIATE => (RmaMessage::WriteImmediate { at, immediate: self.word.get() }, true, true),
            kind::READ => {
                let into = ReadPlacement { placement: PlacementId(self.next.get()), key: RemoteKey(self.last.get()) };
                (RmaMessage::Read { at, bytes: self.word.get(), into: option.then_some(into) }, true, false)
            }
            kind::ATOMIC => (RmaMessage::Atomic { at, operation: self.atomic(form)? }, true, false),
            kind::MASKS => (RmaMessage::Masks { compare: self.key.get(), swap: self.offset.get() }, true, false),
            kind::READ_BLOCKS => {
                (RmaMessage::ReadBlocks { at, bytes: self.word.get(), stride: self.stride() }, true, false)
            }
            kind::ACCUMULATE | kind::ACCUMULATE_BLOCKS => {
                let [operation, datatype, ..] = self.word.get().to_le_bytes();
                let update = ElementUpdate { operation, datatype };
                let stride = (self.kind == kind::ACCUMULATE_BLOCKS).then(|| self.stride());
                (RmaMessage::Accumulate { at, update, fetch: option, stride }, true, true)
            }
            kind::FLUSH => (RmaMessage::Flush, false, false),
            kind::VALUE => (RmaMessage::Value(self.key.get()), false, false),
            kind::DATA => (RmaMessage::Data, false, true),
            kind::DONE => (RmaMessage::Done, false, false),
            kind::REFUSED => {
                let count = u32::try_from(self.key.get()).ok()?;
                (RmaMessage::Refused { reason: Refusal::of(form)?, count, region: self.region.get() }, false, false)
            }
            kind::RETRY => (RmaMessage::Retry, false, false),
            kind::FLUSHED => (RmaMessage::Flushed, false, false),
            _ => return None,
        })
    }

    fn atomic(&self, form: u8) -> Option<AtomicOperation> {
        let width = if form & OPTION != 0 { Width::Bits32 } else { Width::Bits64 };
        let first = u64::from(self.next.get()) << 32 | u64::from(self.word.get());
        let second = self.last.get();
        let kind = match form >> 1 {
            0 => AtomicKind::FetchAdd { add: first, boundaries: second },
            1 => AtomicKind::CompareSwap { compare: first, swap: second },
            2 => AtomicKind::Swap { swap: first, mask: second },
            3 => AtomicKind::MaskedCompareSwap { compare: first, swap: second, compare_mask: 0, swap_mask: 0 },
            _ => return None,
        };
        Some(AtomicOperation { width, kind })
    }

    fn set_atomic(&mut self, operation: AtomicOperation) {
        let (number, first, second) = match operation.kind {
            AtomicKind::FetchAdd { add, boundaries } => (0, add, boundaries),
            AtomicKind::CompareSwap { compare, swap } => (1, compare, swap),
            AtomicKind::Swap { swap, mask } => (2, swap, mask),
            AtomicKind::MaskedCompareSwap { compare, swap, .. } => (3, compare, swap),
        };
        self.form = number << 1 | u8::from(operation.width == Width::Bits32);
        (self.word, self.next) = (U32::new(first as u32), U32::new((first >> 32) as u32));
        self.last = U64::new(second);
    }
}

impl RmaHeader {
    /// Whether it answers a request.
    pub const fn is_answer(&self) -> bool {
        matches!(
            self.message,
            RmaMessage::Value(_)
                | RmaMessage::Data
                | RmaMessage::Done
                | RmaMessage::Refused { .. }
                | RmaMessage::Retry
                | RmaMessage::Flushed
        )
    }
}
