extern crate alloc;
use super::header::{EAGER_HEAD, Kind};
use super::table::{Stage, Table};
use super::{
    Action, Arrival, Entry, Head, InUse, Key, Peer, Pools, Posted, ReceiveError, SendError, Sent, Steps, TooFewSlots,
};
use crate::ids;
use crate::ids::{PeerId, PlacementId};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

type Machine = Steps<Box<[Peer]>, Box<[Entry]>>;

const LIMIT: u32 = 100;
const CREDIT: u8 = 4;
const A: PeerId = PeerId(0);
const B: PeerId = PeerId(1);

fn pools(peers: usize, records: usize, slots: usize, headers: usize) -> Pools<Box<[Peer]>, Box<[Entry]>> {
    let free = |count| vec![Entry::FREE; count].into_boxed_slice();
    Pools {
        peers: vec![Peer::new(LIMIT); peers].into(),
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
        let machine = || Steps::new(CREDIT, pools(2, 32, usize::from(CREDIT), headers)).expect("slots for all credit");
        Self { a: machine(), b: machine() }
    }

    /// A sends to B: returns whether there was credit, and B's result.
    fn send(&mut self, step: u32, bytes: u32) -> (bool, Arrival) {
        let sent = self.a.send(B, key(step), bytes, step).expect("room");
        let (eager, head, length) = match &sent {
            Sent::Eager(head) => (true, head, EAGER_HEAD as u32 + bytes),
            Sent::Announced(head) => (false, head, head.as_ref().len() as u32),
        };
        (eager, self.b.handle(A, head.as_ref(), length))
    }

    fn receive(&mut self, step: u32, bytes: u32) -> Result<Posted, ReceiveError> {
        self.b.receive(A, key(step), bytes, step)
    }

    /// Carries out B's actions: returns the granted steps, and A's results for B's messages.
    fn act(&mut self) -> (Vec<u32>, Vec<Arrival>) {
        let (mut granted, mut heard) = (Vec::new(), Vec::new());
        while let Some(action) = self.b.poll_action() {
            let head = match action {
                Action::Grant { to, key, user, .. } => {
                    assert_eq!(to, A);
                    granted.push(user);
                    Head::grant(key, PlacementId(key.step), ids::Key(77))
                }
                Action::Send { head, .. } => head,
            };
            heard.push(self.a.handle(B, head.as_ref(), head.as_ref().len() as u32));
            while let Some(action) = self.a.poll_action() {
                let Action::Send { head, .. } = action else { panic!("A posts no receive: {action:?}") };
                let arrival = self.b.handle(A, head.as_ref(), head.as_ref().len() as u32);
                assert_eq!(arrival, Arrival::Nothing);
            }
        }
        (granted, heard)
    }
}

fn key(step: u32) -> Key {
    Key { context: 3, sequence: u32::MAX, step }
}

fn place(step: u32) -> Arrival {
    Arrival::Place { user: step, placement: PlacementId(step), key: ids::Key(77) }
}

const INTO: u16 = EAGER_HEAD as u16;

#[test]
fn posted_receive_takes_its_message_whatever_was_posted_before() {
    let mut pair = Pair::new(4);
    for step in [1, 2, 3] {
        assert_eq!(pair.receive(step, 8), Ok(Posted::Waits));
    }
    for step in [2, 3, 1] {
        assert_eq!(pair.send(step, 8), (true, Arrival::Into { user: step, start: INTO }));
    }
    assert_eq!((pair.a.in_use(), pair.b.in_use()), (InUse::default(), InUse::default()));
}

#[test]
fn early_payload_stays_in_its_slot_until_it_was_copied_out() {
    let mut pair = Pair::new(4);
    assert_eq!(pair.send(5, 0), (true, Arrival::Keep { slot: 0, start: INTO, bytes: 0 }));
    assert_eq!(pair.send(6, LIMIT), (true, Arrival::Keep { slot: 1, start: INTO, bytes: LIMIT }));
    assert_eq!(pair.receive(6, LIMIT), Ok(Posted::Early { slot: 1 }));
    assert_eq!(pair.send(7, 1).1, Arrival::Keep { slot: 2, start: INTO, bytes: 1 });
    pair.b.taken(1);
    pair.b.taken(1);
    assert_eq!(pair.send(8, 1).1, Arrival::Keep { slot: 1, start: INTO, bytes: 1 });
}

#[test]
fn long_messages_are_announced_and_placed_once_their_receive_is_there() {
    let mut pair = Pair::new(4);
    assert_eq!(pair.send(1, LIMIT + 1), (false, Arrival::Nothing));
    assert_eq!(pair.act(), (vec![], vec![]));
    assert_eq!(pair.receive(1, LIMIT + 1), Ok(Posted::Waits));
    assert_eq!(pair.act(), (vec![1], vec![place(1)]));
    assert_eq!(pair.receive(2, 5000), Ok(Posted::Waits));
    assert_eq!(pair.send(2, 5000), (false, Arrival::Nothing));
    assert_eq!(pair.act(), (vec![2], vec![place(2)]));
    assert_eq!((pair.a.in_use(), pair.b.in_use()), (InUse::default(), InUse::default()));
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
        pair.b.taken(slot);
        pair.act().1.len()
    };
    assert_eq!(take(&mut pair, 0), 0);
    assert!(!pair.send(5, 8).0);
    assert_eq!(take(&mut pair, 1), 1);
    assert!(pair.send(6, 8).0 && pair.send(7, 8).0 && !pair.send(8, 8).0);
}

#[test]
fn credit_rides_on_what_is_said_anyway() {
    let mut pair = Pair::new(4);
    for step in 0..4 {
        assert_eq!(pair.receive(step, 0), Ok(Posted::Waits));
        assert!(pair.send(step, 0).0);
    }
    let Ok(Sent::Eager(head)) = pair.b.send(A, key(0), 0, 0) else { panic!("credit") };
    assert_eq!(pair.a.handle(B, head.as_ref(), 16), Arrival::Keep { slot: 0, start: INTO, bytes: 0 });
    assert_eq!(pair.b.poll_action(), None, "no header is due");
    assert!((4..8).all(|step| pair.send(step, 0).0));
}

/// Messages to a slow rank cost it no more than the provided records, and none is lost.
#[test]
fn sleeper_gets_everything_although_its_headers_were_full() {
    let mut pair = Pair::new(2);
    for step in 0..20 {
        pair.send(step, 8);
    }
    assert_eq!(pair.b.in_use(), InUse { slots: 4, headers: 2, ..InUse::default() });
    for step in (0..20).rev() {
        if let Ok(Posted::Early { slot }) = pair.receive(step, 8) {
            pair.b.taken(slot);
            pair.act();
        } else {
            let (granted, heard) = pair.act();
            assert_eq!(granted, [step]);
            assert!(heard.contains(&place(step)), "{heard:?}");
        }
    }
    assert_eq!((pair.a.in_use(), pair.b.in_use()), (InUse::default(), InUse::default()));
    // No RTS is dropped any more, and none is requested.
    assert_eq!(pair.receive(30, 8), Ok(Posted::Waits));
    assert_eq!(pair.act(), (vec![], vec![]));
}

/// An RTS and the request for it cross: the RTS arrives twice and counts once.
#[test]
fn announcement_that_crosses_the_question_for_it_counts_once() {
    let mut pair = Pair::new(0);
    (0..4).for_each(|step| assert!(pair.send(step, 8).0));
    pair.send(10, 8);
    let Ok(Sent::Announced(late)) = pair.a.send(B, key(11), 8, 11) else { panic!("no credit") };
    pair.receive(11, 8).expect("room");
    let Some(Action::Send { head: want, .. }) = pair.b.poll_action() else { panic!("it requests the RTS") };
    assert_eq!(pair.b.handle(A, late.as_ref(), 20), Arrival::Nothing);
    let Some(Action::Grant { user: 11, .. }) = pair.b.poll_action() else { panic!("it grants") };
    assert_eq!(pair.a.handle(B, want.as_ref(), 16), Arrival::Nothing);
    let Some(Action::Send { head: again, .. }) = pair.a.poll_action() else { panic!("it repeats the RTS") };
    assert_eq!(pair.b.handle(A, again.as_ref(), 20), Arrival::Nothing);
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
    assert_eq!((pair.a.in_use(), pair.b.in_use()), (InUse::default(), InUse::default()));
}

#[test]
fn forgotten_receive_refuses_and_forgotten_send_is_not_placed() {
    let mut pair = Pair::new(4);
    pair.receive(1, 900).expect("room");
    pair.send(1, 900);
    pair.b.forget(1);
    assert_eq!(pair.act(), (vec![], vec![Arrival::Refused { user: 1 }]));
    pair.receive(2, 900).expect("room");
    pair.send(2, 900);
    pair.a.forget(2);
    assert_eq!(pair.act(), (vec![2], vec![Arrival::Nothing]));
    pair.receive(3, 8).expect("room");
    pair.b.forget(3);
    assert_eq!(pair.send(3, 8).1, Arrival::Keep { slot: 0, start: INTO, bytes: 8 });
    assert_eq!(pair.send(4, 900).1, Arrival::Nothing);
    pair.b.discard(|context| context == 3);
    assert_eq!(pair.b.in_use(), InUse::default());
    assert!((5..8).all(|step| pair.send(step, 8).0), "its credit is not lost");
}

#[test]
fn lost_peer_ends_everything_with_it_and_nothing_else() {
    let mut one = Steps::new(CREDIT, pools(3, 8, 8, 4)).expect("slots");
    let head = |kind, step| Head::announce(kind, 0, key(step), 8);
    for from in [1, 2].map(PeerId) {
        one.handle(from, head(Kind::Eager, 1).as_ref(), 24);
        one.handle(from, head(Kind::Announce, 2).as_ref(), 20);
        one.handle(from, head(Kind::Announce, 3).as_ref(), 20);
        one.receive(from, key(3), 8, 10 + from.0).expect("room");
        one.receive(from, key(4), 8, 20 + from.0).expect("room");
        one.send(from, key(5), 900, 30 + from.0).expect("room");
    }
    let mut ended = Vec::new();
    one.lose(B, |user| ended.push(user));
    assert_eq!(ended, [31, 11, 21]);
    let Some(Action::Grant { to: PeerId(2), user: 12, .. }) = one.poll_action() else { panic!("the other's grant") };
    assert_eq!(one.poll_action(), None);
    assert_eq!(one.in_use(), InUse { sends: 1, receives: 1, slots: 1, headers: 1 });
    assert!((0..4).all(|step| matches!(one.send(B, key(step), 8, 0), Ok(Sent::Eager(_)))));
}

#[test]
fn nothing_is_taken_that_there_is_no_room_for() {
    assert_eq!(Steps::new(CREDIT, pools(3, 1, 7, 1)).err(), Some(TooFewSlots));
    let mut one = Steps::new(CREDIT, pools(3, 1, 8, 1)).expect("slots");
    assert_eq!(one.send(PeerId(3), key(0), 0, 0), Err(SendError::UnknownPeer));
    assert_eq!(one.receive(PeerId(3), key(0), 0, 0), Err(ReceiveError::UnknownPeer));
    assert_eq!(one.receive(B, key(0), 0, 0), Ok(Posted::Waits));
    assert_eq!(one.receive(B, key(0), 0, 0), Err(ReceiveError::Duplicate));
    assert_eq!(one.receive(B, key(1), 0, 0), Err(ReceiveError::Full));
    assert!(matches!(one.send(B, key(0), 900, 0), Ok(Sent::Announced(_))));
    assert_eq!(one.send(B, key(0), 900, 0), Err(SendError::Duplicate));
    assert_eq!(one.send(B, key(1), 900, 0), Err(SendError::Full));
    // A machine without records stays safe.
    let mut none = Steps::new(0, pools(2, 0, 0, 0)).expect("no credit, no slot");
    assert_eq!(none.send(B, key(0), 0, 0), Err(SendError::Full));
    assert_eq!(none.handle(B, Head::announce(Kind::Announce, 0, key(0), 8).as_ref(), 20), Arrival::Nothing);
    assert_eq!(none.receive(B, key(0), 8, 0), Err(ReceiveError::Full));
}

#[test]
fn what_no_rank_says_is_nonsense() {
    let mut one = Steps::new(CREDIT, pools(2, 8, 4, 4)).expect("slots");
    let mut hear = |head: &Head, length| one.handle(B, head.as_ref(), length);
    let eager = |step| Head::new(Kind::Eager, 0, key(step));
    assert_eq!(hear(&Head::new(Kind::Eager, 1, key(0)), 16), Arrival::Nonsense, "credit that was never used");
    assert_eq!(hear(&eager(0), 16 + LIMIT + 1), Arrival::Nonsense, "longer than the limit");
    assert_eq!(hear(&eager(0), 15), Arrival::Nonsense);
    assert_eq!(hear(&Head::new(Kind::Want, 0, key(0)), 17), Arrival::Nonsense);
    assert!(matches!(hear(&eager(0), 16), Arrival::Keep { .. }));
    assert_eq!(hear(&eager(0), 16), Arrival::Nonsense, "twice");
    assert!((1..4).all(|step| matches!(hear(&eager(step), 16), Arrival::Keep { .. })));
    assert_eq!(hear(&eager(4), 16), Arrival::Nonsense, "without credit");
    let announce = Head::announce(Kind::Announce, 0, key(9), 8);
    assert_eq!(hear(&announce, 20), Arrival::Nothing);
    assert_eq!(hear(&announce, 20), Arrival::Nonsense, "twice");
    assert_eq!(hear(&Head::grant(key(9), PlacementId(0), ids::Key(0)), 28), Arrival::Nothing, "forgotten");
    assert_eq!(one.handle(PeerId(2), eager(5).as_ref(), 16), Arrival::Nonsense, "unknown rank");
    for kind in (0..16).chain(23..=255) {
        assert_eq!(one.handle(B, &[kind; 40], 40), Arrival::Nonsense);
    }
    assert_eq!(one.handle(B, &[], 0), Arrival::Nonsense);
}

#[test]
fn payload_of_an_eager_message_stands_in_the_first_bytes_of_its_datagram() {
    assert_eq!(Head::new(Kind::Eager, 0, key(0)).as_ref().len() + 24, crate::wire::MESSAGE_HEAD);
}

/// Consecutive messages, to consecutive peers: a record is found after a few steps.
#[test]
fn regular_keys_fall_to_different_places() {
    const RECORDS: u32 = 4096;
    for (peers, sequences) in [(1, 1), (4096, 1), (1, 4096), (16, 16), (64, 1), (1, 64)] {
        let mut table = Table::new(vec![Entry::FREE; RECORDS as usize].into_boxed_slice());
        let steps = RECORDS / peers / sequences;
        for i in 0..RECORDS {
            let (peer, sequence, step) = (i / steps / sequences, i / steps % sequences, i % steps);
            let inserted = table.insert(peer, Key { context: 0, sequence, step }, i, 0, Stage::Waiting);
            assert!(inserted.is_some());
        }
        let longest = table.chains().max();
        assert!(longest.is_some_and(|longest| longest <= 12), "{peers} {sequences} {steps}: {longest:?}");
    }
}

#[test]
fn records_are_as_small_as_the_docs_say() {
    assert_eq!((size_of::<Peer>(), size_of::<Entry>()), (16, 40));
}
