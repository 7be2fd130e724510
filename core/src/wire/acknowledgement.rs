//! Acknowledgements, pure or piggybacked.

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{DatagramKind, Flags, HEADER, Header, ParseError};
use crate::ids::Psn;
use crate::wire::Bitmap;

/// The datagram that caused a pure acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Echo<const BITS: u32> {
    /// Its PSN; for a probe the next unsent one.
    pub psn: Psn<BITS>,
    /// Its transmission count or number, modulo 4.
    pub count: u8,
    /// Units of 64 ns between its arrival and the acknowledgement; `u32::MAX`: unknown.
    pub hold: u32,
}

/// An acknowledgement: cumulative; a pure one is also selective, and echoes its cause.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Acknowledgement<const BITS: u32> {
    /// Every PSN before this one has arrived.
    pub cumulative: Psn<BITS>,
    /// The receiver of this acknowledgement may send PSNs below `cumulative + credit`.
    pub credit: u16,
    /// Bit i: PSN `cumulative + 1 + i` has arrived. Empty without a gap.
    pub selective: Bitmap,
    /// The datagram that caused it; `None` if piggybacked, or if nothing new arrived.
    pub echo: Option<Echo<BITS>>,
    /// It answers the probe that `echo` describes.
    pub answers_probe: bool,
    /// A gap is new.
    pub nack: bool,
}

/// The fields after the header of a pure acknowledgement; the bitmap's words follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    hold: U32,
    taken: U32,
}

impl<const BITS: u32> Acknowledgement<BITS> {
    /// The cumulative acknowledgement and the credit in any header.
    pub fn piggybacked(header: &Header<BITS>) -> Self {
        Self::cumulative(Psn::new(header.acknowledged), header.credit)
    }

    /// An acknowledgement without bitmap and echo.
    pub fn cumulative(cumulative: Psn<BITS>, credit: u16) -> Self {
        Self { cumulative, credit, selective: Bitmap::default(), echo: None, answers_probe: false, nack: false }
    }

    /// Parses a pure acknowledgement of `length` bytes whose first bytes are `head`.
    ///
    /// # Errors
    /// [`ParseError`] if it is truncated, longer than its bitmap, or its bitmap is not made of words.
    pub fn parse(header: &Header<BITS>, head: &[u8], length: u32) -> Result<Self, ParseError> {
        let rest = head.get(HEADER..).ok_or(ParseError::Short)?;
        let (wire, words) = Wire::ref_from_prefix(rest).map_err(|_| ParseError::Short)?;
        let words = <[U32]>::ref_from_bytes(words).map_err(|_| ParseError::Malformed)?;
        let has_bitmap = header.flags.contains(Flags::BITMAP);
        if length as usize != head.len() || has_bitmap == words.is_empty() || words.len() > Bitmap::WORDS {
            return Err(ParseError::Malformed);
        }
        let echo = Echo { psn: header.psn(), count: header.flags.count(), hold: wire.hold.get() };
        Ok(Self {
            selective: Bitmap::from_words(words.iter().map(|word| word.get())),
            echo: (!header.flags.contains(Flags::DRAINED)).then_some(echo),
            answers_probe: header.flags.contains(Flags::ANSWER),
            nack: header.flags.contains(Flags::NACK),
            ..Self::piggybacked(header)
        })
    }

    /// Writes it with its header to the start of `head`; rank and incarnations are those of `from`. `taken` equals the
    /// cumulative acknowledgement: every datagram before it was accepted. Returns the datagram's length in bytes.
    pub fn emit(&self, from: &Header<BITS>, head: &mut [u8]) -> u8 {
        let mut flags = from.flags;
        flags.set(Flags::NACK, self.nack);
        flags.set(Flags::BITMAP, !self.selective.is_empty());
        flags.set(Flags::ANSWER, self.answers_probe);
        let mut hold = u32::MAX;
        // Without an echo, a PSN outside every window, which feeds no estimator. If the datagram returns credit, the
        // next PSN to be sent, so that it is not mistaken for a later one.
        let unreached = self.cumulative.add(1 << BITS.wrapping_sub(1));
        let mut psn = if flags.contains(Flags::DRAINED) { from.psn() } else { unreached };
        if let Some(echo) = &self.echo {
            (hold, psn) = (echo.hold, echo.psn);
            flags = flags.with_count(echo.count);
        }
        let header = Header {
            kind: DatagramKind::Acknowledge,
            flags,
            credit: self.credit,
            psn: psn.get(),
            acknowledged: self.cumulative.get(),
            ..*from
        };
        header.emit(head);
        let mut length = HEADER;
        let mut rest = head.get_mut(HEADER..).unwrap_or_default().as_chunks_mut().0.iter_mut();
        let mut put = |word: u32| {
            if let Some(into) = rest.next() {
                *into = word.to_le_bytes();
                length = length.wrapping_add(4);
            }
        };
        put(hold);
        put(self.cumulative.get());
        self.selective.words().for_each(put);
        length as u8
    }
}
