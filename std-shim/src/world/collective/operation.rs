//! What reductions do with two elements.

use core::marker::PhantomData;
use core::mem::size_of;
use core::ptr::NonNull;

use unisono_core::collective::Order;
use unisono_shmem::reduction_ops;
use unisono_shmem::slot_collectives::data_executor::{Builtin, Operate};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Element;

/// An operation on elements of type `T`. It is associative.
pub trait Operation<T> {
    #[doc(hidden)]
    fn order(&self) -> Order;

    /// A number that is equal on ranks that do the same.
    #[doc(hidden)]
    fn kind(&self) -> u32;

    /// `None`: the type has no such operation.
    #[doc(hidden)]
    fn operate(self) -> Option<impl Operate + Send>;
}

/// An operation of the library. Integers wrap; logical and bitwise ones are for integers, sums and products also for complex numbers,
/// which have no others, and those of locations for values with an index. What a minimum or a maximum is of a NaN and another value, with an
/// index or without, is one of the two, and may differ with the order in which ranks are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SystemOperation(reduction_ops::Operation);

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident $operation:ident;)*) => {
        impl SystemOperation { $($(#[$doc])* pub const fn $name() -> Self { Self(reduction_ops::Operation::$operation) })* }
    };
}

operations! {
    /// left + right.
    sum Sum;
    /// left × right.
    product Product;
    /// The lesser.
    min Min;
    /// The greater.
    max Max;
    /// 1 where both are not zero, else 0.
    logical_and LogicalAnd;
    /// 1 where one is not zero, else 0.
    logical_or LogicalOr;
    /// 1 where exactly one is not zero, else 0.
    logical_xor LogicalXor;
    /// left & right.
    bitwise_and BitwiseAnd;
    /// left | right.
    bitwise_or BitwiseOr;
    /// left ^ right.
    bitwise_xor BitwiseXor;
    /// The lesser value with its index ([`Located`](super::Located)); of equal ones that of the least index.
    min_location MinLocation;
    /// The greater value with its index; of equal ones that of the least index.
    max_location MaxLocation;
}

impl<T: Element> Operation<T> for SystemOperation {
    fn order(&self) -> Order {
        Order::Any
    }

    fn kind(&self) -> u32 {
        reduction_ops::kind(self.0, T::ELEMENT)
    }

    fn operate(self) -> Option<impl Operate + Send> {
        Some(Builtin { kernel: reduction_ops::kernel(self.0, T::ELEMENT)?, grain: size_of::<T>() })
    }
}

/// A function of two elements, the left and the right one, that is associative. Whoever makes progress calls it, in any thread of
/// this process; it must not use the World. When it panics, so does the call that waits for the collective.
#[derive(Clone, Copy, Debug)]
pub struct UserOperation<T, F> {
    function: F,
    order: Order,
    of: PhantomData<fn(T, T) -> T>,
}

impl<T, F: FnMut(&T, &T) -> T> UserOperation<T, F> {
    /// One that need not commute: elements are combined in rank order.
    pub const fn associative(function: F) -> Self {
        Self { function, order: Order::Rank, of: PhantomData }
    }

    /// One that commutes, too.
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

    /// Functions cannot be told apart: lengths and orders can.
    fn kind(&self) -> u32 {
        1 << 16 | (size_of::<T>() as u32) << 1 | u32::from(self.order == Order::Rank)
    }

    fn operate(self) -> Option<impl Operate + Send> {
        Some(Applied(self))
    }
}

/// An operation whose results have the same bits from run to run, whatever the device, the placement of ranks and the tuning: operands
/// are combined in rank order, bracketed as the number of ranks alone says
/// ([`Order::Fixed`](unisono_core::collective::Order::Fixed)), by messages also between ranks that share memory. For sums of floating-point numbers, which
/// differ by their brackets; slower than the operation itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reproducible<O>(pub O);

impl<T, O: Operation<T>> Operation<T> for Reproducible<O> {
    fn order(&self) -> Order {
        Order::Fixed
    }

    fn kind(&self) -> u32 {
        self.0.kind()
    }

    fn operate(self) -> Option<impl Operate + Send> {
        self.0.operate()
    }
}

struct Applied<T, F>(UserOperation<T, F>);

impl<T, F> Operate for Applied<T, F>
where
    T: FromBytes + IntoBytes + Immutable,
    F: FnMut(&T, &T) -> T,
{
    unsafe fn operate(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        for at in 0..bytes.checked_div(size_of::<T>()).unwrap_or(0) {
            // SAFETY: element `at` of the operands and of the result, for whose bytes the caller answers; so for each one below.
            let l = unsafe { left.cast::<T>().add(at) };
            // SAFETY: as above.
            let r = unsafe { right.cast::<T>().add(at) };
            // SAFETY: as above.
            let to = unsafe { into.cast::<T>().add(at) };
            // SAFETY: readable, for any alignment; any bytes are a `T`, which owns nothing.
            let l = unsafe { l.read_unaligned() };
            // SAFETY: as above.
            let r = unsafe { r.read_unaligned() };
            // SAFETY: writable, for any alignment.
            unsafe { to.write_unaligned((self.0.function)(&l, &r)) };
        }
    }
}
