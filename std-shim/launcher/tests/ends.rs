//! Requests that wait for ranks which have finished. This program is its rank program, too.

mod program;

use core::time::Duration;
use std::env;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use program::{expect, run};
use unisono::{Failure, Rank, Tag, World};

const MEANS: [&str; 6] = [
    "-n 3",
    "-n 3 --progress thread",
    "-n 3 --device udp",
    "-n 3 --device udp --progress hybrid --loss 5%",
    "-n 4 --nodes 2",
    "-n 4 --nodes 2 --progress thread",
];
/// Longest time until a waiting rank is notified of an end.
const BOUND: Duration = Duration::from_secs(2);
/// The rank that finishes first.
const FIRST: Rank = Rank(0);
const TAG: Tag = Tag(1);
/// Message lengths in bytes: in a ring entry, in a datagram, by rendezvous.
const LENGTHS: [usize; 4] = [1, 700, 9000, 300_000];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("sends") => sends(&world),
            Some("lately") => lately(&world),
            Some("flood") => flood(&world),
            Some("anyone") => anyone(&world),
            Some("itself") => itself(&world),
            Some("own") => {
                own(world);
                return ExitCode::SUCCESS;
            }
            Some("outlives") => {
                outlives(world);
                return ExitCode::SUCCESS;
            }
            part => panic!("no part {part:?}"),
        }
        let started = Instant::now();
        world.finish().expect("a good end");
        if env::args().nth(1).as_deref() == Some("flood") {
            assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
        }
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("sends_to_a_finished_rank_fail", || everywhere("sends")),
        ("sends_received_last_complete", || everywhere("lately")),
        ("unexpected_messages_do_not_delay_the_end", || everywhere("flood")),
        ("a_receive_from_any_source_fails_when_all_others_have_finished", || everywhere("anyone")),
        ("another_thread_may_still_send_to_its_own_rank", || everywhere("itself")),
        ("messages_to_oneself_do_not_delay_the_end", || everywhere("own")),
        ("a_communicator_that_outlives_its_world_fails", || everywhere("outlives")),
    ])
}

fn everywhere(part: &str) {
    for means in MEANS {
        expect(&run(means, part), 0, &[]);
    }
}

/// Runs a call, which must return within the bound.
fn soon<R>(what: &str, call: impl FnOnce() -> R) -> R {
    let started = Instant::now();
    let result = call();
    assert!(started.elapsed() < BOUND, "{what}: {:?}", started.elapsed());
    result
}

/// Sends that were received complete, in every way of waiting; later ones fail.
fn sends(world: &World) {
    let rounds = 3;
    if world.rank() == FIRST {
        let mut room = vec![0_u8; *LENGTHS.last().expect("some")];
        for _ in 0..rounds {
            for length in LENGTHS {
                for rank in 1..world.size() {
                    for _ in 0..3 {
                        let status = world.receive_into(&mut room, Rank(rank), TAG).expect("received");
                        assert_eq!(status.bytes, length);
                    }
                }
            }
        }
        return;
    }
    for round in 0..rounds {
        for length in LENGTHS {
            let data = vec![round as u8; length];
            world.synchronous_send(&data, FIRST, TAG).expect("received");
            world.send(&data, FIRST, TAG).expect("received");
            world.scope(|scope| {
                let sent = scope.immediate_send(&data, FIRST, TAG).expect("begun");
                if round + 1 == rounds && world.rank() == Rank(1) {
                    thread::sleep(Duration::from_millis(60));
                }
                sent.wait().expect("received");
            });
        }
    }
    let parted = Err(Failure::PeerFinished(FIRST));
    for length in LENGTHS {
        let data = vec![9_u8; length];
        assert_eq!(soon("synchronous", || world.synchronous_send(&data, FIRST, TAG)), parted, "{length} bytes");
        world.scope(|scope| {
            let sent = scope.immediate_synchronous_send(&data, FIRST, TAG).expect("begun");
            let other = scope.immediate_synchronous_send(&data, FIRST, Tag(7)).expect("begun");
            assert_eq!(soon("immediate", || sent.wait()).map(|_| ()), parted, "{length} bytes");
            drop(other);
        });
        if length == 300_000 {
            assert_eq!(soon("announced", || world.send(&data, FIRST, TAG)), parted);
        }
    }
    assert_eq!(soon("a receive", || world.receive_into(&mut [0_u8], FIRST, TAG)).map(|_| ()), parted);
}

/// A send that is received after the sender last asked about it, and before the receiver finishes, completes.
fn lately(world: &World) {
    let lengths = [700, 3000, 9000];
    if world.rank() == FIRST {
        let mut room = [0_u8; 9000];
        for _ in lengths {
            world.receive_into(&mut room, Rank(1), TAG).expect("received");
        }
        return;
    }
    if world.rank() != Rank(1) {
        return;
    }
    // Tests and waits ask the receiver; probes do not.
    let goes_on = |time: Duration| {
        let started = Instant::now();
        while started.elapsed() < time {
            assert!(world.immediate_probe(Rank(1), None).is_ok_and(|found| found.is_none()));
        }
    };
    let data = lengths.map(|length| vec![3_u8; length]);
    world.scope(|scope| {
        let never = scope.immediate_synchronous_send(&[1_u8], FIRST, Tag(7)).expect("begun");
        goes_on(Duration::from_millis(150));
        let sent = data.each_ref().map(|data| scope.immediate_send(data, FIRST, TAG).expect("begun"));
        scope.flush();
        goes_on(Duration::from_millis(300));
        sent.into_iter().for_each(|sent| _ = sent.wait().expect("received"));
        assert_eq!(never.wait().map(|_| ()), Err(Failure::PeerFinished(FIRST)));
    });
}

/// More unexpected messages than a receiver stores.
fn flood(world: &World) {
    let own = world.rank();
    // A message to itself that is too long to be stored with its header.
    world.send(&vec![1_u8; 200_000], own, TAG).expect("a copy");
    if own == FIRST {
        return;
    }
    let data = vec![1_u8; 3000];
    let mut refused = None;
    for _ in 0..5000 {
        if let Err(failure) = soon("a send", || world.send(&data, FIRST, TAG)) {
            refused = Some(failure);
            break;
        }
    }
    assert_eq!(refused, Some(Failure::PeerFinished(FIRST)));
}

fn anyone(world: &World) {
    if world.rank() != FIRST {
        return world.send(&[world.rank().0], FIRST, TAG).expect("sent");
    }
    let mut word = [0_u32];
    for _ in 1..world.size() {
        world.receive_any_into(&mut word, None).expect("sent");
    }
    let failure = soon("a receive", || world.receive_any_into(&mut word, None)).expect_err("nobody is left");
    assert!(matches!(failure, Failure::PeerFinished(rank) if rank != FIRST), "{failure}");
    // A receive that no thread waits for may still match a message from this rank itself.
    world.scope(|scope| {
        let posted = scope.immediate_receive_into(&mut word, None, TAG).expect("begun");
        thread::sleep(Duration::from_millis(100));
        assert!(world.immediate_probe(None, None).is_ok_and(|found| found.is_none()));
        world.send(&[77_u32], FIRST, TAG).expect("sent");
        posted.wait().expect("sent");
    });
    assert_eq!(word, [77]);
}

/// The last message comes from a thread that uses the World only then.
fn itself(world: &World) {
    if world.rank() != FIRST {
        return;
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(400));
            world.send(&[5_u32], FIRST, TAG).expect("sent");
        });
        let mut word = [0_u32];
        world.receive_any_into(&mut word, None).expect("sent");
        assert_eq!(word, [5]);
    });
}

/// A thread receives on a duplicate while the World finishes: the receive fails first, and senders to it fail.
fn outlives(world: World) {
    let (rank, other) = (world.rank(), world.duplicate().expect("a duplicate"));
    if rank == Rank(1) {
        thread::sleep(Duration::from_millis(300));
        let sent = soon("a send", || other.synchronous_send(&[1_u32], FIRST, TAG));
        assert_eq!(sent, Err(Failure::PeerFinished(FIRST)));
    }
    thread::scope(|scope| {
        if rank == FIRST {
            scope.spawn(|| {
                let ended = other.receive_into(&mut [0_u32], Rank(1), TAG);
                assert_eq!(ended.map(|_| ()), Err(Failure::Finished));
                assert_eq!(other.send(&[0_u32], Rank(1), TAG), Err(Failure::Finished));
            });
            thread::sleep(Duration::from_millis(20));
        }
        world.finish().expect("a good end");
    });
}

/// A thread of the first rank has sent to its own rank, and the receive has matched it, when the World finishes.
fn own(world: World) {
    let (rank, other) = (world.rank(), world.duplicate().expect("a duplicate"));
    if rank != FIRST {
        let sent = soon("a send", || world.synchronous_send(&[1_u8], FIRST, TAG));
        assert_eq!(sent, Err(Failure::PeerFinished(FIRST)));
        world.finish().expect("a good end");
        return;
    }
    let (begun, has_begun) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (data, mut into) = (vec![1_u8; 300_000], vec![0; 300_000]);
            other.scope(|scope| {
                let received = scope.immediate_receive_into(&mut into[..], rank, TAG).expect("begun");
                let sent = scope.immediate_synchronous_send(&data[..], rank, TAG).expect("begun");
                begun.send(()).expect("the main thread receives");
                thread::sleep(Duration::from_millis(100));
                sent.wait().expect("received");
                received.wait().expect("received");
            });
        });
        has_begun.recv().expect("begun");
        world.finish().expect("a good end");
    });
}
