//! Executes the data operations of collectives in shared memory through raw pointers. Besides the segment and the
//! reduction kernels the only file that touches payload; no reference to shared bytes is ever made.

use core::marker::PhantomData;
use core::ptr::NonNull;

use unisono_core::collective::{Payload, Piece, Place, Rank};

use crate::copy::{copy, copy_out};
use crate::reduction_ops::Kernel;
use crate::segment::{Cells, Segment};
use crate::slot_collectives::data_op::Wish;

/// A reduction operation over raw memory.
pub trait Operate {
    /// into = left · right, over `bytes` bytes.
    ///
    /// # Safety
    /// Operands are readable and `into` is writable for `bytes` bytes, aligned or not; `into` is disjoint from each operand or the same.
    /// Operands may be shared memory, which others write meanwhile.
    unsafe fn operate(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize);
}

impl<O: Operate + ?Sized> Operate for &mut O {
    unsafe fn operate(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        // SAFETY: as the caller says.
        unsafe { (**self).operate(left, right, into, bytes) };
    }
}

/// Access to the memory of other ranks, and the copy into the segment.
pub trait Remote {
    /// Copies `bytes` bytes at `address` of a rank's memory to `into`.
    ///
    /// # Errors
    /// [`Refused::Unreadable`].
    ///
    /// # Safety
    /// `into` is writable for `bytes` bytes. The address may be anything.
    unsafe fn pull(&mut self, of: Rank, address: u64, into: NonNull<u8>, bytes: usize) -> Result<(), Refused>;

    /// Copies `bytes` bytes into the segment, where other ranks read them.
    ///
    /// # Safety
    /// `from` is valid for reads and `into` for writes of so many bytes, and they are disjoint.
    unsafe fn show(&mut self, from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        // SAFETY: as the caller says.
        unsafe { into.copy_from_nonoverlapping(from, bytes) };
    }
}

/// Why a data operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// It names bytes outside of a buffer.
    Bounds,
    /// The memory of this rank cannot be read.
    Unreadable(Rank),
}

impl core::fmt::Display for Refused {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Bounds => to.write_str("a collective's block exceeds its buffer"),
            Self::Unreadable(rank) => write!(
                to,
                "the memory of rank {} cannot be read directly; it may have exited, or ptrace access is denied",
                rank.0
            ),
        }
    }
}

impl core::error::Error for Refused {}

/// A built-in reduction kernel.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The kernel.
    pub kernel: Kernel,
    /// Bytes of an element.
    pub grain: usize,
}

impl Operate for Builtin {
    #[inline]
    unsafe fn operate(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        // SAFETY: as the caller promises; whole elements only.
        unsafe { (self.kernel)(left.as_ptr(), right.as_ptr(), into.as_ptr(), bytes / self.grain.max(1)) }
    }
}

/// No reduction: for collectives that only move data.
#[derive(Clone, Copy, Debug)]
pub struct Moves;

impl Operate for Moves {
    unsafe fn operate(&mut self, _: NonNull<u8>, _: NonNull<u8>, _: NonNull<u8>, _: usize) {}
}

/// No remote memory: for groups whose ranks cannot read each other's memory.
#[derive(Clone, Copy, Debug)]
pub struct Unreadable;

impl Remote for Unreadable {
    unsafe fn pull(&mut self, of: Rank, _: u64, _: NonNull<u8>, _: usize) -> Result<(), Refused> {
        Err(Refused::Unreadable(of))
    }
}

/// Copies from the beginning of a piece of the segment, as [`Cells::read`] does, but long pieces [faster](crate::copy).
#[inline]
pub fn read(from: Cells<'_>, into: &mut [u8]) -> Option<()> {
    if into.len() > from.bytes() {
        return None;
    }
    // SAFETY: the piece is valid for so many bytes; nobody has a reference to shared bytes, so `into` lies elsewhere.
    unsafe { copy_out(from.start(), NonNull::from(&mut *into).cast(), into.len()) };
    Some(())
}

/// A buffer of this rank.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
}

/// The buffers of one collective on one rank.
#[derive(Debug)]
pub struct Buffers<'a, O, R> {
    segment: Segment<'a>,
    input: Buffer,
    output: Buffer,
    operate: O,
    remote: R,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a, O: Operate, R: Remote> Buffers<'a, O, R> {
    /// Separate input and output.
    pub fn new(segment: Segment<'a>, input: &'a [u8], output: &'a mut [u8], operate: O, remote: R) -> Self {
        let (source, target) = (NonNull::from(input), NonNull::from(output));
        let input = Buffer { start: source.cast(), bytes: source.len() };
        let output = Buffer { start: target.cast(), bytes: target.len() };
        Self { segment, input, output, operate, remote, life: PhantomData }
    }

    /// One buffer for input and output.
    pub fn in_place(segment: Segment<'a>, both: &'a mut [u8], operate: O, remote: R) -> Self {
        let both = NonNull::from(both);
        let both = Buffer { start: both.cast(), bytes: both.len() };
        Self { segment, input: both, output: both, operate, remote, life: PhantomData }
    }

    fn of(&self, piece: Piece) -> Result<NonNull<u8>, Refused> {
        let Buffer { start, bytes } = match piece.place {
            Place::Input => self.input,
            Place::Output => self.output,
            Place::Shared => {
                let cells = self.segment.cells(piece.offset, piece.bytes).ok_or(Refused::Bounds)?;
                return Ok(cells.start());
            }
        };
        if piece.offset.checked_add(piece.bytes).is_none_or(|end| end > bytes) {
            return Err(Refused::Bounds);
        }
        // SAFETY: within the buffer, as checked.
        Ok(unsafe { start.add(piece.offset) })
    }

    /// The destination of a write: a rank's input is only read, unless it is the output, too.
    fn target(&self, piece: Piece) -> Result<NonNull<u8>, Refused> {
        if piece.place == Place::Input { Err(Refused::Bounds) } else { self.of(piece) }
    }
}

impl<O: Operate, R: Remote> Payload<Wish> for Buffers<'_, O, R> {
    type Error = Refused;

    #[inline]
    fn carry_out(&mut self, wish: Wish) -> Result<(), Refused> {
        match wish {
            Wish::Copy { from, into } => {
                let (source, target) = (self.of(from)?, self.target(into)?);
                if from.bytes != into.bytes {
                    return Err(Refused::Bounds);
                }
                match into.place {
                    _ if source == target => {}
                    // SAFETY: both are valid for so many bytes, as checked; they are different buffers, or pieces of the segment that
                    // different slots own.
                    Place::Shared => unsafe { self.remote.show(source, target, from.bytes) },
                    // SAFETY: as above.
                    _ if from.place == Place::Shared => unsafe { copy_out(source, target, from.bytes) },
                    // SAFETY: as above.
                    Place::Input | Place::Output => unsafe { copy(source, target, from.bytes) },
                }
                Ok(())
            }
            Wish::Combine { left, right, into } => {
                if left.bytes != into.bytes || right.bytes != into.bytes {
                    return Err(Refused::Bounds);
                }
                let (l, r, to) = (self.of(left)?, self.of(right)?, self.target(into)?);
                // SAFETY: all are valid for so many bytes, as checked; the schedule lets the result be an operand, or apart.
                unsafe { self.operate.operate(l, r, to, into.bytes) };
                Ok(())
            }
            Wish::Lend { at } => {
                let [input, output] = [self.input, self.output]
                    .map(|buffer| (buffer.start.as_ptr().expose_provenance() as u64).to_le_bytes());
                let cells = self.segment.cells(at, 16).ok_or(Refused::Bounds)?;
                cells.write(&input).ok_or(Refused::Bounds)?;
                cells.part(8, 8).and_then(|cells| cells.write(&output)).ok_or(Refused::Bounds)
            }
            Wish::Pull { of, at, place, offset, into } => {
                let beside = if place == Place::Output { 8 } else { 0 };
                let mut address = [0; 8];
                let cells = self.segment.cells(at + beside, 8).ok_or(Refused::Bounds)?;
                cells.read(&mut address).ok_or(Refused::Bounds)?;
                let address = u64::from_le_bytes(address).wrapping_add(offset as u64);
                let target = self.target(into)?;
                // SAFETY: valid for so many bytes, as checked.
                unsafe { self.remote.pull(of, address, target, into.bytes) }
            }
        }
    }
}
