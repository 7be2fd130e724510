//! Headers that no correct peer sends, between calls in any order: nothing panics, hangs, or leaks a record.

use proptest::prelude::*;
use unisono_core::ids::{PeerId, PlacementId, RemoteKey};
use unisono_core::message::point_to_point::{
    Action, Cancelled, HeaderCredit, Matched, MessageHeader, Mode, Outcome, Outgoing, ReceiveResult, SendAction,
};
use unisono_core::message::{Context, Pattern, Tag};

use crate::storage::small_machine;

const PEERS: usize = 2;
const RECORDS: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Head { from: u32, head: Vec<u8>, more: u32 },
    Send { to: u32, tag: u32, bytes: u64, mode: Mode },
    Receive(Pattern),
    MatchedProbe(Pattern),
    Cancel(usize),
    CancelSend { to: u32, number: u32 },
    Flush(u32),
    Poll,
}

fn pattern() -> impl Strategy<Value = Pattern> {
    (prop::option::of(0..3_u32), prop::option::of(0..2_u32)).prop_map(|(source, tag)| Pattern {
        context: Context(0),
        source: source.map(PeerId),
        tag: tag.map(Tag),
    })
}

/// Mostly well-formed headers with small numbers.
fn head() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![6 => 0..4_u32, 1 => any::<u32>()];
    let like =
        (0..17_u8, prop_oneof![8 => 0..17_u8, 1 => Just(32)], 0..3_u16, 0..6_u32, prop::collection::vec(word, 0..8))
            .prop_map(|(kind, flags, freed, settled, words)| {
                let mut head = vec![kind, flags];
                head.extend(freed.to_le_bytes());
                head.extend(settled.to_le_bytes());
                head.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                head
            });
    prop_oneof![20 => like, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![Just(Mode::Standard), Just(Mode::Synchronous)];
    prop_oneof![
        8 => (0..3_u32, head(), 0..20_u32).prop_map(|(from, head, more)| Step::Head { from, head, more }),
        4 => (0..3_u32, 0..2_u32, 0..20_u64, mode).prop_map(|(to, tag, bytes, mode)| Step::Send { to, tag, bytes, mode }),
        4 => pattern().prop_map(Step::Receive),
        1 => pattern().prop_map(Step::MatchedProbe),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (0..3_u32, 0..4_u32).prop_map(|(to, number)| Step::CancelSend { to, number }),
        1 => (0..3_u32).prop_map(Step::Flush),
        4 => Just(Step::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(debug_assertions) { 4000 } else { 100_000 }, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_heads_and_calls_break_anything(steps in prop::collection::vec(step(), 1..60), loses in any::<bool>()) {
        let mut machine = small_machine(RECORDS);
        let (mut posted, mut pulled, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        let mut actions = 0;
        for (user, step) in (0_u32..).zip(steps) {
            match step {
                Step::Head { from, head, more } => {
                    let outcome = machine.handle(PeerId(from), &head, head.len() as u32 + more);
                    if outcome == Outcome::ProtocolViolation && loses {
                        machine.disconnect(PeerId(from), user % 2 == 0, |lost| assert!(matches!(lost, Cancelled::Send(..) | Cancelled::Receive(..))));
                    }
                }
                Step::Send { to, tag, bytes, mode } => {
                    let (to, context, tag) = (PeerId(to), Context(0), Tag(tag));
                    let _ = machine.send(&Outgoing { to, context, tag, bytes, eager: 12, at: 0, mode, borrowed: true, user });
                }
                Step::Receive(pattern) => match machine.receive(pattern, 9, user) {
                    Ok(ReceiveResult::Posted(id)) => posted.push(id),
                    Ok(ReceiveResult::Matched(Matched::Unexpected { message, .. })) => {
                        machine.release(message);
                        machine.release(message);
                    }
                    _ => {}
                },
                Step::MatchedProbe(pattern) => taken.extend(machine.matched_probe(pattern)),
                Step::Cancel(which) => {
                    let _ = posted.get(which % posted.len().max(1)).map(|id| machine.cancel(*id));
                }
                Step::CancelSend { to, number } => {
                    let _ = machine.take_cancel_result(PeerId(to));
                    let _ = machine.cancel_send(PeerId(to), number);
                }
                Step::Flush(to) => machine.request_report(PeerId(to)),
                Step::Poll => {
                    while let Some(action) = machine.poll_action() {
                        actions += 1;
                        prop_assert!(actions < 10_000, "it never ends");
                        if let Action::Pull { receive, .. } = action {
                            pulled.push(receive);
                        }
                    }
                    for receive in pulled.drain(..) {
                        match user % 3 {
                            0 => machine.fetched(receive),
                            1 => assert!(loses || machine.grant(receive, PlacementId(0), RemoteKey(0)).is_some()),
                            _ => machine.cancel_pull(receive),
                        }
                    }
                    for (message, _) in taken.drain(..) {
                        if let Ok(Some(Matched::Unexpected { message, .. })) = machine.receive_matched(message, 9, user) {
                            machine.release(message);
                        }
                    }
                }
            }
        }
        // Everything with the failed peers ends, and every record is free again.
        for peer in 0..PEERS as u32 {
            machine.disconnect(PeerId(peer), true, |_| ());
        }
        for (message, _) in taken {
            if let Ok(Some(Matched::Unexpected { message, .. })) = machine.receive_matched(message, 9, 0) {
                machine.release(message);
            }
        }
        prop_assert_eq!(machine.poll_action(), None);
        // Receives from unknown ranks are cancelled.
        posted.iter().for_each(|id| { machine.cancel(*id); });
        let anything = Pattern { context: Context(0), source: None, tag: None };
        let mut kept = 0;
        while let Ok(ReceiveResult::Matched(Matched::Unexpected { message, .. })) = machine.receive(anything, 9, 0) {
            machine.release(message);
            kept += 1;
            prop_assert!(kept <= PEERS * 2 + 1);
        }
        let mut left = 1;
        while let Ok(ReceiveResult::Posted(_)) = machine.receive(anything, 9, 0) {
            left += 1;
        }
        prop_assert_eq!(left, RECORDS, "a receive's record is lost");
    }
}

/// Headers with impossible credit: the requests that they concern end with their sender, and are reported.
#[test]
fn impossible_credit_completes_nothing() {
    let (fresh, user) = (|| small_machine(RECORDS), 7);
    let (other, tag) = (PeerId(1), Tag(5));
    let wanted = Pattern { context: Context(0), source: Some(other), tag: Some(tag) };
    let lie = |mut head: Vec<u8>| {
        head[2..4].copy_from_slice(&9_u16.to_le_bytes());
        head
    };
    macro_rules! lost_with {
        ($machine:expr) => {{
            let mut lost = Vec::new();
            $machine.disconnect(other, true, |one| lost.push(one));
            lost
        }};
    }
    macro_rules! head_of {
        ($machine:expr) => {
            match $machine.poll_action() {
                Some(Action::Header { head, .. }) => head.as_ref().to_vec(),
                action => panic!("{action:?}"),
            }
        };
    }

    let mut receiver = fresh();
    assert!(matches!(receiver.receive(wanted, 9, user), Ok(ReceiveResult::Posted(_))));
    let credit = HeaderCredit { freed: 9, settled: 0 };
    let head = MessageHeader::inline(Context(0), tag, credit);
    assert_eq!(receiver.handle_expected(other, head.as_ref(), MessageHeader::EAGER as u32 + 3), None);
    assert_eq!(receiver.handle_inline(other, Context(0), tag, credit, 3), Outcome::ProtocolViolation);
    assert_eq!(lost_with!(receiver), [Cancelled::Receive(user)], "a short message");

    let (mut sender, mut receiver) = (fresh(), fresh());
    let (context, mode) = (Context(0), Mode::Standard);
    let long = Outgoing { to: other, context, tag, bytes: 20, eager: 12, at: 0, mode, borrowed: true, user };
    let Ok(SendAction::Header(head)) = sender.send(&long) else { panic!("it leaves") };
    let announcement = head.as_ref().to_vec();
    assert!(matches!(receiver.receive(wanted, 9, user), Ok(ReceiveResult::Posted(_))));
    assert_eq!(
        receiver.handle(other, &lie(announcement.clone()), announcement.len() as u32),
        Outcome::ProtocolViolation
    );
    assert_eq!(lost_with!(receiver), [Cancelled::Receive(user)], "a message that is too long");

    let mut receiver = fresh();
    assert!(matches!(receiver.receive(wanted, 30, user), Ok(ReceiveResult::Posted(_))));
    assert!(matches!(receiver.handle(other, &announcement, announcement.len() as u32), Outcome::Pending { .. }));
    let Some(Action::Pull { receive, .. }) = receiver.poll_action() else { panic!("it is pulled") };
    receiver.fetched(receive);
    let taken = head_of!(receiver);
    assert_eq!(sender.handle(other, &lie(taken.clone()), taken.len() as u32), Outcome::ProtocolViolation);
    assert_eq!(lost_with!(sender), [Cancelled::Send(user)], "a message that was taken");
}

/// Without a number, a message is short and not synchronous: its receiver could answer nothing about it.
#[test]
fn a_message_without_number_is_short_and_not_synchronous() {
    let short = 4;
    let outcome = |payload: u32, is_synchronous: bool| {
        let mut receiver = small_machine(RECORDS);
        let wanted = Pattern { context: Context(0), source: Some(PeerId(1)), tag: Some(Tag(5)) };
        assert!(matches!(receiver.receive(wanted, 9, 7), Ok(ReceiveResult::Posted(_))));
        let mut head =
            MessageHeader::inline(Context(0), Tag(5), HeaderCredit { freed: 0, settled: 0 }).as_ref().to_vec();
        head[1] |= u8::from(is_synchronous);
        receiver.handle(PeerId(1), &head, MessageHeader::EAGER as u32 + payload)
    };
    assert_ne!(outcome(short, false), Outcome::ProtocolViolation);
    for (payload, is_synchronous) in [(short, true), (short + 1, false), (short + 1, true)] {
        assert_eq!(outcome(payload, is_synchronous), Outcome::ProtocolViolation, "{payload} {is_synchronous}");
    }
}

/// A peer asks for a held message only after its former request was answered, and what was found is claimed or declined.
#[test]
fn a_second_match_request_is_a_protocol_violation() {
    const MATCH_REQUEST: u8 = 8;
    let mut holder = small_machine(RECORDS);
    let mut head = vec![MATCH_REQUEST, 0, 0, 0];
    head.extend([0_u32, 0, 5].iter().flat_map(|word| word.to_le_bytes()));
    let mut ask = || holder.handle(PeerId(1), &head, head.len() as u32);
    assert_eq!(ask(), Outcome::Nothing);
    assert_eq!(ask(), Outcome::ProtocolViolation);
    let answered = holder.poll_action();
    assert!(matches!(answered, Some(Action::Header { to: PeerId(1), .. })), "{answered:?}");
    assert_eq!(holder.handle(PeerId(1), &head, head.len() as u32), Outcome::Nothing);
}
