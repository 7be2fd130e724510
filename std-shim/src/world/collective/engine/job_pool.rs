//! The job's pool of multicast groups at one rank: groups that all ranks have joined and that rank 0 has tested, of which
//! communicators take one (Mamidala 2008, §5.2.4). The machines are those of the core; this joins them with the
//! messages of the job.
//!
//! ```text
//!  0               1               2               3
//! +---------------+-----------------------------------------------+
//! |      34       |                       0                       |
//! +---------------+-----------------------------------------------+
//! |               the message (core/src/multicast/pool_message)   |
//! +---------------------------------------------------------------+
//! ```

use alloc::collections::VecDeque;

use unisono_core::device::Received;
use unisono_core::ids::{GroupId, Incarnation, PeerId, Rank as Member};
use unisono_core::multicast::{
    GroupKey, GroupPool, POOL_MESSAGE, PoolBody, PoolConfig, PoolMessage, PoolRoot, UNRELIABLE_HEADER, UnreliableHeader,
};
use unisono_core::time::{Nanos, units};

use super::context::CONTEXTS;
use super::group_names::GroupNames;
use crate::environment::GroupsChoice;

/// The first byte of a message, which differs from those of all other messages.
pub(in crate::world) const KIND: u8 = 34;
/// The rank that makes and tests the groups.
pub(in crate::world) const ROOT: PeerId = PeerId(0);
/// Groups of the pool, ready or in use.
pub(in crate::world) const GROUPS: usize = GroupsChoice::POOL_MAX as usize;
/// Ranks of the largest job that has a pool.
const RANKS_MAX: usize = 256;
/// Messages that wait to be handled, of a peer: more than a correct one sends.
const ARRIVALS_MAX: usize = 8 * GROUPS;
/// Probes to a group that is tested: nobody waits for it, and a rank may compute for long before it answers. Nanoseconds
/// between the first two, and between any two at most.
const TEST: (u32, u32, u32) = (u32::MAX, units(1_000_000), units(1_000_000_000));
/// Bytes of a message.
const BYTES: usize = 4 + POOL_MESSAGE;

/// The number of the group in a slot of the pool: no context has it.
pub(in crate::world) const fn group_number(slot: u8) -> u32 {
    CONTEXTS.saturating_add(slot as u32)
}

/// A message, as it is sent.
pub(in crate::world) fn encode(message: PoolMessage) -> [u8; BYTES] {
    let [a, b, c, d] = message.encode();
    [KIND, 0, 0, 0, a, b, c, d]
}

/// The message that these bytes are; `None`: none.
pub(in crate::world) fn decode(bytes: &[u8]) -> Option<PoolMessage> {
    let [KIND, 0, 0, 0, message @ ..] = <[u8; BYTES]>::try_from(bytes).ok()? else { return None };
    PoolMessage::parse(&message).filter(|message| message.body != PoolBody::Probe)
}

/// The pool's root, and the ranks that it has groups with: all that live since the job began.
#[derive(Debug)]
pub(in crate::world) struct RootOfPool {
    pub(in crate::world) machine: PoolRoot<Nanos, GROUPS, RANKS_MAX>,
    pub(in crate::world) peers: Vec<PeerId>,
}

/// The pool at one rank.
#[derive(Debug)]
pub(in crate::world) struct JobPool {
    pub(in crate::world) member: GroupPool<GROUPS>,
    /// At rank 0, until it finishes.
    pub(in crate::world) root: Option<RootOfPool>,
    /// Messages that have arrived.
    pub(in crate::world) arrivals: VecDeque<(PeerId, PoolMessage)>,
    /// Contexts of communicators that are over here, and the slots of their groups.
    pub(in crate::world) freed: Vec<(u32, u8)>,
    /// Groups that communicators of this rank have taken.
    pub(in crate::world) taken: u64,
    /// The keys of probes, by slot.
    keys: [GroupKey; GROUPS],
    root_incarnation: Incarnation,
}

impl JobPool {
    /// The pool of a job of `size` ranks, of which this is rank `own`, with up to `groups` groups that are ready. `None`:
    /// the job has none.
    pub(in crate::world) fn new(
        now: u64,
        (own, size): (u32, u32),
        groups: u8,
        names: &GroupNames,
        root_incarnation: Incarnation,
    ) -> Option<Self> {
        if groups == 0 || size < 2 || size as usize > RANKS_MAX {
            return None;
        }
        let config = PoolConfig { size, root: Member(ROOT.0), target: groups.into(), probes: TEST };
        let make_root = || RootOfPool {
            machine: PoolRoot::new(now, config),
            peers: (0..size).map(PeerId).filter(|peer| *peer != ROOT).collect(),
        };
        Some(Self {
            member: GroupPool::new(),
            root: (own == ROOT.0).then(make_root),
            arrivals: VecDeque::new(),
            freed: Vec::new(),
            taken: 0,
            keys: core::array::from_fn(|slot| names.pool_key(GroupId(group_number(slot as u8)))),
            root_incarnation,
        })
    }

    /// The header of a probe to the group of a slot.
    pub(in crate::world) fn probe_header(&self, slot: u8) -> Option<UnreliableHeader> {
        let key = *self.keys.get(usize::from(slot))?;
        Some(UnreliableHeader { key, sender: Member(ROOT.0), incarnation: self.root_incarnation })
    }

    /// Queues a message. Returns false if its sender has sent more than any correct rank.
    pub(in crate::world) fn queue(&mut self, from: PeerId, message: PoolMessage) -> bool {
        self.arrivals.push_back((from, message));
        self.arrivals.iter().filter(|(other, _)| *other == from).count() <= ARRIVALS_MAX
    }

    /// Handles a probe that was sent to a group: it waits for the next round. Returns whether it is one.
    pub(in crate::world) fn handle_probe(&mut self, datagram: &impl Received) -> bool {
        let Some(message) = self.parse_probe(datagram) else { return false };
        // The root's own needs no answer, and one that waits already is answered for both.
        if self.root.is_none() && !self.arrivals.contains(&(ROOT, message)) {
            self.arrivals.push_back((ROOT, message));
        }
        true
    }

    fn parse_probe(&self, datagram: &impl Received) -> Option<PoolMessage> {
        let (header, rest) = UnreliableHeader::parse(datagram.prefix()).ok()?;
        let message = PoolMessage::parse(rest).filter(|message| message.body == PoolBody::Probe)?;
        // The root has no address of itself.
        let is_of_root = self.root.is_some() || datagram.is_from(ROOT);
        let is_whole = datagram.bytes() as usize == UNRELIABLE_HEADER + POOL_MESSAGE;
        (is_whole && self.probe_header(message.slot)? == header && is_of_root).then_some(message)
    }

    /// A rank has failed or finished.
    pub(in crate::world) fn handle_failed(&mut self, now: u64, peer: PeerId) {
        self.arrivals.retain(|(from, _)| *from != peer);
        if let Some(root) = &mut self.root {
            root.peers.retain(|other| *other != peer);
            root.machine.handle_failed(now, Member(peer.0));
        }
    }

    /// When the root has to be advanced.
    pub(in crate::world) fn poll_timeout(&self) -> Option<u64> {
        self.root.as_ref().and_then(|root| root.machine.poll_timeout())
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::ALL_CONTEXTS;
    use super::*;

    #[test]
    fn messages_survive_the_wire_and_probes_come_by_multicast_only() {
        let message = PoolMessage { slot: 7, round: 0x0102, body: PoolBody::Taken };
        let bytes = encode(message);
        assert_eq!(decode(&bytes), Some(message));
        for at in 0..5 {
            let mut other = bytes;
            other[at] ^= 0x80;
            assert_eq!(decode(&other), None, "byte {at}");
        }
        assert_eq!(decode(&bytes[..7]), None);
        assert_eq!(decode(&encode(PoolMessage { body: PoolBody::Probe, ..message })), None);
    }

    #[test]
    fn no_context_and_no_group_share_a_number() {
        let numbers = (0..GROUPS as u8).map(group_number);
        assert!(numbers.clone().all(|number| (CONTEXTS..ALL_CONTEXTS).contains(&number)));
        assert_eq!(numbers.count(), GROUPS);
    }
}
