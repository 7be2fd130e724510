//! A rank's place in the segment.

use unisono_shmem::layout::{Layout, LayoutError};
use unisono_shmem::rank_slot::{Occupant, Own, Seat, Sitter};
use unisono_shmem::segment::{Segment, Word};

/// Why a rank has no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinError {
    /// The memory is no segment.
    Layout(LayoutError),
    /// It has no seat of this number.
    NoSeat,
    /// Somebody sits there, or sat there.
    Taken,
}

/// A rank of the node, seated.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    segment: Segment<'a>,
    layout: Layout,
    local: u32,
    own: Own<'a>,
}

impl<'a> Member<'a> {
    /// Takes the seat with this number. The incarnation comes from whoever started the rank: 32 bits that no earlier life of the rank
    /// had, random where the segment is shared with ranks that are also reached over a network.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(segment: Segment<'a>, local: u32, sitter: Sitter) -> Result<Self, JoinError> {
        let layout = Layout::read_header(segment).map_err(JoinError::Layout)?;
        let own = Seat::of(segment, &layout, local).ok_or(JoinError::NoSeat)?.take(sitter).ok_or(JoinError::Taken)?;
        Ok(Self { segment, layout, local, own })
    }

    /// The segment.
    pub const fn segment(&self) -> Segment<'a> {
        self.segment
    }

    /// Where everything lies in it.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// This rank's number on the node.
    pub const fn local(&self) -> u32 {
        self.local
    }

    /// Ranks of the node.
    pub const fn size(&self) -> u32 {
        self.layout.sizes().ranks
    }

    /// The word to count up while this rank lives.
    pub const fn heart(&self) -> &'a Word {
        self.own.heart()
    }

    /// Whether this rank's seat is as it was written.
    pub fn is_intact(&self) -> bool {
        self.own.is_intact()
    }

    /// Whether everybody has come, or has come and gone.
    pub fn is_complete(&self) -> bool {
        (0..self.size()).all(|local| !matches!(self.occupant(local), None | Some(Occupant::Nobody)))
    }

    /// Who sits on a seat.
    pub fn occupant(&self, local: u32) -> Option<Occupant> {
        Some(Seat::of(self.segment, &self.layout, local)?.occupant())
    }

    /// Whether a rank takes part in no collective any more. One load.
    pub fn has_retired(&self, local: u32) -> bool {
        Seat::of(self.segment, &self.layout, local).is_none_or(|seat| seat.has_retired())
    }

    /// Takes part in no collective from now on.
    pub fn retire(&self) {
        self.own.retire();
    }

    /// Says farewell.
    pub fn leave(&self) {
        self.own.leave();
    }

    /// Gives up: the others take this rank for dead.
    pub fn fail(&self) {
        self.own.fail();
    }
}
