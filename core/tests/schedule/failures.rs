//! Failed ranks, and completions of steps that are not in progress.

use crate::group::{Group, Listed, calls};
use unisono_core::collective::{Cause, Turn, Verb};
use unisono_core::ids::{CollectiveId, Rank, StepId};
use unisono_core::schedule::{Algorithm, Call, Executor, Operation, Plan, Step};

const ID: CollectiveId = CollectiveId { context: 2, sequence: 9 };

fn partner(step: &Step) -> Option<Rank> {
    match step.operation {
        Operation::Send { to, .. } => Some(to),
        Operation::Receive { of, .. } => Some(of),
        _ => None,
    }
}

/// Begins the steps that may begin and completes the first `count` of them, whatever others do.
fn advance(executor: &mut Executor<Listed<'_>>, count: usize) -> Vec<u32> {
    let mut done = Vec::new();
    while let Turn::Do(step, _) = executor.poll() {
        if done.len() < count {
            executor.handle_done(step);
            done.push(step.0);
        }
    }
    done
}

/// A collective fails with a rank exactly if some step with it is incomplete.
#[test]
fn schedule_fails_with_a_rank_that_it_still_needs_and_with_no_other() {
    for (n, call) in (0_usize..).zip(calls([2, 5, 9].into_iter(), &[1, 3])) {
        let group = Group::new(Call { segments: 2, ..call }).expect("not refused");
        let rank = n % group.size();
        let steps = &group.steps[rank];
        for count in [0, steps.len() / 2, steps.len()] {
            let mut begun = Listed::executor(call.verb, steps);
            let done = advance(&mut begun, count);
            for gone in (0..call.size).map(Rank) {
                let mut executor = begun;
                executor.handle_failed(gone);
                let needs = |(i, step): (u32, &Step)| partner(step) == Some(gone) && !done.contains(&i);
                let needed = (0..).zip(steps).any(needs);
                match executor.poll() {
                    Turn::Failed(failure) => assert!(needed && failure.rank == gone && failure.cause == Cause::Missing),
                    turn => assert!(!needed && !matches!(turn, Turn::Do(..)), "{call:?}: {turn:?} without {gone:?}"),
                }
            }
        }
    }
}

#[test]
fn schedule_ignores_ends_of_steps_that_are_not_under_way() {
    let plan = Plan::new(Call::new(Verb::Allgather, Algorithm::Ring, 5, 1)).expect("a schedule");
    let mut executor = Executor::new(ID, plan);
    for step in (0..plan.steps()).chain([64, 65, u32::MAX]) {
        executor.handle_done(StepId(step));
    }
    assert_eq!((executor.done(), executor), (0, Executor::new(ID, plan)));
    let Turn::Do(first, _) = executor.poll() else { panic!("something may begin") };
    executor.handle_done(first);
    let once = executor;
    executor.handle_done(first);
    assert_eq!(executor, once);
}

#[test]
fn schedule_can_be_run_again() {
    // Fewer and more steps than may be in progress.
    for segments in [1, 40] {
        let call = Call { segments, ..Call::new(Verb::Allreduce, Algorithm::Ring, 5, 1) };
        let new = |id| Executor::new(id, Plan::new(call).expect("a schedule"));
        let finish = |executor: &mut Executor| {
            let mut steps = Vec::new();
            loop {
                match executor.poll() {
                    Turn::Do(step, _) => steps.push(step),
                    Turn::Pending => executor.handle_done(steps.pop().expect("one is under way")),
                    Turn::Final => return,
                    Turn::Failed(failure) => panic!("{failure:?}"),
                }
            }
        };
        let (next, mut again) = (CollectiveId { sequence: ID.sequence + 1, ..ID }, new(ID));
        finish(&mut again);
        again.restart(next);
        let mut first = new(next);
        loop {
            let (turn, expected) = (again.poll(), first.poll());
            assert_eq!(turn, expected, "{segments} segments");
            match turn {
                Turn::Do(step, _) => [&mut again, &mut first].map(|executor| executor.handle_done(step)),
                _ => break,
            };
        }
        again.fail(Rank(1), Cause::Missing);
        again.restart(ID);
        assert!(matches!(again.poll(), Turn::Do(..)) && again.id() == ID, "a restart clears the failure");
    }
}

#[test]
fn schedule_names_whom_it_waits_for_and_the_first_that_failed() {
    let mut executor =
        Executor::new(ID, Plan::new(Call::new(Verb::Broadcast, Algorithm::Knomial, 4, 1)).expect("a schedule"));
    assert_eq!(executor.awaited(), None);
    let Turn::Do(_, Operation::Send { to, .. }) = executor.poll() else { panic!("the root sends") };
    assert_eq!(executor.awaited(), Some(to));
    assert!(executor.partners().eq([to]));
    while let Turn::Do(..) = executor.poll() {}
    let children: Vec<Rank> = executor.partners().collect();
    assert!(children.len() == 2 && children[0] == to && children[1] != to, "{children:?}");
    executor.fail(to, Cause::Disagrees);
    executor.handle_failed(Rank(1));
    executor.handle_failed(Rank(2));
    let Turn::Failed(failure) = executor.poll() else { panic!("it failed") };
    assert_eq!((failure.rank, failure.cause, failure.id, failure.verb), (to, Cause::Disagrees, ID, Verb::Broadcast));
}
