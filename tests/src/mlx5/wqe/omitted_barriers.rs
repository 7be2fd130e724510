//! Runs each operation of the queues with each of its barriers omitted in turn: the checker must notice.

use unisono_verbs::mlx5::{
    BlueFlame, Completion, CompletionQueue, Datagram, Link, ReceiveQueue, Route, SendOperation, SendQueue, SendRecord,
    SendRequest, Stride,
};
use unisono_verbs::queue_memory::Violation;
use unisono_verbs::queue_memory::recorded::RecordedMemory;
use unisono_verbs::raw::{Data, SendPayload};

/// An omitted barrier.
#[derive(Clone, Copy, Debug)]
pub struct Deletion {
    /// The operation.
    pub of: &'static str,
    /// Index of the barrier.
    pub barrier: usize,
    /// The reported violation.
    pub noticed: Option<Violation>,
}

/// An operation: name, bytes of its queue, and code.
type Scenario = (&'static str, usize, fn(RecordedMemory) -> RecordedMemory);

const SCENARIOS: [Scenario; 5] = [
    ("sending by doorbell", 4096, |memory| send(memory, false)),
    ("sending by BlueFlame", 4096, |memory| send(memory, true)),
    ("receiving", 256, receive),
    ("taking completions", 512, take),
    ("arming", 512, arm),
];

/// Omits each barrier of each operation in turn. Without an omission each must be in order.
///
/// # Errors
/// An operation is out of order without an omission.
pub fn delete_each_barrier() -> Result<Vec<Deletion>, (&'static str, Violation)> {
    let mut deletions = Vec::new();
    for (of, bytes, play) in SCENARIOS {
        let whole = play(RecordedMemory::new(bytes));
        if let Some(violation) = whole.violation() {
            return Err((of, violation));
        }
        let deletion = |barrier| Deletion {
            of,
            barrier,
            noticed: play(RecordedMemory::without(bytes, Some(barrier))).violation(),
        };
        deletions.extend((0..whole.barriers()).map(deletion));
    }
    Ok(deletions)
}

fn send(memory: RecordedMemory, takes_entries: bool) -> RecordedMemory {
    let link = Link::InfiniBand { lid: 1, path_bits: 0 };
    let to = Datagram::new(&Route { link, service_level: 0, rate: 0, grh: None }, 1, 1);
    let mut entries = vec![SendRecord::default(); 64];
    let flame = BlueFlame { bytes: 256, takes_entries, prefers: false };
    let mut queue = SendQueue::new(memory, 7, flame, &mut entries).expect("a size of queues");
    for bytes in [8, 180] {
        let payload = SendPayload::Inline(&[&[1; 180][..bytes]]);
        let operation = SendOperation::Datagram(&to);
        let request = SendRequest { operation, payload, signalled: false, solicited: false, immediate: None };
        queue.post(&request, 0).expect("room");
        queue.signal();
        queue.flush();
    }
    queue.seam().clone()
}

fn receive(memory: RecordedMemory) -> RecordedMemory {
    let mut tags = vec![None; 4];
    let mut queue = ReceiveQueue::new(memory, &mut tags).expect("a size of queues");
    for tag in 0..3 {
        assert!(queue.post(Data { address: 1, bytes: 1, key: 1 }, tag), "room");
        queue.flush();
    }
    queue.seam().clone()
}

/// A completion queue with `count` entries that wait.
fn waiting(mut memory: RecordedMemory, count: usize) -> CompletionQueue<RecordedMemory> {
    memory.entries.fill(0xf0);
    memory.entries.chunks_mut(64).take(count).for_each(|entry| entry[63] = 0);
    CompletionQueue::new(memory, 1, Stride::Short).expect("a size of queues")
}

fn take(memory: RecordedMemory) -> RecordedMemory {
    let mut queue = waiting(memory, 1);
    assert!(matches!(queue.poll(), Some(Completion::Sent { .. })), "one waits");
    assert_eq!(queue.poll(), None);
    queue.seam().clone()
}

fn arm(memory: RecordedMemory) -> RecordedMemory {
    let mut queue = waiting(memory, 0);
    queue.arm(false);
    queue.arm(true);
    queue.seam().clone()
}
