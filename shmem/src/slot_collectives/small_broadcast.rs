//! The fast path for repeated broadcasts of one round: equal to the schedule, without evaluating it.
//!
//! The other ranks see the same words, and the state afterwards is the same. Nothing happens until a broadcast is
//! complete: if that takes more than a few polls, the caller starts it as an ordinary collective, which also reports
//! any error.

use core::num::NonZero;

use unisono_core::collective::CollectiveSpec;

use super::{REFRESH, SlotCollectives, State};
use crate::collective_area::{CollectiveAreas, SLOT_HEADER};
use crate::segment::{SharedBytes, Site, Word};
use crate::slot_collectives::schedule::SlotSchedule;

/// The last call, if it was such a broadcast.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallBroadcast {
    bytes: NonZero<usize>,
    root: u32,
    kind: u32,
    /// Offset of the root's first stamp, and of its first chunk if the payload is there and not in the slot.
    stamp: usize,
    chunk: Option<NonZero<usize>>,
    /// Offset of this rank's count of finished steps.
    done: usize,
}

impl SmallBroadcast {
    /// `None`: the call is not such a broadcast.
    pub(super) fn of(plan: &CollectiveSpec, course: &SlotSchedule, areas: &CollectiveAreas) -> Option<Self> {
        let is_short = course.is_short_broadcast() && !cfg!(without = "small_broadcast");
        let bytes = NonZero::new(plan.bytes).filter(|_| is_short)?;
        let (root, kind, done) = (plan.root.0, plan.reduction_id, areas.done(plan.rank.0));
        let chunk = NonZero::new(areas.first_chunk(root)).filter(|_| course.has_one_chunk());
        Some(Self { bytes, root, kind, stamp: areas.stamp(root, 0), chunk, done })
    }
}

impl<'a> SlotCollectives<'a> {
    /// Whether a broadcast of `bytes` bytes of elements of this kind from this root is like the last call. If so, its
    /// [payload](Self::small_broadcast_payload) is all that has to be moved.
    #[inline]
    pub fn is_small_broadcast(&self, bytes: usize, kind: u32, root: u32) -> bool {
        let is_like_last = self
            .small_broadcast
            .is_some_and(|last| last.bytes.get() == bytes && last.kind == kind && last.root == root);
        // Old stamps are not due to be rewritten.
        is_like_last && self.call.state == State::Final && !self.steps.next.wrapping_add(1).is_multiple_of(REFRESH)
    }

    /// The payload of a broadcast like the last call: the root writes it, the others read it, before they
    /// [end](Self::end_small_broadcast) it. `None`: not yet, or never. One poll.
    #[inline]
    pub fn small_broadcast_payload(&mut self) -> Option<SharedBytes<'a>> {
        let last = self.small_broadcast.filter(|_| self.call.state == State::Final)?;
        let slot = self.areas.slot(self.steps.next) as usize;
        let place = last.stamp + slot * self.areas.slot_bytes();
        if self.rank == last.root {
            let steps = match last.chunk {
                Some(_) => self.choose_chunk(self.steps.next),
                None => self.steps.next.wrapping_add(1).wrapping_sub(self.areas.slots),
            };
            if self.all_done(steps) != Ok(true) {
                return None;
            }
        } else {
            let [stamp, sign] = self.segment.words(place, 2)?.first_chunk()?;
            let stamp = stamp.acquire(Site::SmallBroadcastPoll);
            if stamp != self.steps.next.wrapping_add(1) || !self.check_signature(sign.own(), self.next_signature()) {
                return None;
            }
        }
        let chunk = if self.call.schedule.is_first() { 0 } else { slot };
        let at = last.chunk.map_or(place + SLOT_HEADER, |first| first.get() + chunk * self.areas.chunk);
        self.segment.shared_bytes(at, last.bytes.get())
    }

    /// Completes the broadcast after its payload was written or read. Returns the words that this rank has published.
    #[inline]
    pub fn end_small_broadcast(&mut self) -> [Option<&'a Word>; 2] {
        let Some(last) = self.small_broadcast else { return [None; 2] };
        let (step, slot) = (self.steps.next, self.areas.slot(self.steps.next) as usize);
        let (next, sign) = (step.wrapping_add(1), self.next_signature());
        let said = self.published_signature(sign);
        let place = self.segment.words(last.stamp + slot * self.areas.slot_bytes(), 2);
        let place = place.and_then(|words| words.first_chunk()).filter(|_| last.root == self.rank);
        let shown = place.map(|[stamp, sign]| {
            sign.publish(said, Site::Plain);
            stamp.publish(next, Site::SmallBroadcastPublish);
            stamp
        });
        let done = self.segment.word(last.done);
        if let Some(done) = done {
            done.publish(next, Site::SmallBroadcastDone);
        }
        if let (Some(own), true) = (self.steps.stamps.get_mut(slot), shown.is_some()) {
            *own = next;
        }
        (self.call.base, self.steps.next, self.steps.done) = (step, next, next);
        self.advance_signature();
        [shown, done]
    }
}
