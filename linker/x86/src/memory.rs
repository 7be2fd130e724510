//! The memory functions that compiled code calls (memcpy and so on), and the mapping of physical memory. In assembly:
//! the compiler might turn a loop into a call of the function that contains it.

use core::arch::asm;
use core::ptr::NonNull;

/// Addresses below this are mapped onto themselves by boot.s.
const MAPPED: u64 = 4 << 30;
/// Where higher addresses are mapped: the second entry of the page map.
const WINDOW: usize = 512 << 30;
const LARGE_PAGE: u64 = 2 << 20;
/// Present, writable, a large page.
const TABLE: u64 = 0b11;
const LARGE: u64 = 1 << 7 | TABLE;

/// A page table. Written before anybody uses the addresses it maps.
#[repr(C, align(4096))]
struct Table([core::sync::atomic::AtomicU64; 512]);

static POINTERS: Table = Table([const { core::sync::atomic::AtomicU64::new(0) }; 512]);
static DIRECTORY: Table = Table([const { core::sync::atomic::AtomicU64::new(0) }; 512]);

unsafe extern "C" {
    /// boot.s: the processor's page map.
    static page_map: Table;
}

/// Maps `bytes` bytes of physical memory. Above 4 GiB there is one window of 1 GiB, for the first caller.
pub(crate) fn address_of(physical: u64, bytes: u64) -> Option<NonNull<u8>> {
    use core::sync::atomic::Ordering::Relaxed;
    let end = physical.checked_add(bytes)?;
    if end <= MAPPED {
        return NonNull::new(core::ptr::with_exposed_provenance_mut(usize::try_from(physical).ok()?));
    }
    let (first, offset) = (physical & !LARGE_PAGE.wrapping_sub(1), physical % LARGE_PAGE);
    if end.wrapping_sub(first) > LARGE_PAGE.wrapping_mul(512) {
        return None;
    }
    let [pointer, ..] = &POINTERS.0;
    if pointer.load(Relaxed) == 0 {
        for (entry, index) in DIRECTORY.0.iter().zip(0_u64..) {
            entry.store(first.wrapping_add(index.wrapping_mul(LARGE_PAGE)) | LARGE, Relaxed);
        }
        // Tables lie below 4 GiB, where addresses are physical.
        pointer.store((&raw const DIRECTORY).addr() as u64 | TABLE, Relaxed);
        // SAFETY: boot.s defines it, page-sized and aligned, and it is the map that the processor walks. Its entries
        // are words that this code alone writes; the one that is written maps addresses that nobody has used.
        let map = unsafe { &page_map };
        let [_, second, ..] = &map.0;
        second.store((&raw const POINTERS).addr() as u64 | TABLE, Relaxed);
        x86_64::instructions::tlb::flush_all();
    } else {
        let [mapped, ..] = &DIRECTORY.0;
        if mapped.load(Relaxed) != first | LARGE {
            return None;
        }
    }
    NonNull::new(core::ptr::with_exposed_provenance_mut(WINDOW.checked_add(usize::try_from(offset).ok()?)?))
}

/// C's memcpy.
///
/// # Safety
/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the caller promises readable bytes at `from` and writable ones at `to`, which do not overlap; the
    // direction flag is clear, as the ABI has it.
    unsafe {
        asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) bytes & 7, inout("rcx") bytes >> 3 => _,
            inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
    to
}

/// C's memmove.
///
/// # Safety
/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= bytes {
        // SAFETY: the caller promises readable bytes at `from` and writable ones at `to`; copied forward, each is read
        // before it is written.
        return unsafe { memcpy(to, from, bytes) };
    }
    let (last_to, last_from) = (to.wrapping_add(bytes).wrapping_sub(1), from.wrapping_add(bytes).wrapping_sub(1));
    // SAFETY: the caller promises readable bytes at `from` and writable ones at `to`; backwards each is read before it
    // is written, and the direction flag is clear again.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") bytes => _, inout("rdi") last_to => _, inout("rsi") last_from => _,
            options(nostack));
    }
    to
}

/// C's memset.
///
/// # Safety
/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
    // SAFETY: the caller promises writable bytes at `to`; the direction flag is clear, as the ABI has it.
    unsafe {
        asm!("rep stosb", inout("rcx") bytes => _, inout("rdi") to => _, in("al") value.to_le_bytes()[0],
            options(nostack, preserves_flags));
    }
    to
}

/// C's memcmp.
///
/// # Safety
/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    let (mut l, mut r): (u32, u32) = (0, 0);
    // SAFETY: the caller promises readable bytes on both sides. Of no bytes the flags are those of the comparison of
    // `bytes` with itself: equal. The pointers are behind the bytes that decided.
    unsafe {
        asm!("cmp rcx, rcx", "repe cmpsb", "je 2f", "movzx {l:e}, byte ptr [rsi - 1]", "movzx {r:e}, byte ptr [rdi - 1]", "2:",
            l = inout(reg) l, r = inout(reg) r, inout("rcx") bytes => _, inout("rsi") left => _, inout("rdi") right => _,
            options(nostack, readonly));
    }
    l.wrapping_sub(r).cast_signed()
}

/// BSD's bcmp.
///
/// # Safety
/// As of memcmp.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    // SAFETY: the caller promises readable bytes on both sides.
    unsafe { memcmp(left, right, bytes) }
}

/// C's strlen.
///
/// # Safety
/// C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let left: usize;
    // SAFETY: the caller promises readable bytes up to the zero that ends them; the direction flag is clear, as the ABI
    // has it.
    unsafe {
        asm!("repne scasb", inout("rcx") usize::MAX => left, inout("rdi") text => _, in("al") 0_u8,
            options(nostack, readonly));
    }
    // Counted down once for each byte, the zero included.
    (!left).wrapping_sub(1)
}
