//! The host's table of registered memory regions: the only place that knows the addresses of the core's spans.

mod adapter;

use alloc::alloc::{alloc_zeroed, dealloc};
use alloc::sync::Arc;
use core::{alloc::Layout, error::Error, fmt, mem, ptr::NonNull};

use unisono_core::{
    device::Memory,
    span::{Region, Span},
};

pub use unisono_core::span::RegionRange;

use unisono_datatype::Datatype;

use crate::user_buffer::{self, UserBuffer};
use adapter::{Adapter, AdapterKey, AdapterRegistration};

/// Bytes that are copied at a time between two scattered addresses.
const COPY_CHUNK: usize = 4096;

/// The address of a span: a bounded piece of a live region. Only [`Regions`] makes one. Its bytes are adjacent, or the
/// region has a layout, by which they are gathered and scattered.
///
/// The code that made the table and registered the memory promised that it outlives every address in use, that uses of
/// it follow each other, and that nobody makes a reference to these bytes while a device may read or write them
/// ([`Regions::new`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// With a layout, the byte that its offsets count from.
    start: NonNull<u8>,
    bytes: usize,
    key: AdapterKey,
    /// The region's layout, and the number of the first byte in it.
    layout: Option<(NonNull<Datatype>, usize)>,
}

// SAFETY: only a table gives one out, for which its maker promised what the trait demands (`Regions::new`); regions are
// memory of users and of the table, and rings are neither.
unsafe impl unisono_shmem::user_memory::UserMemory for Address {
    fn start(self) -> NonNull<u8> {
        self.start
    }

    fn bytes(self) -> usize {
        self.bytes
    }

    unsafe fn copy_out(self, to: NonNull<u8>, bytes: usize) {
        // SAFETY: under the same promises of the caller.
        unsafe { self.read_to(0, to, bytes) };
    }

    unsafe fn copy_in(self, from: NonNull<u8>, bytes: usize) {
        // SAFETY: under the same promises of the caller.
        unsafe { self.write_from(0, from, bytes) };
    }
}

// SAFETY: only a table gives one out, for which its maker promised what the trait demands (`Regions::new`); a region
// with a key is registered under it until the region is revoked.
#[cfg(feature = "verbs")]
unsafe impl unisono_verbs::ud::Lent for Address {
    fn start(self) -> NonNull<u8> {
        self.start
    }

    fn bytes(self) -> usize {
        self.bytes
    }

    fn key(self) -> Option<u32> {
        self.key.filter(|_| self.layout.is_none()).map(|(key, _)| key)
    }

    fn device_address(self) -> u64 {
        let origin = self.key.map_or(0, |(_, origin)| u64::from(origin) * unisono_verbs::ud::Domain::ORIGIN);
        (self.start.expose_provenance().get() as u64).wrapping_sub(origin)
    }

    fn is_adjacent(self) -> bool {
        self.layout.is_none()
    }

    unsafe fn copy_out(self, to: NonNull<u8>, bytes: usize) {
        // SAFETY: under the same promises of the caller.
        unsafe { self.read_to(0, to, bytes) };
    }

    unsafe fn copy_in(self, from: NonNull<u8>, bytes: usize) {
        // SAFETY: under the same promises of the caller.
        unsafe { self.write_from(0, from, bytes) };
    }
}

// SAFETY: an address is a number with a length. The creator of its table promised that uses of it follow each other, on
// all threads.
unsafe impl Send for Address {}
// SAFETY: sharing the number touches no memory, and a use of it is that of a copy, which may be sent.
unsafe impl Sync for Address {}

impl Address {
    /// The first byte, if the bytes are adjacent.
    pub const fn adjacent(self) -> Option<NonNull<u8>> {
        if self.layout.is_none() { Some(self.start) } else { None }
    }

    /// The number of bytes.
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// The layout by which its bytes are scattered, the byte that its offsets count from, and the number of the first
    /// byte in it.
    ///
    /// # Safety
    /// The region is still live, and stays so as long as the layout is used.
    pub unsafe fn layout<'a>(self) -> Option<(&'a Datatype, NonNull<u8>, usize)> {
        let (layout, at) = self.layout?;
        // SAFETY: the region owns its layout, whose address stays the same; the caller promises that the region lives.
        Some((unsafe { layout.as_ref() }, self.start, at))
    }

    /// Copies `bytes` bytes at `from` to this address, from its byte `at` on, cut to its length. They may overlap; with
    /// a layout the contents are then unspecified.
    ///
    /// # Safety
    /// The region is still live, and no thread, process or posting uses these bytes meanwhile; `from` is readable for
    /// as many bytes.
    #[inline]
    pub unsafe fn write_from(self, at: usize, from: NonNull<u8>, bytes: usize) {
        let bytes = bytes.min(self.bytes.saturating_sub(at));
        // SAFETY: the caller promises that the region lives.
        match unsafe { self.layout() } {
            None => {
                // SAFETY: within this piece of a region, which the caller says lives.
                let to = unsafe { self.start.add(at.min(self.bytes)) };
                // SAFETY: both have that many bytes, which the caller says nobody else uses.
                unsafe { to.copy_from(from, bytes) };
            }
            Some((layout, start, first)) => {
                // SAFETY: who registered the region promised that the layout names live bytes, and the caller that
                // nobody else uses them and that `from` is readable.
                unsafe { layout.scatter(from, start, first.saturating_add(at), bytes) };
            }
        }
    }

    /// Copies `bytes` bytes from its byte `at` on to `to`, cut to its length. They may overlap; with a layout the
    /// contents are then unspecified.
    ///
    /// # Safety
    /// The region is still live, and no thread, process or device writes these bytes meanwhile; `to` is writable for as
    /// many bytes.
    #[inline]
    pub unsafe fn read_to(self, at: usize, to: NonNull<u8>, bytes: usize) {
        let bytes = bytes.min(self.bytes.saturating_sub(at));
        // SAFETY: the caller promises that the region lives.
        match unsafe { self.layout() } {
            None => {
                // SAFETY: within this piece of a region, which the caller says lives.
                let from = unsafe { self.start.add(at.min(self.bytes)) };
                // SAFETY: both have that many bytes, which the caller says nobody writes otherwise.
                unsafe { to.copy_from(from, bytes) };
            }
            Some((layout, start, first)) => {
                // SAFETY: who registered the region promised that the layout names live bytes, and the caller that
                // nobody writes them and that `to` is writable.
                unsafe { layout.gather(start, first.saturating_add(at), to, bytes) };
            }
        }
    }

    /// Copies bytes from another address: the shorter of both lengths. They may overlap; with a layout the contents are
    /// then unspecified.
    ///
    /// # Safety
    /// Both regions are still live, and no thread, process or posting uses these bytes meanwhile.
    pub unsafe fn copy_from(self, from: Self) {
        let bytes = self.bytes.min(from.bytes);
        match (self.adjacent(), from.adjacent()) {
            // SAFETY: under the same promises of the caller; `from` has at least as many bytes.
            (_, Some(start)) => unsafe { self.write_from(0, start, bytes) },
            // SAFETY: under the same promises of the caller; this address has at least as many bytes.
            (Some(start), None) => unsafe { from.read_to(0, start, bytes) },
            (None, None) => {
                let mut chunk = [0_u8; COPY_CHUNK];
                for at in (0..bytes).step_by(COPY_CHUNK) {
                    let (length, chunk) = (COPY_CHUNK.min(bytes - at), NonNull::from(&mut chunk).cast());
                    // SAFETY: the chunk has as many bytes; otherwise under the same promises of the caller.
                    unsafe { from.read_to(at, chunk, length) };
                    // SAFETY: the chunk has as many bytes; otherwise under the same promises of the caller.
                    unsafe { self.write_from(at, chunk, length) };
                }
            }
        }
    }

    /// Copies `from` to this address, cut to [`bytes`](Self::bytes).
    ///
    /// # Safety
    /// The region is still live, and no thread, process or posting uses these bytes meanwhile.
    pub unsafe fn write(self, from: &[u8]) {
        // SAFETY: a slice is readable for its length; otherwise under the same promises of the caller.
        unsafe { self.write_from(0, NonNull::from(from).cast(), from.len()) };
    }

    /// Copies the bytes at this address into `to`, as much as fits.
    ///
    /// # Safety
    /// The region is still live, and no thread, process or device writes these bytes meanwhile.
    pub unsafe fn read(self, to: &mut [u8]) {
        // SAFETY: a slice is writable for its length; otherwise under the same promises of the caller.
        unsafe { self.read_to(0, NonNull::from(&mut *to).cast(), to.len()) };
    }
}

/// Why memory could not be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// More than `isize::MAX` bytes.
    TooLarge,
    /// All 2³² indices are in use or used up.
    Full,
    /// The adapter cannot register the memory.
    AdapterFailed,
    /// The system is out of memory.
    NoMemory,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::TooLarge => "a region cannot be larger than half the address space",
            Self::Full => "the table of regions is full: free regions that are no longer in use",
            Self::AdapterFailed => {
                "the adapter cannot register the memory: check the limit on locked memory (ulimit -l)"
            }
            Self::NoMemory => "out of memory for a region",
        })
    }
}

impl Error for RegisterError {}

/// Who frees the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Leaked,
    Caller,
    Table(Layout),
}

#[derive(Debug)]
struct RegionEntry {
    start: NonNull<u8>,
    bytes: usize,
    /// Generation of the current registration, or of the next one while there is none. Starts at 1: the default region
    /// is never live.
    generation: u32,
    alive: bool,
    owner: Owner,
    registration: AdapterRegistration,
    /// Which bytes from `start` on it consists of; `None` where they are adjacent.
    layout: Option<Arc<Datatype>>,
}

/// Registered memory by index and generation. Every call takes constant time.
///
/// An index is used again with the next generation. One whose generations are used up is retired, so no old [`Region`]
/// revives.
///
/// A table is the right to use the memory: safe code cannot make one, for it could copy to an address on two threads at
/// once, or to one whose memory is gone.
/// ```compile_fail,E0133
/// use unisono_core::{device::Memory, span::Span};
/// use unisono_memory::memory_regions::Regions;
/// use unisono_shmem::user_memory::copy_from_private;
///
/// let mut regions = Regions::new();
/// let region = regions.allocate(8).unwrap();
/// let address = regions.address(Span { region, offset: 0, bytes: 8 }).unwrap();
/// std::thread::spawn(move || copy_from_private(&[1; 8], address));
/// copy_from_private(&[2; 8], address);
/// ```
#[derive(Debug)]
pub struct Regions {
    entries: Vec<RegionEntry>,
    free: Vec<u32>,
    adapter: Adapter,
}

// SAFETY: the table owns what it allocated, and of the memory of callers it has numbers; its creator promised that uses
// of both follow each other, on all threads.
unsafe impl Send for Regions {}
// SAFETY: shared use only looks numbers up, and reads and writes no region.
unsafe impl Sync for Regions {}

impl Regions {
    /// An empty table.
    ///
    /// # Safety
    /// Devices copy to and from addresses of this table in safe code, as anyone may who has one. The creator of the
    /// table promises that it and its addresses come to those alone who keep to this: of two uses of the same bytes,
    /// one of them a write, one ends before the other begins, on whichever threads, where a posting reads until its
    /// ticket is completed; an address is not used once its region is [freed](Self::free), or its memory is its owner's
    /// again ([`register`](Self::register)); and nobody has a reference to bytes of a region when they are copied.
    pub const unsafe fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), adapter: Adapter::NONE }
    }

    /// An empty table that registers its regions with an adapter: the table's own, and the callers' from 32 KiB on.
    ///
    /// # Safety
    /// As of [`new`](Self::new).
    #[cfg(feature = "verbs")]
    pub const unsafe fn of(domain: Arc<unisono_verbs::ud::Domain>) -> Self {
        let adapter = Adapter { domain: Some(domain), is_read: false };
        Self { entries: Vec::new(), free: Vec::new(), adapter }
    }

    /// From now on, peers with a reliable connection may read memory of at least 32 KiB that is allocated, or registered as
    /// a buffer, under its [`readable`](Self::readable) key.
    #[cfg(feature = "verbs")]
    pub const fn let_peers_read(&mut self) {
        self.adapter.is_read = true;
    }

    /// The remote key (rkey) under which peers may read a range, and the adapter's address of its first byte. `None`: they
    /// may not, or the range is not within its region or has a layout.
    #[cfg(feature = "verbs")]
    pub fn readable(&self, range: RegionRange) -> Option<(u32, u32)> {
        let entry = self.entries.get(range.region.index() as usize)?;
        let first =
            self.address(range.span(0, 0)).filter(|_| range.bytes <= entry.bytes.saturating_sub(range.offset))?;
        first.adjacent()?;
        let address = unisono_verbs::ud::Lent::device_address(first);
        Some((entry.registration.remote_key()?, u32::try_from(address).ok()?))
    }

    /// Registers memory of the caller.
    ///
    /// # Safety
    /// Devices and other processes may read and write these bytes until the region is revoked *and* every posting and
    /// copy with an address of it is finished. Until then the memory stays mapped and no reference to it is used.
    pub unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Result<Region, RegisterError> {
        self.insert(start, bytes, (Owner::Caller, false), None)
    }

    /// Registers a buffer of the caller. The spans of a buffer with a layout count its bytes in the layout's order.
    ///
    /// # Errors
    /// [`RegisterError`].
    ///
    /// # Safety
    /// As of [`register`](Self::register), of all bytes of the buffer.
    pub unsafe fn register_buffer(&mut self, buffer: UserBuffer) -> Result<Region, RegisterError> {
        let UserBuffer { start, bytes, layout, .. } = buffer;
        let bytes = layout.as_ref().map_or(bytes, |layout| layout.size());
        self.insert(start, bytes, (Owner::Caller, true), layout)
    }

    /// Registers two buffers of the caller, which may overlap. Registers neither if one fails.
    ///
    /// # Errors
    /// [`RegisterError`].
    ///
    /// # Safety
    /// As of [`register`](Self::register), of both.
    pub unsafe fn register_both(
        &mut self,
        first: UserBuffer,
        second: UserBuffer,
    ) -> Result<[Region; 2], RegisterError> {
        // SAFETY: what `register` demands the caller promises of both buffers.
        let first = unsafe { self.register_buffer(first) }?;
        // SAFETY: what `register` demands the caller promises of both buffers.
        let second = unsafe { self.register_buffer(second) }.inspect_err(|_| _ = self.revoke(first))?;
        Ok([first, second])
    }

    /// Registers `bytes` fresh zero bytes of the table, aligned to 64. They stay allocated until [`free`](Self::free),
    /// even when the table is dropped, because a device may still hold addresses.
    ///
    /// # Errors
    /// [`RegisterError`]: [`NoMemory`](RegisterError::NoMemory) when the system is out of memory.
    pub fn allocate(&mut self, bytes: usize) -> Result<Region, RegisterError> {
        let layout = layout_of(bytes)?;
        // SAFETY: the layout is not of zero size.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(RegisterError::NoMemory)?;
        self.insert(start, bytes, (Owner::Table(layout), true), None).inspect_err(|_| {
            // SAFETY: allocated above with this layout, and named by nobody.
            unsafe { dealloc(start.as_ptr(), layout) };
        })
    }

    /// Ends the region: no further address of it is handed out. Returns whether it was live.
    pub fn revoke(&mut self, region: Region) -> bool {
        let Some(entry) = self.entries.get_mut(region.index() as usize) else { return false };
        if !entry.alive || entry.generation != region.generation() {
            return false;
        }
        entry.alive = false;
        if entry.owner == Owner::Caller {
            entry.registration = AdapterRegistration::NONE;
            entry.layout = None;
        }
        match entry.generation.checked_add(1) {
            Some(generation) if entry.owner == Owner::Caller => {
                entry.generation = generation;
                self.free.push(region.index());
            }
            _ => {}
        }
        true
    }

    /// Copies the contents of a caller's region and makes the region refer to the copy: the caller may reuse its memory
    /// at once, and pending sends from the region continue. The copy is never freed. Returns whether the region was
    /// live.
    pub fn detach(&mut self, region: Region) -> bool {
        let place = region.index() as usize;
        let entry = self.entries.get_mut(place);
        let Some(entry) = entry.filter(|entry| entry.alive && entry.generation == region.generation()) else {
            return false;
        };
        let (start, bytes, layout) = (entry.start, entry.bytes, entry.layout.take());
        let Ok(copy) = self.allocate(bytes) else { return self.revoke(region) };
        let copied = self.entries.get_mut(copy.index() as usize);
        let Some((to, registration)) = copied.map(|entry| (entry.start, mem::take(&mut entry.registration))) else {
            return false;
        };
        match layout {
            // SAFETY: the layout names as many live bytes; the copy is nobody else's.
            Some(layout) => _ = unsafe { layout.gather(start, 0, to, bytes) },
            // SAFETY: both have the same length, and live; the copy is nobody else's.
            None => unsafe { to.copy_from_nonoverlapping(start, bytes) },
        }
        if let Some(entry) = self.entries.get_mut(place) {
            (entry.start, entry.owner, entry.registration) = (to, Owner::Leaked, registration);
        }
        true
    }

    /// Frees memory of [`allocate`](Self::allocate), whether revoked before or not. Returns whether there was memory to
    /// free.
    ///
    /// # Safety
    /// No posting, copy or other use of an address of it is unfinished or follows.
    pub unsafe fn free(&mut self, region: Region) -> bool {
        let Some(entry) = self.entries.get_mut(region.index() as usize) else { return false };
        let Owner::Table(layout) = entry.owner else { return false };
        if entry.generation != region.generation() {
            return false;
        }
        entry.registration = AdapterRegistration::NONE;
        // SAFETY: allocated by `allocate` with this layout and freed once, since the owner changes; the caller promises
        // that no address is in use.
        unsafe { dealloc(entry.start.as_ptr(), layout) };
        (entry.owner, entry.alive) = (Owner::Leaked, false);
        if let Some(generation) = entry.generation.checked_add(1) {
            entry.generation = generation;
            self.free.push(region.index());
        }
        true
    }

    /// Frees all memory of [`allocate`](Self::allocate).
    ///
    /// # Safety
    /// No posting, copy or other use of an address of this table is unfinished or follows.
    pub unsafe fn free_all(&mut self) {
        for index in 0..self.entries.len() as u32 {
            let generation = self.entries.get(index as usize).map_or(0, |entry| entry.generation);
            // SAFETY: the caller promises that no address is in use.
            unsafe { self.free(Region::new(index, generation)) };
        }
    }

    /// The adapter's local key (lkey) of a region, if it is registered with the adapter.
    #[cfg(feature = "verbs")]
    pub fn key(&self, region: Region) -> Option<u32> {
        let entry = self.entries.get(region.index() as usize)?;
        if entry.generation == region.generation() { entry.registration.key().map(|(key, _)| key) } else { None }
    }

    /// The number of live regions.
    pub fn live_regions(&self) -> usize {
        self.entries.iter().filter(|entry| entry.alive).count()
    }

    /// Copies a range to another one: the shorter of both lengths. They may overlap; with a layout the contents are then
    /// unspecified.
    ///
    /// # Safety
    /// No thread, process or posting uses these bytes meanwhile.
    pub unsafe fn copy(&self, from: RegionRange, into: RegionRange) {
        let (mut at, bytes) = (0, from.bytes.min(into.bytes));
        while at < bytes {
            let (from, into) = (from.span(at, bytes - at), into.span(at, bytes - at));
            let (Some(source), Some(target)) = (self.address(from), self.address(into)) else { return };
            // SAFETY: both regions live; the caller promises that nobody else uses these bytes.
            unsafe { target.copy_from(source) };
            at = at.saturating_add(from.bytes as usize);
        }
    }

    fn insert(
        &mut self,
        start: NonNull<u8>,
        bytes: usize,
        (owner, is_of_messages): (Owner, bool),
        layout: Option<Arc<Datatype>>,
    ) -> Result<Region, RegisterError> {
        if bytes > isize::MAX as usize {
            return Err(RegisterError::TooLarge);
        }
        let registration = match layout {
            None => self.adapter.register(start, bytes, (owner, is_of_messages))?,
            // The device gathers and scatters.
            Some(_) => AdapterRegistration::NONE,
        };
        let free = self.free.pop();
        if let Some((index, entry)) = free.and_then(|index| Some((index, self.entries.get_mut(index as usize)?))) {
            *entry =
                RegionEntry { start, bytes, generation: entry.generation, alive: true, owner, registration, layout };
            return Ok(Region::new(index, entry.generation));
        }
        let index = u32::try_from(self.entries.len()).map_err(|_| RegisterError::Full)?;
        self.entries.push(RegionEntry { start, bytes, generation: 1, alive: true, owner, registration, layout });
        Ok(Region::new(index, 1))
    }
}

impl Memory for Regions {
    type Address = Address;

    fn address(&self, span: Span) -> Option<Address> {
        let entry = self.entries.get(span.region.index() as usize)?;
        let bytes = span.bytes as usize;
        let end = span.offset.checked_add(bytes)?;
        if !entry.alive || entry.generation != span.region.generation() || end > entry.bytes {
            return None;
        }
        let address = |start, layout| Address { key: entry.registration.key(), start, bytes, layout };
        let Some(layout) = &entry.layout else {
            // SAFETY: the offset is at most the region's length, so the result stays within it or one past its end.
            return Some(address(unsafe { entry.start.add(span.offset) }, None));
        };
        Some(match layout.adjacent(span.offset, bytes) {
            Some(first) => address(user_buffer::offset(entry.start, first), None),
            None if bytes == 0 => address(entry.start, None),
            None => address(entry.start, Some((NonNull::from(&**layout), span.offset))),
        })
    }
}

fn layout_of(bytes: usize) -> Result<Layout, RegisterError> {
    Layout::from_size_align(bytes.max(1), 64).map_err(|_| RegisterError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(region: Region, offset: usize, bytes: u32) -> Span {
        Span { region, offset, bytes }
    }

    #[test]
    fn spans_inside_have_addresses_and_others_none() {
        // SAFETY: this test uses one address at a time.
        let mut regions = unsafe { Regions::new() };
        let region = regions.allocate(100).unwrap();
        let base = regions.address(span(region, 0, 100)).unwrap();
        assert_eq!(base.bytes(), 100);
        let inner = regions.address(span(region, 40, 60)).unwrap();
        assert_eq!(inner.start.as_ptr() as usize, base.start.as_ptr() as usize + 40);
        assert!(regions.address(span(region, 100, 0)).is_some());
        for (offset, bytes) in [(0, 101), (41, 60), (101, 0), (usize::MAX, 1), (usize::MAX, u32::MAX), (50, u32::MAX)] {
            assert_eq!(regions.address(span(region, offset, bytes)), None, "{offset} {bytes}");
        }
        let unknown = Region::new(7, 1);
        assert_eq!(regions.address(span(unknown, 0, 0)), None);
        // SAFETY: it gives out no address.
        assert_eq!(unsafe { Regions::new() }.address(Span::default()), None);
        assert_eq!(regions.address(Span::default()), None);
        // SAFETY: no address of it is used any more.
        assert!(unsafe { regions.free(region) });
    }

    #[test]
    fn bytes_written_are_bytes_read() {
        // SAFETY: this test uses one address at a time.
        let mut regions = unsafe { Regions::new() };
        let region = regions.allocate(8).unwrap();
        let (piece, mut seen) = (regions.address(span(region, 2, 4)).unwrap(), [9; 8]);
        // SAFETY: nobody else knows the region.
        unsafe { piece.write(&[1, 2, 3, 4, 5, 6]) };
        // SAFETY: nobody else knows the region.
        unsafe { regions.address(span(region, 0, 8)).unwrap().read(&mut seen) };
        assert_eq!(seen, [0, 0, 1, 2, 3, 4, 0, 0]);
        // SAFETY: no address of it is used any more.
        assert!(unsafe { regions.free(region) });
    }

    #[test]
    fn revoked_region_has_no_address_and_its_index_another_generation() {
        // SAFETY: no address is used.
        let (mut regions, mut bytes) = (unsafe { Regions::new() }, [0_u8; 16]);
        let start = NonNull::from(&mut bytes).cast();
        // SAFETY: the array outlives the table and is not used.
        let first = unsafe { regions.register(start, 16) }.unwrap();
        assert!(regions.revoke(first) && !regions.revoke(first));
        // SAFETY: the array outlives the table and is not used.
        let second = unsafe { regions.register(start, 16) }.unwrap();
        assert_eq!((second.index(), second.generation()), (first.index(), first.generation() + 1));
        assert!(regions.address(span(first, 0, 1)).is_none() && regions.address(span(second, 0, 1)).is_some());
        assert!(!regions.revoke(first) && regions.live_regions() == 1);
    }

    #[test]
    fn where_one_of_two_is_refused_neither_is_registered() {
        // SAFETY: no address is used.
        let (mut regions, mut bytes) = (unsafe { Regions::new() }, [0_u8; 16]);
        let (start, most) = (NonNull::from(&mut bytes).cast(), isize::MAX as usize + 1);
        for refused in [[most, 16], [16, most]] {
            let [first, second] = refused.map(|bytes| UserBuffer::plain(start, bytes));
            // SAFETY: refused, so nothing is ever touched.
            assert_eq!(unsafe { regions.register_both(first, second) }, Err(RegisterError::TooLarge));
            assert_eq!(regions.live_regions(), 0);
        }
        let [first, second] = [16, 8].map(|bytes| UserBuffer::plain(start, bytes));
        // SAFETY: the array outlives the table and is not used.
        assert!(unsafe { regions.register_both(first, second) }.is_ok_and(|[first, second]| first != second));
        assert_eq!(regions.live_regions(), 2);
    }

    #[test]
    fn index_with_its_generations_used_up_is_retired() {
        // SAFETY: this test uses one address at a time.
        let mut regions = unsafe { Regions::new() };
        let first = regions.allocate(1).unwrap();
        regions.entries[0].generation = u32::MAX;
        let last = Region::new(first.index(), u32::MAX);
        assert!(regions.address(span(last, 0, 1)).is_some());
        // SAFETY: no address of it is used.
        assert!(unsafe { regions.free(last) });
        let next = regions.allocate(1).unwrap();
        assert_eq!((next.index(), next.generation()), (1, 1));
        assert!(regions.address(span(last, 0, 1)).is_none());
        // SAFETY: no address of it is used.
        assert!(unsafe { regions.free(next) });
    }

    #[test]
    fn allocated_memory_stays_until_freed() {
        // SAFETY: this test uses one address at a time.
        let mut regions = unsafe { Regions::new() };
        let region = regions.allocate(0).unwrap();
        assert!(regions.revoke(region));
        assert_ne!(
            regions.allocate(4).unwrap().index(),
            region.index(),
            "a revoked slab keeps its index until it is freed"
        );
        // SAFETY: no address of it was ever made.
        assert!(unsafe { regions.free(region) });
        // SAFETY: no address of it was ever made.
        assert!(!unsafe { regions.free(region) });
        assert_eq!(regions.allocate(4).unwrap().index(), region.index());
    }

    #[test]
    fn detached_region_refers_to_the_copy() {
        // SAFETY: this test uses one address at a time.
        let (mut regions, mut bytes, mut seen) = (unsafe { Regions::new() }, [7_u8; 16], [0; 16]);
        // SAFETY: the array outlives the region's use of it.
        let region = unsafe { regions.register(NonNull::from(&mut bytes).cast(), 16) }.unwrap();
        assert!(regions.detach(region));
        bytes.fill(9);
        // SAFETY: nobody writes the copy.
        unsafe { regions.address(span(region, 0, 16)).unwrap().read(&mut seen) };
        assert_eq!((seen, bytes), ([7; 16], [9; 16]));
        assert!(regions.revoke(region) && !regions.detach(region));
    }

    #[test]
    fn spans_of_a_layout_are_gathered_and_scattered() {
        // SAFETY: this test uses one address at a time.
        let (mut regions, mut bytes) = (unsafe { Regions::new() }, [0_u8; 12]);
        bytes.iter_mut().zip(0..).for_each(|(byte, i)| *byte = i);
        let layout = Datatype::of::<u8>().vector(3, 2, 4).expect("small");
        let buffer = UserBuffer::new(NonNull::from(&mut bytes).cast(), &Arc::new(layout));
        // SAFETY: the array outlives the region, and is used only through it meanwhile.
        let region = unsafe { regions.register_buffer(buffer) }.expect("a region");
        assert!(regions.address(span(region, 0, 7)).is_none(), "it has 6 bytes");
        let piece = regions.address(span(region, 2, 2)).expect("within");
        assert!(piece.adjacent().is_some(), "one block");
        let piece = regions.address(span(region, 1, 4)).expect("within");
        let mut seen = [0; 4];
        // SAFETY: nobody else uses the region.
        unsafe { piece.read(&mut seen) };
        assert_eq!((seen, piece.adjacent()), ([1, 4, 5, 8], None));
        // SAFETY: nobody else uses the region.
        unsafe { piece.write(&[21, 22, 23, 24]) };
        let whole = RegionRange { region, offset: 0, bytes: 6 };
        let copy = regions.allocate(6).expect("memory");
        let copied = RegionRange { region: copy, ..whole };
        // SAFETY: nobody else uses the regions.
        unsafe { regions.copy(whole, copied) };
        let mut seen = [0; 6];
        // SAFETY: nobody else uses the region.
        unsafe { regions.address(span(copy, 0, 6)).expect("within").read(&mut seen) };
        assert_eq!(seen, [0, 21, 22, 23, 24, 9]);
        assert!(
            regions.detach(region) && regions.address(span(region, 0, 6)).is_some_and(|all| all.adjacent().is_some())
        );
        assert!(regions.revoke(region));
        assert_eq!(bytes, [0, 21, 2, 3, 22, 23, 6, 7, 24, 9, 10, 11]);
        // SAFETY: no address of it is used any more.
        assert!(unsafe { regions.free(copy) });
    }

    #[test]
    fn too_large_is_refused() {
        // SAFETY: it gives out no address.
        let mut regions = unsafe { Regions::new() };
        assert_eq!(regions.allocate(usize::MAX), Err(RegisterError::TooLarge));
        // No address space has that much.
        assert_eq!(regions.allocate(isize::MAX as usize & !63), Err(RegisterError::NoMemory));
        // SAFETY: refused, so nothing is ever touched.
        let refused = unsafe { regions.register(NonNull::dangling(), usize::MAX) };
        assert_eq!(refused, Err(RegisterError::TooLarge));
    }
}
