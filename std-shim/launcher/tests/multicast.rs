//! Broadcasts by multicast between the processes of a job. This program is their rank program, too.

#[path = "program/death.rs"]
mod death;
mod program;

use core::time::Duration;
use std::env;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use death::die_amid;
use program::{command, expect, run};
use unisono::collective::{CollectiveError, SystemOperation};
use unisono::raw::statistics;
use unisono::{Communicator, Rank, World};

/// Broadcasts of the small sizes.
const ROUNDS: u32 = 40;
/// Bytes of messages: none, less than a segment, several segments, and more than the window.
const LENGTHS: [usize; 5] = [0, 1, 5_000, 50_000, 3_000_000];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("equal") => equal(&world),
            Some("overlap") => overlap(&world),
            Some("first") => broadcast(&world, 1, 0, LENGTHS[2]),
            Some("ahead") => groups_ahead(&world),
            Some("late") => late_leader(&world, 200, Duration::from_millis(3), 50),
            Some("late-alone") => {
                let late_by = env::args().nth(2).and_then(|ms| ms.parse().ok()).expect("milliseconds");
                late_leader(&world, 40, Duration::from_millis(late_by), 1);
            }
            Some("return") => return_to_schedules(&world),
            Some("differ") => differ(&world),
            Some("die-late") => {
                die_late(&world, env::args().nth(2).and_then(|rank| rank.parse().ok()).expect("a rank"))
            }
            Some("die") => die(&world, env::args().nth(2).and_then(|seed| seed.parse().ok()).expect("a seed")),
            _ => panic!("a part"),
        }
        world.finish().expect("a good end");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("every_rank_gets_what_the_root_has", every_rank_gets_what_the_root_has),
        ("a_group_that_cannot_be_used_changes_no_result", a_group_that_cannot_be_used_changes_no_result),
        ("a_root_waits_for_its_group_if_it_is_to", a_root_waits_for_its_group_if_it_is_to),
        ("communicators_take_groups_that_were_made_ahead", communicators_take_groups_that_were_made_ahead),
        ("acknowledgements_take_the_way_that_is_chosen", acknowledgements_take_the_way_that_is_chosen),
        ("ranks_whose_leader_is_late_join_the_group", ranks_whose_leader_is_late_join_the_group),
        ("they_leave_it_when_their_leader_is_not_late_any_more", they_leave_it_when_their_leader_is_not_late_any_more),
        ("it_is_selected_where_it_pays", it_is_selected_where_it_pays),
        ("schedules_return_when_the_network_stops_multicasts", schedules_return_when_the_network_stops_multicasts),
        ("broadcasts_overlap", broadcasts_overlap),
        ("a_rank_that_calls_something_else_is_named", a_rank_that_calls_something_else_is_named),
        ("survivors_name_the_dead_rank", survivors_name_the_dead_rank),
    ])
}

/// The segments that the ranks sent to groups in all, if multicast executes broadcasts wherever it can.
fn sent(options: &str, part: &str, code: i32, lines: &[&str]) -> u64 {
    counted(options, |options| expect(&run(&format!("{options} --broadcast multicast"), part), code, lines))
}

/// The segments that the ranks of a job sent to groups in all.
fn counted(options: &str, run: impl FnOnce(&str)) -> u64 {
    let [sent] = counters(["sent"], options, run);
    sent
}

/// Counters of multicasts, the sums over the ranks of a job.
fn counters<const N: usize>(names: [&str; N], options: &str, run: impl FnOnce(&str)) -> [u64; N] {
    total(&counters_by_rank(names, options, run))
}

fn total<const N: usize>(ranks: &[[u64; N]]) -> [u64; N] {
    core::array::from_fn(|i| ranks.iter().map(|counters| counters[i]).sum())
}

/// Counters of multicasts of each rank that has finished.
fn counters_by_rank<const N: usize>(names: [&str; N], options: &str, run: impl FnOnce(&str)) -> Vec<[u64; N]> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    run(&format!("{options} --stats-file {}", file.path().display()));
    let text = std::fs::read_to_string(file.path()).expect("the statistics");
    let mut ranks: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    ranks.sort_by_key(|rank| rank["rank"].as_u64());
    let of = |rank: &serde_json::Value| names.map(|name| rank["multicast"][name].as_u64().expect("a number"));
    ranks.iter().map(of).collect()
}

fn every_rank_gets_what_the_root_has() {
    for means in [
        "-n 2 --device udp",
        "-n 5 --device udp --loss 3% --reorder 3% --dup 3%",
        "-n 6 --nodes 2 --mtu 1400 --loss 1%",
        "-n 4 --device udp --progress thread --multicast 239.255.77.0:21477%lo",
    ] {
        assert!(sent(means, "equal", 0, &[]) > 100, "{means}: by multicast");
    }
}

fn a_group_that_cannot_be_used_changes_no_result() {
    // No member can join at an address of the other family, and a root that leads all ranks sends to nobody.
    for means in [
        "-n 4 --device udp --multicast off",
        "-n 5 --nodes 2 --multicast ff15::7",
        "-n 4 --device udp --hierarchy 4",
        "-n 3",
    ] {
        assert_eq!(sent(means, "equal", 0, &[]), 0, "{means}");
    }
}

fn a_root_waits_for_its_group_if_it_is_to() {
    for (policy, is_sent) in [("basic", true), ("lazy", false)] {
        for means in ["-n 4 --device udp --loss 2%", "-n 6 --nodes 3"] {
            let sent = sent(&format!("{means} --groups {policy}"), "first", 0, &[]);
            assert_eq!(sent > 0, is_sent, "{means} {policy}: {sent} segments");
        }
    }
    let unusable = sent("-n 4 --device udp --multicast ff15::7 --groups basic", "first", 0, &[]);
    assert_eq!(unusable, 0, "a group that cannot be used is not waited for");
}

fn communicators_take_groups_that_were_made_ahead() {
    for means in [
        "-n 4 --device udp --groups pool:1",
        "-n 5 --device udp --groups pool:3 --loss 3% --reorder 3%",
        "-n 6 --nodes 3 --groups pool --progress thread",
    ] {
        let names = ["sent", "groups_taken"];
        let job = |options: &str| expect(&run(&format!("{options} --broadcast multicast"), "ahead"), 0, &[]);
        let [sent, taken] = counters(names, means, job);
        assert!(taken >= u64::from(COMMUNICATORS) && sent > 50, "{means}: {taken} groups taken, {sent} segments");
    }
}

fn acknowledgements_take_the_way_that_is_chosen() {
    for (acks, has_copies) in [("co-root:1", true), ("tree:2", false), ("basic", false)] {
        let means = format!("-n 6 --device udp --loss 3% --reorder 3% --multicast-acks {acks}");
        let job = |options: &str| expect(&run(&format!("{options} --broadcast multicast"), "equal"), 0, &[]);
        let all = counters_by_rank(["sent", "co_root_copies", "reports_received"], &means, job);
        let [sent, copies, _] = total(&all);
        assert!(sent > 100, "{acks}: by multicast");
        assert_eq!(copies > 0, has_copies, "{acks}: {copies} copies to co-roots");
        // The others are roots.
        let by_others = all[2..4].iter().any(|[_, _, received]| *received > 0);
        assert_eq!(by_others, acks != "basic", "{acks}: reports at {all:?}");
    }
}

fn ranks_whose_leader_is_late_join_the_group() {
    let job = |options: &str, part: &str| expect(&run(&format!("{options} --broadcast multicast"), part), 0, &[]);
    for (means, may_attach) in [
        ("-n 6 --nodes 2 --attach 1ms", true),
        ("-n 6 --nodes 2 --attach 1ms --loss 3% --reorder 3%", true),
        ("-n 6 --nodes 2 --attach 1ms --progress thread", true),
        ("-n 6 --nodes 2 --attach 30s", false),
        ("-n 6 --nodes 2", false),
    ] {
        let [sent, placed, attached] =
            counters(["sent", "placed", "attached"], means, |options: &str| job(options, "late"));
        // Without them one leader places each segment of the first root, and two of the other's node do not.
        assert_eq!(placed > sent + sent / 8, may_attach, "{means}: {placed} placed of {sent}");
        assert_eq!(attached > 1, may_attach, "{means}: {attached} attached");
    }
}

fn they_leave_it_when_their_leader_is_not_late_any_more() {
    // On a slow machine a leader is late by some milliseconds in any case.
    let mut cases = [(5, 15), (20, 60), (80, 240)].into_iter();
    let is_left = |(threshold, late_by)| {
        let means = format!("-n 6 --nodes 2 --attach {threshold}ms --broadcast multicast");
        let job = |options: &str| expect(&run(options, &format!("late-alone {late_by}")), 0, &[]);
        let [attached, detached] = counters(["attached", "detached"], &means, job);
        attached > 0 && detached > 0
    };
    assert!(cases.any(is_left), "no rank joins and leaves");
}

fn it_is_selected_where_it_pays() {
    let sent = |options: &str, sharing: &str| {
        counted(options, |options| {
            let output = command(options, "equal").env("UNISONO_SHARING", sharing).output();
            expect(&output.expect("unisono starts"), 0, &[]);
        })
    };
    for options in ["-n 6 --nodes 3", "-n 3 --device udp", "-n 6 --nodes 3 --loss 2%"] {
        assert!(sent(&format!("{options} --link-speed 1G"), "1") > 100, "{options}: by multicast");
    }
    let nodes = "-n 6 --nodes 3 --link-speed 1G";
    assert_eq!(sent(nodes, "2"), 0, "ranks share processors");
    assert_eq!(sent("-n 6 --nodes 3", "1"), 0, "no link is known");
    assert_eq!(sent("-n 6 --nodes 2 --link-speed 1G", "1"), 0, "one leader receives");
    for other in ["--multicast off", "--broadcast knomial"] {
        assert_eq!(sent(&format!("{nodes} {other}"), "1"), 0, "{other}");
    }
}

fn schedules_return_when_the_network_stops_multicasts() {
    for options in ["-n 4 --device udp", "-n 6 --nodes 3 --progress thread"] {
        // On a slow machine the first cuts come before the group was tested.
        let mut cuts = [1000, 5000, 25_000].into_iter();
        let sent_before = |ms| sent(&format!("{options} --cut groups@{ms}"), "return", 0, &[]);
        // Two windows of segments at least, of which the last ones reached nobody.
        assert!(cuts.any(|ms| sent_before(ms) > 512), "{options}");
    }
}

fn broadcasts_overlap() {
    assert!(sent("-n 4 --device udp --loss 3%", "overlap", 0, &[]) > 10);
    sent("-n 4 --nodes 2", "overlap", 0, &[]);
}

fn a_rank_that_calls_something_else_is_named() {
    sent("-n 4 --device udp", "differ", 0, &[]);
}

fn survivors_name_the_dead_rank() {
    // Roots, leaders of nodes, and others.
    let all_means = [
        "--device udp --loss 1%",
        "--nodes 2",
        "--device udp --groups basic",
        "--nodes 3 --groups pool",
        "--device udp --multicast-acks co-root:2 --loss 1%",
        "--nodes 2 --attach 1ms",
    ];
    for seed in 0..12 {
        let means = all_means[seed % all_means.len()];
        let options = format!("-n 5 {means} --on-death tell");
        sent(&options, &format!("die {seed}"), 137, &["named"; 4]);
    }
    // A root, a leader that is late, and a rank that has joined the group since.
    for victim in [0, 3, 4] {
        let options = "-n 6 --nodes 2 --attach 1ms --on-death tell --broadcast multicast";
        let job = |options: &str| expect(&run(options, &format!("die-late {victim}")), 137, &["named"; 5]);
        let [attached] = counters(["attached"], options, job);
        assert!(attached > 0, "victim {victim}");
    }
}

fn content(root: u32, round: u32, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::from(root) << 32 | u64::from(round));
    core::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

fn broadcast(on: &Communicator, root: u32, round: u32, length: usize) {
    let expected = content(root, round, length);
    let mut data = if on.rank().0 == root { expected.clone() } else { vec![0; length] };
    on.broadcast_into(&mut data, Rank(root)).expect("a broadcast");
    assert!(data == expected, "rank {} of root {root}, round {round}, {length} bytes", on.rank());
}

/// Two roots alternate, one rank is late, on the World and on parts of it.
fn equal(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    let part = world.split_by_color(u32::from(rank == size - 1)).expect("a part").expect("a member");
    for round in 0..ROUNDS {
        if round % 8 == rank % 8 {
            thread::sleep(Duration::from_millis(3));
        }
        broadcast(world, round % 2, round, LENGTHS[round as usize % 4]);
        broadcast(&part, 0, round, 100);
    }
    broadcast(world, 1, ROUNDS, LENGTHS[4]);
    // A communicator that takes the context's number of an earlier one.
    drop(part);
    let next = world.split_by_color(rank % 2).expect("a part").expect("a member");
    for round in 0..ROUNDS {
        broadcast(&next, next.size() - 1, round, 3_000);
    }
    // The root leaves before the others have what it sent.
    thread::sleep(Duration::from_millis(if rank == 0 { 0 } else { 20 }));
    broadcast(world, 0, 0, 5_000);
}

/// Each of this number of communicators takes a group of the pool, more than there are at a time.
const COMMUNICATORS: u32 = 12;

/// Communicators of all ranks and of parts of them come and go, and use the groups that they take.
fn groups_ahead(world: &World) {
    let place = statistics().iter().position(|statistic| statistic.name == "multicast_groups_taken");
    let place = place.expect("a statistic");
    let taken = || world.raw_statistics().value(place).expect("a value");
    let began = Instant::now();
    let (mut round, mut made) = (0, 0);
    while made < COMMUNICATORS {
        let before = taken();
        let (rank, size) = (world.rank().0, world.size());
        let part = match round % 3 {
            0 => world.duplicate().expect("a duplicate"),
            1 => world.split_by_color_with_key(0, -(rank as i32)).expect("a part").expect("a member"),
            _ => world.split_by_color(rank * 2 / size).expect("a part").expect("a member"),
        };
        round += 1;
        let (own, mut all) = ([u32::from(taken() > before)], [0; 1]);
        world.all_reduce_into(&own[..], &mut all[..], SystemOperation::sum()).expect("an allreduce");
        // Where a part is alone, or on one node, it takes none.
        made += u32::from(all[0] > 0);
        for call in 0..if all[0] > 0 { 6 } else { 1 } {
            broadcast(&part, part.size() - 1, call, LENGTHS[call as usize % 4]);
            if call == 0 {
                // The members have reported by then that they take part, as a rule.
                part.barrier().expect("a barrier");
            }
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{made} of {COMMUNICATORS} after {round} rounds");
        // The root leaves before the others have what it sent.
    }
}

/// The leader of the second node is late in the first calls.
fn late_leader(world: &World, late_calls: u32, late_by: Duration, calls_between_barriers: u32) {
    const CALLS: u32 = 600;
    let rank = world.rank().0;
    for call in 0..CALLS {
        if rank == world.size() / 2 && call < late_calls {
            thread::sleep(late_by);
        }
        broadcast(world, u32::from(call % 16 == 15), call, LENGTHS[call as usize % 4]);
        if call % calls_between_barriers == calls_between_barriers - 1 {
            world.barrier().expect("a barrier");
        }
    }
}

/// The root sends by multicast until its multicasts reach nobody any more, and by schedules from then on.
fn return_to_schedules(world: &World) {
    const CALLS: u32 = 100;
    let place = statistics().iter().position(|statistic| statistic.name == "multicast_sent").expect("a statistic");
    let sent = || world.raw_statistics().value(place).expect("a value");
    let (began, mut round, mut is_over) = (Instant::now(), 0, false);
    while !is_over {
        let before = sent();
        for call in 0..CALLS {
            broadcast(world, 0, round + call, 20_000);
        }
        round += CALLS;
        let is_tested = before > 0 || began.elapsed() > Duration::from_secs(8);
        let mut flag = [u8::from(is_tested && sent() == before)];
        world.broadcast_into(&mut flag[..], Rank(0)).expect("a broadcast");
        is_over = flag == [1];
        assert!(began.elapsed() < Duration::from_secs(120), "multicasts go on");
    }
    // Another root's group was not tried, and its test fails.
    broadcast(world, 1, round, 20_000);
}

/// Immediate and persistent broadcasts of several roots are under way, and are waited for in any order.
fn overlap(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    for round in 0..12 {
        let content = |call: u32| content(call % size, call, 40 * (call as usize + 1));
        let mut all: Vec<Vec<u8>> = (0..9).map(content).collect();
        for (call, data) in (0..).zip(&mut all) {
            if call % size != rank {
                data.fill(0);
            }
        }
        world
            .scope(|scope| {
                let mut started = Vec::new();
                for (call, data) in (0..).zip(&mut all) {
                    started.push(scope.immediate_broadcast_into(data, Rank(call % size))?);
                }
                if (rank + round).is_multiple_of(2) {
                    started.reverse();
                }
                started.into_iter().try_for_each(|request| request.wait())
            })
            .expect("all of them");
        assert!((0..).zip(&all).all(|(call, data)| *data == content(call)), "round {round}");
    }
}

/// One rank broadcasts another length: an error for every rank.
fn differ(world: &World) {
    let duplicate = world.duplicate().expect("a duplicate");
    // Until the group is in use.
    for round in 0..20 {
        broadcast(&duplicate, 0, round, 64);
        thread::sleep(Duration::from_millis(1));
    }
    let mut data = [1_u8; 64];
    let length = if world.rank() == Rank(2) { 32 } else { 64 };
    let ended = duplicate.broadcast_into(&mut data[..length], Rank(0));
    let is_error = matches!(ended, Err(CollectiveError::Disagrees { .. } | CollectiveError::Missing { .. }));
    // A rank whose part was complete may have left.
    assert!(is_error || duplicate.barrier().is_err(), "{ended:?}");
    world.barrier().expect("the World goes on");
}

/// A rank, of any role, dies amid broadcasts of two roots.
fn die(world: &World, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (victim, after) = (Rank(seed as u32 / 2 % world.size()), Duration::from_micros(random.u64(200..9000)));
    let mut data = vec![7_u8; 20_000];
    die_amid(world, victim, after, |call| world.broadcast_into(&mut data, Rank(call % 2)));
}

/// A rank dies when others have joined the group of the root, since the leader of the second node is late.
fn die_late(world: &World, victim: u32) {
    let mut data = vec![7_u8; 3_000_000];
    die_amid(world, Rank(victim), Duration::from_millis(1500), |_| {
        if world.rank().0 == world.size() / 2 {
            thread::sleep(Duration::from_millis(3));
        }
        world.broadcast_into(&mut data, Rank(0))
    });
}
