//! Datatypes and their constructors.

use core::ops::ControlFlow;
use core::ptr::NonNull;

use crate::basic::{Basic, BasicType};
use crate::bounds::Bounds;
use crate::disjoint;
use crate::error::DatatypeError::{Lengths, TooLarge};
use crate::error::{DatatypeError, OutOfBounds};
use crate::node::{Node, Placed, Run};
use crate::signature::Signature;

/// A description of bytes in a buffer: which ones, in which order, and of which types. It can be copied cheaply, and
/// may be used for communication as soon as it is built.
///
/// Its constructors take a number of copies of it and where they are. Distances are in bytes in those whose names begin
/// with h, else in multiples of its extent.
#[derive(Clone, Debug)]
pub struct Datatype {
    /// `None`: it names no bytes.
    placed: Option<Placed>,
    bounds: Bounds,
    /// Upper bound, rounded up so that the extent is a multiple of the alignment.
    upper: isize,
    alignment: usize,
    signature: Signature,
    /// The code of the basic type of all its elements. `None`: there are none, or several types.
    code: Option<u16>,
}

/// A field of a [`structure`](Datatype::structure).
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// How many, one after the other.
    pub count: usize,
    /// Where the first one is, in bytes.
    pub offset: isize,
    /// Of what.
    pub datatype: &'a Datatype,
}

/// The order of an array's elements in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArrayOrder {
    /// The last index varies fastest (`MPI_ORDER_C`).
    RowMajor,
    /// The first index varies fastest (`MPI_ORDER_FORTRAN`).
    ColumnMajor,
}

impl Datatype {
    /// No bytes.
    pub const EMPTY: Self = Self {
        placed: None,
        bounds: Bounds { lower: 0, upper: 0, is_lower_marked: false, is_upper_marked: false },
        upper: 0,
        alignment: 1,
        signature: Signature { elements: 0, hash: 0 },
        code: None,
    };

    /// One element of a basic type.
    pub fn basic(basic: Basic) -> Self {
        let bytes = usize::from(basic.bytes);
        Self {
            placed: (bytes > 0).then(|| Placed::block(bytes)),
            bounds: Bounds { upper: bytes as isize, ..Bounds::default() },
            upper: bytes as isize,
            alignment: usize::from(basic.alignment),
            signature: Signature::basic(basic),
            code: Some(basic.code),
        }
    }

    /// One element of a Rust type.
    pub fn of<T: BasicType>() -> Self {
        Self::basic(T::BASIC)
    }

    /// `count` bytes (`MPI_BYTE`).
    ///
    /// # Errors
    /// [`DatatypeError::TooLarge`], as of all constructors.
    pub fn bytes(count: usize) -> Result<Self, DatatypeError> {
        Self::basic(Basic::BYTE).contiguous(count)
    }

    /// `count` of it, one after the other (`MPI_Type_contiguous`).
    ///
    /// # Errors
    /// [`DatatypeError::TooLarge`].
    pub fn contiguous(&self, count: usize) -> Result<Self, DatatypeError> {
        self.strided(count, self.extent())
    }

    /// `count` blocks of `length` of it, each `stride` extents after the previous one (`MPI_Type_vector`).
    ///
    /// # Errors
    /// [`DatatypeError::TooLarge`].
    pub fn vector(&self, count: usize, length: usize, stride: isize) -> Result<Self, DatatypeError> {
        self.hvector(count, length, self.extents(stride)?)
    }

    /// `count` blocks of `length` of it, each `stride` bytes after the previous one (`MPI_Type_create_hvector`).
    ///
    /// # Errors
    /// [`DatatypeError::TooLarge`].
    pub fn hvector(&self, count: usize, length: usize, stride: isize) -> Result<Self, DatatypeError> {
        self.contiguous(length)?.strided(count, stride)
    }

    /// Blocks of `lengths` of it, `displacements` extents from the beginning (`MPI_Type_indexed`).
    ///
    /// # Errors
    /// [`DatatypeError::Lengths`], [`DatatypeError::TooLarge`].
    pub fn indexed(&self, lengths: &[usize], displacements: &[isize]) -> Result<Self, DatatypeError> {
        expect_equal(lengths.len(), displacements.len())?;
        let places = displacements.iter().map(|at| self.extents(*at));
        self.placed(lengths.iter().copied().zip(places))
    }

    /// Blocks of `length` of it, `displacements` extents from the beginning (`MPI_Type_create_indexed_block`).
    ///
    /// # Errors
    /// [`DatatypeError::TooLarge`].
    pub fn indexed_block(&self, length: usize, displacements: &[isize]) -> Result<Self, DatatypeError> {
        self.placed(displacements.iter().map(|at| (length, self.extents(*at))))
    }

    /// Blocks of `lengths` of it, `displacements` bytes from the beginning (`MPI_Type_create_hindexed`).
    ///
    /// # Errors
    /// [`DatatypeError::Lengths`], [`DatatypeError::TooLarge`].
    pub fn hindexed(&self, lengths: &[usize], displacements: &[isize]) -> Result<Self, DatatypeError> {
        expect_equal(lengths.len(), displacements.len())?;
        self.placed(lengths.iter().copied().zip(displacements.iter().map(|at| Ok(*at))))
    }

    /// Blocks of `length` of it, `displacements` bytes from the beginning (`MPI_Type_create_hindexed_block`).
    ///
    /// # Errors
    /// [`DatatypeError::TooLarge`].
    pub fn hindexed_block(&self, length: usize, displacements: &[isize]) -> Result<Self, DatatypeError> {
        self.placed(displacements.iter().map(|at| (length, Ok(*at))))
    }

    /// Fields of different datatypes (`MPI_Type_create_struct`).
    ///
    /// # Errors
    /// [`DatatypeError::TooLarge`].
    pub fn structure(fields: &[Field<'_>]) -> Result<Self, DatatypeError> {
        let parts = fields.iter().filter(|field| field.count > 0);
        Self::sequence(parts.map(|Field { count, offset, datatype }| datatype.contiguous(*count)?.shifted(*offset)))
    }

    /// It with another lower bound and extent, in bytes (`MPI_Type_create_resized`): where it is repeated, the copies
    /// are `extent` bytes apart.
    ///
    /// # Errors
    /// [`DatatypeError::TooLarge`].
    pub fn resized(&self, lower: isize, extent: isize) -> Result<Self, DatatypeError> {
        let upper = lower.checked_add(extent).ok_or(TooLarge)?;
        let bounds = Bounds { lower, upper, is_lower_marked: true, is_upper_marked: true };
        Ok(Self { bounds, upper, ..self.clone() })
    }

    /// The same bytes, `offset` bytes further.
    ///
    /// # Errors
    /// [`DatatypeError::TooLarge`].
    pub fn shifted(&self, offset: isize) -> Result<Self, DatatypeError> {
        let placed = self.placed.as_ref().map(|placed| placed.shifted(offset)).transpose()?;
        let (bounds, upper) = (self.bounds.shifted(offset)?, self.upper.checked_add(offset).ok_or(TooLarge)?);
        Ok(Self { placed, bounds, upper, ..self.clone() })
    }

    /// Number of bytes that it transfers (`MPI_Type_size`).
    pub fn size(&self) -> usize {
        self.placed.as_ref().map_or(0, |placed| placed.node.size())
    }

    /// Bytes from one copy of it to the next (`MPI_Type_get_extent`).
    pub const fn extent(&self) -> isize {
        self.upper.wrapping_sub(self.bounds.lower)
    }

    /// Its lower bound.
    pub const fn lower_bound(&self) -> isize {
        self.bounds.lower
    }

    /// Its upper bound: lower bound and extent.
    pub const fn upper_bound(&self) -> isize {
        self.upper
    }

    /// Offset of its first byte, and offset after its last one (`MPI_Type_get_true_extent`).
    pub fn true_bounds(&self) -> (isize, isize) {
        self.placed.as_ref().and_then(Placed::span).unwrap_or((0, 0))
    }

    /// Bytes from its first to its last one.
    pub fn true_extent(&self) -> usize {
        let (first, end) = self.true_bounds();
        end.abs_diff(first)
    }

    /// The basic types that it transfers.
    pub const fn signature(&self) -> Signature {
        self.signature
    }

    /// The [code](Basic::code) of the basic type of all its elements. `None`: it has no elements, or several types.
    pub const fn basic_code(&self) -> Option<u16> {
        self.code
    }

    /// The largest alignment of its basic types.
    pub const fn alignment(&self) -> usize {
        self.alignment
    }

    /// Whether its bytes are adjacent and in order, and copies of it are, too.
    pub fn is_contiguous(&self) -> bool {
        let size = self.size();
        size == 0 || self.is_one_block() && self.extent() == size as isize && self.true_bounds().0 == 0
    }

    /// Whether its bytes are adjacent and in order.
    pub fn is_one_block(&self) -> bool {
        self.placed.as_ref().is_none_or(|placed| matches!(placed.node, Node::Blocks { count: 1, .. }))
    }

    /// Number of contiguous blocks, after neighbours were merged.
    pub fn blocks(&self) -> usize {
        self.placed.as_ref().map_or(0, |placed| placed.node.blocks())
    }

    /// Whether it names no byte twice, as is needed where something is received. A datatype of more than 2²⁰ blocks
    /// that interleave irregularly counts as overlapping.
    pub fn is_disjoint(&self) -> bool {
        self.placed.as_ref().is_none_or(disjoint::is_disjoint)
    }

    /// Reports its bytes from the `offset`th on, `bytes` of them or as many as there are, as runs of equal blocks, in
    /// order. Returns how many.
    #[inline]
    pub fn for_each_run(&self, offset: usize, bytes: usize, mut report: impl FnMut(Run) -> ControlFlow<()>) -> usize {
        let Some(placed) = &self.placed else { return 0 };
        let bytes = placed.node.size().saturating_sub(offset).min(bytes);
        if bytes > 0 {
            let _ = placed.node.visit(placed.at, offset, bytes, &mut report);
        }
        bytes
    }

    /// Copies its bytes in a buffer, from the `offset`th on, to `into`, as many as fit (`MPI_Pack`). Returns how many.
    ///
    /// # Errors
    /// [`OutOfBounds`].
    pub fn pack(&self, buffer: &[u8], offset: usize, into: &mut [u8]) -> Result<usize, OutOfBounds> {
        self.expect_within(buffer.len())?;
        let (into, bytes) = (NonNull::from(&mut *into).cast(), into.len());
        // SAFETY: all bytes lie within the buffer; `into` is exclusive, and so another object.
        Ok(unsafe { self.gather(NonNull::from(buffer).cast(), offset, into, bytes) })
    }

    /// Copies packed bytes to its bytes in a buffer, from the `offset`th on, as many as there are (`MPI_Unpack`).
    /// Returns how many. Of packed bytes for the same place the last one stays.
    ///
    /// # Errors
    /// [`OutOfBounds`].
    pub fn unpack(&self, packed: &[u8], buffer: &mut [u8], offset: usize) -> Result<usize, OutOfBounds> {
        self.expect_within(buffer.len())?;
        // SAFETY: all bytes lie within the buffer, which is exclusive, and so another object than `packed`.
        Ok(unsafe { self.scatter(NonNull::from(packed).cast(), NonNull::from(buffer).cast(), offset, packed.len()) })
    }

    /// Checks that it names only bytes of a buffer of `given` bytes.
    ///
    /// # Errors
    /// [`OutOfBounds`].
    pub fn expect_within(&self, given: usize) -> Result<(), OutOfBounds> {
        let (first, end) = self.true_bounds();
        if first >= 0 && usize::try_from(end).is_ok_and(|end| end <= given) {
            return Ok(());
        }
        Err(OutOfBounds { first, end, given })
    }

    /// `count` of it, `stride` bytes apart.
    fn strided(&self, count: usize, stride: isize) -> Result<Self, DatatypeError> {
        if count == 0 || self.is_void() {
            return Ok(Self { alignment: self.alignment, ..Self::EMPTY });
        }
        let placed = self.placed.as_ref().map(|placed| placed.repeated(count, stride)).transpose()?;
        let bounds = self.bounds.repeated(count, stride)?;
        let upper = bounds.padded_upper(self.alignment)?;
        let signature = self.signature.repeated(count);
        Ok(Self { placed, bounds, upper, alignment: self.alignment, signature, code: self.code })
    }

    /// Whether it has neither bytes nor bounds.
    const fn is_void(&self) -> bool {
        self.placed.is_none() && !self.bounds.is_lower_marked
    }

    /// Blocks of it: how many in each, and where.
    fn placed(
        &self,
        blocks: impl Iterator<Item = (usize, Result<isize, DatatypeError>)>,
    ) -> Result<Self, DatatypeError> {
        let blocks = blocks.filter(|(count, _)| *count > 0);
        let all = Self::sequence(blocks.map(|(count, at)| self.contiguous(count)?.shifted(at?)))?;
        Ok(Self { alignment: self.alignment, ..all })
    }

    /// One after the other.
    pub(crate) fn sequence(parts: impl Iterator<Item = Result<Self, DatatypeError>>) -> Result<Self, DatatypeError> {
        let (mut all, mut alignment, mut placed) = (None::<Self>, 1, alloc::vec::Vec::new());
        for part in parts {
            let part = part?;
            alignment = part.alignment.max(alignment);
            if part.is_void() {
                continue;
            }
            let (bounds, signature, code) = match &all {
                None => (part.bounds, part.signature, part.code),
                Some(all) => {
                    let code = all.code.filter(|code| part.code == Some(*code));
                    (all.bounds.with(part.bounds), all.signature.then(part.signature), code)
                }
            };
            placed.extend(part.placed);
            all = Some(Self { placed: None, bounds, upper: 0, alignment, signature, code });
        }
        let Some(all) = all else { return Ok(Self { alignment, ..Self::EMPTY }) };
        all.bounds.upper.checked_sub(all.bounds.lower).ok_or(TooLarge)?;
        let upper = all.bounds.padded_upper(alignment)?;
        Ok(Self { placed: Placed::sequence(placed.into_iter())?, upper, alignment, ..all })
    }

    /// `count` extents in bytes.
    fn extents(&self, count: isize) -> Result<isize, DatatypeError> {
        self.extent().checked_mul(count).ok_or(TooLarge)
    }
}

fn expect_equal(lengths: usize, displacements: usize) -> Result<(), DatatypeError> {
    if lengths == displacements { Ok(()) } else { Err(Lengths) }
}
