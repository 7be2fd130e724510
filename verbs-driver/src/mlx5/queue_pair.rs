//! mlx5's queue pair: its send, receive and completion queues together.

use unisono_core::device::DeviceQueue;

use super::completion::{Completion, QueueSide};
use super::completion_queue::CompletionQueue;
use super::path::Mlx5Path;
use super::receive_queue::ReceiveQueue;
use super::send_queue::{SendOperation, SendQueue, SendRequest};
use crate::queue_memory::{BLOCK, QueueAccess, UNIT};
use crate::raw::{Arrived, Data, Origin, QueuePair, SendPayload, WorkResult};

/// Units of control and datagram segment.
const FRONT: usize = 4;

/// The queues of a queue pair. A completion queue has at least twice as many entries as its work queue.
#[derive(Debug)]
pub struct Mlx5Queues<'a, S> {
    /// The send queue.
    pub send: SendQueue<'a, S>,
    /// Its completion queue.
    pub sent: CompletionQueue<S>,
    /// The receive queue.
    pub receive: ReceiveQueue<'a, S>,
    /// The completion queue of receives.
    pub received: CompletionQueue<S>,
}

impl<S: QueueAccess> QueuePair for Mlx5Queues<'_, S> {
    type Path = Mlx5Path;

    fn receive_entries(&self) -> usize {
        self.receive.entries().min(self.received.entries() / 2)
    }

    fn has_room(&mut self, inline: usize) -> bool {
        let gathered = 2;
        let units = FRONT + gathered.max((4 + inline).div_ceil(UNIT));
        self.send.free() >= units.div_ceil(BLOCK / UNIT)
    }

    fn is_idle(&self) -> bool {
        self.send.is_idle()
    }

    fn post(
        &mut self,
        (path, lane): (&Mlx5Path, DeviceQueue),
        payload: SendPayload<'_>,
        solicited: bool,
        tag: u32,
    ) -> bool {
        let to = path.at(lane);
        let operation = SendOperation::Datagram(&to);
        self.send.post(&SendRequest { operation, payload, signalled: false, solicited, immediate: None }, tag).is_ok()
    }

    fn flush(&mut self, signal: bool) {
        if signal {
            self.send.signal();
        }
        self.send.flush();
    }

    fn sent(&mut self) -> Option<WorkResult<u32>> {
        Some(match self.sent.poll()? {
            Completion::Sent { index, .. } => self.send.complete(index).map_or(WorkResult::Malformed, WorkResult::Done),
            Completion::Failed { index, half: QueueSide::Send, failure, .. } => {
                WorkResult::Failed(self.send.complete(index), failure)
            }
            Completion::Failed { .. } | Completion::Received(_) | Completion::Unknown { .. } => WorkResult::Malformed,
        })
    }

    fn post_receive(&mut self, data: Data, tag: u32) -> bool {
        self.receive.post(data, tag)
    }

    fn flush_receives(&mut self) {
        self.receive.flush();
    }

    fn received(&mut self) -> Option<WorkResult<Arrived>> {
        Some(match self.received.poll()? {
            Completion::Received(arrival) => {
                let origin = Origin { qpn: arrival.source, lid: arrival.lid, grh: arrival.grh };
                let got = |tag| WorkResult::Done(Arrived { tag, bytes: arrival.bytes, origin });
                self.receive.complete(arrival.index).map_or(WorkResult::Malformed, got)
            }
            Completion::Failed { index, half: QueueSide::Receive, failure, .. } => {
                WorkResult::Failed(self.receive.complete(index), failure)
            }
            Completion::Failed { .. } | Completion::Sent { .. } | Completion::Unknown { .. } => WorkResult::Malformed,
        })
    }

    fn has_arrival(&mut self) -> bool {
        self.received.has_entry()
    }

    fn arm(&mut self, solicited: bool) {
        self.received.arm(solicited);
    }

    fn event_received(&mut self) {
        self.received.saw_event();
    }

    fn reset(&mut self) {
        // Completions that are still queued are from before the reset.
        for queue in [&mut self.sent, &mut self.received] {
            let _ = (0..=queue.entries()).find(|_| queue.poll().is_none());
        }
        self.send.reset();
        self.receive.reset();
    }
}
