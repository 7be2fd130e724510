//! Equivalence test: of two pairs of endpoints, one handles each datagram in a batch of its own and the other all of a
//! round in one batch. Both return the same results, and have equal state after each round.

extern crate alloc;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{Config, Endpoint, Event, Handler, Pools, Sender, Verdict};
use crate::counters::{Counters, Metric};
use crate::device::{Destination, DeviceQueue, HEADER_ROOM, Limits, Received, Slot, Ticket, Transmit};
use crate::endpoint::operation::Operation;
use crate::endpoint::peer::Peer;
use crate::endpoint::placement::Placement;
use crate::endpoint::storage::Arrays;
use crate::ids::{Incarnation, PeerId, PlacementId, RemoteKey, first_psn};
use crate::span::{Region, Span};
use crate::time::Nanos;
use crate::window::receive_window::ReceiveWindow;
use crate::wire::{Acknowledgement, DatagramKind, Flags, Header, SEGMENT_HEADER, SegmentHeader};

/// Segments of a window, unless a test says otherwise.
const WINDOW: usize = 32;
/// Few, so that the PSNs wrap several times in each test.
const BITS: u32 = 8;
const OPERATIONS: usize = 64;
const MTU: u32 = 100;
/// Datagrams of a round.
const BUDGET: usize = 24;

/// Ranks of the job, of which only two are simulated as endpoints.
const RANKS: usize = 4;

type Records = Arrays<Nanos, RANKS, RANKS, OPERATIONS, 4, 16>;
type Node<const W: usize> = Endpoint<Records, W, BITS>;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Frame {
    head: [u8; HEADER_ROOM],
    bytes: u32,
    from: PeerId,
    slot: Slot,
}

impl Received for Frame {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn prefix(&self) -> &[u8] {
        &self.head[..HEADER_ROOM.min(self.bytes as usize)]
    }

    fn is_from(&self, peer: PeerId) -> bool {
        self.from == peer
    }

    /// Every fourth frame has no age.
    fn age_ns(&self) -> Option<u32> {
        (!self.slot.0.is_multiple_of(4)).then_some(self.slot.0 * 997 % 20_000)
    }
}

/// A handler that places payloads and records everything.
#[derive(Clone, Default, PartialEq, Debug)]
struct Notes {
    heads: Vec<(PeerId, Vec<u8>, u32)>,
    counters: Counters,
}

impl Handler for Notes {
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        self.heads.push((from, head.into(), bytes));
        if bytes < 20 {
            return Verdict::Release;
        }
        Verdict::Place { to: Span { region: Region::new(1, 1), offset: 0, bytes: 50 }, start: 20 }
    }

    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }

    /// Only batches are counted this way: the other side counts each datagram.
    fn record_all(&mut self, what: Metric, times: u32) {
        self.counters.count_all(what, times);
    }
}

/// One end of a pair.
struct Side<const W: usize> {
    node: Node<W>,
    notes: Notes,
    together: bool,
    ticket: Ticket,
    /// Datagrams that followed another one of a predicted batch, and that were sent in a burst.
    short: [usize; 2],
    /// All frames received, by slot.
    frames: Vec<Frame>,
}

impl<const W: usize> Side<W> {
    fn new(rank: u32, together: bool) -> Self {
        let pools = Pools {
            peers: [Peer::UNKNOWN; RANKS],
            senders: [Sender::FREE; RANKS],
            rails: [],
            receivers: [ReceiveWindow::EMPTY; RANKS],
            operations: [Operation::FREE; OPERATIONS],
            placements: [Placement::FREE; 4],
            control_messages: [super::ControlMessage::FREE; 16],
        };
        let limits = Limits {
            mtu: MTU,
            receive_slots: 64,
            holdable: 4,
            granularity_ns: 10_000,
            lossless: false,
            interrupts: false,
            rails: 1,
            groups: 0,
        };
        let mut node = Node::new(0, Config::new(PeerId(rank), Incarnation(rank + 5), &limits), pools);
        node.add_peer(0, PeerId(1 - rank), Incarnation(1 - rank + 5), MTU);
        let (notes, frames) = (Notes::default(), Vec::new());
        Self { node, notes, together, ticket: Ticket(0), short: [0; 2], frames }
    }

    /// Datagrams of a batch, of `all` in this round.
    const fn batch_size(&self, all: usize) -> usize {
        if self.together && all > 0 { all } else { 1 }
    }

    fn receive(&mut self, now: u64, frames: &[Frame]) -> Vec<Verdict> {
        let mut said = Vec::new();
        for frames in frames.chunks(self.batch_size(frames.len())) {
            let Self { node, notes, frames: known, short: [predicted, _], .. } = self;
            node.receive_batch(now, notes, |batch| {
                for frame in frames {
                    let frame = Frame { slot: Slot(known.len() as u32), ..*frame };
                    known.push(frame);
                    said.push(*batch.handle_datagram(&frame));
                    *predicted += usize::from(batch.predicted() > 1);
                    while let Some(slot) = batch.poll_deferred() {
                        said.push(*batch.handle_held(&known[slot.0 as usize]));
                    }
                }
            });
        }
        said
    }

    fn transmit(&mut self, now: u64) -> Vec<(Transmit, Frame)> {
        let (mut said, from, size) = (Vec::new(), self.node.config().rank, self.batch_size(BUDGET));
        while said.len() < BUDGET {
            let Self { node, notes, ticket, short: [_, in_bursts], .. } = self;
            let ended = node.transmit_batch(now, DeviceQueue::Polled, notes, |batch| {
                for _ in 0..size {
                    let (mut head, (before, _)) = ([0; HEADER_ROOM], batch.burst());
                    let Some(transmit) = batch.poll_transmit(ticket.next(), &mut head) else { return true };
                    let (left, is_part) = batch.burst();
                    *in_bursts += usize::from(is_part || left < before || before == 0 && left > 0);
                    *ticket = ticket.next();
                    head[usize::from(transmit.header_bytes)..].fill(0);
                    said.push((transmit, Frame { head, bytes: transmit.bytes(), from, slot: Slot(0) }));
                }
                false
            });
            if ended {
                break;
            }
        }
        said
    }
}

/// Both pairs of endpoints.
struct Both<const W: usize> {
    sides: [[Side<W>; 2]; 2],
    /// Frames in flight to each rank.
    under_way: [Vec<Frame>; 2],
    now: u64,
    keys: u64,
    /// Grants made by each rank.
    granted: [Vec<PlacementId>; 2],
}

impl<const W: usize> Both<W> {
    fn new() -> Self {
        let sides = [0, 1].map(|rank| [false, true].map(|together| Side::new(rank, together)));
        Self { sides, under_way: Default::default(), now: 1_000_000, keys: 0, granted: Default::default() }
    }

    /// Runs the same call on both endpoints of a rank; their results must be equal.
    fn ask<R: PartialEq + core::fmt::Debug>(&mut self, rank: usize, mut what: impl FnMut(u64, &mut Side<W>) -> R) -> R {
        let (now, [alone, together]) = (self.now, &mut self.sides[rank]);
        let (one, other) = (what(now, alone), what(now, together));
        assert_eq!(one, other);
        other
    }

    fn send(&mut self, rank: usize, bytes: u32) {
        let to = PeerId(1 - rank as u32);
        let payload = (bytes > 0).then_some(Span { region: Region::new(1, 1), offset: 0, bytes: bytes % 50 });
        let head = [7; 20];
        self.ask(rank, |now, side| side.node.send(now, to, &head, payload)).ok();
    }

    fn place(&mut self, rank: usize, bytes: u32) {
        self.keys += 1;
        let (key, span) = (RemoteKey(self.keys), Span { region: Region::new(1, 1), offset: 0, bytes });
        let (from, to) = (PeerId(rank as u32), PeerId(1 - rank as u32));
        let Ok(placement) = self.ask(1 - rank, |_, side| side.node.grant(from, span, key)) else { return };
        self.granted[1 - rank].push(placement);
        self.ask(rank, |now, side| side.node.place(now, to, placement, key, span)).ok();
    }

    /// Withdraws one of the latest grants, whether or not it is still outstanding.
    fn withdraw(&mut self, rank: usize, which: usize) {
        let Some(placement) = self.granted[rank].iter().rev().nth(which).copied() else { return };
        self.ask(rank, |_, side| side.node.withdraw(placement));
    }

    fn fail(&mut self, rank: usize) {
        self.ask(rank, |now, side| side.node.fail(now, PeerId(1 - rank as u32)));
    }

    /// One round of one rank. `fate` changes the frames in flight to it; `finishes`: the device completes its postings.
    fn round(&mut self, rank: usize, fate: impl FnOnce(&mut Vec<Frame>), finishes: bool) {
        let mut frames = core::mem::take(&mut self.under_way[rank]);
        fate(&mut frames);
        self.ask(rank, |now, side| side.receive(now, &frames));
        self.ask(rank, |now, side| {
            if finishes {
                side.node.handle_completed(now, DeviceQueue::Polled, side.ticket);
            }
            if side.node.poll_timeout(now).is_some_and(|at| now >= at) {
                side.node.handle_timeout(now);
            }
        });
        let sent = self.ask(rank, |now, side| side.transmit(now));
        self.under_way[1 - rank].extend(sent.iter().map(|(_, frame)| *frame));
        self.ask(rank, |now, side| {
            side.node.handle_round(now);
            core::iter::from_fn(|| side.node.poll_event(now)).collect::<Vec<_>>()
        });
        let [alone, together] = &self.sides[rank];
        assert_eq!(alone.node, together.node);
        assert_eq!(alone.notes, together.notes);
    }

    fn follow(steps: &[Step]) {
        let mut both = Self::new();
        for step in steps {
            match *step {
                Step::Send(rank, bytes) => both.send(rank, bytes),
                Step::Place(rank, bytes) => both.place(rank, bytes),
                Step::Withdraw(rank, which) => both.withdraw(rank, which),
                Step::Fail(rank) => both.fail(rank),
                Step::Round(rank, fate, finishes) => both.round(rank, |frames| apply_fate(fate, frames), finishes),
                Step::Wait(time) => both.now += time,
            }
            both.now += 500;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize, u32),
    Place(usize, u32),
    Withdraw(usize, usize),
    Fail(usize),
    Round(usize, Fate, bool),
    Wait(u64),
}

/// What happens to a frame, by its place among those in flight.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Nothing,
    Lost(usize),
    Doubled(usize),
    Swapped(usize),
    /// A byte of its header gets another value.
    Changed(usize, usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        6 => Just(Fate::Nothing),
        1 => any::<usize>().prop_map(Fate::Lost),
        1 => any::<usize>().prop_map(Fate::Doubled),
        1 => any::<usize>().prop_map(Fate::Swapped),
        1 => (any::<usize>(), 0..34_usize, any::<u8>()).prop_map(|(which, byte, value)| Fate::Changed(which, byte, value)),
    ];
    prop_oneof![
        60 => (0..2_usize, 0..100_u32).prop_map(|(rank, bytes)| Step::Send(rank, bytes)),
        10 => (0..2_usize, 0..1500_u32).prop_map(|(rank, bytes)| Step::Place(rank, bytes)),
        4 => (0..2_usize, 0..4_usize).prop_map(|(rank, which)| Step::Withdraw(rank, which)),
        // Little happens after a failure.
        1 => (0..2_usize).prop_map(Step::Fail),
        60 => (0..2_usize, fate, prop::bool::weighted(0.9)).prop_map(|(rank, fate, finishes)| Step::Round(rank, fate, finishes)),
        10 => prop_oneof![0..5_000_u64, 0..400_000_u64].prop_map(Step::Wait),
    ]
}

fn apply_fate(fate: Fate, frames: &mut Vec<Frame>) {
    let count = frames.len().max(1);
    match fate {
        Fate::Lost(which) if !frames.is_empty() => _ = frames.remove(which % count),
        Fate::Doubled(which) if !frames.is_empty() => frames.insert(which % count, frames[which % count]),
        Fate::Swapped(which) if count > 1 => frames.swap(which % (count - 1), which % (count - 1) + 1),
        Fate::Changed(which, byte, value) if !frames.is_empty() => frames[which % count].head[byte] = value,
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn batches_equal_single_datagrams(steps in prop::collection::vec(step(), 1..150)) {
        Both::<8>::follow(&steps);
        Both::<32>::follow(&steps);
    }
}

#[test]
fn most_datagrams_of_a_round_are_batched() {
    let mut both = Both::<WINDOW>::new();
    for i in 0..400 {
        if i % 100 == 50 {
            both.place(0, 5000);
        }
        (0..7).for_each(|_| both.send(0, 40));
        both.now += 2000;
        both.round(0, |_| {}, true);
        both.round(1, |_| {}, true);
    }
    let [_, [_, receiver]] = &both.sides;
    let [[_, sender], _] = &both.sides;
    let all = receiver.notes.counters.arrivals() as usize;
    assert!(
        receiver.short[0] * 2 > all && sender.short[1] * 2 > all,
        "{:?} {:?} of {all}",
        receiver.short,
        sender.short
    );
}

/// Rank 0 has sent `count` messages, all of which a reply in flight acknowledges.
fn answered(count: u32) -> Both<WINDOW> {
    let mut both = Both::<WINDOW>::new();
    for turn in 0..20 {
        both.now += 2000;
        both.send(turn % 2, 4);
        both.round(turn % 2, |_| {}, true);
    }
    (0..count).for_each(|_| both.send(0, 4));
    both.round(0, |_| {}, true);
    both.send(1, 4);
    both.round(1, |_| {}, true);
    both
}

#[test]
fn ack_of_unsent_segments_completes_nothing() {
    let mut both = answered(2);
    let frames = core::mem::take(&mut both.under_way[0]);
    let lies: Vec<_> = frames
        .iter()
        .map(|frame| {
            let mut frame = *frame;
            let mut header = Header::<BITS>::parse(frame.prefix()).expect("a datagram");
            header.acknowledged = header.acknowledged.wrapping_add(1);
            header.emit(&mut frame.head);
            frame
        })
        .collect();
    both.ask(0, |now, side| side.receive(now, &lies));
    both.send(0, 4);
    both.ask(0, |now, side| side.transmit(now));
    both.ask(0, |now, side| side.node.handle_completed(now, DeviceQueue::Polled, side.ticket));
    assert_eq!(
        both.ask(0, |now, side| core::iter::from_fn(|| side.node.poll_event(now)).count()),
        0,
        "nothing has ended"
    );
}

#[test]
fn segments_after_another_datagram_stay_within_the_grant() {
    const SEGMENTS: u32 = 10;
    let size = MTU - SEGMENT_HEADER as u32;
    let mut both = answered(1);
    both.round(0, |_| {}, true);
    both.place(0, SEGMENTS * size);
    both.now += 2000;
    both.round(0, |_| {}, true);
    let mut frames = core::mem::take(&mut both.under_way[1]);
    frames.retain(|frame| {
        Header::<BITS>::parse(&frame.head).is_ok_and(|header| header.kind == DatagramKind::Segment) || frame.bytes < 60
    });
    // An eager datagram instead of the second segment, and one segment beyond the last.
    let last = frames.last_mut().expect("segments");
    let mut header = Header::<BITS>::parse(&last.head).expect("a segment");
    assert_eq!(header.kind, DatagramKind::Segment);
    header.flags = Flags::empty();
    header.emit(&mut last.head);
    let mut beyond = *last;
    header.psn = header.psn().add(1).get();
    header.emit(&mut beyond.head);
    let SegmentHeader { placement, index } = SegmentHeader::parse(&beyond.head).expect("a segment");
    SegmentHeader { placement, index: index + 1 }.emit(&mut beyond.head);
    frames.push(beyond);
    let other = &mut frames[2];
    let header = Header::<BITS>::parse(&other.head).expect("a segment");
    Header { kind: DatagramKind::Eager, ..header }.emit(&mut other.head);
    both.ask(1, |now, side| side.node.handle_completed(now, DeviceQueue::Polled, side.ticket));
    let said = both.ask(1, |now, side| side.receive(now, &frames));
    let [_, [_, receiver]] = &both.sides;
    assert!(receiver.short[0] >= 5, "{} of {said:?}", receiver.short[0]);
    let end = |verdict: &Verdict| match verdict {
        Verdict::Place { to, .. } => to.offset + to.bytes as usize,
        _ => 0,
    };
    assert_eq!(said.iter().map(end).max(), Some((SEGMENTS * size) as usize));
}

#[test]
fn a_filled_placement_is_not_withdrawn() {
    let mut both = answered(1);
    both.round(0, |_| {}, true);
    both.place(0, 40);
    both.now += 2000;
    both.round(0, |_| {}, true);
    let frames = core::mem::take(&mut both.under_way[1]);
    both.ask(1, |now, side| side.receive(now, &frames));
    let placement = *both.granted[1].last().expect("granted");
    assert!(!both.ask(1, |_, side| side.node.withdraw(placement)));
    let events = both.ask(1, |now, side| core::iter::from_fn(|| side.node.poll_event(now)).collect::<Vec<_>>());
    assert!(events.contains(&Event::Delivered(placement, 40)), "{events:?}");
}

#[test]
fn windows_with_placements_take_turns() {
    let mut both = Both::<WINDOW>::new();
    let own = Incarnation(5);
    for rank in 2..RANKS as u32 {
        let theirs = Incarnation(rank + 5);
        both.ask(0, |now, side| side.node.add_peer(now, PeerId(rank), theirs, MTU));
        both.ask(0, |now, side| side.node.send(now, PeerId(rank), &[7; 20], None)).expect("an operation is free");
        both.round(0, |_| {}, true);
        let header = Header {
            kind: DatagramKind::Acknowledge,
            flags: Flags::empty(),
            credit: 0,
            rank,
            incarnation: theirs,
            expected: own,
            psn: 0,
            acknowledged: 0,
        };
        let mut head = [0; HEADER_ROOM];
        let acknowledgement = Acknowledgement::<BITS>::cumulative(first_psn::<BITS>(own, theirs).add(1), WINDOW as u16);
        let bytes = acknowledgement.emit(&header, &mut head).into();
        both.under_way[0].push(Frame { head, bytes, from: PeerId(rank), slot: Slot(0) });
        both.now += 2000;
        both.round(0, |_| {}, true);
    }
    // Of each, as many as its window takes: no turn of the first round ends with the last segment of its placement.
    let span = Span { region: Region::new(1, 1), offset: 0, bytes: 20 * (MTU - SEGMENT_HEADER as u32) };
    for turn in 0..4 {
        let (to, key) = (PeerId(2 + turn % 2), RemoteKey(turn.into()));
        both.ask(0, |now, side| side.node.place(now, to, PlacementId(turn), key, span)).expect("an operation is free");
    }
    let mut turns: Vec<(PeerId, usize)> = Vec::new();
    for _ in 0..3 {
        for (transmit, _) in both.ask(0, |now, side| side.transmit(now)) {
            match turns.last_mut() {
                Some((to, count)) if Destination::first_rail(*to) == transmit.to => *count += 1,
                _ => turns.push((transmit.to.on_first_rail().expect("a peer"), 1)),
            }
        }
        let [alone, together] = &both.sides[0];
        assert_eq!(alone.node, together.node);
        assert_eq!(alone.notes, together.notes);
    }
    assert_eq!(turns, [(PeerId(2), 16), (PeerId(3), 16), (PeerId(2), 16), (PeerId(3), 16)]);
    assert!(both.sides[0][1].short[1] > 32, "{}", both.sides[0][1].short[1]);
}
