//! Failed ranks, and completions of steps that are not in progress.

use crate::group::{Group, Listed, calls};
use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, FailureCause, Poll};
use unisono_core::ids::{CollectiveId, Rank, StepId};
use unisono_core::schedule::{Algorithm, Executor, Plan, Spec, Step, StepOperation};

const ID: CollectiveId = CollectiveId { context: 2, sequence: 9 };

fn partner(step: &Step) -> Option<Rank> {
    match step.operation {
        StepOperation::Send { to, .. } => Some(to),
        StepOperation::Receive { of, .. } => Some(of),
        _ => None,
    }
}

/// Begins the steps that may begin and completes the first `count` of them, whatever others do.
fn advance(executor: &mut Executor<Listed<'_>>, count: usize) -> Vec<u32> {
    let mut done = Vec::new();
    while let Poll::Request(step, _) = executor.poll() {
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
        let group = Group::new(Spec { segments: 2, ..call }).expect("not refused");
        let rank = n % group.size();
        let steps = &group.steps[rank];
        for count in [0, steps.len() / 2, steps.len()] {
            let mut begun = Listed::executor(call.collective, steps);
            let done = advance(&mut begun, count);
            for gone in (0..call.size).map(Rank) {
                let mut executor = begun;
                executor.handle_failed(gone);
                let needs = |(i, step): (u32, &Step)| partner(step) == Some(gone) && !done.contains(&i);
                let needed = (0..).zip(steps).any(needs);
                match executor.poll() {
                    Poll::Failed(failure) => {
                        assert!(needed && failure.rank == gone && failure.cause == FailureCause::Missing)
                    }
                    turn => {
                        assert!(!needed && !matches!(turn, Poll::Request(..)), "{call:?}: {turn:?} without {gone:?}")
                    }
                }
            }
        }
    }
}

#[test]
fn schedule_ignores_completions_of_steps_not_in_progress() {
    let plan = Plan::new(Spec::new(CollectiveKind::Allgather, Algorithm::Ring, 5, 1)).expect("a schedule");
    let mut executor = Executor::new(ID, plan);
    for step in (0..plan.steps()).chain([64, 65, u32::MAX]) {
        executor.handle_done(StepId(step));
    }
    assert_eq!((executor.completed(), executor), (0, Executor::new(ID, plan)));
    let Poll::Request(first, _) = executor.poll() else { panic!("something may begin") };
    executor.handle_done(first);
    let once = executor;
    executor.handle_done(first);
    assert_eq!(executor, once);
}

#[test]
fn schedule_can_be_run_again() {
    // Fewer and more steps than may be in progress.
    for segments in [1, 40] {
        let call = Spec { segments, ..Spec::new(CollectiveKind::Allreduce, Algorithm::Ring, 5, 1) };
        let new = |id| Executor::new(id, Plan::new(call).expect("a schedule"));
        let finish = |executor: &mut Executor| {
            let mut steps = Vec::new();
            loop {
                match executor.poll() {
                    Poll::Request(step, _) => steps.push(step),
                    Poll::Pending => executor.handle_done(steps.pop().expect("one is under way")),
                    Poll::Complete => return,
                    Poll::Failed(failure) => panic!("{failure:?}"),
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
                Poll::Request(step, _) => [&mut again, &mut first].map(|executor| executor.handle_done(step)),
                _ => break,
            };
        }
        again.abort(Rank(1), FailureCause::Missing);
        again.restart(ID);
        assert!(matches!(again.poll(), Poll::Request(..)) && again.id() == ID, "a restart clears the failure");
    }
}

#[test]
fn schedule_reports_the_awaited_rank_and_the_first_failure() {
    let mut executor = Executor::new(
        ID,
        Plan::new(Spec::new(CollectiveKind::Broadcast, Algorithm::Knomial, 4, 1)).expect("a schedule"),
    );
    assert_eq!(executor.awaited(), None);
    let Poll::Request(_, StepOperation::Send { to, .. }) = executor.poll() else { panic!("the root sends") };
    assert_eq!(executor.awaited(), Some(to));
    assert!(executor.partners().eq([to]));
    while let Poll::Request(..) = executor.poll() {}
    let children: Vec<Rank> = executor.partners().collect();
    assert!(children.len() == 2 && children[0] == to && children[1] != to, "{children:?}");
    executor.abort(to, FailureCause::Disagrees);
    executor.handle_failed(Rank(1));
    executor.handle_failed(Rank(2));
    let Poll::Failed(failure) = executor.poll() else { panic!("it failed") };
    assert_eq!(
        (failure.rank, failure.cause, failure.id, failure.collective),
        (to, FailureCause::Disagrees, ID, CollectiveKind::Broadcast)
    );
}
