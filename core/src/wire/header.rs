//! The 24-byte header of every datagram.

use core::mem::offset_of;
use core::ops::Range;

use bitflags::bitflags;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::VERSION;
use crate::ids::{Incarnation, Psn};

/// The kind of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DatagramKind {
    /// A message of one datagram; consumes a PSN.
    Eager = 0,
    /// Opens a placement; consumes a PSN.
    Open = 1,
    /// A segment of a placement; consumes a PSN.
    Segment = 2,
    /// A pure acknowledgement.
    Acknowledge = 3,
    /// Requests an acknowledgement; its PSN is the next unsent one, its count is the probe's number.
    Probe = 4,
    /// The sender closes in order: it sends no more data and lacks no acknowledgement.
    Bye = 5,
    /// The receiver knows another incarnation of the sender; the PSN field echoes that stale incarnation.
    Reset = 6,
    /// The sender aborts the receiver.
    Abort = 7,
    /// A third rank failed: its rank is in the PSN field, its incarnation in the acknowledgement field.
    PeerDown = 8,
    /// The opening with this PSN is not covered by a grant: its sender is to replace it by a no-op.
    Refuse = 9,
    /// No-op: consumes the PSN of a refused opening.
    Nop = 10,
}

impl DatagramKind {
    /// Their names, by value.
    pub const NAMES: [&str; 11] =
        ["eager", "open", "segment", "acknowledge", "probe", "bye", "reset", "abort", "peer_down", "refuse", "nop"];

    const fn from_nibble(nibble: u8) -> Option<Self> {
        Some(match nibble {
            0 => Self::Eager,
            1 => Self::Open,
            2 => Self::Segment,
            3 => Self::Acknowledge,
            4 => Self::Probe,
            5 => Self::Bye,
            6 => Self::Reset,
            7 => Self::Abort,
            8 => Self::PeerDown,
            9 => Self::Refuse,
            10 => Self::Nop,
            _ => return None,
        })
    }

    /// Whether datagrams of this kind consume a PSN.
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Eager | Self::Open | Self::Segment | Self::Nop)
    }
}

bitflags! {
    /// The flags of a header.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Flags: u8 {
        /// A new gap was seen.
        const NACK = 1;
        /// A bitmap follows.
        const BITMAP = 1 << 1;
        /// Request for an immediate acknowledgement.
        const ACK_NOW = 1 << 2;
        /// The sender has nothing queued after this datagram: it returns its credit.
        const DRAINED = 1 << 3;
        /// Answers the probe whose PSN and number it echoes.
        const ANSWER = 1 << 4;
        /// Transmission count or probe number, modulo 4.
        const COUNT = 0b11 << 5;
    }
}

impl Flags {
    /// The 2-bit transmission count or probe number.
    pub const fn count(self) -> u8 {
        self.bits() >> 5 & 3
    }

    /// With the count set to `count` modulo 4.
    #[must_use]
    pub const fn with_count(self, count: u8) -> Self {
        Self::from_bits_retain(self.bits() & !Self::COUNT.bits() | (count & 3) << 5)
    }
}

/// Why bytes are not a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParseError {
    /// Fewer bytes than the kind needs.
    Short,
    /// Another protocol version.
    Version,
    /// An undefined kind or flag, or a length that does not fit the kind.
    Malformed,
}

/// The parsed header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header<const BITS: u32> {
    /// The datagram's kind.
    pub kind: DatagramKind,
    /// Its flags.
    pub flags: Flags,
    /// Credit: datagrams that the receiver of this header may send beyond `acknowledged`.
    pub credit: u16,
    /// The sender's rank.
    pub rank: u32,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The receiver's incarnation, as the sender knows it.
    pub expected: Incarnation,
    /// Its sequence number; see [`DatagramKind`] for datagrams that consume none. Not reduced to `BITS` bits.
    pub psn: u32,
    /// Every PSN before this one has arrived at the sender. Not reduced to `BITS` bits.
    pub acknowledged: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    version_kind: u8,
    flags: u8,
    credit: U16,
    rank: U32,
    incarnation: U32,
    expected: U32,
    psn: U32,
    acknowledged: U32,
}

const _: () = assert!(size_of::<Wire>() == super::HEADER);

impl<const BITS: u32> Header<BITS> {
    /// Parses the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`ParseError`] if the bytes are too few, of another version, or use an undefined kind or flag.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (wire, _) = Wire::ref_from_prefix(bytes).map_err(|_| ParseError::Short)?;
        if wire.version_kind >> 4 != VERSION {
            return Err(ParseError::Version);
        }
        let kind = DatagramKind::from_nibble(wire.version_kind & 15).ok_or(ParseError::Malformed)?;
        let flags = Flags::from_bits(wire.flags).ok_or(ParseError::Malformed)?;
        Ok(Self {
            kind,
            flags,
            credit: wire.credit.get(),
            rank: wire.rank.get(),
            incarnation: Incarnation(wire.incarnation.get()),
            expected: Incarnation(wire.expected.get()),
            psn: wire.psn.get(),
            acknowledged: wire.acknowledged.get(),
        })
    }

    /// Writes the header to the start of `bytes`; writes nothing if they are too few.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let wire = Wire {
            version_kind: VERSION << 4 | self.kind as u8,
            flags: self.flags.bits(),
            credit: U16::new(self.credit),
            rank: U32::new(self.rank),
            incarnation: U32::new(self.incarnation.0),
            expected: U32::new(self.expected.0),
            psn: U32::new(self.psn),
            acknowledged: U32::new(self.acknowledged),
        };
        let written = wire.write_to_prefix(bytes);
        debug_assert!(written.is_ok(), "a token's head holds a header");
    }

    /// Overwrites the PSN of a header at the start of `bytes`; writes nothing if they are too few.
    #[inline]
    pub(crate) fn emit_psn(psn: Psn<BITS>, bytes: &mut [u8]) {
        const PLACE: Range<usize> = offset_of!(Wire, psn)..offset_of!(Wire, acknowledged);
        if let Some(place) = bytes.get_mut(PLACE) {
            place.copy_from_slice(&psn.get().to_le_bytes());
        }
    }

    /// The sequence number, `BITS` wide.
    pub const fn psn(&self) -> Psn<BITS> {
        Psn::new(self.psn)
    }
}
