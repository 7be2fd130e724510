//! The datagrams of reliable multicast, little-endian.
//!
//! ```text
//!  0               1               2               3
//!  0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7
//! +-------+-------+---------------+-------------------------------+
//! |version| kind  |     flags     |         group's number        |
//! +-------+-------+---------------+-------------------------------+
//! |                                                               |
//! +                         group's epoch                         +
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                    rank of the stream's root                  |
//! +---------------------------------------------------------------+
//! |                         sender's rank                         |
//! +---------------------------------------------------------------+
//! |                     sender's incarnation                      |
//! +---------------------------------------------------------------+ 24
//! |       PSN (segment, probe); sender's own edge (report)        |
//! +---------------------------------------------------------------+
//! |  index in its message (segment); start (probe); edge of the   |
//! |  sender and of the members below it (report)                  |
//! +---------------------------------------------------------------+ 32
//! |  bytes of the message (segment); missing PSNs (report)        |
//! +===============================================================+ 36: payload (segment)
//! |  further words of the bitmap, up to 8 in all (report)         |
//! +===============================================================+ 64 at most
//! ```
//!
//! The kinds continue those of [`DatagramKind`](crate::wire::DatagramKind), so that both families share a queue. Bit i of
//! a bitmap is the PSN own edge + i.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{GroupId, Incarnation, Psn, Rank};
use crate::wire::{Bitmap, ParseError, VERSION};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER: usize = 36;
/// Bytes of the fields that all datagrams have.
const FIXED: usize = 32;

const SEGMENT: u8 = 11;
const REPORT: u8 = 12;
const PROBE: u8 = 13;

const ACK_NOW: u8 = 1;

/// A group in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupKey {
    /// The group's number at the devices; below 2¹⁶.
    pub group: GroupId,
    /// Random bits of its creation, so that datagrams of former groups of the same number are recognized.
    pub epoch: u64,
}

/// A segment of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Segment<const BITS: u32> {
    /// Its number in the stream.
    pub psn: Psn<BITS>,
    /// Its number in its message, whose first segment has the PSN `psn` − `index`.
    pub index: u32,
    /// Bytes of the whole message.
    pub bytes: u32,
    /// It is the last of its message.
    pub is_last: bool,
    /// The members acknowledge at once.
    pub ack_now: bool,
}

/// What a member has received of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Report<const BITS: u32> {
    /// Every segment before this one was delivered at the sender.
    pub own: Psn<BITS>,
    /// Every segment before this one was delivered at the sender and at all members that it acknowledges for.
    pub below: Psn<BITS>,
    /// Bit i: the sender lacks `own` + i, and lacks it for the first time or answers a probe.
    pub missing: Bitmap,
}

/// Asks a member for a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Probe<const BITS: u32> {
    /// The PSN after the last one that was sent.
    pub next: Psn<BITS>,
    /// The first PSN that the receiver gets, if it has just joined.
    pub start: Psn<BITS>,
}

/// A datagram of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Body<const BITS: u32> {
    /// From the root, or from the co-root that repairs. Its payload follows.
    Segment(Segment<BITS>),
    /// To the member that collects acknowledgements or repairs losses.
    Report(Report<BITS>),
    /// From the member that collects acknowledgements.
    Probe(Probe<BITS>),
}

/// A datagram with its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Datagram<const BITS: u32> {
    /// The group.
    pub key: GroupKey,
    /// The root of the stream.
    pub root: Rank,
    /// The sender.
    pub sender: Rank,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// What it is.
    pub body: Body<BITS>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    version_kind: u8,
    flags: u8,
    group: U16,
    epoch: U64,
    root: U32,
    sender: U32,
    incarnation: U32,
    first: U32,
    second: U32,
}

const _: () = assert!(size_of::<Wire>() == FIXED);

impl<const BITS: u32> Datagram<BITS> {
    /// Whether the bytes begin a datagram of this family; the others are of [`DatagramKind`](crate::wire::DatagramKind).
    pub fn is_multicast(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|first| matches!(first & 15, SEGMENT | REPORT | PROBE))
    }

    /// Parses a datagram of `length` bytes whose first bytes are `head`.
    ///
    /// # Errors
    /// [`ParseError`] if it is truncated, of another version, or uses undefined kinds, flags or lengths.
    pub fn parse(head: &[u8], length: u32) -> Result<Self, ParseError> {
        let (wire, rest) = Wire::ref_from_prefix(head).map_err(|_| ParseError::Short)?;
        if wire.version_kind >> 4 != VERSION {
            return Err(ParseError::Version);
        }
        let (first, second) = (Psn::new(wire.first.get()), wire.second.get());
        let is_whole = length as usize == head.len();
        let body = match wire.version_kind & 15 {
            SEGMENT => {
                let (bytes, _) = U32::ref_from_prefix(rest).map_err(|_| ParseError::Short)?;
                let (ack_now, is_last) = (wire.flags & ACK_NOW != 0, wire.flags & LAST != 0);
                if wire.flags & !(ACK_NOW | LAST) != 0 {
                    return Err(ParseError::Malformed);
                }
                Body::Segment(Segment { psn: first, index: second, bytes: bytes.get(), is_last, ack_now })
            }
            REPORT if is_whole && wire.flags == 0 => {
                let words = <[U32]>::ref_from_bytes(rest).map_err(|_| ParseError::Malformed)?;
                if words.len() > Bitmap::WORDS {
                    return Err(ParseError::Malformed);
                }
                let missing = Bitmap::from_words(words.iter().map(|word| word.get()));
                Body::Report(Report { own: first, below: Psn::new(second), missing })
            }
            PROBE if is_whole && wire.flags == 0 && rest.is_empty() => {
                Body::Probe(Probe { next: first, start: Psn::new(second) })
            }
            _ => return Err(ParseError::Malformed),
        };
        Ok(Self {
            key: GroupKey { group: GroupId(wire.group.get().into()), epoch: wire.epoch.get() },
            root: Rank(wire.root.get()),
            sender: Rank(wire.sender.get()),
            incarnation: Incarnation(wire.incarnation.get()),
            body,
        })
    }

    /// Writes the datagram's header, of at most 64 bytes, to the start of `bytes`, and returns its length; 0 if it does
    /// not fit.
    pub fn emit(&self, bytes: &mut [u8]) -> u8 {
        let (kind, flags, first, second) = match &self.body {
            Body::Segment(segment) => {
                let flags = if segment.ack_now { ACK_NOW } else { 0 } | if segment.is_last { LAST } else { 0 };
                (SEGMENT, flags, segment.psn, segment.index)
            }
            Body::Report(report) => (REPORT, 0, report.own, report.below.get()),
            Body::Probe(probe) => (PROBE, 0, probe.next, probe.start.get()),
        };
        let wire = Wire {
            version_kind: VERSION << 4 | kind,
            flags,
            group: U16::new(self.key.group.0 as u16),
            epoch: U64::new(self.key.epoch),
            root: U32::new(self.root.0),
            sender: U32::new(self.sender.0),
            incarnation: U32::new(self.incarnation.0),
            first: U32::new(first.get()),
            second: U32::new(second),
        };
        let Some((fixed, rest)) = bytes.split_at_mut_checked(FIXED) else { return 0 };
        if wire.write_to(fixed).is_err() {
            return 0;
        }
        let mut length = FIXED as u8;
        let mut put = |place: &mut [u8], word: u32| {
            place.copy_from_slice(&word.to_le_bytes());
            length = length.wrapping_add(4);
        };
        let mut places = rest.chunks_exact_mut(4);
        match &self.body {
            Body::Segment(segment) => match places.next() {
                Some(place) => put(place, segment.bytes),
                None => return 0,
            },
            Body::Report(report) => places.zip(report.missing.words()).for_each(|(place, word)| put(place, word)),
            Body::Probe(_) => {}
        }
        length
    }
}

const LAST: u8 = 1 << 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(body: Body<32>) -> Datagram<32> {
        let key = GroupKey { group: GroupId(0xfedc), epoch: 0x0123_4567_89ab_cdef };
        Datagram { key, root: Rank(7), sender: Rank(70_000), incarnation: Incarnation(9), body }
    }

    fn bodies() -> Vec<Body<32>> {
        let psn = Psn::new(u32::MAX);
        let mut bodies = Vec::new();
        for flags in 0..4 {
            let (is_last, ack_now) = (flags & 1 != 0, flags & 2 != 0);
            bodies.push(Body::Segment(Segment { psn, index: 3, bytes: 1 << 20, is_last, ack_now }));
        }
        for bits in [vec![], vec![0], vec![40], vec![0, 255]] {
            let mut missing = Bitmap::default();
            bits.into_iter().for_each(|bit| missing.insert(bit));
            bodies.push(Body::Report(Report { own: psn, below: Psn::new(5), missing }));
        }
        bodies.push(Body::Probe(Probe { next: psn, start: Psn::new(6) }));
        bodies
    }

    extern crate alloc;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn datagrams_survive_the_wire() {
        for body in bodies() {
            let mut bytes = [0; 64];
            let length = datagram(body).emit(&mut bytes);
            let head = &bytes[..length.into()];
            assert!(Datagram::<32>::is_multicast(head));
            assert_eq!(Datagram::parse(head, length.into()), Ok(datagram(body)), "{body:?}");
            for short in 0..head.len() {
                let parsed = Datagram::<32>::parse(&head[..short], short as u32);
                assert!(parsed.is_err() || matches!(body, Body::Report(_)), "{short} bytes of {body:?}");
                assert!(parsed.is_err() || short >= FIXED);
            }
            assert_eq!(datagram(body).emit(&mut [0; FIXED - 1]), 0);
        }
    }

    #[test]
    fn undefined_bits_are_refused() {
        for body in bodies() {
            let mut bytes = [0; 64];
            let length = datagram(body).emit(&mut bytes);
            for (at, bit) in [(0, 0x20), (1, 4), (1, 0x80)] {
                let mut bytes = bytes;
                bytes[at] ^= bit;
                assert!(Datagram::<32>::parse(&bytes[..length.into()], length.into()).is_err(), "{at} {bit} {body:?}");
            }
        }
        let mut long = [0; 68];
        long[0] = VERSION << 4 | REPORT;
        assert_eq!(Datagram::<32>::parse(&long, 68), Err(ParseError::Malformed), "more words than a window has");
    }
}
