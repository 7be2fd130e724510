//! The target's side: requests are checked and executed in the order of arrival, each once; answers wait in entries
//! that are reserved before their requests are accepted.

use bitflags::bitflags;

use super::atomic::{AtomicKind, AtomicOperation};
use super::header::{self, ElementUpdate, ReadPlacement, RmaHeader, RmaMessage, SEVERAL};
use super::region::{Access, Refusal, RegionRecord, RegionTable, RemoteSpan, Rights};
use super::stride::Stride;
use super::{Action, Arrival, Execution, Immediate, Owner};
use crate::ids::PeerId;
use crate::list::{List, NONE};
use crate::pool::{Pool, grow};
use crate::span::{Region, Span};

bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    struct RequesterFlags: u8 {
        /// In the list of requesters that are owed a message.
        const DUE_LISTED = 1;
        /// In the list of requesters that wait for an entry.
        const WAIT_LISTED = 1 << 1;
        /// A request found no entry: it and those after it are dropped until it is sent again.
        const BUSY = 1 << 2;
        /// An entry is reserved for that request.
        const RESERVED = 1 << 3;
        /// Owed: to ask for that request.
        const RETRY = 1 << 4;
        /// Owed: the answer to a flush.
        const FLUSHED = 1 << 5;
    }
}

/// A target's record of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequesterState {
    due_link: u32,
    wait_link: u32,
    /// Bytes of the longest message to it; 0: not connected.
    room: u32,
    /// The request that found no entry, and the latest flush.
    busy: u32,
    flush: u32,
    /// Refused writes that were not reported: the first one, why, their number, and the digest of their region or [`SEVERAL`].
    refused: u32,
    count: u32,
    region: u16,
    reason: Refusal,
    flags: RequesterFlags,
}

impl RequesterState {
    /// An unused record.
    pub const FREE: Self = Self {
        due_link: NONE,
        wait_link: NONE,
        room: 0,
        busy: 0,
        flush: 0,
        refused: 0,
        count: 0,
        region: 0,
        reason: Refusal::BadKey,
        flags: RequesterFlags::empty(),
    };
}

/// The answer of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Answer {
    Value(u64),
    /// This many bytes of the entry's staging slot.
    Staged(u32),
    Done,
    Refused(Refusal),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum EntryState {
    Free,
    /// The masks of a compare-and-swap that follows.
    Masks {
        compare: u64,
        swap: u64,
    },
    Atomic {
        at: Span,
        operation: AtomicOperation,
    },
    /// Of this many staged bytes.
    Accumulate {
        at: Span,
        update: ElementUpdate,
        fetch: bool,
        stride: Option<Stride>,
        bytes: u32,
    },
    /// A read of blocks, of this many bytes.
    Gather {
        at: Span,
        stride: Stride,
        bytes: u32,
    },
    Read {
        from: Span,
        into: Option<ReadPlacement>,
    },
    /// Waits until the host takes it.
    Immediate {
        value: u32,
        bytes: u32,
    },
    /// The host executes it now; the staged bytes that its answer carries.
    Executing {
        fetched: Option<u32>,
    },
    Answer(Answer),
    /// The endpoint sends memory of the region or of the staging slot.
    Sending,
    /// Its requester is gone; freed when it leaves its list.
    Dead,
}

/// A request that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    state: EntryState,
    peer: u32,
    /// The next entry of its list.
    link: u32,
    operation: u32,
    /// The region that it uses.
    region: Option<u16>,
}

impl Entry {
    /// An unused record.
    pub const FREE: Self = Self { state: EntryState::Free, peer: NONE, link: NONE, operation: 0, region: None };
}

/// Memory for the payloads of accumulates and the blocks of reads: a slot per entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Staging {
    /// The region.
    pub region: Region,
    /// Bytes of a slot; 0: both are refused.
    pub slot: u32,
}

impl Staging {
    fn span(self, entry: u32, bytes: u32) -> Span {
        Span { region: self.region, offset: (self.slot as usize).wrapping_mul(entry as usize), bytes }
    }
}

/// The target's machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Target<E, P> {
    entries: E,
    requesters: P,
    staging: Staging,
    free: List,
    free_count: u32,
    /// Free entries that are reserved.
    reserved: u32,
    /// Entries that the host has to be asked about, in order.
    pending: List,
    immediates: List,
    due: List,
    waiting: List,
}

fn link(entry: &mut Entry) -> &mut u32 {
    &mut entry.link
}

impl<E: Pool<Entry>, P: Pool<RequesterState>> Target<E, P> {
    pub(super) fn new(mut entries: E, requesters: P, staging: Staging) -> Self {
        let free = List::of_all(entries.as_mut(), link);
        Self {
            free_count: entries.as_ref().len() as u32,
            entries,
            requesters,
            staging,
            free,
            reserved: 0,
            pending: List::EMPTY,
            immediates: List::EMPTY,
            due: List::EMPTY,
            waiting: List::EMPTY,
        }
    }

    /// Number of requesters that there are records for.
    pub(super) fn requesters(&self) -> usize {
        self.requesters.as_ref().len()
    }

    /// Replaces the records of the requesters by more; the present ones are copied. False: they are not more.
    pub(super) fn grow_requesters(&mut self, requesters: P) -> bool {
        grow(&mut self.requesters, requesters, RequesterState::FREE)
    }

    pub(super) fn connect(&mut self, peer: PeerId, room: u32) {
        if let Some(requester) = self.requester(peer) {
            requester.room = room;
        }
    }

    /// Handles a request. Its payload is placed before anything else happens.
    pub(super) fn handle<R: Pool<RegionRecord>>(
        &mut self,
        regions: &mut RegionTable<R>,
        from: PeerId,
        header: &RmaHeader,
    ) -> Arrival {
        let RmaHeader { message, operation, retry, payload } = *header;
        let Some(room) = self.requester(from).map(|requester| requester.room).filter(|room| *room > 0) else {
            return Arrival::Violation;
        };
        match message {
            RmaMessage::Write { at, rest } => {
                let bytes = if mutant!("rma_rest_ignored") { payload } else { payload.saturating_add(rest) };
                let whole = Access { at, bytes, rights: Rights::WRITE, alignment: 1 };
                match regions.check(&whole) {
                    Ok(to) => {
                        if rest == 0 {
                            regions.use_once(at.region.index);
                        }
                        place(Span { bytes: payload, ..to }, header::WRITE)
                    }
                    Err(reason) => {
                        self.refuse_write(from, operation, at.region.digest(), reason);
                        Arrival::Nothing
                    }
                }
            }
            RmaMessage::Flush => {
                if let Some(requester) = self.requester(from) {
                    requester.flush = operation;
                    requester.flags.insert(RequesterFlags::FLUSHED);
                }
                self.owe(from.0);
                Arrival::Nothing
            }
            RmaMessage::Masks { compare, swap } => {
                if let Some(i) = self.admit(from, operation, retry) {
                    self.set(i, EntryState::Masks { compare, swap });
                }
                Arrival::Nothing
            }
            RmaMessage::WriteImmediate { at, immediate } => {
                let access = Access { at, bytes: payload, rights: Rights::WRITE, alignment: 1 };
                let Some((i, to)) = self.accept(regions, from, header, &access) else { return Arrival::Nothing };
                regions.use_once(at.region.index);
                self.set(i, EntryState::Immediate { value: immediate, bytes: payload });
                self.immediates.push(self.entries.as_mut(), i, link);
                place(to, header::WRITE)
            }
            RmaMessage::Read { at, bytes, into } => {
                let access = Access { at, bytes, rights: Rights::READ, alignment: 1 };
                let Some((i, from)) = self.accept(regions, from, header, &access) else { return Arrival::Nothing };
                let state = if into.is_none() && bytes > room.saturating_sub(header::ANSWER as u32) {
                    EntryState::Answer(Answer::Refused(Refusal::Unsupported))
                } else {
                    self.retain(regions, i, at);
                    EntryState::Read { from, into }
                };
                self.enqueue(i, state)
            }
            RmaMessage::Atomic { at, operation: atomic } => self.handle_atomic(regions, from, header, at, atomic),
            RmaMessage::ReadBlocks { at, bytes, stride } => {
                let Some(extent) = extent_of(Some(stride), bytes) else { return Arrival::Violation };
                let access = Access { at, bytes: extent, rights: Rights::READ, alignment: 1 };
                let Some((i, from)) = self.accept(regions, from, header, &access) else { return Arrival::Nothing };
                if bytes > self.staging.slot.min(room.saturating_sub(header::ANSWER as u32)) {
                    return self.enqueue(i, EntryState::Answer(Answer::Refused(Refusal::Unsupported)));
                }
                self.retain(regions, i, at);
                self.enqueue(i, EntryState::Gather { at: from, stride, bytes })
            }
            RmaMessage::Accumulate { at, update, fetch, stride } => {
                let Some(extent) = extent_of(stride, payload) else { return Arrival::Violation };
                let access = Access { at, bytes: extent, rights: Rights::ATOMIC, alignment: 1 };
                let Some((i, to)) = self.accept(regions, from, header, &access) else { return Arrival::Nothing };
                if payload > self.staging.slot {
                    return self.enqueue(i, EntryState::Answer(Answer::Refused(Refusal::Unsupported)));
                }
                self.retain(regions, i, at);
                self.enqueue(i, EntryState::Accumulate { at: to, update, fetch, stride, bytes: payload });
                let start = if stride.is_some() { header::BLOCKS } else { header::WRITE };
                place(self.staging.span(i, payload), start)
            }
            _ => Arrival::Violation,
        }
    }

    fn handle_atomic<R: Pool<RegionRecord>>(
        &mut self,
        regions: &mut RegionTable<R>,
        from: PeerId,
        header: &RmaHeader,
        at: RemoteSpan,
        operation: AtomicOperation,
    ) -> Arrival {
        let width = operation.width.bytes();
        let access = Access { at, bytes: width.into(), rights: Rights::ATOMIC, alignment: width };
        let AtomicKind::MaskedCompareSwap { compare, swap, .. } = operation.kind else {
            let Some((i, at_word)) = self.accept(regions, from, header, &access) else { return Arrival::Nothing };
            self.retain(regions, i, at);
            return self.enqueue(i, EntryState::Atomic { at: at_word, operation });
        };
        let found = (0..).zip(self.entries.as_ref()).find_map(|(i, entry)| match entry.state {
            EntryState::Masks { compare, swap } if (entry.peer, entry.operation) == (from.0, header.operation) => {
                Some((i, compare, swap))
            }
            _ => None,
        });
        let Some((i, compare_mask, swap_mask)) = found else {
            let is_busy = self.requester(from).is_some_and(|one| one.flags.contains(RequesterFlags::BUSY));
            return if is_busy { Arrival::Nothing } else { Arrival::Violation };
        };
        let kind = AtomicKind::MaskedCompareSwap { compare, swap, compare_mask, swap_mask };
        match regions.check(&access) {
            Ok(to) => {
                self.retain(regions, i, at);
                self.enqueue(i, EntryState::Atomic { at: to, operation: AtomicOperation { kind, ..operation } })
            }
            Err(reason) => self.enqueue(i, EntryState::Answer(Answer::Refused(reason))),
        }
    }

    /// Takes an entry for a request and checks it. `None`: it is dropped or refused.
    fn accept<R: Pool<RegionRecord>>(
        &mut self,
        regions: &mut RegionTable<R>,
        from: PeerId,
        header: &RmaHeader,
        access: &Access,
    ) -> Option<(u32, Span)> {
        let i = self.admit(from, header.operation, header.retry)?;
        match regions.check(access) {
            Ok(span) => Some((i, span)),
            Err(reason) => {
                self.enqueue(i, EntryState::Answer(Answer::Refused(reason)));
                None
            }
        }
    }

    /// Takes an entry. `None`: there is none, and this request and those after it are dropped until the requester sends
    /// it again.
    fn admit(&mut self, from: PeerId, operation: u32, retry: bool) -> Option<u32> {
        let requester = self.requesters.as_mut().get_mut(from.0 as usize)?;
        if requester.flags.contains(RequesterFlags::BUSY) {
            if retry {
                if requester.flags.contains(RequesterFlags::RESERVED) {
                    self.reserved = self.reserved.saturating_sub(1);
                }
                requester.flags.remove(RequesterFlags::BUSY | RequesterFlags::RESERVED | RequesterFlags::RETRY);
            } else if !mutant!("rma_atomic_twice") {
                return None;
            }
        }
        if self.free_count > self.reserved {
            let i = self.free.pop(self.entries.as_mut(), link)?;
            self.free_count = self.free_count.saturating_sub(1);
            let entry = self.entries.as_mut().get_mut(i as usize)?;
            (entry.peer, entry.operation) = (from.0, operation);
            return Some(i);
        }
        requester.flags.insert(RequesterFlags::BUSY);
        requester.busy = operation;
        if !requester.flags.contains(RequesterFlags::WAIT_LISTED) {
            requester.flags.insert(RequesterFlags::WAIT_LISTED);
            self.waiting.push(self.requesters.as_mut(), from.0, |requester| &mut requester.wait_link);
        }
        None
    }

    /// What the host has to do next.
    pub(super) fn poll_action<R: Pool<RegionRecord>>(&mut self, regions: &mut RegionTable<R>) -> Option<Action> {
        while let Some(peer) = self.due.pop(self.requesters.as_mut(), |requester| &mut requester.due_link) {
            if let Some(action) = self.poll_due(peer) {
                return Some(action);
            }
        }
        while let Some(i) = self.pending.pop(self.entries.as_mut(), link) {
            if let Some(action) = self.poll_entry(regions, i) {
                return Some(action);
            }
        }
        None
    }

    /// The next message that a requester is owed.
    fn poll_due(&mut self, peer: u32) -> Option<Action> {
        let requester = self.requesters.as_mut().get_mut(peer as usize)?;
        requester.flags.remove(RequesterFlags::DUE_LISTED);
        let (message, operation) = if requester.count > 0 {
            let count = core::mem::take(&mut requester.count);
            let (reason, region) = (requester.reason, requester.region);
            (RmaMessage::Refused { reason, count, region }, core::mem::take(&mut requester.refused))
        } else if requester.flags.contains(RequesterFlags::FLUSHED) {
            requester.flags.remove(RequesterFlags::FLUSHED);
            (RmaMessage::Flushed, core::mem::take(&mut requester.flush))
        } else if requester.flags.contains(RequesterFlags::RETRY) {
            requester.flags.remove(RequesterFlags::RETRY);
            (RmaMessage::Retry, core::mem::take(&mut requester.busy))
        } else {
            return None;
        };
        if requester.count > 0 || requester.flags.intersects(RequesterFlags::FLUSHED | RequesterFlags::RETRY) {
            self.owe(peer);
        }
        let head = RmaHeader { message, operation, retry: false, payload: 0 }.emit();
        Some(Action::Send { to: PeerId(peer), head, payload: None, owner: Owner::Nothing, solicited: false })
    }

    fn poll_entry<R: Pool<RegionRecord>>(&mut self, regions: &mut RegionTable<R>, i: u32) -> Option<Action> {
        let Entry { peer, operation, region, .. } = *self.entries.as_ref().get(i as usize)?;
        if let Some(region) = region.filter(|region| !regions.is_live(*region)) {
            self.release(regions, i, region);
            self.set(i, EntryState::Answer(Answer::Refused(Refusal::Revoked)));
        }
        let (to, owner) = (PeerId(peer), Owner::Entry(i as u16));
        let state = self.entries.as_ref().get(i as usize)?.state;
        let send = |message, payload: Option<Span>| {
            let head = RmaHeader { message, operation, retry: false, payload: 0 }.emit();
            let owner = if payload.is_none() { Owner::Nothing } else { owner };
            Action::Send { to, head, payload, owner, solicited: false }
        };
        match state {
            EntryState::Atomic { at, operation } => {
                self.set(i, EntryState::Executing { fetched: None });
                Some(Action::Execute { entry: i as u16, at, what: Execution::Atomic(operation) })
            }
            EntryState::Accumulate { at, update, fetch, stride, bytes } => {
                self.set(i, EntryState::Executing { fetched: fetch.then_some(bytes) });
                let what = Execution::Accumulate { from: self.staging.span(i, bytes), update, fetch, stride };
                Some(Action::Execute { entry: i as u16, at, what })
            }
            EntryState::Gather { at, stride, bytes } => {
                self.set(i, EntryState::Executing { fetched: Some(bytes) });
                let what = Execution::Gather { into: self.staging.span(i, bytes), stride };
                Some(Action::Execute { entry: i as u16, at, what })
            }
            EntryState::Read { from, into: None } if from.bytes == 0 => {
                self.free_entry(regions, i);
                Some(send(RmaMessage::Data, None))
            }
            EntryState::Read { from, into: None } => {
                self.set(i, EntryState::Sending);
                Some(send(RmaMessage::Data, Some(from)))
            }
            EntryState::Read { from, into: Some(ReadPlacement { placement, key }) } => {
                self.set(i, EntryState::Sending);
                Some(Action::Place { to, placement, key, from, owner })
            }
            EntryState::Answer(Answer::Staged(bytes)) if bytes > 0 => {
                self.set(i, EntryState::Sending);
                Some(send(RmaMessage::Data, Some(self.staging.span(i, bytes))))
            }
            EntryState::Answer(answer) => {
                self.free_entry(regions, i);
                let message = match answer {
                    Answer::Value(value) => RmaMessage::Value(value),
                    Answer::Staged(_) => RmaMessage::Data,
                    Answer::Done => RmaMessage::Done,
                    Answer::Refused(reason) => RmaMessage::Refused { reason, count: 0, region: 0 },
                };
                Some(send(message, None))
            }
            EntryState::Dead => {
                self.free_entry(regions, i);
                None
            }
            _ => None,
        }
    }

    /// The host has executed an update: of an atomic operation the old value.
    pub(super) fn handle_executed<R: Pool<RegionRecord>>(
        &mut self,
        regions: &mut RegionTable<R>,
        entry: u16,
        result: Result<Option<u64>, Refusal>,
    ) {
        let i = u32::from(entry);
        let Some(record) = self.entries.as_ref().get(i as usize) else { return };
        let (EntryState::Executing { fetched }, region) = (record.state, record.region) else { return };
        if let Some(region) = region {
            self.release(regions, i, region);
        }
        let answer = match result {
            Err(reason) => Answer::Refused(reason),
            Ok(Some(old)) => Answer::Value(old),
            Ok(None) => fetched.map_or(Answer::Done, Answer::Staged),
        };
        self.enqueue(i, EntryState::Answer(answer));
    }

    /// The endpoint does not use the memory of an answer any more. A requester that is there, and to which it was not
    /// delivered, had no grant for it: its request is refused.
    pub(super) fn handle_completed<R: Pool<RegionRecord>>(
        &mut self,
        regions: &mut RegionTable<R>,
        entry: u16,
        delivered: bool,
    ) {
        let i = u32::from(entry);
        let Some(Entry { state: EntryState::Sending, peer, region, .. }) =
            self.entries.as_ref().get(usize::from(entry)).copied()
        else {
            return;
        };
        let is_connected = self.requester(PeerId(peer)).is_some_and(|requester| requester.room > 0);
        if delivered || !is_connected {
            return self.free_entry(regions, i);
        }
        if let Some(region) = region {
            self.release(regions, i, region);
        }
        self.enqueue(i, EntryState::Answer(Answer::Refused(Refusal::Unsupported)));
    }

    /// The next value that a peer wrote with its data.
    pub(super) fn poll_immediate(&mut self) -> Option<Immediate> {
        loop {
            let i = self.immediates.pop(self.entries.as_mut(), link)?;
            let Entry { state, peer, .. } = *self.entries.as_ref().get(i as usize)?;
            match state {
                EntryState::Immediate { value, bytes } => {
                    self.enqueue(i, EntryState::Answer(Answer::Done));
                    return Some(Immediate { from: PeerId(peer), value, bytes });
                }
                _ => self.pending.push(self.entries.as_mut(), i, link),
            }
        }
    }

    /// The peer failed, finished, or was replaced: its requests end, and so do their uses of memory, apart from what
    /// the endpoint still sends.
    pub(super) fn disconnect<R: Pool<RegionRecord>>(&mut self, regions: &mut RegionTable<R>, peer: PeerId) {
        for i in 0..self.entries.as_ref().len() as u32 {
            let Some(Entry { state, region, .. }) =
                self.entries.as_ref().get(i as usize).copied().filter(|entry| entry.peer == peer.0)
            else {
                continue;
            };
            match state {
                EntryState::Free | EntryState::Dead => {}
                EntryState::Sending if mutant!("rma_sent_forgotten") => self.free_entry(regions, i),
                // What is not delivered is not reported to the next incarnation.
                EntryState::Sending => {
                    if let Some(entry) = self.entries.as_mut().get_mut(i as usize)
                        && !mutant!("rma_refused_next")
                    {
                        entry.peer = NONE;
                    }
                }
                EntryState::Masks { .. } | EntryState::Executing { .. } => self.free_entry(regions, i),
                _ => {
                    if let Some(region) = region {
                        self.release(regions, i, region);
                    }
                    self.set(i, EntryState::Dead);
                }
            }
        }
        let Some(requester) = self.requester(peer) else { return };
        let was_reserved = requester.flags.contains(RequesterFlags::RESERVED);
        *requester = RequesterState {
            due_link: requester.due_link,
            wait_link: requester.wait_link,
            flags: requester.flags & (RequesterFlags::DUE_LISTED | RequesterFlags::WAIT_LISTED),
            ..RequesterState::FREE
        };
        if was_reserved {
            self.reserved = self.reserved.saturating_sub(1);
            self.serve_waiting();
        }
    }

    /// Number of entries in use.
    pub(super) fn in_use(&self) -> usize {
        self.entries.as_ref().iter().filter(|entry| entry.state != EntryState::Free).count()
    }

    fn refuse_write(&mut self, from: PeerId, operation: u32, region: u16, reason: Refusal) {
        if let Some(requester) = self.requester(from) {
            if requester.count == 0 {
                (requester.refused, requester.region, requester.reason) = (operation, region, reason);
            } else if requester.region != region {
                requester.region = SEVERAL;
            }
            requester.count = requester.count.saturating_add(1);
        }
        self.owe(from.0);
    }

    fn owe(&mut self, peer: u32) {
        let requesters = self.requesters.as_mut();
        let Some(requester) = requesters.get_mut(peer as usize) else { return };
        if !requester.flags.contains(RequesterFlags::DUE_LISTED) {
            requester.flags.insert(RequesterFlags::DUE_LISTED);
            self.due.push(requesters, peer, |requester| &mut requester.due_link);
        }
    }

    fn requester(&mut self, peer: PeerId) -> Option<&mut RequesterState> {
        self.requesters.as_mut().get_mut(peer.0 as usize)
    }

    fn set(&mut self, i: u32, state: EntryState) {
        if let Some(entry) = self.entries.as_mut().get_mut(i as usize) {
            entry.state = state;
        }
    }

    fn enqueue(&mut self, i: u32, state: EntryState) -> Arrival {
        self.set(i, state);
        self.pending.push(self.entries.as_mut(), i, link);
        Arrival::Nothing
    }

    /// The entry uses the region until it is released, also if that may be used once.
    fn retain<R: Pool<RegionRecord>>(&mut self, regions: &mut RegionTable<R>, i: u32, at: RemoteSpan) {
        if let Some(entry) = self.entries.as_mut().get_mut(i as usize) {
            entry.region = Some(at.region.index);
            if mutant!("rma_once_early") {
                regions.use_once(at.region.index);
            }
            regions.retain(at.region.index);
            regions.use_once(at.region.index);
        }
    }

    fn release<R: Pool<RegionRecord>>(&mut self, regions: &mut RegionTable<R>, i: u32, region: u16) {
        if let Some(entry) = self.entries.as_mut().get_mut(i as usize) {
            entry.region = None;
        }
        regions.release(region);
    }

    fn free_entry<R: Pool<RegionRecord>>(&mut self, regions: &mut RegionTable<R>, i: u32) {
        let Some(entry) = self.entries.as_mut().get_mut(i as usize) else { return };
        let region = core::mem::replace(entry, Entry::FREE).region;
        self.free.push_front(self.entries.as_mut(), i, link);
        self.free_count = self.free_count.saturating_add(1);
        if let Some(region) = region {
            regions.release(region);
        }
        self.serve_waiting();
    }

    /// Reserves free entries for requesters that wait, at most half of all.
    fn serve_waiting(&mut self) {
        let most = (self.entries.as_ref().len() as u32).div_ceil(2);
        while self.free_count > self.reserved && self.reserved < most {
            let requesters = self.requesters.as_mut();
            let Some(peer) = self.waiting.pop(requesters, |requester| &mut requester.wait_link) else { return };
            let Some(requester) = requesters.get_mut(peer as usize) else { return };
            requester.flags.remove(RequesterFlags::WAIT_LISTED);
            if requester.flags.contains(RequesterFlags::BUSY) {
                requester.flags.insert(RequesterFlags::RESERVED | RequesterFlags::RETRY);
                self.reserved = self.reserved.saturating_add(1);
                self.owe(peer);
            }
        }
    }
}

fn place(to: Span, start: usize) -> Arrival {
    if to.bytes == 0 { Arrival::Nothing } else { Arrival::Place { to, start: start as u16 } }
}

/// Bytes of memory that a request of `bytes` bytes reaches over. `None`: no correct peer sends it.
fn extent_of(stride: Option<Stride>, bytes: u32) -> Option<u32> {
    let Some(stride) = stride else { return Some(bytes) };
    let extent = stride.extent(bytes)?;
    Some(if mutant!("rma_blocks_unchecked") { bytes } else { extent })
}
