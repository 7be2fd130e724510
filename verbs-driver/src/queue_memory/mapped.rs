//! A queue mapped by libibverbs' provider or by the kernel: volatile stores and loads, and the processor's fences.

use core::ptr::NonNull;

use volatile::VolatilePtr;
use volatile::access::WriteOnly;

use super::{BLOCK, Barrier, Block, Progress, QueueAccess, Record, UNIT, Unit, Word};

/// Addresses of a queue; for mlx5 from `mlx5dv_init_obj`.
#[derive(Clone, Copy, Debug)]
pub struct QueueAddresses {
    /// The first entry, aligned to [`UNIT`].
    pub entries: NonNull<u8>,
    /// Bytes of all entries: a power of two, at least [`BLOCK`].
    pub bytes: usize,
    /// Its doorbell records: index and arm. A queue without the second names the first again.
    pub records: [NonNull<u32>; 2],
    /// The adapter's own index. Queues without one name the first record.
    pub progress: NonNull<u32>,
    /// The registers: doorbell, or both halves of BlueFlame; aligned to 8. A queue without registers has 0 bytes of
    /// them.
    pub registers: NonNull<u64>,
    /// Bytes of the registers.
    pub register_bytes: usize,
}

/// A mapped queue.
#[derive(Debug)]
pub struct Mapped {
    addresses: QueueAddresses,
}

// SAFETY: the queue is used through `&mut` only, and its memory belongs to no thread.
unsafe impl Send for Mapped {}

impl Mapped {
    /// The queue at these addresses. `None`: its size is not a power of two, or too small.
    ///
    /// # Safety
    /// As long as it is used, all of the place is mapped, aligned and used by nobody else but the device. The code that
    /// gets it, or a queue made of it, names no memory in entries but such as the device may read or write: entries are
    /// written in safe code.
    pub unsafe fn new(place: QueueAddresses) -> Option<Self> {
        (place.bytes.is_power_of_two() && place.bytes >= BLOCK).then_some(Self { addresses: place })
    }

    /// The 8 bytes at a multiple of 8 within the entries.
    #[inline]
    fn word(&self, at: usize) -> NonNull<u64> {
        // SAFETY: masked with the size less 1, a power of two, so within the entries.
        unsafe { self.addresses.entries.add(at & (self.addresses.bytes - 1) & !7) }.cast()
    }

    /// The address of `bytes` bytes at a multiple of 8 within the entries. `None`: they extend beyond the end.
    #[inline]
    fn words(&self, at: usize, bytes: usize) -> Option<NonNull<u64>> {
        let within = at.checked_add(bytes).is_some_and(|end| end <= self.addresses.bytes);
        // SAFETY: within the entries, as was checked.
        within.then(|| unsafe { self.addresses.entries.add(at & !7) }.cast())
    }

    #[inline]
    fn register(&self, at: usize) -> Option<VolatilePtr<'static, u64, WriteOnly>> {
        if !at.is_multiple_of(8) || at.checked_add(8)? > self.addresses.register_bytes {
            return None;
        }
        // SAFETY: within the registers, as was checked.
        let register = unsafe { self.addresses.registers.byte_add(at) };
        // SAFETY: mapped and nobody else's, as `new` demands; aligned, as the registers and the offset are.
        Some(unsafe { VolatilePtr::new_restricted(WriteOnly, register) })
    }
}

impl QueueAccess for Mapped {
    #[inline]
    fn bytes(&self) -> usize {
        self.addresses.bytes
    }

    #[inline]
    fn store(&mut self, at: usize, unit: Unit) {
        let value = u128::from_ne_bytes(unit);
        let [low, high] = if cfg!(target_endian = "little") { [0, 64] } else { [64, 0] };
        let first = self.word(at & !(UNIT - 1));
        // SAFETY: the entries are whole units, so the second word of this one is within them, too.
        let second = unsafe { first.add(1) };
        for (word, shift) in [(first, low), (second, high)] {
            // SAFETY: within the entries, aligned.
            unsafe { word.write_volatile((value >> shift) as u64) };
        }
    }

    #[inline]
    fn store_all(&mut self, at: usize, units: &[Unit]) {
        self.store_words(at & !(UNIT - 1), units.as_flattened().as_chunks().0);
    }

    #[inline]
    fn store_words(&mut self, at: usize, words: &[Word]) {
        let Some(mut to) = self.words(at, size_of_val(words)) else {
            for (at, word) in (at..).step_by(size_of::<Word>()).zip(words) {
                // SAFETY: within the entries, aligned.
                unsafe { self.word(at).write_volatile(u64::from_ne_bytes(*word)) };
            }
            return;
        };
        // Unrolled by four: for a few words the loop would cost as much as the stores.
        let (fours, rest) = words.as_chunks::<4>();
        for four in fours {
            for word in four {
                // SAFETY: `words` found room for all words within the entries, from an aligned one on; this is the
                // next.
                unsafe { to.write_volatile(u64::from_ne_bytes(*word)) };
                // SAFETY: `words` found room for all words within the entries; this is the next one, or just behind the
                // last.
                to = unsafe { to.add(1) };
            }
        }
        for word in rest {
            // SAFETY: `words` found room for all words within the entries, from an aligned one on; this is the next.
            unsafe { to.write_volatile(u64::from_ne_bytes(*word)) };
            // SAFETY: `words` found room for all words within the entries; this is the next one, or just behind the
            // last.
            to = unsafe { to.add(1) };
        }
    }

    #[inline]
    fn progress(&mut self, what: Progress) -> u32 {
        match what {
            Progress::Owner(at) => {
                // SAFETY: masked with the size less 1, a power of two, so within the entries.
                let owner = unsafe { self.addresses.entries.add(at & (self.addresses.bytes - 1)) };
                // SAFETY: within the entries.
                u32::from(unsafe { owner.read_volatile() })
            }
            // SAFETY: mapped, as `new` demands.
            Progress::Index => unsafe { self.addresses.progress.read_volatile() },
        }
    }

    #[inline]
    fn load(&mut self, at: usize) -> Block {
        let mut block = [0; BLOCK];
        if let Some(mut from) = self.words(at, BLOCK) {
            for place in block.as_chunks_mut().0 {
                // SAFETY: `words` found a whole block within the entries, from an aligned word on; this is its next.
                *place = unsafe { from.read_volatile() }.to_ne_bytes();
                // SAFETY: `words` found a whole block within the entries; this is its next word, or just behind the
                // last.
                from = unsafe { from.add(1) };
            }
            return block;
        }
        for (place, at) in block.chunks_exact_mut(8).zip((at..).step_by(8)) {
            // SAFETY: within the entries, aligned.
            let word = unsafe { self.word(at).read_volatile() };
            place.copy_from_slice(&word.to_ne_bytes());
        }
        block
    }

    #[inline]
    fn record(&mut self, record: Record, value: u32) {
        let [index, arm] = self.addresses.records;
        let record = match record {
            Record::Index => index,
            Record::Arm => arm,
        };
        // SAFETY: mapped and written by nobody else, as `new` demands.
        unsafe { VolatilePtr::new_restricted(WriteOnly, record) }.write(value);
    }

    #[inline]
    fn doorbell(&mut self, at: usize, value: [u8; 8]) {
        if let Some(register) = self.register(at) {
            register.write(u64::from_ne_bytes(value));
        }
    }

    #[inline]
    fn blue_flame(&mut self, at: usize, block: &Block) {
        let (words, _) = block.as_chunks::<8>();
        for (at, word) in (at..).step_by(8).zip(words) {
            self.doorbell(at, *word);
        }
    }

    #[inline]
    fn barrier(&mut self, barrier: Barrier) {
        fence(barrier);
    }
}

/// The fence of this processor for a barrier.
#[inline]
pub fn fence(barrier: Barrier) {
    #[cfg(target_arch = "x86_64")]
    match barrier {
        // Stores to memory are seen in their order, loads made in theirs; the compiler must not change it.
        // SAFETY: no instruction.
        Barrier::ToDevice | Barrier::FromDevice => unsafe {
            core::arch::asm!("", options(nostack, preserves_flags));
        },
        // SAFETY: it changes nothing but order. BlueFlame lies in write-combining memory, which keeps none.
        Barrier::ToRegister | Barrier::Flush => unsafe {
            core::arch::asm!("sfence", options(nostack, preserves_flags));
        },
    }
    #[cfg(target_arch = "aarch64")]
    match barrier {
        // SAFETY: it changes nothing but order.
        Barrier::ToDevice => unsafe { core::arch::asm!("dmb oshst", options(nostack, preserves_flags)) },
        // SAFETY: it changes nothing but order.
        Barrier::FromDevice => unsafe { core::arch::asm!("dmb oshld", options(nostack, preserves_flags)) },
        // SAFETY: it changes nothing but order.
        Barrier::ToRegister | Barrier::Flush => unsafe {
            core::arch::asm!("dsb st", options(nostack, preserves_flags));
        },
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn offsets_wrap_and_registers_end() {
        let mut memory = vec![0_u128; 8];
        let (mut records, mut registers) = ([0_u32; 3], [0_u64; 16]);
        let [index, arm, progress] = &mut records;
        *progress = 77;
        let place = QueueAddresses {
            entries: NonNull::new(memory.as_mut_ptr().cast()).unwrap(),
            bytes: 128,
            records: [index.into(), arm.into()],
            progress: progress.into(),
            registers: NonNull::new(registers.as_mut_ptr()).unwrap(),
            register_bytes: 72,
        };
        // SAFETY: all of it lives to the end of the test and is looked at after the last use only.
        let mut mapped = unsafe { Mapped::new(place) }.unwrap();
        mapped.store(128 + 16, core::array::from_fn(|at| at as u8));
        let block = mapped.load(0);
        assert_eq!(block[16..32], core::array::from_fn::<_, 16, _>(|at| at as u8));
        assert_eq!(mapped.load(64 + 16)[64 - 16..], block[..16], "an entry that wraps");
        assert_eq!(mapped.progress(Progress::Owner(16 + 5)), 5);
        assert_eq!(mapped.progress(Progress::Index), 77);
        for words in [0, 1, 3, 4, 5, 9] {
            for at in [0, 8, 72, 128 - 32] {
                mapped.store_all(0, &[[0; UNIT]; 8]);
                let stored: [Word; 9] = core::array::from_fn(|word| [word as u8 + 1; 8]);
                mapped.store_words(at, &stored[..words]);
                let mut expected = [0_u8; 128];
                for (word, stored) in stored[..words].iter().enumerate() {
                    expected[(at + 8 * word) % 128..][..8].copy_from_slice(stored);
                }
                assert_eq!([mapped.load(0), mapped.load(64)].as_flattened(), expected, "{words} {at}");
            }
        }
        mapped.record(Record::Index, 3);
        mapped.record(Record::Arm, 4);
        mapped.blue_flame(0, &[9; 64]);
        mapped.doorbell(64, [1; 8]);
        mapped.doorbell(72, [7; 8]);
        // No register begins there.
        mapped.doorbell(4, [7; 8]);
        mapped.doorbell(usize::MAX & !7, [7; 8]);
        for barrier in [Barrier::ToDevice, Barrier::ToRegister, Barrier::FromDevice, Barrier::Flush] {
            mapped.barrier(barrier);
        }
        assert_eq!(records, [3, 4, 77]);
        assert_eq!(registers[..8], [0x0909_0909_0909_0909; 8]);
        assert_eq!(registers[8..10], [0x0101_0101_0101_0101, 0]);
    }

    #[test]
    fn odd_sizes_are_refused() {
        let word = NonNull::dangling();
        for bytes in [0, 16, 63, 65, 192] {
            let place = QueueAddresses {
                entries: NonNull::dangling(),
                bytes,
                records: [word; 2],
                progress: word,
                registers: NonNull::dangling(),
                register_bytes: 0,
            };
            // SAFETY: refused, so never used.
            assert!(unsafe { Mapped::new(place) }.is_none(), "{bytes}");
        }
    }
}
