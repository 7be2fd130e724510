//! What arrived beyond a gap. Taken from a pool only while a gap stands.

use crate::device::Slot;
use crate::ids::PlacementId;
use crate::wire::Bitmap;

/// A datagram that arrived before its turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Early {
    /// Not arrived.
    #[default]
    Missing,
    /// Set aside by the device until its turn comes.
    Held(Slot),
    /// Has taken effect: an opening, or a segment in its place. Counts towards this placement at its turn.
    Landed(PlacementId),
}

/// Arrivals at distances 1 to `W` − 1 from the next expected PSN; distance 0 is that PSN itself, whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveWindow<const W: usize> {
    arrived: Bitmap,
    /// Ring index of distance 0.
    head: u16,
    /// The next window in a list of the owner's.
    pub(crate) link: u32,
    /// The peer it serves.
    pub(crate) owner: u32,
    early: [Early; W],
}

/// That PSN has arrived before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupied;

impl<const W: usize> ReceiveWindow<W> {
    /// Empty.
    pub const EMPTY: Self =
        Self { arrived: Bitmap::EMPTY, head: 0, link: u32::MAX, owner: u32::MAX, early: [Early::Missing; W] };

    /// Whether nothing waits beyond a gap.
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Whether the PSN at `distance` has arrived.
    pub fn contains(&self, distance: u32) -> bool {
        self.arrived.contains(distance)
    }

    /// Notes an arrival at `distance`. Returns whether it shows a gap that was not known.
    ///
    /// # Errors
    /// [`Occupied`] when that PSN has arrived before.
    pub fn insert(&mut self, distance: u32, early: Early) -> Result<bool, Occupied> {
        #[cfg(not(mutant = "duplicate_accepted"))]
        if self.arrived.contains(distance) {
            return Err(Occupied);
        }
        let shows_gap = self.arrived.highest().is_none_or(|highest| distance > highest.wrapping_add(1));
        if let Some(cell) = self.early.get_mut(ring::<W>(self.head, distance)) {
            *cell = early;
            self.arrived.insert(distance);
        }
        Ok(shows_gap)
    }

    /// The next expected PSN has had its turn: everything moves one closer.
    pub fn advance(&mut self) {
        if let Some(cell) = self.early.get_mut(usize::from(self.head)) {
            *cell = Early::Missing;
        }
        self.arrived.shift();
        self.head = if self.arrived.is_empty() { 0 } else { ring::<W>(self.head, 1) as u16 };
    }

    /// What stands at distance 0.
    pub fn front(&self) -> Early {
        self.early.get(usize::from(self.head)).copied().unwrap_or_default()
    }

    /// What has arrived beyond the next expected PSN: bit i is the PSN at distance i + 1.
    pub fn beyond(&self) -> Bitmap {
        let mut beyond = self.arrived;
        beyond.shift();
        beyond
    }

    /// Turns the ring so that distance 0 is its first cell, for models: only distances have a meaning.
    #[must_use]
    pub fn with_ring_turned(mut self) -> Self {
        let early = core::array::from_fn(|distance| self.at(distance as u32));
        self.early = early;
        self.head = 0;
        self
    }

    /// The first that has arrived, wherever it stands.
    pub(crate) fn first(&self) -> Early {
        let distance = self.arrived.iter().find(|distance| matches!(self.at(*distance), Early::Held(_)));
        distance.map_or(Early::Missing, |distance| self.at(distance))
    }

    /// Takes out what [`first`](Self::first) names.
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
