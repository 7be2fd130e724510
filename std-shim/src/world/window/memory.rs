//! The memory of a window: copies, and updates element by element, of memory that other processes use meanwhile.
//!
//! No reference to it is ever made. Copies are relaxed atomic loads and stores of bytes and words, updates are atomic
//! read-modify-write instructions of the processor: the one executor of all updates, also of those that peers ask for.

mod elements;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use unisono_core::rma::atomic::{AtomicOperation, Width};
use unisono_core::rma::header::ElementUpdate;
use unisono_core::rma::region::Refusal;
use unisono_core::rma::stride::Stride;
use unisono_shmem::reduction_ops::Element;

use crate::world::collective::SystemOperation;
use elements::ParsedUpdate;

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

/// The update that copies bytes.
pub(in crate::world) const COPY: ElementUpdate = ElementUpdate { operation: REPLACE, datatype: Element::U8 as u8 };

/// Bytes of elements that are combined at a time: a multiple of the length of each.
const BLOCK: usize = 1024;

/// Bytes from which one instruction copies faster than word by word.
const LONG: usize = if cfg!(all(target_arch = "x86_64", not(miri))) { 1024 } else { usize::MAX };

/// Copies bytes by an instruction of the processor, which other processes that use them meanwhile do not make undefined.
///
/// # Safety
/// They are readable at `from` and writable at `to`, and apart.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_long(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller promises it; the direction flag is clear, as everywhere.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy_long(from: *const u8, to: *mut u8, bytes: usize) {
    for i in 0..bytes {
        // SAFETY: the caller promises it.
        unsafe { to.wrapping_add(i).write_volatile(from.wrapping_add(i).read_volatile()) };
    }
}

/// Memory that several processes use, as an address and a length.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct WindowMemory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address with a length, whose memory is only used by single instructions; `new` was promised that it stays.
unsafe impl Send for WindowMemory {}
// SAFETY: shared, it is used by single instructions alone, atomic ones and copies.
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

    /// The first `bytes` bytes, and the others.
    pub(in crate::world) fn split(self, bytes: usize) -> (Self, Self) {
        let bytes = bytes.min(self.bytes);
        // SAFETY: at most the length, so that the address is within the memory, or its end.
        let rest = unsafe { self.start.add(bytes) };
        (Self { start: self.start, bytes }, Self { start: rest, bytes: self.bytes - bytes })
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
        let to = self.at(offset, from.len())?.as_ptr();
        if from.len() >= LONG {
            // SAFETY: within the bytes that `at` has checked; nobody has a reference to them, so that they are apart.
            unsafe { copy_long(from.as_ptr(), to, from.len()) };
            return Ok(());
        }
        let head = to.align_offset(8).min(from.len());
        let (first, rest) = from.split_at(head);
        let (words, last) = rest.as_chunks::<8>();
        for (i, byte) in first.iter().enumerate() {
            // SAFETY: within the bytes that `at` has checked.
            unsafe { AtomicU8::from_ptr(to.wrapping_add(i)) }.store(*byte, Ordering::Relaxed);
        }
        for (i, word) in words.iter().enumerate() {
            // SAFETY: within the bytes that `at` has checked, and aligned, since `head` bytes precede the first word.
            let to = unsafe { AtomicU64::from_ptr(to.wrapping_add(head + 8 * i).cast()) };
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        let tail = head + 8 * words.len();
        for (i, byte) in last.iter().enumerate() {
            // SAFETY: within the bytes that `at` has checked.
            unsafe { AtomicU8::from_ptr(to.wrapping_add(tail + i)) }.store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies bytes from there.
    pub(in crate::world) fn load(self, offset: usize, to: &mut [u8]) -> Result<(), Refusal> {
        let from = self.at(offset, to.len())?.as_ptr();
        if to.len() >= LONG {
            // SAFETY: within the bytes that `at` has checked; nobody has a reference to them, so that they are apart.
            unsafe { copy_long(from, to.as_mut_ptr(), to.len()) };
            return Ok(());
        }
        let head = from.align_offset(8).min(to.len());
        let (first, rest) = to.split_at_mut(head);
        let (words, last) = rest.as_chunks_mut::<8>();
        for (i, byte) in first.iter_mut().enumerate() {
            // SAFETY: within the bytes that `at` has checked.
            *byte = unsafe { AtomicU8::from_ptr(from.wrapping_add(i)) }.load(Ordering::Relaxed);
        }
        let tail = head + 8 * words.len();
        for (i, word) in words.iter_mut().enumerate() {
            // SAFETY: within the bytes that `at` has checked, and aligned, since `head` bytes precede the first word.
            let from = unsafe { AtomicU64::from_ptr(from.wrapping_add(head + 8 * i).cast()) };
            *word = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        for (i, byte) in last.iter_mut().enumerate() {
            // SAFETY: within the bytes that `at` has checked.
            *byte = unsafe { AtomicU8::from_ptr(from.wrapping_add(tail + i)) }.load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Updates a word. Returns its old value.
    pub(in crate::world) fn atomic(self, offset: usize, operation: AtomicOperation) -> Result<u64, Refusal> {
        let width = usize::from(operation.width.bytes());
        self.modify(offset, width, |old| operation.apply(old))
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
        let load = |at, block: &mut [u8]| operands.load(at, block);
        if fetch {
            self.combine_blocks::<true>(offset, update, operands.bytes, load, |at, block| operands.store(at, block))
        } else {
            self.combine_blocks::<false>(offset, update, operands.bytes, load, |_, _| Ok(()))
        }
    }

    /// As [`combine`](Self::combine), with the elements in blocks, the first of which is at the start. No element of a
    /// [`COPY`] is atomic.
    pub(in crate::world) fn combine_strided(
        self,
        stride: Stride,
        update: ElementUpdate,
        operands: Self,
        fetch: bool,
    ) -> Result<(), Refusal> {
        let (block, distance) = (stride.block as usize, stride.distance as usize);
        let grain = ParsedUpdate::new(update)?.grain;
        if !(block.is_multiple_of(grain) && distance.is_multiple_of(grain)) {
            return Err(Refusal::Unsupported);
        }
        for (there, here) in stride.blocks(operands.bytes as u32) {
            let operands = operands.part(here, block)?;
            if update == COPY && !fetch {
                self.part(there, block)?.copy_from(operands)?;
            } else {
                self.combine(there, update, operands, fetch)?;
            }
        }
        Ok(())
    }

    /// Copies blocks, the first of which is at the start, to the memory that follows one another at `into`.
    pub(in crate::world) fn gather(self, stride: Stride, into: Self) -> Result<(), Refusal> {
        let block = stride.block as usize;
        stride
            .blocks(into.bytes as u32)
            .try_for_each(|(there, here)| into.part(here, block)?.copy_from(self.part(there, block)?))
    }

    /// `bytes` bytes from `offset` on.
    fn part(self, offset: usize, bytes: usize) -> Result<Self, Refusal> {
        Ok(Self { start: self.at(offset, bytes)?, bytes })
    }

    /// Copies all bytes of another memory, which is as long.
    fn copy_from(self, from: Self) -> Result<(), Refusal> {
        // Most blocks are short.
        const STEP: usize = 64;
        let mut buffer = [0; STEP];
        for at in (0..from.bytes).step_by(STEP) {
            let bytes = buffer.get_mut(..STEP.min(from.bytes - at)).unwrap_or_default();
            from.load(at, bytes)?;
            self.store(at, bytes)?;
        }
        Ok(())
    }

    /// As [`combine`](Self::combine), with operands of the caller; the old values go to `old`, which is as long.
    pub(in crate::world) fn combine_from(
        self,
        offset: usize,
        update: ElementUpdate,
        operands: &[u8],
        old: Option<&mut [u8]>,
    ) -> Result<(), Refusal> {
        let load = |at: usize, block: &mut [u8]| {
            let from = operands.get(at..).and_then(|rest| rest.get(..block.len())).ok_or(Refusal::OutOfBounds)?;
            block.copy_from_slice(from);
            Ok(())
        };
        match old {
            None => self.combine_blocks::<false>(offset, update, operands.len(), load, |_, _| Ok(())),
            Some(old) => self.combine_blocks::<true>(offset, update, operands.len(), load, |at, block| {
                let to = old.get_mut(at..).and_then(|rest| rest.get_mut(..block.len())).ok_or(Refusal::OutOfBounds)?;
                to.copy_from_slice(block);
                Ok(())
            }),
        }
    }

    /// Combines `bytes` bytes of elements from `offset` on, block by block: `load` provides the operands of a block, and
    /// with `FETCH`, `keep` gets the old elements.
    fn combine_blocks<const FETCH: bool>(
        self,
        offset: usize,
        update: ElementUpdate,
        bytes: usize,
        mut load: impl FnMut(usize, &mut [u8]) -> Result<(), Refusal>,
        mut keep: impl FnMut(usize, &[u8]) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let update = ParsedUpdate::new(update)?;
        if !bytes.is_multiple_of(update.grain) {
            return Err(Refusal::Unsupported);
        }
        let first = self.at(offset, bytes)?;
        if !first.addr().get().is_multiple_of(update.grain) {
            return Err(Refusal::Misaligned);
        }
        let mut block = [0; BLOCK];
        for at in (0..bytes).step_by(BLOCK) {
            let block = block.get_mut(..BLOCK.min(bytes - at)).unwrap_or_default();
            load(at, block)?;
            let first = self.at(offset + at, block.len())?;
            // SAFETY: within the bytes that `at` has checked, at a multiple of the length of an element behind the
            // first one, which is aligned; nobody has a reference to them, as `new` was promised.
            unsafe { update.apply::<FETCH>(first, block) };
            if FETCH {
                keep(at, block)?;
            }
        }
        Ok(())
    }

    /// Replaces an element of 1, 2, 4 or 8 bytes by a function of it. Returns its old value, zero-extended.
    fn modify(self, offset: usize, bytes: usize, mut new: impl FnMut(u64) -> u64) -> Result<u64, Refusal> {
        let at = self.at(offset, bytes)?;
        if !at.addr().get().is_multiple_of(bytes.max(1)) {
            return Err(Refusal::Misaligned);
        }
        const ORDER: Ordering = Ordering::SeqCst;
        macro_rules! modify {
            ($atomic:ty, $value:ty) => {{
                // SAFETY: within the bytes that `at` has checked, and aligned; all use atomic instructions.
                let word = unsafe { <$atomic>::from_ptr(at.cast().as_ptr()) };
                let changed = word.fetch_update(ORDER, ORDER, |old| Some(new(old.into()) as $value));
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
    use unisono_shmem::reduction_ops::{self, ReduceOperation};

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
    fn many_bytes_are_copied_and_none_beyond() {
        const ALL: usize = 4096;
        with_memory(ALL / 8, |memory| {
            for (start, bytes) in
                (0..9).flat_map(|start| [1023, 1024, 1025, 3001, ALL - start].map(|bytes| (start, bytes)))
            {
                memory.store(0, &[9; ALL]).expect("inside");
                let from: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
                memory.store(start, &from).expect("inside");
                let (mut all, mut part) = (vec![0; ALL], vec![0; bytes]);
                memory.load(0, &mut all).expect("inside");
                memory.load(start, &mut part).expect("inside");
                assert!(all[start..start + bytes] == from && part == from, "{bytes} bytes from {start} on");
                assert!(all[..start].iter().chain(&all[start + bytes..]).all(|byte| *byte == 9));
            }
            assert_eq!(memory.store(1, &[0; ALL]), Err(Refusal::OutOfBounds));
            assert_eq!(memory.load(1, &mut [0; ALL]), Err(Refusal::OutOfBounds));
        });
    }

    #[test]
    fn every_update_is_that_of_its_kernel() {
        const BYTES: usize = 2 * BLOCK + 8;
        let pattern = |salt: u64| -> Vec<u8> {
            let words = (0..BYTES as u64 / 8).map(|i| (i + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            words.flat_map(u64::to_le_bytes).collect()
        };
        let (before, operands) = (pattern(1), pattern(1000));
        let small = Element::ALL.into_iter().filter(|element| [1, 2, 4, 8].contains(&element.bytes()));
        for (element, operation) in small.flat_map(|element| ReduceOperation::ALL.map(|operation| (element, operation)))
        {
            let Some(kernel) = reduction_ops::kernel(operation, element) else { continue };
            let mut expected = vec![0; BYTES];
            let count = BYTES / element.bytes();
            // SAFETY: each is a vector of this number of elements.
            unsafe { kernel(before.as_ptr(), operands.as_ptr(), expected.as_mut_ptr(), count) };
            let update = AccumulateOperation::Reduce(operation.into()).update(element);
            for fetch in [false, true] {
                with_memory(BYTES / 8, |memory| {
                    memory.store(0, &before).expect("inside");
                    let mut old = vec![0; BYTES];
                    let combined = memory.combine_from(0, update, &operands, fetch.then_some(&mut old));
                    assert_eq!(combined, Ok(()));
                    assert!(!fetch || old == before, "{element:?} {operation:?}");
                    memory.load(0, &mut old).expect("inside");
                    // A sum that is not a number may be any of those.
                    let differs = |i: usize| old[i..][..element.bytes()] != expected[i..][..element.bytes()];
                    let is_number = |i: usize| match element {
                        Element::F32 => !f32::from_le_bytes(expected[i..][..4].try_into().expect("4 bytes")).is_nan(),
                        Element::F64 => !f64::from_le_bytes(expected[i..][..8].try_into().expect("8 bytes")).is_nan(),
                        _ => true,
                    };
                    let wrong = (0..BYTES).step_by(element.bytes()).find(|i| differs(*i) && is_number(*i));
                    assert_eq!(wrong, None, "{element:?} {operation:?}");
                });
            }
        }
    }

    #[test]
    fn blocks_are_combined_and_gathered() {
        with_memory(4, |memory| {
            with_memory(1, |operands| {
                let stride = Stride { block: 2, distance: 6 };
                let bytes = [1_u8, 2, 3, 4, 5, 6, 7, 8];
                operands.store(0, &bytes).expect("inside");
                memory.combine_strided(stride, COPY, operands, false).expect("defined");
                let mut all = [0; 32];
                memory.load(0, &mut all).expect("inside");
                let expected = [1, 2, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 5, 6, 0, 0, 0, 0, 7, 8];
                assert_eq!((&all[..20], &all[20..]), (&expected[..], &[0; 12][..]));
                let sum = AccumulateOperation::from(SystemOperation::sum()).update(Element::U16);
                memory.combine_strided(stride, sum, operands, true).expect("defined");
                operands.load(0, &mut all[..8]).expect("inside");
                assert_eq!(all[..8], bytes, "the old values");
                memory.gather(stride, operands).expect("inside");
                operands.load(0, &mut all[..8]).expect("inside");
                assert_eq!(all[..8], bytes.map(|byte| 2 * byte));
                let far = Stride { distance: 12, ..stride };
                assert_eq!(memory.gather(far, operands), Err(Refusal::OutOfBounds));
                let odd = Stride { distance: 5, ..stride };
                assert_eq!(memory.combine_strided(odd, sum, operands, false), Err(Refusal::Unsupported));
            });
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
                let mut old = [0; 8];
                let (from, replace) = ([3_u16; 4].map(u16::to_le_bytes).concat(), AccumulateOperation::Replace);
                memory.combine_from(2, replace.update(Element::U16), &from, Some(&mut old)).expect("defined");
                assert_eq!(old.to_vec(), [14, 16, 18, 20].map(u16::to_le_bytes).concat());
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
