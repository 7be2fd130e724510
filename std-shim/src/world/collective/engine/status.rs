//! Status messages: what a rank reports about its part in a communicator, and their encoding.

use unisono_bootstrap::Rank;

/// Kinds of status messages, which belong neither to matching nor to collectives: kind, generation of the context or 0
/// (8 bits), context (16 bits), rank (32 bits).
pub(super) const ASK_STATUS: u8 = 240;
pub(super) const RETIRED: u8 = 241;
pub(super) const REVOKED: u8 = 242;
pub(super) const SENDS_DONE: u8 = 243;
pub(super) const RECEIVES_CLOSED: u8 = 244;
pub(super) const MEMBER_DIED: u8 = 245;
/// Bytes of a status message.
pub(in crate::world) const STATUS_BYTES: usize = 8;

/// A status message about a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum StatusMessage {
    /// Asks to be notified when the receiver takes no more part there; for
    /// [`ALL_CONTEXTS`](super::context::ALL_CONTEXTS): when it receives no more messages, and when it sends none.
    Ask,
    /// The sender takes no more part there, because of the rank.
    Retired,
    /// The context is revoked. Only members are believed, so that the generation need not be included.
    Revoked,
    /// The sender sends no more messages.
    SendsDone,
    /// The sender receives no more messages.
    ReceivesClosed,
    /// The rank, a member of the context, has died to the sender's knowledge. The context, of this generation, may be
    /// freed and used again before the message arrives.
    MemberDied { generation: u8 },
}

impl StatusMessage {
    /// The message's bytes.
    pub(in crate::world) fn encode(self, context: u32, rank: Rank) -> [u8; STATUS_BYTES] {
        let kind = match self {
            Self::Ask => ASK_STATUS,
            Self::Retired => RETIRED,
            Self::Revoked => REVOKED,
            Self::SendsDone => SENDS_DONE,
            Self::ReceivesClosed => RECEIVES_CLOSED,
            Self::MemberDied { .. } => MEMBER_DIED,
        };
        let generation = if let Self::MemberDied { generation } = self { generation } else { 0 };
        let ([low, high, ..], [a, b, c, d]) = (context.to_le_bytes(), rank.0.to_le_bytes());
        [kind, generation, low, high, a, b, c, d]
    }
}
