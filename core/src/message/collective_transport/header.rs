//! The header of a collective message, with or without payload; little-endian.
//!
//! ```text
//! +--------+--------+--------+--------+
//! |  kind  | credit |        0        |  credit: consumed eager messages, not reported before
//! +--------+--------+--------+--------+  (a credit message ends here)
//! |              context              |
//! +-----------------------------------+
//! |             sequence              |
//! +-----------------------------------+
//! |               step                |  (RTS request and refusal end here; eager: payload)
//! +-----------------------------------+
//! |   RTS: bytes; CTS: placement      |
//! +-----------------------------------+
//! |         CTS: key (64 bits)        |
//! +-----------------------------------+
//! ```

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Key;
use crate::ids;
use crate::ids::PlacementId;

/// Bytes before an eager payload.
pub const EAGER_HEAD: usize = 16;

/// The kind of a message: its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The payload follows.
    Eager = Self::FIRST,
    /// RTS: the payload stays with the sender.
    Announce,
    /// The repeated RTS of [`Announce`](Self::Announce), in reply to a [`Want`](Self::Want).
    Again,
    /// CTS: the payload may be placed.
    Grant,
    /// The payload is not wanted.
    Refuse,
    /// Requests the RTS of a message that may have been dropped.
    Want,
    /// Credit only.
    Credit,
}

impl Kind {
    /// The first kind: messages that begin with a smaller byte are not those of collectives.
    pub const FIRST: u8 = 16;

    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            16 => Self::Eager,
            17 => Self::Announce,
            18 => Self::Again,
            19 => Self::Grant,
            20 => Self::Refuse,
            21 => Self::Want,
            22 => Self::Credit,
            _ => return None,
        })
    }

    /// Bytes of its header.
    const fn length(self) -> usize {
        match self {
            Self::Eager | Self::Refuse | Self::Want => EAGER_HEAD,
            Self::Announce | Self::Again => 20,
            Self::Grant => Head::LONGEST,
            Self::Credit => 4,
        }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    kind: u8,
    credit: u8,
    unused: [u8; 2],
    context: U32,
    sequence: U32,
    step: U32,
    /// Length, or placement.
    number: U32,
    key: U64,
}

const _: () = assert!(size_of::<Wire>() == Head::LONGEST);

impl Wire {
    const fn name(&self) -> Key {
        Key { context: self.context.get(), sequence: self.sequence.get(), step: self.step.get() }
    }
}

/// A header as it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Head {
    bytes: [u8; Self::LONGEST],
    length: u8,
}

impl Head {
    /// Bytes of the longest header, a CTS. All others have at most 20.
    pub const LONGEST: usize = 28;

    /// A CTS, in reply to [`Action::Grant`](super::Action::Grant).
    pub fn grant(key: Key, placement: PlacementId, under: ids::Key) -> Self {
        Self::of(Kind::Grant, 0, key, placement.0, under.0)
    }

    pub(super) fn new(kind: Kind, credit: u8, key: Key) -> Self {
        Self::of(kind, credit, key, 0, 0)
    }

    pub(super) fn announce(kind: Kind, credit: u8, key: Key, bytes: u32) -> Self {
        Self::of(kind, credit, key, bytes, 0)
    }

    pub(super) fn credit(credit: u8) -> Self {
        Self::of(Kind::Credit, credit, Key::default(), 0, 0)
    }

    fn of(kind: Kind, credit: u8, key: Key, number: u32, under: u64) -> Self {
        let wire = Wire {
            kind: kind as u8,
            credit,
            unused: [0; 2],
            context: U32::new(key.context),
            sequence: U32::new(key.sequence),
            step: U32::new(key.step),
            number: U32::new(number),
            key: U64::new(under),
        };
        let mut bytes = [0; Self::LONGEST];
        let written = wire.write_to(&mut bytes);
        debug_assert!(written.is_ok(), "of the same size");
        Self { bytes, length: kind.length() as u8 }
    }
}

impl AsRef<[u8]> for Head {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// The parsed content of a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Parsed {
    Eager { key: Key, bytes: u32 },
    Announce { key: Key, bytes: u32 },
    Again { key: Key, bytes: u32 },
    Grant { key: Key, placement: PlacementId, under: ids::Key },
    Refuse { key: Key },
    Want { key: Key },
    Credit,
}

/// A header's kind and fields; fields that the kind lacks are zero.
fn read(head: &[u8]) -> Option<(Kind, Wire)> {
    let kind = Kind::of(*head.first()?)?;
    let shown = head.get(..kind.length())?;
    let mut wire = Wire::new_zeroed();
    wire.as_mut_bytes().get_mut(..shown.len())?.copy_from_slice(shown);
    Some((kind, wire))
}

/// A message's kind and key, by its first bytes. `None`: it has no key.
pub fn named(head: &[u8]) -> Option<(Kind, Key)> {
    let (kind, wire) = read(head)?;
    (kind != Kind::Credit).then(|| (kind, wire.name()))
}

/// Parses a message by its first bytes and its length: the credit that it returns, and its content. `None` if it is
/// malformed.
pub(super) fn parse(head: &[u8], length: u32) -> Option<(u8, Parsed)> {
    let (kind, wire) = read(head)?;
    let bytes = length.checked_sub(kind.length() as u32)?;
    if kind != Kind::Eager && bytes != 0 {
        return None;
    }
    let key = wire.name();
    let number = wire.number.get();
    let parsed = match kind {
        Kind::Eager => Parsed::Eager { key, bytes },
        Kind::Announce => Parsed::Announce { key, bytes: number },
        Kind::Again => Parsed::Again { key, bytes: number },
        Kind::Grant => Parsed::Grant { key, placement: PlacementId(number), under: ids::Key(wire.key.get()) },
        Kind::Refuse => Parsed::Refuse { key },
        Kind::Want => Parsed::Want { key },
        Kind::Credit => Parsed::Credit,
    };
    Some((wire.credit, parsed))
}

const _: () = assert!(Head::LONGEST <= crate::wire::MESSAGE_HEAD);
