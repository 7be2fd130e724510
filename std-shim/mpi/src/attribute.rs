//! Attributes that the program caches with communicators, datatypes and windows, and their keys.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ffi::{c_int, c_void};

use parking_lot::Mutex;

use crate::abi::*;
use crate::error::Outcome;

/// What an attribute belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A communicator.
    Communicator,
    /// A datatype.
    Datatype,
    /// A window.
    Window,
}

/// A key: functions of the program, as addresses or constants, and its argument for them.
#[derive(Debug)]
pub struct Key {
    number: c_int,
    owner: Owner,
    copy: usize,
    delete: usize,
    extra: usize,
}

type Copy = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
type Delete = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;

/// The first key of the program; smaller ones are predefined.
const FIRST_KEY: c_int = 0x1000;
/// The constant that stands for a function that copies the value.
const DUPLICATE: usize = MPI_COMM_DUP_FN;

static KEYS: Mutex<(c_int, BTreeMap<c_int, Arc<Key>>)> = Mutex::new((FIRST_KEY, BTreeMap::new()));

/// Makes a key.
pub fn create(owner: Owner, copy: Callback, delete: Callback, extra: *mut c_void) -> c_int {
    let mut keys = KEYS.lock();
    let number = keys.0;
    keys.0 += 1;
    let (copy, delete, extra) = (copy.expose_provenance(), delete.expose_provenance(), extra.expose_provenance());
    keys.1.insert(number, Arc::new(Key { number, owner, copy, delete, extra }));
    number
}

/// Frees a key; attributes that have it keep it.
pub fn free(owner: Owner, number: c_int) -> Outcome {
    find(owner, number)?;
    KEYS.lock().1.remove(&number);
    Ok(())
}

fn find(owner: Owner, number: c_int) -> Outcome<Arc<Key>> {
    KEYS.lock().1.get(&number).filter(|key| key.owner == owner).cloned().ok_or(MPI_ERR_KEYVAL)
}

/// The attributes of an object, in the order in which they were set.
#[derive(Debug, Default)]
pub struct Attributes(Mutex<Vec<(Arc<Key>, usize)>>);

impl Key {
    fn extra(&self) -> *mut c_void {
        core::ptr::with_exposed_provenance_mut(self.extra)
    }

    /// # Safety
    /// The handle is that of the object that has the attribute.
    unsafe fn delete(&self, handle: usize, value: usize) -> Outcome {
        if self.delete == MPI_COMM_NULL_DELETE_FN {
            return Ok(());
        }
        let function = core::ptr::with_exposed_provenance::<c_void>(self.delete);
        // SAFETY: the program made the key with a function of this type.
        let function = unsafe { core::mem::transmute::<*const c_void, Delete>(function) };
        let value = core::ptr::with_exposed_provenance_mut(value);
        // SAFETY: its own function, called as the standard says.
        match unsafe { function(handle, self.number, value, self.extra()) } {
            MPI_SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    /// The value for a duplicate, if it gets one.
    ///
    /// # Safety
    /// As of [`delete`](Self::delete).
    unsafe fn copy(&self, handle: usize, value: usize) -> Outcome<Option<usize>> {
        if self.copy == MPI_COMM_NULL_COPY_FN {
            return Ok(None);
        }
        if self.copy == DUPLICATE {
            return Ok(Some(value));
        }
        let function = core::ptr::with_exposed_provenance::<c_void>(self.copy);
        // SAFETY: the program made the key with a function of this type.
        let function = unsafe { core::mem::transmute::<*const c_void, Copy>(function) };
        let (mut copied, mut flag) = (core::ptr::null_mut::<c_void>(), 0);
        let value = core::ptr::with_exposed_provenance_mut(value);
        let into = (&raw mut copied).cast();
        // SAFETY: its own function, called as the standard says.
        match unsafe { function(handle, self.number, self.extra(), value, into, &raw mut flag) } {
            MPI_SUCCESS => Ok((flag != 0).then(|| copied.expose_provenance())),
            code => Err(code),
        }
    }
}

impl Attributes {
    /// The value of an attribute, if it is set.
    pub fn get(&self, owner: Owner, number: c_int) -> Outcome<Option<usize>> {
        let found = self.0.lock().iter().find(|(key, _)| key.number == number).map(|(_, value)| *value);
        match found {
            Some(value) => Ok(Some(value)),
            None => find(owner, number).map(|_| None),
        }
    }

    /// Sets an attribute; deletes its former value.
    ///
    /// # Safety
    /// The handle is that of the object.
    pub unsafe fn set(&self, owner: Owner, handle: usize, number: c_int, value: *mut c_void) -> Outcome {
        let key = find(owner, number)?;
        let former = self.0.lock().iter().find(|(key, _)| key.number == number).map(|(_, value)| *value);
        if let Some(former) = former {
            // SAFETY: the caller promises it.
            unsafe { key.delete(handle, former) }?;
        }
        let value = value.expose_provenance();
        let mut all = self.0.lock();
        match all.iter_mut().find(|(key, _)| key.number == number) {
            Some(entry) => entry.1 = value,
            None => all.push((key, value)),
        }
        Ok(())
    }

    /// Deletes an attribute.
    ///
    /// # Safety
    /// The handle is that of the object.
    pub unsafe fn delete(&self, owner: Owner, handle: usize, number: c_int) -> Outcome {
        let found = self.0.lock().iter().find(|(key, _)| key.number == number).cloned();
        let Some((key, value)) = found else { return find(owner, number).and(Err(MPI_ERR_KEYVAL)) };
        // SAFETY: the caller promises it.
        unsafe { key.delete(handle, value) }?;
        self.0.lock().retain(|(key, _)| key.number != number);
        Ok(())
    }

    /// Deletes all attributes, the last one first.
    ///
    /// # Safety
    /// The handle is that of the object.
    pub unsafe fn delete_all(&self, handle: usize) -> Outcome {
        loop {
            let last = self.0.lock().last().cloned();
            let Some((key, value)) = last else { return Ok(()) };
            // SAFETY: the caller promises it.
            unsafe { key.delete(handle, value) }?;
            self.0.lock().retain(|(other, _)| other.number != key.number);
        }
    }

    /// Copies the attributes to a duplicate, as their keys say.
    ///
    /// # Safety
    /// The handle is that of the object.
    pub unsafe fn copy_to(&self, handle: usize, other: &Self) -> Outcome {
        let all = self.0.lock().clone();
        for (key, value) in all {
            // SAFETY: the caller promises it.
            if let Some(copied) = unsafe { key.copy(handle, value) }? {
                other.0.lock().push((key, copied));
            }
        }
        Ok(())
    }
}
