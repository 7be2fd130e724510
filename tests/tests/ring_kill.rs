//! A process is killed while it writes to a ring, or reads from one: the survivor reads only whole messages, all that
//! were published, and never blocks. This program is the killed process, too.

use core::ops::ControlFlow;
use core::time::Duration;
use std::env;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use unisono_shmem::host::file::{Mapping, SegmentFile, reopen};
use unisono_shmem::layout::{PAGE, SegmentLayout, SegmentSizes, WaitMode};
use unisono_shmem::ring::{Consumer, INLINE, Producer, PutError};

const ROUNDS: u64 = 100;
/// How long a round may take.
const BOUND: Duration = Duration::from_secs(20);

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [part, number] = arguments.as_slice()
        && let Ok(number) = number.parse()
    {
        return play(part, number);
    }
    for (name, part, survive) in [
        (
            "survivor_takes_whole_messages_only",
            "put",
            survive_producer as fn(&Mapping, &SegmentLayout, Child, u64) -> u64,
        ),
        ("survivor_puts_until_the_ring_is_full", "take", survive_consumer),
    ] {
        let messages: u64 = (0..ROUNDS).map(|round| survive_one(part, round, survive)).sum();
        assert!(messages > ROUNDS, "{name}: {messages} messages in {ROUNDS} rounds");
        println!("test {name} ... ok ({ROUNDS} kills, {messages} messages)");
    }
}

fn survive_one(part: &str, round: u64, survive: fn(&Mapping, &SegmentLayout, Child, u64) -> u64) -> u64 {
    let small =
        SegmentSizes { collective_area: PAGE as u32, pool: 0, ..SegmentSizes::of_node(2, WaitMode::Oversubscribed) };
    let layout = SegmentLayout::new(SegmentSizes { ring_entries: 16, ring_bulk: 1 << 13, ..small }).expect("a layout");
    let file = SegmentFile::create(&layout).expect("memory");
    rustix::io::fcntl_setfd(file.as_fd(), rustix::io::FdFlags::empty()).expect("a descriptor to hand over");
    let number = file.as_fd().as_raw_fd().to_string();
    let child = Command::new(env::current_exe().expect("this program"))
        .args([part, &number])
        .stdin(Stdio::null())
        .spawn()
        .expect("a process");
    let (mapping, _) = Mapping::open(file.as_fd()).expect("a segment");
    survive(&mapping, &layout, child, round)
}

/// The process that will be killed: rank 1.
fn play(part: &str, number: u32) {
    let file = reopen(number, None).expect("a segment");
    let (mapping, layout) = Mapping::open(file.as_fd()).expect("a segment");
    // SAFETY: this process takes one end of a ring, and uses nothing else.
    let segment = unsafe { mapping.segment() };
    if part == "put" {
        let mut producer = Producer::of(segment, &layout, 1, 0).expect("a ring");
        let mut next = 0;
        loop {
            match put(&mut producer, next) {
                Ok(()) => next += 1,
                Err(error) => assert_eq!(error, PutError::Full),
            }
        }
    }
    let (mut consumer, mut next) = (Consumer::of(segment, &layout, 0, 1).expect("a ring"), 0);
    loop {
        let _ = take(&mut consumer, &mut next);
    }
}

fn survive_producer(mapping: &Mapping, layout: &SegmentLayout, mut child: Child, round: u64) -> u64 {
    // SAFETY: this process takes one end of a ring, and uses nothing else.
    let segment = unsafe { mapping.segment() };
    let (mut consumer, mut next) = (Consumer::of(segment, layout, 1, 0).expect("a ring"), 0);
    let mut random = fastrand::Rng::with_seed(round);
    let start = Instant::now();
    while next == 0 {
        let _ = take(&mut consumer, &mut next);
        assert!(start.elapsed() < BOUND, "the other process never came");
    }
    let kill_at = Instant::now() + Duration::from_nanos(random.u64(..2_000_000));
    // Sometimes the ring is full when it happens.
    let lazy = random.bool();
    while Instant::now() < kill_at {
        if !lazy {
            let _ = take(&mut consumer, &mut next);
        }
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("it ends");
    while take(&mut consumer, &mut next).is_continue() {}
    u64::from(next)
}

fn survive_consumer(mapping: &Mapping, layout: &SegmentLayout, mut child: Child, round: u64) -> u64 {
    // SAFETY: this process takes one end of a ring, and uses nothing else.
    let segment = unsafe { mapping.segment() };
    let (mut producer, mut next) = (Producer::of(segment, layout, 0, 1).expect("a ring"), 0);
    let mut random = fastrand::Rng::with_seed(round);
    let start = Instant::now();
    // More than fits: the other process has come.
    while next < 4 * layout.sizes().ring_entries {
        next += put_one(&mut producer, next);
        assert!(start.elapsed() < BOUND, "the other process never came");
    }
    let kill_at = Instant::now() + Duration::from_nanos(random.u64(..2_000_000));
    while Instant::now() < kill_at {
        next += put_one(&mut producer, next);
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("it ends");
    let before = next;
    while put_one(&mut producer, next) == 1 {
        next += 1;
        assert!(next - before <= layout.sizes().ring_entries, "the ring is full at some time");
    }
    u64::from(next)
}

fn put_one(producer: &mut Producer<'_>, number: u32) -> u32 {
    match put(producer, number) {
        Ok(()) => 1,
        Err(error) => {
            assert_eq!(error, PutError::Full);
            thread::yield_now();
            0
        }
    }
}

/// Lengths of all kinds: in the entry, in the bulk, across its end.
const fn length(number: u32) -> usize {
    match number % 4 {
        0 => number as usize % (INLINE + 1),
        1 => number as usize * 7 % 300,
        _ => number as usize * 31 % 4096,
    }
}

fn pattern(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (number as usize * 131 + i * 17 + (i >> 8)) as u8).collect()
}

fn put(producer: &mut Producer<'_>, number: u32) -> Result<(), PutError> {
    let payload = pattern(number, length(number));
    if payload.len() <= INLINE {
        return producer.put([number, !number], &payload);
    }
    producer.put_piece([number, !number], payload.len() as u32, |piece| piece.write(&payload).expect("its length"))
}

/// Takes a message, if there is one, and checks all of it.
fn take(consumer: &mut Consumer<'_>, next: &mut u32) -> ControlFlow<()> {
    let Some(entry) = consumer.poll().expect("a killed process leaves no garbage") else {
        return ControlFlow::Break(());
    };
    assert_eq!(entry.header, [*next, !*next], "every message that was shown, in order");
    let mut found = vec![0; entry.payload.bytes()];
    entry.payload.read(&mut found).expect("its length");
    assert_eq!(found, pattern(*next, length(*next)), "message {next} is torn");
    consumer.consume();
    *next += 1;
    ControlFlow::Continue(())
}
