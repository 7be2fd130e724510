//! Jobs on a host whose loopback interface is down. This program is its rank program, too. It runs them in a network
//! namespace of its own, which the system may refuse: then it says so.

mod program;

use core::time::Duration;
use std::env;
use std::net::TcpListener;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;

use program::{expect, run};
use unisono::collective::SystemOperation;
use unisono::{Rank, World};

/// Longest time until a job starts or is refused.
const BOUND: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        return play();
    }
    let unshared = Command::new("unshare").args(["-rn", "true"]).stderr(Stdio::null()).status();
    if !unshared.is_ok_and(|status| status.success()) {
        println!("skipped: the system refuses a network namespace (unshare -rn)");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("a_job_of_one_node_needs_no_interface", || {
            for means in ["-n 3", "-n 3 --device shm", "-n 1", "-n 1 --device udp"] {
                expect(&run(means, ""), 0, &["sum"]);
                expect(&run_without_loopback(means), 0, &["sum"]);
            }
        }),
        ("ranks_that_need_the_interface_are_refused_at_once", || {
            for means in ["-n 2 --device udp", "-n 2 --nodes 2", "-n 2 --loss 5%"] {
                let output = run_without_loopback(means);
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(errors.contains("this host's loopback interface is down"), "{means}: {errors}");
                assert!(errors.contains("ip link set lo up"), "{means}: {errors}");
                expect(&output, 1, &[]);
            }
        }),
        ("a_rendezvous_over_the_interface_fails_at_once", || {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
            let mut command = without_loopback();
            command.arg(env::current_exe().expect("this program")).env("UNISONO_RANK", "0").env("UNISONO_SIZE", "2");
            command.env("UNISONO_BOOTSTRAP", free.to_string()).env("UNISONO_SECRET", "the secret of this job");
            let output = timed(command);
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(errors.contains("this host's loopback interface is down: enable it"), "{errors}");
            expect(&output, 1, &[]);
        }),
    ])
}

/// A command in a network namespace in which only the loopback interface exists, and is down.
fn without_loopback() -> Command {
    let mut command = Command::new("unshare");
    command.arg("-rn").stdin(Stdio::null());
    command
}

fn run_without_loopback(options: &str) -> Output {
    let mut command = without_loopback();
    command.arg(env!("CARGO_BIN_EXE_unisono")).arg("run").args(options.split_whitespace()).arg("--");
    command.arg(env::current_exe().expect("this program"));
    timed(command)
}

fn timed(mut command: Command) -> Output {
    let started = Instant::now();
    let output = command.output().expect("unshare starts");
    assert!(started.elapsed() < BOUND, "{command:?}: {:?}", started.elapsed());
    output
}

fn play() -> ExitCode {
    let world = match World::join() {
        Ok(world) => world,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut sum = [world.rank().0];
    world.all_reduce_in_place(&mut sum, SystemOperation::sum()).expect("a sum");
    assert_eq!(sum, [world.size() * (world.size() - 1) / 2]);
    if world.rank() == Rank(0) {
        println!("sum");
    }
    world.finish().expect("a good end");
    ExitCode::SUCCESS
}
