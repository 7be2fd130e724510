//! Cross-memory attach (CMA): reads another process's memory where the system permits it (`process_vm_readv(2)`), so
//! that a message is copied once instead of twice.
//!
//! Every read also reads a nonce, which identifies the process: its process id may have been reused.

use core::ptr::NonNull;

use unisono_memory::memory_regions::Address;

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
        unsafe { source.read(0, NonNull::dangling(), 0) }.then_some(source)
    }

    /// Copies bytes from this address of the process. Returns false if it cannot be read, or is another process; then
    /// the contents of `to` are unspecified.
    ///
    /// # Safety
    /// `to` is borrowed, and nobody else uses it meanwhile.
    pub(in crate::world) unsafe fn pull(&self, from: u64, to: Address) -> bool {
        // SAFETY: the caller promises that `to` is borrowed and that nobody else uses its bytes.
        unsafe { self.read(from, to.start(), to.bytes()) }
    }

    /// # Safety
    /// `bytes` bytes at `to` are valid for writes.
    unsafe fn read(&self, from: u64, to: NonNull<u8>, bytes: usize) -> bool {
        let mut seen = [0_u8; Nonce::BYTES];
        let piece = |base: *mut u8, iov_len| libc::iovec { iov_base: base.cast(), iov_len };
        let there = |at: u64| core::ptr::without_provenance_mut(at as usize);
        let here = [piece(seen.as_mut_ptr(), seen.len()), piece(to.as_ptr(), bytes)];
        let there = [piece(there(self.nonce_at), seen.len()), piece(there(from), bytes)];
        // SAFETY: `seen` is this function's, and the caller promises `bytes` writable bytes at `to`; the pieces of the
        // other process are numbers to this one, which the kernel checks.
        let read = unsafe { libc::process_vm_readv(self.process, here.as_ptr(), 2, there.as_ptr(), 2, 0) };
        usize::try_from(read) == Ok(seen.len() + bytes) && seen == self.nonce
    }
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
