//! Received datagrams: validation, and dispatch by kind and order.

pub(super) mod header_prediction;
mod placement_rx;
mod reorder;

use super::receive::placement_rx::Landed;
use super::{Above, Endpoint, Now, Verdict};
use crate::counters::{Happened, Reason};
use crate::device::Received;
use crate::endpoint::operation::{OperationError, What};
use crate::endpoint::peer::{LISTED, Life, NO_WINDOW, TOUCHED, USED, WANTS};
use crate::endpoint::storage::Storage;
use crate::ids::{PeerId, Psn};
use crate::span::Span;
use crate::time::{Time, units};
use crate::window::receive_state::Order;
use crate::window::receive_window::Early;
use crate::window::send_window::Piece;
use crate::wire::{Acknowledgement, Flags, HEADER, Header, Kind, ParseError};

impl From<ParseError> for Reason {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Version => Self::Version,
            ParseError::Short | ParseError::Malformed => Self::Malformed,
        }
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Handles a datagram. The verdict is an out parameter, written in place: returned from call to call, it would be
    /// read as a whole right after its parts were written, which stalls the processor.
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

    #[inline]
    fn receive(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        above: &mut impl Above,
        verdict: &mut Verdict,
    ) -> Result<(), Reason> {
        self.hear_said(now);
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
            if peer.sender() != NO_WINDOW && !self.note_said(now, &header) {
                self.take_piggybacked(now, from, &header, above)?;
            }
            return self.receive_data(now, &header, datagram, above, verdict);
        }
        // A late datagram must not return credit that was granted after it was sent.
        let late = peer.inbound.next().is_after(header.psn());
        let contradicts = Psn::new(header.acknowledged) != peer.send_next();
        if S::Time::DOUBTS && header.kind == Kind::Probe && peer.sender() == NO_WINDOW && contradicts {
            // The probe is late, or the peer lacks segments that were released long ago: a send window keeps count of
            // that.
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
            self.take_piggybacked(now, from, &header, above)?;
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

    /// An opening was refused: its operation fails, and a no-op datagram will consume its PSN.
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

    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
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

    /// Records a datagram that consumes a PSN: it uses one unit of its peer's credit, and is acknowledged at once if it
    /// filled a gap.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn note(&mut self, from: u32, arrived: <S::Time as Time>::Stamp, header: &Header<BITS>, filled: bool) {
        let quarter = self.quarter();
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
        self.ungranted |= peer.granted == 0 || header.flags.contains(Flags::DRAINED);
        if !peer.has(LISTED) {
            peer.set(LISTED);
            self.acks_fresh.push(peers, from, |peer| &mut peer.ack_link);
        }
        self.take_grant_back(from, header.flags);
    }

    /// Lists the peer as owed an acknowledgement.
    #[inline]
    pub(super) fn list_ack(&mut self, to: u32) {
        let peers = self.peers.as_mut();
        let Some(peer) = peers.get_mut(to as usize) else { return };
        self.urgent |= peer.inbound.is_urgent();
        if !peer.has(LISTED) {
            peer.set(LISTED);
            self.acks_fresh.push(peers, to, |peer| &mut peer.ack_link);
        }
    }

    /// Dispatches a datagram that is in order.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub(super) fn take_effect(
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
                hand_on(PeerId(from), message, datagram.bytes(), above, verdict);
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
}

/// Delivers an eager message of a datagram of `bytes` bytes; `message` are its first bytes after the header. Changes
/// the verdict if the payload is to be placed.
#[inline(always)]
pub(super) fn hand_on(from: PeerId, message: &[u8], bytes: u32, above: &mut impl Above, verdict: &mut Verdict) {
    if let Verdict::Place { to, start } = above.handle_eager(from, message, bytes.saturating_sub(HEADER as u32)) {
        let start = start.saturating_add(HEADER as u16);
        let bytes = to.bytes.min(bytes.saturating_sub(u32::from(start)));
        *verdict = Verdict::Place { to: Span { bytes, ..to }, start };
    }
}
