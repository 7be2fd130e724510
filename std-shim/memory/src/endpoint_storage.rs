//! Heap storage of a process's endpoint and of its point-to-point messages: boxed slices.

use unisono_core::endpoint::operation::Operation;
use unisono_core::endpoint::peer::Peer;
use unisono_core::endpoint::placement::Placement;
use unisono_core::endpoint::storage::Storage;
use unisono_core::endpoint::{ControlMessage, Endpoint, Pools, Sender};
use unisono_core::message::collective_transport::{CollectivePeer, Entry};
use unisono_core::message::matching::{self, PostedReceive, RecordData, Unexpected};
use unisono_core::message::point_to_point::{self, PointToPoint};
use unisono_core::messenger::{Messenger, MessengerStorage, QueuedMessage, ReceiveOp, SendOp};
use unisono_core::time::Nanos;
use unisono_core::window::rails::{MAX_RAILS, RailState};
use unisono_core::window::receive_window::ReceiveWindow;

/// Segments of a send or receive window.
pub const WINDOW: usize = 256;

/// The endpoint of a process.
pub type ProcessEndpoint = Endpoint<BoxedStorage, WINDOW, 32>;

/// Records in boxed slices, time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BoxedStorage;

impl<const W: usize> Storage<W, 32> for BoxedStorage {
    type Time = Nanos;
    type Peers = Box<[Peer<Nanos, 32>]>;
    type Senders = Box<[Sender<Nanos, W, 32>]>;
    type Rails = Box<[RailState<Nanos>]>;
    type Receivers = Box<[ReceiveWindow<W>]>;
    type Operations = Box<[Operation]>;
    type Placements = Box<[Placement]>;
    type ControlMessages = Box<[ControlMessage]>;
}

/// The number of records of each kind that an endpoint gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointSizes {
    /// Ranks of the job.
    pub peers: usize,
    /// Send and receive windows: peers that can have unacknowledged segments or a gap at a time; at most 65 535. The
    /// initial number if the pool grows.
    pub windows: usize,
    /// Operations in progress at a time.
    pub operations: usize,
    /// Clear-to-send grants outstanding at a time.
    pub placements: usize,
    /// Control datagrams queued at a time.
    pub control_messages: usize,
    /// Rails to each peer, at most [`MAX_RAILS`].
    pub rails: usize,
}

impl EndpointSizes {
    /// Sizes for a job of `peers` ranks: windows for up to 256 of them at a time.
    pub fn of_job(peers: usize) -> Self {
        Self { peers, windows: peers.clamp(1, 256), operations: 4096, placements: 1024, control_messages: 64, rails: 1 }
    }

    /// As [`of_job`](Self::of_job), with windows for the first few active peers only; [`grow_windows`] adds windows as
    /// more peers become active.
    pub fn growing(peers: usize) -> Self {
        Self { windows: FIRST_WINDOWS, ..Self::of_job(peers) }
    }

    /// The same for a device with this number of rails; those beyond [`MAX_RAILS`] stay unused.
    #[must_use]
    pub fn with_rails(self, rails: u8) -> Self {
        Self { rails: usize::from(rails.clamp(1, MAX_RAILS)), ..self }
    }

    /// The records, all unused.
    pub fn pools<const W: usize>(&self) -> Pools<BoxedStorage, W, 32> {
        Pools {
            peers: vec![Peer::UNKNOWN; self.peers].into(),
            senders: vec![Sender::FREE; self.windows].into(),
            rails: vec![RailState::FREE; rail_records(self.windows, self.rails)].into(),
            receivers: vec![ReceiveWindow::EMPTY; self.windows].into(),
            operations: vec![Operation::FREE; self.operations].into(),
            placements: vec![Placement::FREE; self.placements].into(),
            control_messages: vec![ControlMessage::FREE; self.control_messages].into(),
        }
    }
}

/// Records of the rails of these windows; one rail needs none.
const fn rail_records(windows: usize, rails: usize) -> usize {
    if rails > 1 { windows * rails } else { 0 }
}

/// Windows of a growing pool: initial and maximum number.
const FIRST_WINDOWS: usize = 8;
const WINDOWS_MAX: usize = 256;

/// Doubles an endpoint's windows when all are in use, up to 256: memory follows the active peers, not the known ones.
/// Two comparisons when there is nothing to do.
#[inline]
pub fn grow_windows<const W: usize>(endpoint: &mut Endpoint<BoxedStorage, W, 32>, now: u64) {
    if endpoint.lacks_windows() {
        double_windows(endpoint, now);
    }
}

#[cold]
fn double_windows<const W: usize>(endpoint: &mut Endpoint<BoxedStorage, W, 32>, now: u64) {
    let count = usize::from(endpoint.rails());
    endpoint.add_windows(now, |senders, rails, receivers| {
        double(senders, Sender::FREE);
        grow(rails, rail_records(senders.len(), count), RailState::FREE);
        double(receivers, ReceiveWindow::EMPTY);
    });
}

fn double<R: Clone>(records: &mut Box<[R]>, unused: R) {
    let larger = (records.len() * 2).min(WINDOWS_MAX);
    grow(records, larger, unused);
}

fn grow<R: Clone>(records: &mut Box<[R]>, larger: usize, unused: R) {
    if records.len() < larger {
        let mut more = core::mem::take(records).into_vec();
        more.reserve_exact(larger - more.len());
        more.resize(larger, unused);
        *records = more.into();
    }
}

/// The point-to-point messages of a process.
pub type ProcessMessages = PointToPoint<BoxedMessageStorage>;

/// The messages of a process, of both classes.
pub type ProcessMessenger = Messenger<BoxedMessageStorage>;

/// Records in boxed slices.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoxedMessageStorage;

impl<R: RecordData, M: RecordData> matching::MatchingStorage<R, M> for BoxedMessageStorage {
    type Receives = Box<[PostedReceive<R>]>;
    type Messages = Box<[Unexpected<M>]>;
    type Buckets = Box<[u32]>;
}

impl point_to_point::MessageStorage for BoxedMessageStorage {
    type Sends = Box<[point_to_point::SendRecord]>;
    type Peers = Box<[point_to_point::MessagePeer]>;
    type Slots = Box<[u32]>;
}

impl MessengerStorage for BoxedMessageStorage {
    type SendOps = Box<[SendOp]>;
    type ReceiveOps = Box<[ReceiveOp]>;
    type Outbox = Box<[QueuedMessage]>;
    type CollectivePeers = Box<[CollectivePeer]>;
    type CollectiveEntries = Box<[Entry]>;
}

/// Empty hash buckets for a table of `records` records.
pub fn buckets(records: usize) -> Box<[u32]> {
    vec![0; records * 4 + 8].into()
}

#[cfg(test)]
mod tests {
    use unisono_core::device::{DeviceQueue, Limits, Ticket};
    use unisono_core::endpoint::{Config, Handler, Verdict};
    use unisono_core::ids::{Incarnation, PeerId};

    use super::*;

    struct NullHandler;

    impl Handler for NullHandler {
        fn handle_eager(&mut self, _: PeerId, _: &[u8], _: u32) -> Verdict {
            Verdict::Release
        }
    }

    #[test]
    fn windows_grow_with_active_peers() {
        const PEERS: u32 = 40;
        let limits = Limits {
            mtu: 1024,
            receive_slots: 64,
            holdable: 16,
            granularity_ns: 1000,
            lossless: true,
            interrupts: false,
            rails: 1,
            groups: 0,
        };
        let config = Config::new(PeerId(0), Incarnation(1), &limits);
        let mut endpoint = ProcessEndpoint::new(0, config, EndpointSizes::growing(4096).pools());
        for peer in 1..=PEERS {
            endpoint.add_peer(0, PeerId(peer), Incarnation(peer + 1), limits.mtu);
            endpoint.send(0, PeerId(peer), b"head", None).expect("an operation is free");
        }
        let mut reached = [false; 1 + PEERS as usize];
        let mut ticket = Ticket::default();
        let mut send_all = |endpoint: &mut ProcessEndpoint| {
            endpoint.transmit_batch(0, DeviceQueue::Polled, &mut NullHandler, |batch| {
                while let Some(transmit) = batch.poll_transmit(ticket.next(), &mut [0; 64]) {
                    let peer = transmit.to.on_first_rail().expect("a peer");
                    (ticket, reached[peer.0 as usize]) = (ticket.next(), true);
                }
            });
            reached.iter().filter(|reached| **reached).count()
        };
        let mut windows = FIRST_WINDOWS;
        while windows < PEERS as usize {
            assert_eq!(send_all(&mut endpoint), windows);
            grow_windows(&mut endpoint, 0);
            windows *= 2;
        }
        assert_eq!(send_all(&mut endpoint), PEERS as usize);
        assert!(!endpoint.lacks_windows(), "64 windows, 40 peers");
    }
}
