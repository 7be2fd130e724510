//! The sending half of a sliding window (Koop et al. 2007, §4.2) with repair by send order.
//!
//! Segments leave in PSN order and are kept until they are acknowledged **and** the device has finished their last
//! posting. A hole is repaired when something that was sent later has been acknowledged, never because time went by: the
//! idea of RACK (RFC 8985), counted in datagrams instead of time. When nothing comes back, a header-only probe asks.
//!
//! The window keeps segments that have been sent in a list by order of their latest posting. Those whose posting the
//! device has not finished are always a suffix of that list.

use crate::congestion::{Congestion, Control};
use crate::device::{Cause, Ticket};
use crate::psn::Psn;
use crate::rtt::Rtt;
use crate::time::Time;
use crate::wire::{Acknowledgement, Echo};

/// What a segment carries: a part of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Piece {
    /// The operation's record.
    pub operation: u32,
    /// Which part of it.
    pub part: u32,
}

/// A segment to be posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Segment<const BITS: u32> {
    /// Its sequence number.
    pub psn: Psn<BITS>,
    /// What it carries.
    pub piece: Piece,
    /// How often it was sent before, modulo 4.
    pub count: u8,
    /// Why it is sent.
    pub cause: Cause,
}

/// A header-only probe to be posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Probe<const BITS: u32> {
    /// The next unsent sequence number.
    pub psn: Psn<BITS>,
    /// Its number, modulo 4.
    pub number: u8,
    /// How many probes went unanswered before it, at most [`Time::UNANSWERED`].
    pub unanswered: u8,
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Acknowledged {
    /// Segments acknowledged for the first time.
    pub segments: u32,
    /// The echoed transmission was the original of a segment that has been resent.
    pub spurious: bool,
    /// Round trip in units of 64 ns, hold time excluded.
    pub round_trip: Option<u32>,
    /// The acknowledgement is older than what is known, or names what was never sent.
    pub stale: bool,
}

/// Constants of the path that the window paces itself by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pace {
    /// Floor of the timeout's margin, in units of 64 ns.
    pub granularity: u32,
    /// Longest time between two probes, in units of 64 ns.
    pub longest: u32,
    /// How the congestion window moves.
    pub control: Control,
}

const NONE: u16 = u16::MAX;

/// The device has not finished the latest posting.
const POSTED: u8 = 1;
/// The receiver has it.
const ACKED: u8 = 1 << 1;
/// To be resent.
const LOST: u8 = 1 << 2;
/// Lost by the answer to a probe.
const BY_PROBE: u8 = 1 << 3;
/// Sent before the latest probe.
const PROBED: u8 = 1 << 4;
/// Acknowledged by the acknowledgement in hand.
const FRESH: u8 = 1 << 5;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Entry<T: Time> {
    piece: Piece,
    stamp: T::Stamp,
    ticket: Ticket,
    /// Neighbours in the list by order of posting.
    before: u16,
    after: u16,
    /// Segments sent later and acknowledged earlier, saturating above the allowance.
    overtaken: u16,
    state: u8,
    count: u8,
}

impl<T: Time> Entry<T> {
    const FREE: Self = Self {
        piece: Piece { operation: 0, part: 0 },
        stamp: T::ZERO,
        ticket: Ticket(0),
        before: NONE,
        after: NONE,
        overtaken: 0,
        state: 0,
        count: 0,
    };
}

/// The window: at most `W` segments that are sent and not yet released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SendWindow<T: Time, const W: usize, const BITS: u32> {
    /// The oldest segment not released.
    base: Psn<BITS>,
    next: Psn<BITS>,
    /// First PSN that is not granted, when admitted.
    edge: Psn<BITS>,
    /// The last PSN that gave the grant back.
    drained: Option<Psn<BITS>>,
    admitted: bool,
    /// Something is queued behind the window: the timer runs even when all is acknowledged.
    waiting: bool,
    /// The entry of `base`.
    head: u16,
    /// The list by order of posting, and the first of its unfinished suffix.
    first: u16,
    last: u16,
    posted: u16,
    in_flight: u16,
    lost: u16,
    /// A hole is lost when more than this many segments overtook it.
    allowance: u16,
    /// Genuine repairs since the allowance last changed.
    repairs: u16,
    /// The most that a segment was overtaken since then, and yet arrived by itself.
    reordered: u16,
    deadline: Option<T::Instant>,
    /// The deadline is that of a watch: nothing is outstanding.
    watching: bool,
    backoff: u8,
    probe_wanted: bool,
    probe_number: u8,
    unanswered: u8,
    /// Times the oldest segment was resent, saturating: hopeless.
    fruitless: u8,
    /// Acknowledgements of what is not outstanding, in a row, at most one per timeout.
    astray: u8,
    astray_since: T::Stamp,
    rtt: Rtt,
    congestion: Congestion<T>,
    entries: [Entry<T>; W],
}

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    const FITS: () = assert!(
        W >= 1 && W <= 256 && (BITS > 9 || W < 1 << (BITS - 1)),
        "a window has 1 to 256 segments and less than half the sequence space"
    );
    /// Most segments that may overtake a hole before it counts as lost.
    const ALLOWANCE: u16 = if W < 8 { W as u16 / 2 } else { W as u16 / 4 };
    /// Acknowledgements in a row of what is not outstanding that prove a contradiction.
    const ASTRAY: u8 = 16;
    /// Doublings of the timeout while nothing is missing but credit: a probe then only guards against a lost grant.
    const PATIENCE: u8 = 3;

    /// An empty window whose first segment will have the number `first`. Until credit comes, one segment may be out.
    pub const fn new(first: Psn<BITS>) -> Self {
        let () = Self::FITS;
        Self {
            base: first,
            next: first,
            edge: Psn::new(0),
            drained: None,
            admitted: false,
            waiting: false,
            head: 0,
            first: NONE,
            last: NONE,
            posted: NONE,
            in_flight: 0,
            lost: 0,
            allowance: 0,
            repairs: 0,
            reordered: 0,
            deadline: None,
            watching: false,
            backoff: 0,
            probe_wanted: false,
            probe_number: 0,
            unanswered: 0,
            fruitless: 0,
            astray: 0,
            astray_since: T::ZERO,
            rtt: Rtt::NONE,
            congestion: Congestion::NEW,
            entries: [Entry::FREE; W],
        }
    }

    /// The number of the next new segment.
    pub const fn next(&self) -> Psn<BITS> {
        self.next
    }

    /// Whether every segment is acknowledged and released.
    pub const fn is_empty(&self) -> bool {
        self.base.since(self.next) == 0
    }

    /// Whether every segment is acknowledged; the device may still hold postings.
    pub const fn is_acknowledged(&self) -> bool {
        self.in_flight == 0 && self.lost == 0
    }

    /// The round-trip estimate.
    pub const fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Probes sent since the peer was last heard, at most [`Time::UNANSWERED`].
    pub const fn unanswered(&self) -> u8 {
        self.unanswered
    }

    /// Whether what the peer says cannot be true of what was sent to it. Its acknowledgements leave the oldest segment out
    /// although it was resent 255 times, or name what was released, or never sent, 16 times in a row, each a timeout after
    /// the one before, so that they are not late ones. Models, whose time is abstract, do not count.
    pub const fn is_contradicted(&self) -> bool {
        self.fruitless == u8::MAX || self.astray >= Self::ASTRAY
    }

    /// Whether the latest acknowledgement was of what is not outstanding.
    pub const fn is_astray(&self) -> bool {
        self.astray > 0
    }

    /// Whether some posting is unfinished.
    pub const fn is_posted(&self) -> bool {
        self.posted != NONE
    }

    /// Segments granted beyond those sent.
    fn granted(&self) -> u32 {
        let left = self.edge.since(self.next);
        if left as usize <= W { left } else { 0 }
    }

    /// Whether a new segment may be sent: window, credit and congestion window have room.
    pub fn has_room(&self) -> bool {
        let sent = self.next.since(self.base) as usize;
        #[cfg(not(mutant = "window_overfull"))]
        let fits = sent < W;
        #[cfg(mutant = "window_overfull")]
        let fits = sent <= W;
        fits && self.congestion.admits(self.in_flight, W as u16)
            && if self.admitted { self.granted() > 0 } else { self.is_acknowledged() }
    }

    /// Whether the receiver has granted anything that was not given back.
    pub const fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Whether a segment is to be resent.
    pub const fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Whether the grant that is left after the next segment is so small that an idle sender should give it back.
    pub fn is_scarce(&self) -> bool {
        self.admitted && (self.granted() as usize) < W.div_ceil(4)
    }

    /// Takes a new segment into the window; it is posted with `ticket`. `None` without room.
    pub fn push(&mut self, now: T::Instant, piece: Piece, ticket: Ticket, pace: &Pace) -> Option<Segment<BITS>> {
        if !self.has_room() {
            return None;
        }
        let i = self.entry_at(self.next.since(self.base));
        let stamp = T::stamp(now);
        *self.entries.get_mut(usize::from(i))? = Entry { piece, stamp, ticket, state: POSTED, ..Entry::FREE };
        self.append(i);
        self.in_flight = self.in_flight.wrapping_add(1);
        let psn = self.next;
        self.next = psn.add(1);
        self.arm_if_idle(now, pace);
        Some(Segment { psn, piece, count: 0, cause: Cause::First })
    }

    /// The segment `psn`, just pushed, gives the grant back: nothing is queued behind it.
    pub fn drain(&mut self, psn: Psn<BITS>) {
        self.drained = Some(psn);
        self.admitted = false;
        self.edge = Psn::default();
    }

    /// Takes the oldest lost segment whose posting is finished, to be resent with `ticket`.
    pub fn resend(&mut self, now: T::Instant, ticket: Ticket) -> Option<Segment<BITS>> {
        if self.lost == 0 {
            return None;
        }
        let mut i = self.first;
        loop {
            let entry = self.entries.get(usize::from(i))?;
            #[cfg(not(mutant = "resend_unfinished"))]
            let may = entry.state & (LOST | POSTED) == LOST;
            #[cfg(mutant = "resend_unfinished")]
            let may = entry.state & LOST != 0;
            if may {
                break;
            }
            i = entry.after;
        }
        #[cfg(mutant = "resend_unfinished")]
        if self.posted == i {
            self.posted = self.entries.get(usize::from(i))?.after;
        }
        self.unlink(i);
        let offset = self.offset_of(i);
        let entry = self.entries.get_mut(usize::from(i))?;
        let cause = if entry.state & BY_PROBE != 0 { Cause::ResentProbe } else { Cause::ResentNack };
        entry.count = entry.count.wrapping_add(1) & T::COUNTS;
        entry.stamp = T::stamp(now);
        entry.ticket = ticket;
        entry.overtaken = 0;
        entry.state = POSTED;
        let (piece, count) = (entry.piece, entry.count);
        self.append(i);
        if T::DOUBTS && offset == 0 {
            self.fruitless = self.fruitless.saturating_add(1);
        }
        self.lost = self.lost.wrapping_sub(1);
        self.in_flight = self.in_flight.wrapping_add(1);
        Some(Segment { psn: self.base.add(offset), piece, count, cause })
    }

    /// What the oldest segment that is not acknowledged and all behind it carry: what is acknowledged beyond a gap has not
    /// had its turn at the receiver.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        let sent = self.next.since(self.base);
        let entries = (0..sent).filter_map(|offset| self.entries.get(usize::from(self.entry_at(offset))));
        #[cfg(not(mutant = "gap_forgiven"))]
        let concerned = entries.skip_while(|entry| entry.state & ACKED != 0);
        #[cfg(mutant = "gap_forgiven")]
        let concerned = entries.filter(|entry| entry.state & ACKED == 0);
        concerned.map(|entry| entry.piece)
    }

    /// What the segment `psn` carries, while it is sent and not acknowledged.
    pub fn piece(&self, psn: Psn<BITS>) -> Option<Piece> {
        let offset = psn.since(self.base);
        let entry = self.entries.get(usize::from(self.entry_at(offset))).filter(|entry| entry.state & ACKED == 0)?;
        (offset < self.next.since(self.base)).then_some(entry.piece)
    }

    /// The segment `psn` is to be sent again: the receiver asked for it.
    pub fn repair(&mut self, psn: Psn<BITS>) {
        if self.piece(psn).is_some() {
            let i = self.entry_at(psn.since(self.base));
            if self.entries.get(usize::from(i)).is_some_and(|entry| entry.state & LOST == 0) {
                self.lose(i, 0);
            }
        }
    }

    /// The device has finished every posting up to `upto`.
    pub fn handle_completed(&mut self, upto: Ticket) {
        while let Some(entry) = self.entries.get_mut(usize::from(self.posted)) {
            if !entry.ticket.is_within(upto) {
                break;
            }
            entry.state &= !POSTED;
            // What is finished is not kept: equal states stay equal.
            entry.ticket = Ticket::default();
            let (i, acked) = (self.posted, entry.state & ACKED != 0);
            self.posted = entry.after;
            if acked {
                self.unlink(i);
            }
        }
    }

    /// The receiver says what it has.
    pub fn handle_ack(&mut self, now: T::Instant, ack: &Acknowledgement<BITS>, pace: &Pace) -> Acknowledged {
        let sent = self.next.since(self.base);
        let passed = ack.cumulative.since(self.base);
        #[cfg(not(mutant = "stale_ack"))]
        if passed > sent {
            self.count_astray(now, pace);
            return Acknowledged { stale: true, ..Acknowledged::default() };
        }
        #[cfg(mutant = "stale_ack")]
        let passed = passed.min(sent);
        self.astray = 0;
        let mut outcome = Acknowledged::default();
        // The answer to a probe echoes the probe, whose PSN may have been used meanwhile.
        if let Some(echo) = ack.echo.as_ref().filter(|_| !ack.answers) {
            self.learn(now, echo, &mut outcome, pace);
        }
        let in_order = self.acknowledge_first(passed);
        for offset in in_order..passed {
            outcome.segments = outcome.segments.wrapping_add(self.acknowledge(offset));
        }
        for bit in ack.beyond.iter() {
            #[cfg(not(mutant = "bitmap_shifted"))]
            let offset = passed.wrapping_add(1).wrapping_add(bit);
            #[cfg(mutant = "bitmap_shifted")]
            let offset = passed.wrapping_add(bit);
            if offset < sent {
                outcome.segments = outcome.segments.wrapping_add(self.acknowledge(offset));
            }
        }
        if outcome.segments > 0 {
            self.find_overtaken(outcome.segments);
        }
        outcome.segments = outcome.segments.wrapping_add(in_order);
        let answered = ack.answers && ack.echo.is_some_and(|echo| echo.count == self.probe_number);
        #[cfg(not(mutant = "answer_ignored"))]
        if answered {
            self.find_probed();
        }
        self.grant(ack);
        // An answer without credit, when nothing else is missing, is no progress: who waits asks ever more rarely (RFC 1122,
        // §4.2.2.17), or the probes of those who wait would crowd out what was granted.
        let progress = outcome.segments > 0 || answered && !self.is_acknowledged();
        if self.is_acknowledged() && (!self.waiting || self.has_room()) {
            self.disarm();
        } else if progress {
            self.backoff = 0;
            self.arm(now, pace);
        }
        outcome
    }

    fn count_astray(&mut self, now: T::Instant, pace: &Pace) {
        let timeout = self.rtt.timeout(pace.granularity);
        let due = self.astray == 0 || T::since(now, self.astray_since).is_some_and(|since| since >= timeout);
        if T::DOUBTS && due {
            self.astray = self.astray.saturating_add(1);
            self.astray_since = T::stamp(now);
        }
    }

    /// A hole's allowance, the round trip and the congestion window learn from what caused an acknowledgement.
    fn learn(&mut self, now: T::Instant, echo: &Echo<BITS>, outcome: &mut Acknowledged, pace: &Pace) {
        let offset = echo.psn.since(self.base);
        if offset >= self.next.since(self.base) {
            return;
        }
        let i = self.entry_at(offset);
        let Some(entry) = self.entries.get(usize::from(i)) else { return };
        if entry.state & ACKED != 0 {
            return;
        }
        if entry.count == echo.count {
            if let Some(since) = T::since(now, entry.stamp) {
                let round_trip = since.saturating_sub(echo.hold);
                if echo.hold <= self.rtt.timeout(pace.granularity) {
                    self.rtt.sample(round_trip);
                    self.congestion.handle_round_trip(now, round_trip, &self.rtt, &pace.control, W as u16);
                    outcome.round_trip = Some(round_trip);
                }
            }
            if entry.count != 0 && self.allowance > 0 {
                self.repairs = self.repairs.wrapping_add(1);
                if usize::from(self.repairs) >= W {
                    self.repairs = 0;
                    self.allowance = self.allowance.saturating_sub(1).max(self.reordered);
                    self.reordered = 0;
                }
            }
        } else {
            outcome.spurious = true;
            self.repairs = 0;
            self.allowance = self.allowance.saturating_add(1).min(Self::ALLOWANCE);
        }
    }

    /// The first segments, at most `passed`, have arrived, as far as they are also the first of the list and finished: as
    /// nothing was sent before them, they overtook nothing. Returns how many.
    fn acknowledge_first(&mut self, passed: u32) -> u32 {
        let (w, mut i, mut count) = (W as u16, self.head, 0_u32);
        while count < passed && i == self.first {
            let Some(entry) = self.entries.get_mut(usize::from(i)) else { break };
            if entry.state & (ACKED | LOST | POSTED) != 0 || entry.overtaken != 0 {
                break;
            }
            entry.state = ACKED;
            entry.count = 0;
            self.first = core::mem::replace(&mut entry.after, NONE);
            i = if i.wrapping_add(1) == w { 0 } else { i.wrapping_add(1) };
            count = count.wrapping_add(1);
        }
        if count > 0 {
            self.in_flight = self.in_flight.wrapping_sub(count as u16);
            match self.entries.get_mut(usize::from(self.first)) {
                Some(entry) => entry.before = NONE,
                None => self.last = NONE,
            }
        }
        count
    }

    /// The segment at `offset` from the base has arrived. Returns 1 when that is news.
    fn acknowledge(&mut self, offset: u32) -> u32 {
        let i = self.entry_at(offset);
        let Some(entry) = self.entries.get_mut(usize::from(i)) else { return 0 };
        if entry.state & ACKED != 0 {
            return 0;
        }
        if entry.state & LOST != 0 {
            self.lost = self.lost.wrapping_sub(1);
        } else {
            self.in_flight = self.in_flight.wrapping_sub(1);
            self.reordered = self.reordered.max(entry.overtaken);
        }
        entry.state = entry.state & POSTED | ACKED | FRESH;
        // What is not looked at any more is not kept: equal states stay equal.
        entry.overtaken = 0;
        entry.count = 0;
        1
    }

    /// Walks the list up to the last of `fresh` newly acknowledged segments: they leave it, what they overtook is lost
    /// once the allowance is exceeded.
    fn find_overtaken(&mut self, fresh: u32) {
        let mut left = fresh;
        let mut i = self.first;
        while left > 0 {
            let Some(entry) = self.entries.get_mut(usize::from(i)) else { break };
            let after = entry.after;
            if entry.state & FRESH != 0 {
                left = left.wrapping_sub(1);
                entry.state &= !FRESH;
                if entry.state & POSTED == 0 {
                    self.unlink(i);
                }
            } else if entry.state & (ACKED | LOST) == 0 {
                let overtaken = u32::from(entry.overtaken).saturating_add(left);
                entry.overtaken = overtaken.min(u32::from(Self::ALLOWANCE).wrapping_add(1)) as u16;
                if entry.overtaken > self.allowance {
                    self.lose(i, 0);
                }
            }
            i = after;
        }
    }

    /// The latest probe was answered: what was sent before it and is not acknowledged is lost.
    fn find_probed(&mut self) {
        let mut i = self.first;
        while let Some(entry) = self.entries.get(usize::from(i)) {
            let after = entry.after;
            if entry.state & (PROBED | ACKED | LOST) == PROBED {
                self.lose(i, BY_PROBE);
            }
            i = after;
        }
    }

    fn lose(&mut self, i: u16, by: u8) {
        if let Some(entry) = self.entries.get_mut(usize::from(i)) {
            entry.state = entry.state & POSTED | LOST | by;
            entry.overtaken = 0;
            self.lost = self.lost.wrapping_add(1);
            self.in_flight = self.in_flight.wrapping_sub(1);
        }
    }

    /// Credit is an absolute edge that only moves forward; what was granted before a drained segment is void.
    fn grant(&mut self, ack: &Acknowledgement<BITS>) {
        if let Some(drained) = self.drained {
            if !ack.cumulative.is_after(drained) {
                return;
            }
            self.drained = None;
            self.admitted = false;
        }
        if ack.credit == 0 && !self.admitted {
            return;
        }
        let edge = ack.cumulative.add(u32::from(ack.credit).min(W as u32));
        if !self.admitted || edge.is_after(self.edge) {
            self.edge = edge;
        }
        self.admitted = true;
    }

    /// Takes the oldest segment that is acknowledged and finished out of the window.
    pub fn release(&mut self) -> Option<Piece> {
        if self.is_empty() {
            return None;
        }
        let entry = self.entries.get_mut(usize::from(self.head))?;
        #[cfg(not(mutant = "release_unfinished"))]
        let may = entry.state & (ACKED | POSTED) == ACKED;
        #[cfg(mutant = "release_unfinished")]
        let may = entry.state & ACKED == ACKED && (entry.state & POSTED == 0 || self.posted == self.head);
        if !may {
            return None;
        }
        #[cfg(mutant = "release_unfinished")]
        if entry.state & POSTED != 0 {
            self.posted = entry.after;
            let i = self.head;
            self.unlink(i);
        }
        let entry = self.entries.get_mut(usize::from(self.head))?;
        let piece = entry.piece;
        *entry = Entry::FREE;
        self.fruitless = 0;
        self.base = self.base.add(1);
        self.head = if self.is_empty() { 0 } else { self.entry_at(1) };
        Some(piece)
    }

    /// The peer is given up: every segment counts as acknowledged, and is released when its posting is finished.
    pub fn abandon(&mut self) {
        let sent = self.next.since(self.base);
        let mut fresh = 0_u32;
        for offset in 0..sent {
            fresh = fresh.wrapping_add(self.acknowledge(offset));
        }
        self.find_overtaken(fresh);
        self.waiting = false;
        self.disarm();
    }

    /// Whether something is queued that the window does not admit; then it asks for credit.
    pub fn set_waiting(&mut self, now: T::Instant, waiting: bool, pace: &Pace) {
        self.waiting = waiting;
        #[cfg(not(mutant = "zero_credit_silent"))]
        if waiting && !self.has_room() {
            self.arm_if_idle(now, pace);
        }
    }

    /// Sends a probe when nothing is heard until `units` of 64 ns have passed, although nothing is outstanding.
    pub fn watch(&mut self, now: T::Instant, units: u32) {
        if self.deadline.is_none() {
            self.deadline = Some(T::after(now, units));
            self.watching = true;
        }
    }

    /// Asks for a probe at once, although nothing is outstanding.
    pub fn inquire(&mut self, now: T::Instant, pace: &Pace) {
        self.probe_wanted = true;
        self.arm(now, pace);
    }

    /// The moment at which [`handle_timeout`](Self::handle_timeout) has something to do.
    pub const fn deadline(&self) -> Option<T::Instant> {
        self.deadline
    }

    /// Time has come: asks for a probe when the deadline is reached, and backs off. Returns whether it was.
    pub fn handle_timeout(&mut self, now: T::Instant, pace: &Pace) -> bool {
        if !self.deadline.is_some_and(|deadline| T::is_due(now, deadline)) {
            return false;
        }
        self.probe_wanted = true;
        self.backoff = self.backoff.saturating_add(1).min(T::BACKOFF);
        self.deadline = None;
        #[cfg(not(mutant = "probe_once"))]
        self.arm(now, pace);
        true
    }

    /// Whether a probe is to be sent.
    pub const fn wants_probe(&self) -> bool {
        self.probe_wanted
    }

    /// Takes the probe that is to be sent.
    pub fn probe(&mut self) -> Option<Probe<BITS>> {
        if !self.probe_wanted {
            return None;
        }
        self.probe_wanted = false;
        self.probe_number = self.probe_number.wrapping_add(1) & T::COUNTS;
        let unanswered = self.unanswered;
        self.unanswered = unanswered.saturating_add(1).min(T::UNANSWERED);
        let mut i = self.first;
        while let Some(entry) = self.entries.get_mut(usize::from(i)) {
            if entry.state & (ACKED | LOST) == 0 {
                entry.state |= PROBED;
            }
            i = entry.after;
        }
        Some(Probe { psn: self.next, number: self.probe_number, unanswered })
    }

    /// Something of the peer's present life arrived.
    pub const fn handle_heard(&mut self) {
        self.unanswered = 0;
    }

    /// Moves every stored moment, for models whose time is relative.
    #[must_use]
    pub fn with_times(mut self, shift: impl Fn(T::Instant) -> T::Instant) -> Self {
        self.deadline = self.deadline.map(shift);
        self
    }

    /// Lowers every sequence number by `by`, renames the pieces and turns the ring so that the base's entry is the first, for
    /// models whose numbers are relative: only distances have a meaning.
    #[must_use]
    pub fn with_numbers(mut self, by: u32, rename: impl Fn(Piece) -> Piece) -> Self {
        let turn = |i: u16| if i == NONE { NONE } else { self.offset_of(i) as u16 };
        let sent = self.next.since(self.base);
        let entries = core::array::from_fn(|offset| {
            let offset = offset as u32;
            let entry = self.entries.get(usize::from(self.entry_at(offset))).copied().unwrap_or(Entry::FREE);
            let piece = if offset < sent { rename(entry.piece) } else { entry.piece };
            Entry { piece, before: turn(entry.before), after: turn(entry.after), ..entry }
        });
        let ends = [self.first, self.last, self.posted].map(turn);
        self.entries = entries;
        [self.first, self.last, self.posted] = ends;
        self.head = 0;
        self.base = self.base.back(by);
        self.next = self.next.back(by);
        self.drained = self.drained.map(|drained| drained.back(by));
        if self.admitted {
            self.edge = self.edge.back(by);
        }
        self
    }

    /// Renumbers unfinished postings, for models whose tickets count from the oldest of them.
    #[must_use]
    pub fn with_tickets(mut self, renumber: impl Fn(Ticket) -> Ticket) -> Self {
        for entry in self.entries.iter_mut().filter(|entry| entry.state & POSTED != 0) {
            entry.ticket = renumber(entry.ticket);
        }
        self
    }

    fn arm(&mut self, now: T::Instant, pace: &Pace) {
        self.deadline = Some(T::after(now, self.timeout(now, pace)));
        self.watching = false;
    }

    fn arm_if_idle(&mut self, now: T::Instant, pace: &Pace) {
        #[cfg(not(mutant = "timer_unarmed"))]
        if self.deadline.is_none() || self.watching {
            self.arm(now, pace);
        }
    }

    /// Units of 64 ns until the next probe. The timeout counts from the latest posting, as a probe timeout does (RFC 9002,
    /// §6.2.1): until that is a round trip old, its acknowledgement may still come, and then at least the margin is waited
    /// for the next one.
    fn timeout(&self, now: T::Instant, pace: &Pace) -> u32 {
        let timeout = self.rtt.timeout(pace.granularity);
        let patience = if self.is_acknowledged() { Self::PATIENCE } else { 0 };
        let exponent = u32::from(self.backoff.saturating_add(patience).min(T::BACKOFF));
        let units = if exponent == 0 {
            let margin = timeout.saturating_sub(self.rtt.smoothed());
            let latest = self.entries.get(usize::from(self.last));
            let age = latest.and_then(|entry| T::since(now, entry.stamp)).unwrap_or(0);
            timeout.saturating_sub(age).max(margin)
        } else {
            let shifted = timeout.checked_shl(exponent).unwrap_or(0);
            if shifted >> exponent == timeout { shifted } else { u32::MAX }
        };
        #[cfg(not(mutant = "longest_ignored"))]
        let units = units.min(pace.longest);
        units
    }

    fn disarm(&mut self) {
        self.deadline = None;
        self.watching = false;
        self.probe_wanted = false;
        self.backoff = 0;
    }

    /// The entry `offset` segments after the base's.
    fn entry_at(&self, offset: u32) -> u16 {
        let i = u32::from(self.head).wrapping_add(offset);
        let w = W as u32;
        (if i >= w { i.wrapping_sub(w) } else { i }) as u16
    }

    /// The inverse of [`entry_at`](Self::entry_at).
    fn offset_of(&self, i: u16) -> u32 {
        let (i, head) = (u32::from(i), u32::from(self.head));
        if i >= head { i.wrapping_sub(head) } else { i.wrapping_add(W as u32).wrapping_sub(head) }
    }

    /// Puts an entry at the end of the list; its posting is unfinished.
    fn append(&mut self, i: u16) {
        let last = self.last;
        if let Some(entry) = self.entries.get_mut(usize::from(i)) {
            entry.before = last;
            entry.after = NONE;
        }
        match self.entries.get_mut(usize::from(last)) {
            Some(entry) => entry.after = i,
            None => self.first = i,
        }
        self.last = i;
        if self.posted == NONE {
            self.posted = i;
        }
    }

    /// Takes an entry out of the list.
    fn unlink(&mut self, i: u16) {
        let Some(entry) = self.entries.get_mut(usize::from(i)) else { return };
        let (before, after) = (entry.before, entry.after);
        entry.before = NONE;
        entry.after = NONE;
        match self.entries.get_mut(usize::from(before)) {
            Some(entry) => entry.after = after,
            None => self.first = after,
        }
        match self.entries.get_mut(usize::from(after)) {
            Some(entry) => entry.before = before,
            None => self.last = before,
        }
    }
}
