//! mlx5's send queue: entries of whole blocks, a doorbell record, and a doorbell or BlueFlame.

use zerocopy::byteorder::big_endian::U32;

use super::segment::{Control, Datagram, INLINE, QPN_MASK, data, flag, operands, remote};
use crate::queue_memory::{BLOCK, Barrier, Block, QueueAccess, Record, UNIT, Unit};
use crate::raw::{RemoteMemory, SendPayload};

/// The control segment has 6 bits for the units of its entry.
const UNITS_MAX: u32 = 63;
/// Units before the payload of a datagram: control and datagram segment.
const FRONT: u32 = 4;
/// Most units that BlueFlame copies at once, on all known adapters.
const FLAME: usize = 16;
/// An entry's index has 16 bits, and at most half of their range is outstanding.
const BLOCKS_MAX: usize = 1 << 15;

/// Most inline bytes of a datagram.
pub const PAYLOAD_MAX: usize = (UNITS_MAX - FRONT) as usize * UNIT - 4;

/// Immediate data in wire order.
pub type Immediate = [u8; 4];

/// What the adapter does.
#[derive(Clone, Copy, Debug)]
pub enum SendOperation<'a> {
    /// Sends a datagram to this receiver. All others are of connected queue pairs.
    Datagram(&'a Datagram),
    /// Writes the payload to memory of the peer; with immediate data, it consumes a receive there.
    Write(RemoteMemory),
    /// Reads memory of the peer to the payload's, which is gathered.
    Read(RemoteMemory),
    /// Adds to a word of 64 bits of the peer, and places the old value in the payload's 8 bytes.
    FetchAdd(RemoteMemory, u64),
    /// Replaces a word of 64 bits of the peer that equals `compare`, and places the old value in the payload's 8 bytes.
    CompareSwap {
        /// The word.
        at: RemoteMemory,
        /// The value that is replaced.
        compare: u64,
        /// Its replacement.
        swap: u64,
    },
}

impl SendOperation<'_> {
    const fn opcode(&self, has_immediate: bool) -> u32 {
        match (self, has_immediate) {
            (Self::Datagram(_), false) => 0x0a,
            (Self::Datagram(_), true) => 0x0b,
            (Self::Write(_), false) => 0x08,
            (Self::Write(_), true) => 0x09,
            (Self::Read(_), _) => 0x10,
            (Self::CompareSwap { .. }, _) => 0x11,
            (Self::FetchAdd(..), _) => 0x12,
        }
    }

    /// Units before the payload: the control segment, and those of [`segments`](Self::segments).
    const fn front(&self) -> u32 {
        match self {
            Self::Datagram(_) => FRONT,
            Self::Write(_) | Self::Read(_) => 2,
            Self::FetchAdd(..) | Self::CompareSwap { .. } => 3,
        }
    }

    /// The units between control segment and payload; those beyond the front are unused.
    fn segments(&self) -> [Unit; 3] {
        const UNUSED: Unit = [0; UNIT];
        match *self {
            Self::Datagram(to) => to.units(),
            Self::Write(at) | Self::Read(at) => [remote(at), UNUSED, UNUSED],
            Self::FetchAdd(at, add) => [remote(at), operands(add, 0), UNUSED],
            Self::CompareSwap { at, compare, swap } => [remote(at), operands(swap, compare), UNUSED],
        }
    }
}

/// A request to post.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// What the adapter does.
    pub operation: SendOperation<'a>,
    /// The memory here.
    pub payload: SendPayload<'a>,
    /// Whether it generates a completion.
    pub signalled: bool,
    /// Whether it is solicited: the receiver's armed completion queue raises an event.
    pub solicited: bool,
    /// Immediate data of a datagram or a write.
    pub immediate: Option<Immediate>,
}

/// Why nothing was posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// Not enough free blocks.
    Full,
    /// More than an entry can hold.
    TooLong,
}

/// The registers that take whole entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlueFlame {
    /// Bytes of each half; the halves alternate. 0: there is only a doorbell.
    pub bytes: usize,
    /// Whether entries may be copied there.
    pub takes_entries: bool,
    /// Also entries that are not inline.
    pub prefers: bool,
}

/// An outstanding entry, stored at the index of its first block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SendRecord {
    start: u32,
    end: u32,
    tag: u32,
}

/// The entry that was posted last, as long as it may be signalled or copied.
#[derive(Debug)]
struct Last {
    control: Control,
    start: u32,
    units: u32,
    inline: bool,
    /// Its first units.
    copy: [Unit; FLAME],
}

/// A send queue.
#[derive(Debug)]
pub struct SendQueue<'a, S> {
    seam: S,
    qpn: u32,
    entries: &'a mut [SendRecord],
    /// Blocks, counted without end: posted, published to the adapter, and freed.
    posted: u32,
    rung: u32,
    freed: u32,
    /// Entries that are not published to the adapter.
    waiting: u32,
    flame: BlueFlame,
    half: usize,
    last: Last,
}

impl<'a, S: QueueAccess> SendQueue<'a, S> {
    /// The fresh queue of a queue pair, with as many entries as it has blocks. `None`: the size is not supported.
    pub fn new(seam: S, qpn: u32, flame: BlueFlame, entries: &'a mut [SendRecord]) -> Option<Self> {
        let blocks = seam.bytes() / BLOCK;
        let fits = blocks.is_power_of_two() && blocks <= BLOCKS_MAX && entries.len() == blocks;
        let copy = [[0; UNIT]; FLAME];
        let last = Last { control: Control::NONE, start: 0, units: 0, inline: false, copy };
        let queue = Self { seam, qpn, entries, posted: 0, rung: 0, freed: 0, waiting: 0, flame, half: 0, last };
        fits.then_some(queue)
    }

    /// The queue memory.
    pub const fn seam(&self) -> &S {
        &self.seam
    }

    /// As [`seam`](Self::seam).
    pub const fn seam_mut(&mut self) -> &mut S {
        &mut self.seam
    }

    /// Blocks that are free.
    pub fn free(&self) -> usize {
        self.entries.len() - self.posted.wrapping_sub(self.freed) as usize
    }

    /// Whether nothing is outstanding.
    pub const fn is_idle(&self) -> bool {
        self.posted == self.freed
    }

    /// Writes an entry, which [`flush`](Self::flush) publishes. `tag` is returned when it is complete.
    pub fn post(&mut self, request: &SendRequest<'_>, tag: u32) -> Result<(), PostError> {
        let (units, bytes) = match request.payload {
            SendPayload::Gather(pieces) => (pieces.iter().filter(|piece| piece.bytes > 0).count(), 0),
            SendPayload::Inline(pieces) => {
                let bytes = pieces.iter().fold(0, |sum: usize, piece| sum.saturating_add(piece.len()));
                (if bytes > 0 { bytes.saturating_add(4).div_ceil(UNIT) } else { 0 }, bytes)
            }
        };
        let front = request.operation.front();
        let units = u32::try_from(units).ok().and_then(|units| units.checked_add(front));
        let units = units.filter(|units| *units <= UNITS_MAX).ok_or(PostError::TooLong)?;
        let blocks = units.div_ceil((BLOCK / UNIT) as u32);
        if blocks as usize > self.free() {
            return Err(PostError::Full);
        }
        self.begin(request, units);
        match request.payload {
            SendPayload::Gather(pieces) => {
                let pieces = pieces.iter().filter(|piece| piece.bytes > 0);
                for (place, piece) in (front..).zip(pieces) {
                    self.put(place, data(*piece));
                }
            }
            SendPayload::Inline(_) if bytes == 0 => {}
            SendPayload::Inline(pieces) => self.put_inline(front, bytes as u32, pieces),
        }
        let (start, end) = (self.posted, self.posted.wrapping_add(blocks));
        let place = self.place(start);
        if let Some(entry) = self.entries.get_mut(place) {
            *entry = SendRecord { start, end, tag };
        }
        self.posted = end;
        self.waiting = self.waiting.saturating_add(1);
        Ok(())
    }

    /// Requests a completion for the last posted entry.
    pub fn signal(&mut self) {
        if self.waiting > 0 {
            self.last.control.flags |= flag::SIGNALLED;
            self.put(0, self.last.control.unit());
        }
    }

    /// Publishes all entries to the adapter and rings the doorbell.
    pub fn flush(&mut self) {
        if self.waiting == 0 {
            return;
        }
        self.seam.barrier(Barrier::ToDevice);
        self.seam.record(Record::Index, (self.posted & 0xffff).to_be());
        self.seam.barrier(Barrier::ToRegister);
        let room = self.flame.bytes.min(FLAME * UNIT) / UNIT;
        let last = &self.last;
        let alone = self.waiting == 1 && (last.inline || self.flame.prefers);
        if self.flame.takes_entries && alone && last.units as usize <= room {
            let blocks = last.copy.as_chunks::<{ BLOCK / UNIT }>().0;
            let count = last.units.div_ceil((BLOCK / UNIT) as u32) as usize;
            for (at, block) in (self.half..).step_by(BLOCK).zip(blocks.iter().take(count)) {
                let block: Block = zerocopy::transmute!(*block);
                self.seam.blue_flame(at, &block);
            }
        } else {
            let [value, _] = zerocopy::transmute!(last.control.unit());
            self.seam.doorbell(self.half, value);
        }
        self.seam.barrier(Barrier::Flush);
        self.half ^= self.flame.bytes;
        (self.rung, self.waiting) = (self.posted, 0);
    }

    /// Completes the entry with this index, and those before. Returns its tag. `None`: no published entry begins there.
    pub fn complete(&mut self, index: u16) -> Option<u32> {
        let distance = u32::from(index.wrapping_sub(self.freed as u16));
        if distance >= self.rung.wrapping_sub(self.freed) {
            return None;
        }
        let start = self.freed.wrapping_add(distance);
        let entry = self.entries.get(self.place(start)).filter(|entry| entry.start == start)?;
        self.freed = entry.end;
        Some(entry.tag)
    }

    /// Forgets all entries, as the adapter does when the queue pair is reset.
    pub fn reset(&mut self) {
        (self.posted, self.rung, self.freed, self.waiting) = (0, 0, 0, 0);
        self.entries.fill(SendRecord::default());
        self.seam.barrier(Barrier::ToDevice);
        self.seam.record(Record::Index, 0);
    }

    fn place(&self, block: u32) -> usize {
        block as usize & (self.entries.len() - 1)
    }

    fn begin(&mut self, request: &SendRequest<'_>, units: u32) {
        let opcode = request.operation.opcode(request.immediate.is_some());
        let mut flags = 0;
        if request.signalled {
            flags |= flag::SIGNALLED;
        }
        if request.solicited {
            flags |= flag::SOLICITED;
        }
        let control = Control {
            what: U32::new((self.posted & 0xffff) << 8 | opcode),
            whose: U32::new((self.qpn & QPN_MASK) << 8 | units),
            flags,
            immediate: request.immediate.unwrap_or_default(),
            ..Control::NONE
        };
        let inline = matches!(request.payload, SendPayload::Inline(_));
        let last = &mut self.last;
        (last.control, last.start, last.units, last.inline) = (control, self.posted, units, inline);
        last.copy.fill([0; UNIT]);
        self.put(0, control.unit());
        for (place, unit) in (1..request.operation.front()).zip(request.operation.segments()) {
            self.put(place, unit);
        }
    }

    /// Length, bytes, and zeros to the end of the unit.
    fn put_inline(&mut self, front: u32, bytes: u32, pieces: &[&[u8]]) {
        let mut unit = [0; UNIT];
        let (mut place, mut filled) = (front, 4);
        if let Some(length) = unit.first_chunk_mut() {
            *length = (bytes | INLINE).to_be_bytes();
        }
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() {
                let room = unit.get_mut(filled..).unwrap_or_default();
                let (now, later) = piece.split_at(piece.len().min(room.len()));
                for (to, from) in room.iter_mut().zip(now) {
                    *to = *from;
                }
                (piece, filled) = (later, filled + now.len());
                if filled == UNIT {
                    self.put(place, unit);
                    (unit, place, filled) = ([0; UNIT], place + 1, 0);
                }
            }
        }
        if filled > 0 {
            self.put(place, unit);
        }
    }

    /// Stores a unit of the last entry. It wraps at the end of the queue.
    #[inline]
    fn put(&mut self, place: u32, unit: Unit) {
        let at = self.place(self.last.start) * BLOCK + place as usize * UNIT;
        self.seam.store(at & (self.seam.bytes() - 1), unit);
        if let Some(copy) = self.last.copy.get_mut(place as usize) {
            *copy = unit;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::mlx5::segment::{Link, Route};
    use crate::queue_memory::recorded::{RecordedMemory, delete_each_barrier};
    use crate::queue_memory::{QueueEvent, Violation};
    use crate::raw::Data;

    const FLAMES: BlueFlame = BlueFlame { bytes: 256, takes_entries: true, prefers: false };

    fn datagram() -> Datagram {
        let link = Link::InfiniBand { lid: 0x1234, path_bits: 1 };
        Datagram::new(&Route { link, service_level: 3, rate: 0, grh: None }, 0x55_6677, 0x1111_2222)
    }

    fn request<'a>(to: &'a Datagram, payload: SendPayload<'a>) -> SendRequest<'a> {
        let operation = SendOperation::Datagram(to);
        SendRequest { operation, payload, signalled: false, solicited: false, immediate: None }
    }

    fn with<R>(
        memory: RecordedMemory,
        play: impl FnOnce(&mut SendQueue<'_, RecordedMemory>) -> R,
    ) -> (RecordedMemory, R) {
        let mut entries = vec![SendRecord::default(); memory.entries.len() / BLOCK];
        let mut queue = SendQueue::new(memory, 0x12_3456, FLAMES, &mut entries).unwrap();
        let result = play(&mut queue);
        (queue.seam, result)
    }

    #[test]
    fn entry_is_laid_out_as_the_adapter_reads_it() {
        let to = datagram();
        let data = [
            Data { address: 0x1_0000_2000, bytes: 100, key: 9 },
            Data::default(),
            Data { address: 8, bytes: 1, key: 7 },
        ];
        let (memory, ()) = with(RecordedMemory::new(512), |queue| {
            let whole = SendRequest { signalled: true, solicited: true, ..request(&to, SendPayload::Gather(&data)) };
            queue.post(&SendRequest { immediate: Some([1, 2, 3, 4]), ..whole }, 0).unwrap();
            queue.flush();
        });
        let expected = [
            &[0, 0, 0, 0x0b, 0x12, 0x34, 0x56, 6, 0, 0, 0, 0x0a, 1, 2, 3, 4][..],
            &[0x11, 0x11, 0x22, 0x22, 0, 0, 0, 0, 0x80, 0x55, 0x66, 0x77, 3, 1, 0x12, 0x34],
            &[0; 32],
            &[0, 0, 0, 100, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0x20, 0],
            &[0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8],
        ];
        assert_eq!(memory.entries[..96], expected.concat());
        assert_eq!(memory.records[0], 2_u32.to_be());
        assert_eq!(memory.rung, [(0, expected[0][..8].to_vec())]);
    }

    #[test]
    fn operations_on_memory_of_a_peer_are_laid_out_as_the_adapter_reads_them() {
        let (to, at) = (datagram(), RemoteMemory { address: 0x1_0000_2000, key: 0xa_0b0c });
        let named = [0, 0, 0, 1, 0, 0, 0x20, 0, 0, 0xa, 0xb, 0xc, 0, 0, 0, 0];
        let local = [Data { address: 8, bytes: 8, key: 7 }];
        let gathered = [0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8];
        let (seven, nine) = (7_u64.to_be_bytes(), 9_u64.to_be_bytes());
        for (operation, immediate, opcode, operands) in [
            (SendOperation::Write(at), None, 0x08, None),
            (SendOperation::Write(at), Some([1, 2, 3, 4]), 0x09, None),
            (SendOperation::Read(at), None, 0x10, None),
            (SendOperation::CompareSwap { at, compare: 7, swap: 9 }, None, 0x11, Some([nine, seven])),
            (SendOperation::FetchAdd(at, 9), None, 0x12, Some([nine, [0; 8]])),
        ] {
            let (memory, ()) = with(RecordedMemory::new(256), |queue| {
                let request = SendRequest { operation, immediate, ..request(&to, SendPayload::Gather(&local)) };
                queue.post(&request, 0).unwrap();
                queue.flush();
            });
            let operands = operands.map(|operands| operands.concat()).unwrap_or_default();
            let units = 3 + operands.len() / UNIT;
            let control =
                [&[0, 0, 0, opcode, 0x12, 0x34, 0x56, units as u8, 0, 0, 0, 0][..], &immediate.unwrap_or_default()];
            assert_eq!(memory.entries[..units * UNIT], [&control.concat()[..], &named, &operands, &gathered].concat());
        }
    }

    #[test]
    fn inline_entry_wraps_and_goes_by_blue_flame() {
        let (to, bytes) = (datagram(), Vec::from_iter(0..150));
        let (memory, ()) = with(RecordedMemory::new(256), |queue| {
            // Three blocks, so that the next begins in the last one.
            queue.post(&request(&to, SendPayload::Inline(&[&[7; 124]])), 0).unwrap();
            queue.flush();
            assert_eq!(queue.complete(0), Some(0));
            queue.post(&request(&to, SendPayload::Inline(&[&bytes[..33], &[], &bytes[33..]])), 1).unwrap();
            queue.flush();
        });
        let last = [&memory.entries[192..], &memory.entries[..192]].concat();
        assert_eq!(last[..4], [0, 0, 3, 0x0a]);
        assert_eq!(last[64..68], [0x80, 0, 0, 150]);
        assert_eq!(last[68..218], bytes);
        let flames: Vec<_> = memory.rung.iter().map(|(at, block)| (*at, block.len())).collect();
        assert_eq!(flames, [(0, 64), (64, 64), (128, 64), (256, 64), (320, 64), (384, 64), (448, 64)]);
        let copied: Vec<u8> = memory.rung[3..].iter().flat_map(|(_, block)| block).copied().collect();
        assert_eq!(copied[..218], last[..218]);
    }

    #[test]
    fn several_entries_ring_once_and_signal_the_last() {
        let to = datagram();
        let (memory, ()) = with(RecordedMemory::new(512), |queue| {
            for tag in 0..3 {
                queue.post(&request(&to, SendPayload::Inline(&[b"abc"])), tag).unwrap();
            }
            queue.signal();
            queue.flush();
            queue.flush();
            assert_eq!(queue.complete(4), Some(2));
            assert!(queue.is_idle());
        });
        let flags: Vec<_> = memory.entries.chunks(128).map(|entry| entry[11]).collect();
        assert_eq!(flags, [0, 0, 8, 0]);
        assert_eq!(memory.rung, [(0, memory.entries[256..264].to_vec())]);
        assert_eq!(memory.records[0], 6_u32.to_be());
    }

    #[test]
    fn full_queue_and_long_payload_are_refused() {
        let to = datagram();
        with(RecordedMemory::new(256), |queue| {
            let empty = request(&to, SendPayload::Gather(&[]));
            for tag in 0..4 {
                assert_eq!(queue.post(&empty, tag), Ok(()));
            }
            assert_eq!(queue.post(&empty, 4), Err(PostError::Full));
            assert_eq!(queue.complete(0), None, "the adapter does not know of it");
            queue.flush();
            assert_eq!(queue.complete(1), Some(1));
            assert_eq!(queue.free(), 2);
            assert_eq!(
                queue.post(&request(&to, SendPayload::Inline(&[&[0; PAYLOAD_MAX + 1]])), 5),
                Err(PostError::TooLong)
            );
            assert_eq!(queue.post(&request(&to, SendPayload::Inline(&[&[0; PAYLOAD_MAX]])), 5), Err(PostError::Full));
        });
    }

    #[test]
    fn any_index_completes_an_entry_or_nothing() {
        let (to, mut random) = (datagram(), fastrand::Rng::with_seed(3));
        with(RecordedMemory::new(1024), |queue| {
            let (mut tag, mut done, mut outstanding) = (0, 0, Vec::new());
            for _ in 0..60_000 {
                let bytes = random.usize(..200);
                let start = queue.posted as u16;
                if queue.post(&request(&to, SendPayload::Inline(&[&[0; 200][..bytes]])), tag).is_ok() {
                    outstanding.push((start, tag));
                    tag += 1;
                }
                queue.flush();
                let index =
                    if random.bool() { random.u16(..) } else { queue.freed.wrapping_add(random.u32(..18)) as u16 };
                let expected = outstanding.iter().position(|(start, _)| *start == index);
                let found = queue.complete(index);
                assert_eq!(found, expected.map(|at| outstanding[at].1));
                if let Some(at) = expected {
                    outstanding.drain(..=at);
                    done += 1;
                }
            }
            assert!(done > 1000 && queue.posted > 0x1_0000, "{done} {}", queue.posted);
        });
    }

    #[test]
    fn stores_are_in_order_and_no_barrier_is_idle() {
        let to = datagram();
        let play = |memory| {
            with(memory, |queue| {
                for bytes in [3, 150, 300] {
                    for tag in 0..2 {
                        queue.post(&request(&to, SendPayload::Inline(&[&[1; 300][..bytes]])), tag).unwrap();
                        if bytes == 150 {
                            queue.flush();
                        }
                    }
                    queue.signal();
                    queue.flush();
                }
                queue.post(&request(&to, SendPayload::Gather(&[])), 0).unwrap();
                queue.reset();
            })
            .0
        };
        let found = delete_each_barrier(4096, play);
        let of_flush = [Violation::RecordBeforeEntry, Violation::DoorbellBeforeRecord, Violation::Unflushed];
        assert_eq!(found[..3], of_flush);
        assert_eq!(found.len(), 4 * 3 + 1);
    }

    #[test]
    fn trace_of_a_posting() {
        let to = datagram();
        let (memory, ()) = with(RecordedMemory::new(256), |queue| {
            queue.post(&request(&to, SendPayload::Gather(&[])), 0).unwrap();
            queue.flush();
        });
        let trace = [
            QueueEvent::Barrier(Barrier::ToDevice),
            QueueEvent::Record(Record::Index),
            QueueEvent::Barrier(Barrier::ToRegister),
            QueueEvent::Doorbell { at: 0, bytes: 8 },
            QueueEvent::Barrier(Barrier::Flush),
        ];
        assert_eq!(memory.events, [&[QueueEvent::Store; 4][..], &trace].concat());
    }
}
