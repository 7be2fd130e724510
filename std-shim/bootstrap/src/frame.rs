//! Framing of a session: authenticated frames, and the bounded buffer that extracts them from a byte stream.
//!
//! ```text
//!  0       4                    4 + n            20 + n
//!  | n u32 | payload of n bytes | MAC, 16 bytes  |
//! ```
//! The length is little-endian. The MAC covers header, payload and the frame's number in its direction.

use super::auth::{MAC_BYTES, MacKey};

/// Bytes before the payload.
pub(crate) const HEADER: usize = 4;
/// Longest payload in bytes. A receiver never buffers more than one frame of this size plus one read.
pub const PAYLOAD_MAX: usize = 32 * 1024;

/// Why a byte stream is not a sequence of frames. The session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A frame announces more than [`PAYLOAD_MAX`] bytes.
    #[error("a frame announces {0} bytes, more than {PAYLOAD_MAX}")]
    TooLong(u32),
    /// The MAC does not match: the frame was forged, changed, repeated, lost or reordered.
    #[error("a frame's authentication code is wrong")]
    Mac,
}

/// A verified frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The number of the message's kind, for error messages.
    pub(crate) fn kind(&self) -> u8 {
        kind_of(&self.payload)
    }
}

/// The first byte of a message is the number of its kind, below 128. An empty payload has none: 255.
pub(crate) fn kind_of(payload: &[u8]) -> u8 {
    payload.first().copied().unwrap_or(u8::MAX)
}

/// Appends a frame with its MAC. Returns `None`, with nothing appended, if the payload is longer than [`PAYLOAD_MAX`].
pub(crate) fn append(to: &mut Vec<u8>, payload: &[u8], seal: &mut MacKey) -> Option<()> {
    let bytes = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= PAYLOAD_MAX)?;
    let header = bytes.to_le_bytes();
    to.extend_from_slice(&header);
    to.extend_from_slice(payload);
    to.extend_from_slice(&seal.sign(&[&header, payload]));
    Some(())
}

/// Bytes that arrived and are not consumed.
#[derive(Default, Debug)]
pub(crate) struct FrameDecoder {
    bytes: Vec<u8>,
    start: usize,
}

impl FrameDecoder {
    /// Whether more bytes may be read before frames are consumed.
    pub(crate) fn has_room(&self) -> bool {
        self.buffered().len() < HEADER + PAYLOAD_MAX + MAC_BYTES
    }

    /// Bytes that arrived and are not consumed.
    pub(crate) fn buffered(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Appends the bytes of a read.
    pub(crate) fn fill(&mut self, arrived: &[u8]) {
        self.bytes.drain(..self.start.min(self.bytes.len()));
        self.start = 0;
        self.bytes.extend_from_slice(arrived);
    }

    /// The next `N` bytes as they are: the handshake, which precedes the first frame.
    pub(crate) fn take_bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = *self.buffered().first_chunk()?;
        self.start += N;
        Some(taken)
    }

    /// The next frame, once all of it has arrived.
    pub(crate) fn next_frame(&mut self, seal: &mut MacKey) -> Result<Option<Frame>, FrameError> {
        let Some((header, rest)) = self.buffered().split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let announced = u32::from_le_bytes(*header);
        let bytes = usize::try_from(announced).ok().filter(|bytes| *bytes <= PAYLOAD_MAX);
        let bytes = bytes.ok_or(FrameError::TooLong(announced))?;
        let Some((payload, rest)) = rest.split_at_checked(bytes) else {
            return Ok(None);
        };
        let Some(found) = rest.first_chunk::<MAC_BYTES>() else {
            return Ok(None);
        };
        if !seal.verify(&[header, payload], found) {
            return Err(FrameError::Mac);
        }
        let frame = Frame { payload: payload.to_vec() };
        self.start += HEADER + bytes + MAC_BYTES;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::auth::Secret, *};
    use proptest::prelude::*;

    fn seal() -> MacKey {
        Secret::new("0123456789abcdef").expect("long enough").for_job("").derive(b"test", &[])
    }

    #[test]
    fn too_long_payloads_are_refused_on_both_sides() {
        let mut to = Vec::new();
        assert_eq!(append(&mut to, &[0; PAYLOAD_MAX + 1], &mut seal()), None);
        assert!(to.is_empty());
        assert_eq!(append(&mut to, &[0; PAYLOAD_MAX], &mut seal()), Some(()));
        let mut inbox = FrameDecoder::default();
        inbox.fill(&[0, 0, 1, 0]);
        assert_eq!(inbox.next_frame(&mut seal()), Err(FrameError::TooLong(65536)));
    }

    #[test]
    fn a_changed_bit_is_detected() {
        let mut sent = Vec::new();
        append(&mut sent, b"hello", &mut seal()).expect("short");
        for bit in 0..8 * sent.len() {
            let mut changed = sent.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let mut inbox = FrameDecoder::default();
            inbox.fill(&changed);
            let taken = inbox.next_frame(&mut seal());
            assert!(matches!(taken, Ok(None) | Err(_)), "bit {bit}: {taken:?}");
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..10),
            cut in 1_usize..300,
        ) {
            let (mut sent, mut sealing, mut opening) = (Vec::new(), seal(), seal());
            for payload in &payloads {
                append(&mut sent, payload, &mut sealing).expect("short");
            }
            let (mut inbox, mut got) = (FrameDecoder::default(), Vec::new());
            for piece in sent.chunks(cut) {
                inbox.fill(piece);
                while let Some(frame) = inbox.next_frame(&mut opening).expect("sealed by us") {
                    got.push(frame.payload);
                }
            }
            prop_assert_eq!(got, payloads);
            prop_assert!(inbox.buffered().is_empty());
        }

        #[test]
        fn no_bytes_make_a_frame_without_the_key(bytes in prop::collection::vec(any::<u8>(), 0..2000), short in any::<bool>()) {
            let mut bytes = bytes;
            if short && bytes.len() > HEADER {
                let payload = (bytes.len() - HEADER).saturating_sub(MAC_BYTES).min(255) as u8;
                bytes[..HEADER].copy_from_slice(&[payload, 0, 0, 0]);
            }
            let mut inbox = FrameDecoder::default();
            inbox.fill(&bytes);
            prop_assert!(!matches!(inbox.next_frame(&mut seal()), Ok(Some(_))));
        }
    }
}
