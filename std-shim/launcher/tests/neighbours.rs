//! Shared-memory messages between processes, some of which are killed or write garbage. This program is their rank
//! program, too.

mod program;

use core::time::Duration;
use std::env;
use std::process::ExitCode;
use std::time::Instant;

use program::{expect, run};
use unisono::{Failure, Node, Rank, Tag, World};
use unisono_shmem::segment::Site;

const TAG: Tag = Tag(3);
/// First word of a ring that its producer writes; those before are the consumer's.
const TAIL: usize = 32;
/// Longest time until a failure is detected while a rank waits for the failed one.
const BOUND: Duration = Duration::from_secs(3);
/// Message lengths in words, of every kind: in a ring entry, in the bulk area, by rendezvous.
const KINDS: [usize; 5] = [1, 12, 700, 20_000, 300_000];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        return play();
    }
    program::run_tests(&[
        ("garbage_everywhere_ends_in_typed_errors", garbage_everywhere_ends_in_typed_errors),
        ("kill_amid_messages_spares_the_others", kill_amid_messages_spares_the_others),
        ("messages_sent_before_a_failure_arrive_and_no_more", messages_sent_before_a_failure_arrive_and_no_more),
        ("matched_probes_of_a_failed_sender_fail", matched_probes_of_a_failed_sender_fail),
        ("garbage_in_a_ring_ends_its_writer_alone", garbage_in_a_ring_ends_its_writer_alone),
        ("programs_are_independent_of_the_placement", programs_are_independent_of_the_placement),
    ])
}

fn messages_sent_before_a_failure_arrive_and_no_more() {
    for options in ["-n 3 --on-death tell", "-n 3 --on-death silent", "-n 3 --on-death silent --progress thread"] {
        expect(&run(&format!("{options} --device shm"), "die"), 137, &["0 continues", "1 continues"]);
    }
}

fn matched_probes_of_a_failed_sender_fail() {
    for place in ["--device shm", "--device udp", "--nodes 3"] {
        for options in ["--on-death tell", "--on-death silent --silence 500ms"] {
            expect(&run(&format!("-n 3 {place} {options}"), "take"), 137, &["0 continues", "1 continues"]);
        }
    }
}

fn kill_amid_messages_spares_the_others() {
    for seed in 0..20 {
        let progress = ["engine", "thread", "hybrid"][seed % 3];
        let policy = ["tell", "silent"][seed / 3 % 2];
        let options = format!("-n 3 --device shm --on-death {policy} --progress {progress}");
        expect(&run(&options, &format!("storm {seed}")), 137, &["0 continues", "1 continues"]);
    }
}

fn garbage_in_a_ring_ends_its_writer_alone() {
    for seed in 0..12 {
        let output = run("-n 3 --device shm --on-death tell", &format!("scribble {seed}"));
        expect(&output, 0, &["0 continues", "2 continues"]);
    }
}

fn garbage_everywhere_ends_in_typed_errors() {
    for seed in 0..12 {
        let output = run("-n 3 --device shm --on-death tell", &format!("flood {seed}"));
        expect(&output, 0, &["0 got an error", "2 got an error"]);
    }
}

fn programs_are_independent_of_the_placement() {
    for options in ["-n 4", "-n 5 --nodes 2", "-n 4 --nodes 2 --progress hybrid", "-n 3 --device udp"] {
        let ranks: usize = options.split(' ').nth(1).and_then(|ranks| ranks.parse().ok()).expect("a number of ranks");
        let lines: Vec<String> = (0..ranks).map(|rank| format!("{rank} has received all")).collect();
        expect(&run(options, "exchange"), 0, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// Runs the part of a rank.
fn play() -> ExitCode {
    let world = World::join().expect("a world");
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["die"] => die(&world),
        ["take"] => take(&world),
        ["scribble", seed] => scribble(&world, seed.parse().expect("a number")),
        ["flood", seed] => flood(&world, seed.parse().expect("a number")),
        ["storm", seed] => storm(&world, seed.parse().expect("a number")),
        ["exchange"] => exchange(&world),
        _ => panic!("{arguments:?}"),
    }
    world.finish().expect("the live ranks finish");
    ExitCode::SUCCESS
}

fn data(seed: u32, words: usize) -> Vec<u32> {
    (0..words as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ seed).collect()
}

fn receive(world: &World, from: Rank, words: usize, tag: Tag) -> Result<Vec<u32>, Failure> {
    let mut into = vec![0; words];
    let status = world.receive_into(&mut into, from, tag)?;
    assert_eq!((status.source, status.bytes), (from, 4 * words));
    Ok(into)
}

/// The last rank sends short messages and is killed. The others receive them, then get errors, and continue without it.
fn die(world: &World) {
    const SHORT: u32 = 5;
    let (rank, dead) = (world.rank(), Rank(2));
    if rank == dead {
        for to in [Rank(0), Rank(1)] {
            (0..SHORT).for_each(|i| world.send(&data(i, i as usize * 9), to, TAG).expect("sent"));
        }
        // All are waiting now.
        receive(world, Rank(0), 1, TAG).expect("arrives");
        receive(world, Rank(1), 1, TAG).expect("arrives");
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("own process");
    }
    world.send(&[7_u32], dead, TAG).expect("sent");
    let long = data(1, 300_000);
    if rank == Rank(0) {
        // It is never received: the failed rank does not acknowledge it.
        assert_eq!(world.send(&long, dead, TAG), Err(Failure::PeerFailed(dead)));
    }
    for i in 0..SHORT {
        assert_eq!(receive(world, dead, i as usize * 9, TAG), Ok(data(i, i as usize * 9)), "sent before its death");
    }
    let started = Instant::now();
    assert_eq!(receive(world, dead, 1, TAG), Err(Failure::PeerFailed(dead)));
    assert!(started.elapsed() < BOUND, "after {:?}", started.elapsed());
    assert_eq!(world.send(&[1_u32], dead, TAG), Err(Failure::PeerFailed(dead)));
    talk(world, rank, Rank(1 - rank.0));
    println!("{rank} continues");
}

/// The last rank's long messages are taken by matched probes; then it is killed. Receiving them names it, also by its
/// number in another communicator.
fn take(world: &World) {
    let (rank, dead) = (world.rank(), Rank(2));
    let reversed = world.split_by_color_with_key(0, -(rank.0 as i32)).expect("a communicator").expect("all of them");
    let long = data(2, 40_000);
    if rank == dead {
        world.scope(|scope| {
            for to in [Rank(0), Rank(1)] {
                drop(scope.immediate_send(&long, to, TAG).expect("started"));
                drop(scope.on(&reversed).immediate_send(&long, Rank(2 - to.0), TAG).expect("started"));
            }
            scope.flush();
            // All have their matched probes.
            receive(world, Rank(0), 1, Tag(9)).expect("arrives");
            receive(world, Rank(1), 1, Tag(9)).expect("arrives");
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .expect("own process");
        });
    }
    let taken = world.matched_probe(dead, TAG).expect("it is there");
    let there = reversed.matched_probe(Rank(0), None).expect("it is there");
    assert_eq!(taken.status().bytes, 160_000);
    world.send(&[rank.0], dead, Tag(9)).expect("sent");
    assert_eq!(receive(world, dead, 1, Tag(9)), Err(Failure::PeerFailed(dead)));
    assert_eq!(taken.receive_into(&mut vec![0_u32; 40_000]), Err(Failure::PeerFailed(dead)));
    assert_eq!(there.receive_into(&mut [0_u32]), Err(Failure::PeerFailed(Rank(0))), "as this communicator numbers it");
    talk(world, rank, Rank(1 - rank.0));
    println!("{rank} continues");
}

/// Messages of every kind are exchanged with the last rank, until it is killed at a random moment.
fn storm(world: &World, seed: u64) {
    let (rank, dead) = (world.rank(), Rank(2));
    world.barrier().expect("all are there");
    if rank == dead {
        let after = Duration::from_micros(fastrand::Rng::with_seed(seed).u64(..40_000));
        std::thread::spawn(move || {
            std::thread::sleep(after);
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("this one");
        });
    }
    let partners = if rank == dead { [Rank(0), Rank(1)].as_slice() } else { &[dead] };
    let failed = (0_u32..).find_map(|i| {
        let (words, tag) = (KINDS[(i as usize * 7 + seed as usize) % KINDS.len()], Tag(i % 4));
        let sent = data(rank.0 ^ i, words);
        let exchanged = world.scope(|scope| {
            let start = |to: &Rank| scope.immediate_send(&sent, *to, tag);
            let requests = partners.iter().map(start).collect::<Result<Vec<_>, _>>()?;
            for partner in partners {
                assert!(receive(world, *partner, words, tag)? == data(partner.0 ^ i, words), "message {i} is torn");
            }
            requests.into_iter().try_for_each(|request| request.wait().map(|_| ()))
        });
        exchanged.err()
    });
    assert_eq!(failed, Some(Failure::PeerFailed(dead)));
    talk(world, rank, Rank(1 - rank.0));
    println!("{rank} continues");
}

/// Two ranks exchange messages of every kind.
fn talk(world: &World, rank: Rank, other: Rank) {
    for words in KINDS {
        let sent = data(rank.0, words);
        world.scope(|scope| {
            let request = scope.immediate_send(&sent, other, TAG).expect("started");
            assert_eq!(receive(world, other, words, TAG), Ok(data(other.0, words)));
            request.wait().expect("sent");
        });
    }
}

/// Rank 1 overwrites its rings with random words, in both directions. Ranks that receive from it get errors; the others
/// continue.
fn scribble(world: &World, seed: u64) {
    let (rank, wild) = (world.rank(), Rank(1));
    let node = world.node().expect("ranks of one node");
    world.barrier().expect("all are there");
    if rank == wild {
        let mut random = fastrand::Rng::with_seed(seed);
        for other in [0, 2] {
            for (from, to) in [(1, other), (other, 1)] {
                garbage(node, from, to, &mut random);
            }
        }
        // Wait until the others have seen it: their messages to it are not readable any more either.
        std::thread::sleep(Duration::from_millis(300));
        return;
    }
    let started = Instant::now();
    let failed = world.receive_into(&mut [0_u8; 100], wild, TAG);
    assert_eq!(failed, Err(Failure::Corrupted(wild)));
    assert!(started.elapsed() < BOUND, "after {:?}", started.elapsed());
    assert_eq!(world.send(&[1_u8], wild, TAG), Err(Failure::Corrupted(wild)));
    talk(world, rank, Rank(2 - rank.0));
    println!("{rank} continues");
}

/// Writes random words all over a ring.
fn garbage(node: &Node, from: u32, to: u32, random: &mut fastrand::Rng) {
    let area = node.layout().ring(from, to).expect("ranks of the node");
    // SAFETY: a ring is no pool, and what is written is what a broken process might write at any time.
    let segment = unsafe { node.raw_segment() };
    let words = segment.words(area.offset, area.bytes / 4).expect("an area of the segment");
    for (word, at) in words.iter().zip(0..) {
        if at == TAIL {
            // Until here only the consumer's words are overwritten, for which no writer can be blamed.
            std::thread::sleep(Duration::from_millis(10));
        }
        word.publish(random.u32(..), Site::Plain);
    }
}

/// Rank 1 writes random words to random places of the whole segment while the others exchange messages. They may
/// receive wrong data until they get an error.
fn flood(world: &World, seed: u64) {
    let (rank, wild) = (world.rank(), Rank(1));
    let node = world.node().expect("ranks of one node");
    world.barrier().expect("all are there");
    let started = Instant::now();
    if rank == wild {
        let mut random = fastrand::Rng::with_seed(seed);
        // SAFETY: no `Buffer` of this process is borrowed now, and what is written is what a broken process might write
        // at any time.
        let segment = unsafe { node.raw_segment() };
        let words = segment.words(0, node.layout().bytes() / 4).expect("all of it");
        // First the rings, then the rank slots, so that there is time to read the garbage.
        let used = node.layout().pool(0).map_or(words.len(), |pool| pool.offset / 4);
        while started.elapsed() < Duration::from_millis(60) {
            let from = if started.elapsed() < Duration::from_millis(30) { 2048 } else { 0 };
            words[random.usize(from..used)].publish(random.u32(..), Site::Plain);
        }
        for slot in [0, 2].map(|other| node.layout().rank_slot(other).expect("a rank of the node")) {
            words[slot.offset / 4 + 9].publish(random.u32(..), Site::Plain);
        }
        return;
    }
    let other = Rank(2 - rank.0);
    let failure = (0_usize..).find_map(|i| {
        assert!(started.elapsed() < 2 * BOUND, "no error is reported");
        // The garbage may have missed the memory that these two use. A longer wait detects it.
        if started.elapsed() > Duration::from_millis(300) {
            return world.receive_into(&mut [0_u8], wild, TAG).err();
        }
        let sent = data(rank.0, KINDS[i % KINDS.len()]);
        let mut into = vec![0_u32; 300_000];
        let exchanged = world.scope(|scope| {
            let request = scope.immediate_send(&sent, other, TAG)?;
            match world.receive_into(&mut into, other, TAG) {
                Ok(_) | Err(Failure::Truncated { .. }) => {}
                Err(failure) => return Err(failure),
            }
            request.wait().map(|_| ())
        });
        exchanged.err().filter(|failure| !matches!(failure, Failure::RemoteTruncated(_)))
    });
    assert!(
        matches!(failure, Some(Failure::Corrupted(_) | Failure::PeerFailed(_) | Failure::PeerFinished(_))),
        "{failure:?}"
    );
    println!("{rank} got an error");
}

/// Every rank sends messages of every kind to every rank, in order; they are received from any source.
fn exchange(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    let sent: Vec<Vec<u32>> = KINDS.iter().map(|words| data(rank, *words)).collect();
    world.scope(|scope| {
        let mut requests = Vec::new();
        for (message, number) in sent.iter().zip(0..) {
            for to in 0..size {
                requests.push(scope.immediate_send(message, Rank(to), Tag(number)).expect("started"));
            }
        }
        let mut received = vec![0; size as usize];
        let mut into = vec![0_u32; 300_000];
        for _ in 0..size as usize * KINDS.len() {
            let status = world.receive_any_into(&mut into, None).expect("arrives");
            let number = &mut received[status.source.0 as usize];
            assert_eq!((status.tag, status.bytes), (Tag(*number as u32), 4 * KINDS[*number]), "in order");
            assert!(into[..KINDS[*number]] == data(status.source.0, KINDS[*number]), "{status:?}");
            *number += 1;
        }
        requests.into_iter().for_each(|request| assert!(request.wait().is_ok()));
    });
    println!("{rank} has received all");
}
