//! Header prediction (Jacobson, "4BSD TCP Header Prediction", CCR 1990): checks made for one datagram hold for the
//! equal ones that follow it.

use super::deliver;
use crate::counters::Metric;
use crate::device::Received;
use crate::endpoint::peer::{NO_WINDOW, PeerFlags};
use crate::endpoint::placement::PlacementState;
use crate::endpoint::storage::Storage;
use crate::endpoint::{Endpoint, Handler, Now, SenderFlags, Verdict};
use crate::ids::{PeerId, PlacementId, Psn};
use crate::span::Span;
use crate::time::{Time, units};
use crate::wire::{DatagramKind, Flags, HEADER, Header, SEGMENT_HEADER, SegmentHeader};

/// Bytes of a header before its PSN: kind, flags, credit, rank and incarnations.
const BEFORE: usize = 16;

/// A batch of consecutive datagrams of one peer. Their effects on the records are applied together
/// ([`commit_batch`](Endpoint::commit_batch)), before any other call of the endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct PredictedBatch<const BITS: u32> {
    /// The header before the PSN, and the acknowledgement after it.
    before: [u8; BEFORE],
    acknowledged: [u8; 4],
    /// How many more may follow: in-order data of a live peer with nothing new in the header.
    left: u32,
    /// `left` when the records were last updated, and when datagrams were last counted.
    committed: u32,
    counted: u32,
    from: PeerId,
    next: Psn<BITS>,
    /// For a placement: the next segment.
    part: Option<NextSegment>,
    /// Length of each datagram that is not counted yet, and the age of the latest one.
    bytes: u32,
    age: Option<u32>,
}

/// Where a full segment goes.
#[derive(Clone, Copy, Debug)]
struct NextSegment {
    placement: PlacementId,
    index: u32,
    to: Span,
}

impl<const BITS: u32> PredictedBatch<BITS> {
    /// Matches no datagram: its version is not valid.
    pub(super) const NONE: Self = Self {
        before: [0; BEFORE],
        acknowledged: [0; 4],
        left: 0,
        committed: 0,
        counted: 0,
        from: PeerId(0),
        next: Psn::new(0),
        part: None,
        bytes: 0,
        age: None,
    };

    /// Datagrams that are not yet committed to the records.
    pub(super) const fn taken(&self) -> u32 {
        self.committed.wrapping_sub(self.left)
    }

    const fn kind(&self) -> DatagramKind {
        if self.part.is_some() { DatagramKind::Segment } else { DatagramKind::Eager }
    }

    /// Whether this datagram is the predicted one.
    #[inline(always)]
    fn expects(&self, datagram: &impl Received) -> bool {
        let head = datagram.prefix();
        let Some((before, psn, acknowledged)) = split(head) else { return false };
        let is_like = self.left > 0
            && *before == self.before
            && *acknowledged == self.acknowledged
            && Psn::new(psn) == self.next
            && datagram.is_from(self.from);
        let is_part = |part: NextSegment| {
            SegmentHeader::parse(head) == Ok(SegmentHeader { placement: part.placement, index: part.index })
                && datagram.bytes() == part.to.bytes.wrapping_add(SEGMENT_HEADER as u32)
        };
        is_like && self.part.is_none_or(is_part)
    }

    /// Handles the predicted datagram.
    #[inline(always)]
    fn take(&mut self, datagram: &impl Received, handler: &mut impl Handler, verdict: &mut Verdict) {
        let bytes = datagram.bytes();
        match &mut self.part {
            Some(part) => {
                *verdict = Verdict::Place { to: part.to, start: SEGMENT_HEADER as u16 };
                part.index = part.index.wrapping_add(1);
                part.to.offset = part.to.offset.wrapping_add(part.to.bytes as usize);
            }
            None => {
                *verdict = Verdict::Release;
                let message = datagram.prefix().get(HEADER..).unwrap_or_default();
                deliver(self.from, message, bytes, handler, verdict);
            }
        }
        if bytes != self.bytes {
            self.count(handler);
            self.bytes = bytes;
        }
        self.age = datagram.age_ns();
        self.next = self.next.add(1);
        self.left = self.left.wrapping_sub(1);
    }

    /// Reports the datagrams that are not yet counted.
    #[inline]
    fn count(&mut self, handler: &mut impl Handler) {
        let accepted = Metric::Accepted { kind: self.kind(), bytes: self.bytes };
        handler.record_all(accepted, self.counted.wrapping_sub(self.left));
        self.counted = self.left;
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Handles the datagram as the predicted one, or by itself.
    #[inline(always)]
    pub(super) fn handle_in_batch(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        handler: &mut impl Handler,
        verdict: &mut Verdict,
        batch: &mut PredictedBatch<BITS>,
    ) {
        if batch.expects(datagram) || self.begin_batch(now, datagram, handler, batch) {
            batch.take(datagram, handler, verdict);
        } else {
            self.handle_one(now, datagram, handler, verdict);
        }
    }

    /// Commits the batch: updates the records for the datagrams that were taken.
    #[inline(always)]
    pub(super) fn commit_batch(
        &mut self,
        now: Now<S, W, BITS>,
        handler: &mut impl Handler,
        batch: &mut PredictedBatch<BITS>,
    ) {
        if batch.taken() > 0 {
            self.commit_taken(now, handler, batch);
        }
    }

    #[inline(never)]
    fn commit_taken(&mut self, now: Now<S, W, BITS>, handler: &mut impl Handler, batch: &mut PredictedBatch<BITS>) {
        batch.count(handler);
        let taken = batch.taken();
        if !mutant!("batch_committed_twice") {
            batch.committed = batch.left;
        }
        let arrived = match batch.age {
            Some(age) => S::Time::before(now, units(u64::from(age))),
            None => self.round_ended,
        };
        let quarter = self.ack_threshold();
        let Some(peer) = self.peers.as_mut().get_mut(batch.from.0 as usize) else { return };
        peer.receive_state.record_burst(arrived, taken);
        if u32::from(peer.receive_state.unacknowledged()) >= quarter {
            peer.receive_state.ack_immediately();
        }
        let used = taken.min(u32::from(peer.granted));
        peer.granted = peer.granted.wrapping_sub(used as u16);
        self.credit.give_back(used);
        self.acks.urgent |= peer.receive_state.is_urgent();
        self.acks.lacks_credit |= peer.granted == 0;
        if let Some(part) = batch.part {
            self.placements.count_delivered(part.placement, taken);
        }
    }

    /// Commits the batch, and starts a new one with a datagram that was not predicted. `true`: now it is.
    #[inline(always)]
    fn begin_batch(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        handler: &mut impl Handler,
        batch: &mut PredictedBatch<BITS>,
    ) -> bool {
        self.commit_batch(now, handler, batch);
        if !mutant!("batch_committed_twice") {
            (batch.left, batch.committed, batch.counted) = (0, 0, 0);
        }
        let Some((before, _, acknowledged)) = split(datagram.prefix()) else {
            batch.before = PredictedBatch::<BITS>::NONE.before;
            return false;
        };
        if *before == batch.before && *acknowledged == batch.acknowledged {
            return self.expect(now, datagram, batch).is_some();
        }
        (batch.before, batch.acknowledged) = (*before, *acknowledged);
        false
    }

    /// Starts a batch with a datagram whose header equals the one before, if it is in order and carries data of a live
    /// peer without a gap.
    #[inline(never)]
    fn expect(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        batch: &mut PredictedBatch<BITS>,
    ) -> Option<()> {
        let head = datagram.prefix();
        let header = Header::<BITS>::parse(head).ok()?;
        let (from, psn) = (PeerId(header.rank), header.psn());
        let next = self.peers.as_ref().get(header.rank as usize)?.receive_state.next();
        if next != psn || !datagram.is_from(from) || !self.is_predictable(now, &header) {
            return None;
        }
        let peer = self.peers.as_ref().get(header.rank as usize)?;
        // The batch ends at the datagram that makes an acknowledgement due.
        let mut left = self.ack_threshold().saturating_sub(u32::from(peer.receive_state.unacknowledged())).max(1);
        let mut part = None;
        if header.kind == DatagramKind::Segment {
            let (placement, Verdict::Place { to, .. }) = self.locate_segment(peer, header.rank, psn, datagram)?.ok()?
            else {
                return None;
            };
            let record = placement.among(self.placements.as_slice())?;
            let PlacementState::Open { bytes, left: parts, .. } = record.state else { return None };
            let (index, size) = (SegmentHeader::parse(head).ok()?.index, peer.segment());
            // A shorter last segment is not predicted. A datagram sent instead of a segment may leave more parts than
            // there are segments.
            let whole = bytes.saturating_sub(index.saturating_mul(size)).checked_div(size)?;
            left = left.min(whole).min(parts);
            part = Some(NextSegment { placement, index, to });
        }
        *batch = PredictedBatch { left, committed: left, counted: left, from, next, part, ..*batch };
        (left > 0).then_some(())
    }

    /// Datagrams of one peer after which an acknowledgement is due.
    #[inline]
    pub(in crate::endpoint) fn ack_threshold(&self) -> u32 {
        (self.credit.share(W as u32) >> 2).max(1)
    }

    /// Whether a datagram with this header is plain data of a live peer without a gap, whose only effects are those of
    /// [`commit_batch`](Self::commit_batch).
    fn is_predictable(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) -> bool {
        if cfg!(without = "header_prediction") {
            return false;
        }
        let Some(peer) = self.peers.as_ref().get(header.rank as usize) else { return false };
        let is_plain =
            matches!(header.kind, DatagramKind::Eager | DatagramKind::Segment) && header.flags == Flags::empty();
        let is_present =
            peer.is_alive() && header.incarnation == peer.incarnation && header.expected == self.config.incarnation
                || mutant!("prediction_any_incarnation");
        let is_known = peer.has(PeerFlags::CONTACTED)
            && peer.has(PeerFlags::USED)
            && peer.has(PeerFlags::ACK_LISTED)
            && peer.has(PeerFlags::BACKLOGGED);
        if self.has_rails()
            || !is_plain
            || !is_present
            || !is_known
            || peer.receiver != NO_WINDOW && !mutant!("prediction_after_gap")
        {
            return false;
        }
        if peer.sender() == NO_WINDOW {
            return true;
        }
        // At the same `now`, a second equal header has no effect on the window.
        let units = self.watch_interval(peer);
        let Some(record) = self.senders.get_mut(u32::from(peer.sender())) else { return false };
        !record.flags.contains(SenderFlags::ORPHANED)
            && record.window.is_redundant_ack(now, Psn::new(header.acknowledged), header.credit, units)
    }
}

/// A header before its PSN, the PSN, and the acknowledgement.
#[inline(always)]
fn split(head: &[u8]) -> Option<(&[u8; BEFORE], u32, &[u8; 4])> {
    let (before, rest) = head.split_first_chunk()?;
    let (psn, rest) = rest.split_first_chunk()?;
    Some((before, u32::from_le_bytes(*psn), rest.first_chunk()?))
}
