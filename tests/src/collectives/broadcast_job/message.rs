//! The messages of the ranks of a simulated job.

use unisono_core::multicast::{PoolMessage, SEGMENT_HEADER};

/// A message between two ranks, of the header's length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// The data of a step follows.
    Step {
        /// The call.
        call: u32,
        /// The step's key.
        key: u32,
    },
    /// To the root: the sender has joined the group of its communicator.
    Joined,
    /// About a group of the pool.
    Pool(PoolMessage),
    /// To the root: the sender has attached to the group.
    Attached,
    /// To the root: the sender leaves the group.
    Detached,
}

impl Message {
    /// The header of a datagram of rank `from`: its low 4 bits are of no other datagram.
    pub(super) fn encode(self, from: u32) -> [u8; SEGMENT_HEADER] {
        let (kind, words) = match self {
            Self::Step { call, key } => (0, [call, key]),
            Self::Joined => (1, [0; 2]),
            Self::Pool(message) => (2, [u32::from_le_bytes(message.encode()), 0]),
            Self::Attached => (3, [0; 2]),
            Self::Detached => (4, [0; 2]),
        };
        let mut header = [0; SEGMENT_HEADER];
        (header[0], header[1]) = (15, kind);
        for (to, word) in header[4..].chunks_exact_mut(4).zip([from, words[0], words[1]]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        header
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<(u32, Self)> {
        let word = |i: usize| bytes.get(i..i + 4)?.try_into().ok().map(u32::from_le_bytes);
        let message = match bytes.get(1)? {
            0 => Self::Step { call: word(8)?, key: word(12)? },
            1 => Self::Joined,
            2 => Self::Pool(PoolMessage::parse(&bytes[8..])?),
            3 => Self::Attached,
            4 => Self::Detached,
            _ => return None,
        };
        Some((word(4)?, message))
    }
}

/// Something that arrives from a rank of the same host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Local {
    /// The data of a step of this rank.
    Step(u32, u32, u32),
    /// A broadcast, by the leader, and how long that one waited for it.
    Copy(u32, u64),
}
