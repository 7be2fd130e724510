//! The payloads that the adapter reads, in their order, and the parts of them that are outstanding.
//!
//! An adapter needs no more outstanding bytes than its link holds; more of them overrun the queues of a receiver that many
//! send to, and of an adapter in software. Payloads take turns, part by part, and a peer that does not answer leaves room
//! for the others.

use alloc::collections::VecDeque;

use unisono_core::ids::PeerId;
use unisono_core::span::Region;
use unisono_core::transport::Token;
use unisono_verbs::raw::{Data, RemoteMemory};
use unisono_verbs::rc::{RcOperation, RcRequest};

/// Most bytes of a part.
const PART: u32 = 128 << 10;
/// Most bytes of all outstanding parts, and of those of one peer while payloads of others wait.
const OUTSTANDING: u32 = 4 * PART;
const OF_ONE_PEER: u32 = 2 * PART;

/// A receive, and the region that it reads into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct ReadUser {
    pub(in crate::world) token: Token,
    pub(in crate::world) region: Region,
}

/// A payload to be read.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct PayloadRead {
    pub(in crate::world) peer: PeerId,
    pub(in crate::world) user: ReadUser,
    /// The memory here, not empty.
    pub(in crate::world) local: Data,
    /// As many bytes of the peer.
    pub(in crate::world) remote: RemoteMemory,
}

/// A payload that is being read.
#[derive(Clone, Copy, Debug)]
struct Entry {
    read: PayloadRead,
    /// Bytes of the parts that were posted, and of those that are outstanding.
    posted: u32,
    outstanding: u32,
    has_failed: bool,
}

impl Entry {
    /// Whether a part is still to be posted.
    const fn is_open(&self) -> bool {
        !self.has_failed && self.posted < self.read.local.bytes
    }
}

/// The payloads that are being read, the next one to have a part posted first.
#[derive(Debug, Default)]
pub(super) struct ReadQueue {
    entries: VecDeque<Entry>,
    outstanding: u32,
}

impl ReadQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, read: PayloadRead) {
        self.entries.push_back(Entry { read, posted: 0, outstanding: 0, has_failed: false });
    }

    /// The next part to post, if there is room for one, of a peer that is not `full`.
    pub(super) fn next(&self, full: &[PeerId]) -> Option<(PeerId, ReadUser, RcRequest)> {
        let open = || self.entries.iter().filter(|entry| entry.is_open() && !full.contains(&entry.read.peer));
        let is_alone = |peer: PeerId| open().all(|entry| entry.read.peer == peer);
        let of = |peer: PeerId| {
            let own = self.entries.iter().filter(|entry| entry.read.peer == peer);
            own.map(|entry| entry.outstanding).sum::<u32>()
        };
        let has_room = |entry: &&Entry| is_alone(entry.read.peer) || of(entry.read.peer) < OF_ONE_PEER;
        let Entry { read: PayloadRead { peer, user, local, remote }, posted, .. } = open().find(has_room)?;
        let address = |of: u64| of.wrapping_add(u64::from(*posted));
        let bytes = PART.min(local.bytes - posted);
        if self.outstanding + bytes > OUTSTANDING {
            return None;
        }
        let local = Data { address: address(local.address), bytes, key: local.key };
        let remote = RemoteMemory { address: address(remote.address), key: remote.key };
        Some((*peer, *user, RcRequest { operation: RcOperation::Read, local, remote }))
    }

    /// The next part of a read was posted: others go first now.
    pub(super) fn begin(&mut self, user: ReadUser, bytes: u32) {
        let place = self.entries.iter().position(|entry| entry.read.user == user);
        if let Some(mut entry) = place.and_then(|place| self.entries.remove(place)) {
            entry.posted += bytes;
            entry.outstanding += bytes;
            self.outstanding += bytes;
            self.entries.push_back(entry);
        }
    }

    /// A part of a read has ended. Returns whether the whole read was executed, if it has ended.
    pub(super) fn end(&mut self, user: ReadUser, bytes: u32, is_ok: bool) -> Option<bool> {
        self.end_aborted(bytes);
        let place = self.entries.iter().position(|entry| entry.read.user == user)?;
        let entry = self.entries.get_mut(place)?;
        entry.outstanding = entry.outstanding.saturating_sub(bytes);
        entry.has_failed |= !is_ok;
        let (is_ok, is_over) = (!entry.has_failed, entry.has_failed || entry.posted == entry.read.local.bytes);
        if entry.outstanding > 0 || !is_over {
            return None;
        }
        self.entries.remove(place);
        Some(is_ok)
    }

    /// A part of a read that was removed has ended.
    pub(super) const fn end_aborted(&mut self, bytes: u32) {
        self.outstanding = self.outstanding.saturating_sub(bytes);
    }

    /// The reads of a peer fail.
    pub(super) fn fail(&mut self, peer: PeerId) {
        self.entries.iter_mut().filter(|entry| entry.read.peer == peer).for_each(|entry| entry.has_failed = true);
    }

    /// Removes a read that has failed, and of which no part is outstanding.
    pub(super) fn take_failed(&mut self) -> Option<ReadUser> {
        let place = self.entries.iter().position(|entry| entry.has_failed && entry.outstanding == 0)?;
        self.entries.remove(place).map(|entry| entry.read.user)
    }

    /// Removes reads; their parts end later.
    pub(super) fn remove(&mut self, is: impl Fn(ReadUser) -> bool) {
        self.entries.retain(|entry| !is(entry.read.user));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(peer: u32, token: u32, bytes: u32) -> PayloadRead {
        let user = ReadUser { token: Token(token), region: Region::new(token, 1) };
        let (local, remote) = (Data { address: 1000, bytes, key: 1 }, RemoteMemory { address: 5000, key: 2 });
        PayloadRead { peer: PeerId(peer), user, local, remote }
    }

    /// Posts what there is room for. Returns the parts: token, offset, length.
    fn post(queue: &mut ReadQueue) -> Vec<(u32, u64, u32)> {
        let mut posted = Vec::new();
        while let Some((_, user, RcRequest { local, remote, .. })) = queue.next(&[]) {
            assert_eq!(remote.address - 5000, local.address - 1000);
            queue.begin(user, local.bytes);
            posted.push((user.token.0, local.address - 1000, local.bytes));
        }
        posted
    }

    #[test]
    fn payloads_take_turns_part_by_part() {
        let mut queue = ReadQueue::default();
        let (first, second) = (read(1, 7, 2 * PART + 1), read(2, 8, 3 * PART));
        queue.push(first);
        queue.push(second);
        let part = u64::from(PART);
        assert_eq!(post(&mut queue), [(7, 0, PART), (8, 0, PART), (7, part, PART), (8, part, PART)]);
        assert_eq!(queue.end(first.user, PART, true), None);
        assert_eq!(post(&mut queue), [(7, 2 * part, 1)], "there is room for one more");
        assert_eq!([PART, 1].map(|bytes| queue.end(first.user, bytes, true)), [None, Some(true)]);
        assert_eq!(post(&mut queue), [(8, 2 * part, PART)]);
        assert_eq!([PART; 3].map(|bytes| queue.end(second.user, bytes, true)), [None, None, Some(true)]);
        assert!(queue.is_empty() && queue.outstanding == 0);
    }

    #[test]
    fn peer_that_does_not_answer_leaves_room_for_others() {
        let mut queue = ReadQueue::default();
        let (silent, other) = (read(1, 7, 9 * PART), read(2, 8, 9 * PART));
        queue.push(silent);
        queue.push(other);
        assert_eq!(post(&mut queue).len(), 4);
        for _ in 0..3 {
            assert_eq!(queue.end(other.user, PART, true), None);
            assert!(matches!(post(&mut queue)[..], [(8, _, PART)]), "the silent peer has two parts");
        }
        assert_eq!(queue.end(other.user, PART, true), None);
        assert!(queue.next(&[PeerId(1), PeerId(2)]).is_none(), "both have no room");
        assert!(queue.next(&[PeerId(1)]).is_some_and(|(peer, ..)| peer == PeerId(2)));
    }

    #[test]
    fn failed_read_ends_after_its_parts_and_starts_no_more() {
        let mut queue = ReadQueue::default();
        let (first, second) = (read(1, 7, 9 * PART), read(1, 8, PART));
        queue.push(first);
        queue.push(second);
        assert_eq!(post(&mut queue).iter().map(|(token, ..)| *token).collect::<Vec<_>>(), [7, 8, 7, 7]);
        assert_eq!(queue.end(first.user, PART, false), None);
        queue.fail(PeerId(2));
        assert!(post(&mut queue).is_empty(), "no part of a read that has failed");
        queue.fail(PeerId(1));
        assert_eq!(queue.take_failed(), None, "parts are outstanding");
        assert_eq!(queue.end(second.user, PART, true), Some(false));
        assert_eq!([PART; 2].map(|bytes| queue.end(first.user, bytes, true)), [None, Some(false)]);
        queue.push(first);
        queue.fail(PeerId(1));
        assert_eq!((queue.take_failed(), queue.take_failed()), (Some(first.user), None));
    }

    #[test]
    fn removed_read_gives_its_room_back_when_its_parts_have_ended() {
        let mut queue = ReadQueue::default();
        let (first, second) = (read(1, 7, 4 * PART), read(1, 8, PART));
        queue.push(first);
        assert_eq!(post(&mut queue).len(), 4);
        queue.push(second);
        queue.remove(|user| user == first.user);
        assert!(post(&mut queue).is_empty());
        queue.end_aborted(PART);
        assert_eq!(post(&mut queue), [(8, 0, PART)]);
        (0..3).for_each(|_| queue.end_aborted(PART));
        assert_eq!((queue.end(second.user, PART, true), queue.outstanding), (Some(true), 0));
    }
}
