//! The messages between the root of a pool of groups and the members.
//!
//! ```text
//!  0               1               2               3
//!  0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7
//! +---------------+---------------+-------------------------------+
//! |     body      |     slot      |             round             |
//! +---------------+---------------+-------------------------------+
//! ```

/// Bytes of a message.
pub const POOL_MESSAGE: usize = 4;

/// The content of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PoolBody {
    /// From the root to all: join the group.
    Make,
    /// From the root to the group, by multicast: answer.
    Probe,
    /// From the root to all: every other member has answered, the group may be taken.
    Ready,
    /// From the root to all: leave the group, unless it is taken.
    Withdraw,
    /// To the root: this rank has joined the group.
    Joined,
    /// To the root: this rank cannot join it.
    Refused,
    /// To the root: a probe has arrived.
    Answered,
    /// To the root: this rank has left it.
    Released,
    /// To the root: a communicator of this rank has it.
    Taken,
}

impl PoolBody {
    const ALL: [Self; 9] = [
        Self::Make,
        Self::Probe,
        Self::Ready,
        Self::Withdraw,
        Self::Joined,
        Self::Refused,
        Self::Answered,
        Self::Released,
        Self::Taken,
    ];

    /// Whether it comes from the root.
    pub const fn is_of_root(self) -> bool {
        matches!(self, Self::Make | Self::Probe | Self::Ready | Self::Withdraw)
    }
}

/// A message about one group of a pool. [`PoolBody::Probe`] is a datagram to the group, which may get lost; the others
/// are reliable messages, in order between two ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolMessage {
    /// The group, by its slot in the pool.
    pub slot: u8,
    /// How often the slot was filled before; wraps.
    pub round: u16,
    /// The content.
    pub body: PoolBody,
}

impl PoolMessage {
    /// The message's bytes, little-endian.
    pub const fn encode(&self) -> [u8; POOL_MESSAGE] {
        let [low, high] = self.round.to_le_bytes();
        [self.body as u8, self.slot, low, high]
    }

    /// Parses a message; `None` if it is truncated or its body is unknown.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [body, slot, low, high] = *bytes.first_chunk()?;
        let body = *PoolBody::ALL.get(usize::from(body))?;
        Some(Self { slot, round: u16::from_le_bytes([low, high]), body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_inverts_encoding() {
        for body in PoolBody::ALL {
            let message = PoolMessage { slot: 7, round: 0x1234, body };
            assert_eq!(PoolMessage::parse(&message.encode()), Some(message));
        }
        assert_eq!(PoolMessage::parse(&[9, 0, 0, 0]), None);
        assert_eq!(PoolMessage::parse(&[0, 0, 0]), None);
    }
}
