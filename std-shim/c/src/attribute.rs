//! Attributes: pointers that a program or a library attaches to a communicator.

use alloc::sync::Arc;
use core::ffi::c_void;
use core::ptr;

use unisono::AttributeKey;

use crate::communicator::{member, unisono_communicator};
use crate::datatype::{check, store};
use crate::handle::{Kind, Table};
use crate::result::call;
use crate::result::unisono_result;

/// Names an attribute. Each key names another one.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_attribute_key = u64;

/// Makes the value of a duplicate, in `unisono_duplicate`: stores it and returns true; false: the duplicate gets none.
/// It neither throws nor calls `longjmp`.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_attribute_copy =
    Option<unsafe extern "C" fn(value: *mut c_void, context: *mut c_void, copied: *mut *mut c_void) -> bool>;

/// Frees a value that is replaced or removed, or whose communicator is freed. It neither throws nor calls `longjmp`.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_attribute_delete = Option<unsafe extern "C" fn(value: *mut c_void, context: *mut c_void)>;

/// The functions of a key, and the address of their context, for whose use in other threads the program answers.
#[derive(Clone, Copy, Debug)]
struct Functions {
    copy: unisono_attribute_copy,
    delete: unisono_attribute_delete,
    context: usize,
}

/// A value: the program's pointer.
struct Value {
    address: usize,
    functions: Functions,
}

impl Value {
    fn copied(&self) -> Option<Self> {
        let Functions { copy, context, .. } = self.functions;
        let mut copied = ptr::null_mut();
        let [value, context] = [self.address, context].map(ptr::with_exposed_provenance_mut);
        // SAFETY: the program promises that the function takes the values of its key, and returns.
        let is_copied = unsafe { copy?(value, context, &raw mut copied) };
        is_copied.then(|| Self { address: copied.expose_provenance(), functions: self.functions })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let [value, context] = [self.address, self.functions.context].map(ptr::with_exposed_provenance_mut);
        if let Some(delete) = self.functions.delete {
            // SAFETY: the program promises that the function takes the values of its key, and returns.
            unsafe { delete(value, context) };
        }
    }
}

/// A key with its functions.
struct Key {
    library: AttributeKey<Value>,
    functions: Functions,
}

static KEYS: Table<Arc<Key>> = Table::new(Kind::AttributeKey);

/// Makes a key. `copy` may be NULL: duplicates of a communicator get no value; `delete` may be NULL: values are not freed.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_attribute_key_create(
    copy: unisono_attribute_copy,
    delete: unisono_attribute_delete,
    context: *mut c_void,
    key: *mut unisono_attribute_key,
) -> unisono_result {
    call(|| {
        check(key, "key")?;
        let functions = Functions { copy, delete, context: context.expose_provenance() };
        let made = Key { library: AttributeKey::copied_by(Value::copied), functions };
        // SAFETY: the caller answers for the pointer.
        unsafe { store(key, "key", KEYS.insert(Arc::new(made))) }
    })
}

/// Frees a key. Communicators keep its values.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_attribute_key_free(key: unisono_attribute_key) -> unisono_result {
    call(|| KEYS.remove(key).map(drop))
}

/// Attaches a value to a communicator, instead of the one of that key, if there is one, which is freed.
///
/// # Safety
/// As of all functions: the value is one that the key's functions take.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_set_attribute(
    communicator: unisono_communicator,
    key: unisono_attribute_key,
    value: *mut c_void,
) -> unisono_result {
    call(|| {
        let (member, key) = (member(communicator)?, KEYS.get(key)?);
        let value = Value { address: value.expose_provenance(), functions: key.functions };
        // The previous one is freed when no lock is held.
        drop(member.communicator().set_attribute(&key.library, value));
        Ok(())
    })
}

/// Stores the value of a key; without one `*found` is false, and the value NULL.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_get_attribute(
    communicator: unisono_communicator,
    key: unisono_attribute_key,
    value: *mut *mut c_void,
    found: *mut bool,
) -> unisono_result {
    call(|| {
        check(value, "value")?;
        check(found, "found")?;
        let attached = member(communicator)?.communicator().attribute(&KEYS.get(key)?.library);
        let address = attached.as_ref().map_or(0, |attached| attached.address);
        // SAFETY: the caller answers for the pointer.
        unsafe { store(value, "value", ptr::with_exposed_provenance_mut(address)) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(found, "found", attached.is_some()) }
    })
}

/// Detaches and frees the value of a key, if there is one.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_remove_attribute(
    communicator: unisono_communicator,
    key: unisono_attribute_key,
) -> unisono_result {
    call(|| {
        drop(member(communicator)?.communicator().remove_attribute(&KEYS.get(key)?.library));
        Ok(())
    })
}
