//! Transmission bursts: consecutive datagrams of one window, for which the checks are made once.

use super::{data, emit, header_of, needs_rtt_sample, record_sent};
use crate::counters::Metric;
use crate::device::{HEADER_ROOM, Posting, Transmit, TxReason};
use crate::endpoint::operation::{Operation, OperationKind};
use crate::endpoint::peer::PeerFlags;
use crate::endpoint::storage::Storage;
use crate::endpoint::{Endpoint, Handler, Now, SenderFlags};
use crate::ids::{PeerId, PlacementId, Rail};
use crate::list::NONE;
use crate::span::{Region, Span};
use crate::time::Time;
use crate::window::segment_ring::{Burst, SegmentRef};
use crate::wire::{DatagramKind, Flags, Header, SEGMENT_HEADER, SegmentHeader};

/// The state of a burst after the latest datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxBurst<const BITS: u32> {
    sender: u32,
    /// The header of each datagram, without kind and PSN.
    header: Header<BITS>,
    /// New segments that may follow with no flag but their count, whatever else there is to send.
    left: u32,
    /// The latest datagram was new data: a burst may begin.
    is_due: bool,
    /// Consecutive segments of one placement among them. Their effects on the records are applied together
    /// ([`commit_burst`](Endpoint::commit_burst)), before any other call of the endpoint.
    parts: u32,
    /// Their peer and operation, the header of each without PSN and index, and the next segment's header and payload.
    to: PeerId,
    operation: u32,
    head: [u8; SEGMENT_HEADER],
    segment: SegmentHeader,
    payload: Span,
    /// The segments that were sent.
    segments: Burst<BITS>,
}

impl<const BITS: u32> TxBurst<BITS> {
    /// No datagram was sent.
    pub(super) const NONE: Self = Self {
        sender: 0,
        header: Header {
            kind: DatagramKind::Eager,
            flags: Flags::empty(),
            credit: 0,
            rank: 0,
            incarnation: crate::ids::Incarnation(0),
            expected: crate::ids::Incarnation(0),
            psn: 0,
            acknowledged: 0,
        },
        left: 0,
        is_due: false,
        parts: 0,
        to: PeerId(NONE),
        operation: NONE,
        head: [0; SEGMENT_HEADER],
        segment: SegmentHeader { placement: PlacementId(0), index: 0 },
        payload: Span { region: Region::new(0, 0), offset: 0, bytes: 0 },
        segments: Burst::EMPTY,
    };

    /// Sends up to `most` segments of `operation` in this burst, but never its last one.
    #[inline]
    fn begin_parts(&mut self, operation: &Operation, most: u32) {
        let OperationKind::Place { placement, segment } = operation.kind else { return };
        let Some(index) = operation.sent.checked_sub(1) else { return };
        if operation.error.is_some() {
            return;
        }
        self.parts = operation.parts.saturating_sub(operation.sent).saturating_sub(1).min(most);
        self.segment = SegmentHeader { placement, index };
        self.payload = operation.payload.part(index.wrapping_mul(segment), segment);
        Header { kind: DatagramKind::Segment, ..self.header }.emit(&mut self.head);
    }

    /// Whether the latest datagram was a segment that is committed together with others.
    #[inline(always)]
    pub(super) const fn is_part(&self) -> bool {
        !self.segments.is_empty()
    }

    #[cfg(test)]
    pub(super) const fn left(&self) -> u32 {
        self.left
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Builds the next datagram, as part of the burst if it can be.
    #[inline(always)]
    pub(super) fn transmit_in_burst(
        &mut self,
        now: Now<S, W, BITS>,
        posting: Posting,
        head: &mut [u8; HEADER_ROOM],
        handler: &mut impl Handler,
        burst: &mut TxBurst<BITS>,
    ) -> Option<Transmit> {
        if burst.parts > 0
            && let Some(transmit) = self.transmit_part(now, posting, head, burst)
        {
            // Recorded with the others, when they are committed.
            return Some(transmit);
        }
        self.commit_burst(burst, handler);
        if core::mem::take(&mut burst.is_due) {
            self.begin_burst(now, burst);
        }
        if burst.left > 0
            && let Some(transmit) = self.transmit_next(now, posting, head, burst)
        {
            record_sent(handler, &transmit);
            return Some(transmit);
        }
        burst.left = 0;
        let transmit = self.transmit_one(now, posting, head, handler);
        burst.is_due = transmit.is_some_and(|transmit| transmit.reason == TxReason::First);
        if cfg!(without = "tx_bursts") {
            burst.is_due = false;
        }
        transmit
    }

    /// Starts a burst of the first ready window's new segments, if nothing else comes before them and no
    /// acknowledgement has to be requested. It ends before the last segment that the window has room for.
    #[inline(never)]
    fn begin_burst(&mut self, now: Now<S, W, BITS>, tx_burst: &mut TxBurst<BITS>) {
        let half = self.credit.share(W as u32) >> 1;
        let Some(sender) = self.ready.first() else { return };
        let Some(record) = self.senders.get(sender) else { return };
        let Some(peer) = self.peers.as_ref().get(record.peer as usize) else { return };
        if !self.control.is_empty()
            || self.has_rails()
            || self.acks.urgent
            || self.is_aborting()
            || record.flags & (SenderFlags::ORPHANED | SenderFlags::POSTING) != SenderFlags::POSTING
            || peer.has(PeerFlags::EVENT_PENDING)
            || peer.has(PeerFlags::BACKLOGGED) && u32::from(peer.granted) < half
            || needs_rtt_sample::<S::Time, W, BITS>(now, record, self.config.granularity)
        {
            return;
        }
        tx_burst.sender = sender;
        tx_burst.header = header_of(&self.config, peer);
        tx_burst.left = record.window.burst_room(&record.path).saturating_sub(1);
    }

    /// Builds the next segment of a burst. `None`, without effect, if it is the last queued one or if there is none.
    #[inline(always)]
    fn transmit_next(
        &mut self,
        now: Now<S, W, BITS>,
        posting: Posting,
        head: &mut [u8; HEADER_ROOM],
        run: &mut TxBurst<BITS>,
    ) -> Option<Transmit> {
        run.parts = 0;
        let record = self.senders.get_mut(run.sender)?;
        let to = record.peer;
        let last = self.peers.as_ref().get(to as usize)?.queue;
        let operations = self.operations.as_mut_slice();
        let first = operations.get(last as usize)?.link;
        let operation = operations.get_mut(first as usize)?;
        let part = operation.sent;
        let is_whole = part.wrapping_add(1) >= operation.parts;
        if is_whole && first == last {
            return None;
        }
        operation.sent = part.wrapping_add(1);
        let piece = SegmentRef { operation: first, part };
        let psn = record.window.push_unchecked(S::Time::stamp(now), piece, posting)?;
        let (length, payload) = emit(Header { psn: psn.get(), ..run.header }, operation, part, head);
        let second = operation.link;
        run.left = run.left.wrapping_sub(1);
        if is_whole {
            if let Some(last) = operations.get_mut(last as usize) {
                last.link = second;
            }
        } else {
            (run.to, run.operation, run.segments) = (PeerId(to), first, record.window.burst(posting.queue));
        }
        self.count_sent(run, 1);
        if !is_whole && let Some(operation) = self.operations.get(first) {
            // After this turn another window may be first.
            run.begin_parts(operation, run.left.min(self.ready.turn()));
        }
        Some(data(PeerId(to), Rail(0), length, payload, TxReason::First))
    }

    /// Builds the next segment of a placement.
    #[inline(always)]
    fn transmit_part(
        &mut self,
        now: Now<S, W, BITS>,
        posting: Posting,
        head: &mut [u8; HEADER_ROOM],
        run: &mut TxBurst<BITS>,
    ) -> Option<Transmit> {
        let window = &mut self.senders.get_mut(run.sender)?.window;
        let piece = SegmentRef { operation: run.operation, part: run.segment.index.wrapping_add(1) };
        let psn = window.push_burst(&mut run.segments, S::Time::stamp(now), piece, posting.ticket)?;
        *head.first_chunk_mut()? = run.head;
        Header::<BITS>::emit_psn(psn, head);
        run.segment.emit(head);
        let payload = run.payload;
        run.payload.offset = payload.offset.wrapping_add(payload.bytes as usize);
        run.segment.index = run.segment.index.wrapping_add(1);
        run.parts = run.parts.wrapping_sub(1);
        Some(data(run.to, Rail(0), SEGMENT_HEADER as u8, Some(payload), TxReason::First))
    }

    /// Commits the segments that were sent to the records.
    #[inline(always)]
    pub(super) fn commit_burst(&mut self, tx_burst: &mut TxBurst<BITS>, handler: &mut impl Handler) {
        if tx_burst.is_part() {
            let bytes = tx_burst.payload.bytes.saturating_add(SEGMENT_HEADER as u32);
            handler.record_all(Metric::Sent { cause: TxReason::First, bytes }, tx_burst.segments.count());
            self.commit_parts(tx_burst);
        }
    }

    #[inline(never)]
    fn commit_parts(&mut self, tx_burst: &mut TxBurst<BITS>) {
        let left = tx_burst.segments.count();
        tx_burst.parts = 0;
        match self.senders.get_mut(tx_burst.sender) {
            Some(record) => record.window.commit(&mut tx_burst.segments),
            None => tx_burst.segments = Burst::EMPTY,
        }
        if let Some(operation) = self.operations.get_mut(tx_burst.operation) {
            operation.sent = operation.sent.wrapping_add(left);
        }
        tx_burst.left = tx_burst.left.wrapping_sub(left);
        self.count_sent(tx_burst, left);
    }

    /// Counts datagrams of the burst against the window's turn; the burst ends if the turn passes to another window.
    #[inline]
    fn count_sent(&mut self, tx_burst: &mut TxBurst<BITS>, datagrams: u32) {
        self.ready.count(self.senders.as_mut_slice(), datagrams);
        if self.ready.first() != Some(tx_burst.sender) {
            tx_burst.left = 0;
        }
    }
}
