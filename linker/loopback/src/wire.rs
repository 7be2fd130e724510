//! The wire: carries datagrams between two ends, and drops, duplicates or overtakes some.

use crate::end::{End, MTU};

/// How many datagrams of 256 meet each fate, on average.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Never arrive.
    pub dropped: u8,
    /// Arrive twice.
    pub duplicated: u8,
    /// Arrive after the next one.
    pub overtaken: u8,
}

/// What befell the datagrams so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fates {
    /// Taken off a send ring.
    pub taken: u32,
    /// Never arrived.
    pub dropped: u32,
    /// Arrived twice.
    pub duplicated: u32,
    /// Arrived after the next one.
    pub overtaken: u32,
}

/// One direction. Its choices follow from its seed alone.
#[derive(Debug)]
pub struct Wire {
    faults: Faults,
    fates: Fates,
    dice: u32,
    datagram: [u8; MTU],
    late: [u8; MTU],
    late_bytes: Option<u16>,
}

impl Wire {
    /// A wire with these faults. The seed is odd or made odd.
    pub const fn new(faults: Faults, seed: u32) -> Self {
        let fates = Fates { taken: 0, dropped: 0, duplicated: 0, overtaken: 0 };
        Self { faults, fates, dice: seed | 1, datagram: [0; MTU], late: [0; MTU], late_bytes: None }
    }

    /// What befell the datagrams so far.
    pub const fn fates(&self) -> Fates {
        self.fates
    }

    /// 0..=255, by Marsaglia's xorshift (2003) with the triple 13, 17, 5.
    fn throw(&mut self) -> u8 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 17;
        self.dice ^= self.dice << 5;
        self.dice.to_le_bytes()[3]
    }

    /// Moves every posting of `from` to `to`, at most one send ring. Returns whether anything moved.
    pub fn carry(&mut self, from: &mut End<'_>, to: &mut End<'_>) -> bool {
        let mut moved = false;
        while let Some(bytes) = from.depart(&mut self.datagram) {
            moved = true;
            self.fates.taken = self.fates.taken.wrapping_add(1);
            let (drop, double, delay) = (self.throw(), self.throw(), self.throw());
            if drop < self.faults.dropped {
                self.fates.dropped = self.fates.dropped.wrapping_add(1);
                continue;
            }
            if delay < self.faults.overtaken && self.late_bytes.is_none() {
                self.fates.overtaken = self.fates.overtaken.wrapping_add(1);
                self.late = self.datagram;
                self.late_bytes = Some(bytes);
                continue;
            }
            to.arrive(&self.datagram, bytes);
            if double < self.faults.duplicated {
                self.fates.duplicated = self.fates.duplicated.wrapping_add(1);
                to.arrive(&self.datagram, bytes);
            }
            if let Some(bytes) = self.late_bytes.take() {
                to.arrive(&self.late, bytes);
            }
        }
        moved
    }
}
