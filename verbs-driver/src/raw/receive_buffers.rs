//! Receive buffers: equal parts of one slab, with their state in private memory.

use super::Data;
use super::source::{GRH, Source};
use crate::queue_memory::BLOCK;
use crate::registered_memory::{RegisteredMemory, Slab, read};

const NO_BUFFER: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free { next: u32 },
    Posted,
    Taken,
    Held,
}

/// The state of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveBuffer {
    state: State,
    interrupt: bool,
    bytes: u32,
    source: Source,
}

impl ReceiveBuffer {
    /// An unused one.
    pub const FREE: Self =
        Self { state: State::Free { next: NO_BUFFER }, interrupt: false, bytes: 0, source: Source::NONE };
}

/// The buffers of a device.
#[derive(Debug)]
pub(super) struct ReceiveBuffers<'a> {
    table: &'a mut [ReceiveBuffer],
    slab: Slab,
    mtu: u32,
    stride: usize,
    free: u32,
}

impl<'a> ReceiveBuffers<'a> {
    /// All buffers free. `None`: the slab is too small.
    pub(super) fn new(table: &'a mut [ReceiveBuffer], slab: Slab, mtu: u32) -> Option<Self> {
        let stride = Self::stride(mtu);
        if table.len().checked_mul(stride)? > slab.bytes() || table.len() >= NO_BUFFER as usize {
            return None;
        }
        let mut free = NO_BUFFER;
        for (index, buffer) in (0..table.len() as u32).zip(table.iter_mut()).rev() {
            *buffer = ReceiveBuffer { state: State::Free { next: free }, ..ReceiveBuffer::FREE };
            free = index;
        }
        Some(Self { table, slab, mtu, stride, free })
    }

    /// Bytes from one buffer to the next.
    pub(super) const fn stride(mtu: u32) -> usize {
        (GRH + mtu as usize).next_multiple_of(BLOCK)
    }

    /// Takes a free buffer for a lane's receive queue.
    pub(super) fn post(&mut self, interrupt: bool) -> Option<(u32, Data)> {
        let index = self.free;
        let buffer = self.table.get_mut(index as usize)?;
        let State::Free { next } = buffer.state else { return None };
        (buffer.state, buffer.interrupt, self.free) = (State::Posted, interrupt, next);
        Some((index, self.data(index)?))
    }

    /// Frees all buffers that were posted to a lane.
    pub(super) fn reclaim_posted(&mut self, interrupt: bool) {
        for index in 0..self.table.len() as u32 {
            let posted = self.table.get(index as usize);
            if posted.is_some_and(|buffer| buffer.state == State::Posted && buffer.interrupt == interrupt) {
                self.free(index);
            }
        }
    }

    /// Records a datagram that arrived in a posted buffer. `front` reads the source from the bytes before it.
    pub(super) fn arrive(&mut self, index: u32, bytes: u32, source: impl FnOnce(&[u8; GRH]) -> Source) -> bool {
        let mut front = [0; GRH];
        let Some(place) = self.slab.part(index as usize * self.stride, GRH) else { return false };
        read(place, &mut front);
        let Some(buffer) = self.table.get_mut(index as usize) else { return false };
        if buffer.state != State::Posted {
            return false;
        }
        (buffer.state, buffer.bytes, buffer.source) = (State::Taken, bytes, source(&front));
        true
    }

    /// Holds a datagram beyond the next receive. Returns whether it is the interrupt lane's; `None` if it was not
    /// taken.
    pub(super) fn hold(&mut self, index: u32) -> Option<bool> {
        let buffer = self.table.get_mut(index as usize).filter(|buffer| buffer.state == State::Taken)?;
        buffer.state = State::Held;
        Some(buffer.interrupt)
    }

    /// Releases a datagram's buffer. Returns whether it is the interrupt lane's; `None` if it was not taken, or was
    /// held.
    pub(super) fn release(&mut self, index: u32) -> Option<bool> {
        let buffer = self.table.get(index as usize)?;
        let (state, interrupt) = (buffer.state, buffer.interrupt);
        if matches!(state, State::Taken | State::Held) {
            self.put_back(index);
        }
        (state == State::Taken).then_some(interrupt)
    }

    /// Frees a posted buffer that received no datagram.
    pub(super) fn free(&mut self, index: u32) {
        if self.table.get(index as usize).is_some_and(|buffer| buffer.state == State::Posted) {
            self.put_back(index);
        }
    }

    fn put_back(&mut self, index: u32) {
        let next = self.free;
        if let Some(buffer) = self.table.get_mut(index as usize) {
            buffer.state = State::Free { next };
            self.free = index;
        }
    }

    /// Length and origin of a datagram.
    pub(super) fn datagram(&self, index: u32) -> Option<(u32, Source)> {
        let buffer = self.table.get(index as usize)?;
        matches!(buffer.state, State::Taken | State::Held).then_some((buffer.bytes, buffer.source))
    }

    /// `bytes` bytes of a datagram from byte `start` on.
    pub(super) fn part(&self, index: u32, start: usize, bytes: usize) -> Option<Slab> {
        let (length, _) = self.datagram(index)?;
        if start.checked_add(bytes)? > length as usize {
            return None;
        }
        self.slab.part(index as usize * self.stride + GRH + start, bytes)
    }

    fn data(&self, index: u32) -> Option<Data> {
        let bytes = GRH as u32 + self.mtu;
        let place = self.slab.part(index as usize * self.stride, bytes as usize)?;
        Some(Data { address: place.start().expose_provenance().get() as u64, bytes, key: place.key()? })
    }
}
