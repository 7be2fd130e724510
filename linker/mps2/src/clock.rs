//! Microseconds from SysTick (Armv7-M ARM, B3.3): 24 bits that count down at the processor's clock.

use core::ptr::NonNull;

use volatile::VolatilePtr;

const CONTROL: usize = 0xE000_E010;
const RELOAD: usize = 0xE000_E014;
const CURRENT: usize = 0xE000_E018;
const ENABLED: u32 = 1 << 0;
const PROCESSOR_CLOCK: u32 = 1 << 2;
const COUNTER: u32 = 0x00FF_FFFF;
/// The processor's clock is 25 MHz (application note AN386, section 3.5).
const TICKS_PER_MICROSECOND: u32 = 25;

/// A clock that is right as long as it is read every 2²⁴ ticks, 671 ms.
#[derive(Debug)]
pub struct Clock {
    last: u32,
    ticks: u32,
    micros: u32,
}

impl Clock {
    /// Starts the counter.
    pub fn start() -> Self {
        register(RELOAD).write(COUNTER);
        register(CURRENT).write(0);
        register(CONTROL).write(ENABLED | PROCESSOR_CLOCK);
        Self { last: register(CURRENT).read(), ticks: 0, micros: 0 }
    }

    /// Microseconds since the start; wraps.
    #[inline]
    pub fn now(&mut self) -> u32 {
        let current = register(CURRENT).read();
        self.ticks = self.ticks.wrapping_add(self.last.wrapping_sub(current) & COUNTER);
        self.last = current;
        self.micros = self.micros.wrapping_add(self.ticks / TICKS_PER_MICROSECOND);
        self.ticks %= TICKS_PER_MICROSECOND;
        self.micros
    }
}

/// A register of SysTick, at one of the addresses above.
fn register(address: usize) -> VolatilePtr<'static, u32> {
    let pointer = NonNull::new(core::ptr::with_exposed_provenance_mut(address)).unwrap_or(NonNull::dangling());
    // SAFETY: every Armv7-M processor has a word-wide register there for all time, aligned; the addresses are not zero. One
    // thread runs and no interrupt handler, so nobody else accesses it.
    unsafe { VolatilePtr::new(pointer) }
}
