//! Received datagrams: validation, and dispatch by kind and order.

mod batch;
#[cfg_attr(feature = "optimize_for_size", allow(dead_code, reason = "a refinement"))]
mod header_prediction;
mod placement_rx;
mod reorder;

pub use batch::ReceiveBatch;

use super::receive::placement_rx::CountsTowards;
use super::{Endpoint, Handler, Now, Verdict};
use crate::counters::{DropReason, Metric};
use crate::device::Received;
use crate::endpoint::operation::{OperationError, OperationKind};
use crate::endpoint::peer::{NO_WINDOW, PeerFlags, PeerState};
use crate::endpoint::storage::Storage;
use crate::ids::{PeerId, Psn, Rail};
use crate::span::Span;
use crate::time::{Time, units};
use crate::window::rails::{MAX_RAILS, Rails};
use crate::window::receive_state::ArrivalOrder;
use crate::window::receive_window::Early;
use crate::window::segment_ring::SegmentRef;
use crate::wire::{Acknowledgement, DatagramKind, Flags, HEADER, Header, ParseError};

impl From<ParseError> for DropReason {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Version => Self::Version,
            ParseError::Short | ParseError::Malformed => Self::Malformed,
        }
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Handles a datagram by itself. The verdict is an out parameter, written in place: returned from call to call, it
    /// would be read as a whole right after its parts were written, which stalls the processor.
    #[inline]
    fn handle_one(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        handler: &mut impl Handler,
        verdict: &mut Verdict,
    ) {
        *verdict = Verdict::Release;
        if let Err(reason) = self.receive(now, datagram, handler, verdict) {
            *verdict = refuse(reason, datagram, handler);
        }
    }

    #[inline]
    fn receive(
        &mut self,
        now: Now<S, W, BITS>,
        datagram: &impl Received,
        handler: &mut impl Handler,
        verdict: &mut Verdict,
    ) -> Result<(), DropReason> {
        let head = datagram.prefix();
        let header = Header::<BITS>::parse(head)?;
        let from = header.rank;
        let peer = self.peers.as_mut().get_mut(from as usize).filter(|peer| peer.state() != PeerState::Unknown);
        let peer = peer.ok_or(DropReason::UnknownPeer)?;
        if !datagram.is_from(PeerId(from)) {
            return Err(DropReason::Address);
        }
        if header.kind == DatagramKind::Reset && !mutant!("reset_ignored") {
            return self.handle_reset(now, &header, handler);
        }
        let is_present = header.incarnation == peer.incarnation && header.expected == self.config.incarnation;
        if !is_present && !mutant!("any_life") {
            return self.handle_stale_incarnation(now, &header);
        }
        if peer.state() != PeerState::Alive {
            let failed = peer.state() == PeerState::Failed;
            if failed {
                self.send_reset(now, &header);
            }
            return Err(DropReason::Ended);
        }
        peer.set(PeerFlags::CONTACTED);
        let bytes = datagram.bytes();
        let rail = if MAX_RAILS == 1 { Rail(0) } else { datagram.rail() };
        if header.kind.is_data() {
            let rails = self.senders.rail_count();
            if rails > 1 && rail.0 < rails {
                peer.set_rail(rail);
            }
            if peer.sender() != NO_WINDOW {
                self.take_piggybacked(now, from, &header, rail, handler)?;
            }
            return self.receive_data(now, &header, datagram, handler, verdict);
        }
        // A late datagram must not return credit that was granted after it was sent.
        let late = peer.receive_state.next().is_after(header.psn());
        let contradicts = Psn::new(header.acknowledged) != peer.send_next();
        if S::Time::DETECT_MISBEHAVIOUR
            && header.kind == DatagramKind::Probe
            && peer.sender() == NO_WINDOW
            && contradicts
        {
            // The probe is late, or the peer lacks segments that were released long ago: a send window keeps count of
            // that.
            if let Some(sender) = self.take_sender(now, from, false) {
                self.update_sender(now, sender);
            }
        }
        if header.kind == DatagramKind::Acknowledge {
            let ack = Acknowledgement::parse(&header, head, bytes)?;
            if !late {
                self.handle_drained(from, header.flags);
            }
            self.take_ack(now, from, &ack, rail, handler)?;
            handler.record(Metric::Accepted { kind: header.kind, bytes });
            return Ok(());
        }
        if bytes as usize != HEADER {
            return Err(DropReason::Malformed);
        }
        if header.kind != DatagramKind::PeerDown {
            self.take_piggybacked(now, from, &header, rail, handler)?;
        }
        self.receive_control(now, &header, rail)?;
        handler.record(Metric::Accepted { kind: header.kind, bytes });
        Ok(())
    }

    #[inline(never)]
    fn receive_control(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>, rail: Rail) -> Result<(), DropReason> {
        let from = header.rank;
        match header.kind {
            DatagramKind::Probe => {
                let arrived = self.round_ended;
                if self.has_rails() {
                    self.queue_answer(header, rail);
                } else if let Some(peer) = self.peer_mut(from) {
                    peer.receive_state.handle_probe(arrived, header.psn(), header.flags.count());
                }
                if !header.flags.contains(Flags::DRAINED) {
                    self.note_backlog(from);
                }
                self.list_ack(from);
            }
            DatagramKind::Bye => self.handle_bye(now, header),
            DatagramKind::Abort => self.fail(now, PeerId(from)),
            DatagramKind::PeerDown => self.handle_peer_down(now, header),
            DatagramKind::Refuse => self.handle_refusal(now, header),
            DatagramKind::Eager
            | DatagramKind::Open
            | DatagramKind::Segment
            | DatagramKind::Nop
            | DatagramKind::Acknowledge
            | DatagramKind::Reset => {
                return Err(DropReason::Malformed);
            }
        }
        Ok(())
    }

    /// An opening was refused: its operation fails, and a no-op datagram will consume its PSN.
    fn handle_refusal(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        let Some(sender) = self.peers.as_ref().get(header.rank as usize).map(|peer| u32::from(peer.sender())) else {
            return;
        };
        let Some((record, rails)) = self.senders.with_rails(sender) else { return };
        let Some(SegmentRef { operation, part: 0 }) = record.window.unacknowledged_at(header.psn()) else { return };
        let Some(refused) = self.operations.get_mut(operation) else { return };
        if !matches!(refused.kind, OperationKind::Place { .. }) || refused.error.is_some() {
            return;
        }
        refused.error = Some(OperationError::Refused);
        let unsent = refused.sent < refused.parts;
        refused.parts = refused.sent;
        record.window.request_resend(header.psn(), &mut Rails::new(&mut record.path, rails));
        if unsent {
            self.dequeue(header.rank);
        }
        self.make_ready(sender);
        self.update_sender(now, sender);
    }

    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn receive_data(
        &mut self,
        now: Now<S, W, BITS>,
        header: &Header<BITS>,
        datagram: &impl Received,
        handler: &mut impl Handler,
        verdict: &mut Verdict,
    ) -> Result<(), DropReason> {
        let (from, psn, bytes) = (header.rank, header.psn(), datagram.bytes());
        let arrived = match datagram.age_ns() {
            Some(age) => S::Time::before(now, units(u64::from(age))),
            None => self.round_ended,
        };
        let peer = self.peers.as_mut().get_mut(from as usize).ok_or(DropReason::UnknownPeer)?;
        let receiver = self.receivers.get(peer.receiver);
        match peer.receive_state.classify(psn, receiver) {
            ArrivalOrder::Next => {
                let gap = receiver.is_some();
                let landed = self.dispatch(from, header, datagram, handler, verdict)?;
                self.record_arrival(from, arrived, header, gap);
                self.advance_in_order(from, landed);
                handler.record(Metric::Accepted { kind: header.kind, bytes });
                Ok(())
            }
            ArrivalOrder::Early(distance) => {
                self.receive_early(header, datagram, distance, arrived, verdict)?;
                handler.record(Metric::Accepted { kind: header.kind, bytes });
                handler.record(Metric::OutOfOrder);
                Ok(())
            }
            ArrivalOrder::Duplicate => {
                peer.receive_state.ack_immediately();
                self.list_ack(from);
                handler.record(Metric::Duplicate { resent: header.flags.count() != 0 });
                Ok(())
            }
            ArrivalOrder::Outside => Err(DropReason::Outside),
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
    ) -> Result<(), DropReason> {
        let from = header.rank;
        let Some(receiver) = self.take_receiver(from) else {
            if let Some(peer) = self.peer_mut(from) {
                peer.receive_state.handle_gap();
            }
            self.list_ack(from);
            return Err(DropReason::NoRoom);
        };
        let landed = match header.kind {
            DatagramKind::Open => self.open_placement(header, datagram).map(Some),
            DatagramKind::Segment => self.place_segment(header, datagram, verdict),
            _ => Ok(None),
        };
        let landed = landed.inspect_err(|_| self.drop_empty_receiver(from))?;
        let early = match landed {
            Some(placement) => Early::Placed(placement),
            None if self.receivers.held < self.config.holdable => {
                self.receivers.held = self.receivers.held.wrapping_add(1);
                *verdict = Verdict::Hold;
                Early::Held(datagram.slot())
            }
            None => {
                if let Some(peer) = self.peer_mut(from) {
                    peer.receive_state.handle_gap();
                }
                self.list_ack(from);
                self.drop_empty_receiver(from);
                return Err(DropReason::NoRoom);
            }
        };
        let shown = match self.receivers.get_mut(receiver) {
            Some(window) => window.insert(distance, early),
            None => Ok(false),
        };
        // Between rails a gap is no sign of a loss.
        if shown == Ok(true)
            && !self.has_rails()
            && let Some(peer) = self.peer_mut(from)
        {
            peer.receive_state.handle_gap();
        }
        self.record_arrival(from, arrived, header, false);
        Ok(())
    }

    /// Records a datagram that consumes a PSN: it uses one unit of its peer's credit, and is acknowledged at once if it
    /// filled a gap.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn record_arrival(&mut self, from: u32, arrived: <S::Time as Time>::Stamp, header: &Header<BITS>, filled: bool) {
        let quarter = self.ack_threshold();
        let filled = filled && !self.has_rails();
        let peers = self.peers.as_mut();
        let Some(peer) = peers.get_mut(from as usize) else { return };
        peer.receive_state.record(arrived, header.psn(), header.flags.count());
        if filled || header.flags.contains(Flags::ACK_NOW) || u32::from(peer.receive_state.unacknowledged()) >= quarter
        {
            peer.receive_state.ack_immediately();
        }
        peer.set(PeerFlags::USED);
        if peer.granted > 0 {
            peer.granted = peer.granted.wrapping_sub(1);
            self.credit.give_back(1);
        }
        if !header.flags.contains(Flags::DRAINED) && !peer.has(PeerFlags::BACKLOGGED) {
            peer.set(PeerFlags::BACKLOGGED);
            self.credit.enter();
        }
        self.acks.lacks_credit |= peer.granted == 0 || header.flags.contains(Flags::DRAINED);
        self.acks.list(peers, from);
        self.handle_drained(from, header.flags);
    }

    /// Lists the peer as owed an acknowledgement.
    #[inline]
    pub(super) fn list_ack(&mut self, to: u32) {
        self.acks.list(self.peers.as_mut(), to);
    }

    /// Dispatches a datagram that is in order.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub(super) fn dispatch(
        &mut self,
        from: u32,
        header: &Header<BITS>,
        datagram: &impl Received,
        handler: &mut impl Handler,
        verdict: &mut Verdict,
    ) -> Result<CountsTowards, DropReason> {
        match header.kind {
            DatagramKind::Eager => {
                let message = datagram.prefix().get(HEADER..).ok_or(DropReason::Malformed)?;
                deliver(PeerId(from), message, datagram.bytes(), handler, verdict);
                Ok(None)
            }
            DatagramKind::Open => self.open_placement(header, datagram).map(Some),
            DatagramKind::Segment => {
                let landed = self.place_segment(header, datagram, verdict)?;
                if landed.is_none() {
                    handler.record(Metric::Withdrawn);
                }
                Ok(landed)
            }
            _ => Ok(None),
        }
    }
}

/// Hands a datagram that the endpoint does not accept to the layer above if it may be of another family, else counts it
/// as dropped.
#[cold]
fn refuse(reason: DropReason, datagram: &impl Received, handler: &mut impl Handler) -> Verdict {
    let foreign = if reason == DropReason::Malformed { handler.handle_foreign(datagram) } else { None };
    foreign.unwrap_or_else(|| {
        handler.record(Metric::Dropped(reason));
        Verdict::Release
    })
}

/// Delivers an eager message of a datagram of `bytes` bytes; `message` are its first bytes after the header. Changes
/// the verdict if the payload is to be placed.
#[inline(always)]
pub(super) fn deliver(from: PeerId, message: &[u8], bytes: u32, handler: &mut impl Handler, verdict: &mut Verdict) {
    if let Verdict::Place { to, start } = handler.handle_eager(from, message, bytes.saturating_sub(HEADER as u32)) {
        let start = start.saturating_add(HEADER as u16);
        let bytes = to.bytes.min(bytes.saturating_sub(u32::from(start)));
        *verdict = Verdict::Place { to: Span { bytes, ..to }, start };
    }
}
