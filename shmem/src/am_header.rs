//! The active-message headers that two ranks of a node exchange over their rings, between processes and bare-metal
//! nodes alike.
//!
//! A header is two words: the kind of message, and a tag or number. A message to be sent takes the first of these forms
//! that fits:
//! ```text
//! eager     tag        short message of the first context. The first word also carries credit for the peer's messages:
//!                      newly acknowledged (8 bits), freed (16 bits). Payload in the entry or in the bulk
//! eager in  tag        the same for another context, which is immediate data
//! headed    checksum   other eager messages: payload; full header of the core as immediate data
//! head      checksum   any other header of the core, without payload
//! fragment  number     payload of a message, in order, for memory that was granted under that number
//! hello     0          address of a nonce, to test `process_vm_readv`; empty from a rank without a process
//! bye       0          the rank leaves in order
//! abort     0          the rank aborts the job
//! ```
//! The receiver of an announced message (RTS) copies it once, if it can reach the sender's buffer, and reports
//! completion (FIN). Otherwise it grants memory under a number of its own (CTS), and the sender fills the bulk with
//! fragments. Where an announced message is: [`MessageLocation`].
//!
//! Messages of collectives, only between processes (`std-shim`), which bare-metal nodes ignore; and of remote memory
//! access, also to nodes that expose memory.
//! ```text
//! step      checksum     header of a collective's message (core), or a message about a communicator (`std-shim`,
//!                       `world/process`) · payload, in the entry or in the bulk
//! remote access  0      header of remote memory access · payload, in the entry or in the bulk
//! ```

use unisono_core::message::point_to_point::HeaderCredit;

use crate::ring::{Entry, INLINE, Producer, PutError};
use crate::segment::SharedBytes;

/// The message kind: the lowest 8 bits of the first word.
pub const KIND: u32 = 0xff;
/// A short message of the first context; the kinds are explained above.
pub const EAGER: u32 = 0;
/// A short message of another context.
pub const EAGER_IN_CONTEXT: u32 = 1;
/// A fragment of a message.
pub const FRAGMENT: u32 = 3;
/// A message header of the core without payload: RTS, CTS, FIN and others.
pub const HEADER: u32 = 5;
/// Hello: the sender is ready.
pub const HELLO: u32 = 6;
/// Bye: the sender leaves in order.
pub const BYE: u32 = 7;
/// The sender aborts the job.
pub const ABORT: u32 = 8;
/// A message of remote memory access.
pub const REMOTE_ACCESS: u32 = 10;
/// A message of a collective, or about a communicator.
pub const STEP: u32 = 11;
/// An eager message with its full header.
pub const EAGER_WITH_HEADER: u32 = 13;

/// Most bytes of an unexpected payload that is kept with its header. Equal on all ranks.
pub const SHORT_BYTES: usize = 1024;
/// Bytes of the longest eager message; longer ones are announced by an RTS.
pub const EAGER_LIMIT: usize = 1 << 14;
/// Bytes of a fragment, if the ring's bulk has room for it. The receiver takes any length.
pub const FRAGMENT_BYTES: u32 = 1 << 15;
/// Unexpected messages in all, and the bounds for one peer.
const UNEXPECTED_TOTAL: u32 = 1 << 14;
const UNEXPECTED_PER_PEER_MAX: u32 = 1024;
const UNEXPECTED_PER_PEER_MIN: u32 = 8;

/// Most unexpected messages that are kept for one peer, in a job of `ranks` ranks. Equal on all ranks.
pub const fn unexpected_per_peer(ranks: u32) -> u16 {
    let each = match UNEXPECTED_TOTAL.checked_div(ranks) {
        Some(each) if each <= UNEXPECTED_PER_PEER_MAX => each,
        _ => UNEXPECTED_PER_PEER_MAX,
    };
    if each < UNEXPECTED_PER_PEER_MIN { UNEXPECTED_PER_PEER_MIN as u16 } else { each as u16 }
}

/// Where the payload of an announced message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageLocation {
    /// At this address of the sender's process.
    Private(u64),
    /// At this offset of the segment.
    Shared(u64),
}

impl MessageLocation {
    /// As one word: doubled, plus 1 for an offset.
    pub const fn to_word(self) -> u64 {
        match self {
            Self::Private(at) => at << 1,
            Self::Shared(at) => at << 1 | 1,
        }
    }

    /// The location in such a word.
    pub const fn from_word(word: u64) -> Self {
        if word & 1 == 0 { Self::Private(word >> 1) } else { Self::Shared(word >> 1) }
    }
}

/// The last acknowledged message numbers, received and sent: the headers of short messages carry the difference.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AckState {
    received: u32,
    sent: u32,
}

impl AckState {
    /// The header of a short message that carries this credit. `None`: the difference does not fit, and it takes a full
    /// header.
    #[inline(always)]
    pub const fn eager_header(&mut self, what: u32, credit: HeaderCredit, tag: u32) -> Option<[u32; 2]> {
        let more = credit.settled.wrapping_sub(self.sent);
        if more > 0xff {
            return None;
        }
        self.sent = credit.settled;
        Some([what | more << 8 | (credit.freed as u32) << 16, tag])
    }

    /// The credit in such a header.
    #[inline(always)]
    pub const fn credit(&mut self, note: u32) -> HeaderCredit {
        self.received = self.received.wrapping_add(note >> 8 & 0xff);
        HeaderCredit { freed: (note >> 16) as u16, settled: self.received }
    }

    /// Records the acknowledgement in a full header that is sent.
    pub fn record_sent(&mut self, head: &[u8]) {
        self.sent = acknowledged(head);
    }

    /// Restores the acknowledgement that was sent last: headers leave in the order in which they were recorded.
    pub const fn keep_sent(&mut self, recorded: Self) {
        self.sent = recorded.sent;
    }

    /// Records the acknowledgement in a full header that has arrived. `None`: its checksum is wrong.
    #[inline]
    pub fn receive(&mut self, note: u32, shown: &[u8]) -> Option<()> {
        if checksum(shown) != note {
            return None;
        }
        self.received = acknowledged(shown);
        Some(())
    }
}

/// The checksum of a header: a header that another process overwrote is not parsed, since a wrong one would make its
/// sender wait for ever.
#[inline]
pub fn checksum(head: &[u8]) -> u32 {
    let mix = |sum: u32, word: u32| (sum ^ word).wrapping_mul(0x9e37_79b9).rotate_left(13);
    let (words, rest) = head.as_chunks();
    let sum = words.iter().fold(head.len() as u32, |sum, word| mix(sum, u32::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum, u32::from(*byte)))
}

/// The acknowledged message number in a full header.
fn acknowledged(head: &[u8]) -> u32 {
    head.get(4..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Puts a payload of `bytes` bytes and the immediate data `back`. `fill` writes the payload to the entry, or
/// `fill_piece` to the bulk.
///
/// # Errors
/// [`PutError`]; then nothing has changed.
#[inline]
pub fn put_with<'a>(
    ring: &mut Producer<'a>,
    note: [u32; 2],
    back: &[u8],
    bytes: u32,
    fill: impl FnOnce(&mut [u8]),
    fill_piece: impl FnOnce(SharedBytes<'a>),
) -> Result<(), PutError> {
    let (length, total) = (bytes as usize, (bytes as usize).saturating_add(back.len()));
    if total > INLINE {
        return ring.put_piece_with_immediate(note, back, bytes, fill_piece);
    }
    let mut entry = [0; INLINE];
    let (front, rest) = entry.split_at_mut(length);
    fill(front);
    rest.iter_mut().zip(back).for_each(|(into, byte)| *into = *byte);
    ring.put(note, entry.get(..total).unwrap_or_default())
}

/// The payload and the immediate data of an entry.
#[inline(always)]
pub fn split_immediate<'a, const BYTES: usize>(entry: &Entry<'a>) -> Option<(SharedBytes<'a>, [u8; BYTES])> {
    if let Some(beside) = entry.immediate.part(0, BYTES) {
        return Some((entry.payload, read_array(beside)?));
    }
    let length = entry.payload.bytes().checked_sub(BYTES)?;
    Some((entry.payload.part(0, length)?, read_array(entry.payload.part(length, BYTES)?)?))
}

/// A copy of a payload of exactly `BYTES` bytes.
pub fn read_array<const BYTES: usize>(payload: SharedBytes<'_>) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if payload.bytes() != BYTES {
        return None;
    }
    payload.read(&mut bytes)?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Area;
    use crate::ring::Consumer;
    use crate::segment::Segment;
    use core::ptr::NonNull;
    use unisono_core::message::point_to_point::MessageHeader;
    use unisono_core::message::{Context, Tag};

    #[test]
    fn locations_are_distinguished() {
        for place in [
            MessageLocation::Private(0),
            MessageLocation::Shared(0),
            MessageLocation::Private(0x7fff_ffff_f000),
            MessageLocation::Shared(1 << 29),
        ] {
            assert_eq!(MessageLocation::from_word(place.to_word()), place);
        }
        assert_ne!(MessageLocation::Private(5).to_word(), MessageLocation::Shared(5).to_word());
    }

    #[test]
    fn unexpected_limit_shrinks_with_the_job() {
        assert_eq!([0, 1, 3, 16, 17, 256, 1 << 20].map(unexpected_per_peer), [1024, 1024, 1024, 1024, 963, 64, 8]);
    }

    #[test]
    fn eager_headers_continue_the_counts_of_full_headers() {
        let (mut here, mut there) = (AckState::default(), AckState::default());
        let credit = |freed, settled| HeaderCredit { freed, settled };
        let note = |side: &mut AckState, credit| side.eager_header(EAGER, credit, 7).map(|[note, _]| note);
        let first = note(&mut here, credit(3, 200)).expect("few are new");
        assert_eq!((first & KIND, there.credit(first)), (EAGER, credit(3, 200)));
        assert_eq!(note(&mut here, credit(4, 456)), None, "256 acknowledgements do not fit in a header");
        let head = MessageHeader::inline(Context(0), Tag(7), credit(4, 456));
        here.record_sent(head.as_ref());
        assert_eq!(there.receive(checksum(head.as_ref()), head.as_ref()), Some(()));
        let next = note(&mut here, credit(5, 457)).expect("one is new");
        assert_eq!(there.credit(next), credit(5, 457));
    }

    #[test]
    fn altered_header_is_refused() {
        let head = MessageHeader::inline(Context(9), Tag(1), HeaderCredit { freed: 2, settled: 3 });
        let (note, mut bytes) = (checksum(head.as_ref()), [0; MessageHeader::EAGER]);
        bytes.copy_from_slice(head.as_ref());
        for bit in 0..8 * MessageHeader::EAGER {
            let mut altered = bytes;
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(AckState::default().receive(note, &altered), None, "bit {bit}");
        }
    }

    #[test]
    fn immediate_is_split_off_at_every_length() {
        let mut memory = vec![0_u64; 1024];
        // SAFETY: the vector outlives the segment and is used through it alone.
        let segment = unsafe { Segment::new(NonNull::from(memory.as_mut_slice()).cast(), 8192) };
        let area = Area { offset: 0, bytes: 8192 };
        let mut producer = Producer::new(segment, area, 8, 4096, 0).expect("a ring");
        let mut consumer = Consumer::new(segment, area, 8, 4096, 0).expect("a ring");
        let payload: Vec<u8> = (0..200).collect();
        for bytes in 0..200 {
            let from = &payload[..bytes];
            let put = put_with(
                &mut producer,
                [EAGER_WITH_HEADER, 1],
                &[5, 6, 7, 8],
                bytes as u32,
                |front| front.copy_from_slice(from),
                |piece| piece.write(from).expect("as long as it"),
            );
            assert_eq!(put, Ok(()));
            let entry = consumer.poll().expect("sound").expect("an entry");
            let (seen, beside) = split_immediate::<4>(&entry).expect("both");
            let mut copy = vec![0; seen.bytes()];
            seen.read(&mut copy).expect("all of it");
            assert_eq!((copy.as_slice(), beside), (from, [5, 6, 7, 8]), "{bytes} bytes");
            consumer.consume();
        }
    }
}
