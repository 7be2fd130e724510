//! Bounce buffers for small payloads: a send from a copy returns at once.

use unisono_core::span::{Region, Span};

use super::collective::table::EAGER_MOST;
use unisono_memory::region::Regions;

/// A bounce buffer in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    slab: u8,
    index: u32,
}

/// Buffers of `bytes` bytes in one region, with a stack of free ones.
#[derive(Debug)]
struct Slab {
    region: Region,
    bytes: usize,
    cells: u32,
    free: Vec<u32>,
}

impl Slab {
    fn new(bytes: usize, cells: u32, regions: &mut Regions) -> Self {
        match regions.allocate(bytes * cells as usize) {
            Ok(region) => Self { region, bytes, cells, free: (0..cells).rev().collect() },
            // Without a slab, every payload is sent from the user buffer.
            Err(_) => Self { region: Region::default(), bytes, cells, free: Vec::new() },
        }
    }
}

/// Two slabs of 1 MiB each.
#[derive(Debug)]
pub(super) struct SmallCells([Slab; 2]);

impl SmallCells {
    pub(super) fn new(regions: &mut Regions) -> Self {
        Self([Slab::new(1024, 1024, regions), Slab::new(EAGER_MOST, 64, regions)])
    }

    /// A buffer for a message of `bytes` bytes, and its span.
    pub(super) fn take(&mut self, bytes: usize) -> Option<(Cell, Span)> {
        self.take_of(0, bytes)
    }

    /// As [`take`](Self::take), for up to [`EAGER_MOST`] bytes: lets a blocking send return without waiting.
    pub(super) fn take_longer(&mut self, bytes: usize) -> Option<(Cell, Span)> {
        self.take_of(0, bytes).or_else(|| self.take_of(1, bytes))
    }

    fn take_of(&mut self, slab: u8, bytes: usize) -> Option<(Cell, Span)> {
        let Slab { region, bytes: each, free, .. } =
            self.0.get_mut(usize::from(slab)).filter(|slab| bytes <= slab.bytes)?;
        let index = free.pop()?;
        Some((Cell { slab, index }, Span { region: *region, offset: index as usize * *each, bytes: bytes as u32 }))
    }

    /// Whether less than half of the buffers for `bytes` bytes are left.
    pub(super) fn are_scarce(&self, bytes: usize) -> bool {
        let slab = self.0.iter().find(|slab| bytes <= slab.bytes);
        slab.is_none_or(|slab| slab.free.len() < slab.cells as usize / 2)
    }

    pub(super) fn give_back(&mut self, cell: Cell) {
        if let Some(slab) = self.0.get_mut(usize::from(cell.slab)) {
            slab.free.push(cell.index);
        }
    }
}
