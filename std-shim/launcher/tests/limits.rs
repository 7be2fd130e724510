//! Ranks to which the system gives no thread: calls fail with a typed error, or need none. This program is its rank
//! program, too.

mod program;

use std::env;
use std::process::ExitCode;

use program::{expect, run};
use unisono::{Rank, Tag, World, WorldError};

const MEANS: [&str; 4] = ["-n 2", "-n 2 --device udp", "-n 2 --nodes 2", "-n 4 --nodes 2"];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let part = env::args().nth(1);
        match part.as_deref() {
            Some("finish") => finish_without_threads(),
            Some("join") => join_without_threads(),
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
