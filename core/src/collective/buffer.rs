//! Buffers of a collective, and the trait of the host that moves their bytes.

/// A buffer of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// This rank's contribution.
    Input,
    /// This rank's result. It may be the same memory as the input.
    Output,
    /// The group's shared-memory segment, from its first byte on.
    Shared,
}

/// Bytes of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// The buffer.
    pub place: Place,
    /// Bytes from its start.
    pub offset: usize,
    /// Length.
    pub bytes: usize,
}

impl Piece {
    /// `bytes` bytes of `place` from `offset` on.
    pub const fn new(place: Place, offset: usize, bytes: usize) -> Self {
        Self { place, offset, bytes }
    }
}

/// The host's side of a collective: owns every byte and carries out requests of one kind.
pub trait DataExecutor<Wish> {
    /// Why a request could not be carried out.
    type Error;

    /// Carries out a request; it is complete on return.
    ///
    /// # Errors
    /// The request names bytes that do not exist, or a peer whose memory cannot be read.
    fn execute(&mut self, op: Wish) -> Result<(), Self::Error>;
}
