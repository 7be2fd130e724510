//! Time: the processor's time-stamp counter, against the interval timer (Intel 8254), whose rate is known.

use core::arch::x86_64::{_mm_lfence, _rdtsc};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use x86_64::instructions::port::Port;

use crate::interrupts;

/// The interval timer's ticks per second.
const INTERVAL_HZ: u64 = 1_193_182;
/// Ticks of a calibration: 20 ms.
const INTERVAL: u16 = 23_864;
const CONTROL: u16 = 0x43;
const CHANNEL_2: u16 = 0x42;
/// Gate (bit 0) and output (bit 5) of channel 2, and the speaker (bit 1).
const GATE: u16 = 0x61;

/// Ticks of the counter per microsecond, times 2¹⁰. Of 32 bits: up to 4 GHz.
static RATE: AtomicU32 = AtomicU32::new(0);

/// The time-stamp counter, after everything before.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: SSE2, which every x86_64 has.
    unsafe { _mm_lfence() };
    // SAFETY: CR4.TSD is clear.
    unsafe { _rdtsc() }
}

/// Converts ticks to nanoseconds. 0 before the calibration.
pub fn nanoseconds(ticks: u64) -> u64 {
    let rate = u128::from(RATE.load(Relaxed).max(1));
    u64::try_from(u128::from(ticks).wrapping_mul(1_024_000).checked_div(rate).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Counts the ticks of the time-stamp counter and of the local timer while the interval timer runs down once.
pub(crate) fn calibrate() {
    let (mut gate, mut control, mut channel) =
        (Port::<u8>::new(GATE), Port::<u8>::new(CONTROL), Port::<u8>::new(CHANNEL_2));
    let [low, high] = INTERVAL.to_le_bytes();
    // SAFETY: a PC has this register there; nobody else uses channel 2, and the speaker stays off.
    let before = unsafe { gate.read() };
    // SAFETY: a PC has this register there; nobody else uses channel 2, and the speaker stays off.
    unsafe { gate.write(before & !0b10 | 1) };
    // SAFETY: a PC has this register there; nobody else uses channel 2, and the speaker stays off. Channel 2, both
    // bytes, mode 0.
    unsafe { control.write(0b1011_0000) };
    // SAFETY: a PC has this register there; nobody else uses channel 2, and the speaker stays off.
    unsafe { channel.write(low) };
    // SAFETY: a PC has this register there; nobody else uses channel 2, and the speaker stays off. The counter starts.
    unsafe { channel.write(high) };
    let (began, timer) = (ticks(), interrupts::Countdown::start());
    // SAFETY: a PC has this register there; nobody else uses channel 2, and the speaker stays off.
    while unsafe { gate.read() } & 1 << 5 == 0 {}
    let (took, counted) = (ticks().wrapping_sub(began), timer.elapsed());
    let per_second = |count: u64| count.saturating_mul(INTERVAL_HZ).checked_div(INTERVAL.into()).unwrap_or(0);
    let rate = per_second(took).saturating_mul(1024).checked_div(1_000_000).unwrap_or(0);
    RATE.store(u32::try_from(rate).unwrap_or(u32::MAX), Relaxed);
    interrupts::set_rate(u32::try_from(per_second(counted.into())).unwrap_or(u32::MAX));
}
