//! The endpoint: reliable messages and placements between one process and all its peers, over an unreliable device.
//!
//! # Calling contract
//! - `now` never decreases.
//! - Datagrams come in through a [`ReceiveBatch`] and go out through a [`TransmitBatch`], of one datagram or more. A
//!   batch is committed when the closure that it is lent to returns. Its result does not depend on how datagrams are
//!   divided into batches.
//! - [`handle_round`](Endpoint::handle_round) ends every round of receiving and sending.
//! - [`poll_event`](Endpoint::poll_event) frees the record of the event that it returns.
//!
//! [`make_progress`](crate::progress::make_progress) does all of this for any device. Every call does a bounded amount
//! of work; the work per round is proportional to the active peers, never to the known ones.
//!
//! # A peer that contradicts itself
//! A peer is authenticated, but not trusted to be correct: memory errors and bugs exist. If it acknowledges a segment
//! that it does not have, both sides would wait for ever, because that segment has been released. The contradiction
//! shows in its later datagrams: it lacks released segments (or acknowledges unsent ones) in 16 datagrams in a row,
//! each a timeout after the one before, or does not acknowledge the oldest segment although that was resent 255 times.
//! The endpoint then closes it as failed and sends it an Abort. Late datagrams fail nobody: the first one that is not
//! late restarts the count.

mod ack_scheduler;
#[cfg(all(test, not(feature = "optimize_for_size")))]
mod batching;
mod config;
mod control;
mod events;
mod flow_control;
#[cfg(debug_assertions)]
mod invariants;
pub mod operation;
pub mod peer;
mod peer_state;
pub mod placement;
mod pool_usage;
mod receive;
mod receivers;
mod send;
mod sender;
mod shutdown;
pub mod storage;
mod timeout;
mod transmit;
mod window_pool;

pub use config::Config;
pub use control::ControlMessage;
pub use pool_usage::PoolUsage;
pub use receive::ReceiveBatch;
pub use send::GrantError;
pub use sender::Sender;
pub use transmit::TransmitBatch;

use crate::counters::Metric;
use crate::endpoint::ack_scheduler::AckScheduler;
use crate::endpoint::control::ControlQueue;
use crate::endpoint::flow_control::credit_pool::CreditPool;
use crate::endpoint::operation::{OperationError, Operations};
use crate::endpoint::peer::Peer;
use crate::endpoint::placement::Placements;
use crate::endpoint::receivers::Receivers;
use crate::endpoint::sender::Senders;
use crate::endpoint::shutdown::Shutdown;
use crate::endpoint::storage::Storage;
use crate::endpoint::window_pool::WatchEpoch;
use crate::ids::{OperationId, PeerId, PlacementId};
use crate::list::List;
use crate::span::Span;
use crate::time::Time;

/// What the host does with a datagram. Afterwards it releases the datagram's slot, unless that is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Nothing.
    Release,
    /// Set it aside until its predecessors have arrived.
    Hold,
    /// Copy its bytes from `start` on to `to`, at most `to.bytes` of them.
    Place {
        /// The destination.
        to: Span,
        /// First byte of the datagram that is copied.
        start: u16,
    },
}

/// The layer above the endpoint.
pub trait Handler {
    /// Delivers an eager message, in order: its first bytes (at most 40, payload included), and its length in bytes. In
    /// a [`Verdict::Place`] for its payload, `start` counts from the message's first byte.
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict;
    /// Counts an event. It may be reported later than it happened, after its consequences, but within the same round.
    fn record(&mut self, what: Metric) {
        let _ = what;
    }
    /// Counts the same event `times` times, which may be 0.
    #[inline]
    fn record_all(&mut self, what: Metric, times: u32) {
        (0..times).for_each(|_| self.record(what));
    }
}

/// An event that an endpoint reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// An operation's memory is free again; without an error the peer has received everything.
    Completed(OperationId, Result<(), OperationError>),
    /// A grant was used: this many bytes are in place.
    Delivered(PlacementId, u32),
    /// The peer failed. Grants to it should be withdrawn.
    PeerFailed(PeerId),
    /// The peer sent Bye. Grants to it should be withdrawn.
    PeerFinished(PeerId),
    /// The peer answered no probe for the configured silence. A host that knows that live peers always answer calls
    /// [`fail`](Endpoint::fail); reported again after another silence of that length.
    PeerSilent(PeerId),
}

/// The memory that the host provides for an endpoint's records, each in its unused state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pools<S: Storage<W, BITS>, const W: usize, const BITS: u32> {
    /// [`Peer::UNKNOWN`], one per rank.
    pub peers: S::Peers,
    /// [`Sender::FREE`].
    pub senders: S::Senders,
    /// [`ReceiveWindow::EMPTY`](crate::window::receive_window::ReceiveWindow::EMPTY).
    pub receivers: S::Receivers,
    /// [`Operation::FREE`](crate::endpoint::operation::Operation::FREE).
    pub operations: S::Operations,
    /// [`Placement::FREE`](crate::endpoint::placement::Placement::FREE).
    pub placements: S::Placements,
    /// [`ControlMessage::FREE`].
    pub control_messages: S::ControlMessages,
}

/// One process's endpoint, with `W` segments per window and PSNs of `BITS` bits. See the [module](self) for the calling
/// contract.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint<S: Storage<W, BITS>, const W: usize, const BITS: u32> {
    config: Config,
    /// Peers with an event that was not polled.
    peer_events: List,
    senders: Senders,
    receivers: Receivers,
    operations: Operations,
    placements: Placements,
    control: ControlQueue<<S::Time as Time>::Stamp>,
    acks: AckScheduler<S::Time>,
    credit: CreditPool<<S::Time as Time>::Stamp>,
    watch: WatchEpoch<<S::Time as Time>::Stamp>,
    shutdown: Shutdown<<S::Time as Time>::Instant>,
    /// When the previous round ended.
    round_ended: <S::Time as Time>::Stamp,
    /// The records that the lists above link.
    records: Records<S::Peers, S::Senders, S::Receivers, S::Operations, S::Placements, S::ControlMessages>,
}

/// The records of an endpoint, by pool. They follow the lists, which then have short offsets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Records<P, S, R, O, G, C> {
    peers: P,
    senders: S,
    receivers: R,
    operations: O,
    placements: G,
    control_messages: C,
}

type Now<S, const W: usize, const BITS: u32> = <<S as Storage<W, BITS>>::Time as Time>::Instant;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// An endpoint that knows no peer yet.
    pub fn new(now: Now<S, W, BITS>, config: Config, pools: Pools<S, W, BITS>) -> Self {
        let Pools { peers, senders, receivers, operations, placements, control_messages } = pools;
        let mut records = Records { peers, senders, receivers, operations, placements, control_messages };
        let stamp = S::Time::stamp(now);
        Self {
            config,
            peer_events: List::EMPTY,
            senders: Senders::new(now, records.senders.as_mut()),
            receivers: Receivers::new(records.receivers.as_mut()),
            operations: Operations::new(records.operations.as_mut()),
            placements: Placements::new(records.placements.as_mut()),
            control: ControlQueue::new(stamp),
            acks: AckScheduler::new(),
            credit: CreditPool::new(config.receive_slots, stamp),
            watch: WatchEpoch::new(stamp),
            shutdown: Shutdown::Running,
            round_ended: stamp,
            records,
        }
    }

    /// The configuration given to [`new`](Self::new).
    pub const fn config(&self) -> &Config {
        &self.config
    }

    fn peer_mut(&mut self, peer: u32) -> Option<&mut Peer<S::Time, BITS>> {
        self.records.peers.as_mut().get_mut(peer as usize)
    }
}
