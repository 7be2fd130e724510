//! Communicators begin and end.

use super::Process;
use crate::rank::Rank;
use crate::world::group::Group;
use crate::world::request::Failure;

impl Process {
    /// Whether this rank shares memory with all ranks of its node.
    pub(in crate::world) fn shares_its_node(&self) -> bool {
        let ranks = self.node_of(self.rank).map_or(0, |own| {
            let table = self.membership.as_ref().map_or(&[][..], |membership| membership.table());
            table.iter().filter(|entry| entry.node == own).count()
        });
        ranks == 1 || self.near.as_ref().map(|near| near.met as usize + 1) == Some(ranks)
    }

    /// Whether all of them are on one node.
    pub(in crate::world) fn are_on_one_node(&self, members: &Group) -> bool {
        let mut nodes = members.iter().map(|rank| self.node_of(rank));
        let first = nodes.next().flatten();
        first.is_some() && nodes.all(|node| node == first)
    }

    fn node_of(&self, rank: Rank) -> Option<u32> {
        Some(self.membership.as_ref()?.table().get(rank.0 as usize)?.node)
    }

    /// A communicator begins.
    pub(in crate::world) fn open_context(&mut self, context: u32, generation: u32, members: Group, is_near: bool) {
        self.collectives.open(context, generation, members, is_near);
    }

    /// Nobody calls anything on a communicator any more.
    pub(in crate::world) fn free_context(&mut self, context: u32) {
        self.collectives.contexts.free(context);
    }

    /// This process has finished: whatever is called on a communicator that outlives the World ends.
    pub(in crate::world) fn close(&mut self) {
        self.aborted.get_or_insert(Failure::Finished);
        self.requests.fail_all(Failure::Finished);
        self.abort_collectives(Failure::Finished);
    }
}
