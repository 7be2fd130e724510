//! Updates of elements of more than 8 bytes, which no instruction executes: one rank at a time reads, combines and writes
//! them, under a lock of the target that only such updates take.

use core::ptr::NonNull;

use unisono_shmem::slot_collectives::data_executor::{Builtin, ReductionOp as _};

use super::epochs::UPDATE_LOCK;
use super::memory::COPY;
use super::raw::RawUpdate;
use super::{AccumulateOperation, LockKind, Window, WindowError};
use unisono_bootstrap::Rank;

/// Bytes of the longest elements that the target combines by itself.
pub(super) const ATOMIC_MAX: usize = 8;

impl RawUpdate {
    /// Whether it takes the lock.
    pub(super) const fn is_wide(&self) -> bool {
        self.element.bytes() > ATOMIC_MAX
    }
}

impl Window {
    /// Combines elements of the target with those in `bytes`; the old ones go to `old`, which is as long. Done when it
    /// returns. The target answers what is written, so that no flush is needed, whose errors are those of other operations.
    pub(super) fn update_wide(
        &self,
        update: RawUpdate,
        bytes: &[u8],
        old: Option<&mut [u8]>,
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        let combine = match update.operation {
            AccumulateOperation::Reduce(operation) => {
                let combine = Builtin::new(operation.reduce_operation(), update.element);
                Some(combine.ok_or(WindowError::Unsupported)?)
            }
            AccumulateOperation::Replace | AccumulateOperation::NoOp => None,
        };
        if !bytes.len().is_multiple_of(update.element.bytes()) {
            return Err(WindowError::Unsupported);
        }
        let (mut current, mut replaced) = (bytes.to_vec(), bytes.to_vec());
        self.acquire(UPDATE_LOCK, LockKind::Exclusive, target)?;
        let done = self.get(&mut current[..], target, offset).and_then(|()| {
            if let Some(old) = old {
                old.copy_from_slice(&current);
            }
            match (update.operation, combine) {
                (AccumulateOperation::NoOp, _) => return Ok(()),
                (_, None) => current.copy_from_slice(bytes),
                (_, Some(mut combine)) => {
                    let left = NonNull::from(&mut current[..]).cast();
                    // SAFETY: both are as many bytes of this process, whole elements, and apart; the result is the left
                    // operand.
                    unsafe { combine.combine(left, NonNull::from(bytes).cast(), left, bytes.len()) };
                }
            }
            self.targets.update(COPY, 1, &current, Some(&mut replaced), target, offset)
        });
        let released = self.release_unflushed(UPDATE_LOCK, LockKind::Exclusive, target);
        done.and(released)
    }
}
