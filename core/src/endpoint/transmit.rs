//! Transmission: control messages, urgent acknowledgements, repairs, probes and new data of ready windows, then delayed
//! acknowledgements.

mod ack_scheduler;
mod batch;
mod ready_queue;
#[cfg_attr(feature = "optimize_for_size", allow(dead_code, reason = "a refinement"))]
mod tx_burst;
mod tx_completion;

pub(super) use ack_scheduler::AckScheduler;
pub use batch::TransmitBatch;
pub(super) use ready_queue::ReadyQueue;

use super::{Config, Endpoint, Handler, Now, Sender, SenderFlags, Shutdown};
use crate::counters::Metric;
use crate::device::{Destination, DeviceQueue, HEADER_ROOM, Posting, Transmit, TxReason};
use crate::endpoint::operation::{Operation, OperationKind};
use crate::endpoint::peer::{Peer, PeerFlags, PeerState};
use crate::endpoint::storage::Storage;
use crate::ids::{PeerId, Rail};
use crate::span::Span;
use crate::time::Time;
use crate::window::rails::{MAX_RAILS, RailChoice, Rails};
use crate::wire::{Acknowledgement, DatagramKind, Flags, HEADER, Header, SEGMENT_HEADER, SegmentHeader};

/// By how much fewer acknowledgements are requested while piggybacked ones show that the round trip is no longer than
/// measured.
const RTT_SAMPLE_BACKOFF: u32 = 16;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Builds and records the next datagram, to be posted as `posting`. Its header is written to `head`. `None`: nothing
    /// is to be sent.
    #[inline]
    fn transmit_one(
        &mut self,
        now: Now<S, W, BITS>,
        posting: Posting,
        head: &mut [u8; HEADER_ROOM],
        handler: &mut impl Handler,
    ) -> Option<Transmit> {
        let transmit = self.build_next(now, posting, head)?;
        record_sent(handler, &transmit);
        Some(transmit)
    }

    #[inline]
    fn build_next(&mut self, now: Now<S, W, BITS>, posting: Posting, head: &mut [u8; HEADER_ROOM]) -> Option<Transmit> {
        if !self.control.is_empty()
            && let Some(transmit) = self.transmit_control(now, head)
        {
            return Some(transmit);
        }
        if self.acks.urgent {
            self.acks.expire(self.peers.as_mut());
            if let Some(transmit) = self.transmit_ack(now, head) {
                return Some(transmit);
            }
            self.acks.urgent = false;
        }
        while !self.is_aborting()
            && let Some(sender) = self.ready.first()
        {
            if let Some(transmit) = self.transmit_from(now, sender, (posting, head)) {
                self.ready.count(self.senders.as_mut_slice(), 1);
                return Some(transmit);
            }
            self.ready.pop(self.senders.as_mut_slice());
            self.update_sender(now, sender);
        }
        if let Some(transmit) = self.transmit_ack(now, head) {
            return Some(transmit);
        }
        self.transmit_bye(now, head)
    }

    /// Whether something may be sent now; as time passes, more may become due.
    #[inline]
    pub fn has_to_transmit(&self) -> bool {
        !self.control.is_empty()
            || self.acks.urgent
            || !self.ready.is_empty()
            || self.acks.has_due()
            || self.shutdown != Shutdown::Running
    }

    /// The header of a datagram to a live peer, without PSN and kind.
    pub(super) fn header_to(&self, peer: &Peer<S::Time, BITS>) -> Header<BITS> {
        header_of(&self.config, peer)
    }

    #[inline(never)]
    fn transmit_control(&mut self, now: Now<S, W, BITS>, head: &mut [u8; HEADER_ROOM]) -> Option<Transmit> {
        let notice = self.control.pop()?;
        if self.has_rails() && notice.kind == DatagramKind::Acknowledge && notice.flags.contains(Flags::ANSWER) {
            let (answer, header) = self.answer_probe(now, &notice)?;
            let rail = Rail(notice.acknowledged as u8);
            return Some(control(PeerId(notice.to), rail, answer.emit(&header, head), TxReason::Acknowledge));
        }
        let peer = self.peers.as_ref().get(notice.to as usize)?;
        let rail = self.control_rail(peer);
        let mut header = self.header_to(peer);
        header.kind = notice.kind;
        header.flags = notice.flags;
        header.expected = notice.expected;
        header.psn = notice.psn;
        let mut length = HEADER as u8;
        if notice.kind == DatagramKind::Acknowledge {
            // Without an echo: the acknowledgement that it repeats is old, and must not feed an estimator.
            let nothing = Acknowledgement { echo: None, ..Acknowledgement::piggybacked(&header) };
            length = nothing.emit(&header, head);
        } else {
            if notice.kind == DatagramKind::PeerDown {
                header.acknowledged = notice.acknowledged;
            }
            header.emit(head);
        }
        Some(control(PeerId(notice.to), rail, length, TxReason::Control))
    }

    /// Builds the next due acknowledgement that was not piggybacked.
    fn transmit_ack(&mut self, now: Now<S, W, BITS>, head: &mut [u8; HEADER_ROOM]) -> Option<Transmit> {
        while let Some(to) = self.acks.pop_due(self.peers.as_mut()) {
            let Some(peer) = self.peer_mut(to) else { continue };
            peer.unset(PeerFlags::ACK_LISTED);
            if !peer.receive_state.is_pending() || peer.state() != PeerState::Alive {
                continue;
            }
            self.grant_credit(to);
            let peer = self.peers.as_mut().get_mut(to as usize)?;
            let window = self.receivers.get(peer.receiver);
            let acknowledgement = peer.receive_state.acknowledge(now, peer.granted, window);
            let peer = self.peers.as_ref().get(to as usize)?;
            let length = acknowledgement.emit(&self.header_to(peer), head);
            return Some(control(PeerId(to), self.control_rail(peer), length, TxReason::Acknowledge));
        }
        None
    }

    /// Builds the next datagram of a window: a repair, a probe, or new data.
    #[inline]
    fn transmit_from(
        &mut self,
        now: Now<S, W, BITS>,
        sender: u32,
        (posting, head): (Posting, &mut [u8; HEADER_ROOM]),
    ) -> Option<Transmit> {
        let record = self.senders.get(sender)?;
        let to = record.peer;
        if record.flags.contains(SenderFlags::ORPHANED) {
            return None;
        }
        self.top_up_credit(to);
        let has_rails = self.has_rails();
        let (record, rails) = self.senders.with_rails(sender)?;
        let peer = self.peers.as_mut().get_mut(to as usize)?;
        let operations = self.operations.as_mut_slice();
        let mut flags = Flags::empty();
        let was_armed = record.window.is_armed();
        let mut rails = Rails::new(&mut record.path, rails);
        let segment = match record.window.resend(now, posting, &mut rails) {
            Some(segment) => segment,
            None if record.window.wants_probe(&rails) => return self.transmit_probe(now, sender, head),
            None => {
                let first = super::send::first_of(peer, operations)?;
                let operation = operations.get_mut(first as usize)?;
                let piece = crate::window::segment_ring::SegmentRef { operation: first, part: operation.sent };
                let segment = record.window.push(now, piece, posting, &mut rails, operation.rail_choice())?;
                operation.sent = operation.sent.wrapping_add(1);
                let placed = matches!(operation.kind, OperationKind::Place { .. });
                let empty = operation.sent >= operation.parts && {
                    super::send::take_first(peer, operations);
                    super::send::first_of(peer, operations).is_none()
                };
                if empty && record.window.is_credit_low() {
                    record.window.return_credit(segment.psn);
                    flags |= Flags::DRAINED;
                }
                // A blocked queue waits for room, and the sender of a placement for its memory: both need the
                // acknowledgement at once.
                let next = if has_rails { super::send::next_rail_choice(peer, operations) } else { RailChoice::ANY };
                if if empty { placed } else { !record.window.has_room(&rails, next) } {
                    flags |= Flags::ACK_NOW;
                }
                segment
            }
        };
        let operation = operations.get(segment.reference.operation as usize)?;
        if operation.solicited {
            let next = super::send::first_of(peer, operations).and_then(|next| operations.get(next as usize));
            // Of several in a row the last one that the window admits wakes the peer.
            if !next.is_some_and(|next| next.solicited && record.window.has_room(&rails, next.rail_choice())) {
                record.window.probe_now(now, &rails);
                rails.request_probe(None);
            }
        }
        if needs_rtt_sample::<S::Time, W, BITS>(now, record, self.config.granularity) {
            record.ack_requested = S::Time::stamp(now);
            flags |= Flags::ACK_NOW;
        }
        let is_armed = !was_armed && record.window.is_armed() || has_rails;
        let posting = record.flags.contains(SenderFlags::POSTING);
        record.flags.insert(SenderFlags::POSTING);
        let mut header = header_of(&self.config, peer);
        header.flags = flags.with_count(segment.count);
        header.psn = segment.psn.get();
        let gap = peer.receiver != crate::endpoint::peer::NO_WINDOW;
        peer.receive_state.handle_piggybacked(gap);
        let (length, payload) = emit(header, operation, segment.reference.part, head);
        if is_armed {
            self.schedule(now, sender);
        }
        if !posting {
            self.senders.push_posted(sender);
        }
        let rail = if MAX_RAILS == 1 { Rail(0) } else { segment.rail };
        Some(data(PeerId(to), rail, length, payload, segment.reason))
    }

    #[inline(never)]
    fn transmit_probe(&mut self, now: Now<S, W, BITS>, sender: u32, head: &mut [u8; HEADER_ROOM]) -> Option<Transmit> {
        let at = self.config.probe_queue;
        let (record, rails) = self.senders.with_rails(sender)?;
        let to = record.peer;
        let mut rails = Rails::new(&mut record.path, rails);
        let probe = record.window.probe(now, &mut rails)?;
        if probe.unanswered == 0 {
            record.silent_since = S::Time::stamp(now);
        }
        let idle = record.window.is_acknowledged() && self.queued(to).is_none();
        if self.has_rails() {
            self.schedule(now, sender);
        }
        let peer = self.peers.as_ref().get(to as usize)?;
        let mut header = self.header_to(peer);
        header.kind = DatagramKind::Probe;
        header.psn = probe.psn.get();
        header.flags = Flags::empty().with_count(probe.number);
        if idle {
            header.flags |= Flags::DRAINED;
        }
        header.emit(head);
        Some(Transmit {
            queue: at,
            solicited: at == DeviceQueue::Interrupt,
            ..control(PeerId(to), probe.rail, HEADER as u8, TxReason::Probe)
        })
    }

    /// Ends a round of receiving and sending: acknowledgements that were delayed for long enough are due in the next
    /// one.
    pub fn handle_round(&mut self, now: Now<S, W, BITS>) {
        self.acks.handle_round(now, self.config.granularity, self.peers.as_mut());
        self.serve_credit_waiters(now);
        self.round_ended = S::Time::stamp(now);
    }
}

fn record_sent(handler: &mut impl Handler, transmit: &Transmit) {
    handler.record(Metric::Sent { cause: transmit.reason, bytes: transmit.bytes() });
}

/// Piggybacked acknowledgements feed no round-trip estimator: from time to time the sender requests one that does, and
/// more rarely while piggybacked ones arrive within the timeout.
#[inline]
pub(super) fn needs_rtt_sample<T: Time, const W: usize, const BITS: u32>(
    now: T::Instant,
    sender: &Sender<T, W, BITS>,
    granularity: u32,
) -> bool {
    let rarely = sender.path.rtt.smoothed().saturating_mul(8).max(granularity.saturating_mul(4));
    let prompt = !cfg!(feature = "optimize_for_size") && sender.flags.contains(SenderFlags::TIMELY_ACK);
    let rarely = if prompt { rarely.saturating_mul(RTT_SAMPLE_BACKOFF) } else { rarely };
    T::since(now, sender.ack_requested).is_some_and(|since| since > rarely)
}

#[inline]
pub(super) fn header_of<T: Time, const BITS: u32>(config: &Config, peer: &Peer<T, BITS>) -> Header<BITS> {
    Header {
        kind: DatagramKind::Acknowledge,
        flags: Flags::empty(),
        credit: peer.granted,
        rank: config.rank.0,
        incarnation: config.incarnation,
        expected: peer.incarnation,
        psn: 0,
        acknowledged: peer.receive_state.next().get(),
    }
}

/// Writes the header of one part of an operation. Returns its length, and the payload after it.
#[inline]
pub(super) fn emit<const BITS: u32>(
    mut header: Header<BITS>,
    operation: &Operation,
    part: u32,
    head: &mut [u8; HEADER_ROOM],
) -> (u8, Option<Span>) {
    let mut length = HEADER;
    let mut payload = None;
    match (operation.kind, part.checked_sub(1)) {
        (OperationKind::Place { placement, segment }, Some(index)) => {
            header.kind = DatagramKind::Segment;
            SegmentHeader { placement, index }.emit(head);
            payload = Some(operation.payload.part(index.wrapping_mul(segment), segment));
            length = SEGMENT_HEADER;
        }
        (what, _) => {
            header.kind = match what {
                OperationKind::Eager => DatagramKind::Eager,
                OperationKind::Place { .. } if operation.error.is_some() => DatagramKind::Nop,
                OperationKind::Place { .. } => DatagramKind::Open,
            };
            if header.kind != DatagramKind::Nop {
                // The whole room is written: bytes beyond the message's own header are not sent, or overwritten by the
                // payload.
                if operation.head_bytes > 0
                    && let Some(rest) = head.last_chunk_mut()
                {
                    *rest = operation.head;
                }
                length = length.wrapping_add(usize::from(operation.head_bytes));
            }
            if header.kind == DatagramKind::Eager && operation.payload.bytes > 0 {
                payload = Some(operation.payload);
            }
        }
    }
    header.emit(head);
    (length as u8, payload)
}

pub(super) const fn data(peer: PeerId, rail: Rail, head: u8, payload: Option<Span>, cause: TxReason) -> Transmit {
    let to = Destination::Peer { peer, rail };
    Transmit { to, queue: DeviceQueue::Polled, header_bytes: head, payload, solicited: false, reason: cause }
}

const fn control(to: PeerId, rail: Rail, head: u8, cause: TxReason) -> Transmit {
    data(to, rail, head, None, cause)
}
