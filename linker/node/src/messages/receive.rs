//! Reception: entries of the other ranks' rings, and the ends of ranks.

use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point::MessageHeader;
use unisono_core::message::{Context, Tag};
use unisono_core::messenger::{Payload, SendFailure};
use unisono_shmem::am_header::{
    ABORT, BYE, EAGER, EAGER_IN_CONTEXT, EAGER_WITH_HEADER, FRAGMENT, HEADER, HELLO, KIND, REMOTE_ACCESS, STEP,
    split_immediate,
};
use unisono_shmem::ring::Entry;

use super::memory::{CallerBuffer, RequestState};
use super::{MessageError, Messages};

/// Entries consumed from one ring per round.
const BUDGET: u32 = 64;
/// Rounds over the ring of a gone rank: enough for the entries of any ring.
const DRAIN_ROUNDS: u32 = (1 << 16) / BUDGET;

/// Outcome of handling an entry.
enum NoteOutcome {
    /// It was valid.
    Handled,
    /// The rank has ended.
    Ended(MessageError),
}

impl Messages<'_> {
    /// Consumes entries of one rank. Returns whether anything moved.
    pub(super) fn receive_from(&mut self, place: usize, held: &mut CallerBuffer<'_>) -> bool {
        let Ok(rank) = u32::try_from(place) else { return false };
        let mut moved = false;
        for _ in 0..BUDGET {
            let channel = self.rings.channels.get_mut(place).filter(|channel| channel.ended.is_none());
            let Some(channel) = channel else { break };
            let polled = match channel.inward.poll() {
                Ok(None) => break,
                Ok(Some(entry)) => self.handle(rank, &entry, held),
                Err(_) => None,
            };
            moved = true;
            if let Some(channel) = self.rings.channels.get_mut(place) {
                channel.inward.consume();
            }
            match polled {
                Some(NoteOutcome::Handled) => {}
                Some(NoteOutcome::Ended(error)) => self.end_peer(place, error, held),
                None => self.protocol_failure(rank, held),
            }
        }
        moved
    }

    /// `None`: the entry violates the protocol.
    fn handle(&mut self, from: u32, entry: &Entry<'_>, held: &mut CallerBuffer<'_>) -> Option<NoteOutcome> {
        let ([what, number], peer) = (entry.header, PeerId(from));
        let channel = self.rings.channels.get_mut(usize::try_from(from).ok()?)?;
        // The first `without` bytes of a message do not precede its payload.
        let (outcome, payload, without) = match what {
            HELLO | STEP => return Some(NoteOutcome::Handled),
            BYE => return Some(NoteOutcome::Ended(MessageError::PeerFinished(from))),
            ABORT => return Some(NoteOutcome::Ended(MessageError::Failed(from))),
            REMOTE_ACCESS => return self.remote.handle(peer, entry.payload).map(|()| NoteOutcome::Handled),
            FRAGMENT => {
                let (to, last) = self.rings.place_fragment(peer, number, entry.payload.bytes())?;
                self.transport(held).0.copy_in(entry.payload, to);
                last.into_iter().for_each(|token| self.messenger.handle_delivered(token));
                return Some(NoteOutcome::Handled);
            }
            EAGER_WITH_HEADER => {
                let (payload, head) = split_immediate::<{ MessageHeader::EAGER }>(entry)?;
                channel.acknowledged.receive(number, &head)?;
                let bytes = u32::try_from(payload.bytes().checked_add(MessageHeader::EAGER)?).ok()?;
                (self.messenger.handle_message(peer, &head, bytes), payload, MessageHeader::EAGER)
            }
            HEADER => {
                let mut head = [0; MessageHeader::LONGEST];
                let shown = head.get_mut(..entry.payload.bytes())?;
                entry.payload.read(shown)?;
                channel.acknowledged.receive(number, shown)?;
                let bytes = u32::try_from(shown.len()).ok()?;
                (self.messenger.handle_message(peer, shown, bytes), entry.payload, 0)
            }
            _ => {
                let (payload, context) = match what & KIND {
                    EAGER => (entry.payload, Context(0)),
                    EAGER_IN_CONTEXT => {
                        let (payload, context) = split_immediate(entry)?;
                        (payload, Context(u32::from_le_bytes(context)))
                    }
                    _ => return None,
                };
                let (credit, bytes) = (channel.acknowledged.credit(what), u32::try_from(payload.bytes()).ok()?);
                let outcome = self.messenger.handle_inline(peer, context, Tag(number), credit, bytes);
                (outcome, payload, MessageHeader::EAGER)
            }
        };
        match outcome {
            Payload::Nothing => {}
            Payload::Copy { to, start } => {
                let start = start.saturating_sub(without);
                let payload = payload.part(start, payload.bytes().checked_sub(start)?)?;
                self.transport(held).0.copy_in(payload, to);
            }
            Payload::ProtocolViolation => return None,
        }
        Some(NoteOutcome::Handled)
    }

    /// A rank violated the protocol: its ring is ignored from now on.
    pub(super) fn protocol_failure(&mut self, rank: u32, held: &mut CallerBuffer<'_>) {
        if let Ok(place) = usize::try_from(rank) {
            self.end_peer(place, MessageError::ProtocolViolation(rank), held);
        }
    }

    /// A rank is gone: entries that it wrote before still count.
    pub(super) fn mark_failed(&mut self, place: usize, error: MessageError, held: &mut CallerBuffer<'_>) {
        let mut rounds = 0..DRAIN_ROUNDS;
        while rounds.next().is_some() && self.receive_from(place, held) {}
        self.end_peer(place, error, held);
    }

    /// Ends every request that needs this rank, and receives from any source unless the rank only left.
    pub(super) fn end_peer(&mut self, place: usize, error: MessageError, held: &mut CallerBuffer<'_>) {
        let Ok(rank) = u32::try_from(place) else { return };
        self.drain_events();
        let channel = self.rings.channels.get_mut(place).filter(|channel| channel.ended.is_none());
        let Some(channel) = channel else { return };
        channel.ended = Some(error);
        self.latest = error;
        let (peer, has_failed) = (PeerId(rank), !matches!(error, MessageError::PeerFinished(_)));
        self.remote.disconnect(peer);
        let messenger = &mut self.messenger;
        self.rings.drop_fragments(peer, |token| messenger.handle_sent(token, Err(SendFailure::PeerGone)));
        let (mut transport, messenger) = self.transport(held);
        let reported = messenger.disconnect(&mut transport, peer, has_failed);
        self.drain_events();
        if let Some(channel) = self.rings.channels.get_mut(place) {
            channel.failure_is_unreported = has_failed && !reported;
        }
        if self.all_peers_ended() {
            self.fail_wildcard_receives(error);
        }
    }

    /// No sender is left: ends the receives from any source.
    fn fail_wildcard_receives(&mut self, error: MessageError) {
        let own = self.rings.member.local();
        for record in self.memory.requests.0.iter_mut() {
            if let RequestState::Receiving(Some(handle)) = record.state
                && record.peer != Some(own)
                && self.messenger.cancel(handle).is_some()
            {
                record.state = RequestState::Ended(Err(error));
            }
        }
    }
}
