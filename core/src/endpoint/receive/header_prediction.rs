//! Header prediction (Jacobson, "4BSD TCP Header Prediction", CCR 1990): checks made for one datagram hold for the
//! equal ones that follow it.

use super::hand_on;
use crate::counters::Happened;
use crate::device::Received;
use crate::endpoint::peer::{LISTED, NO_WINDOW, TOUCHED, USED, WANTS};
use crate::endpoint::placement::Stage;
use crate::endpoint::storage::Storage;
use crate::endpoint::{Above, Endpoint, Now, ORPHAN, Verdict};
use crate::ids::{PeerId, PlacementId, Psn};
use crate::span::Span;
use crate::time::{Time, units};
use crate::wire::{Flags, HEADER, Header, Kind, SEGMENT_HEADER, SegmentHeader};

/// Bytes of a header before its PSN: kind, flags, credit, rank and incarnations.
const BEFORE: usize = 16;

/// A batch of consecutive datagrams of one peer. Their effects on the records are applied together
/// ([`note_course`](Endpoint::note_course)), before any other call of the endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course<const BITS: u32> {
    /// The header before the PSN, and the acknowledgement after it.
    before: [u8; BEFORE],
    acknowledged: [u8; 4],
    /// How many more may follow: in-order data of a live peer with nothing new in the header.
    left: u32,
    /// `left` when the records were last updated, and when datagrams were last counted.
    noted: u32,
    counted: u32,
    from: PeerId,
    next: Psn<BITS>,
    /// For a placement: the next segment.
    part: Option<Part>,
    /// Length of each datagram that is not counted yet, and the age of the latest one.
    bytes: u32,
    age: Option<u32>,
}

/// Where a full segment goes.
#[derive(Clone, Copy, Debug)]
struct Part {
    placement: PlacementId,
    index: u32,
    to: Span,
}

impl<const BITS: u32> Course<BITS> {
    /// Matches no datagram: its version is not valid.
    pub(crate) const NONE: Self = Self {
        before: [0; BEFORE],
        acknowledged: [0; 4],
        left: 0,
        noted: 0,
        counted: 0,
        from: PeerId(0),
        next: Psn::new(0),
        part: None,
        bytes: 0,
        age: None,
    };

    /// Datagrams that are not yet committed to the records.
    const fn taken(&self) -> u32 {
        self.noted.wrapping_sub(self.left)
    }

    const fn kind(&self) -> Kind {
        if self.part.is_some() { Kind::Segment } else { Kind::Eager }
    }

    /// Whether this datagram is the predicted one.
    #[inline(always)]
    fn expects(&self, datagram: &impl Received) -> bool {
        let head = datagram.head();
        let Some((before, psn, acknowledged)) = split(head) else { return false };
        let is_like = self.left > 0
            && *before == self.before
            && *acknowledged == self.acknowledged
            && Psn::new(psn) == self.next
            && datagram.is_from(self.from);
        let is_part = |part: Part| {
            SegmentHeader::parse(head) == Ok(SegmentHeader { placement: part.placement, index: part.index })
                && datagram.bytes() == part.to.bytes.wrapping_add(SEGMENT_HEADER as u32)
        };
        is_like && self.part.is_none_or(is_part)
    }

    /// Handles the predicted datagram.
    #[inline(always)]
    fn take(&mut self, datagram: &impl Received, above: &mut impl Above, verdict: &mut Verdict) {
        let bytes = datagram.bytes();
        match &mut self.part {
            Some(part) => {
                *verdict = Verdict::Place { to: part.to, start: SEGMENT_HEADER as u16 };
                part.index = part.index.wrapping_add(1);
                part.to.offset = part.to.offset.wrapping_add(part.to.bytes as usize);
            }
            None => {
                *verdict = Verdict::Release;
                let message = datagram.head().get(HEADER..).unwrap_or_default();
                hand_on(self.from, message, bytes, above, verdict);
            }
        }
        if bytes != self.bytes {
            self.count(above);
            self.bytes = bytes;
        }
        self.age = datagram.age_ns();
        self.next = self.next.add(1);
        self.left = self.left.wrapping_sub(1);
    }

    /// Reports the datagrams that are not yet counted.
    #[inline]
    fn count(&mut self, above: &mut impl Above) {
        let accepted = Happened::Accepted { kind: self.kind(), bytes: self.bytes };
        above.saw_all(accepted, self.counted.wrapping_sub(self.left));
        self.counted = self.left;
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// As [`handle_datagram`](Self::handle_datagram), where between two calls with one batch the host only carries out
    /// verdicts, and [commits](Self::note_course) the batch after the last one. `true`: no held datagram has become
    /// deliverable.
    #[inline(always)]
    pub(crate) fn handle_next(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        above: &mut impl Above,
        verdict: &mut Verdict,
        course: &mut Course<BITS>,
    ) -> bool {
        if cfg!(feature = "optimize_for_size") {
            self.handle_datagram(now, datagram, above, verdict);
            return false;
        }
        let is_next = course.expects(datagram) || self.begin_course(now, datagram, above, course);
        if is_next {
            course.take(datagram, above, verdict);
        } else {
            self.handle_datagram(now, datagram, above, verdict);
        }
        is_next
    }

    /// Commits the batch: updates the records for the datagrams that were taken.
    #[inline(always)]
    pub(crate) fn note_course(&mut self, now: Now<S, W, BITS>, above: &mut impl Above, course: &mut Course<BITS>) {
        if !cfg!(feature = "optimize_for_size") && course.taken() > 0 {
            self.note_taken(now, above, course);
        }
    }

    #[inline(never)]
    fn note_taken(&mut self, now: Now<S, W, BITS>, above: &mut impl Above, course: &mut Course<BITS>) {
        course.count(above);
        let taken = course.taken();
        course.noted = course.left;
        let arrived = match course.age {
            Some(age) => S::Time::before(now, units(u64::from(age))),
            None => self.polled,
        };
        let quarter = self.quarter();
        let Some(peer) = self.peers.as_mut().get_mut(course.from.0 as usize) else { return };
        peer.inbound.note_all(arrived, taken);
        if u32::from(peer.inbound.unacknowledged()) >= quarter {
            peer.inbound.hurry();
        }
        let used = taken.min(u32::from(peer.granted));
        peer.granted = peer.granted.wrapping_sub(used as u16);
        self.credit.give_back(used);
        self.urgent |= peer.inbound.is_urgent();
        self.ungranted |= peer.granted == 0;
        if let Some(part) = course.part {
            self.count_down(part.placement, taken);
        }
    }

    /// Commits the batch, and starts a new one with a datagram that was not predicted. `true`: now it is.
    #[inline(always)]
    fn begin_course(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        above: &mut impl Above,
        course: &mut Course<BITS>,
    ) -> bool {
        self.note_course(now, above, course);
        (course.left, course.noted, course.counted) = (0, 0, 0);
        let Some((before, _, acknowledged)) = split(datagram.head()) else {
            course.before = Course::<BITS>::NONE.before;
            return false;
        };
        if *before == course.before && *acknowledged == course.acknowledged {
            return self.expect(now, datagram, course).is_some();
        }
        (course.before, course.acknowledged) = (*before, *acknowledged);
        false
    }

    /// Starts a batch with a datagram whose header equals the one before, if it is in order and carries data of a live
    /// peer without a gap.
    #[inline(never)]
    fn expect(&mut self, now: Now<S, W, BITS>, datagram: &impl Received, course: &mut Course<BITS>) -> Option<()> {
        let head = datagram.head();
        let header = Header::<BITS>::parse(head).ok()?;
        let (from, psn) = (PeerId(header.rank), header.psn());
        let next = self.peers.as_ref().get(header.rank as usize)?.inbound.next();
        if next != psn || !datagram.is_from(from) || !self.is_sure(now, &header) {
            return None;
        }
        let peer = self.peers.as_ref().get(header.rank as usize)?;
        // The batch ends at the datagram that makes an acknowledgement due.
        let mut left = self.quarter().saturating_sub(u32::from(peer.inbound.unacknowledged())).max(1);
        let mut part = None;
        if header.kind == Kind::Segment {
            let (placement, Verdict::Place { to, .. }) = self.part_of(peer, header.rank, psn, datagram)?.ok()? else {
                return None;
            };
            let record = placement.among(self.placements.as_ref())?;
            let Stage::Open { bytes, left: parts, .. } = record.stage else { return None };
            let (index, size) = (SegmentHeader::parse(head).ok()?.index, peer.segment());
            // A shorter last segment is not predicted. A datagram sent instead of a segment may leave more parts than
            // there are segments.
            let whole = bytes.saturating_sub(index.saturating_mul(size)).checked_div(size)?;
            left = left.min(whole).min(parts);
            part = Some(Part { placement, index, to });
        }
        *course = Course { left, noted: left, counted: left, from, next, part, ..*course };
        (left > 0).then_some(())
    }

    /// Datagrams of one peer after which an acknowledgement is due.
    #[inline]
    pub(in crate::endpoint) fn quarter(&self) -> u32 {
        (self.credit.share(W as u32) >> 2).max(1)
    }

    /// Whether a datagram with this header is plain data of a live peer without a gap, whose only effects are those of
    /// [`note_course`](Self::note_course).
    fn is_sure(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) -> bool {
        let Some(peer) = self.peers.as_ref().get(header.rank as usize) else { return false };
        let is_plain = matches!(header.kind, Kind::Eager | Kind::Segment) && header.flags == Flags::empty();
        let is_present =
            peer.is_alive() && header.incarnation == peer.incarnation && header.expected == self.config.incarnation;
        let is_known = peer.has(TOUCHED) && peer.has(USED) && peer.has(LISTED) && peer.has(WANTS);
        if !is_plain || !is_present || !is_known || peer.receiver != NO_WINDOW {
            return false;
        }
        if peer.sender() == NO_WINDOW {
            return true;
        }
        // At the same `now`, a second equal header has no effect on the window.
        let units = self.watch_of(peer);
        let Some(record) = self.senders.as_mut().get_mut(usize::from(peer.sender())) else { return false };
        record.flags & ORPHAN == 0 && record.window.hear_again(now, Psn::new(header.acknowledged), header.credit, units)
    }
}

/// A header before its PSN, the PSN, and the acknowledgement.
#[inline(always)]
fn split(head: &[u8]) -> Option<(&[u8; BEFORE], u32, &[u8; 4])> {
    let (before, rest) = head.split_first_chunk()?;
    let (psn, rest) = rest.split_first_chunk()?;
    Some((before, u32::from_le_bytes(*psn), rest.first_chunk()?))
}
