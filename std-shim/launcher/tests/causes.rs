//! Jobs in which one rank fails by itself and the others fail because of it: the launcher waits for that rank's own
//! error, and reports that rank and its exit code. This program is its rank program, too.

mod program;

use core::error::Error;
use core::time::Duration;
use std::env;
use std::process::{ExitCode, Output};
use std::thread;
use std::time::Instant;

use program::{expect, run};
use unisono::collective::SystemOperation;
use unisono::{Rank, Tag, World};

const MEANS: [&str; 6] = [
    "-n 3",
    "-n 3 --device udp",
    "-n 3 --device udp --progress thread --loss 5%",
    "-n 3 --nodes 3 --progress hybrid",
    "-n 4 --nodes 2",
    "-n 4 --tag-output",
];
/// The rank that fails by itself, and the code that it exits with; every other rank exits with code 1.
const CULPRIT: Rank = Rank(1);
const CODE: u8 = 7;
/// Longest time of such a job.
const BOUND: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        return play();
    }
    program::run_tests(&[
        ("the_error_of_the_rank_that_failed_first_is_shown", || everywhere("barrier")),
        ("ranks_that_fail_in_a_message_name_the_first_too", || everywhere("message")),
        ("ranks_that_panic_name_the_first_too", || everywhere("panic")),
        ("a_rank_that_takes_its_time_after_the_drop_is_waited_for", || everywhere("slow")),
        ("a_world_that_nobody_needs_may_be_dropped", || {
            for means in MEANS {
                let output = run(means, "drop");
                expect(&output, 0, &[]);
                assert_eq!(ended(&output).1, "", "{means}");
            }
        }),
        ("errors_count_the_collectives_that_the_user_has_called", || {
            for means in MEANS.into_iter().chain(["-n 2"]) {
                for part in ["count-barrier", "count-all_reduce", "count-immediate"] {
                    let ranks = run(means, part);
                    expect(&ranks, 0, &[]);
                    assert_eq!(ended(&ranks).1, "", "{means}");
                }
            }
        }),
        ("a_rank_that_exits_with_code_zero_fails_if_others_need_it", || {
            for means in MEANS {
                let (code, errors) = ended(&run(means, "desert"));
                let first = reported(&errors);
                assert!(code == Some(1) && first.len() == 1, "{means}: {code:?} {errors}");
                assert!(first[0].contains("dropped its World without finishing the job"), "{means}: {errors}");
                assert!(first[0].starts_with("unisono: rank 1 (pid "), "{means}: {errors}");
            }
        }),
    ])
}

fn ended(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The launcher's own messages.
fn reported(errors: &str) -> Vec<&str> {
    errors.lines().filter(|line| line.starts_with("unisono: ")).collect()
}

fn everywhere(part: &str) {
    for means in MEANS {
        for _ in 0..3 {
            let started = Instant::now();
            let (code, errors) = ended(&run(means, part));
            let own = errors.lines().any(|line| line.ends_with("Error: the input of rank 1 is empty"));
            assert!(own, "{means}: {errors}");
            let first = reported(&errors);
            assert!(first.len() == 1, "{means}: {errors}");
            assert!(first[0].starts_with("unisono: rank 1 (pid "), "{means}: {errors}");
            assert!(first[0].ends_with("exited with code 7"), "{means}: {errors}");
            assert_eq!(code, Some(i32::from(CODE)), "{means}: {errors}");
            assert!(started.elapsed() < BOUND, "{means}: {:?}", started.elapsed());
        }
    }
}

/// As a program whose `main` returns a result does: the World is dropped before the error is printed.
fn play() -> ExitCode {
    let part = env::args().nth(1).expect("a part");
    let world = World::join().expect("a world");
    let rank = world.rank();
    match works(world, &part) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(last) = part.strip_prefix("count-") {
                let name = if last == "immediate" { "all_gather" } else { last };
                // Rank 1, or one that failed because of it.
                let error = error.to_string();
                assert!(error.ends_with(&format!(" is gone and missing from {name} 8")), "{error}");
                return ExitCode::SUCCESS;
            }
            if part == "slow" && rank == CULPRIT {
                thread::sleep(Duration::from_millis(600));
            }
            eprintln!("Error: {error}");
            ExitCode::from(if rank == CULPRIT { CODE } else { 1 })
        }
    }
}

fn works(world: World, part: &str) -> Result<(), Box<dyn Error>> {
    world.barrier()?;
    if let Some(last) = part.strip_prefix("count-") {
        return calls(world, last);
    }
    match part {
        "drop" => return Ok(()),
        "desert" if world.rank() == CULPRIT => return Ok(()),
        _ if world.rank() == CULPRIT => return Err("the input of rank 1 is empty".into()),
        "message" => {
            world.receive_into(&mut [0_u8], CULPRIT, Tag(1))?;
        }
        "panic" => world.barrier().expect("all are here"),
        _ => world.all_reduce_in_place(&mut [1_u64; 5], SystemOperation::sum())?,
    }
    world.finish()?;
    Ok(())
}

/// Seven collectives of every kind, and an eighth that the culprit is missing from; those that make a communicator do
/// not count.
fn calls(world: World, last: &str) -> Result<(), Box<dyn Error>> {
    let (own, mut all, mut word) = ([1_u64], vec![0_u64; world.size() as usize], [0_u64; 600]);
    world.broadcast_into(&mut word, Rank(0))?;
    let team = world.duplicate()?;
    team.barrier()?;
    world.all_gather_into(&own, &mut all)?;
    world.scope(|scope| scope.immediate_all_gather_into(&own, &mut all)?.wait())?;
    world.scope(|scope| {
        let mut kept = scope.persistent_barrier()?;
        kept.start()?;
        kept.wait()
    })?;
    world.split_by_color(0)?;
    world.barrier()?;
    world.all_reduce_in_place(&mut word, SystemOperation::sum())?;
    if world.rank() == CULPRIT {
        return Ok(());
    }
    match last {
        "barrier" => world.barrier()?,
        "immediate" => world.scope(|scope| scope.immediate_all_gather_into(&own, &mut all)?.wait())?,
        _ => world.all_reduce_in_place(&mut word, SystemOperation::sum())?,
    }
    world.finish()?;
    Ok(())
}
