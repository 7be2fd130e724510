//! Cross-memory attach (CMA) for collectives: one copy instead of two.

use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use unisono_core::ids::Rank as Member;
use unisono_shmem::collective_area::Members;
use unisono_shmem::host::store_policy::StorePolicy;
use unisono_shmem::slot_collectives::data_executor::{DataError, RemoteMemory};

use crate::node::Node;

/// The ranks of a group on a node, whose memory is read by `process_vm_readv(2)`.
#[derive(Clone, Copy, Debug)]
pub(in crate::world::collective) struct CmaReader<'a> {
    pub(in crate::world::collective) node: &'a Node,
    pub(in crate::world::collective) rank_slots: &'a Members,
    /// The store policy for what this rank publishes.
    pub(in crate::world::collective) store_policy: &'a StorePolicy,
}

impl RemoteMemory for CmaReader<'_> {
    #[inline]
    unsafe fn copy_to_shared(&mut self, from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that they
        // are disjoint.
        unsafe { self.store_policy.copy(from, into, bytes) };
    }

    unsafe fn pull(&mut self, of: Member, address: u64, into: NonNull<u8>, bytes: usize) -> Result<(), DataError> {
        let refused = DataError::Unreadable(of);
        let process = self.rank_slots.get(of.0).and_then(|local| self.node.pid(local));
        let process = process.and_then(|process| i32::try_from(process).ok()).ok_or(refused)?;
        let mut done = 0;
        while done < bytes {
            // SAFETY: `done` is less than `bytes`, which the caller promises to be writable at `into`.
            let here = unsafe { into.add(done) };
            let local = libc::iovec { iov_base: here.as_ptr().cast(), iov_len: bytes - done };
            let there = core::ptr::without_provenance_mut((address as usize).wrapping_add(done));
            let remote = libc::iovec { iov_base: there, iov_len: bytes - done };
            // SAFETY: the kernel writes at most `iov_len` bytes of the destination, and checks what is read.
            let count = unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
            match usize::try_from(count) {
                Ok(count) if count > 0 => done += count,
                _ => return Err(refused),
            }
        }
        // Whether the bytes were still exposed is checked after they were read.
        fence(Ordering::SeqCst);
        Ok(())
    }
}
