//! Equal blocks of a window at a constant distance: of a remote rank, one request reads or updates as many as a message
//! holds.

use alloc::collections::VecDeque;

use unisono_core::rma::RemoteSpan;
use unisono_core::rma::header::ElementUpdate;
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::stride::Stride;

use super::memory::COPY;
use super::place::Place;
use super::remote::remote_span;
use super::targets::{Access, Targets};
use super::wide_updates::ATOMIC_MAX;
use super::{GetRequest, WindowError};
use crate::world::process::remote_access::CallEnd;
use unisono_bootstrap::Rank;

/// Reads that are under way at a time.
const READS: usize = 64;

/// Blocks of `bytes` bytes in the memory of a rank, `count` of them, the first one at byte `offset`.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowBlocks {
    pub offset: usize,
    pub bytes: usize,
    pub count: usize,
    /// Bytes from the start of a block to the start of the next.
    pub stride: isize,
}

/// Some of the blocks, which one operation accesses, and their part of the packed bytes.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: usize,
    bytes: usize,
    place: PartPlace,
}

#[derive(Clone, Copy, Debug)]
enum PartPlace {
    /// One block, at this byte of the window.
    Block(usize),
    /// Several blocks, in the memory of a rank that requests reach.
    Strided { there: Rank, at: RemoteSpan, stride: Stride },
}

impl WindowBlocks {
    /// The offset of a block.
    pub(super) fn start(&self, i: usize) -> Option<usize> {
        self.offset.checked_add_signed(self.stride.checked_mul(isize::try_from(i).ok()?)?)
    }

    /// Bytes from the first one of the first block to the last one of the last, if those follow one another.
    fn extent(&self) -> Option<usize> {
        let stride = usize::try_from(self.stride).ok()?;
        self.count.checked_sub(1)?.checked_mul(stride)?.checked_add(self.bytes)
    }
}

impl Targets {
    /// Where requests reach all of these blocks of elements of `grain` bytes, and how many one request holds. `None`:
    /// each is an operation of its own, as where an adapter executes them.
    fn strided(&self, target: Rank, blocks: &WindowBlocks, grain: usize) -> Option<(Rank, RemoteSpan, Stride, usize)> {
        let is_aligned = [blocks.bytes, blocks.stride.unsigned_abs()].iter().all(|bytes| bytes.is_multiple_of(grain));
        let (Some(extent), true) = (blocks.extent(), blocks.count > 1 && is_aligned) else { return None };
        let stride = u32::try_from(blocks.bytes).ok().zip(u32::try_from(blocks.stride).ok());
        let stride = stride.map(|(block, distance)| Stride { block, distance })?;
        // Between the blocks of a dynamic window nothing may be attached.
        let places = self.places(target, blocks.offset, extent, 1).ok();
        let Some(Place { access: Access::Remote(there, key), offset, .. }) = places.and_then(|places| places.only())
        else {
            return None;
        };
        let process = self.communicator.shared.lock();
        if process.remote_access.native.reaches(there.into(), key.region) {
            return None;
        }
        let room = process.remote_room(there, true);
        let per_request = room.checked_div(blocks.bytes).unwrap_or(0).min(blocks.count);
        let fits = stride.extent((per_request * blocks.bytes) as u32).is_some();
        (per_request > 1 && fits).then(|| (there, remote_span(key, offset), stride, per_request))
    }

    /// Whether no request is needed to read these bytes, nor to find that out.
    fn is_mapped(&self, target: Rank, offset: usize, bytes: usize) -> Result<bool, WindowError> {
        Ok(self.attachments.is_none() && !matches!(self.access(target, offset, bytes)?.0, Access::Remote(..)))
    }

    /// Calls `visit` with all blocks, as many at a time as one operation accesses.
    fn for_each_part(
        &self,
        target: Rank,
        blocks: &WindowBlocks,
        grain: usize,
        visit: &mut dyn FnMut(Part) -> Result<(), WindowError>,
    ) -> Result<(), WindowError> {
        let WindowBlocks { bytes, count, .. } = *blocks;
        match self.strided(target, blocks, grain) {
            Some((there, start, stride, per_request)) => (0..count).step_by(per_request).try_for_each(|i| {
                let at = remote_span(start, i * stride.distance as usize);
                let place = PartPlace::Strided { there, at, stride };
                visit(Part { first: i * bytes, bytes: per_request.min(count - i) * bytes, place })
            }),
            None => (0..count).try_for_each(|i| {
                let offset = blocks.start(i).ok_or(WindowError::OutOfBounds(target))?;
                visit(Part { first: i * bytes, bytes, place: PartPlace::Block(offset) })
            }),
        }
    }

    /// Copies packed bytes to blocks, to the first ones if they are fewer. Done after the next flush.
    pub(super) fn put_blocks(&self, packed: &[u8], target: Rank, blocks: &WindowBlocks) -> Result<(), WindowError> {
        let put = |bytes: &[u8], offset| self.start_put(bytes, target, offset, CallEnd::Flush).map(|_| ());
        let count = packed.len().checked_div(blocks.bytes).unwrap_or(0).min(blocks.count);
        self.for_each_part(target, &WindowBlocks { count, ..*blocks }, 1, &mut |part| {
            let bytes = part.of(packed);
            match part.place {
                PartPlace::Block(offset) => put(bytes, offset),
                PartPlace::Strided { there, at, stride } => self.start_strided_update(COPY, there, at, stride, bytes),
            }
        })?;
        match packed.get(count * blocks.bytes..) {
            Some(rest) if count < blocks.count && !rest.is_empty() => {
                put(rest, blocks.start(count).ok_or(WindowError::OutOfBounds(target))?)
            }
            _ => Ok(()),
        }
    }

    /// Combines elements of `grain` bytes in blocks with packed ones; with `old`, waits for the old ones.
    pub(super) fn update_strided(
        &self,
        update: ElementUpdate,
        grain: usize,
        packed: &[u8],
        mut old: Option<&mut [u8]>,
        target: Rank,
        blocks: &WindowBlocks,
    ) -> Result<(), WindowError> {
        if grain > ATOMIC_MAX {
            return Err(WindowError::Unsupported);
        }
        self.for_each_part(target, blocks, grain, &mut |part| {
            let bytes = part.of(packed);
            let old = old.as_deref_mut().and_then(|old| part.of_mut(old));
            match (part.place, old) {
                (PartPlace::Block(offset), old) => self.update(update, grain, bytes, old, target, offset),
                (PartPlace::Strided { there, at, stride }, None) => {
                    self.start_strided_update(update, there, at, stride, bytes)
                }
                (PartPlace::Strided { there, at, stride }, Some(old)) => {
                    let stride = Some(stride);
                    let request = |from, into| RmaRequest::Accumulate { from, update, result: Some(into), stride };
                    self.fetch_remote(bytes, old, target, there, at, request)
                }
            }
        })
    }

    fn start_strided_update(
        &self,
        update: ElementUpdate,
        there: Rank,
        at: RemoteSpan,
        stride: Stride,
        bytes: &[u8],
    ) -> Result<(), WindowError> {
        let request = |from| RmaRequest::Accumulate { from, update, result: None, stride: Some(stride) };
        self.start(there, at, bytes, CallEnd::Flush, request).map(|_| ())
    }
}

impl Part {
    fn of<'p>(&self, packed: &'p [u8]) -> &'p [u8] {
        packed.get(self.first..).and_then(|rest| rest.get(..self.bytes)).unwrap_or_default()
    }

    fn of_mut<'p>(&self, packed: &'p mut [u8]) -> Option<&'p mut [u8]> {
        packed.get_mut(self.first..).and_then(|rest| rest.get_mut(..self.bytes))
    }
}

/// Reads of blocks to packed bytes, several under way at a time.
#[doc(hidden)]
#[derive(Debug)]
pub struct WindowReads<'w, 'p> {
    targets: &'w Targets,
    /// The bytes that no ended read has filled.
    rest: &'p mut [u8],
    under_way: VecDeque<GetRequest<'w, u8>>,
}

impl<'w, 'p> WindowReads<'w, 'p> {
    pub(super) const fn new(targets: &'w Targets, packed: &'p mut [u8]) -> Self {
        Self { targets, rest: packed, under_way: VecDeque::new() }
    }

    /// Reads blocks to the bytes behind those of the reads before.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn read(&mut self, target: Rank, blocks: &WindowBlocks) -> Result<(), WindowError> {
        let targets = self.targets;
        targets.for_each_part(target, blocks, 1, &mut |part| {
            if self.under_way.len() == READS {
                self.take()?;
            }
            let started = match part.place {
                PartPlace::Block(offset) if targets.is_mapped(target, offset, part.bytes)? => {
                    self.take_all()?;
                    return targets.get_bytes(self.split_off(part.bytes), target, offset);
                }
                PartPlace::Block(offset) => targets.request_get(part.bytes, target, offset)?,
                PartPlace::Strided { there, at, stride } => {
                    targets.start_read(target, there, part.bytes, at, part.bytes, Some(stride))?
                }
            };
            self.under_way.push_back(started);
            Ok(())
        })
    }

    /// Takes the bytes of the oldest read.
    fn take(&mut self) -> Result<(), WindowError> {
        let Some(read) = self.under_way.pop_front() else { return Ok(()) };
        let bytes = read.wait()?;
        let into = self.split_off(bytes.len());
        into.copy_from_slice(bytes.get(..into.len()).unwrap_or_default());
        Ok(())
    }

    /// The bytes that the oldest read fills: at most this many.
    fn split_off(&mut self, bytes: usize) -> &'p mut [u8] {
        let bytes = bytes.min(self.rest.len());
        self.rest.split_off_mut(..bytes).unwrap_or_default()
    }

    /// Waits until all is read.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn finish(mut self) -> Result<(), WindowError> {
        self.take_all()
    }

    fn take_all(&mut self) -> Result<(), WindowError> {
        while !self.under_way.is_empty() {
            self.take()?;
        }
        Ok(())
    }
}
