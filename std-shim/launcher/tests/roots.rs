//! Ranks of one node that name different roots: no rank reads what another one published, so that every call ends well,
//! and the next barrier or the end of the job notices it. This program is its rank program, too.

mod program;

use std::env;
use std::process::ExitCode;

use program::{expect, run};
use unisono::collective::CollectiveError;
use unisono::{Failure, Rank, World};

/// Jobs of one node.
const MEANS: [&str; 3] = ["-n 2", "-n 3", "-n 4"];
/// Jobs over messages.
const REMOTE: [&str; 3] = ["-n 2 --device udp", "-n 3 --nodes 3", "-n 4 --nodes 2"];
/// Properties in which calls differ, and what the error names.
const DIFFERENCES: [(&str, &str); 3] =
    [("root", "broadcast 2 has root "), ("count", "20 bytes"), ("type", "broadcast 2 has type or operation ")];
/// Rounds of calls that agree.
const ROUNDS: u32 = 3000;

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("barrier") => barrier(world),
            Some("finish") => finish(world),
            Some("notice") => notice(&world),
            Some("agree") => agree(world),
            part => panic!("{part:?} is no part"),
        }
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("a_barrier_notices_another_root", || {
            for means in MEANS {
                for calls in ["broadcast", "scatter", "again"] {
                    let output = run(means, &format!("barrier {calls}"));
                    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
                    assert_eq!(output.status.code(), Some(0), "{means} {calls}: {output:?}");
                    assert!(printed.contains("disagrees"), "{means} {calls}: {printed}");
                }
            }
        }),
        ("the_next_synchronising_call_names_both_values", || {
            for (number, sync) in ["barrier", "all_reduce", "all_gather", "all_to_all"].into_iter().enumerate() {
                for (differs, text) in DIFFERENCES {
                    // A few of all combinations.
                    let means = REMOTE[number % REMOTE.len()];
                    for means in [means, "-n 3"] {
                        let output = run(means, &format!("notice {differs} {sync}"));
                        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
                        assert_eq!(output.status.code(), Some(0), "{means} {differs} {sync}: {output:?}");
                        assert!(printed.contains(text), "{means} {differs} {sync}: {printed}");
                    }
                }
            }
        }),
        ("the_end_of_the_job_notices_another_root", || {
            for means in MEANS.into_iter().chain(["-n 2 --device udp", "-n 2 --nodes 2"]) {
                let output = run(means, "finish");
                let ranks = means.split(' ').nth(1).and_then(|ranks| ranks.parse().ok()).expect("a number");
                expect(&output, 0, &vec!["disagrees"; ranks]);
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(errors.contains("broadcast 1 has root 1 here and root 0 at rank 0"), "{means}: {errors}");
            }
        }),
        ("calls_that_agree_are_never_reported", || {
            for means in MEANS.into_iter().chain(REMOTE) {
                expect(&run(means, "agree"), 0, &[]);
            }
        }),
    ])
}

/// The first two ranks each believe themselves the root.
fn root(world: &World) -> Rank {
    Rank(world.rank().0 % 2)
}

fn barrier(world: World) {
    let (calls, root) = (env::args().nth(2).expect("calls"), root(&world));
    let mut data = [world.rank().0; 4];
    let whole = vec![world.rank().0; 4 * world.size() as usize];
    match calls.as_str() {
        "scatter" => world.scatter_into(&whole, &mut data, root).expect("it notices nothing"),
        calls => (0..if calls == "again" { 20 } else { 1 }).for_each(|_| {
            world.broadcast_into(&mut data, root).expect("it notices nothing");
        }),
    }
    let calls = if calls == "again" { 20 } else { 1 };
    match world.barrier() {
        // A rank that agrees with the one that noticed it learns that this one takes no more part.
        Err(CollectiveError::Missing { sequence, .. }) => assert_eq!(sequence, calls + 1),
        Err(CollectiveError::Disagrees { rank, sequence, calls: of_both, .. }) => {
            assert_eq!(rank.0 % 2, 1 - world.rank().0 % 2, "{rank}");
            assert!([calls, calls + 1].contains(&sequence), "{sequence}");
            let (number, own, other) = of_both.expect("the other rank answers");
            assert_eq!((number, own.root(), other.root()), (1, Some(root), Some(Rank(1 - root.0))));
            println!("disagrees");
        }
        other => panic!("{other:?}"),
    }
    world.finish().expect("a good end");
}

fn finish(world: World) {
    let (rank, mut data) = (world.rank(), [world.rank().0; 4]);
    world.broadcast_into(&mut data, root(&world)).expect("it notices nothing");
    assert_eq!(data, [rank.0 % 2; 4]);
    let ended = world.finish();
    assert_eq!(ended, Err(Failure::Disagrees(Rank(1 - rank.0 % 2))));
    println!("disagrees");
}

/// Ranks of a part of the job differ in one property, which a synchronising call notices, if not the call itself.
fn notice(world: &World) {
    let words: Vec<String> = env::args().skip(2).collect();
    let all = world.duplicate().expect("a communicator");
    let (own, size) = (all.rank().0, all.size() as usize);
    all.barrier().expect("all are there");
    let ended = match words[0].as_str() {
        "root" => all.broadcast_into(&mut [own; 4], root(world)),
        "count" => all.broadcast_into(&mut vec![own; 4 + own as usize % 2], Rank(0)),
        "type" if own == 1 => all.broadcast_into(&mut [0_f32; 4], Rank(0)),
        _ => all.broadcast_into(&mut [own; 4], Rank(0)),
    };
    let ended = ended.and_then(|()| match words[1].as_str() {
        "barrier" => all.barrier(),
        "all_reduce" => all.all_reduce_into(&[1_u32], &mut [0], unisono::collective::SystemOperation::sum()),
        "all_gather" => all.all_gather_into(&[1_u32], &mut vec![0; size]),
        _ => all.all_to_all_into(&vec![1_u32; size], &mut vec![0; size]),
    });
    match ended {
        Err(error @ CollectiveError::Disagrees { .. }) => println!("{error}"),
        Err(CollectiveError::Missing { .. }) => println!("missing"),
        other => panic!("{other:?}"),
    }
}

/// Roots that change, several collectives between two barriers, and blocks that use chunks and buffers.
fn agree(world: World) {
    let (size, own) = (world.size(), world.rank());
    let longest = 40_000;
    for round in 0..ROUNDS {
        let root = Rank(round % size);
        let length = if round.is_multiple_of(50) { longest } else { 1 + round as usize % 300 };
        let mut data = vec![if own == root { round } else { 0 }; length];
        world.broadcast_into(&mut data, root).expect("all agree");
        assert!(data.iter().all(|word| *word == round));
        if round.is_multiple_of(3) {
            let (whole, mut part) = (vec![round; length * size as usize], vec![0; length]);
            world.scatter_into(&whole, &mut part, root).expect("all agree");
            assert!(part.iter().all(|word| *word == round));
        }
        if round.is_multiple_of(7) {
            let mut sum = vec![0; if own == root { length } else { 0 }];
            world.reduce_into(&data, &mut sum, unisono::collective::SystemOperation::sum(), root).expect("all agree");
        }
        if round.is_multiple_of(2) {
            world.barrier().expect("all agree");
        }
    }
    world.finish().expect("all agree");
}
