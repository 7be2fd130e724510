//! The requester's side: operations queued per target, sent in order, ended by answers.

use bitflags::bitflags;

use super::Action;
use super::atomic::AtomicKind;
use super::header::{self, ReadPlacement, RmaHeader, RmaMessage, SEVERAL};
use super::operation::{
    OperationRecord, OperationStage, RmaCall, RmaCompletion, RmaError, RmaOperationId, RmaRequest, RmaStartError,
};
use super::region::{Refusal, RemoteSpan};
use super::{Arrival, Owner};
use crate::ids::{PeerId, PlacementId};
use crate::list::{List, NONE};
use crate::pool::{Pool, grow};

bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    struct TargetFlags: u8 {
        /// In the list of targets that may be sent to.
        const READY = 1;
        /// The next request that takes an entry is sent again because the target asked for it.
        const RETRY = 1 << 1;
    }
}

/// Writes that a target refused after they were completed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct LateRefusal {
    operation: u32,
    reason: Refusal,
    count: u32,
    region: u16,
}

/// A requester's record of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TargetState {
    /// Operations that are not sent completely, and those that wait for an answer, in order.
    queue: List,
    sent: List,
    link: u32,
    /// Bytes of the longest message to it; 0: not connected.
    room: u32,
    /// Requests that take entries without an answer, and their present limit.
    outstanding: u8,
    window: u8,
    flags: TargetFlags,
    refused: Option<LateRefusal>,
}

impl TargetState {
    /// An unused record.
    pub const FREE: Self = Self {
        queue: List::EMPTY,
        sent: List::EMPTY,
        link: NONE,
        room: 0,
        outstanding: 0,
        window: 0,
        flags: TargetFlags::empty(),
        refused: None,
    };
}

/// The requester's machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Initiator<O, P> {
    operations: O,
    targets: P,
    free: List,
    ready: List,
    completed: List,
    /// Most requests of one target without an answer.
    most: u8,
}

fn link(record: &mut OperationRecord) -> &mut u32 {
    &mut record.link
}

impl<O: Pool<OperationRecord>, P: Pool<TargetState>> Initiator<O, P> {
    pub(super) fn new(mut operations: O, targets: P, most: u8) -> Self {
        let free = List::of_all(operations.as_mut(), link);
        Self { operations, targets, free, ready: List::EMPTY, completed: List::EMPTY, most: most.max(1) }
    }

    /// Number of targets that there are records for.
    pub(super) fn targets(&self) -> usize {
        self.targets.as_ref().len()
    }

    /// Replaces the records of the targets by more; the present ones are copied. False: they are not more.
    pub(super) fn grow_targets(&mut self, targets: P) -> bool {
        grow(&mut self.targets, targets, TargetState::FREE)
    }

    /// Messages to this peer may have `room` bytes, header included.
    pub(super) fn connect(&mut self, peer: PeerId, room: u32) {
        if let Some(target) = self.targets.as_mut().get_mut(peer.0 as usize) {
            (target.room, target.window) = (room, self.most);
        }
    }

    pub(super) fn start(&mut self, call: &RmaCall) -> Result<RmaOperationId, RmaStartError> {
        let RmaCall { to, at, request, fence, user } = *call;
        let target = self.targets.as_mut().get_mut(to.0 as usize).filter(|target| target.room > 0);
        let target = target.ok_or(RmaStartError::UnknownPeer)?;
        let (bytes, head, stride) = match request {
            RmaRequest::Accumulate { from, result, stride, .. }
                if result.is_none_or(|result| result.bytes == from.bytes) =>
            {
                (from.bytes, if stride.is_some() { header::BLOCKS } else { header::WRITE }, stride)
            }
            RmaRequest::Accumulate { .. } => return Err(RmaStartError::TooLong),
            RmaRequest::Read { into, stride: Some(stride) } => (into.bytes, header::ANSWER, Some(stride)),
            _ => (0, 0, None),
        };
        if bytes > target.room.saturating_sub(head as u32) {
            return Err(RmaStartError::TooLong);
        }
        if stride.is_some_and(|stride| stride.extent(bytes).is_none()) {
            return Err(RmaStartError::BadStride);
        }
        let operations = self.operations.as_mut();
        let i = self.free.pop(operations, link).ok_or(RmaStartError::Full)?;
        let record = operations.get_mut(i as usize).ok_or(RmaStartError::Full)?;
        let generation = record.generation;
        *record = OperationRecord {
            stage: OperationStage::Queued,
            request,
            at,
            peer: to.0,
            user,
            generation,
            fence,
            ..OperationRecord::FREE
        };
        target.queue.push(operations, i, link);
        self.make_ready(to.0);
        Ok(RmaOperationId::new(i, generation))
    }

    /// Whether the answer to this read has to be placed.
    fn is_long(&self, record: &OperationRecord) -> bool {
        let room = self.targets.as_ref().get(record.peer as usize).map_or(0, |target| target.room);
        matches!(record.request, RmaRequest::Read { into, .. } if into.bytes > room.saturating_sub(header::ANSWER as u32))
    }

    /// The next message. `can_grant`: the endpoint has room for a grant.
    pub(super) fn poll_action(&mut self, can_grant: bool) -> Option<Action> {
        let mut skipped = List::EMPTY;
        let mut action = None;
        while action.is_none()
            && let Some(peer) = self.ready.pop(self.targets.as_mut(), |target| &mut target.link)
        {
            if let Some(target) = self.targets.as_mut().get_mut(peer as usize) {
                target.flags.remove(TargetFlags::READY);
            }
            match self.poll_target(peer, can_grant) {
                TargetPoll::Action(found) => {
                    action = Some(found);
                    self.make_ready(peer);
                }
                TargetPoll::LacksGrant => {
                    let targets = self.targets.as_mut();
                    if let Some(target) = targets.get_mut(peer as usize) {
                        target.flags.insert(TargetFlags::READY);
                    }
                    skipped.push(targets, peer, |target| &mut target.link);
                }
                TargetPoll::Nothing => {}
            }
        }
        skipped.append(&mut self.ready, self.targets.as_mut(), |target| &mut target.link);
        self.ready = skipped;
        action
    }

    /// Whether a request waits to be sent.
    pub(super) fn has_queued(&self) -> bool {
        self.operations.as_ref().iter().any(|record| record.stage == OperationStage::Queued)
    }

    fn poll_target(&mut self, peer: u32, can_grant: bool) -> TargetPoll {
        loop {
            let Some(target) = self.targets.as_mut().get_mut(peer as usize) else { return TargetPoll::Nothing };
            let operations = self.operations.as_mut();
            let Some(i) = target.queue.first() else { return TargetPoll::Nothing };
            let Some(record) = operations.get_mut(i as usize) else { return TargetPoll::Nothing };
            let is_awaited = record.request.takes_entry() && target.flags.contains(TargetFlags::RETRY);
            if record.result.is_err() && !is_awaited {
                // Refused before all of it was sent.
                target.queue.pop(operations, link);
                self.await_acknowledgements(i);
                continue;
            }
            let room = target.room.saturating_sub(header::WRITE as u32);
            let left = record.request.payload().saturating_sub(record.sent);
            let is_last = left <= room;
            let takes_entry = record.request.takes_entry() && is_last;
            if record.fence && target.outstanding > 0 || takes_entry && target.outstanding >= target.window {
                return TargetPoll::Nothing;
            }
            let operation = RmaOperationId::new(i, record.generation);
            let record = *record;
            if self.is_long(&record) && record.grant.is_none() {
                let RmaRequest::Read { into, .. } = record.request else { return TargetPoll::Nothing };
                let grant = Action::Grant { from: PeerId(peer), into, operation };
                return if can_grant { TargetPoll::Action(grant) } else { TargetPoll::LacksGrant };
            }
            return TargetPoll::Action(self.emit(peer, i, operation, is_last, left.min(room)));
        }
    }

    /// Sends the next message of the first operation of a queue: `payload` more bytes of it.
    fn emit(&mut self, peer: u32, i: u32, operation: RmaOperationId, is_last: bool, payload: u32) -> Action {
        let (to, nothing) = (PeerId(peer), Action::Idle);
        let Some(target) = self.targets.as_mut().get_mut(peer as usize) else { return nothing };
        let operations = self.operations.as_mut();
        let Some(record) = operations.get_mut(i as usize) else { return nothing };
        let takes_entry = record.request.takes_entry() && is_last;
        let retry = takes_entry && target.flags.contains(TargetFlags::RETRY);
        let at = record.at;
        let (mut is_final, mut from) = (is_last, None);
        let message = match record.request {
            RmaRequest::Write { from: span, immediate } => {
                // Beyond the address space it stays out of bounds.
                let offset = at.offset.saturating_add(record.sent.into());
                let at = RemoteSpan { offset, ..at };
                from = Some(span);
                match immediate.filter(|_| is_last) {
                    Some(immediate) => RmaMessage::WriteImmediate { at, immediate },
                    None => {
                        RmaMessage::Write { at, rest: span.bytes.saturating_sub(record.sent).saturating_sub(payload) }
                    }
                }
            }
            RmaRequest::Read { into, stride: None } => RmaMessage::Read { at, bytes: into.bytes, into: record.grant },
            RmaRequest::Read { into, stride: Some(stride) } => RmaMessage::ReadBlocks { at, bytes: into.bytes, stride },
            RmaRequest::Atomic(atomic) => match atomic.kind {
                AtomicKind::MaskedCompareSwap { compare_mask, swap_mask, .. } if record.sent == 0 => {
                    (record.sent, is_final) = (1, false);
                    RmaMessage::Masks { compare: compare_mask, swap: swap_mask }
                }
                _ => RmaMessage::Atomic { at, operation: atomic },
            },
            RmaRequest::Accumulate { from: span, update, result, stride } => {
                from = Some(span);
                RmaMessage::Accumulate { at, update, fetch: result.is_some(), stride }
            }
            RmaRequest::Flush => RmaMessage::Flush,
        };
        let payload = from.map(|span| span.part(record.sent, payload)).filter(|part| part.bytes > 0);
        let head = RmaHeader { message, operation: operation.0, retry, payload: 0 }.emit();
        let bytes = payload.map_or(0, |part| part.bytes);
        let owner = if payload.is_some() { Owner::Operation(operation) } else { Owner::Nothing };
        let solicited = is_final && !matches!(record.request, RmaRequest::Write { .. });
        record.is_begun = true;
        if payload.is_some() {
            record.last = record.sent;
            record.sent = record.sent.wrapping_add(bytes);
            record.unacknowledged = record.unacknowledged.wrapping_add(1);
        }
        if takes_entry {
            target.flags.remove(TargetFlags::RETRY);
        }
        if is_final {
            let awaits = takes_entry || record.request == RmaRequest::Flush;
            target.queue.pop(operations, link);
            if takes_entry {
                target.outstanding = target.outstanding.saturating_add(1);
            }
            if awaits && (takes_entry || !mutant!("rma_flush_early")) {
                if let Some(record) = operations.get_mut(i as usize) {
                    record.stage = OperationStage::Sent;
                }
                target.sent.push(operations, i, link);
            } else {
                self.await_acknowledgements(i);
            }
        }
        Action::Send { to, head, payload, owner, solicited }
    }

    /// The host granted memory for the answer to a read; `None`: the peer has failed.
    pub(super) fn handle_granted(&mut self, operation: RmaOperationId, grant: Option<ReadPlacement>) {
        let Some(record) = self.record(operation).filter(|record| record.stage == OperationStage::Queued) else {
            return;
        };
        match grant {
            Some(_) => record.grant = grant,
            None => record.result = Err(RmaError::PeerFailed),
        }
    }

    /// Handles an answer of a target.
    pub(super) fn handle(&mut self, from: PeerId, header: &RmaHeader) -> Arrival {
        let mut operation = RmaOperationId(header.operation);
        if mutant!("rma_answer_misplaced")
            && let Some(oldest) = self.targets.as_ref().get(from.0 as usize).and_then(|target| target.sent.first())
        {
            operation =
                RmaOperationId::new(oldest, self.operations.as_ref().get(oldest as usize).map_or(0, |o| o.generation));
        }
        match header.message {
            RmaMessage::Retry => return self.retry(from, operation),
            RmaMessage::Flushed => return self.handle_flushed(from, operation),
            RmaMessage::Refused { reason, count, region } => {
                return self.handle_refused(from, LateRefusal { operation: operation.0, reason, count, region });
            }
            _ => {}
        }
        let record =
            self.record(operation).filter(|record| record.peer == from.0 && record.stage == OperationStage::Sent);
        let Some(record) = record else { return Arrival::Violation };
        let (into, value) = match (record.request, header.message) {
            (RmaRequest::Atomic(_), RmaMessage::Value(value)) => (None, value),
            (RmaRequest::Read { into, .. }, RmaMessage::Data) if record.grant.is_none() => (Some(into), 0),
            (RmaRequest::Accumulate { result: Some(into), .. }, RmaMessage::Data) => (Some(into), 0),
            (RmaRequest::Accumulate { result: None, .. } | RmaRequest::Write { .. }, RmaMessage::Done) => (None, 0),
            _ => return Arrival::Violation,
        };
        if header.payload != into.map_or(0, |into| into.bytes) {
            return Arrival::Violation;
        }
        // Some of its messages may have been refused.
        record.result = record.result.and(Ok(value));
        self.end_answered(from, operation.record());
        match into.filter(|into| into.bytes > 0) {
            Some(to) => Arrival::Place { to, start: header::ANSWER as u16 },
            None => Arrival::Nothing,
        }
    }

    /// The bytes of a read that is answered by placement are in place.
    pub(super) fn handle_placed(&mut self, operation: RmaOperationId, bytes: u32) {
        let Some(record) = self.record(operation) else { return };
        let RmaRequest::Read { into, .. } = record.request else { return };
        if record.stage != OperationStage::Sent || record.grant.take().is_none() {
            return;
        }
        record.result = if bytes == into.bytes { Ok(0) } else { Err(RmaError::Truncated) };
        let peer = PeerId(record.peer);
        self.end_answered(peer, operation.record());
    }

    /// The endpoint has completed a message with payload of this operation.
    pub(super) fn handle_completed(&mut self, operation: RmaOperationId, delivered: bool) {
        let Some(record) = self.record(operation) else { return };
        record.unacknowledged = record.unacknowledged.saturating_sub(1);
        if !delivered && record.result.is_ok() && !record.request.takes_entry() {
            record.result = Err(record.failure());
        }
        if record.stage == OperationStage::Acknowledging && record.unacknowledged == 0 {
            self.finish(operation.record());
        }
    }

    /// The peer failed, finished, or was replaced: its operations end when the endpoint has completed their messages.
    pub(super) fn disconnect(&mut self, peer: PeerId) {
        let Some(target) = self.targets.as_mut().get_mut(peer.0 as usize) else { return };
        let listed = target.flags & TargetFlags::READY;
        let next = target.link;
        *target = TargetState { flags: listed, link: next, ..TargetState::FREE };
        for i in 0..self.operations.as_ref().len() as u32 {
            let Some(record) = self.operations.as_mut().get_mut(i as usize) else { continue };
            if record.peer != peer.0 || matches!(record.stage, OperationStage::Free | OperationStage::Finished) {
                continue;
            }
            let is_answered = record.stage == OperationStage::Acknowledging && record.request.takes_entry();
            if record.result.is_ok() && !is_answered {
                record.result = Err(record.failure());
            }
            self.await_acknowledgements(i);
        }
    }

    pub(super) fn poll_completion(&mut self) -> Option<RmaCompletion> {
        let i = self.completed.pop(self.operations.as_mut(), link)?;
        let record = self.operations.as_mut().get_mut(i as usize)?;
        let OperationRecord { generation, user, peer, result, grant, .. } = *record;
        *record = OperationRecord { generation: generation.wrapping_add(1), ..OperationRecord::FREE };
        self.free.push_front(self.operations.as_mut(), i, link);
        Some(RmaCompletion {
            operation: RmaOperationId::new(i, generation),
            user,
            peer: PeerId(peer),
            result,
            withdraw: grant.map(|ReadPlacement { placement, .. }| -> PlacementId { placement }),
        })
    }

    /// Number of operations that have not ended, or whose completion was not polled.
    pub(super) fn in_use(&self) -> usize {
        self.operations.as_ref().iter().filter(|record| record.stage != OperationStage::Free).count()
    }

    /// The target had no room for `operation`: sends it and the later requests again.
    fn retry(&mut self, from: PeerId, operation: RmaOperationId) -> Arrival {
        let Some(target) = self.targets.as_mut().get_mut(from.0 as usize) else { return Arrival::Violation };
        let operations = self.operations.as_mut();
        let (mut kept, mut again, mut is_found) = (List::EMPTY, List::EMPTY, false);
        while let Some(i) = target.sent.pop(operations, link) {
            let Some(record) = operations.get_mut(i as usize) else { break };
            is_found |= RmaOperationId::new(i, record.generation) == operation;
            if !is_found || !record.request.takes_entry() {
                kept.push(operations, i, link);
                continue;
            }
            record.stage = OperationStage::Queued;
            // Its earlier messages stay written. Of the other requests nothing was executed.
            record.sent = record.last;
            record.is_begun = record.last > 0;
            if matches!(record.request, RmaRequest::Atomic(_)) {
                record.sent = 0;
            }
            target.outstanding = target.outstanding.saturating_sub(1);
            again.push(operations, i, link);
        }
        target.sent = kept;
        again.append(&mut target.queue, operations, link);
        target.queue = again;
        // Masks of a compare-and-swap that was not sent itself.
        let first = target.queue.first().and_then(|i| Some((i, operations.get_mut(i as usize)?)));
        if let Some((i, record)) = first
            && !is_found
            && RmaOperationId::new(i, record.generation) == operation
            && matches!(record.request, RmaRequest::Atomic(_))
        {
            (record.sent, record.is_begun, is_found) = (0, false, true);
        }
        if !is_found {
            return Arrival::Violation;
        }
        target.window = 1;
        target.flags.insert(TargetFlags::RETRY);
        self.make_ready(from.0);
        Arrival::Nothing
    }

    fn handle_flushed(&mut self, from: PeerId, operation: RmaOperationId) -> Arrival {
        if self.record(operation).is_none_or(|record| record.peer != from.0 || record.request != RmaRequest::Flush) {
            return Arrival::Violation;
        }
        let Some(target) = self.targets.as_mut().get_mut(from.0 as usize) else { return Arrival::Violation };
        let operations = self.operations.as_mut();
        let (mut kept, mut done, mut is_found) = (List::EMPTY, List::EMPTY, false);
        while let Some(i) = target.sent.pop(operations, link) {
            let is_flush = operations.get(i as usize).is_some_and(|record| record.request == RmaRequest::Flush);
            if is_flush && !is_found {
                done.push(operations, i, link)
            } else {
                kept.push(operations, i, link)
            }
            is_found |= i == operation.record();
        }
        target.sent = kept;
        let mut refused = target.refused.take();
        while let Some(i) = done.pop(self.operations.as_mut(), link) {
            if let Some(record) = self.operations.as_mut().get_mut(i as usize) {
                record.stage = OperationStage::Acknowledging;
                if let Some(LateRefusal { operation, reason, count, region }) = refused.take() {
                    let (operation, region) = (RmaOperationId(operation), (region != SEVERAL).then_some(region));
                    record.result = Err(RmaError::RefusedEarlier { operation, reason, count, region });
                }
            }
            self.finish(i);
        }
        if is_found { Arrival::Nothing } else { Arrival::Violation }
    }

    /// `count` 0: the answer to a request. Otherwise that many messages of plain writes were refused, or of a write with
    /// an immediate, whose last message is answered for itself.
    fn handle_refused(&mut self, from: PeerId, refusal: LateRefusal) -> Arrival {
        let LateRefusal { operation, reason, count, region } = refusal;
        let operation = RmaOperationId(operation);
        let record = self.record(operation).filter(|record| record.peer == from.0);
        let (stage, is_write) = record.map_or((None, true), |record| {
            let is_write = matches!(record.request, RmaRequest::Write { .. });
            if record.result.is_ok() && !matches!(record.stage, OperationStage::Finished) {
                record.result = Err(RmaError::Refused(reason));
            }
            (Some(record.stage), is_write)
        });
        if count == 0 {
            if stage != Some(OperationStage::Sent) {
                return Arrival::Violation;
            }
            self.end_answered(from, operation.record());
            return Arrival::Nothing;
        }
        if !is_write {
            return Arrival::Violation;
        }
        match stage {
            Some(OperationStage::Queued) => self.make_ready(from.0),
            Some(OperationStage::Sent) if mutant!("rma_refused_early") => self.end_answered(from, operation.record()),
            _ => {}
        }
        // All but the first, if that is known, may be those of other operations, which have ended.
        let late = match stage {
            Some(OperationStage::Finished | OperationStage::Free) | None => count,
            Some(_) => count.saturating_sub(1),
        };
        if late > 0 {
            let Some(target) = self.targets.as_mut().get_mut(from.0 as usize) else { return Arrival::Violation };
            let refused = target.refused.get_or_insert(LateRefusal { count: 0, ..refusal });
            refused.count = refused.count.saturating_add(late);
            if refused.region != region {
                refused.region = SEVERAL;
            }
        }
        Arrival::Nothing
    }

    /// An operation of the list of sent ones is answered.
    fn end_answered(&mut self, peer: PeerId, i: u32) {
        let takes_entry = self.operations.as_ref().get(i as usize).is_some_and(|record| record.request.takes_entry());
        if let Some(target) = self.targets.as_mut().get_mut(peer.0 as usize) {
            let operations = self.operations.as_mut();
            let mut kept = List::EMPTY;
            while let Some(other) = target.sent.pop(operations, link) {
                if other != i {
                    kept.push(operations, other, link);
                }
            }
            target.sent = kept;
            if takes_entry {
                target.outstanding = target.outstanding.saturating_sub(1);
                target.window = target.window.saturating_add(1).min(self.most);
            }
        }
        self.await_acknowledgements(i);
        self.make_ready(peer.0);
    }

    /// Nothing more is sent of an operation, which is in no list: it ends when its memory is free.
    fn await_acknowledgements(&mut self, i: u32) {
        let Some(record) = self.operations.as_mut().get_mut(i as usize) else { return };
        record.stage = OperationStage::Acknowledging;
        if record.unacknowledged == 0 {
            self.finish(i);
        }
    }

    fn finish(&mut self, i: u32) {
        let Some(record) = self.operations.as_mut().get_mut(i as usize) else { return };
        record.stage = OperationStage::Finished;
        self.completed.push(self.operations.as_mut(), i, link);
    }

    fn record(&mut self, operation: RmaOperationId) -> Option<&mut OperationRecord> {
        let record = self.operations.as_mut().get_mut(operation.record() as usize)?;
        (record.generation == operation.generation() && record.stage != OperationStage::Free).then_some(record)
    }

    fn make_ready(&mut self, peer: u32) {
        let targets = self.targets.as_mut();
        let Some(target) = targets.get_mut(peer as usize) else { return };
        if !target.flags.contains(TargetFlags::READY) && !target.queue.is_empty() {
            target.flags.insert(TargetFlags::READY);
            self.ready.push(targets, peer, |target| &mut target.link);
        }
    }
}

enum TargetPoll {
    Action(Action),
    /// Its next operation is a read that needs a grant.
    LacksGrant,
    Nothing,
}
