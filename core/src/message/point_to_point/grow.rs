//! Growth of the record pools, when requests outnumber the records that the host provided.

use super::{Admission, Receive, Send, Storage};
use crate::list::NONE;
use crate::message::matching::{Matching, Posted};

impl<S: Storage> Admission<S> {
    /// Replaces the send records and their buckets by larger pools; the present records are copied. Returns false,
    /// without effect, if they are not larger. O(records).
    pub fn lend_sends(&mut self, mut sends: S::Sends, buckets: S::Buckets) -> bool {
        let (before, after) = (self.sends.as_ref().len(), sends.as_ref().len());
        if after <= before || after > NONE as usize || buckets.as_ref().len() < self.queued.buckets() {
            return false;
        }
        copy(sends.as_mut(), self.sends.as_ref(), Send::FREE);
        self.sends = sends;
        self.queued.rehash(self.sends.as_mut(), buckets);
        for record in before..after {
            self.free_sends.push(self.sends.as_mut(), record as u32, Send::free_link);
        }
        self.sends_left = self.sends_left.wrapping_add((after.wrapping_sub(before)) as u32);
        true
    }

    /// As [`lend_sends`](Self::lend_sends), for receives.
    pub fn lend_receives(&mut self, receives: S::Receives, buckets: S::Buckets) -> bool {
        self.matching.lend_receives(receives, buckets)
    }
}

impl<S: Storage> Matching<S, Receive, super::Message> {
    fn lend_receives(&mut self, mut receives: S::Receives, buckets: S::Buckets) -> bool {
        let (before, after) = (self.receives.as_ref().len(), receives.as_ref().len());
        if after <= before || after > NONE as usize || buckets.as_ref().len() < self.posted.buckets() {
            return false;
        }
        copy(receives.as_mut(), self.receives.as_ref(), Posted::default());
        self.receives = receives;
        self.posted.rehash(self.receives.as_mut(), buckets);
        for record in before..after {
            self.free_receives.push(self.receives.as_mut(), record as u32, Posted::free_link);
        }
        true
    }
}

fn copy<R: Copy>(to: &mut [R], from: &[R], fresh: R) {
    to.fill(fresh);
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
