//! Messages of collectives: how the sends and receives of a schedule are handed to the messenger, and how they end.

use core::ptr::NonNull;

use unisono_core::collective::{CollectiveMachine as _, FailureCause};
use unisono_core::device::Memory as _;
use unisono_core::ids::{PeerId, Port, Rank as Member, StepId};
use unisono_core::message::collective_transport::StepKey;
use unisono_core::message::collective_transport::header::EAGER_HEADER;
use unisono_core::messenger::{Class, Event, ReceiveFailure, SendFailure, StepError, StepMessage};
use unisono_core::schedule::{BlockSpan, StepOperation};
use unisono_core::span::Span;
use unisono_core::wire::MESSAGE_HEADER_ROOM;

use super::Process;
use super::bounce_buffers::EAGER_MAX;
use crate::world::collective::engine::transfer::{Transfer, context_of};
use crate::world::shm_transport::ShmPeer;
use unisono_bootstrap::Rank;

/// Most rounds of the messenger between two rounds of other work.
const MESSENGER_ROUNDS: u32 = 4;

/// A message about a communicator: of a status, or a question of a hang report.
pub(in crate::world) type ControlMessage = ([u8; MESSAGE_HEADER_ROOM], usize);

/// Why a message of a schedule was not started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StartError {
    /// Progress makes room.
    Full,
    /// The system has no memory.
    NoMemory,
    /// A span lies outside its buffer.
    Invalid,
    /// The message contradicts another one.
    Disagrees,
}

impl From<StepError> for StartError {
    fn from(error: StepError) -> Self {
        match error {
            StepError::Full => Self::Full,
            StepError::UnknownPeer | StepError::Duplicate | StepError::Disagrees => Self::Disagrees,
        }
    }
}

impl Process {
    /// Starts a message of a schedule.
    pub(super) fn start_step(&mut self, now: u64, collective: u32, step: StepId, operation: StepOperation) {
        let transfer = match operation {
            StepOperation::Send { to, port, key, from } => self.transfer(collective, step, to, (key, port), from),
            StepOperation::Receive { of, port, key, into } => {
                let transfer = self.transfer(collective, step, of, (key, port), into);
                transfer.map(|transfer| Transfer { is_receive: true, ..transfer })
            }
            StepOperation::Group(operation) => return self.start_group_step(collective, step, operation),
            StepOperation::Copy { .. } | StepOperation::Reduce { .. } => None,
        };
        let Some(transfer) = transfer else { return };
        let (peer, context) = (transfer.peer, context_of(transfer.key));
        let has_departed = self.collectives.has_departed(peer, context);
        if has_departed && !transfer.is_receive {
            return self.fail_missing(now, peer, context);
        }
        let message = self.collectives.transfers.insert(transfer);
        let started = self.start_transfer(message, &transfer);
        self.collectives.work.has_work = true;
        let Err(error) = started else {
            // A message that arrived before its sender departed still counts.
            if has_departed && self.messenger.awaits_step(message) {
                self.fail_missing(now, peer, context);
            }
            return;
        };
        let ended = self.collectives.transfers.take(message);
        if let Some(block) = ended.and_then(|ended| ended.staging) {
            self.collectives.scratch.release(block, self.transport.regions.get_mut());
        }
        match error {
            StartError::Full => self.collectives.work.stalled.push_back((collective, step, operation)),
            StartError::NoMemory => _ = self.collectives.report_exhausted(context),
            StartError::Invalid => self.report_corrupt(peer, transfer.key),
            StartError::Disagrees => _ = self.collectives.report_fault(peer, context, FailureCause::Disagrees),
        }
    }

    /// The transfer of a schedule step; `None` if its collective has ended.
    fn transfer(
        &self,
        collective: u32,
        step: StepId,
        peer: Member,
        (key, port): (u32, Port),
        span: BlockSpan,
    ) -> Option<Transfer> {
        let running = self.collectives.active.get(collective as usize)?.as_ref()?;
        if running.ended.is_some() {
            return None;
        }
        let (bytes, place) = running.message_extent(span);
        let id = running.executor.id();
        let key = StepKey { context: running.context, sequence: id.sequence, step: key };
        let peer = self.collectives.contexts.get(id.context)?.members.world_rank(Rank(peer.0))?;
        Some(Transfer {
            collective: Some(collective),
            step,
            peer: peer.into(),
            key,
            port,
            span,
            // A schedule is segmented so that no message is longer.
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            is_receive: false,
            place,
            staging: None,
            is_refused: false,
        })
    }

    /// Hands a transfer to the messenger, which will report its end.
    fn start_transfer(&mut self, message: u32, transfer: &Transfer) -> Result<(), StartError> {
        let Transfer { peer, key, port, is_receive, .. } = *transfer;
        let place = self.collectives.transfer_span(message, self.transport.regions.get_mut());
        let place = place.ok_or(StartError::NoMemory)?;
        if is_receive {
            return Ok(self.messenger.receive_step(&mut self.transport, peer, key, place, message)?);
        }
        if transfer.place.is_none() {
            self.pack(transfer, place).ok_or(StartError::Invalid)?;
        }
        // Nothing has no address.
        let at = match place.bytes {
            0 => 0,
            _ if self.transport.is_shm_peer(peer) => self.transport.location(place),
            _ => self.transport.readable(place.into()),
        };
        let message = StepMessage { to: peer, key, payload: place, at, port, user: message };
        Ok(self.messenger.send_step(&mut self.transport, &message)?)
    }

    /// Copies the parts of a message to contiguous memory.
    fn pack(&mut self, transfer: &Transfer, place: Span) -> Option<()> {
        let regions = self.transport.regions.get_mut();
        let running = self.collectives.active.get(transfer.collective? as usize)?.as_ref()?;
        let to = regions.address(place)?;
        running.pack(transfer.span, NonNull::slice_from_raw_parts(to.adjacent()?, to.bytes()), regions).ok()
    }

    pub(super) fn finish_step(&mut self, collective: u32, step: StepId) {
        if let Some(running) = self.collectives.get_mut(collective) {
            running.executor.handle_done(step);
        }
        self.collectives.enqueue(collective);
    }

    /// Reports a peer that sent an invalid message, or in whose name one was sent.
    pub(super) fn report_corrupt(&mut self, peer: PeerId, key: StepKey) {
        self.collectives.report_fault(peer, context_of(key), FailureCause::Corrupt);
    }

    /// Sends what waits, and moves announced messages. Returns whether anything moved.
    pub(super) fn progress_messenger(&mut self) -> bool {
        let mut moved = false;
        let mut rounds = 0..MESSENGER_ROUNDS;
        while rounds.next().is_some() && self.messenger.progress_class(&mut self.transport, Class::Collective) {
            moved = true;
        }
        while let Some((to, (bytes, length))) = self.collectives.work.outbox.front()
            && self.messenger.send_control(&mut self.transport, *to, bytes.get(..*length).unwrap_or_default())
        {
            self.collectives.work.outbox.pop_front();
            moved = true;
        }
        self.collectives.work.has_work |= !self.collectives.work.outbox.is_empty();
        moved
    }

    /// Sends a message about a communicator or a connection after all earlier messages of collectives to that rank.
    pub(super) fn send_control(&mut self, to: PeerId, bytes: &[u8]) {
        if self.collectives.work.outbox.is_empty() && self.messenger.send_control(&mut self.transport, to, bytes) {
            return;
        }
        let mut copy = [0; MESSAGE_HEADER_ROOM];
        copy.iter_mut().zip(bytes).for_each(|(into, byte)| *into = *byte);
        self.collectives.work.outbox.push_back((to, (copy, bytes.len())));
        self.collectives.work.has_work = true;
    }

    /// Whether such messages have not been sent yet.
    #[cfg(feature = "verbs")]
    pub(super) fn has_control_messages(&self) -> bool {
        !self.collectives.work.outbox.is_empty()
    }

    /// Handles an event of the messenger.
    pub(super) fn handle_messenger_event(&mut self, now: u64, event: Event) {
        match event {
            Event::Sent { user, result, .. } => self.end_transfer(now, user, result.map_err(TransferFailure::from)),
            Event::Received { user, result, .. } => {
                self.end_transfer(now, user, result.map(|_| ()).map_err(TransferFailure::from));
            }
            Event::ProtocolViolation(peer) => _ = self.protocol_failure(peer),
        }
    }

    /// Ends a transfer: its message has arrived, has left, or never will.
    fn end_transfer(&mut self, now: u64, message: u32, result: Result<(), TransferFailure>) {
        self.requests.record_step();
        let collectives = &mut self.collectives;
        let Some(transfer) = collectives.transfers.take(message) else { return };
        let regions = self.transport.regions.get_mut();
        let running = transfer.collective.and_then(|place| collectives.active.get(place as usize)?.as_ref());
        let mut sound = true;
        if let Some(block) = transfer.staging {
            if let (true, Ok(()), Some(running)) = (transfer.is_receive, result, running) {
                let from = regions.address(block.part(transfer.bytes));
                let from = from.and_then(|from| Some(NonNull::slice_from_raw_parts(from.adjacent()?, from.bytes())));
                sound = from.is_some_and(|from| running.unpack(from, transfer.span, regions).is_ok());
            }
            collectives.scratch.release(block, regions);
        }
        let Some(collective) = transfer.collective else { return };
        let context = context_of(transfer.key);
        match result {
            _ if !sound => self.report_corrupt(transfer.peer, transfer.key),
            Ok(()) => self.finish_step(collective, transfer.step),
            Err(TransferFailure::PeerGone) => self.fail_missing(now, transfer.peer, context),
            // The receiver has failed, and reports why when it is asked.
            Err(TransferFailure::Refused) if !self.collectives.has_departed(transfer.peer, context) => {
                self.collectives.transfers.insert(Transfer { is_refused: true, staging: None, ..transfer });
                self.ask(transfer.peer, context);
            }
            Err(TransferFailure::Refused) => self.fail_missing(now, transfer.peer, context),
            Err(TransferFailure::Disagrees) => {
                self.collectives.report_fault(transfer.peer, context, FailureCause::Disagrees);
            }
        }
    }

    /// Cancels the messages of a collective that has failed.
    pub(super) fn cancel_transfers(&mut self, collective: u32) {
        let (transfers, mut cancelled) = (&self.collectives.transfers, Vec::new());
        let is_its = |message| transfers.collective_of(message) == Some(collective);
        self.messenger.cancel_steps(&mut self.transport, is_its, |message| cancelled.push(message));
        self.collectives.orphan_transfers(collective, &cancelled, self.transport.regions.get_mut());
    }
}

/// Why a transfer failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TransferFailure {
    PeerGone,
    /// The receiver takes no part any more.
    Refused,
    /// The message has another length than its receive.
    Disagrees,
}

impl From<SendFailure> for TransferFailure {
    fn from(failure: SendFailure) -> Self {
        match failure {
            SendFailure::PeerGone => Self::PeerGone,
            SendFailure::Truncated | SendFailure::Refused => Self::Refused,
        }
    }
}

impl From<ReceiveFailure> for TransferFailure {
    fn from(failure: ReceiveFailure) -> Self {
        match failure {
            ReceiveFailure::PeerGone => Self::PeerGone,
            ReceiveFailure::Truncated(_) | ReceiveFailure::Disagrees => Self::Disagrees,
        }
    }
}

/// Most payload bytes of an eager message of a collective, by its transport.
pub(super) fn eager_limit(shm: Option<&ShmPeer>, mtu: u32) -> u32 {
    let carries = match shm {
        Some(shm_peer) => shm_peer.longest(),
        None => mtu.saturating_sub(unisono_core::wire::HEADER as u32),
    };
    carries.saturating_sub(EAGER_HEADER as u32).min(EAGER_MAX as u32)
}
