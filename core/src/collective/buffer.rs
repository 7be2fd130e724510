//! Where payload lies, and who moves it.

/// Memory that a collective works on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// What this rank contributes.
    Input,
    /// What this rank receives. It may be the same memory as the input.
    Output,
    /// The segment shared by the group, from its first byte on.
    Shared,
}

/// Bytes of a place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// The place.
    pub place: Place,
    /// Bytes from its start.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
}

impl Piece {
    /// `bytes` bytes of `place` from `offset` on.
    pub const fn new(place: Place, offset: usize, bytes: usize) -> Self {
        Self { place, offset, bytes }
    }
}

/// The rim's side of a basic collective: owns every byte and carries out wishes of one kind.
pub trait Payload<Wish> {
    /// Why a wish could not be carried out.
    type Error;

    /// Carries it out. It is done when this returns.
    ///
    /// # Errors
    /// The wish names bytes that do not exist, or a peer whose memory cannot be read.
    fn carry_out(&mut self, wish: Wish) -> Result<(), Self::Error>;
}
