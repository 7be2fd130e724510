//! Ranks of one node that name different roots: no rank reads what another one published, so that every call ends well,
//! and the next barrier or the end of the job notices it. This program is its rank program, too.

mod program;

use std::env;
use std::process::ExitCode;

use program::{expect, run};
use unisono::collective::CollectiveError;
use unisono::{Failure, Rank, World};

const MEANS: [&str; 3] = ["-n 2", "-n 3", "-n 4"];
/// Rounds of calls that agree.
const ROUNDS: u32 = 3000;

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("barrier") => barrier(world),
            Some("finish") => finish(world),
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
        ("the_end_of_the_job_notices_another_root", || {
            for means in MEANS {
                let output = run(means, "finish");
                expect(&output, 0, &["disagrees", "disagrees"]);
            }
        }),
        ("calls_that_agree_are_never_reported", || {
            for means in MEANS {
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
        // One that the other has not seen yet notices its end.
        Err(CollectiveError::Missing { sequence, .. }) => assert_eq!(sequence, calls + 1),
        Err(CollectiveError::Disagrees { rank, sequence, .. }) => {
            assert!(world.rank().0 < 2 && rank == Rank(1 - world.rank().0), "{rank}");
            assert_eq!(sequence, calls);
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
    if rank.0 < 2 {
        assert_eq!(ended, Err(Failure::Disagrees(Rank(1 - rank.0))));
        println!("disagrees");
    } else {
        ended.expect("it is no root");
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
