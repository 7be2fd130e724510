//! The table of regions: memory that peers may read, write or update under a key, and the one check of a request.

use bitflags::bitflags;

use crate::ids::RemoteKey;
use crate::list::List;
use crate::pool::Pool;
use crate::rma::header::SEVERAL;
use crate::span::Region as Memory;
use crate::span::Span;

bitflags! {
    /// What peers may do with a region.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Rights: u8 {
        /// Peers may read it.
        const READ = 1;
        /// Peers may write it.
        const WRITE = 1 << 1;
        /// Peers may update it by atomic operations and accumulates.
        const ATOMIC = 1 << 2;
        /// The first operation that is accepted whole is the last one.
        const ONCE = 1 << 3;
    }
}

/// Why the target executed no part of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// There is no region with this index and key.
    BadKey = 1,
    /// The region is being revoked.
    Revoked = 2,
    /// The request reaches beyond the end of the region.
    OutOfBounds = 3,
    /// The region does not give this right.
    NoRight = 4,
    /// The address of an atomic operation is no multiple of its width.
    Misaligned = 5,
    /// The target does not know the operation or the type of the elements.
    Unsupported = 6,
}

impl Refusal {
    /// Parses its value.
    pub const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::BadKey,
            2 => Self::Revoked,
            3 => Self::OutOfBounds,
            4 => Self::NoRight,
            5 => Self::Misaligned,
            6 => Self::Unsupported,
            _ => return None,
        })
    }
}

/// A region as a peer names it: its index in the table of its owner, and its key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RKey {
    /// Its index.
    pub index: u16,
    /// 64 random bits, of this registration alone.
    pub key: RemoteKey,
}

impl RKey {
    /// What names the region in a report of refused writes: 16 bits of its key, so that reports of a key that was good
    /// once, or never, are not taken for those of a later region with its index. Never [`SEVERAL`].
    pub const fn digest(&self) -> u16 {
        let RemoteKey(key) = self.key;
        let half = key ^ key >> 32;
        match (half ^ half >> 16) as u16 {
            SEVERAL => 0,
            digest => digest,
        }
    }
}

/// The memory that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RemoteSpan {
    /// The region.
    pub region: RKey,
    /// Bytes from its start.
    pub offset: u64,
}

/// A request to the check: what is accessed and how.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// The memory.
    pub at: RemoteSpan,
    /// Its length in bytes.
    pub bytes: u32,
    /// All rights that are needed.
    pub rights: Rights,
    /// The start must be a multiple of this power of two.
    pub alignment: u8,
}

/// Why a region could not be registered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegionError {
    /// Every record is in use.
    Full,
    /// The end lies outside the address space.
    TooLong,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum RegionState {
    Free,
    Live,
    /// Nothing is accepted any more; accepted requests still use the memory.
    Revoking,
    /// Nobody uses the memory; the event is pending.
    Revoked,
}

/// One region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionRecord {
    key: RemoteKey,
    memory: Memory,
    offset: usize,
    bytes: usize,
    /// Accepted requests that still use the memory.
    uses: u32,
    /// The next free or revoked record.
    link: u32,
    rights: Rights,
    state: RegionState,
}

const _: () = assert!(size_of::<RegionRecord>() <= 64);

impl RegionRecord {
    /// An unused record.
    pub const FREE: Self = Self {
        key: RemoteKey(0),
        memory: Memory::new(0, 0),
        offset: 0,
        bytes: 0,
        uses: 0,
        link: crate::list::NONE,
        rights: Rights::empty(),
        state: RegionState::Free,
    };
}

/// The regions of a process: at most 65 536.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RegionTable<R> {
    records: R,
    free: List,
    revoked: List,
}

impl<R: Pool<RegionRecord>> RegionTable<R> {
    /// Without regions; each record is [`RegionRecord::FREE`].
    pub fn new(mut records: R) -> Self {
        let free = List::of_all(records.as_mut(), |record| &mut record.link);
        Self { records, free, revoked: List::EMPTY }
    }

    /// Registers `bytes` bytes from `offset` on. `key`: 64 random bits that were never used before.
    ///
    /// # Errors
    /// [`RegionError`]; nothing was registered.
    pub fn register(
        &mut self,
        memory: Memory,
        offset: usize,
        bytes: usize,
        rights: Rights,
        key: RemoteKey,
    ) -> Result<RKey, RegionError> {
        offset.checked_add(bytes).ok_or(RegionError::TooLong)?;
        let index = self.free.first().and_then(|index| u16::try_from(index).ok()).ok_or(RegionError::Full)?;
        self.free.pop(self.records.as_mut(), |record| &mut record.link);
        let record = self.records.as_mut().get_mut(usize::from(index)).ok_or(RegionError::Full)?;
        *record = RegionRecord { key, memory, offset, bytes, rights, state: RegionState::Live, ..RegionRecord::FREE };
        Ok(RKey { index, key })
    }

    /// Ends a region: no later request is accepted. [`poll_revoked`](Self::poll_revoked) reports when nobody uses its
    /// memory any more. Returns false if there is no such region, or it is being revoked.
    pub fn revoke(&mut self, region: RKey) -> bool {
        let Some(record) = self.records.as_mut().get_mut(usize::from(region.index)) else { return false };
        if record.state != RegionState::Live || record.key != region.key {
            return false;
        }
        record.state = RegionState::Revoking;
        self.finish_revocation(region.index);
        true
    }

    /// The next region whose revocation is complete: its memory is its owner's alone.
    pub fn poll_revoked(&mut self) -> Option<RKey> {
        let index = self.revoked.pop(self.records.as_mut(), |record| &mut record.link)?;
        let record = self.records.as_mut().get_mut(index as usize)?;
        let key = core::mem::replace(record, RegionRecord::FREE).key;
        self.free.push(self.records.as_mut(), index, |record| &mut record.link);
        Some(RKey { index: index as u16, key })
    }

    /// Checks a request: key, state, rights, bounds and alignment. Returns the memory that it names.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check(&self, access: &Access) -> Result<Span, Refusal> {
        let RKey { index, key } = access.at.region;
        let record = self.records.as_ref().get(usize::from(index)).ok_or(Refusal::BadKey)?;
        if record.state == RegionState::Free || record.key != key && !mutant!("rma_key_ignored") {
            return Err(Refusal::BadKey);
        }
        if record.state != RegionState::Live && !mutant!("rma_revoked_served") {
            return Err(Refusal::Revoked);
        }
        if !record.rights.contains(access.rights) {
            return Err(Refusal::NoRight);
        }
        let start = usize::try_from(access.at.offset).map_err(|_| Refusal::OutOfBounds)?;
        let end = start.checked_add(access.bytes as usize).ok_or(Refusal::OutOfBounds)?;
        let limit = if mutant!("rma_bounds_late") { record.bytes.saturating_add(1) } else { record.bytes };
        if end > limit {
            return Err(Refusal::OutOfBounds);
        }
        let offset = record.offset.wrapping_add(start);
        if offset & usize::from(access.alignment).saturating_sub(1) != 0 {
            return Err(Refusal::Misaligned);
        }
        Ok(Span { region: record.memory, offset, bytes: access.bytes })
    }

    /// An accepted request used the region: ends one that may be used once.
    pub fn use_once(&mut self, index: u16) {
        let Some(record) = self.records.as_mut().get_mut(usize::from(index)) else { return };
        if record.rights.contains(Rights::ONCE) && record.state == RegionState::Live && !mutant!("rma_grant_reused") {
            record.state = RegionState::Revoking;
            self.finish_revocation(index);
        }
    }

    /// An accepted request uses the memory until [`release`](Self::release).
    pub(super) fn retain(&mut self, index: u16) {
        if let Some(record) = self.records.as_mut().get_mut(usize::from(index)) {
            record.uses = record.uses.saturating_add(1);
        }
    }

    /// A request does not use the memory any more.
    pub(super) fn release(&mut self, index: u16) {
        if let Some(record) = self.records.as_mut().get_mut(usize::from(index)) {
            record.uses = record.uses.saturating_sub(1);
        }
        self.finish_revocation(index);
    }

    /// Whether accepted requests may still be executed.
    pub(super) fn is_live(&self, index: u16) -> bool {
        self.records.as_ref().get(usize::from(index)).is_some_and(|record| {
            record.state == RegionState::Live
                || record.state == RegionState::Revoking && record.rights.contains(Rights::ONCE)
        })
    }

    /// Number of regions, those being revoked included.
    pub fn in_use(&self) -> usize {
        self.records.as_ref().iter().filter(|record| record.state != RegionState::Free).count()
    }

    fn finish_revocation(&mut self, index: u16) {
        let Some(record) = self.records.as_mut().get_mut(usize::from(index)) else { return };
        if record.state == RegionState::Revoking && (record.uses == 0 || mutant!("rma_revoked_early")) {
            record.state = RegionState::Revoked;
            self.revoked.push(self.records.as_mut(), index.into(), |record| &mut record.link);
        }
    }
}
