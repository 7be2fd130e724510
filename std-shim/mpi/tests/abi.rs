//! The library exports the whole ABI, and C programs that were compiled with its header run over it.

extern crate alloc;

use alloc::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of the built library and command.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let own = std::env::current_exe().expect("a test is a program");
        let folder = own.ancestors().nth(2).expect("cargo puts tests into deps").to_path_buf();
        // Cargo builds a library of this kind for no test.
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "unisono-launcher", "--package", "unisono-mpi"]);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let target = folder.parent().expect("the profile's folder lies in the target's");
        let built = build.env("CARGO_TARGET_DIR", target).current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(built.expect("cargo runs").success());
        folder
    })
}

/// Names in a text with one prototype per line.
fn names(table: &str) -> BTreeSet<String> {
    let name = |line: &str| line.split('(').next().and_then(|head| head.split(' ').next_back()).map(str::to_owned);
    table.lines().filter_map(name).collect()
}

#[test]
fn exports_are_the_table_and_its_twins() {
    let listed = Command::new("nm").args(["-D", "--defined-only"]).arg(built().join("libmpi_abi.so")).output();
    let listed = String::from_utf8(listed.expect("nm runs").stdout).expect("names");
    let exported: BTreeSet<&str> = listed.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let named = names(include_str!("../abi/functions.txt"));
    assert_eq!(named.len(), 664);
    let removed = names(include_str!("../abi/removed.txt"));
    assert!(removed.iter().all(|name| exported.contains(name.as_str())));
    for name in &named {
        let twin = format!("P{name}");
        assert!(exported.contains(name.as_str()) && exported.contains(twin.as_str()), "{name}");
    }
    let is_known = |name: &str| {
        removed.contains(name)
            || named.contains(name)
            || name.strip_prefix('P').is_some_and(|name| named.contains(name))
    };
    let others: Vec<_> = exported.iter().filter(|name| !is_known(name)).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn its_name_is_that_of_the_abi() {
    let read = Command::new("readelf").arg("-d").arg(built().join("libmpi_abi.so")).output().expect("readelf runs");
    assert!(String::from_utf8_lossy(&read.stdout).contains("[libmpi_abi.so.1]"));
}

/// Compiles a program of `programs`.
fn compile(name: &str, into: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = into.join(name);
    let compiled = Command::new(root.join("unisono-mpicc"))
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(root.join("tests/programs").join(format!("{name}.c")))
        .env("UNISONO_MPI_LIB", built())
        .status();
    assert!(compiled.expect("a C compiler").success());
    program
}

/// Runs a program of `programs` on some ranks, over shared memory, and over UDP.
fn runs(name: &str) {
    runs_on(name, &["-n", "3"]);
}

fn runs_on(name: &str, placement: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile(name, folder.path());
    for device in ["auto", "udp"] {
        let ran = Command::new(built().join("unisono"))
            .arg("run")
            .args(placement)
            .args(["--mpi", "--watchdog", "20s", "--device", device, "--"])
            .arg(&program)
            .output()
            .expect("the launcher runs");
        assert!(ran.status.success(), "{device}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[test]
fn messages() {
    runs("messages");
}

#[test]
fn cancelled_sends() {
    runs("cancel");
}

#[test]
fn types_are_compared_in_jobs_that_check_them() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, option) in [("messages", "--check"), ("types", "--check"), ("types", "--stats")] {
        let program = compile(name, folder.path());
        let mut command = Command::new(built().join("unisono"));
        command.args(["run", "-n", "2", "--mpi", "--watchdog", "20s", option, "--"]).arg(program);
        let ran = command.arg(if option == "--check" { "checked" } else { "unchecked" }).output();
        let ran = ran.expect("the launcher runs");
        assert!(ran.status.success(), "{name} {option}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[test]
fn collectives() {
    runs("collectives");
}

#[test]
fn datatypes() {
    runs("datatypes");
}

#[test]
fn hardware_resources() {
    runs_on("resources", &["-n", "8", "--nodes", "2", "--sockets", "2", "--caches", "2"]);
}

#[test]
fn communicators() {
    runs("communicators");
}

#[test]
fn windows() {
    runs("windows");
}

#[test]
fn freed_objects_and_arguments_without_a_meaning() {
    runs("unused");
}

#[test]
fn known_slips_of_other_libraries() {
    runs("slips");
}

#[test]
fn tools() {
    runs("tools");
}

#[test]
fn a_program_without_a_starter_is_a_job_of_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("datatypes", folder.path());
    let alone = || {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", built());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["UNISONO_", "PMI", "SLURM_", "OMPI_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command
    };
    let ran = alone().output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let lost = alone().env("SLURM_PROCID", "1").env("SLURM_STEP_NUM_TASKS", "2").output().expect("it runs");
    assert!(!lost.status.success() && String::from_utf8_lossy(&lost.stderr).contains("neither PMI-1"));
}
