//! Queue pairs of the software adapter.

/// The queues of a queue pair, by their numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queues {
    pub(super) send: usize,
    pub(super) receive: usize,
    pub(super) send_to: usize,
    pub(super) receive_to: usize,
    pub(super) receive_entries: usize,
}

/// A queue pair that can send and receive.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) port: u32,
    pub(super) queues: Queues,
    /// Executed blocks.
    pub(super) sent: u16,
    /// Receive entries used.
    pub(super) received: u16,
    pub(super) failed: bool,
}

impl Pair {
    pub(super) const fn new(port: u32, queues: Queues) -> Self {
        Self { port, queues, sent: 0, received: 0, failed: false }
    }
}
