//! Complex numbers.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A complex number: the real part, then the imaginary part, in memory as in C, Fortran and `num_complex`. The system
/// operations [`sum`](super::SystemOperation::sum) and [`product`](super::SystemOperation::product) are defined for it.
#[derive(Clone, Copy, PartialEq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Complex<T>([T; 2]);

impl<T: Copy> Complex<T> {
    /// The number re + im · i.
    pub const fn new(re: T, im: T) -> Self {
        Self([re, im])
    }

    /// The real part.
    pub const fn re(self) -> T {
        let Self([re, _]) = self;
        re
    }

    /// The imaginary part.
    pub const fn im(self) -> T {
        let Self([_, im]) = self;
        im
    }
}
