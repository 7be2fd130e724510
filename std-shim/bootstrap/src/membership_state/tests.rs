use super::{store::STORE_MAX, *};
use crate::{
    agreement::{AgreementOutcome, RankRanges, Vote},
    message::{KEY_MAX, VALUE_MAX},
    peer_record::{Digests, Incarnation},
};
use core::net::{Ipv4Addr, SocketAddr};

const SEEN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));

fn offer(incarnation: u32) -> LocalRecord {
    let lane = |port| SocketAddr::from(([0, 0, 0, 0], port));
    LocalRecord {
        location: crate::location::Location::default(),
        link_megabits: 0,
        incarnation: Incarnation(incarnation),
        addresses: [lane(7), lane(8)],
        further_rails: Vec::new(),
        rails_max: 1,
        checksums: true,
        mtu: 1472,
        digests: Digests { tuning: 5, transport: 6 },
    }
}

fn join(roll: &mut MembershipState, link: ConnectionId, rank: u32, incarnation: u32) {
    roll.handle_join(link, Rank(rank), offer(incarnation), None, "host".to_owned(), SEEN);
}

fn effects(roll: &mut MembershipState) -> Vec<Effect> {
    core::iter::from_fn(|| roll.poll()).collect()
}

/// Handles the reported ends of processes, and returns their ranks.
fn ends(roll: &mut MembershipState) -> Vec<Rank> {
    let ends: Vec<ProcessEnd> = core::iter::from_fn(|| roll.take_end()).collect();
    let ranks = ends.iter().map(|end| end.rank).collect();
    ends.into_iter().for_each(|end| roll.handle_process_end(end));
    ranks
}

fn ended(rank: u32, ending: Ending, participation: Participation) -> Effect {
    Effect::Report(ServerReport::Ended { rank: Rank(rank), ending, participation, reason: String::new() })
}

/// Two ranks on connections 10 and 11, both joined.
fn pair(policy: OnDeath, watched: bool) -> MembershipState {
    let mut roll = MembershipState::new(2, policy, watched);
    join(&mut roll, 10, 0, 100);
    join(&mut roll, 11, 1, 101);
    effects(&mut roll);
    roll
}

fn died(rank: u32, incarnation: u32, ending: Ending) -> ServerMessage {
    ServerMessage::Failed { rank: Rank(rank), incarnation: Incarnation(incarnation), ending }
}

#[test]
fn another_version_is_refused_with_both() {
    let mut roll = MembershipState::new(2, OnDeath::End, true);
    roll.refuse_version(10, Version(9, 8, 7));
    let refusal = Refusal::Version { own: Version(9, 8, 7), server: Version::CURRENT };
    assert_eq!(effects(&mut roll), [Effect::Send(10, ServerMessage::Refused(refusal)), Effect::Close(10)]);
    let text = refusal.to_string();
    assert!(text.contains("unisono 9.8.7") && text.contains(env!("CARGO_PKG_VERSION")), "{text}");
}

#[test]
fn the_last_to_join_releases_the_table() {
    let mut roll = MembershipState::new(2, OnDeath::End, true);
    join(&mut roll, 10, 1, 101);
    assert_eq!(effects(&mut roll), []);
    assert!(roll.is_joining());
    join(&mut roll, 11, 0, 100);
    assert_eq!(
        effects(&mut roll),
        [Effect::SendTable(11), Effect::SendTable(10), Effect::Report(ServerReport::AllJoined)]
    );
    let lines = roll.records(0, 10);
    assert_eq!(lines.iter().map(|entry| entry.incarnation.0).collect::<Vec<_>>(), [100, 101]);
    assert_eq!(lines[0].addresses, [SocketAddr::new(SEEN, 7), SocketAddr::new(SEEN, 8)]);
    assert_eq!(roll.records(1, 10), lines[1..]);
    assert_eq!(roll.records(2, 10), []);
}

#[test]
fn hosts_are_numbered_unless_the_launcher_did() {
    let mut roll = MembershipState::new(4, OnDeath::End, false);
    for (rank, node, host) in [(0, None, "a"), (1, None, "b"), (2, None, "a"), (3, Some(7), "a")] {
        roll.handle_join(rank as usize, Rank(rank), offer(rank), node, host.to_owned(), SEEN);
    }
    assert_eq!(roll.records(0, 4).iter().map(|entry| entry.node).collect::<Vec<_>>(), [0, 1, 0, 7]);
}

#[test]
fn a_rank_that_does_not_exist_or_is_taken_is_refused() {
    let mut roll = MembershipState::new(2, OnDeath::End, true);
    join(&mut roll, 10, 2, 1);
    assert_eq!(effects(&mut roll), [Effect::Send(10, ServerMessage::Refused(Refusal::NoSuchRank)), Effect::Close(10)]);
    join(&mut roll, 11, 0, 1);
    join(&mut roll, 12, 0, 2);
    assert_eq!(effects(&mut roll), [Effect::Send(12, ServerMessage::Refused(Refusal::RankTaken)), Effect::Close(12)]);
    roll.handle_connection_lost(12, Rank(0));
    assert_eq!(effects(&mut roll), [], "a refused process is not a member");
}

#[test]
fn a_further_rail_is_announced_and_stays_in_the_table() {
    let mut roll = pair(OnDeath::Tell, true);
    let seen = IpAddr::from([10, 0, 0, 9]);
    let lanes = |host: [u8; 4]| [SocketAddr::from((host, 7)), SocketAddr::from((host, 8))];
    let incarnation = roll.records(1, 1)[0].incarnation;
    for rail in 1..4 {
        roll.handle_rail(Rank(1), (rail + 1, lanes([0; 4])), seen);
        assert_eq!(effects(&mut roll), [], "it is not the next one");
        roll.handle_rail(Rank(1), (rail, lanes([0; 4])), seen);
        let message = ServerMessage::Rail { rank: Rank(1), incarnation, rail, lanes: lanes([10, 0, 0, 9]) };
        assert_eq!(effects(&mut roll), [Effect::Broadcast(message)]);
    }
    roll.handle_rail(Rank(1), (4, lanes([10, 0, 0, 9])), seen);
    assert_eq!(effects(&mut roll), [], "there is no room for a fifth");
    assert_eq!(roll.records(1, 1)[0].further_rails, [lanes([10, 0, 0, 9]); 3]);
    roll.handle_ended(Rank(1), Ending::Signalled(9));
    effects(&mut roll);
    roll.handle_rail(Rank(1), (4, lanes([10, 0, 0, 9])), seen);
    assert_eq!(effects(&mut roll), [], "a rank that has ended opens none");
}

#[test]
fn a_failure_is_reported_only_by_policy_tell() {
    let report = Effect::Report(ServerReport::Failed { rank: Rank(1), ending: Ending::Signalled(9) });
    for (policy, broadcast) in [
        (OnDeath::Tell, Some(Effect::Broadcast(died(1, 101, Ending::Signalled(9))))),
        (OnDeath::Silent, None),
        (OnDeath::End, None),
    ] {
        let mut roll = pair(policy, true);
        roll.handle_ended(Rank(1), Ending::Signalled(9));
        assert_eq!(effects(&mut roll), [report.clone()].into_iter().chain(broadcast).collect::<Vec<_>>());
    }
}

#[test]
fn without_a_launcher_a_broken_connection_is_a_death_and_ends_the_job() {
    let mut roll = pair(OnDeath::End, false);
    roll.handle_connection_lost(11, Rank(1));
    let broadcast = Effect::Broadcast(ServerMessage::Aborted { rank: Rank(1), code: 1 });
    let report = ServerReport::Failed { rank: Rank(1), ending: Ending::Disconnected };
    assert_eq!(effects(&mut roll), [Effect::Report(report), broadcast]);
    let mut roll = pair(OnDeath::Tell, true);
    roll.handle_connection_lost(11, Rank(1));
    assert_eq!(effects(&mut roll), [], "the launcher knows better");
}

#[test]
fn a_new_incarnation_is_announced_to_the_others() {
    let mut roll = pair(OnDeath::Tell, true);
    roll.handle_ended(Rank(1), Ending::Signalled(9));
    effects(&mut roll);
    join(&mut roll, 12, 1, 202);
    let entry = roll.records(1, 1)[0].clone();
    assert_eq!(entry.incarnation, Incarnation(202));
    assert_eq!(
        effects(&mut roll),
        [Effect::Broadcast(ServerMessage::Joined { rank: Rank(1), entry }), Effect::SendTable(12)]
    );
    assert_eq!(roll.failures(), []);
    roll.handle_connection_lost(12, Rank(1));
    let broadcast = Effect::Broadcast(died(1, 202, Ending::Disconnected));
    assert!(effects(&mut roll).contains(&broadcast), "the launcher does not watch a process that it did not start");
    assert_eq!(roll.failures(), [died(1, 202, Ending::Disconnected)]);
}

#[test]
fn the_slowest_link_known_at_the_start_is_every_record_s() {
    let mut roll = MembershipState::new(3, OnDeath::Tell, true);
    let join = |roll: &mut MembershipState, link: ConnectionId, rank: u32, link_megabits: u32| {
        let offer = LocalRecord { link_megabits, ..offer(rank) };
        roll.handle_join(link, Rank(rank), offer, None, "host".to_owned(), SEEN);
    };
    join(&mut roll, 10, 0, 25_000);
    join(&mut roll, 11, 1, 0);
    join(&mut roll, 12, 2, 10_000);
    let speeds =
        |roll: &MembershipState| -> Vec<u32> { roll.records(0, 3).iter().map(|record| record.link_megabits).collect() };
    assert_eq!(speeds(&roll), [10_000; 3]);
    // A later one would select other algorithms than those that have read the table.
    roll.handle_ended(Rank(1), Ending::Signalled(9));
    join(&mut roll, 13, 1, 1000);
    assert_eq!(speeds(&roll), [10_000; 3]);
}

#[test]
fn a_second_process_replaces_the_former_incarnation() {
    let mut roll = pair(OnDeath::Tell, false);
    join(&mut roll, 12, 1, 202);
    let acts = effects(&mut roll);
    assert!(acts.contains(&Effect::Broadcast(died(1, 101, Ending::Replaced))));
    assert!(acts.contains(&Effect::Close(11)));
    assert!(acts.contains(&Effect::SendTable(12)));
    roll.handle_connection_lost(11, Rank(1));
    assert_eq!(roll.poll(), None, "the old connection no longer counts");
}

#[test]
fn a_rank_that_ends_before_it_joins_releases_those_that_wait() {
    let mut roll = MembershipState::new(2, OnDeath::Tell, true);
    join(&mut roll, 10, 0, 1);
    roll.handle_ended(Rank(1), Ending::Exited(2));
    let cause = Effect::Report(ServerReport::Cause { rank: Rank(0), cause: Rank(1) });
    assert_eq!(effects(&mut roll), [cause, Effect::Broadcast(ServerMessage::Refused(Refusal::Ending))]);
    assert!(!roll.is_joining());
    let mut roll = MembershipState::new(3, OnDeath::Tell, true);
    join(&mut roll, 10, 1, 1);
    roll.handle_join_timeout();
    let missing = ServerMessage::Refused(Refusal::MissingRanks { count: 2, first: 0 });
    assert_eq!(effects(&mut roll), [Effect::Broadcast(missing)]);
}

#[test]
fn a_fence_waits_for_live_ranks_only() {
    let mut roll = pair(OnDeath::Silent, true);
    roll.handle_fence(Rank(0), None);
    roll.handle_fence(Rank(0), None);
    assert_eq!(effects(&mut roll), []);
    roll.handle_fence(Rank(1), None);
    assert_eq!(effects(&mut roll), [Effect::Broadcast(ServerMessage::Fenced(None))]);
    roll.handle_fence(Rank(0), None);
    roll.handle_ended(Rank(1), Ending::Exited(1));
    assert!(effects(&mut roll).contains(&Effect::Broadcast(ServerMessage::Fenced(None))));
}

#[test]
fn a_finished_rank_neither_fails_nor_blocks_a_fence() {
    let mut roll = pair(OnDeath::Tell, true);
    roll.handle_fence(Rank(0), None);
    roll.handle_finish(11, Rank(1));
    assert_eq!(
        effects(&mut roll),
        [Effect::Send(11, ServerMessage::FinishAck), Effect::Broadcast(ServerMessage::Fenced(None))]
    );
    roll.handle_ended(Rank(1), Ending::Exited(0));
    assert_eq!(effects(&mut roll), []);
    roll.handle_finish(10, Rank(0));
    assert_eq!(
        effects(&mut roll),
        [Effect::Send(10, ServerMessage::FinishAck), Effect::Report(ServerReport::Finished)]
    );
}

#[test]
fn liveness_is_answered_by_agent_or_server() {
    let mut roll = pair(OnDeath::Silent, true);
    roll.handle_liveness_query(10, Rank(0), Rank(1));
    assert_eq!(effects(&mut roll), [Effect::Send(10, ServerMessage::Liveness { rank: Rank(1), alive: true })]);
    roll.handle_agent(20, 5);
    roll.handle_started(5, Rank(1), 4242);
    effects(&mut roll);
    roll.handle_liveness_query(10, Rank(0), Rank(1));
    assert_eq!(effects(&mut roll), [Effect::Send(20, ServerMessage::QueryLiveness { rank: Rank(1), asker: Rank(0) })]);
    roll.handle_liveness(4, Rank(1), Rank(0), false);
    assert_eq!(effects(&mut roll), [], "not the agent of that rank");
    roll.handle_liveness(5, Rank(1), Rank(0), true);
    assert_eq!(effects(&mut roll), [Effect::Send(10, ServerMessage::Liveness { rank: Rank(1), alive: true })]);
    roll.handle_agent_ended(5, Rank(1), Ending::Signalled(9), String::new());
    assert_eq!(ends(&mut roll), [Rank(1)]);
    effects(&mut roll);
    for nobody in [Rank(1), Rank(77)] {
        roll.handle_liveness_query(10, Rank(0), nobody);
        assert_eq!(effects(&mut roll), [Effect::Send(10, ServerMessage::Liveness { rank: nobody, alive: false })]);
    }
}

#[test]
fn a_lost_agent_takes_its_ranks_along_and_no_others() {
    let mut roll = pair(OnDeath::Tell, true);
    roll.handle_agent(20, 5);
    roll.handle_started(5, Rank(1), 4242);
    effects(&mut roll);
    roll.handle_agent_ended(5, Rank(0), Ending::Exited(9), String::new());
    assert_eq!((ends(&mut roll), effects(&mut roll)), (vec![], vec![]), "an agent speaks for its own ranks only");
    roll.handle_agent_lost(5);
    let broadcast = Effect::Broadcast(died(1, 101, Ending::NodeLost));
    let report = Effect::Report(ServerReport::Failed { rank: Rank(1), ending: Ending::NodeLost });
    assert_eq!(effects(&mut roll), [Effect::Report(ServerReport::AgentLost(5)), report, broadcast]);
}

#[test]
fn the_store_is_bounded() {
    let mut roll = pair(OnDeath::End, true);
    roll.handle_put(10, b"key".to_vec(), b"one".to_vec());
    roll.handle_get(11, b"key");
    roll.handle_get(11, b"none");
    roll.handle_put(10, vec![0; KEY_MAX + 1], Vec::new());
    let value = |value: Option<&[u8]>| Effect::Send(11, ServerMessage::Value(value.map(<[u8]>::to_vec)));
    let stored = |stored| Effect::Send(10, ServerMessage::Stored(stored));
    assert_eq!(effects(&mut roll), [stored(true), value(Some(b"one")), value(None), stored(false)]);
    for number in 0..u32::MAX {
        roll.handle_put(10, number.to_le_bytes().to_vec(), vec![0; VALUE_MAX]);
        if effects(&mut roll) == [stored(false)] {
            assert_eq!(number as usize, (STORE_MAX - 6) / (VALUE_MAX + 4));
            return;
        }
    }
}

fn ballot(round: u32, failed: &[u32], words: &[u64], most: u32) -> Vote {
    let name = AgreementId { first: Rank(0), context: 0, generation: 0, round };
    let ranks = |list: &[u32]| RankRanges::new(list.iter().copied().map(Rank)).expect("few");
    Vote { id: name, members: ranks(&[0, 1, 2]), failed: ranks(failed), maximum: most, words: words.to_vec() }
}

/// The decisions that were sent: connection, failed ranks, words, maximum.
fn agreed(roll: &mut MembershipState) -> Vec<(ConnectionId, Vec<u32>, Vec<u64>, u32)> {
    let broadcast = |act| match act {
        Effect::Send(link, ServerMessage::Agreed(AgreementOutcome { failed, words, maximum: most, .. })) => {
            Some((link, failed.below(9).map(|rank| rank.0).collect(), words, most))
        }
        _ => None,
    };
    effects(roll).into_iter().filter_map(broadcast).collect()
}

fn three() -> MembershipState {
    let mut roll = MembershipState::new(3, OnDeath::Tell, true);
    (0..3).for_each(|rank| join(&mut roll, 10 + rank as usize, rank, 100 + rank));
    effects(&mut roll);
    roll
}

#[test]
fn an_agreement_is_decided_when_all_have_voted_or_failed() {
    let mut roll = three();
    assert_eq!(roll.handle_vote(10, Rank(0), ballot(0, &[], &[0b110], 4)), Some(()));
    assert_eq!(roll.handle_vote(12, Rank(2), ballot(0, &[], &[0b011], 9)), Some(()));
    assert_eq!(agreed(&mut roll), []);
    // Rank 2 votes and fails before the last vote: its vote counts, and it is among the failed.
    roll.handle_ended(Rank(2), Ending::Signalled(9));
    assert_eq!(agreed(&mut roll), []);
    assert_eq!(roll.handle_vote(11, Rank(1), ballot(0, &[], &[0b111], 1)), Some(()));
    let verdict = |link| (link, vec![2], vec![0b010], 9);
    assert_eq!(agreed(&mut roll), [verdict(10), verdict(11)]);
    assert!(roll.agreements.is_empty());
    // The next one waits for a failure; a failure after the decision changes nothing.
    roll.handle_vote(10, Rank(0), ballot(1, &[], &[], 0));
    roll.handle_ended(Rank(1), Ending::Exited(1));
    assert_eq!(agreed(&mut roll), [(10, vec![1, 2], vec![], 0)]);
}

#[test]
fn a_rank_counted_as_failed_gets_the_same_outcome() {
    let mut roll = three();
    roll.handle_vote(10, Rank(0), ballot(0, &[2], &[3], 0));
    roll.handle_vote(11, Rank(1), ballot(0, &[], &[2], 0));
    assert_eq!(agreed(&mut roll), [(10, vec![2], vec![2], 0), (11, vec![2], vec![2], 0)]);
    roll.handle_vote(12, Rank(2), ballot(0, &[0], &[0], 0));
    assert_eq!(agreed(&mut roll), [(12, vec![2], vec![2], 0)]);
    assert!(roll.agreements.is_empty());
}

#[test]
fn only_members_vote_in_an_agreement() {
    let mut roll = three();
    let other = Vote { members: RankRanges::new([Rank(1), Rank(2)]).expect("few"), ..ballot(0, &[], &[1], 0) };
    assert_eq!(roll.handle_vote(10, Rank(0), other.clone()), None);
    assert_eq!(roll.handle_vote(11, Rank(1), other.clone()), Some(()));
    assert_eq!(roll.handle_vote(10, Rank(0), other), None);
    assert_eq!(roll.handle_vote(12, Rank(2), ballot(0, &[], &[1, 2], 0)), None, "another number of words");
}

#[test]
fn a_rank_that_leaves_neither_fails_nor_blocks_a_fence() {
    let mut roll = pair(OnDeath::End, true);
    roll.handle_fence(Rank(0), None);
    roll.handle_leave(Rank(1));
    assert_eq!(
        effects(&mut roll),
        [Effect::Report(ServerReport::Left(Rank(1))), Effect::Broadcast(ServerMessage::Fenced(None))]
    );
    roll.handle_cause(Rank(0), Rank(1));
    let cause = Effect::Report(ServerReport::Cause { rank: Rank(0), cause: Rank(1) });
    assert_eq!(effects(&mut roll), [cause]);
    roll.handle_local_end(Rank(1), Ending::Exited(7));
    assert_eq!(ends(&mut roll), [Rank(1)]);
    assert_eq!(effects(&mut roll), [ended(1, Ending::Exited(7), Participation::Over)]);
}

#[test]
fn only_a_rank_that_has_not_finished_is_a_cause() {
    let mut roll = pair(OnDeath::End, true);
    roll.handle_finish(11, Rank(1));
    effects(&mut roll);
    for cause in [Rank(0), Rank(1), Rank(2)] {
        roll.handle_cause(Rank(0), cause);
        assert_eq!(effects(&mut roll), [], "{cause}");
    }
}

#[test]
fn an_end_is_reported_with_the_part_that_the_rank_had() {
    let mut roll = pair(OnDeath::End, true);
    roll.handle_local_end(Rank(0), Ending::Exited(0));
    assert!(roll.is_connected(Rank(0)) && effects(&mut roll).is_empty(), "its messages come first");
    assert_eq!(ends(&mut roll), [Rank(0)]);
    assert!(effects(&mut roll).contains(&ended(0, Ending::Exited(0), Participation::Unfinished)));
    roll.handle_finish(11, Rank(1));
    effects(&mut roll);
    roll.handle_local_end(Rank(1), Ending::Exited(0));
    assert!(!roll.is_connected(Rank(1)));
    assert_eq!(ends(&mut roll), [Rank(1)]);
    assert_eq!(effects(&mut roll), [ended(1, Ending::Exited(0), Participation::Over)]);
}

#[test]
fn a_rank_that_ends_before_all_have_joined_is_the_cause_of_all_refusals() {
    let mut roll = MembershipState::new(3, OnDeath::End, true);
    join(&mut roll, 10, 0, 100);
    roll.handle_local_end(Rank(1), Ending::Exited(3));
    assert_eq!(ends(&mut roll), [Rank(1)]);
    let cause = |rank| Effect::Report(ServerReport::Cause { rank: Rank(rank), cause: Rank(1) });
    let refused = ServerMessage::Refused(Refusal::Ending);
    let broadcast = Effect::Broadcast(refused.clone());
    assert_eq!(effects(&mut roll), [ended(1, Ending::Exited(3), Participation::None), cause(0), broadcast]);
    join(&mut roll, 12, 2, 102);
    assert_eq!(effects(&mut roll), [cause(2), Effect::Send(12, refused), Effect::Close(12)]);
}
