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
//! |               step                |  (RTS request, refusal and FIN end here; eager: payload)
//! +-----------------------------------+
//! |   RTS: bytes; CTS: placement      |
//! +-----------------------------------+
//! | RTS: location, CTS: key (64 bits) |  location: as defined by the sender's host
//! +-----------------------------------+
//! ```

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::StepKey;
use crate::ids;
use crate::ids::PlacementId;

/// Bytes before an eager payload.
pub const EAGER_HEADER: usize = 16;

/// The kind of a message: its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TransportKind {
    /// The payload follows.
    Eager = Self::FIRST,
    /// RTS: the payload stays with the sender.
    Rts,
    /// The repeated RTS, in reply to an [`RtsRequest`](Self::RtsRequest).
    Reannounce,
    /// CTS: the payload may be placed.
    Cts,
    /// The payload is not wanted.
    Refuse,
    /// Requests the RTS of a message that may have been dropped.
    RtsRequest,
    /// Credit only.
    Credit,
    /// FIN: the receiver has copied the payload.
    Fin,
}

impl TransportKind {
    /// The first kind: messages that begin with a smaller byte are not those of collectives.
    pub const FIRST: u8 = 16;

    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            16 => Self::Eager,
            17 => Self::Rts,
            18 => Self::Reannounce,
            19 => Self::Cts,
            20 => Self::Refuse,
            21 => Self::RtsRequest,
            22 => Self::Credit,
            23 => Self::Fin,
            _ => return None,
        })
    }

    /// Bytes of its header.
    const fn length(self) -> usize {
        match self {
            Self::Eager | Self::Refuse | Self::RtsRequest | Self::Fin => EAGER_HEADER,
            Self::Rts | Self::Reannounce | Self::Cts => StepHeader::LONGEST,
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
    /// Location, or key.
    long: U64,
}

const _: () = assert!(size_of::<Wire>() == StepHeader::LONGEST);

impl Wire {
    const fn name(&self) -> StepKey {
        StepKey { context: self.context.get(), sequence: self.sequence.get(), step: self.step.get() }
    }
}

/// A header as it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StepHeader {
    bytes: [u8; Self::LONGEST],
    length: u8,
}

impl StepHeader {
    /// Bytes of the longest header, an RTS or a CTS.
    pub const LONGEST: usize = 28;

    /// A CTS, in reply to [`Action::Pull`](super::TransportAction::Pull).
    pub fn cts(key: StepKey, placement: PlacementId, under: ids::RemoteKey) -> Self {
        Self::of(TransportKind::Cts, 0, key, placement.0, under.0)
    }

    pub(super) fn new(kind: TransportKind, credit: u8, key: StepKey) -> Self {
        Self::of(kind, credit, key, 0, 0)
    }

    /// A FIN, in reply to [`Action::Pull`](super::TransportAction::Pull).
    pub fn fin(key: StepKey) -> Self {
        Self::new(TransportKind::Fin, 0, key)
    }

    pub(super) fn rts(kind: TransportKind, credit: u8, key: StepKey, bytes: u32, at: u64) -> Self {
        Self::of(kind, credit, key, bytes, at)
    }

    pub(super) fn credit(credit: u8) -> Self {
        Self::of(TransportKind::Credit, credit, StepKey::default(), 0, 0)
    }

    fn of(kind: TransportKind, credit: u8, key: StepKey, number: u32, long: u64) -> Self {
        let wire = Wire {
            kind: kind as u8,
            credit,
            unused: [0; 2],
            context: U32::new(key.context),
            sequence: U32::new(key.sequence),
            step: U32::new(key.step),
            number: U32::new(number),
            long: U64::new(long),
        };
        let mut bytes = [0; Self::LONGEST];
        let written = wire.write_to(&mut bytes);
        debug_assert!(written.is_ok(), "of the same size");
        Self { bytes, length: kind.length() as u8 }
    }
}

impl AsRef<[u8]> for StepHeader {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// The parsed content of a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Parsed {
    Eager { key: StepKey, bytes: u32 },
    Rts { key: StepKey, bytes: u32, at: u64 },
    Reannounce { key: StepKey, bytes: u32, at: u64 },
    Cts { key: StepKey, placement: PlacementId, under: ids::RemoteKey },
    Refuse { key: StepKey },
    RtsRequest { key: StepKey },
    Fin { key: StepKey },
    Credit,
}

/// A header's kind and fields; fields that the kind lacks are zero.
fn read(head: &[u8]) -> Option<(TransportKind, Wire)> {
    let kind = TransportKind::of(*head.first()?)?;
    let shown = head.get(..kind.length())?;
    let mut wire = Wire::new_zeroed();
    wire.as_mut_bytes().get_mut(..shown.len())?.copy_from_slice(shown);
    Some((kind, wire))
}

/// A message's kind and key, by its first bytes. `None`: it has no key.
pub fn parse_key(head: &[u8]) -> Option<(TransportKind, StepKey)> {
    let (kind, wire) = read(head)?;
    (kind != TransportKind::Credit).then(|| (kind, wire.name()))
}

/// Parses a message by its first bytes and its length: the credit that it returns, and its content. `None` if it is
/// malformed.
pub(super) fn parse(head: &[u8], length: u32) -> Option<(u8, Parsed)> {
    let (kind, wire) = read(head)?;
    let bytes = length.checked_sub(kind.length() as u32)?;
    if kind != TransportKind::Eager && bytes != 0 {
        return None;
    }
    let key = wire.name();
    let (number, long) = (wire.number.get(), wire.long.get());
    let parsed = match kind {
        TransportKind::Eager => Parsed::Eager { key, bytes },
        TransportKind::Rts => Parsed::Rts { key, bytes: number, at: long },
        TransportKind::Reannounce => Parsed::Reannounce { key, bytes: number, at: long },
        TransportKind::Cts => Parsed::Cts { key, placement: PlacementId(number), under: ids::RemoteKey(long) },
        TransportKind::Refuse => Parsed::Refuse { key },
        TransportKind::RtsRequest => Parsed::RtsRequest { key },
        TransportKind::Fin => Parsed::Fin { key },
        TransportKind::Credit => Parsed::Credit,
    };
    Some((wire.credit, parsed))
}

const _: () = assert!(StepHeader::LONGEST <= crate::wire::MESSAGE_HEADER_ROOM);
