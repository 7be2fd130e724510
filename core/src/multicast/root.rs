//! The root of a stream: a sliding window over a ring of copies.

use super::StreamConfig;
use super::datagram::{Body, Probe, Report, Segment};
use super::members::{Audience, Extent, Members};
use super::reach::Reach;
use crate::ids::{Psn, Rank};
use crate::time::Time;
use crate::window::rtt::Rtt;
use crate::wire::Bitmap;

/// A datagram to be sent. A segment's payload is the copy in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request<const BITS: u32> {
    /// The receivers.
    pub to: Audience,
    /// The datagram.
    pub body: Body<BITS>,
    /// It is a segment that was sent before.
    pub is_repair: bool,
}

/// The window is full: enqueue when the edge has moved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowFull;

/// To whom a segment was sent again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Resent {
    /// It was not, and no member was probed since it was sent: its acknowledgement measures the round trip.
    No,
    /// To some, or members were probed.
    Some,
    /// To all.
    All,
}

/// A copy in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Copied<T: Time, const BITS: u32> {
    segment: Segment<BITS>,
    /// When it was sent to all last.
    sent: T::Stamp,
    resent: Resent,
}

impl<T: Time, const BITS: u32> Copied<T, BITS> {
    fn new(segment: Segment<BITS>) -> Self {
        Self { segment, sent: T::ZERO, resent: Resent::No }
    }
}

/// The segments that were sent again to one member, until a timeout after the last one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct RecentRepairs<T: Time> {
    /// By place in the ring.
    places: Bitmap,
    last: T::Stamp,
}

/// The root of a stream to at most `N` members: keeps up to `W` segments until all living members have acknowledged
/// them. The host copies a segment's payload to place `psn % W` of its ring when it enqueues it, and may reuse the place
/// once [`edge`](Self::edge) is beyond it. Work per call is O(`N`), of a repair O(`N`·`W`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Root<T: Time, const N: usize, const W: usize, const BITS: u32> {
    config: StreamConfig,
    members: Members<N, BITS>,
    copies: [Copied<T, BITS>; W],
    recent: [RecentRepairs<T>; N],
    reach: [Reach; N],
    /// The first segment that is kept.
    edge: Psn<BITS>,
    /// The first segment that was not sent.
    unsent: Psn<BITS>,
    /// The next segment's number.
    next: Psn<BITS>,
    /// The co-root that gets a copy of the segment before `unsent` next.
    co_root: u32,
    rtt: Rtt,
    backoff: u8,
    deadline: Option<T::Instant>,
}

impl<T: Time, const N: usize, const W: usize, const BITS: u32> Root<T, N, W, BITS> {
    const CHECK: () = assert!(
        W.is_power_of_two() && W <= 256 && (W as u64) << 1 <= 1 << BITS,
        "a window has a power of two of segments, at most 256 and at most half of the PSNs"
    );

    /// The root of a stream whose first PSN is `first`.
    pub fn new(config: StreamConfig, first: Psn<BITS>) -> Self {
        const { Self::CHECK };
        Self {
            members: Members::new(config.topology, config.topology.root, first),
            copies: [Copied::new(Segment::default()); W],
            recent: [RecentRepairs { places: Bitmap::EMPTY, last: T::ZERO }; N],
            reach: [Reach::default(); N],
            edge: first,
            unsent: first,
            next: first,
            co_root: u32::MAX,
            rtt: Rtt::NONE,
            backoff: 0,
            deadline: None,
            config,
        }
    }

    /// Every segment before this one was delivered at all living members, and its copy may be overwritten.
    pub const fn edge(&self) -> Psn<BITS> {
        self.edge
    }

    /// The next segment's number.
    pub const fn next(&self) -> Psn<BITS> {
        self.next
    }

    /// Segments that can be enqueued now.
    pub const fn room(&self) -> u32 {
        (W as u32).saturating_sub(self.next.since(self.edge))
    }

    fn copy(&mut self, psn: Psn<BITS>) -> Option<&mut Copied<T, BITS>> {
        self.copies.get_mut(psn.get() as usize & W.wrapping_sub(1))
    }

    /// What has been sent and is kept.
    const fn sent(&self) -> Extent<BITS> {
        Extent { first: self.edge, end: self.unsent }
    }

    /// Queues a segment, the `index`-th of a message of `bytes` bytes.
    ///
    /// # Errors
    /// [`WindowFull`].
    pub fn enqueue(&mut self, index: u32, bytes: u32, is_last: bool) -> Result<Psn<BITS>, WindowFull> {
        if self.room() == 0 && !mutant!("window_overrun") {
            return Err(WindowFull);
        }
        let psn = self.next;
        let segment = Segment { psn, index, bytes, is_last, ack_now: false };
        let copy = self.copy(psn).ok_or(WindowFull)?;
        *copy = Copied::new(segment);
        self.next = psn.add(1);
        Ok(psn)
    }

    /// The next datagram: repairs, copies for co-roots, new segments, probes.
    pub fn poll_transmit(&mut self, now: T::Instant) -> Option<Request<BITS>> {
        let extent = self.sent();
        let Self { copies, members, .. } = self;
        // What multicast has lost twice it may lose always.
        let may_multicast = |psn: Psn<BITS>| {
            let copy = copies.get(psn.get() as usize & W.wrapping_sub(1));
            copy.is_some_and(|copy| copy.resent != Resent::All) || mutant!("lost_to_all_again")
        };
        if let Some((psn, to)) = members.poll_repair(extent, may_multicast, |_| true) {
            let copy = self.copy(psn)?;
            copy.resent = copy.resent.max(Resent::Some);
            if to == Audience::Group {
                (copy.resent, copy.sent) = (Resent::All, T::stamp(now));
            }
            let segment = Segment { ack_now: true, ..copy.segment };
            if let Audience::Member(rank) = to
                && let Some(recent) = self.recent.get_mut(rank.0 as usize)
                && T::since(now, T::stamp(now)).is_some()
            {
                recent.places.insert(psn.get() & (W as u32).wrapping_sub(1));
                recent.last = T::stamp(now);
            }
            return Some(Request { to, body: Body::Segment(segment), is_repair: true });
        }
        while let Some(to) = self.members.topology().co_root(self.co_root) {
            self.co_root = self.co_root.saturating_add(1);
            let psn = self.unsent.back(1);
            if self.members.contains(to)
                && let Some(copy) = self.copy(psn)
            {
                let body = Body::Segment(copy.segment);
                return Some(Request { to: Audience::Member(to), body, is_repair: false });
            }
        }
        if self.unsent != self.next && self.members.children().next().is_some() {
            return self.transmit_new(now);
        }
        self.skip_unneeded();
        let (rank, start) = self.members.poll_probe()?;
        let body = Body::Probe(Probe { next: self.unsent, start });
        Some(Request { to: Audience::Member(rank), body, is_repair: false })
    }

    fn transmit_new(&mut self, now: T::Instant) -> Option<Request<BITS>> {
        let psn = self.unsent;
        let is_only = psn.add(1) == self.next;
        let copy = self.copy(psn)?;
        copy.sent = T::stamp(now);
        copy.segment.ack_now = is_only;
        let body = Body::Segment(copy.segment);
        self.unsent = psn.add(1);
        self.co_root = 0;
        if self.deadline.is_none() {
            self.arm(now);
        }
        Some(Request { to: Audience::Group, body, is_repair: false })
    }

    /// Without members nothing is sent.
    fn skip_unneeded(&mut self) {
        if self.members.children().next().is_none() {
            (self.unsent, self.edge, self.co_root, self.deadline) = (self.next, self.next, u32::MAX, None);
        }
    }

    /// Handles a report of a member.
    pub fn handle_report(&mut self, now: T::Instant, from: Rank, report: &Report<BITS>) {
        let report = Report { missing: self.unrepaired(now, from, report), ..*report };
        let Some(reported) = self.members.handle_report(from, &report, self.sent()) else { return };
        if let Some(reach) = self.reach.get_mut(from.0 as usize) {
            reach.record(reported.moved, reported.missed, self.config.deaf_sample);
        }
        if let Some(copy) = self.copy(report.own.back(1))
            && reported.moved > 0
            && copy.resent == Resent::No
            && let Some(units) = T::since(now, copy.sent)
        {
            self.rtt.sample(units);
        }
        self.advance(now);
    }

    /// The missing segments of a report without those that were sent to the member, or to all members, again less than
    /// a timeout ago: these are under way, or the next probe finds that they were lost.
    fn unrepaired(&mut self, now: T::Instant, from: Rank, report: &Report<BITS>) -> Bitmap {
        let under_way = self.interval();
        let mut missing = report.missing;
        if let Some(recent) = self.recent.get_mut(from.0 as usize) {
            if T::since(now, recent.last).is_none_or(|units| units >= under_way) {
                recent.places = Bitmap::EMPTY;
            }
            let place = |bit: u32| report.own.add(bit).get() & (W as u32).wrapping_sub(1);
            report.missing.iter().filter(|bit| recent.places.contains(place(*bit))).for_each(|bit| missing.remove(bit));
        }
        for bit in report.missing.iter() {
            if let Some(copy) = self.copy(report.own.add(bit))
                && copy.resent == Resent::All
                && T::since(now, copy.sent).is_some_and(|units| units < under_way)
            {
                missing.remove(bit);
            }
        }
        missing
    }

    /// Frees what all living members have acknowledged, and watches the rest.
    fn advance(&mut self, now: T::Instant) {
        let edge = self.members.edge(self.sent(), self.unsent);
        let moved = edge != self.edge;
        while self.edge != edge {
            if let Some(copy) = self.copy(self.edge) {
                *copy = Copied::new(Segment::default());
            }
            let place = self.edge.get() & (W as u32).wrapping_sub(1);
            self.recent.iter_mut().for_each(|recent| recent.places.remove(place));
            self.edge = self.edge.add(1);
        }
        if moved {
            self.members.raise(self.sent());
            self.backoff = 0;
        }
        if !self.members.is_lagging(self.unsent) {
            self.deadline = None;
        } else if moved || self.deadline.is_none() {
            self.arm(now);
        }
    }

    /// The timeout with its backoff, in units of 64 ns.
    fn interval(&self) -> u32 {
        let timeout = self.rtt.timeout(self.config.granularity);
        timeout.saturating_mul(1_u32.checked_shl(self.backoff.into()).unwrap_or(u32::MAX)).min(self.config.max_interval)
    }

    fn arm(&mut self, now: T::Instant) {
        let units = self.interval();
        self.deadline = if mutant!("tail_unprobed") { None } else { Some(T::after(now, units)) };
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub const fn poll_timeout(&self) -> Option<T::Instant> {
        self.deadline
    }

    /// Asks the members that lag for reports, if the deadline has passed.
    pub fn handle_timeout(&mut self, now: T::Instant) {
        if self.deadline.is_some_and(|at| T::is_due(now, at)) {
            self.members.probe(self.unsent);
            for copy in &mut self.copies {
                copy.resent = copy.resent.max(Resent::Some);
            }
            self.backoff = self.backoff.saturating_add(1).min(T::MAX_BACKOFF);
            self.arm(now);
        }
    }

    /// A member has failed: it is not waited for.
    pub fn handle_failed(&mut self, now: T::Instant, rank: Rank) {
        if mutant!("dead_member_awaited") {
            return;
        }
        self.members.fail(rank, self.sent());
        self.skip_unneeded();
        self.advance(now);
    }

    /// Adds a member, which gets the stream from the next unsent segment on.
    pub fn add_member(&mut self, now: T::Instant, rank: Rank) {
        self.members.add(rank, if mutant!("joins_at_edge") { self.edge } else { self.unsent });
        if let Some(reach) = self.reach.get_mut(rank.0 as usize) {
            *reach = Reach::default();
        }
        self.advance(now);
    }

    /// The first segment that was not sent.
    pub const fn unsent(&self) -> Psn<BITS> {
        self.unsent
    }

    /// The members that have not acknowledged all that was sent.
    pub fn lagging(&self) -> impl Iterator<Item = Rank> + '_ {
        self.members.lagging(self.unsent)
    }

    /// Whether multicasts do not reach a member that acknowledges to the root, by its reports of missing segments in a
    /// [sample](StreamConfig::deaf_sample). A member stays deaf; it still gets every segment.
    pub fn is_deaf(&self, member: Rank) -> bool {
        self.members.children().any(|child| child == member)
            && self.reach.get(member.0 as usize).is_some_and(Reach::is_deaf)
    }

    /// Whether a founder is deaf.
    pub fn has_deaf_member(&self) -> bool {
        (0..self.config.topology.founders).any(|founder| self.is_deaf(Rank(founder)))
    }

    /// Whether every member has acknowledged every segment.
    pub fn is_idle(&self) -> bool {
        self.edge == self.next && !self.members.has_requests()
    }

    /// The smoothed round trip to a member, in units of 64 ns; zero without a sample.
    pub const fn round_trip(&self) -> u32 {
        self.rtt.smoothed()
    }
}
