//! A slab for small payloads: the sender's buffer is free at once.

use unisono_core::span::Span;

use crate::region::Regions;

/// Bytes of a cell.
const CELL: usize = 1024;
/// Cells.
const CELLS: usize = 1024;

/// Cells of one region, free ones on a stack.
#[derive(Debug)]
pub(super) struct SmallCells {
    free: Vec<Span>,
}

impl SmallCells {
    pub(super) fn new(regions: &mut Regions) -> Self {
        let cell = |region, i: usize| Span { region, offset: i * CELL, bytes: CELL as u32 };
        let free = match regions.allocate(CELL * CELLS) {
            Ok(region) => (0..CELLS).rev().map(|i| cell(region, i)).collect(),
            // Without a slab every payload is lent.
            Err(_) => Vec::new(),
        };
        Self { free }
    }

    /// A cell for `bytes` bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Span> {
        if bytes > CELL {
            return None;
        }
        self.free.pop().map(|cell| cell.part(0, bytes as u32))
    }

    pub(super) fn give_back(&mut self, cell: Span) {
        self.free.push(Span { bytes: CELL as u32, ..cell });
    }
}
