//! Exceptions end the image; the local timer counts the heartbeat. All handlers run on stacks of their own (IST):
//! libcore keeps data below the stack pointer.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use static_cell::StaticCell;
use volatile::VolatilePtr;
use x86_64::VirtAddr;
use x86_64::instructions::{interrupts, port::Port, tables::load_tss};
use x86_64::registers::model_specific::Msr;
use x86_64::registers::segmentation::{CS, DS, ES, SS, Segment as _};
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::idt::InterruptDescriptorTable;
use x86_64::structures::tss::TaskStateSegment;

use unisono_shmem::segment::Word;

/// Beats per second.
const BEATS_HZ: u32 = 1000;
const TIMER_VECTOR: u8 = 0x40;
const FAULT_STACK: u16 = 0;
const TIMER_STACK: u16 = 1;

/// The local APIC's registers (Intel SDM 3, 11.4.1), where they are after reset.
const APIC: usize = 0xfee0_0000;
const SPURIOUS: usize = 0xf0;
const TIMER: usize = 0x320;
const INITIAL: usize = 0x380;
const CURRENT: usize = 0x390;
const DIVIDE: usize = 0x3e0;
const BASE_MSR: u32 = 0x1b;
const ENABLED: u64 = 1 << 11;
const MASKED: u32 = 1 << 16;
const PERIODIC: u32 = 1 << 17;
const BY_ONE: u32 = 0b1011;

/// Incremented by boot.s on every tick of the timer.
#[unsafe(no_mangle)]
static BEATS: AtomicU32 = AtomicU32::new(0);
/// The heartbeat word, if any.
#[unsafe(no_mangle)]
static BEAT: AtomicPtr<u32> = AtomicPtr::new(core::ptr::null_mut());
/// The timer's ticks per second.
static RATE: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    /// boot.s: 32 entries of 16 bytes.
    static exceptions: [u8; 512];
    /// boot.s.
    static timer_entry: u8;
    /// The linker script's names for the tops of the two stacks.
    static fault_stack_top: u8;
    static timer_stack_top: u8;
}

fn register(offset: usize) -> VolatilePtr<'static, u32> {
    let address = core::ptr::with_exposed_provenance_mut(APIC.wrapping_add(offset));
    let pointer = NonNull::new(address).unwrap_or(NonNull::dangling());
    // SAFETY: the local APIC has registers of 32 bits at these offsets, mapped for all time; nobody else accesses them
    // but boot.s, which ends interrupts there.
    unsafe { VolatilePtr::new(pointer) }
}

/// Loads the tables.
pub(crate) fn prepare() {
    static TASK: StaticCell<TaskStateSegment> = StaticCell::new();
    static SEGMENTS: StaticCell<GlobalDescriptorTable> = StaticCell::new();
    static VECTORS: StaticCell<InterruptDescriptorTable> = StaticCell::new();
    let mut task = TaskStateSegment::new();
    // By value: the structure is packed.
    let [_, _, rest @ ..] = task.interrupt_stack_table;
    let [fault, timer] = [&raw const fault_stack_top, &raw const timer_stack_top].map(VirtAddr::from_ptr);
    let [a, b, c, d, e] = rest;
    task.interrupt_stack_table = [fault, timer, a, b, c, d, e];
    let task = TASK.init(task);
    let segments = SEGMENTS.init(GlobalDescriptorTable::new());
    let code = segments.append(Descriptor::kernel_code_segment());
    let data = segments.append(Descriptor::kernel_data_segment());
    let tss = segments.append(Descriptor::tss_segment(task));
    segments.load();
    // SAFETY: a code segment of 64 bits, at ring 0 as now.
    unsafe { CS::set_reg(code) };
    // SAFETY: flat data, as now.
    unsafe { SS::set_reg(data) };
    // SAFETY: flat data, as now.
    unsafe { DS::set_reg(data) };
    // SAFETY: flat data, as now.
    unsafe { ES::set_reg(data) };
    // SAFETY: the task's descriptor, loaded a moment ago.
    unsafe { load_tss(tss) };
    let vectors = VECTORS.init(InterruptDescriptorTable::new());
    set_exceptions(vectors);
    let entry = VirtAddr::from_ptr(&raw const timer_entry);
    // SAFETY: boot.s saves what it uses and returns from the interrupt.
    let options = unsafe { vectors[TIMER_VECTOR].set_handler_addr(entry) };
    // SAFETY: the task has that stack, which no other vector uses.
    unsafe { options.set_stack_index(TIMER_STACK) };
    vectors.load();
    for mask in [0x21, 0xa1] {
        // SAFETY: a PC's interrupt controllers (Intel 8259A) have their masks there: every line off.
        unsafe { Port::<u8>::new(mask).write(0xff) };
    }
}

/// Every exception's entry is boot.s's of that number, on the stack for faults.
fn set_exceptions(vectors: &mut InterruptDescriptorTable) {
    let entry =
        |number: usize| VirtAddr::from_ptr((&raw const exceptions).cast::<u8>().wrapping_add(number.wrapping_mul(16)));
    macro_rules! set {
        ($($field:ident $number:literal)*) => {$({
            // SAFETY: boot.s's entry for this exception never returns.
            let options = unsafe { vectors.$field.set_handler_addr(entry($number)) };
            // SAFETY: the task has that stack, which only exceptions use; none returns.
            unsafe { options.set_stack_index(FAULT_STACK) };
        })*};
    }
    set! {
        divide_error 0 debug 1 non_maskable_interrupt 2 breakpoint 3 overflow 4 bound_range_exceeded 5 invalid_opcode 6
        device_not_available 7 double_fault 8 invalid_tss 10 segment_not_present 11 stack_segment_fault 12
        general_protection_fault 13 page_fault 14 x87_floating_point 16 alignment_check 17 machine_check 18
        simd_floating_point 19 virtualization 20
    }
}

/// The timer, once, from as much as it can count.
pub(crate) struct Countdown;

impl Countdown {
    pub(crate) fn start() -> Self {
        let mut base = Msr::new(BASE_MSR);
        // SAFETY: every x86_64 processor has it.
        let value = unsafe { base.read() };
        // SAFETY: the APIC stays where it is, and is on.
        unsafe { base.write(value | ENABLED) };
        register(SPURIOUS).write(0x1ff);
        register(DIVIDE).write(BY_ONE);
        register(TIMER).write(MASKED);
        register(INITIAL).write(u32::MAX);
        Self
    }

    pub(crate) fn elapsed(&self) -> u32 {
        u32::MAX.wrapping_sub(register(CURRENT).read())
    }
}

pub(crate) fn set_rate(hz: u32) {
    RATE.store(hz, Relaxed);
}

/// Counts up this heartbeat word a thousand times a second, until the image ends.
pub fn start_heartbeat(heart: &'static Word) {
    BEAT.store(heart.atomic().as_ptr(), Relaxed);
    register(TIMER).write(PERIODIC | u32::from(TIMER_VECTOR));
    register(INITIAL).write(RATE.load(Relaxed).wrapping_div(BEATS_HZ).max(1000));
    interrupts::enable();
}

/// Number of heartbeats since the start.
pub fn beats() -> u32 {
    BEATS.load(Relaxed)
}
