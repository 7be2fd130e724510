//! Broadcasts of one lap, again and again: what the schedule would say, without asking it.
//!
//! Nothing that others see differs, nor does anything that is remembered. Until one ends nothing has happened: whoever does not come
//! through here in a few looks begins it as any other collective, which also says what is wrong, if anything is.

use core::num::NonZero;

use unisono_core::collective::Plan;

use super::{Flags, REFRESH, State};
use crate::collective_area::{Boards, SLOT_HEAD};
use crate::segment::{Cells, Site, Word};
use crate::slot_collectives::schedule::Course;

/// The last call, which was one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    bytes: NonZero<usize>,
    root: u32,
    kind: u32,
    /// Byte of the root's first stamp, and of its first chunk if payload lies there and not in the slot.
    stamp: usize,
    chunk: Option<NonZero<usize>>,
    /// Byte where this rank says how many steps it has done with.
    done: usize,
}

impl Short {
    /// `None`: it is something else.
    pub(super) fn of(plan: &Plan, course: &Course, boards: &Boards) -> Option<Self> {
        let bytes = NonZero::new(plan.bytes).filter(|_| course.is_short_broadcast())?;
        let (root, kind, done) = (plan.root.0, plan.kind, boards.done(plan.rank.0));
        let chunk = NonZero::new(boards.first_chunk(root)).filter(|_| course.has_one_chunk());
        Some(Self { bytes, root, kind, stamp: boards.stamp(root, 0), chunk, done })
    }
}

impl<'a> Flags<'a> {
    /// Whether a broadcast of so many bytes of elements of this kind, from this root, is like the last call. Then its
    /// [payload](Self::short_payload) is all there is to do.
    #[inline]
    pub fn is_short(&self, bytes: usize, kind: u32, root: u32) -> bool {
        let is_like_last =
            self.short.is_some_and(|last| last.bytes.get() == bytes && last.kind == kind && last.root == root);
        // Old stamps are not due to be written anew.
        is_like_last && self.state == State::Final && !self.next.wrapping_add(1).is_multiple_of(REFRESH)
    }

    /// The payload of a broadcast like the last call, which its root writes and all others read before they [end](Self::end_short) it.
    /// `None`: not yet, or never. One look.
    #[inline]
    pub fn short_payload(&mut self) -> Option<Cells<'a>> {
        let last = self.short.filter(|_| self.state == State::Final)?;
        let slot = self.boards.slot(self.next) as usize;
        let place = last.stamp + slot * self.boards.slot_bytes();
        if self.rank == last.root {
            let steps = match last.chunk {
                Some(_) => self.choose_chunk(self.next),
                None => self.next.wrapping_add(1).wrapping_sub(self.boards.slots),
            };
            if self.have_done(steps) != Ok(true) {
                return None;
            }
        } else {
            let [stamp, sign] = self.segment.words(place, 2)?.first_chunk()?;
            let stamp = stamp.acquire(Site::ShortLook);
            if stamp != self.next.wrapping_add(1) || !self.hear(sign.own(), self.next_sign()) {
                return None;
            }
        }
        let chunk = if self.course.is_first() { 0 } else { slot };
        let at = last.chunk.map_or(place + SLOT_HEAD, |first| first.get() + chunk * self.boards.chunk);
        self.segment.cells(at, last.bytes.get())
    }

    /// The payload is written, or read, and so the broadcast is complete. The words that this rank has published.
    #[inline]
    pub fn end_short(&mut self) -> [Option<&'a Word>; 2] {
        let Some(last) = self.short else { return [None; 2] };
        let (step, slot) = (self.next, self.boards.slot(self.next) as usize);
        let (next, sign) = (step.wrapping_add(1), self.next_sign());
        let said = self.said(sign);
        let place = self.segment.words(last.stamp + slot * self.boards.slot_bytes(), 2);
        let place = place.and_then(|words| words.first_chunk()).filter(|_| last.root == self.rank);
        let shown = place.map(|[stamp, sign]| {
            sign.publish(said, Site::Plain);
            stamp.publish(next, Site::ShortShow);
            stamp
        });
        let done = self.segment.word(last.done);
        if let Some(done) = done {
            done.publish(next, Site::ShortDone);
        }
        if let (Some(own), true) = (self.stamps.get_mut(slot), shown.is_some()) {
            *own = next;
        }
        (self.base, self.next, self.done) = (step, next, next);
        self.sign_on();
        [shown, done]
    }
}
