//! Requests that one thread starts and others wait for.

mod job;

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::thread;
use std::time::Instant;

use job::{data, everywhere, job};
use static_assertions::{assert_impl_all, assert_not_impl_any};
use unisono::collective::{CollectiveRequest, PersistentRequest, SystemOperation};
use unisono::{Communicator, Failure, Rank, RecvRequest, Request, Scope, Status, Tag, World, wait_any};

assert_impl_all!(Scope<'static, 'static>: Send, Sync);
assert_impl_all!(Request<'static>: Send);
assert_impl_all!(RecvRequest<'static, u32>: Send);
assert_impl_all!(CollectiveRequest<'static>: Send);
assert_impl_all!(PersistentRequest<'static, u32>: Send);
assert_impl_all!(Communicator: Send, Sync);
// A request is not waited for concurrently; a buffer may move only to threads that its elements may move to.
assert_not_impl_any!(Request<'static>: Sync);
assert_not_impl_any!(CollectiveRequest<'static>: Sync);
assert_not_impl_any!(RecvRequest<'static, PhantomData<*const u8>>: Send);
assert_not_impl_any!(PersistentRequest<'static, PhantomData<*const u8>>: Send);

/// Message lengths in words: in a ring entry, in the bulk area, by rendezvous.
const KINDS: [usize; 3] = [1, 700, 40_000];

#[test]
fn message_that_one_thread_begins_is_waited_for_in_others() {
    everywhere(2, |world| KINDS.into_iter().for_each(|words| begin_here_and_wait_there(world, words)));
}

fn begin_here_and_wait_there(world: &World, words: usize) {
    let (own, other) = (world.rank().0 as usize, Rank(1 - world.rank().0));
    let (one, two) = (data(own, words), data(own + 2, words));
    let (mut into, mut returned, mut dropped) = (vec![0; words], vec![0; words], vec![0; words]);
    world.scope(|scope| {
        let loan = scope.immediate_receive_returning(&mut returned, other, Tag(2)).expect("started");
        let receive = scope.immediate_receive_into(&mut into, other, Tag(1)).expect("started");
        drop(scope.immediate_receive_into(&mut dropped, other, Tag(3)).expect("started"));
        let first = scope.immediate_send(&one, other, Tag(1)).expect("started");
        let second = scope.immediate_synchronous_send(&two, other, Tag(2)).expect("started");
        drop(scope.immediate_send(&one, other, Tag(3)).expect("started"));
        thread::scope(|threads| {
            threads.spawn(move || {
                let status = receive.wait().expect("arrives");
                assert_eq!((status.source, status.bytes), (other, words * 4));
            });
            threads.spawn(move || {
                let (status, buffer) = loan.wait();
                assert_eq!(status.expect("arrives").tag, Tag(2));
                assert_eq!(buffer, data(3 - own, words));
                buffer.fill(7);
            });
            threads.spawn(move || {
                while !second.is_done() {}
                assert!(second.test().is_some_and(|ended| ended.is_ok()) && second.test() == Some(Ok(Status::EMPTY)));
            });
            threads.spawn(move || first.wait().map(|_| ()).expect("sent"));
        });
    });
    assert_eq!((into, dropped), (data(1 - own, words), data(1 - own, words)));
    assert!(returned.into_iter().all(|word| word == 7));
}

#[test]
fn threads_begin_and_end_requests_of_one_scope_at_once() {
    everywhere(2, threads_share_a_scope);
}

fn threads_share_a_scope(world: &World) {
    const THREADS: usize = 3;
    const ROUNDS: usize = 25;
    let (own, other) = (world.rank().0 as usize, Rank(1 - world.rank().0));
    let elsewhere = world.duplicate().expect("another communicator");
    let sent: Vec<Vec<u32>> = (0..THREADS).map(|thread| data(own * THREADS + thread, 700)).collect();
    let mut received = vec![vec![0; 700]; THREADS];
    let mut left = vec![vec![0; 700]; THREADS];
    world.scope(|scope| {
        thread::scope(|threads| {
            for (number, ((sent, buffer), left)) in sent.iter().zip(&mut received).zip(&mut left).enumerate() {
                let elsewhere = &elsewhere;
                threads.spawn(move || {
                    let tag = Tag(number as u32);
                    // The other scope is created by the first thread that gets here.
                    let scope = if number == 0 { scope } else { scope.on(elsewhere) };
                    let mut buffer = buffer.as_mut_slice();
                    for words in (1..=ROUNDS).map(|round| round * 28) {
                        let loan = scope.immediate_receive_returning(buffer, other, tag).expect("started");
                        let send = scope.immediate_send(&sent[..words], other, tag).expect("started");
                        let (status, back) = loan.wait();
                        assert_eq!(status.expect("arrives").bytes, words * 4);
                        assert_eq!(back[..words], data((1 - own) * THREADS + number, words));
                        back.fill(0);
                        buffer = back;
                        send.wait().expect("sent");
                    }
                    // These end with the scope.
                    drop(scope.immediate_receive_into(left, other, tag).expect("started"));
                    drop(scope.immediate_send(sent, other, tag).expect("started"));
                });
            }
        });
    });
    for (number, left) in left.into_iter().enumerate() {
        assert_eq!(left, data((1 - own) * THREADS + number, 700));
    }
}

#[test]
fn collectives_that_one_thread_begins_are_waited_for_in_others() {
    everywhere(3, begin_collectives_here_and_wait_there);
}

fn begin_collectives_here_and_wait_there(world: &World) {
    const MANY: usize = 6;
    let own = u64::from(world.rank().0) + 1;
    let give: Vec<Vec<u64>> = (0..MANY).map(|i| vec![own << i; 1 + 500 * i]).collect();
    let mut take: Vec<Vec<u64>> = give.iter().map(|give| vec![0; give.len()]).collect();
    let (mut data, mut result) = ([own; 100], [0; 100]);
    world.scope(|scope| {
        let mut begun: Vec<CollectiveRequest<'_>> = Vec::new();
        for (give, take) in give.iter().zip(&mut take) {
            begun.push(scope.immediate_all_reduce_into(give, take, SystemOperation::sum()).expect("begun"));
        }
        begun.push(scope.immediate_barrier().expect("begun"));
        let mut again =
            scope.persistent_all_reduce_into(&mut data, &mut result, SystemOperation::sum()).expect("prepared");
        again.start().expect("started");
        thread::scope(|threads| {
            for request in begun.into_iter().rev() {
                threads.spawn(move || request.wait().expect("ends"));
            }
            let waits = threads.spawn(move || {
                again.wait().expect("ends");
                assert_eq!(again.result().expect("rests"), [6; 100]);
                again.data().expect("rests").fill(own * 10);
                again
            });
            let mut again = waits.join().expect("no panic");
            again.start().expect("started");
            threads.spawn(move || {
                while again.test().is_none() {}
                assert_eq!(again.result().expect("rests"), [60; 100]);
                drop(again);
            });
        });
    });
    for (i, take) in take.into_iter().enumerate() {
        assert!(take.into_iter().all(|sum| sum == 6 << i), "{i}");
    }
}

#[test]
fn sleeping_threads_wake_at_once_for_a_revocation() {
    job(1, &[], |world| {
        for receives in [true, false] {
            let mut took: Vec<Duration> = (0..9).map(|_| revoke_beside_a_sleeper(&world, receives)).collect();
            took.sort_unstable();
            // Without a wakeup it polls every 20 ms.
            assert!(took[4] < Duration::from_millis(3), "receives: {receives}; {took:?}");
        }
        world.finish().expect("a good end");
    });
}

/// Time from the revocation of a communicator until a thread returns that slept in a receive or a probe.
fn revoke_beside_a_sleeper(world: &World, receives: bool) -> Duration {
    let other = world.duplicate().expect("another communicator");
    thread::scope(|threads| {
        let sleeper = threads.spawn(|| {
            let status = match receives {
                true => other.receive_into(&mut [0_u8], Rank(0), Tag(1)),
                false => other.probe(Rank(0), Tag(1)),
            };
            assert_eq!(status, Err(Failure::Revoked));
            Instant::now()
        });
        thread::sleep(Duration::from_millis(50));
        let revoked = Instant::now();
        other.revoke();
        sleeper.join().expect("no panic").duration_since(revoked)
    })
}

#[test]
fn sleeping_threads_wake_at_once_for_other_threads() {
    let (own, tag, done) = (Rank(0), Tag(1), Tag(2));
    wake_sleepers(
        "receives",
        |world| world.send(&[1_u8], own, tag),
        |world| world.receive_into(&mut [0_u8], own, tag).map(drop),
    );
    wake_sleepers(
        "probes",
        |world| world.send(&[1_u8], own, tag),
        |world| world.probe(own, tag).and_then(|_| world.receive_into(&mut [0_u8], own, tag)).map(drop),
    );
    wake_sleepers(
        "sends",
        |world| world.receive_into(&mut [0_u8], own, tag).map(drop),
        |world| world.synchronous_send(&[1_u8], own, tag),
    );
    wake_sleepers(
        "waits for any",
        |world| world.send(&[1_u8], own, tag),
        |world| {
            let (mut one, mut two) = ([0_u8], [0_u8]);
            world.scope(|scope| {
                let one = scope.immediate_receive_into(&mut one, own, done)?;
                let two = scope.immediate_receive_into(&mut two, own, tag)?;
                assert!(matches!(wait_any([&one, &two]), Ok(Some((1, _)))));
                assert!(one.cancel());
                Ok(())
            })
        },
    );
}

/// One thread wakes another, sleeping one repeatedly; without a wakeup that one polls every 20 ms.
fn wake_sleepers(
    what: &str,
    wake: impl Fn(&World) -> Result<(), Failure> + Sync,
    sleep: impl Fn(&World) -> Result<(), Failure> + Sync,
) {
    const TIMES: u32 = 200;
    job(1, &[], |world| {
        let (woken, mut took) = (AtomicU32::new(0), Duration::ZERO);
        thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..TIMES {
                    sleep(&world).expect("all is well");
                    woken.fetch_add(1, Ordering::Release);
                }
            });
            for times in 1..=TIMES {
                thread::sleep(Duration::from_millis(1));
                let started = Instant::now();
                wake(&world).expect("all is well");
                while woken.load(Ordering::Acquire) < times {
                    thread::yield_now();
                }
                took += started.elapsed();
            }
        });
        assert!(took < TIMES * Duration::from_millis(10), "{what}: {took:?}");
        world.finish().expect("a good end");
    });
}
