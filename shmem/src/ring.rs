//! A message ring from one rank to another: one producer, one consumer (SPSC).
//!
//! ```text
//!    0  tail     entries consumed · lines of bulk returned       written by the consumer
//!  128  entries  a line each                                     written by the producer
//!       bulk     pieces, each contiguous and aligned to a line   written by the producer
//!
//! entry: +0 turn · +4 form · +8 header, 2 words · +16 payload; its length is the form's lowest 8 bits, at most 48
//!                  or if they are 255: +16 the piece's first line · +20 its bytes · +24 lines used in all ·
//!                                      +28 immediate data
//! ```
//!
//! An entry's turn, its count plus one, is published last, so that a short message costs one transfer of one cache
//! line; the consumer polls the turn of the next entry. The producer reads the tail only when the space that it knows
//! of is used up. Both ends keep their counts in private memory: values in the segment are compared with them, never
//! followed. The upper 24 bits of the form are a checksum of the entry's header, so that a stray write is not taken for
//! a message.

use crate::layout::{Area, SegmentLayout};
use crate::segment::{LINE, STRIDE, Segment, SharedBytes, Site, Word};

/// Most bytes of a payload in the entry itself.
pub const INLINE: usize = 48;
/// Most bytes of immediate data in an entry whose payload is in the bulk.
pub const IMMEDIATE_MAX: usize = INLINE - PIECE_DESCRIPTOR;
/// Bytes of a piece's descriptor: line, bytes, end.
const PIECE_DESCRIPTOR: usize = 12;

/// Bytes of form and header words.
const ENTRY_HEADER: usize = 12;
/// The length in the form of an entry whose payload is a piece of the bulk.
const PIECE: u32 = LENGTH;
/// The bits of a form with the payload's length.
const LENGTH: u32 = 0xff;

/// The form of an entry: a checksum of header, count and length, and the length.
#[inline(always)]
const fn seal(length: u32, note: [u32; 2], count: u32) -> u32 {
    let mixed = (note[0] ^ note[1].rotate_left(16) ^ count).wrapping_add(length).wrapping_mul(0x9e37_79b9);
    (mixed ^ mixed >> 15 ^ 0x5ea1_ed00) & !LENGTH | length
}

/// Why no message was put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutError {
    /// There is no space until the consumer takes an entry.
    Full,
    /// More than [`INLINE`] bytes, or more than [`Producer::longest`].
    TooLong,
    /// The consumer's words hold values that it never writes.
    Corrupted,
}

/// The producer's words hold values that it never writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupted;

/// References to the parts of a ring. Kept small: a microcontroller has two of these for every rank.
#[derive(Clone, Copy, Debug)]
struct RingParts<'a> {
    consumed: &'a Word,
    /// The ring's memory, from the tail to the end of the bulk.
    area: Segment<'a>,
    entries: u32,
    bulk_lines: u32,
}

impl<'a> RingParts<'a> {
    fn new(segment: Segment<'a>, area: Area, entries: u32, bulk_bytes: u32) -> Option<Self> {
        if !entries.is_power_of_two() || !bulk_bytes.is_power_of_two() || (bulk_bytes as usize) < LINE {
            return None;
        }
        let bytes = STRIDE + entries as usize * LINE + bulk_bytes as usize;
        if area.bytes < bytes {
            return None;
        }
        let area = segment.part(area.offset, bytes)?;
        Some(Self { consumed: area.word(0)?, area, entries, bulk_lines: bulk_bytes / LINE as u32 })
    }

    /// The word that counts the lines of bulk returned.
    #[inline(always)]
    fn returned(&self) -> Option<&'a Word> {
        self.area.word(4)
    }

    #[inline(always)]
    const fn slot(&self, count: u32) -> usize {
        (count & (self.entries - 1)) as usize
    }

    /// Offset of an entry.
    #[inline(always)]
    const fn entry(&self, count: u32) -> usize {
        STRIDE + self.slot(count) * LINE
    }

    #[inline(always)]
    fn turn(&self, count: u32) -> Option<&'a Word> {
        self.area.word(self.entry(count))
    }

    /// A contiguous piece of the bulk.
    #[inline]
    fn piece(&self, line: u32, bytes: u32) -> Option<SharedBytes<'a>> {
        let bulk = STRIDE + self.entries as usize * LINE;
        self.area.shared_bytes((line as usize).checked_mul(LINE)?.checked_add(bulk)?, bytes as usize)
    }

    /// Bytes of an entry after its turn.
    #[inline(always)]
    fn cells(&self, count: u32, at: usize, bytes: usize) -> Option<SharedBytes<'a>> {
        self.area.shared_bytes(self.entry(count) + at, bytes)
    }
}

/// Lines of the bulk that a piece takes.
#[inline]
const fn lines(bytes: u32) -> u32 {
    bytes.div_ceil(LINE as u32)
}

/// The producer's end of a ring.
#[derive(Debug)]
pub struct Producer<'a> {
    parts: RingParts<'a>,
    /// Entries put, and how many of them are known to be consumed.
    next: u32,
    consumed: u32,
    /// Lines of bulk used, including those skipped at its end, and how many of them are known to be returned.
    used: u32,
    returned: u32,
}

impl<'a> Producer<'a> {
    /// The end of the ring from one rank to another, fresh. `None`: the layout or the segment has no such ring.
    pub fn of(segment: Segment<'a>, layout: &SegmentLayout, from: u32, to: u32) -> Option<Self> {
        let sizes = layout.sizes();
        Self::new(segment, layout.ring(from, to)?, sizes.ring_entries, sizes.ring_bulk, 0)
    }

    /// The end of a ring in this area, every word of which is `start`.
    pub fn new(segment: Segment<'a>, area: Area, entries: u32, bulk: u32, start: u32) -> Option<Self> {
        let parts = RingParts::new(segment, area, entries, bulk)?;
        Some(Self { parts, next: start, consumed: start, used: start, returned: start })
    }

    /// Most bytes of a piece: half the bulk, so that one fits wherever the previous one ended.
    #[inline]
    pub const fn longest(&self) -> u32 {
        let half = self.parts.bulk_lines / 2;
        LINE as u32 * if half == 0 { 1 } else { half }
    }

    /// Whether [`put`](Self::put) finds room. Constant time.
    #[inline(always)]
    pub fn has_room(&mut self) -> bool {
        self.ensure_room().is_ok()
    }

    /// Puts a message of up to [`INLINE`] bytes. Constant time.
    ///
    /// # Errors
    /// [`PutError`]; then nothing has changed.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn put(&mut self, note: [u32; 2], payload: &[u8]) -> Result<(), PutError> {
        if payload.len() > INLINE {
            return Err(PutError::TooLong);
        }
        self.reserve()?.put(note, payload)
    }

    /// Reserves an entry. Constant time.
    ///
    /// # Errors
    /// [`PutError::Full`] and [`PutError::Corrupted`].
    #[inline(always)]
    pub fn reserve(&mut self) -> Result<Reservation<'_, 'a>, PutError> {
        self.ensure_room()?;
        Ok(Reservation(self))
    }

    /// Puts a message whose payload of `bytes` bytes `fill` writes to a piece of the bulk.
    ///
    /// # Errors
    /// [`PutError`]; then nothing has changed.
    #[inline]
    pub fn put_piece(
        &mut self,
        note: [u32; 2],
        bytes: u32,
        fill: impl FnOnce(SharedBytes<'a>),
    ) -> Result<(), PutError> {
        self.put_piece_with_immediate(note, &[], bytes, fill)
    }

    /// As [`put_piece`](Self::put_piece), with up to [`IMMEDIATE_MAX`] bytes of immediate data in the entry.
    ///
    /// # Errors
    /// [`PutError`]; then nothing has changed.
    #[inline]
    pub fn put_piece_with_immediate(
        &mut self,
        note: [u32; 2],
        beside: &[u8],
        bytes: u32,
        fill: impl FnOnce(SharedBytes<'a>),
    ) -> Result<(), PutError> {
        if bytes > self.longest() || beside.len() > IMMEDIATE_MAX {
            return Err(PutError::TooLong);
        }
        self.ensure_room()?;
        let size = self.parts.bulk_lines;
        let here = self.used & (size - 1);
        let skipped = if lines(bytes) > size - here { size - here } else { 0 };
        let at = if skipped > 0 { 0 } else { here };
        let end = self.used.wrapping_add(skipped).wrapping_add(lines(bytes));
        if end.wrapping_sub(self.returned) > size {
            self.refresh_returned()?;
            if end.wrapping_sub(self.returned) > size {
                return Err(PutError::Full);
            }
        }
        fill(self.parts.piece(at, bytes).ok_or(PutError::TooLong)?);
        self.publish(PIECE, note, |entry| {
            for (i, word) in [at, bytes, end].into_iter().enumerate() {
                entry.part(4 * i, 4)?.write(&word.to_le_bytes())?;
            }
            entry.part(PIECE_DESCRIPTOR, beside.len())?.write(beside)
        })?;
        self.used = end;
        Ok(())
    }

    /// Whether the consumer has taken everything that was put.
    ///
    /// # Errors
    /// [`Corrupted`].
    pub fn is_drained(&mut self) -> Result<bool, Corrupted> {
        self.consumed =
            read_count(self.parts.consumed, Site::RingSpace, self.consumed, self.next).map_err(|_| Corrupted)?;
        Ok(self.consumed == self.next)
    }

    /// Whether the consumer's words hold values that it may have written.
    pub fn is_tail_plausible(&mut self) -> bool {
        self.is_drained().is_ok() && self.refresh_returned().is_ok()
    }

    /// Whether all entries that were put and not consumed are still published, according to a
    /// [plausible](Self::is_tail_plausible) tail. If not, the consumer may never see them. O(entries not consumed).
    pub fn is_intact(&mut self) -> bool {
        let waiting = self.next.wrapping_sub(self.consumed);
        (0..waiting)
            .map(|i| self.consumed.wrapping_add(i))
            .all(|count| self.parts.turn(count).is_some_and(|turn| turn.own() == count.wrapping_add(1)))
    }

    /// The word that changes when space becomes free, and its last seen value.
    pub const fn awaited(&self) -> (&'a Word, u32) {
        (self.parts.consumed, self.consumed)
    }

    /// The word that was published last, on which the consumer may be waiting.
    #[inline]
    pub fn last_published(&self) -> Option<&'a Word> {
        self.parts.turn(self.next.wrapping_sub(1))
    }

    #[inline]
    fn refresh_returned(&mut self) -> Result<(), PutError> {
        let word = self.parts.returned().ok_or(PutError::Corrupted)?;
        self.returned = read_count(word, Site::BulkSpace, self.returned, self.used)?;
        Ok(())
    }

    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn ensure_room(&mut self) -> Result<(), PutError> {
        let most = if cfg!(mutant = "overfill") { self.parts.entries + 1 } else { self.parts.entries };
        if self.next.wrapping_sub(self.consumed) >= most {
            self.consumed = read_count(self.parts.consumed, Site::RingSpace, self.consumed, self.next)?;
            if self.next.wrapping_sub(self.consumed) >= most {
                return Err(PutError::Full);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn publish(
        &mut self,
        length: u32,
        note: [u32; 2],
        fill: impl FnOnce(SharedBytes<'a>) -> Option<()>,
    ) -> Result<(), PutError> {
        let (rest, turn) = self.write_header(length, note).ok_or(PutError::Corrupted)?;
        fill(rest).ok_or(PutError::Corrupted)?;
        self.next = self.next.wrapping_add(1);
        turn.publish(self.next, Site::RingPublish);
        Ok(())
    }

    /// The entry's bytes after its header, and its turn.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn write_header(&self, length: u32, note: [u32; 2]) -> Option<(SharedBytes<'a>, &'a Word)> {
        let entry = self.parts.cells(self.next, 4, LINE - 4)?;
        let turn = self.parts.turn(self.next)?;
        // One store each: combining them in a buffer first would stall on store forwarding.
        for (i, word) in [seal(length, note, self.next), note[0], note[1]].into_iter().enumerate() {
            entry.part(4 * i, 4)?.write(&word.to_le_bytes())?;
        }
        Some((entry.part(ENTRY_HEADER, INLINE)?, turn))
    }
}

/// A reserved entry: see [`Producer::reserve`].
#[derive(Debug)]
pub struct Reservation<'p, 'a>(&'p mut Producer<'a>);

impl Reservation<'_, '_> {
    /// Puts a message of up to [`INLINE`] bytes into it. Constant time.
    ///
    /// # Errors
    /// [`PutError::TooLong`]; then nothing has changed.
    #[inline(always)]
    pub fn put(self, note: [u32; 2], payload: &[u8]) -> Result<(), PutError> {
        if payload.len() > INLINE {
            return Err(PutError::TooLong);
        }
        self.0.publish(payload.len() as u32, note, |entry| match payload.first_chunk::<8>() {
            Some(word) if payload.len() == 8 => entry.write(word),
            _ => entry.write(payload),
        })
    }
}

/// Reads a count of the consumer's that was last `seen` and cannot exceed `most`.
#[inline]
fn read_count(word: &Word, site: Site, seen: u32, most: u32) -> Result<u32, PutError> {
    let found = word.acquire(site);
    if found.wrapping_sub(seen) > most.wrapping_sub(seen) { Err(PutError::Corrupted) } else { Ok(found) }
}

/// A message that is not consumed yet.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its header words.
    pub header: [u32; 2],
    /// Its payload, which is the producer's again as soon as it is consumed. Another process may change it: never read
    /// it twice.
    pub payload: SharedBytes<'a>,
    /// Immediate data: [`IMMEDIATE_MAX`] bytes if the payload is in the bulk, none otherwise.
    pub immediate: SharedBytes<'a>,
}

/// Reads three words of an entry.
#[inline(always)]
fn read_words(cells: SharedBytes<'_>, at: usize) -> Option<[u32; 3]> {
    let mut bytes = [0; 12];
    cells.part(at, bytes.len())?.read(&mut bytes)?;
    let (words, _) = bytes.as_chunks();
    // Not by `map`, which takes longer than all the rest where it is not inlined.
    let word = |i: usize| words.get(i).map_or(0, |word| u32::from_le_bytes(*word));
    Some([word(0), word(1), word(2)])
}

/// Where the next message will be: see [`Consumer::peek`].
#[derive(Clone, Copy, Debug)]
pub struct Peek<'a> {
    word: &'a Word,
    /// The word's value before the message.
    before: u32,
    /// Entries consumed before it.
    count: u32,
    /// The entry after its turn.
    entry: SharedBytes<'a>,
}

impl Peek<'_> {
    /// Whether the word has changed, even to a value that no producer writes. One load.
    #[inline(always)]
    pub fn has_arrived(&self) -> bool {
        self.word.acquire(Site::Plain) != self.before
    }
}

/// The consumer's end of a ring.
#[derive(Debug)]
pub struct Consumer<'a> {
    parts: RingParts<'a>,
    /// Entries consumed.
    next: u32,
    /// Entries that were never written, and the initial value of their turns.
    fresh: u32,
    start: u32,
    /// Lines of bulk returned, and their count after the current entry is consumed.
    returned: u32,
    returned_after: u32,
}

impl<'a> Consumer<'a> {
    /// The end of the ring from one rank to another, fresh. `None`: the layout or the segment has no such ring.
    pub fn of(segment: Segment<'a>, layout: &SegmentLayout, from: u32, to: u32) -> Option<Self> {
        let sizes = layout.sizes();
        Self::new(segment, layout.ring(from, to)?, sizes.ring_entries, sizes.ring_bulk, 0)
    }

    /// The end of a ring in this area, every word of which is `start`.
    pub fn new(segment: Segment<'a>, area: Area, entries: u32, bulk: u32, start: u32) -> Option<Self> {
        let parts = RingParts::new(segment, area, entries, bulk)?;
        Some(Self { parts, next: start, fresh: entries, start, returned: start, returned_after: start })
    }

    /// Whether the next turn has changed, even to a value that no producer writes. One load.
    #[inline(always)]
    pub fn has_message(&self) -> bool {
        let (word, before) = self.awaited();
        word.acquire(Site::Plain) != before
    }

    /// The word that changes when a message arrives, and its value before.
    #[inline(always)]
    pub fn awaited(&self) -> (&'a Word, u32) {
        let word = self.parts.turn(self.next).unwrap_or(self.parts.consumed);
        let before = self.next.wrapping_add(1).wrapping_sub(self.parts.entries);
        (word, if self.fresh > 0 { self.start } else { before })
    }

    /// The next message, if there is one; it stays until [`consume`](Self::consume). Constant time.
    ///
    /// # Errors
    /// [`Corrupted`]: the entry holds values that no producer writes.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn poll(&mut self) -> Result<Option<Entry<'a>>, Corrupted> {
        self.poll_at(&self.peek().ok_or(Corrupted)?)
    }

    /// Where the next message will be, so that a waiting consumer computes this before it arrives. `None`: the ring has
    /// no such place.
    #[inline(always)]
    pub fn peek(&self) -> Option<Peek<'a>> {
        let (word, before) = self.awaited();
        Some(Peek { word, before, count: self.next, entry: self.parts.cells(self.next, 4, LINE - 4)? })
    }

    /// As [`poll`](Self::poll), with a result of [`peek`](Self::peek) since the last message was consumed.
    ///
    /// # Errors
    /// As there; also if that message has been consumed already.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn poll_at(&mut self, ahead: &Peek<'a>) -> Result<Option<Entry<'a>>, Corrupted> {
        let Peek { word, before, count, entry: rest } = *ahead;
        let turn = word.acquire(Site::RingPoll);
        if turn == before {
            return Ok(None);
        }
        if turn != self.next.wrapping_add(1) {
            return Err(Corrupted);
        }
        let [form, note @ ..] = read_words(rest, 0).ok_or(Corrupted)?;
        let length = form & LENGTH;
        if form != seal(length, note, count) {
            return Err(Corrupted);
        }
        let (payload, beside) = if length as usize <= INLINE {
            (rest.part(ENTRY_HEADER, length as usize), rest.part(ENTRY_HEADER, 0))
        } else if length == PIECE {
            let [at, bytes, end] = read_words(rest, ENTRY_HEADER).ok_or(Corrupted)?;
            (self.piece(at, bytes, end), rest.part(ENTRY_HEADER + PIECE_DESCRIPTOR, IMMEDIATE_MAX))
        } else {
            return Err(Corrupted);
        };
        Ok(Some(Entry { header: note, payload: payload.ok_or(Corrupted)?, immediate: beside.ok_or(Corrupted)? }))
    }

    /// Consumes the current message: its entry and its piece are the producer's again. Must follow a poll that returned
    /// a message.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn consume(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.fresh = self.fresh.saturating_sub(1);
        if self.returned_after != self.returned {
            self.returned = self.returned_after;
            if let Some(given) = self.parts.returned() {
                given.publish(self.returned, Site::BulkReturn);
            }
        }
        self.parts.consumed.publish(self.next, Site::RingConsume);
    }

    /// Whether the words that this end published are unchanged. If not, the producer may wait for ever.
    pub fn is_intact(&self) -> bool {
        self.parts.consumed.own() == self.next
            && self.parts.returned().is_some_and(|given| given.own() == self.returned)
    }

    /// The word that was published last, on which the producer may be waiting.
    #[inline]
    pub const fn last_published(&self) -> &'a Word {
        self.parts.consumed
    }

    /// The piece at this line of the bulk. `None`: the producer cannot have put it there.
    #[inline]
    fn piece(&mut self, at: u32, bytes: u32, end: u32) -> Option<SharedBytes<'a>> {
        let size = self.parts.bulk_lines;
        let goes_on = at.checked_add(lines(bytes)).filter(|end| *end <= size)?;
        if end.wrapping_sub(goes_on) & (size - 1) != 0 || end.wrapping_sub(self.returned) > size {
            return None;
        }
        let piece = self.parts.piece(at, bytes)?;
        self.returned_after = end;
        Some(piece)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
