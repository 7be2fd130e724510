//! Memory of a node that other ranks read, write and update by requests in the rings, as that of processes: regions with
//! keys of 64 bits, whose requests the core checks and answers ([`Rma`]). A node starts no operations of its own.

use heapless::{Vec, VecView};
use unisono_core::ids::{PeerId, RemoteKey};
use unisono_core::rma::header::RmaBytes;
use unisono_core::rma::region::Refusal;
use unisono_core::rma::{
    Action, Arrival, Entry, Execution, OperationRecord, Owner, RKey, RegionRecord, RequesterState, Rma, RmaPools,
    RmaStorage, Staging, TargetState,
};
use unisono_core::span::{Region, Span};
use unisono_core::transport::TransportError;
use unisono_core::wire::MESSAGE_HEADER_ROOM;
use unisono_shmem::am_header::REMOTE_ACCESS;
use unisono_shmem::ring::INLINE;
use unisono_shmem::segment::SharedBytes;

pub use unisono_core::rma::Rights;

use super::Messages;
use super::memory::{CallerBuffer, bytes_of};
use super::rings::Rings;
use super::storage::{Records, fill};
use crate::Idle;

/// Regions of a node.
const REGIONS: usize = 8;
/// Requests of other ranks that wait for their answers, and answers that wait for room in rings.
const ENTRIES: usize = 16;

/// Bytes of a key, as processes import it.
pub const KEY_BYTES: usize = 40;

/// The key of a region of this node. A rank that has its bytes has the rights of the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionKey {
    key: RKey,
    /// The node's rank in the job.
    rank: u32,
    bytes: usize,
}

impl RegionKey {
    /// The bytes that a process imports as `unisono::RKey`. No adapter accesses the memory.
    pub fn to_bytes(self) -> [u8; KEY_BYTES] {
        let (RemoteKey(key), mut bytes) = (self.key.key, [0; KEY_BYTES]);
        let words = [key, self.bytes as u64, 0, 0, u64::from(self.rank) << 32 | u64::from(self.key.index)];
        for (into, word) in bytes.chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

impl<'a> Messages<'a> {
    /// Lets the ranks that have the returned key access this memory, until it is revoked: by reads, writes, and atomic
    /// operations on words of 4 or 8 bytes; others are refused. `key`: 64 random bits that were never used before. If
    /// there are too many regions, returns the memory.
    ///
    /// # Errors
    /// The memory.
    pub fn expose(&mut self, memory: &'a mut [u8], rights: Rights, key: u64) -> Result<RegionKey, &'a mut [u8]> {
        self.remote.expose(memory, rights, key)
    }

    /// Memory that is exposed under this key.
    pub fn exposed(&mut self, key: &RegionKey) -> Option<&mut [u8]> {
        self.remote.exposed(key.key)
    }

    /// Ends the access of other ranks, and waits until no answer uses the memory. `None`: it was revoked before.
    pub fn revoke(&mut self, key: &RegionKey, idle: &mut impl Idle) -> Option<&'a mut [u8]> {
        if !self.remote.revoke(key.key) {
            return None;
        }
        loop {
            self.progress_or_idle(&mut CallerBuffer::Nothing, idle);
            if let Some(memory) = self.remote.take_revoked(key.key) {
                return Some(memory);
            }
        }
    }
}

/// Memory that other ranks access, under this key.
#[derive(Debug)]
pub(super) struct Exposed<'a> {
    key: RKey,
    memory: &'a mut [u8],
    /// Nobody uses it any more.
    is_revoked: bool,
}

/// An answer that waits for room in its ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    to: PeerId,
    head: RmaBytes,
    payload: Option<Span>,
    owner: Owner,
}

/// Memory of the records, for `RANKS` ranks.
#[derive(Debug)]
pub(super) struct AccessStorage<'a, const RANKS: usize> {
    regions: Vec<RegionRecord, REGIONS>,
    exposed: Vec<Option<Exposed<'a>>, REGIONS>,
    entries: Vec<Entry, ENTRIES>,
    targets: Vec<TargetState, RANKS>,
    requesters: Vec<RequesterState, RANKS>,
    answers: Vec<Answer, ENTRIES>,
}

/// An [`AccessStorage`]'s memory.
#[derive(Debug)]
pub(super) struct AccessSlices<'a> {
    pools: RmaPools<Records<'a>>,
    exposed: &'a mut [Option<Exposed<'a>>],
    answers: &'a mut VecView<Answer>,
}

impl<'a, const RANKS: usize> AccessStorage<'a, RANKS> {
    /// Unused storage.
    pub(super) const fn new() -> Self {
        Self {
            regions: Vec::new(),
            exposed: Vec::new(),
            entries: Vec::new(),
            targets: Vec::new(),
            requesters: Vec::new(),
            answers: Vec::new(),
        }
    }

    pub(super) fn slices(&'a mut self) -> AccessSlices<'a> {
        let pools = RmaPools {
            regions: fill(&mut self.regions, || RegionRecord::FREE),
            operations: <&mut [_]>::default(),
            targets: fill(&mut self.targets, || TargetState::FREE),
            entries: fill(&mut self.entries, || Entry::FREE),
            requesters: fill(&mut self.requesters, || RequesterState::FREE),
        };
        AccessSlices { pools, exposed: fill(&mut self.exposed, || None), answers: &mut self.answers }
    }
}

impl<'a> RmaStorage for Records<'a> {
    type Regions = &'a mut [RegionRecord];
    type Operations = &'a mut [OperationRecord];
    type Targets = &'a mut [TargetState];
    type Entries = &'a mut [Entry];
    type Requesters = &'a mut [RequesterState];
}

/// The memory that a node exposes, and the requests of other ranks.
#[derive(Debug)]
pub(super) struct RemoteAccess<'a> {
    rma: Rma<Records<'a>>,
    /// The memory of `Region::new(I, 0)` is the I-th.
    exposed: &'a mut [Option<Exposed<'a>>],
    answers: &'a mut VecView<Answer>,
    /// This node in the job.
    rank: u32,
}

impl<'a> RemoteAccess<'a> {
    pub(super) fn new(storage: AccessSlices<'a>, rings: &Rings<'_>, rank: u32) -> Self {
        let AccessSlices { pools, exposed, answers } = storage;
        let mut rma = Rma::new(pools, 1, Staging::default());
        for (rank, channel) in (0..).zip(rings.channels.iter()) {
            rma.connect(PeerId(rank), channel.outward.longest());
        }
        Self { rma, exposed, answers, rank }
    }

    fn expose(&mut self, memory: &'a mut [u8], rights: Rights, key: u64) -> Result<RegionKey, &'a mut [u8]> {
        let free = (0..).zip(self.exposed.iter_mut()).find(|(_, place)| place.is_none());
        let Some((number, place)) = free else { return Err(memory) };
        let (region, bytes) = (Region::new(number, 0), memory.len());
        match self.rma.regions.register(region, 0, bytes, rights, RemoteKey(key)) {
            Ok(key) => {
                *place = Some(Exposed { key, memory, is_revoked: false });
                Ok(RegionKey { key, rank: self.rank, bytes })
            }
            Err(_) => Err(memory),
        }
    }

    fn exposed(&mut self, key: RKey) -> Option<&mut [u8]> {
        self.exposed.iter_mut().flatten().find(|exposed| exposed.key == key).map(|exposed| &mut *exposed.memory)
    }

    /// Refuses later requests. False: there is no such region, or it is being revoked.
    fn revoke(&mut self, key: RKey) -> bool {
        self.rma.regions.revoke(key)
    }

    /// The memory of a region that nobody uses any more.
    fn take_revoked(&mut self, key: RKey) -> Option<&'a mut [u8]> {
        let is_free = |exposed: &mut Exposed<'_>| exposed.key == key && exposed.is_revoked;
        self.exposed.iter_mut().find_map(|place| place.take_if(is_free)).map(|exposed| exposed.memory)
    }

    /// Handles a message of remote memory access. `None`: it violates the protocol.
    pub(super) fn handle(&mut self, from: PeerId, message: SharedBytes<'_>) -> Option<()> {
        let (mut head, bytes) = ([0; MESSAGE_HEADER_ROOM], message.bytes());
        let shown = head.get_mut(..bytes.min(MESSAGE_HEADER_ROOM))?;
        message.part(0, shown.len())?.read(shown)?;
        match self.rma.handle(from, shown, u32::try_from(bytes).ok()?) {
            Arrival::Nothing => Some(()),
            Arrival::Place { to, start } => {
                let payload = message.part(start.into(), bytes.checked_sub(start.into())?)?;
                let into = memory_of(self.exposed, to)?;
                (into.len() == payload.bytes()).then(|| payload.read(into))?
            }
            Arrival::Violation => None,
        }
    }

    /// A rank is gone.
    pub(super) fn disconnect(&mut self, peer: PeerId) {
        self.rma.disconnect(peer);
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.answers.is_empty()
    }

    /// Executes and answers requests. Returns whether anything moved.
    pub(super) fn progress(&mut self, rings: &mut Rings<'_>) -> bool {
        let mut moved = self.send_answers(rings);
        while !self.answers.is_full()
            && let Some(action) = self.rma.poll_action(false)
        {
            moved = true;
            match action {
                Action::Send { to, head, payload, owner, .. } => {
                    // There is room.
                    let _ = self.answers.push(Answer { to, head, payload, owner });
                    self.send_answers(rings);
                }
                Action::Execute { entry, at, what } => {
                    let result = self.execute(at, what);
                    self.rma.handle_executed(entry, result);
                }
                // A node grants no memory, and places nothing: reads over rings fit into a message.
                Action::Place { owner, .. } => self.rma.handle_completed(owner, false),
                Action::Grant { .. } | Action::Idle => {}
            }
        }
        // Nobody asked for values beside data.
        while self.rma.poll_immediate().is_some() {}
        while let Some(key) = self.rma.regions.poll_revoked() {
            let of_key = self.exposed.iter_mut().flatten().find(|exposed| exposed.key == key);
            of_key.into_iter().for_each(|exposed| exposed.is_revoked = true);
        }
        moved
    }

    /// Puts answers into rings, in order for each rank. Returns whether any was put.
    fn send_answers(&mut self, rings: &mut Rings<'_>) -> bool {
        let Self { rma, exposed, answers, .. } = self;
        let before = answers.len();
        if before == 0 {
            return false;
        }
        // Ranks whose rings were full: their later answers wait, too.
        let mut full = Vec::<PeerId, ENTRIES>::new();
        answers.retain(|answer| {
            let put = if full.contains(&answer.to) { Err(TransportError::Full) } else { put(rings, exposed, answer) };
            if put == Err(TransportError::Full) {
                // There is room.
                let _ = full.push(answer.to);
                return true;
            }
            rma.handle_completed(answer.owner, put.is_ok());
            false
        });
        answers.len() != before
    }

    /// Other ranks access the memory by requests alone: this one executes them in turn.
    fn execute(&mut self, at: Span, what: Execution) -> Result<Option<u64>, Refusal> {
        let Execution::Atomic(operation) = what else { return Err(Refusal::Unsupported) };
        let word = memory_of(self.exposed, at).ok_or(Refusal::Revoked)?;
        let mut old = [0; 8];
        old.iter_mut().zip(word.iter()).for_each(|(into, byte)| *into = *byte);
        let old = u64::from_le_bytes(old);
        word.iter_mut().zip(operation.apply(old).to_le_bytes()).for_each(|(into, byte)| *into = byte);
        Ok(Some(old))
    }
}

/// The exposed memory that a checked request names.
fn memory_of<'e>(exposed: &'e mut [Option<Exposed<'_>>], span: Span) -> Option<&'e mut [u8]> {
    let of = exposed.get_mut(usize::try_from(span.region.index()).ok()?)?.as_mut()?;
    of.memory.get_mut(bytes_of(span)?)
}

fn put(rings: &mut Rings<'_>, exposed: &mut [Option<Exposed<'_>>], answer: &Answer) -> Result<(), TransportError> {
    let channel = rings.live(answer.to)?;
    let payload = match answer.payload {
        None => &[][..],
        Some(span) => memory_of(exposed, span).ok_or(TransportError::PeerGone)?,
    };
    let (head, what) = (answer.head.as_ref(), [REMOTE_ACCESS, 0]);
    let total = head.len().saturating_add(payload.len());
    let put = if total <= INLINE {
        let mut entry = [0; INLINE];
        entry.iter_mut().zip(head.iter().chain(payload)).for_each(|(into, byte)| *into = *byte);
        channel.outward.put(what, entry.get(..total).unwrap_or_default())
    } else {
        channel.outward.put_piece(what, u32::try_from(total).unwrap_or(u32::MAX), |piece| {
            let _ = piece.part(0, head.len()).and_then(|front| front.write(head));
            let _ = piece.part(head.len(), payload.len()).and_then(|rest| rest.write(payload));
        })
    };
    put.map_err(|error| rings.refuse(answer.to, error))
}
