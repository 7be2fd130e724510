//! What the peer of a connection's end has to know.

use crate::ud::Gid;

/// Queue pair numbers and PSNs have 24 bits.
pub(super) const BITS_24: u32 = 0xff_ffff;

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
