//! Access to the memory of a rank's part of a window through a datatype: copies, and updates of elements.

use core::ptr::NonNull;

use unisono::Rank;
use unisono::raw::{RawUpdate, ReductionOp, WindowBlocks};

use super::{Win, class_of};
use crate::abi::*;
use crate::datatype::basic::{Basic, Value};
use crate::datatype::layout::Runs;
use crate::datatype::{Datatype, Elements};
use crate::error::Outcome;
use crate::handle::{Held, Kind, Object, resolve};
use crate::operation::{Op, Operator};

/// Elements in the memory of a target.
pub struct Target<'w> {
    win: &'w Win,
    rank: Rank,
    /// The first byte in the part, or the address in a dynamic window.
    start: i64,
    count: i64,
    datatype: &'w Object<Datatype>,
    /// Bytes of data.
    pub bytes: usize,
}

impl<'w> Target<'w> {
    /// Checks the arguments of a call.
    ///
    /// # Safety
    /// As of [`resolve`].
    pub unsafe fn new(
        win: &'w Win,
        rank: Rank,
        displacement: MPI_Aint,
        count: i64,
        datatype: MPI_Datatype,
    ) -> Outcome<Self> {
        if count < 0 {
            return Err(MPI_ERR_COUNT);
        }
        // SAFETY: the caller promises it.
        let datatype = unsafe { resolve::<Datatype>(datatype.0) }?;
        if !datatype.is_committed.load(core::sync::atomic::Ordering::Relaxed) {
            return Err(MPI_ERR_TYPE);
        }
        let is_dynamic = win.flavor == MPI_WIN_FLAVOR_DYNAMIC;
        let unit = if is_dynamic { 1 } else { win.part(rank)?.unit };
        let start = (displacement as i64).checked_mul(unit).ok_or(MPI_ERR_RMA_RANGE)?;
        if start < 0 && !is_dynamic {
            return Err(MPI_ERR_DISP);
        }
        Ok(Self { win, rank, start, count, bytes: datatype.bytes(count)?, datatype })
    }

    /// The rank and the offset in the library's window of `bytes` bytes from `at` on.
    fn place(&self, at: isize, bytes: usize) -> Outcome<(Rank, usize)> {
        let at = self.start.wrapping_add(at as i64);
        if self.win.flavor == MPI_WIN_FLAVOR_DYNAMIC {
            return Ok((self.rank, at as usize));
        }
        let part = self.win.part(self.rank)?;
        let at = usize::try_from(at).map_err(|_| MPI_ERR_RMA_RANGE)?;
        match at.checked_add(bytes) {
            Some(end) if end <= part.bytes => Ok((part.holder, part.offset + at)),
            _ => Err(MPI_ERR_RMA_RANGE),
        }
    }

    /// The rank and the offset in the library's window of its only element.
    pub fn element(&self) -> Outcome<(Rank, usize)> {
        self.place(0, self.bytes)
    }

    /// Calls `visit` with the runs of values.
    fn runs(&self, visit: &mut dyn FnMut(&Runs) -> Outcome) -> Outcome {
        let datatype = self.datatype;
        if datatype.is_dense && self.bytes > 0 {
            let basic = datatype.basic.or_else(|| Basic::of(MPI_BYTE.0)).ok_or(MPI_ERR_TYPE)?;
            let count = self.bytes.checked_div(basic.size.into()).unwrap_or(0);
            return visit(&Runs { at: 0, basic, count, runs: 1, stride: 0 });
        }
        let mut outcome = Ok(());
        datatype.visit_runs(self.count, &mut |runs| {
            outcome = visit(&runs);
            outcome.is_ok()
        });
        outcome
    }

    /// The rank and the blocks in the library's window of runs.
    fn blocks(&self, runs: &Runs) -> Outcome<(Rank, WindowBlocks)> {
        let (bytes, count, stride) = (runs.bytes(), runs.runs, runs.stride);
        let more = isize::try_from(count.saturating_sub(1)).ok().and_then(|more| more.checked_mul(stride));
        let more = more.ok_or(MPI_ERR_RMA_RANGE)?;
        let extent = more.unsigned_abs().checked_add(bytes).ok_or(MPI_ERR_RMA_RANGE)?;
        let (rank, lowest) = self.place(runs.at.wrapping_add(more.min(0)), extent)?;
        Ok((rank, WindowBlocks { offset: lowest.wrapping_sub_signed(more.min(0)), bytes, count, stride }))
    }

    /// Whether every run is inside the window, before anything is changed.
    fn expect_inside(&self) -> Outcome {
        self.runs(&mut |runs| self.blocks(runs).map(|_| ()))
    }

    /// Copies packed bytes there: all, or those of the first elements.
    pub fn put(&self, packed: &[u8]) -> Outcome {
        if self.datatype.is_dense && !packed.is_empty() {
            let (rank, offset) = self.place(0, self.bytes)?;
            return self.win.with(|window| window.put(packed, rank, offset));
        }
        self.expect_inside()?;
        let mut rest = packed;
        self.runs(&mut |runs| {
            let (rank, blocks) = self.blocks(runs)?;
            let part = rest.split_off(..rest.len().min(blocks.bytes * blocks.count)).unwrap_or_default();
            self.win.with(|window| window.raw_put_blocks(part, rank, &blocks))
        })
    }

    /// Copies packed bytes from there.
    pub fn get(&self, packed: &mut [u8]) -> Outcome {
        if packed.is_empty() {
            return Ok(());
        }
        self.expect_inside()?;
        if self.datatype.is_dense {
            let (rank, offset) = self.place(0, packed.len())?;
            return self.win.with(|window| window.get(packed, rank, offset));
        }
        self.win.with(|window| {
            let mut reads = window.raw_reads(packed);
            let started = self.runs(&mut |runs| {
                let (rank, blocks) = self.blocks(runs)?;
                reads.read(rank, &blocks).map_err(class_of)
            });
            Ok(started.and_then(|()| reads.finish().map_err(class_of)))
        })?
    }

    /// Combines packed elements with those there; the old ones go to `old`.
    pub fn update(&self, update: &Update, packed: &[u8], mut old: Option<&mut [u8]>) -> Outcome {
        self.expect_inside()?;
        if !update.is_atomic(self) {
            return self.update_under_lock(update, packed, old);
        }
        let mut from = 0;
        self.runs(&mut |runs| {
            let (rank, blocks) = self.blocks(runs)?;
            let (first, end) = (from, from + blocks.bytes * blocks.count);
            from = end;
            let operands = packed.get(first..end).ok_or(MPI_ERR_TRUNCATE)?;
            let old = match &mut old {
                Some(old) => Some(old.get_mut(first..end).ok_or(MPI_ERR_TRUNCATE)?),
                None => None,
            };
            let raw = update.raw(runs.basic).ok_or(MPI_ERR_OP)?;
            self.win.with(|window| window.raw_update_blocks(raw, operands, old, rank, &blocks))
        })
    }

    /// As [`update`](Self::update), of one element. False, and nothing was done: they are several, or no instruction
    /// executes it.
    pub fn fetch_element(&self, update: &Update, operand: &[u8], old: &mut [u8]) -> Outcome<bool> {
        let is_one = |basic: &&Basic| self.datatype.is_dense && usize::from(basic.size) == self.bytes;
        let Some(basic) = self.datatype.basic.filter(is_one).filter(|basic| update.is_known(basic)) else {
            return Ok(false);
        };
        let raw = update.raw(basic).ok_or(MPI_ERR_OP)?;
        let (rank, offset) = self.element()?;
        self.win.with(|window| window.raw_fetch_and_op(raw, operand, old, rank, offset))?;
        Ok(true)
    }

    /// Elements that no instruction updates: one rank at a time reads, combines and writes them.
    fn update_under_lock(&self, update: &Update, packed: &[u8], old: Option<&mut [u8]>) -> Outcome {
        let (rank, _) = self.place(0, 0)?;
        self.win.with(|window| window.raw_hold(rank))?;
        let mut current = vec![0; self.bytes];
        let done = self.get(&mut current).and_then(|()| {
            if let Some(old) = old {
                old.iter_mut().zip(&current).for_each(|(into, byte)| *into = *byte);
            }
            match update {
                Update::Read => Ok(()),
                Update::Replace => self.put(packed),
                Update::Reduce(op) => {
                    let basic = self.basic()?;
                    let mut operator = Operator::new(op, &basic.hold())?;
                    let bytes = current.len().min(packed.len());
                    let left = NonNull::from(&mut current[..]).cast();
                    // SAFETY: both have as many bytes; the result is the left operand.
                    unsafe { operator.combine(left, NonNull::from(packed).cast(), left, bytes) };
                    self.put(&current)
                }
            }
        });
        let released = self.win.with(|window| window.raw_release(rank));
        done.and(released)
    }

    /// The predefined datatype of all values.
    fn basic(&self) -> Outcome<&'static Object<Datatype>> {
        let handle = self.datatype.basic.ok_or(MPI_ERR_TYPE)?.handle;
        Datatype::predefined(handle).ok_or(MPI_ERR_TYPE)
    }
}

/// What an accumulate does to each element.
pub enum Update {
    /// `MPI_NO_OP`.
    Read,
    /// `MPI_REPLACE`.
    Replace,
    /// A predefined reduction.
    Reduce(Held<Op>),
}

impl Update {
    /// The operation of an argument, on elements of the target's type. `reads`: whether it returns old values.
    ///
    /// # Safety
    /// As of [`resolve`].
    pub unsafe fn new(op: MPI_Op, target: &Target<'_>, reads: bool) -> Outcome<Self> {
        match op {
            MPI_NO_OP if reads => Ok(Self::Read),
            MPI_NO_OP => Err(MPI_ERR_OP),
            MPI_REPLACE => Ok(Self::Replace),
            _ => {
                // SAFETY: the caller promises it.
                let op = unsafe { resolve::<Op>(op.0) }?;
                if matches!(**op, Op::Function { .. }) {
                    return Err(MPI_ERR_OP);
                }
                Operator::new(op, &target.basic()?.hold())?;
                Ok(Self::Reduce(op.hold()))
            }
        }
    }

    /// Whether instructions execute it: not on elements of more than 8 bytes, pairs, and types without a kernel.
    fn is_atomic(&self, target: &Target<'_>) -> bool {
        match target.datatype.basic {
            Some(basic) => self.is_known(basic),
            None => {
                let mut all = true;
                let visited = target.runs(&mut |runs| {
                    all &= self.is_known(runs.basic);
                    Ok(())
                });
                all && visited.is_ok()
            }
        }
    }

    /// The same, on elements of one type.
    fn is_known(&self, basic: &'static Basic) -> bool {
        !matches!(basic.value, Value::Pair(..)) && self.raw(basic).is_some()
    }

    /// It, as the library executes it on elements of one type.
    fn raw(&self, basic: &'static Basic) -> Option<RawUpdate> {
        let element = basic.element().filter(|element| element.bytes() <= 8)?;
        match self {
            Self::Read => Some(RawUpdate::read(element)),
            Self::Replace => Some(RawUpdate::new(None, element)),
            Self::Reduce(op) => {
                let operation = op.reduction()?;
                unisono::raw::Builtin::new(operation, element)?;
                Some(RawUpdate::new(Some(operation), element))
            }
        }
    }
}

/// The origin's packed bytes: as they lie in memory, or a copy.
pub struct Packed {
    copy: Vec<u8>,
    dense: Option<NonNull<[u8]>>,
}

impl Packed {
    /// Packs elements.
    ///
    /// # Safety
    /// They are readable as long as the result is used.
    pub unsafe fn new(elements: &Elements) -> Self {
        match elements.dense() {
            Some(dense) => Self { copy: Vec::new(), dense: Some(dense) },
            // SAFETY: the caller promises it.
            None => Self { copy: unsafe { elements.packed() }, dense: None },
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self.dense {
            // SAFETY: `new` was promised that they are readable.
            Some(dense) => unsafe { dense.as_ref() },
            None => &self.copy,
        }
    }
}

/// Copies the target's elements to those of the caller.
///
/// # Safety
/// The caller's are writable.
pub unsafe fn get_into(target: &Target<'_>, elements: &Elements) -> Outcome {
    if elements.bytes < target.bytes {
        return Err(MPI_ERR_TRUNCATE);
    }
    if let Some(mut dense) = elements.dense() {
        // SAFETY: the caller promises that they are writable.
        return target.get(unsafe { dense.as_mut() }.get_mut(..target.bytes).unwrap_or_default());
    }
    let mut packed = vec![0; target.bytes];
    target.get(&mut packed)?;
    // SAFETY: the caller promises that they are writable.
    unsafe { elements.unpack(&packed) };
    Ok(())
}

/// The bytes of an element that compare-and-swap takes.
pub const fn comparable_bytes(basic: &Basic) -> Option<u8> {
    match basic.value {
        Value::Signed | Value::Unsigned | Value::Logical | Value::Byte | Value::Character => Some(basic.size),
        _ => None,
    }
}
