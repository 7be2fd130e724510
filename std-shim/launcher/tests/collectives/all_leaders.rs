//! Collectives between nodes with all ranks as leaders: each has a part of the vector, in slots within its node.

use core::time::Duration;
use std::env;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::{Signal, getpid, kill_process};
use unisono::collective::{CollectiveError, SystemOperation, UserOperation};
use unisono::{Communicator, Rank, World};

use crate::program::{command, expect};
use crate::{BOUND, block, number};

/// Elements of a vector: fewer than the ranks of a node, no multiple of them, and of several rounds.
const COUNTS: [usize; 9] = [0, 1, 2, 3, 5, 17, 200, 3001, 60_001];

/// Every rank of a node leads a part, whether that pays or not.
fn run(options: &str, part: &str) -> Output {
    let mut job = command(options, part);
    job.env("UNISONO_LEADERS", "all").stdin(Stdio::null()).output().expect("unisono starts")
}

pub(crate) fn parts_of_a_vector_are_led_by_all_ranks() {
    for (options, modes) in [
        ("-n 4 --nodes 2 --hierarchy host:slots", "slots"),
        ("-n 6 --nodes 2 --hierarchy host:slots", "slots"),
        ("-n 8 --nodes 4 --hierarchy host:slots", "slots"),
        ("-n 8 --nodes 2 --hierarchy host:slots --allreduce ring --broadcast bruck", "slots"),
        ("-n 6 --nodes 2 --hierarchy host --progress thread", "auto"),
        ("-n 8 --nodes 2 --caches 2 --hierarchy host:slots,cache:slots", "messages"),
    ] {
        expect(&run(options, &format!("leaders compute {modes}")), 0, &[]);
    }
}

/// Of a rank of another node the others learn from the one with the same number, of one of their own in the step.
pub(crate) fn survivors_name_a_leader_that_is_missing() {
    let started = Instant::now();
    for (seed, options) in (0..6_u64).zip(["-n 4 --nodes 2", "-n 6 --nodes 2"].into_iter().cycle()) {
        let ranks = if options.starts_with("-n 4") { 3 } else { 5 };
        let options = format!("{options} --hierarchy host:slots --on-death tell");
        expect(&run(&options, &format!("leaders survive {seed}")), 137, &vec!["named"; ranks]);
    }
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

/// A function that panics in the step of a group, a node without slots beside one with them, and another call of one rank.
pub(crate) fn leaders_of_parts_learn_of_failures() {
    let slots = "-n 6 --nodes 2 --hierarchy host:slots";
    for part in ["all_reduce 1 duplicate", "all_reduce 5 world", "immediate 4 duplicate", "reduce 2 world"] {
        expect(&run(&format!("{slots} --on-death tell"), &format!("spoilt {part}")), 0, &["caught"; 6]);
    }
    expect(&run(slots, "apart"), 0, &["0 0", "1 0", "2 0", "3 1", "4 1", "5 1"]);
    for part in [
        "all_reduce:2 all_reduce:3 1",
        "all_reduce:200000 reduce:200000 2",
        "reduce:200 broadcast:200 3",
        "broadcast:200000 all_reduce:200000 0",
        "broadcast:2 all_gather:2 3",
    ] {
        expect(&run("-n 4 --nodes 2 --hierarchy host:slots", &format!("another {part}")), 0, &[]);
    }
}

pub(crate) fn be_a_rank(world: &World) {
    let [part, argument] = [2, 3].map(|at| env::args().nth(at).expect("an argument"));
    match &*part {
        "compute" => {
            let duplicate = world.duplicate().expect("a duplicate");
            compute(world, &argument);
            compute(&duplicate, &argument);
        }
        _ => survive(world, argument.parse().expect("a number")),
    }
}

/// What must have executed the last collective, of `bytes` bytes: all ranks lead, in slots if the leaders' schedule has one
/// segment.
fn expect_means(on: &Communicator, means: &str, is_broadcast: bool, bytes: usize) {
    let record = on.last_collective().expect("a collective");
    let is_short = record.schedule.is_some_and(|(_, segments)| segments == 1);
    let in_slots = match means {
        "slots" => is_short,
        "auto" => is_short && !is_broadcast && bytes <= 64 << 10,
        _ => false,
    };
    assert_eq!((record.all_lead, record.slot_levels), (true, u32::from(in_slots)), "{record}");
}

/// Blocking, in place, nonblocking and persistent, from and to every root.
fn compute(on: &Communicator, means: &str) {
    let (rank, size, sum) = (on.rank().0, on.size(), SystemOperation::sum());
    // Keeps the first of the left and the last of the right operand, which must be adjacent.
    let joined = UserOperation::associative(|l: &[u32; 2], r: &[u32; 2]| {
        assert_eq!(l[1] + 1, r[0], "the operands are not adjacent");
        [l[0], r[1]]
    });
    for (round, count) in COUNTS.into_iter().enumerate() {
        let root = Rank(round as u32 % size);
        let (what, bytes) = (format!("{count} elements, rank {rank} of {size}"), count * 8);
        let own = block(rank, 0, count);
        let total: Vec<i64> = (0..count).map(|at| (0..size).map(|from| number(from, 0, at)).sum()).collect();

        let mut data = vec![0; count];
        on.all_reduce_into(&own, &mut data, sum).expect("an allreduce");
        assert_eq!(data, total, "allreduce: {what}");
        expect_means(on, means, false, bytes);
        data.copy_from_slice(&own);
        on.all_reduce_in_place(&mut data, sum).expect("an allreduce");
        assert_eq!(data, total, "allreduce in place: {what}");

        let mut spans = vec![[0; 2]; count];
        on.all_reduce_into(&vec![[rank; 2]; count], &mut spans, joined).expect("an allreduce");
        assert_eq!(spans, vec![[0, size - 1]; count], "user operation: {what}");

        for root in (0..size).map(Rank).filter(|other| count < 1000 || *other == root) {
            let mut data = if rank == root.0 { own.clone() } else { vec![0; count] };
            on.broadcast_into(&mut data, root).expect("a broadcast");
            assert_eq!(data, block(root.0, 0, count), "broadcast: {what}, root {root}");
            expect_means(on, means, true, bytes);

            let mut data = vec![0; if rank == root.0 { count } else { 0 }];
            on.reduce_into(&own, &mut data[..], sum, root).expect("a reduce");
            assert!(rank != root.0 || data == total, "reduce: {what}, root {root}");
            expect_means(on, means, false, bytes);
        }

        // Three at a time.
        let (mut sums, mut from_root) = (vec![0; count], if rank == root.0 { own.clone() } else { vec![0; count] });
        let mut at_root = vec![0; if rank == root.0 { count } else { 0 }];
        on.scope(|scope| {
            let sums = scope.immediate_all_reduce_into(&own, &mut sums, sum)?;
            let from_root = scope.immediate_broadcast_into(&mut from_root, root)?;
            let at_root = scope.immediate_reduce_into(&own, &mut at_root, sum, root)?;
            at_root.wait()?;
            from_root.wait()?;
            sums.wait()
        })
        .expect("a good end");
        assert_eq!((&sums, &from_root), (&total, &block(root.0, 0, count)), "at a time: {what}");
        assert!(rank != root.0 || at_root == total, "at a time: {what}");

        let (mut given, mut again) = (own.clone(), vec![0; count]);
        on.scope(|scope| {
            let mut request = scope.persistent_all_reduce_into(&mut given, &mut again, sum)?;
            for times in 1..=3 {
                request.data()?.iter_mut().zip(&own).for_each(|(given, own)| *given = own * times);
                request.start()?;
                request.wait()?;
                let expected = total.iter().map(|total| total * times);
                assert!(request.result()?.iter().copied().eq(expected), "persistent: {what}, {times}");
            }
            Ok::<(), CollectiveError>(())
        })
        .expect("a good end");
    }
    on.barrier().expect("a barrier");
}

/// One rank is killed while all reduce and broadcast.
fn survive(world: &World, seed: u64) {
    let (size, sum) = (world.size(), SystemOperation::sum());
    let (victim, after) = (Rank(seed as u32 * 5 % size), Duration::from_micros(300 + 700 * seed));
    let count = [3, 3001, 60_001][seed as usize % 3];
    let (data, mut into) = (vec![1_i64; count], vec![0; count]);
    if world.rank() == victim {
        thread::spawn(move || {
            thread::sleep(after);
            kill_process(getpid(), Signal::KILL).expect("own process");
        });
    }
    let mut started = Instant::now();
    let error = (0_u32..).find_map(|round| {
        started = started.max(Instant::now());
        let root = Rank(round % size);
        let ended = match round % 3 {
            0 => world.all_reduce_into(&data, &mut into, sum),
            1 => world.broadcast_into(&mut into, root),
            _ => world.reduce_into(&data, if world.rank() == root { &mut into[..] } else { &mut [] }, sum, root),
        };
        ended.err()
    });
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    let Some(CollectiveError::Missing { rank, .. }) = error else { panic!("{error:?}") };
    assert_eq!(rank, victim);
    println!("named");
}
