//! Measures waiting in the dedicated and oversubscribed modes: a bare flat barrier over [`BlockingWait`], processes
//! pinned to the cores in turn.
//!
//! `cargo run --release -p unisono-shmem --example oversubscribed`

use core::time::Duration;
use std::env;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use unisono_shmem::host::file::{Mapping, SegmentFile, reopen};
use unisono_shmem::host::wait_strategy::{BlockingWait, Sleepers};
use unisono_shmem::layout::{SegmentLayout, SegmentSizes, WaitMode};
use unisono_shmem::segment::{Site, Word};

/// Ranks per core.
const CROWDS: [u32; 4] = [1, 2, 4, 8];
/// How long each is measured.
const TIME: Duration = Duration::from_millis(500);
/// Barriers per sample.
const BATCH: u32 = 100;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [local] = arguments.as_slice() {
        return member(local.parse().expect("a number"));
    }
    let cores = sched_getaffinity(None).expect("cores").count();
    for crowd in CROWDS {
        for waiting in [WaitMode::Dedicated, WaitMode::Oversubscribed] {
            if waiting == WaitMode::Dedicated && crowd > 1 {
                continue;
            }
            let ranks = cores * crowd;
            let made = SegmentFile::create(&SegmentLayout::new(SegmentSizes::of_node(ranks, waiting)).expect("fits"))
                .expect("memory");
            let children: Vec<_> = (0..ranks)
                .map(|local| {
                    let file = made.as_fd().try_clone_to_owned().expect("a descriptor");
                    let own = env::current_exe().expect("this program");
                    let mut command = Command::new(own);
                    command.arg(local.to_string()).stdin(Stdio::from(file)).stdout(Stdio::piped());
                    command.spawn().expect("starts")
                })
                .collect();
            let mut times: Vec<f64> = children
                .into_iter()
                .map(|child| {
                    let output = child.wait_with_output().expect("ends").stdout;
                    String::from_utf8_lossy(&output).trim().parse().expect("a time")
                })
                .collect();
            times.sort_by(f64::total_cmp);
            println!("{ranks:3} ranks, {crowd} per core, {waiting:?}: {:.0} ns", times[times.len() / 2]);
        }
    }
}

/// Prints the median nanoseconds of a barrier.
fn member(local: u32) {
    let file: OwnedFd = reopen(0, None).expect("a segment as standard input");
    let (mapping, layout) = Mapping::open(file.as_fd()).expect("a segment");
    pin(local);
    let ranks = layout.sizes().ranks;
    // SAFETY: this process uses words alone.
    let segment = unsafe { mapping.segment() };
    let word = |local| segment.word(layout.collective_area(local).expect("a rank").offset).expect("a word");
    let flags: Vec<&Word> = (0..ranks).map(word).collect();
    let stop = segment.word(layout.collective_area(0).expect("a rank").offset + 256).expect("a word");
    let sleepers = Sleepers::new(segment, &layout, local).expect("a rank");
    let (mut epoch, mut times) = (0_u32, Vec::new());
    let began = Instant::now();
    while stop.acquire(Site::Plain) == 0 || stop.acquire(Site::Plain) > epoch {
        let started = Instant::now();
        for _ in 0..BATCH {
            epoch += 1;
            barrier(&flags, local, epoch, sleepers);
        }
        times.push(started.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH));
        // All stop after the same barrier, which no rank has reached yet.
        if local == 0 && stop.own() == 0 && began.elapsed() > TIME {
            stop.publish(epoch + BATCH, Site::Plain);
        }
    }
    times.sort_by(f64::total_cmp);
    println!("{}", times[times.len() / 2]);
}

fn barrier(flags: &[&Word], local: u32, epoch: u32, sleepers: Sleepers<'_>) {
    let own = flags[local as usize];
    own.publish(epoch, Site::Arrive);
    sleepers.wake(own);
    let mut rest = BlockingWait::new(sleepers);
    for flag in flags {
        loop {
            let seen = flag.acquire(Site::Arrived);
            if seen.wrapping_sub(epoch) as i32 >= 0 {
                break;
            }
            rest.wait(Some((flag, seen)));
        }
    }
}

fn pin(local: u32) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let mut own = CpuSet::new();
    own.set(cores[local as usize % cores.len()]);
    // Best effort.
    let _ = sched_setaffinity(None, &own);
}
