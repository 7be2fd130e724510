//! Growth of the records of point-to-point messages, when requests outnumber those that the host provided.

use super::operations::{ReceiveOp, SendOp};
use super::{Class, Messenger, MessengerStorage};
use crate::list::{List, NONE};
use crate::pool::Pool;

impl<S: MessengerStorage> Messenger<S> {
    /// The number of records of point-to-point sends, and of receives.
    pub fn record_counts(&self) -> [usize; 2] {
        [self.messages.sends.as_ref().len(), self.messages.receives.as_ref().len()]
    }

    /// Replaces the records of sends by larger pools; the present ones are copied. Returns false if they are not larger.
    /// O(records).
    pub fn grow_sends(&mut self, operations: S::SendOps, records: S::Sends, buckets: S::Buckets) -> bool {
        let sends = (&mut self.messages.sends, &mut self.messages.free_sends);
        grow(sends, operations, SendOp::FREE, |send| &mut send.link) && self.matching.grow_sends(records, buckets)
    }

    /// As [`grow_sends`](Self::grow_sends), for receives.
    pub fn grow_receives(&mut self, operations: S::ReceiveOps, records: S::Receives, buckets: S::Buckets) -> bool {
        let receives = (&mut self.messages.receives, &mut self.messages.free_receives);
        grow(receives, operations, ReceiveOp::FREE, |receive| &mut receive.link)
            && self.matching.grow_receives(records, buckets)
    }

    /// The number of point-to-point messages that wait for room in the transport, if no further one can.
    pub fn full_outbox(&mut self) -> Option<usize> {
        let (_, outbox) = self.parts(Class::PointToPoint);
        outbox.is_full().then(|| outbox.capacity())
    }

    /// Replaces the records of waiting messages by a larger pool; the present ones are copied. Returns false if it is
    /// not larger. O(records).
    pub fn grow_outbox(&mut self, queued: S::Outbox) -> bool {
        self.parts(Class::PointToPoint).1.grow(queued)
    }
}

fn grow<R: Copy, P: Pool<R>>(
    (records, free): (&mut P, &mut List),
    mut larger: P,
    unused: R,
    link: impl Fn(&mut R) -> &mut u32,
) -> bool {
    let (before, after) = (records.as_ref().len(), larger.as_ref().len());
    if after <= before || after > NONE as usize {
        return false;
    }
    larger.as_mut().fill(unused);
    larger.as_mut().iter_mut().zip(records.as_ref()).for_each(|(to, from)| *to = *from);
    *records = larger;
    for i in before..after {
        free.push(records.as_mut(), i as u32, &link);
    }
    true
}
