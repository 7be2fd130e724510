//! What shared memory's collectives ask of the rim.

use unisono_core::collective::{Piece, Place, Rank};

/// Something to be done with payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wish {
    /// Copy one piece into another, as long. They overlap only if they are the same.
    Copy {
        /// The source.
        from: Piece,
        /// The destination.
        into: Piece,
    },
    /// into = left · right, element by element. All are as long, and `into` may be either operand; no other overlap.
    Combine {
        /// The left operand.
        left: Piece,
        /// The right operand.
        right: Piece,
        /// The result.
        into: Piece,
    },
    /// Write the addresses of input and output, 64 bits each, to this byte of the segment: others will pull from there.
    Lend {
        /// 16 bytes of the segment.
        at: usize,
    },
    /// Copy from another rank's memory.
    Pull {
        /// Whose.
        of: Rank,
        /// The byte of the segment where that rank lent its addresses.
        at: usize,
        /// Which of its places.
        place: Place,
        /// Bytes from its start.
        offset: usize,
        /// The destination.
        into: Piece,
    },
}
