//! Value-index pairs, for the location of a minimum or maximum.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A value with an index, such as a rank, a row or an element. The system operations
/// [`min_location`](super::SystemOperation::min_location) and [`max_location`](super::SystemOperation::max_location)
/// are defined for it, as `MPI_MINLOC` and `MPI_MAXLOC`.
///
/// ```
/// use unisono::World;
/// use unisono::collective::{ValueIndex, SystemOperation};
///
/// let world = World::join()?;
/// let own = ValueIndex::new(2.5_f64, u64::from(world.rank().0));
/// let mut least = [own];
/// world.all_reduce_into(&[own], &mut least, SystemOperation::min_location())?;
/// let [least] = least;
/// println!("{} at rank {}", least.value(), least.index());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C, packed)]
pub struct ValueIndex<T> {
    value: T,
    index: u64,
}

impl<T: Copy> ValueIndex<T> {
    /// A value with an index.
    ///
    /// ```
    /// let least = unisono::collective::ValueIndex::new(0.5, 3);
    /// assert_eq!((least.value(), least.index()), (0.5, 3));
    /// ```
    pub const fn new(value: T, index: u64) -> Self {
        Self { value, index }
    }

    /// The value.
    ///
    /// ```
    /// assert_eq!(unisono::collective::ValueIndex::new(7_u32, 1).value(), 7);
    /// ```
    pub const fn value(self) -> T {
        self.value
    }

    /// The index.
    ///
    /// ```
    /// assert_eq!(unisono::collective::ValueIndex::new(7_u32, 1).index(), 1);
    /// ```
    pub const fn index(self) -> u64 {
        self.index
    }
}
