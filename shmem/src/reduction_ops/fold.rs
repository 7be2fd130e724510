//! The loops of all kernels: one for each position of the result, so that the compiler can rule out overlaps and
//! vectorise.

use core::mem::size_of;

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
    if left == into {
        // SAFETY: as this function's caller promises.
        unsafe { in_place::<T>(into, right, count, f) }
    } else if right == into {
        // SAFETY: as this function's caller promises.
        unsafe { in_place::<T>(into, left, count, |r, l| f(l, r)) }
    } else {
        // SAFETY: as this function's caller promises.
        unsafe { apart::<T>(left, right, into, count, f) }
    }
}

/// into = f(into, from).
///
/// # Safety
/// As of [`Kernel`](super::Kernel).
#[inline(always)]
unsafe fn in_place<T: Copy>(into: *mut u8, from: *const u8, count: usize, f: impl Fn(T, T) -> T) {
    for at in 0..count {
        // SAFETY: element `at` is one of `count`, for which the caller answers; the same holds for each one below.
        let to = unsafe { into.cast::<T>().add(at) };
        // SAFETY: as above.
        let from = unsafe { from.cast::<T>().add(at) };
        // SAFETY: readable, for any alignment.
        let own = unsafe { to.read_unaligned() };
        // SAFETY: readable, for any alignment.
        let other = unsafe { from.read_unaligned() };
        // SAFETY: writable, for any alignment.
        unsafe { to.write_unaligned(f(own, other)) };
    }
}

/// into = f(left, right).
///
/// # Safety
/// As of [`Kernel`](super::Kernel).
#[inline(always)]
unsafe fn apart<T: Copy>(left: *const u8, right: *const u8, into: *mut u8, count: usize, f: impl Fn(T, T) -> T) {
    for at in 0..count {
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

/// Elements of half precision that are widened at a time.
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
        for (l, r) in l.iter_mut().zip(&r) {
            *l = f(*l, *r);
        }
        narrow(&l, &mut narrow_left);
        // SAFETY: as above.
        let to = unsafe { into.cast::<T>().add(at) };
        // SAFETY: so many bytes are writable, and the array on the stack is as long.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(narrow_left.as_ptr().cast(), bytes) };
        at += WIDE;
    }
}
