//! Reliable connections (RC): the adapter writes, reads and atomically updates registered memory of a peer by itself,
//! and the peer's processor takes no part.
//!
//! A connection is a queue pair at each end. Both ends are created, each end's [`RcAddress`] goes to the other by
//! datagrams, and [`RcConnection::connect`] takes it. Peers reach the memory that
//! [`Domain::register_for_peers`](crate::ud::Domain::register_for_peers) registers, by its 32-bit key. The connections
//! of an adapter share one completion queue. A write with immediate takes a receive of its target, without memory, from
//! a queue that the connections share, too; while that is empty, the sender's adapter repeats the write. After an error
//! a queue pair executes nothing: its other operations fail, too, and the connection is made anew.
//!
//! A connection costs memory of both hosts and of their adapters, whose caches hold few (Koop et al., ICS 2007, §3;
//! Mamidala, dissertation 2008, §8.2): who makes connections bounds their number.

mod completions;
mod connection;
mod shared_receives;

pub use completions::{RcCompletion, RcCompletions, RcOptions};
pub use connection::{RcConnection, RcOperation, RcPostError, RcRequest};

use crate::ud::Gid;

/// Queue pair numbers and PSNs have 24 bits.
const BITS_24: u32 = 0xff_ffff;

/// What the peer of an end has to know to connect to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RcAddress {
    /// The GID of its port.
    pub gid: Gid,
    /// Its queue pair number, 24 bits, not 0.
    pub qpn: u32,
    /// The PSN of its first packet, 24 bits.
    pub psn: u32,
    /// Payload bytes of a packet: a power of two from 256 to 4096.
    pub mtu: u32,
    /// Reads that it serves at a time, at least 1.
    pub reads: u8,
}

impl RcAddress {
    /// Its length on the wire.
    pub const BYTES: usize = 26;

    /// Its bytes on the wire, in network byte order: GID 16, queue pair number 4, PSN 4, log₂ of the MTU 1, reads 1.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let fields = [&self.gid.0[..], &self.qpn.to_be_bytes(), &self.psn.to_be_bytes()];
        let last = [self.mtu.trailing_zeros() as u8, self.reads];
        let all = fields.into_iter().flatten().chain(&last);
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// Reads an address. `None`: the bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (gid, rest) = bytes.split_first_chunk()?;
        let (qpn, rest) = rest.split_first_chunk()?;
        let (psn, rest) = rest.split_first_chunk()?;
        let [mtu, reads] = *rest.first_chunk()?;
        let (qpn, psn) = (u32::from_be_bytes(*qpn), u32::from_be_bytes(*psn));
        let is_valid = (1..=BITS_24).contains(&qpn) && psn <= BITS_24 && (8..=12).contains(&mtu) && reads > 0;
        is_valid.then(|| Self { gid: Gid(*gid), qpn, psn, mtu: 1 << mtu, reads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_wire() {
        for mtu in [256, 1024, 4096] {
            let address = RcAddress { gid: Gid([7; 16]), qpn: BITS_24, psn: 0, mtu, reads: 16 };
            assert_eq!(RcAddress::from_bytes(&address.to_bytes()), Some(address));
        }
    }

    #[test]
    fn other_bytes_are_no_address() {
        let good = RcAddress { gid: Gid([7; 16]), qpn: 1, psn: 2, mtu: 1024, reads: 1 }.to_bytes();
        assert_eq!(RcAddress::from_bytes(&good[..RcAddress::BYTES - 1]), None);
        for (at, byte) in [(16, 1), (19, 0), (20, 1), (24, 7), (24, 13), (25, 0)] {
            let mut bytes = good;
            bytes[at] = byte;
            assert_eq!(RcAddress::from_bytes(&bytes), None, "byte {at} is {byte}");
        }
    }
}
