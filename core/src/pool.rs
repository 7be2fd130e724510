//! Pools of records: arrays, boxed slices or borrowed memory, as the host provides them.

use core::fmt::Debug;

/// A pool of records: an array, a boxed slice, or borrowed memory. An endpoint is `Clone`, `Eq` and `Hash` if its pools
/// are.
pub trait Pool<R>: AsRef<[R]> + AsMut<[R]> + Debug {}

impl<R, A: AsRef<[R]> + AsMut<[R]> + Debug> Pool<R> for A {}
