//! The opening of a placement, and the header of its segments.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{HEADER, MESSAGE_HEADER_ROOM, ParseError, SEGMENT_HEADER};
use crate::ids::{PlacementId, RemoteKey};

/// The content of a placement's opening datagram, after the header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Opening {
    /// The placement, as granted by the receiver.
    pub placement: PlacementId,
    /// The remote key that was granted with it.
    pub key: RemoteKey,
    /// Length of the placement, from the start of the granted span.
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
    /// Bytes after the header.
    pub const BYTES: usize = size_of::<WireOpening>();

    /// Parses an opening of `length` bytes, whose first bytes are `head`.
    ///
    /// # Errors
    /// [`ParseError`] if the length is not that of an opening.
    pub fn parse(head: &[u8], length: u32) -> Result<Self, ParseError> {
        let rest = head.get(HEADER..).ok_or(ParseError::Short)?;
        let wire = WireOpening::ref_from_bytes(rest).map_err(|_| ParseError::Malformed)?;
        if length as usize != head.len() {
            return Err(ParseError::Malformed);
        }
        Ok(Self {
            placement: PlacementId(wire.placement.get()),
            key: RemoteKey(wire.key.get()),
            bytes: wire.bytes.get(),
        })
    }

    /// Its bytes after the header.
    pub fn emit(&self) -> [u8; MESSAGE_HEADER_ROOM] {
        let wire = WireOpening {
            placement: U32::new(self.placement.0),
            bytes: U32::new(self.bytes),
            key: U64::new(self.key.0),
        };
        let mut head = [0; MESSAGE_HEADER_ROOM];
        let written = wire.write_to_prefix(&mut head);
        debug_assert!(written.is_ok(), "an opening fits behind the header");
        head
    }
}

/// The fields between header and payload of a placement segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentHeader {
    /// The placement, as granted by the receiver.
    pub placement: PlacementId,
    /// The index of the segment.
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
    /// Parses it from the first bytes of a segment.
    ///
    /// # Errors
    /// [`ParseError::Short`] if they are too few.
    #[inline]
    pub fn parse(head: &[u8]) -> Result<Self, ParseError> {
        let rest = head.get(HEADER..).ok_or(ParseError::Short)?;
        let (wire, _) = WireSegment::ref_from_prefix(rest).map_err(|_| ParseError::Short)?;
        Ok(Self { placement: PlacementId(wire.placement.get()), index: wire.index.get() })
    }

    /// Writes it after the header.
    #[inline]
    pub fn emit(&self, head: &mut [u8]) {
        let wire = WireSegment { placement: U32::new(self.placement.0), index: U32::new(self.index) };
        if let Some(rest) = head.get_mut(HEADER..) {
            let written = wire.write_to_prefix(rest);
            debug_assert!(written.is_ok(), "a token's head holds a segment header");
        }
    }
}
