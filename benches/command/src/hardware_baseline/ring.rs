//! Round trip through the bare rings of a shared-memory segment, the lowest layer of shared-memory messages.

use core::hint::black_box;
use std::io;
use std::os::fd::AsFd;

use unisono_shmem::host::file::{Mapping, SegmentFile};
use unisono_shmem::layout::{SegmentLayout, SegmentSizes, WaitMode};
use unisono_shmem::ring::{Consumer, Producer};

/// Polls, seconds in all, after which the other process is considered lost.
const POLLS_MAX: u64 = 1 << 31;
/// Size of a message in bytes.
const BYTES: usize = 8;

/// A segment for two ranks.
pub(super) struct Rings {
    mapping: Mapping,
    layout: SegmentLayout,
}

/// The rings of one process.
pub(super) struct RingPair {
    outward: Producer<'static>,
    inward: Consumer<'static>,
    is_first: bool,
    value: [u8; BYTES],
}

impl Rings {
    pub(super) fn new() -> io::Result<Self> {
        let layout = SegmentLayout::new(SegmentSizes { pool: 0, ..SegmentSizes::of_node(2, WaitMode::Dedicated) });
        let file = SegmentFile::create(&layout.map_err(io::Error::other)?).map_err(io::Error::other)?;
        let (mapping, layout) = Mapping::open(file.as_fd()).map_err(io::Error::other)?;
        Ok(Self { mapping, layout })
    }

    pub(super) fn ends(&self, is_first: bool) -> io::Result<RingPair> {
        let (own, other) = if is_first { (0, 1) } else { (1, 0) };
        // SAFETY: each rank takes its own ends, on its own thread; nothing else uses the memory.
        let segment = unsafe { self.mapping.segment() };
        let outward = Producer::of(segment, &self.layout, own, other);
        let inward = Consumer::of(segment, &self.layout, other, own);
        let (Some(outward), Some(inward)) = (outward, inward) else {
            return Err(io::Error::other("the segment has no rings"));
        };
        Ok(RingPair { outward, inward, is_first, value: [0; BYTES] })
    }
}

impl RingPair {
    /// One round trip: a message to the other process, and a reply.
    pub(super) fn round_trip(&mut self) -> io::Result<()> {
        if self.is_first {
            self.put()?;
            self.take()
        } else {
            self.take()?;
            self.put()
        }
    }

    fn put(&mut self) -> io::Result<()> {
        self.outward.put([0, 5], black_box(&self.value)).map_err(|why| io::Error::other(format!("{why:?}")))
    }

    fn take(&mut self) -> io::Result<()> {
        for _ in 0..POLLS_MAX {
            let found = self.inward.poll().map_err(|why| io::Error::other(format!("{why:?}")))?;
            if let Some(entry) = found {
                entry
                    .payload
                    .read(&mut self.value)
                    .ok_or_else(|| io::Error::other("a ring returned a message of another size"))?;
                self.inward.consume();
                return Ok(());
            }
            core::hint::spin_loop();
        }
        Err(io::Error::other("the second process does not answer"))
    }
}
