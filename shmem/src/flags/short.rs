//! Broadcasts of one lap, again and again: what the schedule would say, without asking it for each step.
//!
//! Nothing that others see differs, nor does anything that is remembered: whoever does not come through here in a few looks goes on by
//! [`poll`](Basic::poll), which also says what is wrong, if anything is.

#[cfg(doc)]
use unisono_core::collective::Basic;
use unisono_core::collective::{CollectiveId, Plan, Verb};

use super::{Flags, REFRESH, Shown, State};
use crate::collective::{input, output};
use crate::segment::Site;
use crate::wish::Wish;

impl Flags<'_> {
    /// Begins a broadcast of one lap through slots that is like the last call. False: it is to be begun by
    /// [`start`](Basic::start), nothing has happened.
    #[inline]
    pub fn start_short(&mut self, id: CollectiveId, plan: &Plan) -> bool {
        let (base, next) = (self.next, self.next.wrapping_add(1));
        let is_like_last = self.state == State::Final && self.plan == Some((*plan, self.pulls, self.forced));
        // Old stamps are not due to be written anew.
        if !is_like_last || !self.course.is_short_broadcast() || base / REFRESH != next / REFRESH {
            return false;
        }
        let oldest = next.wrapping_sub(self.boards.slots);
        let shows = plan.rank == plan.root;
        if shows && oldest.wrapping_sub(self.least).cast_signed() > 0 {
            return false;
        }
        self.sign_on();
        self.course.begin(base);
        (self.id, self.verb, self.base, self.next) = (id, Verb::Broadcast, base, next);
        (self.lap, self.item, self.left, self.wishes, self.shown) = (0, 0, 0, 0, Shown::default());
        self.state = if shows { State::Make } else { State::Take };
        true
    }

    /// The copy that is due between [`start_short`](Self::start_short) and [`end_short`](Self::end_short); `None`: not yet, or never.
    #[inline]
    pub fn poll_short(&self) -> Option<Wish> {
        let (root, bytes) = self.course.broadcast();
        let slot = self.course.slot(root, 0, 0, bytes);
        if self.state == State::Make {
            return Some(Wish::Copy { from: input(0, bytes), into: slot });
        }
        let [stamp, sign] = self.segment.words(self.boards.stamp(root, self.base), 2)? else { return None };
        let is_shown = stamp.acquire(Site::ShortLook) == self.next && sign.own() == self.sign;
        is_shown.then(|| Wish::Copy { from: slot, into: output(0, bytes) })
    }

    /// The copy is done, and so is the broadcast.
    #[inline]
    pub fn end_short(&mut self) {
        if self.state == State::Make {
            self.show();
        }
        self.end_lap();
    }
}
