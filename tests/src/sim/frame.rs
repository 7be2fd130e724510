//! Datagrams in flight or in a device, in a pool that reuses the memory of freed ones.

use unisono_core::device::{DeviceQueue, TxReason};
use unisono_core::ids::{GroupId, Rail};

/// Index into the pool; a device shows it as the datagram's slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FrameId(pub(super) u32);

/// Where a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Place {
    /// Nowhere: its memory is free.
    #[default]
    Free,
    /// On its way.
    Flying,
    /// In the receive ring.
    Waiting,
    /// Received and not yet released.
    Received,
    /// Set aside.
    Held,
}

/// One datagram.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    /// Header and payload; the checksum is only counted.
    pub(super) bytes: Vec<u8>,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) rail: Rail,
    /// The group that it is sent to.
    pub(super) group: Option<GroupId>,
    /// The number of the connection that carries it.
    pub(super) connection: Option<u32>,
    pub(super) lane: DeviceQueue,
    /// `None` when it was forged.
    pub(super) cause: Option<TxReason>,
    /// Bytes were changed, which the checksum at the receiver notices.
    pub(super) corrupt: bool,
    pub(super) place: Place,
    /// When it reached the device.
    pub(super) arrived: u64,
}

/// All frames of the network.
#[derive(Debug, Default)]
pub(super) struct Frames {
    all: Vec<Frame>,
    free: Vec<FrameId>,
}

impl Frames {
    /// An empty frame whose place is [`Place::Flying`].
    pub(super) fn take(&mut self) -> FrameId {
        let id = self.free.pop().unwrap_or_else(|| {
            let id = FrameId(u32::try_from(self.all.len()).expect("fewer than 2^32 frames fly at once"));
            self.all.push(Frame::default());
            id
        });
        self[id].place = Place::Flying;
        id
    }

    /// Another frame like this one.
    pub(super) fn copy(&mut self, of: FrameId) -> FrameId {
        let copy = self.take();
        let mut bytes = core::mem::take(&mut self[copy].bytes);
        bytes.extend_from_slice(&self[of].bytes);
        self[copy] = Frame { bytes, ..self[of].without_bytes() };
        copy
    }

    pub(super) fn give_back(&mut self, id: FrameId) {
        let mut bytes = core::mem::take(&mut self[id].bytes);
        bytes.clear();
        self[id] = Frame { bytes, ..Frame::default() };
        self.free.push(id);
    }

    /// How many are not free.
    pub(super) fn in_use(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// The frames to `node` that are where `at` says. Looks at all frames.
    pub(super) fn of(&self, node: u32, at: impl Fn(Place) -> bool) -> Vec<FrameId> {
        let mine = |frame: &Frame| frame.to == node && frame.place != Place::Free && at(frame.place);
        (0..).map(FrameId).zip(&self.all).filter(|(_, frame)| mine(frame)).map(|(id, _)| id).collect()
    }

    /// The frame a device calls this slot, if it is `node`'s.
    pub(super) fn of_node(&self, id: FrameId, node: u32) -> Option<&Frame> {
        self.all.get(id.0 as usize).filter(|frame| frame.to == node && frame.place != Place::Free)
    }
}

impl Frame {
    const fn without_bytes(&self) -> Self {
        Self { bytes: Vec::new(), ..*self }
    }
}

impl core::ops::Index<FrameId> for Frames {
    type Output = Frame;

    fn index(&self, id: FrameId) -> &Frame {
        &self.all[id.0 as usize]
    }
}

impl core::ops::IndexMut<FrameId> for Frames {
    fn index_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.all[id.0 as usize]
    }
}
