//! What arrives: datagrams, and held datagrams whose turn has come.

use super::{Above, Endpoint, Now, ORPHAN, Verdict};
use crate::counters::{Happened, Reason};
use crate::device::{PeerId, Received, Slot, Ticket};
use crate::inbound::Order;
use crate::list::NONE;
use crate::operation::{OperationError, What};
use crate::peer::{LISTED, Life, NO_WINDOW, TOUCHED, USED, WANTS};
use crate::placement::{Placement, PlacementId, Stage, segments};
use crate::psn::Psn;
use crate::receive_window::Early;
use crate::send_window::Piece;
use crate::span::Span;
use crate::storage::Storage;
use crate::time::{Time, units};
use crate::wire::{Acknowledgement, Flags, HEADER, Header, Kind, Opening, ParseError, SEGMENT_HEADER, SegmentHeader};

impl From<ParseError> for Reason {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Version => Self::Version,
            ParseError::Short | ParseError::Malformed => Self::Malformed,
        }
    }
}

/// What a datagram did at its turn, or before it: the placement it counts towards.
type Landed = Option<PlacementId>;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// A datagram arrived. The verdict, written in place, says what to do with it: handed on from call to call, its parts
    /// would be read together just after they were written one by one, which stalls the processor.
    #[inline]
    pub fn handle_datagram(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        above: &mut impl Above,
        verdict: &mut Verdict,
    ) {
        *verdict = Verdict::Release;
        if let Err(reason) = self.receive(now, datagram, above, verdict) {
            above.saw(Happened::Dropped(reason));
            *verdict = Verdict::Release;
        }
    }

    /// The next held datagram whose turn has come, or that is not needed any more. It stays first until
    /// [`handle_held`](Self::handle_held).
    #[inline]
    pub fn poll_deferred(&mut self) -> Option<Slot> {
        if self.deferred.is_empty() { None } else { self.next_deferred() }
    }

    #[inline(never)]
    fn next_deferred(&mut self) -> Option<Slot> {
        loop {
            let i = self.deferred.first()?;
            let window = self.receivers.as_ref().get(i as usize)?;
            let waiting = if window.owner == NONE { window.first() } else { window.front() };
            if let Early::Held(slot) = waiting {
                return Some(slot);
            }
            self.deferred.pop(self.receivers.as_mut(), |receiver| &mut receiver.link);
            if self.receivers.as_ref().get(i as usize).is_some_and(|window| window.owner == NONE) {
                self.free_receiver(i);
            }
        }
    }

    /// The turn of the datagram that [`poll_deferred`](Self::poll_deferred) named has come.
    pub fn handle_held(&mut self, _: Now<S, W, BITS>, datagram: &impl Received, above: &mut impl Above) -> Verdict {
        self.held = self.held.saturating_sub(1);
        let Some(i) = self.deferred.first() else { return Verdict::Release };
        let Some(window) = self.receivers.as_mut().get_mut(i as usize) else { return Verdict::Release };
        if window.owner == NONE {
            window.take_first();
            return Verdict::Release;
        }
        let owner = window.owner;
        self.deferred.pop(self.receivers.as_mut(), |receiver| &mut receiver.link);
        let mut verdict = Verdict::Release;
        let landed = match Header::parse(datagram.head()) {
            Ok(header) => self.take_effect(owner, &header, datagram, above, &mut verdict).unwrap_or(None),
            Err(_) => None,
        };
        self.pass(owner, landed);
        verdict
    }

    /// The device has finished every posting up to `upto`.
    pub fn handle_completed(&mut self, now: Now<S, W, BITS>, upto: Ticket) {
        if self.posted.is_empty() {
            return;
        }
        let mut left = core::mem::replace(&mut self.posted, crate::list::List::EMPTY);
        while let Some(i) = left.pop(self.senders.as_mut(), |sender| &mut sender.posted_link) {
            let Some(sender) = self.senders.as_mut().get_mut(i as usize) else { break };
            sender.window.handle_completed(upto);
            let posted = sender.window.is_posted();
            if posted {
                self.posted.push(self.senders.as_mut(), i, |sender| &mut sender.posted_link);
            } else {
                sender.flags &= !super::POSTING;
            }
            self.release(now, i);
        }
    }

    #[inline]
    fn receive(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        above: &mut impl Above,
        verdict: &mut Verdict,
    ) -> Result<(), Reason> {
        let head = datagram.head();
        let header = Header::<BITS>::parse(head)?;
        let from = header.rank;
        let peer = self.peers.as_mut().get_mut(from as usize).filter(|peer| peer.life() != Life::Unmet);
        let peer = peer.ok_or(Reason::UnknownPeer)?;
        if !datagram.is_from(PeerId(from)) {
            return Err(Reason::Address);
        }
        #[cfg(not(mutant = "reset_ignored"))]
        if header.kind == Kind::Reset {
            return self.handle_reset(now, &header, above);
        }
        #[cfg(not(mutant = "any_life"))]
        if header.incarnation != peer.incarnation || header.expected != self.config.incarnation {
            return self.handle_other_life(now, &header);
        }
        if peer.life() != Life::Alive {
            let failed = peer.life() == Life::Failed;
            if failed {
                self.send_reset(now, &header);
            }
            return Err(Reason::Ended);
        }
        peer.set(TOUCHED);
        let bytes = datagram.bytes();
        if header.kind.is_data() {
            if peer.sender() != NO_WINDOW {
                self.take_ack(now, from, &Acknowledgement::piggybacked(&header), above)?;
            }
            return self.receive_data(now, &header, datagram, above, verdict);
        }
        // One that gives a grant back too late would give back what was granted since.
        let late = peer.inbound.next().is_after(header.psn());
        let contradicts = Psn::new(header.acknowledged) != peer.send_next();
        if S::Time::DOUBTS && header.kind == Kind::Probe && peer.sender() == NO_WINDOW && contradicts {
            // Late, or it lacks what was released long ago: a window keeps count.
            if let Some(sender) = self.take_sender(now, from, false) {
                self.settle_sender(now, sender);
            }
        }
        if header.kind == Kind::Acknowledge {
            let ack = Acknowledgement::parse(&header, head, bytes)?;
            if !late {
                self.take_grant_back(from, header.flags);
            }
            self.take_ack(now, from, &ack, above)?;
            above.saw(Happened::Accepted { kind: header.kind, bytes });
            return Ok(());
        }
        if bytes as usize != HEADER {
            return Err(Reason::Malformed);
        }
        if header.kind != Kind::Obituary {
            self.take_ack(now, from, &Acknowledgement::piggybacked(&header), above)?;
        }
        self.receive_control(now, &header)?;
        above.saw(Happened::Accepted { kind: header.kind, bytes });
        Ok(())
    }

    #[inline(never)]
    fn receive_control(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) -> Result<(), Reason> {
        let from = header.rank;
        match header.kind {
            Kind::Probe => {
                let arrived = self.polled;
                if let Some(peer) = self.peer_mut(from) {
                    peer.inbound.handle_probe(arrived, header.psn(), header.flags.count());
                }
                if !header.flags.contains(Flags::DRAINED) {
                    self.want(from);
                }
                self.list_ack(from);
            }
            Kind::Bye => self.handle_bye(now, header),
            Kind::Abort => self.fail(now, PeerId(from)),
            Kind::Obituary => self.handle_obituary(now, header),
            Kind::Refuse => self.handle_refusal(now, header),
            Kind::Eager | Kind::Open | Kind::Segment | Kind::Void | Kind::Acknowledge | Kind::Reset => {
                return Err(Reason::Malformed);
            }
        }
        Ok(())
    }

    /// An opening was not covered by a grant: its operation fails, its PSN is filled by a void.
    fn handle_refusal(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        let Some(sender) = self.peers.as_ref().get(header.rank as usize).map(|peer| u32::from(peer.sender())) else {
            return;
        };
        let Some(record) = self.senders.as_mut().get_mut(sender as usize) else { return };
        let Some(Piece { operation, part: 0 }) = record.window.piece(header.psn()) else { return };
        let Some(refused) = self.operations.as_mut().get_mut(operation as usize) else { return };
        if !matches!(refused.what, What::Place { .. }) || refused.error.is_some() {
            return;
        }
        refused.error = Some(OperationError::Refused);
        let unsent = refused.sent < refused.parts;
        refused.parts = refused.sent;
        record.window.repair(header.psn());
        if unsent {
            self.dequeue(header.rank);
        }
        self.make_ready(sender);
        self.settle_sender(now, sender);
    }

    #[inline(always)]
    fn receive_data(
        &mut self,
        now: Now<S, W, BITS>,
        header: &Header<BITS>,
        datagram: &impl Received,
        above: &mut impl Above,
        verdict: &mut Verdict,
    ) -> Result<(), Reason> {
        let (from, psn, bytes) = (header.rank, header.psn(), datagram.bytes());
        let arrived = match datagram.age_ns() {
            Some(age) => S::Time::before(now, units(u64::from(age))),
            None => self.polled,
        };
        let peer = self.peers.as_mut().get_mut(from as usize).ok_or(Reason::UnknownPeer)?;
        let receiver = self.receivers.as_ref().get(usize::from(peer.receiver));
        match peer.inbound.order(psn, receiver) {
            Order::Next => {
                let gap = receiver.is_some();
                let landed = self.take_effect(from, header, datagram, above, verdict)?;
                self.note(from, arrived, header, gap);
                self.pass(from, landed);
                above.saw(Happened::Accepted { kind: header.kind, bytes });
                Ok(())
            }
            Order::Early(distance) => {
                self.receive_early(header, datagram, distance, arrived, verdict)?;
                above.saw(Happened::Accepted { kind: header.kind, bytes });
                above.saw(Happened::OutOfOrder);
                Ok(())
            }
            Order::Duplicate => {
                peer.inbound.hurry();
                self.list_ack(from);
                above.saw(Happened::Duplicate { resent: header.flags.count() != 0 });
                Ok(())
            }
            Order::Outside => Err(Reason::Outside),
        }
    }

    #[inline(never)]
    fn receive_early(
        &mut self,
        header: &Header<BITS>,
        datagram: &impl Received,
        distance: u32,
        arrived: <S::Time as Time>::Stamp,
        verdict: &mut Verdict,
    ) -> Result<(), Reason> {
        let from = header.rank;
        let Some(receiver) = self.take_receiver(from) else {
            if let Some(peer) = self.peer_mut(from) {
                peer.inbound.handle_gap();
            }
            self.list_ack(from);
            return Err(Reason::NoRoom);
        };
        let landed = match header.kind {
            Kind::Open => self.open(header, datagram).map(Some),
            Kind::Segment => self.land(header, datagram, verdict),
            _ => Ok(None),
        };
        let landed = landed.inspect_err(|_| self.drop_empty_receiver(from))?;
        let early = match landed {
            Some(placement) => Early::Landed(placement),
            None if self.held < self.config.holdable => {
                self.held = self.held.wrapping_add(1);
                *verdict = Verdict::Hold;
                Early::Held(datagram.slot())
            }
            None => {
                if let Some(peer) = self.peer_mut(from) {
                    peer.inbound.handle_gap();
                }
                self.list_ack(from);
                self.drop_empty_receiver(from);
                return Err(Reason::NoRoom);
            }
        };
        let shown = match self.receivers.as_mut().get_mut(receiver as usize) {
            Some(window) => window.insert(distance, early),
            None => Ok(false),
        };
        if shown == Ok(true)
            && let Some(peer) = self.peer_mut(from)
        {
            peer.inbound.handle_gap();
        }
        self.note(from, arrived, header, false);
        Ok(())
    }

    /// A datagram that consumes a PSN was taken: one of its peer's grant is used, and it will be acknowledged, at once when
    /// it filled a gap.
    #[inline(always)]
    fn note(&mut self, from: u32, arrived: <S::Time as Time>::Stamp, header: &Header<BITS>, filled: bool) {
        let quarter = (self.credit.share(W as u32) >> 2).max(1);
        let peers = self.peers.as_mut();
        let Some(peer) = peers.get_mut(from as usize) else { return };
        peer.inbound.note(arrived, header.psn(), header.flags.count());
        if filled || header.flags.contains(Flags::ACK_NOW) || u32::from(peer.inbound.unacknowledged()) >= quarter {
            peer.inbound.hurry();
        }
        peer.set(USED);
        if peer.granted > 0 {
            peer.granted = peer.granted.wrapping_sub(1);
            self.credit.give_back(1);
        }
        if !header.flags.contains(Flags::DRAINED) && !peer.has(WANTS) {
            peer.set(WANTS);
            self.credit.enter();
        }
        self.urgent |= peer.inbound.is_urgent();
        self.joined = true;
        if !peer.has(LISTED) {
            peer.set(LISTED);
            self.acks_fresh.push(peers, from, |peer| &mut peer.ack_link);
        }
        self.take_grant_back(from, header.flags);
    }

    /// The peer is owed an acknowledgement.
    #[inline]
    pub(super) fn list_ack(&mut self, to: u32) {
        let peers = self.peers.as_mut();
        let Some(peer) = peers.get_mut(to as usize) else { return };
        self.urgent |= peer.inbound.is_urgent();
        self.joined = true;
        if !peer.has(LISTED) {
            peer.set(LISTED);
            self.acks_fresh.push(peers, to, |peer| &mut peer.ack_link);
        }
    }

    /// Carries out a datagram whose turn it is.
    #[inline(always)]
    fn take_effect(
        &mut self,
        from: u32,
        header: &Header<BITS>,
        datagram: &impl Received,
        above: &mut impl Above,
        verdict: &mut Verdict,
    ) -> Result<Landed, Reason> {
        match header.kind {
            Kind::Eager => {
                let message = datagram.head().get(HEADER..).ok_or(Reason::Malformed)?;
                let bytes = datagram.bytes().saturating_sub(HEADER as u32);
                if let Verdict::Place { to, start } = above.handle_eager(PeerId(from), message, bytes) {
                    let start = start.saturating_add(HEADER as u16);
                    let bytes = to.bytes.min(datagram.bytes().saturating_sub(u32::from(start)));
                    *verdict = Verdict::Place { to: Span { bytes, ..to }, start };
                }
                Ok(None)
            }
            Kind::Open => self.open(header, datagram).map(Some),
            Kind::Segment => {
                let landed = self.land(header, datagram, verdict)?;
                if landed.is_none() {
                    above.saw(Happened::Withdrawn);
                }
                Ok(landed)
            }
            _ => Ok(None),
        }
    }

    /// An opening takes effect when it arrives, whatever gaps precede it. What its key does not cover is answered by a
    /// refusal and not acknowledged.
    fn open(&mut self, header: &Header<BITS>, datagram: &impl Received) -> Result<PlacementId, Reason> {
        let opening = Opening::parse(datagram.head(), datagram.bytes())?;
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(Reason::UnknownPeer)?;
        let (segment, incarnation) = (peer.segment(), peer.incarnation);
        if let Some(placement) = opening.placement.among_mut(self.placements.as_mut())
            && placement.stage == Stage::Granted(opening.key)
            && placement.peer == header.rank
            && placement.incarnation == incarnation
            && opening.bytes <= placement.to.bytes
        {
            let left = segments(opening.bytes, segment).wrapping_add(1);
            placement.stage = Stage::Open { bytes: opening.bytes, left, psn: header.psn };
            return Ok(opening.placement);
        }
        self.notify(super::Notice {
            to: header.rank,
            kind: Kind::Refuse,
            expected: incarnation,
            psn: header.psn,
            ..super::Notice::FREE
        });
        Err(Reason::Refused)
    }

    /// A segment goes straight to its place, if its placement is open for its peer.
    #[inline(always)]
    fn land(&self, header: &Header<BITS>, datagram: &impl Received, verdict: &mut Verdict) -> Result<Landed, Reason> {
        let segment = SegmentHeader::parse(datagram.head())?;
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(Reason::UnknownPeer)?;
        let Some(placement) = segment.placement.among(self.placements.as_ref()) else {
            return self.withdrawn(header);
        };
        let Stage::Open { bytes, psn, .. } = placement.stage else { return self.withdrawn(header) };
        if placement.peer != header.rank || placement.incarnation != peer.incarnation {
            return self.withdrawn(header);
        }
        // The parts of a placement are sent one after the other.
        if header.psn().since(Psn::new(psn)) != Psn::<BITS>::new(segment.index.wrapping_add(1)).get() {
            return Err(Reason::Refused);
        }
        let size = peer.segment();
        let payload = datagram.bytes().saturating_sub(SEGMENT_HEADER as u32);
        let start = segment.index.checked_mul(size).filter(|start| *start < bytes).ok_or(Reason::Refused)?;
        if payload != bytes.saturating_sub(start).min(size) {
            return Err(Reason::Refused);
        }
        *verdict = Verdict::Place { to: placement.to.part(start, payload), start: SEGMENT_HEADER as u16 };
        Ok(Some(segment.placement))
    }

    /// A segment that no open placement covers: of one that was withdrawn, unless its PSN is that of a part of an open one.
    /// Taken, that part would be missing for ever; refused, it comes again.
    #[cold]
    fn withdrawn(&self, header: &Header<BITS>) -> Result<Landed, Reason> {
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(Reason::UnknownPeer)?;
        let lacks = |placement: &Placement| match placement.stage {
            Stage::Open { bytes, psn, .. } => {
                let distance = header.psn().since(Psn::new(psn));
                (placement.peer, placement.incarnation) == (header.rank, peer.incarnation)
                    && distance != 0
                    && distance <= segments(bytes, peer.segment())
            }
            _ => false,
        };
        if self.placements.as_ref().iter().any(lacks) { Err(Reason::Refused) } else { Ok(None) }
    }

    /// A datagram has had its turn, and those behind it that have already landed.
    #[inline(always)]
    fn pass(&mut self, from: u32, landed: Option<PlacementId>) {
        if let Some(placement) = landed {
            self.count_down(placement);
        }
        let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return };
        if peer.receiver == NO_WINDOW {
            peer.inbound.advance::<W>(None);
        } else {
            self.pass_gap(from);
        }
    }

    #[inline(never)]
    fn pass_gap(&mut self, from: u32) {
        loop {
            let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return };
            let receiver = u32::from(peer.receiver);
            let window = self.receivers.as_mut().get_mut(receiver as usize);
            match peer.inbound.advance(window) {
                Early::Landed(placement) => self.count_down(placement),
                Early::Held(_) => {
                    self.deferred.push(self.receivers.as_mut(), receiver, |receiver| &mut receiver.link);
                    return;
                }
                Early::Missing => break,
            }
        }
        self.drop_empty_receiver(from);
    }

    #[inline]
    fn count_down(&mut self, placement: PlacementId) {
        let placements = self.placements.as_mut();
        let Some(record) = placement.among_mut(placements) else { return };
        let Stage::Open { bytes, left, .. } = &mut record.stage else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            record.stage = Stage::Filled { bytes: *bytes };
            self.delivered.push(placements, placement.record() as u32, |placement| &mut placement.link);
        }
    }

    fn take_receiver(&mut self, from: u32) -> Option<u32> {
        let peer = self.peers.as_mut().get_mut(from as usize)?;
        if peer.receiver != NO_WINDOW {
            return Some(u32::from(peer.receiver));
        }
        let receivers = self.receivers.as_mut();
        let i = self.free_receivers.pop(receivers, |receiver| &mut receiver.link)?;
        receivers.get_mut(i as usize)?.owner = from;
        peer.receiver = i as u16;
        Some(i)
    }

    fn drop_empty_receiver(&mut self, from: u32) {
        let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return };
        let i = peer.receiver;
        if self.receivers.as_ref().get(usize::from(i)).is_some_and(crate::receive_window::ReceiveWindow::is_empty) {
            peer.receiver = NO_WINDOW;
            self.free_receiver(u32::from(i));
        }
    }

    /// The peer says what it has. An error when that ended it.
    fn take_ack(
        &mut self,
        now: Now<S, W, BITS>,
        from: u32,
        ack: &Acknowledgement<BITS>,
        above: &mut impl Above,
    ) -> Result<(), Reason> {
        let pace = self.pace();
        let Some(sender) = self.peers.as_ref().get(from as usize).map(|peer| u32::from(peer.sender())) else {
            return Ok(());
        };
        let Some(record) = self.senders.as_mut().get_mut(sender as usize) else { return Ok(()) };
        record.window.handle_heard();
        let outcome = record.window.handle_ack(now, ack, &pace);
        if record.window.is_contradicted() {
            self.give_up(now, from);
            return Err(Reason::Ended);
        }
        if outcome.stale {
            return Ok(());
        }
        if outcome.spurious {
            above.saw(Happened::Spurious);
        }
        if let Some(units) = outcome.round_trip {
            record.asked = S::Time::stamp(now);
            above.saw(Happened::RoundTrip(units));
        }
        self.release(now, sender);
        Ok(())
    }

    /// Takes finished segments out of a window, and lets what waited go on.
    pub(super) fn release(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let Some(record) = self.senders.as_mut().get_mut(sender as usize) else { return };
        let operations = self.operations.as_mut();
        while let Some(Piece { operation, .. }) = record.window.release() {
            let Some(finished) = operations.get_mut(operation as usize) else { continue };
            finished.released = finished.released.wrapping_add(1);
            if finished.released == finished.parts {
                self.completed.push(operations, operation, |operation| &mut operation.link);
            }
        }
        if record.flags & ORPHAN != 0 {
            #[cfg(not(mutant = "orphan_kept"))]
            if record.window.is_empty() {
                self.free_sender(now, sender);
            }
            return;
        }
        self.settle_sender(now, sender);
    }
}
