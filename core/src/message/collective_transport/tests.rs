extern crate alloc;
use super::header::{EAGER_HEADER, TransportKind};
use super::table::{EntryState, Table};
use super::{
    Arrival, CollectivePeer, CollectiveTransport, Entry, Pools, Posted, ReceiveError, RecordUsage, Sent, StepHeader,
    StepKey, StepSendError, TooFewSlots, TransportAction,
};
use crate::ids;
use crate::ids::{PeerId, PlacementId};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

type Machine = CollectiveTransport<Box<[CollectivePeer]>, Box<[Entry]>>;

const LIMIT: u32 = 100;
const CREDIT: u8 = 4;
/// Where payloads lie.
const AT: u64 = 1 << 40;
const A: PeerId = PeerId(0);
const B: PeerId = PeerId(1);

fn pools(peers: usize, records: usize, slots: usize, headers: usize) -> Pools<Box<[CollectivePeer]>, Box<[Entry]>> {
    let free = |count| vec![Entry::FREE; count].into_boxed_slice();
    Pools {
        peers: vec![CollectivePeer::new(LIMIT); peers].into(),
        sends: free(records),
        receives: free(records),
        slots: free(slots),
        headers: free(headers),
    }
}

/// Two ranks without latency: each handles the other's messages at once.
struct Pair {
    a: Machine,
    b: Machine,
}

impl Pair {
    fn new(headers: usize) -> Self {
        let machine = || {
            CollectiveTransport::new(CREDIT, pools(2, 32, usize::from(CREDIT), headers)).expect("slots for all credit")
        };
        Self { a: machine(), b: machine() }
    }

    /// A sends to B: returns whether there was credit, and B's result.
    fn send(&mut self, step: u32, bytes: u32) -> (bool, Arrival) {
        let sent = self.a.send(B, key(step), (bytes, AT), step).expect("room");
        let (eager, head, length) = match &sent {
            Sent::Eager(head) => (true, head, EAGER_HEADER as u32 + bytes),
            Sent::Rts(head) => (false, head, head.as_ref().len() as u32),
        };
        (eager, self.b.handle(A, head.as_ref(), length))
    }

    fn receive(&mut self, step: u32, bytes: u32) -> Result<Posted, ReceiveError> {
        self.b.receive(A, key(step), bytes, step)
    }

    /// Carries out B's actions: returns the granted steps, and A's results for B's messages.
    fn act(&mut self) -> (Vec<u32>, Vec<Arrival>) {
        let (mut granted, mut arrivals) = (Vec::new(), Vec::new());
        while let Some(action) = self.b.poll_action() {
            let head = match action {
                TransportAction::Pull { to, key, user, at, .. } => {
                    assert_eq!((to, at), (A, AT));
                    granted.push(user);
                    StepHeader::cts(key, PlacementId(key.step), ids::RemoteKey(77))
                }
                TransportAction::Send { head, .. } => head,
            };
            arrivals.push(self.a.handle(B, head.as_ref(), head.as_ref().len() as u32));
            while let Some(action) = self.a.poll_action() {
                let TransportAction::Send { head, .. } = action else { panic!("A posts no receive: {action:?}") };
                let arrival = self.b.handle(A, head.as_ref(), head.as_ref().len() as u32);
                assert_eq!(arrival, Arrival::Nothing);
            }
        }
        (granted, arrivals)
    }
}

fn key(step: u32) -> StepKey {
    StepKey { context: 3, sequence: u32::MAX, step }
}

fn place(step: u32) -> Arrival {
    Arrival::Place { user: step, placement: PlacementId(step), key: ids::RemoteKey(77) }
}

const INTO: u16 = EAGER_HEADER as u16;

#[test]
fn posted_receive_matches_its_message_in_any_order() {
    let mut pair = Pair::new(4);
    for step in [1, 2, 3] {
        assert_eq!(pair.receive(step, 8), Ok(Posted::Waits));
    }
    for step in [2, 3, 1] {
        assert_eq!(pair.send(step, 8), (true, Arrival::Into { user: step, start: INTO }));
    }
    assert_eq!((pair.a.in_use(), pair.b.in_use()), (RecordUsage::default(), RecordUsage::default()));
}

#[test]
fn early_payload_stays_in_its_slot_until_it_was_copied_out() {
    let mut pair = Pair::new(4);
    assert_eq!(pair.send(5, 0), (true, Arrival::Keep { slot: 0, start: INTO, bytes: 0 }));
    assert_eq!(pair.send(6, LIMIT), (true, Arrival::Keep { slot: 1, start: INTO, bytes: LIMIT }));
    assert_eq!(pair.receive(6, LIMIT), Ok(Posted::Early { slot: 1 }));
    assert_eq!(pair.send(7, 1).1, Arrival::Keep { slot: 2, start: INTO, bytes: 1 });
    pair.b.release_slot(1);
    pair.b.release_slot(1);
    assert_eq!(pair.send(8, 1).1, Arrival::Keep { slot: 1, start: INTO, bytes: 1 });
}

#[test]
fn long_messages_are_placed_after_their_receive_is_posted() {
    let mut pair = Pair::new(4);
    assert_eq!(pair.send(1, LIMIT + 1), (false, Arrival::Nothing));
    assert_eq!(pair.act(), (vec![], vec![]));
    assert_eq!(pair.receive(1, LIMIT + 1), Ok(Posted::Waits));
    assert_eq!(pair.act(), (vec![1], vec![place(1)]));
    assert_eq!(pair.receive(2, 5000), Ok(Posted::Waits));
    assert_eq!(pair.send(2, 5000), (false, Arrival::Nothing));
    assert_eq!(pair.act(), (vec![2], vec![place(2)]));
    assert_eq!((pair.a.in_use(), pair.b.in_use()), (RecordUsage::default(), RecordUsage::default()));
}

#[test]
fn credit_is_returned_when_half_of_it_was_taken_and_not_before() {
    let mut pair = Pair::new(4);
    for step in 0..4 {
        assert!(pair.send(step, 8).0);
    }
    assert!(!pair.send(4, 8).0, "no credit left");
    let take = |pair: &mut Pair, step| {
        let Ok(Posted::Early { slot }) = pair.receive(step, 8) else { panic!("early") };
        pair.b.release_slot(slot);
        pair.act().1.len()
    };
    assert_eq!(take(&mut pair, 0), 0);
    assert!(!pair.send(5, 8).0);
    assert_eq!(take(&mut pair, 1), 1);
    assert!(pair.send(6, 8).0 && pair.send(7, 8).0 && !pair.send(8, 8).0);
}

#[test]
fn credit_is_piggybacked() {
    let mut pair = Pair::new(4);
    for step in 0..4 {
        assert_eq!(pair.receive(step, 0), Ok(Posted::Waits));
        assert!(pair.send(step, 0).0);
    }
    let Ok(Sent::Eager(head)) = pair.b.send(A, key(0), (0, AT), 0) else { panic!("credit") };
    assert_eq!(pair.a.handle(B, head.as_ref(), 16), Arrival::Keep { slot: 0, start: INTO, bytes: 0 });
    assert_eq!(pair.b.poll_action(), None, "no header is due");
    assert!((4..8).all(|step| pair.send(step, 0).0));
}

/// Messages to a slow rank cost it no more than the provided records, and none is lost.
#[test]
fn slow_rank_receives_everything_after_dropped_headers() {
    let mut pair = Pair::new(2);
    for step in 0..20 {
        pair.send(step, 8);
    }
    assert_eq!(pair.b.in_use(), RecordUsage { slots: 4, headers: 2, ..RecordUsage::default() });
    for step in (0..20).rev() {
        if let Ok(Posted::Early { slot }) = pair.receive(step, 8) {
            pair.b.release_slot(slot);
            pair.act();
        } else {
            let (granted, arrivals) = pair.act();
            assert_eq!(granted, [step]);
            assert!(arrivals.contains(&place(step)), "{arrivals:?}");
        }
    }
    assert_eq!((pair.a.in_use(), pair.b.in_use()), (RecordUsage::default(), RecordUsage::default()));
    // No RTS is dropped any more, and none is requested.
    assert_eq!(pair.receive(30, 8), Ok(Posted::Waits));
    assert_eq!(pair.act(), (vec![], vec![]));
}

/// An RTS and the request for it cross: the RTS arrives twice and counts once.
#[test]
fn rts_that_crosses_its_request_counts_once() {
    let mut pair = Pair::new(0);
    (0..4).for_each(|step| assert!(pair.send(step, 8).0));
    pair.send(10, 8);
    let Ok(Sent::Rts(late)) = pair.a.send(B, key(11), (8, AT), 11) else { panic!("no credit") };
    pair.receive(11, 8).expect("room");
    let Some(TransportAction::Send { head: want, .. }) = pair.b.poll_action() else { panic!("it requests the RTS") };
    assert_eq!(pair.b.handle(A, late.as_ref(), 28), Arrival::Nothing);
    let Some(TransportAction::Pull { user: 11, .. }) = pair.b.poll_action() else { panic!("it grants") };
    assert_eq!(pair.a.handle(B, want.as_ref(), 16), Arrival::Nothing);
    let Some(TransportAction::Send { head: again, .. }) = pair.a.poll_action() else { panic!("it repeats the RTS") };
    assert_eq!(pair.b.handle(A, again.as_ref(), 28), Arrival::Nothing);
    assert_eq!(pair.b.poll_action(), None);
    assert_eq!(pair.b.in_use().headers, 0);
}

#[test]
fn other_lengths_end_both_sides() {
    let mut pair = Pair::new(4);
    pair.receive(1, 8).expect("room");
    assert_eq!(pair.send(1, 9).1, Arrival::Disagrees { user: 1 });
    pair.send(2, 9);
    assert_eq!(pair.receive(2, 8), Err(ReceiveError::Disagrees { bytes: 9 }));
    pair.send(3, 900);
    assert_eq!(pair.receive(3, 8), Err(ReceiveError::Disagrees { bytes: 900 }));
    assert!(pair.act().1.contains(&Arrival::Refused { user: 3 }));
    pair.receive(4, 8).expect("room");
    assert_eq!(pair.send(4, 900).1, Arrival::Disagrees { user: 4 });
    assert_eq!(pair.act().1, [Arrival::Refused { user: 4 }]);
    assert_eq!((pair.a.in_use(), pair.b.in_use()), (RecordUsage::default(), RecordUsage::default()));
}

#[test]
fn payload_that_the_receiver_copied_ends_its_send() {
    let mut pair = Pair::new(4);
    pair.send(1, 900);
    pair.receive(1, 900).expect("room");
    let Some(TransportAction::Pull { key, at: AT, bytes: 900, .. }) = pair.b.poll_action() else { panic!("an RTS") };
    let fin = StepHeader::fin(key);
    assert_eq!(pair.a.handle(B, fin.as_ref(), fin.as_ref().len() as u32), Arrival::Fetched { user: 1 });
    assert_eq!(pair.a.handle(B, fin.as_ref(), fin.as_ref().len() as u32), Arrival::Nothing, "it has ended");
    assert_eq!((pair.a.in_use(), pair.b.in_use()), (RecordUsage::default(), RecordUsage::default()));
}

#[test]
fn cancelled_receive_refuses_and_cancelled_send_is_not_placed() {
    let mut pair = Pair::new(4);
    pair.receive(1, 900).expect("room");
    pair.send(1, 900);
    pair.b.cancel_receive(1);
    assert_eq!(pair.act(), (vec![], vec![Arrival::Refused { user: 1 }]));
    pair.receive(2, 900).expect("room");
    pair.send(2, 900);
    pair.a.cancel_send(2);
    assert_eq!(pair.act(), (vec![2], vec![Arrival::Nothing]));
    pair.receive(3, 8).expect("room");
    pair.b.cancel_receive(3);
    assert_eq!(pair.send(3, 8).1, Arrival::Keep { slot: 0, start: INTO, bytes: 8 });
    assert_eq!(pair.send(4, 900).1, Arrival::Nothing);
    pair.b.discard(|context| context == 3);
    assert_eq!(pair.b.in_use(), RecordUsage::default());
    assert!((5..8).all(|step| pair.send(step, 8).0), "its credit is not lost");
}

#[test]
fn failed_peer_cancels_everything_with_it_and_nothing_else() {
    let mut one = CollectiveTransport::new(CREDIT, pools(3, 8, 8, 4)).expect("slots");
    let head = |kind, step| StepHeader::rts(kind, 0, key(step), 8, AT);
    for from in [1, 2].map(PeerId) {
        one.handle(from, head(TransportKind::Eager, 1).as_ref(), 24);
        one.handle(from, head(TransportKind::Rts, 2).as_ref(), 28);
        one.handle(from, head(TransportKind::Rts, 3).as_ref(), 28);
        one.receive(from, key(3), 8, 10 + from.0).expect("room");
        one.receive(from, key(4), 8, 20 + from.0).expect("room");
        one.send(from, key(5), (900, AT), 30 + from.0).expect("room");
    }
    let mut ended = Vec::new();
    one.disconnect(B, |user| ended.push(user));
    assert_eq!(ended, [31, 11, 21]);
    let Some(TransportAction::Pull { to: PeerId(2), user: 12, .. }) = one.poll_action() else {
        panic!("the other's grant")
    };
    assert_eq!(one.poll_action(), None);
    assert_eq!(one.in_use(), RecordUsage { sends: 1, receives: 1, slots: 1, headers: 1 });
    assert!((0..4).all(|step| matches!(one.send(B, key(step), (8, AT), 0), Ok(Sent::Eager(_)))));
}

#[test]
fn full_pools_reject_requests() {
    assert_eq!(CollectiveTransport::new(CREDIT, pools(3, 1, 7, 1)).err(), Some(TooFewSlots));
    let mut one = CollectiveTransport::new(CREDIT, pools(3, 1, 8, 1)).expect("slots");
    assert_eq!(one.send(PeerId(3), key(0), (0, AT), 0), Err(StepSendError::UnknownPeer));
    assert_eq!(one.receive(PeerId(3), key(0), 0, 0), Err(ReceiveError::UnknownPeer));
    assert_eq!(one.receive(B, key(0), 0, 0), Ok(Posted::Waits));
    assert_eq!(one.receive(B, key(0), 0, 0), Err(ReceiveError::Duplicate));
    assert_eq!(one.receive(B, key(1), 0, 0), Err(ReceiveError::Full));
    assert!(matches!(one.send(B, key(0), (900, AT), 0), Ok(Sent::Rts(_))));
    assert_eq!(one.send(B, key(0), (900, AT), 0), Err(StepSendError::Duplicate));
    assert_eq!(one.send(B, key(1), (900, AT), 0), Err(StepSendError::Full));
    // A machine without records stays safe.
    let mut none = CollectiveTransport::new(0, pools(2, 0, 0, 0)).expect("no credit, no slot");
    assert_eq!(none.send(B, key(0), (0, AT), 0), Err(StepSendError::Full));
    assert_eq!(none.handle(B, StepHeader::rts(TransportKind::Rts, 0, key(0), 8, AT).as_ref(), 28), Arrival::Nothing);
    assert_eq!(none.receive(B, key(0), 8, 0), Err(ReceiveError::Full));
}

#[test]
fn malformed_headers_are_protocol_violations() {
    let mut one = CollectiveTransport::new(CREDIT, pools(2, 8, 4, 4)).expect("slots");
    let mut arrive = |head: &StepHeader, length| one.handle(B, head.as_ref(), length);
    let eager = |step| StepHeader::new(TransportKind::Eager, 0, key(step));
    assert_eq!(
        arrive(&StepHeader::new(TransportKind::Eager, 1, key(0)), 16),
        Arrival::ProtocolViolation,
        "credit that was never used"
    );
    assert_eq!(arrive(&eager(0), 16 + LIMIT + 1), Arrival::ProtocolViolation, "longer than the limit");
    assert_eq!(arrive(&eager(0), 15), Arrival::ProtocolViolation);
    assert_eq!(arrive(&StepHeader::new(TransportKind::RtsRequest, 0, key(0)), 17), Arrival::ProtocolViolation);
    assert!(matches!(arrive(&eager(0), 16), Arrival::Keep { .. }));
    assert_eq!(arrive(&eager(0), 16), Arrival::ProtocolViolation, "twice");
    assert!((1..4).all(|step| matches!(arrive(&eager(step), 16), Arrival::Keep { .. })));
    assert_eq!(arrive(&eager(4), 16), Arrival::ProtocolViolation, "without credit");
    let announce = StepHeader::rts(TransportKind::Rts, 0, key(9), 8, AT);
    assert_eq!(arrive(&announce, 28), Arrival::Nothing);
    assert_eq!(arrive(&announce, 28), Arrival::ProtocolViolation, "twice");
    assert_eq!(arrive(&StepHeader::cts(key(9), PlacementId(0), ids::RemoteKey(0)), 28), Arrival::Nothing, "forgotten");
    assert_eq!(one.handle(PeerId(2), eager(5).as_ref(), 16), Arrival::ProtocolViolation, "unknown rank");
    for kind in (0..16).chain(24..=255) {
        assert_eq!(one.handle(B, &[kind; 40], 40), Arrival::ProtocolViolation);
    }
    assert_eq!(one.handle(B, &[], 0), Arrival::ProtocolViolation);
}

#[test]
fn payload_of_an_eager_message_stands_in_the_first_bytes_of_its_datagram() {
    assert_eq!(StepHeader::new(TransportKind::Eager, 0, key(0)).as_ref().len() + 24, crate::wire::MESSAGE_HEADER_ROOM);
}

/// Consecutive messages, to consecutive peers: a record is found after a few steps.
#[test]
fn regular_keys_hash_to_different_buckets() {
    const RECORDS: u32 = 4096;
    for (peers, sequences) in [(1, 1), (4096, 1), (1, 4096), (16, 16), (64, 1), (1, 64)] {
        let mut table = Table::new(vec![Entry::FREE; RECORDS as usize].into_boxed_slice());
        let steps = RECORDS / peers / sequences;
        for i in 0..RECORDS {
            let (peer, sequence, step) = (i / steps / sequences, i / steps % sequences, i % steps);
            let inserted = table.insert(peer, StepKey { context: 0, sequence, step }, i, 0, EntryState::Waiting);
            assert!(inserted.is_some());
        }
        let longest = table.chains().max();
        assert!(longest.is_some_and(|longest| longest <= 12), "{peers} {sequences} {steps}: {longest:?}");
    }
}

#[test]
fn records_are_as_small_as_the_docs_say() {
    assert_eq!((size_of::<CollectivePeer>(), size_of::<Entry>()), (16, 48));
}
