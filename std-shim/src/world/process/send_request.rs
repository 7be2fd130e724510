//! Sends whose payload is still needed: announced messages, and messages in transmission.

use unisono_core::ids::PeerId;

use super::bounce_buffers::BounceBuffer;
use crate::world::request::Failure;
use unisono_memory::memory_regions::RegionRange;

/// When a send is transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum Flush {
    /// Before the call returns, or when the window has room.
    Now,
    /// Together with other sends.
    Batched,
}

/// A send whose payload may be asked for, or is being read.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct SendOp {
    pub(in crate::world) to: PeerId,
    pub(in crate::world) payload: RegionRange,
    pub(in crate::world) owner: PayloadOwner,
    /// Operations of the endpoint and entries of a ring's queue that read its payload.
    pub(in crate::world) uses: u32,
    /// Whether its payload will not be asked for any more.
    pub(in crate::world) is_final: bool,
    pub(in crate::world) failure: Option<Failure>,
    /// Bytes for which the receiver has granted memory.
    pub(in crate::world) granted: usize,
    /// Whether its receiver was asked to acknowledge it.
    pub(in crate::world) is_ack_requested: bool,
}

impl SendOp {
    /// A send that may be asked for, and whose payload nobody reads.
    pub(in crate::world) const fn new(to: PeerId, payload: RegionRange, owner: PayloadOwner) -> Self {
        Self { to, payload, owner, uses: 0, is_final: false, failure: None, granted: 0, is_ack_requested: false }
    }

    /// Records the first failure, which its owner gets. Writes nothing otherwise: a struct that is written in parts and
    /// read whole stalls the processor (store forwarding).
    pub(in crate::world) fn record_failure(&mut self, failure: Option<Failure>) {
        if let Some(failure) = failure {
            self.failure.get_or_insert(failure);
        }
    }
}

/// The owner of a payload's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum PayloadOwner {
    /// The user buffer of this request.
    Request(u32),
    /// A copy in a bounce buffer.
    Cell(BounceBuffer),
    /// A copy in a region of its own.
    Copy,
}

#[derive(Clone, Copy, Debug)]
enum SendEntry {
    Free {
        next: u32,
    },
    Used(SendOp),
    /// Its payload is released; the matching machine still knows the message, and may name it.
    Abandoned {
        to: PeerId,
    },
}

const NONE: u32 = u32::MAX;

/// All sends of a process, by index.
#[derive(Debug)]
pub(in crate::world) struct SendOps {
    entries: Vec<SendEntry>,
    free: u32,
    used: usize,
    /// Number of sends to each rank.
    by_rank: Box<[u32]>,
}

impl SendOps {
    pub(in crate::world) fn new(ranks: u32) -> Self {
        Self { entries: Vec::new(), free: NONE, used: 0, by_rank: vec![0; ranks as usize].into() }
    }

    /// Whether there are any to this rank.
    pub(in crate::world) fn has_sends_to(&self, peer: PeerId) -> bool {
        self.by_rank.get(peer.0 as usize).is_some_and(|count| *count > 0)
    }

    /// The index of the next one.
    pub(in crate::world) const fn next(&self) -> u32 {
        if self.free == NONE { self.entries.len() as u32 } else { self.free }
    }

    /// Inserts one at [`next`](Self::next).
    pub(in crate::world) fn insert(&mut self, send: SendOp) -> u32 {
        let i = self.next();
        if let Some(count) = self.by_rank.get_mut(send.to.0 as usize) {
            *count += 1;
        }
        match self.entries.get_mut(i as usize) {
            Some(entry) => {
                if let SendEntry::Free { next } = *entry {
                    self.free = next;
                }
                *entry = SendEntry::Used(send);
            }
            None => self.entries.push(SendEntry::Used(send)),
        }
        self.used += 1;
        i
    }

    pub(in crate::world) fn get(&mut self, i: u32) -> Option<&mut SendOp> {
        match self.entries.get_mut(i as usize)? {
            SendEntry::Used(parcel) => Some(parcel),
            SendEntry::Free { .. } | SendEntry::Abandoned { .. } => None,
        }
    }

    /// Those to this rank whose payload nobody reads, and that may still be asked for.
    pub(in crate::world) fn unread_to(&self, to: PeerId) -> Vec<u32> {
        let is = |send: &SendOp| send.to == to && !send.is_final && send.uses == 0 && send.granted == 0;
        self.iter().filter(|(_, parcel)| is(parcel)).map(|(i, _)| i).collect()
    }

    /// Removes one whose payload nobody reads, though it may still be asked for.
    pub(in crate::world) fn abandon(&mut self, i: u32) -> Option<SendOp> {
        let entry = self.entries.get_mut(i as usize)?;
        let SendEntry::Used(parcel) = *entry else { return None };
        *entry = SendEntry::Abandoned { to: parcel.to };
        self.count_removed(parcel.to);
        Some(parcel)
    }

    /// Frees the index of an abandoned send, which the machine has forgotten.
    pub(in crate::world) fn free_abandoned(&mut self, i: u32) {
        if let Some(SendEntry::Abandoned { .. }) = self.entries.get(i as usize) {
            self.free_entry(i);
        }
    }

    fn free_entry(&mut self, i: u32) {
        if let Some(entry) = self.entries.get_mut(i as usize) {
            *entry = SendEntry::Free { next: self.free };
            self.free = i;
        }
    }

    fn count_removed(&mut self, to: PeerId) {
        self.used -= 1;
        if let Some(count) = self.by_rank.get_mut(to.0 as usize) {
            *count = count.saturating_sub(1);
        }
    }

    /// Removes one that nobody needs any more.
    pub(in crate::world) fn remove_if_done(&mut self, i: u32) -> Option<SendOp> {
        let SendEntry::Used(parcel) = *self.entries.get(i as usize)? else { return None };
        if !parcel.is_final || parcel.uses > 0 {
            return None;
        }
        self.free_entry(i);
        self.count_removed(parcel.to);
        Some(parcel)
    }

    /// Calls `ask` for each send that no acknowledgement was requested for.
    pub(in crate::world) fn request_acks(&mut self, mut ask: impl FnMut(PeerId)) {
        if self.used == 0 {
            return;
        }
        for entry in &mut self.entries {
            if let SendEntry::Used(parcel) = entry
                && !core::mem::replace(&mut parcel.is_ack_requested, true)
            {
                ask(parcel.to);
            }
        }
    }

    /// Ends the sends to a peer that is gone, once their payload is not read any more.
    pub(in crate::world) fn disconnect(&mut self, peer: PeerId, failure: Failure) {
        for i in 0..self.entries.len() as u32 {
            match self.entries.get_mut(i as usize) {
                Some(SendEntry::Used(parcel)) if parcel.to == peer => {
                    parcel.is_final = true;
                    parcel.record_failure(Some(failure));
                }
                Some(SendEntry::Abandoned { to }) if *to == peer => self.free_entry(i),
                _ => {}
            }
        }
    }

    /// All of them.
    pub(in crate::world) fn iter(&self) -> impl Iterator<Item = (u32, &SendOp)> {
        (0..).zip(&self.entries).filter_map(|(i, entry)| match entry {
            SendEntry::Used(parcel) => Some((i, parcel)),
            SendEntry::Free { .. } | SendEntry::Abandoned { .. } => None,
        })
    }

    pub(in crate::world) const fn is_empty(&self) -> bool {
        self.used == 0
    }
}

#[cfg(test)]
mod tests {
    use unisono_core::span::Region;

    use super::*;

    fn send_op(to: u32) -> SendOp {
        let payload = RegionRange { region: Region::default(), offset: 0, bytes: 1 };
        SendOp::new(PeerId(to), payload, PayloadOwner::Copy)
    }

    #[test]
    fn the_number_of_one_that_was_abandoned_is_not_used_before_the_machine_forgets_it() {
        let mut parcels = SendOps::new(3);
        let [first, second, third] = [1, 1, 2].map(|to| parcels.insert(send_op(to)));
        parcels.get(second).expect("there").uses = 1;
        assert_eq!(parcels.unread_to(PeerId(1)), [first], "the other one is being read");
        assert!(parcels.abandon(first).is_some() && parcels.abandon(first).is_none());
        assert!(parcels.get(first).is_none() && parcels.remove_if_done(first).is_none());
        assert!(parcels.has_sends_to(PeerId(1)), "the second one");
        assert_eq!(parcels.next(), 3);
        parcels.free_abandoned(third);
        assert!(parcels.get(third).is_some(), "it is not abandoned");
        parcels.free_abandoned(first);
        assert_eq!(parcels.insert(send_op(0)), first);
    }

    #[test]
    fn what_was_abandoned_goes_with_its_peer() {
        let mut parcels = SendOps::new(2);
        let [first, second] = [0, 1].map(|to| parcels.insert(send_op(to)));
        [first, second].into_iter().for_each(|one| assert!(parcels.abandon(one).is_some()));
        assert!(parcels.is_empty());
        parcels.disconnect(PeerId(1), Failure::Finished);
        assert_eq!([parcels.insert(send_op(0)), parcels.insert(send_op(0))], [second, 2]);
    }
}
