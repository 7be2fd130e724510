//! Receive buffers, filled by `recvmmsg`; a buffer holds one datagram, or several that the kernel joined (GRO).

use core::{ops::RangeInclusive, ptr};
use std::io;

use unisono_core::device::{HEADER_ROOM, Received, Slot};
use unisono_core::ids::{PeerId, Rail};

use super::{
    address_table::{AddressTable, SocketName},
    buffer_pool::BufferPool,
    checksum::{self, TRAILER},
    counters::UdpCounters,
    socket::{Control, Socket, no_message},
};
use unisono_memory::memory_regions::Address;

/// Messages per call: at most 64, for large ones as many as fit in the cache together, but at least 4.
const BATCH: RangeInclusive<usize> = 4..=64;

/// Bytes per call that fit in the cache, beside the destination of their copies.
const BATCH_BYTES: usize = 1 << 18;

/// After a call that returned all it asked for, the next one asks for this many times as much.
const GROWTH: usize = 4;

/// Datagrams checked together, and bytes after which no more are added: these are still in the first-level cache when
/// they are copied.
const CHECK_GROUP: usize = 8;
const CHECK_GROUP_BYTES: u64 = 1 << 13;

/// Largest message that GRO produces, in bytes.
const JOINED_MAX: usize = 65535;

/// The contents of a buffer.
#[derive(Clone, Copy)]
struct BufferState {
    from: SocketName,
    bytes: u32,
    /// Length of each datagram but the last, which may be shorter.
    segment: u32,
    /// Checked datagrams that are not released, plus one while more may be checked. At 0 the buffer is free.
    users: u32,
    truncated: bool,
    rail: Rail,
}

impl BufferState {
    /// Length of the datagram that begins at this byte, checksum excluded; 0 if none does.
    const fn length(&self, start: usize) -> usize {
        let (left, segment) = ((self.bytes as usize).saturating_sub(start), self.segment as usize);
        (if left < segment { left } else { segment }).saturating_sub(TRAILER)
    }
}

static EMPTY: BufferState =
    BufferState { from: SocketName::NONE, bytes: 0, segment: 0, users: 0, truncated: false, rail: Rail(0) };

/// A few checked datagrams, in order of arrival.
#[derive(Default)]
struct CheckedDatagrams {
    slots: [Slot; CHECK_GROUP],
    next: usize,
    count: usize,
}

impl CheckedDatagrams {
    fn is_empty(&self) -> bool {
        self.next == self.count
    }

    fn push(&mut self, slot: Slot) {
        if let Some(place) = self.slots.get_mut(self.count) {
            *place = slot;
            self.count += 1;
        }
    }

    fn pop(&mut self) -> Option<Slot> {
        let slot = self.slots.get(self.next..self.count)?.first().copied()?;
        self.next += 1;
        Some(slot)
    }
}

/// The datagrams that a queue received over a rail and has not handed out yet.
pub(super) struct Batch {
    rail: Rail,
    messages: Box<[libc::mmsghdr]>,
    pieces: Box<[libc::iovec]>,
    controls: Box<[Control]>,
    /// Buffers filled by the last call, in order of arrival.
    filled: Vec<u16>,
    /// Index of the buffer to check next, and the offset in it.
    next: (usize, u32),
    /// Checked and not handed out yet.
    checked: CheckedDatagrams,
    /// Messages that the next call asks for: few while few arrive, since the kernel checks the queue once more for each
    /// missing one.
    request: usize,
    /// The last call returned as many as it asked for: more may wait.
    full: bool,
    /// The last batch was one message.
    single: bool,
}

// SAFETY: the pointers in the arrays are dead outside `fill`, which writes them before the kernel reads them.
unsafe impl Send for Batch {}

impl Batch {
    fn new(size: usize, rail: Rail) -> Self {
        Self {
            rail,
            messages: vec![no_message(); size].into_boxed_slice(),
            pieces: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; size].into_boxed_slice(),
            controls: vec![Control::NONE; size].into_boxed_slice(),
            filled: Vec::with_capacity(size),
            next: (0, 0),
            checked: CheckedDatagrams::default(),
            request: 1,
            full: false,
            single: false,
        }
    }

    /// The receiving call failed; `EAGAIN` means that nothing has arrived.
    fn handle_receive_error(&mut self, tally: &UdpCounters) {
        if !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
            tally.receive_errors.add(1);
        }
        (self.request, self.full) = (1, false);
    }

    /// More may have arrived since the last call.
    pub(super) fn expect_more(&mut self) {
        self.full |= !self.filled.is_empty();
    }

    /// Whether a datagram waits here, or may wait in the kernel.
    pub(super) fn may_have_more(&self) -> bool {
        !self.is_drained() || self.full
    }

    /// All that was received has been handed out.
    fn finish(&mut self) {
        self.single = self.filled.len() == 1;
        self.filled.clear();
        self.next = (0, 0);
    }

    /// Whether all that was received has been handed out.
    pub(super) fn is_drained(&self) -> bool {
        self.checked.is_empty() && self.next.0 >= self.filled.len()
    }
}

/// The receive buffers of both queues, of all rails.
pub(super) struct ReceivePool {
    slab: BufferPool,
    states: Vec<BufferState>,
    /// A stack: the last one is used next, since it is still in the cache.
    free: Vec<u16>,
    /// Bytes of each buffer.
    bytes: usize,
    batch: usize,
    gro: bool,
    /// Frames have checksums.
    pub(super) checksums: bool,
}

impl ReceivePool {
    /// Buffers for the batches of both queues on each of `rails` rails and of `groups` groups, and for `holdable` held
    /// datagrams, each of which keeps at most one buffer. `mtu` includes the checksum. `gro`: GRO is enabled.
    pub(super) fn new(mtu: usize, holdable: u16, rails: usize, groups: u16, gro: bool) -> io::Result<Self> {
        let bytes = if gro { JOINED_MAX } else { mtu };
        let batch = (BATCH_BYTES / bytes).clamp(*BATCH.start(), *BATCH.end());
        let buffers =
            u16::try_from((2 * rails + usize::from(groups)) * batch).unwrap_or(u16::MAX).saturating_add(holdable);
        Ok(Self {
            slab: BufferPool::new(buffers.into(), bytes)?,
            states: vec![BufferState { ..EMPTY }; buffers.into()],
            free: (0..buffers).rev().collect(),
            bytes,
            batch,
            gro,
            checksums: true,
        })
    }

    /// An empty batch for one queue of this pool, for what arrives over a rail.
    pub(super) fn batch(&self, rail: Rail) -> Batch {
        Batch::new(self.batch, rail)
    }

    /// The next datagram with a correct checksum. At most two system calls, and two batches of bad datagrams are
    /// skipped.
    ///
    /// Returns `None` once after a batch that was not full, and after a batch of one message: a caller that receives
    /// until there is nothing left is spared a system call that finds nothing.
    pub(super) fn next(&mut self, lane: &mut Batch, socket: &Socket, tally: &UdpCounters) -> Option<Slot> {
        self.poll(lane, socket, tally);
        let slot = self.next_checked(lane, tally);
        if slot.is_some() || !lane.full || lane.single {
            return slot;
        }
        self.fill(lane, socket, tally);
        self.next_checked(lane, tally)
    }

    /// As [`next`](Self::next), but asks the kernel again after a full batch of one message, too.
    pub(super) fn next_until_empty(&mut self, lane: &mut Batch, socket: &Socket, tally: &UdpCounters) -> Option<Slot> {
        let slot = self.next(lane, socket, tally);
        if slot.is_some() || !lane.full {
            return slot;
        }
        self.fill(lane, socket, tally);
        self.next_checked(lane, tally)
    }

    /// Takes a batch from the kernel. All of the last one must have been handed out.
    pub(super) fn take(&mut self, lane: &mut Batch, socket: &Socket, tally: &UdpCounters) {
        lane.finish();
        self.fill(lane, socket, tally);
    }

    /// Whether a batch waits, with correct checksums or not; asks the kernel once if none does.
    pub(super) fn poll(&mut self, lane: &mut Batch, socket: &Socket, tally: &UdpCounters) -> bool {
        if lane.filled.is_empty() {
            self.fill(lane, socket, tally);
        }
        !lane.filled.is_empty()
    }

    /// Drops what a queue has received and not handed out.
    pub(super) fn discard(&mut self, lane: &mut Batch, tally: &UdpCounters) {
        while let Some(slot) = self.next_checked(lane, tally) {
            self.release(slot);
        }
    }

    /// The next datagram of the batch with a correct checksum. If there is none, the batch is empty afterwards.
    pub(super) fn next_checked(&mut self, lane: &mut Batch, tally: &UdpCounters) -> Option<Slot> {
        while lane.checked.is_empty() && lane.next.0 < lane.filled.len() {
            self.check(lane, tally);
        }
        let slot = lane.checked.pop();
        if slot.is_none() {
            lane.finish();
        }
        slot
    }

    /// Checks the next few datagrams together: one checksum is a chain of dependent steps, several overlap.
    fn check(&mut self, lane: &mut Batch, tally: &UdpCounters) {
        let (mut bad, mut short, mut bytes) = (0, 0, 0);
        lane.checked = CheckedDatagrams::default();
        while lane.checked.count < CHECK_GROUP && bytes < CHECK_GROUP_BYTES {
            let Some(buffer) = lane.filled.get(lane.next.0).copied() else { break };
            let Some(filling) = self.states.get_mut(usize::from(buffer)) else { break };
            let start = lane.next.1;
            let length = filling.segment.min(filling.bytes.saturating_sub(start));
            if start + length >= filling.bytes || length == 0 {
                lane.next = (lane.next.0 + 1, 0);
            } else {
                lane.next.1 = start + length;
                filling.users += 1;
            }
            let frame = self.slab.get(buffer.into(), start as usize, length as usize);
            let parts = frame.and_then(|frame| frame.split_last_chunk::<TRAILER>());
            match parts {
                _ if filling.truncated => tally.truncated.add(1),
                None => short += 1,
                Some((body, trailer)) if self.checksums && checksum::of(body) != *trailer => bad += 1,
                Some((body, _)) => {
                    bytes += body.len() as u64;
                    lane.checked.push(slot_of(buffer, start));
                    continue;
                }
            }
            self.release(slot_of(buffer, start));
        }
        tally.received.add(lane.checked.count as u64);
        tally.received_bytes.add(bytes);
        let rail = tally.rail(lane.rail);
        rail.received.add(lane.checked.count as u64);
        rail.received_bytes.add(bytes);
        if bad + short > 0 {
            tally.bad_checksum.add(bad);
            tally.too_short.add(short);
        }
    }

    /// Asks the kernel for a batch.
    fn fill(&mut self, lane: &mut Batch, socket: &Socket, tally: &UdpCounters) {
        let ask = lane.request.min(self.free.len());
        match ask {
            0 => {
                (lane.request, lane.full) = (1, false);
                return;
            }
            1 => return self.fill_one(lane, socket, tally),
            _ => {}
        }
        let fillings = self.states.as_mut_ptr();
        let arrays = lane.messages.iter_mut().zip(lane.pieces.iter_mut()).zip(lane.controls.iter_mut());
        for (((message, piece), control), buffer) in arrays.zip(self.free.iter().rev().copied()).take(ask) {
            let Some(start) = self.slab.piece(buffer.into(), 0, self.bytes) else { continue };
            *piece = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: self.bytes };
            // SAFETY: free buffers have indices below the length of `fillings`: `new` made as many of both.
            let filling = unsafe { fillings.add(buffer.into()) };
            let header = &mut message.msg_hdr;
            // SAFETY: within the filling whose address was just taken; no reference is made, only the address of a
            // field.
            header.msg_name = unsafe { &raw mut (*filling).from }.cast();
            header.msg_namelen = SocketName::BYTES;
            header.msg_iov = piece;
            header.msg_iovlen = 1;
            header.msg_flags = 0;
            (header.msg_control, header.msg_controllen) =
                if self.gro { (control.as_mut_ptr(), Control::BYTES as _) } else { (ptr::null_mut(), 0) };
        }
        let messages = lane.messages.as_mut_ptr();
        // SAFETY: the first `ask` messages were filled above. Each names a free buffer of the slab, one entry of
        // `fillings`, `pieces` and `controls`, by pointers that were made of exclusive borrows or of the allocation
        // itself, so that the kernel may write through them; the exclusive borrows of this pool and of the lane keep
        // all of it to this call.
        let got = unsafe { libc::recvmmsg(socket.fd(), messages, ask as _, libc::MSG_DONTWAIT, ptr::null_mut()) };
        let Ok(got @ 1..) = usize::try_from(got) else {
            return lane.handle_receive_error(tally);
        };
        tally.receive_calls.add(1);
        lane.full = got == ask;
        lane.request = if lane.full { (ask * GROWTH).min(self.batch) } else { got };
        let Batch { rail, messages, controls, filled, .. } = lane;
        for (message, control) in messages.iter().zip(controls.iter()).take(got) {
            let header = &message.msg_hdr;
            let segment = if self.gro { control.received_segment_size(header.msg_controllen as _) } else { None };
            let truncated = header.msg_flags & libc::MSG_TRUNC != 0;
            self.record_message(*rail, filled, message.msg_len, segment, truncated);
        }
    }

    /// Records that the next free buffer holds a message of `bytes` bytes, of one or several segments.
    fn record_message(&mut self, rail: Rail, filled: &mut Vec<u16>, bytes: u32, segment: Option<u32>, truncated: bool) {
        let Some(buffer) = self.free.pop() else { return };
        let Some(filling) = self.states.get_mut(usize::from(buffer)) else { return };
        filling.bytes = bytes.min(self.bytes as u32);
        filling.segment = segment.unwrap_or(filling.bytes);
        (filling.truncated, filling.users, filling.rail) = (truncated, 1, rail);
        filled.push(buffer);
    }

    /// As [`fill`](Self::fill), for one message: a shorter path through the kernel, and shorter still without GRO.
    fn fill_one(&mut self, lane: &mut Batch, socket: &Socket, tally: &UdpCounters) {
        let Some(buffer) = self.free.last().copied() else { return };
        let Some(filling) = self.states.get_mut(usize::from(buffer)) else { return };
        let Some(start) = self.slab.piece(buffer.into(), 0, self.bytes) else { return };
        let (start, from) = (start.as_ptr().cast(), (&raw mut filling.from).cast());
        let (bytes, truncated, segment);
        if self.gro {
            let mut piece = libc::iovec { iov_base: start, iov_len: self.bytes };
            let mut control = Control::NONE;
            let mut message = no_message().msg_hdr;
            (message.msg_name, message.msg_namelen) = (from, SocketName::BYTES);
            (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
            (message.msg_control, message.msg_controllen) = (control.as_mut_ptr(), Control::BYTES as _);
            // SAFETY: the message names a free buffer of the slab, its filling's name and room for a control message on
            // the stack, all writable; the exclusive borrow of this pool keeps them to this call.
            bytes = unsafe { libc::recvmsg(socket.fd(), &raw mut message, libc::MSG_DONTWAIT) };
            truncated = message.msg_flags & libc::MSG_TRUNC != 0;
            segment = control.received_segment_size(message.msg_controllen as _);
        } else {
            let (flags, mut named) = (libc::MSG_DONTWAIT | libc::MSG_TRUNC, SocketName::BYTES);
            // SAFETY: a free buffer of the slab of `self.bytes` bytes, and its filling's name of `Name::BYTES`, both
            // writable; the exclusive borrow of this pool keeps them to this call.
            bytes = unsafe { libc::recvfrom(socket.fd(), start, self.bytes, flags, from.cast(), &raw mut named) };
            (truncated, segment) = (usize::try_from(bytes).is_ok_and(|bytes| bytes > self.bytes), None);
        }
        let Ok(bytes) = u32::try_from(bytes) else { return lane.handle_receive_error(tally) };
        tally.receive_calls.add(1);
        (lane.full, lane.request) = (true, GROWTH.min(self.batch));
        self.record_message(lane.rail, &mut lane.filled, bytes, segment, truncated);
    }

    /// The datagram in this slot.
    #[inline(always)]
    pub(super) fn datagram<'a>(&'a self, slot: Slot, table: &'a AddressTable) -> ReceivedDatagram<'a> {
        let (buffer, start) = parts(slot);
        let filling = self.states.get(buffer).unwrap_or(&EMPTY);
        let bytes = filling.length(start);
        let head = self.slab.get(buffer, start, bytes.min(HEADER_ROOM)).unwrap_or_default();
        ReceivedDatagram { slot, bytes: bytes as u32, head, from: &filling.from, rail: filling.rail, table }
    }

    /// Copies bytes of a datagram to an address. Does nothing if the range exceeds the datagram or the address.
    pub(super) fn place(&self, from: Slot, start: usize, bytes: usize, to: Address) {
        let (buffer, at) = parts(from);
        let length = self.states.get(buffer).map_or(0, |filling| filling.length(at));
        if start.checked_add(bytes).is_none_or(|end| end > length) || bytes > to.bytes() {
            return;
        }
        if let Some(piece) = self.slab.get(buffer, at + start, bytes) {
            // SAFETY: the creator of the address's table promised that its region lives and that nobody uses these
            // bytes now (`Regions::new`); the buffers are no region.
            unsafe { to.write(piece) };
        }
    }

    /// Releases one datagram; its buffer is free when all its datagrams are released.
    pub(super) fn release(&mut self, slot: Slot) {
        let (buffer, _) = parts(slot);
        let Some(filling) = self.states.get_mut(buffer) else { return };
        if filling.users == 1 {
            self.free.extend(u16::try_from(buffer));
        }
        filling.users = filling.users.saturating_sub(1);
    }
}

/// The slot of the datagram that begins at this byte of the buffer.
const fn slot_of(buffer: u16, start: u32) -> Slot {
    Slot((buffer as u32) << 16 | start)
}

/// The buffer and the offset of a slot.
fn parts(slot: Slot) -> (usize, usize) {
    ((slot.0 >> 16) as usize, (slot.0 & 0xffff) as usize)
}

/// A datagram that arrived with a correct checksum.
pub struct ReceivedDatagram<'a> {
    slot: Slot,
    bytes: u32,
    head: &'a [u8],
    from: &'a SocketName,
    rail: Rail,
    table: &'a AddressTable,
}

impl Received for ReceivedDatagram<'_> {
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
        self.table.is_from(peer, self.rail, self.from)
    }

    #[inline(always)]
    fn rail(&self) -> Rail {
        self.rail
    }

    /// Unknown: a time stamp would cost a control message per datagram.
    fn age_ns(&self) -> Option<u32> {
        None
    }
}
