//! The layout of a segment: a pure function of a few sizes, which the segment's header states. Offsets only, no
//! pointers.
//!
//! ```text
//! 0        header: magic, version, checksum, sizes, wait mode                      one page
//! slots    one stride per rank: its identity, heartbeats, integrity words        written by its rank
//! asleep   one word per rank: which word it sleeps on, or the CPU it runs on     written by its rank
//! areas    per rank: barrier words and slots of collectives                      written by its rank
//! rings    per ordered pair: entries and bulk (producer), tail (consumer)
//! pools    per rank: buffers that users allocated                                written by its rank
//! communicator slots   per slot and rank: collective area of another group       written by its rank
//! ```

use crate::segment::{STRIDE, Segment, Site};

/// First word of a segment: `UNIS`, little-endian.
pub const MAGIC: u32 = u32::from_le_bytes(*b"UNIS");
/// Version of the layout; incremented whenever anything moves.
pub const VERSION: u32 = 7;
/// Most ranks of a segment.
pub const RANKS_MAX: u32 = 256;
/// Communicator slots: groups, besides that of all ranks, for which a rank has a collective area.
pub const COMMUNICATOR_SLOTS: u32 = 8;
/// Alignment of every area in bytes.
pub const PAGE: usize = 4096;

/// How ranks wait. Constant for the lifetime of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitMode {
    /// Dedicated: a core for every rank. Ranks spin and none is ever woken.
    Dedicated,
    /// Oversubscribed: more ranks than cores. Ranks yield, then sleep, and are woken.
    Oversubscribed,
}

impl WaitMode {
    /// The mode for this number of ranks and processors.
    pub const fn of(ranks: usize, processors: usize) -> Self {
        if ranks > processors { Self::Oversubscribed } else { Self::Dedicated }
    }
}

/// The sizes that decide a layout.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentSizes {
    /// Ranks of the node, 1 to [`RANKS_MAX`].
    pub ranks: u32,
    /// Entries of a ring, of one line each: a power of two.
    pub ring_entries: u32,
    /// Bytes of a ring's bulk: a power of two.
    pub ring_bulk: u32,
    /// Bytes of a rank's collective area: a multiple of a page.
    pub collective_area: u32,
    /// Bytes of a rank's pool: a multiple of a page.
    pub pool: u32,
    /// Bytes of a rank's collective area in a communicator slot: a multiple of a page; 0: there are no communicator
    /// slots.
    pub communicator_slot: u32,
    /// How ranks wait.
    pub waiting: WaitMode,
}

/// Why sizes or a header give no layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// No ranks, or too many.
    Ranks,
    /// A ring's or an area's size is no power of two or multiple of a page.
    Size,
    /// More than the address space.
    TooLarge,
    /// The header is missing, altered, or of another version.
    Header,
}

impl core::fmt::Display for LayoutError {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.write_str(match self {
            Self::Ranks => "a segment has 1 to 256 ranks",
            Self::Size => "the size of a ring is not a power of two, or that of an area not a multiple of a page",
            Self::TooLarge => "the segment does not fit in memory or in the address space",
            Self::Header => "not a segment of this version of unisono, or its header was overwritten",
        })
    }
}

impl core::error::Error for LayoutError {}

/// A part of a segment, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Area {
    /// Its first byte.
    pub offset: usize,
    /// Its length.
    pub bytes: usize,
}

/// The offsets of all areas of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentLayout {
    sizes: SegmentSizes,
    sleep_words: usize,
    collective_areas: usize,
    rings: usize,
    pools: usize,
    communicator_slots: usize,
    used: usize,
    end: usize,
}

const RANK_SLOTS: usize = PAGE;

impl SegmentSizes {
    /// Default sizes for `ranks` ranks: at most some 64 MiB of rings, 16 MiB of collective areas, 64 MiB of pools and 8
    /// MiB of communicator slots; no communicator slots for more than 64 ranks.
    ///
    /// In the dedicated mode the bulk of a ring exceeds the inner caches: lines that the reader's cache still holds are
    /// slow to write.
    pub const fn of_node(ranks: u32, waiting: WaitMode) -> Self {
        let (ring_entries, ring_bulk) = match (ranks, waiting) {
            (0..=4, WaitMode::Dedicated) => (64, 1 << 20),
            (0..=8, WaitMode::Dedicated) => (64, 1 << 19),
            (0..=8, WaitMode::Oversubscribed) => (64, 1 << 18),
            (9..=16, _) => (64, 1 << 16),
            (17..=64, _) => (32, 1 << 13),
            _ => (16, 1 << 11),
        };
        let share = match ranks {
            0..=1 => 0,
            2..=4 => 2,
            5..=8 => 3,
            9..=16 => 4,
            17..=32 => 5,
            33..=64 => 6,
            65..=128 => 7,
            _ => 8,
        };
        let communicator_slot = if ranks > 1 && ranks <= 64 { 1 << (20 - share) } else { 0 };
        Self {
            ranks,
            ring_entries,
            ring_bulk,
            collective_area: 1 << (24 - share),
            pool: 1 << (26 - share),
            communicator_slot,
            waiting,
        }
    }

    /// Bytes of one ring: the consumer's tail, the entries, the bulk.
    const fn ring(self) -> usize {
        STRIDE + self.ring_entries as usize * crate::segment::LINE + self.ring_bulk as usize
    }
}

impl SegmentLayout {
    /// The layout of these sizes.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn new(sizes: SegmentSizes) -> Result<Self, LayoutError> {
        let SegmentSizes {
            ranks, ring_entries, ring_bulk, collective_area: area, pool, communicator_slot: room, ..
        } = sizes;
        if !(1..=RANKS_MAX).contains(&ranks) {
            return Err(LayoutError::Ranks);
        }
        let whole = |bytes: u32| (bytes as usize).is_multiple_of(PAGE);
        let powers = ring_entries.is_power_of_two() && ring_bulk.is_power_of_two() && ring_bulk >= 64;
        if !powers
            || ring_entries > 1 << 16
            || ring_bulk > 1 << 30
            || area == 0
            || !(whole(area) && whole(pool) && whole(room))
        {
            return Err(LayoutError::Size);
        }
        let n = ranks as usize;
        let areas = || {
            let asleep = after(RANK_SLOTS, STRIDE, n)?;
            let collective_areas = after(asleep, 4, n)?;
            let rings = after(collective_areas, area as usize, n)?;
            let pools = after(rings, sizes.ring(), n.checked_mul(n)?)?;
            let rooms = after(pools, pool as usize, n)?;
            let used = after(rooms, room as usize, n.checked_mul(COMMUNICATOR_SLOTS as usize)?)?;
            Some(Self {
                sizes,
                sleep_words: asleep,
                collective_areas,
                rings,
                pools,
                communicator_slots: rooms,
                used,
                end: used.checked_next_power_of_two()?,
            })
        };
        areas().filter(|layout| layout.end <= isize::MAX as usize).ok_or(LayoutError::TooLarge)
    }

    /// The sizes that it was built from.
    pub const fn sizes(&self) -> SegmentSizes {
        self.sizes
    }

    /// Bytes of the whole segment, a power of two.
    pub const fn bytes(&self) -> usize {
        self.end
    }

    /// Bytes up to the end of the last area. The rest, up to a power of two, is never touched.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// A rank's slot of identity and liveness.
    pub fn rank_slot(&self, rank: u32) -> Option<Area> {
        self.of_rank(rank, RANK_SLOTS, STRIDE)
    }

    /// The words that record which word each rank sleeps on, one per rank.
    pub const fn sleep_words(&self) -> Area {
        Area { offset: self.sleep_words, bytes: 4 * self.sizes.ranks as usize }
    }

    /// A rank's collective area in the group of all ranks.
    pub fn collective_area(&self, rank: u32) -> Option<Area> {
        self.of_rank(rank, self.collective_areas, self.sizes.collective_area as usize)
    }

    /// A rank's pool.
    pub fn pool(&self, rank: u32) -> Option<Area> {
        self.of_rank(rank, self.pools, self.sizes.pool as usize)
    }

    /// The area of `bytes` bytes at offset `at` that a rank claims to be in its pool. `None`: it is not.
    pub fn in_pool(&self, rank: u32, at: u64, bytes: usize) -> Option<Area> {
        let (at, pool) = (usize::try_from(at).ok()?, self.pool(rank)?);
        let within = at >= pool.offset && at.checked_add(bytes)? <= pool.offset + pool.bytes;
        within.then_some(Area { offset: at, bytes })
    }

    /// A communicator slot: a collective area for every rank. `None`: there is no such slot.
    pub fn communicator_slot(&self, room: u32) -> Option<Area> {
        let bytes = self.sizes.communicator_slot as usize * self.sizes.ranks as usize;
        (room < COMMUNICATOR_SLOTS && bytes > 0)
            .then(|| Area { offset: self.communicator_slots + room as usize * bytes, bytes })
    }

    /// The ring from one rank to another.
    pub fn ring(&self, from: u32, to: u32) -> Option<Area> {
        if from >= self.sizes.ranks || to >= self.sizes.ranks {
            return None;
        }
        let (pair, bytes) = (from as usize * self.sizes.ranks as usize + to as usize, self.sizes.ring());
        Some(Area { offset: self.rings + pair * bytes, bytes })
    }

    fn of_rank(&self, rank: u32, from: usize, bytes: usize) -> Option<Area> {
        (rank < self.sizes.ranks).then(|| Area { offset: from + rank as usize * bytes, bytes })
    }

    /// Writes the header, its magic last. The creator of the memory calls this before any other process sees it.
    ///
    /// # Errors
    /// The segment is shorter than the layout.
    pub fn write_header(&self, segment: Segment<'_>) -> Result<(), LayoutError> {
        let header = segment.words(0, HEADER).filter(|_| segment.bytes() >= self.end).ok_or(LayoutError::TooLarge)?;
        for (word, value) in header.iter().zip(self.header()).rev() {
            word.publish(value, Site::Plain);
        }
        Ok(())
    }

    /// Reads the header and returns the layout that it states, if it is intact and fits the segment.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn read_header(segment: Segment<'_>) -> Result<Self, LayoutError> {
        let header = segment.words(0, HEADER).ok_or(LayoutError::Header)?;
        let mut found = [0; HEADER];
        for (value, word) in found.iter_mut().zip(header) {
            *value = word.acquire(Site::Plain);
        }
        let [magic, version, _, ranks, ring_entries, ring_bulk, area, pool, room, waiting] = found;
        if (magic, version) != (MAGIC, VERSION) {
            return Err(LayoutError::Header);
        }
        let waiting = match waiting {
            0 => WaitMode::Dedicated,
            1 => WaitMode::Oversubscribed,
            _ => return Err(LayoutError::Header),
        };
        let layout = Self::new(SegmentSizes {
            ranks,
            ring_entries,
            ring_bulk,
            collective_area: area,
            pool,
            communicator_slot: room,
            waiting,
        })?;
        if layout.header() != found || segment.bytes() != layout.end {
            return Err(LayoutError::Header);
        }
        Ok(layout)
    }

    fn header(&self) -> [u32; HEADER] {
        let SegmentSizes {
            ranks,
            ring_entries,
            ring_bulk,
            collective_area: area,
            pool,
            communicator_slot: room,
            waiting,
        } = self.sizes;
        let sizes = [ranks, ring_entries, ring_bulk, area, pool, room, u32::from(waiting == WaitMode::Oversubscribed)];
        // FNV-1a over the words.
        let checksum = sizes.iter().fold(0x811c_9dc5_u32, |sum, word| (sum ^ word).wrapping_mul(0x0100_0193));
        let [ranks, ring_entries, ring_bulk, area, pool, room, waiting] = sizes;
        [MAGIC, VERSION, checksum, ranks, ring_entries, ring_bulk, area, pool, room, waiting]
    }
}

/// The page-aligned end of `count` areas of `each` bytes that begin at `at`.
#[cfg_attr(feature = "optimize_for_size", inline(never))]
fn after(at: usize, each: usize, count: usize) -> Option<usize> {
    each.checked_mul(count)?.checked_add(at)?.checked_next_multiple_of(PAGE)
}

/// Words of the header.
const HEADER: usize = 10;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::ptr::NonNull;

    fn sizes(ranks: u32) -> SegmentSizes {
        let (area, room) = (PAGE as u32, PAGE as u32);
        SegmentSizes {
            collective_area: area,
            pool: 0,
            communicator_slot: room,
            ring_bulk: 64,
            ..SegmentSizes::of_node(ranks, WaitMode::Oversubscribed)
        }
    }

    #[test]
    fn areas_do_not_overlap() {
        for ranks in [1, 2, 3, 7] {
            let layout = SegmentLayout::new(sizes(ranks)).unwrap();
            let mut areas = vec![Area { offset: 0, bytes: HEADER * 4 }, layout.sleep_words()];
            for rank in 0..ranks {
                areas.extend(
                    [layout.rank_slot(rank), layout.collective_area(rank), layout.pool(rank)].into_iter().flatten(),
                );
                areas.extend((0..ranks).filter_map(|to| layout.ring(rank, to)));
            }
            areas.extend((0..=COMMUNICATOR_SLOTS).filter_map(|room| layout.communicator_slot(room)));
            assert_eq!(layout.communicator_slot(0).unwrap().bytes, PAGE * ranks as usize);
            areas.sort_by_key(|area| (area.offset, area.bytes));
            for pair in areas.windows(2) {
                assert!(pair[0].offset + pair[0].bytes <= pair[1].offset, "{pair:?}");
            }
            let last = areas.last().unwrap();
            assert!(last.offset + last.bytes <= layout.used() && layout.used() <= layout.bytes());
            assert!(layout.bytes().is_power_of_two());
            assert_eq!(
                (layout.rank_slot(ranks), layout.ring(0, ranks), layout.collective_area(ranks)),
                (None, None, None)
            );
        }
    }

    #[test]
    fn every_number_of_ranks_has_a_layout() {
        for ranks in 1..=RANKS_MAX {
            let layout = SegmentLayout::new(SegmentSizes::of_node(ranks, WaitMode::Dedicated)).unwrap();
            assert!(layout.bytes() <= 1 << 29, "{ranks} ranks: {} bytes", layout.bytes());
            let bulks = (ranks * (ranks - 1)) as usize * layout.sizes().ring_bulk as usize;
            assert!(ranks > 64 || bulks <= 64 << 20, "{ranks} ranks: {bulks} bytes of bulk");
        }
    }

    /// The numbers of pages that `docs/using.md` states.
    #[test]
    fn nodes_need_the_documented_number_of_huge_pages() {
        for (ranks, pages) in [(2, 25), (8, 61)] {
            let layout = SegmentLayout::new(SegmentSizes::of_node(ranks, WaitMode::Dedicated)).unwrap();
            assert_eq!(layout.used().div_ceil(2 << 20), pages, "{ranks} ranks");
        }
    }

    #[test]
    fn header_is_read_as_written_and_every_alteration_is_refused() {
        let layout = SegmentLayout::new(sizes(2)).unwrap();
        let mut memory = vec![0_u32; layout.bytes() / 4];
        // SAFETY: the vector outlives the segment and is used through it alone.
        let segment = unsafe { Segment::new(NonNull::from(memory.as_mut_slice()).cast(), layout.bytes()) };
        assert_eq!(SegmentLayout::read_header(segment), Err(LayoutError::Header), "zeros");
        layout.write_header(segment).unwrap();
        assert_eq!(SegmentLayout::read_header(segment), Ok(layout));
        for word in segment.words(0, HEADER).unwrap() {
            let before = word.own();
            for bit in 0..32 {
                word.publish(before ^ 1 << bit, Site::Plain);
                assert!(SegmentLayout::read_header(segment).is_err(), "bit {bit}");
            }
            word.publish(before, Site::Plain);
        }
        assert_eq!(SegmentLayout::read_header(segment), Ok(layout));
    }
}
