//! Datagrams between the windows. Message numbers stand for sequence numbers.

use unisono_core::ids::Psn;
use unisono_core::wire::{Acknowledgement, Bitmap, Echo};

use crate::models::clock::Clock;

/// The number of a message, counted from the oldest unreleased one.
pub type Message = i8;

/// A datagram. Message numbers stand for sequence numbers and make their meaning unambiguous.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Datagram {
    /// A segment.
    Data {
        /// The message.
        message: Message,
        /// Its transmission count.
        count: u8,
    },
    /// A probe.
    Probe {
        /// The next message to be sent.
        next: Message,
        /// Its number.
        number: u8,
    },
    /// A pure acknowledgement.
    Acknowledge {
        /// The next message expected.
        next: Message,
        /// Datagrams granted beyond it.
        credit: u8,
        /// The bitmap.
        beyond: u8,
        /// The echo.
        echo: Echoed,
    },
}

/// The echo of an acknowledgement, reduced to the part that a sender evaluates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Echoed {
    /// Nothing, or a segment while counts have no bits.
    Nothing,
    /// A segment: distance of its number from the acknowledged one, and its transmission count.
    Segment(u8, u8),
    /// A probe of this number.
    Probe(u8),
}

/// Its sequence number.
pub(super) const fn number<const BITS: u32>(message: Message) -> Psn<BITS> {
    Psn::new(message as u32)
}

impl Datagram {
    /// How many messages had been delivered, at most, when it was sent: a message is sent again until the window has
    /// moved past it, a probe leaves last when everything before it has been delivered.
    pub(super) const fn sent_at<const W: usize>(self) -> Message {
        match self {
            Self::Data { message, .. } => message + W as Message,
            Self::Probe { next, .. } | Self::Acknowledge { next, .. } => next,
        }
    }

    pub(super) const fn renumbered(self, by: Message) -> Self {
        match self {
            Self::Data { message, count } => Self::Data { message: message - by, count },
            Self::Probe { next, number } => Self::Probe { next: next - by, number },
            Self::Acknowledge { next, credit, beyond, echo } => {
                Self::Acknowledge { next: next - by, credit, beyond, echo }
            }
        }
    }

    /// The NACK mark affects only when the receiver acknowledges: no sender evaluates it.
    pub(super) fn of<T: Clock, const BITS: u32>(acknowledgement: &Acknowledgement<BITS>, next: Message) -> Self {
        let echo = match acknowledgement.echo {
            Some(echo) if acknowledgement.answers_probe => Echoed::Probe(echo.count),
            Some(echo) if T::COUNT_MASK > 0 => {
                Echoed::Segment(echo.psn.since(acknowledgement.cumulative) as u8, echo.count)
            }
            _ => Echoed::Nothing,
        };
        let beyond = acknowledgement.selective.words().next().unwrap_or(0) as u8;
        Self::Acknowledge { next, credit: acknowledgement.credit as u8, beyond, echo }
    }

    pub(super) fn acknowledgement<const BITS: u32>(self) -> Option<Acknowledgement<BITS>> {
        let Self::Acknowledge { next, credit, beyond, echo } = self else { return None };
        let cumulative = number::<BITS>(next);
        let echoed = match echo {
            Echoed::Nothing => None,
            Echoed::Segment(away, count) => Some((cumulative.add(u32::from(away)), count)),
            Echoed::Probe(number) => Some((cumulative, number)),
        };
        Some(Acknowledgement {
            cumulative,
            credit: u16::from(credit),
            selective: Bitmap::from_words([u32::from(beyond)]),
            echo: echoed.map(|(psn, count)| Echo { psn, count, hold: u32::MAX }),
            answers_probe: matches!(echo, Echoed::Probe(_)),
            nack: false,
        })
    }
}
