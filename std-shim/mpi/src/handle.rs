//! Handles and the objects that they name. A handle is a small constant or the address of an [`Object`]: one comparison
//! distinguishes them.

use alloc::sync::Arc;
use core::ffi::c_int;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};

/// Handles below this are constants.
pub const FIRST_ADDRESS: usize = 0x1000;

/// The mark of an object whose handle was freed.
const FREED: u32 = 0;

/// What handles of one type name.
pub trait Kind: Sized + Send + Sync + 'static {
    /// The first word of each such object.
    const MARK: u32;
    /// The error of a handle that names none.
    const INVALID: c_int;

    /// The object that a constant names.
    fn predefined(handle: usize) -> Option<&'static Object<Self>>;
}

/// An object that a handle names. It lives in an [`Arc`], of which the handle is one owner.
#[derive(Debug)]
#[repr(C)]
pub struct Object<T> {
    mark: AtomicU32,
    /// Handles that the program has of it.
    handles: AtomicU32,
    value: T,
}

/// Shared ownership of an object.
pub type Held<T> = Arc<Object<T>>;

impl<T> Deref for Object<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Kind> Object<T> {
    /// A new object.
    pub fn new(value: T) -> Held<T> {
        Arc::new(Self { mark: AtomicU32::new(T::MARK), handles: AtomicU32::new(0), value })
    }

    /// Another owner of this object.
    pub fn hold(&self) -> Held<T> {
        // SAFETY: objects are made by `new` alone, so that this one lives in an Arc, which is not dropped while it is
        // borrowed.
        unsafe { Arc::increment_strong_count(self) };
        // SAFETY: the count was incremented for this owner.
        unsafe { Arc::from_raw(self) }
    }

    /// The handle that names this object; it must be [`released`](release) once.
    pub fn into_handle(this: Held<T>) -> usize {
        // Its last handle may have been freed: of a datatype that another one consists of.
        if this.handles.fetch_add(1, Ordering::Relaxed) == 0 {
            this.mark.store(T::MARK, Ordering::Relaxed);
        }
        Arc::into_raw(this).expose_provenance()
    }

    /// The address as a handle, without another owner.
    pub fn address(&self) -> usize {
        core::ptr::from_ref(self).expose_provenance()
    }
}

/// The object that a handle names.
///
/// # Safety
/// The handle is not freed as long as the result is used, which the program answers for.
#[inline(always)]
pub unsafe fn resolve<'a, T: Kind>(handle: usize) -> Result<&'a Object<T>, c_int> {
    if handle < FIRST_ADDRESS {
        return T::predefined(handle).ok_or(T::INVALID);
    }
    let object = core::ptr::with_exposed_provenance::<Object<T>>(handle);
    if !object.is_aligned() {
        return Err(T::INVALID);
    }
    // SAFETY: a handle that is no constant is the address of an object, or the program is wrong in a way that the
    // standard does not ask to detect; the mark detects most of those.
    let mark = unsafe { &*(object.cast::<AtomicU32>()) };
    if mark.load(Ordering::Relaxed) != T::MARK {
        return Err(T::INVALID);
    }
    // SAFETY: the mark is that of such objects.
    Ok(unsafe { &*object })
}

/// Takes the ownership of a handle, which names nothing any more.
///
/// # Safety
/// As of [`resolve`]; nobody else uses the handle.
pub unsafe fn release<T: Kind>(handle: usize) -> Result<Held<T>, c_int> {
    if handle < FIRST_ADDRESS {
        return Err(T::INVALID);
    }
    // SAFETY: the caller promises it.
    let object = unsafe { resolve::<T>(handle) }?;
    if object.handles.fetch_sub(1, Ordering::Relaxed) == 1 {
        object.mark.store(FREED, Ordering::Relaxed);
    }
    // SAFETY: the handle is an owner, and the mark lets it be released only as often as it was made.
    Ok(unsafe { Arc::from_raw(object) })
}
