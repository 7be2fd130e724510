//! Soft-RoCE's queues of reliable connections: the send queue of one, and the completion queue and the receive queue that
//! several share.

use super::ring::{Consumer, Producer, Shape};
use super::wqe::{RECEIVE_WQE, RELIABLE_WQE, ended, receive, reliable};
use crate::queue_memory::{QueueAccess, UNIT};
use crate::raw::Data;
use crate::rc::{EndedWork, RECEIVE, RcRequest};

/// The send queue of a connection's end.
#[derive(Debug)]
pub struct RxeSends<S> {
    queue: Producer<S>,
    /// Operations that were posted.
    posted: u32,
}

impl<S: QueueAccess> RxeSends<S> {
    /// An empty queue, whose doorbell is a system call. `None`: entries are too small, or the memory has another size.
    pub fn new(shape: Shape, memory: S) -> Option<Self> {
        let queue = (shape.entry >= RELIABLE_WQE).then(|| Producer::new(memory, shape))??;
        Some(Self { queue, posted: 0 })
    }

    /// Posts an operation and rings the doorbell. Returns whether there was room.
    pub fn post(&mut self, request: &RcRequest, tag: u32) -> bool {
        if !self.queue.has_room() {
            return false;
        }
        self.queue.store_some(0, &reliable(request, tag, self.posted));
        self.queue.commit();
        self.posted = self.posted.wrapping_add(1);
        self.queue.publish(true)
    }
}

/// A receive queue whose entries have no memory.
#[derive(Debug)]
pub struct RxeReceives<S> {
    queue: Producer<S>,
}

impl<S: QueueAccess> RxeReceives<S> {
    /// An empty queue. `None`: entries are too small, or the memory has another size.
    pub fn new(shape: Shape, memory: S) -> Option<Self> {
        let queue = (shape.entry >= RECEIVE_WQE + UNIT).then(|| Producer::new(memory, shape))??;
        Some(Self { queue })
    }

    /// Posts as many entries as it takes. Returns their number.
    pub fn fill(&mut self) -> u32 {
        let mut posted = 0;
        while posted < self.queue.shape().count && self.queue.has_room() {
            self.queue.store(0, receive(Data::default(), RECEIVE));
            self.queue.commit();
            posted += 1;
        }
        self.queue.publish(false);
        posted
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct RxeEnded<S> {
    queue: Consumer<S>,
}

impl<S: QueueAccess> RxeEnded<S> {
    /// A queue whose present entries are skipped. `None`: entries are too small, or the memory has another size.
    pub fn new(shape: Shape, memory: S) -> Option<Self> {
        Some(Self { queue: Consumer::new(memory, shape)? })
    }

    /// The next completion.
    pub fn poll(&mut self) -> Option<EndedWork> {
        Some(ended(self.queue.poll()?))
    }

    /// Returns the entries of all completions that were taken.
    pub fn give_back(&mut self) {
        self.queue.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_memory::recorded::RecordedMemory;
    use crate::raw::{Failure, RemoteMemory};
    use crate::rc::{RcCompletion, RcOperation};

    const SENDS: Shape = Shape { entry: 256, count: 4 };
    const SMALL: Shape = Shape { entry: 64, count: 4 };

    fn memory(shape: Shape) -> RecordedMemory {
        RecordedMemory::new(shape.bytes())
    }

    fn request(operation: RcOperation, bytes: u32) -> RcRequest {
        let local = Data { address: 0x1_0000_0008, bytes, key: 5 };
        RcRequest { operation, local, remote: RemoteMemory { address: 0x2_0000_0010, key: 9 } }
    }

    #[test]
    fn entries_lie_where_the_kernel_looks() {
        let cases = [
            (RcOperation::Write, 0, 0, [9, 0, 0, 0, 0]),
            (RcOperation::WriteImmediate(0x0102_0304), 1, 0x0403_0201, [9, 0, 0, 0, 0]),
            (RcOperation::Read, 4, 0, [9, 0, 0, 0, 0]),
            (RcOperation::CompareSwap { compare: 0x1_0000_0002, swap: 0x3_0000_0004 }, 5, 0, [2, 1, 4, 3, 9]),
            (RcOperation::FetchAdd(0x7_0000_0008), 6, 0, [8, 7, 0, 0, 9]),
        ];
        for (operation, opcode, immediate, operands) in cases {
            let mut sends = RxeSends::new(SENDS, memory(SENDS)).unwrap();
            assert!(sends.post(&request(operation, 8), 70) && sends.post(&request(operation, 0), 71));
            let found = sends.queue.seam();
            assert_eq!((found.records[0], found.rung.len(), found.violation()), (2, 2, None));
            let word = |at: usize| u32::from_le_bytes(found.entries[at..at + 4].try_into().unwrap());
            // Tag, opcode, flags, immediate, remote address, operands.
            assert_eq!([0, 12, 16, 20, 24, 28].map(word), [70, opcode, 2, immediate, 0x10, 2], "{operation:?}");
            assert_eq!([32, 36, 40, 44, 48].map(word), operands, "{operation:?}");
            // State, place, number; length, left, pieces; the piece.
            assert_eq!([148, 152, 156, 176].map(word), [0, 0x10, 2, 0]);
            assert_eq!([184, 188, 196, 208, 212, 216, 220].map(word), [8, 8, 1, 8, 1, 8, 5]);
            assert_eq!([256, 256 + 176, 256 + 184, 256 + 196].map(word), [71, 1, 0, 0], "nothing to gather");
        }
    }

    #[test]
    fn one_entry_stays_empty() {
        let mut sends = RxeSends::new(SENDS, memory(SENDS)).unwrap();
        let posted = |sends: &mut RxeSends<_>| sends.post(&request(RcOperation::Read, 8), 1);
        assert_eq!(
            [posted(&mut sends), posted(&mut sends), posted(&mut sends), posted(&mut sends)],
            [true, true, true, false]
        );
        sends.queue.seam_mut().progress = 1;
        assert!(posted(&mut sends) && !posted(&mut sends));
        assert!(RxeSends::new(SMALL, memory(SMALL)).is_none(), "no room for an entry");
    }

    #[test]
    fn a_receive_queue_is_filled() {
        let mut receives = RxeReceives::new(SMALL, memory(SMALL)).unwrap();
        assert_eq!([receives.fill(), receives.fill()], [3, 0]);
        let found = receives.queue.seam();
        assert_eq!((found.records[0], found.rung.len()), (3, 0));
        assert!(found.entries[..8].iter().all(|byte| *byte == 0xff), "the tag of a receive");
        assert_eq!(found.entries[16..40], [0; 24], "no memory");
        receives.queue.seam_mut().progress = 2;
        assert_eq!(receives.fill(), 2);
    }

    #[test]
    fn completions_are_read() {
        let shape = Shape { entry: 64, count: 8 };
        let mut queue = RxeEnded::new(shape, memory(shape)).unwrap();
        let mut put = |place: usize, fields: &[(usize, u32)]| {
            let memory = queue.queue.seam_mut();
            for (at, value) in fields {
                memory.entries[place * 64 + at..place * 64 + at + 4].copy_from_slice(&value.to_le_bytes());
            }
            memory.progress = place as u32 + 1;
        };
        let receive = [(0, u32::MAX), (4, u32::MAX)];
        put(0, &[(0, 7), (8, 10), (28, 5)]);
        put(1, &[receive[0], receive[1], (12, 129), (20, 9), (24, 0x0403_0201), (28, 6)]);
        put(2, &[receive[0], receive[1], (12, 128), (28, 6)]);
        let refused = RcCompletion::Operation { qpn: 5, tag: 7, result: Err(Failure::RemoteAccess) };
        let arrived = RcCompletion::Immediate { qpn: 6, value: 0x0102_0304, bytes: 9 };
        for wanted in [Some(refused), Some(arrived), None] {
            assert_eq!(queue.poll().unwrap().completion(), wanted);
        }
        assert!(queue.poll().is_none());
        assert_eq!(queue.queue.seam().records[0], 3);
        queue.queue.seam_mut().progress = 4;
        assert!(queue.poll().is_some());
        assert_eq!(queue.queue.seam().records[0], 3);
        queue.give_back();
        assert_eq!(queue.queue.seam().records[0], 4, "the kernel may use it again");
    }
}
