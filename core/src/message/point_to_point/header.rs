//! The head of a message, little-endian:
//! ```text
//! +--------+--------+--------+--------+
//! |  kind  | flags  | headers freed   |  cumulative; of what the receiver of this head sent
//! +-----------------------------------+
//! |  shown messages that are settled  |  cumulative
//! +-----------------------------------+
//! |  context; or the message's number |  claim, taken, truncated: the end; grant: also placement, key (64 bits)
//! +-----------------------------------+
//! |                tag                |  want: the end
//! +-----------------------------------+
//! |       the message's number        |  eager: the payload follows
//! +-----------------------------------+
//! |          bytes (64 bits)          |
//! +-----------------------------------+
//! |     where it lies (64 bits)       |  as the sender's rim says it
//! +-----------------------------------+
//! ```

use bitflags::bitflags;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::ids::{Key, PlacementId};
use crate::list::NONE;
use crate::message::envelope::{Context, Tag};

/// What a head says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// A message with its payload.
    Eager = 0,
    /// A message; the receiver keeps this head.
    Announce = 1,
    /// A message; the receiver keeps nothing unless a receive waits for it.
    Offer = 2,
    /// The sender had none of the others to say: only what every head says.
    Credit = 3,
    /// The receiver has the head, its payload stays with the sender: an offer was taken, or an eager payload not kept.
    Claim = 4,
    /// Memory for a claimed or announced message.
    Grant = 5,
    /// The message has met its receive (synchronous), or the receiver has copied it.
    Taken = 6,
    /// The message is longer than its receive.
    Truncated = 7,
    /// Asks for the first message that was offered and matches.
    Want = 8,
    /// That message: it is answered by a claim or a decline.
    Found = 9,
    /// There is none.
    Missing = 10,
    /// The message that was found is needed no longer.
    Decline = 11,
    /// Asks for a credit.
    Flush = 12,
}

/// Kinds of heads are below this; others may use the rest of the first byte's values.
pub const KINDS: u8 = 16;

bitflags! {
    /// Of a head.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub(super) struct Flags: u8 {
        /// The sender waits until the message has met its receive.
        const SYNCHRONOUS = 1;
        /// The message was offered before.
        const OFFERED = 2;
        /// The sender wants to hear at once that its payload is kept.
        const PROMPT = 4;
        /// A want of any tag.
        const ANY_TAG = 8;
        /// A grant of a part, which is not the last.
        const MORE = 16;
    }
}

/// What every head says: how far the messages of who reads it are freed and settled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Credit {
    /// Headers freed, cumulative.
    pub freed: u16,
    /// Shown messages that are settled, cumulative.
    pub settled: u32,
}

impl Credit {
    /// Nothing was ever freed or settled.
    pub(super) const NONE: Self = Self { freed: 0, settled: 0 };
}

/// A head to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Head {
    words: [U32; Head::LONGEST / 4],
    /// How many of them are said.
    length: u8,
}

impl Head {
    /// Bytes of the longest.
    pub const LONGEST: usize = 36;
    /// Bytes before an eager message's payload.
    pub const EAGER: usize = 20;

    /// That of a message which leaves [short](super::Admission::send_short).
    #[inline]
    pub fn short(context: Context, tag: Tag, credit: Credit) -> Self {
        Self::new(Kind::Eager, Flags::empty(), credit).word(context.0).word(tag.0).word(NONE)
    }

    #[inline]
    pub(super) fn new(kind: Kind, flags: Flags, credit: Credit) -> Self {
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

impl AsRef<[u8]> for Head {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.words.get(..usize::from(self.length)).unwrap_or_default().as_bytes()
    }
}

impl core::fmt::Debug for Head {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(to, "{:?}", Read::of(self.as_ref()))
    }
}

/// A head that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Read {
    pub(super) flags: Flags,
    pub(super) freed: u16,
    pub(super) settled: u32,
    pub(super) said: Said,
}

/// What it says beside that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    Eager(Shown),
    Announce(Shown),
    Offer(Shown),
    Credit,
    Claim(u32),
    Grant { message: u32, placement: PlacementId, key: Key },
    Taken(u32),
    Truncated(u32),
    Want { context: u32, tag: u32 },
    Found(Shown),
    Missing,
    Decline,
    Flush,
}

/// A message as its head shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shown {
    pub(super) context: u32,
    pub(super) tag: u32,
    pub(super) message: u32,
    /// Of an eager message: not said here.
    pub(super) bytes: u64,
    pub(super) at: u64,
}

impl Read {
    /// `None`: nobody says that.
    #[inline]
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        let [kind, flags, low, high] = *head.first_chunk()?;
        let shown = |is_eager: bool| {
            let (bytes, at) = if is_eager { (0, 0) } else { (long(head, 20)?, long(head, 28)?) };
            Some(Shown { context: word(head, 8)?, tag: word(head, 12)?, message: word(head, 16)?, bytes, at })
        };
        let said = match kind {
            0 => Said::Eager(shown(true)?),
            1 => Said::Announce(shown(false)?),
            2 => Said::Offer(shown(false)?),
            3 => Said::Credit,
            4 => Said::Claim(word(head, 8)?),
            5 => Said::Grant {
                message: word(head, 8)?,
                placement: PlacementId(word(head, 12)?),
                key: Key(long(head, 16)?),
            },
            6 => Said::Taken(word(head, 8)?),
            7 => Said::Truncated(word(head, 8)?),
            8 => Said::Want { context: word(head, 8)?, tag: word(head, 12)? },
            9 => Said::Found(shown(false)?),
            10 => Said::Missing,
            11 => Said::Decline,
            12 => Said::Flush,
            _ => return None,
        };
        let freed = u16::from_le_bytes([low, high]);
        Some(Self { flags: Flags::from_bits(flags)?, freed, settled: word(head, 4)?, said })
    }
}

fn word(head: &[u8], at: usize) -> Option<u32> {
    head.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn long(head: &[u8], at: usize) -> Option<u64> {
    head.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
