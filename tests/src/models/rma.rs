//! Model of remote memory access between two ranks: the shipped machine of each, over channels that are reliable and
//! ordered, or dead.
//!
//! Users start the operations of their scripts at any time; an endpoint holds at most `room` messages until it reports
//! them as completed. Payload is read when it arrives, as an adapter may do, and memory that is free again is
//! overwritten at once, so that a late read or write of it is caught. Long reads are answered by placements, which
//! arrive at any time.

use alloc::collections::VecDeque;

use unisono_core::ids::{PeerId, PlacementId, RemoteKey};
use unisono_core::rma::atomic::{AtomicKind, AtomicOperation, Width};
use unisono_core::rma::header::{ElementUpdate, ReadPlacement, RmaBytes};
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::region::Refusal;
use unisono_core::rma::stride::Stride;
use unisono_core::rma::{
    self, Action as Request, Arrival, Entry, Execution, OperationRecord, Owner, RKey, RegionRecord, RemoteSpan,
    RequesterState, Rights, Rma, RmaCall, RmaError, RmaPools, RmaUsage, Staging, TargetState,
};
use unisono_core::span::{Region, Span};

use crate::model_checker::Model;

/// Bytes of a window: a counter, and an area that is written and read.
const WINDOW: usize = 72;
const COUNTER: usize = 8;
const AREA: u32 = 64;
/// Bytes behind the window that nobody may touch.
const GUARD: usize = 8;
/// Initial content, content of memory that is its owner's again, and of the guard.
const INITIAL: u8 = 7;
const FREED: u8 = 0xee;
/// Regions of the host's table: the window, staging slots, then the buffer of each operation.
const HOST_WINDOW: u32 = 0;
const HOST_STAGING: u32 = 1;
const HOST_BUFFERS: u32 = 2;
/// The longest message: a write has 36 bytes of payload.
const ROOM: u32 = 64;
const ENTRIES: usize = 2;

/// An operation of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Writes the area in two messages.
    Write,
    /// As [`Write`](Self::Write), with an immediate.
    WriteImmediate,
    /// Writes eight bytes, the last one behind the window.
    WriteOutside,
    /// Writes 64 bytes in two messages, the last byte behind the window.
    WriteLongOutside,
    /// Writes 8 bytes of the area under a wrong key.
    Forge,
    /// As [`WriteImmediate`](Self::WriteImmediate), under a wrong key.
    ForgeImmediate,
    /// Writes the first 8 bytes of the area.
    WriteShort,
    /// Ends when all earlier writes are in place.
    Flush,
    /// Adds to a field of the counter that is this operation's own.
    Add,
    /// The same, as an accumulate that returns the old value.
    Accumulate,
    /// The same, by a masked compare-and-swap whose comparison cannot fail.
    MaskedSwap,
    /// Reads 8 bytes of the area in one message.
    ReadShort,
    /// Reads the area by placement.
    ReadLong,
    /// As [`Accumulate`](Self::Accumulate), in two blocks.
    AccumulateBlocks,
    /// Reads the first and the last 4 bytes of the area.
    ReadBlocks,
    /// Reads two blocks, the last byte behind the window.
    ReadBlocksOutside,
}

impl Step {
    /// Whether it adds to the counter.
    const fn adds(self) -> bool {
        matches!(self, Self::Add | Self::Accumulate | Self::AccumulateBlocks | Self::MaskedSwap)
    }

    /// Whether it is refused, and has no answer of its own: a later flush reports it.
    const fn is_refused_unanswered(self) -> bool {
        matches!(self, Self::Forge | Self::WriteOutside | Self::WriteLongOutside)
    }
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct RemoteAccess {
    /// What each rank does.
    pub scripts: [&'static [Step]; 2],
    /// Most messages of a rank that its endpoint has not completed.
    pub room: usize,
    /// Entries of each target.
    pub entries: usize,
    /// Most unanswered requests.
    pub outstanding: u8,
    /// What else happens.
    pub events: Events,
}

/// Events that happen once, at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Events {
    /// This rank revokes its region.
    pub revokes: Option<usize>,
    /// Rank 1 fails and is replaced.
    pub restarts: bool,
    /// The region of rank 1 may be used once.
    pub once: bool,
}

impl Events {
    /// None.
    pub const NONE: Self = Self { revokes: None, restarts: false, once: false };
}

/// Records in arrays.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Boxes;

impl rma::RmaStorage for Boxes {
    type Regions = [RegionRecord; 1];
    type Operations = Box<[OperationRecord]>;
    type Targets = [TargetState; 2];
    type Entries = Box<[Entry]>;
    type Requesters = [RequesterState; 2];
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Message {
    head: RmaBytes,
    payload: Option<Span>,
    owner: Owner,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Placement {
    to: PlacementId,
    key: RemoteKey,
    from: Span,
    owner: Owner,
}

/// Of the window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Revocation {
    /// Its owner does not revoke it.
    Never,
    Possible,
    /// Revoked, but still in use by accepted reads and updates.
    UnderWay,
    /// The machine has reported that nobody uses it any more.
    Complete,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Side {
    rma: Rma<Boxes>,
    window: Vec<u8>,
    staging: Vec<[u8; 8]>,
    region: RKey,
    revocation: Revocation,
    incarnation: u8,
    started: usize,
    /// Of each operation that was started, how it ended.
    ended: Vec<Option<Result<u64, RmaError>>>,
    /// What was read, by operation.
    buffers: Vec<Vec<u8>>,
    grants: Vec<(PlacementId, RemoteKey, rma::RmaOperationId, Span)>,
    grants_made: u32,
    /// To the other rank.
    channel: VecDeque<Message>,
    placements: Vec<Placement>,
    /// Delivered, but not reported as completed.
    delivered: VecDeque<Owner>,
    /// To the failed incarnation of the other rank: the device reads their payloads until they are reported.
    lost: VecDeque<(Option<Span>, Owner)>,
}

/// Both ranks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    sides: [Side; 2],
    may_restart: bool,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A user starts the next operation.
    Start(usize),
    /// A rank carries out its machine's next request.
    Poll(usize),
    /// The first message of a rank arrives.
    Deliver(usize),
    /// A placement of a rank arrives.
    Place(usize, usize),
    /// A rank's endpoint reports the oldest delivered message as completed.
    Complete(usize),
    /// A rank's endpoint reports the oldest lost message as failed.
    Fail(usize),
    /// A rank revokes its region.
    Revoke(usize),
    /// Rank 1 fails, is replaced, and rank 0 learns of it.
    Restart,
}

impl RemoteAccess {
    fn side(&self, rank: usize, incarnation: u8) -> Side {
        let steps = self.scripts[rank].len();
        let pools = RmaPools {
            regions: [RegionRecord::FREE; 1],
            operations: vec![OperationRecord::FREE; steps].into(),
            targets: [TargetState::FREE; 2],
            entries: vec![Entry::FREE; self.entries].into(),
            requesters: [RequesterState::FREE; 2],
        };
        let staging = Staging { region: Region::new(HOST_STAGING, 1), slot: 8 };
        let mut rma = Rma::new(pools, self.outstanding, staging);
        rma.connect(PeerId(1 - rank as u32), ROOM);
        let once = if self.events.once && rank == 1 { Rights::ONCE } else { Rights::empty() };
        let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC | once;
        let key = RemoteKey(100 + u64::from(incarnation) * 2 + rank as u64);
        let region = rma.regions.register(Region::new(HOST_WINDOW, 1), 0, WINDOW, rights, key).expect("room");
        let mut window = vec![INITIAL; WINDOW];
        window[..COUNTER].fill(0);
        window.extend([FREED; GUARD]);
        Side {
            rma,
            window,
            staging: vec![[0; 8]; self.entries.max(ENTRIES)],
            region,
            revocation: if self.events.revokes == Some(rank) { Revocation::Possible } else { Revocation::Never },
            incarnation,
            started: 0,
            ended: Vec::new(),
            buffers: Vec::new(),
            grants: Vec::new(),
            grants_made: 0,
            channel: VecDeque::new(),
            placements: Vec::new(),
            delivered: VecDeque::new(),
            lost: VecDeque::new(),
        }
    }

    /// The field of the counter that an operation adds to: two bits.
    fn field(rank: usize, step: usize) -> u64 {
        1 << (2 * (2 * step + rank))
    }

    fn start(&self, state: &mut State, rank: usize) -> Option<()> {
        let there = state.sides[1 - rank].region;
        let side = &mut state.sides[rank];
        let i = side.started;
        let step = *self.scripts[rank].get(i)?;
        let local = |bytes| Span { region: Region::new(HOST_BUFFERS + i as u32, 1), offset: 0, bytes };
        let (area, field) = (COUNTER as u64, Self::field(rank, i));
        let add = AtomicKind::FetchAdd { add: field, boundaries: 0 };
        let atomic = |kind| RmaRequest::Atomic(AtomicOperation { width: Width::Bits64, kind });
        let (offset, request) = match step {
            Step::Write => (area, RmaRequest::Write { from: local(AREA), immediate: None }),
            Step::WriteImmediate | Step::ForgeImmediate => {
                (area, RmaRequest::Write { from: local(AREA), immediate: Some(i as u32) })
            }
            Step::WriteOutside => (WINDOW as u64 - 7, RmaRequest::Write { from: local(8), immediate: None }),
            Step::WriteLongOutside => (area + 1, RmaRequest::Write { from: local(AREA), immediate: None }),
            Step::Forge | Step::WriteShort => (area, RmaRequest::Write { from: local(8), immediate: None }),
            Step::Flush => (0, RmaRequest::Flush),
            Step::Add => (0, atomic(add)),
            Step::MaskedSwap => {
                let (compare, swap) = (0, field);
                let kind = AtomicKind::MaskedCompareSwap { compare, swap, compare_mask: field, swap_mask: field * 3 };
                (0, atomic(kind))
            }
            Step::Accumulate => {
                let update = ElementUpdate::default();
                (0, RmaRequest::Accumulate { from: local(8), update, result: Some(local(8)), stride: None })
            }
            Step::AccumulateBlocks => {
                let (update, stride) = (ElementUpdate::default(), Some(Stride { block: 4, distance: 4 }));
                (0, RmaRequest::Accumulate { from: local(8), update, result: Some(local(8)), stride })
            }
            Step::ReadShort => (area, RmaRequest::Read { into: local(8), stride: None }),
            Step::ReadLong => (area, RmaRequest::Read { into: local(AREA), stride: None }),
            Step::ReadBlocks | Step::ReadBlocksOutside => {
                let distance = AREA - 4 + u32::from(step == Step::ReadBlocksOutside);
                (area, RmaRequest::Read { into: local(8), stride: Some(Stride { block: 4, distance }) })
            }
        };
        let mut region = there;
        if matches!(step, Step::Forge | Step::ForgeImmediate) {
            region.key.0 ^= 1 << 63;
        }
        let at = RemoteSpan { region, offset };
        let call = RmaCall { to: PeerId(1 - rank as u32), at, request, fence: false, user: i as u32 };
        side.rma.start(&call).ok()?;
        side.started += 1;
        side.ended.push(None);
        let content = match step {
            Step::Accumulate | Step::AccumulateBlocks => field.to_le_bytes().to_vec(),
            Step::ReadShort | Step::ReadLong | Step::ReadBlocks | Step::ReadBlocksOutside => Vec::new(),
            _ => vec![0x50 + (2 * i + rank) as u8; AREA as usize],
        };
        side.buffers.push(content);
        Some(())
    }

    fn poll(&self, state: &mut State, rank: usize) -> Option<()> {
        let side = &mut state.sides[rank];
        let used = [side.channel.len(), side.placements.len(), side.delivered.len(), side.lost.len()];
        if used.iter().sum::<usize>() >= self.room {
            return None;
        }
        // Without a request, it may have freed records.
        let Some(request) = side.rma.poll_action(true) else { return Some(()) };
        match request {
            Request::Send { head, payload, owner, .. } => side.channel.push_back(Message { head, payload, owner }),
            Request::Grant { operation, into, .. } => {
                side.grants_made += 1;
                let (placement, key) = (PlacementId(side.grants_made), RemoteKey(1000 + u64::from(side.grants_made)));
                side.grants.push((placement, key, operation, into));
                side.rma.handle_granted(operation, Some(ReadPlacement { placement, key }));
            }
            Request::Place { placement: to, key, from, owner, .. } => {
                side.placements.push(Placement { to, key, from, owner });
            }
            Request::Execute { entry, at, what: Execution::Gather { into, stride } } => {
                if side.revocation == Revocation::Complete {
                    state.broken = Some("nobody reads memory that its owner has back");
                }
                for (from, to) in stride.blocks(into.bytes) {
                    let block = stride.block as usize;
                    let from = at.offset + from;
                    side.staging[into.offset / 8][to..to + block].copy_from_slice(&side.window[from..from + block]);
                }
                side.rma.handle_executed(entry, Ok(None));
            }
            Request::Execute { entry, at, what } => {
                let Some(word) = side.window.get_mut(at.offset..at.offset + 8) else {
                    state.broken = Some("updates stay inside the window");
                    return Some(());
                };
                if side.revocation == Revocation::Complete {
                    state.broken = Some("nobody updates memory that its owner has back");
                }
                let old = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                let new = match what {
                    Execution::Atomic(operation) => operation.apply(old),
                    Execution::Accumulate { from, .. } => {
                        let slot = &mut side.staging[from.offset / 8];
                        let add = u64::from_le_bytes(*slot);
                        *slot = old.to_le_bytes();
                        old + add
                    }
                    Execution::Gather { .. } => old,
                };
                // Every operation changes a field of its own, from 0 to 1.
                let changed = old ^ new;
                if changed.count_ones() != 1 || new < old || changed.trailing_zeros() % 2 != 0 {
                    state.broken = Some("an update is executed once");
                }
                word.copy_from_slice(&new.to_le_bytes());
                let result = if matches!(what, Execution::Atomic(_)) { Some(old) } else { None };
                side.rma.handle_executed(entry, Ok(result));
            }
            Request::Idle => {}
        }
        Some(())
    }

    /// The bytes of a span that the endpoint sends.
    fn load(state: &mut State, rank: usize, span: Span) -> Vec<u8> {
        let side = &state.sides[rank];
        let range = span.offset..span.offset + span.bytes as usize;
        let (found, is_free) = match span.region.index() {
            HOST_WINDOW => (side.window.get(range), side.revocation == Revocation::Complete),
            HOST_STAGING => (side.staging.get(span.offset / 8).map(|slot| &slot[..span.bytes as usize]), false),
            buffer => {
                let i = (buffer - HOST_BUFFERS) as usize;
                (side.buffers[i].get(range), side.ended[i].is_some())
            }
        };
        let bytes = found.map(<[u8]>::to_vec);
        if bytes.is_none() || is_free {
            state.broken = Some("nobody reads memory that its owner has back");
        }
        bytes.unwrap_or_default()
    }

    fn store(state: &mut State, rank: usize, span: Span, bytes: &[u8]) {
        let side = &mut state.sides[rank];
        let mut is_free = false;
        match span.region.index() {
            HOST_WINDOW => {
                is_free = side.revocation == Revocation::Complete;
                if side.revocation == Revocation::UnderWay {
                    state.broken = Some("a revoked region accepts nothing");
                }
                if let Some(to) = side.window.get_mut(span.offset..span.offset + bytes.len()) {
                    to.copy_from_slice(bytes);
                }
            }
            HOST_STAGING => side.staging[span.offset / 8][..bytes.len()].copy_from_slice(bytes),
            buffer => {
                let i = (buffer - HOST_BUFFERS) as usize;
                is_free = side.ended[i].is_some();
                side.buffers[i] = bytes.to_vec();
            }
        }
        if is_free || bytes.len() != span.bytes as usize {
            state.broken = Some("nobody writes memory that its owner has back");
        }
    }

    fn deliver(state: &mut State, rank: usize) -> Option<()> {
        let Message { head, payload, owner } = state.sides[rank].channel.pop_front()?;
        let bytes = payload.map(|span| Self::load(state, rank, span)).unwrap_or_default();
        let all = [head.as_ref(), &bytes].concat();
        let shown = all.get(..40).unwrap_or(&all);
        match state.sides[1 - rank].rma.handle(PeerId(rank as u32), shown, all.len() as u32) {
            Arrival::Nothing => {}
            Arrival::Place { to, start } => Self::store(state, 1 - rank, to, &all[usize::from(start)..]),
            Arrival::Violation => state.broken = Some("messages keep the protocol"),
        }
        state.sides[rank].delivered.push_back(owner);
        Some(())
    }

    fn place(state: &mut State, rank: usize, i: usize) -> Option<()> {
        if i >= state.sides[rank].placements.len() {
            return None;
        }
        let Placement { to, key, from, owner } = state.sides[rank].placements.remove(i);
        let bytes = Self::load(state, rank, from);
        let reader = &mut state.sides[1 - rank];
        let found = reader.grants.iter().position(|grant| (grant.0, grant.1) == (to, key));
        match found.map(|grant| reader.grants.remove(grant)) {
            Some((.., operation, into)) => {
                Self::store(state, 1 - rank, Span { bytes: bytes.len() as u32, ..into }, &bytes);
                state.sides[1 - rank].rma.handle_placed(operation, bytes.len() as u32);
            }
            None => state.broken = Some("a placement meets its grant"),
        }
        state.sides[rank].delivered.push_back(owner);
        Some(())
    }

    fn restart(&self, state: &mut State) {
        state.may_restart = false;
        let incarnation = state.sides[1].incarnation + 1;
        let started = state.sides[1].started;
        state.sides[1] = self.side(1, incarnation);
        // Its user goes on behind what it had started.
        state.sides[1].started = started;
        state.sides[1].ended = vec![Some(Ok(0)); started];
        state.sides[1].buffers = vec![Vec::new(); started];
        let side = &mut state.sides[0];
        side.rma.disconnect(PeerId(1));
        let placements = side.placements.drain(..).map(|placement| (Some(placement.from), placement.owner));
        side.lost.extend(side.channel.drain(..).map(|message| (message.payload, message.owner)).chain(placements));
        side.rma.connect(PeerId(1), ROOM);
    }

    fn fail(state: &mut State, rank: usize) -> Option<()> {
        let (payload, owner) = state.sides[rank].lost.pop_front()?;
        payload.map(|span| Self::load(state, rank, span));
        state.sides[rank].rma.handle_completed(owner, false);
        Some(())
    }

    /// Takes what the machines report.
    fn settle(&self, state: &mut State, rank: usize) {
        while state.sides[rank].rma.regions.poll_revoked().is_some() {
            let side = &mut state.sides[rank];
            side.revocation = Revocation::Complete;
            side.window.fill(FREED);
        }
        while let Some(immediate) = state.sides[rank].rma.poll_immediate() {
            let wanted = 0x50 + (2 * immediate.value as usize + 1 - rank) as u8;
            if state.sides[rank].window[COUNTER..WINDOW] != vec![wanted; AREA as usize] {
                state.broken = Some("an immediate follows its write");
            }
        }
        while let Some(completion) = state.sides[rank].rma.poll_completion() {
            let i = completion.user as usize;
            let side = &mut state.sides[rank];
            if let Some(grant) = completion.withdraw {
                side.grants.retain(|(placement, ..)| *placement != grant);
            }
            if side.ended[i].replace(completion.result).is_some() {
                state.broken = Some("an operation ends once");
            }
            if let Some(rule) = self.judge(state, rank, i, completion.result) {
                state.broken = Some(rule);
            }
            state.sides[rank].buffers[i].clear();
        }
        let is_used = state.sides[rank].window[COUNTER..COUNTER + 8] != [INITIAL; 8];
        if self.events.once && rank == 1 && is_used && state.sides[rank].revocation == Revocation::Never {
            state.broken = Some("a region of one use ends with its use");
        }
        // Nobody else writes behind the first 8 bytes of the area.
        let outside = self.scripts[1 - rank].contains(&Step::WriteLongOutside);
        if outside && state.sides[rank].window[COUNTER + 8..WINDOW] != [INITIAL; AREA as usize - 8] {
            state.broken = Some("a refused write touches no byte");
        }
        if state.sides[rank].window[WINDOW..] != [FREED; GUARD] {
            state.broken = Some("no byte outside the region is written");
        }
    }

    /// The rule that a result breaks.
    fn judge(&self, state: &State, rank: usize, i: usize, result: Result<u64, RmaError>) -> Option<&'static str> {
        let (side, there) = (&state.sides[rank], &state.sides[1 - rank]);
        let script = self.scripts[rank];
        let Events { revokes, restarts, once } = self.events;
        let is_calm = revokes != Some(1 - rank) && (rank == 1 || !(restarts || once));
        match (script[i], result) {
            (_, Err(RmaError::Refused(_))) if once && i == 0 => {
                Some("the first use of a region of one use is executed")
            }
            (step, Ok(_)) if once && i > 0 && (step.adds() || step == Step::ReadShort) => {
                Some("a region of one use is used once")
            }
            (Step::ReadBlocksOutside, Ok(_)) => Some("a block outside the region is refused"),
            (Step::ReadShort | Step::ReadLong | Step::ReadBlocks, Ok(_)) if rank == 1 || !restarts => {
                // No script of a rank that is read from writes it with anything but a value of the area.
                let bytes = &side.buffers[i];
                let is_whole = bytes.len() == if script[i] == Step::ReadLong { AREA as usize } else { 8 };
                (!is_whole || bytes.contains(&FREED) || bytes.contains(&0))
                    .then_some("a read returns the region's bytes")
            }
            (Step::Flush, Ok(_)) if is_calm && !script[..i].contains(&Step::Forge) => {
                let last = script[..i].iter().rposition(|step| matches!(step, Step::Write | Step::WriteShort))?;
                let wanted = 0x50 + (2 * last + rank) as u8;
                (there.window[COUNTER..COUNTER + 8] != [wanted; 8]).then_some("a flush follows earlier writes")
            }
            (Step::Flush, Ok(_)) if script[..i].iter().any(|step| step.is_refused_unanswered()) => {
                let was_reported = side.ended.iter().flatten().any(|ended| matches!(ended, Err(RmaError::Refused(_))));
                (!was_reported && !restarts).then_some("a refused write is reported")
            }
            (step, Ok(_)) if is_calm && step.adds() => {
                let counter = u64::from_le_bytes(there.window[..8].try_into().expect("8 bytes"));
                (counter & Self::field(rank, i) == 0).then_some("an answer follows its update")
            }
            (Step::ForgeImmediate, Ok(_)) => Some("a wrong key is refused as such"),
            (Step::Forge | Step::ForgeImmediate, Err(RmaError::Refused(reason))) => {
                (reason != Refusal::BadKey).then_some("a wrong key is refused as such")
            }
            (_, Err(RmaError::Refused(_) | RmaError::RefusedEarlier { .. })) if is_calm => {
                let is_bad = |step: &Step| matches!(step, Step::ForgeImmediate | Step::ReadBlocksOutside);
                (!script.iter().any(|step| step.is_refused_unanswered() || is_bad(step)))
                    .then_some("only bad requests are refused")
            }
            (_, Err(RmaError::PeerFailed | RmaError::Partial | RmaError::Unknown)) => {
                (!restarts).then_some("a live peer has not failed")
            }
            _ => None,
        }
    }
}

impl Model for RemoteAccess {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State { sides: [self.side(0, 0), self.side(1, 0)], may_restart: self.events.restarts, broken: None }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (rank, side) in state.sides.iter().enumerate() {
            actions.extend([Action::Start(rank), Action::Poll(rank)]);
            if !side.channel.is_empty() {
                actions.push(Action::Deliver(rank));
            }
            actions.extend((0..side.placements.len()).map(|i| Action::Place(rank, i)));
            if !side.delivered.is_empty() {
                actions.push(Action::Complete(rank));
            }
            if !side.lost.is_empty() {
                actions.push(Action::Fail(rank));
            }
            if side.revocation == Revocation::Possible {
                actions.push(Action::Revoke(rank));
            }
        }
        if state.may_restart {
            actions.push(Action::Restart);
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = state.clone();
        match *action {
            Action::Start(rank) => self.start(&mut next, rank)?,
            Action::Poll(rank) => self.poll(&mut next, rank)?,
            Action::Deliver(rank) => Self::deliver(&mut next, rank)?,
            Action::Place(rank, i) => Self::place(&mut next, rank, i)?,
            Action::Complete(rank) => {
                let side = &mut next.sides[rank];
                let owner = side.delivered.pop_front()?;
                side.rma.handle_completed(owner, true);
            }
            Action::Fail(rank) => Self::fail(&mut next, rank)?,
            Action::Revoke(rank) => {
                let side = &mut next.sides[rank];
                side.revocation = Revocation::UnderWay;
                let region = side.region;
                side.rma.regions.revoke(region);
            }
            Action::Restart => self.restart(&mut next),
        }
        self.settle(&mut next, 0);
        self.settle(&mut next, 1);
        (next != *state).then_some(next)
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        state.broken
    }

    fn finished(&self, state: &State) -> bool {
        (0..2).all(|rank| {
            let side = &state.sides[rank];
            let RmaUsage { operations, entries, .. } = side.rma.in_use();
            side.started == self.scripts[rank].len()
                && side.ended.iter().all(Option::is_some)
                && (operations, entries) == (0, 0)
                && side.channel.is_empty()
                && side.placements.is_empty()
                && side.delivered.is_empty()
                && side.lost.is_empty()
                && side.revocation != Revocation::UnderWay
                && side.grants.is_empty()
                && (self.events.revokes.is_some() || self.events.restarts || self.events.once || {
                    let counter = u64::from_le_bytes(side.window[..8].try_into().expect("8 bytes"));
                    let adds = self.scripts[1 - rank].iter().enumerate().filter(|(_, step)| step.adds());
                    counter == adds.map(|(i, _)| Self::field(1 - rank, i)).sum::<u64>()
                })
        })
    }
}
