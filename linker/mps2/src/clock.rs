//! Microseconds from SysTick (Armv7-M ARM, B3.3): 24 bits that count down at the processor's clock.

use core::arch::asm;
use core::ptr::NonNull;

use unisono_loopback::exchange;
use volatile::VolatilePtr;

const CONTROL: usize = 0xE000_E010;
const RELOAD: usize = 0xE000_E014;
const CURRENT: usize = 0xE000_E018;
/// Interrupt control and state (B3.2.4).
const STATE: usize = 0xE000_ED04;
/// SysTick's exception waits no more.
const FORGET: u32 = 1 << 25;
const ENABLED: u32 = 1 << 0;
const RINGS: u32 = 1 << 1;
/// The counter has come to zero since this was last read.
const REACHED: u32 = 1 << 16;
const PROCESSOR_CLOCK: u32 = 1 << 2;
const COUNTER: u32 = 0x00FF_FFFF;
/// The processor's clock is 25 MHz (application note AN386, section 3.5).
const TICKS_PER_MICROSECOND: u32 = 25;
/// Ticks that are worth a rest.
const SHORTEST: u32 = 20 * TICKS_PER_MICROSECOND;

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
        count_down(COUNTER, ENABLED | PROCESSOR_CLOCK);
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

impl exchange::Clock for Clock {
    fn now(&mut self) -> u32 {
        Self::now(self)
    }

    /// The processor sleeps until SysTick rings. Its exception is masked meanwhile, which keeps no processor asleep
    /// (B1.5.19), and forgotten afterwards: no handler runs. The clock loses less than a microsecond.
    fn sleep(&mut self, micros: u32) {
        let ticks = micros.saturating_mul(TICKS_PER_MICROSECOND).min(COUNTER);
        if ticks < SHORTEST {
            return;
        }
        self.now();
        // SAFETY: masks exceptions, none of which is needed; unmasked below.
        unsafe { asm!("cpsid i") };
        count_down(ticks, ENABLED | RINGS | PROCESSOR_CLOCK);
        // SAFETY: sleeps until an exception waits, which SysTick's will; it changes no memory.
        unsafe { asm!("dsb", "wfi") };
        register(CONTROL).write(PROCESSOR_CLOCK);
        let all = if register(CONTROL).read() & REACHED != 0 { ticks } else { 0 };
        let passed = all.wrapping_add(ticks.wrapping_sub(register(CURRENT).read()));
        register(STATE).write(FORGET);
        // SAFETY: unmasks exceptions again, as they were before the sleep.
        unsafe { asm!("cpsie i") };
        count_down(COUNTER, ENABLED | PROCESSOR_CLOCK);
        // As if the counter had come from there.
        self.last = register(CURRENT).read().wrapping_add(passed) & COUNTER;
    }
}

/// Counts from `from` down to zero, again and again.
fn count_down(from: u32, control: u32) {
    register(RELOAD).write(from);
    register(CURRENT).write(0);
    register(CONTROL).write(control);
}

/// A register of SysTick, at one of the addresses above.
fn register(address: usize) -> VolatilePtr<'static, u32> {
    let pointer = NonNull::new(core::ptr::with_exposed_provenance_mut(address)).unwrap_or(NonNull::dangling());
    // SAFETY: every Armv7-M processor has a word-wide register there for all time, aligned; the addresses are not zero.
    // One thread runs and no interrupt handler, so nobody else accesses it.
    unsafe { VolatilePtr::new(pointer) }
}
