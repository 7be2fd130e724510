//! Every collective, algorithm, size, port count, root, order and number of segments against the collective's
//! definition.

use crate::group::{Group, calls};
use crate::verify::{match_messages, verify};
use unisono_core::collective::{CollectiveKind, Order};
use unisono_core::ids::Rank;
use unisono_core::schedule::{Algorithm, BlockSpan, Plan, Spec, StepOperation, Unsupported};

/// Checks that every segment's steps are those of the first, in their own part of each block and with their own keys.
fn segments_repeat(one: &Group, group: &Group) {
    // The result that overlays the input is copied after all segments.
    if group.call.collective == CollectiveKind::ReduceScatter && group.call.in_place {
        return verify(group).unwrap_or_else(|why| panic!("{:?}: {why}", group.call));
    }
    for (first, steps) in one.steps.iter().zip(&group.steps) {
        assert_eq!(first.len() * group.call.segments as usize, steps.len());
        for (segment, part) in (0..).zip(steps.chunks(first.len().max(1))) {
            for (a, b) in first.iter().zip(part) {
                let (a, b) =
                    ((a.dependencies, alike(a.operation, Some(segment))), (b.dependencies, alike(b.operation, None)));
                assert_eq!(a, b);
            }
        }
    }
    match_messages(&group.steps).unwrap_or_else(|why| panic!("{:?}: {why}", group.call));
}

fn spans(operation: &mut StepOperation) -> Vec<&mut BlockSpan> {
    match operation {
        StepOperation::Send { from: span, .. } | StepOperation::Receive { into: span, .. } => vec![span],
        StepOperation::Copy { from, into } | StepOperation::Reduce { from, into, .. } => vec![from, into],
        StepOperation::Group(_) => unreachable!("a flat schedule"),
    }
}

/// The operation without its key and, in the first segment, moved to `segment`.
fn alike(mut operation: StepOperation, segment: Option<u32>) -> StepOperation {
    if let StepOperation::Send { key, .. } | StepOperation::Receive { key, .. } = &mut operation {
        *key = 0;
    }
    for span in spans(&mut operation) {
        span.segment = segment.unwrap_or(span.segment);
    }
    operation
}

fn check(sizes: impl Iterator<Item = u32>, segments: &[u32]) {
    for call in calls(sizes, &[1, 2, 3]) {
        let one = Group::new(call).expect("not refused");
        verify(&one).unwrap_or_else(|why| panic!("{call:?}: {why}"));
        for segments in segments {
            let group = Group::new(Spec { segments: *segments, ..call }).expect("not refused");
            segments_repeat(&one, &group);
            if call.size <= 6 {
                verify(&group).unwrap_or_else(|why| panic!("{:?}: {why}", group.call));
            }
        }
    }
}

#[test]
fn every_schedule_of_up_to_9_ranks_gives_what_its_verb_means() {
    check(1..=9, &[2, 3]);
}

#[test]
fn every_schedule_of_10_to_13_ranks_gives_what_its_verb_means() {
    check(10..=13, &[3]);
}

#[test]
fn every_schedule_of_14_to_17_ranks_gives_what_its_verb_means() {
    check(14..=17, &[2]);
}

/// Sizes with three digits in base 4, and the largest port count.
#[test]
fn schedules_of_larger_groups_give_what_their_verbs_mean() {
    for (size, ports) in [(27, 2), (31, 4), (33, 16), (48, 3), (61, 1)] {
        for (verb, algorithm) in
            CollectiveKind::ALL.iter().flat_map(|verb| Algorithm::ALL.map(|algorithm| (*verb, algorithm)))
        {
            let call = Spec { root: Rank(size / 3), ..Spec::new(verb, algorithm, size, ports) };
            match Group::new(call) {
                // The race detector has a limited number of cells.
                Ok(group) if group.plans.iter().all(|plan| plan.scratch_blocks() + 2 * size <= 384) => {
                    verify(&group).unwrap_or_else(|why| panic!("{call:?}: {why}"));
                }
                _ => {}
            }
        }
    }
}

/// Every rank rejects a specification for the same reason.
#[test]
fn schedules_that_do_not_exist_are_refused_for_their_reason() {
    let base = Spec::new(CollectiveKind::Allreduce, Algorithm::Ring, 6, 2);
    let refused = |call: Spec| {
        let answers: Vec<_> = (0..call.size.max(1)).map(|r| Plan::new(Spec { rank: Rank(r), ..call }).err()).collect();
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{call:?}");
        answers[0]
    };
    assert_eq!(refused(base), None);
    assert_eq!(refused(Spec { order: Order::Rank, ..base }), Some(Unsupported::Order));
    assert_eq!(refused(Spec { algorithm: Algorithm::Bruck, ..base }), Some(Unsupported::Unavailable));
    assert_eq!(refused(Spec { ports: 0, ..base }), Some(Unsupported::Ports));
    assert_eq!(refused(Spec { ports: 17, ..base }), Some(Unsupported::Ports));
    assert_eq!(refused(Spec { segments: 0, ..base }), Some(Unsupported::Segments));
    assert_eq!(refused(Spec { segments: u32::MAX, ..base }), Some(Unsupported::TooLong));
    assert_eq!(refused(Spec { size: 0, ..base }), Some(Unsupported::Rank));
    assert_eq!(Plan::new(Spec { size: u32::MAX, ..base }).err(), Some(Unsupported::TooLong));
    let tree = Spec { algorithm: Algorithm::Knomial, ..base };
    assert_eq!(refused(Spec { radix: 1, ..tree }), Some(Unsupported::Radix));
    assert_eq!(refused(Spec { radix: 18, ..tree }), Some(Unsupported::Radix));
    let gather = Spec { collective: CollectiveKind::Gather, ..tree };
    assert_eq!(refused(Spec { root: Rank(6), ..gather }), Some(Unsupported::Rank));
    assert_eq!(refused(Spec { varying: true, ..gather }), Some(Unsupported::Varying));
    assert_eq!(refused(Spec { varying: true, algorithm: Algorithm::Direct, ..gather }), None);
    let alltoall = Spec { collective: CollectiveKind::Alltoall, algorithm: Algorithm::StandardExchange, ..base };
    assert_eq!(refused(alltoall), Some(Unsupported::Power));
    assert_eq!(refused(Spec { size: 9, ..alltoall }), None);
    let scattered =
        Spec { collective: CollectiveKind::ReduceScatter, algorithm: Algorithm::Halving, order: Order::Rank, ..base };
    assert_eq!(refused(scattered), Some(Unsupported::Order));
    assert_eq!(refused(Spec { size: 9, ..scattered }), None);
}

/// `Plan::new` accepts exactly the algorithms of the table; every collective has an algorithm for any order, and one
/// for any block sizes.
#[test]
fn every_verb_has_a_schedule_for_any_size_order_and_blocks() {
    for size in 1..=17 {
        for verb in CollectiveKind::ALL {
            let any = Algorithm::ALL.iter().any(|algorithm| {
                let call = Spec { order: Order::Rank, varying: true, ..Spec::new(verb, *algorithm, size, 1) };
                Plan::new(call).is_ok()
            });
            assert!(any, "{verb:?} of {size}");
        }
    }
}

/// A step is a function of its number.
#[test]
fn schedule_steps_are_the_same_in_any_order() {
    for call in calls(7..=7, &[2]).into_iter().filter(|call| !call.collective.is_rooted() || call.root == Rank(5)) {
        let call = Spec { segments: 2, rank: Rank(3), ..call };
        let plan = Plan::new(call).expect("not refused");
        let forwards: Vec<_> = (0..plan.steps()).map(|i| plan.step(i)).collect();
        let mut backwards: Vec<_> = (0..plan.steps()).rev().map(|i| plan.step(i)).collect();
        backwards.reverse();
        assert_eq!(forwards, backwards);
        assert!(forwards.iter().all(Option::is_some) && plan.step(plan.steps()).is_none());
        assert!(plan.step(u32::MAX).is_none());
    }
}

/// Any step of any rank of a large group, without the steps before it: its peer has the matching half of the message.
#[test]
fn schedule_messages_of_thousands_of_ranks_have_two_halves() {
    for (size, ports) in [(1000, 1), (1024, 3), (1025, 16), (2187, 2)] {
        for (verb, algorithm) in
            CollectiveKind::ALL.iter().flat_map(|verb| Algorithm::ALL.map(|algorithm| (*verb, algorithm)))
        {
            let call = Spec { root: Rank(size / 3), segments: 2, ..Spec::new(verb, algorithm, size, ports) };
            for rank in [0, size / 3, size / 2 + 1, size - 1] {
                let Ok(plan) = Plan::new(Spec { rank: Rank(rank), ..call }) else { continue };
                for i in (0..plan.steps()).step_by(1 + plan.steps() as usize / 5) {
                    let (peer, key, sends) = match plan.step(i).expect("a step").operation {
                        StepOperation::Send { to, key, .. } => (to, key, true),
                        StepOperation::Receive { of, key, .. } => (of, key, false),
                        _ => continue,
                    };
                    let other = Plan::new(Spec { rank: peer, ..call }).expect("not refused");
                    let halves = (0..other.steps()).filter(|j| match other.step(*j).expect("a step").operation {
                        StepOperation::Send { to, key: its, .. } => !sends && to.0 == rank && its == key,
                        StepOperation::Receive { of, key: its, .. } => sends && of.0 == rank && its == key,
                        _ => false,
                    });
                    assert_eq!(halves.count(), 1, "{call:?}: step {i} of rank {rank}");
                }
            }
        }
    }
}

/// The largest groups: nothing overflows, and a step costs as little as in a small one.
#[test]
fn schedules_of_a_million_ranks_have_steps() {
    for (verb, algorithm) in
        CollectiveKind::ALL.iter().flat_map(|verb| Algorithm::ALL.map(|algorithm| (*verb, algorithm)))
    {
        for (size, ports) in [(1 << 20, 1), (999_983, 16), (1 << 20, 3)] {
            let call = Spec { root: Rank(size / 2), ..Spec::new(verb, algorithm, size, ports) };
            for rank in [0, 1, size / 2, size - 1] {
                let Ok(plan) = Plan::new(Spec { rank: Rank(rank), ..call }) else { continue };
                for i in (0..plan.steps()).step_by(1 + plan.steps() as usize / 64) {
                    let step = plan.step(i).expect("a step");
                    let ranks = match step.operation {
                        StepOperation::Send { to: peer, .. } | StepOperation::Receive { of: peer, .. } => peer.0,
                        _ => 0,
                    };
                    assert!(ranks < size && step.operation.blocks() <= plan.blocks(), "{call:?}: step {i}");
                }
            }
        }
    }
}
