//! Processes of this host that join through the launcher. This program is their rank program, too.

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
        ("everybody_meets_everybody", everybody_meets_everybody),
        ("a_death_is_told", a_death_is_told),
        ("a_death_is_kept_silent", a_death_is_kept_silent),
        ("a_deserter_ends_the_job", a_deserter_ends_the_job),
        ("an_abort_ends_the_job_with_its_code", an_abort_ends_the_job_with_its_code),
        ("a_new_life_is_met", a_new_life_is_met),
        ("a_foreign_starter_needs_no_launcher", a_foreign_starter_needs_no_launcher),
    ])
}

fn everybody_meets_everybody() {
    let line = "0@127.0.0.1 0@127.0.0.1 1@127.0.0.1 1@127.0.0.1";
    expect(&run("-n 4 --nodes 2", "meet"), 0, &[line; 4]);
}

fn a_death_is_told() {
    expect(&run("-n 3 --on-death tell", "told"), 137, &["survived", "survived"]);
}

fn a_death_is_kept_silent() {
    expect(&run("-n 3 --on-death silent", "silent"), 137, &["survived", "survived"]);
}

fn a_deserter_ends_the_job() {
    let output = run("-n 3", "desert");
    expect(&output, 1, &[]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("rank 1 (host localhost) exited with code 0 without leaving the job"), "{told}");
}

fn an_abort_ends_the_job_with_its_code() {
    let output = run("-n 3 --on-death silent", "abort");
    expect(&output, 5, &[]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("rank 1 ends the job with code 5"), "{told}");
}

fn a_new_life_is_met() {
    expect(&run("-n 2 --on-death tell", "restart"), 9, &["died met"]);
}

/// As under srun: rank, size, address and key come from elsewhere, and rank 0 serves.
fn a_foreign_starter_needs_no_launcher() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let ranks: Vec<_> = (0..3)
        .map(|rank| {
            let mut command = Command::new(env::current_exe().expect("this program"));
            command.arg("meet").stdout(Stdio::piped());
            command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_SIZE", "3");
            command.env("UNISONO_BOOTSTRAP", free.to_string()).env("UNISONO_SECRET", "the secret of this job");
            command.spawn().expect("starts")
        })
        .collect();
    for rank in ranks {
        expect(&rank.wait_with_output().expect("ends"), 0, &["0@127.0.0.1 0@127.0.0.1 0@127.0.0.1"]);
    }
}
