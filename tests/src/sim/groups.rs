//! The multicast groups of the network and their members.

use alloc::collections::BTreeMap;

use unisono_core::device::GroupError;
use unisono_core::ids::GroupId;

/// When the network knows of each membership, by group and node.
#[derive(Debug, Default)]
pub(super) struct Groups {
    members: BTreeMap<(GroupId, u32), u64>,
}

impl Groups {
    /// Makes the node a member from `at` on, if it is in fewer than `limit` groups.
    pub(super) fn join(&mut self, group: GroupId, node: u32, at: u64, limit: u32) -> Result<(), GroupError> {
        if limit == 0 {
            return Err(GroupError::Unsupported);
        }
        if self.members.contains_key(&(group, node)) {
            return Ok(());
        }
        if self.members.keys().filter(|(_, member)| *member == node).count() >= limit as usize {
            return Err(GroupError::Full);
        }
        self.members.insert((group, node), at);
        Ok(())
    }

    /// Ends a membership.
    pub(super) fn leave(&mut self, group: GroupId, node: u32) -> Result<(), GroupError> {
        self.members.remove(&(group, node)).map(|_| ()).ok_or(GroupError::NotMember(group))
    }

    /// Ends all memberships of a node.
    pub(super) fn leave_all(&mut self, node: u32) {
        self.members.retain(|(_, member), _| *member != node);
    }

    /// Whether the node has joined the group.
    pub(super) fn contains(&self, group: GroupId, node: u32) -> bool {
        self.members.contains_key(&(group, node))
    }

    /// The members of a group that the network knows at `now`, in order.
    pub(super) fn members(&self, group: GroupId, now: u64) -> Vec<u32> {
        let of_group = self.members.range((group, 0)..=(group, u32::MAX));
        of_group.filter(|(_, at)| **at <= now).map(|((_, node), _)| *node).collect()
    }
}
