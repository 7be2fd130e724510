//! Memory that users lend to the device.

use core::ptr::NonNull;

/// A piece of lent memory, and what the adapter calls it.
///
/// # Safety
/// Whoever makes one promises that its bytes are valid for reads and writes as long as it is used, that the adapter has them
/// registered under its key meanwhile, and that nobody has a reference to them which a copy would break.
pub unsafe trait Lent: Copy {
    /// Its first byte.
    fn start(self) -> NonNull<u8>;
    /// Its length.
    fn bytes(self) -> usize;
    /// What the adapter calls it (lkey); `None` for memory that is not registered, which is copied before it leaves.
    fn key(self) -> Option<u32>;
}
