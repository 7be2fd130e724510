//! Places: where in the memory of a rank the bytes of a one-sided operation lie, and how they are accessed.

use super::WindowError;
use super::memory::WindowMemory;
use super::targets::{Access, Targets};
use unisono_bootstrap::Rank;

/// Contiguous memory that an operation accesses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) access: Access,
    /// The first byte, counted from where the accessed memory begins.
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// The places of an operation's bytes, in their order: several if it spans attached pieces of a dynamic window.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) first: Place,
    pub(super) rest: Vec<Place>,
}

impl Places {
    /// The place, if there is one alone.
    pub(super) fn only(&self) -> Option<Place> {
        self.rest.is_empty().then_some(self.first)
    }

    /// Whether each of the elements of `grain` bytes, the first of which begins `skipped` bytes after the first byte, is
    /// in one place.
    pub(super) fn hold_elements(&self, skipped: usize, bytes: usize, grain: usize) -> bool {
        let mut border = self.first.bytes;
        self.rest.iter().all(|place| {
            let inside = border.checked_sub(skipped).filter(|inside| *inside < bytes);
            border += place.bytes;
            inside.is_none_or(|inside| inside.is_multiple_of(grain))
        })
    }
}

impl IntoIterator for Places {
    type Item = Place;
    type IntoIter = core::iter::Chain<core::iter::Once<Place>, alloc::vec::IntoIter<Place>>;

    fn into_iter(self) -> Self::IntoIter {
        core::iter::once(self.first).chain(self.rest)
    }
}

impl Targets {
    /// Where `bytes` bytes from `offset` on are, elements of `grain` bytes, none of which lies in two places.
    pub(super) fn places(&self, rank: Rank, offset: usize, bytes: usize, grain: usize) -> Result<Places, WindowError> {
        if let Some(attachments) = &self.attachments {
            let places = self.find_attached(attachments, rank, offset, bytes)?;
            return if places.hold_elements(0, bytes, grain) {
                Ok(places)
            } else {
                Err(WindowError::OutOfBounds(rank))
            };
        }
        let access = self.bounded(rank, offset, bytes)?;
        Ok(Places { first: Place { access, offset, bytes }, rest: Vec::new() })
    }

    /// The memory of a rank, if this rank maps it, and its window is not dynamic.
    pub(super) fn mapped(&self, rank: Rank, offset: usize, bytes: usize) -> Result<Option<WindowMemory>, WindowError> {
        if self.attachments.is_some() {
            return Ok(None);
        }
        match self.bounded(rank, offset, bytes)? {
            Access::Direct(memory) => Ok(Some(memory)),
            _ => Ok(None),
        }
    }

    /// How `bytes` bytes from `offset` on are accessed, all of which are in the memory of the rank.
    fn bounded(&self, rank: Rank, offset: usize, bytes: usize) -> Result<Access, WindowError> {
        let member = self.member(rank)?;
        let is_within = offset.checked_add(bytes).is_some_and(|end| end <= member.bytes);
        if is_within { Ok(member.access) } else { Err(WindowError::OutOfBounds(rank)) }
    }

    /// How an element of `bytes` bytes at `offset` is accessed, and the offset there.
    pub(super) fn access(&self, rank: Rank, offset: usize, bytes: usize) -> Result<(Access, usize), WindowError> {
        let Place { access, offset, .. } = self.places(rank, offset, bytes, bytes)?.first;
        Ok((access, offset))
    }
}
