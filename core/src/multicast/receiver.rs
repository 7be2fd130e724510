//! A member of a stream: places segments in any order, delivers them in order, acknowledges for itself and for those
//! below it, and, as a co-root, repairs their losses.

use super::StreamConfig;
use super::datagram::{Body, Probe, Report, Segment};
use super::members::{Audience, Extent, Members};
use super::root::Request;
use super::topology::AckMode;
use crate::ids::{Psn, Rank};
use crate::wire::Bitmap;

/// What becomes of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    /// The host copies the payload to place `psn % W` of the stream's ring before the next call.
    Place,
    /// It has come before, or lies outside of the window.
    Drop,
}

/// What the member has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// It has joined, and waits for the root's probe.
    Joining,
    /// It receives.
    Receiving,
    /// The root has failed.
    Ended,
}

/// A member of one root's stream, with a ring of `W` segments.
///
/// No timer runs here: a gap is reported when it is noticed, and everything that is missing when the root or a co-root
/// asks. Work per call is O(`N`), of a repair O(`N`·`W`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Receiver<const N: usize, const W: usize, const BITS: u32> {
    own: Rank,
    every: u32,
    state: State,
    members: Members<N, BITS>,
    /// By place in the ring; of freed places the default.
    segments: [Segment<BITS>; W],
    /// Every segment before this one was delivered here.
    delivered: Psn<BITS>,
    /// Every segment before this one was delivered here and below. The ring holds those from here on.
    edge: Psn<BITS>,
    /// Bit i: segment `delivered` + i has arrived.
    arrived: Bitmap,
    /// After the last segment that is known to have been sent.
    highest: Psn<BITS>,
    /// Bit i: segment `delivered` + i is missing, and its repairer is to know.
    nack: Bitmap,
    /// The edge in the last report to the parent.
    reported: Psn<BITS>,
    /// The root wants a report as soon as the edge gets here.
    ack_edge: Psn<BITS>,
    /// A report is due in any case.
    must_report: bool,
    /// The root, which this member does not acknowledge to, has probed the whole group, and wants a report.
    must_answer: bool,
}

impl<const N: usize, const W: usize, const BITS: u32> Receiver<N, W, BITS> {
    /// The member `own` of a stream whose first PSN is `first`. A member that is no founder waits for the root's probe.
    pub fn new(config: StreamConfig, own: Rank, first: Psn<BITS>) -> Self {
        let state = if own.0 < config.topology.founders { State::Receiving } else { State::Joining };
        Self {
            own,
            every: config.ack_every.clamp(1, W as u32),
            state,
            members: Members::new(config.topology, own, first),
            segments: [Segment::default(); W],
            delivered: first,
            edge: first,
            arrived: Bitmap::EMPTY,
            highest: first,
            nack: Bitmap::EMPTY,
            reported: first,
            ack_edge: first,
            must_report: false,
            must_answer: false,
        }
    }

    /// The segments that the ring can hold now.
    const fn extent(&self) -> Extent<BITS> {
        Extent { first: self.edge, end: self.edge.add(W as u32) }
    }

    fn segment(&self, psn: Psn<BITS>) -> Option<&Segment<BITS>> {
        self.segments.get(psn.get() as usize & W.wrapping_sub(1))
    }

    fn segment_mut(&mut self, psn: Psn<BITS>) -> Option<&mut Segment<BITS>> {
        self.segments.get_mut(psn.get() as usize & W.wrapping_sub(1))
    }

    /// Whether the ring holds the segment.
    fn has(&self, psn: Psn<BITS>) -> bool {
        let place = psn.since(self.edge);
        let delivered = self.delivered.since(self.edge);
        place < delivered || place < W as u32 && self.arrived.contains(place.wrapping_sub(delivered))
    }

    /// Handles a segment from the root or from the co-root that repairs.
    pub fn handle_segment(&mut self, segment: &Segment<BITS>) -> Placement {
        let place = segment.psn.since(self.edge);
        let is_outside = place >= W as u32 && !mutant!("old_segment_placed");
        if self.state != State::Receiving || is_outside || self.has(segment.psn) {
            return Placement::Drop;
        }
        let bit = segment.psn.since(self.delivered);
        self.arrived.insert(bit);
        self.nack.remove(bit);
        if let Some(copy) = self.segment_mut(segment.psn) {
            *copy = Segment { ack_now: false, ..*segment };
        }
        let after = segment.psn.add(1);
        self.extend(after, !mutant!("gap_unreported"));
        if segment.ack_now && !self.is_ahead(self.ack_edge, place) {
            self.ack_edge = after;
        }
        Placement::Place
    }

    /// Whether the mark lies in the window, more than `place` segments after the edge.
    const fn is_ahead(&self, mark: Psn<BITS>, place: u32) -> bool {
        let ahead = mark.since(self.edge);
        ahead > place && ahead <= W as u32
    }

    /// Segments before `end` are known to have been sent; those that are new and have not arrived are missing.
    fn extend(&mut self, end: Psn<BITS>, is_reported: bool) {
        let mut psn = self.highest;
        if end.since(self.edge) <= psn.since(self.edge) {
            return;
        }
        while psn != end {
            let bit = psn.since(self.delivered);
            if is_reported && !self.arrived.contains(bit) {
                self.nack.insert(bit);
            }
            psn = psn.add(1);
        }
        self.highest = end;
    }

    /// The next segment in order: the host takes its payload from the ring before the next call.
    pub fn poll_delivery(&mut self) -> Option<Segment<BITS>> {
        let skips = mutant!("delivered_out_of_order") && !self.arrived.is_empty();
        if !self.arrived.contains(0) && !skips {
            return None;
        }
        let segment = *self.segment(self.delivered)?;
        self.arrived.shift();
        self.nack.shift();
        self.delivered = self.delivered.add(1);
        self.advance();
        Some(segment)
    }

    /// The segment that [`poll_delivery`](Self::poll_delivery) returns next.
    pub fn peek_delivery(&self) -> Option<&Segment<BITS>> {
        if self.arrived.contains(0) { self.segment(self.delivered) } else { None }
    }

    /// Frees what was delivered here and below.
    fn advance(&mut self) {
        let edge = self.members.edge(self.extent(), self.delivered);
        let edge = if mutant!("co_root_forgets") { self.delivered } else { edge };
        if edge == self.edge {
            return;
        }
        while self.edge != edge {
            if let Some(segment) = self.segment_mut(self.edge) {
                *segment = Segment::default();
            }
            self.edge = self.edge.add(1);
        }
        self.members.raise(self.extent());
    }

    /// Handles a report of a member below this one.
    pub fn handle_report(&mut self, from: Rank, report: &Report<BITS>) {
        if self.state == State::Receiving && self.members.handle_report(from, report, self.extent()).is_some() {
            self.advance();
        }
    }

    /// Takes part from this segment on, if it waits for the root's probe: the root has reported it by a message, so that a
    /// probe of an earlier membership, which may arrive late, does not count.
    pub fn begin(&mut self, start: Psn<BITS>) {
        if self.state == State::Joining {
            self.state = State::Receiving;
            (self.delivered, self.edge, self.highest) = (start, start, start);
            (self.reported, self.ack_edge) = (start, start);
            self.members.raise(self.extent());
        }
    }

    /// Handles a probe: reports, with everything that is missing, and asks the members below that lag. The root gets a
    /// report, too, if it probes a member that acknowledges to another one, as it does when it tests the group.
    pub fn handle_probe(&mut self, from: Rank, probe: &Probe<BITS>) {
        self.begin(probe.start);
        if self.is_ahead(probe.next, 0) {
            self.extend(probe.next, false);
        }
        self.report_all();
        self.must_answer |= from == self.members.topology().root && self.members.parent(self.own) != Some(from);
        if !mutant!("probe_ends") {
            self.members.probe(self.highest);
        }
    }

    fn report_all(&mut self) {
        self.must_report = true;
        let mut psn = self.delivered;
        while psn != self.highest {
            let bit = psn.since(self.delivered);
            if !self.arrived.contains(bit) {
                self.nack.insert(bit);
            }
            psn = psn.add(1);
        }
    }

    /// A member has failed. If it was the root, the stream ends; if it was the parent, the next one gets a report.
    pub fn handle_failed(&mut self, rank: Rank) {
        if rank == self.members.topology().root && !mutant!("root_death_ignored") {
            self.state = State::Ended;
            return;
        }
        let parent = self.members.parent(self.own);
        self.members.fail(rank, self.extent());
        if self.state != State::Receiving {
            return;
        }
        if self.members.parent(self.own) != parent && !mutant!("leaf_stays") {
            self.report_all();
        }
        self.advance();
    }

    /// The members below this one that have not acknowledged all that is known to have been sent.
    pub fn lagging(&self) -> impl Iterator<Item = Rank> + '_ {
        self.members.lagging(self.highest)
    }

    /// Whether it takes part: it is a founder, or was probed by the root.
    pub fn has_joined(&self) -> bool {
        self.state != State::Joining
    }

    /// Whether a segment has arrived and an earlier one has not.
    pub fn has_gap(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// The first segment that is missing here, if the root has failed. The segments before it are delivered first.
    pub fn ended(&self) -> Option<Psn<BITS>> {
        (self.state == State::Ended && !self.arrived.contains(0)).then_some(self.delivered)
    }

    /// The next datagram: reports, repairs as a co-root, probes.
    pub fn poll_transmit(&mut self) -> Option<Request<BITS>> {
        if self.state != State::Receiving {
            return None;
        }
        let root = self.members.topology().root;
        let parent = self.members.parent(self.own)?;
        let repairer = if matches!(self.members.topology().mode, AckMode::CoRoot { .. }) { parent } else { root };
        if core::mem::take(&mut self.must_answer) {
            return Some(self.report(root, false));
        }
        if self.is_report_due() {
            (self.must_report, self.reported) = (false, self.edge);
            if !self.is_ahead(self.ack_edge, 0) {
                self.ack_edge = self.edge;
            }
            return Some(self.report(parent, parent == repairer));
        }
        if !self.nack.is_empty() {
            return Some(self.report(repairer, true));
        }
        if self.members.topology().is_co_root(self.own) {
            let (extent, this) = (self.extent(), *self);
            if let Some((psn, to)) = self.members.poll_repair(extent, |_| false, |psn| this.has(psn)) {
                let segment = Segment { ack_now: true, ..*self.segment(psn)? };
                return Some(Request { to, body: Body::Segment(segment), is_repair: true });
            }
        }
        let (rank, start) = self.members.poll_probe()?;
        let body = Body::Probe(Probe { next: self.highest, start });
        Some(Request { to: Audience::Member(rank), body, is_repair: false })
    }

    fn is_report_due(&self) -> bool {
        let unreported = self.edge.since(self.reported);
        let wanted = self.ack_edge.since(self.reported);
        self.must_report || unreported >= self.every || wanted > 0 && wanted <= unreported
    }

    fn report(&mut self, to: Rank, with_missing: bool) -> Request<BITS> {
        let missing = if with_missing { core::mem::take(&mut self.nack) } else { Bitmap::EMPTY };
        let below = if mutant!("acks_for_itself") { self.delivered } else { self.edge };
        let body = Body::Report(Report { own: self.delivered, below, missing });
        Request { to: Audience::Member(to), body, is_repair: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multicast::Topology;

    #[test]
    fn a_probe_of_the_whole_group_is_answered_to_the_root_too() {
        let topology = Topology { mode: AckMode::CoRoot { count: 1 }, founders: 4, root: Rank(0) };
        let config = StreamConfig { topology, ack_every: 1, granularity: 1, max_interval: 1, deaf_sample: 0 };
        let first = Psn::new(0);
        let mut leaf = Receiver::<4, 2, 3>::new(config, Rank(3), first);
        let probe = Probe { next: first, start: first };
        for (from, answered) in [(0, &[0, 1][..]), (1, &[1])] {
            leaf.handle_probe(Rank(from), &probe);
            let to = core::iter::from_fn(|| leaf.poll_transmit()).map(|request| request.to);
            assert!(to.eq(answered.iter().map(|rank| Audience::Member(Rank(*rank)))), "probed by {from}");
        }
    }

    #[test]
    fn a_probe_of_an_earlier_membership_changes_nothing() {
        let topology = Topology { mode: AckMode::Basic, founders: 2, root: Rank(0) };
        let config = StreamConfig { topology, ack_every: 1, granularity: 1, max_interval: 1, deaf_sample: 0 };
        for (begins, edge) in [(true, 5), (false, 2)] {
            let mut member = Receiver::<4, 2, 3>::new(config, Rank(2), Psn::new(0));
            if begins {
                member.begin(Psn::new(5));
            }
            member.handle_probe(Rank(0), &Probe { next: Psn::new(2), start: Psn::new(2) });
            let report = member.poll_transmit().map(|request| request.body);
            assert!(matches!(report, Some(Body::Report(Report { own, .. })) if own == Psn::new(edge)), "{report:?}");
        }
    }
}
