//! Values with an index.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A value, and where it was found: of a rank, a row, an element. Of system operations it has
/// [`min_location`](super::SystemOperation::min_location) and [`max_location`](super::SystemOperation::max_location), which are MPI's
/// `MPI_MINLOC` and `MPI_MAXLOC`.
///
/// ```
/// use unisono::World;
/// use unisono::collective::{Located, SystemOperation};
///
/// let world = World::join()?;
/// let own = Located::new(2.5_f64, u64::from(world.rank().0));
/// let mut least = [own];
/// world.all_reduce_into(&[own], &mut least, SystemOperation::min_location())?;
/// let [least] = least;
/// println!("{} at rank {}", least.value(), least.index());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C, packed)]
pub struct Located<T> {
    value: T,
    index: u64,
}

impl<T: Copy> Located<T> {
    /// A value at an index.
    pub const fn new(value: T, index: u64) -> Self {
        Self { value, index }
    }

    /// The value.
    pub const fn value(self) -> T {
        self.value
    }

    /// Its index.
    pub const fn index(self) -> u64 {
        self.index
    }
}
