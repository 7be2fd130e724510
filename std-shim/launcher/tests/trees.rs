//! Barriers and allreduces on the trees of communicators, between the processes of a job. This program is their rank
//! program, too.

#[path = "program/death.rs"]
mod death;
mod program;

use core::time::Duration;
use std::env;
use std::process::ExitCode;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use death::die_amid;
use program::{expect, run};
use unisono::collective::{CollectiveError, SystemOperation, UserOperation};
use unisono::{Rank, World};

/// Calls of each kind with one late rank or two.
const ROUNDS: u32 = 24;

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("late") => late_ranks_release(&world),
            Some("overlap") => calls_overlap(&world),
            Some("drop") => communicators_end(&world),
            Some("differ") => differ(&world),
            Some("die") => die(&world, env::args().nth(2).and_then(|seed| seed.parse().ok()).expect("a seed")),
            _ => panic!("a part"),
        }
        world.finish().expect("a good end");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("nobody_leaves_before_all_have_entered", nobody_leaves_before_all_have_entered),
        ("leaders_of_nodes_use_trees", leaders_of_nodes_use_trees),
        ("releases_go_by_multicast_once_it_reaches_all", releases_go_by_multicast_once_it_reaches_all),
        ("a_group_that_cannot_be_used_changes_no_result", a_group_that_cannot_be_used_changes_no_result),
        ("calls_on_one_tree_overlap", calls_on_one_tree_overlap),
        ("a_rank_that_calls_something_else_is_named", a_rank_that_calls_something_else_is_named),
        ("survivors_name_the_dead_rank", survivors_name_the_dead_rank),
    ])
}

fn on(tree: &str) -> String {
    format!("--barrier {tree} --allreduce {tree}")
}

fn nobody_leaves_before_all_have_entered() {
    for (means, tree) in [
        ("-n 2 --device udp", "token-tree"),
        ("-n 7 --device udp --loss 3% --reorder 3%", "token-tree:degree=2,units=1"),
        ("-n 9 --nodes 3", "token-tree:degree=2,units=4"),
        ("-n 6 --nodes 2 --progress hybrid", "token-tree:degree=1"),
        ("-n 5 --device udp", "combining-tree:degree=2"),
    ] {
        expect(&run(&format!("{means} {}", on(tree)), "late"), 0, &[]);
    }
}

/// Within nodes in shared memory or by messages; the parts of single ranks, too.
fn leaders_of_nodes_use_trees() {
    let tree = on("token-tree:degree=2,units=2");
    for (means, slots) in [
        ("-n 9 --nodes 3 --hierarchy host:slots", 1),
        ("-n 7 --nodes 4 --hierarchy host:messages --loss 3% --reorder 3%", 0),
        ("-n 8 --nodes 2 --caches 2 --hierarchy cache:slots,host:slots,net --progress hybrid", 2),
    ] {
        expect(&run(&format!("{means} {tree}"), &format!("late {slots}")), 0, &[]);
    }
    expect(&run("-n 6 --nodes 3 --hierarchy host:slots,net:token-tree", "late 1"), 0, &[]);
    for means in
        ["-n 6 --nodes 3 --hierarchy host:slots --loss 3%", "-n 6 --nodes 3 --hierarchy host --progress thread"]
    {
        expect(&run(&format!("{means} {tree}"), "overlap"), 0, &[]);
    }
    expect(&run(&format!("-n 8 --nodes 2 --hierarchy host:slots {tree}"), "drop"), 0, &[]);
}

/// What all ranks did to release: multicasts, those that arrived, and asks.
fn releases(options: &str, part: &str, code: i32, lines: &[&str]) -> [u64; 3] {
    let file = tempfile::NamedTempFile::new().expect("a file");
    expect(&run(&format!("{options} --stats-file {}", file.path().display()), part), code, lines);
    let text = std::fs::read_to_string(file.path()).expect("the statistics");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
    lines.fold([0; 3], |sums, line| {
        let of = |name: &str| line["releases"][name].as_u64().expect("a number");
        let [multicasts, received, asks] = sums;
        [multicasts + of("multicasts"), received + of("received"), asks + of("asks")]
    })
}

fn releases_go_by_multicast_once_it_reaches_all() {
    let tree = on("token-tree:degree=2,units=2,release=multicast");
    // Each of the 97 calls on the World is released once at least.
    let calls = u64::from(4 * ROUNDS);
    for means in ["-n 4 --device udp", "-n 6 --nodes 2"] {
        let [multicasts, received, _] = releases(&format!("{means} {tree}"), "late", 0, &[]);
        assert!(multicasts >= calls && received > multicasts, "{means}: {multicasts} {received}");
    }
    let [multicasts, received, asks] =
        releases(&format!("-n 5 --device udp --loss 5% --dup 3% {tree}"), "late", 0, &[]);
    assert!(multicasts >= calls && received > multicasts && asks > 0, "{multicasts} {received} {asks}");
    for (means, part) in [("-n 5 --device udp --loss 3%", "overlap"), ("-n 4 --device udp", "drop")] {
        assert!(releases(&format!("{means} {tree}"), part, 0, &[])[0] > 0, "{means} {part}");
    }
}

fn a_group_that_cannot_be_used_changes_no_result() {
    let tree = on("token-tree:degree=2,release=multicast");
    // No member can join, or the ranks share memory.
    for means in ["-n 4 --device udp --multicast off", "-n 5 --nodes 2 --multicast ff15::7", "-n 3"] {
        let [multicasts, received, _] = releases(&format!("{means} {tree}"), "late", 0, &[]);
        assert_eq!([multicasts, received], [0; 2], "{means}");
    }
}

fn calls_on_one_tree_overlap() {
    for means in ["-n 5 --device udp --loss 3%", "-n 6 --nodes 2 --progress thread", "-n 3"] {
        expect(&run(&format!("{means} {}", on("token-tree:degree=2")), "overlap"), 0, &[]);
    }
}

fn a_rank_that_calls_something_else_is_named() {
    for (means, tree) in [
        ("-n 4 --device udp", "token-tree:degree=2"),
        ("-n 4 --nodes 2", "token-tree:degree=2"),
        ("-n 4 --nodes 2 --hierarchy host:slots", "token-tree:degree=2"),
        ("-n 6 --nodes 3 --hierarchy host", "token-tree:degree=2"),
        ("-n 4 --device udp", "token-tree:degree=2,release=multicast"),
    ] {
        expect(&run(&format!("{means} {}", on(tree)), "differ"), 0, &[]);
    }
}

fn survivors_name_the_dead_rank() {
    for seed in 0..12 {
        let means = ["--device udp", "--nodes 2"];
        let of_leaders = ["--nodes 3 --hierarchy host:slots", "--nodes 3 --hierarchy host:messages"];
        let means = if seed < 6 { means[seed % 2] } else { of_leaders[seed % 2] };
        let release = if seed < 6 { ["tree", "multicast"][seed / 2 % 2] } else { "tree" };
        let options = format!("-n 7 {means} --on-death tell {}", on(&format!("token-tree:degree=2,release={release}")));
        expect(&run(&options, &format!("die {seed}")), 137, &["named"; 6]);
    }
}

/// Nanoseconds of the clock that all processes of the host share.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// Keeps the first rank of the left and the last of the right operand, which must be adjacent.
fn adjacent(left: &[u32; 2], right: &[u32; 2]) -> [u32; 2] {
    assert_eq!(left[1] + 1, right[0], "the operands are not adjacent");
    [left[0], right[1]]
}

fn late_ranks_release(world: &World) {
    let (rank, size, sum) = (world.rank().0, world.size(), SystemOperation::sum());
    let evens = world.split_by_color(rank % 2).expect("a part").expect("a member");
    // Of the leaders' tree: the most levels of a rank in shared memory.
    if let Some(slots) = env::args().nth(2) {
        world.barrier().expect("a barrier");
        let record = world.last_collective().expect("a barrier");
        assert!(record.levels > 1 && record.algorithm == "token-tree", "{record}");
        let mut most = [record.slot_levels];
        world.all_reduce_in_place(&mut most, SystemOperation::max()).expect("the most");
        assert_eq!(most.map(|most| most.to_string()), [slots]);
    }
    for round in 0..ROUNDS {
        let is_late = [round, round / 2].iter().any(|late| late % size == rank);
        let sleep = || thread::sleep(Duration::from_micros(if is_late { 700 } else { 0 }));
        sleep();
        let entered = now();
        world.barrier().expect("a barrier");
        let mut times = vec![[0; 2]; size as usize];
        world.all_gather_into(&[[entered, now()]], &mut times).expect("all times");
        let [last_in, first_out] = [times.iter().map(|t| t[0]).max(), times.iter().map(|t| t[1]).min()];
        assert!(last_in <= first_out, "round {round}: {times:?}");

        // Operands in rank order, however the claims are divided.
        sleep();
        let mut spans = [[0; 2]; 3];
        world.all_reduce_into(&[[rank; 2]; 3], &mut spans, UserOperation::associative(adjacent)).expect("a span");
        assert_eq!(spans, [[0, size - 1]; 3]);

        // Every rank has the same bits, up to the longest vector and in place.
        sleep();
        let mut sums: Vec<f64> = (0..30).map(|at| 0.1 * f64::from(rank + at)).collect();
        world.all_reduce_in_place(&mut sums, sum).expect("sums");
        let bits: Vec<u64> = sums.iter().map(|sum| sum.to_bits()).collect();
        let mut all = vec![0; 30 * size as usize];
        world.all_gather_into(&bits, &mut all).expect("all sums");
        assert!(all.chunks(30).all(|other| other == bits), "round {round}");
        let exact = |at: u32| (0..size).map(|rank| 0.1 * f64::from(rank + at)).sum::<f64>();
        assert!((0..30).zip(&sums).all(|(at, sum)| (sum - exact(at)).abs() < 1e-9));

        let mut count = [1_u8];
        evens.all_reduce_in_place(&mut count, sum).expect("a count");
        assert_eq!(u32::from(count[0]), evens.size());
    }
}

/// More calls are under way than the tree has open, on two communicators, and they are waited for in any order.
fn calls_overlap(world: &World) {
    let (rank, size, sum) = (world.rank().0, world.size(), SystemOperation::sum());
    let duplicate = world.duplicate().expect("a duplicate");
    for round in 0..8_u32 {
        let given: Vec<[u32; 2]> = (0..11).map(|call| [rank + call, round]).collect();
        let [mut ours, mut theirs] = [(); 2].map(|()| vec![[0; 2]; given.len()]);
        let pause =
            |call: usize| thread::sleep(Duration::from_micros(if call as u32 % 4 == rank % 4 { 300 } else { 0 }));
        world
            .scope(|scope| {
                let mut started = Vec::new();
                for (call, (given, result)) in given.iter().zip(&mut ours).enumerate() {
                    started.push(scope.immediate_all_reduce_into(given, result, sum)?);
                    pause(call);
                }
                duplicate.scope(|scope| {
                    let mut started = Vec::new();
                    for (call, (given, result)) in given.iter().zip(&mut theirs).enumerate() {
                        started.push(scope.immediate_all_reduce_into(given, result, sum)?);
                        pause(call + 1);
                    }
                    scope.immediate_barrier()?.wait()?;
                    started.into_iter().try_for_each(|request| request.wait())
                })?;
                if (rank + round).is_multiple_of(2) {
                    started.reverse();
                }
                started.into_iter().try_for_each(|request| request.wait())
            })
            .expect("all of them");
        let all = |call: u32| [(0..size).map(|rank| rank + call).sum::<u32>(), round * size];
        for results in [&ours, &theirs] {
            assert!((0..).zip(results).all(|(call, result)| *result == all(call)), "{results:?}");
        }
    }
}

/// Communicators of changing members end right after a call that a multicast releases, and others get their contexts.
fn communicators_end(world: &World) {
    let (rank, sum) = (world.rank().0, SystemOperation::sum());
    for round in 0..40 {
        let part = world.split_by_color((rank + round) % 4 / 3).expect("a part").expect("a member");
        if part.size() < 2 {
            continue;
        }
        let mut count = [1_u32];
        part.all_reduce_in_place(&mut count, sum).expect("a count");
        assert_eq!(count, [part.size()], "round {round}");
    }
}

/// One rank reduces another length: an error for every rank.
fn differ(world: &World) {
    let (odd, sum) = (world.rank() == Rank(2), SystemOperation::sum());
    let duplicate = world.duplicate().expect("a duplicate");
    world.barrier().expect("a barrier");
    let mut given = [1_u32; 2];
    let ended = duplicate.all_reduce_in_place(&mut given[..if odd { 1 } else { 2 }], sum);
    let is_error = matches!(ended, Err(CollectiveError::Disagrees { .. } | CollectiveError::Missing { .. }));
    // A rank whose part was complete may have left.
    assert!(is_error || duplicate.barrier().is_err(), "{ended:?}");
    world.barrier().expect("the World goes on");
}

/// A rank dies amid barriers and short allreduces.
fn die(world: &World, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (victim, after) = (Rank(random.u32(..world.size())), Duration::from_micros(random.u64(200..5000)));
    die_amid(world, victim, after, |call| match call % 3 {
        0 => world.barrier(),
        _ => world.all_reduce_in_place(&mut [call; 2], SystemOperation::max()),
    });
}
