//! The examples: each runs on one rank and on four, and checks its own answer.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The folder of the examples, built first: a test run by name does not build them.
fn examples() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let own = env::current_exe().expect("this program");
        let profile = own.ancestors().nth(2).expect("the profile's folder");
        let name = profile.file_name().and_then(|name| name.to_str()).expect("a profile");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--package", "unisono", "--examples", "--locked", "--offline", "--target-dir"]);
        cargo.arg(profile.parent().expect("the target folder")).current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.args(["--profile", if name == "debug" { "dev" } else { name }]);
        let built = cargo.stdin(Stdio::null()).output().expect("cargo starts");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        profile.join("examples")
    })
}

fn run(options: &str, example: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.arg("run").args(options.split_whitespace()).arg("--").arg(examples().join(example)).args(arguments);
    command.stdin(Stdio::null()).output().expect("unisono starts")
}

/// Runs an example on one rank, on one node and on two, with even and uneven shares: one line of output that states the
/// right answer.
fn is_right(example: &str, says: &str) {
    for options in ["-n 1", "-n 4", "-n 3 --nodes 2"] {
        let output = run(options, example, &[]);
        let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{example} {options}: {printed}{errors}");
        assert!(printed.lines().count() == 1 && printed.contains(says), "{example} {options}: {printed}{errors}");
    }
}

#[test]
fn token_of_the_ring_comes_back() {
    is_right("ring", "rounds");
}

#[test]
fn pi_is_computed() {
    is_right("pi", "π = 3.14159265358");
}

#[test]
fn jacobi_comes_to_rest_at_the_solution() {
    is_right("jacobi", "at rest");
}

#[test]
fn every_draw_of_the_histogram_is_counted() {
    is_right("histogram", "draws counted");
}

#[test]
fn matrices_are_multiplied() {
    is_right("matmul", "C[1][2] = 1102300");
}

#[test]
fn centres_of_the_points_are_found() {
    is_right("kmeans", "5 clusters of 20000 points");
}

#[test]
fn survivors_go_on_after_a_death() {
    for (options, left) in [("-n 4", 3), ("-n 2", 1), ("-n 5 --device udp", 4), ("-n 4 --nodes 2 --progress hybrid", 3)]
    {
        let output = run(&format!("{options} --on-death tell"), "survivors", &[]);
        let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(137), "{options}: {printed}{errors}");
        assert!(
            printed.starts_with("π = 3.14159265358") && printed.contains(&format!("by {left} of")),
            "{options}: {printed}{errors}"
        );
    }
    let alone = run("-n 1", "survivors", &[]);
    assert_eq!((alone.status.code(), alone.stdout.starts_with("π = 3.14159265358".as_bytes())), (Some(0), true));
}

/// A wrong answer ends the job with an error.
#[test]
fn wrong_answer_is_a_failure() {
    let output = run("-n 4", "pi", &["0"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("π is not"), "{errors}");
}
