//! Short messages to and from another rank of the node, neither matched nor announced, in the order of each ring.
//!
//! The AM header is the word `MESG` and a tag. Matched messages have other headers: see [`messages`](crate::messages).

use unisono_shmem::ring::{Consumer, Corrupted, Producer, PutError};

use crate::member::Member;

/// First word of a message's AM header.
const MESSAGE: u32 = u32::from_le_bytes(*b"MESG");

/// Why no message was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveError {
    /// The peer violated the protocol.
    Corrupted,
    /// The message was longer than the buffer and is dropped.
    Truncated,
}

/// The rings to and from one rank.
#[derive(Debug)]
pub struct RawRing<'a> {
    outward: Producer<'a>,
    inward: Consumer<'a>,
}

impl<'a> RawRing<'a> {
    /// To and from the rank with this number. `None`: there is none.
    pub fn new(member: &Member<'a>, peer: u32) -> Option<Self> {
        let (segment, layout, own) = (member.segment(), member.layout(), member.local());
        Some(Self {
            outward: Producer::of(segment, &layout, own, peer)?,
            inward: Consumer::of(segment, &layout, peer, own)?,
        })
    }

    /// Puts a message into the ring: in its entry, or from [`INLINE`](unisono_shmem::ring::INLINE) bytes on in its
    /// bulk.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn send(&mut self, tag: u32, payload: &[u8]) -> Result<(), PutError> {
        match self.outward.put([MESSAGE, tag], payload) {
            Err(PutError::TooLong) => {
                let bytes = u32::try_from(payload.len()).map_err(|_| PutError::TooLong)?;
                self.outward.put_piece([MESSAGE, tag], bytes, |piece| {
                    // As long as the piece.
                    let _ = piece.write(payload);
                })
            }
            put => put,
        }
    }

    /// The next message, if there is one: its tag, and its length in `into`. Skips entries that are no such messages.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Option<(u32, usize)>, ReceiveError> {
        let Some(entry) = self.inward.poll().map_err(|Corrupted| ReceiveError::Corrupted)? else { return Ok(None) };
        let ([what, tag], bytes) = (entry.header, entry.payload.bytes());
        let read = into.get_mut(..bytes).and_then(|into| entry.payload.read(into));
        self.inward.consume();
        match read {
            _ if what != MESSAGE => Ok(None),
            Some(()) => Ok(Some((tag, bytes))),
            None => Err(ReceiveError::Truncated),
        }
    }
}
