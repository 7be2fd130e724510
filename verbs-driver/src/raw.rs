//! The core's device over queue pairs whose queues are ours: what mlx5 and Soft-RoCE have in common.
//!
//! [`QueuePair`] is what an adapter's queues can do; [`Raw`] is the device over one or two of them. The queue pair is made,
//! connected and rebuilt by whoever owns it.

mod device;
mod receive_buffers;
mod source;

pub use device::{Counts, INLINE_MAX, Options, Raw, RawDatagram, RawToken, Slabs};
pub use receive_buffers::Buffer;
pub use source::{GRH, Origin, Path, Source};

use unisono_core::device::Lane;

/// A piece of registered memory that the adapter reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Data {
    /// Where it lies, as the adapter counts: virtual for ordinary keys.
    pub address: u64,
    /// How long it is. Of what is sent, a piece of 0 bytes is left out.
    pub bytes: u32,
    /// What it is registered under.
    pub key: u32,
}

/// What a datagram carries.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// The adapter reads these pieces, one behind the other.
    Gather(&'a [Data]),
    /// These bytes, one piece behind the other, are copied to the entry.
    Inline(&'a [&'a [u8]]),
}

/// Why an entry failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// The datagram is longer than the memory, or than a datagram may be.
    Length,
    /// The entry makes no sense.
    Operation,
    /// A key does not cover an address.
    Protection,
    /// The queue pair had failed before.
    Flushed,
    /// Another one, as the adapter calls it.
    Other(u32),
}

impl Failure {
    /// As verbs number them (`ibv_wc_status`); `None` is success.
    pub const fn of(status: u32) -> Option<Self> {
        Some(match status {
            0 => return None,
            1 => Self::Length,
            2 => Self::Operation,
            4 => Self::Protection,
            5 => Self::Flushed,
            other => Self::Other(other),
        })
    }
}

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate<T> {
    /// It is done.
    Done(T),
    /// It failed, and its queue pair with it. Its tag, if it can be told.
    Failed(Option<u32>, Failure),
    /// Nothing that can be.
    Malformed,
}

/// A datagram that came into lent memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Got {
    /// Of that memory.
    pub tag: u32,
    /// Bytes, the [`GRH`] in front included.
    pub bytes: u32,
    /// What its completion says of its sender.
    pub origin: Origin,
}

/// A queue pair of unreliable datagrams, with its completion queues.
pub trait QueuePair {
    /// The way to a peer.
    type Path: Path;

    /// Most datagrams that memory can be lent for.
    fn receive_entries(&self) -> usize;
    /// Whether a datagram can be posted, of two pieces or so many bytes inline.
    fn has_room(&mut self, inline: usize) -> bool;
    /// Whether no posting is outstanding.
    fn is_idle(&self) -> bool;
    /// Posts a datagram to a lane of the peer. Says whether there was room.
    fn post(&mut self, to: (&Self::Path, Lane), payload: Payload<'_>, solicited: bool, tag: u32) -> bool;
    /// Hands all postings to the adapter. If it is asked, [`sent`](Self::sent) gives the last one's tag when that is complete.
    fn flush(&mut self, signal: bool);
    /// Up to which posting all are done.
    fn sent(&mut self) -> Option<Fate<u32>>;
    /// Lends memory for a datagram and the [`GRH`] in front. Says whether there was room.
    fn lend(&mut self, data: Data, tag: u32) -> bool;
    /// Tells the adapter of all lent memory.
    fn flush_lent(&mut self);
    /// The next datagram.
    fn received(&mut self) -> Option<Fate<Got>>;
    /// Whether a datagram waits.
    fn has_news(&mut self) -> bool;
    /// Asks for an event at the next datagram, or the next that was solicited.
    fn arm(&mut self, solicited: bool);
    /// An event has come.
    fn saw_event(&mut self);
    /// Forgets everything, as the adapter does when the queue pair is reset.
    fn reset(&mut self);
}
