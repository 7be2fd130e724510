//! Inline messages are counted like all others, and return the same credit.

use alloc::collections::VecDeque;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point::{
    Action, Config, HeaderCredit, MessageHeader, Outcome, PointToPoint, ReceiveResult,
};
use unisono_core::message::{Context, Pattern, Tag};

use crate::storage::{Boxes, Sizes, machine};

/// Flags of a header.
const SYNCHRONOUS: u8 = 1;
const OFFERED: u8 = 2;
const PROMPT: u8 = 4;

/// An item of a channel: the credit of a short message, or a header.
enum Carried {
    Short(HeaderCredit),
    Head(MessageHeader),
}

/// Two ranks.
struct Pair {
    machines: [PointToPoint<Boxes>; 2],
    towards: [VecDeque<Carried>; 2],
    /// Messages counted by [`InlineReceive::take`](unisono_core::message::point_to_point::InlineReceive::take) alone,
    /// and by [`PointToPoint::take_inline`].
    ways: [u32; 2],
}

impl Pair {
    fn new(headers: u16) -> Self {
        let config = Config { headers, short: 64, slot: 64, seed: 1 };
        let sizes = Sizes { peers: 2, receives: 2, sends: 2, slots: 2, spare: 0 };
        Self { machines: [0, 1].map(|_| machine(config, sizes)), towards: Default::default(), ways: [0; 2] }
    }

    /// Sends a short message. False: it cannot be sent now.
    fn send(&mut self, rank: usize) -> bool {
        let to = PeerId(1 - rank as u32);
        let machine = &mut self.machines[rank];
        let (can_send, is_out_of_credit) = (machine.can_send(to), machine.is_out_of_credit(to));
        let credit = machine.send_inline(to);
        assert_eq!((can_send, is_out_of_credit), (credit.is_some(), credit.is_none()));
        self.towards[1 - rank].extend(credit.map(Carried::Short));
        credit.is_some()
    }

    /// Handles the next item. False: there is none.
    fn take(&mut self, rank: usize) -> bool {
        let from = PeerId(1 - rank as u32);
        let Some(carried) = self.towards[rank].pop_front() else { return false };
        let machine = &mut self.machines[rank];
        match carried {
            Carried::Head(head) => {
                let outcome = machine.handle(from, head.as_ref(), head.as_ref().len() as u32);
                assert!(matches!(outcome, Outcome::Nothing), "{outcome:?}");
            }
            Carried::Short(credit) => {
                let before = machine.clone();
                let was_all = machine.inline_receive(from).expect("nothing is kept").take(credit);
                let mut counted = before.clone();
                let may_progress = counted.take_inline(from, credit).expect("a rank says that");
                if was_all {
                    assert!(!may_progress, "a credit header is due");
                } else {
                    assert!(*machine == before, "the call changed the state");
                    assert_eq!(machine.take_inline(from, credit), Some(may_progress));
                }
                assert!(*machine == counted, "it is counted differently");
                self.ways[usize::from(!was_all)] += 1;
            }
        }
        while let Some(action) = self.machines[rank].poll_action() {
            let Action::Header { head, .. } = action else { panic!("{action:?}") };
            self.towards[1 - rank].push_back(Carried::Head(head));
        }
        true
    }

    /// Both ranks send and receive in any order; then all is received, and both can send again.
    fn run(headers: u16, steps: &[(bool, usize)]) -> Self {
        let mut pair = Self::new(headers);
        for (sends, rank) in steps.iter().copied() {
            if sends {
                pair.send(rank)
            } else {
                pair.take(rank)
            };
        }
        while pair.take(0) || pair.take(1) {}
        assert!(pair.send(0) && pair.send(1), "credit is lost");
        pair
    }
}

fn steps() -> impl Strategy<Value = (u16, Vec<(bool, usize)>)> {
    (1..=16_u16, prop::collection::vec((any::<bool>(), 0..2_usize), 0..300))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn inline_messages_are_counted_like_others((headers, steps) in steps()) {
        Pair::run(headers, &steps);
    }
}

/// The generated cases cover both ways.
#[test]
fn generated_cases_cover_both_ways() {
    let mut runner = TestRunner::deterministic();
    let mut ways = [0; 2];
    for _ in 0..100 {
        let (headers, steps) = steps().new_tree(&mut runner).expect("no case is rejected").current();
        let pair = Pair::run(headers, &steps);
        ways.iter_mut().zip(pair.ways).for_each(|(all, here)| *all += here);
    }
    assert!(ways.iter().all(|count| *count >= 500), "{ways:?}");
}

/// A credit header answers a long message sooner.
#[test]
fn an_eager_message_of_the_short_length_is_counted_like_a_short_one() {
    let (from, credit) = (PeerId(1), HeaderCredit { freed: 0, settled: 0 });
    let head = MessageHeader::inline(Context(0), Tag(0), credit);
    let is_counted_alike = |payload: u32| {
        let [mut short, mut eager] = Pair::new(8).machines;
        let bytes = MessageHeader::EAGER as u32 + payload;
        assert_eq!(short.take_inline(from, credit), eager.take_eager(from, head.as_ref(), bytes));
        short == eager
    };
    assert_eq!([0, 64, 65].map(is_counted_alike), [true, true, false]);
}

#[test]
fn an_eager_message_that_awaits_an_answer_is_not_counted_alone() {
    let takes = |flags: u8| {
        let [mut receiver, _] = Pair::new(8).machines;
        let mut head =
            MessageHeader::inline(Context(0), Tag(5), HeaderCredit { freed: 0, settled: 0 }).as_ref().to_vec();
        head[1] = flags;
        receiver.take_eager(PeerId(1), &head, MessageHeader::EAGER as u32).is_some()
    };
    assert_eq!([0, SYNCHRONOUS, OFFERED, PROMPT].map(takes), [true, false, false, true]);
}

#[test]
fn a_receive_is_inline_while_nothing_waits_for_it_or_for_a_receive() {
    let (from, credit) = (PeerId(1), HeaderCredit { freed: 0, settled: 0 });
    let is_inline = |change: &dyn Fn(&mut PointToPoint<Boxes>)| {
        let [mut receiver, _] = Pair::new(8).machines;
        change(&mut receiver);
        receiver.inline_receive(from).is_some()
    };
    let wanted = Pattern { context: Context(0), source: None, tag: None };
    let head = MessageHeader::inline(Context(0), Tag(5), credit);
    assert!(is_inline(&|_| {}));
    assert!(!is_inline(&|receiver| assert!(receiver.receive(wanted, 9, 7).is_ok())), "a posted receive");
    let receive = |receiver: &mut PointToPoint<Boxes>| {
        let _ = receiver.handle(from, head.as_ref(), MessageHeader::EAGER as u32);
    };
    assert!(!is_inline(&receive), "a message");
    assert!(!is_inline(&|receiver| receiver.disconnect(from, true, drop)), "a failed peer");
}

#[test]
fn only_plain_short_messages_are_expected() {
    let from = PeerId(1);
    let expects = |change: &dyn Fn(&mut Vec<u8>)| {
        let [mut receiver, _] = Pair::new(8).machines;
        let wanted = Pattern { context: Context(0), source: Some(from), tag: Some(Tag(5)) };
        assert!(matches!(receiver.receive(wanted, 9, 7), Ok(ReceiveResult::Posted(_))));
        let mut head =
            MessageHeader::inline(Context(0), Tag(5), HeaderCredit { freed: 0, settled: 0 }).as_ref().to_vec();
        change(&mut head);
        receiver.handle_expected(from, &head, MessageHeader::EAGER as u32 + 3)
    };
    assert_eq!(expects(&|_| {}), Some((7, Tag(5), 3)));
    assert_eq!(expects(&|head| head[0] = 1), None, "another kind of header");
    assert_eq!(expects(&|head| head[1] = 1), None, "a flag");
    assert_eq!(expects(&|head| head[16] = 0), None, "a message with a number");
}
