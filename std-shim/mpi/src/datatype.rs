//! Datatypes: lengths, bounds, how they were made, and copies between memory of a type and packed bytes.

pub mod basic;
pub mod construct;
pub mod layout;

use alloc::ffi::CString;
use alloc::sync::Arc;
use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::AtomicBool;
use std::sync::OnceLock;

use parking_lot::Mutex;

use unisono::raw::ElementType;

use crate::abi::*;
use crate::attribute::Attributes;
use crate::error::Outcome;
use crate::handle::{Held, Kind, Object, resolve};
use basic::{Basic, DENSE, FIRST, HANDLES, Value};
use layout::{Layout, Runs};

/// How a datatype was made.
#[derive(Debug)]
pub struct Envelope {
    /// The constructor.
    pub combiner: c_int,
    /// Its arguments.
    pub integers: Vec<c_int>,
    /// Its displacements.
    pub addresses: Vec<i64>,
    /// Its arguments where it was made by a function for large counts.
    pub counts: Vec<i64>,
    /// Its datatypes.
    pub types: Vec<Held<Datatype>>,
}

/// A datatype. Offsets and lengths in bytes.
#[derive(Debug)]
pub struct Datatype {
    /// Bytes of data.
    pub size: i64,
    /// The lower bound.
    pub lower: i64,
    /// Bytes from one element to the next.
    pub extent: i64,
    /// The offset of the first value.
    pub true_lower: i64,
    /// Bytes from the first value to the end of the last one.
    pub true_extent: i64,
    /// Whether a lower or an upper bound was set.
    pub is_bounded: (bool, bool),
    /// Where its values lie.
    pub layout: Layout,
    /// Whether elements have no gaps, within and between them.
    pub is_dense: bool,
    /// The only predefined datatype of its values, if there is one.
    pub basic: Option<&'static Basic>,
    /// How it was made.
    pub envelope: Envelope,
    /// Whether it may be used in communication.
    pub is_committed: AtomicBool,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its name.
    pub name: Mutex<Option<CString>>,
}

impl Kind for Datatype {
    const MARK: u32 = 0x7479_7065;
    const INVALID: c_int = MPI_ERR_TYPE;

    fn predefined(handle: usize) -> Option<&'static Object<Self>> {
        static TYPES: OnceLock<Vec<Option<Held<Datatype>>>> = OnceLock::new();
        let all = TYPES.get_or_init(|| {
            (0..HANDLES).map(|at| Basic::of(FIRST + at).map(|basic| Object::new(Datatype::of_basic(basic)))).collect()
        });
        all.get(handle.wrapping_sub(FIRST))?.as_deref()
    }
}

impl Datatype {
    fn of_basic(basic: &'static Basic) -> Self {
        let layout = match basic.value {
            Value::Pair(value, index, at) => {
                let part =
                    |handle| Basic::of(handle).map_or_else(Layout::empty, |basic| Layout::Values { basic, count: 1 });
                Layout::list([(0, part(value)), (at.into(), part(index))])
            }
            _ => Layout::Values { basic, count: 1 },
        };
        let last = match basic.value {
            Value::Pair(_, index, at) => at + Basic::of(index).map_or(0, |index| index.size),
            _ => basic.size,
        };
        Self {
            size: basic.size.into(),
            lower: 0,
            extent: basic.extent.into(),
            true_lower: 0,
            true_extent: last.into(),
            is_bounded: (false, false),
            layout,
            is_dense: basic.size == basic.extent,
            basic: Some(basic),
            envelope: Envelope {
                combiner: MPI_COMBINER_NAMED,
                integers: Vec::new(),
                addresses: Vec::new(),
                counts: Vec::new(),
                types: Vec::new(),
            },
            is_committed: AtomicBool::new(true),
            attributes: Attributes::default(),
            name: Mutex::new(CString::new(basic.name).ok()),
        }
    }

    /// Whether it is predefined.
    pub fn is_predefined(&self) -> bool {
        self.envelope.combiner == MPI_COMBINER_NAMED
    }

    /// Bytes of `count` elements when they are packed.
    pub fn bytes(&self, count: i64) -> Outcome<usize> {
        let bytes = self.size.checked_mul(count).ok_or(MPI_ERR_COUNT)?;
        usize::try_from(bytes).map_err(|_| MPI_ERR_COUNT)
    }

    /// The offset of an element.
    const fn offset(&self, element: i64) -> isize {
        (element * self.extent) as isize
    }

    /// Copies `count` elements to packed bytes, which may end early.
    ///
    /// # Safety
    /// The memory of the elements is readable.
    pub unsafe fn pack(&self, from: *const u8, count: i64, into: &mut [u8]) {
        let mut at = 0;
        self.runs(count, into.len(), &mut |offset, bytes| {
            let target = into.get_mut(at..at + bytes).unwrap_or_default();
            let source = from.wrapping_offset(offset);
            // SAFETY: a run of the elements, which the caller promises to be readable; the target is as long.
            unsafe { core::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
            at += bytes;
        });
    }

    /// Copies packed bytes, as many as there are, to the beginning of `count` elements.
    ///
    /// # Safety
    /// The memory of the elements is writable.
    pub unsafe fn unpack(&self, from: &[u8], into: *mut u8, count: i64) {
        let mut at = 0;
        self.runs(count, from.len(), &mut |offset, bytes| {
            let source = from.get(at..at + bytes).unwrap_or_default();
            let target = into.wrapping_offset(offset);
            // SAFETY: a run of the elements, which the caller promises to be writable; the source is as long.
            unsafe { core::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
            at += bytes;
        });
    }

    /// Calls `copy` with the offsets and lengths of runs of bytes, for at most `most` bytes.
    fn runs(&self, count: i64, most: usize, copy: &mut dyn FnMut(isize, usize)) {
        let mut left = most;
        self.visit_runs(count, &mut |runs| {
            (0..runs.runs).all(|run| {
                let now = runs.bytes().min(left);
                if now > 0 {
                    copy(runs.at + runs.stride * run as isize, now);
                    left -= now;
                }
                left > 0
            })
        });
    }

    /// Calls `visit` with the runs of values of `count` elements, in order, until it returns false.
    pub fn visit_runs(&self, count: i64, visit: &mut dyn FnMut(Runs) -> bool) {
        let (mut number, mut first) = (0, None);
        self.layout.visit(self.offset(0), &mut |runs| {
            (number, first) = (number + 1, Some(runs));
            number == 1
        });
        match first {
            // Elements of one run each.
            Some(runs) if number == 1 && runs.runs == 1 && count > 1 => {
                visit(Runs { runs: count as usize, stride: self.offset(1) - self.offset(0), ..runs });
            }
            _ => _ = (0..count).all(|element| self.layout.visit(self.offset(element), visit)),
        }
    }

    /// Number of basic values in the first `bytes` bytes of packed elements. `None`: they end within a value.
    pub fn values_in(&self, bytes: u64) -> Option<i64> {
        if self.size <= 0 {
            return if bytes == 0 { Some(0) } else { None };
        }
        let mut per_element = 0_i64;
        self.layout.visit(0, &mut |runs| {
            per_element += (runs.count * runs.runs) as i64;
            true
        });
        let whole = bytes / self.size as u64;
        let mut left = bytes % self.size as u64;
        let mut values = whole as i64 * per_element;
        self.layout.visit(0, &mut |runs| {
            let size = u64::from(runs.basic.size);
            let now = (left / size).min((runs.count * runs.runs) as u64);
            values += now as i64;
            left -= now * size;
            now == (runs.count * runs.runs) as u64
        });
        (left == 0).then_some(values)
    }

    /// Bytes of the first `values` basic values of packed elements.
    pub fn bytes_of_values(&self, values: i64) -> u64 {
        let mut per_element = 0_i64;
        self.layout.visit(0, &mut |runs| {
            per_element += (runs.count * runs.runs) as i64;
            true
        });
        if per_element == 0 {
            return 0;
        }
        let mut bytes = (values / per_element) as u64 * self.size as u64;
        let mut left = values % per_element;
        self.layout.visit(0, &mut |runs| {
            let now = left.min((runs.count * runs.runs) as i64);
            bytes += now as u64 * u64::from(runs.basic.size);
            left -= now;
            left > 0
        });
        bytes
    }
}

/// A datatype of an argument: a predefined one without gaps, of which the length suffices, or another one.
#[derive(Clone, Copy)]
pub enum Type<'a> {
    /// Bytes of an element, and the only predefined datatype of its values, if there is one.
    Dense(usize, Option<&'static Basic>),
    /// The object.
    Object(&'a Object<Datatype>),
}

/// Bytes of an element of a predefined datatype without gaps; 0: it is another one.
#[inline(always)]
pub fn dense_size(handle: MPI_Datatype) -> u8 {
    DENSE.get(handle.0.wrapping_sub(FIRST)).copied().unwrap_or(0)
}

/// The datatype of an argument of communication.
///
/// # Safety
/// As of [`resolve`].
#[inline(always)]
pub unsafe fn type_of<'a>(handle: MPI_Datatype) -> Outcome<Type<'a>> {
    match dense_size(handle) {
        size @ 1.. => Ok(Type::Dense(size.into(), Basic::of(handle.0))),
        // SAFETY: the caller promises it.
        _ => unsafe { derived(handle) },
    }
}

/// # Safety
/// As of [`resolve`].
#[inline(never)]
unsafe fn derived<'a>(handle: MPI_Datatype) -> Outcome<Type<'a>> {
    // SAFETY: the caller promises it.
    let object = unsafe { resolve::<Datatype>(handle.0) }?;
    if !object.is_committed.load(core::sync::atomic::Ordering::Relaxed) {
        return Err(MPI_ERR_TYPE);
    }
    match usize::try_from(object.size) {
        Ok(size) if object.is_dense => Ok(Type::Dense(size, object.basic)),
        _ => Ok(Type::Object(object)),
    }
}

/// The type of values, which jobs that check types compare: any, if they are of several kinds.
#[inline]
pub fn checked_type_of(basic: Option<&Basic>) -> ElementType {
    basic.map_or(ElementType::Unknown, Basic::checked_type)
}

/// Memory of the program: `count` elements of a type.
#[derive(Clone)]
pub struct Elements {
    /// The address of the first element.
    pub start: usize,
    /// Number of elements.
    pub count: i64,
    /// The type, where there are gaps.
    pub datatype: Option<Held<Datatype>>,
    /// Bytes of data of all elements.
    pub bytes: usize,
    /// Bytes from one element to the next.
    pub extent: isize,
    /// The only predefined datatype of the values, if there is one.
    pub basic: Option<&'static Basic>,
}

impl Elements {
    /// The type of the values, which jobs that check types compare.
    pub fn checked_type(&self) -> ElementType {
        checked_type_of(self.basic)
    }

    /// Checks the arguments of a call.
    ///
    /// # Safety
    /// As of [`resolve`].
    pub unsafe fn new(start: *const u8, count: i64, datatype: MPI_Datatype) -> Outcome<Self> {
        if count < 0 {
            return Err(MPI_ERR_COUNT);
        }
        // SAFETY: the caller promises it.
        let (bytes, extent, object, basic) = match unsafe { type_of(datatype) }? {
            Type::Dense(size, basic) => {
                (size.checked_mul(count as usize).ok_or(MPI_ERR_COUNT)?, size as isize, None, basic)
            }
            Type::Object(object) => (object.bytes(count)?, object.extent as isize, Some(object.hold()), object.basic),
        };
        if start.is_null() && bytes > 0 && object.is_none() {
            return Err(MPI_ERR_BUFFER);
        }
        Ok(Self { start: start.expose_provenance(), count, datatype: object, bytes, extent, basic })
    }

    /// No elements.
    pub const fn none() -> Self {
        Self { start: 0, count: 0, datatype: None, bytes: 0, extent: 0, basic: None }
    }

    /// The first element's address.
    pub fn address(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.start)
    }

    /// The same number of elements, `elements` elements further.
    pub fn at(&self, elements: i64) -> Self {
        Self { start: self.start.wrapping_add_signed(self.extent.wrapping_mul(elements as isize)), ..self.clone() }
    }

    /// Their bytes, where there are no gaps.
    pub fn dense(&self) -> Option<NonNull<[u8]>> {
        if self.datatype.is_some() {
            return None;
        }
        let start = NonNull::new(self.address()).filter(|_| self.bytes > 0).unwrap_or(NonNull::dangling());
        Some(NonNull::slice_from_raw_parts(start, self.bytes))
    }

    /// A copy of the packed bytes.
    ///
    /// # Safety
    /// The elements are readable.
    pub unsafe fn packed(&self) -> Vec<u8> {
        let mut packed = vec![0; self.bytes];
        // SAFETY: the caller promises it; the vector is long enough.
        unsafe { self.pack(&mut packed) };
        packed
    }

    /// Copies the packed bytes.
    ///
    /// # Safety
    /// The elements are readable.
    pub unsafe fn pack(&self, into: &mut [u8]) {
        match &self.datatype {
            // SAFETY: the caller promises it.
            Some(datatype) => unsafe { datatype.pack(self.address(), self.count, into) },
            None => {
                let bytes = self.bytes.min(into.len());
                if bytes > 0 {
                    // SAFETY: the caller promises that the bytes are readable; `into` is memory of this library.
                    unsafe { core::ptr::copy_nonoverlapping(self.address(), into.as_mut_ptr(), bytes) };
                }
            }
        }
    }

    /// Copies packed bytes to the elements.
    ///
    /// # Safety
    /// The elements are writable.
    pub unsafe fn unpack(&self, from: &[u8]) {
        match &self.datatype {
            // SAFETY: the caller promises it.
            Some(datatype) => unsafe { datatype.unpack(from, self.address(), self.count) },
            None => {
                let bytes = self.bytes.min(from.len());
                if bytes > 0 {
                    // SAFETY: the caller promises that the bytes are writable; `from` is memory of this library.
                    unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), self.address(), bytes) };
                }
            }
        }
    }
}

/// The datatype with this handle, as an owner.
///
/// # Safety
/// As of [`resolve`].
pub unsafe fn hold(handle: MPI_Datatype) -> Outcome<Held<Datatype>> {
    // SAFETY: the caller promises it.
    Ok(unsafe { resolve::<Datatype>(handle.0) }?.hold())
}

/// A handle for the program of a datatype, which a predefined one has as a constant.
pub fn handle_of(datatype: &Held<Datatype>) -> MPI_Datatype {
    match datatype.basic.filter(|_| datatype.is_predefined()) {
        Some(basic) => MPI_Datatype(basic.handle),
        None => MPI_Datatype(Object::into_handle(Arc::clone(datatype))),
    }
}
