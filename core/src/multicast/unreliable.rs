//! A datagram to a group that nobody repairs, little-endian: its message follows.
//!
//! ```text
//!  0               1               2               3
//!  0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7
//! +-------+-------+---------------+-------------------------------+
//! |version| kind  |       0       |         group's number        |
//! +-------+-------+---------------+-------------------------------+
//! |                                                               |
//! +                         group's epoch                         +
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                         sender's rank                         |
//! +---------------------------------------------------------------+
//! |                     sender's incarnation                      |
//! +===============================================================+ 20: the message
//! ```
//!
//! Its kind continues those of [`Datagram`](super::Datagram). What a receiver misses, its own protocol must notice: token
//! trees send their releases so (`collective::token_tree`).

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::GroupKey;
use crate::ids::{GroupId, Incarnation, Rank};
use crate::wire::{ParseError, VERSION};

/// Bytes before the message.
pub const UNRELIABLE_HEADER: usize = 20;

const UNRELIABLE: u8 = 14;

/// The header of a datagram to a group that nobody repairs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnreliableHeader {
    /// The group.
    pub key: GroupKey,
    /// The sender, by its rank in the group.
    pub sender: Rank,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    version_kind: u8,
    flags: u8,
    group: U16,
    epoch: U64,
    sender: U32,
    incarnation: U32,
}

const _: () = assert!(size_of::<Wire>() == UNRELIABLE_HEADER);

impl UnreliableHeader {
    /// Whether the bytes begin such a datagram.
    pub fn is_unreliable(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|first| first & 15 == UNRELIABLE)
    }

    /// Parses a datagram that begins with these bytes. Returns the header, and the bytes after it.
    ///
    /// # Errors
    /// It is truncated, of another version, or uses undefined bits.
    pub fn parse(head: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (wire, rest) = Wire::ref_from_prefix(head).map_err(|_| ParseError::Short)?;
        if wire.version_kind >> 4 != VERSION {
            return Err(ParseError::Version);
        }
        if wire.version_kind & 15 != UNRELIABLE || wire.flags != 0 {
            return Err(ParseError::Malformed);
        }
        let key = GroupKey { group: GroupId(wire.group.get().into()), epoch: wire.epoch.get() };
        Ok((Self { key, sender: Rank(wire.sender.get()), incarnation: Incarnation(wire.incarnation.get()) }, rest))
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; UNRELIABLE_HEADER] {
        zerocopy::transmute!(Wire {
            version_kind: VERSION << 4 | UNRELIABLE,
            flags: 0,
            group: U16::new(self.key.group.0 as u16),
            epoch: U64::new(self.key.epoch),
            sender: U32::new(self.sender.0),
            incarnation: U32::new(self.incarnation.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Datagram;
    use super::*;

    const SENT: UnreliableHeader = UnreliableHeader {
        key: GroupKey { group: GroupId(0xfedc), epoch: 0x0123_4567_89ab_cdef },
        sender: Rank(70_000),
        incarnation: Incarnation(9),
    };

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let bytes = SENT.encode();
        assert!(UnreliableHeader::is_unreliable(&bytes) && !Datagram::<32>::is_multicast(&bytes));
        assert_eq!(UnreliableHeader::parse(&bytes), Ok((SENT, &[][..])));
        assert_eq!(UnreliableHeader::parse(&[&bytes[..], &[7, 8]].concat()).map(|(_, rest)| rest.len()), Ok(2));
    }

    #[test]
    fn other_bytes_are_refused() {
        let bytes = SENT.encode();
        for short in 0..UNRELIABLE_HEADER {
            assert_eq!(UnreliableHeader::parse(&bytes[..short]), Err(ParseError::Short));
        }
        for (at, bit, error) in
            [(0, 1, ParseError::Malformed), (0, 0x20, ParseError::Version), (1, 1, ParseError::Malformed)]
        {
            let mut other = bytes;
            other[at] ^= bit;
            assert_eq!(UnreliableHeader::parse(&other), Err(error));
        }
    }
}
