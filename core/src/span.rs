//! Spans, which name memory by region, offset and length: the core never holds an address.

/// Memory registered by the host. A region that is registered again under the same index has another generation.
///
/// Stored as one word: a value written in halves and read as a whole stalls the processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Region(u64);

impl Region {
    /// The registration number `generation` of the index `index` in the host's table.
    pub const fn new(index: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    /// The index in the host's table.
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// The number of the registration under that index.
    pub const fn generation(self) -> u32 {
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
    /// Length. [`Memory::address`](crate::device::Memory::address) checks the end of a span.
    pub bytes: u32,
}

impl Span {
    /// `bytes` bytes from byte `start` of this span on, truncated at its end.
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
