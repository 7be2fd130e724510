use super::*;

const OVER: Participation = Participation::Over;
const UNFINISHED: Participation = Participation::Unfinished;

fn policy(size: u32) -> ExitPolicy {
    ExitPolicy::new(size, OnDeath::End)
}

/// The end of a rank, and the decision after it.
fn ends(policy: &mut ExitPolicy, rank: u32, ending: Ending, participation: Participation) -> Decision {
    policy.handle_ended(Rank(rank), ending, participation);
    policy.decide(false)
}

fn end(ranks: &[u32]) -> Decision {
    Decision::End(ranks.iter().copied().map(Rank).collect())
}

#[test]
fn a_job_that_ends_well_has_code_zero() {
    let mut policy = policy(2);
    for rank in [1, 0] {
        assert!(!policy.is_over());
        assert_eq!(ends(&mut policy, rank, Ending::Exited(0), OVER), Decision::Continue);
    }
    assert!(policy.is_over());
    assert_eq!(policy.code(), 0);
}

#[test]
fn a_failure_that_names_no_rank_ends_the_job_at_once() {
    let mut policy = policy(3);
    assert_eq!(ends(&mut policy, 1, Ending::Signalled(9), UNFINISHED), end(&[1]));
    assert_eq!(ends(&mut policy, 1, Ending::Exited(4), OVER), Decision::Continue, "one end per rank");
    assert_eq!(ends(&mut policy, 0, Ending::Signalled(15), UNFINISHED), Decision::Continue);
    assert_eq!(ends(&mut policy, 2, Ending::Exited(5), UNFINISHED), Decision::Continue);
    assert!(policy.is_over());
    assert_eq!(policy.code(), 137);
}

#[test]
fn the_rank_that_others_name_is_waited_for_and_reported() {
    let mut policy = policy(3);
    policy.handle_left(Rank(1));
    policy.handle_cause(Rank(0), Rank(1));
    policy.handle_cause(Rank(2), Rank(0));
    assert_eq!(ends(&mut policy, 0, Ending::Exited(3), OVER), Decision::Wait);
    assert_eq!(ends(&mut policy, 2, Ending::Exited(4), OVER), Decision::Wait, "its chain ends at rank 1, too");
    assert_eq!(ends(&mut policy, 1, Ending::Exited(7), OVER), end(&[1]));
    assert_eq!((policy.code(), policy.failure(Rank(1))), (7, Some(RankFailure::Ended(Ending::Exited(7)))));
}

#[test]
fn a_rank_that_others_name_and_that_does_not_exit_is_waited_for_until_the_time_is_up() {
    let mut policy = policy(2);
    policy.handle_cause(Rank(0), Rank(1));
    assert_eq!(ends(&mut policy, 0, Ending::Exited(3), UNFINISHED), Decision::Wait);
    assert_eq!(policy.decide(true), end(&[0]), "nothing is known to be wrong with rank 1");
    assert_eq!(policy.code(), 3);
    let mut left = ExitPolicy::new(2, OnDeath::End);
    left.handle_left(Rank(1));
    left.handle_cause(Rank(0), Rank(1));
    assert_eq!(ends(&mut left, 0, Ending::Exited(3), UNFINISHED), Decision::Wait);
    assert_eq!((left.decide(true), left.code()), (end(&[1]), 1));
    assert_eq!(left.failure(Rank(1)), Some(RankFailure::Left { runs: true }));
}

#[test]
fn several_first_causes_are_listed_in_the_order_in_which_they_failed() {
    let mut policy = policy(4);
    policy.handle_left(Rank(2));
    policy.handle_left(Rank(1));
    policy.handle_cause(Rank(0), Rank(1));
    policy.handle_cause(Rank(3), Rank(2));
    assert_eq!(ends(&mut policy, 0, Ending::Exited(1), OVER), Decision::Wait);
    assert_eq!(ends(&mut policy, 3, Ending::Exited(1), OVER), Decision::Wait);
    assert_eq!(ends(&mut policy, 1, Ending::Exited(5), OVER), Decision::Wait);
    assert_eq!(ends(&mut policy, 2, Ending::Exited(6), OVER), end(&[2, 1]));
    assert_eq!(policy.code(), 6);
}

#[test]
fn ranks_that_name_each_other_are_all_reported() {
    let mut policy = policy(3);
    policy.handle_cause(Rank(1), Rank(0));
    policy.handle_cause(Rank(0), Rank(1));
    policy.handle_cause(Rank(2), Rank(0));
    assert_eq!(ends(&mut policy, 2, Ending::Exited(9), UNFINISHED), Decision::Wait);
    assert_eq!(ends(&mut policy, 1, Ending::Exited(2), UNFINISHED), Decision::Wait);
    assert_eq!(ends(&mut policy, 0, Ending::Exited(3), UNFINISHED), end(&[1, 0]));
    assert_eq!(policy.code(), 2);
}

#[test]
fn an_exit_with_code_zero_after_a_drop_fails_only_if_another_rank_fails_because_of_it() {
    let mut alone = policy(2);
    alone.handle_left(Rank(1));
    assert_eq!(ends(&mut alone, 1, Ending::Exited(0), OVER), Decision::Continue);
    assert_eq!(ends(&mut alone, 0, Ending::Exited(0), OVER), Decision::Continue);
    assert_eq!(alone.code(), 0);
    let mut needed = policy(2);
    needed.handle_left(Rank(1));
    needed.handle_cause(Rank(0), Rank(1));
    assert_eq!(ends(&mut needed, 1, Ending::Exited(0), OVER), Decision::Continue);
    assert_eq!(ends(&mut needed, 0, Ending::Exited(4), OVER), end(&[1]));
    assert_eq!((needed.code(), needed.failure(Rank(1))), (1, Some(RankFailure::Left { runs: false })));
}

#[test]
fn a_rank_that_finished_is_no_cause() {
    let mut policy = policy(2);
    policy.handle_cause(Rank(0), Rank(1));
    assert_eq!(ends(&mut policy, 1, Ending::Exited(0), OVER), Decision::Continue);
    assert_eq!(ends(&mut policy, 0, Ending::Exited(4), UNFINISHED), end(&[0]));
}

#[test]
fn a_rank_that_never_joined_is_the_cause_of_those_that_waited_for_it() {
    let mut policy = policy(2);
    assert_eq!(ends(&mut policy, 1, Ending::Exited(0), Participation::None), Decision::Continue);
    policy.handle_cause(Rank(0), Rank(1));
    assert_eq!(ends(&mut policy, 0, Ending::Exited(1), Participation::Over), end(&[1]));
    assert_eq!((policy.code(), policy.failure(Rank(1))), (1, Some(RankFailure::NotJoined)));
}

#[test]
fn other_policies_report_and_continue() {
    for on_death in [OnDeath::Tell, OnDeath::Silent] {
        let mut policy = ExitPolicy::new(3, on_death);
        policy.handle_cause(Rank(1), Rank(2));
        assert!(policy.handle_ended(Rank(1), Ending::Exited(3), UNFINISHED));
        assert_eq!((policy.decide(false), policy.is_running(Rank(0))), (Decision::Continue, true));
        assert!(policy.handle_ended(Rank(2), Ending::Exited(4), UNFINISHED));
        assert!(!policy.handle_ended(Rank(0), Ending::Exited(0), OVER));
        assert_eq!(policy.code(), 4, "rank 1 failed because of rank 2");
    }
}

#[test]
fn an_abort_ends_any_job_with_its_code_once_the_rank_has_exited() {
    let mut policy = ExitPolicy::new(3, OnDeath::Silent);
    policy.handle_abort(Rank(1), 256);
    assert_eq!(policy.decide(false), Decision::Wait);
    policy.handle_ended(Rank(2), Ending::Exited(9), UNFINISHED);
    assert_eq!(policy.decide(false), Decision::Wait, "rank 2 failed because of the abort");
    assert_eq!(ends(&mut policy, 1, Ending::Exited(0), UNFINISHED), end(&[1]));
    policy.handle_abort(Rank(0), 7);
    assert_eq!((policy.decide(false), policy.code()), (Decision::Continue, 1), "256 is not success");
}

#[test]
fn an_abort_because_of_another_rank_is_that_ranks_failure() {
    let mut policy = policy(3);
    policy.handle_left(Rank(1));
    policy.handle_cause(Rank(0), Rank(1));
    policy.handle_abort(Rank(0), 101);
    assert_eq!(ends(&mut policy, 2, Ending::Exited(8), OVER), Decision::Wait);
    assert_eq!(ends(&mut policy, 0, Ending::Exited(101), UNFINISHED), Decision::Wait);
    assert_eq!(ends(&mut policy, 1, Ending::Exited(3), OVER), end(&[1]));
    assert_eq!(policy.code(), 3);
}

#[test]
fn after_an_interrupt_failures_are_not_reported_but_have_a_code() {
    let mut policy = policy(1);
    policy.handle_interrupt();
    assert_eq!(ends(&mut policy, 0, Ending::Signalled(2), UNFINISHED), Decision::Continue);
    assert_eq!(policy.code(), 130);
}

#[test]
fn a_job_whose_reader_is_gone_ends_as_by_sigpipe() {
    let mut policy = policy(2);
    policy.handle_output_closed();
    assert_eq!(ends(&mut policy, 0, Ending::Signalled(15), UNFINISHED), Decision::Continue);
    assert_eq!(policy.code(), 141);
}

#[test]
fn a_rank_that_exits_without_finishing_fails_though_its_code_is_zero() {
    let mut policy = policy(2);
    assert_eq!(ends(&mut policy, 0, Ending::Exited(0), UNFINISHED), end(&[0]));
    assert_eq!((policy.code(), policy.failure(Rank(0))), (1, Some(RankFailure::Unfinished)));
}

#[test]
fn ranks_that_do_not_exist_change_nothing() {
    let mut policy = policy(1);
    assert_eq!(ends(&mut policy, 9, Ending::Exited(1), UNFINISHED), Decision::Continue);
    policy.handle_cause(Rank(9), Rank(0));
    policy.handle_cause(Rank(0), Rank(9));
    assert!(!policy.is_over() && !policy.is_running(Rank(9)));
    assert_eq!(ends(&mut policy, 0, Ending::Exited(1), UNFINISHED), end(&[0]));
}
