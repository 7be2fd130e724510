//! Dynamic windows: memory that each rank attaches and detaches piece by piece (`MPI_Win_create_dynamic`).
//!
//! Each rank has a table of the pieces that it has attached. The table is the memory of the window: a rank reads it
//! before it accesses another rank's pieces, which it names by their addresses there.

use core::ptr::NonNull;

use parking_lot::Mutex;
use unisono_core::ids::RemoteKey;
use unisono_core::rma::{RKey, RemoteSpan, Rights};
use unisono_memory::memory_regions::RegisterError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::memory::WindowMemory;
use super::place::{Place, Places};
use super::remote::remote_span;
use super::targets::{Access, Targets};
use super::{Window, WindowError, conceal};
use crate::world::communicator::Communicator;
use crate::world::shm_transport::Buffer;
use unisono_bootstrap::Rank;

/// Pieces that a rank can have attached at a time.
pub const ATTACHED_MAX: usize = 1023;

/// Entries of the table that are read at a time.
const CHUNK: usize = 64;

/// An entry of the table. 0 bytes: it is free. The first entry has no piece: its address is the number of entries that
/// were ever used, itself included.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Entry {
    address: u64,
    bytes: u64,
    key: u64,
    index: u64,
}

const FREE: Entry = Entry { address: 0, bytes: 0, key: 0, index: 0 };

/// Memory that this rank has attached.
#[derive(Clone, Copy, Debug)]
struct Piece {
    memory: WindowMemory,
    key: RKey,
}

/// Attached pieces that hold some of the bytes that an operation accesses.
struct Found {
    /// The first byte, and the end.
    first: usize,
    end: Option<usize>,
    /// The pieces, each with its first address and its end.
    pieces: Vec<(usize, usize, Access)>,
}

impl Found {
    fn new(address: usize, bytes: usize) -> Self {
        Self { first: address, end: address.checked_add(bytes), pieces: Vec::new() }
    }

    /// Adds a piece if it holds some of the bytes.
    fn add(&mut self, start: usize, bytes: usize, access: Access) {
        let (Some(piece_end), Some(end)) = (start.checked_add(bytes), self.end) else { return };
        let touches = start < end && self.first < piece_end;
        // No bytes lie in a piece or at its end.
        let holds_none = self.first == end && start <= end && end <= piece_end;
        if touches || holds_none {
            self.pieces.push((start, piece_end, access));
        }
    }

    /// The places of the bytes, one after the other. `None`: the pieces do not hold all bytes.
    fn cover(&self) -> Option<Places> {
        let end = self.end?;
        let place = |from: usize| {
            let holds = self.pieces.iter().filter(|(start, piece_end, _)| *start <= from && from <= *piece_end);
            let (start, piece_end, access) = holds.max_by_key(|(_, piece_end, _)| *piece_end)?;
            Some(Place { access: *access, offset: from - start, bytes: end.min(*piece_end) - from })
        };
        let first = place(self.first)?;
        let (mut rest, mut from) = (Vec::new(), self.first + first.bytes);
        while from < end {
            let next = place(from).filter(|next| next.bytes > 0)?;
            from += next.bytes;
            rest.push(next);
        }
        Some(Places { first, rest })
    }
}

/// The pieces that this rank has attached, by their places in its table; the first place is never used.
pub(super) struct Attachments {
    /// The memory of the table; leaked if the window is not freed.
    table: Option<Buffer<u128>>,
    pieces: Mutex<Vec<Option<Piece>>>,
}

impl Attachments {
    /// Takes the keys of all pieces.
    pub(super) fn take_keys(&mut self) -> impl Iterator<Item = RKey> {
        let pieces = core::mem::take(self.pieces.get_mut());
        pieces.into_iter().flatten().map(|piece| piece.key)
    }

    /// Nobody reads the table any more.
    pub(super) fn free(&mut self) {
        drop(self.table.take());
    }
}

impl Drop for Attachments {
    fn drop(&mut self) {
        // Other members may still read it.
        core::mem::forget(self.table.take());
    }
}

impl Communicator {
    /// Makes a window without memory, to which each rank [attaches](Window::attach) some (`MPI_Win_create_dynamic`).
    /// Offsets in it are addresses in the target's process. Collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.create_dynamic_window()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn create_dynamic_window(&self) -> Result<Window, WindowError> {
        let mut table = self.allocate::<u128>((ATTACHED_MAX + 1) * size_of::<Entry>() / size_of::<u128>())?;
        let (start, bytes) = (NonNull::from(&mut table[..]).cast(), table.len() * size_of::<u128>());
        // SAFETY: the buffer is kept by the window until it is freed, or leaked, and no reference to it is made.
        let mut window = unsafe { self.create_window(start, bytes) }?;
        window.targets.attachments = Some(Attachments { table: Some(table), pieces: Mutex::new(vec![None]) });
        window.set_entry(0, Entry { address: 1, ..FREE })?;
        // Nobody reads a table before that.
        window.targets.communicator.barrier()?;
        Ok(window)
    }
}

impl Window {
    /// Attaches memory of this rank to a dynamic window (`MPI_Win_attach`): other ranks access it by its address.
    /// Operations may span adjacent pieces, except updates of an element that lies in two.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, mut memory) = (world.create_dynamic_window()?, [0_u64; 4]);
    /// let start = core::ptr::NonNull::from(&mut memory).cast::<u8>();
    /// // SAFETY: the memory is not used otherwise before it is detached.
    /// unsafe { window.attach(start, 32) }?;
    /// window.put(&[7_u64], world.rank(), start.addr().get())?;
    /// window.flush(world.rank())?;
    /// window.detach(start.as_ptr())?;
    /// assert_eq!(memory[0], 7);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError::Unsupported`] if the window is not dynamic; [`WindowError::Register`] if [`ATTACHED_MAX`] pieces
    /// are attached already, or the memory cannot be registered.
    ///
    /// # Safety
    /// As of [`create_window`](Communicator::create_window), until [`detach`](Self::detach) or [`free`](Self::free) has
    /// returned without an error.
    pub unsafe fn attach(&self, start: NonNull<u8>, bytes: usize) -> Result<(), WindowError> {
        let attachments = self.targets.attachments.as_ref().ok_or(WindowError::Unsupported)?;
        let mut pieces = attachments.pieces.lock();
        let free = pieces.iter().skip(1).position(Option::is_none).map(|place| place + 1);
        let place = free.unwrap_or(pieces.len());
        if place > ATTACHED_MAX {
            return Err(WindowError::Register(RegisterError::Full));
        }
        // SAFETY: the caller promises that the memory stays valid and is not referred to.
        let memory = unsafe { WindowMemory::new(start, bytes) };
        let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC;
        // SAFETY: the caller promises that the memory stays valid and is not referred to until it is detached.
        let key = unsafe { self.targets.communicator.shared.lock().expose(memory, rights) }?;
        let (address, bytes) = (start.addr().get() as u64, bytes as u64);
        self.set_entry(place, Entry { address, bytes, key: key.key.0, index: key.index.into() })?;
        match pieces.get_mut(place) {
            Some(piece) => *piece = Some(Piece { memory, key }),
            None => {
                pieces.push(Some(Piece { memory, key }));
                self.set_entry(0, Entry { address: pieces.len() as u64, ..FREE })?;
            }
        }
        Ok(())
    }

    /// Detaches the memory that begins at `start` from a dynamic window (`MPI_Win_detach`): nobody accesses it any more.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, mut memory) = (world.create_dynamic_window()?, [0_u64; 4]);
    /// let start = core::ptr::NonNull::from(&mut memory).cast::<u8>();
    /// // SAFETY: the memory is not used otherwise before it is detached.
    /// unsafe { window.attach(start, 32) }?;
    /// window.detach(start.as_ptr())?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError::OutOfBounds`] if no attached memory begins there; otherwise the job has ended, and the memory may
    /// still be accessed.
    pub fn detach(&self, start: *const u8) -> Result<(), WindowError> {
        let attachments = self.targets.attachments.as_ref().ok_or(WindowError::Unsupported)?;
        let mut pieces = attachments.pieces.lock();
        let begins =
            |piece: &Option<Piece>| piece.is_some_and(|piece| piece.memory.start().addr().get() == start.addr());
        let found = (0..).zip(pieces.iter_mut()).find(|(_, piece)| begins(piece));
        let (place, piece) = found.ok_or(WindowError::OutOfBounds(self.targets.communicator.rank))?;
        self.set_entry(place, FREE)?;
        let Some(Piece { key, .. }) = piece.take() else { return Ok(()) };
        conceal(&self.targets.communicator, key)
    }

    fn set_entry(&self, place: usize, entry: Entry) -> Result<(), WindowError> {
        self.targets
            .locked(|| self.own.store(place * size_of::<Entry>(), entry.as_bytes()), self.targets.communicator.rank)
    }
}

impl Targets {
    /// The attached pieces of a rank that `bytes` bytes at an address in its process lie in, in their order.
    pub(super) fn find_attached(
        &self,
        attachments: &Attachments,
        rank: Rank,
        address: usize,
        bytes: usize,
    ) -> Result<Places, WindowError> {
        let outside = WindowError::OutOfBounds(rank);
        let mut found = Found::new(address, bytes);
        let (there, base) = match self.member(rank)?.access {
            Access::Own(_) | Access::Direct(_) | Access::Keyed(_) => {
                for Piece { memory, .. } in attachments.pieces.lock().iter().flatten() {
                    found.add(memory.start().addr().get(), memory.bytes(), Access::Own(*memory));
                }
                return found.cover().ok_or(outside);
            }
            Access::Remote(there, base) => (there, base),
        };
        let step = (self.communicator.shared.lock().read_limit(there) / size_of::<Entry>()).clamp(1, CHUNK);
        let (mut table, mut first, mut used) = ([FREE; CHUNK], 0, 1);
        loop {
            if first >= used.min(ATTACHED_MAX + 1) {
                return Err(outside);
            }
            let part = table.get_mut(..step.min(ATTACHED_MAX + 1 - first)).unwrap_or_default();
            let at = remote_span(base, first * size_of::<Entry>());
            self.get_remote(part.as_mut_bytes(), rank, there, at)?;
            if let (0, Some(header)) = (first, part.first()) {
                used = header.address as usize;
            }
            for Entry { address, bytes, key, index } in part.iter().filter(|entry| entry.bytes > 0) {
                let index = u16::try_from(*index).map_err(|_| outside)?;
                let region = RKey { index, key: RemoteKey(*key) };
                found.add(*address as usize, *bytes as usize, Access::Remote(there, RemoteSpan { region, offset: 0 }));
            }
            match found.cover() {
                Some(places) => return Ok(places),
                None => first += part.len(),
            }
        }
    }
}
