//! The wire: carries datagrams between two ends and drops, duplicates or reorders some.

use crate::device::{LoopbackDevice, MTU};

/// Faults to inject, each as the average number of datagrams out of 256.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Never arrive.
    pub dropped: u8,
    /// Arrive twice.
    pub duplicated: u8,
    /// Arrive after the next one.
    pub overtaken: u8,
}

/// Counts of carried datagrams and injected faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Fetched from a send ring.
    pub taken: u32,
    /// Addressed to an unknown rank.
    pub unknown_peer: u32,
    /// Never arrived.
    pub dropped: u32,
    /// Arrived twice.
    pub duplicated: u32,
    /// Arrived after the next one.
    pub overtaken: u32,
}

impl FaultCounts {
    /// The sums of two directions.
    pub const fn with(self, other: Self) -> Self {
        Self {
            taken: self.taken.wrapping_add(other.taken),
            unknown_peer: self.unknown_peer.wrapping_add(other.unknown_peer),
            dropped: self.dropped.wrapping_add(other.dropped),
            duplicated: self.duplicated.wrapping_add(other.duplicated),
            overtaken: self.overtaken.wrapping_add(other.overtaken),
        }
    }
}

/// One direction. Its choices follow from its seed alone.
#[derive(Debug)]
pub struct Wire {
    faults: Faults,
    counts: FaultCounts,
    dice: u32,
    datagram: [u8; MTU],
    late: [u8; MTU],
    late_bytes: Option<u16>,
}

impl Wire {
    /// A wire with these faults. The seed is odd or made odd.
    pub const fn new(faults: Faults, seed: u32) -> Self {
        let counts = FaultCounts { taken: 0, unknown_peer: 0, dropped: 0, duplicated: 0, overtaken: 0 };
        Self { faults, counts, dice: seed | 1, datagram: [0; MTU], late: [0; MTU], late_bytes: None }
    }

    /// Counts of carried datagrams and injected faults.
    pub const fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// 0..=255, by Marsaglia's xorshift (2003) with the triple 13, 17, 5.
    fn random_byte(&mut self) -> u8 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 17;
        self.dice ^= self.dice << 5;
        self.dice.to_le_bytes()[3]
    }

    /// Moves every posting of `from` to `to`, at most one send ring. Returns whether anything moved.
    pub fn carry(&mut self, from: &mut LoopbackDevice<'_>, to: &mut LoopbackDevice<'_>) -> bool {
        let mut moved = false;
        while let Some((rank, bytes)) = from.depart(&mut self.datagram) {
            moved = true;
            self.counts.taken = self.counts.taken.wrapping_add(1);
            if rank != to.rank() {
                self.counts.unknown_peer = self.counts.unknown_peer.wrapping_add(1);
                continue;
            }
            let (drop, double, delay) = (self.random_byte(), self.random_byte(), self.random_byte());
            if drop < self.faults.dropped {
                self.counts.dropped = self.counts.dropped.wrapping_add(1);
                continue;
            }
            if delay < self.faults.overtaken && self.late_bytes.is_none() {
                self.counts.overtaken = self.counts.overtaken.wrapping_add(1);
                self.late = self.datagram;
                self.late_bytes = Some(bytes);
                continue;
            }
            to.arrive(from.rank(), &self.datagram, bytes);
            if double < self.faults.duplicated {
                self.counts.duplicated = self.counts.duplicated.wrapping_add(1);
                to.arrive(from.rank(), &self.datagram, bytes);
            }
            if let Some(bytes) = self.late_bytes.take() {
                to.arrive(from.rank(), &self.late, bytes);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU8;
    use core::sync::atomic::Ordering::Relaxed;

    use unisono_core::device::{Device, DeviceQueue, Received, Ticket, Token, Transmit, TxReason};
    use unisono_core::ids::PeerId;

    use super::{FaultCounts, Faults, Wire};
    use crate::device::{HOLDABLE, LoopbackDevice, MTU, RECEIVE_SLOTS, RING};
    use crate::regions::Bytes;

    const CLEAN: Faults = Faults { dropped: 0, duplicated: 0, overtaken: 0 };

    fn ends<'m>() -> (LoopbackDevice<'m>, LoopbackDevice<'m>) {
        let (mut first, mut second) = (LoopbackDevice::new(), LoopbackDevice::new());
        first.attach(PeerId(0), 2);
        second.attach(PeerId(1), 2);
        (first, second)
    }

    fn post<'m>(end: &mut LoopbackDevice<'m>, mark: u8, payload: Option<Bytes<'m>>) -> Option<Ticket> {
        let mut token = end.token(DeviceQueue::Polled)?;
        let ticket = token.ticket();
        token.header_room().fill(mark);
        let transmit = Transmit {
            to: PeerId(1).into(),
            queue: DeviceQueue::Polled,
            header_bytes: 24,
            payload: None,
            solicited: false,
            reason: TxReason::First,
        };
        token.post(&transmit, payload);
        Some(ticket)
    }

    /// The first byte of every arrival, each released at once.
    fn marks(end: &mut LoopbackDevice<'_>) -> impl Iterator<Item = u8> {
        core::iter::from_fn(move || {
            let arrival = end.receive(DeviceQueue::Polled)?;
            let (slot, mark) = (arrival.slot(), arrival.prefix().first().copied());
            end.release(slot);
            mark
        })
    }

    #[test]
    fn a_payload_is_gathered_carried_and_placed() {
        let memory = core::array::from_fn::<AtomicU8, 100, _>(|i| AtomicU8::new(i as u8));
        let there = [const { AtomicU8::new(0) }; 50];
        let ((mut first, mut second), mut wire) = (ends(), Wire::new(CLEAN, 1));
        let ticket = post(&mut first, 9, memory.get(10..60)).unwrap_or_default();
        assert!(!ticket.is_within(first.completed(DeviceQueue::Polled)));
        assert!(wire.carry(&mut first, &mut second));
        assert!(ticket.is_within(first.completed(DeviceQueue::Polled)));
        let slot = second.receive(DeviceQueue::Polled).map(|arrival| {
            assert_eq!(arrival.bytes(), 74);
            assert_eq!(arrival.prefix().len(), 64);
            assert!(arrival.is_from(PeerId(0)) && !arrival.is_from(PeerId(1)));
            arrival.slot()
        });
        second.place(slot.unwrap_or_default(), 24, 50, &there);
        assert!(there.iter().enumerate().all(|(i, byte)| usize::from(byte.load(Relaxed)) == i + 10));
    }

    #[test]
    fn a_full_ring_has_no_token() {
        let mut first = LoopbackDevice::new();
        assert!((0..RING).all(|_| post(&mut first, 0, None).is_some()));
        assert!(first.token(DeviceQueue::Polled).is_none());
    }

    #[test]
    fn arrivals_beyond_the_slots_are_lost_and_counted() {
        let ((mut first, mut second), mut wire) = (ends(), Wire::new(CLEAN, 1));
        for _ in 0..RECEIVE_SLOTS + 3 {
            post(&mut first, 0, None);
            wire.carry(&mut first, &mut second);
        }
        assert_eq!(second.overrun(), 3);
        assert_eq!(marks(&mut second).count(), RECEIVE_SLOTS);
    }

    #[test]
    fn held_datagrams_take_no_receive_slot_and_keep_their_bytes() {
        let ((mut first, mut second), mut wire) = (ends(), Wire::new(CLEAN, 1));
        let held = core::array::from_fn::<_, HOLDABLE, _>(|i| {
            post(&mut first, i as u8, None);
            wire.carry(&mut first, &mut second);
            let slot = second.receive(DeviceQueue::Polled).map(|arrival| arrival.slot()).unwrap_or_default();
            second.hold(slot);
            slot
        });
        for _ in 0..RECEIVE_SLOTS {
            post(&mut first, 0xFF, None);
            wire.carry(&mut first, &mut second);
        }
        assert_eq!(second.overrun(), 0);
        for (i, slot) in held.into_iter().enumerate() {
            assert_eq!(second.held(slot).prefix(), [i as u8; 24]);
            second.release(slot);
        }
        assert_eq!(marks(&mut second).count(), RECEIVE_SLOTS);
    }

    #[test]
    fn every_fate_is_counted() {
        let (mut first, mut second) = ends();
        let mut wire = Wire::new(Faults { dropped: 30, duplicated: 30, overtaken: 30 }, 7);
        let (mut arrived, mut late, mut last) = (0, 0, 0);
        for mark in 0..2000_u32 {
            post(&mut first, mark as u8, None);
            wire.carry(&mut first, &mut second);
            for mark in marks(&mut second) {
                arrived += 1;
                late += u32::from(mark.wrapping_sub(last) > 127);
                last = mark;
            }
        }
        let FaultCounts { taken, unknown_peer, dropped, duplicated, overtaken } = wire.counts();
        assert_eq!(unknown_peer, 0);
        assert_eq!(taken, 2000);
        assert!([dropped, duplicated, overtaken].iter().all(|count| (150..350).contains(count)));
        // One may still be on its way behind the last.
        assert!((arrived..=arrived + 1).contains(&(taken - dropped + duplicated)));
        assert!((late..=late + 1).contains(&overtaken));
    }

    #[test]
    fn an_oversized_posting_is_cut_to_the_datagram() {
        let memory = [const { AtomicU8::new(3) }; 2 * MTU];
        let ((mut first, mut second), mut wire) = (ends(), Wire::new(CLEAN, 1));
        post(&mut first, 3, Some(&memory));
        wire.carry(&mut first, &mut second);
        assert_eq!(second.receive(DeviceQueue::Polled).map(|arrival| arrival.bytes()), Some(MTU as u32));
    }
}
