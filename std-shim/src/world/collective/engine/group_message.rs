//! Messages about a communicator's multicast group: between the root of a broadcast and the other members, among members
//! that acknowledge to each other, and to a member that multicasts releases of trees.
//!
//! ```text
//! +--------+--------+-----------------+
//! |   33   |  body  |        0        |  body: 0 scheduled, 1 always scheduled, 2 joined, 3 refused, 4 left, 5 reached
//! +--------+--------+-----------------+
//! |     context     |   generation    |  of the communicator
//! +-----------------+-----------------+
//! |             sequence              |  scheduled: the call's number in its context; else 0
//! +-----------------------------------+
//! ```
//!
//! The first two come from the root, the others from members.

/// The first byte, which differs from those of all other messages.
pub(in crate::world) const KIND: u8 = 33;
/// Bytes of a message.
const BYTES: usize = 12;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::world) struct GroupMessage {
    pub(in crate::world) context: u32,
    /// The communicator's generation, of which 16 bits are compared.
    pub(in crate::world) generation: u32,
    pub(in crate::world) body: GroupBody,
}

/// What it says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::world) enum GroupBody {
    /// Schedules execute the sender's calls up to this number.
    Scheduled(u32),
    /// Schedules execute all of the sender's calls.
    AlwaysScheduled,
    /// The sender has joined the group and takes part in the receiver's stream.
    Joined,
    /// It cannot.
    Refused,
    /// It takes part no more: it has used the context's number for another communicator.
    Left,
    /// A multicast of the receiver has reached the sender.
    Reached,
}

impl GroupMessage {
    pub(in crate::world) fn encode(&self) -> [u8; BYTES] {
        let (body, sequence) = match self.body {
            GroupBody::Scheduled(sequence) => (0, sequence),
            GroupBody::AlwaysScheduled => (1, 0),
            GroupBody::Joined => (2, 0),
            GroupBody::Refused => (3, 0),
            GroupBody::Left => (4, 0),
            GroupBody::Reached => (5, 0),
        };
        let ([c, d, ..], [g, h, ..]) = (self.context.to_le_bytes(), self.generation.to_le_bytes());
        let [s, t, u, v] = sequence.to_le_bytes();
        [KIND, body, 0, 0, c, d, g, h, s, t, u, v]
    }

    pub(in crate::world) fn decode(bytes: &[u8]) -> Option<Self> {
        let [KIND, body, 0, 0, c, d, g, h, sequence @ ..] = <[u8; BYTES]>::try_from(bytes).ok()? else { return None };
        let body = match (body, u32::from_le_bytes(sequence)) {
            (0, sequence) => GroupBody::Scheduled(sequence),
            (1, 0) => GroupBody::AlwaysScheduled,
            (2, 0) => GroupBody::Joined,
            (3, 0) => GroupBody::Refused,
            (4, 0) => GroupBody::Left,
            (5, 0) => GroupBody::Reached,
            _ => return None,
        };
        let half = |bytes| u32::from(u16::from_le_bytes(bytes));
        Some(Self { context: half([c, d]), generation: half([g, h]), body })
    }

    /// Whether it is about a communicator of this generation.
    pub(in crate::world) const fn is_of(&self, generation: u32) -> bool {
        self.generation == generation & 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        use GroupBody::{AlwaysScheduled, Joined, Left, Reached, Refused, Scheduled};
        for body in [Scheduled(0x0102_0304), AlwaysScheduled, Joined, Refused, Left, Reached] {
            let message = GroupMessage { context: 0xfffe, generation: 0xabcd, body };
            let bytes = message.encode();
            assert_eq!(GroupMessage::decode(&bytes), Some(message));
            assert!(message.is_of(0x7_abcd) && !message.is_of(0xabcc));
            for at in [0, 1, 2, 3] {
                let mut other = bytes;
                other[at] ^= 0x80;
                assert_eq!(GroupMessage::decode(&other), None);
            }
            assert_eq!(GroupMessage::decode(&bytes[..11]), None);
        }
    }
}
