//! The suite on rings in one segment.

use core::time::Duration;
use std::{os::fd::AsFd, thread, time::Instant};

use unisono_core::device::{Armed, Device, DeviceQueue};
use unisono_memory::memory_regions::{Address, Regions};
use unisono_shmem::{
    device::{DatagramBuffer, RingDevice, RingPair, SPARE_BUFFERS},
    host::file::{Mapping, SegmentFile},
    layout::{SegmentLayout, SegmentSizes},
};

use super::{Fixture, real_time};

/// Devices of one segment.
#[derive(Debug)]
pub struct ShmemFixture {
    sizes: SegmentSizes,
    holdable: usize,
    mapping: Option<Mapping>,
}

impl ShmemFixture {
    /// Devices in a segment like this, that can hold `holdable` datagrams.
    pub const fn new(sizes: SegmentSizes, holdable: usize) -> Self {
        Self { sizes, holdable, mapping: None }
    }
}

impl Fixture for ShmemFixture {
    type Device = RingDevice<'static, Address>;
    type Memory = Regions;

    fn connect(&mut self, count: u32) -> Vec<(Self::Device, Regions)> {
        let layout = SegmentLayout::new(SegmentSizes { ranks: count, ..self.sizes }).expect("a layout");
        let file = SegmentFile::create(&layout).expect("memory");
        let (mapping, _) = Mapping::open(file.as_fd()).expect("a segment");
        // SAFETY: the mapping is new, and each device gets its own ends below; the suite runs on one thread.
        let segment = unsafe { self.mapping.insert(mapping).segment() };
        let attach = |own| {
            let pairs =
                (0..count).map(|peer| RingPair::new(segment, &layout, own, peer).expect("a rank of the segment"));
            // A test's devices live as long as it does.
            let (pairs, buffers) =
                (Vec::leak(pairs.collect()), vec![DatagramBuffer::FREE; self.holdable + SPARE_BUFFERS].leak());
            // SAFETY: the suite runs on one thread, and frees what its device is done with.
            (RingDevice::new(&layout, pairs, buffers), unsafe { Regions::new() })
        };
        (0..count).map(attach).collect()
    }

    fn advance(&mut self, ns: u64) {
        real_time::spin(ns);
    }

    fn wait(&mut self, device: &mut Self::Device, lane: DeviceQueue, ns: u64) -> bool {
        let start = Instant::now();
        while device.arm(lane) == Armed::Armed {
            if start.elapsed() >= Duration::from_nanos(ns) {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    fn is_faulty(&self) -> bool {
        false
    }
}
