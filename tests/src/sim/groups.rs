//! The multicast groups of the network and their members.

use alloc::collections::BTreeMap;

use unisono_core::device::GroupError;
use unisono_core::ids::GroupId;

use super::config::Config;
use super::subnet_manager::SubnetManager;

/// When the network knows of each membership, by group and node.
#[derive(Debug)]
pub(super) struct Groups {
    members: BTreeMap<(GroupId, u32), u64>,
    /// Groups of a node at most.
    limit: u32,
    /// Until the network knows a new member, without a subnet manager.
    join_ns: u64,
    manager: Option<SubnetManager>,
}

impl Groups {
    pub(super) fn new(config: &Config) -> Self {
        let manager = config.subnet.map(SubnetManager::new);
        Self { members: BTreeMap::new(), limit: config.groups, join_ns: config.join_ns, manager }
    }

    /// Makes the node a member, from when the network knows it on.
    pub(super) fn join(&mut self, group: GroupId, node: u32, now: u64) -> Result<(), GroupError> {
        if self.limit == 0 {
            return Err(GroupError::Unsupported);
        }
        if self.contains(group, node) {
            return Ok(());
        }
        if self.members.keys().filter(|(_, member)| *member == node).count() >= self.limit as usize {
            return Err(GroupError::Full);
        }
        let is_new = self.of_group(group).next().is_none();
        let at = match &mut self.manager {
            None => now + self.join_ns,
            Some(manager) if is_new => manager.create(now),
            Some(manager) => manager.join(now),
        };
        self.members.insert((group, node), at);
        Ok(())
    }

    /// Ends a membership: the node gets nothing more.
    pub(super) fn leave(&mut self, group: GroupId, node: u32, now: u64) -> Result<(), GroupError> {
        if self.limit == 0 {
            return Err(GroupError::Unsupported);
        }
        self.members.remove(&(group, node)).ok_or(GroupError::NotMember(group))?;
        if let Some(manager) = &mut self.manager {
            manager.leave(now);
        }
        Ok(())
    }

    fn of_group(&self, group: GroupId) -> impl Iterator<Item = (u32, u64)> {
        self.members.range((group, 0)..=(group, u32::MAX)).map(|((_, node), at)| (*node, *at))
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
        self.of_group(group).filter(|(_, at)| *at <= now).map(|(node, _)| node).collect()
    }
}
