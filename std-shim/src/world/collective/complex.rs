//! Complex numbers.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A complex number: the real part, then the imaginary part, in memory as in C, Fortran and `num_complex`. The system
/// operations [`sum`](super::SystemOperation::sum) and [`product`](super::SystemOperation::product) are defined for it.
#[derive(Clone, Copy, PartialEq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Complex<T>([T; 2]);

impl<T: Copy> Complex<T> {
    /// The number re + im · i.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let number = Complex::new(1.0, -2.0);
    /// assert_eq!((number.re(), number.im()), (1.0, -2.0));
    /// ```
    pub const fn new(re: T, im: T) -> Self {
        Self([re, im])
    }

    /// The real part.
    ///
    /// ```
    /// assert_eq!(unisono::collective::Complex::new(1.5_f32, 0.0).re(), 1.5);
    /// ```
    pub const fn re(self) -> T {
        let Self([re, _]) = self;
        re
    }

    /// The imaginary part.
    ///
    /// ```
    /// assert_eq!(unisono::collective::Complex::new(0.0_f32, 2.5).im(), 2.5);
    /// ```
    pub const fn im(self) -> T {
        let Self([_, im]) = self;
        im
    }
}
