//! The reports of ranks that wait for too long (`--watchdog`). This program is its rank program, too.

mod program;

use core::time::Duration;
use std::env;
use std::process::{ExitCode, Output, exit};
use std::thread;

use program::{expect, run};
use unisono::collective::SystemOperation;
use unisono::{Rank, Tag, World};

/// The exit code of a job that would otherwise hang forever.
const HANGS: i32 = 7;
/// Over shared memory, datagrams, and both.
const MEANS: [&str; 3] = ["--device shm", "--device udp", "--nodes 2"];
/// The late rank.
const LATE: u32 = 2;

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        world.barrier().expect("all are there");
        sum(&world, 1);
        match env::args().nth(1).as_deref() {
            Some("all_reduce") => late(&world, |world| sum(world, 1)),
            Some("broadcast") => late(&world, |world| broadcast(world, Rank(LATE))),
            Some("gather") => late(&world, gather),
            Some("half") => half(&world),
            Some("receive") => late(&world, receive),
            Some("elsewhere") => hang(&world, elsewhere),
            Some("probe") => hang(&world, probe),
            Some("agreement") => hang(&world, agreement),
            Some("forms") => hang(&world, forms),
            Some("turns") => late(&world, take_turns),
            Some("slow") => slow(&world),
            part => panic!("no part {part:?}"),
        }
        world.finish().expect("a good end");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("a_late_rank_is_named", a_late_rank_is_named),
        ("only_waiting_ranks_report", only_waiting_ranks_report),
        ("a_part_of_the_job_names_its_own", a_part_of_the_job_names_its_own),
        ("a_missing_message_is_reported", a_missing_message_is_reported),
        ("a_rank_in_another_call_is_named_with_it", a_rank_in_another_call_is_named),
        ("forms_that_do_not_match_name_each_other", forms_that_do_not_match_name_each_other),
        ("ranks_that_wait_for_their_turn_name_the_late_one", ranks_that_wait_for_their_turn),
        ("nothing_is_reported_while_nothing_hangs", nothing_is_reported_while_nothing_hangs),
    ])
}

fn a_late_rank_is_named() {
    at_once(MEANS.into_iter().zip(["engine", "hybrid", "thread"]), |(means, mode)| {
        for part in ["all_reduce", "broadcast"] {
            let output = run(&format!("-n 4 {means} --progress {mode} --watchdog 1s"), part);
            expect(&output, 0, &[]);
            let does = if mode == "engine" { "does not answer" } else { "is in no call that waits" };
            let reports = lines(&output);
            for rank in (0..4).filter(|rank| *rank != LATE) {
                let begins = format!("unisono: rank {rank} waits in {part} ");
                let ends = format!(" of communicator 0 since 1.SECONDS s; missing: rank {LATE} ({does})");
                let own: Vec<&String> = reports.iter().filter(|line| line.starts_with(&begins)).collect();
                let one = matches!(own[..], [line] if is_like(line, &ends));
                assert!(one, "{means}, rank {rank}, {part}: {reports:#?}");
            }
            assert_eq!(reports.len(), 3, "{means}: {reports:#?}");
        }
    });
}

fn only_waiting_ranks_report() {
    at_once(MEANS, |means| {
        let output = run(&format!("-n 3 {means} --watchdog 1s --gather direct"), "gather");
        expect(&output, 0, &[]);
        let reports = lines(&output);
        let named = format!("; missing: rank {LATE} (does not answer)");
        let one = matches!(&reports[..], [line] if line.contains("rank 0 waits in gather") && line.ends_with(&named));
        assert!(one, "{means}: {reports:#?}");
    });
}

fn a_part_of_the_job_names_its_own() {
    at_once(MEANS, |means| {
        let output = run(&format!("-n 4 {means} --watchdog 1s"), "half");
        expect(&output, 0, &[]);
        let reports = lines(&output);
        let (begins, named) =
            ("unisono: rank 0 waits in all_reduce 1 of communicator ", "; missing: rank 2 (does not answer)");
        let one = matches!(&reports[..], [line] if line.starts_with(begins) && line.ends_with(named) && !line.contains("communicator 0"));
        assert!(one, "{means}: {reports:#?}");
    });
}

fn a_missing_message_is_reported() {
    at_once(MEANS, |means| {
        let output = run(&format!("-n 3 {means} --watchdog 1s"), "receive");
        expect(&output, 0, &[]);
        let reports = lines(&output);
        let waits = format!("unisono: rank 0 waits for a message from rank {LATE} with tag 9 since 1.");
        let one = matches!(&reports[..], [line] if line.starts_with(&waits));
        assert!(one, "{means}: {reports:#?}");
    });
}

fn a_rank_in_another_call_is_named() {
    let cases = [
        ("-n 3 --nodes 2", "elsewhere", 0, "rank 1 (waits for a message from rank 2 with tag 9)"),
        ("-n 3 --device shm", "elsewhere", 2, "rank 1 (waits for a message from rank 2 with tag 9)"),
        ("-n 3 --nodes 2", "probe", 0, "rank 1 (probes for a message from rank 2 with tag 9)"),
        ("-n 3 --device shm", "probe", 2, "rank 1 (probes for a message from rank 2 with tag 9)"),
        ("-n 3 --nodes 2", "agreement", 0, "rank 1 (waits in an agreement of communicator 0)"),
        ("-n 3 --device shm", "agreement", 2, "rank 1 (waits in an agreement of communicator 0)"),
    ];
    at_once(cases, |(options, part, rank, named)| {
        let output = run(&format!("{options} --watchdog 500ms"), part);
        assert_eq!(output.status.code(), Some(HANGS));
        let reports = lines(&output);
        let begins = format!("unisono: rank {rank} waits in ");
        let found = reports.iter().any(|line| line.starts_with(&begins) && line.contains(named));
        assert!(found, "{options} {part}: {reports:#?}");
        // That rank reports the same itself.
        let own = named.replace(" (", " ").replace(')', " since ");
        assert!(
            reports.iter().any(|line| line.starts_with(&format!("unisono: {own}"))),
            "{options} {part}: {reports:#?}"
        );
    });
}

fn forms_that_do_not_match_name_each_other() {
    let output = run("-n 2 --device shm --watchdog 500ms", "forms");
    assert_eq!(output.status.code(), Some(HANGS));
    let reports = lines(&output);
    for (rank, other) in [(0, 1), (1, 0)] {
        let begins = format!("unisono: rank {rank} waits in all_reduce ");
        let named = format!("missing: rank {other} (waits in all_reduce ");
        assert!(reports.iter().any(|line| line.starts_with(&begins) && line.contains(&named)), "{reports:#?}");
    }
}

/// Ranks wait for the second of two allreduces, whose steps in the slots of a group wait for those of the first one: at
/// rank 0 for one that is being executed, at rank 2 for one that has not begun. Their leaders exchange messages, or use a
/// tree.
fn ranks_that_wait_for_their_turn() {
    at_once(["doubling", "token-tree"], |allreduce| {
        let options = format!("-n 4 --nodes 2 --hierarchy host:slots --watchdog 1s --allreduce {allreduce}");
        expect_turns(&run(&options, "turns 1"));
    });
}

fn expect_turns(output: &Output) {
    expect(output, 0, &[]);
    let reports = lines(output);
    for rank in [0, 2, 3] {
        let begins = format!("unisono: rank {rank} waits in all_reduce 4 ");
        let own = reports.iter().filter(|line| line.starts_with(&begins));
        let one = own.filter(|line| line.ends_with("; missing: rank 1 (does not answer)")).count();
        assert_eq!(one, 1, "rank {rank}: {reports:#?}");
    }
}

fn nothing_is_reported_while_nothing_hangs() {
    for means in MEANS {
        let output = run(&format!("-n 4 {means} --watchdog 400ms"), "slow");
        expect(&output, 0, &[]);
        assert_eq!(lines(&output), [""; 0], "{means}");
    }
}

/// Runs jobs concurrently, since they sleep most of the time.
fn at_once<C: Send>(cases: impl IntoIterator<Item = C>, run: impl Fn(C) + Sync) {
    let run = &run;
    thread::scope(|scope| cases.into_iter().for_each(|case| _ = scope.spawn(move || run(case))));
}

/// The reports of the ranks.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|line| line.contains(" waits ") || line.contains(" probes ")).map(str::to_owned).collect()
}

/// Whether a line ends like this, with any text for SECONDS.
fn is_like(line: &str, ends: &str) -> bool {
    let (before, after) = ends.split_once("SECONDS").expect("a time");
    line.ends_with(after) && line.contains(before)
}

/// One rank is late; the others wait for long.
fn late(world: &World, part: impl Fn(&World)) {
    let late = env::args().nth(2).map_or(LATE, |rank| rank.parse().expect("a rank"));
    if world.rank().0 == late {
        thread::sleep(Duration::from_secs(3));
    }
    part(world);
}

/// A job that would hang forever ends after all have reported.
fn hang(world: &World, part: impl Fn(&World)) {
    if world.rank() == Rank(0) {
        thread::spawn(|| {
            thread::sleep(Duration::from_secs(3));
            exit(HANGS);
        });
    }
    part(world);
    unreachable!("it hangs");
}

fn sum(world: &World, count: usize) {
    let mut data = vec![world.rank().0; count];
    world.all_reduce_in_place(&mut data, SystemOperation::sum()).expect("a sum");
    assert_eq!(data, vec![world.size() * (world.size() - 1) / 2; count]);
}

fn broadcast(world: &World, root: Rank) {
    world.broadcast_into(&mut [0_u8; 8], root).expect("a broadcast");
}

fn gather(world: &World) {
    let mut all = [0; 3];
    let into = if world.rank() == Rank(0) { &mut all[..] } else { &mut [] };
    world.gather_into(&[world.rank().0], into, Rank(0)).expect("a gather");
}

fn receive(world: &World) {
    match world.rank().0 {
        0 => _ = world.receive_into(&mut [0_u8; 4], Rank(LATE), Tag(9)).expect("a message"),
        LATE => world.send(&[0_u8; 4], Rank(0), Tag(9)).expect("sent"),
        _ => {}
    }
}

/// Two communicators of every other rank; in one of them a rank is late, its member 1.
fn half(world: &World) {
    let half = world.split_by_color(world.rank().0 % 2).expect("a communicator").expect("everyone has a colour");
    if world.rank().0 == LATE {
        thread::sleep(Duration::from_secs(3));
    }
    half.all_reduce_into(&[1_u8], &mut [0], SystemOperation::sum()).expect("a sum");
}

/// One rank waits for a message instead of the collective.
fn elsewhere(world: &World) {
    if world.rank() == Rank(1) {
        world.receive_into(&mut [0_u8; 4], Rank(2), Tag(9)).expect("a message");
    }
    sum(world, 1);
}

/// One rank probes for a message instead of the collective.
fn probe(world: &World) {
    if world.rank() == Rank(1) {
        world.probe(Rank(2), Tag(9)).expect("a message");
    }
    sum(world, 1);
}

/// One rank calls an agreement instead of the collective.
fn agreement(world: &World) {
    if world.rank() == Rank(1) {
        world.agree(1).expect("an agreement");
    }
    sum(world, 1);
}

/// One rank calls the immediate form where the other calls the blocking one.
fn forms(world: &World) {
    // More blocking calls first, so that the sequence numbers of the two forms differ.
    (0..3).for_each(|_| sum(world, 1));
    if world.rank() == Rank(0) {
        let mut into = [0_u32];
        world.scope(|scope| {
            let request = scope.immediate_all_reduce_into(&[0_u32], &mut into, SystemOperation::sum()).expect("begun");
            request.wait().expect("a sum");
        });
    }
    sum(world, 1);
}

/// Starts two allreduces, and waits for the second one first.
fn take_turns(world: &World) {
    let (mut first, mut second) = ([0_u32], [0_u32]);
    world.scope(|scope| {
        let one = scope.immediate_all_reduce_into(&[1], &mut first, SystemOperation::sum()).expect("begun");
        let two = scope.immediate_all_reduce_into(&[2], &mut second, SystemOperation::sum()).expect("begun");
        two.wait().expect("a sum");
        one.wait().expect("a sum");
    });
    assert_eq!((first, second), ([world.size()], [2 * world.size()]));
}

fn slow(world: &World) {
    for round in 0..8 {
        if world.rank().0 == round % world.size() {
            thread::sleep(Duration::from_millis(150));
        }
        sum(world, 1 << (2 * round));
        world.barrier().expect("a barrier");
    }
}
