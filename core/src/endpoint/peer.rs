//! The record of a peer: all that an idle peer costs, kept while both incarnations last, so that windows come and go
//! without a handshake.

use bitflags::bitflags;

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

bitflags! {
    /// The flags of a peer, its state, and the rail that its latest data came over.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub(crate) struct PeerFlags: u16 {
        /// A datagram was sent to it or received from it.
        const CONTACTED = 1;
        /// Its silence is to be reported.
        const WATCHED = 1 << 1;
        /// It is in a list of owed acknowledgements.
        const ACK_LISTED = 1 << 2;
        /// It has more to send, and is one of the peers that share the receive slots.
        const BACKLOGGED = 1 << 3;
        /// It is in the list of peers that wait for credit.
        const CREDIT_WAIT = 1 << 4;
        /// It used its credit since the clock hand passed.
        const USED = 1 << 5;
        /// An event about it is pending; `queue` links those peers.
        const EVENT_PENDING = 1 << 6;
        /// It was sent Bye or Abort in this round.
        const BYE_SENT = 1 << 7;
        /// Its queue waits for a send window.
        const WINDOW_WAIT = 1 << 8;
        /// Its `outgoing` is the index of a send window.
        const WINDOWED = 1 << 9;
        /// The pending event is that it sent Bye.
        const EVENT_IS_FINISHED = 1 << 10;
        /// The watch epoch in which it last got a window, modulo 2.
        const WATCH_EPOCH = 1 << 11;
        /// The rail, in two bits.
        const RAIL = 0b11 << RAIL_SHIFT;
        /// The state, in two bits.
        const STATE = 0b11 << STATE_SHIFT;
    }
}

const RAIL_SHIFT: u32 = 12;
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
    flags: PeerFlags,
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
        flags: PeerFlags::empty(),
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
            flags: former.flags.intersection(
                PeerFlags::ACK_LISTED
                    .union(PeerFlags::CREDIT_WAIT)
                    .union(PeerFlags::EVENT_PENDING)
                    .union(PeerFlags::EVENT_IS_FINISHED),
            ),
            ..Self::UNKNOWN
        };
        peer.set_state(PeerState::Alive);
        peer
    }

    pub(crate) const fn state(&self) -> PeerState {
        match self.flags.bits() >> STATE_SHIFT {
            0 => PeerState::Unknown,
            1 => PeerState::Alive,
            2 => PeerState::Finished,
            _ => PeerState::Failed,
        }
    }

    pub(crate) const fn set_state(&mut self, state: PeerState) {
        let state = PeerFlags::from_bits_retain((state as u16) << STATE_SHIFT);
        self.flags = self.flags.difference(PeerFlags::STATE).union(state);
    }

    /// The rail that its latest data came over: acknowledgements return over it.
    pub(crate) const fn rail(&self) -> Rail {
        Rail((self.flags.bits() >> RAIL_SHIFT & 0b11) as u8)
    }

    pub(crate) const fn set_rail(&mut self, rail: Rail) {
        let rail = PeerFlags::from_bits_retain((rail.0 as u16 & 0b11) << RAIL_SHIFT);
        self.flags = self.flags.difference(PeerFlags::RAIL).union(rail);
    }

    /// The send window, or [`NO_WINDOW`].
    #[inline]
    pub(crate) const fn sender(&self) -> u16 {
        if self.has(PeerFlags::WINDOWED) { self.outgoing as u16 } else { NO_WINDOW }
    }

    pub(crate) const fn set_sender(&mut self, sender: u16) {
        self.set(PeerFlags::WINDOWED);
        self.outgoing = sender as u32;
    }

    /// The next PSN to send, while it has no send window.
    pub(crate) const fn send_next(&self) -> Psn<BITS> {
        Psn::new(if self.has(PeerFlags::WINDOWED) { 0 } else { self.outgoing })
    }

    /// Returns the send window; the next PSN will be `next`.
    pub(crate) const fn release_sender(&mut self, next: Psn<BITS>) {
        self.unset(PeerFlags::WINDOWED);
        self.outgoing = next.get();
    }

    pub(crate) const fn has(&self, flag: PeerFlags) -> bool {
        self.flags.intersects(flag)
    }

    pub(crate) const fn set(&mut self, flag: PeerFlags) {
        self.flags = self.flags.union(flag);
    }

    pub(crate) const fn unset(&mut self, flag: PeerFlags) {
        self.flags = self.flags.difference(flag);
    }

    pub(crate) const fn is_alive(&self) -> bool {
        self.flags.bits() >> STATE_SHIFT == PeerState::Alive as u16
    }
}

const _: () = assert!(size_of::<Peer<crate::time::Nanos, 32>>() <= 40, "an idle peer costs at most 40 bytes in core");
const _: () = assert!(crate::window::rails::MAX_RAILS <= 4, "a peer's rail has two bits");
