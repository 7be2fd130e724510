//! A slab for small payloads: the sender's buffer is free at once.

use unisono_core::span::{Region, Span};

use crate::region::Regions;

/// Bytes of a cell.
const CELL: usize = 1024;
/// Cells.
const CELLS: usize = 1024;

/// A cell that is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell(u32);

/// Cells of one region, free ones on a stack.
#[derive(Debug)]
pub(super) struct SmallCells {
    region: Region,
    free: Vec<u32>,
}

impl SmallCells {
    pub(super) fn new(regions: &mut Regions) -> Self {
        match regions.allocate(CELL * CELLS) {
            Ok(region) => Self { region, free: (0..CELLS as u32).rev().collect() },
            // Without a slab every payload is lent.
            Err(_) => Self { region: Region::default(), free: Vec::new() },
        }
    }

    /// A cell for `bytes` bytes, and where they go.
    pub(super) fn take(&mut self, bytes: usize) -> Option<(Cell, Span)> {
        if bytes > CELL {
            return None;
        }
        let cell = self.free.pop()?;
        Some((Cell(cell), Span { region: self.region, offset: cell as usize * CELL, bytes: bytes as u32 }))
    }

    pub(super) fn give_back(&mut self, cell: Cell) {
        self.free.push(cell.0);
    }
}
