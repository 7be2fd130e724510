//! Messages of collectives: how the sends and receives of a schedule travel, by datagrams or rings, and how they end.

use unisono_core::collective::FailureCause;
use unisono_core::device::Memory as _;
use unisono_core::endpoint::GrantError;
use unisono_core::endpoint::operation::EnqueueError as Unsent;
use unisono_core::ids::{self, PeerId, PlacementId, Rank as Member, StepId};
use unisono_core::message::collective_transport::header::{EAGER_HEADER, TransportKind, parse_key};
use unisono_core::message::collective_transport::{TransportAction, StepHeader, StepKey, Posted, ReceiveError, StepSendError, Sent};
use unisono_core::schedule::{StepOperation, BlockSpan};
use unisono_core::span::Span as Bytes;
use unisono_core::wire::MESSAGE_HEADER_ROOM;
use unisono_shmem::am_header::{self, MessageLocation};
use unisono_shmem::ring::PutError;

use super::messages::failure;
use super::{Granted, Process, Sending, Use, put};
use crate::world::collective::table::{EAGER_MOST, Ends, Outgoing, context_of};
use crate::world::collective::transfer::{Holder, Transfer};
use crate::world::mailbox::{Errand, Fetched};
use crate::world::near::{Announced, Near, Neighbour};
use crate::world::request::{Failure, of_message};
use unisono_bootstrap::Rank;

/// Most payload bytes that fit after a collective's header in the endpoint's own record.
const SHORT: usize = MESSAGE_HEADER_ROOM - EAGER_HEADER;

impl Process {
    pub(super) fn carry_out(&mut self, now: u64, collective: u32, step: StepId, operation: StepOperation) {
        match operation {
            StepOperation::Send { to, key, from, .. } => self.send_step(now, collective, step, to, key, from, operation),
            StepOperation::Receive { of, key, into, .. } => {
                self.receive_step(now, collective, step, of, key, into, operation)
            }
            StepOperation::Copy { .. } | StepOperation::Reduce { .. } => {}
        }
    }

    /// The transfer of a schedule step; `None` if its collective has ended.
    fn transfer(&self, collective: u32, step: StepId, peer: Member, key: u32, span: BlockSpan) -> Option<Transfer> {
        let running = self.collectives.running.get(collective as usize)?.as_ref()?;
        if running.ended.is_some() {
            return None;
        }
        let (bytes, place) = running.message(span);
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
            holder: Holder::Steps,
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
        if self.collectives.is_gone(transfer.peer, context_of(transfer.key)) {
            return self.miss(now, transfer.peer, context_of(transfer.key));
        }
        let collectives = &mut self.collectives;
        let message = collectives.transfers.insert(transfer);
        match collectives.steps.send(transfer.peer, transfer.key, transfer.bytes, message) {
            Ok(Sent::Eager(head)) => self.send_eagerly(now, message, &transfer, &head),
            Ok(Sent::Rts(head)) => self.announce_message(now, message, &transfer, &head),
            Err(error) => {
                collectives.transfers.take(message);
                match error {
                    StepSendError::Full => collectives.stalled.push_back((collective, step, operation)),
                    StepSendError::UnknownPeer | StepSendError::Duplicate => {
                        collectives.blame(transfer.peer, context_of(transfer.key), FailureCause::Disagrees);
                    }
                }
            }
        }
    }

    /// Sends an eager message. Copies short ones, and those that are not contiguous.
    fn send_eagerly(&mut self, now: u64, message: u32, transfer: &Transfer, head: &StepHeader) {
        let Some(collective) = transfer.collective else { return };
        if self.is_near(transfer.peer) {
            return self.put_eagerly(message, transfer, head);
        }
        let Some(running) = self.collectives.running.get(collective as usize).and_then(Option::as_ref) else { return };
        let (bytes, mut outgoing) = (transfer.bytes as usize, Outgoing::new(transfer.peer, head.as_ref()));
        let mut sound = true;
        if bytes <= SHORT {
            let gathered = running.gather(transfer.span, self.regions.get_mut(), |from| {
                let mut short = [0; SHORT];
                let length = from.bytes().min(SHORT);
                let short = short.get_mut(..length).unwrap_or_default();
                // SAFETY: lent to this collective, whose schedule lets nobody write there now.
                unsafe { from.read(short) };
                outgoing.append(short);
            });
            sound = gathered.is_ok();
            self.collectives.transfers.take(message);
            self.done(collective, transfer.step);
        } else if let Some((cell, span)) = self.small.take_longer(bytes) {
            if let Some(to) = self.regions.get_mut().address(span) {
                sound = running.pack(transfer.span, to, self.regions.get_mut()).is_ok();
            }
            (outgoing.payload, outgoing.ends) = (Some(span), Ends::Cell(cell));
            self.collectives.transfers.take(message);
            self.done(collective, transfer.step);
        } else {
            outgoing.payload = self.gathered(message);
            outgoing.ends = Ends::Transfer(message);
            sound = outgoing.payload.is_some();
            self.hold(message, Holder::Carrier);
        }
        if sound { self.post(now, outgoing) } else { self.corrupt(transfer.peer, transfer.key) }
    }

    /// As [`send_eagerly`](Self::send_eagerly), through a ring.
    fn put_eagerly(&mut self, message: u32, transfer: &Transfer, head: &StepHeader) {
        let Some(collective) = transfer.collective else { return };
        let running = self.collectives.running.get(collective as usize).and_then(Option::as_ref);
        let neighbour = living(&mut self.near, transfer.peer);
        let (Some(running), Some(neighbour)) = (running, neighbour) else { return };
        let regions = self.regions.get_mut();
        if neighbour.is_clear() {
            let mut gathered = Ok(());
            let put = neighbour.put_step(head, transfer.bytes, |put| {
                gathered = running.gather(transfer.span, regions, put);
            });
            match put {
                Ok(()) => {
                    self.collectives.transfers.take(message);
                    self.done(collective, transfer.step);
                    return if gathered.is_err() {
                        self.corrupt(transfer.peer, transfer.key)
                    };
                }
                Err(PutError::Full | PutError::TooLong) => {}
                Err(PutError::Corrupted) => {
                    self.disown(transfer.peer);
                    return;
                }
            }
        }
        self.hold(message, Holder::Carrier);
        match self.gathered(message) {
            Some(from) => {
                if let Some(neighbour) = living(&mut self.near, transfer.peer) {
                    neighbour.queue_step(*head, from, of_message(message));
                }
            }
            None => self.corrupt(transfer.peer, transfer.key),
        }
    }

    /// The contiguous span of a message: in the user buffer, or a packed copy.
    fn gathered(&mut self, message: u32) -> Option<Bytes> {
        let collectives = &mut self.collectives;
        let transfer = collectives.transfers.get(message)?;
        if transfer.place.is_some() {
            return transfer.place;
        }
        let (span, bytes, collective) = (transfer.span, transfer.bytes, transfer.collective?);
        let regions = self.regions.get_mut();
        let place = collectives.place(message, regions)?;
        let running = collectives.running.get(collective as usize)?.as_ref()?;
        let to = regions.address(Bytes { bytes, ..place })?;
        running.pack(span, to, regions).ok()?;
        Some(place)
    }

    /// Where ranks of this node find these bytes.
    fn whereabouts(&mut self, from: Bytes) -> Option<MessageLocation> {
        if from.bytes == 0 {
            return Some(MessageLocation::Private(0));
        }
        let address = self.regions.get_mut().address(from)?;
        let shared = self.near.as_ref()?.pool.offset(address.start(), address.bytes());
        Some(shared.map_or(MessageLocation::Private(address.start().addr().get() as u64), MessageLocation::Shared))
    }

    fn hold(&mut self, message: u32, holder: Holder) {
        if let Some(transfer) = self.collectives.transfers.get_mut(message) {
            transfer.holder = holder;
        }
    }

    /// Announces a message to its receiver (RTS).
    fn announce_message(&mut self, now: u64, message: u32, transfer: &Transfer, head: &StepHeader) {
        let Some(place) = self.gathered(message) else { return self.corrupt(transfer.peer, transfer.key) };
        if !self.is_near(transfer.peer) {
            return self.post(now, Outgoing::new(transfer.peer, head.as_ref()));
        }
        let Some(there) = self.whereabouts(place) else { return self.corrupt(transfer.peer, transfer.key) };
        let sending = self.sendings.iter().position(Option::is_none).unwrap_or(self.sendings.len()) as u32;
        let announced = Announced { sending, bytes: transfer.bytes, place: there };
        let told = living(&mut self.near, transfer.peer).map(|neighbour| neighbour.announce_step(head, announced));
        put(&mut self.sendings, sending, Sending { to: transfer.peer, from: place, request: of_message(message) });
        self.hold(message, Holder::Announced);
        if told.is_some_and(|told| told.is_err()) {
            self.disown(transfer.peer);
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
        match collectives.steps.receive(transfer.peer, transfer.key, transfer.bytes, message) {
            Ok(Posted::Waits) if collectives.is_gone(transfer.peer, context_of(transfer.key)) => {
                self.miss(now, transfer.peer, context_of(transfer.key));
            }
            Ok(Posted::Waits) => collectives.has_news = true,
            Ok(Posted::Early { slot }) => {
                let regions = self.regions.get_mut();
                let kept = collectives.slot(slot, regions);
                let from = kept.and_then(|kept| regions.address(kept.part(transfer.bytes)));
                let running = collectives.running.get(collective as usize).and_then(Option::as_ref);
                let unpacked = running.zip(from).map(|(running, from)| running.unpack(from, into, regions));
                collectives.steps.release_slot(slot);
                collectives.transfers.take(message);
                collectives.has_news = true;
                match unpacked {
                    Some(Ok(())) => self.done(collective, step),
                    _ => self.corrupt(transfer.peer, transfer.key),
                }
            }
            Err(error) => {
                collectives.transfers.take(message);
                match error {
                    ReceiveError::Full => collectives.stalled.push_back((collective, step, operation)),
                    ReceiveError::UnknownPeer | ReceiveError::Duplicate | ReceiveError::Disagrees { .. } => {
                        collectives.blame(transfer.peer, context_of(transfer.key), FailureCause::Disagrees);
                    }
                }
            }
        }
    }

    fn done(&mut self, collective: u32, step: StepId) {
        if let Some(running) = self.collectives.get_mut(collective) {
            running.executor.handle_done(step);
        }
        self.collectives.list(collective);
    }

    /// Reports a peer that sent an invalid message, or in whose name one was sent.
    pub(super) fn corrupt(&mut self, peer: PeerId, key: StepKey) {
        self.collectives.blame(peer, context_of(key), FailureCause::Corrupt);
    }

    pub(super) fn act(&mut self, now: u64, action: TransportAction) {
        match action {
            TransportAction::Grant { to, user, key, .. } => self.grant_message(now, to, user, key),
            TransportAction::Send { to, head } => self.tell_step(now, to, &head),
        }
    }

    /// Sends a control message of the collective transport, without a payload.
    fn tell_step(&mut self, now: u64, to: PeerId, head: &StepHeader) {
        if !self.is_near(to) {
            return self.post(now, Outgoing::new(to, head.as_ref()));
        }
        let told = if let Some((TransportKind::Rts | TransportKind::Reannounce, key)) = parse_key(head.as_ref()) {
            let again = self.collectives.transfers.sent(to, key).map(of_message);
            let is_it = |sending: &Sending| Some(sending.request) == again;
            let found = (0..).zip(&self.sendings).find(|(_, sending)| sending.as_ref().is_some_and(is_it));
            let found = found.and_then(|(number, sending)| Some((number, sending.as_ref()?.from)));
            let found = found.and_then(|(number, from)| Some((number, from.bytes, self.whereabouts(from)?)));
            // A send that has ended is not announced again.
            let Some((sending, bytes, place)) = found else { return };
            let announced = Announced { sending, bytes, place };
            living(&mut self.near, to).map(|neighbour| neighbour.announce_step(head, announced))
        } else {
            living(&mut self.near, to).map(|neighbour| neighbour.tell([am_header::STEP, 0], head.as_ref()))
        };
        if told.is_some_and(|told| told.is_err()) {
            self.disown(to);
        }
    }

    /// The message of a receive was announced: fetches it through shared memory, or grants memory for it (CTS).
    pub(super) fn grant_message(&mut self, now: u64, to: PeerId, user: u32, key: StepKey) {
        let Some(place) = self.collectives.place(user, self.regions.get_mut()) else { return };
        if self.is_near(to) {
            let announced = &mut self.collectives.announced;
            let found = announced.iter().position(|(from, of, _)| *from == to && *of == key);
            let Some((.., message)) = found.map(|i| announced.swap_remove(i)) else { return self.corrupt(to, key) };
            if message.bytes != place.bytes {
                return self.corrupt(to, key);
            }
            self.hold(user, Holder::Carrier);
            self.tell_step(now, to, &StepHeader::cts(key, PlacementId::default(), ids::RemoteKey(0)));
            let request = of_message(user);
            let ends = Fetched::Step { sending: message.sending, request };
            let errand = Errand::Fetch { from: to, place: message.place, into: place.into(), fetched: 0, ends };
            return self.mailbox.errands.push_back(errand);
        }
        let one_use = ids::RemoteKey(self.keys.next());
        match self.endpoint.grant(to, place, one_use) {
            Ok(placement) => {
                self.post(now, Outgoing::new(to, StepHeader::cts(key, placement, one_use).as_ref()));
                self.hold(user, Holder::Grant(placement));
                let granted = Granted { placement, to, request: of_message(user) };
                put(&mut self.granted, placement.record() as u32, granted);
            }
            Err(GrantError::Full) => {
                self.collectives.grants.push_back((to, user, key));
                self.collectives.has_news = true;
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
                self.note(operation, Use::Request(of_message(user), to));
                self.hold(user, Holder::Carrier);
            }
            Err(Unsent::Full) => {
                self.collectives.granted.push_back((user, placement, key));
                self.collectives.has_news = true;
            }
            Err(error) => self.requests.finish(of_message(user), Err(failure(error, to))),
        }
    }

    /// Posts a message to the endpoint, or queues it until there is room.
    pub(super) fn post(&mut self, now: u64, outgoing: Outgoing) {
        // Messages keep their order.
        if !self.collectives.outbox.is_empty() || !self.try_post_again(now, &outgoing) {
            self.collectives.outbox.push_back(outgoing);
            self.collectives.has_news = true;
        }
    }

    /// Ends a transfer: its message has arrived, has left, or never will.
    pub(super) fn end_transfer(&mut self, now: u64, message: u32, result: Result<(), Failure>) {
        let collectives = &mut self.collectives;
        let Some(transfer) = collectives.transfers.take(message) else { return };
        let regions = self.regions.get_mut();
        let running = transfer.collective.and_then(|place| collectives.running.get(place as usize)?.as_ref());
        let mut sound = true;
        if let Some(kept) = transfer.staging {
            if let (true, Ok(()), Some(running)) = (transfer.is_receive, result, running) {
                let from = regions.address(kept.part(transfer.bytes));
                sound = from.is_some_and(|from| running.unpack(from, transfer.span, regions).is_ok());
            }
            collectives.store.give_back(kept, regions);
        }
        let Some(collective) = transfer.collective else { return };
        let context = context_of(transfer.key);
        match result {
            _ if !sound => self.corrupt(transfer.peer, transfer.key),
            Ok(()) => self.done(collective, transfer.step),
            Err(Failure::PeerFailed(_) | Failure::Parted(_) | Failure::Aborted { .. }) => {
                self.miss(now, transfer.peer, context);
            }
            // The receiver withdrew its grant: it has failed, and reports why when it is asked.
            Err(Failure::TooLongForReceive(_)) if !self.collectives.is_gone(transfer.peer, context) => {
                let waits = Transfer { holder: Holder::Announced, staging: None, ..transfer };
                self.collectives.transfers.insert(waits);
                self.ask(now, transfer.peer, context);
            }
            Err(Failure::TooLongForReceive(_)) => self.miss(now, transfer.peer, context),
            Err(_) => self.corrupt(transfer.peer, transfer.key),
        }
    }
}

/// A shared-memory peer that takes part.
pub(super) fn living(near: &mut Option<Near>, peer: PeerId) -> Option<&mut Neighbour> {
    near.as_mut()?.living(peer)
}

/// Most payload bytes of an eager message of a collective, by its transport.
pub(super) fn eager_limit(near: Option<&Neighbour>, mtu: u32) -> u32 {
    let carries = match near {
        Some(neighbour) => neighbour.longest(),
        None => mtu.saturating_sub(unisono_core::wire::HEADER as u32),
    };
    carries.saturating_sub(EAGER_HEADER as u32).min(EAGER_MOST as u32)
}
