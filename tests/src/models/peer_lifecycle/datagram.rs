//! Datagrams between the endpoints, and the messages that they carry.

use unisono_core::ids::Incarnation;
use unisono_core::wire::{DatagramKind, HEADER, Header};

/// A datagram's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Datagram {
    bytes: [u8; 36],
    pub(super) length: u8,
}

/// A message's payload: sender, receiver and number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Message {
    pub(super) from_incarnation: u8,
    pub(super) to_incarnation: u8,
    pub(super) number: u8,
}

/// The n-th incarnation of a rank. Both incarnations of rank 0 begin with the same PSN, with 3 bits and with 5: their
/// datagrams differ in the incarnation alone.
pub(super) const fn nth_incarnation(rank: u8, n: u8) -> Incarnation {
    Incarnation(rank as u32 * 2 + n as u32 + 14)
}

impl Message {
    /// Bytes of a message.
    pub(super) const BYTES: usize = 4;

    pub(super) const fn bytes(self, rank: u8) -> [u8; Self::BYTES] {
        [rank, self.from_incarnation, self.to_incarnation, self.number]
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<(u8, Self)> {
        let [rank, from_life, to_life, number] = *bytes else { return None };
        Some((rank, Self { from_incarnation: from_life, to_incarnation: to_life, number }))
    }
}

impl Datagram {
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        let mut bytes = [0; 36];
        bytes.get_mut(..head.len())?.copy_from_slice(head);
        Some(Self { bytes, length: head.len() as u8 })
    }

    pub(super) fn head(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn header(&self) -> Option<Header<32>> {
        Header::parse(self.head()).ok()
    }

    pub(super) fn kind(&self) -> Option<DatagramKind> {
        self.header().map(|header| header.kind)
    }

    /// The sender's rank.
    pub(super) fn rank(&self) -> u8 {
        self.header().map_or(0, |header| header.rank as u8 & 1)
    }

    /// Number of the incarnation that it expects.
    pub(super) fn expected_incarnation(&self) -> Option<u8> {
        let header = self.header()?;
        (0..2).find(|incarnation| nth_incarnation(1 - header.rank as u8, *incarnation) == header.expected)
    }

    pub(super) fn message(&self) -> Option<Message> {
        let header = self.header().filter(|header| header.kind == DatagramKind::Eager)?;
        let (rank, message) = Message::parse(self.head().get(HEADER..)?)?;
        (u32::from(rank) == header.rank).then_some(message)
    }
}

impl core::fmt::Debug for Datagram {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.header() {
            Some(header) => {
                write!(to, "{:?} {:?} ", header.kind, header.flags)?;
                write!(to, "{}→{} ", header.incarnation.0, header.expected.0)?;
                write!(to, "psn {} ack {}+{}", header.psn, header.acknowledged, header.credit)?;
                write!(to, " {:?}", &self.head()[HEADER..])
            }
            None => write!(to, "{:?}", self.head()),
        }
    }
}
