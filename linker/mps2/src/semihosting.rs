//! Output and exit through a debugger or emulator: Arm semihosting, document 2.0, operations SYS_WRITEC and
//! SYS_EXIT_EXTENDED.

use core::arch::asm;

use crate::stack;

/// Status of a run that proved what it had to prove.
pub const PASSED: u32 = 0;
/// Status of a run that ended and did not prove it.
pub const FAILED: u32 = 1;
/// Status of a run that ended in a processor fault.
pub const FAULT: u32 = 2;

const WRITE_CHARACTER: u32 = 0x03;
const EXIT_EXTENDED: u32 = 0x20;
const APPLICATION_EXIT: u32 = 0x2_0026;

/// Asks the debugger. The answer is not looked at.
fn call(operation: u32, argument: *const u32) {
    // SAFETY: the breakpoint's immediate 0xAB makes the debugger carry out `operation` on what `argument` points to,
    // which both callers keep valid for reading during the call. It changes r0, named as clobbered, and no memory of
    // ours.
    unsafe { asm!("bkpt #0xAB", inout("r0") operation => _, in("r1") argument, options(nostack)) }
}

/// Writes text as it is.
pub fn write(text: &[u8]) {
    for byte in text {
        call(WRITE_CHARACTER, core::ptr::from_ref(&u32::from(*byte)));
    }
}

/// Writes `name value`, one to a line, the value in decimal.
pub fn write_value(name: &[u8], value: u32) {
    let mut digits = [0_u8; 10];
    let mut rest = value;
    let mut used = 0_usize;
    for digit in digits.iter_mut().rev() {
        *digit = b'0'.wrapping_add((rest % 10) as u8);
        rest /= 10;
        used = used.saturating_add(1);
        if rest == 0 {
            break;
        }
    }
    write(name);
    write(b" ");
    write(digits.get(digits.len().saturating_sub(used)..).unwrap_or(&[]));
    write(b"\n");
}

/// Ends the run with this status.
pub fn exit(status: u32) -> ! {
    let block = [APPLICATION_EXIT, status];
    loop {
        call(EXIT_EXTENDED, block.as_ptr());
    }
}

/// Ends the run: prints the depth of the stack, or the error.
pub fn end(result: Result<(), &[u8]>) -> ! {
    match result {
        Ok(()) => {
            let (bytes, untouched) = stack::depth();
            write_value(b"stack_used", bytes.wrapping_sub(untouched));
            exit(PASSED)
        }
        Err(name) => {
            write(name);
            exit(FAILED)
        }
    }
}
