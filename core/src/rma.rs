//! Remote memory access (RMA): reads, writes, atomic operations and accumulates on memory of a peer, over the reliable
//! messages of an [endpoint](crate::endpoint).
//!
//! Mamidala's dissertation (2008), ch. 8, emulates RDMA over unreliable datagrams; this adds keys, refusals and bounded
//! memory at the target. A request is a message, executed when the endpoint accepts it in order: exactly once, without
//! a cache of answers, since the endpoint repeats an answer until it is acknowledged.
//!
//! - **Regions** ([`region`]): peers name memory by an index, a 64-bit key and an offset. [`RegionTable::check`] is the
//!   only check. A revoked region is free when no accepted request uses it any more.
//! - **Writes** of any length are messages of their own: each is checked, placed and forgotten, so that a peer that may
//!   write costs nothing. The target reports the first of the refused ones and their number.
//! - **Reads, atomic operations, accumulates and writes with immediate** take an entry of the target's pool until they
//!   are answered. If there is none, the request is dropped, and so are the later ones of that requester; once an entry
//!   is reserved for it, the target asks for the request again. So a requester holds no memory of a target before it
//!   asks, and never more than the pool. Its limit of unanswered requests falls to one, and grows by one per answer.
//! - **Long reads** are answered by placement into memory that the reader granted, others by one message.
//! - **Blocks** at a constant distance ([`stride`]) are read and updated by one request, through a staging slot.
//! - **Flush** is answered after all earlier writes were placed, or refused and reported.
//! - **Answers go first**: a request of this process never delays the answer to one of a peer.
//! - **Solicited**: reads, updates and flushes, which their requesters wait for, wake a blocked target. A write alone does
//!   not.
//!
//! # Calling contract
//! - The messages of a peer whose first byte is [`FIRST`](header::FIRST) to [`LAST`](header::LAST) go to
//!   [`handle`](Rma::handle), in order, each once; the result is carried out before any other call.
//! - [`poll_action`](Rma::poll_action) is called while the endpoint has room for an operation; each action is carried
//!   out at once, in the order of return. When the endpoint has completed its message or placement, the host reports
//!   its [`Owner`] to [`handle_completed`](Rma::handle_completed).
//! - [`disconnect`](Rma::disconnect) when a peer failed or finished, before [`connect`](Rma::connect) for its next
//!   incarnation.
//!
//! Calls take constant time apart from [`disconnect`](Rma::disconnect), which visits all records, and an answer or a
//! flush, which visits the unanswered operations of its target.

pub mod atomic;
pub mod header;
pub mod operation;
pub mod region;
pub mod stride;

mod initiator;
mod target;

#[cfg(test)]
mod tests;

use core::fmt::Debug;

use crate::ids::{PeerId, PlacementId, RemoteKey};
use crate::pool::Pool;
use crate::span::Span;

pub use self::initiator::TargetState;
pub use self::operation::{OperationRecord, RmaCall, RmaCompletion, RmaError, RmaOperationId, RmaStartError};
pub use self::region::{RKey, RegionRecord, RegionTable, RemoteSpan, Rights};
pub use self::target::{Entry, RequesterState, Staging};

use self::atomic::AtomicOperation;
use self::header::{ElementUpdate, ReadPlacement, RmaBytes, RmaHeader};
use self::initiator::Initiator;
use self::region::Refusal;
use self::stride::Stride;
use self::target::Target;

/// What the host does with a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arrival {
    /// Nothing.
    Nothing,
    /// Copies its bytes from `start` on to `to`, at once.
    Place {
        /// The destination.
        to: Span,
        /// First byte of the message that is copied.
        start: u16,
    },
    /// Closes the peer: no correct one sends this.
    Violation,
}

/// What the completion of a message or placement ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owner {
    /// Nothing.
    Nothing,
    /// A use of memory by an operation of this process.
    Operation(RmaOperationId),
    /// A use of memory by an answer.
    Entry(u16),
}

/// What the host executes: the machine touches no memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Execution {
    /// Updates the word, atomically for all executors of this memory.
    Atomic(AtomicOperation),
    /// Combines the staged elements with memory; with `fetch`, leaves the old values in their place.
    Accumulate {
        /// The staged elements.
        from: Span,
        /// How.
        update: ElementUpdate,
        /// Whether the old values are returned.
        fetch: bool,
        /// The blocks of memory that the elements lie in, the first one at its start; `None`: they are adjacent.
        stride: Option<Stride>,
    },
    /// Copies blocks of memory, the first one at its start, to the staging slot.
    Gather {
        /// The slot.
        into: Span,
        /// The blocks.
        stride: Stride,
    },
}

/// What the host has to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Sends a message.
    Send {
        /// The receiver.
        to: PeerId,
        /// Its header.
        head: RmaBytes,
        /// Its payload.
        payload: Option<Span>,
        /// What its completion ends.
        owner: Owner,
        /// Whether it wakes a blocked receiver.
        solicited: bool,
    },
    /// Grants memory, and reports it to [`handle_granted`](Rma::handle_granted).
    Grant {
        /// The peer that will write.
        from: PeerId,
        /// The memory.
        into: Span,
        /// The read.
        operation: RmaOperationId,
    },
    /// Writes to memory that a reader granted.
    Place {
        /// The reader.
        to: PeerId,
        /// Its grant.
        placement: PlacementId,
        /// The key of the grant.
        key: RemoteKey,
        /// The bytes.
        from: Span,
        /// What its completion ends.
        owner: Owner,
    },
    /// Executes a request, and reports it to [`handle_executed`](Rma::handle_executed).
    Execute {
        /// The entry that waits for it.
        entry: u16,
        /// The memory, from the first byte to the last.
        at: Span,
        /// What to execute.
        what: Execution,
    },
    /// Nothing: the host polls again.
    Idle,
}

/// A value that a peer wrote with its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Immediate {
    /// The peer.
    pub from: PeerId,
    /// The value.
    pub value: u32,
    /// Bytes of the last message of the write.
    pub bytes: u32,
}

/// The memory of the machine's records.
pub trait RmaStorage: Debug {
    /// Regions, at most 65 536.
    type Regions: Pool<RegionRecord>;
    /// Operations, at most 65 536.
    type Operations: Pool<OperationRecord>;
    /// One record per peer.
    type Targets: Pool<TargetState>;
    /// Requests of peers, at most 65 536.
    type Entries: Pool<Entry>;
    /// One record per peer.
    type Requesters: Pool<RequesterState>;
}

/// The records, each in its unused state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RmaPools<S: RmaStorage> {
    /// [`RegionRecord::FREE`].
    pub regions: S::Regions,
    /// [`OperationRecord::FREE`].
    pub operations: S::Operations,
    /// [`TargetState::FREE`].
    pub targets: S::Targets,
    /// [`Entry::FREE`].
    pub entries: S::Entries,
    /// [`RequesterState::FREE`].
    pub requesters: S::Requesters,
}

/// One process's remote memory access, in both roles. See the [module](self) for the calling contract.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rma<S: RmaStorage> {
    /// The regions of this process.
    pub regions: RegionTable<S::Regions>,
    initiator: Initiator<S::Operations, S::Targets>,
    target: Target<S::Entries, S::Requesters>,
}

impl<S: RmaStorage> Rma<S> {
    /// Without peers. `outstanding`: most requests of one target without an answer.
    pub fn new(pools: RmaPools<S>, outstanding: u8, staging: Staging) -> Self {
        Self {
            regions: RegionTable::new(pools.regions),
            initiator: Initiator::new(pools.operations, pools.targets, outstanding),
            target: Target::new(pools.entries, pools.requesters, staging),
        }
    }

    /// Makes room for more peers; the records of the present ones are copied. A host that numbers peers when they first
    /// take part has no records of the others. False, and nothing was done: these are not more.
    pub fn grow_peers(&mut self, targets: S::Targets, requesters: S::Requesters) -> bool {
        let (before, after) = (self.initiator.targets().max(self.target.requesters()), targets.as_ref().len());
        after > before
            && after == requesters.as_ref().len()
            && self.initiator.grow_targets(targets)
            && self.target.grow_requesters(requesters)
    }

    /// Adds a peer to which messages of `room` bytes, header included, can be sent: at least 64.
    pub fn connect(&mut self, peer: PeerId, room: u32) {
        let room = room.max(64);
        self.initiator.connect(peer, room);
        self.target.connect(peer, room);
    }

    /// The peer failed, finished, or was replaced.
    pub fn disconnect(&mut self, peer: PeerId) {
        self.initiator.disconnect(peer);
        self.target.disconnect(&mut self.regions, peer);
    }

    /// Starts an operation. Ends with [`poll_completion`](Self::poll_completion).
    ///
    /// # Errors
    /// [`RmaStartError`]; nothing was started.
    pub fn start(&mut self, call: &RmaCall) -> Result<RmaOperationId, RmaStartError> {
        self.initiator.start(call)
    }

    /// Handles a message of `bytes` bytes, whose first ones are `head`: at least 40, or all.
    pub fn handle(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Arrival {
        match RmaHeader::parse(head, bytes) {
            Some(header) if header.is_answer() => self.initiator.handle(from, &header),
            Some(header) => self.target.handle(&mut self.regions, from, &header),
            None => Arrival::Violation,
        }
    }

    /// What the host has to do next. `can_grant`: the endpoint has room for a grant.
    pub fn poll_action(&mut self, can_grant: bool) -> Option<Action> {
        if mutant!("rma_answer_waits") && self.initiator.has_queued() {
            return self.initiator.poll_action(can_grant);
        }
        self.target.poll_action(&mut self.regions).or_else(|| self.initiator.poll_action(can_grant))
    }

    /// The endpoint has completed a message or placement; `delivered`: without an error.
    pub fn handle_completed(&mut self, owner: Owner, delivered: bool) {
        match owner {
            Owner::Nothing => {}
            Owner::Operation(operation) => self.initiator.handle_completed(operation, delivered),
            Owner::Entry(entry) => self.target.handle_completed(&mut self.regions, entry, delivered),
        }
    }

    /// Memory was granted for a read; `None`: the peer has failed.
    pub fn handle_granted(&mut self, operation: RmaOperationId, grant: Option<ReadPlacement>) {
        self.initiator.handle_granted(operation, grant);
    }

    /// This many bytes of a read are in place under its grant.
    pub fn handle_placed(&mut self, operation: RmaOperationId, bytes: u32) {
        self.initiator.handle_placed(operation, bytes);
    }

    /// A request was executed: of an atomic operation, with the old value.
    pub fn handle_executed(&mut self, entry: u16, result: Result<Option<u64>, Refusal>) {
        self.target.handle_executed(&mut self.regions, entry, result);
    }

    /// The next operation that has ended.
    pub fn poll_completion(&mut self) -> Option<RmaCompletion> {
        self.initiator.poll_completion()
    }

    /// The next value that a peer wrote with its data. Values that are not taken keep their entries.
    pub fn poll_immediate(&mut self) -> Option<Immediate> {
        self.target.poll_immediate()
    }

    /// The records in use.
    pub fn in_use(&self) -> RmaUsage {
        RmaUsage { regions: self.regions.in_use(), operations: self.initiator.in_use(), entries: self.target.in_use() }
    }
}

/// Number of records in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RmaUsage {
    /// Regions, those being revoked included.
    pub regions: usize,
    /// Operations that have not ended, or whose completion was not polled.
    pub operations: usize,
    /// Requests of peers.
    pub entries: usize,
}
