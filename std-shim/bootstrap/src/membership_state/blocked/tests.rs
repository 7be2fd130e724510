use super::*;
use crate::{
    membership_state::{ConnectionId, ProcessEnd},
    on_death::OnDeath,
    peer_record::{Digests, Ending, Incarnation, LocalRecord},
};
use core::net::{Ipv4Addr, SocketAddr};

/// Ranks on connections of the same numbers, all joined.
fn job(size: u32) -> MembershipState {
    let mut state = MembershipState::new(size, OnDeath::Tell, true);
    for rank in 0..size {
        let offer = LocalRecord {
            location: crate::location::Location::default(),
            link_megabits: 0,
            incarnation: Incarnation(rank),
            addresses: [SocketAddr::from(([0; 4], 7)); 2],
            further_rails: Vec::new(),
            rails_max: 1,
            checksums: true,
            mtu: 1472,
            digests: Digests::default(),
        };
        let link = rank as ConnectionId;
        state.handle_join(link, Rank(rank), offer, None, String::new(), Ipv4Addr::LOCALHOST.into());
    }
    effects(&mut state);
    state
}

fn effects(state: &mut MembershipState) -> Vec<Effect> {
    core::iter::from_fn(|| state.poll()).collect()
}

fn any_of(ranks: &[u32]) -> WaitCondition {
    WaitCondition::AnyOf(RankRanges::new(ranks.iter().copied().map(Rank)).expect("few"))
}

/// The report of a rank that waits for one of these ranks.
fn waits(round: u32, progress: u64, ranks: &[u32]) -> WaitReport {
    let wait = Wait { what: format!("waits for {ranks:?}"), conditions: vec![any_of(ranks)] };
    WaitReport { round, progress, in_flight: false, waits: vec![wait] }
}

fn confirm(round: u32, ranks: &[u32]) -> Vec<Effect> {
    ranks.iter().map(|rank| Effect::Send(*rank as ConnectionId, ServerMessage::ConfirmWaits(round))).collect()
}

fn stuck(ranks: &[(u32, &str)]) -> Vec<Effect> {
    let ranks = ranks.iter().map(|(rank, what)| StuckRank { rank: Rank(*rank), waits: vec![(*what).to_owned()] });
    vec![Effect::Report(ServerReport::Stuck(ranks.collect()))]
}

#[test]
fn a_ring_is_reported_once_after_two_rounds() {
    let mut state = job(3);
    state.handle_waits(Rank(0), waits(0, 5, &[1]));
    assert_eq!(effects(&mut state), [], "rank 1 may act");
    state.handle_waits(Rank(1), waits(0, 6, &[0]));
    assert_eq!(effects(&mut state), confirm(1, &[0, 1]));
    state.handle_waits(Rank(0), waits(1, 5, &[1]));
    assert_eq!(effects(&mut state), []);
    state.handle_waits(Rank(1), waits(1, 6, &[0]));
    assert_eq!(effects(&mut state), stuck(&[(0, "waits for [1]"), (1, "waits for [0]")]));
    state.handle_waits(Rank(0), waits(0, 5, &[1]));
    state.handle_waits(Rank(1), WaitReport { in_flight: true, ..waits(0, 6, &[0]) });
    state.handle_waits(Rank(1), waits(0, 6, &[0]));
    state.handle_waits(Rank(1), waits(0, 6, &[0]));
    assert_eq!(effects(&mut state), [], "once");
    // A rank that waits for stuck ranks is stuck, too.
    state.handle_waits(Rank(2), waits(0, 1, &[0, 1]));
    assert_eq!(effects(&mut state), confirm(2, &[0, 1, 2]));
    for (rank, progress, awaited) in [(0, 5, [1].as_slice()), (1, 6, &[0]), (2, 1, &[0, 1])] {
        state.handle_waits(Rank(rank), waits(2, progress, awaited));
    }
    assert_eq!(effects(&mut state), stuck(&[(2, "waits for [0, 1]")]));
}

#[test]
fn progress_messages_in_flight_and_silence_confirm_nothing() {
    let mut state = job(2);
    let ring = |state: &mut MembershipState, round| {
        state.handle_waits(Rank(0), waits(0, 5, &[1]));
        state.handle_waits(Rank(1), waits(0, 6, &[0]));
        assert_eq!(effects(state), confirm(round, &[0, 1]));
    };
    ring(&mut state, 1);
    state.handle_waits(Rank(0), waits(1, 5, &[1]));
    state.handle_waits(Rank(1), waits(1, 7, &[0]));
    assert_eq!(effects(&mut state), confirm(2, &[0, 1]), "progress: another round");
    state.handle_waits(Rank(0), waits(2, 5, &[1]));
    state.handle_waits(Rank(1), WaitReport { in_flight: true, ..waits(2, 7, &[0]) });
    assert_eq!(effects(&mut state), [], "something is in flight");
    state.handle_waits(Rank(1), WaitReport::default());
    ring(&mut state, 3);
    // An answer to another round does not count.
    state.handle_waits(Rank(0), waits(2, 5, &[1]));
    state.handle_waits(Rank(1), waits(3, 6, &[0]));
    assert_eq!(effects(&mut state), []);
    state.handle_waits(Rank(1), waits(0, 6, &[0]));
    assert_eq!(effects(&mut state), confirm(4, &[0, 1]), "rank 0 did not answer");
    state.handle_waits(Rank(0), WaitReport::default());
    state.handle_waits(Rank(1), waits(4, 6, &[0]));
    assert_eq!(effects(&mut state), [], "rank 0 continues");
}

#[test]
fn ranks_that_have_ended_satisfy_nothing() {
    let mut state = job(3);
    state.handle_finish(1, Rank(1));
    state.handle_process_end(ProcessEnd { rank: Rank(2), ending: Ending::Signalled(9), reason: String::new() });
    effects(&mut state);
    state.handle_waits(Rank(0), waits(0, 5, &[1, 2]));
    assert_eq!(effects(&mut state), confirm(1, &[0]));
    state.handle_waits(Rank(0), waits(1, 5, &[1, 2]));
    assert_eq!(effects(&mut state), stuck(&[(0, "waits for [1, 2]")]));
    state.handle_waits(Rank(7), waits(0, 0, &[0]));
    state.handle_waits(Rank(1), waits(0, 0, &[0]));
    assert_eq!(effects(&mut state), [], "they are no members");
}

#[test]
fn the_server_knows_who_is_missing_at_a_fence() {
    let mut state = job(3);
    let fence = |round| {
        let wait = Wait { what: "waits at the end".to_owned(), conditions: vec![WaitCondition::Fence] };
        WaitReport { round, progress: 1, in_flight: false, waits: vec![wait] }
    };
    [0, 2].into_iter().for_each(|rank| state.handle_fence(Rank(rank), None));
    state.handle_waits(Rank(0), fence(0));
    state.handle_waits(Rank(2), fence(0));
    assert_eq!(effects(&mut state), [], "rank 1 may reach it");
    state.handle_waits(Rank(1), waits(0, 3, &[0, 2]));
    assert_eq!(effects(&mut state), confirm(1, &[0, 1, 2]));
}
