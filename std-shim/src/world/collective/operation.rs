//! Reduction operations: the library's, and user functions.

use core::marker::PhantomData;
use core::mem::size_of;
use core::ptr::NonNull;

use unisono_core::collective::Order;
use unisono_shmem::reduction_ops;
use unisono_shmem::slot_collectives::data_executor::{Builtin, ReductionOp};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::element::Element;

/// A reduction operation on elements of type `T`. It must be associative.
pub trait Operation<T> {
    #[doc(hidden)]
    fn order(&self) -> Order;

    /// A digest that is equal on ranks that call the same operation.
    #[doc(hidden)]
    fn kind(&self) -> u32;

    /// Bytes of what is never divided.
    #[doc(hidden)]
    fn grain(&self) -> usize {
        size_of::<T>().max(1)
    }

    /// `None`: the operation is not defined for the type.
    #[doc(hidden)]
    fn operate(self) -> Option<impl ReductionOp + Send>;
}

/// A predefined operation. Integers wrap. Logical and bitwise operations are defined for integers, sums and products
/// also for complex numbers (which have no other operation), and locations for values with an index. The minimum or
/// maximum of a NaN and another value, with or without an index, is one of the two, and may depend on the order in
/// which ranks are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SystemOperation(reduction_ops::ReduceOperation);

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident $operation:ident $value:literal;)*) => {
        impl SystemOperation { $(
            $(#[$doc])*
            ///
            /// ```
            /// use unisono::prelude::*;
            ///
            /// let world = World::join()?;
            #[doc = concat!("let (own, mut all) = ([", $value, "], [", $value, "]);")]
            #[doc = concat!("world.all_reduce_into(&own, &mut all, SystemOperation::", stringify!($name), "())?;")]
            /// # Ok::<(), Error>(())
            /// ```
            pub const fn $name() -> Self {
                Self(reduction_ops::ReduceOperation::$operation)
            }
        )* }
    };
}

operations! {
    /// left + right.
    sum Sum "1.5";
    /// left × right.
    product Product "1.5";
    /// The lesser one.
    min Min "1.5";
    /// The greater one.
    max Max "1.5";
    /// 1 where both are nonzero, else 0.
    logical_and LogicalAnd "5_u32";
    /// 1 where at least one is nonzero, else 0.
    logical_or LogicalOr "5_u32";
    /// 1 where exactly one is nonzero, else 0.
    logical_xor LogicalXor "5_u32";
    /// left & right.
    bitwise_and BitwiseAnd "5_u32";
    /// left | right.
    bitwise_or BitwiseOr "5_u32";
    /// left ^ right.
    bitwise_xor BitwiseXor "5_u32";
    /// The lesser value with its index ([`ValueIndex`](super::ValueIndex)); of equal values the one with the least
    /// index.
    min_location MinLocation "ValueIndex::new(1.5, world.rank().0.into())";
    /// The greater value with its index; of equal values the one with the least index.
    max_location MaxLocation "ValueIndex::new(1.5, world.rank().0.into())";
}

impl From<reduction_ops::ReduceOperation> for SystemOperation {
    fn from(operation: reduction_ops::ReduceOperation) -> Self {
        Self(operation)
    }
}

impl SystemOperation {
    pub(in crate::world) const fn reduce_operation(self) -> reduction_ops::ReduceOperation {
        self.0
    }
}

impl<T: Element> Operation<T> for SystemOperation {
    fn order(&self) -> Order {
        Order::Any
    }

    fn kind(&self) -> u32 {
        reduction_ops::kind(self.0, T::ELEMENT)
    }

    fn operate(self) -> Option<impl ReductionOp + Send> {
        Builtin::new(self.0, T::ELEMENT)
    }
}

/// An associative function of two elements, left and right. It may be called in any thread of this process that makes
/// progress, and must not use the World. When it panics, so does the call that waits for the collective.
#[derive(Clone, Copy, Debug)]
pub struct UserOperation<T, F> {
    function: F,
    order: Order,
    of: PhantomData<fn(T, T) -> T>,
}

impl<T, F: FnMut(&T, &T) -> T> UserOperation<T, F> {
    /// An operation that need not commute: elements are combined in rank order.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // The last rank's word.
    /// let last = UserOperation::associative(|_: &u32, right: &u32| *right);
    /// let mut word = [world.rank().0];
    /// world.all_reduce_in_place(&mut word, last)?;
    /// assert_eq!(word, [world.size() - 1]);
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn associative(function: F) -> Self {
        Self { function, order: Order::Rank, of: PhantomData }
    }

    /// An operation that also commutes.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let longest = UserOperation::commutative(|left: &f64, right: &f64| if left.abs() < right.abs() { *right } else { *left });
    /// let mut number = [-2.0];
    /// world.all_reduce_in_place(&mut number, longest)?;
    /// assert_eq!(number, [-2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn commutative(function: F) -> Self {
        Self { function, order: Order::Any, of: PhantomData }
    }
}

impl<T, F> Operation<T> for UserOperation<T, F>
where
    T: FromBytes + IntoBytes + Immutable,
    F: FnMut(&T, &T) -> T + Send,
{
    fn order(&self) -> Order {
        self.order
    }

    /// Functions cannot be compared; element lengths and orders can.
    fn kind(&self) -> u32 {
        1 << 16 | (size_of::<T>() as u32) << 1 | u32::from(self.order == Order::Rank)
    }

    fn operate(self) -> Option<impl ReductionOp + Send> {
        Some(UserReduction(self))
    }
}

/// An operation whose results have the same bits from run to run, whatever the device, the placement of ranks and the
/// tuning: operands are combined in rank order, in brackets that depend only on the number of ranks ([`Order::Fixed`]),
/// by messages also between ranks that share memory. Meant for floating-point sums, which depend on the brackets;
/// slower than the operation itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reproducible<O>(pub O);

impl<T, O: Operation<T>> Operation<T> for Reproducible<O> {
    fn order(&self) -> Order {
        Order::Fixed
    }

    fn kind(&self) -> u32 {
        self.0.kind()
    }

    fn grain(&self) -> usize {
        self.0.grain()
    }

    fn operate(self) -> Option<impl ReductionOp + Send> {
        self.0.operate()
    }
}

struct UserReduction<T, F>(UserOperation<T, F>);

impl<T, F> ReductionOp for UserReduction<T, F>
where
    T: FromBytes + IntoBytes + Immutable,
    F: FnMut(&T, &T) -> T,
{
    unsafe fn combine(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        for at in 0..bytes.checked_div(size_of::<T>()).unwrap_or(0) {
            // SAFETY: element `at` begins within the `bytes` bytes of the left operand that the caller answers for.
            let l = unsafe { left.cast::<T>().add(at) };
            // SAFETY: element `at` begins within the `bytes` bytes of the right operand that the caller answers for.
            let r = unsafe { right.cast::<T>().add(at) };
            // SAFETY: element `at` begins within the `bytes` bytes of the result that the caller answers for.
            let to = unsafe { into.cast::<T>().add(at) };
            // SAFETY: the caller says that the whole element is readable; any alignment will do, and any bytes are a
            // `T`, which owns nothing.
            let l = unsafe { l.read_unaligned() };
            // SAFETY: the caller says that the whole element is readable; any alignment will do, and any bytes are a
            // `T`, which owns nothing.
            let r = unsafe { r.read_unaligned() };
            // SAFETY: the caller says that the whole element is writable; any alignment will do.
            unsafe { to.write_unaligned((self.0.function)(&l, &r)) };
        }
    }
}
