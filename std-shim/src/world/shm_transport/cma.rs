//! Cross-memory attach (CMA): reads another process's memory where the system permits it (`process_vm_readv(2)`), so
//! that a message is copied once instead of twice.
//!
//! Every read also reads a nonce, which identifies the process: its process id may have been reused.

use core::ops::ControlFlow;

use unisono_datatype::Run;
use unisono_memory::memory_regions::Address;

/// Least mean length of the parts that memory is read into, in bytes.
const PART_MIN: usize = 512;
/// Most parts of one read, with the nonce: the limit of the system (`UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;

/// Random bytes at an address that the peers know.
pub(in crate::world) struct Nonce([u8; Self::BYTES]);

impl Nonce {
    const BYTES: usize = 16;
    /// Bytes of a greeting.
    pub(in crate::world) const GREETING: usize = 8 + Self::BYTES;

    pub(in crate::world) fn new() -> Self {
        let mut bytes = [0; Self::BYTES];
        // Without randomness, another process would still have to hold the same bytes at the same address.
        let _ = getrandom::fill(&mut bytes);
        Self(bytes)
    }

    /// The nonce's address, and the nonce.
    pub(in crate::world) fn greeting(&self) -> [u8; Self::GREETING] {
        let mut greeting = [0; Self::GREETING];
        let (at, nonce) = greeting.split_at_mut(8);
        at.copy_from_slice(&(self.0.as_ptr().addr() as u64).to_le_bytes());
        nonce.copy_from_slice(&self.0);
        greeting
    }
}

/// Another process whose memory can be read.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct CmaSource {
    process: libc::pid_t,
    nonce_at: u64,
    nonce: [u8; Nonce::BYTES],
}

impl CmaSource {
    /// The process that sent the greeting, if its memory can be read.
    pub(super) fn probe(process: u32, greeting: &[u8]) -> Option<Self> {
        let (at, rest) = greeting.split_first_chunk()?;
        let nonce = *rest.first_chunk()?;
        let source = Self { process: libc::pid_t::try_from(process).ok()?, nonce_at: u64::from_le_bytes(*at), nonce };
        // SAFETY: nothing is copied but the nonce.
        unsafe { source.read(0, &mut [NONE]) }.then_some(source)
    }

    /// Copies bytes from this address of the process. Returns false if it cannot be read, or is another process; then
    /// the contents of `to` are unspecified.
    ///
    /// # Safety
    /// `to` is borrowed, and nobody else uses it meanwhile.
    pub(in crate::world) unsafe fn pull(&self, from: u64, to: Address) -> bool {
        if let Some(start) = to.adjacent() {
            let mut here = [NONE, piece(start.as_ptr(), to.bytes())];
            // SAFETY: the caller promises that `to` is borrowed and that nobody else uses its bytes.
            return unsafe { self.read(from, &mut here) };
        }
        let (mut at, mut here) = (from, vec![NONE]);
        parts(to, |part| here.push(part));
        let mut parts = here.get_mut(..).unwrap_or_default();
        // The last part of each read makes room for the nonce of the next one.
        while let Some((read, _)) =
            parts.split_at_mut_checked(parts.len().min(PARTS_MAX)).filter(|(read, _)| read.len() > 1)
        {
            let (count, bytes) = (read.len(), bytes_of(read));
            // SAFETY: the caller promises that `to` is borrowed and that nobody else uses its bytes.
            if !unsafe { self.read(at, read) } {
                return false;
            }
            at = at.wrapping_add(bytes as u64);
            parts = parts.get_mut(count - 1..).unwrap_or_default();
        }
        true
    }

    /// Whether a read into the parts of `to` is likely faster than a copy through a ring.
    pub(in crate::world) fn is_worthwhile(to: Address) -> bool {
        let mut count: usize = 0;
        parts(to, |_| count += 1);
        count.saturating_mul(PART_MIN) <= to.bytes().max(PART_MIN)
    }

    /// Reads into all pieces of `here` but the first one, which is replaced.
    ///
    /// # Safety
    /// They are valid for writes.
    unsafe fn read(&self, from: u64, here: &mut [libc::iovec]) -> bool {
        let mut seen = [0_u8; Nonce::BYTES];
        if let Some(first) = here.first_mut() {
            *first = piece(seen.as_mut_ptr(), seen.len());
        }
        let bytes = bytes_of(here);
        let there = |at: u64| core::ptr::without_provenance_mut(at as usize);
        let there = [piece(there(self.nonce_at), seen.len()), piece(there(from), bytes)];
        let count = here.len() as libc::c_ulong;
        // SAFETY: `seen` is this function's, and the caller promises that the other pieces are writable; those of the
        // other process are numbers to this one, which the kernel checks.
        let read = unsafe { libc::process_vm_readv(self.process, here.as_ptr(), count, there.as_ptr(), 2, 0) };
        usize::try_from(read) == Ok(seen.len() + bytes) && seen == self.nonce
    }
}

/// No bytes.
const NONE: libc::iovec = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };

const fn piece(base: *mut u8, iov_len: usize) -> libc::iovec {
    libc::iovec { iov_base: base.cast(), iov_len }
}

/// Bytes of all pieces but the first one.
fn bytes_of(pieces: &[libc::iovec]) -> usize {
    pieces.iter().skip(1).map(|piece| piece.iov_len).sum()
}

/// Reports the adjacent parts of an address.
fn parts(of: Address, mut report: impl FnMut(libc::iovec)) {
    if let Some(start) = of.adjacent() {
        return report(piece(start.as_ptr(), of.bytes()));
    }
    // SAFETY: the process holds its lock: the region that the address was made of still lives.
    let Some((layout, start, first)) = (unsafe { of.layout() }) else { return };
    layout.for_each_run(first, of.bytes(), |Run { offset, bytes, count, stride }| {
        for i in 0..count {
            let at = offset.wrapping_add(stride.wrapping_mul(i as isize));
            report(piece(start.as_ptr().wrapping_offset(at), bytes));
        }
        ControlFlow::Continue(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::device::Memory;
    use unisono_core::span::Span;
    use unisono_memory::memory_regions::Regions;

    #[test]
    fn own_memory_is_read_and_that_of_nobody_is_not() {
        let nonce = Nonce::new();
        let source = CmaSource::probe(std::process::id(), &nonce.greeting()).expect("a process reads its own memory");
        // SAFETY: this test uses one address at a time.
        let (data, mut regions) = ([7_u8; 100], unsafe { Regions::new() });
        let region = regions.allocate(100).expect("memory");
        let to = regions.address(Span { region, offset: 0, bytes: 100 }).expect("it lives");
        // SAFETY: nobody knows the region.
        assert!(unsafe { source.pull(data.as_ptr().addr() as u64, to) });
        let mut seen = [0; 100];
        // SAFETY: nobody else knows the region.
        unsafe { to.read(&mut seen) };
        assert_eq!(seen, data);
        // SAFETY: nobody else knows the region.
        assert!(!unsafe { source.pull(16, to) }, "nothing is mapped there");
        let mut other = nonce.greeting();
        other[Nonce::GREETING - 1] ^= 1;
        assert!(CmaSource::probe(std::process::id(), &other).is_none(), "another process");
        assert!(CmaSource::probe(0x7fff_ffff, &nonce.greeting()).is_none());
        // SAFETY: no address of it is used any more.
        assert!(unsafe { regions.free(region) });
    }
}
