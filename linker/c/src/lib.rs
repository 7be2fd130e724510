//! The protocol core for C (`include/unisono_core.h`): one endpoint over a table of device functions and lent memory. It
//! allocates nothing, calls no operating system, and needs `memcpy`, `memmove`, `memset` and `memcmp` alone, as C
//! compilers do.
//!
//! - [`arena`]: the records in the lent memory.
//! - [`device`]: the program's functions as a device, and its buffers.
//! - [`exports`]: the functions of the header.

#![no_std]

mod arena;
mod device;
pub mod exports;

/// The core has no panic path (its lints), and neither has this library.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
