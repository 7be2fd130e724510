//! The receiving half of a sliding window: the state that every peer's record keeps, even while the peer is idle.
//!
//! The receiver keeps no repair timer. It acknowledges a new gap at once, marked NACK; while a gap exists, every
//! acknowledgement carries the bitmap.

use crate::ids::Psn;
use crate::time::Time;
use crate::window::receive_window::{Early, ReceiveWindow};
use crate::wire::{Acknowledgement, Bitmap, Echo};

/// Where a datagram stands in its peer's PSN order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArrivalOrder {
    /// The next expected PSN.
    Next,
    /// This many PSNs after the next expected one.
    Early(u32),
    /// Received before.
    Duplicate,
    /// Neither in the window nor shortly before it.
    Outside,
}

/// Acknowledge in this round.
const NOW: u8 = 1;
/// A gap is new.
const NACK: u8 = 1 << 1;
/// It answers a probe.
const ANSWER: u8 = 1 << 2;
/// Some datagram is not acknowledged.
const PENDING: u8 = 1 << 3;
/// It echoes a datagram.
const ECHO: u8 = 1 << 4;
/// Shift of the echoed transmission count.
const COUNT: u32 = 5;

/// Which datagrams of a peer have arrived, and the content of the next acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveState<T: Time, const BITS: u32> {
    next: Psn<BITS>,
    /// Arrival time of the datagram that the next acknowledgement echoes.
    arrived: T::Stamp,
    /// The low 16 bits of the PSN it echoes, which is less than 2¹⁵ away from `next`.
    echo: u16,
    /// Datagrams to be acknowledged, saturating.
    unacknowledged: u8,
    flags: u8,
}

impl<T: Time, const BITS: u32> ReceiveState<T, BITS> {
    /// Nothing has arrived; the first datagram will have the PSN `first`.
    pub const fn new(first: Psn<BITS>) -> Self {
        Self { next: first, arrived: T::ZERO, echo: 0, unacknowledged: 0, flags: 0 }
    }

    /// The next expected PSN: every one before it has been delivered.
    pub const fn next(&self) -> Psn<BITS> {
        self.next
    }

    /// Classifies `psn`, given a window of `W` PSNs.
    #[inline(always)]
    pub fn classify<const W: usize>(&self, psn: Psn<BITS>, window: Option<&ReceiveWindow<W>>) -> ArrivalOrder {
        let distance = psn.since(self.next);
        if distance == 0 {
            if window.is_some_and(|window| window.contains(0)) {
                return ArrivalOrder::Duplicate;
            }
            return ArrivalOrder::Next;
        }
        let size = if mutant!("window_too_far") { W.saturating_add(1) } else { W };
        if (distance as usize) < size {
            let arrived = window.is_some_and(|window| window.contains(distance));
            if arrived && !mutant!("duplicate_accepted") {
                ArrivalOrder::Duplicate
            } else {
                ArrivalOrder::Early(distance)
            }
        } else if self.next.since(psn) as usize <= W {
            ArrivalOrder::Duplicate
        } else {
            ArrivalOrder::Outside
        }
    }

    /// Records that a datagram which consumes a PSN arrived at `arrived`: the next acknowledgement echoes it.
    #[inline]
    pub fn record(&mut self, arrived: T::Stamp, psn: Psn<BITS>, count: u8) {
        if self.flags & ANSWER == 0 {
            self.set_echo(arrived, psn, count);
        }
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        self.flags |= PENDING;
    }

    /// Records the next `count` in-order datagrams, the last of which arrived at `arrived`: equals `count` calls of
    /// [`record`](Self::record) with originals, each followed by [`advance`](Self::advance) without a window.
    #[inline]
    pub(crate) fn record_burst(&mut self, arrived: T::Stamp, count: u32) {
        self.next = self.next.add(count);
        self.record(arrived, self.next.back(1), 0);
        let others = count.wrapping_sub(1).min(u32::from(u8::MAX)) as u8;
        self.unacknowledged = self.unacknowledged.saturating_add(others);
    }

    fn set_echo(&mut self, arrived: T::Stamp, psn: Psn<BITS>, count: u8) {
        self.arrived = arrived;
        self.echo = psn.get() as u16;
        self.flags = self.flags & !(0b11 << COUNT) | ECHO | (count & 3) << COUNT;
    }

    /// Requests an immediate acknowledgement.
    pub const fn ack_immediately(&mut self) {
        self.flags |= PENDING | NOW;
        // An immediate acknowledgement needs no count, so that equal states compare equal.
        self.unacknowledged = 0;
    }

    /// Records that an arrival revealed a new gap.
    pub const fn handle_gap(&mut self) {
        self.flags |= PENDING | NOW | NACK;
    }

    /// Records a probe: the next acknowledgement answers it.
    pub fn handle_probe(&mut self, arrived: T::Stamp, psn: Psn<BITS>, number: u8) {
        self.set_echo(arrived, psn, number);
        self.flags |= PENDING | NOW | ANSWER;
    }

    /// Advances past the next expected PSN. Returns the state of the PSN after it if that arrived early.
    #[inline]
    pub fn advance<const W: usize>(&mut self, window: Option<&mut ReceiveWindow<W>>) -> Early {
        self.next = self.next.add(1);
        match window {
            Some(window) => {
                window.advance();
                window.front()
            }
            None => Early::Missing,
        }
    }

    /// Datagrams that are not acknowledged yet.
    pub const fn unacknowledged(&self) -> u8 {
        self.unacknowledged
    }

    /// Whether an acknowledgement is owed.
    pub const fn is_pending(&self) -> bool {
        self.flags & PENDING != 0
    }

    /// Whether the acknowledgement must be sent at once.
    pub const fn is_urgent(&self) -> bool {
        self.flags & NOW != 0
    }

    /// A datagram that carries the cumulative acknowledgement is sent: enough, unless a gap or a probe needs a pure
    /// acknowledgement.
    #[inline]
    pub const fn handle_piggybacked(&mut self, gap: bool) {
        if self.flags & NOW == 0 && !gap {
            self.clear_ack();
        }
    }

    /// Builds the pending acknowledgement and clears it.
    pub fn acknowledge<const W: usize>(
        &mut self,
        now: T::Instant,
        credit: u16,
        window: Option<&ReceiveWindow<W>>,
    ) -> Acknowledgement<BITS> {
        let away = (self.echo.wrapping_sub(self.next.get() as u16)).cast_signed();
        let echo = (self.flags & ECHO != 0).then(|| Echo {
            psn: self.next.add(i32::from(away).cast_unsigned()),
            count: self.flags >> COUNT & 3,
            hold: T::since(now, self.arrived).unwrap_or(u32::MAX),
        });
        let acknowledgement = Acknowledgement {
            cumulative: self.next,
            credit,
            selective: window.map_or(Bitmap::EMPTY, ReceiveWindow::beyond),
            echo,
            answers_probe: self.flags & ANSWER != 0,
            nack: self.flags & NACK != 0,
        };
        self.clear_ack();
        acknowledgement
    }

    /// Lowers every PSN by `by`, for models whose numbers are relative.
    #[must_use]
    pub fn with_numbers(mut self, by: u32) -> Self {
        self.next = self.next.back(by);
        if self.flags & ECHO != 0 {
            self.echo = Psn::<BITS>::new(u32::from(self.echo)).back(by).get() as u16;
        }
        self
    }

    /// Clears the acknowledgement state, so that equal states compare equal.
    const fn clear_ack(&mut self) {
        self.flags = 0;
        self.unacknowledged = 0;
        self.echo = 0;
        self.arrived = T::ZERO;
    }
}
