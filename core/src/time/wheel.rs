//! The timer wheel: six levels of 32 slots, linked through the timed records.
//!
//! Level l holds the timers that are due in less than 32^(l+1) ticks. Insertion and removal are O(1); before it expires
//! a timer moves down at most five levels. There are at most 65 535 records.

/// No record.
const NONE: u16 = u16::MAX;
const LEVELS: usize = 6;
const SLOTS: usize = 32;
const SHIFT: u32 = 5;
const MASK: u8 = 31;
const TOP: u32 = 5;

/// A record's timer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timer {
    tick: u32,
    before: u16,
    after: u16,
    /// Level × 32 + slot, or `OUT`.
    slot: u8,
}

const OUT: u8 = u8::MAX;

impl Timer {
    /// Not set.
    pub const UNSET: Self = Self { tick: 0, before: NONE, after: NONE, slot: OUT };

    /// Whether it is set.
    pub const fn is_set(&self) -> bool {
        self.slot != OUT
    }

    /// The tick that it is set for.
    pub const fn tick(&self) -> u32 {
        self.tick
    }
}

/// Ticks from the wheel's present to the last one that has a slot: before the present's slot at the top level.
const REACH: u32 = (31 << (TOP * SHIFT)) - 1;

/// The wheel. Ticks are serial numbers. It may be idle for any time: only distances from its present are compared, so
/// that idling beyond the wrap delays a timer by less than its duration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wheel {
    now: u32,
    occupied: [u32; LEVELS],
    first: [[u16; SLOTS]; LEVELS],
}

impl Wheel {
    /// Empty, at tick `now`.
    pub const fn new(now: u32) -> Self {
        Self { now, occupied: [0; LEVELS], first: [[NONE; SLOTS]; LEVELS] }
    }

    /// Sets record `i`'s timer to `tick`, or moves it. A past tick expires next; one beyond the reach expires early.
    pub fn set<R>(&mut self, records: &mut [R], i: u32, now: u32, tick: u32, timer: impl Fn(&mut R) -> &mut Timer) {
        self.clear(records, i, &timer);
        if self.occupied == [0; LEVELS] {
            self.now = now;
        }
        let ahead = tick.wrapping_sub(now);
        let ahead = if ahead < 1 << 31 { ahead } else { 0 };
        self.insert(records, i as u16, now.wrapping_sub(self.now).saturating_add(ahead), timer);
    }

    #[inline(never)]
    /// Inserts record `i`, whose timer is not set, at `ahead` ticks after the wheel's present.
    fn insert<R>(&mut self, records: &mut [R], i: u16, ahead: u32, timer: impl Fn(&mut R) -> &mut Timer) {
        let at = self.now.wrapping_add(ahead.min(REACH));
        let differs = at ^ self.now;
        let level = (31_u32.saturating_sub(differs.leading_zeros()) / SHIFT).min(TOP);
        let slot = at >> (level.wrapping_mul(SHIFT)) & u32::from(MASK);
        let Some(first) = self.first.get_mut(level as usize).and_then(|slots| slots.get_mut(slot as usize)) else {
            return;
        };
        let after = core::mem::replace(first, i);
        if let Some(occupied) = self.occupied.get_mut(level as usize) {
            *occupied |= 1 << slot;
        }
        if let Some(record) = records.get_mut(usize::from(after)) {
            timer(record).before = i;
        }
        if let Some(record) = records.get_mut(usize::from(i)) {
            let place = (level << SHIFT | slot) as u8;
            *timer(record) = Timer { tick: at, before: NONE, after, slot: place };
        }
    }

    /// Clears record `i`'s timer, if it is set.
    pub fn clear<R>(&mut self, records: &mut [R], i: u32, timer: impl Fn(&mut R) -> &mut Timer) {
        let Some(record) = records.get_mut(i as usize) else { return };
        let Timer { before, after, slot, .. } = core::mem::replace(timer(record), Timer::UNSET);
        if slot == OUT {
            return;
        }
        if let Some(record) = records.get_mut(usize::from(after)) {
            timer(record).before = before;
        }
        match records.get_mut(usize::from(before)) {
            Some(record) => timer(record).after = after,
            None => self.set_first(slot, after),
        }
    }

    fn set_first(&mut self, slot: u8, i: u16) {
        let (level, slot) = (usize::from(slot >> SHIFT), slot & MASK);
        if let Some(first) = self.first.get_mut(level).and_then(|slots| slots.get_mut(usize::from(slot))) {
            *first = i;
        }
        if i == NONE
            && let Some(occupied) = self.occupied.get_mut(level)
        {
            *occupied &= !(1 << slot);
        }
    }

    /// The tick at which a timer expires or moves down a level, and its slot.
    fn next(&self) -> Option<(u8, u32)> {
        for (level, occupied) in self.occupied.iter().enumerate() {
            if *occupied != 0 {
                let shift = (level as u32).wrapping_mul(SHIFT);
                let here = self.now >> shift;
                let ahead = occupied.rotate_right(here & u32::from(MASK)).trailing_zeros();
                let there = here.wrapping_add(ahead);
                let slot = (level as u32) << SHIFT | there & u32::from(MASK);
                // Level 0 may hold timers that are due now; a slot of a higher level begins later.
                let tick = if ahead == 0 { self.now } else { there << shift };
                return Some((slot as u8, tick));
            }
        }
        None
    }

    /// The earliest tick at which [`expire`](Self::expire) has work; `now` if that has passed.
    pub fn next_tick(&self, now: u32) -> Option<u32> {
        self.next().map(|(_, tick)| if self.is_due(tick, now) { now } else { tick })
    }

    /// Whether `now` has reached a tick that was not before the wheel's present.
    const fn is_due(&self, tick: u32, now: u32) -> bool {
        tick.wrapping_sub(self.now) <= now.wrapping_sub(self.now)
    }

    /// Advances to at most tick `now` and clears one due timer: returns its record, or `None` if no timer is due.
    pub fn expire<R>(&mut self, records: &mut [R], now: u32, timer: impl Fn(&mut R) -> &mut Timer) -> Option<u32> {
        // Each iteration either returns, or moves a slot's timers down a level.
        loop {
            let Some((slot, tick)) = self.next().filter(|(_, tick)| self.is_due(*tick, now)) else {
                self.now = now;
                return None;
            };
            self.now = tick;
            let level = usize::from(slot >> SHIFT);
            let first = *self.first.get(level)?.get(usize::from(slot & MASK))?;
            if level == 0 {
                self.clear(records, u32::from(first), &timer);
                return Some(u32::from(first));
            }
            let mut i = first;
            while let Some(record) = records.get_mut(usize::from(i)) {
                let Timer { tick, after, .. } = *timer(record);
                self.clear(records, u32::from(i), &timer);
                self.insert(records, i, tick.wrapping_sub(self.now), &timer);
                i = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Timer, Wheel};

    fn run(start: u32, delays: &[u32]) {
        let mut records = [Timer::UNSET; 16];
        let mut wheel = Wheel::new(start);
        for (i, delay) in delays.iter().enumerate() {
            wheel.set(&mut records, i as u32, start, start.wrapping_add(*delay), |timer| timer);
        }
        let mut order: [usize; 16] = core::array::from_fn(|i| i);
        let order = order.get_mut(..delays.len()).unwrap_or_default();
        order.sort_by_key(|i| delays.get(*i));
        let mut now = start;
        for i in order {
            let delay = *delays.get(*i).unwrap_or(&0);
            let before = start.wrapping_add(delay).wrapping_sub(1);
            if delay > 0 {
                while let Some(tick) = wheel.next_tick(now).filter(|tick| tick.wrapping_sub(start) < delay) {
                    now = tick;
                    assert_eq!(wheel.expire(&mut records, tick, |timer| timer), None, "early");
                }
                assert_eq!(wheel.expire(&mut records, before, |timer| timer), None, "early");
            }
            now = start.wrapping_add(delay);
            let fired = wheel.expire(&mut records, now, |timer| timer);
            assert_eq!(fired.map(|i| delays.get(i as usize)), Some(Some(&delay)));
        }
        assert_eq!(wheel.next_tick(now), None);
    }

    #[test]
    fn records_expire_in_order_at_their_tick() {
        for start in [0, 7, 31, 1023, 0x3fff_ffff, u32::MAX - 40, u32::MAX] {
            run(start, &[0, 1, 31, 32, 33, 1000, 1024, 40_000, 1 << 20, 3 << 25]);
            run(start, &[5, 70, 33_000_000]);
        }
    }

    #[test]
    fn idling_for_any_time_loses_no_record() {
        for rest in [1 << 20, 0x3e00_0000, 0x3fff_ffff, 0x4000_0000, 0x7fff_ffff, 1 << 31, u32::MAX] {
            for running in [false, true] {
                let mut records = [Timer::UNSET; 2];
                let mut wheel = Wheel::new(7);
                if running {
                    wheel.set(&mut records, 0, 7, 1000, |timer| timer);
                }
                let now = rest.wrapping_add(7);
                wheel.set(&mut records, 1, now, now.wrapping_add(500), |timer| timer);
                if running {
                    assert_eq!(wheel.next_tick(now), Some(now));
                    assert_eq!(wheel.expire(&mut records, now, |timer| timer), Some(0), "after {rest}");
                }
                // The owner sets a timer again that expired early.
                while let Some(early) = wheel.expire(&mut records, now, |timer| timer) {
                    wheel.set(&mut records, early, now, now.wrapping_add(500), |timer| timer);
                }
                let later = now.wrapping_add(500);
                assert_eq!(wheel.expire(&mut records, later, |timer| timer), Some(1), "after {rest}");
                assert_eq!(wheel.next_tick(later), None);
            }
        }
    }

    #[test]
    fn a_cleared_record_does_not_expire() {
        let mut records = [Timer::UNSET; 3];
        let mut wheel = Wheel::new(9);
        for i in 0..3 {
            wheel.set(&mut records, i, 9, 50, |timer| timer);
        }
        wheel.clear(&mut records, 1, |timer| timer);
        wheel.set(&mut records, 0, 9, 60, |timer| timer);
        assert_eq!(wheel.expire(&mut records, 55, |timer| timer), Some(2));
        assert_eq!(wheel.expire(&mut records, 55, |timer| timer), None);
        assert_eq!(wheel.expire(&mut records, 60, |timer| timer), Some(0));
    }
}
