//! Growth of the record pools, when requests outnumber the records that the host provided.

use super::{MessageStorage, PointToPoint, ReceiveBody, SendRecord};
use crate::list::NONE;
use crate::message::matching::{Matching, PostedReceive};
use crate::pool::grow;

impl<S: MessageStorage> PointToPoint<S> {
    /// Replaces the send records and their buckets by larger pools; the present records are copied. Returns false,
    /// without effect, if they are not larger. O(records).
    pub fn grow_sends(&mut self, sends: S::Sends, buckets: S::Buckets) -> bool {
        let (before, after) = (self.sends.as_ref().len(), sends.as_ref().len());
        if after > NONE as usize
            || buckets.as_ref().len() < self.held_queues.buckets()
            || !grow(&mut self.sends, sends, SendRecord::FREE)
        {
            return false;
        }
        self.held_queues.rehash(self.sends.as_mut(), buckets);
        for record in before..after {
            self.free_sends.push(self.sends.as_mut(), record as u32, SendRecord::free_link);
        }
        self.sends_left = self.sends_left.wrapping_add((after.wrapping_sub(before)) as u32);
        true
    }

    /// As [`grow_sends`](Self::grow_sends), for receives.
    pub fn grow_receives(&mut self, receives: S::Receives, buckets: S::Buckets) -> bool {
        self.matching.grow_receives(receives, buckets)
    }
}

impl<S: MessageStorage> Matching<S, ReceiveBody, super::MessageBody> {
    fn grow_receives(&mut self, receives: S::Receives, buckets: S::Buckets) -> bool {
        let (before, after) = (self.receives.as_ref().len(), receives.as_ref().len());
        if after > NONE as usize
            || buckets.as_ref().len() < self.posted.buckets()
            || !grow(&mut self.receives, receives, PostedReceive::default())
        {
            return false;
        }
        self.posted.rehash(self.receives.as_mut(), buckets);
        for record in before..after {
            self.free_receives.push(self.receives.as_mut(), record as u32, PostedReceive::free_link);
        }
        true
    }
}
