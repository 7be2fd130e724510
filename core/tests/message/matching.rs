//! The hashed queues of matching against an oracle: two lists that are scanned in order.

use proptest::prelude::*;
use unisono_core::ids::{MessageId, PeerId, ReceiveId};
use unisono_core::message::matching::{Full, Matching};
use unisono_core::message::{Context, Envelope, Pattern, Tag};

use crate::storage::Boxes;

const RECORDS: usize = 24;

type Queues = Matching<Boxes, u32, u32>;

fn queues(seed: u32, buckets: usize) -> Queues {
    let buckets = vec![0; buckets].into_boxed_slice();
    let receives = vec![Default::default(); RECORDS].into();
    let messages = vec![Default::default(); RECORDS].into();
    Queues::new(receives, messages, [buckets.clone(), buckets], seed).expect("enough buckets")
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Receive(Pattern),
    Arrive(Envelope),
    Cancel(usize),
    Probe(Pattern),
    TakeOut(Pattern),
}

/// The oracle's lists, in order, with the given numbers.
#[derive(Default)]
struct Oracle {
    posted: Vec<(Pattern, u32)>,
    kept: Vec<(Envelope, u32)>,
}

impl Oracle {
    fn first_message(&self, pattern: &Pattern) -> Option<usize> {
        self.kept.iter().position(|(envelope, _)| pattern.matches(envelope))
    }

    fn first_receive(&self, envelope: &Envelope) -> Option<usize> {
        self.posted.iter().position(|(pattern, _)| pattern.matches(envelope))
    }
}

fn envelope() -> impl Strategy<Value = Envelope> {
    (0..2_u32, 0..3_u32, 0..4_u32).prop_map(|(context, source, tag)| Envelope {
        context: Context(context),
        source: PeerId(source),
        tag: Tag(tag),
    })
}

fn pattern() -> impl Strategy<Value = Pattern> {
    (envelope(), any::<bool>(), any::<bool>()).prop_map(|(Envelope { context, source, tag }, sourced, tagged)| {
        Pattern { context, source: sourced.then_some(source), tag: tagged.then_some(tag) }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => pattern().prop_map(Step::Receive),
        4 => envelope().prop_map(Step::Arrive),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => pattern().prop_map(Step::Probe),
        1 => pattern().prop_map(Step::TakeOut),
    ]
}

fn free_message(queues: &mut Queues, message: MessageId) -> u32 {
    assert!(queues.take(message) && !queues.take(message));
    let body = queues.free_message(message).expect("it was taken");
    assert_eq!(queues.free_message(message), None, "once");
    body
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn receives_and_messages_meet_as_in_two_lists(
        steps in prop::collection::vec(step(), 1..120),
        seed in any::<u32>(),
        buckets in prop::sample::select(vec![6_usize, 13, 96]),
        // All receives name their source, and all or none name the tag.
        plain in any::<Option<bool>>(),
    ) {
        let (mut queues, mut oracle) = (queues(seed, buckets), Oracle::default());
        let mut posted: Vec<(ReceiveId, u32)> = Vec::new();
        for (number, step) in (0_u32..).zip(steps) {
            match step {
                Step::Receive(pattern) => {
                    let pattern = plain.map_or(pattern, |tagged| Pattern {
                        source: pattern.source.or(Some(PeerId(0))),
                        tag: tagged.then_some(pattern.tag.unwrap_or(Tag(0))),
                        ..pattern
                    });
                    let found = queues.first_message(&pattern);
                    match oracle.first_message(&pattern) {
                        Some(at) => {
                            let message = found.expect("the oracle has one");
                            prop_assert_eq!(free_message(&mut queues, message), oracle.kept.remove(at).1);
                        }
                        None => {
                            prop_assert_eq!(found, None);
                            match queues.post(pattern, number) {
                                Ok(receive) => {
                                    posted.push((receive, number));
                                    oracle.posted.push((pattern, number));
                                }
                                Err(Full) => prop_assert_eq!(oracle.posted.len(), RECORDS),
                            }
                        }
                    }
                }
                Step::Arrive(envelope) => {
                    let mut short = queues.clone();
                    let taken = short.take_first_receive(&envelope, core::mem::take);
                    let found = queues.first_receive(&envelope);
                    match oracle.first_receive(&envelope) {
                        Some(at) => {
                            let receive = found.expect("the oracle has one");
                            prop_assert!(queues.unpost(receive) && !queues.unpost(receive));
                            let number = oracle.posted.remove(at).1;
                            prop_assert_eq!(queues.free_receive(receive), Some(number));
                            prop_assert!(taken.is_some() || plain.is_none());
                            if taken.is_some() {
                                prop_assert_eq!((taken, &short), (Some(number), &queues));
                            }
                        }
                        None => {
                            prop_assert_eq!((found, taken), (None, None));
                            prop_assert_eq!(&short, &queues);
                            match queues.queue_unexpected(envelope, number) {
                                Ok(_) => oracle.kept.push((envelope, number)),
                                Err(Full) => prop_assert_eq!(oracle.kept.len(), RECORDS),
                            }
                        }
                    }
                }
                Step::Cancel(which) => {
                    // Cancelling a receive that was matched meanwhile has no effect.
                    let Some(&(receive, number)) = posted.get(which % posted.len().max(1)) else { continue };
                    let waits = oracle.posted.iter().position(|(_, posted)| *posted == number);
                    prop_assert_eq!(queues.unpost(receive), waits.is_some());
                    prop_assert_eq!(queues.free_receive(receive), waits.map(|at| oracle.posted.remove(at).1));
                }
                Step::Probe(pattern) => {
                    let found = queues.first_message(&pattern).and_then(|message| queues.message(message));
                    let first = oracle.first_message(&pattern).and_then(|at| oracle.kept.get(at));
                    prop_assert_eq!(found.map(|(envelope, body)| (*envelope, *body)), first.copied());
                }
                Step::TakeOut(pattern) => {
                    if let Some(message) = queues.first_message(&pattern) {
                        let at = oracle.first_message(&pattern).expect("the queues have one");
                        prop_assert_eq!(free_message(&mut queues, message), oracle.kept.remove(at).1);
                    }
                }
            }
            prop_assert_eq!(queues.is_idle(), oracle.posted.is_empty());
        }
    }
}

#[test]
fn too_few_buckets_are_refused() {
    let of = |buckets: usize| {
        let buckets = vec![0; buckets].into_boxed_slice();
        Queues::new(Box::new([]), Box::new([]), [buckets.clone(), buckets], 0)
    };
    assert!(of(5).is_none() && of(6).is_some());
}
