//! Requests: wait and test for one, any, some or all; cancel; and test again after completion.

mod job;

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::{Mutex, mpsc};
use std::thread;

use job::{EVERY_WAY, data, everywhere, job, job_over};
use unisono::collective::{CollectiveError, SystemOperation};
use unisono::{
    AnyRequest, Failure, Rank, RecvRequest, Request, RequestFailed, Status, Tag, World, test_all, test_any, test_some,
    wait_all, wait_any, wait_some,
};

/// Message lengths in words: in a ring entry, in the bulk area, by rendezvous.
const KINDS: [usize; 3] = [1, 700, 40_000];
const GO: Tag = Tag(99);

/// Rank 0 sends a message with each tag, each after a word from rank 1.
fn send_on_request(world: &World, words: usize, tags: impl IntoIterator<Item = u32>) {
    for tag in tags {
        world.receive_into(&mut [0_u8], Rank(1), GO).expect("arrives");
        world.send(&data(tag as usize, words), Rank(1), Tag(tag)).expect("sent");
    }
}

fn of_rank_0(tag: usize, words: usize) -> Status {
    Status { source: Rank(0), tag: Tag(tag as u32), bytes: words * 4 }
}

#[test]
fn one_after_the_other_ends_in_the_order_of_the_messages() {
    everywhere(2, |world| {
        const ORDER: [u32; 4] = [2, 0, 3, 1];
        for words in KINDS {
            if world.rank() == Rank(0) {
                send_on_request(world, words, ORDER);
                continue;
            }
            let mut buffers = vec![vec![0; words]; ORDER.len()];
            world.scope(|scope| {
                let start =
                    |(tag, buffer)| scope.immediate_receive_returning(buffer, Rank(0), Tag(tag)).expect("started");
                let mut loans: Vec<(u32, RecvRequest<'_, u32>)> = (0..)
                    .zip(buffers.iter_mut().map(Vec::as_mut_slice))
                    .map(|(tag, buffer)| (tag, start((tag, buffer))))
                    .collect();
                for tag in ORDER {
                    let all = loans.iter().map(|(_, loan)| loan);
                    assert_eq!(test_any(all.clone()), None, "nothing has been sent");
                    world.send(&[1_u8], Rank(0), GO).expect("sent");
                    let (index, status) = wait_any(all.clone()).expect("arrives").expect("one is left");
                    assert_eq!((loans[index].0, status), (tag, of_rank_0(tag as usize, words)));
                    let (again, buffer) = loans.swap_remove(index).1.wait();
                    assert_eq!(again, Ok(Status::EMPTY), "its completion was returned before");
                    assert_eq!(buffer, data(tag as usize, words));
                }
                assert_eq!(wait_any(loans.iter().map(|(_, loan)| loan)), Ok(None));
            });
        }
    });
}

#[test]
fn some_are_those_that_have_ended() {
    everywhere(2, |world| {
        for words in KINDS {
            if world.rank() == Rank(0) {
                send_on_request(world, words, [1]);
                send_on_request(world, words, [0, 2]);
                continue;
            }
            let mut buffers = vec![vec![0; words]; 3];
            world.scope(|scope| {
                let start = |(tag, buffer)| scope.immediate_receive_into(buffer, Rank(0), Tag(tag)).expect("started");
                let requests: Vec<Request<'_>> =
                    (0..).zip(buffers.iter_mut().map(Vec::as_mut_slice)).map(start).collect();
                assert_eq!(test_some(&requests), None);
                world.send(&[1_u8], Rank(0), GO).expect("sent");
                assert_eq!(wait_some(&requests), Ok(vec![(1, of_rank_0(1, words))]));
                assert_eq!(
                    test_some(&requests),
                    None,
                    "the others are in progress, and the completed one was returned before"
                );
                world.send(&[1_u8; 1], Rank(0), GO).expect("sent");
                world.send(&[1_u8; 1], Rank(0), GO).expect("sent");
                let mut found = Vec::new();
                while found.len() < 2 {
                    let some = wait_some(&requests).expect("arrives");
                    assert!(!some.is_empty(), "two are left");
                    found.extend(some);
                }
                found.sort_unstable_by_key(|(index, _)| *index);
                assert_eq!(found, [0, 2].map(|tag| (tag, of_rank_0(tag, words))));
                assert_eq!((wait_some(&requests), test_some(&requests)), (Ok(vec![]), Some(Ok(vec![]))));
            });
        }
    });
}

#[test]
fn all_complete_in_their_order() {
    everywhere(2, |world| {
        let other = Rank(1 - world.rank().0);
        for words in KINDS {
            let sent: Vec<Vec<u32>> = (0..5).map(|i| data(i, words + i)).collect();
            let mut buffers: Vec<Vec<u32>> = (0..5).map(|i| vec![0; words + i]).collect();
            world.scope(|scope| {
                let start = |(i, into)| scope.immediate_receive_into(into, other, Tag(i)).expect("started");
                let receives: Vec<Request<'_>> =
                    (0..).zip(buffers.iter_mut().map(Vec::as_mut_slice)).map(start).collect();
                let sends: Vec<Request<'_>> = (0..5)
                    .rev()
                    .map(|i| scope.immediate_send(&sent[i], other, Tag(i as u32)).expect("started"))
                    .collect();
                let statuses = if words == 1 {
                    loop {
                        if let Some(ended) = test_all(receives.iter().chain(&sends)) {
                            break ended;
                        }
                    }
                } else {
                    wait_all(receives.iter().chain(&sends))
                };
                let statuses = statuses.expect("all is well");
                for (i, status) in statuses[..5].iter().enumerate() {
                    let expected = Status { source: other, tag: Tag(i as u32), bytes: (words + i) * 4 };
                    assert_eq!(*status, expected);
                }
                assert_eq!(statuses.len(), 10);
                assert_eq!(wait_all(&receives), Ok(vec![Status::EMPTY; 5]), "their completions were returned before");
                assert_eq!((test_all(&sends), wait_any(&sends)), (Some(Ok(vec![Status::EMPTY; 5])), Ok(None)));
                receives.into_iter().chain(sends).for_each(|request| assert_eq!(request.wait(), Ok(Status::EMPTY)));
            });
            assert_eq!(buffers, sent);
        }
    });
}

#[test]
fn empty_sets_complete_at_once() {
    job(1, &[], |world| {
        let none: [&Request<'_>; 0] = [];
        assert_eq!((wait_any(none), test_any(none)), (Ok(None), Some(Ok(None))));
        assert_eq!((wait_some(none), test_some(none)), (Ok(vec![]), Some(Ok(vec![]))));
        assert_eq!((wait_all(none), test_all(none)), (Ok(vec![]), Some(Ok(vec![]))));
        world.finish().expect("a good end");
    });
}

#[test]
fn a_send_that_completes_at_once_is_returned_once_and_a_request_may_be_listed_twice() {
    job(1, &[], |world| {
        let own = world.rank();
        let (mut first, mut second) = ([0_u32], [0_u32]);
        world.scope(|scope| {
            let [one, two] = [1, 2].map(|tag| scope.immediate_send(&[7_u32], own, Tag(tag)).expect("started"));
            assert_eq!(wait_any([&one, &two]), Ok(Some((0, Status::EMPTY))));
            assert_eq!(wait_some([&one, &two, &two]), Ok(vec![(1, Status::EMPTY)]));
            assert_eq!(wait_any([&one, &two]), Ok(None));
            let one = scope.immediate_receive_into(&mut first, own, Tag(1)).expect("started");
            let two = scope.immediate_receive_into(&mut second, own, Tag(2)).expect("started");
            let status = |tag| Status { source: own, tag: Tag(tag), bytes: 4 };
            assert_eq!(wait_all([&one, &two, &one]), Ok(vec![status(1), status(2), Status::EMPTY]));
        });
        assert_eq!((first, second), ([7], [7]));
        world.finish().expect("a good end");
    });
}

#[test]
fn an_iterator_may_test_the_requests_and_need_not_be_clone() {
    everywhere(2, |world| {
        if world.rank() == Rank(0) {
            send_on_request(world, 9, [1, 0, 2]);
            return;
        }
        let mut buffers = [[0_u32; 9]; 3];
        world.scope(|scope| {
            let start = |(tag, into)| scope.immediate_receive_into(into, Rank(0), Tag(tag)).expect("started");
            let requests: Vec<Request<'_>> =
                (0..).zip(buffers.iter_mut().map(|into| &mut into[..])).map(start).collect();
            world.send(&[1_u8], Rank(0), GO).expect("sent");
            while !requests[1].is_done() {}
            let under_way = || requests.iter().filter(|request| !request.is_done());
            assert_eq!((test_any(under_way()), test_some(under_way()), test_all(under_way())), (None, None, None));
            // Nothing else ends before they were asked.
            let go = || core::iter::from_fn(|| world.send(&[1_u8], Rank(0), GO).err().map(|_| &requests[0]));
            assert_eq!(wait_any(under_way().chain(go())), Ok(Some((0, of_rank_0(0, 9)))));
            assert_eq!(wait_some(under_way().chain(go())), Ok(vec![(0, of_rank_0(2, 9))]));
            let mut all: Vec<&Request<'_>> = requests.iter().collect();
            assert_eq!(wait_all(all.drain(..)), Ok(vec![Status::EMPTY, of_rank_0(1, 9), Status::EMPTY]));
        });
    });
}

#[test]
fn requests_of_two_worlds_are_refused() {
    job(1, &[], |one| {
        job(1, &[], |two| {
            let (own, mut first, mut second) = (Rank(0), [0_u32], [0_u32]);
            one.scope(|scope| {
                let here = scope.immediate_receive_into(&mut first, own, Tag(1)).expect("started");
                two.scope(|scope| {
                    let there = scope.immediate_receive_into(&mut second, own, Tag(1)).expect("started");
                    let failed = RequestFailed { index: 1, failure: Failure::OtherWorld.into() };
                    assert_eq!(
                        (wait_any([&here, &there]), test_any([&here, &there])),
                        (Err(failed), Some(Err(failed)))
                    );
                    assert_eq!((wait_some([&here, &there]), wait_all([&there, &here])), (Err(failed), Err(failed)));
                    assert!(there.cancel(), "nothing was lost");
                });
                assert!(here.cancel(), "nothing was lost");
            });
            two.finish().expect("a good end");
        });
        one.finish().expect("a good end");
    });
}

#[test]
fn a_failed_request_is_named_and_the_others_remain() {
    for over in EVERY_WAY {
        for progress in ["engine", "hybrid"] {
            let survivors = AtomicU32::new(0);
            let outcome = std::panic::catch_unwind(|| {
                job_over(over, 3, &[("PROGRESS", progress), ("ON_DEATH", "tell")], |world| {
                    match world.rank() {
                        Rank(0) => survive_a_death(&world),
                        Rank(1) => {
                            world.send(&data(0, 9), Rank(0), Tag(0)).expect("sent");
                            world.receive_into(&mut [0_u8], Rank(0), GO).expect("arrives");
                            world.send(&data(3, 40_000), Rank(0), Tag(3)).expect("sent");
                        }
                        _ => {
                            world.receive_into(&mut [0_u8], Rank(0), GO).expect("arrives");
                            // Give the other rank time to wait.
                            thread::sleep(Duration::from_millis(30));
                            std::panic::resume_unwind(Box::new("failed"));
                        }
                    }
                    world.finish().expect("the others finish");
                    survivors.fetch_add(1, Ordering::Relaxed);
                });
            });
            assert!(outcome.is_err(), "rank 2 panics");
            assert_eq!(survivors.into_inner(), 2, "the others do not panic; {over:?}, {progress}");
        }
    }
}

fn survive_a_death(world: &World) {
    let (dead, other) = (Rank(2), Rank(1));
    let mut buffers = vec![vec![0; 40_000]; 4];
    world.scope(|scope| {
        let from = [other, dead, dead, other];
        let start = |((tag, from), into)| scope.immediate_receive_into(into, from, Tag(tag)).expect("started");
        let requests: Vec<Request<'_>> =
            (0..).zip(from).zip(buffers.iter_mut().map(Vec::as_mut_slice)).map(start).collect();
        world.send(&[1_u8], dead, GO).expect("sent");
        let failed = |index| RequestFailed { index, failure: Failure::PeerFailed(dead).into() };
        assert_eq!(wait_all(&requests), Err(failed(1)));
        assert_eq!(wait_some(&requests), Err(failed(2)), "a failure is returned before successes");
        assert_eq!(wait_any(&requests), Ok(Some((0, Status { source: other, tag: Tag(0), bytes: 36 }))));
        assert_eq!(test_all(&requests), None, "one is in progress");
        world.send(&[1_u8], other, GO).expect("sent");
        let last = Status { source: other, tag: Tag(3), bytes: 160_000 };
        assert_eq!(wait_all(&requests), Ok(vec![Status::EMPTY, Status::EMPTY, Status::EMPTY, last]));
    });
    assert_eq!((&buffers[0][..9], &buffers[3]), (&*data(0, 9), &data(3, 40_000)));
}

#[test]
fn revocation_fails_requests_in_progress() {
    EVERY_WAY.into_iter().for_each(|over| {
        job_over(over, 2, &[("PROGRESS", "hybrid")], |world| {
            let (team, other) = (world.duplicate().expect("another communicator"), Rank(1 - world.rank().0));
            if world.rank() == Rank(1) {
                team.send(&[5_u32], other, Tag(1)).expect("sent");
                world.receive_into(&mut [0_u8], other, GO).expect("arrives");
                team.revoke();
                world.finish().expect("all ranks finish");
                return;
            }
            let (mut matched, mut never, mut apart) = ([0_u32], [0_u32], [0_u32]);
            world.scope(|scope| {
                let on_team = scope.on(&team);
                let send = on_team.immediate_send(&[1_u32; 60_000], other, Tag(1)).expect("started");
                let never = on_team.immediate_receive_into(&mut never, other, Tag(2)).expect("started");
                let matched = on_team.immediate_receive_into(&mut matched, other, Tag(1)).expect("started");
                let apart = scope.immediate_receive_into(&mut apart, other, Tag(1)).expect("started");
                let all = [&send, &never, &matched, &apart];
                // It matched its message before the revocation.
                let (index, status) = wait_any(all).expect("arrives").expect("one is left");
                assert_eq!((index, status.bytes), (2, 4));
                world.send(&[1_u8], other, GO).expect("sent");
                let failed = [wait_all(all), wait_all(all)].map(|ended| ended.expect_err("revoked"));
                assert_eq!(failed.map(|failed| failed.failure), [Failure::Revoked.into(); 2], "{over:?}");
                assert_eq!(failed[0].index + failed[1].index, 1, "each once; {over:?}");
                assert_eq!(test_all(all), None, "the request of another communicator continues");
                assert!(apart.cancel());
                assert_eq!(wait_all(all), Ok(vec![Status::EMPTY; 4]));
            });
            world.finish().expect("all ranks finish");
        });
    });
}

#[test]
fn a_receive_is_cancelled_and_its_buffer_posted_again() {
    everywhere(2, |world| {
        let other = Rank(1 - world.rank().0);
        for words in KINDS {
            if world.rank() == Rank(0) {
                world.receive_into(&mut [0_u8], other, GO).expect("arrives");
                world.synchronous_send(&data(3, words), other, Tag(1)).expect("received");
                continue;
            }
            let mut memory = vec![7; words];
            world.scope(|scope| {
                let loan = scope.immediate_receive_returning(&mut memory, other, Tag(1)).expect("started");
                assert!(!loan.is_done() && loan.test().is_none());
                assert!(loan.cancel() && !loan.cancel() && loan.is_done());
                assert_eq!(wait_any([&loan]), Ok(None));
                let (ended, buffer) = loan.wait();
                assert!(ended == Ok(Status::EMPTY) && buffer.iter().all(|word| *word == 7), "as it was");
                let loan = scope.immediate_receive_returning(buffer, other, Tag(1)).expect("started");
                world.send(&[1_u8], other, GO).expect("sent");
                while !loan.is_done() {}
                assert!(!loan.cancel(), "it has matched its message");
                assert_eq!(loan.test(), Some(Ok(of_rank_0(1, words))));
                assert_eq!(loan.test(), Some(Ok(Status::EMPTY)), "its completion was returned before");
                let (ended, buffer) = loan.wait();
                assert!(ended == Ok(Status::EMPTY) && buffer == data(3, words));
            });
        }
    });
}

#[test]
fn a_collective_returns_its_outcome_once() {
    everywhere(2, |world| {
        let team = world.duplicate().expect("another communicator");
        let (own, mut sums) = ([1_u64; 3], [[0; 3]; 2]);
        let [sum, never] = &mut sums;
        world.scope(|scope| {
            let request = scope.immediate_all_reduce_into(&own, sum, SystemOperation::sum()).expect("begun");
            let ended = loop {
                if let Some(ended) = request.test() {
                    break ended;
                }
            };
            assert_eq!((ended, request.test(), request.test()), (Ok(()), Some(Ok(())), Some(Ok(()))));
            assert!(request.is_done());
            assert_eq!(request.wait(), Ok(()));
            if world.rank() == Rank(0) {
                let scope = scope.on(&team);
                let request = scope.immediate_all_reduce_into(&own, never, SystemOperation::sum()).expect("begun");
                assert_eq!(request.test(), None, "the other rank has not called it");
                team.revoke();
                assert_eq!(request.test(), Some(Err(CollectiveError::Revoked)));
                assert_eq!(
                    (request.test(), request.wait()),
                    (Some(Ok(())), Ok(())),
                    "its completion was returned before"
                );
            }
        });
        // A rank that finishes earlier would be missing from the collective.
        world.barrier().expect("all are here");
        assert_eq!(sums[0], [2; 3]);
    });
}

#[test]
fn messages_and_collectives_are_waited_for_together() {
    everywhere(2, |world| {
        let (own, other) = (world.rank().0, Rank(1 - world.rank().0));
        let sum = SystemOperation::sum();
        for words in KINDS {
            let sent = data(own as usize, words);
            let (mut received, mut total, mut again) = (vec![0; words], [own + 1], [0_u32]);
            world.scope(|scope| {
                let mut kept = scope.persistent_all_reduce_in_place(&mut again, sum).expect("prepared");
                kept.data().expect("idle").fill(own + 5);
                let receive = scope.immediate_receive_into(&mut received, other, Tag(1)).expect("started");
                let barrier = scope.immediate_barrier().expect("begun");
                let send = scope.immediate_send(&sent, other, Tag(1)).expect("started");
                let reduce = scope.immediate_all_reduce_in_place(&mut total, sum).expect("begun");
                kept.start().expect("started");
                let status = Status { source: other, tag: Tag(1), bytes: words * 4 };
                let all: [&dyn AnyRequest; 5] = [&receive, &barrier, &send, &reduce, &kept];
                if words == KINDS[0] {
                    assert_eq!(
                        wait_all(all).expect("all end"),
                        [status, Status::EMPTY, Status::EMPTY, Status::EMPTY, Status::EMPTY]
                    );
                } else if words == KINDS[1] {
                    let mut ended = Vec::new();
                    while let Some((index, status)) = wait_any(all).expect("ends") {
                        ended.push((index, status.bytes));
                    }
                    ended.sort_unstable();
                    assert_eq!(ended, [(0, words * 4), (1, 0), (2, 0), (3, 0), (4, 0)]);
                } else {
                    let mut ended = Vec::new();
                    while ended.len() < all.len() {
                        ended.extend(test_some(all).transpose().expect("ends").unwrap_or_default());
                    }
                    ended.sort_unstable_by_key(|(index, _)| *index);
                    assert_eq!(ended[0], (0, status));
                }
                assert_eq!((wait_any(all), wait_all(all)), (Ok(None), Ok(vec![Status::EMPTY; 5])), "each once");
                assert_eq!((barrier.wait(), reduce.test()), (Ok(()), Some(Ok(()))));
                assert_eq!(kept.result(), Ok(&[11][..]), "at rest");
                kept.data().expect("idle").fill(1);
                kept.start().expect("started again");
                assert_eq!(wait_any([&kept]), Ok(Some((0, Status::EMPTY))));
                assert_eq!(kept.result(), Ok(&[2][..]));
            });
            assert_eq!((received, total), (data(other.0 as usize, words), [3]));
        }
    });
}

#[test]
fn a_collective_that_fails_among_requests_is_named() {
    everywhere(2, |world| {
        let (team, other) = (world.duplicate().expect("another communicator"), Rank(1 - world.rank().0));
        let (mut into, mut sum) = ([0_u32], [1_u32]);
        world.scope(|scope| {
            let receive = scope.immediate_receive_into(&mut into, other, Tag(1)).expect("started");
            if world.rank() == Rank(0) {
                let begun = scope.on(&team).immediate_all_reduce_in_place(&mut sum, SystemOperation::sum());
                let reduce = begun.expect("begun");
                let both: [&dyn AnyRequest; 2] = [&receive, &reduce];
                assert_eq!(test_all(both), None, "the other rank has not called it");
                team.revoke();
                let failed = RequestFailed { index: 1, failure: CollectiveError::Revoked.into() };
                assert_eq!(wait_all(both), Err(failed));
            }
            world.send(&[7_u32], other, Tag(1)).expect("sent");
            assert_eq!(receive.wait().map(|status| status.bytes), Ok(4));
        });
        assert_eq!(into, [7]);
    });
}

#[test]
fn a_single_rank_completes_collectives_at_once_and_reports_them() {
    job(1, &[], |world| {
        let mut sum = [3_u32];
        world.scope(|scope| {
            let barrier = scope.immediate_barrier().expect("begun");
            let mut kept = scope.persistent_all_reduce_in_place(&mut sum, SystemOperation::sum()).expect("prepared");
            let both: [&dyn AnyRequest; 2] = [&barrier, &kept];
            assert_eq!((wait_any(both), wait_any(both)), (Ok(Some((0, Status::EMPTY))), Ok(None)), "not started");
            kept.start().expect("started");
            assert_eq!(kept.start(), Err(CollectiveError::UnderWay));
            assert_eq!(wait_some([&kept]), Ok(vec![(0, Status::EMPTY)]));
            kept.start().expect("started again");
        });
        world.finish().expect("a good end");
    });
}

#[test]
fn immediate_sends_do_not_wait_for_their_receiver() {
    // More than a ring has entries.
    const MESSAGES: usize = 1500;
    let bytes_of = |i: usize| [1, 100, 700][i % 3];
    for over in EVERY_WAY {
        let (started, all_are_started) = mpsc::sync_channel(1);
        let all_are_started = Mutex::new(all_are_started);
        job_over(over, 2, &[("PROGRESS", "engine")], |world| {
            if world.rank() == Rank(1) {
                let all_are_started = all_are_started.lock().expect("not poisoned");
                all_are_started.recv_timeout(Duration::from_secs(20)).expect("the sends do not wait");
                for i in 0..MESSAGES {
                    let mut received = vec![0; bytes_of(i)];
                    world.receive_into(&mut received, Rank(0), Tag(0)).expect("arrives");
                    assert_eq!(received, data(i, bytes_of(i)), "message {i}");
                }
            } else {
                let messages: Vec<_> = (0..MESSAGES).map(|i| data(i, bytes_of(i))).collect();
                world.scope(|scope| {
                    let send = |message| scope.immediate_send(message, Rank(1), Tag(0)).expect("started");
                    let sends: Vec<_> = messages.iter().map(send).collect();
                    started.send(()).expect("rank 1 waits for it");
                    wait_all(&sends).expect("sent");
                });
            }
            world.finish().expect("all ranks finish");
        });
    }
}
