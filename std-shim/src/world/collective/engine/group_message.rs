//! Messages about a communicator's multicast group: between the root of a broadcast and the other members, among members
//! that acknowledge to each other, and to a member that multicasts releases of trees.
//!
//! ```text
//! +--------+--------+-----------------+
//! |   33   |  body  |     member      |  body: number of a `GroupBody`; attached: a member; else 0
//! +--------+--------+-----------------+
//! |     context     |   generation    |  of the communicator
//! +-----------------+-----------------+
//! |               value               |  scheduled, attach, late: a call's number; attached: a PSN; else 0
//! +-----------------------------------+
//! ```
//!
//! 0, 1, 7 and 9 come from the root.

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
    /// The sender, which is no leader, wants to get the receiver's multicasts itself, but of no call up to this number.
    Attach(u32),
    /// The receiver is this member of the sender's stream, from this segment on.
    Attached(u16, u32),
    /// The sender wants to get them from its leader again.
    Detach,
    /// The receiver is not.
    Detached,
    /// The data of this call had arrived at the sender, which forwards it, before the sender entered the call.
    Late(u32),
}

impl GroupBody {
    /// Whether it is about ranks that join a group although they are no leaders.
    pub(in crate::world) const fn is_about_attached(self) -> bool {
        matches!(self, Self::Attach(_) | Self::Attached(..) | Self::Detach | Self::Detached | Self::Late(_))
    }
}

impl GroupMessage {
    pub(in crate::world) fn encode(&self) -> [u8; BYTES] {
        let (body, value) = match self.body {
            GroupBody::Scheduled(sequence) => (0, sequence),
            GroupBody::AlwaysScheduled => (1, 0),
            GroupBody::Joined => (2, 0),
            GroupBody::Refused => (3, 0),
            GroupBody::Left => (4, 0),
            GroupBody::Reached => (5, 0),
            GroupBody::Attach(promise) => (6, promise),
            GroupBody::Attached(_, start) => (7, start),
            GroupBody::Detach => (8, 0),
            GroupBody::Detached => (9, 0),
            GroupBody::Late(sequence) => (10, sequence),
        };
        let member = if let GroupBody::Attached(member, _) = self.body { member } else { 0 };
        let ([c, d, ..], [g, h, ..]) = (self.context.to_le_bytes(), self.generation.to_le_bytes());
        let ([m, n], [s, t, u, v]) = (member.to_le_bytes(), value.to_le_bytes());
        [KIND, body, m, n, c, d, g, h, s, t, u, v]
    }

    pub(in crate::world) fn decode(bytes: &[u8]) -> Option<Self> {
        let [KIND, body, m, n, c, d, g, h, value @ ..] = <[u8; BYTES]>::try_from(bytes).ok()? else { return None };
        let member = u16::from_le_bytes([m, n]);
        let body = match (body, u32::from_le_bytes(value)) {
            (7, start) => GroupBody::Attached(member, start),
            _ if member != 0 => return None,
            (0, sequence) => GroupBody::Scheduled(sequence),
            (1, 0) => GroupBody::AlwaysScheduled,
            (2, 0) => GroupBody::Joined,
            (3, 0) => GroupBody::Refused,
            (4, 0) => GroupBody::Left,
            (5, 0) => GroupBody::Reached,
            (6, promise) => GroupBody::Attach(promise),
            (8, 0) => GroupBody::Detach,
            (9, 0) => GroupBody::Detached,
            (10, sequence) => GroupBody::Late(sequence),
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
        use GroupBody::{
            AlwaysScheduled, Attach, Attached, Detach, Detached, Joined, Late, Left, Reached, Refused, Scheduled,
        };
        let with_value = [Scheduled(0x0102_0304), Attach(3), Attached(5, 0x0a0b_0c0d), Late(7)];
        let without = [AlwaysScheduled, Joined, Refused, Left, Reached, Detach, Detached];
        for body in with_value.into_iter().chain(without) {
            let message = GroupMessage { context: 0xfffe, generation: 0xabcd, body };
            let bytes = message.encode();
            assert_eq!(GroupMessage::decode(&bytes), Some(message));
            assert!(message.is_of(0x7_abcd) && !message.is_of(0xabcc));
            for at in [0, 1, 2, 3] {
                let mut other = bytes;
                other[at] ^= 0x80;
                let is_message = at > 1 && matches!(body, Attached(..));
                assert_eq!(GroupMessage::decode(&other).is_some(), is_message);
            }
            assert_eq!(GroupMessage::decode(&bytes[..11]), None);
        }
    }
}
