//! Jobs that other starters start: ranks meet over PMI-1 and PMIx, on one node and on two, and a task that never joins,
//! a wrong text and a missing interface are errors that say so. This program is its rank program, too. The starters are
//! doubles; `.ci/starters` has the real ones.

extern crate alloc;

mod pmi1;
#[path = "../program/mod.rs"]
mod program;

use std::env;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};

use unisono::prelude::*;

const RANKS: u32 = 4;

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        Some("rank") => rank(),
        Some("twice") => twice(),
        _ => program::run_tests(&[
            ("ranks_meet_over_unisono_run", ranks_meet_over_unisono_run),
            ("ranks_meet_over_pmi_1", ranks_meet_over_pmi_1),
            ("a_node_of_pmi_1_shares_memory", a_node_of_pmi_1_shares_memory),
            ("a_task_that_never_joins_is_an_error_of_the_others", a_task_that_never_joins_is_an_error_of_the_others),
            ("a_wrong_text_is_an_error", a_wrong_text_is_an_error),
            ("ranks_meet_over_pmix", ranks_meet_over_pmix),
            ("a_missing_interface_is_an_error", a_missing_interface_is_an_error),
        ]),
    }
}

/// Joins, and adds the ranks up. Prints its size, and how many others share memory with it.
fn rank() -> ExitCode {
    let ended = World::join().map_err(Error::from).and_then(|world| {
        let mut sum = 0;
        world.all_reduce_into(&world.rank().0, &mut sum, SystemOperation::sum())?;
        assert_eq!(sum, world.size() * (world.size() - 1) / 2);
        let neighbours = (0..world.size()).filter(|rank| world.shares_memory_with(Rank(*rank))).count();
        println!("{} of {}, {neighbours} others on its node", world.rank(), world.size());
        Ok(world.finish()?)
    });
    ended.map_or_else(fail, |()| ExitCode::SUCCESS)
}

fn fail(error: impl core::fmt::Debug) -> ExitCode {
    eprintln!("{error:?}");
    ExitCode::FAILURE
}

/// Joins once more after its end.
fn twice() -> ExitCode {
    let joined = World::join().map(World::finish);
    assert!(joined.is_ok_and(|finished| finished.is_ok()));
    World::join().map_err(Error::from).map_or_else(fail, |_| ExitCode::SUCCESS)
}

/// This program as a task that no other starter has described yet.
fn task(part: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.arg(part).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["UNISONO_", "PMI", "SLURM_", "OMPI_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

fn outputs(tasks: impl IntoIterator<Item = Child>) -> Vec<Output> {
    tasks.into_iter().map(|task| task.wait_with_output().expect("it ends")).collect()
}

/// Every rank has printed its line.
fn expect_ranks(outputs: &[Output], neighbours: u32) {
    for (rank, output) in outputs.iter().enumerate() {
        let printed = String::from_utf8_lossy(&output.stdout);
        let expected = format!("{rank} of {RANKS}, {neighbours} others on its node\n");
        assert_eq!((output.status.code(), &*printed), (Some(0), &*expected), "{output:?}");
    }
}

/// Every rank has failed with this in its message.
fn expect_errors(outputs: &[Output], text: &str) {
    for output in outputs {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && errors.contains(text), "{output:?}");
    }
}

fn ranks_meet_over_unisono_run() {
    let lines = [0, 1, 2, 3].map(|rank| format!("{rank} of {RANKS}, 3 others on its node"));
    program::expect(&program::run("-n 4", "rank"), 0, &lines.each_ref().map(String::as_str));
}

fn ranks_meet_over_pmi_1() {
    let pmi1::Ended { outputs, finalized } = pmi1::run((0..RANKS).map(|_| task("rank")), "(vector,(0,2,2))", None);
    expect_ranks(&outputs, 1);
    assert_eq!(finalized, RANKS);
    let pmi1::Ended { outputs, .. } = pmi1::run([task("twice"), task("twice")], "(vector,(0,1,2))", None);
    expect_errors(&outputs, "lets no process join twice");
}

fn a_node_of_pmi_1_shares_memory() {
    expect_ranks(&pmi1::run((0..RANKS).map(|_| task("rank")), "(vector,(0,1,4))", None).outputs, RANKS - 1);
}

fn a_task_that_never_joins_is_an_error_of_the_others() {
    let tasks = || {
        (0..RANKS).map(|rank| {
            let mut task = if rank == 2 { Command::new("true") } else { task("rank") };
            task.env("UNISONO_ASSEMBLY", "1s").stdout(Stdio::piped()).stderr(Stdio::piped());
            task
        })
    };
    let mut outputs = pmi1::run(tasks(), "(vector,(0,1,4))", None).outputs;
    outputs.remove(2);
    expect_errors(&outputs, "did not answer within 1s");
    let folder = pmix_library();
    let mut outputs = pmix_outputs(folder.path(), tasks());
    outputs.remove(2);
    expect_errors(&outputs, "did not answer within 1s");
}

fn a_wrong_text_is_an_error() {
    for text in ["nothing", "@place/short", "@/0123456789abcdef0123456789abcdef"] {
        let outputs = pmi1::run((0..2).map(|_| task("rank")), "(vector,(0,1,2))", Some(text)).outputs;
        expect_errors(&outputs, "no usable value of unisono");
    }
}

/// A folder with a double of libpmix.
fn pmix_library() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/starters/pmix.c");
    let mut compile = Command::new("gcc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
    compile.arg(folder.path().join("libpmix.so.2")).arg(source);
    assert!(compile.status().expect("a C compiler").success());
    folder
}

/// The tasks of a job of that double, on two nodes.
fn pmix_outputs(folder: &Path, tasks: impl IntoIterator<Item = Command>) -> Vec<Output> {
    let start = |(rank, mut task): (usize, Command)| {
        task.env("LD_LIBRARY_PATH", folder).env("DOUBLE_FOLDER", folder).env("DOUBLE_SIZE", RANKS.to_string());
        task.env("PMIX_NAMESPACE", "double").env("PMIX_RANK", rank.to_string());
        task.spawn().expect("it starts")
    };
    // All are started before the first one is awaited.
    let started: Vec<Child> = tasks.into_iter().enumerate().map(start).collect();
    outputs(started)
}

fn ranks_meet_over_pmix() {
    let folder = pmix_library();
    expect_ranks(&pmix_outputs(folder.path(), (0..RANKS).map(|_| task("rank"))), 1);
    let finalized = (0..RANKS).filter(|rank| folder.path().join(format!("finalized.{rank}")).exists()).count();
    assert_eq!(finalized, RANKS as usize);
}

fn a_missing_interface_is_an_error() {
    let described = |rank, size| {
        let mut task = task("rank");
        task.env(rank, "1").env(size, "2");
        task.output().expect("it starts")
    };
    expect_errors(&[described("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")], "neither PMI-1 (PMI_FD) nor PMIx");
    expect_errors(&[described("PMI_RANK", "PMI_SIZE")], "task 1 of 2 of another starter (PMI_RANK)");
    let mut lost = task("rank");
    lost.env("PMIX_NAMESPACE", "double").env("PMIX_RANK", "0").env("LD_LIBRARY_PATH", "");
    // A machine that has the library finds no server.
    let output = lost.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("cannot be loaded") || errors.contains("PMIx_Init failed"), "{errors}");
}
