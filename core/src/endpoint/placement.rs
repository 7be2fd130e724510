//! Placements: granted memory that a peer writes by segments in any order.
//!
//! A grant is a region of one use: 64 random bits admit one opening, and are forgotten with it; segments name the record,
//! and follow its opening. Regions of [`rma`](crate::rma) stay apart, since a grant is its peer's alone, ends when its last
//! byte is in place, and is withdrawn at once: nothing that was accepted uses its memory.

use crate::ids::{Incarnation, PlacementId, RemoteKey};
use crate::list::NONE;
use crate::span::Span;

impl PlacementId {
    /// Its record in `placements`, unless the grant was withdrawn.
    pub(crate) fn among(self, placements: &[Placement]) -> Option<&Placement> {
        placements.get(self.record()).filter(|placement| u32::from(placement.generation) == self.0 >> 16)
    }

    pub(crate) fn among_mut(self, placements: &mut [Placement]) -> Option<&mut Placement> {
        placements.get_mut(self.record()).filter(|placement| u32::from(placement.generation) == self.0 >> 16)
    }
}

/// The state of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PlacementState {
    Free,
    /// Granted, not yet opened.
    Granted(RemoteKey),
    /// Opened; `left` of its datagrams, including the opening, are not yet delivered in order.
    Open {
        bytes: u32,
        left: u32,
        /// The opening's PSN; those of the segments follow it.
        psn: u32,
    },
    /// Complete; the event is pending.
    Filled {
        bytes: u32,
    },
}

/// One grant, for a single use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    pub(crate) state: PlacementState,
    pub(crate) peer: u32,
    /// The incarnation that it was granted to.
    pub(crate) incarnation: Incarnation,
    pub(crate) to: Span,
    /// The next record in the free list or the list of events.
    pub(crate) link: u32,
    /// Grants of this record that were withdrawn, modulo 2¹⁶.
    pub(crate) generation: u16,
}

impl Placement {
    /// An unused record.
    pub const FREE: Self = Self {
        state: PlacementState::Free,
        peer: NONE,
        incarnation: Incarnation(0),
        to: Span { region: crate::span::Region::new(0, 0), offset: 0, bytes: 0 },
        link: NONE,
        generation: 0,
    };

    /// Frees the record.
    pub(crate) const fn free(&mut self, withdrawn: bool) {
        *self = Self { generation: self.generation.wrapping_add(withdrawn as u16), ..Self::FREE };
    }
}

/// Segments that `bytes` bytes are cut into, `segment` bytes each, the last one shorter.
pub(crate) const fn segments(bytes: u32, segment: u32) -> u32 {
    match bytes.checked_div(segment) {
        Some(full) => {
            if full.wrapping_mul(segment) == bytes {
                full
            } else {
                full.wrapping_add(1)
            }
        }
        None => 0,
    }
}
