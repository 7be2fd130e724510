//! Placements: memory that a peer was granted, filled by segments in any order.

use crate::list::NONE;
use crate::peer::Incarnation;
use crate::span::Span;

/// Fresh random bits, made by the rim: who knows them may place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Key(pub u64);

/// A grant and the placement that uses it, by its record at the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PlacementId(pub u32);

/// Where a grant stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stage {
    Free,
    /// The key is out.
    Granted(Key),
    /// Opened; so many segments and the opening itself have yet to have their turn.
    Open {
        bytes: u32,
        left: u32,
    },
    /// Filled; the event waits.
    Filled {
        bytes: u32,
    },
}

/// One grant, for one use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    pub(crate) stage: Stage,
    pub(crate) peer: u32,
    /// The life it was granted to.
    pub(crate) incarnation: Incarnation,
    pub(crate) to: Span,
    /// The next record in the free list or the list of events.
    pub(crate) link: u32,
}

impl Placement {
    /// An unused record.
    pub const FREE: Self = Self {
        stage: Stage::Free,
        peer: NONE,
        incarnation: Incarnation(0),
        to: Span { region: crate::span::Region { index: 0, life: 0 }, offset: 0, bytes: 0 },
        link: NONE,
    };
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
