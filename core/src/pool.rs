//! Pools of records: arrays, boxed slices or borrowed memory, as the host provides them.

use core::fmt::Debug;
use core::hash::Hash;

/// A pool of records: an array, a boxed slice, or borrowed memory. An endpoint is `Clone`, `Eq` and `Hash` if its pools
/// are.
pub trait Pool<R>: AsRef<[R]> + AsMut<[R]> + Debug {}

impl<R, A: AsRef<[R]> + AsMut<[R]> + Debug> Pool<R> for A {}

/// A pool that can be copied and compared.
pub trait Records<R>: Pool<R> + Clone + Eq + Hash {}

impl<R, A: Pool<R> + Clone + Eq + Hash> Records<R> for A {}
