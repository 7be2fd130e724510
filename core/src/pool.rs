//! Pools of records: arrays, boxed slices or borrowed memory, as the host provides them.

use core::fmt::Debug;

/// A pool of records: an array, a boxed slice, or borrowed memory. An endpoint is `Clone`, `Eq` and `Hash` if its pools
/// are.
pub trait Pool<R>: AsRef<[R]> + AsMut<[R]> + Debug {}

impl<R, A: AsRef<[R]> + AsMut<[R]> + Debug> Pool<R> for A {}

/// Replaces a pool by a larger one: `fresh` records after those that it had. False, and nothing was done: the other one is
/// not larger.
pub(crate) fn grow<R: Copy, P: Pool<R>>(pool: &mut P, mut larger: P, fresh: R) -> bool {
    let before = pool.as_ref().len();
    let Some((kept, added)) = larger.as_mut().split_at_mut_checked(before).filter(|(_, added)| !added.is_empty())
    else {
        return false;
    };
    kept.copy_from_slice(pool.as_ref());
    added.fill(fresh);
    *pool = larger;
    true
}
