//! Packing and unpacking through raw pointers: the only file of this package that touches payload.

use core::ops::ControlFlow;
use core::ptr::{NonNull, copy};

use crate::datatype::Datatype;
use crate::node::Run;

/// Copies `count` blocks of `N` bytes.
///
/// # Safety
/// As of [`blocks`].
#[inline]
unsafe fn fixed<const N: usize>(from: *const u8, step: isize, to: *mut u8, to_step: isize, count: usize) {
    let (mut from, mut to) = (from, to);
    for _ in 0..count {
        // SAFETY: the caller promises that each block is readable and writable.
        unsafe { copy(from.cast::<[u8; N]>(), to.cast::<[u8; N]>(), 1) };
        (from, to) = (from.wrapping_offset(step), to.wrapping_offset(to_step));
    }
}

/// Copies `count` blocks of `bytes` bytes, `step` bytes apart in the source and `to_step` in the target.
///
/// # Safety
/// Each block is readable in the source and writable in the target.
#[inline]
unsafe fn blocks(bytes: usize, from: *const u8, step: isize, to: *mut u8, to_step: isize, count: usize) {
    macro_rules! by_length {
        ($($length:literal)*) => {
            match bytes {
                // SAFETY: the same blocks under the caller's promise.
                $($length => unsafe { fixed::<$length>(from, step, to, to_step, count) },)*
                _ => {
                    let (mut from, mut to) = (from, to);
                    for _ in 0..count {
                        // SAFETY: the caller promises that each block is readable and writable.
                        unsafe { copy(from, to, bytes) };
                        (from, to) = (from.wrapping_offset(step), to.wrapping_offset(to_step));
                    }
                }
            }
        };
    }
    by_length!(1 2 4 8 12 16 24 32 48 64)
}

impl Datatype {
    /// Offset in the buffer of its bytes from the `offset`th on, if there are `bytes` of them and they are adjacent.
    pub fn adjacent(&self, offset: usize, bytes: usize) -> Option<isize> {
        let mut first = None;
        let found = self.for_each_run(offset, bytes, |run| {
            first = Some(run);
            ControlFlow::Break(())
        });
        first.filter(|run| found == bytes && run.bytes >= bytes).map(|run| run.offset)
    }

    /// Packs: copies its bytes from the `offset`th on, `bytes` of them or as many as there are, to `to`. Returns how
    /// many.
    ///
    /// # Safety
    /// All bytes that it names relative to `buffer` are readable, and `bytes` bytes at `to` are writable. Where they
    /// overlap, the contents are unspecified.
    pub unsafe fn gather(&self, buffer: NonNull<u8>, offset: usize, to: NonNull<u8>, bytes: usize) -> usize {
        let mut target = to.as_ptr();
        self.for_each_run(offset, bytes, |Run { offset, bytes, count, stride }| {
            let from = buffer.as_ptr().wrapping_offset(offset);
            // SAFETY: the caller promises that these blocks are readable and that as many bytes are writable.
            unsafe { blocks(bytes, from, stride, target, bytes as isize, count) };
            target = target.wrapping_add(bytes.wrapping_mul(count));
            ControlFlow::Continue(())
        })
    }

    /// Unpacks: copies `bytes` bytes from `from`, or as many as there are, to its bytes from the `offset`th on. Returns
    /// how many.
    ///
    /// # Safety
    /// All bytes that it names relative to `buffer` are writable, and `bytes` bytes at `from` are readable. Where they
    /// overlap, the contents are unspecified.
    pub unsafe fn scatter(&self, from: NonNull<u8>, buffer: NonNull<u8>, offset: usize, bytes: usize) -> usize {
        let mut source = from.as_ptr().cast_const();
        self.for_each_run(offset, bytes, |Run { offset, bytes, count, stride }| {
            let to = buffer.as_ptr().wrapping_offset(offset);
            // SAFETY: the caller promises that these blocks are writable and that as many bytes are readable.
            unsafe { blocks(bytes, source, bytes as isize, to, stride, count) };
            source = source.wrapping_add(bytes.wrapping_mul(count));
            ControlFlow::Continue(())
        })
    }
}
