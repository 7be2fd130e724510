//! Messages of collectives: how the sends and receives of a schedule travel, by datagrams or rings, and how they end.

use unisono_core::collective::{CollectiveMachine as _, FailureCause};
use unisono_core::device::Memory as _;
use unisono_core::endpoint::GrantError;
use unisono_core::endpoint::operation::EnqueueError as Unsent;
use unisono_core::ids::{self, PeerId, PlacementId, Rank as Member, StepId};
use unisono_core::message::collective_transport::header::{EAGER_HEADER, TransportKind, parse_key};
use unisono_core::message::collective_transport::{
    Posted, ReceiveError, Sent, StepHeader, StepKey, StepSendError, TransportAction,
};
use unisono_core::schedule::{BlockSpan, StepOperation};
use unisono_core::span::Span as Bytes;
use unisono_core::wire::MESSAGE_HEADER_ROOM;
use unisono_shmem::am_header::{self, MessageLocation};
use unisono_shmem::ring::PutError;

use super::Process;
use super::bounce_buffers::EAGER_MAX;
use super::matching_store::{Deferred, FetchTarget};
use super::messages::failure;
use super::records::{AnnouncedSend, GrantedPlacement, OperationOwner, put};
use crate::world::collective::engine::progress_table::{QueuedMessage, SendOwner};
use crate::world::collective::engine::transfer::{Transfer, TransferHolder, context_of};
use crate::world::request::{Failure, id_of_transfer};
use crate::world::shm_transport::{Announcement, ShmPeer, ShmTransport};
use unisono_bootstrap::Rank;

/// Most payload bytes that fit after a collective's header in the endpoint's own record.
const INLINE_PAYLOAD_MAX: usize = MESSAGE_HEADER_ROOM - EAGER_HEADER;

/// Why the payload of a collective's message could not be gathered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GatherError {
    /// The system has no memory.
    NoMemory,
    /// A span lies outside its buffer.
    Invalid,
}

impl Process {
    pub(super) fn start_step(&mut self, now: u64, collective: u32, step: StepId, operation: StepOperation) {
        match operation {
            StepOperation::Send { to, key, from, .. } => {
                self.send_step(now, collective, step, to, key, from, operation)
            }
            StepOperation::Receive { of, key, into, .. } => {
                self.receive_step(now, collective, step, of, key, into, operation)
            }
            StepOperation::Copy { .. } | StepOperation::Reduce { .. } => {}
        }
    }

    /// The transfer of a schedule step; `None` if its collective has ended.
    fn transfer(&self, collective: u32, step: StepId, peer: Member, key: u32, span: BlockSpan) -> Option<Transfer> {
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
            span,
            // A schedule is segmented so that no message is longer.
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            is_receive: false,
            place,
            staging: None,
            holder: TransferHolder::Transport,
        })
    }

    #[expect(clippy::too_many_arguments, reason = "a step and its parts")]
    fn send_step(
        &mut self,
        now: u64,
        collective: u32,
        step: StepId,
        to: Member,
        key: u32,
        from: BlockSpan,
        operation: StepOperation,
    ) {
        let Some(transfer) = self.transfer(collective, step, to, key, from) else { return };
        if self.collectives.has_departed(transfer.peer, context_of(transfer.key)) {
            return self.fail_missing(now, transfer.peer, context_of(transfer.key));
        }
        let collectives = &mut self.collectives;
        let message = collectives.transfers.insert(transfer);
        match collectives.transport.send(transfer.peer, transfer.key, transfer.bytes, message) {
            Ok(Sent::Eager(head)) => self.send_eager(now, message, &transfer, &head),
            Ok(Sent::Rts(head)) => self.announce_message(now, message, &transfer, &head),
            Err(error) => {
                collectives.transfers.take(message);
                match error {
                    StepSendError::Full => collectives.stalled.push_back((collective, step, operation)),
                    StepSendError::UnknownPeer | StepSendError::Duplicate => {
                        collectives.report_fault(transfer.peer, context_of(transfer.key), FailureCause::Disagrees);
                    }
                }
            }
        }
    }

    /// Sends an eager message. Copies short ones, and those that are not contiguous.
    fn send_eager(&mut self, now: u64, message: u32, transfer: &Transfer, head: &StepHeader) {
        let Some(collective) = transfer.collective else { return };
        if self.is_shm_peer(transfer.peer) {
            return self.put_eager(message, transfer, head);
        }
        let Some(running) = self.collectives.active.get(collective as usize).and_then(Option::as_ref) else { return };
        let (bytes, mut outgoing) = (transfer.bytes as usize, QueuedMessage::new(transfer.peer, head.as_ref()));
        let mut sound = true;
        if bytes <= INLINE_PAYLOAD_MAX {
            let gathered = running.gather(transfer.span, self.regions.get_mut(), |from| {
                let mut short = [0; INLINE_PAYLOAD_MAX];
                let length = from.bytes().min(INLINE_PAYLOAD_MAX);
                let short = short.get_mut(..length).unwrap_or_default();
                // SAFETY: borrowed by this collective, whose schedule lets nobody write there now.
                unsafe { from.read(short) };
                outgoing.append(short);
            });
            sound = gathered.is_ok();
            self.collectives.transfers.take(message);
            self.finish_step(collective, transfer.step);
        } else if let Some((cell, span)) = self.bounce_buffers.allocate(bytes) {
            if let Some(to) = self.regions.get_mut().address(span) {
                sound = running.pack(transfer.span, to, self.regions.get_mut()).is_ok();
            }
            (outgoing.payload, outgoing.owner) = (Some(span), SendOwner::Cell(cell));
            self.collectives.transfers.take(message);
            self.finish_step(collective, transfer.step);
        } else {
            match self.gather_payload(message) {
                Ok(payload) => outgoing.payload = Some(payload),
                Err(error) => return self.fail_transfer(transfer, error),
            }
            outgoing.owner = SendOwner::Transfer(message);
            self.set_holder(message, TransferHolder::Carrier);
        }
        if sound { self.post(now, outgoing) } else { self.report_corrupt(transfer.peer, transfer.key) }
    }

    /// As [`send_eager`](Self::send_eager), through a ring.
    fn put_eager(&mut self, message: u32, transfer: &Transfer, head: &StepHeader) {
        let Some(collective) = transfer.collective else { return };
        let running = self.collectives.active.get(collective as usize).and_then(Option::as_ref);
        let neighbour = live_peer(&mut self.shm, transfer.peer);
        let (Some(running), Some(neighbour)) = (running, neighbour) else { return };
        let regions = self.regions.get_mut();
        if neighbour.is_queue_empty() {
            let mut gathered = Ok(());
            let put = neighbour.put_collective(head, transfer.bytes, |put| {
                gathered = running.gather(transfer.span, regions, put);
            });
            match put {
                Ok(()) => {
                    self.collectives.transfers.take(message);
                    self.finish_step(collective, transfer.step);
                    return if gathered.is_err() {
                        self.report_corrupt(transfer.peer, transfer.key)
                    };
                }
                Err(PutError::Full | PutError::TooLong) => {}
                Err(PutError::Corrupted) => {
                    self.protocol_failure(transfer.peer);
                    return;
                }
            }
        }
        self.set_holder(message, TransferHolder::Carrier);
        match self.gather_payload(message) {
            Ok(from) => {
                if let Some(neighbour) = live_peer(&mut self.shm, transfer.peer) {
                    neighbour.queue_collective(*head, from, id_of_transfer(message));
                }
            }
            Err(error) => self.fail_transfer(transfer, error),
        }
    }

    /// The contiguous span of a message: in the user buffer, or a packed copy.
    fn gather_payload(&mut self, message: u32) -> Result<Bytes, GatherError> {
        let collectives = &mut self.collectives;
        let transfer = collectives.transfers.get(message).ok_or(GatherError::Invalid)?;
        if let Some(place) = transfer.place {
            return Ok(place);
        }
        let (span, bytes) = (transfer.span, transfer.bytes);
        let collective = transfer.collective.ok_or(GatherError::Invalid)?;
        let regions = self.regions.get_mut();
        let place = collectives.transfer_span(message, regions).ok_or(GatherError::NoMemory)?;
        let running = collectives.active.get(collective as usize).and_then(Option::as_ref);
        let packed = running.zip(regions.address(Bytes { bytes, ..place }));
        match packed.map(|(running, to)| running.pack(span, to, regions)) {
            Some(Ok(())) => Ok(place),
            Some(Err(_)) | None => Err(GatherError::Invalid),
        }
    }

    /// A message could not be gathered: its collective fails.
    fn fail_transfer(&mut self, transfer: &Transfer, error: GatherError) {
        match error {
            GatherError::NoMemory => _ = self.collectives.report_exhausted(context_of(transfer.key)),
            GatherError::Invalid => self.report_corrupt(transfer.peer, transfer.key),
        }
    }

    /// Where ranks of this node find these bytes.
    fn shm_place(&mut self, from: Bytes) -> Option<MessageLocation> {
        if from.bytes == 0 {
            return Some(MessageLocation::Private(0));
        }
        let address = self.regions.get_mut().address(from)?;
        // The parts of a layout have no address: the receiver asks for them.
        let Some(start) = address.adjacent() else { return Some(MessageLocation::Private(0)) };
        let shared = self.shm.as_ref()?.pool.offset(start, address.bytes());
        Some(shared.map_or(MessageLocation::Private(start.addr().get() as u64), MessageLocation::Shared))
    }

    fn set_holder(&mut self, message: u32, holder: TransferHolder) {
        if let Some(transfer) = self.collectives.transfers.get_mut(message) {
            transfer.holder = holder;
        }
    }

    /// Announces a message to its receiver (RTS).
    fn announce_message(&mut self, now: u64, message: u32, transfer: &Transfer, head: &StepHeader) {
        let place = match self.gather_payload(message) {
            Ok(place) => place,
            Err(error) => return self.fail_transfer(transfer, error),
        };
        if !self.is_shm_peer(transfer.peer) {
            return self.post(now, QueuedMessage::new(transfer.peer, head.as_ref()));
        }
        let Some(there) = self.shm_place(place) else { return self.report_corrupt(transfer.peer, transfer.key) };
        let sending =
            self.announced_sends.iter().position(Option::is_none).unwrap_or(self.announced_sends.len()) as u32;
        let announced = Announcement { send_index: sending, bytes: transfer.bytes, place: there };
        let told =
            live_peer(&mut self.shm, transfer.peer).map(|shm_peer| shm_peer.announce_collective(head, announced));
        put(
            &mut self.announced_sends,
            sending,
            AnnouncedSend { to: transfer.peer, from: place, request: id_of_transfer(message) },
        );
        self.set_holder(message, TransferHolder::Announced);
        if told.is_some_and(|told| told.is_err()) {
            self.protocol_failure(transfer.peer);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a step and its parts")]
    fn receive_step(
        &mut self,
        now: u64,
        collective: u32,
        step: StepId,
        of: Member,
        key: u32,
        into: BlockSpan,
        operation: StepOperation,
    ) {
        let Some(transfer) = self.transfer(collective, step, of, key, into) else { return };
        let transfer = Transfer { is_receive: true, ..transfer };
        let collectives = &mut self.collectives;
        let message = collectives.transfers.insert(transfer);
        match collectives.transport.receive(transfer.peer, transfer.key, transfer.bytes, message) {
            Ok(Posted::Waits) if collectives.has_departed(transfer.peer, context_of(transfer.key)) => {
                self.fail_missing(now, transfer.peer, context_of(transfer.key));
            }
            Ok(Posted::Waits) => collectives.has_work = true,
            Ok(Posted::Early { slot }) => {
                let regions = self.regions.get_mut();
                let kept = collectives.eager_slot(slot, regions);
                if kept.is_none() {
                    // The message was dropped when it arrived.
                    collectives.report_exhausted(context_of(transfer.key));
                    return;
                }
                let from = kept.and_then(|kept| regions.address(kept.part(transfer.bytes)));
                let running = collectives.active.get(collective as usize).and_then(Option::as_ref);
                let unpacked = running.zip(from).map(|(running, from)| running.unpack(from, into, regions));
                collectives.transport.release_slot(slot);
                collectives.transfers.take(message);
                collectives.has_work = true;
                match unpacked {
                    Some(Ok(())) => self.finish_step(collective, step),
                    _ => self.report_corrupt(transfer.peer, transfer.key),
                }
            }
            Err(error) => {
                collectives.transfers.take(message);
                match error {
                    ReceiveError::Full => collectives.stalled.push_back((collective, step, operation)),
                    ReceiveError::UnknownPeer | ReceiveError::Duplicate | ReceiveError::Disagrees { .. } => {
                        collectives.report_fault(transfer.peer, context_of(transfer.key), FailureCause::Disagrees);
                    }
                }
            }
        }
    }

    fn finish_step(&mut self, collective: u32, step: StepId) {
        if let Some(running) = self.collectives.get_mut(collective) {
            running.executor.handle_done(step);
        }
        self.collectives.enqueue(collective);
    }

    /// Reports a peer that sent an invalid message, or in whose name one was sent.
    pub(super) fn report_corrupt(&mut self, peer: PeerId, key: StepKey) {
        self.collectives.report_fault(peer, context_of(key), FailureCause::Corrupt);
    }

    pub(super) fn handle_action(&mut self, now: u64, action: TransportAction) {
        match action {
            TransportAction::Grant { to, user, key, .. } => self.grant_message(now, to, user, key),
            TransportAction::Send { to, head } => self.send_control(now, to, &head),
        }
    }

    /// Sends a control message of the collective transport, without a payload.
    fn send_control(&mut self, now: u64, to: PeerId, head: &StepHeader) {
        if !self.is_shm_peer(to) {
            return self.post(now, QueuedMessage::new(to, head.as_ref()));
        }
        let told = if let Some((TransportKind::Rts | TransportKind::Reannounce, key)) = parse_key(head.as_ref()) {
            let again = self.collectives.transfers.find_send(to, key).map(id_of_transfer);
            let is_it = |sending: &AnnouncedSend| Some(sending.request) == again;
            let found = (0..).zip(&self.announced_sends).find(|(_, sending)| sending.as_ref().is_some_and(is_it));
            let found = found.and_then(|(number, sending)| Some((number, sending.as_ref()?.from)));
            let found = found.and_then(|(number, from)| Some((number, from.bytes, self.shm_place(from)?)));
            // A send that has ended is not announced again.
            let Some((sending, bytes, place)) = found else { return };
            let announced = Announcement { send_index: sending, bytes, place };
            live_peer(&mut self.shm, to).map(|neighbour| neighbour.announce_collective(head, announced))
        } else {
            live_peer(&mut self.shm, to).map(|neighbour| neighbour.send_note([am_header::STEP, 0], head.as_ref()))
        };
        if told.is_some_and(|told| told.is_err()) {
            self.protocol_failure(to);
        }
    }

    /// The message of a receive was announced: fetches it through shared memory, or grants memory for it (CTS).
    pub(super) fn grant_message(&mut self, now: u64, to: PeerId, user: u32, key: StepKey) {
        let Some(place) = self.collectives.transfer_span(user, self.regions.get_mut()) else {
            self.collectives.report_exhausted(context_of(key));
            return;
        };
        if self.is_shm_peer(to) {
            let announced = &mut self.collectives.announcements;
            let found = announced.iter().position(|(from, of, _)| *from == to && *of == key);
            let Some((.., message)) = found.map(|i| announced.swap_remove(i)) else {
                return self.report_corrupt(to, key);
            };
            if message.bytes != place.bytes {
                return self.report_corrupt(to, key);
            }
            self.set_holder(user, TransferHolder::Carrier);
            self.send_control(now, to, &StepHeader::cts(key, PlacementId::default(), ids::RemoteKey(0)));
            let request = id_of_transfer(user);
            let ends = FetchTarget::Collective { sending: message.send_index, request };
            let deferred = Deferred::Fetch { from: to, place: message.place, into: place.into(), fetched: 0, ends };
            return self.matching.deferred.push_back(deferred);
        }
        let one_use = ids::RemoteKey(self.keys.next());
        match self.endpoint.grant(to, place, one_use) {
            Ok(placement) => {
                self.post(now, QueuedMessage::new(to, StepHeader::cts(key, placement, one_use).as_ref()));
                self.set_holder(user, TransferHolder::Grant(placement));
                let granted = GrantedPlacement { placement, to, request: id_of_transfer(user) };
                put(&mut self.granted_placements, placement.record() as u32, granted);
            }
            Err(GrantError::Full) => {
                self.collectives.pending_grants.push_back((to, user, key));
                self.collectives.has_work = true;
            }
            // The peer's failure is about to be reported.
            Err(GrantError::UnknownPeer) => {}
        }
    }

    /// The receiver granted memory for a message of this rank: transmits its payload.
    pub(super) fn place_message(&mut self, now: u64, user: u32, placement: PlacementId, key: ids::RemoteKey) {
        let Some(transfer) = self.collectives.transfers.get(user) else { return };
        let (to, Some(from)) = (transfer.peer, transfer.place) else { return };
        match self.endpoint.place(now, to, placement, key, from) {
            Ok(operation) => {
                self.record_operation(operation, OperationOwner::Request(id_of_transfer(user), to));
                self.set_holder(user, TransferHolder::Carrier);
            }
            Err(Unsent::Full) => {
                self.collectives.granted_sends.push_back((user, placement, key));
                self.collectives.has_work = true;
            }
            Err(error) => self.requests.finish(id_of_transfer(user), Err(failure(error, to))),
        }
    }

    /// Posts a message to the endpoint, or queues it until there is room.
    pub(super) fn post(&mut self, now: u64, outgoing: QueuedMessage) {
        // Messages keep their order.
        if !self.collectives.outbox.is_empty() || !self.try_post_again(now, &outgoing) {
            self.collectives.outbox.push_back(outgoing);
            self.collectives.has_work = true;
        }
    }

    /// Ends a transfer: its message has arrived, has left, or never will.
    pub(super) fn end_transfer(&mut self, now: u64, message: u32, result: Result<(), Failure>) {
        let collectives = &mut self.collectives;
        let Some(transfer) = collectives.transfers.take(message) else { return };
        let regions = self.regions.get_mut();
        let running = transfer.collective.and_then(|place| collectives.active.get(place as usize)?.as_ref());
        let mut sound = true;
        if let Some(kept) = transfer.staging {
            if let (true, Ok(()), Some(running)) = (transfer.is_receive, result, running) {
                let from = regions.address(kept.part(transfer.bytes));
                sound = from.is_some_and(|from| running.unpack(from, transfer.span, regions).is_ok());
            }
            collectives.scratch.release(kept, regions);
        }
        let Some(collective) = transfer.collective else { return };
        let context = context_of(transfer.key);
        match result {
            _ if !sound => self.report_corrupt(transfer.peer, transfer.key),
            Ok(()) => self.finish_step(collective, transfer.step),
            Err(Failure::PeerFailed(_) | Failure::PeerFinished(_) | Failure::Aborted { .. }) => {
                self.fail_missing(now, transfer.peer, context);
            }
            // The receiver withdrew its grant: it has failed, and reports why when it is asked.
            Err(Failure::RemoteTruncated(_)) if !self.collectives.has_departed(transfer.peer, context) => {
                let waits = Transfer { holder: TransferHolder::Announced, staging: None, ..transfer };
                self.collectives.transfers.insert(waits);
                self.ask(now, transfer.peer, context);
            }
            Err(Failure::RemoteTruncated(_)) => self.fail_missing(now, transfer.peer, context),
            Err(_) => self.report_corrupt(transfer.peer, transfer.key),
        }
    }
}

/// A shared-memory peer that takes part.
fn live_peer(shm: &mut Option<ShmTransport>, peer: PeerId) -> Option<&mut ShmPeer> {
    shm.as_mut()?.live_peer(peer)
}

/// Most payload bytes of an eager message of a collective, by its transport.
pub(super) fn eager_limit(shm: Option<&ShmPeer>, mtu: u32) -> u32 {
    let carries = match shm {
        Some(shm_peer) => shm_peer.longest(),
        None => mtu.saturating_sub(unisono_core::wire::HEADER as u32),
    };
    carries.saturating_sub(EAGER_HEADER as u32).min(EAGER_MAX as u32)
}
