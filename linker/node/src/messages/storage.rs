//! Storage of the messages of a node.

use core::marker::PhantomData;

use heapless::{Vec, VecView};
use unisono_core::message::collective_transport::{CollectivePeer, Entry};
use unisono_core::message::matching::{self, PostedReceive, RecordData, Unexpected};
use unisono_core::message::point_to_point::{self, MessageBody, MessagePeer, ReceiveBody};
use unisono_core::messenger::{MessengerStorage, QueuedMessage, ReceiveOp, SendOp};
use unisono_shmem::am_header::SHORT_BYTES;

use super::Channel;
use super::memory::Record;
use super::remote_access::{AccessSlices, AccessStorage};
use super::rings::Fragments;

/// Bytes of a slot, for an eager message that is longer than short and waits for its receive.
pub const SLOT: usize = 4096;
/// Headers that wait for room in rings.
const QUEUE: usize = 64;

/// Records in borrowed slices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Records<'a>(PhantomData<&'a mut ()>);

impl<'a, R: RecordData + 'a, M: RecordData + 'a> matching::MatchingStorage<R, M> for Records<'a> {
    type Receives = &'a mut [PostedReceive<R>];
    type Messages = &'a mut [Unexpected<M>];
    type Buckets = &'a mut [u32];
}

impl<'a> point_to_point::MessageStorage for Records<'a> {
    type Sends = &'a mut [point_to_point::SendRecord];
    type Peers = &'a mut [MessagePeer];
    type Slots = &'a mut [u32];
}

impl<'a> MessengerStorage for Records<'a> {
    type SendOps = &'a mut [SendOp];
    type ReceiveOps = &'a mut [ReceiveOp];
    type Outbox = &'a mut [QueuedMessage];
    type CollectivePeers = &'a mut [CollectivePeer];
    type CollectiveEntries = &'a mut [Entry];
}

/// A [`MessageStorage`]'s memory.
#[derive(Debug)]
pub struct StorageSlices<'a> {
    pub(super) receives: &'a mut [PostedReceive<ReceiveBody>],
    pub(super) messages: &'a mut [Unexpected<MessageBody>],
    pub(super) sends: &'a mut [point_to_point::SendRecord],
    pub(super) peers: &'a mut [MessagePeer],
    pub(super) slots: &'a mut [u32],
    pub(super) buckets: [&'a mut [u32]; 3],
    pub(super) short_payloads: &'a mut [[u8; SHORT_BYTES]],
    pub(super) pool: &'a mut [[u8; SLOT]],
    pub(super) channels: &'a mut VecView<Channel<'a>>,
    pub(super) requests: &'a mut [Record<'a>],
    pub(super) send_ops: &'a mut [SendOp],
    pub(super) receive_ops: &'a mut [ReceiveOp],
    pub(super) outbox: &'a mut [QueuedMessage],
    pub(super) fragments: [&'a mut [Option<Fragments>]; 2],
    pub(super) access: AccessSlices<'a>,
}

/// Memory for the messages of a node: for `RANKS` ranks at most, the node included; `MESSAGES` unexpected ones, at
/// least [`unexpected_per_peer`](unisono_shmem::am_header::unexpected_per_peer) for each rank, of some 1.2 KiB each;
/// `REQUESTS` that are being sent or received; `SLOTS` longer unexpected ones.
///
/// All zeros until it is used, so that a static takes no room in the image. It stays borrowed for its whole lifetime.
#[derive(Debug)]
pub struct MessageStorage<'a, const RANKS: usize, const MESSAGES: usize, const REQUESTS: usize, const SLOTS: usize> {
    receives: Vec<PostedReceive<ReceiveBody>, REQUESTS>,
    messages: Vec<Unexpected<MessageBody>, MESSAGES>,
    sends: Vec<point_to_point::SendRecord, REQUESTS>,
    peers: Vec<MessagePeer, RANKS>,
    slots: [u32; SLOTS],
    request_buckets: [[[u32; 4]; REQUESTS]; 2],
    unexpected_buckets: [[u32; 4]; MESSAGES],
    short_payloads: [[u8; SHORT_BYTES]; MESSAGES],
    pool: [[u8; SLOT]; SLOTS],
    channels: Vec<Channel<'a>, RANKS>,
    requests: Vec<Record<'a>, REQUESTS>,
    send_ops: Vec<SendOp, REQUESTS>,
    receive_ops: Vec<ReceiveOp, REQUESTS>,
    outbox: Vec<QueuedMessage, QUEUE>,
    fragments: [Vec<Option<Fragments>, REQUESTS>; 2],
    access: AccessStorage<'a, RANKS>,
}

impl<'a, const RANKS: usize, const MESSAGES: usize, const REQUESTS: usize, const SLOTS: usize>
    MessageStorage<'a, RANKS, MESSAGES, REQUESTS, SLOTS>
{
    /// Unused storage.
    pub const fn new() -> Self {
        const { assert!(REQUESTS >= 2 && MESSAGES >= 2) };
        Self {
            receives: Vec::new(),
            messages: Vec::new(),
            sends: Vec::new(),
            peers: Vec::new(),
            slots: [0; SLOTS],
            request_buckets: [[[0; 4]; REQUESTS]; 2],
            unexpected_buckets: [[0; 4]; MESSAGES],
            short_payloads: [[0; SHORT_BYTES]; MESSAGES],
            pool: [[0; SLOT]; SLOTS],
            channels: Vec::new(),
            requests: Vec::new(),
            send_ops: Vec::new(),
            receive_ops: Vec::new(),
            outbox: Vec::new(),
            fragments: [Vec::new(), Vec::new()],
            access: AccessStorage::new(),
        }
    }

    /// Its memory.
    pub fn slices(&'a mut self) -> StorageSlices<'a> {
        let [posted, queued] = &mut self.request_buckets;
        StorageSlices {
            receives: fill(&mut self.receives, PostedReceive::default),
            messages: fill(&mut self.messages, Unexpected::default),
            sends: fill(&mut self.sends, || point_to_point::SendRecord::FREE),
            peers: fill(&mut self.peers, || MessagePeer::NEW),
            slots: &mut self.slots,
            buckets: [posted.as_flattened_mut(), self.unexpected_buckets.as_flattened_mut(), queued.as_flattened_mut()],
            short_payloads: &mut self.short_payloads,
            pool: &mut self.pool,
            channels: &mut self.channels,
            requests: fill(&mut self.requests, || Record::FREE),
            send_ops: fill(&mut self.send_ops, || SendOp::FREE),
            receive_ops: fill(&mut self.receive_ops, || ReceiveOp::FREE),
            outbox: fill(&mut self.outbox, || QueuedMessage::FREE),
            fragments: self.fragments.each_mut().map(|each| fill(each, || None)),
            access: self.access.slices(),
        }
    }
}

impl<const RANKS: usize, const MESSAGES: usize, const REQUESTS: usize, const SLOTS: usize> Default
    for MessageStorage<'_, RANKS, MESSAGES, REQUESTS, SLOTS>
{
    fn default() -> Self {
        Self::new()
    }
}

/// Fills a pool in place: an array would be built on the stack.
pub(super) fn fill<T, const COUNT: usize>(pool: &mut Vec<T, COUNT>, unused: impl Fn() -> T) -> &mut [T] {
    while !pool.is_full() {
        let _ = pool.push(unused());
    }
    pool
}
