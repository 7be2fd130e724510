//! Counts of the records in use, which must return to zero when all operations are over.

use super::Endpoint;
use crate::endpoint::storage::Storage;
use crate::list::List;

/// Records taken out of the pools.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PoolUsage {
    /// Send windows.
    pub senders: u32,
    /// Receive windows.
    pub receivers: u32,
    /// Operations whose completion was not polled.
    pub operations: u32,
    /// Grants whose delivery was not polled.
    pub placements: u32,
    /// Control datagrams that wait for a token.
    pub control_messages: u32,
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Counts the records in use, by a walk over the free lists.
    pub fn pool_usage(&self) -> PoolUsage {
        fn taken<R>(free: List, records: &[R], link: impl Fn(&R) -> u32) -> u32 {
            let free = free.iter(records, link).fold(0_u32, |sum, _| sum.wrapping_add(1));
            (records.len() as u32).wrapping_sub(free)
        }
        PoolUsage {
            senders: taken(self.free_senders, self.senders.as_ref(), |sender| sender.link),
            receivers: taken(self.free_receivers, self.receivers.as_ref(), |receiver| receiver.link),
            operations: taken(self.free_operations, self.operations.as_ref(), |operation| operation.link),
            placements: taken(self.free_placements, self.placements.as_ref(), |placement| placement.link),
            control_messages: self.control_count,
        }
    }
}
