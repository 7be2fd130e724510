//! Reception: entries of the other ranks' rings, and the ends of ranks.

use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point::{self, MessageHeader, Cancelled, Outcome, PayloadStore};
use unisono_core::message::{Context, Tag};
use unisono_shmem::am_header::{
    ABORT, BYE, EAGER, EAGER_IN_CONTEXT, FRAGMENT, HEADER, EAGER_WITH_HEADER, HELLO, KIND, SHORT_BYTES, STEP, STEP_RTS, NOTIFICATION, split_immediate,
};
use unisono_shmem::ring::Entry;
use unisono_shmem::segment::SharedBytes;

use super::request::{Held, Stage};
use super::storage::SLOT;
use super::{MessageError, Messages, Status, told};

/// Entries consumed from one ring per round.
const BUDGET: u32 = 64;
/// Rounds over the ring of a gone rank: enough for the entries of any ring.
const LAST: u32 = (1 << 16) / BUDGET;

/// Outcome of handling an entry.
enum Heard {
    /// It was valid.
    Sense,
    /// It violates the protocol.
    Nonsense,
    /// The rank has ended.
    End(MessageError),
}

impl Messages<'_> {
    /// Consumes entries of one rank. Returns whether anything moved.
    pub(super) fn listen(&mut self, place: usize, held: &mut Held<'_>) -> bool {
        let Ok(rank) = u32::try_from(place) else { return false };
        let mut moved = false;
        for _ in 0..BUDGET {
            let Some(channel) = self.channels.get_mut(place).filter(|channel| channel.ended.is_none()) else { break };
            let heard = match channel.inward.poll() {
                Ok(None) => break,
                Ok(Some(entry)) => self.handle(rank, &entry, held),
                Err(_) => None,
            };
            moved = true;
            if let Some(channel) = self.channels.get_mut(place) {
                channel.inward.consume();
            }
            match heard {
                Some(Heard::Sense) => {}
                Some(Heard::End(error)) => self.lose(place, error),
                Some(Heard::Nonsense) | None => self.disown(rank),
            }
        }
        moved
    }

    /// `None`: the entry violates the protocol.
    fn handle(&mut self, from: u32, entry: &Entry<'_>, held: &mut Held<'_>) -> Option<Heard> {
        let ([what, number], peer) = (entry.header, PeerId(from));
        let channel = self.channels.get_mut(usize::try_from(from).ok()?)?;
        let (outcome, payload, without) = match what {
            HELLO | STEP | STEP_RTS | NOTIFICATION => return Some(Heard::Sense),
            BYE => return Some(Heard::End(MessageError::Parted(from))),
            ABORT => return Some(Heard::End(MessageError::Failed(from))),
            FRAGMENT => return self.place(from, number, entry.payload, held),
            EAGER_WITH_HEADER => {
                let (payload, head) = split_immediate::<{ MessageHeader::EAGER }>(entry)?;
                channel.settled.receive(number, &head)?;
                let bytes = u32::try_from(payload.bytes().checked_add(MessageHeader::EAGER)?).ok()?;
                (self.machine.handle(peer, &head, bytes), payload, MessageHeader::EAGER)
            }
            HEADER => {
                let mut head = [0; MessageHeader::LONGEST];
                let shown = head.get_mut(..entry.payload.bytes())?;
                entry.payload.read(shown)?;
                channel.settled.receive(number, shown)?;
                (self.machine.handle(peer, shown, u32::try_from(shown.len()).ok()?), entry.payload, 0)
            }
            _ => {
                let (payload, context) = match what & KIND {
                    EAGER => (entry.payload, Context(0)),
                    EAGER_IN_CONTEXT => {
                        let (payload, context) = split_immediate(entry)?;
                        (payload, Context(u32::from_le_bytes(context)))
                    }
                    _ => return Some(Heard::Nonsense),
                };
                let (credit, bytes) = (channel.settled.credit(what), u32::try_from(payload.bytes()).ok()?);
                (self.machine.handle_inline(peer, context, Tag(number), credit, bytes), payload, MessageHeader::EAGER)
            }
        };
        self.follow(outcome, payload, without, held)
    }

    /// Applies the outcome of a header: the first `without` bytes of its count do not precede the payload.
    fn follow(&mut self, outcome: Outcome, payload: SharedBytes<'_>, without: usize, held: &mut Held<'_>) -> Option<Heard> {
        let behind = |start: usize| {
            let start = start.saturating_sub(without);
            payload.part(start, payload.bytes().checked_sub(start)?)
        };
        match outcome {
            Outcome::Nothing => {}
            Outcome::Into { user, start, status } => {
                self.fill(user, 0, behind(start)?, held);
                self.end_receive(user, &status);
            }
            Outcome::Store { place, start } => {
                let (payload, into) = (behind(start)?, kept(self.shorts, self.slots, place));
                payload.read(into.get_mut(..payload.bytes())?)?;
            }
            Outcome::Pending { user, status } => {
                if let Some(record) = self.requests.at(user) {
                    let status = told(&status);
                    (record.stage, record.peer, record.bytes) = (Stage::Coming(status), status.source, status.bytes);
                }
            }
            Outcome::Truncated { user, status } => self.end_receive(user, &status),
            // Parts are for networks.
            Outcome::Place { more: true, .. } | Outcome::ProtocolViolation => return Some(Heard::Nonsense),
            Outcome::Place { user, placement, .. } => {
                if let Some(record) = self.requests.at(user) {
                    record.stage = Stage::Streaming(placement.0);
                }
            }
            Outcome::Sent { user, truncated } => {
                let too_long = |record: &super::request::Record<'_>| MessageError::TooLongForReceive(record.peer);
                let error = self.requests.at(user).map(|record| too_long(record)).filter(|_| truncated);
                self.end_send(user, error.map_or(Ok(()), Err));
            }
        }
        Some(Heard::Sense)
    }

    /// Copies a payload into a receive's buffer from offset `from` on, as much as fits.
    fn fill(&mut self, user: u32, from: usize, payload: SharedBytes<'_>, held: &mut Held<'_>) {
        let Some(request) = self.requests.name(user) else { return };
        let room = self.requests.room(request, held).and_then(|room| room.get_mut(from..));
        if let Some(room) = room {
            let bytes = payload.bytes().min(room.len());
            // As long as it.
            let _ = room.get_mut(..bytes).and_then(|room| payload.read(room));
        }
    }

    fn end_receive(&mut self, user: u32, status: &point_to_point::Status) {
        if let Some(record) = self.requests.at(user) {
            record.stage = Stage::Ended(ended(status, record.room));
        }
    }

    /// A fragment.
    fn place(&mut self, from: u32, number: u32, payload: SharedBytes<'_>, held: &mut Held<'_>) -> Option<Heard> {
        let record = self.requests.at(number).filter(|record| record.peer == from)?;
        let Stage::Placing(status) = record.stage else { return None };
        let at = record.moved;
        let end = at.checked_add(payload.bytes()).filter(|end| *end > at && *end <= status.bytes)?;
        record.moved = end;
        if end == status.bytes {
            record.stage = Stage::Ended(Ok(status));
        }
        self.fill(number, at, payload, held);
        Some(Heard::Sense)
    }

    /// A rank violated the protocol: its ring is ignored from now on.
    pub(super) fn disown(&mut self, rank: u32) {
        if let Ok(place) = usize::try_from(rank) {
            self.lose(place, MessageError::Corrupted(rank));
        }
    }

    /// A rank is gone: entries that it wrote before still count.
    pub(super) fn bury(&mut self, place: usize, error: MessageError, held: &mut Held<'_>) {
        let mut rounds = 0..LAST;
        while rounds.next().is_some() && self.listen(place, held) {}
        self.lose(place, error);
    }

    /// Ends every request that needs this rank, and receives from any source unless the rank only left.
    pub(super) fn lose(&mut self, place: usize, error: MessageError) {
        let (Some(channel), Ok(rank)) = (self.channels.get_mut(place), u32::try_from(place)) else { return };
        if channel.ended.is_some() {
            return;
        }
        channel.ended = Some(error);
        let has_failed = !matches!(error, MessageError::Parted(_));
        let (requests, mut told) = (&mut self.requests, false);
        self.queue.retain(|queued| queued.to != rank);
        self.machine.disconnect(PeerId(rank), has_failed, |lost| {
            let (Cancelled::Receive(user) | Cancelled::Send(user)) = lost;
            told |= matches!(lost, Cancelled::Receive(_));
            if let Some(record) = requests.at(user) {
                record.stage = Stage::Ended(Err(error));
            }
        });
        for record in requests.0.iter_mut().filter(|record| record.peer == rank) {
            let is_its =
                matches!(record.stage, Stage::Sending | Stage::Streaming(_) | Stage::Coming(_) | Stage::Placing(_));
            if is_its {
                record.stage = Stage::Ended(Err(error));
                told = true;
            }
        }
        channel.is_untold = has_failed && !told;
        if self.others_have_ended() {
            self.end_waiting(error);
        }
    }

    /// No sender is left: ends the receives from any source.
    fn end_waiting(&mut self, error: MessageError) {
        for record in self.requests.0.iter_mut() {
            if let Stage::Waiting(id) = record.stage
                && record.peer != self.member.local()
                && self.machine.cancel(id).is_some()
            {
                record.stage = Stage::Ended(Err(error));
            }
        }
    }
}

/// The buffer of an unexpected payload.
pub(super) fn kept<'k>(shorts: &'k mut [[u8; SHORT_BYTES]], slots: &'k mut [[u8; SLOT]], place: PayloadStore) -> &'k mut [u8] {
    let index = |index: u32| usize::try_from(index).unwrap_or(usize::MAX);
    match place {
        PayloadStore::Short(message) => shorts.get_mut(index(message)).map_or(&mut [], |short| short.as_mut_slice()),
        PayloadStore::Slot(slot) => slots.get_mut(index(slot)).map_or(&mut [], |slot| slot.as_mut_slice()),
    }
}

/// The result of a receive whose buffer has `room` bytes.
pub(super) fn ended(status: &point_to_point::Status, room: usize) -> Result<Status, MessageError> {
    let told = told(status);
    if told.bytes > room { Err(MessageError::Truncated { bytes: status.bytes }) } else { Ok(told) }
}
