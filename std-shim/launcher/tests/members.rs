//! Processes that join through the launcher and the rendezvous server. This program is their rank program, too.

mod member;
mod program;

use program::{expect, run};
use std::{
    env,
    net::TcpListener,
    process::{Command, ExitCode, Stdio},
};

fn main() -> ExitCode {
    if let Some(code) = member::play() {
        return code;
    }
    program::run_tests(&[
        ("all_ranks_exchange_values", all_ranks_exchange_values),
        ("a_failure_is_reported", a_failure_is_reported),
        ("a_failure_is_kept_silent", a_failure_is_kept_silent),
        ("a_deserter_ends_the_job", a_deserter_ends_the_job),
        ("an_abort_ends_the_job_with_its_code", an_abort_ends_the_job_with_its_code),
        ("a_new_incarnation_joins", a_new_incarnation_joins),
        ("another_launcher_replaces_ours", another_launcher_replaces_ours),
        ("another_launcher_may_name_a_local_socket", another_launcher_may_name_a_local_socket),
    ])
}

fn all_ranks_exchange_values() {
    let line = "0@127.0.0.1 0@127.0.0.1 1@127.0.0.1 1@127.0.0.1";
    expect(&run("-n 4 --nodes 2", "exchange"), 0, &[line; 4]);
}

fn a_failure_is_reported() {
    expect(&run("-n 3 --on-death tell", "reported"), 137, &["survived", "survived"]);
}

fn a_failure_is_kept_silent() {
    expect(&run("-n 3 --on-death silent", "silent"), 137, &["survived", "survived"]);
}

fn a_deserter_ends_the_job() {
    let output = run("-n 3", "desert");
    expect(&output, 1, &[]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("host localhost) exited with code 0 without finishing the job"), "{errors}");
    assert!(errors.starts_with("unisono: rank 1 (pid "), "{errors}");
}

fn an_abort_ends_the_job_with_its_code() {
    let output = run("-n 3 --on-death silent", "abort");
    expect(&output, 5, &[]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("rank 1 aborted the job with exit code 5"), "{errors}");
}

fn a_new_incarnation_joins() {
    expect(&run("-n 2 --on-death tell", "restart"), 9, &["died joined"]);
}

/// As under srun: rank, size, address and secret come from the environment, and rank 0 runs the rendezvous server.
fn another_launcher_replaces_ours() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    launched_at(&free.to_string());
}

fn another_launcher_may_name_a_local_socket() {
    launched_at(&format!("@test-{}", std::process::id()));
}

fn launched_at(place: &str) {
    let ranks: Vec<_> = (0..3)
        .map(|rank| {
            let mut command = Command::new(env::current_exe().expect("this program"));
            command.arg("exchange").stdout(Stdio::piped());
            command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_SIZE", "3");
            command.env("UNISONO_BOOTSTRAP", place).env("UNISONO_SECRET", "the secret of this job");
            command.spawn().expect("starts")
        })
        .collect();
    for rank in ranks {
        expect(&rank.wait_with_output().expect("ends"), 0, &["0@127.0.0.1 0@127.0.0.1 0@127.0.0.1"]);
    }
}
