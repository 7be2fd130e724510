//! Measures the deepest use of the stack.

/// The word that `reset` fills the stack with.
pub const PAINT: u32 = 0x7A1E_57AC;

unsafe extern "C" {
    /// Where the stack ends: the linker script's name for an address.
    static stack_bottom: u32;
    /// Where it starts.
    static stack_top: u32;
}

/// Bytes of the stack in all, and those that nothing has ever been written to.
pub fn depth() -> (u32, u32) {
    let (bottom, top) = (&raw const stack_bottom, &raw const stack_top);
    let bytes = top.addr().wrapping_sub(bottom.addr());
    let mut untouched = 0_usize;
    while untouched < bytes {
        let word = bottom.wrapping_byte_add(untouched);
        // SAFETY: the linker script keeps the words from `stack_bottom` to `stack_top` for the stack, all of RAM and
        // aligned; `untouched` is less than their bytes. Volatile, because the compiler knows of no object there.
        if unsafe { word.read_volatile() } != PAINT {
            break;
        }
        untouched = untouched.wrapping_add(size_of::<u32>());
    }
    (bytes as u32, untouched as u32)
}
