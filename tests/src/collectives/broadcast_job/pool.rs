//! The pool of groups of a simulated job.

use unisono_core::device::Destination;
use unisono_core::ids::{GroupId, Rank};
use unisono_core::multicast::{
    GroupKey, POOL_MESSAGE, PoolConfig, PoolMessage, PoolRoot, UNRELIABLE_HEADER, UnreliableHeader,
};

use super::{BroadcastJob, Message, member, post};

/// The epoch of the probes of a pool.
const EPOCH: u64 = 0x9001;
/// The device's number of a pool's first group.
const FIRST_GROUP: u32 = 1;

/// The device's number of a group of the pool.
pub fn pool_group(slot: u8) -> GroupId {
    GroupId(FIRST_GROUP + u32::from(slot))
}

impl BroadcastJob {
    /// Begins a pool of groups of all ranks, of which `target` are ready or being made.
    pub fn open_pool(&mut self, root: u32, target: u32) {
        let (size, probes) = (self.ranks.len() as u32, self.parameters.test());
        let now = self.network.now();
        self.pool_root = Some(PoolRoot::new(now, PoolConfig { size, root: Rank(root), target, probes }));
        self.pool_rank = root as usize;
        self.network.wake_at(self.ranks[self.pool_rank].id, now);
    }

    fn probe_pool(&self, probe: PoolMessage) {
        let group = pool_group(probe.slot);
        let key = GroupKey { group, epoch: EPOCH };
        let mut header = [0; UNRELIABLE_HEADER + POOL_MESSAGE];
        let sender = self.pool_rank as u32;
        let head = UnreliableHeader { key, sender: Rank(sender), incarnation: member(sender).incarnation };
        header[..UNRELIABLE_HEADER].copy_from_slice(&head.encode());
        header[UNRELIABLE_HEADER..].copy_from_slice(&probe.encode());
        post(&self.network, self.ranks[self.pool_rank].id, Destination::Group(group), &header, None);
    }

    /// Carries out what the pool's machines request.
    pub(super) fn advance_pool(&mut self, now: u64, rank: usize) {
        if rank == self.pool_rank {
            self.advance_pool_root(now);
        }
        while let Some(slot) = self.ranks[rank].pool.poll_join() {
            let is_joined = self.join(rank, pool_group(slot));
            self.ranks[rank].pool.handle_joined(slot, is_joined);
        }
        while let Some(slot) = self.ranks[rank].pool.poll_leave() {
            self.leave(rank, pool_group(slot));
        }
        while let Some(message) = self.ranks[rank].pool.poll_transmit() {
            match &mut self.pool_root {
                Some(root) if rank == self.pool_rank => {
                    root.handle_message(now, Rank(rank as u32), message);
                    self.advance_pool_root(now);
                }
                _ => self.send(rank, self.pool_rank, rank as u32, Message::Pool(message)),
            }
        }
    }

    fn advance_pool_root(&mut self, now: u64) {
        let own = self.pool_rank;
        loop {
            let Some(root) = &mut self.pool_root else { return };
            root.handle_timeout(now);
            if let Some(at) = root.poll_timeout() {
                self.network.wake_at(self.ranks[own].id, at);
            }
            if let Some(message) = root.poll_transmit(now) {
                self.ranks[own].pool.handle_message(message);
                let others = (0..self.ranks.len()).filter(|to| *to != own);
                others.for_each(|to| self.send(own, to, own as u32, Message::Pool(message)));
            } else if let Some(probe) = root.poll_probe() {
                self.probe_pool(probe);
            } else {
                return;
            }
        }
    }
}
