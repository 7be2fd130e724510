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

#[cfg(all(test, not(feature = "optimize_for_size")))]
mod batching;
mod events;
mod flow_control;
#[cfg(debug_assertions)]
mod invariants;
pub mod operation;
pub mod peer;
mod peer_state;
pub mod placement;
mod pool_usage;
mod pools;
mod rails;
mod receive;
mod send;
mod shutdown;
pub mod storage;
mod timeout;
mod transmit;
mod window_pool;

pub use pool_usage::PoolUsage;
pub use receive::ReceiveBatch;
pub use send::GrantError;
pub use transmit::TransmitBatch;

use bitflags::bitflags;

use crate::counters::Metric;
use crate::device::{DeviceQueue, Limits, Received};
use crate::endpoint::flow_control::credit_pool::CreditPool;
use crate::endpoint::operation::OperationError;
use crate::endpoint::peer::Peer;
use crate::endpoint::pools::{ControlQueue, OperationPool, PlacementPool, ReceiverPool, SenderPool};
use crate::endpoint::rails::Links;
use crate::endpoint::storage::Storage;
use crate::endpoint::transmit::{AckScheduler, ReadyQueue};
use crate::ids::{Incarnation, OperationId, PeerId, PlacementId};
use crate::list::{List, NONE};
use crate::path::{Path, PathParameters};
use crate::span::Span;
use crate::time::wheel::{Timer, Wheel};
use crate::time::{Time, units};
use crate::window::congestion::CongestionControl;
use crate::window::send_window::SendWindow;
use crate::wire::{DatagramKind, Flags};

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
    /// Handles a datagram of another family, such as [multicast](crate::multicast), that came on the same queue. In a
    /// [`Verdict::Place`] for its payload, `start` counts from the datagram's first byte. `None`: it is of no family
    /// that this layer knows, and is counted as malformed.
    fn handle_foreign(&mut self, datagram: &impl Received) -> Option<Verdict> {
        let _ = datagram;
        None
    }
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

/// The constants of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// This process's rank: the index of its own record, which is not used.
    pub rank: PeerId,
    /// This process's incarnation: random.
    pub incarnation: Incarnation,
    /// Datagrams that the device can buffer without loss.
    pub receive_slots: u32,
    /// Early datagrams that the device can set aside.
    pub holdable: u32,
    /// Floor of the timeout's margin, in units of 64 ns.
    pub granularity: u32,
    /// Silence, in units of 64 ns, after which [`Event::PeerSilent`] is reported. Probes are at most a quarter of this
    /// apart.
    pub silence: u32,
    /// How long a window without work is kept, in units of 64 ns.
    pub idle: u32,
    /// How congestion windows change.
    pub control: CongestionControl,
    /// The peers' queue that probes are sent to.
    pub probe_queue: DeviceQueue,
}

impl Config {
    /// Defaults for a device: 2 s of silence, windows kept for 10 ms or 16 granules, a fixed congestion window on
    /// lossless links and a delay-based one elsewhere.
    pub fn new(rank: PeerId, incarnation: Incarnation, limits: &Limits) -> Self {
        let granularity = units(u64::from(limits.granularity_ns));
        // Scheduling delays of the operating system are no congestion.
        let target = granularity.saturating_mul(16);
        Self {
            rank,
            incarnation,
            receive_slots: limits.receive_slots,
            holdable: limits.holdable,
            granularity,
            silence: units(2_000_000_000),
            idle: granularity.saturating_mul(16).max(units(10_000_000)),
            control: if limits.lossless { CongestionControl::Fixed } else { CongestionControl::Delay { target } },
            probe_queue: DeviceQueue::Polled,
        }
    }
}

/// A send window and its links to its peer and to the endpoint's lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sender<T: Time, const W: usize, const BITS: u32> {
    window: SendWindow<T, W, BITS>,
    path: Path<T>,
    peer: u32,
    /// The next free or ready sender.
    link: u32,
    /// The next sender with uncompleted postings.
    posted_link: u32,
    /// The next sender whose silence has to be reported.
    event_link: u32,
    timer: Timer,
    /// When an acknowledgement was last requested.
    ack_requested: T::Stamp,
    /// When the first of the unanswered probes was sent.
    silent_since: T::Stamp,
    flags: SenderFlags,
}

bitflags! {
    /// The flags of a sender.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    struct SenderFlags: u8 {
        /// In the list of ready senders.
        const READY = 1;
        /// In the list of senders with uncompleted postings.
        const POSTING = 1 << 1;
        /// Its peer has ended; freed when the last posting is completed.
        const ORPHANED = 1 << 2;
        /// In the list of senders whose silence has to be reported.
        const SILENT = 1 << 3;
        /// The latest piggybacked acknowledgement arrived within the timeout.
        const TIMELY_ACK = 1 << 4;
    }
}

impl<T: Time, const W: usize, const BITS: u32> Sender<T, W, BITS> {
    /// An unused record.
    pub const FREE: Self = Self {
        window: SendWindow::new(crate::ids::Psn::new(0)),
        path: Path::new(PathParameters::NONE),
        peer: NONE,
        link: NONE,
        posted_link: NONE,
        event_link: NONE,
        timer: Timer::UNSET,
        ack_requested: T::ZERO,
        silent_since: T::ZERO,
        flags: SenderFlags::empty(),
    };

    /// Passed to the timer wheel as one function, so that the wheel's code is not duplicated for each closure.
    const fn timer(&mut self) -> &mut Timer {
        &mut self.timer
    }
}

/// A control datagram that waits for a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ControlMessage {
    to: u32,
    kind: DatagramKind,
    flags: Flags,
    expected: Incarnation,
    psn: u32,
    /// An incarnation, or the rail of the probe that an acknowledgement answers.
    acknowledged: u32,
}

impl ControlMessage {
    /// An unused record.
    pub const FREE: Self = Self {
        to: NONE,
        kind: DatagramKind::Acknowledge,
        flags: Flags::empty(),
        expected: Incarnation(0),
        psn: 0,
        acknowledged: 0,
    };
}

/// The memory that the host provides for an endpoint's records, each in its unused state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pools<S: Storage<W, BITS>, const W: usize, const BITS: u32> {
    /// [`Peer::UNKNOWN`], one per rank.
    pub peers: S::Peers,
    /// [`Sender::FREE`].
    pub senders: S::Senders,
    /// [`RailState::FREE`](crate::window::rails::RailState::FREE): none, or as many for each sender as there are rails.
    pub rails: S::Rails,
    /// [`ReceiveWindow::EMPTY`](crate::window::receive_window::ReceiveWindow::EMPTY).
    pub receivers: S::Receivers,
    /// [`Operation::FREE`](crate::endpoint::operation::Operation::FREE).
    pub operations: S::Operations,
    /// [`Placement::FREE`](crate::endpoint::placement::Placement::FREE).
    pub placements: S::Placements,
    /// [`ControlMessage::FREE`].
    pub control_messages: S::ControlMessages,
}

/// Progress of the endpoint's own shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Shutdown<I> {
    Running,
    /// Sends Bye or Abort to every peer, from this rank on; `round` counts the passes over all ranks.
    SendingBye {
        kind: DatagramKind,
        rank: u32,
        round: u8,
    },
    /// Waits for the peers' Byes until this time.
    Lingering {
        kind: DatagramKind,
        until: I,
        round: u8,
    },
    Closed,
}

/// One process's endpoint, with `W` segments per window and PSNs of `BITS` bits. See the [module](self) for the calling
/// contract.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint<S: Storage<W, BITS>, const W: usize, const BITS: u32> {
    config: Config,
    peers: S::Peers,
    senders: SenderPool<S::Senders, S::Rails, S::Time, W, BITS>,
    receivers: ReceiverPool<S::Receivers, W>,
    operations: OperationPool<S::Operations>,
    placements: PlacementPool<S::Placements>,
    control: ControlQueue<S::ControlMessages, S::Time>,
    ready: ReadyQueue,
    acks: AckScheduler<S::Time>,
    /// Peers whose end has to be reported.
    peer_events: List,
    credit: CreditPool<S::Time>,
    wheel: Wheel,
    links: Links,
    shutdown: Shutdown<<S::Time as Time>::Instant>,
    /// When the previous round ended.
    round_ended: <S::Time as Time>::Stamp,
}

type Now<S, const W: usize, const BITS: u32> = <<S as Storage<W, BITS>>::Time as Time>::Instant;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// An endpoint that knows no peer yet.
    pub fn new(now: Now<S, W, BITS>, config: Config, pools: Pools<S, W, BITS>) -> Self {
        let Pools { peers, senders, rails, receivers, operations, placements, control_messages } = pools;
        let stamp = S::Time::stamp(now);
        Self {
            config,
            peers,
            senders: SenderPool::new(senders, rails, stamp),
            receivers: ReceiverPool::new(receivers),
            operations: OperationPool::new(operations),
            placements: PlacementPool::new(placements),
            control: ControlQueue::new(control_messages, stamp),
            ready: ReadyQueue::EMPTY,
            acks: AckScheduler::IDLE,
            peer_events: List::EMPTY,
            credit: CreditPool::new(config.receive_slots, stamp),
            wheel: Wheel::new(S::Time::tick(now)),
            links: Links::UP,
            shutdown: Shutdown::Running,
            round_ended: stamp,
        }
    }

    /// The configuration given to [`new`](Self::new).
    pub const fn config(&self) -> &Config {
        &self.config
    }

    const fn path_parameters(&self) -> PathParameters {
        PathParameters {
            granularity: self.config.granularity,
            max_probe_interval: self.config.silence >> 2,
            control: self.config.control,
        }
    }

    fn peer_mut(&mut self, peer: u32) -> Option<&mut Peer<S::Time, BITS>> {
        self.peers.as_mut().get_mut(peer as usize)
    }
}
