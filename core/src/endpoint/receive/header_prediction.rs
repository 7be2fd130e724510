//! Datagrams that arrive one behind the other: what was found out about one holds for those like it (header prediction, as in
//! Jacobson, "4BSD TCP Header Prediction", CCR 1990).

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

/// Bytes of a header before its PSN: what it is, and between whose lives it travels.
const BEFORE: usize = 16;

/// Datagrams of one peer that arrive one behind the other. What each does to the records is done for all of them together
/// ([`note_course`](Endpoint::note_course)), before anything else is asked of the endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course<const BITS: u32> {
    /// The header before the PSN, and the acknowledgement behind it.
    before: [u8; BEFORE],
    acknowledged: [u8; 4],
    /// So many more are taken if they are next: data of a living peer that say nothing new.
    left: u32,
    /// `left` when the records were noted last, and when last counted.
    noted: u32,
    counted: u32,
    from: PeerId,
    next: Psn<BITS>,
    /// Of a placement: the part that is next.
    part: Option<Part>,
    /// Bytes of each that is not counted, and how old the last one was when it was taken.
    bytes: u32,
    age: Option<u32>,
}

/// Where a whole segment goes.
#[derive(Clone, Copy, Debug)]
struct Part {
    placement: PlacementId,
    index: u32,
    to: Span,
}

impl<const BITS: u32> Course<BITS> {
    /// No datagram is like this: the version is not spoken.
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

    /// Taken and not yet noted.
    const fn taken(&self) -> u32 {
        self.noted.wrapping_sub(self.left)
    }

    const fn kind(&self) -> Kind {
        if self.part.is_some() { Kind::Segment } else { Kind::Eager }
    }

    /// Whether this datagram is the next one.
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

    /// Takes the next datagram.
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

    /// Counts what is not counted yet.
    #[inline]
    fn count(&mut self, above: &mut impl Above) {
        let accepted = Happened::Accepted { kind: self.kind(), bytes: self.bytes };
        above.saw_all(accepted, self.counted.wrapping_sub(self.left));
        self.counted = self.left;
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// As [`handle_datagram`](Self::handle_datagram), where between two calls with one course nothing is done but what the verdict
    /// says, and behind the last one the course is [noted](Self::note_course). True: nothing that was held has its turn.
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

    /// Does to the records what the datagrams do that were taken.
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

    /// Notes what was taken, and begins a course with a datagram that is not what was expected. True: now it is.
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

    /// Begins a course with a datagram like the one before, if its turn has come and it carries data that are taken, of a living peer
    /// without a gap.
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
        // The one that makes a quarter of the window wait is the last.
        let mut left = self.quarter().saturating_sub(u32::from(peer.inbound.unacknowledged())).max(1);
        let mut part = None;
        if header.kind == Kind::Segment {
            let (placement, Verdict::Place { to, .. }) = self.part_of(peer, header.rank, psn, datagram)?.ok()? else {
                return None;
            };
            let record = placement.among(self.placements.as_ref())?;
            let Stage::Open { bytes, left: parts, .. } = record.stage else { return None };
            let (index, size) = (SegmentHeader::parse(head).ok()?.index, peer.segment());
            // A last one that is shorter is none of them. What was sent instead of a segment leaves more parts than there are segments.
            let whole = bytes.saturating_sub(index.saturating_mul(size)).checked_div(size)?;
            left = left.min(whole).min(parts);
            part = Some(Part { placement, index, to });
        }
        *course = Course { left, noted: left, counted: left, from, next, part, ..*course };
        (left > 0).then_some(())
    }

    /// So many of a peer's datagrams are acknowledged at once.
    #[inline]
    pub(in crate::endpoint) fn quarter(&self) -> u32 {
        (self.credit.share(W as u32) >> 2).max(1)
    }

    /// Whether datagrams whose header is like this one are data from a living peer without a gap, of which
    /// [`note_course`](Self::note_course) says all.
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
        // At one moment the same word does nothing for the second time.
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
