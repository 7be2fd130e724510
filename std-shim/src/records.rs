//! Where a process keeps the records of an endpoint and of its messages: boxed slices.

use unisono_core::endpoint::{Endpoint, Notice, Pools, Sender};
use unisono_core::message::admission::{self, Admission};
use unisono_core::message::matching::{self, Body, Kept, Posted};
use unisono_core::operation::Operation;
use unisono_core::peer::Peer;
use unisono_core::placement::Placement;
use unisono_core::receive_window::ReceiveWindow;
use unisono_core::storage::Storage;
use unisono_core::time::Nanos;

/// Segments of a window in processes.
pub const WINDOW: usize = 256;

/// The endpoint of a process.
pub type ProcessEndpoint = Endpoint<Boxed, WINDOW, 32>;

/// Records in boxed slices, time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Boxed;

impl<const W: usize> Storage<W, 32> for Boxed {
    type Time = Nanos;
    type Peers = Box<[Peer<Nanos, 32>]>;
    type Senders = Box<[Sender<Nanos, W, 32>]>;
    type Receivers = Box<[ReceiveWindow<W>]>;
    type Operations = Box<[Operation]>;
    type Placements = Box<[Placement]>;
    type Notices = Box<[Notice]>;
}

/// How many records of each kind an endpoint gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Ranks of the job.
    pub peers: usize,
    /// Peers that can have something unacknowledged, or a gap, at a time; at most 65 535.
    pub windows: usize,
    /// Operations that can be under way.
    pub operations: usize,
    /// Grants that can be out.
    pub placements: usize,
    /// Control datagrams that can wait.
    pub notices: usize,
}

impl Sizes {
    /// What suits a job of `peers` ranks: windows for up to 256 of them at a time.
    pub fn of_job(peers: usize) -> Self {
        Self { peers, windows: peers.clamp(1, 256), operations: 4096, placements: 1024, notices: 64 }
    }

    /// The records, all unused.
    pub fn pools<const W: usize>(&self) -> Pools<Boxed, W, 32> {
        Pools {
            peers: vec![Peer::UNMET; self.peers].into(),
            senders: vec![Sender::FREE; self.windows].into(),
            receivers: vec![ReceiveWindow::EMPTY; self.windows].into(),
            operations: vec![Operation::FREE; self.operations].into(),
            placements: vec![Placement::FREE; self.placements].into(),
            notices: vec![Notice::FREE; self.notices].into(),
        }
    }
}

/// The messages of a process.
pub type ProcessMessages = Admission<BoxedMessages>;

/// Records in boxed slices.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoxedMessages;

impl<R: Body, M: Body> matching::Storage<R, M> for BoxedMessages {
    type Receives = Box<[Posted<R>]>;
    type Messages = Box<[Kept<M>]>;
    type Buckets = Box<[u32]>;
}

impl admission::Storage for BoxedMessages {
    type Sends = Box<[admission::Send]>;
    type Peers = Box<[admission::Peer]>;
    type Slots = Box<[u32]>;
}

/// Hash buckets for so many records.
pub fn buckets(records: usize) -> Box<[u32]> {
    vec![0; records * 4 + 8].into()
}
