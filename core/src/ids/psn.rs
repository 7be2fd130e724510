//! Packet sequence numbers: serial arithmetic of any width.

use super::Incarnation;

/// A packet sequence number of `BITS` bits: 32 in production, 3 or 4 in models.
///
/// Order is serial (RFC 1982): only the distance between two numbers has a meaning, and a window must stay below half
/// the number space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Psn<const BITS: u32>(u32);

impl<const BITS: u32> Psn<BITS> {
    const MASK: u32 = {
        assert!(BITS >= 2 && BITS <= 32, "a PSN has 2 to 32 bits");
        u32::MAX >> (32 - BITS)
    };

    /// The number's low `BITS` bits.
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// Its value.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN `n` after this one.
    pub const fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n) & Self::MASK)
    }

    /// The PSN `n` before this one.
    pub const fn back(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n) & Self::MASK)
    }

    /// The distance from `earlier` to this PSN, modulo 2^`BITS`.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & Self::MASK
    }

    /// Whether this PSN follows `other`, by less than half the number space.
    pub const fn is_after(self, other: Self) -> bool {
        let distance = self.since(other);
        distance != 0 && distance <= Self::MASK >> 1
    }
}

/// The first PSN from the incarnation `from` to the incarnation `to`: both ends compute it without a handshake.
pub const fn first_psn<const BITS: u32>(from: Incarnation, to: Incarnation) -> Psn<BITS> {
    // MurmurHash3's 32-bit finalizer over both, in order.
    let mut h = from.0.wrapping_mul(0xcc9e_2d51) ^ to.0.rotate_left(15);
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    Psn::new(h ^ (h >> 16))
}

#[cfg(test)]
mod tests {
    use crate::ids::Psn;

    #[test]
    fn distance_wraps_at_the_width() {
        assert_eq!(Psn::<3>::new(1).since(Psn::new(6)), 3);
        assert_eq!(Psn::<3>::new(6).add(3), Psn::new(1));
        assert_eq!(Psn::<32>::new(2).since(Psn::new(u32::MAX)), 3);
        assert_eq!(Psn::<4>::new(1).back(3), Psn::new(14));
    }

    #[test]
    fn order_is_serial() {
        assert!(Psn::<3>::new(1).is_after(Psn::new(6)));
        assert!(!Psn::<3>::new(6).is_after(Psn::new(1)));
        assert!(!Psn::<3>::new(6).is_after(Psn::new(6)));
    }
}
