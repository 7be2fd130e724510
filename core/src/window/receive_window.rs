//! Datagrams that arrived beyond a gap. A receive window is taken from a pool only while its peer has a gap.

use crate::device::Slot;
use crate::ids::PlacementId;
use crate::wire::Bitmap;

/// A datagram that arrived before its predecessors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Early {
    /// Not arrived.
    #[default]
    Missing,
    /// Set aside by the device until its predecessors have arrived.
    Held(Slot),
    /// Processed early: an opening, or a segment copied to its place. Counts towards this placement when its
    /// predecessors have arrived.
    Placed(PlacementId),
}

/// Arrivals at distances 1 to `W` − 1 from the next expected PSN, which is at distance 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveWindow<const W: usize> {
    arrived: Bitmap,
    /// Ring index of distance 0.
    head: u16,
    /// The next window in the owner's list.
    pub(crate) link: u32,
    /// The peer that it belongs to.
    pub(crate) owner: u32,
    early: [Early; W],
}

/// This PSN has arrived before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupied;

impl<const W: usize> ReceiveWindow<W> {
    /// Empty.
    pub const EMPTY: Self =
        Self { arrived: Bitmap::EMPTY, head: 0, link: u32::MAX, owner: u32::MAX, early: [Early::Missing; W] };

    /// Whether nothing has arrived beyond a gap.
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Whether the PSN at `distance` has arrived.
    pub fn contains(&self, distance: u32) -> bool {
        self.arrived.contains(distance)
    }

    /// Records an arrival at `distance`. Returns whether it reveals a new gap.
    ///
    /// # Errors
    /// [`Occupied`] if that PSN has arrived before.
    pub fn insert(&mut self, distance: u32, early: Early) -> Result<bool, Occupied> {
        if self.arrived.contains(distance) && !mutant!("duplicate_accepted") {
            return Err(Occupied);
        }
        let shows_gap = self.arrived.highest().is_none_or(|highest| distance > highest.wrapping_add(1));
        if let Some(cell) = self.early.get_mut(ring::<W>(self.head, distance)) {
            *cell = early;
            self.arrived.insert(distance);
        }
        Ok(shows_gap)
    }

    /// Advances past the next expected PSN: every distance decreases by one.
    pub fn advance(&mut self) {
        if let Some(cell) = self.early.get_mut(usize::from(self.head)) {
            *cell = Early::Missing;
        }
        self.arrived.shift();
        self.head = if self.arrived.is_empty() { 0 } else { ring::<W>(self.head, 1) as u16 };
    }

    /// The entry at distance 0.
    pub fn front(&self) -> Early {
        self.early.get(usize::from(self.head)).copied().unwrap_or_default()
    }

    /// The PSNs that arrived beyond the next expected one: bit i is the PSN at distance i + 1.
    pub fn beyond(&self) -> Bitmap {
        let mut beyond = self.arrived;
        beyond.shift();
        beyond
    }

    /// Turns the ring so that distance 0 is its first entry, for models, in which only distances have a meaning.
    #[must_use]
    pub fn with_ring_turned(mut self) -> Self {
        let early = core::array::from_fn(|distance| self.at(distance as u32));
        self.early = early;
        self.head = 0;
        self
    }

    /// The first held datagram, at any distance.
    pub(crate) fn first(&self) -> Early {
        let distance = self.arrived.iter().find(|distance| matches!(self.at(*distance), Early::Held(_)));
        distance.map_or(Early::Missing, |distance| self.at(distance))
    }

    /// Removes the entry that [`first`](Self::first) returns.
    pub(crate) fn take_first(&mut self) {
        let distance = self.arrived.iter().find(|distance| matches!(self.at(*distance), Early::Held(_)));
        if let Some(distance) = distance {
            self.arrived.remove(distance);
        }
    }

    fn at(&self, distance: u32) -> Early {
        self.early.get(ring::<W>(self.head, distance)).copied().unwrap_or_default()
    }
}

const fn ring<const W: usize>(head: u16, distance: u32) -> usize {
    let i = (head as usize).wrapping_add(distance as usize);
    if i >= W { i.wrapping_sub(W) } else { i }
}
