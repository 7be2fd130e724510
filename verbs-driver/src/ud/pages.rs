//! Anonymous memory of the device, in huge pages where the system has them.

use core::ffi::c_int;
use core::ptr::{self, NonNull};
use core::slice;
use std::io;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// Anonymous memory, all zeros at first.
#[derive(Debug)]
pub(super) struct AnonymousMemory {
    start: NonNull<u8>,
    bytes: usize,
    huge: bool,
}

// SAFETY: it owns private memory, which belongs to no thread.
unsafe impl Send for AnonymousMemory {}
// SAFETY: shared, it gives out addresses, and slices whose users promise that nobody writes there (`get`).
unsafe impl Sync for AnonymousMemory {}

impl AnonymousMemory {
    /// At least `bytes` bytes.
    pub(super) fn map(bytes: usize) -> io::Result<Self> {
        let whole = bytes.next_multiple_of(HUGE);
        if let Ok(start) = map(whole, libc::MAP_HUGETLB) {
            return Ok(Self { start, bytes: whole, huge: true });
        }
        let start = map(bytes, 0)?;
        // SAFETY: just mapped. Without transparent huge pages this fails, which is no matter.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(Self { start, bytes, huge: false })
    }

    pub(super) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the pages are reserved huge ones of 2 MiB.
    pub(super) const fn is_huge(&self) -> bool {
        self.huge
    }

    /// The address of `bytes` bytes from byte `at` on.
    pub(super) fn part(&self, at: usize, bytes: usize) -> Option<NonNull<u8>> {
        at.checked_add(bytes).filter(|end| *end <= self.bytes)?;
        // SAFETY: within the mapping.
        Some(unsafe { self.start.add(at) })
    }

    /// Bytes that the adapter neither reads nor writes now.
    ///
    /// # Safety
    /// No posted entry names these bytes, as long as the slice is used.
    pub(super) unsafe fn get(&self, at: usize, bytes: usize) -> Option<&[u8]> {
        let start = self.part(at, bytes)?;
        // SAFETY: `part` found the bytes within the mapping, which is initialised; the caller promises that no posted
        // entry names them, and other writers need an exclusive borrow.
        Some(unsafe { slice::from_raw_parts(start.as_ptr(), bytes) })
    }

    /// As [`get`](Self::get), to change.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn get_mut(&mut self, at: usize, bytes: usize) -> Option<&mut [u8]> {
        let start = self.part(at, bytes)?;
        // SAFETY: `part` found the bytes within the mapping, which is initialised; the caller promises that no posted
        // entry names them, and the borrow is exclusive.
        Some(unsafe { slice::from_raw_parts_mut(start.as_ptr(), bytes) })
    }
}

impl Drop for AnonymousMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody names it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn map(bytes: usize, more: c_int) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | more;
    // SAFETY: a new mapping.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
