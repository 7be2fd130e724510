//! Messages into memory that the call allocates, and messages of values that are not plain bytes.

use zerocopy::{FromBytes, FromZeros as _, IntoBytes};

use super::Communicator;
use super::probe::Message;
use crate::collective::CollectiveError;
use crate::equivalence::{Equivalence, read_all, write_all};
use crate::world::request::{Failure, Status, Tag};
use unisono_bootstrap::Rank;
use unisono_memory::element_type::ElementType;

impl Communicator {
    /// As [`receive_into`](Self::receive_into), into a vector that is as long as the message.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&[1.0, 2.0, 3.0], world.rank(), Tag(1))?;
    /// let (values, status) = world.receive::<f64>(world.rank(), Tag(1))?;
    /// assert_eq!((values, status.bytes), (vec![1.0, 2.0, 3.0], 24));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`receive_into`](Self::receive_into); [`Failure::Truncated`]: the message is no whole number of elements;
    /// [`Failure::ResourceExhausted`]: there is no memory for it. Both times the message is discarded.
    pub fn receive<T: IntoBytes + FromBytes>(
        &self,
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<(Vec<T>, Status), Failure> {
        self.matched_probe(source, tag)?.receive_vec()
    }

    /// Sends values of any type with [`Equivalence`], as [`send`](Self::send) does.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send_values(&[('π', true)], world.rank(), Tag(1))?;
    /// assert_eq!(world.receive_values::<(char, bool)>(None, None)?.0, [('π', true)]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    pub fn send_values<T: Equivalence>(&self, values: &[T], to: Rank, tag: Tag) -> Result<(), Failure> {
        let bytes = write_all(values).ok_or(Failure::ResourceExhausted)?;
        self.send_bytes(&bytes, ElementType::of::<T>(), to, tag)
    }

    /// Receives all values of a message.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send_values(&['a', 'b'], world.rank(), Tag(1))?;
    /// let (characters, status) = world.receive_values::<char>(world.rank(), Tag(1))?;
    /// assert_eq!((characters, status.tag), (vec!['a', 'b'], Tag(1)));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`receive`](Self::receive); [`Failure::Truncated`] also of a message that is no sequence of such values.
    pub fn receive_values<T: Equivalence>(
        &self,
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<(Vec<T>, Status), Failure> {
        let message = self.matched_probe(source, tag)?;
        let mut bytes = u8::new_vec_zeroed(message.status().bytes).map_err(|_| Failure::ResourceExhausted)?;
        let status = message.receive_elements(&mut bytes, ElementType::of::<T>())?;
        let values = read_all(&bytes).ok_or(Failure::Truncated { bytes: bytes.len() as u64 })?;
        Ok((values, status))
    }

    /// Copies the root's values to those of all other ranks, of which there are as many.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut characters = ['x'; 2];
    /// if world.rank() == Rank(0) {
    ///     characters = ['a', 'b'];
    /// }
    /// world.broadcast_values(&mut characters, Rank(0))?;
    /// assert_eq!(characters, ['a', 'b']);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`broadcast_into`](Self::broadcast_into).
    pub fn broadcast_values<T: Equivalence>(&self, values: &mut [T], root: Rank) -> Result<(), CollectiveError> {
        let mut bytes = write_all(values).ok_or(CollectiveError::TooLong)?;
        self.broadcast_into(&mut bytes, root)?;
        let corrupt = CollectiveError::Corrupt { rank: root, collective: "broadcast", sequence: self.call() };
        let received = read_all::<T>(&bytes).ok_or(corrupt)?;
        values.iter_mut().zip(received).for_each(|(value, received)| *value = received);
        Ok(())
    }
}

impl Message<'_> {
    /// As [`receive_into`](Self::receive_into), into a vector that is as long as the message.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&[1_u32, 2], world.rank(), Tag(1))?;
    /// assert_eq!(world.matched_probe(None, None)?.receive_vec::<u32>()?.0, [1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`Communicator::receive`].
    pub fn receive_vec<T: IntoBytes + FromBytes>(self) -> Result<(Vec<T>, Status), Failure> {
        let bytes = self.status().bytes;
        let count = bytes.checked_div(size_of::<T>()).unwrap_or(0);
        if count * size_of::<T>() != bytes {
            return Err(Failure::Truncated { bytes: bytes as u64 });
        }
        let mut values = T::new_vec_zeroed(count).map_err(|_| Failure::ResourceExhausted)?;
        let status = self.receive_into(&mut values)?;
        Ok((values, status))
    }
}
