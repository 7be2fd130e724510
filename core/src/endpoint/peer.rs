//! The record of a peer: all that an idle peer costs, kept while both incarnations last, so that windows come and go
//! without a handshake.

use crate::ids::{Incarnation, Psn, Rail};
use crate::list::NONE;
use crate::time::Time;
use crate::window::receive_state::ReceiveState;

/// The state of a peer's present incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PeerState {
    /// Bootstrap has not announced it.
    Unknown = 0,
    /// Announced, and not known to have ended.
    Alive,
    /// It sent Bye.
    Finished,
    /// It failed: final for this incarnation.
    Failed,
}

/// A datagram was sent to it or received from it.
pub(crate) const CONTACTED: u16 = 1;
/// Its silence is to be reported.
pub(crate) const WATCHED: u16 = 1 << 1;
/// It is in a list of owed acknowledgements.
pub(crate) const ACK_LISTED: u16 = 1 << 2;
/// It has more to send, and is one of the peers that share the receive slots.
pub(crate) const BACKLOGGED: u16 = 1 << 3;
/// It is in the list of peers that wait for credit.
pub(crate) const CREDIT_WAIT: u16 = 1 << 4;
/// It used its credit since the clock hand passed.
pub(crate) const USED: u16 = 1 << 5;
/// An event about it is pending; `queue` links those peers.
pub(crate) const EVENT_PENDING: u16 = 1 << 6;
/// It was sent Bye or Abort in this round.
pub(crate) const BYE_SENT: u16 = 1 << 7;
/// Its queue waits for a send window.
pub(crate) const WINDOW_WAIT: u16 = 1 << 8;
/// The pending event is that it sent Bye.
pub(crate) const EVENT_IS_FINISHED: u16 = 1 << 10;
/// The watch epoch in which it last got a window, modulo 2.
pub(crate) const WATCH_EPOCH: u16 = 1 << 11;

/// Its `outgoing` is the index of a send window.
const WINDOWED: u16 = 1 << 9;
/// Shift of the rail that its latest data came over.
const RAIL_SHIFT: u32 = 12;
/// Shift of the peer's state.
const STATE_SHIFT: u32 = 14;

/// No window.
pub(crate) const NO_WINDOW: u16 = u16::MAX;

/// A peer's record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer<T: Time, const BITS: u32> {
    pub(crate) incarnation: Incarnation,
    pub(crate) receive_state: ReceiveState<T, BITS>,
    /// The index of the send window, or while it has none, the next PSN to send.
    outgoing: u32,
    /// The next peer that is owed an acknowledgement.
    pub(crate) ack_link: u32,
    /// The next peer that waits for credit.
    pub(crate) credit_link: u32,
    /// The last operation of the circular queue, or the next peer with a pending event.
    pub(crate) queue: u32,
    pub(crate) receiver: u16,
    /// PSNs from `inbound.next()` on that it may send: its credit.
    pub(crate) granted: u16,
    /// Largest datagram in both directions, checksum excluded.
    pub(crate) mtu: u16,
    /// The peer's state is in the upper two bits, the rail in the two before.
    flags: u16,
}

impl<T: Time, const BITS: u32> Peer<T, BITS> {
    /// A peer that bootstrap has not announced.
    pub const UNKNOWN: Self = Self {
        incarnation: Incarnation(0),
        receive_state: ReceiveState::new(Psn::new(0)),
        outgoing: 0,
        ack_link: NONE,
        credit_link: NONE,
        queue: NONE,
        receiver: NO_WINDOW,
        granted: 0,
        mtu: 0,
        flags: 0,
    };

    /// The record of a new incarnation; the first PSN to it will be `next`. It stays in the lists that `former` is in.
    pub(crate) const fn announced(
        incarnation: Incarnation,
        inbound: ReceiveState<T, BITS>,
        next: Psn<BITS>,
        former: &Self,
    ) -> Self {
        let mut peer = Self {
            incarnation,
            receive_state: inbound,
            outgoing: next.get(),
            ack_link: former.ack_link,
            credit_link: former.credit_link,
            queue: former.queue,
            flags: former.flags & (ACK_LISTED | CREDIT_WAIT | EVENT_PENDING | EVENT_IS_FINISHED),
            ..Self::UNKNOWN
        };
        peer.set_state(PeerState::Alive);
        peer
    }

    pub(crate) const fn state(&self) -> PeerState {
        match self.flags >> STATE_SHIFT {
            0 => PeerState::Unknown,
            1 => PeerState::Alive,
            2 => PeerState::Finished,
            _ => PeerState::Failed,
        }
    }

    pub(crate) const fn set_state(&mut self, state: PeerState) {
        self.flags = self.flags & !(0b11 << STATE_SHIFT) | (state as u16) << STATE_SHIFT;
    }

    /// The rail that its latest data came over: acknowledgements return over it.
    pub(crate) const fn rail(&self) -> Rail {
        Rail((self.flags >> RAIL_SHIFT & 0b11) as u8)
    }

    pub(crate) const fn set_rail(&mut self, rail: Rail) {
        self.flags = self.flags & !(0b11 << RAIL_SHIFT) | (rail.0 as u16 & 0b11) << RAIL_SHIFT;
    }

    /// The send window, or [`NO_WINDOW`].
    #[inline]
    pub(crate) const fn sender(&self) -> u16 {
        if self.has(WINDOWED) { self.outgoing as u16 } else { NO_WINDOW }
    }

    pub(crate) const fn set_sender(&mut self, sender: u16) {
        self.set(WINDOWED);
        self.outgoing = sender as u32;
    }

    /// The next PSN to send, while it has no send window.
    pub(crate) const fn send_next(&self) -> Psn<BITS> {
        Psn::new(if self.has(WINDOWED) { 0 } else { self.outgoing })
    }

    /// Returns the send window; the next PSN will be `next`.
    pub(crate) const fn release_sender(&mut self, next: Psn<BITS>) {
        self.unset(WINDOWED);
        self.outgoing = next.get();
    }

    pub(crate) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(crate) const fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    pub(crate) const fn unset(&mut self, flag: u16) {
        self.flags &= !flag;
    }

    pub(crate) const fn is_alive(&self) -> bool {
        self.flags >> STATE_SHIFT == PeerState::Alive as u16
    }
}

const _: () = assert!(size_of::<Peer<crate::time::Nanos, 32>>() <= 40, "an idle peer costs at most 40 bytes in core");
const _: () = assert!(crate::window::rails::MAX_RAILS <= 4, "a peer's rail has two bits");
