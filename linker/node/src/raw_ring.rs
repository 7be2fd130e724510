//! Messages to and from the other ranks of the node: short ones that are neither matched nor announced, in order of each ring.
//!
//! A note is the word `MESG` and a tag. World's messages are other ones: they are matched by the core's admission.

use unisono_shmem::ring::{Consumer, Corrupted, Producer, PutError};

use crate::member::Member;

/// What the note of a message says.
const MESSAGE: u32 = u32::from_le_bytes(*b"MESG");

/// Why nothing came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveError {
    /// The peer writes what no rank writes.
    Corrupted,
    /// The message is longer than the buffer; it is gone.
    Truncated,
}

/// The rings to and from one rank.
#[derive(Debug)]
pub struct Mailbox<'a> {
    outward: Producer<'a>,
    inward: Consumer<'a>,
}

impl<'a> Mailbox<'a> {
    /// To and from the rank with this number. `None`: there is none.
    pub fn new(member: &Member<'a>, peer: u32) -> Option<Self> {
        let (segment, layout, own) = (member.segment(), member.layout(), member.local());
        Some(Self {
            outward: Producer::of(segment, &layout, own, peer)?,
            inward: Consumer::of(segment, &layout, peer, own)?,
        })
    }

    /// Puts a message into the ring: in its entry, or from [`INLINE`](unisono_shmem::ring::INLINE) bytes on in its bulk.
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

    /// The next message, if there is one: its tag, and how many bytes of `into` it has. What is no message is skipped.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Option<(u32, usize)>, ReceiveError> {
        let Some(entry) = self.inward.look().map_err(|Corrupted| ReceiveError::Corrupted)? else { return Ok(None) };
        let ([what, tag], bytes) = (entry.note, entry.payload.bytes());
        let read = into.get_mut(..bytes).and_then(|into| entry.payload.read(into));
        self.inward.take();
        match read {
            _ if what != MESSAGE => Ok(None),
            Some(()) => Ok(Some((tag, bytes))),
            None => Err(ReceiveError::Truncated),
        }
    }
}
