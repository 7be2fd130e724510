//! The calls of one machine, by hand: what a probe would find, when a report is sent, and what becomes of the messages of
//! a peer that fails.

use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point::{
    Action, HeaderCredit, Matched, MessageHeader, Mode, Outcome, Outgoing, ReceiveResult, SendAction,
};
use unisono_core::message::{Context, Pattern, Tag};

use crate::storage::small_machine;

#[test]
fn a_probe_would_find_what_has_arrived() {
    let mut machine = small_machine(2);
    let pattern = |tag| Pattern { context: Context(0), source: Some(PeerId(1)), tag: Some(Tag(tag)) };
    assert!(!machine.would_find(&pattern(5)));
    let head = MessageHeader::inline(Context(0), Tag(5), HeaderCredit { freed: 0, settled: 0 });
    machine.handle(PeerId(1), head.as_ref(), MessageHeader::EAGER as u32 + 3);
    assert!(machine.would_find(&pattern(5)) && !machine.would_find(&pattern(6)));
}

#[test]
fn a_report_that_is_requested_twice_is_sent_once() {
    const FLUSH: [u8; 8] = [12, 0, 0, 0, 0, 0, 0, 0];
    let mut machine = small_machine(2);
    for _ in 0..2 {
        assert_eq!(machine.handle(PeerId(1), &FLUSH, FLUSH.len() as u32), Outcome::Nothing);
    }
    assert!(matches!(machine.poll_action(), Some(Action::Header { to: PeerId(1), .. })));
    assert_eq!(machine.poll_action(), None);
}

#[test]
fn a_peer_that_failed_can_be_sent_to_after_it_is_connected_again() {
    let mut machine = small_machine(2);
    let (to, context, mode) = (PeerId(1), Context(0), Mode::Standard);
    let message = Outgoing { to, context, tag: Tag(5), bytes: 3, eager: 12, at: 0, mode, borrowed: true, user: 0 };
    assert!(machine.send(&message).is_ok());
    machine.disconnect(to, true, |_| ());
    assert!(machine.send(&message).is_err());
    machine.reconnect(to);
    assert!(machine.send(&message).is_ok());
}

#[test]
fn replies_to_others_outlive_a_peer() {
    let mut receiver = small_machine(2);
    for from in [0, 1].map(PeerId) {
        let (to, context, mode) = (PeerId(0), Context(0), Mode::Synchronous);
        let message = Outgoing { to, context, tag: Tag(5), bytes: 3, eager: 12, at: 0, mode, borrowed: true, user: 0 };
        let sent = small_machine(2).send(&message);
        let Ok(SendAction::Eager { head, .. }) = sent else { panic!("{sent:?}") };
        let stored = receiver.handle(from, head.as_ref(), head.as_ref().len() as u32 + 3);
        assert!(matches!(stored, Outcome::Store { .. }), "{stored:?}");
        let received = receiver.receive(Pattern { context, source: Some(from), tag: Some(Tag(5)) }, 9, 0);
        let Ok(ReceiveResult::Matched(Matched::Unexpected { message, .. })) = received else { panic!("{received:?}") };
        receiver.release(message);
    }
    receiver.disconnect(PeerId(0), false, |_| ());
    let reply = receiver.poll_action();
    assert!(matches!(reply, Some(Action::Header { to: PeerId(1), .. })), "{reply:?}");
    assert_eq!(receiver.poll_action(), None);
}

#[test]
fn what_has_arrived_outlives_its_sender() {
    let (to, context, mode) = (PeerId(0), Context(0), Mode::Standard);
    let mut receiver = small_machine(2);
    for (from, bytes) in [(0, 3), (0, 20), (1, 3), (1, 20)] {
        let tag = Tag(bytes as u32);
        let message = Outgoing { to, context, tag, bytes, eager: 12, at: 0, mode, borrowed: true, user: 0 };
        let (head, payload) = match small_machine(2).send(&message).expect("room") {
            SendAction::Eager { head, .. } => (head, bytes as u32),
            SendAction::Header(head) => (head, 0),
        };
        let outcome = receiver.handle(PeerId(from), head.as_ref(), head.as_ref().len() as u32 + payload);
        assert_ne!(outcome, Outcome::ProtocolViolation);
    }
    receiver.disconnect(PeerId(0), false, |_| ());
    let would_find =
        |from, tag| receiver.would_find(&Pattern { context, source: Some(PeerId(from)), tag: Some(Tag(tag)) });
    assert!(would_find(0, 3), "its payload is here");
    assert!(!would_find(0, 20), "its payload is gone");
    assert!(would_find(1, 3) && would_find(1, 20));
}
