//! The board's PSRAM, which the emulator takes from a file that processes have mapped (`-M
//! mps2-an386,memory-backend=…`).

use core::ptr::NonNull;

use unisono_shmem::segment::Segment;

unsafe extern "C" {
    /// Where it begins and ends: the linker script's names for addresses.
    static unisono_shared_start: u8;
    static unisono_shared_end: u8;
}

/// All of it.
pub fn segment() -> Segment<'static> {
    let (start, end) = (&raw const unisono_shared_start, &raw const unisono_shared_end);
    let base = NonNull::new(start.cast_mut()).unwrap_or(NonNull::dangling());
    // SAFETY: the linker script keeps these addresses for nothing else; the board has memory there for all time,
    // uncached, and a segment is the only thing made of it.
    unsafe { Segment::new(base, end.addr().wrapping_sub(start.addr())) }
}
