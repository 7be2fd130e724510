//! Reception: entries of the other ranks' rings, and the ends of ranks.

use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point::{self, Cancelled, MessageHeader, Outcome, PayloadStore};
use unisono_core::message::{Context, Tag};
use unisono_shmem::am_header::{
    ABORT, BYE, EAGER, EAGER_IN_CONTEXT, EAGER_WITH_HEADER, FRAGMENT, HEADER, HELLO, KIND, NOTIFICATION, SHORT_BYTES,
    STEP, STEP_RTS, split_immediate,
};
use unisono_shmem::ring::Entry;
use unisono_shmem::segment::SharedBytes;

use super::request::{CallerBuffer, RequestState};
use super::storage::SLOT;
use super::{MessageError, Messages, Status, status_of};

/// Entries consumed from one ring per round.
const BUDGET: u32 = 64;
/// Rounds over the ring of a gone rank: enough for the entries of any ring.
const DRAIN_ROUNDS: u32 = (1 << 16) / BUDGET;

/// Outcome of handling an entry.
enum NoteOutcome {
    /// It was valid.
    Handled,
    /// It violates the protocol.
    Violation,
    /// The rank has ended.
    Ended(MessageError),
}

impl Messages<'_> {
    /// Consumes entries of one rank. Returns whether anything moved.
    pub(super) fn receive_from(&mut self, place: usize, held: &mut CallerBuffer<'_>) -> bool {
        let Ok(rank) = u32::try_from(place) else { return false };
        let mut moved = false;
        for _ in 0..BUDGET {
            let Some(channel) = self.channels.get_mut(place).filter(|channel| channel.ended.is_none()) else { break };
            let polled = match channel.inward.poll() {
                Ok(None) => break,
                Ok(Some(entry)) => self.handle(rank, &entry, held),
                Err(_) => None,
            };
            moved = true;
            if let Some(channel) = self.channels.get_mut(place) {
                channel.inward.consume();
            }
            match polled {
                Some(NoteOutcome::Handled) => {}
                Some(NoteOutcome::Ended(error)) => self.end_peer(place, error),
                Some(NoteOutcome::Violation) | None => self.protocol_failure(rank),
            }
        }
        moved
    }

    /// `None`: the entry violates the protocol.
    fn handle(&mut self, from: u32, entry: &Entry<'_>, held: &mut CallerBuffer<'_>) -> Option<NoteOutcome> {
        let ([what, number], peer) = (entry.header, PeerId(from));
        let channel = self.channels.get_mut(usize::try_from(from).ok()?)?;
        let (outcome, payload, without) = match what {
            HELLO | STEP | STEP_RTS | NOTIFICATION => return Some(NoteOutcome::Handled),
            BYE => return Some(NoteOutcome::Ended(MessageError::PeerFinished(from))),
            ABORT => return Some(NoteOutcome::Ended(MessageError::Failed(from))),
            FRAGMENT => return self.place_fragment(from, number, entry.payload, held),
            EAGER_WITH_HEADER => {
                let (payload, head) = split_immediate::<{ MessageHeader::EAGER }>(entry)?;
                channel.acknowledged.receive(number, &head)?;
                let bytes = u32::try_from(payload.bytes().checked_add(MessageHeader::EAGER)?).ok()?;
                (self.machine.handle(peer, &head, bytes), payload, MessageHeader::EAGER)
            }
            HEADER => {
                let mut head = [0; MessageHeader::LONGEST];
                let shown = head.get_mut(..entry.payload.bytes())?;
                entry.payload.read(shown)?;
                channel.acknowledged.receive(number, shown)?;
                (self.machine.handle(peer, shown, u32::try_from(shown.len()).ok()?), entry.payload, 0)
            }
            _ => {
                let (payload, context) = match what & KIND {
                    EAGER => (entry.payload, Context(0)),
                    EAGER_IN_CONTEXT => {
                        let (payload, context) = split_immediate(entry)?;
                        (payload, Context(u32::from_le_bytes(context)))
                    }
                    _ => return Some(NoteOutcome::Violation),
                };
                let (credit, bytes) = (channel.acknowledged.credit(what), u32::try_from(payload.bytes()).ok()?);
                (self.machine.handle_inline(peer, context, Tag(number), credit, bytes), payload, MessageHeader::EAGER)
            }
        };
        self.apply_outcome(outcome, payload, without, held)
    }

    /// Applies the outcome of a header: the first `without` bytes of its count do not precede the payload.
    fn apply_outcome(
        &mut self,
        outcome: Outcome,
        payload: SharedBytes<'_>,
        without: usize,
        held: &mut CallerBuffer<'_>,
    ) -> Option<NoteOutcome> {
        let behind = |start: usize| {
            let start = start.saturating_sub(without);
            payload.part(start, payload.bytes().checked_sub(start)?)
        };
        match outcome {
            Outcome::Nothing => {}
            Outcome::Into { user, start, status } => {
                self.copy_payload(user, 0, behind(start)?, held);
                self.end_receive(user, &status);
            }
            Outcome::Store { place, start } => {
                let (payload, into) = (behind(start)?, buffered_payload(self.short_payloads, self.slots, place));
                payload.read(into.get_mut(..payload.bytes())?)?;
            }
            Outcome::Pending { user, status } => {
                if let Some(record) = self.requests.at(user) {
                    let status = status_of(&status);
                    (record.state, record.peer, record.bytes) =
                        (RequestState::AwaitingPayload(status), status.source, status.bytes);
                }
            }
            Outcome::Truncated { user, status } => self.end_receive(user, &status),
            // Parts are for networks.
            Outcome::Place { more: true, .. } | Outcome::ProtocolViolation => return Some(NoteOutcome::Violation),
            Outcome::Place { user, placement, .. } => {
                if let Some(record) = self.requests.at(user) {
                    record.state = RequestState::Streaming(placement.0);
                }
            }
            Outcome::Sent { user, truncated } => {
                let too_long = |record: &super::request::Record<'_>| MessageError::RemoteTruncated(record.peer);
                let error = self.requests.at(user).map(|record| too_long(record)).filter(|_| truncated);
                self.end_send(user, error.map_or(Ok(()), Err));
            }
        }
        Some(NoteOutcome::Handled)
    }

    /// Copies a payload into a receive's buffer from offset `from` on, as much as fits.
    fn copy_payload(&mut self, user: u32, from: usize, payload: SharedBytes<'_>, held: &mut CallerBuffer<'_>) {
        let Some(request) = self.requests.name(user) else { return };
        let room = self.requests.receive_buffer(request, held).and_then(|room| room.get_mut(from..));
        if let Some(room) = room {
            let bytes = payload.bytes().min(room.len());
            // As long as it.
            let _ = room.get_mut(..bytes).and_then(|room| payload.read(room));
        }
    }

    fn end_receive(&mut self, user: u32, status: &point_to_point::Status) {
        if let Some(record) = self.requests.at(user) {
            record.state = RequestState::Ended(receive_result(status, record.room));
        }
    }

    /// A fragment.
    fn place_fragment(
        &mut self,
        from: u32,
        number: u32,
        payload: SharedBytes<'_>,
        held: &mut CallerBuffer<'_>,
    ) -> Option<NoteOutcome> {
        let record = self.requests.at(number).filter(|record| record.peer == from)?;
        let RequestState::ReceivingFragments(status) = record.state else { return None };
        let at = record.moved;
        let end = at.checked_add(payload.bytes()).filter(|end| *end > at && *end <= status.bytes)?;
        record.moved = end;
        if end == status.bytes {
            record.state = RequestState::Ended(Ok(status));
        }
        self.copy_payload(number, at, payload, held);
        Some(NoteOutcome::Handled)
    }

    /// A rank violated the protocol: its ring is ignored from now on.
    pub(super) fn protocol_failure(&mut self, rank: u32) {
        if let Ok(place) = usize::try_from(rank) {
            self.end_peer(place, MessageError::ProtocolViolation(rank));
        }
    }

    /// A rank is gone: entries that it wrote before still count.
    pub(super) fn mark_failed(&mut self, place: usize, error: MessageError, held: &mut CallerBuffer<'_>) {
        let mut rounds = 0..DRAIN_ROUNDS;
        while rounds.next().is_some() && self.receive_from(place, held) {}
        self.end_peer(place, error);
    }

    /// Ends every request that needs this rank, and receives from any source unless the rank only left.
    pub(super) fn end_peer(&mut self, place: usize, error: MessageError) {
        let (Some(channel), Ok(rank)) = (self.channels.get_mut(place), u32::try_from(place)) else { return };
        if channel.ended.is_some() {
            return;
        }
        channel.ended = Some(error);
        let has_failed = !matches!(error, MessageError::PeerFinished(_));
        let (requests, mut reported) = (&mut self.requests, false);
        self.queue.retain(|queued| queued.to != rank);
        self.machine.disconnect(PeerId(rank), has_failed, |lost| {
            let (Cancelled::Receive(user) | Cancelled::Send(user)) = lost;
            reported |= matches!(lost, Cancelled::Receive(_));
            if let Some(record) = requests.at(user) {
                record.state = RequestState::Ended(Err(error));
            }
        });
        for record in requests.0.iter_mut().filter(|record| record.peer == rank) {
            let is_its = matches!(
                record.state,
                RequestState::Sending
                    | RequestState::Streaming(_)
                    | RequestState::AwaitingPayload(_)
                    | RequestState::ReceivingFragments(_)
            );
            if is_its {
                record.state = RequestState::Ended(Err(error));
                reported = true;
            }
        }
        channel.failure_is_unreported = has_failed && !reported;
        if self.all_peers_ended() {
            self.fail_wildcard_receives(error);
        }
    }

    /// No sender is left: ends the receives from any source.
    fn fail_wildcard_receives(&mut self, error: MessageError) {
        for record in self.requests.0.iter_mut() {
            if let RequestState::Waiting(id) = record.state
                && record.peer != self.member.local()
                && self.machine.cancel(id).is_some()
            {
                record.state = RequestState::Ended(Err(error));
            }
        }
    }
}

/// The buffer of an unexpected payload.
pub(super) fn buffered_payload<'k>(
    shorts: &'k mut [[u8; SHORT_BYTES]],
    slots: &'k mut [[u8; SLOT]],
    place: PayloadStore,
) -> &'k mut [u8] {
    let index = |index: u32| usize::try_from(index).unwrap_or(usize::MAX);
    match place {
        PayloadStore::Short(message) => shorts.get_mut(index(message)).map_or(&mut [], |short| short.as_mut_slice()),
        PayloadStore::Slot(slot) => slots.get_mut(index(slot)).map_or(&mut [], |slot| slot.as_mut_slice()),
    }
}

/// The result of a receive whose buffer has `room` bytes.
pub(super) fn receive_result(status: &point_to_point::Status, room: usize) -> Result<Status, MessageError> {
    let reported = status_of(status);
    if reported.bytes > room { Err(MessageError::Truncated { bytes: status.bytes }) } else { Ok(reported) }
}
