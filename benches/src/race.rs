//! Two threads on processors of their own, and what they deliver.

use core::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use std::{
    io,
    thread::{self, Builder},
    time::Instant,
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{bare::Bare, udp::Side};

/// Datagrams of one call.
pub const BATCH: usize = 64;

/// Round trips that are timed.
const ROUNDS: usize = 10_000;

/// Round trips before the clock starts.
const WARM_UP: usize = 100;

/// Binds the calling thread to one of the processors that it may use, as `unisono run --pin` does with two ranks.
pub(crate) fn pin(index: usize) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    let mut one = CpuSet::new();
    if let Some(processor) = processors.get(index * processors.len() / 2) {
        one.set(*processor);
        sched_setaffinity(None, &one)?;
    }
    Ok(())
}

/// Delivered datagrams in a second: one thread sends without pause, the other receives.
fn rate(time: Duration, mut send: impl FnMut() + Send, mut receive: impl FnMut() -> usize + Send) -> io::Result<f64> {
    let (done, delivered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let sender = || {
            let pinned = pin(0);
            while !done.load(Relaxed) {
                send();
            }
            pinned
        };
        let receiver = || {
            let pinned = pin(1);
            while !done.load(Relaxed) {
                delivered.fetch_add(receive() as u64, Relaxed);
            }
            pinned
        };
        let threads = [
            Builder::new().name("sender".into()).spawn_scoped(scope, sender)?,
            Builder::new().name("receiver".into()).spawn_scoped(scope, receiver)?,
        ];
        thread::sleep(time / 5);
        let (start, before) = (Instant::now(), delivered.load(Relaxed));
        thread::sleep(time);
        let rate = (delivered.load(Relaxed) - before) as f64 / start.elapsed().as_secs_f64();
        done.store(true, Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))?;
        Ok(rate)
    })
}

/// Delivered datagrams in a second of the bare loop.
pub fn bare_rate(bytes: u32, gso: bool, time: Duration) -> io::Result<f64> {
    let [mut from, mut to] = [Bare::new(bytes as usize, BATCH, gso)?, Bare::new(bytes as usize, BATCH, gso)?];
    let address = to.local()?;
    rate(time, move || _ = from.send(address), move || to.receive())
}

/// Delivered datagrams in a second of the UDP device alone.
pub fn device_rate(bytes: u32, gso: bool, time: Duration) -> io::Result<f64> {
    let [mut from, mut to] = Side::pair(bytes, gso)?;
    rate(time, move || _ = from.send(BATCH), move || to.receive())
}

/// Median nanoseconds of a round trip: `ping` sends and waits for the answer, `pong` waits and answers.
fn round_trip(mut ping: impl FnMut() + Send, mut pong: impl FnMut() + Send) -> io::Result<f64> {
    thread::scope(|scope| {
        let pong = scope.spawn(move || {
            let pinned = pin(1);
            (0..ROUNDS + WARM_UP).for_each(|_| pong());
            pinned
        });
        let ping = scope.spawn(move || {
            let pinned = pin(0);
            let mut times = Vec::with_capacity(ROUNDS);
            for round in 0..ROUNDS + WARM_UP {
                let start = Instant::now();
                ping();
                if round >= WARM_UP {
                    times.push(start.elapsed().as_nanos() as f64);
                }
            }
            pinned.map(|()| median(times))
        });
        pong.join().unwrap_or(Ok(()))?;
        ping.join().unwrap_or(Ok(f64::NAN))
    })
}

/// Median nanoseconds of a round trip of the bare loop; both sides spin.
pub fn bare_round_trip(bytes: u32) -> io::Result<f64> {
    let [mut from, mut to] = [Bare::new(bytes as usize, 1, false)?, Bare::new(bytes as usize, 1, false)?];
    let (here, there) = (from.local()?, to.local()?);
    let ping = move || {
        from.ping(there);
        from.wait();
    };
    let pong = move || {
        to.wait();
        to.ping(here);
    };
    round_trip(ping, pong)
}

/// As that, of the UDP device alone.
pub fn device_round_trip(bytes: u32, gso: bool) -> io::Result<f64> {
    let [mut from, mut to] = Side::pair(bytes, gso)?;
    let ping = move || {
        from.send(1);
        while from.receive() == 0 {}
    };
    let pong = move || {
        while to.receive() == 0 {}
        to.send(1);
    };
    round_trip(ping, pong)
}

/// The middle one; NaN of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
