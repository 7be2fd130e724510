//! The source of a datagram, and whether it is a given peer.

use core::fmt::Debug;

/// Bytes in front of every datagram: a global route header or, with RoCE v2 over IPv4, 20 unused bytes and the IPv4
/// header.
pub const GRH: usize = 40;
/// Prefix of an IPv4-mapped GID.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The path to a peer.
pub trait PeerPath: Copy + Debug {
    /// Bytes of the longest datagram.
    fn mtu(&self) -> u32;
    /// Whether this source is the peer.
    fn matches(&self, source: &Source) -> bool;
}

/// The sender of a datagram as its completion states it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Origin {
    /// Its queue pair number.
    pub qpn: u32,
    /// Its local identifier, on InfiniBand.
    pub lid: u16,
    /// Whether the bytes in front of the datagram contain its address.
    pub grh: bool,
}

/// The source of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Source {
    origin: Origin,
    gid: [u8; 16],
    v4: [u8; 4],
}

impl Source {
    pub(super) const NONE: Self = Self { origin: Origin { qpn: 0, lid: 0, grh: false }, gid: [0; 16], v4: [0; 4] };

    /// From the completion and the bytes in front of the datagram.
    pub fn new(origin: Origin, front: &[u8; GRH]) -> Self {
        let gid = front.get(8..).and_then(|rest| rest.first_chunk().copied());
        let v4 = front.get(32..).and_then(|rest| rest.first_chunk().copied());
        Self { origin, gid: gid.unwrap_or_default(), v4: v4.unwrap_or_default() }
    }

    /// The part stated by its completion.
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether it came from the port with this GID.
    pub fn is_gid(&self, gid: &[u8; 16]) -> bool {
        let v4 = gid.strip_prefix(&MAPPED);
        self.origin.grh && v4.map_or(self.gid == *gid, |address| self.v4 == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_read_from_either_header() {
        let mut front = [0; GRH];
        front[8..24].fill(0x20);
        front[32..36].copy_from_slice(&[10, 0, 0, 9]);
        let source = |grh| Source::new(Origin { qpn: 1, lid: 0, grh }, &front);
        assert!(source(true).is_gid(&[0x20; 16]) && !source(true).is_gid(&[0x21; 16]));
        assert!(!source(false).is_gid(&[0x20; 16]));
        let mut mapped = [0; 16];
        mapped[..12].copy_from_slice(&MAPPED);
        mapped[12..].copy_from_slice(&[10, 0, 0, 9]);
        assert!(source(true).is_gid(&mapped));
        mapped[15] = 8;
        assert!(!source(true).is_gid(&mapped));
    }
}
