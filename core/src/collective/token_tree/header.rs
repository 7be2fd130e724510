//! The header of a token tree's message between neighbours; little-endian. Its values follow.
//!
//! ```text
//! +--------+--------+--------+--------+
//! |  kind  |  body  | units  |  left  |  body: 0 Ack, 1 Token, 2 Release, 3 Ask; +4: a Release that is passed on;
//! +--------+--------+--------+--------+  +16: a first value follows, +32: a second; units: of the token; left: epochs
//! |              context              |  since the first not left (low 4 bits) and since the first not left by all
//! +-----------------------------------+
//! |             sequence              |  context and sequence: as of the collective's other messages
//! +-----------------------------------+
//! |               epoch               |
//! +-----------------------------------+
//! |               first               |  of the claim; Ask: the gap; Ack: 0
//! +-----------------------------------+
//! |                end                |  of the claim; else 0
//! +--------+--------+-----------------+
//! | degree | tokens |   generation    |  the tree: its degree; the units of its root's token, +128: it may multicast,
//! +--------+--------+-----------------+  +64: of the leaders; and of which communicator with this context it is
//! ```

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Body, Epoch, Message, RankRange, Release, Token};
use crate::message::collective_transport::StepKey;

/// The first byte, which differs from those of all other messages.
pub const KIND: u8 = 32;
/// Bytes of a header.
pub const TREE_HEADER: usize = 28;

/// Values that follow a header, each as long as the call's vector.
const FIRST: u8 = 1 << 4;
const SECOND: u8 = 1 << 5;
/// Bits of the body, and of the tokens.
const PASSED_ON: u8 = 1 << 2;
const MULTICAST: u8 = 1 << 7;
const LEADERS: u8 = 1 << 6;

/// The shape of a tree: messages of trees of different shapes do not mix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TreeShape {
    /// Children of a rank, at most.
    pub degree: u8,
    /// Units of the root's token, less than 64.
    pub units: u8,
    /// Whether ranks may release by multicast.
    pub is_multicast: bool,
    /// Whether its ranks are the leaders of the last level of the communicator's subgroups.
    pub is_of_leaders: bool,
}

impl TreeShape {
    const fn tokens(self) -> u8 {
        self.units & !(MULTICAST | LEADERS)
            | if self.is_multicast { MULTICAST } else { 0 }
            | if self.is_of_leaders { LEADERS } else { 0 }
    }
}

/// A message with the call that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TreeHeader {
    /// The tree.
    pub shape: TreeShape,
    /// Distinguishes the communicators that have had this context one after another.
    pub generation: u16,
    /// The call's context.
    pub context: u32,
    /// The call's number in its context.
    pub sequence: u32,
    /// The message.
    pub message: Message,
    /// Which of the two values of the [`Payload`](super::Payload) follow.
    pub values: [bool; 2],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    kind: u8,
    body: u8,
    units: u8,
    left: u8,
    context: U32,
    sequence: U32,
    epoch: U32,
    first: U32,
    end: U32,
    degree: u8,
    tokens: u8,
    generation: U16,
}

const _: () = assert!(size_of::<Wire>() == TREE_HEADER);

impl TreeHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; TREE_HEADER] {
        let Message { epoch, left, all_left, body } = self.message;
        let (kind, units, first, end) = match body {
            Body::Ack => (0, 0, 0, 0),
            Body::Token(Token { claim, units }) => (1, units, claim.first, claim.end),
            Body::Release(Release { claim, is_passed_on }) => {
                (2 | if is_passed_on { PASSED_ON } else { 0 }, 0, claim.first, claim.end)
            }
            Body::Ask { gap } => (3, 0, gap, 0),
        };
        let [before, after] = self.values;
        let values = if before { FIRST } else { 0 } | if after { SECOND } else { 0 };
        let wire = Wire {
            kind: KIND,
            body: kind | values,
            units,
            left: (epoch.since(left).min(15) | epoch.since(all_left).min(15).wrapping_shl(4)) as u8,
            context: U32::new(self.context),
            sequence: U32::new(self.sequence),
            epoch: U32::new(epoch.0),
            first: U32::new(first),
            end: U32::new(end),
            degree: self.shape.degree,
            tokens: self.shape.tokens(),
            generation: U16::new(self.generation),
        };
        zerocopy::transmute!(wire)
    }

    /// The header of a message that begins with these bytes. `None` if it is of another kind, or malformed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (wire, _) = Wire::read_from_prefix(bytes).ok()?;
        let is_passed_on = wire.body & PASSED_ON != 0;
        if wire.kind != KIND || wire.body & !(FIRST | SECOND | PASSED_ON | 3) != 0 || is_passed_on && wire.body & 3 != 2
        {
            return None;
        }
        let (epoch, claim) = (Epoch(wire.epoch.get()), RankRange::new(wire.first.get(), wire.end.get()));
        let body = match wire.body & 3 {
            0 => Body::Ack,
            1 => Body::Token(Token { claim, units: wire.units }),
            2 => Body::Release(Release { claim, is_passed_on }),
            _ => Body::Ask { gap: wire.first.get() },
        };
        let before = |epochs: u8| Epoch(epoch.0.wrapping_sub(epochs.into()));
        let message = Message { epoch, left: before(wire.left & 15), all_left: before(wire.left >> 4), body };
        let units = wire.tokens & !(MULTICAST | LEADERS);
        let [is_multicast, is_of_leaders] = [MULTICAST, LEADERS].map(|flag| wire.tokens & flag != 0);
        Some(Self {
            shape: TreeShape { degree: wire.degree, units, is_multicast, is_of_leaders },
            generation: wire.generation.get(),
            context: wire.context.get(),
            sequence: wire.sequence.get(),
            message,
            values: [wire.body & FIRST != 0, wire.body & SECOND != 0],
        })
    }

    /// The call, by the key of its messages.
    pub const fn key(&self) -> StepKey {
        StepKey { context: self.context, sequence: self.sequence, step: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let claim = RankRange::new(3, 70_000);
        let release = |is_passed_on| Body::Release(Release { claim, is_passed_on });
        let token = Body::Token(Token { claim, units: 4 });
        let bodies = [Body::Ack, token, release(false), release(true), Body::Ask { gap: 9 }];
        let all_values = [[true, false], [false, true], [true, false], [true, false], [false; 2]];
        for ((body, values), is_multicast) in bodies.into_iter().zip(all_values).zip([true, false].into_iter().cycle())
        {
            let (epoch, left, all_left) = (Epoch(2), Epoch(u32::MAX), Epoch(u32::MAX - 4));
            let header = TreeHeader {
                shape: TreeShape { degree: 8, units: 2, is_multicast, is_of_leaders: !is_multicast },
                generation: 0xabcd,
                context: 0x0001_beef,
                sequence: 77,
                message: Message { epoch, left, all_left, body },
                values,
            };
            assert_eq!(TreeHeader::decode(&header.encode()), Some(header));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let header = TreeHeader {
            shape: TreeShape { degree: 8, units: 2, is_multicast: false, is_of_leaders: false },
            generation: 0,
            context: 0,
            sequence: 1,
            message: Message { epoch: Epoch(0), left: Epoch(0), all_left: Epoch(0), body: Body::Ack },
            values: [false; 2],
        };
        let bytes = header.encode();
        assert!(TreeHeader::decode(&bytes[..TREE_HEADER - 1]).is_none());
        for (at, byte) in [(0, 16), (1, 4), (1, 8), (1, 0x80)] {
            let mut other = bytes;
            other[at] = byte;
            assert_eq!(TreeHeader::decode(&other), None);
        }
    }
}
