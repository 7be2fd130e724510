//! Ranks to which the system gives no thread or no memory: calls fail with a typed error, or need none. This program is
//! its rank program, too.

mod program;

use std::env;
use std::process::ExitCode;

use program::{expect, run};
use unisono::collective::CollectiveError;
use unisono::{Failure, Rank, Tag, World, WorldError};

const MEANS: [&str; 4] = ["-n 2", "-n 2 --device udp", "-n 2 --nodes 2", "-n 4 --nodes 2"];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let part = env::args().nth(1);
        match part.as_deref() {
            Some("finish") => finish_without_threads(),
            Some("join") => join_without_threads(),
            Some("gather") => gather_without_memory(),
            Some("itself") => send_to_itself_without_memory(),
            part => panic!("{part:?} is no part"),
        }
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("a_job_finishes_where_no_thread_starts", || {
            for means in MEANS {
                expect(&run(means, "finish"), 0, &[]);
            }
        }),
        ("a_progress_thread_that_does_not_start_is_an_error", || {
            for mode in ["thread", "hybrid"] {
                expect(&run(&format!("-n 2 --on-death silent --progress {mode}"), "join"), 3, &["refused"; 2]);
            }
        }),
        ("a_collective_for_which_a_rank_has_no_memory_is_an_error", || {
            for means in ["-n 4 --device udp", "-n 4 --nodes 2", "-n 5 --nodes 2"] {
                expect(&run(&format!("{means} --allgather bruck"), "gather"), 0, &[]);
            }
        }),
        ("a_message_to_itself_for_which_a_rank_has_no_memory_is_an_error", || {
            for means in MEANS {
                expect(&run(means, "itself"), 0, &[]);
            }
        }),
    ])
}

/// No thread of this process starts from now on: its stack would exceed the address space.
fn refuse_threads() {
    // SAFETY: this process has one thread.
    unsafe { env::set_var("RUST_MIN_STACK", (1_usize << 47).to_string()) };
    assert!(std::thread::Builder::new().spawn(|| ()).is_err());
}

fn finish_without_threads() {
    refuse_threads();
    let world = World::join().expect("a world");
    let (next, last) = ((world.rank().0 + 1) % world.size(), (world.rank().0 + world.size() - 1) % world.size());
    let mut received = [0_u32];
    world.send(&[world.rank().0], Rank(next), Tag(0)).expect("sent");
    world.receive_into(&mut received, Rank(last), Tag(0)).expect("received");
    assert_eq!(received, [last]);
    world.finish().expect("a good end");
}

fn join_without_threads() {
    refuse_threads();
    match World::join() {
        Err(error @ WorldError::Thread(_)) => {
            assert!(error.to_string().contains("use the progress mode engine"), "{error}");
            println!("refused");
            std::process::exit(3);
        }
        other => panic!("{:?}", other.map(|_| "joined")),
    }
}

/// The system gives this process only this much more memory from now on.
fn limit_memory(bytes: u64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
    let used: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    let limit = Some(used * 1024 + bytes);
    let limit = rustix::process::Rlimit { current: limit, maximum: limit };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).expect("a lower limit");
}

/// Blocks of 8 MiB, which these algorithms stage in memory of their own.
fn gather_without_memory() {
    const COUNT: usize = 1 << 20;
    let world = World::join().expect("a world");
    let (data, mut all) = (vec![1_u64; COUNT], vec![0_u64; COUNT * world.size() as usize]);
    world.barrier().expect("all are here");
    if world.rank() == Rank(1) {
        limit_memory(1 << 20);
    }
    let ended = world.all_gather_into(&data, &mut all);
    if world.rank() == Rank(1) {
        assert_eq!(ended, Err(CollectiveError::TooLong));
    } else {
        // The other ranks may have everything already.
        let next = ended.and_then(|()| world.barrier());
        assert!(matches!(next, Err(CollectiveError::Missing { rank: Rank(1), .. })), "{next:?}");
    }
    world.finish().expect("a good end");
}

fn send_to_itself_without_memory() {
    let world = World::join().expect("a world");
    let (data, mut into) = (vec![1_u8; 32 << 20], vec![0_u8; 32 << 20]);
    limit_memory(8 << 20);
    assert_eq!(world.send(&data, world.rank(), Tag(0)), Err(Failure::ResourceExhausted));
    let shorter = &data[..1 << 20];
    world.send(shorter, world.rank(), Tag(0)).expect("there is memory for this one");
    assert_eq!(world.receive_into(&mut into, world.rank(), Tag(0)).map(|status| status.bytes), Ok(1 << 20));
    world.finish().expect("a good end");
}
