//! Violations of the device contract.

use core::fmt;

use unisono_core::{
    device::{DeviceQueue, Slot, Ticket},
    span::Span,
};

/// A violation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ContractViolation {
    /// A datagram of `bytes` bytes never arrived.
    Missing {
        /// Its length.
        bytes: usize,
    },
    /// Fewer of the posted datagrams arrived than must have.
    TooFew {
        /// Number that must arrive at least.
        expected: usize,
        /// Number that arrived.
        found: usize,
    },
    /// A datagram arrived that nobody posted, or a second time.
    Unexpected {
        /// Its first bytes.
        head: Vec<u8>,
    },
    /// It arrived with another length.
    Length {
        /// As posted.
        expected: usize,
        /// As received.
        found: usize,
    },
    /// A byte differs from the one that was posted.
    Changed {
        /// Which byte of the datagram.
        at: usize,
        /// As posted.
        expected: u8,
        /// As placed.
        found: u8,
    },
    /// The returned header is not the datagram's first bytes.
    Head {
        /// The first 64 bytes, or fewer.
        expected: Vec<u8>,
        /// The returned header.
        found: Vec<u8>,
    },
    /// Placing touched a byte outside its target, or missed one in it.
    Placed {
        /// Which byte of the region.
        at: usize,
        /// Expected value.
        expected: u8,
        /// Found value.
        found: u8,
    },
    /// `is_from` was wrong.
    Sender {
        /// The peer that sent the datagram.
        sent: u32,
        /// The peers that `is_from` names.
        named: Vec<u32>,
    },
    /// A token has another ticket than the one after its predecessor's.
    NotNext {
        /// The next one.
        expected: Ticket,
        /// The token's.
        found: Ticket,
    },
    /// A ticket was reported complete that was never posted, or one taken back.
    Completed {
        /// Reported before, or posted last.
        before: Ticket,
        /// Reported now.
        found: Ticket,
    },
    /// A ticket was not completed within the bound.
    Unfinished {
        /// The last posting.
        posted: Ticket,
        /// The last completion.
        completed: Ticket,
    },
    /// No token was free within the bound although all postings were flushed.
    NoToken(DeviceQueue),
    /// Two datagrams in use have the same slot.
    SharedSlot(Slot),
    /// A held datagram shows another slot.
    Renamed {
        /// When it was received.
        before: Slot,
        /// Now.
        found: Slot,
    },
    /// A datagram came on the wrong lane.
    WrongLane(DeviceQueue),
    /// An empty queue always reports that a datagram waits.
    NeverArmed(DeviceQueue),
    /// The lane was armed, a datagram arrived or waited, and no event was raised.
    WakeUpLost {
        /// The lane.
        lane: DeviceQueue,
        /// In which round.
        round: u32,
    },
    /// A path request got no answer, or a wrong one.
    PathRequest {
        /// The request and its answer.
        found: String,
    },
    /// A group was joined or left and should not have been, or the other way round.
    Group {
        /// The call and its answer.
        found: String,
    },
    /// A span has an address and should not, or the other way round.
    Address {
        /// The span.
        span: Span,
        /// Whether it should have one.
        expected: bool,
    },
}

impl fmt::Display for ContractViolation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { bytes } => write!(to, "a datagram of {bytes} bytes never arrived"),
            Self::TooFew { expected, found } => {
                write!(to, "{found} datagrams arrived where at least {expected} must")
            }
            Self::Unexpected { head } => write!(to, "a datagram arrived that nobody posted, or twice: {head:?}"),
            Self::Length { expected, found } => write!(to, "{expected} bytes were posted, {found} arrived"),
            Self::Changed { at, expected, found } => {
                write!(to, "byte {at} of the datagram was {expected:#04x} and arrived as {found:#04x}")
            }
            Self::Head { expected, found } => {
                write!(to, "the head shows {found:?} instead of the first bytes {expected:?}")
            }
            Self::Placed { at, expected, found } => {
                write!(to, "after placing, byte {at} of the region is {found:#04x} instead of {expected:#04x}")
            }
            Self::Sender { sent, named } => {
                write!(to, "peer {sent} sent a datagram that is_from ascribes to {named:?}")
            }
            Self::NotNext { expected, found } => {
                write!(to, "a token has ticket {} where {} is next", found.0, expected.0)
            }
            Self::Completed { before, found } => {
                write!(to, "completed returns {} after {}: taken back, or never posted", found.0, before.0)
            }
            Self::Unfinished { posted, completed } => {
                write!(to, "ticket {} was posted and flushed, and only {} is complete", posted.0, completed.0)
            }
            Self::NoToken(lane) => write!(to, "no token on {lane:?} although everything was flushed"),
            Self::SharedSlot(slot) => write!(to, "two datagrams in use share slot {}", slot.0),
            Self::Renamed { before, found } => write!(to, "slot {} became {} by holding it", before.0, found.0),
            Self::WrongLane(lane) => write!(to, "a datagram for the other lane came on {lane:?}"),
            Self::NeverArmed(lane) => write!(to, "{lane:?} is empty and cannot be armed"),
            Self::WakeUpLost { lane, round } => {
                write!(to, "{lane:?} was armed, a datagram arrived, no event was raised (round {round})")
            }
            Self::PathRequest { found } | Self::Group { found } => to.write_str(found),
            Self::Address { span, expected: true } => write!(to, "{span:?} has no address although it lives"),
            Self::Address { span, expected: false } => write!(to, "{span:?} has an address"),
        }
    }
}
