//! Point-to-point messages of a World, with the other ranks of its job on threads of the same process.

mod job;

use core::num::NonZero;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use job::{EVERY_WAY, Over, data, job, job_in_grants, job_over};
use rustix::time::{ClockId, clock_gettime};
use unisono::environment::{Settings, TransportSettings};
use unisono::{AllocateError, Failure, Rank, Status, Tag, World, WorldError};
use unisono_bootstrap::{LocalRecord, Membership};
use unisono_core::ids::Incarnation;
use unisono_shmem::layout::WaitMode;

const TAG: Tag = Tag(1);

const FAULTS: [(&str, &str); 5] = [("LOSS", "5%"), ("REORDER", "5%"), ("DUP", "2%"), ("CORRUPT", "1%"), ("SEED", "11")];

/// Every rank sends messages of all sizes to every other one.
fn everyone_to_everyone(world: World) {
    let (rank, size) = (world.rank().0, world.size());
    // Across every threshold: ring entry, bulk area, fragments, single copy from another process, and single copy in
    // parts.
    let lengths = [0, 1, 2, 9, 10, 12, 13, 300, 4_095, 4_097, 5_000, 16_383, 16_385, 40_000, 600_000];
    for (round, words) in lengths.into_iter().enumerate() {
        let sent = data(rank as usize * 100 + round, words);
        let mut received = vec![vec![0_u32; words]; size as usize];
        world.scope(|scope| {
            let mut requests = Vec::new();
            for (from, buffer) in received.iter_mut().enumerate() {
                let request = scope.immediate_receive_into(buffer, Rank(from as u32), Tag(round as u32));
                requests.push(request.expect("started"));
            }
            for to in 0..size {
                requests.push(scope.immediate_send(&sent, Rank(to), Tag(round as u32)).expect("started"));
            }
            for request in requests {
                request.wait().expect("arrives");
            }
        });
        for (from, buffer) in received.iter().enumerate() {
            assert_eq!(*buffer, data(from * 100 + round, words), "round {round}, {from} to {rank}");
        }
    }
    world.finish().expect("all ranks finish");
}

#[test]
fn messages_of_all_sizes_arrive_in_every_progress_mode() {
    for over in EVERY_WAY {
        for progress in ["engine", "thread", "hybrid"] {
            job_over(over, 3, &[("PROGRESS", progress)], everyone_to_everyone);
        }
    }
}

#[test]
fn messages_of_all_sizes_arrive_under_faults() {
    for (progress, mtu) in [("engine", "1500"), ("hybrid", "65507")] {
        let mut settings = FAULTS.to_vec();
        settings.extend([("PROGRESS", progress), ("MTU", mtu)]);
        job(3, &settings, everyone_to_everyone);
    }
}

#[test]
fn tags_select_and_order_holds_within_a_tag() {
    EVERY_WAY.into_iter().for_each(tags_select_and_order_holds_within_a_tag_over);
}

fn tags_select_and_order_holds_within_a_tag_over(over: Over) {
    job_over(over, 2, &[], |world| {
        if world.rank() == Rank(0) {
            for i in 0..100_u32 {
                world.send(&[i], Rank(1), Tag(i % 2)).expect("sent");
            }
            world.send(&data(5, 100_000), Rank(1), Tag(2)).expect("sent");
            world.send(&[8_u32], Rank(1), Tag(8)).expect("sent");
            world.send(&[9_u32], Rank(1), Tag(9)).expect("sent");
        } else {
            let mut long = vec![0; 100_000];
            // The last message first.
            assert_eq!(world.receive_into(&mut long, Rank(0), Tag(2)).expect("arrives").bytes, 400_000);
            assert_eq!(long, data(5, 100_000));
            for tag in [1, 0] {
                for i in 0..50 {
                    let mut value = [0_u32];
                    world.receive_into(&mut value, Rank(0), Tag(tag)).expect("arrives");
                    assert_eq!(value, [i * 2 + tag]);
                }
            }
            let mut value = [0_u32];
            let status = world.receive_into(&mut value, None, Tag(9)).expect("arrives");
            assert_eq!((status.source, status.tag, value), (Rank(0), Tag(9), [9]));
            let status = world.receive_into(&mut value, Rank(0), None).expect("arrives");
            assert_eq!((status.source, status.tag, value), (Rank(0), Tag(8), [8]));
        }
        world.finish().expect("all ranks finish");
    });
}

#[test]
fn receive_from_anyone_names_the_source() {
    EVERY_WAY.into_iter().for_each(receive_from_anyone_names_the_source_over);
}

fn receive_from_anyone_names_the_source_over(over: Over) {
    job_over(over, 4, &[], |world| {
        if world.rank() == Rank(0) {
            let mut seen = [false; 4];
            for _ in 1..4 {
                let mut value = [0_u32];
                let status = world.receive_any_into(&mut value, None).expect("arrives");
                assert_eq!((status.source.0, status.tag, status.bytes), (value[0], Tag(value[0] + 7), 4));
                seen[value[0] as usize] = true;
            }
            assert_eq!(seen, [false, true, true, true]);
        } else {
            let own = world.rank().0;
            world.send(&[own], Rank(0), Tag(own + 7)).expect("sent");
        }
        world.finish().expect("all ranks finish");
    });
}

#[test]
fn message_longer_than_its_receive_is_an_error_at_both_ends_or_at_the_receiver() {
    for over in EVERY_WAY {
        job_over(over, 2, &[("MTU", "1500")], |world| {
            let long = world.eager_limit();
            for words in [4_usize, 400, long] {
                if world.rank() == Rank(0) {
                    let sent = world.send(&data(1, words), Rank(1), TAG);
                    let announced = words * 4 > long;
                    assert_eq!(sent, if announced { Err(Failure::RemoteTruncated(Rank(1))) } else { Ok(()) });
                } else {
                    let failed = world.receive_into(&mut [0_u32; 3], Rank(0), TAG);
                    assert_eq!(failed, Err(Failure::Truncated { bytes: words as u64 * 4 }));
                }
            }
            world.finish().expect("all ranks finish");
        });
    }
}

#[test]
fn misuse_is_a_typed_error() {
    job(1, &[], |world| {
        assert_eq!(world.send(&[1_u8], Rank(1), TAG), Err(Failure::UnknownRank(Rank(1))));
        assert_eq!(world.receive_into(&mut [1_u8], Rank(9), TAG), Err(Failure::UnknownRank(Rank(9))));
        world.finish().expect("a job of one finishes");
    });
}

#[test]
fn test_returns_the_completion_once() {
    EVERY_WAY.into_iter().for_each(test_returns_the_completion_once_over);
}

fn test_returns_the_completion_once_over(over: Over) {
    job_over(over, 2, &[], |world| {
        let mut value = [0_u64];
        if world.rank() == Rank(0) {
            world.scope(|scope| {
                let request = scope.immediate_receive_into(&mut value, Rank(1), TAG).expect("started");
                let status = loop {
                    if let Some(result) = request.test() {
                        break result.expect("arrives");
                    }
                };
                assert_eq!((status.source, status.bytes), (Rank(1), 8));
                assert!(request.test() == Some(Ok(Status::EMPTY)) && request.is_done());
            });
            assert_eq!(value, [77]);
        } else {
            thread::sleep(Duration::from_millis(20));
            let began = Instant::now();
            world.scope(|scope| {
                // Most likely it was copied, and had ended before it was asked.
                let request = scope.immediate_send(&[77_u64], Rank(0), TAG).expect("started");
                while request.test().is_none() {
                    assert!(began.elapsed() < Duration::from_secs(20), "it never ends");
                }
            });
        }
        world.finish().expect("all ranks finish");
    });
}

#[test]
fn buffers_are_returned_and_posted_again() {
    const ROUNDS: u32 = 40;
    job(2, &FAULTS, |world| {
        if world.rank() == Rank(0) {
            for round in 0..ROUNDS {
                world.send(&[round; 500], Rank(1), TAG).expect("sent");
            }
        } else {
            let mut memory = [[0_u32; 500]; 2];
            world.scope(|scope| {
                let [first, second] = &mut memory;
                let start = |buffer| scope.immediate_receive_returning(buffer, Rank(0), TAG).expect("started");
                let mut loans = vec![start(first.as_mut_slice()), start(second)];
                for round in 0..ROUNDS {
                    let (status, buffer) = loans.remove(0).wait();
                    assert_eq!(status.expect("arrives").bytes, 2000);
                    assert!(buffer.iter().all(|word| *word == round), "{round}");
                    buffer.fill(u32::MAX);
                    if round + 2 < ROUNDS {
                        loans.push(start(buffer));
                    }
                }
            });
            assert_eq!(memory, [[u32::MAX; 500]; 2]);
        }
        world.finish().expect("all is well");
    });
}

#[test]
fn failed_rank_is_reported_to_ranks_that_wait_for_it() {
    EVERY_WAY.into_iter().for_each(failed_rank_is_reported_to_ranks_that_wait_for_it_over);
}

fn failed_rank_is_reported_to_ranks_that_wait_for_it_over(over: Over) {
    for progress in ["engine", "thread", "hybrid"] {
        let survivors = AtomicU32::new(0);
        let outcome = std::panic::catch_unwind(|| {
            job_over(over, 3, &[("PROGRESS", progress), ("ON_DEATH", "tell")], |world| {
                if world.rank() == Rank(2) {
                    // Give the others time to wait.
                    thread::sleep(Duration::from_millis(30));
                    world.send(&[1_u8], Rank(0), Tag(9)).expect("sent");
                    world.send(&[1_u8], Rank(1), Tag(9)).expect("sent");
                    std::panic::resume_unwind(Box::new("failed"));
                }
                world.receive_into(&mut [0_u8], Rank(2), Tag(9)).expect("arrives");
                let started = Instant::now();
                let failed = world.receive_into(&mut [0_u8], Rank(2), TAG);
                assert_eq!(failed, Err(Failure::PeerFailed(Rank(2))));
                assert!(started.elapsed() < Duration::from_secs(3), "after {:?}", started.elapsed());
                let failed = world.send(&[0_u8], Rank(2), TAG);
                assert_eq!(failed, Err(Failure::PeerFailed(Rank(2))));
                world.finish().expect("the others finish");
                survivors.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert!(outcome.is_err(), "rank 2 panics");
        assert_eq!(survivors.into_inner(), 2, "the others do not panic");
    }
}

#[test]
fn world_is_used_from_several_threads() {
    EVERY_WAY.into_iter().for_each(world_is_used_from_several_threads_over);
}

fn world_is_used_from_several_threads_over(over: Over) {
    job_over(over, 2, &[("PROGRESS", "hybrid")], |world| {
        let other = Rank(1 - world.rank().0);
        thread::scope(|scope| {
            for thread in 0..4_u32 {
                let world = &world;
                scope.spawn(move || {
                    for i in 0..200_u32 {
                        world.send(&data(i as usize, 50), other, Tag(thread)).expect("sent");
                        let mut value = vec![0; 50];
                        world.receive_into(&mut value, other, Tag(thread)).expect("arrives");
                        assert_eq!(value, data(i as usize, 50));
                    }
                });
            }
        });
        world.finish().expect("all ranks finish");
    });
}

#[test]
fn panic_within_a_scope_ends_although_its_requests_cannot() {
    EVERY_WAY.into_iter().for_each(panic_within_a_scope_ends_although_its_requests_cannot_over);
}

fn panic_within_a_scope_ends_although_its_requests_cannot_over(over: Over) {
    let (started, survivors) = (Instant::now(), AtomicU32::new(0));
    let outcome = std::panic::catch_unwind(|| {
        job_over(over, 2, &[("PROGRESS", "hybrid")], |world| {
            let mut value = [0_u32; 5_000];
            if world.rank() == Rank(0) {
                world.scope(|scope| {
                    let _never = scope.immediate_receive_into(&mut value, Rank(1), TAG).expect("started");
                    let _waits = scope.immediate_send(&[7_u8; 200_000], Rank(1), TAG).expect("started");
                    std::panic::resume_unwind(Box::new("failed"));
                });
            } else {
                let failed = world.receive_into(&mut value, Rank(0), Tag(9));
                assert_eq!(failed, Err(Failure::PeerFailed(Rank(0))));
                survivors.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    assert!(outcome.is_err(), "rank 0 panics");
    assert_eq!(survivors.into_inner(), 1, "the other does not panic");
    assert!(started.elapsed() < Duration::from_secs(5), "after {:?}", started.elapsed());
}

#[test]
fn death_before_a_receive_from_anyone_ends_it_once() {
    EVERY_WAY.into_iter().for_each(death_before_a_receive_from_anyone_ends_it_once_over);
}

fn death_before_a_receive_from_anyone_ends_it_once_over(over: Over) {
    let survivors = AtomicU32::new(0);
    let outcome = std::panic::catch_unwind(|| {
        job_over(over, 3, &[("PROGRESS", "hybrid"), ("ON_DEATH", "tell")], |world| {
            if world.rank() == Rank(2) {
                world.receive_into(&mut [0_u8], Rank(0), TAG).expect("arrives");
                std::panic::resume_unwind(Box::new("failed"));
            }
            if world.rank() == Rank(0) {
                world.send(&[1_u8], Rank(2), TAG).expect("sent");
                // The failure is known before anything waits for the rank.
                let started = Instant::now();
                while started.elapsed() < Duration::from_millis(300) {
                    world.is_flushed();
                }
                let failed = world.receive_any_into(&mut [0_u8], None);
                assert_eq!(failed, Err(Failure::PeerFailed(Rank(2))));
                // After the error, the rank continues with the live ranks.
                world.send(&[1_u8], Rank(1), TAG).expect("sent");
                let status = world.receive_any_into(&mut [0_u8], None).expect("arrives");
                assert_eq!(status.source, Rank(1));
            } else {
                world.receive_into(&mut [0_u8], Rank(0), TAG).expect("arrives");
                world.send(&[1_u8], Rank(0), TAG).expect("sent");
            }
            world.finish().expect("the others finish");
            survivors.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert!(outcome.is_err(), "rank 2 panics");
    assert_eq!(survivors.into_inner(), 2, "the others do not panic");
}

#[test]
fn a_process_joins_again_when_it_has_finished() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let variables = [
        ("UNISONO_RANK", String::from("0")),
        ("UNISONO_SIZE", String::from("1")),
        ("UNISONO_BOOTSTRAP", format!("127.0.0.1:{port}")),
        ("UNISONO_SECRET", String::from("0123456789abcdef0123456789abcdef")),
        ("UNISONO_DEVICE", String::from("udp")),
    ];
    let settings = variables.map(|(name, value)| (name.into(), value.into()));
    let settings = Settings::from_variables(settings).expect("settings");
    for _ in 0..2 {
        let world = World::join_as(&settings).expect("a world");
        assert!(matches!(World::join_as(&settings), Err(WorldError::Joined)), "its rank is taken");
        world.finish().expect("a good end");
    }
}

#[test]
fn job_that_is_ended_while_the_others_finish_is_no_success() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let settings = |rank: u32| {
        let variables = [
            ("UNISONO_RANK", rank.to_string()),
            ("UNISONO_SIZE", String::from("2")),
            ("UNISONO_BOOTSTRAP", format!("127.0.0.1:{port}")),
            ("UNISONO_SECRET", String::from("0123456789abcdef0123456789abcdef")),
            ("UNISONO_DEVICE", String::from("udp")),
        ];
        Settings::from_variables(variables.map(|(name, value)| (name.into(), value.into()))).expect("settings")
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let lanes = [9, 10].map(|port| ([127, 0, 0, 1], port).into());
            let settings = settings(1);
            let offer = LocalRecord {
                location: unisono_bootstrap::Location::default(),
                link_megabits: 0,
                incarnation: Incarnation(77),
                addresses: lanes,
                further_rails: Vec::new(),
                rails_max: 1,
                checksums: true,
                mtu: 1472,
                digests: settings.digests(),
            };
            let mut membership =
                Membership::join(&settings.join_options().expect("a secret"), offer).expect("a rank slot");
            thread::sleep(Duration::from_millis(200));
            membership.abort(3);
            thread::sleep(Duration::from_millis(200));
        });
        let finished = World::join_as(&settings(0)).expect("a world").finish();
        assert_eq!(finished, Err(Failure::Aborted { rank: Rank(1), code: 3 }));
    });
}

#[test]
fn buffers_in_the_segment_are_sent_from_there() {
    for over in EVERY_WAY {
        job_over(over, 3, &[], |world| {
            let (rank, size) = (world.rank().0, world.size());
            for words in [1, 12, 13, 1_024, 1_025, 5_000, 60_000] {
                let mut from = world.allocate::<u32>(words).expect("the pool has room");
                assert!(from.iter().all(|word| *word == 0) && from.is_shared() == world.node().is_some());
                from.copy_from_slice(&data(rank as usize, words));
                let mut into = world.allocate::<u32>(words).expect("the pool has room");
                for distance in 0..size {
                    let (to, source) = ((rank + distance) % size, (rank + size - distance) % size);
                    world.scope(|scope| {
                        let sent = scope.immediate_send(&from, Rank(to), TAG).expect("started");
                        let status = world.receive_into(&mut into, Rank(source), TAG).expect("arrives");
                        assert_eq!((status.bytes, status.source), (words * 4, Rank(source)));
                        sent.wait().expect("sent");
                    });
                    assert_eq!(*into, data(source as usize, words));
                }
            }
            world.finish().expect("all ranks finish");
        });
    }
}

#[test]
fn pool_allocates_all_it_has_and_frees_it() {
    job_over(Over::Memory(WaitMode::Oversubscribed), 1, &[("DEVICE", "shm")], |world| {
        for _ in 0..3 {
            let whole = world.allocate::<u8>(1 << 20).expect("the whole pool");
            assert!(matches!(world.allocate::<u8>(1), Err(AllocateError::Full { bytes: 1, left: 0 })));
            drop(whole);
            let mut parts: Vec<_> = (0..8).map(|_| world.allocate::<u64>(1 << 14).expect("an eighth")).collect();
            parts.swap(0, 5);
            parts.truncate(4);
            let left = world.allocate::<u8>((1 << 20) + 1).expect_err("more than there is");
            assert!(matches!(left, AllocateError::Full { left, .. } if left < 1 << 20));
            parts.swap(1, 2);
        }
        assert!(matches!(world.allocate::<u64>(usize::MAX / 4), Err(AllocateError::TooLong)));
        world.finish().expect("a job of one finishes");
    });
}

#[test]
fn out_of_memory_is_an_error() {
    job(1, &[], |world| {
        let bytes = isize::MAX as usize - 15;
        assert!(matches!(world.allocate::<u8>(bytes), Err(AllocateError::NoMemory { bytes: all }) if all == bytes));
        let some = world.allocate::<u32>(9).expect("memory");
        assert_eq!((&*some, some.is_shared()), (&[0; 9][..], false));
        drop(some);
        assert!(world.allocate::<u32>(0).expect("no memory").is_empty());
        world.finish().expect("a job of one finishes");
    });
}

/// More messages than rings and bulk areas hold, in both directions, before anything is received.
#[test]
fn many_outstanding_messages_arrive_in_order() {
    const MESSAGES: usize = 600;
    for over in EVERY_WAY {
        job_over(over, 2, &[], |world| {
            let other = Rank(1 - world.rank().0);
            let words = |i: usize| [1, 30, 3_000, 2, 9_000][i % 5];
            let sent: Vec<_> = (0..MESSAGES).map(|i| data(i, words(i))).collect();
            world.scope(|scope| {
                let mut requests = Vec::new();
                for message in &sent {
                    requests.push(scope.immediate_send(message, other, TAG).expect("started"));
                }
                for (i, message) in sent.iter().enumerate() {
                    let mut into = vec![0_u32; words(i)];
                    let status = world.receive_into(&mut into, other, TAG).expect("arrives");
                    assert_eq!((status.bytes, &into), (words(i) * 4, message), "{i}");
                }
                requests.into_iter().for_each(|request| assert!(request.wait().is_ok()));
            });
            world.finish().expect("all ranks finish");
        });
    }
}

/// Many sends wait for their clear-to-send: they are not scanned in every round. CPU time of this thread, independent
/// of other load.
#[test]
fn many_sends_to_posted_receives_take_time_in_proportion() {
    const MESSAGES: usize = 12_000;
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time");
    job_over(Over::Udp, 2, &[], |world| {
        let (other, started) = (Rank(1 - world.rank().0), now());
        let (sent, mut received) = ([7_u8; 4], vec![[0_u8; 4]; MESSAGES]);
        world.scope(|scope| {
            for into in &mut received {
                drop(scope.immediate_receive_into(into, other, TAG).expect("started"));
            }
            for _ in 0..MESSAGES {
                drop(scope.immediate_send(&sent, other, TAG).expect("started"));
            }
        });
        let taken = now() - started;
        assert!(received.iter().all(|into| *into == sent));
        assert!(taken < Duration::from_secs(4), "{taken:?}");
        world.finish().expect("all ranks finish");
    });
}

#[test]
fn message_to_oneself_arrives() {
    for over in EVERY_WAY {
        job_over(over, 2, &[], |world| {
            for words in [0, 5, 20_000] {
                world.send(&data(3, words), world.rank(), TAG).expect("sent");
                let mut into = vec![0_u32; words];
                world.receive_into(&mut into, world.rank(), TAG).expect("arrives");
                assert_eq!(into, data(3, words));
            }
            world.finish().expect("all ranks finish");
        });
    }
}

#[test]
fn probes_peek_and_match_and_cancel_withdraws() {
    for over in EVERY_WAY {
        job_over(over, 2, &[], |world| {
            let other = Rank(1 - world.rank().0);
            for words in [1, 700, 40_000] {
                if world.rank() == Rank(0) {
                    let (sent, last) = (data(1, words), data(2, words));
                    world.scope(|scope| {
                        let first = scope.immediate_send(&sent, other, Tag(1)).expect("started");
                        let second = scope.immediate_synchronous_send(&last, other, Tag(1)).expect("started");
                        first.wait().expect("sent");
                        second.wait().expect("sent");
                    });
                    world.synchronous_send(&data(3, words), other, Tag(2)).expect("received");
                } else {
                    let mut never = [0_u32];
                    world.scope(|scope| {
                        let request = scope.immediate_receive_into(&mut never, other, Tag(77)).expect("started");
                        assert!(request.cancel() && !request.cancel());
                        assert_eq!(request.wait(), Ok(Status::EMPTY));
                    });
                    let mut into = vec![0_u32; words];
                    let status = world.probe(None, Tag(1)).expect("there is one");
                    assert_eq!((status.source, status.tag, status.bytes), (other, Tag(1), words * 4));
                    let message = world.matched_probe(other, None).expect("the first");
                    assert_eq!(message.status(), status);
                    world.receive_into(&mut into, other, Tag(1)).expect("the second");
                    assert_eq!(into, data(2, words));
                    assert_eq!(message.receive_into(&mut into), Ok(status));
                    assert_eq!(into, data(1, words), "it was matched once");
                    assert!(world.immediate_probe(other, Tag(5)).expect("it lives").is_none());
                    world.receive_into(&mut into, other, Tag(2)).expect("the third");
                    assert_eq!(into, data(3, words));
                }
            }
            world.finish().expect("all ranks finish");
        });
    }
}

#[test]
fn long_messages_arrive_in_many_grants() {
    let grant = NonZero::new(1000);
    EVERY_WAY.into_iter().for_each(|over| job_in_grants(over, grant, 3, &[], everyone_to_everyone));
    job_in_grants(Over::Udp, grant, 3, &FAULTS, everyone_to_everyone);
}

#[test]
fn ranks_with_different_grants_get_an_error() {
    let (half, whole) = (Settings::default(), Settings::default());
    let half = Settings { transport: TransportSettings { grant: NonZero::new(1000), ..half.transport }, ..half };
    assert_ne!(half.digests(), whole.digests());
}

/// Requests that wait for a finished rank fail, after all its sends were received.
#[test]
fn requests_that_wait_for_a_finished_rank_fail() {
    let messages = 2000;
    for over in EVERY_WAY {
        job_over(over, 3, &[], |world| {
            let (left, last) = (Rank(0), Rank(2));
            if world.rank() == left {
                for number in 0..messages {
                    world.send(&data(number, 1 + number % 900), last, TAG).expect("sent");
                }
                return;
            }
            let (mut word, mut longer) = ([0_u32; 1], [0_u32; 900]);
            if world.rank() == last {
                for number in 0..messages {
                    let status = world.receive_into(&mut longer, left, TAG).expect("sent before");
                    assert_eq!(longer[..status.bytes / 4], data(number, 1 + number % 900));
                }
                // The other ranks are running.
                world.send(&word, Rank(1), TAG).expect("sent");
            } else {
                world.receive_into(&mut word, last, TAG).expect("sent");
            }
            for _ in 0..2 {
                assert_eq!(world.receive_into(&mut word, left, TAG), Err(Failure::PeerFinished(left)), "{over:?}");
            }
            assert_eq!(world.synchronous_send(&word, left, TAG), Err(Failure::PeerFinished(left)), "{over:?}");
            world.finish().expect("a good end");
        });
    }
}
