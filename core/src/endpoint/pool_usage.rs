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
            senders: taken(self.senders.free(), self.senders.as_slice(), |sender| sender.link),
            receivers: taken(self.receivers.free(), self.receivers.as_slice(), |receiver| receiver.link),
            operations: taken(self.operations.free(), self.operations.as_slice(), |operation| operation.link),
            placements: taken(self.placements.free(), self.placements.as_slice(), |placement| placement.link),
            control_messages: self.control.len(),
        }
    }
}
