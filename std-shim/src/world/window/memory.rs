//! The memory of a window: copies, and updates element by element, of memory that other processes use meanwhile.
//!
//! No reference to it is ever made. Copies are relaxed atomic loads and stores of bytes and words, updates are atomic
//! read-modify-write instructions of the processor: the one executor of all updates, whoever asks for them.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use unisono_core::rma::atomic::{AtomicOperation, Width};
use unisono_core::rma::header::ElementUpdate;
use unisono_core::rma::region::Refusal;
use unisono_shmem::reduction_ops::{self, Element, Kernel, ReduceOperation};

use crate::world::collective::SystemOperation;

/// What an accumulate does to each element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccumulateOperation {
    /// Combines it with the operand, on the right.
    Reduce(SystemOperation),
    /// Replaces it (`MPI_REPLACE`).
    Replace,
    /// Leaves it as it is: an atomic read (`MPI_NO_OP`).
    NoOp,
}

impl From<SystemOperation> for AccumulateOperation {
    fn from(operation: SystemOperation) -> Self {
        Self::Reduce(operation)
    }
}

/// Their numbers on the wire: those of reductions by their place in [`ReduceOperation::ALL`].
const REPLACE: u8 = 32;
const NO_OP: u8 = 33;

impl AccumulateOperation {
    /// The update of elements of this type as a peer is asked for it.
    pub(in crate::world) fn update(self, element: Element) -> ElementUpdate {
        let operation = match self {
            Self::Reduce(operation) => operation.reduce_operation() as u8,
            Self::Replace => REPLACE,
            Self::NoOp => NO_OP,
        };
        ElementUpdate { operation, datatype: element as u8 }
    }
}

/// An update that this process can execute.
#[derive(Clone, Copy)]
enum Combine {
    Kernel(Kernel),
    Replace,
    NoOp,
}

/// Parses an update: what is done, and the bytes of an element.
fn parse(update: ElementUpdate) -> Result<(Combine, usize), Refusal> {
    let element = *Element::ALL.get(usize::from(update.datatype)).ok_or(Refusal::Unsupported)?;
    let combine = match update.operation {
        REPLACE => Combine::Replace,
        NO_OP => Combine::NoOp,
        number => {
            let operation = *ReduceOperation::ALL.get(usize::from(number)).ok_or(Refusal::Unsupported)?;
            Combine::Kernel(reduction_ops::kernel(operation, element).ok_or(Refusal::Unsupported)?)
        }
    };
    match element.bytes() {
        bytes @ (1 | 2 | 4 | 8) => Ok((combine, bytes)),
        _ => Err(Refusal::Unsupported),
    }
}

/// Memory that several processes use, as an address and a length.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct WindowMemory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address with a length, whose memory is only used by atomic instructions; `new` was promised that it stays.
unsafe impl Send for WindowMemory {}
// SAFETY: shared, it is used by atomic instructions alone.
unsafe impl Sync for WindowMemory {}

impl WindowMemory {
    /// # Safety
    /// The bytes stay mapped as long as a copy of this is used, and nobody has a reference to them.
    pub(in crate::world) const unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// The first byte.
    pub(in crate::world) const fn start(self) -> NonNull<u8> {
        self.start
    }

    /// The number of bytes.
    pub(in crate::world) const fn bytes(self) -> usize {
        self.bytes
    }

    /// The address of `bytes` bytes from `offset` on.
    fn at(self, offset: usize, bytes: usize) -> Result<NonNull<u8>, Refusal> {
        match offset.checked_add(bytes) {
            // SAFETY: the offset is at most the length, so that the address is within the memory, or its end.
            Some(end) if end <= self.bytes => Ok(unsafe { self.start.add(offset) }),
            _ => Err(Refusal::OutOfBounds),
        }
    }

    /// Copies bytes there.
    pub(in crate::world) fn store(self, offset: usize, from: &[u8]) -> Result<(), Refusal> {
        let to = self.at(offset, from.len())?;
        let head = to.as_ptr().align_offset(8).min(from.len());
        let (first, rest) = from.split_at(head);
        let (words, last) = rest.as_chunks::<8>();
        for (i, byte) in first.iter().enumerate() {
            // SAFETY: within the bytes that `at` has checked.
            unsafe { AtomicU8::from_ptr(to.add(i).as_ptr()) }.store(*byte, Ordering::Relaxed);
        }
        for (i, word) in words.iter().enumerate() {
            // SAFETY: within the bytes that `at` has checked, and aligned, since `head` bytes precede the first word.
            let to = unsafe { AtomicU64::from_ptr(to.add(head + 8 * i).cast().as_ptr()) };
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        let tail = head + 8 * words.len();
        for (i, byte) in last.iter().enumerate() {
            // SAFETY: within the bytes that `at` has checked.
            unsafe { AtomicU8::from_ptr(to.add(tail + i).as_ptr()) }.store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies bytes from there.
    pub(in crate::world) fn load(self, offset: usize, to: &mut [u8]) -> Result<(), Refusal> {
        let from = self.at(offset, to.len())?;
        let head = from.as_ptr().align_offset(8).min(to.len());
        let (first, rest) = to.split_at_mut(head);
        let (words, last) = rest.as_chunks_mut::<8>();
        for (i, byte) in first.iter_mut().enumerate() {
            // SAFETY: within the bytes that `at` has checked.
            *byte = unsafe { AtomicU8::from_ptr(from.add(i).as_ptr()) }.load(Ordering::Relaxed);
        }
        let tail = head + 8 * words.len();
        for (i, word) in words.iter_mut().enumerate() {
            // SAFETY: within the bytes that `at` has checked, and aligned, since `head` bytes precede the first word.
            let from = unsafe { AtomicU64::from_ptr(from.add(head + 8 * i).cast().as_ptr()) };
            *word = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        for (i, byte) in last.iter_mut().enumerate() {
            // SAFETY: within the bytes that `at` has checked.
            *byte = unsafe { AtomicU8::from_ptr(from.add(tail + i).as_ptr()) }.load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Updates a word. Returns its old value.
    pub(in crate::world) fn atomic(self, offset: usize, operation: AtomicOperation) -> Result<u64, Refusal> {
        let width = usize::from(operation.width.bytes());
        self.modify(offset, width, |old| Some(operation.apply(old)))
    }

    /// Combines the elements at `operands` with those from `offset` on, each atomically. With `fetch`, leaves the old
    /// values in place of the operands.
    pub(in crate::world) fn combine(
        self,
        offset: usize,
        update: ElementUpdate,
        operands: Self,
        fetch: bool,
    ) -> Result<(), Refusal> {
        let (combine, bytes) = parse(update)?;
        if !operands.bytes.is_multiple_of(bytes) {
            return Err(Refusal::Unsupported);
        }
        let first = self.at(offset, operands.bytes)?;
        if !first.addr().get().is_multiple_of(bytes) {
            return Err(Refusal::Misaligned);
        }
        for at in (0..operands.bytes).step_by(bytes) {
            let mut operand = [0; 8];
            let operand = operand.get_mut(..bytes).ok_or(Refusal::Unsupported)?;
            operands.load(at, operand)?;
            let old = self.modify(offset + at, bytes, |old| match combine {
                Combine::Kernel(kernel) => {
                    let (left, mut into) = (old.to_le_bytes(), [0_u8; 8]);
                    // SAFETY: operands and result are arrays of this function, with room for one element.
                    unsafe { kernel(left.as_ptr(), operand.as_ptr(), into.as_mut_ptr(), 1) };
                    Some(u64::from_le_bytes(into))
                }
                Combine::Replace => {
                    let mut word = [0; 8];
                    word.iter_mut().zip(&*operand).for_each(|(into, byte)| *into = *byte);
                    Some(u64::from_le_bytes(word))
                }
                Combine::NoOp => None,
            })?;
            if fetch {
                operands.store(at, old.to_le_bytes().get(..bytes).unwrap_or_default())?;
            }
        }
        Ok(())
    }

    /// Replaces an element of 1, 2, 4 or 8 bytes by a function of it. Returns its old value, zero-extended.
    fn modify(self, offset: usize, bytes: usize, mut new: impl FnMut(u64) -> Option<u64>) -> Result<u64, Refusal> {
        let at = self.at(offset, bytes)?;
        if !at.addr().get().is_multiple_of(bytes.max(1)) {
            return Err(Refusal::Misaligned);
        }
        const ORDER: Ordering = Ordering::SeqCst;
        macro_rules! modify {
            ($atomic:ty, $value:ty) => {{
                // SAFETY: within the bytes that `at` has checked, and aligned; all use atomic instructions.
                let word = unsafe { <$atomic>::from_ptr(at.cast().as_ptr()) };
                let changed = word.fetch_update(ORDER, ORDER, |old| new(old.into()).map(|new| new as $value));
                Ok(changed.unwrap_or_else(|old| old).into())
            }};
        }
        match bytes {
            1 => modify!(AtomicU8, u8),
            2 => modify!(AtomicU16, u16),
            4 => modify!(AtomicU32, u32),
            8 => modify!(AtomicU64, u64),
            _ => Err(Refusal::Unsupported),
        }
    }
}

/// The width of an atomic operation on elements of this length, where the wire has one.
pub(in crate::world) const fn width_of(bytes: usize) -> Option<Width> {
    match bytes {
        4 => Some(Width::Bits32),
        8 => Some(Width::Bits64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_memory(words: usize, body: impl FnOnce(WindowMemory)) {
        let mut memory = vec![0_u64; words];
        let start = NonNull::from(memory.as_mut_slice()).cast();
        // SAFETY: the vector lives until the end of this function, and is not used otherwise meanwhile.
        body(unsafe { WindowMemory::new(start, 8 * words) });
    }

    #[test]
    fn any_bytes_are_copied_and_none_beyond() {
        with_memory(8, |memory| {
            for start in 0..64 {
                for bytes in 0..=64 - start {
                    memory.store(0, &[9; 64]).expect("inside");
                    let from: Vec<u8> = (1..=bytes as u8).collect();
                    memory.store(start, &from).expect("inside");
                    let (mut all, mut part) = ([0; 64], vec![0; bytes]);
                    memory.load(0, &mut all).expect("inside");
                    memory.load(start, &mut part).expect("inside");
                    assert_eq!((&all[start..start + bytes], &part), (&*from, &from));
                    assert!(all[..start].iter().chain(&all[start + bytes..]).all(|byte| *byte == 9));
                }
            }
            assert_eq!(memory.store(60, &[0; 5]), Err(Refusal::OutOfBounds));
            assert_eq!(memory.load(usize::MAX, &mut [0; 2]), Err(Refusal::OutOfBounds));
        });
    }

    #[test]
    fn elements_are_combined_and_fetched() {
        with_memory(4, |memory| {
            with_memory(1, |operands| {
                for (operation, expected) in [
                    (AccumulateOperation::Replace, [7_u16, 8, 9, 10]),
                    (SystemOperation::sum().into(), [14, 16, 18, 20]),
                    (AccumulateOperation::NoOp, [14, 16, 18, 20]),
                    (SystemOperation::max().into(), [14, 16, 18, 20]),
                ] {
                    let values = [7_u16, 8, 9, 10].map(u16::to_le_bytes).concat();
                    operands.store(0, &values).expect("inside");
                    memory.combine(2, operation.update(Element::U16), operands, true).expect("defined");
                    let mut found = [0; 8];
                    memory.load(2, &mut found).expect("inside");
                    assert_eq!(found.to_vec(), expected.map(u16::to_le_bytes).concat(), "{operation:?}");
                }
                let sum = AccumulateOperation::from(SystemOperation::sum());
                let update = |element| sum.update(element);
                assert_eq!(memory.combine(1, update(Element::U16), operands, false), Err(Refusal::Misaligned));
                assert_eq!(memory.combine(26, update(Element::U16), operands, false), Err(Refusal::OutOfBounds));
                assert_eq!(memory.combine(0, update(Element::C64), operands, false), Err(Refusal::Unsupported));
                let unknown = ElementUpdate { operation: 99, datatype: 0 };
                assert_eq!(memory.combine(0, unknown, operands, false), Err(Refusal::Unsupported));
            });
        });
    }
}
