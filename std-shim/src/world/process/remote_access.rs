//! Remote memory access through the endpoint: the core's machine, the memory that its operations use, and how they end.

use alloc::collections::VecDeque;
use core::cell::RefCell;
use std::collections::HashMap;

use unisono_core::device::Memory as _;
use unisono_core::endpoint::Verdict;
use unisono_core::ids::{CollectiveId, PeerId, PlacementId, RemoteKey};
use unisono_core::rma::header::{self, ReadPlacement, RmaBytes};
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::region::{Access, Refusal, RegionError};
use unisono_core::rma::{
    Action, Arrival, Execution, Owner, RKey, RemoteSpan, Rights, RmaCall, RmaCompletion, RmaError, RmaOperationId,
    RmaStartError, Staging,
};
use unisono_core::span::{Region, Span};
use unisono_core::wire::HEADER;
use unisono_shmem::am_header::REMOTE_ACCESS;
use unisono_shmem::ring::PutError;

use super::Process;
use super::bounce_buffers::BounceBuffer;
use super::native_access::NativeAccess;
use super::rma_machine::{ENTRIES, RmaMachine};
use super::transport::OperationOwner;
use crate::world::collective::engine::rdma_all_to_all::BlockWrite;
use crate::world::request::{Failure, Status};
use crate::world::window::memory::WindowMemory;
use unisono_bootstrap::Rank;
use unisono_memory::memory_regions::{Regions, RegisterError};

/// Bytes of a staging slot: of the longest accumulate.
pub(in crate::world) const SLOT: usize = 4096;
/// Messages that may wait for room in rings before no further one is made.
const OUTBOX: usize = 256;
/// Memory that an operation uses until it ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum CallMemory {
    Nothing,
    /// A copy in a bounce buffer.
    Cell(BounceBuffer),
    /// A copy, or an answer, in memory of its own; and a copy in a bounce buffer.
    Copy(Region, Option<BounceBuffer>),
    /// Memory of the caller, which waits for the end; and a copy.
    User(Region, Option<BounceBuffer>),
}

/// What peers' adapters need to know of exposed memory, as it is published: address, and rkey with a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct NativeMemory(pub(in crate::world) [u64; 2]);

impl NativeMemory {
    /// Not accessible to adapters.
    pub(in crate::world) const NONE: Self = Self([0; 2]);
}

#[cfg(feature = "verbs")]
impl NativeMemory {
    /// Distinguishes a key from none.
    const MARK: u64 = 1 << 32;

    pub(super) const fn new(address: u64, key: u32) -> Self {
        Self([address, Self::MARK | key as u64])
    }

    pub(super) const fn address(self) -> u64 {
        self.0[0]
    }

    pub(super) const fn key(self) -> u32 {
        self.0[1] as u32
    }
}

/// Who learns how an operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum CallEnd {
    /// Who asks for its request.
    Request,
    /// The next flush of its target.
    Flush,
    /// An alltoall by remote writes.
    Block(BlockWrite),
    /// Nobody.
    Nobody,
}

impl CallEnd {
    /// Whether the request is a write of a window by a put. Those to one target are executed in the order of the calls,
    /// by adapter and target, and a flush confirms them.
    const fn is_of_put(self, request: RmaRequest) -> bool {
        matches!((request, self), (RmaRequest::Write { .. }, Self::Flush | Self::Request))
    }
}

/// An operation that has not ended.
#[derive(Clone, Copy, Debug)]
struct CallRecord {
    window: u32,
    target: u32,
    memory: CallMemory,
    end: CallEnd,
    is_flush: bool,
}

/// Operations of a window on one target since the last flush.
#[derive(Debug, Default)]
struct TargetUse {
    pending: u32,
    /// Writes whose placement no flush has confirmed.
    has_written: bool,
    /// Some of them were requested of the target.
    has_requested: bool,
    /// The regions that they name.
    regions: Vec<u16>,
    /// Flushes that have not ended.
    flushes: u32,
    error: Option<RmaError>,
    /// The window is gone.
    is_forgotten: bool,
}

impl TargetUse {
    /// Whether nothing is under way.
    const fn is_idle(&self) -> bool {
        self.pending == 0 && self.flushes == 0
    }
}

/// Why an operation was not started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum StartError {
    /// Progress makes room.
    Full,
    Failed(Failure),
}

/// How an operation ended.
pub(in crate::world) type CallResult = Result<Result<u64, RmaError>, Failure>;

/// What a process counts of its remote memory access.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::world) struct RemoteAccessCounters {
    /// Blocks of alltoalls that were written to others.
    pub(in crate::world) blocks_written: u64,
    /// Messages of operations that their targets refused.
    pub(in crate::world) refused: u64,
}

/// Remote memory access of a process. The machine is made when it is first used.
#[derive(Debug, Default)]
pub(in crate::world) struct RemoteAccess {
    /// Ranks of the job.
    ranks: u32,
    machine: Option<Box<RmaMachine>>,
    /// By rank: bytes of the longest message to it; 0: not reached through the endpoint.
    longest_messages: Vec<u32>,
    grants: HashMap<u32, RmaOperationId>,
    calls: HashMap<u32, CallRecord>,
    results: HashMap<u32, Result<u64, RmaError>>,
    targets: HashMap<(u32, u32), TargetUse>,
    /// Registered memory of regions, by key.
    exposed: HashMap<RKey, Region>,
    violators: Vec<PeerId>,
    /// Messages that wait for room in the ring of a rank of this node.
    outbox: VecDeque<(PeerId, RmaBytes, Option<Span>, Owner)>,
    /// By window: ranks of which one may hold a lock that this rank waits for.
    lock_holders: Vec<(u32, Vec<PeerId>)>,
    /// Collectives that found the machine full.
    waiting: Vec<u32>,
    /// Messages arrived since the last round.
    has_arrived: bool,
    windows: u32,
    pub(in crate::world) counters: RemoteAccessCounters,
    /// What the adapter executes by itself.
    pub(in crate::world) native: NativeAccess,
}

impl RemoteAccess {
    pub(super) fn new(ranks: u32) -> Self {
        Self { ranks, ..Self::default() }
    }

    /// Handles a message of the endpoint.
    pub(super) fn handle(&mut self, regions: &RefCell<Regions>, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        self.has_arrived = true;
        // A request may come before a region was registered here: with the key of another rank, or of a process that this
        // one has replaced.
        let room = self.longest_message(from);
        let arrival = match self.open(&mut regions.borrow_mut()) {
            Ok(machine) => machine.handle(from, room, head, bytes),
            Err(_) => Arrival::Violation,
        };
        match arrival {
            Arrival::Nothing => Verdict::Release,
            Arrival::Place { to, start } => Verdict::Place { to, start },
            Arrival::Violation => {
                self.violators.push(from);
                Verdict::Release
            }
        }
    }

    /// Whether other ranks may ask for the use of memory of this rank.
    pub(in crate::world) fn is_exposed(&self) -> bool {
        !self.exposed.is_empty()
    }

    /// Whether a round has something to do that others may wait for.
    pub(super) fn has_work(&self) -> bool {
        self.has_arrived || !self.outbox.is_empty()
    }

    /// A peer can be sent messages of this length.
    pub(super) fn connect(&mut self, peer: PeerId, mtu: u32) {
        let i = peer.0 as usize;
        if self.longest_messages.len() <= i {
            self.longest_messages.resize(i + 1, 0);
        }
        let room = mtu.saturating_sub(HEADER as u32);
        if let Some(place) = self.longest_messages.get_mut(i) {
            *place = room;
        }
        if let Some(machine) = &mut self.machine {
            machine.connect(peer, room);
        }
    }

    /// A peer failed or finished.
    pub(super) fn disconnect(&mut self, peer: PeerId) {
        if let Some(room) = self.longest_messages.get_mut(peer.0 as usize) {
            *room = 0;
        }
        if let Some(machine) = &mut self.machine {
            machine.disconnect(peer);
            self.has_arrived = true;
        }
        self.native.disconnect(peer);
    }

    /// An operation was requested of its target, after it had been started.
    pub(super) fn record_requested(&mut self, call: &RmaCall) {
        if let Some(CallRecord { window, target, end, .. }) = self.calls.get(&call.user).copied()
            && end.is_of_put(call.request)
        {
            let used = self.target_use(window, target);
            (used.has_written, used.has_requested) = (true, true);
        }
        self.has_arrived = true;
    }

    /// Whether writes of a call have not ended.
    pub(super) fn has_block_writes(&self, collective: u32, id: CollectiveId) -> bool {
        let is_its = |end| matches!(end, CallEnd::Block(write) if (write.collective, write.id) == (collective, id));
        self.calls.values().any(|call| is_its(call.end))
    }

    /// The collective is advanced again once an operation has ended.
    pub(super) fn wait_for_room(&mut self, collective: u32) {
        self.waiting.push(collective);
    }

    /// A number for a window of this process.
    pub(in crate::world) const fn next_window(&mut self) -> u32 {
        self.windows = self.windows.wrapping_add(1);
        self.windows
    }

    /// Ranks that this one waits for; itself among them, where it waits for a lock.
    pub(super) fn awaited(&self) -> impl Iterator<Item = PeerId> {
        let targets = self.calls.values().map(|call| PeerId(call.target));
        targets.chain(self.lock_holders.iter().flat_map(|(_, holders)| holders).copied())
    }

    /// This rank waits for a lock that one of a window's members may hold.
    pub(in crate::world) fn begin_lock_wait(&mut self, window: u32, holders: impl Iterator<Item = Rank>) {
        self.lock_holders.push((window, holders.map(PeerId::from).collect()));
    }

    /// Such a wait has ended.
    pub(in crate::world) fn end_lock_wait(&mut self, window: u32) {
        if let Some(i) = self.lock_holders.iter().position(|(of, _)| *of == window) {
            self.lock_holders.swap_remove(i);
        }
    }

    /// The machine, made now if need be.
    fn open(&mut self, regions: &mut Regions) -> Result<&mut RmaMachine, RegisterError> {
        if self.machine.is_none() {
            let staging = Staging { region: regions.allocate(ENTRIES * SLOT)?, slot: SLOT as u32 };
            self.machine = Some(Box::new(RmaMachine::new(self.ranks, staging)));
        }
        self.machine.as_deref_mut().ok_or(RegisterError::NoMemory)
    }

    /// Bytes of the longest message to a rank; 0: it is not reached through the endpoint.
    fn longest_message(&self, to: PeerId) -> u32 {
        self.longest_messages.get(to.0 as usize).copied().unwrap_or(0)
    }

    /// A flush of a window reports that writes to this region of a target were refused after they had ended, or to several
    /// regions: the flushes of the windows that wrote there return it.
    fn record_refused(&mut self, flushed: u32, target: u32, region: Option<u16>, error: RmaError) {
        for ((window, to), used) in &mut self.targets {
            let has_written = used.has_written || used.flushes > 0 || *window == flushed;
            if *to == target && region.map_or(has_written, |region| used.regions.contains(&region)) {
                used.error.get_or_insert(error);
            }
        }
    }

    fn target_use(&mut self, window: u32, target: u32) -> &mut TargetUse {
        self.targets.entry((window, target)).or_default()
    }

    /// An operation of a window, or a flush, has ended.
    fn end_use(&mut self, window: u32, target: u32, end: impl FnOnce(&mut TargetUse)) {
        let used = self.target_use(window, target);
        end(used);
        if used.is_forgotten && used.is_idle() {
            self.targets.remove(&(window, target));
        }
    }

    /// The targets that this window has used since their last flush.
    pub(in crate::world) fn used_targets(&self, window: u32) -> Vec<Rank> {
        let used = self
            .targets
            .iter()
            .filter(|(key, used)| key.0 == window && (used.pending > 0 || used.has_written || used.error.is_some()));
        used.map(|(key, _)| Rank(key.1)).collect()
    }

    /// Forgets a window, whose operations have ended.
    pub(in crate::world) fn forget_window(&mut self, window: u32) {
        self.targets.retain(|key, used| key.0 != window || !used.is_idle());
        self.targets.iter_mut().filter(|(key, _)| key.0 == window).for_each(|(_, used)| used.is_forgotten = true);
    }
}

impl Process {
    /// The machine, made now if need be.
    pub(super) fn remote_machine(&mut self) -> Result<&mut RmaMachine, RegisterError> {
        self.remote_access.open(self.transport.regions.get_mut())
    }

    /// Lets peers that know the returned key use memory of this process.
    ///
    /// # Safety
    /// The memory stays mapped, and nobody has a reference to it, until [`conceal`](Self::conceal) has returned and
    /// [`is_concealed`](Self::is_concealed) returns true.
    pub(in crate::world) unsafe fn expose(
        &mut self,
        memory: WindowMemory,
        rights: Rights,
    ) -> Result<RKey, RegisterError> {
        let (start, bytes) = (memory.start(), memory.bytes());
        // SAFETY: the caller promises that the memory stays mapped and unreferenced until the region is revoked.
        let region = unsafe { self.transport.regions.get_mut().register(start, bytes) }?;
        let key = RemoteKey(self.transport.keys.next());
        let registered = match self.remote_machine() {
            Ok(machine) => machine.rma.regions.register(region, 0, bytes, rights, key).map_err(|error| match error {
                RegionError::Full => RegisterError::Full,
                RegionError::TooLong => RegisterError::TooLarge,
            }),
            Err(error) => Err(error),
        };
        match registered {
            Ok(key) => {
                self.remote_access.exposed.insert(key, region);
                // An adapter checks no other rights.
                if rights.contains(Rights::READ | Rights::WRITE) && !rights.contains(Rights::ONCE) {
                    // SAFETY: the caller promises that the memory stays mapped and unreferenced until it is concealed.
                    unsafe { self.remote_access.native.expose(key, memory) };
                }
                Ok(key)
            }
            Err(error) => {
                self.unregister(region);
                Err(error)
            }
        }
    }

    /// Ends the exposure of a region; progress completes it.
    pub(in crate::world) fn conceal(&mut self, key: RKey) {
        self.remote_access.native.conceal(key);
        if let Some(machine) = &mut self.remote_access.machine {
            machine.rma.regions.revoke(key);
            self.end_revocations();
        }
    }

    /// Memory of this process under a key that it has given out, for the holder of the lock.
    pub(in crate::world) fn own_region(&mut self, access: &Access) -> Result<WindowMemory, Refusal> {
        let machine = self.remote_access.machine.as_mut().ok_or(Refusal::BadKey)?;
        let span = machine.rma.regions.check(access)?;
        machine.rma.regions.use_once(access.at.region.index);
        self.memory_of(span)
    }

    fn memory_of(&mut self, span: Span) -> Result<WindowMemory, Refusal> {
        let address = self.transport.regions.get_mut().address(span).ok_or(Refusal::BadKey)?;
        let start = address.adjacent().ok_or(Refusal::BadKey)?;
        // SAFETY: a live region: exposed memory, to which nobody has a reference, or a staging slot of the process.
        Ok(unsafe { WindowMemory::new(start, address.bytes()) })
    }

    /// Whether nobody uses the region's memory any more.
    pub(in crate::world) fn is_concealed(&self, key: RKey) -> bool {
        !self.remote_access.exposed.contains_key(&key)
    }

    fn end_revocations(&mut self) -> bool {
        let mut moved = false;
        while let Some(key) = self.remote_access.machine.as_mut().and_then(|machine| machine.rma.regions.poll_revoked())
        {
            moved = true;
            // It may have ended by its use.
            self.remote_access.native.conceal(key);
            if let Some(region) = self.remote_access.exposed.remove(&key) {
                self.unregister(region);
            }
            self.requests.record_finished();
        }
        moved
    }

    /// Bytes of payload that fit in one request to this rank, and in an answer; in a request about blocks, if it is
    /// `strided`.
    pub(in crate::world) fn remote_room(&self, to: Rank, strided: bool) -> usize {
        let room = self.remote_access.longest_message(to.into()) as usize;
        room.saturating_sub(if strided { header::BLOCKS } else { header::WRITE }).min(SLOT)
    }

    /// Starts an operation of a window on a rank that is reached through the endpoint. Returns its request. After an
    /// error the memory is released.
    pub(in crate::world) fn start_remote(
        &mut self,
        window: u32,
        to: Rank,
        at: RemoteSpan,
        request: RmaRequest,
        memory: CallMemory,
        end: CallEnd,
    ) -> Result<u32, StartError> {
        let is_flush = request == RmaRequest::Flush;
        if let Some(failure) = self.aborted {
            self.release_call_memory(memory);
            return Err(StartError::Failed(failure));
        }
        let user = self.requests.start();
        let call = RmaCall { to: to.into(), at, request, fence: false, user };
        let is_put = end.is_of_put(request);
        let follows_requests = is_put && self.remote_access.target_use(window, to.0).has_requested;
        let is_native = !follows_requests && self.post_natively(self.transport.now, &call);
        let requested = if is_native {
            Ok(())
        } else if is_put && self.remote_access.native.is_writing(call.to) {
            Err(RmaStartError::Full)
        } else {
            self.request_of_target(&call)
        };
        if let Err(error) = requested {
            self.requests.release(user);
            self.release_call_memory(memory);
            return Err(match error {
                RmaStartError::Full => StartError::Full,
                RmaStartError::UnknownPeer => {
                    StartError::Failed(self.failure_of(to).unwrap_or(Failure::PeerFailed(to)))
                }
                RmaStartError::TooLong | RmaStartError::BadStride => StartError::Failed(Failure::ResourceExhausted),
            });
        }
        self.remote_access.calls.insert(user, CallRecord { window, target: to.0, memory, end, is_flush });
        if is_put {
            let used = self.remote_access.target_use(window, to.0);
            if !used.regions.contains(&at.region.digest()) {
                used.regions.push(at.region.digest());
            }
            // An adapter may yet leave it to a request.
            used.has_written |= end == CallEnd::Request;
        }
        if is_flush {
            let used = self.remote_access.target_use(window, to.0);
            // It confirms the writes up to here.
            (used.has_written, used.has_requested) = (false, false);
            used.flushes += 1;
        }
        if end == CallEnd::Flush {
            self.remote_access.target_use(window, to.0).pending += 1;
        }
        if !is_native {
            self.remote_access.record_requested(&call);
        }
        Ok(user)
    }

    /// Requests an operation of its target.
    pub(super) fn request_of_target(&mut self, call: &RmaCall) -> Result<(), RmaStartError> {
        let room = self.remote_access.longest_message(call.to);
        match self.remote_machine() {
            Ok(machine) => machine.start(call, room).map(|_| ()),
            Err(_) => Err(RmaStartError::TooLong),
        }
    }

    /// How an operation has ended, if it has. If the job was aborted meanwhile, its memory is not used any more.
    pub(in crate::world) fn take_remote(&mut self, request: u32) -> Option<CallResult> {
        if let Some(result) = self.remote_access.results.remove(&request) {
            self.requests.release(request);
            return Some(Ok(result));
        }
        let Some(Err(failure)) = self.requests.result(request) else { return None };
        // The machine may still hold the operation: its number is not given to another one, and its memory not used.
        if let Some(call) = self.remote_access.calls.get_mut(&request)
            && let CallMemory::User(region, _) = call.memory
        {
            call.memory = CallMemory::Nothing;
            self.unregister(region);
        }
        Some(Err(failure))
    }

    /// Whether a flush of this target has to be sent, and whether operations on it, or flushes, are pending.
    pub(in crate::world) fn flush_state(&self, window: u32, to: Rank) -> (bool, bool) {
        let used = self.remote_access.targets.get(&(window, to.0));
        let is_pending = |used: &TargetUse| !used.is_idle() && self.aborted.is_none();
        used.map_or((false, false), |used| (used.has_written, is_pending(used)))
    }

    /// Takes the first error of the operations on this target since the last flush.
    pub(in crate::world) fn take_flush_error(&mut self, window: u32, to: Rank) -> Option<RmaError> {
        let used = self.remote_access.targets.get_mut(&(window, to.0))?;
        let error = used.error.take();
        if used.is_idle() && !used.has_written {
            self.remote_access.targets.remove(&(window, to.0));
        }
        error
    }

    /// A copy of bytes that an operation sends: its memory and its span.
    pub(in crate::world) fn copy_for_remote(&mut self, bytes: &[u8]) -> Option<(CallMemory, Span)> {
        let (memory, span) = match self.transport.bounce_buffers.allocate(bytes.len()) {
            Some((buffer, span)) => (CallMemory::Cell(buffer), span),
            None => {
                let region = self.transport.regions.get_mut().allocate(bytes.len()).ok()?;
                let bytes = u32::try_from(bytes.len()).ok()?;
                (CallMemory::Copy(region, None), Span { region, offset: 0, bytes })
            }
        };
        let to = self.transport.regions.get_mut().address(span)?;
        // SAFETY: the buffer was allocated just now, and nobody else uses it.
        unsafe { to.write(bytes) };
        Some((memory, span))
    }

    /// Allocates memory for the answer to a read that the caller does not wait for.
    pub(in crate::world) fn allocate_for_remote(&mut self, bytes: u32) -> Option<Span> {
        let region = self.transport.regions.get_mut().allocate(bytes as usize).ok()?;
        Some(Span { region, offset: 0, bytes })
    }

    /// Copies what a read has left in memory of [`allocate_for_remote`](Self::allocate_for_remote), and frees it.
    pub(in crate::world) fn take_from_remote(&mut self, from: Span, to: &mut [u8]) {
        let regions = self.transport.regions.get_mut();
        if let Some(address) = regions.address(from) {
            // SAFETY: the operation has ended, so that nobody writes these bytes.
            unsafe { address.read(to) };
        }
        // SAFETY: the operation has ended: no posting or copy uses the memory.
        unsafe { regions.free(from.region) };
    }

    /// Frees the memory of an operation that was not started.
    pub(in crate::world) fn release_call_memory(&mut self, memory: CallMemory) {
        match memory {
            CallMemory::Nothing => {}
            CallMemory::Cell(buffer) => self.transport.bounce_buffers.release(buffer),
            CallMemory::Copy(region, buffer) => {
                // SAFETY: the operation has ended, or was not started: no posting or copy uses the memory.
                unsafe { self.transport.regions.get_mut().free(region) };
                buffer.into_iter().for_each(|buffer| self.transport.bounce_buffers.release(buffer));
            }
            CallMemory::User(region, buffer) => {
                self.unregister(region);
                buffer.into_iter().for_each(|buffer| self.transport.bounce_buffers.release(buffer));
            }
        }
    }

    /// Registers memory of a caller that waits for the operation.
    ///
    /// # Safety
    /// The bytes stay valid, and nobody else uses them, until the operation has ended or
    /// [`take_remote`](Self::take_remote) has returned a failure.
    pub(in crate::world) unsafe fn register_for_remote(&mut self, into: &mut [u8]) -> Option<Span> {
        let bytes = u32::try_from(into.len()).ok()?;
        // SAFETY: the caller promises that the memory stays valid and nobody else's until the region is revoked.
        let region =
            unsafe { self.transport.regions.get_mut().register(core::ptr::NonNull::from(into).cast(), bytes as usize) };
        Some(Span { region: region.ok()?, offset: 0, bytes })
    }

    /// Carries out what the machine asks for. Returns whether anything moved.
    pub(super) fn progress_remote_access(&mut self, now: u64) -> bool {
        if self.remote_access.machine.is_none() && self.remote_access.violators.is_empty() {
            return false;
        }
        self.remote_access.has_arrived = false;
        let mut moved = false;
        for peer in core::mem::take(&mut self.remote_access.violators) {
            tracing::error!(rank = peer.0, "protocol violation by a peer");
            if self.transport.is_shm_peer(peer) {
                self.protocol_failure(peer);
            } else {
                self.transport.endpoint.fail(now, peer);
            }
            moved = true;
        }
        moved |= self.empty_remote_outbox();
        while self.transport.endpoint.has_room()
            && self.remote_access.outbox.len() < OUTBOX
            && let can_grant = self.transport.endpoint.can_grant()
            && let Some(action) = self.remote_access.machine.as_mut().and_then(|machine| machine.poll_action(can_grant))
        {
            moved = true;
            self.carry_out_remote(now, action);
        }
        while let Some(ended) = self.remote_access.machine.as_mut().and_then(|machine| machine.poll_completion()) {
            moved = true;
            self.end_remote(ended);
        }
        while let Some(value) = self.remote_access.machine.as_mut().and_then(|machine| machine.poll_immediate()) {
            moved = true;
            self.handle_block(value);
        }
        moved | self.end_revocations()
    }

    fn carry_out_remote(&mut self, now: u64, action: Action) {
        let (sent, owner) = match action {
            Action::Send { to, head, payload, owner, .. } if self.transport.is_shm_peer(to) => {
                self.remote_access.outbox.push_back((to, head, payload, owner));
                self.empty_remote_outbox();
                return;
            }
            Action::Send { to, head, payload, owner, solicited } => {
                let endpoint = &mut self.transport.endpoint;
                let sent = endpoint.send(now, to, head.as_ref(), payload);
                if let (Ok(operation), true) = (sent, solicited) {
                    endpoint.solicit(operation);
                }
                (sent, owner)
            }
            Action::Place { to, placement, key, from, owner } => {
                (self.transport.endpoint.place(now, to, placement, key, from), owner)
            }
            Action::Grant { from, into, operation } => {
                let key = RemoteKey(self.transport.keys.next());
                let granted: Option<PlacementId> = self.transport.endpoint.grant(from, into, key).ok();
                if let Some(placement) = granted {
                    self.remote_access.grants.insert(placement.0, operation);
                }
                if let Some(machine) = &mut self.remote_access.machine {
                    machine.rma.handle_granted(operation, granted.map(|placement| ReadPlacement { placement, key }));
                }
                return;
            }
            Action::Execute { entry, at, what } => {
                let result = self.execute_remote(at, what);
                if let Some(machine) = &mut self.remote_access.machine {
                    machine.rma.handle_executed(entry, result);
                }
                return;
            }
            Action::Idle => return,
        };
        match sent {
            Ok(operation) => {
                self.transport.record_operation(operation, OperationOwner::RemoteAccess(owner));
                self.transport.has_posted = true;
            }
            Err(_) => self.complete_remote(owner, false),
        }
    }

    /// Puts queued messages into the rings of their ranks, in order for each. Returns whether any was put.
    fn empty_remote_outbox(&mut self) -> bool {
        let mut full: Vec<PeerId> = Vec::new();
        let before = self.remote_access.outbox.len();
        for _ in 0..before {
            let Some((to, head, payload, owner)) = self.remote_access.outbox.pop_front() else { break };
            let is_put = if full.contains(&to) { Err(PutError::Full) } else { self.put_remote(to, &head, payload) };
            match is_put {
                Ok(delivered) => self.complete_remote(owner, delivered),
                Err(PutError::Full) => {
                    full.push(to);
                    self.remote_access.outbox.push_back((to, head, payload, owner));
                }
                Err(_) => {
                    self.complete_remote(owner, false);
                    self.protocol_failure(to);
                }
            }
        }
        self.remote_access.outbox.len() != before
    }

    /// Puts a message into the ring of a rank of this node; `false`: the rank is gone.
    fn put_remote(&mut self, to: PeerId, head: &RmaBytes, payload: Option<Span>) -> Result<bool, PutError> {
        let Some(peer) = self.transport.shm.as_mut().and_then(|shm| shm.live_peer(to)) else { return Ok(false) };
        if !peer.is_queue_empty() {
            return Err(PutError::Full);
        }
        // A region that was revoked meanwhile is not sent, and its operation has ended.
        let from = payload.map(|span| self.transport.regions.get_mut().address(span));
        let Some(from) = from.map_or(Some(None), |address| address.map(Some)) else { return Ok(false) };
        let bytes = payload.map_or(0, |span| span.bytes);
        peer.put_headed([REMOTE_ACCESS, 0], head.as_ref(), bytes, |put| from.into_iter().for_each(put))?;
        Ok(true)
    }

    /// Bytes that one read returns from this rank.
    pub(in crate::world) fn read_limit(&self, from: Rank) -> usize {
        if !self.transport.is_shm_peer(from.into()) {
            return 1 << 30;
        }
        let room = self.remote_access.longest_message(from.into()) as usize;
        room.saturating_sub(header::ANSWER).max(1)
    }

    /// The endpoint has completed a message or placement of the machine.
    pub(super) fn complete_remote(&mut self, owner: Owner, delivered: bool) {
        if let Some(machine) = &mut self.remote_access.machine {
            machine.rma.handle_completed(owner, delivered);
            self.remote_access.has_arrived = true;
        }
    }

    /// A placement was filled. Returns false if it is no answer to a read.
    pub(super) fn handle_remote_placed(&mut self, placement: PlacementId, bytes: u32) -> bool {
        let Some(operation) = self.remote_access.grants.remove(&placement.0) else { return false };
        if let Some(machine) = &mut self.remote_access.machine {
            machine.rma.handle_placed(operation, bytes);
        }
        true
    }

    /// Executes a request of a peer on memory of this process.
    fn execute_remote(&mut self, at: Span, what: Execution) -> Result<Option<u64>, Refusal> {
        let target = self.memory_of(at)?;
        match what {
            Execution::Atomic(operation) => target.atomic(0, operation).map(Some),
            Execution::Accumulate { from, update, fetch, stride } => {
                let staged = self.memory_of(from)?;
                match stride {
                    None => target.combine(0, update, staged, fetch)?,
                    Some(stride) => target.combine_strided(stride, update, staged, fetch)?,
                }
                Ok(None)
            }
            Execution::Gather { into, stride } => target.gather(stride, self.memory_of(into)?).map(|()| None),
        }
    }

    pub(super) fn end_remote(&mut self, ended: RmaCompletion) {
        let RmaCompletion { user, peer, mut result, withdraw, .. } = ended;
        if let Some(placement) = withdraw {
            self.transport.endpoint.withdraw(placement);
            self.remote_access.grants.remove(&placement.0);
        }
        for collective in core::mem::take(&mut self.remote_access.waiting) {
            self.collectives.enqueue(collective);
        }
        let Some(CallRecord { window, target, memory, end, is_flush }) = self.remote_access.calls.remove(&user) else {
            return;
        };
        self.release_call_memory(memory);
        self.remote_access.counters.refused += match result {
            Err(RmaError::Refused(_)) => 1,
            Err(RmaError::RefusedEarlier { count, .. }) => count.into(),
            _ => 0,
        };
        if let Err(error @ RmaError::RefusedEarlier { region, .. }) = result {
            // The writes may be those of another window.
            self.remote_access.record_refused(window, target, region, error);
            result = Ok(0);
        }
        if is_flush {
            self.remote_access.end_use(window, target, |used| used.flushes = used.flushes.saturating_sub(1));
        }
        match end {
            CallEnd::Request => {
                if self.requests.result(user).is_none() {
                    self.remote_access.results.insert(user, result);
                }
                self.requests.finish(user, Ok(Status::sent(peer)));
                if result.is_err() {
                    self.requests.record_failed();
                }
            }
            CallEnd::Nobody => self.requests.finish(user, Ok(Status::sent(peer))),
            CallEnd::Flush => {
                self.remote_access.end_use(window, target, |used| {
                    used.pending = used.pending.saturating_sub(1);
                    used.error = used.error.or(result.err());
                });
                self.requests.finish(user, Ok(Status::sent(peer)));
                self.requests.release(user);
            }
            CallEnd::Block(write) => {
                self.requests.finish(user, Ok(Status::sent(peer)));
                self.requests.release(user);
                self.end_block_write(write, Rank(target), result);
            }
        }
    }

    /// Why a rank takes no more part.
    pub(in crate::world) fn why_gone(&self, rank: Rank) -> Option<Failure> {
        if rank == self.rank { None } else { self.failure_of(rank) }
    }

    /// Nobody asks how an operation ends.
    pub(in crate::world) fn abandon_remote(&mut self, request: u32) {
        if let Some(call) = self.remote_access.calls.get_mut(&request) {
            call.end = CallEnd::Nobody;
        }
        self.remote_access.results.remove(&request);
        self.requests.abandon(request);
    }

    /// As [`abandon_remote`](Self::abandon_remote), of a read into this memory of the process.
    pub(in crate::world) fn abandon_remote_read(&mut self, request: u32, into: Region) {
        match self.remote_access.calls.get_mut(&request) {
            Some(call) => {
                let buffer = if let CallMemory::Cell(buffer) = call.memory { Some(buffer) } else { None };
                call.memory = CallMemory::Copy(into, buffer);
            }
            None => self.release_call_memory(CallMemory::Copy(into, None)),
        }
        self.abandon_remote(request);
    }
}
