//! From reset to `main`: the vector table, the initialization of memory, and the handlers of faults and panics.

use core::arch::global_asm;
use core::panic::PanicInfo;

use crate::{semihosting, stack};

// Written in assembly because no Rust code may run before .data and .bss hold what it expects, and because the
// floating-point unit, off after reset, must be on before the hard-float ABI is used (Armv7-M ARM, B3.2.20, CPACR).
global_asm!(
    ".section .vectors, \"a\", %progbits",
    ".word stack_top",
    ".word reset",
    ".rept 14",
    ".word fault",
    ".endr",
    ".section .text.reset, \"ax\", %progbits",
    ".global reset",
    ".type reset, %function",
    ".thumb_func",
    "reset:",
    "ldr r0, =0xE000ED88",
    "ldr r1, [r0]",
    "orr r1, r1, #0xF00000",
    "str r1, [r0]",
    "dsb",
    "isb",
    "ldr r0, =stack_bottom",
    "ldr r1, =stack_top",
    "ldr r2, ={paint}",
    "0: cmp r0, r1",
    "itt lo",
    "strlo r2, [r0], #4",
    "blo 0b",
    "ldr r0, =data_start",
    "ldr r1, =data_end",
    "ldr r2, =data_stored",
    "1: cmp r0, r1",
    "ittt lo",
    "ldrlo r3, [r2], #4",
    "strlo r3, [r0], #4",
    "blo 1b",
    "ldr r0, =bss_start",
    "ldr r1, =bss_end",
    "movs r2, #0",
    "2: cmp r0, r1",
    "itt lo",
    "strlo r2, [r0], #4",
    "blo 2b",
    "bl main",
    "b fault",
    ".size reset, . - reset",
    // The stack pointer may be what went wrong: start afresh.
    ".global fault",
    ".type fault, %function",
    ".thumb_func",
    "fault:",
    "ldr r0, =stack_top",
    "mov sp, r0",
    "b end_of_fault",
    ".size fault, . - fault",
    ".pool",
    paint = const stack::PAINT,
);

/// Every system exception ends here: hard fault, bus fault, usage fault and whatever else was never enabled.
#[unsafe(no_mangle)]
extern "C" fn end_of_fault() -> ! {
    semihosting::exit(semihosting::FAULT)
}

unsafe extern "C" {
    /// Defined nowhere. An image in which any panic can still be reached refers to it and does not link.
    safe fn a_panic_path_is_left_in_the_image() -> !;
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    a_panic_path_is_left_in_the_image()
}
