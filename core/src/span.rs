//! Names for memory: the core never holds an address.

/// Memory registered with the rim. A region that is made again under the same index has another life.
///
/// One word: what is written in halves and read whole stalls the processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Region(u64);

impl Region {
    /// The registration `life` of the place `index` in the rim's table.
    pub const fn new(index: u32, life: u32) -> Self {
        Self((life as u64) << 32 | index as u64)
    }

    /// Index into the rim's table.
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// Which registration of that index.
    pub const fn life(self) -> u32 {
        (self.0 >> 32) as u32
    }
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
