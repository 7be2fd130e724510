//! The attacker: damages, replays and forges datagrams in transit.

use crate::sim::OutgoingDatagram;

use super::Choices;

/// Earlier datagrams kept for replay.
const KEPT: usize = 2048;
/// Largest datagram.
const MTU: usize = 1468;

/// Which attacker it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AttackStyle {
    /// Damages half of the datagrams; the check is that of the original.
    Noise,
    /// Damages a quarter and makes the check right; repeats and invents others.
    Lies,
}

/// A datagram that nobody sent.
#[derive(Debug)]
pub(super) struct Forgery {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: Vec<u8>,
}

/// Sees every datagram that leaves.
#[derive(Debug)]
pub(super) struct Attacker {
    pub(super) choices: Choices,
    style: AttackStyle,
    replayable: Vec<Forgery>,
    seen: usize,
    /// To be sent.
    pub(super) forgeries: Vec<Forgery>,
    pub(super) damaged: u64,
    pub(super) random: u64,
    pub(super) checked: u64,
}

fn check(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes)
}

impl Attacker {
    pub(super) const fn new(choices: Choices, style: AttackStyle) -> Self {
        Self {
            choices,
            style,
            replayable: Vec::new(),
            seen: 0,
            forgeries: Vec::new(),
            damaged: 0,
            random: 0,
            checked: 0,
        }
    }

    /// Whether fewer than `damaged` were damaged or random, and there are choices left.
    pub(super) const fn goes_on(&self, damaged: u64) -> bool {
        self.damaged + self.random < damaged && !self.choices.are_used_up()
    }

    /// Whether the datagram, as it is now, passes the device's check.
    pub(super) fn passes(&mut self, passing: &mut OutgoingDatagram<'_>) -> bool {
        if passing.cause.is_none() {
            return true;
        }
        let choice = self.choices.byte();
        match self.style {
            AttackStyle::Noise => {
                if choice & 1 == 0 {
                    return true;
                }
                let sum = check(passing.bytes);
                self.damage(passing.bytes);
                self.damaged += 1;
                let passes = check(passing.bytes) == sum;
                self.checked += u64::from(!passes);
                passes
            }
            AttackStyle::Lies => {
                self.keep(passing, choice);
                if (1..=64).contains(&choice) {
                    self.damage(passing.bytes);
                    self.damaged += 1;
                }
                true
            }
        }
    }

    /// Repeats a former datagram, or makes one of random bytes.
    pub(super) fn invent(&mut self) {
        if self.style != AttackStyle::Lies {
            return;
        }
        let choice = self.choices.byte();
        if (1..=32).contains(&choice) && !self.replayable.is_empty() {
            let i = self.choices.below(self.replayable.len());
            let Some(Forgery { from, to, bytes }) = self.replayable.get(i) else { return };
            let mut again = Forgery { from: *from, to: *to, bytes: bytes.clone() };
            if choice & 3 == 0 {
                self.damage(&mut again.bytes);
                self.damaged += 1;
            }
            self.forgeries.push(again);
        } else if (33..=48).contains(&choice) {
            let length = self.choices.below(128);
            let mut bytes: Vec<u8> = (0..length).map(|_| self.choices.byte()).collect();
            if let (true, Some(first)) = (choice & 1 == 0, bytes.first_mut()) {
                // Of the right version, so that more than the first byte is read.
                *first = unisono_core::wire::VERSION << 4 | *first & 15;
            }
            let to = u32::from(choice >> 1 & 1);
            self.forgeries.push(Forgery { from: 1 - to, to, bytes });
            self.random += 1;
        }
    }

    /// Keeps one of eight, in place of any former one.
    fn keep(&mut self, passing: &OutgoingDatagram<'_>, choice: u8) {
        if choice & 7 != 7 {
            return;
        }
        self.seen = self.seen.wrapping_add(1);
        if self.replayable.len() < KEPT {
            self.replayable.push(Forgery { from: passing.from.0, to: passing.to.0, bytes: passing.bytes.clone() });
            return;
        }
        let i = self.choices.below(KEPT);
        if let Some(place) = self.replayable.get_mut(i) {
            (place.from, place.to) = (passing.from.0, passing.to.0);
            place.bytes.clone_from(passing.bytes);
        }
    }

    /// Changes at least one bit, mostly of the header.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let choice = self.choices.byte();
        let shown = if choice & 64 == 0 { bytes.len().min(40) } else { bytes.len() };
        if shown == 0 {
            bytes.push(choice);
            return;
        }
        let at = self.choices.below(shown);
        match choice & 7 {
            0 => bytes[at] ^= 1 << (choice >> 3 & 7),
            1 => bytes[at] ^= self.choices.byte() | 1,
            2 => {
                // A field of four bytes a little higher or lower.
                let field = at & !3;
                let by = i32::from(self.choices.byte().cast_signed()) | 1;
                if let Some(field) = bytes.get_mut(field..field + 4) {
                    let old = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
                    field.copy_from_slice(&old.wrapping_add_signed(by).to_le_bytes());
                } else {
                    bytes[at] ^= 1;
                }
            }
            3 => {
                // A random field.
                let (field, value) = (at & !3, self.choices.word());
                match bytes.get_mut(field..field + 4) {
                    Some(field) if field != value.to_le_bytes() => field.copy_from_slice(&value.to_le_bytes()),
                    _ => bytes[at] ^= 128,
                }
            }
            4 => bytes.truncate(at),
            5 if bytes.len() < MTU => bytes.push(self.choices.byte()),
            6 => bytes[0] ^= self.choices.byte() % 15 + 1,
            _ => {
                let first = bytes[at];
                let last = bytes.len() - 1;
                bytes[at] = bytes[last].wrapping_add(u8::from(bytes[last] == first || last == at));
            }
        }
    }
}
