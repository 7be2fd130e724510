//! The headers on the wire, little-endian.
//!
//! ```text
//!  0               1               2               3
//!  0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7
//! +-------+-------+---------------+-------------------------------+
//! |version| kind  |     flags     |            credit             |
//! +-------+-------+---------------+-------------------------------+
//! |                         sender's rank                         |
//! +---------------------------------------------------------------+
//! |                     sender's incarnation                      |
//! +---------------------------------------------------------------+
//! |                     expected incarnation                      |
//! +---------------------------------------------------------------+
//! |                              PSN                              |
//! +---------------------------------------------------------------+
//! |                   cumulative acknowledgement                  |
//! +===============================================================+ 24: eager (its head and payload follow), control
//! |  placement (segment)          |  hold time (acknowledge)      |
//! +---------------------------------------------------------------+
//! |  segment index (segment)      |  taken (acknowledge)          |
//! +===============================================================+ 32: segment (payload follows)
//! |  bitmap of what arrived beyond the gap, up to 8 words (acknowledge)
//! +===============================================================+ 64 at most
//! ```
//!
//! The kind nibble is the lower half of the first byte. A CRC-32C over header and payload ends every datagram on links
//! that have no such check of their own; devices write and verify it, the core never sees it.

mod acknowledgement;
mod bitmap;
mod header;
mod opening;

pub use acknowledgement::{Acknowledgement, Echo};
pub use bitmap::Bitmap;
pub use header::{DatagramKind, Flags, Header, ParseError};
pub use opening::{Opening, SegmentHeader};

/// The protocol version.
pub const VERSION: u8 = 2;
/// Bytes of the header that every datagram begins with.
pub const HEADER: usize = 24;
/// Bytes of the header of a placement segment.
pub const SEGMENT_HEADER: usize = 32;
/// Bytes of an eager message's own header that fit after the header: [`HEADER_ROOM`](crate::device::HEADER_ROOM) −
/// [`HEADER`].
pub const MESSAGE_HEADER_ROOM: usize = 40;
