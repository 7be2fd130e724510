//! The table of user memory, named by region and span.

use core::sync::atomic::AtomicU8;

use unisono_core::device::Memory;
use unisono_core::span::{Region, Span};

/// Bytes that the device reads and writes. Atomic, so that no exclusive reference to user memory is needed: a load or a
/// store of one byte each, on every target.
pub type Bytes<'m> = &'m [AtomicU8];

/// One region: its memory while it is registered, and its generation.
#[derive(Clone, Copy, Debug, Default)]
struct RegionEntry<'m> {
    /// Starts at 1: the default region is never valid.
    generation: u32,
    bytes: Option<Bytes<'m>>,
}

/// A table of at most `N` regions.
#[derive(Clone, Copy, Debug)]
pub struct Regions<'m, const N: usize>([RegionEntry<'m>; N]);

impl<'m, const N: usize> Regions<'m, N> {
    /// An empty table.
    pub const fn new() -> Self {
        Self([RegionEntry { generation: 0, bytes: None }; N])
    }

    /// Makes a region of these bytes. `None` when the table is full.
    pub fn make(&mut self, bytes: Bytes<'m>) -> Option<Region> {
        // An entry whose generations are used up stays retired, so that no stale region becomes valid again.
        let free = |entry: &RegionEntry<'_>| entry.bytes.is_none() && entry.generation < u32::MAX;
        let (index, entry) = (0_u32..).zip(&mut self.0).find(|(_, entry)| free(entry))?;
        *entry = RegionEntry { generation: entry.generation.wrapping_add(1), bytes: Some(bytes) };
        Some(Region::new(index, entry.generation))
    }

    /// Retires a region and returns its bytes.
    pub fn retire(&mut self, region: Region) -> Option<Bytes<'m>> {
        let entry = self.0.get_mut(usize::try_from(region.index()).ok()?)?;
        if entry.generation == region.generation() { entry.bytes.take() } else { None }
    }
}

impl<const N: usize> Default for Regions<'_, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'m, const N: usize> Memory for Regions<'m, N> {
    type Address = Bytes<'m>;

    fn address(&self, span: Span) -> Option<Bytes<'m>> {
        let entry = self.0.get(usize::try_from(span.region.index()).ok()?)?;
        let end = span.offset.checked_add(usize::try_from(span.bytes).ok()?)?;
        if entry.generation == span.region.generation() { entry.bytes?.get(span.offset..end) } else { None }
    }
}
