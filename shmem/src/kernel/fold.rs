//! The loop of all kernels.

use core::mem::size_of;

/// Bytes of a block.
const BLOCK: usize = 128;

/// Combines element by element with `f`.
///
/// # Safety
/// As of [`Kernel`](super::Kernel).
#[inline(always)]
pub(super) unsafe fn each<T: Copy>(
    left: *const u8,
    right: *const u8,
    into: *mut u8,
    count: usize,
    f: impl Fn(T, T) -> T,
) {
    let whole = match size_of::<T>() {
        // SAFETY: as this function's caller promises.
        1 => unsafe { blocks::<T, { BLOCK }>(left, right, into, count, &f) },
        // SAFETY: as above.
        2 => unsafe { blocks::<T, { BLOCK / 2 }>(left, right, into, count, &f) },
        // SAFETY: as above.
        4 => unsafe { blocks::<T, { BLOCK / 4 }>(left, right, into, count, &f) },
        // SAFETY: as above.
        _ => unsafe { blocks::<T, { BLOCK / 8 }>(left, right, into, count, &f) },
    };
    for at in whole..count {
        // SAFETY: element `at` is one of `count`, for which the caller answers; the same holds for each one below.
        let l = unsafe { left.cast::<T>().add(at) };
        // SAFETY: as above.
        let r = unsafe { right.cast::<T>().add(at) };
        // SAFETY: as above.
        let to = unsafe { into.cast::<T>().add(at) };
        // SAFETY: readable, for any alignment.
        let l = unsafe { l.read_unaligned() };
        // SAFETY: readable, for any alignment.
        let r = unsafe { r.read_unaligned() };
        // SAFETY: writable, for any alignment.
        unsafe { to.write_unaligned(f(l, r)) };
    }
}

/// Combines whole blocks of `N`; returns how many elements that was.
///
/// # Safety
/// As of [`Kernel`](super::Kernel).
#[inline(always)]
unsafe fn blocks<T: Copy, const N: usize>(
    left: *const u8,
    right: *const u8,
    into: *mut u8,
    count: usize,
    f: &impl Fn(T, T) -> T,
) -> usize {
    for block in 0..count / N {
        // SAFETY: blocks of `N` elements up to `count / N` lie within `count`, for which the caller answers.
        let l = unsafe { left.cast::<[T; N]>().add(block) };
        // SAFETY: as above.
        let r = unsafe { right.cast::<[T; N]>().add(block) };
        // SAFETY: as above.
        let to = unsafe { into.cast::<[T; N]>().add(block) };
        // SAFETY: readable, for any alignment.
        let mut l = unsafe { l.read_unaligned() };
        // SAFETY: readable, for any alignment.
        let r = unsafe { r.read_unaligned() };
        for (l, r) in l.iter_mut().zip(r) {
            *l = f(*l, r);
        }
        // SAFETY: writable, for any alignment; the operands have been read.
        unsafe { to.write_unaligned(l) };
    }
    count / N * N
}

/// Elements of half precision that are widened together.
const WIDE: usize = 64;

/// Combines elements of half precision, widened to single.
///
/// # Safety
/// As of [`Kernel`](super::Kernel).
#[inline(always)]
pub(super) unsafe fn widened<T: Copy + Default>(
    left: *const u8,
    right: *const u8,
    into: *mut u8,
    count: usize,
    widen: impl Fn(&[T], &mut [f32]),
    narrow: impl Fn(&[f32], &mut [T]),
    f: impl Fn(f32, f32) -> f32,
) {
    let mut at = 0;
    while at < count {
        let bytes = (count - at).min(WIDE) * size_of::<T>();
        let (mut narrow_left, mut narrow_right) = ([T::default(); WIDE], [T::default(); WIDE]);
        let (mut l, mut r) = ([0.0; WIDE], [0.0; WIDE]);
        // SAFETY: `at` is one of `count` elements, for which the caller answers; the same holds for each one below.
        let from = unsafe { left.cast::<T>().add(at) };
        // SAFETY: so many bytes are readable, and the array on the stack is as long.
        unsafe { from.cast::<u8>().copy_to_nonoverlapping(narrow_left.as_mut_ptr().cast(), bytes) };
        // SAFETY: as above.
        let from = unsafe { right.cast::<T>().add(at) };
        // SAFETY: as above.
        unsafe { from.cast::<u8>().copy_to_nonoverlapping(narrow_right.as_mut_ptr().cast(), bytes) };
        widen(&narrow_left, &mut l);
        widen(&narrow_right, &mut r);
        for (l, r) in l.iter_mut().zip(r) {
            *l = f(*l, r);
        }
        narrow(&l, &mut narrow_left);
        // SAFETY: as above.
        let to = unsafe { into.cast::<T>().add(at) };
        // SAFETY: so many bytes are writable, and the array on the stack is as long.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(narrow_left.as_ptr().cast(), bytes) };
        at += WIDE;
    }
}
