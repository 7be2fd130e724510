//! Puts and gets.

use alloc::borrow::Cow;

use unisono_core::rma::Rights;
use unisono_core::rma::operation::RmaRequest;
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes};

use super::place::Place;
use super::remote::{of, remote_span};
use super::targets::{Access, Targets};
use super::{Window, WindowError};
use crate::world::collective::{AsView, AsViewMut, View, ViewMut};
use crate::world::process::remote_access::CallEnd;
use crate::world::request::Failure;
use unisono_bootstrap::Rank;

/// Bytes of one operation: a longer put or get is several.
const PART: usize = 1 << 30;

impl Window {
    /// Copies `data` to the memory of a rank, from byte `offset` on (`MPI_Put`): a slice, or the elements of a
    /// [`View`](crate::collective::View), one after the other. They are there after the next flush.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let next = Rank((world.rank().0 + 1) % world.size());
    /// window.put(&[world.rank().0], next, 0)?;
    /// window.fence()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; errors that the target reports are those of the flush.
    pub fn put<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        self.targets.put(data, target, offset)
    }

    /// Copies from the memory of a rank, from byte `offset` on (`MPI_Get`, and a flush of it), to a slice, or to the
    /// elements of a [`ViewMut`](crate::collective::ViewMut).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, mut word) = (world.allocate_window(8)?, [1_u64]);
    /// window.get(&mut word, Rank(0), 0)?;
    /// assert_eq!(word, [0]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn get<T: FromBytes + IntoBytes>(
        &self,
        into: &mut (impl AsViewMut<T> + ?Sized),
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        self.targets.get(into, target, offset)
    }
}

impl Targets {
    pub(in crate::world) fn put<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        self.put_view(&data.as_view(), target, offset, CallEnd::Flush).map(|_| ())
    }

    pub(in crate::world) fn get<T: FromBytes + IntoBytes>(
        &self,
        into: &mut (impl AsViewMut<T> + ?Sized),
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        fill_view(into.as_view_mut(), |bytes| self.get_bytes(bytes, target, offset))
    }

    pub(super) fn put_view<T: IntoBytes + Immutable>(
        &self,
        data: &View<'_, T>,
        target: Rank,
        offset: usize,
        end: CallEnd,
    ) -> Result<Vec<u32>, WindowError> {
        self.start_put(&bytes_of_view(data)?, target, offset, end)
    }

    pub(super) fn get_bytes(&self, into: &mut [u8], target: Rank, offset: usize) -> Result<(), WindowError> {
        if let Some(memory) = self.mapped(target, offset, into.len())? {
            self.make_progress(false);
            return of(memory.load(offset, into), target);
        }
        let places = self.places(target, offset, into.len(), 1)?;
        let mut rest = into;
        for Place { access, offset, bytes } in places {
            let into = rest.split_off_mut(..bytes).unwrap_or_default();
            if !matches!(access, Access::Remote(..)) {
                self.make_progress(false);
            }
            match access {
                Access::Own(memory) => self.locked(|| memory.load(offset, into), target)?,
                Access::Direct(memory) => of(memory.load(offset, into), target)?,
                Access::Keyed(key) => {
                    for (i, part) in (0..).zip(into.chunks_mut(PART)) {
                        let at = remote_span(key, offset + i * PART);
                        self.keyed(at, part.len(), Rights::READ, |memory| memory.load(0, part))?;
                    }
                }
                Access::Remote(there, key) => {
                    let step = self.communicator.shared.lock().read_limit(there);
                    for (i, part) in (0..).zip(into.chunks_mut(step)) {
                        self.get_remote(part, target, there, remote_span(key, offset + i * step))?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn start_put(
        &self,
        mut from: &[u8],
        target: Rank,
        offset: usize,
        end: CallEnd,
    ) -> Result<Vec<u32>, WindowError> {
        let mut parts = Vec::new();
        if let Some(memory) = self.mapped(target, offset, from.len())? {
            of(memory.store(offset, from), target)?;
            return Ok(parts);
        }
        for Place { access, offset, bytes } in self.places(target, offset, from.len(), 1)? {
            let bytes = from.split_off(..bytes).unwrap_or_default();
            match access {
                Access::Own(memory) => self.locked(|| memory.store(offset, bytes), target)?,
                Access::Direct(memory) => of(memory.store(offset, bytes), target)?,
                Access::Keyed(key) => {
                    for (i, part) in (0..).zip(bytes.chunks(PART)) {
                        let at = remote_span(key, offset + i * PART);
                        self.keyed(at, part.len(), Rights::WRITE, |memory| memory.store(0, part))?;
                    }
                }
                Access::Remote(there, key) => {
                    for (i, part) in (0..).zip(bytes.chunks(PART)) {
                        let (at, request) =
                            (remote_span(key, offset + i * PART), |from| RmaRequest::Write { from, immediate: None });
                        parts.push(self.start(there, at, part, end, request)?);
                    }
                }
            }
        }
        Ok(parts)
    }
}

/// The bytes of a view without the gaps: a copy if there are any.
pub(in crate::world) fn bytes_of_view<'d, T: IntoBytes + Immutable>(
    data: &View<'d, T>,
) -> Result<Cow<'d, [u8]>, WindowError> {
    match data.dense() {
        Some(bytes) => Ok(bytes.into()),
        None => Ok(data.packed().ok_or(Failure::ResourceExhausted)?.into()),
    }
}

/// Fills the elements of a view: `get` fills their bytes without the gaps.
pub(super) fn fill_view<T: FromBytes + IntoBytes>(
    mut into: ViewMut<'_, T>,
    get: impl FnOnce(&mut [u8]) -> Result<(), WindowError>,
) -> Result<(), WindowError> {
    if let Some(bytes) = into.dense() {
        return get(bytes);
    }
    let mut packed = u8::new_vec_zeroed(into.packed_bytes()).map_err(|_| Failure::ResourceExhausted)?;
    get(&mut packed)?;
    into.unpack(&packed);
    Ok(())
}
