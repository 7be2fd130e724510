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
        // SAFETY: the result is the left operand; both are valid for `count` elements, and the right one is the same or
        // disjoint: the caller promises all of it.
        unsafe { in_place::<T>(into, right, count, f) }
    } else if right == into {
        // SAFETY: the result is the right operand; both are valid for `count` elements, and the left one is the same or
        // disjoint: the caller promises all of it.
        unsafe { in_place::<T>(into, left, count, |r, l| f(l, r)) }
    } else {
        // SAFETY: the result is none of the operands, so that it is disjoint from both; all are valid for `count`
        // elements: the caller promises it.
        unsafe { out_of_place::<T>(left, right, into, count, f) }
    }
}

/// into = f(into, from).
///
/// # Safety
/// As of [`Kernel`](super::Kernel).
#[inline(always)]
unsafe fn in_place<T: Copy>(into: *mut u8, from: *const u8, count: usize, f: impl Fn(T, T) -> T) {
    for at in 0..count {
        // SAFETY: element `at` is one of the `count` of the result, which the caller answers for.
        let to = unsafe { into.cast::<T>().add(at) };
        // SAFETY: element `at` is one of the `count` of the operand, which the caller answers for.
        let from = unsafe { from.cast::<T>().add(at) };
        // SAFETY: the caller says that the result's elements, which are an operand, are readable; any alignment will
        // do.
        let own = unsafe { to.read_unaligned() };
        // SAFETY: the caller says that the operand's elements are readable; any alignment will do.
        let other = unsafe { from.read_unaligned() };
        // SAFETY: the caller says that the result's elements are writable; any alignment will do.
        unsafe { to.write_unaligned(f(own, other)) };
    }
}

/// into = f(left, right).
///
/// # Safety
/// As of [`Kernel`](super::Kernel).
#[inline(always)]
unsafe fn out_of_place<T: Copy>(left: *const u8, right: *const u8, into: *mut u8, count: usize, f: impl Fn(T, T) -> T) {
    for at in 0..count {
        // SAFETY: element `at` is one of the `count` of the left operand, which the caller answers for.
        let l = unsafe { left.cast::<T>().add(at) };
        // SAFETY: element `at` is one of the `count` of the right operand, which the caller answers for.
        let r = unsafe { right.cast::<T>().add(at) };
        // SAFETY: element `at` is one of the `count` of the result, which the caller answers for.
        let to = unsafe { into.cast::<T>().add(at) };
        // SAFETY: the caller says that the left operand's elements are readable; any alignment will do.
        let l = unsafe { l.read_unaligned() };
        // SAFETY: the caller says that the right operand's elements are readable; any alignment will do.
        let r = unsafe { r.read_unaligned() };
        // SAFETY: the caller says that the result's elements are writable; any alignment will do.
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
        // SAFETY: `at` is less than `count`, the elements of the left operand, which the caller answers for.
        let from = unsafe { left.cast::<T>().add(at) };
        // SAFETY: the `bytes` bytes of the next elements are readable, by the caller's promise, and the array on the
        // stack is as long.
        unsafe { from.cast::<u8>().copy_to_nonoverlapping(narrow_left.as_mut_ptr().cast(), bytes) };
        // SAFETY: `at` is less than `count`, the elements of the right operand, which the caller answers for.
        let from = unsafe { right.cast::<T>().add(at) };
        // SAFETY: the `bytes` bytes of the next elements are readable, by the caller's promise, and the array on the
        // stack is as long.
        unsafe { from.cast::<u8>().copy_to_nonoverlapping(narrow_right.as_mut_ptr().cast(), bytes) };
        widen(&narrow_left, &mut l);
        widen(&narrow_right, &mut r);
        for (l, r) in l.iter_mut().zip(&r) {
            *l = f(*l, *r);
        }
        narrow(&l, &mut narrow_left);
        // SAFETY: `at` is less than `count`, the elements of the result, which the caller answers for.
        let to = unsafe { into.cast::<T>().add(at) };
        // SAFETY: the `bytes` bytes of the next elements are writable, by the caller's promise, and the array on the
        // stack is as long.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(narrow_left.as_ptr().cast(), bytes) };
        at += WIDE;
    }
}
