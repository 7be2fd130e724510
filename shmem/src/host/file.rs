//! A segment's file: anonymous memory (`memfd`), created by one process and passed to the others as a descriptor. The
//! kernel frees it when the last process that has it ends, so no crash leaves anything behind.
//!
//! It is sealed against truncation, and its areas are allocated at creation: too little memory is an error then, not a
//! SIGBUS later.

use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::host::liveness::LivenessLocks;
use crate::host::pages::{HUGE, NoReservedPages, NoTransparentPages, SegmentPages};
use crate::layout::{LayoutError, SegmentLayout};
use crate::segment::Segment;

/// Its name in `/proc/PID/maps`.
const NAME: &str = "unisono";
/// Seals that a process requires when it opens a segment.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Why a segment could not be created or opened.
#[derive(Debug)]
pub enum FileError {
    /// A system call failed.
    System {
        /// Which.
        step: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The kernel could not allocate this number of bytes.
    Memory(usize),
    /// The descriptor is not that of a segment.
    NoSegment,
    /// The header does not describe a segment of this length.
    Layout(LayoutError),
}

impl fmt::Display for FileError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { step, error } => write!(to, "{step}: {error}"),
            Self::Memory(bytes) => write!(
                to,
                "{bytes} bytes of shared memory cannot be allocated; free memory, or run fewer ranks on this node"
            ),
            Self::NoSegment => to.write_str("the descriptor does not refer to a segment of unisono"),
            Self::Layout(error) => error.fmt(to),
        }
    }
}

impl core::error::Error for FileError {}

impl From<LayoutError> for FileError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

fn step(step: &'static str) -> impl Fn(Errno) -> FileError {
    move |error| FileError::System { step, error: error.into() }
}

/// A segment's memory, not yet mapped for use.
#[derive(Debug)]
pub struct SegmentFile {
    file: OwnedFd,
    pages: SegmentPages,
}

impl SegmentFile {
    /// Creates a segment, of huge pages if there are any, and writes its header. Fails where the system has no record
    /// locks, since liveness needs them.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn create(layout: &SegmentLayout) -> Result<Self, FileError> {
        let used = layout.used();
        let (file, pages) = match reserved(layout.bytes(), used) {
            Ok(file) => (file, SegmentPages::Reserved),
            Err(error) => small(layout.bytes(), used, NoReservedPages::from_errno(error, used))?,
        };
        LivenessLocks::probe(file.as_fd())
            .map_err(|error| FileError::System { step: "taking a record lock", error })?;
        let mapping = Mapping::new(file.as_fd(), layout.bytes())?;
        layout.write_header(mapping.header())?;
        rustix::fs::fcntl_add_seals(&file, SEALS | SealFlags::SEAL).map_err(step("sealing shared memory"))?;
        Ok(Self { file, pages })
    }

    /// The pages it got, and why no larger ones.
    pub const fn pages(&self) -> &SegmentPages {
        &self.pages
    }
}

impl From<SegmentFile> for OwnedFd {
    fn from(made: SegmentFile) -> Self {
        made.file
    }
}

impl AsFd for SegmentFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A file of reserved huge pages.
fn reserved(bytes: usize, used: usize) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let file = rustix::fs::memfd_create(NAME, flags)?;
    // A segment smaller than a huge page would still take one, but its file would not have its own length.
    if bytes < HUGE {
        return Err(Errno::NOSPC);
    }
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, used.next_multiple_of(HUGE) as u64)?;
    Ok(file)
}

/// A file of transparent huge pages if the system allows them, else of small ones.
fn small(bytes: usize, used: usize, reserved: NoReservedPages) -> Result<(OwnedFd, SegmentPages), FileError> {
    let file = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(step("making shared memory"))?;
    rustix::fs::ftruncate(&file, bytes as u64).map_err(step("sizing shared memory"))?;
    let mapping = Mapping::new(file.as_fd(), bytes)?;
    let huge = NoTransparentPages::from_system() == NoTransparentPages::NoneFree && mapping.populate(used).is_ok();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, used as u64).map_err(|error| match error {
        Errno::NOSPC | Errno::NOMEM => FileError::Memory(used),
        error => step("allocating shared memory")(error),
    })?;
    let pages = if huge && mapping.huge_bytes() * 2 >= used {
        SegmentPages::Transparent(reserved)
    } else {
        SegmentPages::Small(rustix::param::page_size(), reserved, NoTransparentPages::from_system())
    };
    Ok((file, pages))
}

/// Opens a segment's file anew: from the descriptor that this process has inherited under this number, or else from the
/// one that process `holder` has under it. The inherited descriptor stays open, but is closed on exec.
///
/// # Errors
/// [`FileError::NoSegment`] when neither has such a descriptor, or it is not that of sealed memory.
pub fn reopen(number: u32, holder: Option<u32>) -> Result<OwnedFd, FileError> {
    if let Some(file) = open(&format!("/proc/self/fd/{number}")) {
        let number = i32::try_from(number).map_err(|_| FileError::NoSegment)?;
        // SAFETY: the number was that of an open descriptor of sealed memory a moment ago, which this process has
        // inherited and closes nowhere; setting a flag of another one would harm no memory.
        let given = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_setfd(given, rustix::io::FdFlags::CLOEXEC).map_err(step("setting close-on-exec"))?;
        return Ok(file);
    }
    let held = holder.and_then(|holder| open(&format!("/proc/{holder}/fd/{number}")));
    held.ok_or(FileError::NoSegment)
}

fn open(path: &str) -> Option<OwnedFd> {
    let file =
        rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())
            .ok()?;
    is_sealed(file.as_fd()).then_some(file)
}

/// Whether it is anonymous memory that cannot be truncated.
fn is_sealed(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS))
}

/// A segment's memory, mapped into this process.
///
/// When dropped, its addresses stay valid: they are replaced by private memory of this process. A [`Segment`] of it may
/// therefore be kept for any time, though it is no longer shared.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its addresses, which no thread has a claim on.
unsafe impl Send for Mapping {}
// SAFETY: shared, it gives out segments, which are `Sync`, and asks the system about its pages.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a segment that was created by [`SegmentFile::create`], here or in another process, and reads its layout.
    ///
    /// # Errors
    /// [`FileError`]: the file is not a segment, is of another version, or is not intact.
    pub fn open(file: BorrowedFd<'_>) -> Result<(Self, SegmentLayout), FileError> {
        let bytes = rustix::fs::fstat(file).ok().and_then(|about| usize::try_from(about.st_size).ok()).unwrap_or(0);
        if !is_sealed(file) || bytes == 0 {
            return Err(FileError::NoSegment);
        }
        let mapping = Self::new(file, bytes)?;
        let layout = SegmentLayout::read_header(mapping.header())?;
        if NoTransparentPages::from_system() == NoTransparentPages::NoneFree {
            // If refused, this process sees small pages.
            let _ = mapping.advise(mapping.bytes, Advice::LinuxHugepage);
        }
        Ok((mapping, layout))
    }

    fn new(file: BorrowedFd<'_>, bytes: usize) -> Result<Self, FileError> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: new addresses, chosen by the system.
        let mapped = unsafe { rustix::mm::mmap(core::ptr::null_mut(), bytes, access, flags, file, 0) };
        let base = mapped.map_err(step("mapping shared memory"))?;
        let base = NonNull::new(base.cast()).ok_or(FileError::NoSegment)?;
        Ok(Self { base, bytes })
    }

    /// The segment: the right to use the memory, which does not come with the mapping.
    ///
    /// ```compile_fail,E0133
    /// fn words(mapping: &unisono_shmem::host::file::Mapping) {
    ///     mapping.segment().shared_bytes(0, 64);
    /// }
    /// ```
    ///
    /// # Safety
    /// What [`Segment::new`] demands of the users of the memory: that it is valid, this mapping sees to.
    pub const unsafe fn segment(&self) -> Segment<'static> {
        // SAFETY: whole pages, valid for reads and writes as long as this process lives, since `drop` keeps the
        // addresses mapped. The file cannot be cut, and its areas are allocated; what is behind them is nobody's. Of
        // those who use it the caller answers.
        unsafe { Segment::new(self.base, self.bytes) }
    }

    /// The segment, for its header alone.
    const fn header(&self) -> Segment<'static> {
        // SAFETY: whole pages, valid for reads and writes as long as this process lives, since `drop` keeps the
        // addresses mapped. Those who get it use the words of the header, and nothing else.
        unsafe { Segment::new(self.base, self.bytes) }
    }

    fn advise(&self, bytes: usize, advice: Advice) -> Result<(), Errno> {
        // SAFETY: pages of this mapping; neither advice that is given here changes what lies there.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), bytes.min(self.bytes), advice) }
    }

    /// Populates the first `bytes` bytes, with huge pages if the system allows them.
    fn populate(&self, bytes: usize) -> Result<(), Errno> {
        self.advise(self.bytes, Advice::LinuxHugepage)?;
        self.advise(bytes, Advice::LinuxPopulateWrite)
    }

    /// Bytes that are mapped with huge pages in this process.
    fn huge_bytes(&self) -> usize {
        let start = format!("{:x}-", self.base.as_ptr().addr());
        let all = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let mut own = all.lines().skip_while(|line| !line.starts_with(&start));
        let found = own.find_map(|line| line.strip_prefix("ShmemPmdMapped:"));
        let kib = found.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
        kib.unwrap_or(0) * 1024
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED);
        let base = self.base.as_ptr().cast::<c_void>();
        // SAFETY: exactly this mapping, which is replaced in one step. Refused, it stays as it is.
        let replaced = unsafe { rustix::mm::mmap_anonymous(base, self.bytes, access, flags) };
        debug_assert!(replaced.is_ok(), "a mapping can be replaced in place");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{COMMUNICATOR_SLOTS, PAGE, SegmentSizes, WaitMode};
    use crate::segment::Site;
    use std::os::fd::AsRawFd;

    fn layout() -> SegmentLayout {
        let sizes = SegmentSizes::of_node(2, WaitMode::Oversubscribed);
        SegmentLayout::new(SegmentSizes { collective_area: PAGE as u32, pool: PAGE as u32, ring_bulk: 64, ..sizes })
            .unwrap()
    }

    #[test]
    fn two_mappings_share_memory_until_one_is_dropped() {
        let file = SegmentFile::create(&layout()).unwrap();
        let (one, found) = Mapping::open(file.as_fd()).unwrap();
        assert_eq!(found, layout());
        let own = reopen(number(&file), None).unwrap();
        let (other, _) = Mapping::open(own.as_fd()).unwrap();
        let at = layout().collective_area(1).unwrap().offset;
        // SAFETY: nothing but one word is used.
        let [first, second] = [&one, &other].map(|mapping| unsafe { mapping.segment() }.word(at).unwrap());
        first.publish(7, Site::Plain);
        assert_eq!(second.acquire(Site::Plain), 7);
        drop(other);
        second.publish(9, Site::Plain);
        assert_eq!((first.own(), second.own()), (7, 9), "its addresses stay valid, with private memory");
    }

    #[test]
    fn file_cannot_be_cut_or_grown() {
        let file = SegmentFile::create(&layout()).unwrap();
        for bytes in [0, layout().bytes() / 2, layout().bytes() * 2] {
            assert_eq!(rustix::fs::ftruncate(&file, bytes as u64), Err(Errno::PERM), "{bytes}");
        }
    }

    #[test]
    fn every_area_is_allocated() {
        let layout = layout();
        let file = SegmentFile::create(&layout).unwrap();
        let last = layout.communicator_slot(COMMUNICATOR_SLOTS - 1).unwrap();
        let allocated = rustix::fs::fstat(&file).unwrap().st_blocks as usize * 512;
        assert!(allocated >= last.offset + last.bytes, "{allocated}");
    }

    fn number(file: &impl AsFd) -> u32 {
        file.as_fd().as_raw_fd().cast_unsigned()
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        let own = Some(std::process::id());
        for number in [u32::MAX, 0x7fff_fff0] {
            assert!(matches!(reopen(number, own), Err(FileError::NoSegment)));
        }
        let null = fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        assert!(matches!(reopen(number(&null), own), Err(FileError::NoSegment)), "not memory");
        let open = rustix::fs::memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        assert!(matches!(reopen(number(&open), own), Err(FileError::NoSegment)), "not sealed");
        rustix::fs::fcntl_add_seals(&open, SEALS).unwrap();
        assert!(reopen(number(&open), own).is_ok());
        assert!(matches!(Mapping::open(open.as_fd()), Err(FileError::Layout(LayoutError::Header))), "no header");
    }
}
