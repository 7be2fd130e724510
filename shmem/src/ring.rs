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

use crate::layout::{Area, Layout};
use crate::segment::{Cells, LINE, STRIDE, Segment, Site, Word};

/// Most bytes of a payload in the entry itself.
pub const INLINE: usize = 48;
/// Most bytes of immediate data in an entry whose payload is in the bulk.
pub const BESIDE: usize = INLINE - PLACE;
/// Bytes of a piece's descriptor: line, bytes, end.
const PLACE: usize = 12;

/// Bytes of form and header words.
const HEAD: usize = 12;
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
struct Parts<'a> {
    taken: &'a Word,
    /// The ring's memory, from the tail to the end of the bulk.
    area: Segment<'a>,
    entries: u32,
    bulk_lines: u32,
}

impl<'a> Parts<'a> {
    fn new(segment: Segment<'a>, area: Area, entries: u32, bulk_bytes: u32) -> Option<Self> {
        if !entries.is_power_of_two() || !bulk_bytes.is_power_of_two() || (bulk_bytes as usize) < LINE {
            return None;
        }
        let bytes = STRIDE + entries as usize * LINE + bulk_bytes as usize;
        if area.bytes < bytes {
            return None;
        }
        let area = segment.part(area.at, bytes)?;
        Some(Self { taken: area.word(0)?, area, entries, bulk_lines: bulk_bytes / LINE as u32 })
    }

    /// The word that counts the lines of bulk returned.
    #[inline(always)]
    fn given(&self) -> Option<&'a Word> {
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
    fn piece(&self, line: u32, bytes: u32) -> Option<Cells<'a>> {
        let bulk = STRIDE + self.entries as usize * LINE;
        self.area.cells((line as usize).checked_mul(LINE)?.checked_add(bulk)?, bytes as usize)
    }

    /// Bytes of an entry after its turn.
    #[inline(always)]
    fn cells(&self, count: u32, at: usize, bytes: usize) -> Option<Cells<'a>> {
        self.area.cells(self.entry(count) + at, bytes)
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
    parts: Parts<'a>,
    /// Entries put, and how many of them are known to be consumed.
    next: u32,
    taken: u32,
    /// Lines of bulk used, including those skipped at its end, and how many of them are known to be returned.
    used: u32,
    given: u32,
}

impl<'a> Producer<'a> {
    /// The end of the ring from one rank to another, fresh. `None`: the layout or the segment has no such ring.
    pub fn of(segment: Segment<'a>, layout: &Layout, from: u32, to: u32) -> Option<Self> {
        let sizes = layout.sizes();
        Self::new(segment, layout.ring(from, to)?, sizes.ring_entries, sizes.ring_bulk, 0)
    }

    /// The end of a ring in this area, every word of which is `start`.
    pub fn new(segment: Segment<'a>, area: Area, entries: u32, bulk: u32, start: u32) -> Option<Self> {
        let parts = Parts::new(segment, area, entries, bulk)?;
        Some(Self { parts, next: start, taken: start, used: start, given: start })
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
        self.expect_room().is_ok()
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
        self.room()?.put(note, payload)
    }

    /// Reserves an entry. Constant time.
    ///
    /// # Errors
    /// [`PutError::Full`] and [`PutError::Corrupted`].
    #[inline(always)]
    pub fn room(&mut self) -> Result<Room<'_, 'a>, PutError> {
        self.expect_room()?;
        Ok(Room(self))
    }

    /// Puts a message whose payload of `bytes` bytes `fill` writes to a piece of the bulk.
    ///
    /// # Errors
    /// [`PutError`]; then nothing has changed.
    #[inline]
    pub fn put_piece(&mut self, note: [u32; 2], bytes: u32, fill: impl FnOnce(Cells<'a>)) -> Result<(), PutError> {
        self.put_piece_beside(note, &[], bytes, fill)
    }

    /// As [`put_piece`](Self::put_piece), with up to [`BESIDE`] bytes of immediate data in the entry.
    ///
    /// # Errors
    /// [`PutError`]; then nothing has changed.
    #[inline]
    pub fn put_piece_beside(
        &mut self,
        note: [u32; 2],
        beside: &[u8],
        bytes: u32,
        fill: impl FnOnce(Cells<'a>),
    ) -> Result<(), PutError> {
        if bytes > self.longest() || beside.len() > BESIDE {
            return Err(PutError::TooLong);
        }
        self.expect_room()?;
        let size = self.parts.bulk_lines;
        let here = self.used & (size - 1);
        let skipped = if lines(bytes) > size - here { size - here } else { 0 };
        let at = if skipped > 0 { 0 } else { here };
        let end = self.used.wrapping_add(skipped).wrapping_add(lines(bytes));
        if end.wrapping_sub(self.given) > size {
            self.recall_given()?;
            if end.wrapping_sub(self.given) > size {
                return Err(PutError::Full);
            }
        }
        fill(self.parts.piece(at, bytes).ok_or(PutError::TooLong)?);
        self.show(PIECE, note, |entry| {
            for (i, word) in [at, bytes, end].into_iter().enumerate() {
                entry.part(4 * i, 4)?.write(&word.to_le_bytes())?;
            }
            entry.part(PLACE, beside.len())?.write(beside)
        })?;
        self.used = end;
        Ok(())
    }

    /// Whether the consumer has taken everything that was put.
    ///
    /// # Errors
    /// [`Corrupted`].
    pub fn is_drained(&mut self) -> Result<bool, Corrupted> {
        self.taken = recall(self.parts.taken, Site::RingRoom, self.taken, self.next).map_err(|_| Corrupted)?;
        Ok(self.taken == self.next)
    }

    /// Whether the consumer's words hold values that it may have written.
    pub fn is_believable(&mut self) -> bool {
        self.is_drained().is_ok() && self.recall_given().is_ok()
    }

    /// Whether all entries that were put and not consumed are still published, according to a
    /// [plausible](Self::is_believable) tail. If not, the consumer may never see them. O(entries not consumed).
    pub fn is_intact(&mut self) -> bool {
        let waiting = self.next.wrapping_sub(self.taken);
        (0..waiting)
            .map(|i| self.taken.wrapping_add(i))
            .all(|count| self.parts.turn(count).is_some_and(|turn| turn.own() == count.wrapping_add(1)))
    }

    /// The word that changes when space becomes free, and its last seen value.
    pub const fn awaited(&self) -> (&'a Word, u32) {
        (self.parts.taken, self.taken)
    }

    /// The word that was published last, on which the consumer may be waiting.
    #[inline]
    pub fn shown(&self) -> Option<&'a Word> {
        self.parts.turn(self.next.wrapping_sub(1))
    }

    #[inline]
    fn recall_given(&mut self) -> Result<(), PutError> {
        let word = self.parts.given().ok_or(PutError::Corrupted)?;
        self.given = recall(word, Site::BulkRoom, self.given, self.used)?;
        Ok(())
    }

    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn expect_room(&mut self) -> Result<(), PutError> {
        let most = if cfg!(mutant = "overfill") { self.parts.entries + 1 } else { self.parts.entries };
        if self.next.wrapping_sub(self.taken) >= most {
            self.taken = recall(self.parts.taken, Site::RingRoom, self.taken, self.next)?;
            if self.next.wrapping_sub(self.taken) >= most {
                return Err(PutError::Full);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn show(
        &mut self,
        length: u32,
        note: [u32; 2],
        fill: impl FnOnce(Cells<'a>) -> Option<()>,
    ) -> Result<(), PutError> {
        let (rest, turn) = self.write_head(length, note).ok_or(PutError::Corrupted)?;
        fill(rest).ok_or(PutError::Corrupted)?;
        self.next = self.next.wrapping_add(1);
        turn.publish(self.next, Site::RingShow);
        Ok(())
    }

    /// The entry's bytes after its header, and its turn.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn write_head(&self, length: u32, note: [u32; 2]) -> Option<(Cells<'a>, &'a Word)> {
        let entry = self.parts.cells(self.next, 4, LINE - 4)?;
        let turn = self.parts.turn(self.next)?;
        // One store each: combining them in a buffer first would stall on store forwarding.
        for (i, word) in [seal(length, note, self.next), note[0], note[1]].into_iter().enumerate() {
            entry.part(4 * i, 4)?.write(&word.to_le_bytes())?;
        }
        Some((entry.part(HEAD, INLINE)?, turn))
    }
}

/// A reserved entry: see [`Producer::room`].
#[derive(Debug)]
pub struct Room<'p, 'a>(&'p mut Producer<'a>);

impl Room<'_, '_> {
    /// Puts a message of up to [`INLINE`] bytes into it. Constant time.
    ///
    /// # Errors
    /// [`PutError::TooLong`]; then nothing has changed.
    #[inline(always)]
    pub fn put(self, note: [u32; 2], payload: &[u8]) -> Result<(), PutError> {
        if payload.len() > INLINE {
            return Err(PutError::TooLong);
        }
        self.0.show(payload.len() as u32, note, |entry| match payload.first_chunk::<8>() {
            Some(word) if payload.len() == 8 => entry.write(word),
            _ => entry.write(payload),
        })
    }
}

/// Reads a count of the consumer's that was last `seen` and cannot exceed `most`.
#[inline]
fn recall(word: &Word, site: Site, seen: u32, most: u32) -> Result<u32, PutError> {
    let found = word.acquire(site);
    if found.wrapping_sub(seen) > most.wrapping_sub(seen) { Err(PutError::Corrupted) } else { Ok(found) }
}

/// A message that is not consumed yet.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its header words.
    pub note: [u32; 2],
    /// Its payload, which is the producer's again as soon as it is consumed. Another process may change it: never read
    /// it twice.
    pub payload: Cells<'a>,
    /// Immediate data: [`BESIDE`] bytes if the payload is in the bulk, none otherwise.
    pub beside: Cells<'a>,
}

/// Reads three words of an entry.
#[inline(always)]
fn three(cells: Cells<'_>, at: usize) -> Option<[u32; 3]> {
    let mut bytes = [0; 12];
    cells.part(at, bytes.len())?.read(&mut bytes)?;
    let (words, _) = bytes.as_chunks();
    Some([0, 1, 2].map(|i| words.get(i).map_or(0, |word| u32::from_le_bytes(*word))))
}

/// Where the next message will be: see [`Consumer::ahead`].
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a> {
    word: &'a Word,
    /// The word's value before the message.
    before: u32,
    /// Entries consumed before it.
    count: u32,
    /// The entry after its turn.
    rest: Cells<'a>,
}

impl Ahead<'_> {
    /// Whether the word has changed, even to a value that no producer writes. One load.
    #[inline(always)]
    pub fn has_come(&self) -> bool {
        self.word.acquire(Site::Plain) != self.before
    }
}

/// The consumer's end of a ring.
#[derive(Debug)]
pub struct Consumer<'a> {
    parts: Parts<'a>,
    /// Entries consumed.
    next: u32,
    /// Entries that were never written, and the initial value of their turns.
    fresh: u32,
    start: u32,
    /// Lines of bulk returned, and their count after the current entry is consumed.
    given: u32,
    seen: u32,
}

impl<'a> Consumer<'a> {
    /// The end of the ring from one rank to another, fresh. `None`: the layout or the segment has no such ring.
    pub fn of(segment: Segment<'a>, layout: &Layout, from: u32, to: u32) -> Option<Self> {
        let sizes = layout.sizes();
        Self::new(segment, layout.ring(from, to)?, sizes.ring_entries, sizes.ring_bulk, 0)
    }

    /// The end of a ring in this area, every word of which is `start`.
    pub fn new(segment: Segment<'a>, area: Area, entries: u32, bulk: u32, start: u32) -> Option<Self> {
        let parts = Parts::new(segment, area, entries, bulk)?;
        Some(Self { parts, next: start, fresh: entries, start, given: start, seen: start })
    }

    /// Whether the next turn has changed, even to a value that no producer writes. One load.
    #[inline(always)]
    pub fn has_news(&self) -> bool {
        let (word, before) = self.awaited();
        word.acquire(Site::Plain) != before
    }

    /// The word that changes when a message arrives, and its value before.
    #[inline(always)]
    pub fn awaited(&self) -> (&'a Word, u32) {
        let word = self.parts.turn(self.next).unwrap_or(self.parts.taken);
        let before = self.next.wrapping_add(1).wrapping_sub(self.parts.entries);
        (word, if self.fresh > 0 { self.start } else { before })
    }

    /// The next message, if there is one; it stays until [`take`](Self::take). Constant time.
    ///
    /// # Errors
    /// [`Corrupted`]: the entry holds values that no producer writes.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn look(&mut self) -> Result<Option<Entry<'a>>, Corrupted> {
        self.look_at(&self.ahead().ok_or(Corrupted)?)
    }

    /// Where the next message will be, so that a waiting consumer computes this before it arrives. `None`: the ring has
    /// no such place.
    #[inline(always)]
    pub fn ahead(&self) -> Option<Ahead<'a>> {
        let (word, before) = self.awaited();
        Some(Ahead { word, before, count: self.next, rest: self.parts.cells(self.next, 4, LINE - 4)? })
    }

    /// As [`look`](Self::look), with a result of [`ahead`](Self::ahead) since the last message was consumed.
    ///
    /// # Errors
    /// As there; also if that message has been consumed already.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn look_at(&mut self, ahead: &Ahead<'a>) -> Result<Option<Entry<'a>>, Corrupted> {
        let Ahead { word, before, count, rest } = *ahead;
        let turn = word.acquire(Site::RingLook);
        if turn == before {
            return Ok(None);
        }
        if turn != self.next.wrapping_add(1) {
            return Err(Corrupted);
        }
        let [form, note @ ..] = three(rest, 0).ok_or(Corrupted)?;
        let length = form & LENGTH;
        if form != seal(length, note, count) {
            return Err(Corrupted);
        }
        let (payload, beside) = if length as usize <= INLINE {
            (rest.part(HEAD, length as usize), rest.part(HEAD, 0))
        } else if length == PIECE {
            let [at, bytes, end] = three(rest, HEAD).ok_or(Corrupted)?;
            (self.piece(at, bytes, end), rest.part(HEAD + PLACE, BESIDE))
        } else {
            return Err(Corrupted);
        };
        Ok(Some(Entry { note, payload: payload.ok_or(Corrupted)?, beside: beside.ok_or(Corrupted)? }))
    }

    /// Consumes the current message: its entry and its piece are the producer's again. Must follow a poll that returned
    /// a message.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn take(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.fresh = self.fresh.saturating_sub(1);
        if self.seen != self.given {
            self.given = self.seen;
            if let Some(given) = self.parts.given() {
                given.publish(self.given, Site::BulkGive);
            }
        }
        self.parts.taken.publish(self.next, Site::RingTake);
    }

    /// Whether the words that this end published are unchanged. If not, the producer may wait for ever.
    pub fn is_intact(&self) -> bool {
        self.parts.taken.own() == self.next && self.parts.given().is_some_and(|given| given.own() == self.given)
    }

    /// The word that was published last, on which the producer may be waiting.
    #[inline]
    pub const fn shown(&self) -> &'a Word {
        self.parts.taken
    }

    /// The piece at this line of the bulk. `None`: the producer cannot have put it there.
    #[inline]
    fn piece(&mut self, at: u32, bytes: u32, end: u32) -> Option<Cells<'a>> {
        let size = self.parts.bulk_lines;
        let goes_on = at.checked_add(lines(bytes)).filter(|end| *end <= size)?;
        if end.wrapping_sub(goes_on) & (size - 1) != 0 || end.wrapping_sub(self.given) > size {
            return None;
        }
        let piece = self.parts.piece(at, bytes)?;
        self.seen = end;
        Some(piece)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
