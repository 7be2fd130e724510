//! The header of a point-to-point message, little-endian:
//! ```text
//! +--------+--------+--------+--------+
//! |  kind  | flags  | headers freed   |  cumulative; of the messages that the receiver of this header sent
//! +-----------------------------------+
//! |     messages that are settled     |  cumulative
//! +-----------------------------------+
//! |  context; or the message's number |  RTS ACK, FIN, truncated: the end; CTS: also placement, key (64 bits);
//! |                                   |  cancel: the count of headers before it, and the message's number
//! +-----------------------------------+
//! |                tag                |  match request: the end
//! +-----------------------------------+
//! |       the message's number        |  eager: the payload follows
//! +-----------------------------------+
//! |          bytes (64 bits)          |
//! +-----------------------------------+
//! |   payload's location (64 bits)    |  as defined by the sender's host
//! +-----------------------------------+
//! ```

use bitflags::bitflags;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::ids::{PlacementId, RemoteKey};
use crate::list::NONE;
use crate::message::envelope::{Context, Tag};

/// The kind of a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(super) enum MessageKind {
    /// A message with its payload.
    Eager = 0,
    /// RTS: a message without payload; the receiver stores this header.
    Rts = 1,
    /// Unbuffered RTS: a message without payload; the receiver drops this header unless a posted receive matches.
    UnbufferedRts = 2,
    /// Only the credit that every header carries.
    Credit = 3,
    /// RTS ACK: the receiver has the header, the payload stays with the sender, after a dropped eager payload, or for a
    /// matched probe.
    RtsAck = 4,
    /// CTS: memory for the payload. As FIN and truncated, it claims a message that the sender holds.
    Cts = 5,
    /// FIN: a synchronous message was matched, or the receiver has copied the payload.
    Fin = 6,
    /// The message is longer than its receive's buffer.
    Truncated = 7,
    /// Match request: asks for the first held message that matches.
    MatchRequest = 8,
    /// Reply to a match request: the message. A claim or a decline follows.
    MatchFound = 9,
    /// Reply to a match request: no held message matches.
    NoMatch = 10,
    /// The message that was found is not needed any more.
    Decline = 11,
    /// Requests a credit header.
    Flush = 12,
    /// Asks to remove an unexpected message, which is cancelled.
    Cancel = 13,
    /// Reply to a cancellation.
    CancelReply = 14,
    /// The sender holds one message less, which is cancelled.
    Withdrawn = 15,
}

/// Kinds of this protocol are below this; other protocols may use the remaining values of the first byte.
pub const KINDS: u8 = 16;

bitflags! {
    /// The flags of a header.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub(super) struct Flags: u8 {
        /// The sender waits for the match.
        const SYNCHRONOUS = 1;
        /// An unbuffered RTS of this message was sent before.
        const OFFERED = 2;
        /// The sender requests an immediate report that its payload is stored.
        const PROMPT = 4;
        /// A match request for any tag.
        const ANY_TAG = 8;
        /// A grant for a part that is not the last.
        const MORE = 16;
        /// A cancelled message was removed.
        const REMOVED = 32;
    }
}

/// The credit that every header carries: freed and settled messages of its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HeaderCredit {
    /// Headers freed, cumulative.
    pub freed: u16,
    /// Messages settled, cumulative: stored, matched or answered.
    pub settled: u32,
}

impl HeaderCredit {
    /// Nothing was freed or settled.
    pub(super) const NONE: Self = Self { freed: 0, settled: 0 };
}

/// A header to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageHeader {
    words: [U32; MessageHeader::LONGEST / 4],
    /// Its length in words.
    length: u8,
}

impl MessageHeader {
    /// Bytes of the longest header.
    pub const LONGEST: usize = 36;
    /// Bytes before an eager message's payload.
    pub const EAGER: usize = 20;

    /// The header of a message that was sent [inline](super::PointToPoint::send_inline).
    #[inline]
    pub fn inline(context: Context, tag: Tag, credit: HeaderCredit) -> Self {
        Self::new(MessageKind::Eager, Flags::empty(), credit).word(context.0).word(tag.0).word(NONE)
    }

    #[inline]
    pub(super) fn new(kind: MessageKind, flags: Flags, credit: HeaderCredit) -> Self {
        let first = kind as u32 | u32::from(flags.bits()) << 8 | u32::from(credit.freed) << 16;
        Self { words: [U32::ZERO; Self::LONGEST / 4], length: 0 }.word(first).word(credit.settled)
    }

    #[inline]
    pub(super) fn word(mut self, word: u32) -> Self {
        if let Some(into) = self.words.get_mut(usize::from(self.length)) {
            *into = U32::new(word);
            self.length = self.length.wrapping_add(1);
        }
        self
    }

    #[inline]
    pub(super) fn long(self, long: u64) -> Self {
        self.word(long as u32).word((long >> 32) as u32)
    }
}

impl AsRef<[u8]> for MessageHeader {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.words.get(..usize::from(self.length)).unwrap_or_default().as_bytes()
    }
}

impl core::fmt::Debug for MessageHeader {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(to, "{:?}", Header::parse(self.as_ref()))
    }
}

/// A received header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) flags: Flags,
    pub(super) freed: u16,
    pub(super) settled: u32,
    pub(super) body: Body,
}

/// The fields after the credit, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Body {
    Eager(Descriptor),
    Rts(Descriptor),
    UnbufferedRts(Descriptor),
    Credit,
    RtsAck(u32),
    Cts { message: u32, placement: PlacementId, key: RemoteKey },
    Fin(u32),
    Truncated(u32),
    MatchRequest { context: u32, tag: u32 },
    MatchFound(Descriptor),
    NoMatch,
    Decline,
    Flush,
    Cancel { number: u32, message: u32 },
    CancelReply,
    Withdrawn,
}

/// The fields that describe a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Descriptor {
    pub(super) context: u32,
    pub(super) tag: u32,
    pub(super) message: u32,
    /// Not encoded in an eager header.
    pub(super) bytes: u64,
    pub(super) at: u64,
}

impl Header {
    /// `None`: no correct peer sends this.
    #[inline]
    pub(super) fn parse(head: &[u8]) -> Option<Self> {
        let [kind, flags, low, high] = *head.first_chunk()?;
        let shown = |is_eager: bool| {
            let (bytes, at) = if is_eager { (0, 0) } else { (long(head, 20)?, long(head, 28)?) };
            Some(Descriptor { context: word(head, 8)?, tag: word(head, 12)?, message: word(head, 16)?, bytes, at })
        };
        let said = match kind {
            0 => Body::Eager(shown(true)?),
            1 => Body::Rts(shown(false)?),
            2 => Body::UnbufferedRts(shown(false)?),
            3 => Body::Credit,
            4 => Body::RtsAck(word(head, 8)?),
            5 => Body::Cts {
                message: word(head, 8)?,
                placement: PlacementId(word(head, 12)?),
                key: RemoteKey(long(head, 16)?),
            },
            6 => Body::Fin(word(head, 8)?),
            7 => Body::Truncated(word(head, 8)?),
            8 => Body::MatchRequest { context: word(head, 8)?, tag: word(head, 12)? },
            9 => Body::MatchFound(shown(false)?),
            10 => Body::NoMatch,
            11 => Body::Decline,
            12 => Body::Flush,
            13 => Body::Cancel { number: word(head, 8)?, message: word(head, 12)? },
            14 => Body::CancelReply,
            15 => Body::Withdrawn,
            _ => return None,
        };
        let freed = u16::from_le_bytes([low, high]);
        Some(Self { flags: Flags::from_bits(flags)?, freed, settled: word(head, 4)?, body: said })
    }
}

fn word(head: &[u8], at: usize) -> Option<u32> {
    head.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn long(head: &[u8], at: usize) -> Option<u64> {
    head.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
