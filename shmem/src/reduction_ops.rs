//! Reduction kernels over raw memory: MPI's arithmetic types and operations.
//!
//! Operands may be shared memory, which another process may write meanwhile: no reference to them is made, and every
//! element is read once. The compiler vectorises the loops (docs/performance.md has the check).
//!
//! Integers wrap. Half precision is widened, combined and rounded once per operand. A minimum or maximum with a NaN is
//! the right operand. Complex numbers are added and multiplied; value-index pairs are compared by value, and of equal
//! values the one of the least index is taken (MPI's MINLOC and MAXLOC).

mod element;
mod fold;
mod minloc;

pub use element::Element;

/// Combines `count` elements of two operands: into = left · right.
///
/// # Safety
/// Both operands are readable and `into` is writable for `count` elements; none has to be aligned. `into` is disjoint
/// from each operand or the same.
pub type Kernel = unsafe fn(left: *const u8, right: *const u8, into: *mut u8, count: usize);

/// A reduction operation on two elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOperation {
    /// left + right.
    Sum,
    /// left × right.
    Product,
    /// The lesser.
    Min,
    /// The greater.
    Max,
    /// 1 where both are not zero, else 0. Integers only, as all that follow.
    LogicalAnd,
    /// 1 where one is not zero, else 0.
    LogicalOr,
    /// 1 where exactly one is not zero, else 0.
    LogicalXor,
    /// left & right.
    BitwiseAnd,
    /// left | right.
    BitwiseOr,
    /// left ^ right.
    BitwiseXor,
    /// The lesser value, with its index. Values with an index only, as the next.
    MinLocation,
    /// The greater value, with its index.
    MaxLocation,
}

impl ReduceOperation {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Sum,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::BitwiseAnd,
        Self::BitwiseOr,
        Self::BitwiseXor,
        Self::MinLocation,
        Self::MaxLocation,
    ];
}

/// The kernel of an operation on a type. `None`: the type has no such operation.
pub fn kernel(operation: ReduceOperation, element: Element) -> Option<Kernel> {
    element::kernel(operation, element)
}

/// A code for both: equal on ranks that do the same.
pub const fn kind(operation: ReduceOperation, element: Element) -> u32 {
    (operation as u32) << 8 | element as u32
}

#[cfg(test)]
pub(crate) mod tests;
