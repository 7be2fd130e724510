//! Regions: memory that a rank registers by itself, and that ranks with its key read, write and update.
//!
//! Offsets count bytes from the beginning of the region. An operation has an effect at its target at the latest when
//! `unisono_region_flush` has returned, which reports the error of one that the target has refused; gets and updates that
//! return old elements have ended when they return.

pub mod access;

use alloc::sync::Arc;
use core::ffi::c_void;

use unisono::zerocopy::{FromBytes as _, IntoBytes as _};
use unisono::{Communicator, RKey, Region, RemoteRegion, Rights};

use crate::communicator::unisono_communicator;
use crate::datatype::{check, store};
use crate::handle::{Kind, Table};
use crate::one_sided::{made, memory};
use crate::result::unisono_result::{self, UNISONO_ERROR_UNDER_WAY};
use crate::result::{Error, call};

/// A region of this rank.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_region = u64;

/// A region of a rank, which may be this one, as its key gives access to it.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_remote_region = u64;

/// The bytes of `unisono_rkey`.
pub const UNISONO_RKEY_BYTES: usize = 40;
const _: () = assert!(UNISONO_RKEY_BYTES == size_of::<RKey>(), "a key is as long");

/// What other ranks need to access a region: plain bytes, to be sent to those that may.
#[allow(non_camel_case_types, reason = "a name of C")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct unisono_rkey {
    /// Opaque.
    pub bytes: [u8; UNISONO_RKEY_BYTES],
}

/// Other ranks may read the region.
pub const UNISONO_RIGHT_READ: u32 = 1;
/// Other ranks may write it.
pub const UNISONO_RIGHT_WRITE: u32 = 2;
/// Other ranks may update it.
pub const UNISONO_RIGHT_ATOMIC: u32 = 4;
/// The first whole operation is the last one.
pub const UNISONO_RIGHT_ONCE: u32 = 8;

static REGIONS: Table<Arc<Region>> = Table::new(Kind::Region);
static REMOTE_REGIONS: Table<Arc<RemoteRegion>> = Table::new(Kind::RemoteRegion);

fn rights_of(rights: u32) -> Result<Rights, Error> {
    let bits = [
        (UNISONO_RIGHT_READ, Rights::READ),
        (UNISONO_RIGHT_WRITE, Rights::WRITE),
        (UNISONO_RIGHT_ATOMIC, Rights::ATOMIC),
        (UNISONO_RIGHT_ONCE, Rights::ONCE),
    ];
    let known = bits.iter().fold(0, |known, (bit, _)| known | bit);
    let granted = bits.iter().filter(|(bit, _)| rights & bit != 0).map(|(_, right)| *right).collect();
    if rights & !known == 0 { Ok(granted) } else { Err(Error::argument("unknown rights of a region")) }
}

/// Allocates `bytes` zero bytes as a region, with rights of `UNISONO_RIGHT_READ`, `_WRITE`, `_ATOMIC` and `_ONCE` together.
/// Not collective.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_allocate_region(
    communicator: unisono_communicator,
    bytes: usize,
    rights: u32,
    region: *mut unisono_region,
) -> unisono_result {
    let make = |of: &Communicator| Ok(of.allocate_region(bytes, rights_of(rights)?)?);
    // SAFETY: the caller answers for the pointer.
    unsafe { made(&REGIONS, communicator, ("region", region), make) }
}

/// Makes `bytes` bytes of the program's memory a region. The memory stays valid until the region is revoked. Not
/// collective.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_register_region(
    communicator: unisono_communicator,
    start: *mut c_void,
    bytes: usize,
    rights: u32,
    region: *mut unisono_region,
) -> unisono_result {
    let make = |of: &Communicator| {
        let (start, rights) = (memory(start, bytes)?, rights_of(rights)?);
        // SAFETY: the caller promises that the memory stays valid until the region is revoked.
        Ok(unsafe { of.register_region(start, bytes, rights) }?)
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { made(&REGIONS, communicator, ("region", region), make) }
}

/// Stores the key of a region, for the ranks that may access it.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_region_key(region: unisono_region, key: *mut unisono_rkey) -> unisono_result {
    call(|| {
        let mut bytes = [0; UNISONO_RKEY_BYTES];
        REGIONS.get(region)?.rkey().write_to(&mut bytes).map_err(|_| Error::argument("the key has another length"))?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(key, "key", unisono_rkey { bytes }) }
    })
}

/// Stores the address of a region, and its bytes. Other ranks may write there at any time.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_region_memory(
    region: unisono_region,
    start: *mut *mut c_void,
    bytes: *mut usize,
) -> unisono_result {
    call(|| {
        check(start, "start")?;
        check(bytes, "bytes")?;
        let region = REGIONS.get(region)?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(start, "start", region.as_ptr().cast()) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(bytes, "bytes", region.bytes()) }
    })
}

/// Ends the access of other ranks, and waits until nobody uses the memory, which is freed if it was allocated. Later
/// accesses are `UNISONO_ERROR_REVOKED`.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_region_revoke(region: unisono_region) -> unisono_result {
    call(|| {
        let removed = REGIONS.remove_unused(region)?;
        let in_use = || Error::new(UNISONO_ERROR_UNDER_WAY, "another thread uses the region");
        Ok(removed.ok_or_else(in_use)?.revoke()?)
    })
}

/// The region of a rank of the communicator that the key was made for, until `unisono_remote_region_free`. No message is
/// sent: whether the key is good, the first access shows.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_import_region(
    communicator: unisono_communicator,
    key: *const unisono_rkey,
    region: *mut unisono_remote_region,
) -> unisono_result {
    let make = |of: &Communicator| {
        check(key, "key")?;
        // SAFETY: the caller answers for the pointer.
        let key = unsafe { key.read_unaligned() };
        let key = RKey::read_from_bytes(&key.bytes).map_err(|_| Error::argument("the key has another length"))?;
        Ok(of.import_region(&key)?)
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { made(&REMOTE_REGIONS, communicator, ("region", region), make) }
}

/// Frees what an import has made. Operations that are under way go on.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_remote_region_free(region: unisono_remote_region) -> unisono_result {
    call(|| REMOTE_REGIONS.remove(region).map(|_| ()))
}
