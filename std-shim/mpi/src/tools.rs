//! The tools interface: the settings of the library as control variables, and its counters as performance variables.
//! Its handles are numbers that are never used again, so that each wrong one is found.

pub mod categories;
pub mod controls;
pub mod counters;

use alloc::collections::BTreeMap;
use core::ffi::{c_char, c_int};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use crate::abi::*;
use crate::error::Outcome;
use counters::Measurement;

/// The performance variables of a session, by handle.
pub type Session = BTreeMap<usize, Measurement>;

/// What the users of the interface have made.
#[derive(Debug, Default)]
pub struct Made {
    /// The number of the latest handle.
    latest: usize,
    /// Control variables, by handle.
    pub controls: BTreeMap<usize, usize>,
    /// Sessions, by handle.
    pub sessions: BTreeMap<usize, Session>,
}

/// How often the interface was initialised, and what was made since.
static USERS: Mutex<(u32, Option<Made>)> = Mutex::new((0, None));

/// The numbers of handles follow the constants of the ABI.
const FIRST: usize = MPI_T_PVAR_ALL_HANDLES.0;

impl Made {
    /// A new handle.
    pub const fn new_handle(&mut self) -> usize {
        self.latest = self.latest.saturating_add(1);
        self.latest
    }
}

/// MPI_T_init_thread.
pub fn initialize() {
    let mut users = USERS.lock();
    users.0 = users.0.saturating_add(1);
    users.1.get_or_insert_with(|| Made { latest: FIRST, ..Made::default() });
}

/// MPI_T_finalize.
pub fn finalize() -> Outcome {
    let mut users = USERS.lock();
    users.0 = users.0.checked_sub(1).ok_or(MPI_T_ERR_NOT_INITIALIZED)?;
    if users.0 == 0
        && let Some(made) = &mut users.1
    {
        made.controls.clear();
        made.sessions.clear();
    }
    Ok(())
}

/// What was made, while the interface is initialised.
pub fn made() -> Outcome<MappedMutexGuard<'static, Made>> {
    MutexGuard::try_map(USERS.lock(), |users| users.1.as_mut().filter(|_| users.0 > 0))
        .map_err(|_| MPI_T_ERR_NOT_INITIALIZED)
}

/// The item that an index names.
pub fn item<T>(all: &[T], index: c_int) -> Outcome<&T> {
    usize::try_from(index).ok().and_then(|index| all.get(index)).ok_or(MPI_T_ERR_INVALID_INDEX)
}

/// The index of an item.
pub fn index_of<T>(all: &[T], is_it: impl FnMut(&T) -> bool) -> Outcome<c_int> {
    all.iter().position(is_it).map(|index| index as c_int).ok_or(MPI_T_ERR_INVALID_NAME)
}

/// Writes a result that the caller may not want.
///
/// # Safety
/// It is null or writable.
pub unsafe fn give_if<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null; the caller promises that it is writable.
        unsafe { to.write(value) };
    }
}

/// Writes a text with its zero, as much as `length` says that there is room for, and sets `length` to the room that the
/// whole text needs.
///
/// # Safety
/// Both are null or writable, `to` for as many bytes as `length` says.
pub unsafe fn give_text(to: *mut c_char, length: *mut c_int, value: &str) {
    // SAFETY: by the contract of this function, null or writable.
    let Some(length) = (unsafe { length.as_mut() }) else { return };
    let room = usize::try_from(*length).unwrap_or(0);
    if room > 0 && !to.is_null() {
        // SAFETY: not null; the caller promises that as many bytes are writable.
        let room = unsafe { core::slice::from_raw_parts_mut(to.cast::<u8>(), room) };
        copy_text(room, value);
    }
    *length = value.len() as c_int + 1;
}

/// Copies as much of a text as fits, and a zero.
pub fn copy_text(to: &mut [u8], value: &str) {
    let kept = value.len().min(to.len().saturating_sub(1));
    to.iter_mut().zip(value.bytes().take(kept).chain([0])).for_each(|(to, from)| *to = from);
}
