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

/// Bytes of a region, of any length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RegionRange {
    /// The region.
    pub region: Region,
    /// Offset of the first byte.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

impl RegionRange {
    /// No bytes.
    pub const EMPTY: Self = Self { region: Region::new(0, 0), offset: 0, bytes: 0 };

    /// The span of at most `most` bytes from byte `at` of this range on, and of at most 2³² − 1.
    pub fn span(self, at: usize, most: usize) -> Span {
        let Self { region, offset, bytes } = self.part(at, most);
        Span { region, offset, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
    }

    /// The range of at most `most` bytes from byte `at` of this range on.
    #[must_use]
    pub fn part(self, at: usize, most: usize) -> Self {
        let at = at.min(self.bytes);
        let bytes = most.min(self.bytes.saturating_sub(at));
        Self { region: self.region, offset: self.offset.saturating_add(at), bytes }
    }
}

impl From<Span> for RegionRange {
    fn from(span: Span) -> Self {
        Self { region: span.region, offset: span.offset, bytes: span.bytes as usize }
    }
}
