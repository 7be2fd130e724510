//! Names for memory: the core never holds an address.

/// Memory registered with the rim. A region that is made again under the same index has another life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Region {
    /// Index into the rim's table.
    pub index: u32,
    /// Which registration of that index.
    pub life: u32,
}

/// Bytes of a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Span {
    /// The region they lie in.
    pub region: Region,
    /// Bytes from its start.
    pub offset: usize,
    /// How many. A span's end is not checked here: [`Memory::address`](crate::device::Memory::address) does that.
    pub bytes: u32,
}

impl Span {
    /// `bytes` bytes from byte `start` of this span on, cut at its end.
    pub const fn part(self, start: u32, bytes: u32) -> Self {
        let start = if start < self.bytes { start } else { self.bytes };
        let left = self.bytes.wrapping_sub(start);
        Self {
            region: self.region,
            offset: self.offset.wrapping_add(start as usize),
            bytes: if bytes < left { bytes } else { left },
        }
    }
}
