//! The core's device over queue pairs whose work queues the driver writes itself: the common part of mlx5 and
//! Soft-RoCE.
//!
//! [`QueuePair`] is the interface to an adapter's queues; [`Raw`] is the device over one or two of them. The owner of
//! the queue pair creates, connects and rebuilds it.

mod device;
mod receive_buffers;
mod source;

pub use device::{Counts, INLINE_MAX, Raw, RawDatagram, RawOptions, RawToken, Slabs};
pub use receive_buffers::ReceiveBuffer;
pub use source::{GRH, Origin, PeerPath, Source};

use unisono_core::device::DeviceQueue;

/// A piece of registered memory that the adapter reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Data {
    /// Its address as the adapter sees it: virtual for ordinary keys.
    pub address: u64,
    /// Its length. Pieces of 0 bytes are left out of a send.
    pub bytes: u32,
    /// Its lkey.
    pub key: u32,
}

/// Memory of a peer that the adapter writes or reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RemoteMemory {
    /// Its address there.
    pub address: u64,
    /// Its rkey.
    pub key: u32,
}

/// The payload of a datagram to send.
#[derive(Clone, Copy, Debug)]
pub enum SendPayload<'a> {
    /// The adapter gathers these pieces in order.
    Gather(&'a [Data]),
    /// These bytes are copied to the entry, in order.
    Inline(&'a [&'a [u8]]),
}

/// Why a work queue entry failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// The datagram is longer than the memory, or than a datagram may be.
    Length,
    /// The entry is invalid.
    Operation,
    /// A key does not cover an address.
    Protection,
    /// The queue pair had failed before.
    Flushed,
    /// The peer's adapter does not execute such an operation.
    RemoteOperation,
    /// The peer's adapter refused the access: no such key, out of its bounds, or without that right.
    RemoteAccess,
    /// The peer's adapter did not acknowledge in time.
    NoAnswer,
    /// Another failure, by the adapter's code.
    Other(u32),
}

impl Failure {
    /// From a verbs status (`ibv_wc_status`); `None` is success.
    pub const fn of(status: u32) -> Option<Self> {
        Some(match status {
            0 => return None,
            1 => Self::Length,
            2 => Self::Operation,
            4 => Self::Protection,
            5 => Self::Flushed,
            9 => Self::RemoteOperation,
            10 => Self::RemoteAccess,
            12 => Self::NoAnswer,
            other => Self::Other(other),
        })
    }
}

/// The outcome of a work queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkResult<T> {
    /// It is done.
    Done(T),
    /// It failed, and its queue pair with it. Its tag, if known.
    Failed(Option<u32>, Failure),
    /// The completion is malformed.
    Malformed,
}

/// A received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// The tag of its receive entry.
    pub tag: u32,
    /// Bytes, the [`GRH`] in front included.
    pub bytes: u32,
    /// Its sender, as the completion states it.
    pub origin: Origin,
}

/// A queue pair of unreliable datagrams, with its completion queues.
pub trait QueuePair {
    /// The path to a peer.
    type Path: PeerPath;

    /// Number of receive entries.
    fn receive_entries(&self) -> usize;
    /// Whether a datagram of two pieces, or of `inline` bytes inline, can be posted.
    fn has_room(&mut self, inline: usize) -> bool;
    /// Whether no posting is outstanding.
    fn is_idle(&self) -> bool;
    /// Posts a datagram to a lane of the peer. Returns whether there was room.
    fn post(&mut self, to: (&Self::Path, DeviceQueue), payload: SendPayload<'_>, solicited: bool, tag: u32) -> bool;
    /// Rings the doorbell for all postings. With `signal`, [`sent`](Self::sent) returns the last one's tag when that is
    /// complete.
    fn flush(&mut self, signal: bool);
    /// The next send completion: the tag of a posting that is complete together with all before it.
    fn sent(&mut self) -> Option<WorkResult<u32>>;
    /// Posts a receive of memory for a datagram and the [`GRH`] in front. Returns whether there was room.
    fn post_receive(&mut self, data: Data, tag: u32) -> bool;
    /// Makes all posted receives visible to the adapter.
    fn flush_receives(&mut self);
    /// The next received datagram.
    fn received(&mut self) -> Option<WorkResult<Arrived>>;
    /// Whether a receive completion is available.
    fn has_arrival(&mut self) -> bool;
    /// Arms the completion queue: an event at the next datagram, or the next solicited one.
    fn arm(&mut self, solicited: bool);
    /// Records that an event has arrived.
    fn event_received(&mut self);
    /// Forgets all entries, as the adapter does when the queue pair is reset.
    fn reset(&mut self);
}
