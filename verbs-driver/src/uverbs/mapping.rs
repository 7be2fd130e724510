//! Queues that the kernel maps from the device's file.

use core::ptr::{self, NonNull};
use std::io;
use std::os::fd::RawFd;

use crate::queue_memory::{Mapped, QueueAddresses};
use crate::rxe::ring::{HEADER, Shape};
use crate::rxe::{DoorbellCall, SyscallDoorbell};
use crate::uverbs::command::wide;

/// A mapping of the device's file.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

impl Map {
    /// Maps the place that the kernel answered: offset, size and padding (`mminfo`).
    pub(crate) fn new(file: RawFd, [low, high, size, _]: [u32; 4]) -> io::Result<Self> {
        let (offset, bytes) = (libc::off_t::try_from(wide(low, high)).map_err(io::Error::other)?, size as usize);
        // SAFETY: a new mapping of what the kernel offers at this place.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file, offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, bytes })
    }

    /// A word of the header.
    fn word(&self, at: usize) -> io::Result<NonNull<u32>> {
        if self.bytes < HEADER || at > HEADER - 4 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: within the header.
        Ok(unsafe { self.start.add(at & !3) }.cast())
    }

    pub(crate) fn shape(&self) -> io::Result<Shape> {
        let (log2, mask) = (self.word(0)?, self.word(4)?);
        // SAFETY: mapped, aligned, and written by nobody any more.
        let header = [unsafe { log2.read_volatile() }, unsafe { mask.read_volatile() }];
        Shape::new(header, self.bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the queues that use it keep it alive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: mappings belong to no thread; everything else are numbers.
unsafe impl Send for Map {}
// SAFETY: shared use reads where it lies, and words of its header that the kernel wrote and leaves alone.
unsafe impl Sync for Map {}

/// The error of queues whose size is not as requested.
pub(crate) fn wrong_size() -> io::Error {
    io::Error::other("the kernel created queues of a different size than requested")
}

/// The queue in this mapping. `indices`: the driver's, the kernel's.
///
/// # Safety
/// The mapping outlives the queue, and nobody else uses it but the kernel. The code that gets the queue names no memory in
/// entries but such as the device may read or write.
pub(crate) unsafe fn mapped<C: DoorbellCall>(
    map: &Map,
    shape: Shape,
    indices: [usize; 2],
    bell: C,
) -> io::Result<SyscallDoorbell<Mapped, C>> {
    let [ours, theirs] = indices;
    let index = map.word(ours)?;
    // SAFETY: within the mapping, as its shape was checked against it.
    let entries = unsafe { map.start.add(HEADER) };
    let place = QueueAddresses {
        entries,
        bytes: shape.bytes(),
        records: [index, index],
        progress: map.word(theirs)?,
        registers: NonNull::dangling(),
        register_bytes: 0,
    };
    // SAFETY: mapped and used by nobody else, as the caller promises, who answers for the memory in entries, too.
    let mapped = unsafe { Mapped::new(place) };
    Ok(SyscallDoorbell::new(mapped.ok_or(io::ErrorKind::InvalidData)?, bell))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rxe::ring::INDICES;

    #[test]
    fn words_of_the_header_are_apart() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        let map = Map { start: NonNull::new(start.cast()).unwrap(), bytes: 4096 };
        let [put, taken] = INDICES;
        for (at, value) in [(0, 6), (4, 15), (put, 3), (taken, 2)] {
            // SAFETY: within the mapping.
            unsafe { map.word(at).unwrap().write_volatile(value) };
        }
        assert_eq!(map.shape().unwrap(), Shape { entry: 64, count: 16 });
        // SAFETY: both words lie within the mapping's header.
        let read = [put, taken].map(|at| unsafe { map.word(at).unwrap().read_volatile() });
        assert_eq!(read, [3, 2]);
        assert_eq!(map.word(put).unwrap().addr().get() - map.start.addr().get(), 128);
    }
}
