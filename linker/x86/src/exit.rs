//! Ends an image with an exit code for the emulator (QEMU's `isa-debug-exit`, whose process then exits with twice that
//! and one).

use core::panic::PanicInfo;

use x86_64::instructions::{hlt, interrupts, port::Port};

use crate::say;

/// The image has succeeded.
pub const DONE: u8 = 0x10;
/// The image has failed and reported it.
pub const FAILED: u8 = 0x11;
/// It panicked.
pub const PANICKED: u8 = 0x12;
/// The processor faulted.
pub const FAULTED: u8 = 0x13;

/// The emulator's exit status for a code. Never 0, nor 1, its status for errors of its own.
pub const fn status(code: u8) -> i32 {
    (code as i32) << 1 | 1
}

/// Ends the image.
pub fn exit(code: u8) -> ! {
    // SAFETY: the emulator's device, or nothing, is there.
    unsafe { Port::<u8>::new(0xf4).write(code) };
    interrupts::disable();
    loop {
        hlt();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say!("panic: {info}");
    exit(PANICKED)
}

/// Every exception of the processor ends here (boot.s).
#[unsafe(no_mangle)]
extern "C" fn trap(number: u64, error: u64, at: u64, address: u64) -> ! {
    say!("fault {number}, error {error:#x}, at {at:#x}, address {address:#x}");
    exit(FAULTED)
}

/// libcore, compiled to unwind elsewhere, refers to it. Never called.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
