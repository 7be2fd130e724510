//! Two processes, one forked from the other and each pinned to a processor of its own, and the memory that they share.

use core::{
    num::NonZeroUsize,
    ptr::{self, NonNull},
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use rustix::{
    process::{Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::io;

/// Bytes between words of different writers: two cache lines, since the adjacent-line prefetcher fetches them in pairs.
const APART: usize = 128;

/// Number of words before the bytes, and the space for them.
const WORDS: usize = 4;
const WORDS_BYTES: usize = 4096;

/// Polls of a word, seconds in all, after which the other process is considered lost.
const POLLS_MAX: u64 = 1 << 33;

/// Size of a huge page in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory that a process shares with those forked from it: a few words, each with one writer, and bytes.
pub(super) struct SharedMemory {
    base: NonNull<u8>,
    mapped: usize,
    huge: bool,
}

impl SharedMemory {
    /// Maps `bytes` bytes, in 2 MiB pages if available.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let mapped = (WORDS_BYTES + bytes).next_multiple_of(HUGE_PAGE);
        let (base, huge) = match map(mapped, libc::MAP_HUGETLB) {
            Ok(base) => (base, true),
            Err(_) => (map(mapped, 0)?, false),
        };
        Ok(Self { base, mapped, huge })
    }

    /// Whether its pages are of 2 MiB.
    pub(super) fn is_huge(&self) -> bool {
        self.huge
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < WORDS);
        // SAFETY: within the head, which ends before the mapping does.
        let word = unsafe { self.base.add(index * APART) };
        // SAFETY: mapped for as long as `self` lives, aligned to 128 bytes, and nothing but atomics reaches the head.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    /// The first of `bytes` bytes from `offset` on.
    fn bytes(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = WORDS_BYTES.checked_add(offset).and_then(|start| start.checked_add(bytes));
        assert!(end.is_some_and(|end| end <= self.mapped));
        // SAFETY: within the mapping, as was just checked.
        unsafe { self.base.add(WORDS_BYTES + offset) }.as_ptr()
    }

    /// Fills `bytes` bytes. No process may read or write them meanwhile: the words synchronize.
    pub(super) fn fill(&self, offset: usize, bytes: usize, value: u8) {
        // SAFETY: `bytes` vouches for the range, and this process's turn lasts until it raises its word.
        unsafe { ptr::write_bytes(self.bytes(offset, bytes), value, bytes) };
    }

    /// Copies bytes in. No process may read or write them meanwhile: the words synchronize.
    pub(super) fn put(&self, offset: usize, from: &[u8]) {
        // SAFETY: `bytes` vouches for the range; private memory does not overlap it; it is this process's turn.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.bytes(offset, from.len()), from.len()) };
    }

    /// Copies bytes out. No process may write them meanwhile: the words synchronize.
    pub(super) fn take(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: `bytes` vouches for the range; private memory does not overlap it; it is this process's turn.
        unsafe { ptr::copy_nonoverlapping(self.bytes(offset, into.len()), into.as_mut_ptr(), into.len()) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; words and pointers into it do not outlive `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

fn map(bytes: usize, more: libc::c_int) -> io::Result<NonNull<u8>> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS | more);
    // SAFETY: a new mapping where the kernel wants it; no memory that is in use changes.
    let base = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("the system mapped memory at address zero"))
}

/// One of the two processes.
pub(super) struct ProcessPair<'s> {
    /// The shared memory.
    pub(super) shared: &'s SharedMemory,
    /// The forked process; `None` in the forked process itself.
    other: Option<Pid>,
    count: u32,
    chunks: u32,
}

impl<'s> ProcessPair<'s> {
    /// Forks, pins both processes and runs `work` in each: the forked process then exits, the other one returns the
    /// result.
    ///
    /// # Errors
    /// There is only one processor, a system call failed, or one of the processes failed.
    pub(super) fn work<T>(shared: &'s SharedMemory, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let [mine, its] = processors()?;
        // SAFETY: this process has one thread, so that no lock is held and the copy may do whatever the original may.
        let forked = unsafe { libc::fork() };
        let mut pair = Self { shared, other: Pid::from_raw(forked), count: 0, chunks: 0 };
        match (forked, pair.other) {
            (0, _) => {
                let end = set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from);
                let end = end.and_then(|()| pin(its)).and_then(|()| work(&mut pair));
                // SAFETY: ends this process at once: what the original has buffered or registered is not run twice.
                unsafe { libc::_exit(libc::c_int::from(end.is_err())) }
            }
            (_, Some(other)) => {
                let end = pin(mine).and_then(|()| work(&mut pair));
                if end.is_err() {
                    kill_process(other, Signal::KILL)?;
                }
                let status = waitpid(Some(other), WaitOptions::empty())?;
                let end = end?;
                match status {
                    Some((_, status)) if status.exit_status() == Some(0) => Ok(end),
                    status => Err(io::Error::other(format!("the second process ended with {status:?}"))),
                }
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether this process forked the other.
    pub(super) fn is_first(&self) -> bool {
        self.other.is_some()
    }

    /// The symmetric barrier: each process increments its own word and waits for the other's.
    pub(super) fn barrier(&mut self) -> io::Result<()> {
        self.raise();
        self.wait_for_other()
    }

    /// One round trip of a cache line: the first process increments its word, the second answers by incrementing its
    /// own.
    pub(super) fn round_trip(&mut self) -> io::Result<()> {
        if self.is_first() {
            return self.barrier();
        }
        let next = self.count.wrapping_add(1);
        until(self.word(true), |word| word == next)?;
        self.raise();
        Ok(())
    }

    fn raise(&mut self) {
        self.count = self.count.wrapping_add(1);
        self.word(false).store(self.count, Release);
    }

    fn wait_for_other(&self) -> io::Result<()> {
        until(self.word(true), |word| word.wrapping_sub(self.count).cast_signed() >= 0)
    }

    fn word(&self, other: bool) -> &'s AtomicU32 {
        self.shared.word(usize::from(self.is_first() == other))
    }

    /// Copies a message through the shared bytes in chunks, with `slots` buffers used in turn: the second process sends
    /// `message`, the first receives into `message`.
    pub(super) fn two_copy(&mut self, message: &mut [u8], chunk: NonZeroUsize, slots: u32) -> io::Result<()> {
        let (shared, first) = (self.shared, self.is_first());
        let [filled, emptied] = [shared.word(2), shared.word(3)];
        for piece in message.chunks_mut(chunk.get()) {
            let number = self.chunks;
            let offset = (number % slots) as usize * chunk.get();
            self.chunks = number.wrapping_add(1);
            if first {
                until(filled, |filled| filled != number)?;
                shared.take(offset, piece);
                emptied.store(self.chunks, Release);
            } else {
                until(emptied, |emptied| number.wrapping_sub(emptied) < slots)?;
                shared.put(offset, piece);
                filled.store(self.chunks, Release);
            }
        }
        Ok(())
    }

    /// Resets the buffers of `two_copy`, before a use with another number of them.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.barrier()?;
        self.shared.word(if self.is_first() { 3 } else { 2 }).store(0, Relaxed);
        self.chunks = 0;
        self.barrier()
    }

    /// In the first process: reads memory of the second, which has `there` at the same address. Returns true in the
    /// second.
    pub(super) fn read(&self, there: &[u8], into: &mut [u8]) -> bool {
        let Some(other) = self.other else { return true };
        let bytes = into.len().min(there.len());
        let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: bytes };
        let there = libc::iovec { iov_base: there.as_ptr().cast_mut().cast(), iov_len: bytes };
        // SAFETY: `here` names `bytes` writable bytes that are borrowed for the call; the kernel checks `there`, which
        // is in another process and only read.
        let read = unsafe { libc::process_vm_readv(other.as_raw_pid(), &raw const here, 1, &raw const there, 1, 0) };
        usize::try_from(read) == Ok(bytes)
    }
}

/// Spins until the condition on the word holds.
fn until(word: &AtomicU32, right: impl Fn(u32) -> bool) -> io::Result<()> {
    for _ in 0..POLLS_MAX {
        if right(word.load(Acquire)) {
            return Ok(());
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the other process does not answer"))
}

/// The processors that `unisono run -n 2 --pin` assigns first.
fn processors() -> io::Result<[usize; 2]> {
    let allowed = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    match processors.get(processors.len() / 2) {
        Some(second) if processors.len() > 1 => Ok([processors[0], *second]),
        _ => Err(io::Error::other("the measurement needs two processors")),
    }
}

fn pin(processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}
