//! The opening of a placement, and the header of its segments.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{HEADER, MESSAGE_HEAD, ParseError, SEGMENT_HEADER};
use crate::ids::{Key, PlacementId};

/// What the opening datagram of a placement says behind the header; nothing follows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Opening {
    /// The receiver's name for it, as granted.
    pub placement: PlacementId,
    /// The key that was granted with it.
    pub key: Key,
    /// Bytes that will be placed, from the start of the granted span.
    pub bytes: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireOpening {
    placement: U32,
    bytes: U32,
    key: U64,
}

impl Opening {
    /// Bytes behind the header.
    pub const BYTES: usize = size_of::<WireOpening>();

    /// Reads what stands behind the header of an opening of `length` bytes.
    ///
    /// # Errors
    /// [`ParseError`] when the length is not that of an opening.
    pub fn parse(head: &[u8], length: u32) -> Result<Self, ParseError> {
        let rest = head.get(HEADER..).ok_or(ParseError::Short)?;
        let wire = WireOpening::ref_from_bytes(rest).map_err(|_| ParseError::Malformed)?;
        if length as usize != head.len() {
            return Err(ParseError::Malformed);
        }
        Ok(Self { placement: PlacementId(wire.placement.get()), key: Key(wire.key.get()), bytes: wire.bytes.get() })
    }

    /// As it stands behind the header.
    pub fn emit(&self) -> [u8; MESSAGE_HEAD] {
        let wire = WireOpening {
            placement: U32::new(self.placement.0),
            bytes: U32::new(self.bytes),
            key: U64::new(self.key.0),
        };
        let mut head = [0; MESSAGE_HEAD];
        let written = wire.write_to_prefix(&mut head);
        debug_assert!(written.is_ok(), "an opening fits behind the header");
        head
    }
}

/// What stands between header and payload of a placement segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentHeader {
    /// The receiver's name for the placement.
    pub placement: PlacementId,
    /// The n-th segment.
    pub index: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireSegment {
    placement: U32,
    index: U32,
}

const _: () = assert!(HEADER + size_of::<WireSegment>() == SEGMENT_HEADER);

impl SegmentHeader {
    /// Reads it from the first bytes of a segment.
    ///
    /// # Errors
    /// [`ParseError::Short`] when they are too few.
    #[inline]
    pub fn parse(head: &[u8]) -> Result<Self, ParseError> {
        let rest = head.get(HEADER..).ok_or(ParseError::Short)?;
        let (wire, _) = WireSegment::ref_from_prefix(rest).map_err(|_| ParseError::Short)?;
        Ok(Self { placement: PlacementId(wire.placement.get()), index: wire.index.get() })
    }

    /// Writes it behind the header.
    #[inline]
    pub fn emit(&self, head: &mut [u8]) {
        let wire = WireSegment { placement: U32::new(self.placement.0), index: U32::new(self.index) };
        if let Some(rest) = head.get_mut(HEADER..) {
            let written = wire.write_to_prefix(rest);
            debug_assert!(written.is_ok(), "a token's head holds a segment header");
        }
    }
}
