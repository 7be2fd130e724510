//! Reads of announced payloads: the sender names registered memory, and the receiver's adapter reads it over a reliable
//! connection.
//!
//! Where there is no connection now, or a read fails, the payload is sent. Only this process's own queue pair writes the
//! memory of a receive: once it has ended, nothing can arrive late.

use unisono_core::device::Memory as _;
use unisono_core::ids::PeerId;
use unisono_core::span::{Region, RegionRange};
use unisono_core::transport::{Fetch, Token};
use unisono_verbs::raw::{Data, RemoteMemory};
use unisono_verbs::ud::Lent;

use super::ProcessTransport;
use super::read_queue::{PayloadRead, ReadUser};
use unisono_memory::memory_regions::Address;

/// Least bytes of a payload that is read by the adapter: shorter buffers are not registered.
const READ_MIN: usize = 32 << 10;
/// Most bytes of one read. The next one of a payload follows its end.
const READ_MAX: usize = 1 << 30;

/// Where a payload lies for the adapters of peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ReadableMemory {
    key: u32,
    address: u32,
}

impl ReadableMemory {
    /// As one word, which is 0 for memory that adapters cannot read.
    const fn to_word(self) -> u64 {
        (self.key as u64) << 32 | self.address as u64
    }

    /// The memory in such a word.
    fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self { key: (word >> 32) as u32, address: word as u32 })
    }
}

/// Registered memory, as an operation of the adapter names it. `None`: it is not registered, or its bytes are not
/// adjacent.
pub(in crate::world) fn registered(address: Address) -> Option<Data> {
    let bytes = u32::try_from(address.bytes()).ok()?;
    Some(Data { address: address.device_address(), bytes, key: Lent::key(address)? })
}

impl ProcessTransport {
    /// Where the adapters of remote ranks find a payload, as a word; 0: they cannot read it.
    pub(in crate::world) fn readable(&mut self, payload: RegionRange) -> u64 {
        if payload.bytes < READ_MIN {
            return 0;
        }
        let known = self.regions.get_mut().readable(payload);
        known.map_or(0, |(key, address)| ReadableMemory { key, address }.to_word())
    }

    /// Starts to read the next part of a payload of a remote rank.
    pub(super) fn read_payload(
        &mut self,
        from: PeerId,
        at: u64,
        into: RegionRange,
        copied: usize,
        token: Token,
    ) -> Fetch {
        let part = into.span(copied, READ_MAX);
        let Some(memory) = ReadableMemory::from_word(at).filter(|_| part.bytes > 0) else { return Fetch::Unreachable };
        let Some(local) = self.regions.get_mut().address(part).and_then(registered) else { return Fetch::Unreachable };
        let Self { reliable, keys, now, .. } = self;
        if !reliable.connect(*now, from, || keys.next() as u32) {
            return Fetch::Unreachable;
        }
        // Only the adapters use it: that of the sender checks it.
        let remote = RemoteMemory { address: u64::from(memory.address).wrapping_add(copied as u64), key: memory.key };
        let user = ReadUser { token, region: into.region };
        // SAFETY: the receive's memory is borrowed by its request, or belongs to its collective, until the read has ended or
        // is aborted: both are done before it is given back.
        unsafe { reliable.read(PayloadRead { peer: from, user, local, remote }) };
        Fetch::Started(part.bytes as usize)
    }

    /// Ends the read of a receive, which is not reported any more.
    pub(super) fn abort_read(&mut self, token: Token) {
        self.completions.forget_fetch(token);
        self.reliable.abort(self.now, |user| user.token == token);
    }

    /// Ends the reads into a region that is given back.
    pub(in crate::world) fn abort_reads_into(&mut self, region: Region) {
        self.reliable.abort(self.now, |user| user.region == region);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_memory_or_none() {
        let memory = ReadableMemory { key: 0x8000_0001, address: u32::MAX };
        assert_eq!(ReadableMemory::from_word(memory.to_word()), Some(memory));
        assert_eq!(ReadableMemory::from_word(0), None);
    }
}
