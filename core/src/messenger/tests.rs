extern crate alloc;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::ids::{PlacementId, Port, RemoteKey};
use crate::message::collective_transport::StepKey;
use crate::message::matching::{self, PostedReceive, RecordData, Unexpected};
use crate::message::point_to_point::{MessagePeer, Mode, SendRecord};
use crate::message::{Context, Tag};
use crate::span::RegionRange;
use crate::transport::{Fetch, Grant, Progress, TransportError, TxPayload};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Records;

impl<R: RecordData, M: RecordData> matching::MatchingStorage<R, M> for Records {
    type Receives = Box<[PostedReceive<R>]>;
    type Messages = Box<[Unexpected<M>]>;
    type Buckets = Box<[u32]>;
}

impl MessageStorage for Records {
    type Sends = Box<[SendRecord]>;
    type Peers = Box<[MessagePeer]>;
    type Slots = Box<[u32]>;
}

impl MessengerStorage for Records {
    type SendOps = Box<[SendOp]>;
    type ReceiveOps = Box<[ReceiveOp]>;
    type Outbox = Box<[QueuedMessage]>;
    type CollectivePeers = Box<[CollectivePeer]>;
    type CollectiveEntries = Box<[Entry]>;
}

/// A transport to one peer that keeps what is sent, and grants memory a few times.
#[derive(Default)]
struct Wire {
    is_full: bool,
    sent: VecDeque<(Vec<u8>, Option<TxPayload>)>,
    grants: u32,
    granted: Vec<Token>,
    withdrawn: Vec<PlacementId>,
    placed: Vec<Token>,
    /// Fetches that it still starts, that it has started, and those of them that were aborted.
    reads: u32,
    fetching: Vec<Token>,
    aborted: Vec<Token>,
}

impl Transport for Wire {
    fn eager_limit(&self, _: PeerId) -> u32 {
        8
    }

    fn send(
        &mut self,
        _: PeerId,
        head: &[u8],
        payload: Option<TxPayload>,
        _: Port,
    ) -> Result<Progress, TransportError> {
        if self.is_full {
            return Err(TransportError::Full);
        }
        self.sent.push_back((head.to_vec(), payload));
        Ok(Progress::Complete)
    }

    fn grant_limit(&self, _: PeerId) -> usize {
        usize::MAX
    }

    fn grant(&mut self, _: PeerId, _: RegionRange, token: Token) -> Result<Grant, TransportError> {
        self.grants = self.grants.checked_sub(1).ok_or(TransportError::Full)?;
        self.granted.push(token);
        Ok(Grant { placement: PlacementId(self.granted.len() as u32), key: RemoteKey(7) })
    }

    fn withdraw(&mut self, _: PeerId, placement: PlacementId) {
        self.withdrawn.push(placement);
    }

    fn place(
        &mut self,
        _: PeerId,
        _: Grant,
        _: RegionRange,
        token: Token,
        _: Port,
    ) -> Result<Progress, TransportError> {
        self.placed.push(token);
        Ok(Progress::Pending)
    }

    fn fetch(&mut self, _: PeerId, _: u64, into: RegionRange, copied: usize, token: Token) -> Fetch {
        if self.reads == 0 {
            return Fetch::Unreachable;
        }
        self.reads -= 1;
        self.fetching.push(token);
        Fetch::Started(READ.min(into.bytes - copied))
    }

    fn abort_fetch(&mut self, from: PeerId, token: Token) {
        assert_eq!(from, PEER);
        self.aborted.push(token);
    }

    fn copy(&mut self, _: Span, _: RegionRange) {}
}

const PEER: PeerId = PeerId(1);
const LONG: usize = 100;
/// Bytes of a payload that are read at a time.
const READ: usize = 60;

fn messenger(records: usize) -> Messenger<Records> {
    let entries = || vec![Entry::FREE; 4].into_boxed_slice();
    let pools = Pools {
        messages: point_to_point::Pools {
            receives: vec![PostedReceive::default(); records].into(),
            messages: vec![Unexpected::default(); 16].into(),
            sends: vec![SendRecord::FREE; records].into(),
            peers: vec![MessagePeer::NEW; 2].into(),
            slots: vec![0; 2].into(),
            buckets: [(); 3].map(|()| vec![0; 64].into()),
        },
        steps: collective_transport::Pools {
            peers: vec![CollectivePeer::new(8); 2].into(),
            sends: entries(),
            receives: entries(),
            slots: entries(),
            headers: entries(),
        },
        sends: [(); 2].map(|()| vec![SendOp::FREE; records].into()),
        receives: [(); 2].map(|()| vec![ReceiveOp::FREE; records].into()),
        outboxes: [(); 2].map(|()| vec![QueuedMessage::FREE; 4].into()),
    };
    let stores = Stores { short: Region::default(), slots: Region::default(), steps: Region::default(), step_bytes: 8 };
    let messages = point_to_point::Config { headers: 8, short: 4, slot: 8, seed: 0 };
    Messenger::new(Config { messages, step_credit: 4, stores }, pools).expect("enough records")
}

fn buffer(bytes: usize) -> RegionRange {
    RegionRange { region: Region::new(3, 1), offset: 0, bytes }
}

fn message(bytes: usize, user: u32) -> Message {
    let (context, tag, mode) = (Context(0), Tag(user), Mode::Standard);
    Message { to: PEER, context, tag, mode, payload: buffer(bytes), at: 1, eager: u32::MAX, borrowed: false, user }
}

fn exact(tag: u32) -> Pattern {
    Pattern { context: Context(0), source: Some(PEER), tag: Some(Tag(tag)) }
}

/// Hands everything that one side sent to the other.
fn deliver(from: &mut Wire, to: &mut Messenger<Records>) {
    while let Some((head, payload)) = from.sent.pop_front() {
        let bytes = head.len() as u32 + payload.map_or(0, |payload| payload.span.bytes);
        assert_ne!(to.handle(PEER, &head, bytes), Payload::ProtocolViolation, "{head:?}");
    }
}

fn key(step: u32) -> StepKey {
    StepKey { context: 1, sequence: 1, step }
}

#[test]
fn record_of_an_abandoned_send_is_kept_until_its_receiver_has_named_it() {
    let (mut sender, mut receiver) = (messenger(1), messenger(4));
    let (mut out, mut back) = (Wire::default(), Wire { grants: 1, ..Wire::default() });
    sender.send(&mut out, &message(LONG, 5)).expect("a record");
    let mut abandoned = Vec::new();
    sender.abandon_sends(PEER, |user| abandoned.push(user));
    sender.abandon_sends(PEER, |user| abandoned.push(user));
    assert_eq!((abandoned, sender.poll_event()), (vec![5], None));
    assert_eq!(sender.receivers().count(), 0);
    assert_eq!(sender.send(&mut out, &message(LONG, 6)), Err(SendError::Full), "the receiver may still name it");
    deliver(&mut out, &mut receiver);
    receiver.receive(&mut back, exact(5), buffer(LONG), 0).expect("a record");
    while receiver.progress(&mut back) {}
    deliver(&mut back, &mut sender);
    while sender.progress(&mut out) {}
    assert!(out.placed.is_empty(), "its payload is gone");
    assert_eq!(sender.send(&mut out, &message(LONG, 6)), Ok(()));
}

#[test]
fn receives_that_find_no_grant_are_retried_in_their_order() {
    let (mut sender, mut receiver) = (messenger(4), messenger(4));
    let (mut out, mut back) = (Wire::default(), Wire::default());
    for user in 0..3 {
        sender.send(&mut out, &message(LONG, user)).expect("a record");
        receiver.receive(&mut back, exact(user), buffer(LONG), user).expect("a record");
    }
    deliver(&mut out, &mut receiver);
    assert!((0..3).any(|_| !receiver.progress(&mut back)), "nothing can be granted");
    for granted in 1..=3 {
        back.grants = 1;
        while receiver.progress(&mut back) {}
        assert_eq!(back.granted.len(), granted);
    }
    back.granted.clone().into_iter().for_each(|token| receiver.handle_delivered(token));
    let ended: Vec<_> = core::iter::from_fn(|| receiver.poll_event()).collect();
    let users =
        ended.iter().map(|event| if let Event::Received { user, result: Ok(_), .. } = event { *user } else { 9 });
    assert!(users.eq(0..3), "{ended:?}");
}

#[test]
fn cancelled_steps_end_without_events_and_leave_free_records() {
    let (mut one, mut other) = (messenger(4), messenger(4));
    let (mut out, mut back) = (Wire::default(), Wire { grants: 1, ..Wire::default() });
    let span = buffer(LONG).span(0, LONG);
    other.receive_step(&mut back, PEER, key(1), span, 1).expect("a record");
    other.receive_step(&mut back, PEER, key(2), span, 2).expect("a record");
    other.receive_step(&mut back, PEER, key(3), span, 3).expect("a record");
    let message = |step| StepMessage { to: PEER, key: key(step), payload: span, at: 0, port: Port::ONLY, user: step };
    for step in [1, 2] {
        one.send_step(&mut out, &message(step)).expect("a record");
    }
    deliver(&mut out, &mut other);
    while other.progress(&mut back) {}
    assert_eq!((back.granted.len(), one.open_sends().count()), (1, 2), "one is granted, one starved, one awaited");
    let mut cancelled = Vec::new();
    other.cancel_steps(&mut back, |user| user != 9, |user| cancelled.push(user));
    cancelled.sort_unstable();
    assert_eq!((cancelled, back.withdrawn.len(), other.poll_event()), (vec![1, 2, 3], 1, None));
    one.cancel_steps(&mut out, |user| user == 2, |user| assert_eq!(user, 2));
    assert!(one.open_sends().eq([(PEER, 1)]));
    assert!(other.is_idle() && !other.has_steps());
}

#[test]
fn payload_is_fetched_part_by_part_and_answered_when_there_is_room() {
    let (mut sender, mut receiver) = (messenger(4), messenger(8));
    let (mut out, mut back) = (Wire::default(), Wire { reads: 2, ..Wire::default() });
    let span = buffer(LONG).span(0, LONG);
    let step = StepMessage { to: PEER, key: key(1), payload: span, at: 1, port: Port::ONLY, user: 1 };
    sender.send_step(&mut out, &step).expect("a record");
    receiver.receive_step(&mut back, PEER, key(1), span, 1).expect("a record");
    deliver(&mut out, &mut receiver);
    while receiver.progress(&mut back) {}
    assert_eq!((back.fetching.len(), receiver.has_steps(), receiver.is_idle()), (1, false, false));
    receiver.handle_fetched(back.fetching[0], true);
    while receiver.progress(&mut back) {}
    assert_eq!(back.fetching.len(), 2, "the rest is fetched");
    // Every queue place waits for room when the last part ends.
    back.is_full = true;
    while receiver.send_control(&mut back, PEER, &[99]) {}
    receiver.handle_fetched(back.fetching[1], true);
    assert!((0..3).any(|_| !receiver.progress(&mut back)), "the FIN has no room");
    assert_eq!(receiver.poll_event(), None);
    back.is_full = false;
    while receiver.progress(&mut back) {}
    assert!(matches!(receiver.poll_event(), Some(Event::Received { user: 1, result: Ok(_), .. })));
    back.sent.retain(|(head, _)| head[0] != 99);
    deliver(&mut back, &mut sender);
    assert!(matches!(sender.poll_event(), Some(Event::Sent { user: 1, result: Ok(()), .. })));
    receiver.handle_fetched(back.fetching[1], true);
    assert!(receiver.is_idle() && sender.is_idle());
}

#[test]
fn failed_fetch_is_granted_as_a_whole_and_others_end_with_their_receive() {
    let (mut sender, mut receiver) = (messenger(4), messenger(8));
    let (mut out, mut back) = (Wire::default(), Wire { reads: 4, grants: 1, ..Wire::default() });
    for user in 0..3 {
        sender.send(&mut out, &message(LONG, user)).expect("a record");
        receiver.receive(&mut back, exact(user), buffer(LONG), user).expect("a record");
    }
    deliver(&mut out, &mut receiver);
    while receiver.progress(&mut back) {}
    let [first, second, third] = back.fetching[..] else { panic!("{:?}", back.fetching) };
    receiver.handle_fetched(first, true);
    while receiver.progress(&mut back) {}
    assert_eq!(back.fetching, [first, second, third, first], "its second part");
    receiver.handle_fetched(first, false);
    while receiver.progress(&mut back) {}
    assert_eq!(back.granted, [first]);
    deliver(&mut back, &mut sender);
    while sender.progress(&mut out) {}
    assert_eq!(out.placed.len(), 1);
    receiver.handle_delivered(first);
    assert!(matches!(receiver.poll_event(), Some(Event::Received { user: 0, result: Ok(_), .. })));
    assert!(receiver.disconnect(&mut back, PEER, false));
    assert_eq!(back.aborted, [second, third]);
    let failed = |event| matches!(event, Some(Event::Received { result: Err(ReceiveFailure::PeerGone), .. }));
    assert!(failed(receiver.poll_event()) && failed(receiver.poll_event()) && receiver.poll_event().is_none());
}

#[test]
fn send_of_the_host_ends_with_its_token() {
    let mut one = messenger(1);
    let token = one.start_own_send(PEER, buffer(4), 8).expect("a record");
    assert_eq!((one.start_own_send(PEER, buffer(4), 9), one.poll_event()), (None, None));
    one.handle_sent(token, Ok(()));
    let ended = Event::Sent { class: Class::PointToPoint, user: 8, to: PEER, result: Ok(()) };
    assert_eq!((one.poll_event(), one.is_idle()), (Some(ended), true));
}

#[test]
fn grown_records_keep_what_is_under_way() {
    let (mut one, mut out) = (messenger(1), Wire::default());
    one.send(&mut out, &message(LONG, 0)).expect("a record");
    one.receive(&mut out, exact(0), buffer(LONG), 0).expect("a record");
    assert!(one.send(&mut out, &message(LONG, 1)).is_err() && one.receive(&mut out, exact(1), buffer(1), 1).is_err());
    let buckets = || vec![0; 64].into_boxed_slice();
    assert!(!one.grow_sends(vec![SendOp::FREE; 1].into(), vec![SendRecord::FREE; 1].into(), buckets()));
    assert!(one.grow_sends(vec![SendOp::FREE; 2].into(), vec![SendRecord::FREE; 2].into(), buckets()));
    assert!(one.grow_receives(vec![ReceiveOp::FREE; 2].into(), vec![PostedReceive::default(); 2].into(), buckets()));
    assert_eq!((one.record_counts(), one.send(&mut out, &message(LONG, 1))), ([2, 2], Ok(())));
    one.receive(&mut out, exact(1), buffer(1), 1).expect("a record");
    assert!(one.all_posted().map(|(_, user, _)| user).eq([0, 1]) && one.receivers().count() == 2);
}

#[test]
fn grown_outbox_keeps_the_messages_that_wait() {
    let (mut one, mut other) = (messenger(8), messenger(8));
    let mut out = Wire { is_full: true, ..Wire::default() };
    (0..4).for_each(|tag| assert_eq!((one.full_outbox(), one.send(&mut out, &message(4, tag))), (None, Ok(()))));
    assert_eq!((one.send(&mut out, &message(4, 4)), one.full_outbox()), (Err(SendError::Full), Some(4)));
    assert!(!one.grow_outbox(vec![QueuedMessage::FREE; 4].into()) && one.full_outbox() == Some(4));
    assert!(one.grow_outbox(vec![QueuedMessage::FREE; 8].into()) && one.full_outbox().is_none());
    assert_eq!((one.send(&mut out, &message(4, 4)), out.sent.len()), (Ok(()), 0));
    out.is_full = false;
    while one.progress(&mut out) {}
    assert_eq!(out.sent.len(), 5);
    deliver(&mut out, &mut other);
    let any = Pattern { context: Context(0), source: None, tag: None };
    assert_eq!(other.probe(any).map(|first| first.envelope.tag), Some(Tag(0)));
    assert!((0..5).all(|tag| other.probe(exact(tag)).is_some()));
}
