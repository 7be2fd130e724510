//! What a reliable connection executes, and how it ends.

use crate::raw::{Data, Failure, RemoteMemory};

/// The tag of a receive's completion; tags of operations have 32 bits.
pub(crate) const RECEIVE: u64 = u64::MAX;

/// What an operation does. Atomics are atomic with those of all connections of the peer's adapter, and with nothing else:
/// not with its processor's instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RcOperation {
    /// Writes the memory here to that of the peer. Complete when the peer's adapter has it.
    Write,
    /// Writes, then the peer's adapter reports this value, if the peer's connections have receives
    /// (`RcOptions::receives`).
    WriteImmediate(u32),
    /// Reads the memory of the peer to that here.
    Read,
    /// Adds this to 64 bits of the peer, in its byte order; wraps around. The memory here gets their old value.
    FetchAdd(u64),
    /// Replaces 64 bits of the peer by `swap` if they are `compare`. The memory here gets their old value.
    CompareSwap {
        /// The value that is replaced.
        compare: u64,
        /// The new value.
        swap: u64,
    },
}

impl RcOperation {
    pub(crate) const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd(_) | Self::CompareSwap { .. })
    }
}

/// An operation to post.
#[derive(Clone, Copy, Debug)]
pub struct RcRequest {
    /// What it does.
    pub operation: RcOperation,
    /// Registered memory here.
    pub local: Data,
    /// As many bytes of the peer.
    pub remote: RemoteMemory,
}

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RcCompletion {
    /// The end of an operation that was posted here.
    Operation {
        /// The queue pair number of its connection's end here.
        qpn: u32,
        /// The tag that it was posted with.
        tag: u32,
        /// Whether it was executed; a write or an atomic that failed may have been, in part or whole.
        result: Result<(), Failure>,
    },
    /// A peer has written bytes, which are in place, with an immediate.
    Immediate {
        /// The queue pair number of the connection's end here.
        qpn: u32,
        /// The immediate.
        value: u32,
        /// How many bytes were written.
        bytes: u32,
    },
}

/// Work that has ended, as an adapter reports it.
#[derive(Clone, Copy, Debug)]
pub struct EndedWork {
    /// As it was posted; all ones of a receive.
    pub tag: u64,
    /// Whether it succeeded.
    pub result: Result<(), Failure>,
    /// The queue pair number of its connection's end here.
    pub qpn: u32,
    /// The immediate, of a write with one that has arrived.
    pub immediate: Option<u32>,
    /// Bytes that have arrived.
    pub bytes: u32,
}

impl EndedWork {
    /// What it means. `None`: of a receive that reports nothing, since its write failed, or since a peer has sent a
    /// message.
    pub fn completion(self) -> Option<RcCompletion> {
        let Self { tag, result, qpn, immediate, bytes } = self;
        if tag != RECEIVE {
            return Some(RcCompletion::Operation { qpn, tag: tag as u32, result });
        }
        let value = immediate.filter(|_| result.is_ok())?;
        Some(RcCompletion::Immediate { qpn, value, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_work_is_a_completion_unless_it_is_a_receive_of_nothing() {
        let work = |tag, result, immediate| EndedWork { tag, result, qpn: 5, immediate, bytes: 9 };
        let ended = |tag, result| Some(RcCompletion::Operation { qpn: 5, tag, result });
        assert_eq!(work(7, Ok(()), None).completion(), ended(7, Ok(())));
        let refused = Err(Failure::RemoteAccess);
        assert_eq!(work(u32::MAX.into(), refused, None).completion(), ended(u32::MAX, refused));
        let arrived = Some(RcCompletion::Immediate { qpn: 5, value: 3, bytes: 9 });
        assert_eq!(work(RECEIVE, Ok(()), Some(3)).completion(), arrived);
        assert_eq!(work(RECEIVE, Ok(()), None).completion(), None, "a message of a peer");
        assert_eq!(work(RECEIVE, Err(Failure::Flushed), Some(3)).completion(), None, "its write failed");
    }
}
