//! Completion queues of the software adapter: entries, owner bits, events.

use super::queue_memory::{QueueMemory, RungDoorbell};

/// State of a completion queue.
#[derive(Debug)]
pub(super) struct Completions {
    stride: usize,
    /// Entries written, counted for ever.
    written: u32,
    /// Which of the last entries were solicited.
    solicited: Vec<bool>,
    armed: Option<bool>,
    event: bool,
    /// Events that were taken.
    taken: u32,
}

/// Content of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompletionEntry {
    pub(super) opcode: u8,
    pub(super) qpn: u32,
    pub(super) index: u16,
    pub(super) bytes: u32,
    pub(super) source: u32,
    pub(super) lid: u16,
    pub(super) grh: u8,
    pub(super) solicited: bool,
    pub(super) immediate: Option<[u8; 4]>,
    pub(super) syndrome: u8,
}

impl CompletionEntry {
    pub(super) const fn new(opcode: u8, qpn: u32, index: u16) -> Self {
        Self { opcode, qpn, index, bytes: 0, source: 0, lid: 0, grh: 0, solicited: false, immediate: None, syndrome: 0 }
    }
}

impl Completions {
    pub(super) fn new(entries: usize, stride: usize) -> Self {
        Self { stride, written: 0, solicited: vec![false; entries], armed: None, event: false, taken: 0 }
    }

    /// Writes an entry. Returns whether there was room.
    pub(super) fn write(&mut self, memory: &mut QueueMemory, entry: &CompletionEntry) -> bool {
        memory.settle();
        let count = self.solicited.len() as u32;
        let returned = u32::from_be(memory.records[0]);
        if self.written.wrapping_sub(returned) & 0xff_ffff >= count {
            return false;
        }
        let place = (self.written & (count - 1)) as usize;
        let end = (place + 1) * self.stride;
        let bytes = &mut memory.bytes[end - 64..end];
        // Whatever the driver does not ask for.
        bytes.fill(0xcc);
        bytes[22..24].copy_from_slice(&entry.lid.to_be_bytes());
        bytes[24..28].copy_from_slice(&(u32::from(entry.grh) << 28 | entry.source).to_be_bytes());
        bytes[36..40].copy_from_slice(&entry.immediate.unwrap_or([0xcc; 4]));
        bytes[44..48].copy_from_slice(&entry.bytes.to_be_bytes());
        bytes[55] = entry.syndrome;
        bytes[56..60].copy_from_slice(&(0x0a00_0000 | entry.qpn).to_be_bytes());
        bytes[60..62].copy_from_slice(&entry.index.to_be_bytes());
        let owner = u8::from(self.written & count != 0);
        bytes[63] = entry.opcode << 4 | u8::from(entry.solicited) << 1 | owner;
        self.written = self.written.wrapping_add(1);
        // Failures raise an event, solicited or not.
        self.solicited[place] = entry.solicited || entry.opcode >= 13;
        if self.armed.is_some_and(|solicited| !solicited || self.solicited[place]) {
            (self.armed, self.event) = (None, true);
        }
        true
    }

    /// Handles a request for an event. Returns what is wrong with it.
    pub(super) fn arm(&mut self, rung: &RungDoorbell, number: u32) -> Result<(), String> {
        let [request, queue] = [&rung.bytes[..4], &rung.bytes[4..]]
            .map(|bytes| bytes.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)));
        if u32::from_be(rung.records[1]) != request || queue != number {
            return Err(format!("{rung:?} arms queue {number}"));
        }
        if request >> 28 != self.taken & 3 {
            // The same request as before: it was answered.
            return Ok(());
        }
        let (solicited, from) = (request & 1 << 24 != 0, request & 0xff_ffff);
        let count = self.solicited.len() as u32;
        let unseen = self.written.wrapping_sub(from) & 0xff_ffff;
        if unseen > count {
            return Err(format!("armed from {from} on, {} were written", self.written));
        }
        let waits = |entry: u32| !solicited || self.solicited[(entry & (count - 1)) as usize];
        if (0..unseen).any(|back| waits(from.wrapping_add(back))) {
            (self.armed, self.event) = (None, true);
        } else {
            self.armed = Some(solicited);
        }
        Ok(())
    }

    pub(super) fn take_event(&mut self) -> bool {
        let raised = core::mem::take(&mut self.event);
        self.taken = self.taken.wrapping_add(raised.into());
        raised
    }
}
