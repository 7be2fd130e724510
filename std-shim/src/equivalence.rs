//! Values that are sent though they are not plain bytes: `bool`, `char`, and structs with padding.
//!
//! Types that are plain bytes (zerocopy's `IntoBytes`) need none of this: they are sent without a copy. The others are
//! written to a message and read from it, one field after the other.
//!
//! ```
//! use unisono::prelude::*;
//!
//! #[derive(Clone, Copy, PartialEq, Debug, Equivalence)]
//! struct Particle {
//!     is_charged: bool,
//!     mass: f64,
//!     kind: char,
//! }
//!
//! let world = World::join()?;
//! let sent = Particle { is_charged: true, mass: 1.5, kind: 'π' };
//! world.send_values(&[sent], world.rank(), Tag(1))?;
//! let (received, status) = world.receive_values::<Particle>(world.rank(), Tag(1))?;
//! assert_eq!((received, status.bytes), (vec![sent], 13));
//! # Ok::<(), unisono::Error>(())
//! ```

/// A value that is written to a message and read from it. Derive it for structs: `#[derive(Equivalence)]`.
pub trait Equivalence: Sized {
    /// Bytes of a value in a message.
    const BYTES: usize;

    /// Writes the value.
    ///
    /// ```
    /// use unisono::{Equivalence, EquivalenceReader, EquivalenceWriter};
    ///
    /// /// A number below 100, as one byte.
    /// struct Percent(u8);
    ///
    /// impl Equivalence for Percent {
    ///     const BYTES: usize = 1;
    ///
    ///     fn write(&self, bytes: &mut EquivalenceWriter<'_>) {
    ///         bytes.append(&[self.0]);
    ///     }
    ///
    ///     fn read(bytes: &mut EquivalenceReader<'_>) -> Option<Self> {
    ///         bytes.take().map(|[byte]| Self(byte)).filter(|percent| percent.0 < 100)
    ///     }
    /// }
    /// ```
    fn write(&self, bytes: &mut EquivalenceWriter<'_>);

    /// Reads a value. `None`: the bytes are no value of this type, or too few.
    ///
    /// ```
    /// use unisono::{Equivalence, EquivalenceReader, EquivalenceWriter};
    ///
    /// /// A number below 100, as one byte.
    /// struct Percent(u8);
    ///
    /// impl Equivalence for Percent {
    ///     const BYTES: usize = 1;
    ///
    ///     fn write(&self, bytes: &mut EquivalenceWriter<'_>) {
    ///         bytes.append(&[self.0]);
    ///     }
    ///
    ///     fn read(bytes: &mut EquivalenceReader<'_>) -> Option<Self> {
    ///         bytes.take().map(|[byte]| Self(byte)).filter(|percent| percent.0 < 100)
    ///     }
    /// }
    /// ```
    fn read(bytes: &mut EquivalenceReader<'_>) -> Option<Self>;
}

/// Where values are written.
#[derive(Debug)]
pub struct EquivalenceWriter<'a>(&'a mut Vec<u8>);

/// Where values are read.
#[derive(Debug)]
pub struct EquivalenceReader<'a>(&'a [u8]);

impl EquivalenceWriter<'_> {
    /// Appends bytes.
    ///
    /// ```
    /// use unisono::{Equivalence, EquivalenceReader, EquivalenceWriter};
    ///
    /// /// A number below 100, as one byte.
    /// struct Percent(u8);
    ///
    /// impl Equivalence for Percent {
    ///     const BYTES: usize = 1;
    ///
    ///     fn write(&self, bytes: &mut EquivalenceWriter<'_>) {
    ///         bytes.append(&[self.0]);
    ///     }
    ///
    ///     fn read(bytes: &mut EquivalenceReader<'_>) -> Option<Self> {
    ///         bytes.take().map(|[byte]| Self(byte)).filter(|percent| percent.0 < 100)
    ///     }
    /// }
    /// ```
    pub fn append(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl EquivalenceReader<'_> {
    /// Takes the next `N` bytes, if there are as many.
    ///
    /// ```
    /// use unisono::{Equivalence, EquivalenceReader, EquivalenceWriter};
    ///
    /// /// A number below 100, as one byte.
    /// struct Percent(u8);
    ///
    /// impl Equivalence for Percent {
    ///     const BYTES: usize = 1;
    ///
    ///     fn write(&self, bytes: &mut EquivalenceWriter<'_>) {
    ///         bytes.append(&[self.0]);
    ///     }
    ///
    ///     fn read(bytes: &mut EquivalenceReader<'_>) -> Option<Self> {
    ///         bytes.take().map(|[byte]| Self(byte)).filter(|percent| percent.0 < 100)
    ///     }
    /// }
    /// ```
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
}

/// The values, one after the other; `None`: there is no memory.
pub(crate) fn write_all<T: Equivalence>(values: &[T]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(values.len().checked_mul(T::BYTES)?).ok()?;
    let mut writer = EquivalenceWriter(&mut bytes);
    values.iter().for_each(|value| value.write(&mut writer));
    Some(bytes)
}

/// The values that these bytes consist of; `None`: they are no values of this type.
pub(crate) fn read_all<T: Equivalence>(bytes: &[u8]) -> Option<Vec<T>> {
    let count = bytes.len().checked_div(T::BYTES).unwrap_or(0);
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok()?;
    let mut reader = EquivalenceReader(bytes);
    for _ in 0..count {
        values.push(T::read(&mut reader)?);
    }
    reader.0.is_empty().then_some(values)
}

macro_rules! numbers {
    ($($type:ty),*) => { $(
        impl Equivalence for $type {
            const BYTES: usize = size_of::<Self>();

            fn write(&self, bytes: &mut EquivalenceWriter<'_>) {
                bytes.append(&self.to_ne_bytes());
            }

            fn read(bytes: &mut EquivalenceReader<'_>) -> Option<Self> {
                bytes.take().map(Self::from_ne_bytes)
            }
        }
    )* };
}

numbers!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f32, f64);

impl Equivalence for bool {
    const BYTES: usize = 1;

    fn write(&self, bytes: &mut EquivalenceWriter<'_>) {
        bytes.append(&[u8::from(*self)]);
    }

    fn read(bytes: &mut EquivalenceReader<'_>) -> Option<Self> {
        match u8::read(bytes)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Equivalence for char {
    const BYTES: usize = 4;

    fn write(&self, bytes: &mut EquivalenceWriter<'_>) {
        u32::from(*self).write(bytes);
    }

    fn read(bytes: &mut EquivalenceReader<'_>) -> Option<Self> {
        Self::from_u32(u32::read(bytes)?)
    }
}

impl Equivalence for () {
    const BYTES: usize = 0;

    fn write(&self, _: &mut EquivalenceWriter<'_>) {}

    fn read(_: &mut EquivalenceReader<'_>) -> Option<Self> {
        Some(())
    }
}

impl<T: Equivalence, const N: usize> Equivalence for [T; N] {
    const BYTES: usize = N * T::BYTES;

    fn write(&self, bytes: &mut EquivalenceWriter<'_>) {
        self.iter().for_each(|value| value.write(bytes));
    }

    fn read(bytes: &mut EquivalenceReader<'_>) -> Option<Self> {
        let values: Vec<T> = (0..N).map(|_| T::read(bytes)).collect::<Option<_>>()?;
        values.try_into().ok()
    }
}

impl<A: Equivalence, B: Equivalence> Equivalence for (A, B) {
    const BYTES: usize = A::BYTES + B::BYTES;

    fn write(&self, bytes: &mut EquivalenceWriter<'_>) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn read(bytes: &mut EquivalenceReader<'_>) -> Option<Self> {
        Some((A::read(bytes)?, B::read(bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Mixed = ((bool, char), ([i128; 2], (f64, ())));

    proptest! {
        #[test]
        fn what_is_written_is_read(values in proptest::collection::vec(any::<((bool, char), ([i128; 2], (u64, ())))>(), 0..9)) {
            let values: Vec<Mixed> =
                values.into_iter().map(|(first, (numbers, (bits, ())))| (first, (numbers, (bits as f64, ())))).collect();
            let bytes = write_all(&values).expect("memory");
            prop_assert_eq!(bytes.len(), values.len() * <Mixed as Equivalence>::BYTES);
            prop_assert_eq!(read_all::<Mixed>(&bytes), Some(values));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            if let Some(values) = read_all::<Mixed>(&bytes) {
                prop_assert_eq!(write_all(&values).map(|bytes| bytes.len()), Some(bytes.len()));
            }
            let _ = read_all::<()>(&bytes);
        }
    }
}
