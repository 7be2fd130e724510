//! Datatypes.

use alloc::borrow::Cow;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::slice;

use unisono::collective::{View, ViewMut};
use unisono::{ArrayOrder, Datatype, Field};
use unisono_shmem::reduction_ops::Element;

use crate::handle::{Kind, Table};
use crate::result::unisono_result::{self, UNISONO_ERROR_DATATYPE, UNISONO_ERROR_HANDLE, UNISONO_ERROR_RESOURCES};
use crate::result::{Error, call};

/// A datatype: which bytes of a buffer are transferred. A predefined one, or made by a call; it can be used at once.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_datatype = u64;

/// A byte.
pub const UNISONO_BYTE: unisono_datatype = 1;
/// `int8_t`.
pub const UNISONO_INT8: unisono_datatype = 2;
/// `int16_t`.
pub const UNISONO_INT16: unisono_datatype = 3;
/// `int32_t`.
pub const UNISONO_INT32: unisono_datatype = 4;
/// `int64_t`.
pub const UNISONO_INT64: unisono_datatype = 5;
/// `uint8_t`.
pub const UNISONO_UINT8: unisono_datatype = 6;
/// `uint16_t`.
pub const UNISONO_UINT16: unisono_datatype = 7;
/// `uint32_t`.
pub const UNISONO_UINT32: unisono_datatype = 8;
/// `uint64_t`.
pub const UNISONO_UINT64: unisono_datatype = 9;
/// `float`.
pub const UNISONO_FLOAT: unisono_datatype = 10;
/// `double`.
pub const UNISONO_DOUBLE: unisono_datatype = 11;
/// A complex number of two `float`s.
pub const UNISONO_COMPLEX_FLOAT: unisono_datatype = 12;
/// A complex number of two `double`s.
pub const UNISONO_COMPLEX_DOUBLE: unisono_datatype = 13;
/// `bool` (`_Bool`): for messages, and collectives that do not reduce.
pub const UNISONO_BOOL: unisono_datatype = 14;
/// `char`: for messages, and collectives that do not reduce.
pub const UNISONO_CHAR: unisono_datatype = 15;

/// A datatype, and the type of its elements if they are all of one that can be reduced.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) datatype: Datatype,
    pub(crate) element: Option<Element>,
}

static DATATYPES: Table<Described> = Table::new(Kind::Datatype);

/// The datatype that a handle names.
pub(crate) fn datatype(handle: unisono_datatype) -> Result<Described, Error> {
    let predefined = |datatype, element| Ok(Described { datatype, element });
    match handle {
        UNISONO_BYTE => predefined(Datatype::bytes(1)?, None),
        UNISONO_INT8 => predefined(Datatype::of::<i8>(), Some(Element::I8)),
        UNISONO_INT16 => predefined(Datatype::of::<i16>(), Some(Element::I16)),
        UNISONO_INT32 => predefined(Datatype::of::<i32>(), Some(Element::I32)),
        UNISONO_INT64 => predefined(Datatype::of::<i64>(), Some(Element::I64)),
        UNISONO_UINT8 => predefined(Datatype::of::<u8>(), Some(Element::U8)),
        UNISONO_UINT16 => predefined(Datatype::of::<u16>(), Some(Element::U16)),
        UNISONO_UINT32 => predefined(Datatype::of::<u32>(), Some(Element::U32)),
        UNISONO_UINT64 => predefined(Datatype::of::<u64>(), Some(Element::U64)),
        UNISONO_FLOAT => predefined(Datatype::of::<f32>(), Some(Element::F32)),
        UNISONO_DOUBLE => predefined(Datatype::of::<f64>(), Some(Element::F64)),
        UNISONO_COMPLEX_FLOAT => predefined(Datatype::of::<f32>().contiguous(2)?, Some(Element::C32)),
        UNISONO_COMPLEX_DOUBLE => predefined(Datatype::of::<f64>().contiguous(2)?, Some(Element::C64)),
        UNISONO_BOOL => predefined(Datatype::of::<bool>(), None),
        UNISONO_CHAR => predefined(Datatype::of::<u8>(), None),
        handle if handle >> 56 == 0 => {
            Err(Error::new(UNISONO_ERROR_HANDLE, format!("there is no predefined datatype {handle}")))
        }
        handle => DATATYPES.get(handle),
    }
}

/// A list of arguments.
///
/// # Safety
/// `list` has `count` readable values unless it is NULL.
pub(crate) unsafe fn list<'a, T>(list: *const T, count: usize, name: &str) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() || !list.is_aligned() {
        return Err(Error::argument(format!("{name} is NULL or misaligned")));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Error::argument(format!("{name} has too many elements")));
    }
    // SAFETY: the caller promises as many values.
    Ok(unsafe { slice::from_raw_parts(list, count) })
}

/// Stores a result where the caller wants it.
///
/// # Safety
/// `to` is writable unless it is NULL.
pub(crate) unsafe fn store<T>(to: *mut T, name: &str, value: T) -> Result<(), Error> {
    check(to, name)?;
    // SAFETY: the caller promises that it is writable; it was checked.
    unsafe { to.write(value) };
    Ok(())
}

/// Checks a pointer where a result is to be stored.
pub(crate) fn check<T>(to: *const T, name: &str) -> Result<(), Error> {
    if to.is_null() || !to.is_aligned() {
        return Err(Error::argument(format!("{name} is NULL or misaligned")));
    }
    Ok(())
}

/// Where the bytes of a datatype begin that is applied at `start`. `None` if `start` is NULL, or they exceed the address
/// space.
pub(crate) fn first_byte(start: *mut c_void, datatype: &Datatype) -> Option<NonNull<u8>> {
    let (first, end) = datatype.true_bounds();
    let fits = (start.addr() as isize).checked_add(end).is_some();
    NonNull::new(start.cast::<u8>().wrapping_offset(first)).filter(|_| !start.is_null() && fits)
}

/// As many zero bytes.
fn zeros(bytes: usize) -> Result<Vec<u8>, Error> {
    let mut zeros = Vec::new();
    let no_memory = |_| Error::new(UNISONO_ERROR_RESOURCES, format!("there is no memory for a copy of {bytes} bytes"));
    zeros.try_reserve_exact(bytes).map_err(no_memory)?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}

/// The memory of blocks, up to the last one, and their lengths and places in bytes.
pub(crate) struct BlockMemory {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: usize,
    pub(crate) counts: Vec<usize>,
    pub(crate) displacements: Vec<usize>,
    pub(crate) element: Option<Element>,
}

/// A buffer argument: memory, a number of elements and their datatype.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) start: *mut c_void,
    pub(crate) count: usize,
    pub(crate) datatype: unisono_datatype,
}

impl Buffer {
    /// All its elements as one datatype that begins at offset 0, the memory from there on, and the type of its
    /// elements.
    fn memory(self) -> Result<(NonNull<u8>, Datatype, Option<Element>), Error> {
        let Described { datatype, element } = datatype(self.datatype)?;
        let all = datatype.contiguous(self.count)?;
        if all.size() == 0 {
            return Ok((NonNull::dangling(), Datatype::EMPTY, element));
        }
        let start = first_byte(self.start, &all);
        let start = start.ok_or_else(|| Error::argument(format!("a buffer of {} elements is NULL", self.count)))?;
        let (first, _) = all.true_bounds();
        Ok((start, all.shifted(first.checked_neg().unwrap_or(0))?, element))
    }

    /// Number of its bytes, without those between them; an error if it is NULL or exceeds the address space.
    pub(crate) fn bytes(self) -> Result<usize, Error> {
        self.memory().map(|(_, datatype, _)| datatype.size())
    }

    /// Its bytes; equal blocks lie one after the other.
    ///
    /// # Safety
    /// They are writable and nobody else's as long as what is made of them is used.
    pub(crate) unsafe fn equal_blocks(self) -> Result<&'static mut [u8], Error> {
        if !datatype(self.datatype)?.datatype.is_contiguous() {
            let reason = "equal blocks of neighbours have a contiguous datatype: use unisono_neighbour_all_to_all_w";
            return Err(Error::new(UNISONO_ERROR_DATATYPE, reason));
        }
        let (start, datatype, _) = self.memory()?;
        // SAFETY: the caller answers for the buffer.
        Ok(unsafe { slice::from_raw_parts_mut(start.as_ptr(), datatype.size()) })
    }

    /// Its bytes, without those between them: a copy if there are any. And the type of its elements.
    ///
    /// # Safety
    /// Its bytes are readable, and not written as long as the result is used.
    pub(crate) unsafe fn packed<'a>(self) -> Result<(Cow<'a, [u8]>, Option<Element>), Error> {
        let (start, datatype, element) = self.memory()?;
        if datatype.is_contiguous() {
            // SAFETY: the caller answers for the buffer.
            let bytes = unsafe { slice::from_raw_parts(start.as_ptr(), datatype.size()) };
            return Ok((bytes.into(), element));
        }
        let mut bytes = zeros(datatype.size())?;
        // SAFETY: the caller answers for the buffer; the copy is as long as it has bytes.
        unsafe { datatype.gather(start, 0, NonNull::from(&mut *bytes).cast(), bytes.len()) };
        Ok((bytes.into(), element))
    }

    /// Fills it: `fill` gets its bytes without those between them, and the type of its elements.
    ///
    /// # Safety
    /// Its bytes are writable and used by nobody else.
    pub(crate) unsafe fn fill(
        self,
        fill: impl FnOnce(&mut [u8], Option<Element>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (start, datatype, element) = self.memory()?;
        if datatype.is_contiguous() {
            // SAFETY: the caller answers for the buffer.
            return fill(unsafe { slice::from_raw_parts_mut(start.as_ptr(), datatype.size()) }, element);
        }
        let mut bytes = zeros(datatype.size())?;
        fill(&mut bytes, element)?;
        // SAFETY: the caller answers for the buffer; the copy is as long as it has bytes.
        unsafe { datatype.scatter(NonNull::from(&mut *bytes).cast(), start, 0, bytes.len()) };
        Ok(())
    }

    /// The buffer to be read.
    ///
    /// # Safety
    /// Its bytes are readable and not written as long as the view, and what is made of it, is used.
    pub(crate) unsafe fn view(self) -> Result<(View<'static, u8>, Option<Element>), Error> {
        let (start, datatype, element) = self.memory()?;
        // SAFETY: the caller promises that the datatype's bytes are readable. Those between them may not be: they are
        // part of the same object, as C demands of a buffer.
        let data = unsafe { slice::from_raw_parts(start.as_ptr(), datatype.true_extent()) };
        Ok((View::of(data, 1, &datatype)?, element))
    }

    /// The buffer to be written.
    ///
    /// # Safety
    /// Its bytes are writable and used by nobody else as long as the view, and what is made of it, is used.
    pub(crate) unsafe fn view_mut(self) -> Result<(ViewMut<'static, u8>, Option<Element>), Error> {
        let (start, datatype, element) = self.memory()?;
        // SAFETY: the caller promises that the datatype's bytes are writable and nobody else's. Those between them are
        // part of the same object, as C demands of a buffer, and are not accessed.
        let data = unsafe { slice::from_raw_parts_mut(start.as_ptr(), datatype.true_extent()) };
        Ok((ViewMut::of(data, 1, &datatype)?, element))
    }

    /// A buffer whose blocks have lengths of their own: its bytes up to the last block, and the lengths and
    /// displacements in bytes.
    pub(crate) fn blocks(self, counts: &[usize], displacements: &[usize]) -> Result<BlockMemory, Error> {
        let Described { datatype, element } = datatype(self.datatype)?;
        if !datatype.is_contiguous() {
            return Err(Error::new(UNISONO_ERROR_DATATYPE, "blocks of any length have a contiguous datatype"));
        }
        let bytes = |list: &[usize]| -> Result<Vec<usize>, Error> {
            let too_long = || Error::argument("a block exceeds the address space");
            list.iter().map(|count| count.checked_mul(datatype.size()).ok_or_else(too_long)).collect()
        };
        let (counts, displacements) = (bytes(counts)?, bytes(displacements)?);
        let ends = counts.iter().zip(&displacements).filter(|(count, _)| **count > 0);
        let end = ends.map(|(count, at)| count.saturating_add(*at)).max().unwrap_or(0);
        if end == 0 {
            let displacements = vec![0; displacements.len()];
            return Ok(BlockMemory { start: NonNull::dangling(), bytes: 0, counts, displacements, element });
        }
        let start = NonNull::new(self.start.cast()).filter(|_| isize::try_from(end).is_ok());
        let start = start.ok_or_else(|| Error::argument("a buffer with blocks is NULL or too long"))?;
        let within = |at: usize| at.min(end);
        let displacements = displacements.into_iter().map(within).collect();
        Ok(BlockMemory { start, bytes: end, counts, displacements, element })
    }
}

/// Makes a datatype of another one.
unsafe fn derive(
    of: unisono_datatype,
    made: *mut unisono_datatype,
    build: impl FnOnce(&Datatype) -> Result<Datatype, Error>,
) -> unisono_result {
    call(|| {
        check(made, "datatype")?;
        let Described { datatype, element } = datatype(of)?;
        let made_of = Described { datatype: build(&datatype)?, element };
        // SAFETY: the caller of the exported function promises that it is writable; it was checked.
        unsafe { store(made, "datatype", DATATYPES.insert(made_of)) }
    })
}

/// `count` elements, one after the other.
///
/// # Safety
/// Pointers are valid or NULL, lists have as many elements as stated, of all functions of this header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_contiguous(
    count: usize,
    element: unisono_datatype,
    datatype: *mut unisono_datatype,
) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    unsafe { derive(element, datatype, |of| Ok(of.contiguous(count)?)) }
}

/// `count` blocks of `length` elements, each `stride` elements after the previous one.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_vector(
    count: usize,
    length: usize,
    stride: isize,
    element: unisono_datatype,
    datatype: *mut unisono_datatype,
) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    unsafe { derive(element, datatype, |of| Ok(of.vector(count, length, stride)?)) }
}

/// As `unisono_datatype_vector`, with a stride in bytes.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_hvector(
    count: usize,
    length: usize,
    stride: isize,
    element: unisono_datatype,
    datatype: *mut unisono_datatype,
) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    unsafe { derive(element, datatype, |of| Ok(of.hvector(count, length, stride)?)) }
}

/// `count` blocks: block i has `lengths[i]` elements, `displacements[i]` elements from the beginning.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_indexed(
    count: usize,
    lengths: *const usize,
    displacements: *const isize,
    element: unisono_datatype,
    datatype: *mut unisono_datatype,
) -> unisono_result {
    let build = |of: &Datatype| {
        // SAFETY: the caller answers for the list.
        let lengths = unsafe { list(lengths, count, "lengths") }?;
        // SAFETY: the caller answers for the list.
        Ok(of.indexed(lengths, unsafe { list(displacements, count, "displacements") }?)?)
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { derive(element, datatype, build) }
}

/// As `unisono_datatype_indexed`, with displacements in bytes.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_hindexed(
    count: usize,
    lengths: *const usize,
    displacements: *const isize,
    element: unisono_datatype,
    datatype: *mut unisono_datatype,
) -> unisono_result {
    let build = |of: &Datatype| {
        // SAFETY: the caller answers for the list.
        let lengths = unsafe { list(lengths, count, "lengths") }?;
        // SAFETY: the caller answers for the list.
        Ok(of.hindexed(lengths, unsafe { list(displacements, count, "displacements") }?)?)
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { derive(element, datatype, build) }
}

/// `count` blocks of `length` elements, `displacements[i]` elements from the beginning.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_indexed_block(
    count: usize,
    length: usize,
    displacements: *const isize,
    element: unisono_datatype,
    datatype: *mut unisono_datatype,
) -> unisono_result {
    let build = |of: &Datatype| {
        // SAFETY: the caller answers for the list.
        Ok(of.indexed_block(length, unsafe { list(displacements, count, "displacements") }?)?)
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { derive(element, datatype, build) }
}

/// A structure: field i has `lengths[i]` elements of `elements[i]`, `displacements[i]` bytes from the beginning.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_struct(
    count: usize,
    lengths: *const usize,
    displacements: *const isize,
    elements: *const unisono_datatype,
    datatype: *mut unisono_datatype,
) -> unisono_result {
    call(|| {
        check(datatype, "datatype")?;
        // SAFETY: the caller answers for the list.
        let lengths = unsafe { list(lengths, count, "lengths") }?;
        // SAFETY: the caller answers for the list.
        let displacements = unsafe { list(displacements, count, "displacements") }?;
        // SAFETY: the caller answers for the list.
        let elements = unsafe { list(elements, count, "elements") }?;
        let described: Vec<Described> =
            elements.iter().map(|element| self::datatype(*element)).collect::<Result<_, _>>()?;
        let places = lengths.iter().zip(displacements).zip(&described);
        let fields: Vec<Field<'_>> = places
            .map(|((count, offset), of)| Field { count: *count, offset: *offset, datatype: &of.datatype })
            .collect();
        let first = described.first().and_then(|first| first.element);
        let element = first.filter(|first| described.iter().all(|other| other.element == Some(*first)));
        let made = Described { datatype: Datatype::structure(&fields)?, element };
        // SAFETY: the caller answers for the pointer.
        unsafe { store(datatype, "datatype", DATATYPES.insert(made)) }
    })
}

/// A block of an array of `dimensions` dimensions: `lengths[i]` of `sizes[i]` elements from `starts[i]` on. In
/// row-major order (C) the last index varies fastest, else (Fortran) the first.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_subarray(
    dimensions: usize,
    sizes: *const usize,
    lengths: *const usize,
    starts: *const usize,
    row_major: bool,
    element: unisono_datatype,
    datatype: *mut unisono_datatype,
) -> unisono_result {
    let build = |of: &Datatype| {
        // SAFETY: the caller answers for the list.
        let sizes = unsafe { list(sizes, dimensions, "sizes") }?;
        // SAFETY: the caller answers for the list.
        let lengths = unsafe { list(lengths, dimensions, "lengths") }?;
        // SAFETY: the caller answers for the list.
        let starts = unsafe { list(starts, dimensions, "starts") }?;
        let order = if row_major { ArrayOrder::RowMajor } else { ArrayOrder::ColumnMajor };
        Ok(of.subarray(sizes, lengths, starts, order)?)
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { derive(element, datatype, build) }
}

/// The same bytes with another lower bound and extent, in bytes: repeated elements are `extent` bytes apart.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_resized(
    element: unisono_datatype,
    lower_bound: isize,
    extent: isize,
    datatype: *mut unisono_datatype,
) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    unsafe { derive(element, datatype, |of| Ok(of.resized(lower_bound, extent)?)) }
}

/// Frees a datatype. What was started with it goes on, and so do datatypes that were made of it.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_datatype_free(datatype: unisono_datatype) -> unisono_result {
    call(|| DATATYPES.remove(datatype).map(|_| ()))
}

/// Number of bytes that a datatype transfers.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_size(datatype: unisono_datatype, size: *mut usize) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    call(|| unsafe { store(size, "size", self::datatype(datatype)?.datatype.size()) })
}

/// The lower bound of a datatype, and the bytes from one element to the next.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_extent(
    datatype: unisono_datatype,
    lower_bound: *mut isize,
    extent: *mut isize,
) -> unisono_result {
    call(|| {
        let Described { datatype, .. } = self::datatype(datatype)?;
        check(extent, "extent")?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(lower_bound, "lower_bound", datatype.lower_bound()) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(extent, "extent", datatype.extent()) }
    })
}

/// Offset of a datatype's first byte, and the bytes from there to its last one.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_datatype_true_extent(
    datatype: unisono_datatype,
    lower_bound: *mut isize,
    extent: *mut isize,
) -> unisono_result {
    call(|| {
        let Described { datatype, .. } = self::datatype(datatype)?;
        check(extent, "extent")?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(lower_bound, "lower_bound", datatype.true_bounds().0) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(extent, "extent", datatype.true_extent() as isize) }
    })
}

/// Copies the bytes of `count` elements from their `offset`th byte on to `packed`, at most `size`. Stores how many were
/// copied.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_pack(
    buffer: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    offset: usize,
    packed: *mut c_void,
    size: usize,
    copied: *mut usize,
) -> unisono_result {
    call(|| {
        check(copied, "copied")?;
        let (start, all, _) = Buffer { start: buffer.cast_mut(), count, datatype }.memory()?;
        let to = NonNull::new(packed.cast()).filter(|_| isize::try_from(size).is_ok());
        let to = to.ok_or_else(|| Error::argument("packed is NULL, or its size too large"))?;
        // SAFETY: the caller answers for both buffers.
        let bytes = unsafe { all.gather(start, offset, to, size) };
        // SAFETY: the caller answers for the pointer.
        unsafe { store(copied, "copied", bytes) }
    })
}

/// Copies `size` packed bytes to the bytes of `count` elements from their `offset`th byte on. Stores how many were
/// copied.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_unpack(
    packed: *const c_void,
    size: usize,
    buffer: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    offset: usize,
    copied: *mut usize,
) -> unisono_result {
    call(|| {
        check(copied, "copied")?;
        let (start, all, _) = Buffer { start: buffer, count, datatype }.memory()?;
        let from = NonNull::new(packed.cast_mut().cast()).filter(|_| isize::try_from(size).is_ok());
        let from = from.ok_or_else(|| Error::argument("packed is NULL, or its size too large"))?;
        // SAFETY: the caller answers for both buffers.
        let bytes = unsafe { all.scatter(from, start, offset, size) };
        // SAFETY: the caller answers for the pointer.
        unsafe { store(copied, "copied", bytes) }
    })
}
