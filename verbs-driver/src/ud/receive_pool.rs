//! The receive slots of a lane, in registered memory: each holds the global routing header and a datagram.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::ptr::NonNull;

use unisono_core::device::{HEADER_ROOM, Received, Slot};
use unisono_core::ids::PeerId;

use super::Lent;
use super::address_table::{AddressTable, Source};
use super::counters::UdCounters;
use super::domain::{Domain, OpenError, Registration};
use super::gid::Gid;
use super::pages::AnonymousMemory;
use super::queue::{Queue, SgEntry};
use crate::raw::WorkResult;

/// Bytes of the global routing header, which precedes every datagram.
pub(super) const GRH: usize = 40;
/// Where a datagram begins in its slot: a multiple of the cache line, with the header before it.
const START: usize = 64;

/// Slots that are posted to the adapter in one call. As many more are posted initially, to cover those that wait for
/// the next call.
const BATCH: u32 = 16;

/// Datagrams that one poll takes at most.
const POLL_BUDGET: usize = 16;

/// The owner of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    /// The adapter, or the completion queue.
    Adapter,
    /// The caller that received it; it occupies the place of a posted slot.
    Receiver,
    /// The caller that holds it; another slot is posted in its place.
    Holder,
    /// No one: the slot is spare.
    Spare,
}

#[derive(Clone, Copy, Debug)]
struct SlotRecord {
    owner: Owner,
    bytes: u32,
    /// The queue pair that it came from, and whether a routing header is in front.
    queue: u32,
    grh: bool,
}

/// Receive slots and their state.
pub(super) struct ReceivePool {
    // Before the pages that it names, when both are dropped.
    registration: Registration,
    memory: AnonymousMemory,
    stride: usize,
    /// The first slot's number; the lanes' numbers are disjoint.
    base: u32,
    /// Bytes posted of each slot: header and the largest datagram.
    room: u32,
    fillings: Box<[SlotRecord]>,
    spare: Vec<u32>,
    /// Received and not returned to the caller yet.
    waiting: VecDeque<u32>,
    /// Released and not posted yet: posting can wait until the received datagram was handled.
    returned: Vec<u32>,
    /// Slots that go to the adapter together.
    chained: u32,
    /// Whether the header is an IPv4 one, in its last 20 bytes.
    ipv4: bool,
    /// Whether the last poll found datagrams, and all that there were.
    is_drained: bool,
    pub(super) failed: bool,
}

impl ReceivePool {
    /// Slots to post so that `slots` datagrams always have room.
    pub(super) const fn posted(slots: u32) -> u32 {
        slots + BATCH
    }

    /// A pool with room for `slots` unreceived and `holdable` held datagrams.
    pub(super) fn new(domain: &Arc<Domain>, base: u32, slots: u32, holdable: u32) -> Result<Self, OpenError> {
        let slots = Self::posted(slots);
        let refused = |what| move |error| OpenError::Refused { what, error };
        let (count, room) = (slots + holdable, GRH as u32 + domain.mtu());
        let stride = (START + domain.mtu() as usize).next_multiple_of(64);
        let memory = AnonymousMemory::map(stride * count as usize).map_err(refused("mmap"))?;
        // SAFETY: the pool keeps its pages until the registration is dropped.
        let registration = unsafe { domain.register(memory.start(), memory.bytes()) }.map_err(refused("ibv_reg_mr"))?;
        let nobody = SlotRecord { owner: Owner::Spare, bytes: 0, queue: 0, grh: false };
        let mut fillings = alloc::vec![nobody; count as usize].into_boxed_slice();
        for filling in fillings.iter_mut().take(slots as usize) {
            filling.owner = Owner::Adapter;
        }
        Ok(Self {
            stride,
            base,
            room,
            fillings,
            spare: (slots..count).collect(),
            waiting: VecDeque::with_capacity(slots as usize),
            returned: Vec::with_capacity(BATCH as usize),
            chained: 0,
            ipv4: domain.is_ethernet() && domain.gid().gid.ipv4().is_some(),
            memory,
            registration,
            is_drained: false,
            failed: false,
        })
    }

    /// Whether the pages are huge.
    pub(super) const fn is_huge(&self) -> bool {
        self.memory.is_huge()
    }

    /// Bytes of all slots.
    pub(super) const fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Posts every slot that the adapter owns: initially, and after a restart of the queue pair.
    pub(super) fn post_all(&mut self, queue: &mut Queue) {
        self.failed = false;
        self.chained = 0;
        self.returned.clear();
        for slot in 0..self.fillings.len() as u32 {
            if self.is(slot, Owner::Adapter) && !self.waiting.contains(&slot) {
                self.post(slot, Some(&mut *queue));
            }
        }
        self.flush(queue);
    }

    /// Gives a slot to the adapter, in a batch with those after it.
    fn post(&mut self, slot: u32, queue: Option<&mut Queue>) {
        let Some(filling) = self.fillings.get_mut(slot as usize) else { return };
        filling.owner = Owner::Adapter;
        // Otherwise it is posted after the restart.
        let Some(queue) = queue.filter(|_| !self.failed) else { return };
        let bytes = self.room as usize;
        let start = self.memory.part(slot as usize * self.stride + START - GRH, bytes);
        let piece = start.map(|start| SgEntry::new(start, bytes, self.registration.key()));
        self.failed = !piece.is_some_and(|piece| queue.post_receive(piece, slot));
        self.chained += 1;
        if self.chained >= BATCH {
            self.flush(queue);
        }
    }

    /// Posts released slots.
    #[inline]
    pub(super) fn repost(&mut self, queue: Option<&mut Queue>) {
        if !self.returned.is_empty() {
            self.post_returned(queue);
        }
    }

    #[inline(never)]
    fn post_returned(&mut self, mut queue: Option<&mut Queue>) {
        while let Some(slot) = self.returned.pop() {
            self.post(slot, queue.as_deref_mut());
        }
    }

    /// Hands posted receives to the adapter.
    fn flush(&mut self, queue: &mut Queue) {
        self.chained = 0;
        // SAFETY: slots that nobody else uses from now on, in memory that is registered as long as the pool lives.
        self.failed |= !unsafe { queue.flush_receives() };
    }

    fn is(&self, slot: u32, owner: Owner) -> bool {
        self.fillings.get(slot as usize).is_some_and(|filling| filling.owner == owner)
    }

    /// Takes received datagrams, as many as one poll finds. Returns whether any is available now.
    #[inline(never)]
    pub(super) fn poll(&mut self, queue: &mut Queue, tally: &UdCounters) -> bool {
        self.is_drained = false;
        for taken in 0..POLL_BUDGET {
            // The poll that found the first has found all that there were.
            let found = if taken == 0 { queue.received() } else { queue.received_more() };
            let Some(fate) = found else {
                self.is_drained = taken > 0;
                if taken == 0 {
                    self.repost(Some(queue));
                }
                break;
            };
            let WorkResult::Done(got) = fate else {
                // The slot stays the adapter's, until the restart.
                tally.failed.add(1);
                self.failed = true;
                continue;
            };
            let slot = got.tag;
            let Some(bytes) = got.bytes.checked_sub(GRH as u32).filter(|_| got.bytes <= self.room) else {
                tally.too_short.add(1);
                self.post(slot, Some(&mut *queue));
                continue;
            };
            if let Some(filling) = self.fillings.get_mut(slot as usize) {
                filling.bytes = bytes;
                (filling.queue, filling.grh) = (got.origin.qpn, got.origin.grh);
                self.waiting.push_back(slot);
            }
            tally.received.add(1);
        }
        !self.waiting.is_empty()
    }

    /// Whether a datagram is available, after a poll if necessary. If none has arrived and no slot is to be posted,
    /// that is found without a call; the consumer index is then published with the next poll that finds one.
    #[inline(always)]
    pub(super) fn poll_if_needed(&mut self, queue: Option<&mut Queue>, tally: &UdCounters) -> bool {
        if self.has_waiting() {
            return true;
        }
        let Some(queue) = queue else { return false };
        if self.returned.is_empty() && !queue.may_have_arrival() {
            self.is_drained = false;
            return false;
        }
        self.poll(queue, tally)
    }

    /// Whether a datagram that was taken from the adapter is available.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether no datagram is available, and the poll that found the last one found no more. Returns true once: then
    /// the adapter has to be polled again.
    ///
    /// That poll may be some time ago: it was made when the lane was armed, or a round ended with its last datagram
    /// because of its budget. No datagram is missed: each such poll found at least one, so this returns true at most
    /// once per returned datagram, and a caller that loops until a round moves nothing stops early at most once. A
    /// caller that sleeps arms the lane before, which polls regardless.
    pub(super) fn is_drained(&mut self) -> bool {
        self.waiting.is_empty() && mem::take(&mut self.is_drained)
    }

    /// The source of the datagram in a slot.
    #[inline]
    fn source_of(&self, slot: u32, filling: &SlotRecord) -> Source {
        Source { gid: if filling.grh { self.gid_of(slot) } else { None }, queue: filling.queue }
    }

    /// The sender's GID, from the routing header.
    #[inline]
    fn gid_of(&self, slot: u32) -> Option<Gid> {
        // SAFETY: completed and not posted again: the adapter is done with it.
        let header = unsafe { self.memory.get(slot as usize * self.stride + START - GRH, GRH) }?;
        if self.ipv4 {
            // An IPv4 header takes the last 20 bytes; its source is at byte 12.
            let source: [u8; 4] = header.get(32..36)?.try_into().ok()?;
            return Some(Gid::from(core::net::IpAddr::from(source)));
        }
        header.get(8..24)?.try_into().ok().map(Gid)
    }

    /// The next datagram, which is its receiver's from now on.
    #[inline]
    pub(super) fn next<'a>(&'a mut self, table: &'a AddressTable) -> Option<Datagram<'a>> {
        let own = self.waiting.pop_front()?;
        let filling = self.fillings.get_mut(own as usize)?;
        filling.owner = Owner::Receiver;
        let filling = *filling;
        let (bytes, source) = (filling.bytes, self.source_of(own, &filling));
        // SAFETY: completed, and not posted again before it is given back.
        let head = unsafe { self.memory.get(own as usize * self.stride + START, HEADER_ROOM.min(bytes as usize)) };
        Some(Datagram { slot: Slot(self.base + own), bytes, head: head.unwrap_or_default(), source, table })
    }

    /// Lets a spare slot take the place of a datagram that is set aside.
    pub(super) fn hold(&mut self, slot: Slot, queue: Option<&mut Queue>) {
        let slot = slot.0.wrapping_sub(self.base);
        if !self.is(slot, Owner::Receiver) {
            return;
        }
        // Without a spare one it keeps its own place: the caller holds more than it may.
        if let Some(spare) = self.spare.pop() {
            if let Some(filling) = self.fillings.get_mut(slot as usize) {
                filling.owner = Owner::Holder;
            }
            self.post(spare, queue);
        }
    }

    /// Releases a slot. It is posted after the next flush of sends, when a poll finds no datagram, or when a batch of
    /// slots was released.
    pub(super) fn release(&mut self, slot: Slot, queue: Option<&mut Queue>) {
        let slot = slot.0.wrapping_sub(self.base);
        if let Some(filling) = self.fillings.get_mut(slot as usize)
            && filling.owner == Owner::Receiver
        {
            filling.owner = Owner::Adapter;
            self.returned.push(slot);
            if self.returned.len() as u32 + self.chained >= BATCH {
                self.post_returned(queue);
            }
        } else if self.is(slot, Owner::Holder) {
            if let Some(filling) = self.fillings.get_mut(slot as usize) {
                filling.owner = Owner::Spare;
            }
            self.spare.push(slot);
        }
    }

    /// A datagram that was handed out. Of any other slot, an empty one.
    pub(super) fn datagram<'a>(&'a self, slot: Slot, table: &'a AddressTable) -> Datagram<'a> {
        let own = slot.0.wrapping_sub(self.base);
        let filling = self.fillings.get(own as usize);
        let out = filling.filter(|filling| matches!(filling.owner, Owner::Receiver | Owner::Holder));
        let (bytes, source) =
            out.map_or((0, Source { gid: None, queue: 0 }), |filling| (filling.bytes, self.source_of(own, filling)));
        // SAFETY: handed out, hence not posted.
        let head = unsafe { self.memory.get(own as usize * self.stride + START, HEADER_ROOM.min(bytes as usize)) };
        Datagram { slot, bytes, head: head.unwrap_or_default(), source, table }
    }

    /// Copies from a datagram. Bytes outside the datagram or the destination are not copied.
    pub(super) fn place(&self, from: Slot, start: usize, bytes: usize, to: impl Lent) {
        let slot = from.0.wrapping_sub(self.base);
        let Some(filling) = self.fillings.get(slot as usize) else { return };
        let out = matches!(filling.owner, Owner::Receiver | Owner::Holder);
        let inside = start.checked_add(bytes).is_some_and(|end| end <= filling.bytes as usize);
        if !out || !inside || bytes > to.bytes() {
            return;
        }
        // SAFETY: handed out, hence not posted.
        if let Some(piece) = unsafe { self.memory.get(slot as usize * self.stride + START + start, bytes) } {
            // SAFETY: as many bytes as both have; the creator of the address promised that they are live and not in use
            // (`RegisteredMemory`); user memory is no slot.
            unsafe { to.copy_in(NonNull::from(piece).cast(), bytes) };
        }
    }
}

/// A datagram that arrived. The link has checked it.
pub struct Datagram<'a> {
    slot: Slot,
    bytes: u32,
    head: &'a [u8],
    source: Source,
    table: &'a AddressTable,
}

impl Received for Datagram<'_> {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn prefix(&self) -> &[u8] {
        self.head
    }

    fn is_from(&self, peer: PeerId) -> bool {
        self.table.is(peer, &self.source)
    }

    /// Unknown.
    fn age_ns(&self) -> Option<u32> {
        None
    }
}
