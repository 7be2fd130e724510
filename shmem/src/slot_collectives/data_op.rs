//! The data operations that collectives in shared memory request from the host.

use unisono_core::collective::{Piece, Place};
use unisono_core::ids::Rank;

/// An operation on payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DataOp {
    /// Copies one piece to another of the same length. They overlap only if they are the same.
    Copy {
        /// The source.
        from: Piece,
        /// The destination.
        into: Piece,
    },
    /// into = left · right, element by element. All have the same length, and `into` may be either operand; no other
    /// overlap.
    Combine {
        /// The left operand.
        left: Piece,
        /// The right operand.
        right: Piece,
        /// The result.
        into: Piece,
    },
    /// Exposes this rank's buffers: writes the addresses of input and output, 64 bits each, to this offset of the
    /// segment, for others to pull from.
    Expose {
        /// Offset of 16 bytes of the segment.
        at: usize,
    },
    /// Copies from another rank's memory.
    Pull {
        /// The rank.
        of: Rank,
        /// Offset of the segment where that rank published its addresses.
        at: usize,
        /// Which of its buffers.
        place: Place,
        /// Bytes from its start.
        offset: usize,
        /// The destination.
        into: Piece,
    },
}
