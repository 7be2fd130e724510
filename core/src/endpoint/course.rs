//! Datagrams that arrive one behind the other: what was found out about one holds for those like it (header prediction, as in
//! Jacobson, "4BSD TCP Header Prediction", CCR 1990).

use super::{Above, Endpoint, Now, ORPHAN, Verdict};
use crate::counters::Happened;
use crate::device::{PeerId, Received};
use crate::peer::{LISTED, NO_WINDOW, TOUCHED, USED, WANTS};
use crate::psn::Psn;
use crate::span::Span;
use crate::storage::Storage;
use crate::time::{Time, units};
use crate::wire::{Flags, HEADER, Header, Kind};

/// Bytes of a header before its PSN: what it is, and between whose lives it travels.
const BEFORE: usize = 16;

/// What the next datagram has to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// The header before the PSN, and the acknowledgement behind it.
    before: [u8; BEFORE],
    acknowledged: [u8; 4],
    /// Such a datagram is data of a living peer, and says nothing new: only whether it is its turn has to be seen.
    is_sure: bool,
}

impl Course {
    /// No datagram is like this: the version is not spoken.
    pub(crate) const NONE: Self = Self { before: [0; BEFORE], acknowledged: [0; 4], is_sure: false };

    #[cfg(test)]
    pub(super) const fn is_sure(&self) -> bool {
        self.is_sure
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// As [`handle_datagram`](Self::handle_datagram), where between two calls with one course nothing is done but what the verdict
    /// says, and what is held has its turn.
    #[inline(always)]
    pub(crate) fn handle_next(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        above: &mut impl Above,
        verdict: &mut Verdict,
        course: &mut Course,
    ) {
        if cfg!(feature = "optimize_for_size") || !self.follow(now, datagram, above, verdict, course) {
            self.handle_datagram(now, datagram, above, verdict);
        }
    }

    /// Handles a datagram that is like the one before, if its turn has come and it carries data that are taken. False: nothing was
    /// done, and the course begins with this one.
    #[inline(always)]
    fn follow(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        above: &mut impl Above,
        verdict: &mut Verdict,
        course: &mut Course,
    ) -> bool {
        let head = datagram.head();
        let Some((before, [p, q, r, s, acknowledged @ ..])) = split(head) else {
            *course = Course::NONE;
            return false;
        };
        let psn = Psn::new(u32::from_le_bytes([*p, *q, *r, *s]));
        if *before == course.before
            && *acknowledged == course.acknowledged
            && let [kind, _, _, _, a, b, c, d, ..] = *before
            && let from = u32::from_le_bytes([a, b, c, d])
            && self.peers.as_ref().get(from as usize).is_some_and(|peer| peer.inbound.next() == psn)
            && datagram.is_from(PeerId(from))
            && (course.is_sure || self.is_sure(now, head))
        {
            course.is_sure = true;
            let (kind, bytes) = if kind & 15 == Kind::Eager as u8 {
                (Kind::Eager, self.take_eager(from, datagram, above, verdict))
            } else {
                (Kind::Segment, self.take_segment(from, psn, datagram, verdict))
            };
            if let Some(bytes) = bytes {
                let arrived = match datagram.age_ns() {
                    Some(age) => S::Time::before(now, units(u64::from(age))),
                    None => self.polled,
                };
                self.note_next(from, arrived, psn);
                above.saw(Happened::Accepted { kind, bytes });
                return true;
            }
        }
        *course = Course { before: *before, acknowledged: *acknowledged, is_sure: false };
        false
    }

    /// Whether datagrams whose header is like this one are data from a living peer without a gap, of which
    /// [`note_next`](Self::note_next) says all.
    #[inline(never)]
    fn is_sure(&mut self, now: Now<S, W, BITS>, head: &[u8]) -> bool {
        let Ok(header) = Header::<BITS>::parse(head) else { return false };
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

    /// An eager message whose turn has come. Returns the datagram's bytes.
    #[inline(always)]
    fn take_eager(
        &self,
        from: u32,
        datagram: &impl Received,
        above: &mut impl Above,
        verdict: &mut Verdict,
    ) -> Option<u32> {
        let (message, bytes) = (datagram.head().get(HEADER..)?, datagram.bytes());
        *verdict = Verdict::Release;
        let behind = bytes.saturating_sub(HEADER as u32);
        if let Verdict::Place { to, start } = above.handle_eager(PeerId(from), message, behind) {
            let start = start.saturating_add(HEADER as u16);
            let left = to.bytes.min(bytes.saturating_sub(u32::from(start)));
            *verdict = Verdict::Place { to: Span { bytes: left, ..to }, start };
        }
        Some(bytes)
    }

    /// A segment whose turn has come. `None`: it is not taken.
    #[inline(always)]
    fn take_segment(
        &mut self,
        from: u32,
        psn: Psn<BITS>,
        datagram: &impl Received,
        verdict: &mut Verdict,
    ) -> Option<u32> {
        let peer = self.peers.as_ref().get(from as usize)?;
        let (placement, to) = self.part_of(peer, from, psn, datagram)?.ok()?;
        let bytes = datagram.bytes();
        *verdict = to;
        self.count_down(placement);
        Some(bytes)
    }

    /// Data whose turn it was were taken, of a peer of which [`is_sure`](Self::is_sure) is true.
    #[inline(always)]
    fn note_next(&mut self, from: u32, arrived: <S::Time as Time>::Stamp, psn: Psn<BITS>) {
        let quarter = (self.credit.share(W as u32) >> 2).max(1);
        let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return };
        peer.inbound.note(arrived, psn, 0);
        if u32::from(peer.inbound.unacknowledged()) >= quarter {
            peer.inbound.hurry();
        }
        if peer.granted > 0 {
            peer.granted = peer.granted.wrapping_sub(1);
            self.credit.give_back(1);
        }
        self.urgent |= peer.inbound.is_urgent();
        self.ungranted |= peer.granted == 0;
        peer.inbound.advance::<W>(None);
    }
}

/// A header before its PSN, and the rest of it.
#[inline(always)]
fn split(head: &[u8]) -> Option<(&[u8; BEFORE], &[u8; HEADER - BEFORE])> {
    let (before, rest) = head.split_first_chunk()?;
    Some((before, rest.first_chunk()?))
}
