//! What comes: notes of the others, and their ends.

use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point::{self, Head, Lost, Outcome, Place};
use unisono_core::message::{Context, Tag};
use unisono_shmem::am_header::{
    ABORT, BYE, EAGER, EAGER_IN, FRAGMENT, HEAD, HEADED, HELLO, KIND, SHORT, STEP, STEP_ANNOUNCE, WORD, parted,
};
use unisono_shmem::ring::Entry;
use unisono_shmem::segment::Cells;

use super::request::{Held, Stage};
use super::storage::SLOT;
use super::{MessageError, Messages, Status, told};

/// Entries of one ring that are taken before others have their turn.
const BUDGET: u32 = 64;
/// Rounds over the ring of a rank that is gone: as many entries as any ring has.
const LAST: u32 = (1 << 16) / BUDGET;

/// What came of an entry.
enum Heard {
    /// It was a note.
    Sense,
    /// No rank says that.
    Nonsense,
    /// The rank ends its part.
    End(MessageError),
}

impl Messages<'_> {
    /// Takes what one rank put. Says whether anything moved.
    pub(super) fn listen(&mut self, place: usize, held: &mut Held<'_>) -> bool {
        let Ok(rank) = u32::try_from(place) else { return false };
        let mut moved = false;
        for _ in 0..BUDGET {
            let Some(channel) = self.channels.get_mut(place).filter(|channel| channel.ended.is_none()) else { break };
            let heard = match channel.inward.look() {
                Ok(None) => break,
                Ok(Some(entry)) => self.handle(rank, &entry, held),
                Err(_) => None,
            };
            moved = true;
            if let Some(channel) = self.channels.get_mut(place) {
                channel.inward.take();
            }
            match heard {
                Some(Heard::Sense) => {}
                Some(Heard::End(error)) => self.lose(place, error),
                Some(Heard::Nonsense) | None => self.disown(rank),
            }
        }
        moved
    }

    /// `None`: no rank says that.
    fn handle(&mut self, from: u32, entry: &Entry<'_>, held: &mut Held<'_>) -> Option<Heard> {
        let ([what, number], peer) = (entry.note, PeerId(from));
        let channel = self.channels.get_mut(usize::try_from(from).ok()?)?;
        let (outcome, payload, without) = match what {
            HELLO | STEP | STEP_ANNOUNCE | WORD => return Some(Heard::Sense),
            BYE => return Some(Heard::End(MessageError::Parted(from))),
            ABORT => return Some(Heard::End(MessageError::Failed(from))),
            FRAGMENT => return self.place(from, number, entry.payload, held),
            HEADED => {
                let (payload, head) = parted::<{ Head::EAGER }>(entry)?;
                channel.settled.hear(number, &head)?;
                let bytes = u32::try_from(payload.bytes().checked_add(Head::EAGER)?).ok()?;
                (self.machine.handle(peer, &head, bytes), payload, Head::EAGER)
            }
            HEAD => {
                let mut head = [0; Head::LONGEST];
                let shown = head.get_mut(..entry.payload.bytes())?;
                entry.payload.read(shown)?;
                channel.settled.hear(number, shown)?;
                (self.machine.handle(peer, shown, u32::try_from(shown.len()).ok()?), entry.payload, 0)
            }
            _ => {
                let (payload, context) = match what & KIND {
                    EAGER => (entry.payload, Context(0)),
                    EAGER_IN => {
                        let (payload, context) = parted(entry)?;
                        (payload, Context(u32::from_le_bytes(context)))
                    }
                    _ => return Some(Heard::Nonsense),
                };
                let (credit, bytes) = (channel.settled.credit(what), u32::try_from(payload.bytes()).ok()?);
                (self.machine.handle_short(peer, context, Tag(number), credit, bytes), payload, Head::EAGER)
            }
        };
        self.follow(outcome, payload, without, held)
    }

    /// What comes of a head: the first `without` bytes of what it counts do not stand before the payload.
    fn follow(&mut self, outcome: Outcome, payload: Cells<'_>, without: usize, held: &mut Held<'_>) -> Option<Heard> {
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
            Outcome::Keep { place, start } => {
                let (payload, into) = (behind(start)?, kept(self.shorts, self.slots, place));
                payload.read(into.get_mut(..payload.bytes())?)?;
            }
            Outcome::Coming { user, status } => {
                if let Some(record) = self.requests.at(user) {
                    let status = told(&status);
                    (record.stage, record.peer, record.bytes) = (Stage::Coming(status), status.source, status.bytes);
                }
            }
            Outcome::Truncated { user, status } => self.end_receive(user, &status),
            // Parts are for networks.
            Outcome::Place { more: true, .. } | Outcome::Nonsense => return Some(Heard::Nonsense),
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

    /// Copies what came to where a receive's bytes from this one on are, as much as fits.
    fn fill(&mut self, user: u32, from: usize, payload: Cells<'_>, held: &mut Held<'_>) {
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
    fn place(&mut self, from: u32, number: u32, payload: Cells<'_>, held: &mut Held<'_>) -> Option<Heard> {
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

    /// A rank's words hold what no rank writes: it is not listened to any more.
    pub(super) fn disown(&mut self, rank: u32) {
        if let Ok(place) = usize::try_from(rank) {
            self.lose(place, MessageError::Corrupted(rank));
        }
    }

    /// A rank is gone: what it sent before still counts.
    pub(super) fn bury(&mut self, place: usize, error: MessageError, held: &mut Held<'_>) {
        let mut rounds = 0..LAST;
        while rounds.next().is_some() && self.listen(place, held) {}
        self.lose(place, error);
    }

    /// Whatever needs this rank ends; receives from any source too, unless it has only left.
    pub(super) fn lose(&mut self, place: usize, error: MessageError) {
        let (Some(channel), Ok(rank)) = (self.channels.get_mut(place), u32::try_from(place)) else { return };
        if channel.ended.is_some() {
            return;
        }
        channel.ended = Some(error);
        let has_failed = !matches!(error, MessageError::Parted(_));
        let (requests, mut told) = (&mut self.requests, false);
        self.queue.retain(|queued| queued.to != rank);
        self.machine.lose(PeerId(rank), has_failed, |lost| {
            let (Lost::Receive(user) | Lost::Send(user)) = lost;
            told |= matches!(lost, Lost::Receive(_));
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

    /// Nobody is left to send anything: receives from any source end.
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

/// Where a payload is kept.
pub(super) fn kept<'k>(shorts: &'k mut [[u8; SHORT]], slots: &'k mut [[u8; SLOT]], place: Place) -> &'k mut [u8] {
    let index = |index: u32| usize::try_from(index).unwrap_or(usize::MAX);
    match place {
        Place::Short(message) => shorts.get_mut(index(message)).map_or(&mut [], |short| short.as_mut_slice()),
        Place::Slot(slot) => slots.get_mut(index(slot)).map_or(&mut [], |slot| slot.as_mut_slice()),
    }
}

/// How a receive with so much room ends.
pub(super) fn ended(status: &point_to_point::Status, room: usize) -> Result<Status, MessageError> {
    let told = told(status);
    if told.bytes > room { Err(MessageError::Truncated { bytes: status.bytes }) } else { Ok(told) }
}
