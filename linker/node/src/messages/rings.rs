//! The rings of the node as a transport: entries with headers and payloads, and fragments for granted memory.

use unisono_core::ids::{PeerId, PlacementId, Port, RemoteKey};
use unisono_core::span::{RegionRange, Span};
use unisono_core::transport::{Fetch, Grant, Progress, Token, Transport, TransportError, TxPayload};
use unisono_shmem::am_header::{self, EAGER_WITH_HEADER, FRAGMENT, FRAGMENT_BYTES, HEADER, MessageLocation};
use unisono_shmem::ring::PutError;
use unisono_shmem::segment::SharedBytes;

use super::Channel;
use super::memory::{CallerBuffer, Memory};
use crate::member::Member;

/// A payload that is sent in fragments, or arrives in them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragments {
    peer: PeerId,
    /// The receiver's number for it.
    number: u32,
    bytes: RegionRange,
    moved: usize,
    token: Token,
}

/// The rings to and from all ranks.
#[derive(Debug)]
pub(super) struct Rings<'a> {
    pub(super) member: Member<'a>,
    pub(super) channels: &'a mut [Channel<'a>],
    /// Payloads that leave in fragments, and that arrive in them: the latter by their number.
    pub(super) outgoing: &'a mut [Option<Fragments>],
    pub(super) incoming: &'a mut [Option<Fragments>],
    /// A rank whose ring was found to be corrupted.
    pub(super) broken: Option<u32>,
}

/// Rings, and the memory that payloads are copied from and to.
pub(super) struct RingTransport<'r, 'a, 'h> {
    pub(super) rings: &'r mut Rings<'a>,
    pub(super) memory: &'r mut Memory<'a>,
    pub(super) held: &'r mut CallerBuffer<'h>,
}

impl<'a> Rings<'a> {
    pub(super) fn channel(&self, rank: u32) -> Option<&Channel<'a>> {
        self.channels.get(usize::try_from(rank).ok()?)
    }

    pub(super) fn live(&mut self, peer: PeerId) -> Result<&mut Channel<'a>, TransportError> {
        let channel = usize::try_from(peer.0).ok().and_then(|peer| self.channels.get_mut(peer));
        channel.filter(|channel| channel.ended.is_none()).ok_or(TransportError::PeerGone)
    }

    /// The error of an entry that was not put.
    pub(super) fn refuse(&mut self, to: PeerId, error: PutError) -> TransportError {
        match error {
            PutError::Full => TransportError::Full,
            PutError::Corrupted | PutError::TooLong => {
                self.broken = Some(to.0);
                TransportError::PeerGone
            }
        }
    }

    /// A payload in a rank's own part of the segment.
    fn shared_payload(&self, rank: u32, at: u64, bytes: usize) -> Option<SharedBytes<'a>> {
        let area = self.member.layout().in_pool(rank, at, bytes)?;
        self.member.segment().shared_bytes(area.offset, area.bytes)
    }

    /// The next fragment of a payload has arrived: its place, and whether it is the last. `None`: a protocol violation.
    pub(super) fn place_fragment(&mut self, from: PeerId, number: u32, bytes: usize) -> Option<(Span, Option<Token>)> {
        let place = self.incoming.get_mut(usize::try_from(number).ok()?)?;
        let incoming = place.as_mut().filter(|incoming| incoming.peer == from)?;
        let at = incoming.moved;
        let end = at.checked_add(bytes).filter(|end| *end > at && *end <= incoming.bytes.bytes)?;
        incoming.moved = end;
        let (into, token, is_last) = (incoming.bytes.span(at, bytes), incoming.token, end == incoming.bytes.bytes);
        if is_last {
            *place = None;
        }
        Some((into, is_last.then_some(token)))
    }

    /// Ends what leaves for a rank, or arrives from it, in fragments; reports the owners of the former.
    pub(super) fn drop_fragments(&mut self, peer: PeerId, mut ended: impl FnMut(Token)) {
        for outgoing in self.outgoing.iter_mut() {
            if let Some(gone) = outgoing.take_if(|outgoing| outgoing.peer == peer) {
                ended(gone.token);
            }
        }
        for incoming in self.incoming.iter_mut() {
            incoming.take_if(|incoming| incoming.peer == peer);
        }
    }
}

impl RingTransport<'_, '_, '_> {
    /// Puts fragments while there is room; reports the owners of those that are complete. Returns whether any was put.
    pub(super) fn send_fragments(&mut self, mut ended: impl FnMut(Token)) -> bool {
        let mut moved = false;
        for i in 0..self.rings.outgoing.len() {
            while let Some(Some(Fragments { peer, number, bytes, moved: sent, token })) =
                self.rings.outgoing.get(i).copied()
            {
                let Ok(channel) = self.rings.live(peer) else { break };
                let longest = usize::try_from(FRAGMENT_BYTES.min(channel.outward.longest())).unwrap_or(0);
                let part = bytes.span(sent, longest);
                let from = self.memory.read(part, self.held);
                match channel.outward.put_piece([FRAGMENT, number], part.bytes, |piece| _ = piece.write(from)) {
                    Ok(()) => {}
                    Err(PutError::Full) => break,
                    Err(error) => {
                        self.rings.refuse(peer, error);
                        break;
                    }
                }
                moved = true;
                let end = sent.saturating_add(usize::try_from(part.bytes).unwrap_or(usize::MAX));
                let is_over = end >= bytes.bytes;
                if let Some(outgoing) = self.rings.outgoing.get_mut(i) {
                    *outgoing = outgoing.filter(|_| !is_over).map(|outgoing| Fragments { moved: end, ..outgoing });
                }
                if is_over {
                    ended(token);
                }
            }
        }
        moved
    }

    /// Copies a payload in a ring to its place, as much as fits.
    pub(super) fn copy_in(&mut self, payload: SharedBytes<'_>, to: Span) {
        if let Some(into) = self.memory.write(to, self.held) {
            let bytes = payload.bytes().min(into.len());
            // As long as it.
            let _ = payload.part(0, bytes).zip(into.get_mut(..bytes)).and_then(|(from, into)| from.read(into));
        }
    }
}

impl Transport for RingTransport<'_, '_, '_> {
    fn eager_limit(&self, to: PeerId) -> u32 {
        self.rings.channel(to.0).map_or(0, Channel::eager_limit)
    }

    fn send(
        &mut self,
        to: PeerId,
        head: &[u8],
        payload: Option<TxPayload>,
        _: Port,
    ) -> Result<Progress, TransportError> {
        let channel = self.rings.live(to)?;
        let put = match payload {
            None => channel.outward.put([HEADER, am_header::checksum(head)], head),
            Some(TxPayload { span, .. }) => {
                let from = self.memory.read(span, self.held);
                am_header::put_with(
                    &mut channel.outward,
                    [EAGER_WITH_HEADER, am_header::checksum(head)],
                    head,
                    span.bytes,
                    |front| front.iter_mut().zip(from).for_each(|(into, byte)| *into = *byte),
                    |piece| _ = piece.write(from),
                )
            }
        };
        put.map(|()| Progress::Complete).map_err(|error| self.rings.refuse(to, error))
    }

    fn grant_limit(&self, _: PeerId) -> usize {
        usize::MAX
    }

    fn grant(&mut self, to: PeerId, into: RegionRange, token: Token) -> Result<Grant, TransportError> {
        let mut free = (0..).zip(self.rings.incoming.iter_mut()).filter(|(_, incoming)| incoming.is_none());
        let (number, place) = free.next().ok_or(TransportError::Full)?;
        *place = Some(Fragments { peer: to, number, bytes: into, moved: 0, token });
        Ok(Grant { placement: PlacementId(number), key: RemoteKey(0) })
    }

    fn withdraw(&mut self, _: PeerId, placement: PlacementId) {
        let place = usize::try_from(placement.0).ok().and_then(|number| self.rings.incoming.get_mut(number));
        if let Some(place) = place {
            *place = None;
        }
    }

    fn place(
        &mut self,
        to: PeerId,
        grant: Grant,
        from: RegionRange,
        token: Token,
        _: Port,
    ) -> Result<Progress, TransportError> {
        let place = self.rings.outgoing.iter_mut().find(|outgoing| outgoing.is_none()).ok_or(TransportError::Full)?;
        *place = Some(Fragments { peer: to, number: grant.placement.0, bytes: from, moved: 0, token });
        Ok(Progress::Pending)
    }

    /// No other rank reads a node's memory, and a node reads no memory of processes.
    fn fetch(&mut self, from: PeerId, at: u64, into: RegionRange, _: usize, _: Token) -> Fetch {
        let MessageLocation::Shared(at) = MessageLocation::from_word(at) else { return Fetch::Unreachable };
        let Some(payload) = self.rings.shared_payload(from.0, at, into.bytes) else { return Fetch::Invalid };
        self.copy_in(payload, into.span(0, usize::MAX));
        Fetch::Complete
    }

    fn copy(&mut self, from: Span, into: RegionRange) {
        // Without memory, nobody needs the payload.
        let _ = self.memory.copy_stored(from, into, self.held);
    }
}
