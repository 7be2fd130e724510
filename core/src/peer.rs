//! All that an idle peer costs: one record, kept for the life of the pair of incarnations, so that windows come and go
//! without a handshake.

use crate::inbound::Inbound;
use crate::list::NONE;
use crate::psn::Psn;
use crate::time::Time;

/// A process's life: random, new at every start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Incarnation(pub u32);

/// The first PSN that the life `from` sends to the life `to`: known to both without a handshake.
pub const fn first_psn<const BITS: u32>(from: Incarnation, to: Incarnation) -> Psn<BITS> {
    // MurmurHash3's 32-bit finalizer over both, in order.
    let mut h = from.0.wrapping_mul(0xcc9e_2d51) ^ to.0.rotate_left(15);
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    Psn::new(h ^ (h >> 16))
}

/// What is known of a peer's present life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Life {
    /// Bootstrap has not named it.
    Unmet,
    /// Met, and not known to have ended.
    Alive,
    /// It said Bye.
    Parted,
    /// Declared dead: final for this incarnation.
    Failed,
}

/// Something was sent to it or came from it.
pub(crate) const TOUCHED: u16 = 1;
/// Its silence is to be noticed.
pub(crate) const WATCHED: u16 = 1 << 1;
/// It is in a list of acknowledgements.
pub(crate) const LISTED: u16 = 1 << 2;
/// It has more to send, and counts among those who share the slots.
pub(crate) const WANTS: u16 = 1 << 3;
/// It is in the list of those who wait for credit.
pub(crate) const HUNGRY: u16 = 1 << 4;
/// It used its grant since the clock hand passed.
pub(crate) const USED: u16 = 1 << 5;
/// An event about it waits; `queue` links those.
pub(crate) const NEWS: u16 = 1 << 6;
/// It was told Bye or Abort in this round.
pub(crate) const TOLD: u16 = 1 << 7;
/// Its queue waits for a send window.
pub(crate) const WINDOWLESS: u16 = 1 << 8;

/// No window.
pub(crate) const NO_WINDOW: u16 = u16::MAX;

/// The record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer<T: Time, const BITS: u32> {
    pub(crate) incarnation: Incarnation,
    pub(crate) inbound: Inbound<T, BITS>,
    /// The next PSN to send, while no send window is taken.
    pub(crate) send_next: Psn<BITS>,
    /// The next peer that is owed an acknowledgement.
    pub(crate) ack_link: u32,
    /// The next peer that waits for credit.
    pub(crate) credit_link: u32,
    /// The last operation of the circular queue, or the next peer with news.
    pub(crate) queue: u32,
    pub(crate) sender: u16,
    pub(crate) receiver: u16,
    /// PSNs from `inbound.next()` on that it may send.
    pub(crate) granted: u16,
    /// Largest datagram both ways, checksum excluded.
    pub(crate) mtu: u16,
    pub(crate) life: Life,
    pub(crate) flags: u16,
}

impl<T: Time, const BITS: u32> Peer<T, BITS> {
    /// A peer that bootstrap has not named.
    pub const UNMET: Self = Self {
        incarnation: Incarnation(0),
        inbound: Inbound::new(Psn::new(0)),
        send_next: Psn::new(0),
        ack_link: NONE,
        credit_link: NONE,
        queue: NONE,
        sender: NO_WINDOW,
        receiver: NO_WINDOW,
        granted: 0,
        mtu: 0,
        life: Life::Unmet,
        flags: 0,
    };

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
        matches!(self.life, Life::Alive)
    }
}

const _: () = assert!(size_of::<Peer<crate::time::Nanos, 32>>() <= 44, "an idle peer costs at most 44 bytes in core");
