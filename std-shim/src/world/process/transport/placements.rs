//! Memory that peers fill: granted to remote ranks by the endpoint, or open for fragments of a rank of this node.

use unisono_core::ids::{PeerId, PlacementId};
use unisono_core::span::{Region, RegionRange, Span};
use unisono_core::transport::Token;

/// Memory granted to a remote rank.
#[derive(Clone, Copy, Debug)]
struct GrantedPlacement {
    placement: PlacementId,
    to: PeerId,
    token: Token,
}

/// A message that arrives in fragments.
#[derive(Clone, Copy, Debug)]
struct OpenPlacement {
    from: PeerId,
    into: RegionRange,
    filled: usize,
    /// `None`: nobody waits for it.
    token: Option<Token>,
}

/// All placements of a process.
#[derive(Debug)]
pub(in crate::world) struct Placements {
    /// Most bytes of a message that a remote rank is granted memory for at a time: the same on all ranks.
    pub(in crate::world) grant_limit: usize,
    granted: Vec<Option<GrantedPlacement>>,
    open: Vec<Option<OpenPlacement>>,
}

/// Where a fragment goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct FragmentPlace {
    pub(in crate::world) to: Span,
    /// Whether it is the second of its message, and the first was as long.
    pub(in crate::world) is_second: bool,
    /// The owner of the message, if this is its last fragment.
    pub(in crate::world) ended: Option<Token>,
}

impl Placements {
    pub(in crate::world) const fn new(grant_limit: usize) -> Self {
        Self { grant_limit, granted: Vec::new(), open: Vec::new() }
    }

    /// Records a grant of the endpoint.
    pub(in crate::world) fn record_granted(&mut self, placement: PlacementId, to: PeerId, token: Token) {
        let i = placement.record();
        if self.granted.len() <= i {
            self.granted.resize(i + 1, None);
        }
        if let Some(place) = self.granted.get_mut(i) {
            *place = Some(GrantedPlacement { placement, to, token });
        }
    }

    /// Removes a grant of the endpoint, which was filled or withdrawn. Returns its owner.
    pub(in crate::world) fn take_granted(&mut self, placement: PlacementId) -> Option<Token> {
        let granted = self.granted.get_mut(placement.record())?;
        granted.take_if(|granted| granted.placement == placement).map(|granted| granted.token)
    }

    /// The remote ranks that have been granted memory.
    pub(in crate::world) fn granted_peers(&self) -> impl Iterator<Item = PeerId> {
        self.granted.iter().flatten().map(|granted| granted.to)
    }

    /// Opens memory for the fragments of a message.
    pub(in crate::world) fn open(&mut self, from: PeerId, into: RegionRange, token: Token) -> PlacementId {
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free == self.open.len() {
            self.open.push(None);
        }
        if let Some(place) = self.open.get_mut(free) {
            *place = Some(OpenPlacement { from, into, filled: 0, token: Some(token) });
        }
        PlacementId(free as u32)
    }

    /// Removes memory that was opened for this peer. Returns it and its owner.
    pub(in crate::world) fn close(&mut self, from: PeerId, placement: PlacementId) -> Option<(RegionRange, Token)> {
        let place = self.open.get_mut(placement.0 as usize)?;
        let open = place.take_if(|open| open.from == from)?;
        Some((open.into, open.token?))
    }

    /// Nobody waits for the message any more: its fragments are dropped as they arrive, unless the peer is gone.
    pub(in crate::world) fn abandon(&mut self, placement: PlacementId, is_gone: bool) {
        let Some(place) = self.open.get_mut(placement.0 as usize) else { return };
        match place {
            Some(open) if !is_gone => (open.token, open.into.region) = (None, Region::default()),
            _ => *place = None,
        }
    }

    /// The place of a fragment of `bytes` bytes. `None`: a protocol violation.
    pub(in crate::world) fn place_fragment(
        &mut self,
        from: PeerId,
        placement: u32,
        bytes: usize,
    ) -> Option<FragmentPlace> {
        let place = self.open.get_mut(placement as usize)?;
        let open = place.as_mut().filter(|open| open.from == from)?;
        if bytes == 0 || bytes > open.into.bytes - open.filled {
            return None;
        }
        let (to, is_second) = (open.into.span(open.filled, bytes), open.filled > 0 && open.filled == bytes);
        open.filled += bytes;
        let mut ended = None;
        if open.filled == open.into.bytes {
            ended = place.take().and_then(|open| open.token);
        }
        Some(FragmentPlace { to, is_second, ended })
    }

    /// Removes the memory for fragments of a gone peer for which nobody waits.
    pub(in crate::world) fn disconnect(&mut self, peer: PeerId) {
        for place in &mut self.open {
            place.take_if(|open| open.from == peer && open.token.is_none());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerId = PeerId(2);

    fn range(bytes: usize) -> RegionRange {
        RegionRange { region: Region::new(4, 1), offset: 100, bytes }
    }

    #[test]
    fn fragments_fill_the_memory_of_their_peer_in_order() {
        let mut placements = Placements::new(usize::MAX);
        let PlacementId(number) = placements.open(PEER, range(25), Token(6));
        assert_eq!(placements.place_fragment(PeerId(1), number, 10), None, "another peer");
        assert_eq!(placements.place_fragment(PEER, number, 0), None);
        for (at, is_second) in [(100, false), (110, true)] {
            let place = placements.place_fragment(PEER, number, 10).expect("room");
            assert_eq!((place.to.offset, place.to.bytes, place.is_second, place.ended), (at, 10, is_second, None));
        }
        assert_eq!(placements.place_fragment(PEER, number, 6), None, "too long");
        assert_eq!(placements.place_fragment(PEER, number, 5).and_then(|place| place.ended), Some(Token(6)));
        assert_eq!(placements.place_fragment(PEER, number, 1), None, "it is complete");
    }

    #[test]
    fn abandoned_memory_swallows_its_fragments_and_goes_with_its_peer() {
        let mut placements = Placements::new(usize::MAX);
        let first = placements.open(PEER, range(8), Token(1));
        placements.abandon(first, false);
        let place = placements.place_fragment(PEER, first.0, 4).expect("more fragments come");
        assert_eq!((place.to.region, place.ended), (Region::default(), None));
        assert_ne!(placements.open(PEER, range(8), Token(2)), first, "its number is in use");
        placements.disconnect(PEER);
        assert_eq!(placements.open(PEER, range(8), Token(3)), first);
        placements.abandon(first, true);
        assert_eq!(placements.close(PEER, first), None);
    }

    #[test]
    fn grant_has_the_owner_of_its_own_placement_only() {
        let mut placements = Placements::new(usize::MAX);
        placements.record_granted(PlacementId(0x1_0003), PEER, Token(4));
        assert_eq!(placements.granted_peers().collect::<Vec<_>>(), [PEER]);
        assert_eq!(placements.take_granted(PlacementId(3)), None, "an earlier one of the same record");
        assert_eq!(placements.take_granted(PlacementId(0x1_0003)), Some(Token(4)));
        assert_eq!(placements.take_granted(PlacementId(0x1_0003)), None);
    }
}
