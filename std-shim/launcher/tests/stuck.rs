//! Ranks that wait for each other are reported once, without `--watchdog`, and the job is not ended; peers that cannot be
//! reached fail. This program is its rank program, too.

mod program;

use core::time::Duration;
use std::env;
use std::io::{self, BufRead as _, BufReader};
use std::process::{ExitCode, ExitStatus, Output, Stdio, exit};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use program::{command, expect, run};
use unisono::collective::SystemOperation;
use unisono::{AnyRequest, Failure, Rank, Tag, World, wait_all, wait_any};

/// The exit code of a job that would otherwise hang forever.
const HANGS: i32 = 7;
/// Bytes of a broadcast that takes longer than the time after which ranks count as stuck.
const LONG: usize = 256 << 20;
/// Over shared memory, datagrams, and both, and where waiting ranks ask for what multicasts may have lost.
const MEANS: [&str; 4] = [
    "--device shm",
    "--device udp",
    "--nodes 2",
    "--device udp --allreduce combining-tree:release=multicast --barrier token-tree:release=multicast",
];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        let part = env::args().nth(1);
        if part.as_deref() != Some("cut_off") {
            world.barrier().expect("all are there");
        }
        match part.as_deref() {
            Some("ring") => hang(&world, ring),
            Some("sends") => hang(&world, sends),
            Some("crossed") => hang(&world, crossed),
            Some("any") => hang(&world, any),
            Some("threads") => hang(&world, threads),
            Some("all_of") => hang(&world, all_of),
            Some("collectives") => hang(&world, collectives),
            Some("any_of") => any_of(&world),
            Some("waits_beside") => waits_beside(&world),
            Some("computing") => computing(&world),
            Some("testing") => testing(&world),
            Some("one_of") => one_of(&world),
            Some("in_turns") => in_turns(&world),
            Some("thread_computes") => thread_computes(&world),
            Some("cut_off") => return cut_off(&world),
            Some("late") => late(&world),
            Some("long_broadcast") => long_broadcast(&world),
            part => panic!("{part:?} is no part"),
        }
        world.finish().expect("a good end");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("ranks_that_wait_for_each_other_are_reported_once", ranks_that_wait_for_each_other_are_reported_once),
        ("ranks_that_may_continue_are_not_reported", ranks_that_may_continue_are_not_reported),
        ("a_long_broadcast_by_multicast_is_not_reported", a_long_broadcast_by_multicast_is_not_reported),
        ("an_unreachable_peer_fails_in_every_mode", an_unreachable_peer_fails_in_every_mode),
        ("a_computing_peer_is_reachable", a_computing_peer_is_reachable),
    ])
}

fn ranks_that_wait_for_each_other_are_reported_once() {
    let receive = |rank: u32, from: u32| format!("rank {rank} waits for a message from rank {from} with tag 9");
    let ring = [receive(0, 1), receive(1, 2), receive(2, 0)];
    let send = |rank: u32| format!("rank {rank} waits for rank {} to receive a message with tag 9", (rank + 1) % 3);
    let crossed = |collective: &str| {
        [format!("rank 0 waits in {collective} of communicator 0 for rank"), receive(1, 0), String::from("rank 2 ")]
    };
    let any = [0, 1, 2].map(|rank| format!("rank {rank} waits for a message from any rank with tag 9"));
    let threads = [
        String::from("rank 0 waits for a message from rank 1 with tag 1; waits for a message from rank 2 with tag 2"),
        receive(1, 0),
        receive(2, 0),
    ];
    let mixed = |first, second| [first, second, receive(2, 0)];
    let cases = [
        ("ring", ring),
        ("sends", [0, 1, 2].map(send)),
        ("crossed", crossed("all_reduce")),
        ("any", any),
        ("threads", threads),
        ("all_of", mixed(receive(0, 2), receive(1, 2))),
        ("collectives", mixed(String::from("rank 0 waits in all_reduce"), String::from("rank 1 waits in all_reduce"))),
    ];
    let all = cases.iter().flat_map(|(part, lines)| MEANS.map(|means| (*part, lines, means)));
    at_once(all, |(part, lines, means)| {
        let (status, reports) = run_until_reported(&format!("-n 3 {means} --stuck 1s"), part);
        assert_eq!(status.code(), Some(HANGS), "{means} {part}: {reports:#?}");
        let ranks = reports.iter().filter(|report| names_a_rank(report)).count();
        let begins = reports.first().is_some_and(|first| first.contains(" can never continue, since "));
        assert!(begins && ranks == 3, "{means} {part}: {reports:#?}");
        for line in lines {
            let found = reports.iter().filter(|report| report.contains(line.as_str())).count();
            assert_eq!(found, 1, "{means} {part}: {line} in {reports:#?}");
        }
    });
}

fn ranks_that_may_continue_are_not_reported() {
    let parts = ["computing", "testing", "one_of", "in_turns", "thread_computes", "any_of", "waits_beside"];
    at_once(parts.into_iter().flat_map(|part| MEANS.map(|means| (part, means))), |(part, means)| {
        let output = run(&format!("-n 3 {means} --stuck 300ms"), part);
        expect(&output, 0, &[]);
        assert_eq!(reports(&output), [""; 0], "{means} {part}");
    });
}

fn a_long_broadcast_by_multicast_is_not_reported() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let options = format!("--broadcast multicast --stuck 100ms --stats-file {}", file.path().display());
    let output = run(&format!("-n 3 --device udp {options}"), "long_broadcast");
    expect(&output, 0, &[]);
    assert_eq!(reports(&output), [""; 0]);
    let text = std::fs::read_to_string(file.path()).expect("the statistics");
    let sent = text.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("an object");
        line["multicast"]["sent"].as_u64().expect("a number")
    });
    assert!(sent.sum::<u64>() >= LONG as u64 >> 13, "by multicast: {text}");
}

fn an_unreachable_peer_fails_in_every_mode() {
    at_once(["engine", "hybrid", "thread"], |mode| {
        let output = run(&format!("-n 2 --device udp --loss 100% --unreachable 2s --progress {mode}"), "cut_off");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(HANGS), "{mode}: {errors}");
        // The first of the two that notices it.
        let is_reported = ["rank 0", "rank 1"].iter().any(|peer| {
            errors.contains(&format!(
                "cannot reach {peer}, which counts as failed: for 2s no datagram has arrived from it"
            ))
        });
        assert_eq!(mode == "engine", is_reported, "{mode}: {errors}");
    });
}

fn a_computing_peer_is_reachable() {
    for means in ["--device udp", "--nodes 2"] {
        let output = run(&format!("-n 2 {means} --progress engine --unreachable 500ms"), "late");
        expect(&output, 0, &[]);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("cannot reach"), "{output:?}");
    }
}

/// Runs jobs concurrently, since they sleep most of the time.
fn at_once<C: Send>(cases: impl IntoIterator<Item = C>, run: impl Fn(C) + Sync) {
    let run = &run;
    let mut cases: Vec<C> = cases.into_iter().collect();
    while !cases.is_empty() {
        let some = cases.split_off(cases.len().saturating_sub(5));
        thread::scope(|scope| some.into_iter().for_each(|case| _ = scope.spawn(move || run(case))));
    }
}

/// The lines about ranks that can never continue.
fn reports(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|line| is_report(line)).map(str::to_owned).collect()
}

fn is_report(line: &str) -> bool {
    line.contains(" wait")
}

fn names_a_rank(report: &str) -> bool {
    report.starts_with("unisono: rank ")
}

/// Runs a job of three ranks that hangs until all of them are reported, in one report or several, and the reports had the
/// time to be repeated. Without reports of all, it ends after a minute.
fn run_until_reported(options: &str, part: &str) -> (ExitStatus, Vec<String>) {
    let mut job = command(options, part).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unisono starts");
    let lines = BufReader::new(job.stderr.take().expect("a pipe")).lines();
    let (found, arrived) = mpsc::channel();
    let reader = thread::spawn(move || {
        let reports = lines.map(|line| line.expect("text")).filter(|line| is_report(line));
        reports.inspect(|line| _ = found.send(names_a_rank(line))).collect()
    });
    let limit = Instant::now() + Duration::from_mins(1);
    let mut ranks = 0;
    while ranks < 3
        && let Ok(names_a_rank) = arrived.recv_timeout(limit.saturating_duration_since(Instant::now()))
    {
        ranks += usize::from(names_a_rank);
    }
    thread::sleep(Duration::from_millis(2500));
    drop(job.stdin.take());
    (job.wait().expect("it ends"), reader.join().expect("lines"))
}

/// A job that would hang forever ends when the input of its rank 0 ends.
fn hang(world: &World, part: impl Fn(&World)) {
    if world.rank() == Rank(0) {
        thread::spawn(|| {
            io::copy(&mut io::stdin(), &mut io::sink()).expect("input");
            exit(HANGS);
        });
    }
    part(world);
    unreachable!("it hangs");
}

fn neighbour(world: &World) -> Rank {
    Rank((world.rank().0 + 1) % world.size())
}

fn receive(world: &World, source: Rank, tag: u32) {
    world.receive_into(&mut [0_u8; 4], source, Tag(tag)).expect("a message");
}

fn ring(world: &World) {
    receive(world, neighbour(world), 9);
}

/// Every rank sends a long message before it receives one.
fn sends(world: &World) {
    world.send(&vec![0_u8; 4 << 20], neighbour(world), Tag(9)).expect("sent");
    receive(world, neighbour(world), 9);
}

/// One rank waits for a message of another, which waits in a collective.
fn crossed(world: &World) {
    if world.rank() == Rank(1) {
        receive(world, Rank(0), 9);
    }
    world.all_reduce_into(&[1_u8], &mut [0], SystemOperation::sum()).expect("a sum");
}

fn any(world: &World) {
    world.receive_into(&mut [0_u8; 4], None, Tag(9)).expect("a message");
}

/// Both threads of a rank wait.
fn threads(world: &World) {
    if world.rank() == Rank(0) {
        thread::scope(|scope| {
            scope.spawn(|| receive(world, Rank(1), 1));
            thread::sleep(Duration::from_millis(100));
            receive(world, Rank(2), 2);
        });
    }
    receive(world, Rank(0), 9);
}

/// Ranks wait for one that computes.
fn computing(world: &World) {
    if world.rank() == Rank(2) {
        thread::sleep(Duration::from_secs(2));
        (0..2).for_each(|to| world.send(&[0_u8; 4], Rank(to), Tag(9)).expect("sent"));
    } else {
        receive(world, Rank(2), 9);
    }
}

/// Ranks wait for one that polls for a message that comes late.
fn testing(world: &World) {
    let last = world.size() - 1;
    if world.rank().0 != last {
        return receive(world, Rank(last), 9);
    }
    let (mut data, mut tests) = ([0_u8; 4], 0);
    world.scope(|scope| {
        let request = scope.immediate_receive_into(&mut data, Rank(0), Tag(8)).expect("started");
        while tests < 1000 && request.test().is_none() {
            tests += 1;
            thread::sleep(Duration::from_millis(2));
        }
        assert!(request.cancel());
    });
    (0..last).for_each(|to| world.send(&[0_u8; 4], Rank(to), Tag(9)).expect("sent"));
}

/// Collective by collective, another rank comes late: whenever a rank's waits are looked at, it waits for another.
fn in_turns(world: &World) {
    for turn in 0..12 {
        if world.rank().0 == turn % world.size() {
            thread::sleep(Duration::from_millis(150));
        }
        world.barrier().expect("all are there");
    }
}

/// Two ranks wait for each other, one of them also for a third, which computes.
fn one_of(world: &World) {
    match world.rank().0 {
        0 => {
            let mut buffers = [[0_u8; 4]; 2];
            let [left, right] = &mut buffers;
            world.scope(|scope| {
                let requests = [
                    scope.immediate_receive_into(left, Rank(1), Tag(9)).expect("started"),
                    scope.immediate_receive_into(right, Rank(2), Tag(9)).expect("started"),
                ];
                let first = wait_any(&requests).expect("a message").expect("one");
                assert_eq!(first.0, 1);
                world.send(&[0_u8; 4], Rank(1), Tag(9)).expect("sent");
                requests.into_iter().for_each(|request| _ = request.wait().expect("a message"));
            });
        }
        1 => {
            receive(world, Rank(0), 9);
            world.send(&[0_u8; 4], Rank(0), Tag(9)).expect("sent");
        }
        _ => {
            thread::sleep(Duration::from_secs(2));
            world.send(&[0_u8; 4], Rank(0), Tag(9)).expect("sent");
        }
    }
}

/// A thread of a rank waits for a message from another one, which waits for another thread of that rank.
fn thread_computes(world: &World) {
    match world.rank().0 {
        0 => thread::scope(|scope| {
            scope.spawn(|| {
                world.send(&[0_u8; 4], Rank(2), Tag(1)).expect("sent");
                thread::sleep(Duration::from_secs(2));
                world.send(&[0_u8; 4], Rank(1), Tag(9)).expect("sent");
            });
            receive(world, Rank(1), 9);
        }),
        1 => {
            receive(world, Rank(0), 9);
            world.send(&[0_u8; 4], Rank(0), Tag(9)).expect("sent");
        }
        _ => receive(world, Rank(0), 1),
    }
}

/// No datagram arrives.
fn cut_off(world: &World) -> ExitCode {
    let other = neighbour(world);
    let ended = world.receive_into(&mut [0_u8; 4], other, Tag(9));
    assert_eq!(ended, Err(Failure::PeerFailed(other)));
    ExitCode::from(HANGS as u8)
}

/// One rank computes for long.
fn late(world: &World) {
    if world.rank() == Rank(1) {
        thread::sleep(Duration::from_secs(4));
        world.send(&[0_u8; 4], Rank(0), Tag(9)).expect("sent");
    } else {
        receive(world, Rank(1), 9);
    }
}

/// A broadcast of some seconds, after short ones for as long as a slow machine takes to test the group.
fn long_broadcast(world: &World) {
    for _ in 0..200 {
        world.broadcast_into(&mut [world.rank().0; 16], Rank(0)).expect("a broadcast");
        thread::sleep(Duration::from_millis(20));
    }
    let mut data = vec![world.rank().0 as u8; LONG];
    world.broadcast_into(&mut data, Rank(0)).expect("a broadcast");
    assert!(data.iter().all(|byte| *byte == 0));
}

/// Two ranks wait for a message and a collective of a third, which waits for a message of one of them.
fn all_of(world: &World) {
    let (mut data, mut sum) = ([0_u8; 4], [1_u8]);
    if world.rank() == Rank(2) {
        receive(world, Rank(0), 9);
    }
    world.scope(|scope| {
        let receive = scope.immediate_receive_into(&mut data, Rank(2), Tag(9)).expect("started");
        let reduce = scope.immediate_all_reduce_in_place(&mut sum, SystemOperation::sum()).expect("started");
        let both: [&dyn AnyRequest; 2] = [&receive, &reduce];
        wait_all(both).expect("both");
    });
}

/// As [`all_of`], without the message.
fn collectives(world: &World) {
    let mut sum = [1_u8];
    if world.rank() == Rank(2) {
        receive(world, Rank(0), 9);
    }
    world.scope(|scope| {
        let reduce = scope.immediate_all_reduce_in_place(&mut sum, SystemOperation::sum()).expect("started");
        if world.rank() == Rank(0) {
            wait_all([&reduce]).expect("a sum");
        } else {
            wait_any([&reduce]).expect("a sum");
        }
    });
}

/// Two ranks wait for each other, one of them also for a collective, which a third joins late.
fn any_of(world: &World) {
    let (mut data, mut sum) = ([0_u8; 4], [1_u8]);
    if world.rank() == Rank(2) {
        thread::sleep(Duration::from_secs(2));
    }
    world.scope(|scope| {
        let reduce = scope.immediate_all_reduce_in_place(&mut sum, SystemOperation::sum()).expect("started");
        match world.rank().0 {
            0 => {
                let receive = scope.immediate_receive_into(&mut data, Rank(1), Tag(9)).expect("started");
                let both: [&dyn AnyRequest; 2] = [&receive, &reduce];
                assert_eq!(wait_any(both).expect("a sum").map(|(index, _)| index), Some(1));
                world.send(&[0_u8; 4], Rank(1), Tag(9)).expect("sent");
                receive.wait().expect("a message");
            }
            1 => {
                receive(world, Rank(0), 9);
                world.send(&[0_u8; 4], Rank(0), Tag(9)).expect("sent");
                reduce.wait().expect("a sum");
            }
            _ => reduce.wait().expect("a sum"),
        }
    });
}

/// One thread waits for a message and a collective, while another one of its rank computes before it sends what the other
/// ranks need.
fn waits_beside(world: &World) {
    let (mut data, mut sum) = ([0_u8; 4], [1_u8]);
    if world.rank() != Rank(0) {
        receive(world, Rank(0), 8);
        if world.rank() == Rank(1) {
            world.send(&[0_u8; 4], Rank(0), Tag(9)).expect("sent");
        }
        // As rank 0 does: a blocking call would not match.
        return world.scope(|scope| {
            let reduce = scope.immediate_all_reduce_in_place(&mut sum, SystemOperation::sum()).expect("started");
            reduce.wait().expect("a sum");
        });
    }
    thread::scope(|threads| {
        threads.spawn(|| {
            world.scope(|scope| {
                let receive = scope.immediate_receive_into(&mut data, Rank(1), Tag(9)).expect("started");
                let reduce = scope.immediate_all_reduce_in_place(&mut sum, SystemOperation::sum()).expect("started");
                let both: [&dyn AnyRequest; 2] = [&receive, &reduce];
                wait_all(both).expect("both");
            });
        });
        thread::sleep(Duration::from_secs(2));
        [1, 2].into_iter().for_each(|rank| world.send(&[0_u8; 4], Rank(rank), Tag(8)).expect("sent"));
    });
}
