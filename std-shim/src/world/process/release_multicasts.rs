//! Releases of trees by multicast: how a communicator's group is joined, and how releases are sent and confirmed.

use unisono_core::collective::token_tree::header::TREE_HEADER;
use unisono_core::device::{
    Destination, Device as _, DeviceQueue, HEADER_ROOM, Memory as _, Token as _, Transmit, TxReason,
};
use unisono_core::ids::{PeerId, Rank as Member};
use unisono_core::multicast::UNRELIABLE_HEADER;

use super::Process;
use crate::world::collective::engine::group_message::{GroupBody, GroupMessage};
use crate::world::collective::engine::release_groups::{RELEASE_HEADER, ReleaseGroup};

const _: () = assert!(RELEASE_HEADER <= HEADER_ROOM);

impl Process {
    /// Joins the group of a communicator, if it can be used here. Otherwise this rank's releases go along the tree, and it
    /// asks for those that others send by multicast.
    pub(super) fn open_release_group(&mut self, context: u32) {
        if !self.collectives.multicast.releases.knows(context) {
            let group = self.make_release_group(context);
            self.collectives.multicast.releases.add(context, group);
        }
    }

    fn make_release_group(&mut self, context: u32) -> Option<ReleaseGroup> {
        let of = self.collectives.contexts.get(context)?;
        let (own, generation) = (Member(of.members.number(self.rank)?.0), of.generation);
        let members = self.group_members(&of.members)?;
        let group = self.join_group(context)?;
        let key = self.collectives.multicast.names.as_ref()?.release_key(group, context, generation);
        tracing::debug!(context, members = members.len(), "trees release by multicast");
        Some(ReleaseGroup::new(context, key, own, members))
    }

    /// Sends a release, header and value, to all members at once. It is lost where there is no room for it.
    pub(super) fn multicast_release(&mut self, context: u32, bytes: &[u8]) {
        let Self { collectives, transport, datagrams, .. } = self;
        let Some(group) = collectives.multicast.releases.get_mut(context) else { return };
        group.record_multicast();
        let (multicast_header, queue) = (group.header().encode(), DeviceQueue::Polled);
        let (header, value) = bytes.split_at_checked(TREE_HEADER).unwrap_or((bytes, &[]));
        let bounce = if value.is_empty() { None } else { transport.bounce_buffers.allocate(value.len()) };
        let regions = transport.regions.get_mut();
        let address = bounce.as_ref().and_then(|(_, span)| regions.address(*span));
        if let Some(to) = address {
            // SAFETY: a bounce buffer that nobody else uses.
            unsafe { to.write(value) };
        }
        if (value.is_empty() || address.is_some())
            && let Some(mut token) = datagrams.device.token(queue)
        {
            let (first, rest) = token.header_room().split_at_mut(UNRELIABLE_HEADER);
            first.copy_from_slice(&multicast_header);
            rest.iter_mut().zip(header).for_each(|(to, from)| *to = *from);
            let transmit = Transmit {
                to: Destination::Group(group.key.group),
                queue,
                header_bytes: RELEASE_HEADER as u8,
                payload: bounce.as_ref().map(|(_, span)| *span),
                solicited: false,
                reason: TxReason::First,
            };
            token.post(&transmit, address);
            datagrams.device.flush(queue);
            collectives.trees.counters.multicasts += 1;
        }
        if let Some((buffer, span)) = bounce {
            datagrams.device.wait_for_completions(regions, span.region);
            transport.bounce_buffers.release(buffer);
        }
    }

    /// A multicast of a member has reached this rank: confirms the first one.
    pub(super) fn confirm_multicast(&mut self, from: PeerId, context: u32) {
        self.collectives.trees.counters.received += 1;
        let Some(of) = self.collectives.contexts.get(context) else { return };
        let (generation, member) = (of.generation, of.members.number(from.into()));
        let group = self.collectives.multicast.releases.get_mut(context);
        if let (Some(member), Some(group)) = (member, group)
            && group.record_arrival(Member(member.0))
        {
            let message = GroupMessage { context, generation, body: GroupBody::Reached };
            self.send_control(from, &message.encode());
        }
    }
}
