//! Model of the grants of a rank to one that misuses them: the shipped endpoint of the owner, and a peer that sends any
//! opening and segment of any grant that it ever had, under any sequence number.
//!
//! Each grant is memory of its own, so that a write is known by where it lands. The owner grants, withdraws and takes
//! events at any time.

use unisono_core::device::{DeviceQueue, HEADER_ROOM, Received, Slot, Ticket};
use unisono_core::endpoint::{Endpoint, Event, Handler, Verdict};
use unisono_core::ids::{Incarnation, PeerId, PlacementId, RemoteKey, first_psn};
use unisono_core::span::{Region, Span};
use unisono_core::wire::{DatagramKind, Flags, HEADER, Header, Opening, SEGMENT_HEADER, SegmentHeader};

use super::small_endpoint::{Records, small_endpoint};
use crate::model_checker::Model;

const WINDOW: usize = 8;
const BITS: u32 = 5;
const HOLDABLE: usize = 1;
const TOKENS: u32 = 4;
/// Bytes of a segment, and of the longest datagram.
const SEGMENT: u32 = 16;
const MTU: u32 = SEGMENT_HEADER as u32 + SEGMENT;
/// Segments of a placement; the last one has one byte.
const SEGMENTS: usize = 2;
const BYTES: u32 = SEGMENT * (SEGMENTS as u32 - 1) + 1;
/// The owner, and the peer that it grants memory.
const OWNER: PeerId = PeerId(0);
const WRITER: PeerId = PeerId(1);
const INCARNATIONS: [Incarnation; 2] = [Incarnation(20), Incarnation(21)];

/// The model: the owner has one record of a placement.
#[derive(Clone, Copy, Debug)]
pub struct Placements {
    /// Grants, one after the other.
    pub grants: usize,
    /// Sequence numbers that the peer uses, fewer than the window's segments.
    pub numbers: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Grant {
    placement: PlacementId,
    key: RemoteKey,
    /// The peer has sent its opening.
    is_opened: bool,
    /// The segments that were written.
    written: [bool; SEGMENTS],
    /// It is used or withdrawn: its memory is its owner's.
    has_ended: bool,
}

/// What a datagram of the peer is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Content {
    /// The opening of a grant.
    Open(usize),
    /// A segment of a grant.
    Segment(usize, usize),
    /// Something else.
    Nop,
}

/// The owner, and what the peer knows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    endpoint: Endpoint<Records<1, 1, 4>, WINDOW, BITS>,
    held: [Option<Datagram>; HOLDABLE],
    grants: Vec<Grant>,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// The owner grants memory.
    Grant,
    /// The owner withdraws a grant.
    Withdraw(usize),
    /// The owner takes the events of its endpoint.
    Take,
    /// A datagram arrives, by its place in the sequence.
    Arrive(u32, Content),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Datagram(Vec<u8>);

struct Arrival<'a>(&'a Datagram, Slot);

impl Received for Arrival<'_> {
    fn slot(&self) -> Slot {
        self.1
    }
    fn bytes(&self) -> u32 {
        self.0.0.len() as u32
    }
    fn prefix(&self) -> &[u8] {
        &self.0.0[..self.0.0.len().min(HEADER_ROOM)]
    }
    fn is_from(&self, peer: PeerId) -> bool {
        peer == WRITER
    }
    fn age_ns(&self) -> Option<u32> {
        None
    }
}

struct NoMessages;

impl Handler for NoMessages {
    fn handle_eager(&mut self, _: PeerId, _: &[u8], _: u32) -> Verdict {
        Verdict::Release
    }
}

/// The datagram of a content under the n-th sequence number.
fn datagram(grants: &[Grant], number: u32, content: Content) -> Option<Datagram> {
    let [expected, incarnation] = INCARNATIONS;
    let kind = match content {
        Content::Open(_) => DatagramKind::Open,
        Content::Segment(..) => DatagramKind::Segment,
        Content::Nop => DatagramKind::Nop,
    };
    let psn = first_psn::<BITS>(incarnation, expected).add(number).get();
    let acknowledged = first_psn::<BITS>(expected, incarnation).get();
    let flags = Flags::empty();
    let header = Header::<BITS> { kind, flags, credit: 8, rank: WRITER.0, incarnation, expected, psn, acknowledged };
    let mut head = [0; HEADER_ROOM];
    header.emit(&mut head);
    let bytes = match content {
        Content::Open(i) => {
            let Grant { placement, key, .. } = *grants.get(i)?;
            let opening = Opening { placement, key, bytes: BYTES }.emit();
            head[HEADER..].copy_from_slice(&opening);
            HEADER + Opening::BYTES
        }
        Content::Segment(i, index) => {
            SegmentHeader { placement: grants.get(i)?.placement, index: index as u32 }.emit(&mut head);
            SEGMENT_HEADER + if index + 1 == SEGMENTS { 1 } else { SEGMENT as usize }
        }
        Content::Nop => HEADER,
    };
    Some(Datagram(head[..bytes].to_vec()))
}

impl State {
    fn arrive(&mut self, number: u32, content: Content) -> Option<()> {
        let datagram = datagram(&self.grants, number, content)?;
        if let Content::Open(i) = content {
            self.grants[i].is_opened = true;
        }
        let Self { endpoint, held, grants, broken } = self;
        endpoint.receive_batch((), &mut NoMessages, |batch| {
            let cell = held.iter().position(Option::is_none).unwrap_or(HOLDABLE);
            match *batch.handle_datagram(&Arrival(&datagram, Slot(cell as u32))) {
                Verdict::Hold => match held.get_mut(cell) {
                    Some(cell) => *cell = Some(datagram.clone()),
                    None => *broken = Some("more datagrams are held than can be"),
                },
                verdict => place(grants, verdict, broken),
            }
            while let Some(slot) = batch.poll_deferred() {
                let Some(datagram) = held[slot.0 as usize].take() else { break };
                place(grants, *batch.handle_held(&Arrival(&datagram, slot)), broken);
            }
        });
        self.transmit();
        Some(())
    }

    /// The owner's acknowledgements and refusals leave.
    fn transmit(&mut self) {
        let posted = self.endpoint.transmit_batch((), DeviceQueue::Polled, &mut NoMessages, |batch| {
            let mut head = [0; HEADER_ROOM];
            (0..TOKENS).take_while(|ticket| batch.poll_transmit(Ticket(*ticket), &mut head).is_some()).count()
        });
        if let Some(last) = posted.checked_sub(1) {
            self.endpoint.handle_completed((), DeviceQueue::Polled, Ticket(last as u32));
        }
    }

    fn take(&mut self) {
        while let Some(event) = self.endpoint.poll_event(()) {
            let Event::Delivered(placement, bytes) = event else {
                self.broken = Some("a misused grant is refused, and its peer stays");
                continue;
            };
            let grant = self.grants.iter_mut().find(|grant| grant.placement == placement && !grant.has_ended);
            match grant {
                Some(grant) if bytes == BYTES && grant.written == [true; SEGMENTS] => grant.has_ended = true,
                _ => self.broken = Some("a grant ends when all of its bytes are in place"),
            }
        }
    }
}

fn place(grants: &mut [Grant], verdict: Verdict, broken: &mut Option<&'static str>) {
    let Verdict::Place { to, .. } = verdict else { return };
    let Some(grant) = grants.get_mut(to.region.index() as usize) else {
        *broken = Some("no byte outside the granted memory is written");
        return;
    };
    if grant.has_ended {
        *broken = Some("nobody writes memory that its owner has back");
    } else if !grant.is_opened {
        *broken = Some("a grant is opened under its own key");
    } else if core::mem::replace(&mut grant.written[to.offset / SEGMENT as usize], true) {
        *broken = Some("a grant is used once");
    }
}

impl Model for Placements {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let mut endpoint = small_endpoint(OWNER, INCARNATIONS[0], HOLDABLE);
        endpoint.add_peer((), WRITER, INCARNATIONS[1], MTU);
        State { endpoint, held: [const { None }; HOLDABLE], grants: Vec::new(), broken: None }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend([Action::Grant, Action::Take]);
        for i in 0..state.grants.len() {
            actions.push(Action::Withdraw(i));
        }
        for number in 0..self.numbers {
            actions.push(Action::Arrive(number, Content::Nop));
            for i in 0..state.grants.len() {
                actions.push(Action::Arrive(number, Content::Open(i)));
                actions.extend((0..SEGMENTS).map(|index| Action::Arrive(number, Content::Segment(i, index))));
            }
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = state.clone();
        match *action {
            Action::Grant => {
                let i = state.grants.len();
                let to = Span { region: Region::new(i as u32, 0), offset: 0, bytes: BYTES };
                let key = RemoteKey(100 + i as u64);
                if i == self.grants {
                    return None;
                }
                let placement = next.endpoint.grant(WRITER, to, key).ok()?;
                let written = [false; SEGMENTS];
                next.grants.push(Grant { placement, key, is_opened: false, written, has_ended: false });
            }
            Action::Withdraw(i) => {
                let grant = next.grants.get_mut(i).filter(|grant| !grant.has_ended)?;
                if next.endpoint.withdraw(grant.placement) {
                    grant.has_ended = true;
                }
            }
            Action::Take => next.take(),
            Action::Arrive(number, content) => next.arrive(number, content)?,
        }
        (next != *state).then_some(next)
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        state.broken
    }

    fn finished(&self, state: &State) -> bool {
        state.grants.len() == self.grants && state.grants.iter().all(|grant| grant.has_ended)
    }
}
