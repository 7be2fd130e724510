//! Placements at the receiver: openings, and segments that are copied straight to their place.

use crate::counters::DropReason;
use crate::device::Received;
use crate::endpoint::peer::Peer;
use crate::endpoint::placement::{Placement, PlacementState, segments};
use crate::endpoint::storage::Storage;
use crate::endpoint::{Endpoint, Verdict};
use crate::ids::{PlacementId, Psn};
use crate::wire::{DatagramKind, Header, Opening, SEGMENT_HEADER, SegmentHeader};

/// The placement that a datagram counts towards.
pub(in crate::endpoint) type CountsTowards = Option<PlacementId>;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Handles an opening when it arrives, whatever gaps precede it. An opening that no grant covers is refused and not
    /// acknowledged.
    pub(in crate::endpoint) fn open_placement(
        &mut self,
        header: &Header<BITS>,
        datagram: &impl Received,
    ) -> Result<PlacementId, DropReason> {
        let opening = Opening::parse(datagram.prefix(), datagram.bytes())?;
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(DropReason::UnknownPeer)?;
        let (segment, incarnation) = (peer.segment(), peer.incarnation);
        let is_granted = |state| match state {
            PlacementState::Granted(key) => key == opening.key || mutant!("grant_key_ignored"),
            PlacementState::Open { .. } | PlacementState::Filled { .. } => mutant!("grant_reused"),
            PlacementState::Free => false,
        };
        if let Some(placement) = opening.placement.among_mut(self.placements.as_mut_slice())
            && is_granted(placement.state)
            && placement.peer == header.rank
            && placement.incarnation == incarnation
            && opening.bytes <= placement.to.bytes
        {
            let left = segments(opening.bytes, segment).wrapping_add(1);
            placement.state = PlacementState::Open { bytes: opening.bytes, left, psn: header.psn };
            return Ok(opening.placement);
        }
        self.control.push(crate::endpoint::ControlMessage {
            to: header.rank,
            kind: DatagramKind::Refuse,
            expected: incarnation,
            psn: header.psn,
            ..crate::endpoint::ControlMessage::FREE
        });
        Err(DropReason::Refused)
    }

    /// Places a segment, if its placement is open for its peer.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub(in crate::endpoint) fn place_segment(
        &self,
        header: &Header<BITS>,
        datagram: &impl Received,
        verdict: &mut Verdict,
    ) -> Result<CountsTowards, DropReason> {
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(DropReason::UnknownPeer)?;
        let Some(part) = self.locate_segment(peer, header.rank, header.psn(), datagram) else {
            return self.handle_uncovered(header);
        };
        let (placement, to) = part?;
        *verdict = to;
        Ok(Some(placement))
    }

    /// The placement that a segment belongs to, and its destination. `None` if no placement is open for its peer.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub(in crate::endpoint) fn locate_segment(
        &self,
        peer: &Peer<S::Time, BITS>,
        from: u32,
        psn: Psn<BITS>,
        datagram: &impl Received,
    ) -> Option<Result<(PlacementId, Verdict), DropReason>> {
        let segment = match SegmentHeader::parse(datagram.prefix()) {
            Ok(segment) => segment,
            Err(error) => return Some(Err(error.into())),
        };
        let placement = segment.placement.among(self.placements.as_slice());
        let own = placement.filter(|own| (own.peer, own.incarnation) == (from, peer.incarnation))?;
        let PlacementState::Open { bytes, psn: opened, .. } = own.state else { return None };
        // The segments of a placement are sent in order, so that their PSNs follow the opening's.
        if psn.since(Psn::new(opened)) != Psn::<BITS>::new(segment.index.wrapping_add(1)).get() {
            return Some(Err(DropReason::Refused));
        }
        let size = peer.segment();
        let payload = datagram.bytes().saturating_sub(SEGMENT_HEADER as u32);
        let start = segment.index.checked_mul(size).filter(|start| *start < bytes);
        let Some(start) = start.filter(|start| payload == bytes.saturating_sub(*start).min(size)) else {
            return Some(Err(DropReason::Refused));
        };
        let to = Verdict::Place { to: own.to.part(start, payload), start: SEGMENT_HEADER as u16 };
        Some(Ok((segment.placement, to)))
    }

    /// Handles a segment that no open placement covers: it belongs to a withdrawn one, unless its PSN is that of a
    /// segment of an open one. That one would be missing for ever if this one were accepted; refused, it is resent.
    #[cold]
    pub(in crate::endpoint) fn handle_uncovered(&self, header: &Header<BITS>) -> Result<CountsTowards, DropReason> {
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(DropReason::UnknownPeer)?;
        let lacks = |placement: &Placement| match placement.state {
            PlacementState::Open { bytes, psn, .. } => {
                let distance = header.psn().since(Psn::new(psn));
                (placement.peer, placement.incarnation) == (header.rank, peer.incarnation)
                    && distance != 0
                    && distance <= segments(bytes, peer.segment())
            }
            _ => false,
        };
        if self.placements.as_slice().iter().any(lacks) { Err(DropReason::Refused) } else { Ok(None) }
    }
}
