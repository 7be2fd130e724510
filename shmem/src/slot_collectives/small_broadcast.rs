//! The fast path for repeated broadcasts of one round: equal to the schedule, without evaluating it.
//!
//! The other ranks see the same words, and the state afterwards is the same. Nothing happens until a broadcast is
//! complete: if that takes more than a few polls, the caller starts it as an ordinary collective, which also reports
//! any error.

use core::num::NonZero;

use unisono_core::collective::Plan;

use super::{Flags, REFRESH, State};
use crate::collective_area::{Boards, SLOT_HEAD};
use crate::segment::{Cells, Site, Word};
use crate::slot_collectives::schedule::Course;

/// The last call, if it was such a broadcast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    bytes: NonZero<usize>,
    root: u32,
    kind: u32,
    /// Offset of the root's first stamp, and of its first chunk if the payload is there and not in the slot.
    stamp: usize,
    chunk: Option<NonZero<usize>>,
    /// Offset of this rank's count of finished steps.
    done: usize,
}

impl Short {
    /// `None`: the call is not such a broadcast.
    pub(super) fn of(plan: &Plan, course: &Course, boards: &Boards) -> Option<Self> {
        let bytes = NonZero::new(plan.bytes).filter(|_| course.is_short_broadcast())?;
        let (root, kind, done) = (plan.root.0, plan.kind, boards.done(plan.rank.0));
        let chunk = NonZero::new(boards.first_chunk(root)).filter(|_| course.has_one_chunk());
        Some(Self { bytes, root, kind, stamp: boards.stamp(root, 0), chunk, done })
    }
}

impl<'a> Flags<'a> {
    /// Whether a broadcast of `bytes` bytes of elements of this kind from this root is like the last call. If so, its
    /// [payload](Self::short_payload) is all that has to be moved.
    #[inline]
    pub fn is_short(&self, bytes: usize, kind: u32, root: u32) -> bool {
        let is_like_last =
            self.short.is_some_and(|last| last.bytes.get() == bytes && last.kind == kind && last.root == root);
        // Old stamps are not due to be rewritten.
        is_like_last && self.state == State::Final && !self.next.wrapping_add(1).is_multiple_of(REFRESH)
    }

    /// The payload of a broadcast like the last call: the root writes it, the others read it, before they
    /// [end](Self::end_short) it. `None`: not yet, or never. One poll.
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

    /// Completes the broadcast after its payload was written or read. Returns the words that this rank has published.
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
