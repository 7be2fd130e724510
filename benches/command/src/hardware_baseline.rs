//! `unisono bench floor`: the hardware baseline between two processes on processors of their own, without World and
//! without a device: bounds on latency and bandwidth of anything built on shared memory.

mod pair;
mod ring;

use clap::Args;
use core::{iter, num::NonZeroUsize, ops::RangeInclusive};
use indicatif::ProgressBar;
use pair::{ProcessPair, SharedMemory};
use ring::Rings;
use serde_json::{Value, json};
use std::{io, time::Instant};

use super::bytes::Bytes;

/// Repetitions per batch, and number of batches. The median batch is reported.
const BATCH: usize = 1000;
const BATCHES: usize = 101;

/// Message sizes in bytes.
const SIZES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Valid message sizes in bytes.
const VALID_SIZES: RangeInclusive<usize> = 1 << 10..=16 << 20;

/// Buffers of the sender and of the receiver, each used in turn: one that stays in the caches, and as many as `unisono
/// bench bandwidth` uses.
const WORKING_SETS: [(usize, usize); 2] = [(1, 1), (16, 64)];

/// Total size of the timed messages in bytes, at least one message per buffer.
const VOLUME: usize = 96 << 20;

/// Bytes timed together, many times those in flight.
const SPAN: usize = 8 << 20;

/// Chunk size of the pipelined copy, and chunks in flight: combinations that stay in the nearest caches, and
/// combinations that do not, whose cache lines the sender overwrites without fetching them from the receiver's cache.
const PIPELINES: [(usize, u32); 8] = [
    (4 << 10, 16),
    (8 << 10, 16),
    (16 << 10, 8),
    (32 << 10, 4),
    (64 << 10, 2),
    (16 << 10, 64),
    (32 << 10, 32),
    (64 << 10, 16),
];

/// The copies to measure, besides cache-line, ring and barrier latency.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// Measure copies of messages of this size only; 0 for no copies [default: 64K, 256K, 1M and 4M]
    #[arg(long)]
    pub(crate) bytes: Option<Bytes>,
}

impl Options {
    /// The message sizes in bytes.
    fn sizes(self) -> Vec<usize> {
        match self.bytes {
            None => SIZES.to_vec(),
            Some(Bytes(0)) => Vec::new(),
            Some(Bytes(bytes)) => vec![bytes.try_into().unwrap_or(usize::MAX)],
        }
    }
}

/// The results of a machine.
pub(super) struct HardwareBaseline {
    /// Round trip of a cache line: each process writes a line of its own, in nanoseconds.
    line_rtt: f64,
    /// A bare barrier, in nanoseconds: each process increments its own line and waits for the other's.
    barrier: f64,
    /// Round trip of 8 bytes through two rings of a segment, without the message layer, in nanoseconds.
    ring_rtt: f64,
    huge_pages: bool,
    copies: Vec<CopyBandwidths>,
}

/// Copy bandwidths for messages of one size, in bytes per second.
struct CopyBandwidths {
    bytes: usize,
    buffers: usize,
    /// The receiver copies from shared memory, each time bytes that the sender has just written.
    memcpy: f64,
    /// The receiver copies from the sender's private memory (CMA), likewise; `None` if the system refuses it.
    readv: Option<f64>,
    /// Private to private memory through shared memory in chunks, both processes copying concurrently.
    two_copy: f64,
    /// The fastest chunk size, and chunks in flight.
    chunk: usize,
    slots: u32,
}

/// Runs the measurements, in about four seconds and with up to 400 MB. The process must be single-threaded.
pub(super) fn measure(options: Options) -> io::Result<HardwareBaseline> {
    let sizes = options.sizes();
    if sizes.iter().any(|bytes| !VALID_SIZES.contains(bytes)) {
        let [least, most] = [VALID_SIZES.start(), VALID_SIZES.end()].map(|bytes| Bytes(*bytes as u64));
        return Err(io::Error::other(format!("--bytes must be from {least} to {most}, or 0 for no copies")));
    }
    let most = sizes.iter().copied().max().unwrap_or(0);
    let sources = WORKING_SETS.map(|(sources, _)| sources).into_iter().max().unwrap_or(0);
    let places = WORKING_SETS.map(|(_, places)| places).into_iter().max().unwrap_or(0);
    let (shared, rings) = (SharedMemory::new(sources * most)?, Rings::new()?);
    // The same address in both processes: one writes, the other reads. All other memory is copied on write.
    let mut source = vec![0_u8; sources * most];
    ProcessPair::work(&shared, |pair| {
        let mut target = vec![0_u8; if pair.is_first() { places * most } else { 0 }];
        for memory in [&mut source, &mut target] {
            memory.fill(1);
        }
        // Drawn by one of the two, on the standard error if that is a terminal.
        let steps = 3 + (WORKING_SETS.len() * sizes.len()) as u64;
        let bar = if pair.is_first() { ProgressBar::new(steps) } else { ProgressBar::hidden() };
        bar.tick();
        let line_rtt = batches(|| pair.round_trip())?;
        bar.inc(1);
        let barrier = batches(|| pair.barrier())?;
        bar.inc(1);
        let mut ends = rings.ends(pair.is_first())?;
        let ring_rtt = batches(|| ends.round_trip())?;
        bar.inc(1);
        let mut copies = Vec::new();
        for working_set in WORKING_SETS {
            for bytes in sizes.iter().copied() {
                copies.push(CopyBandwidths::measure(pair, bytes, working_set, &mut source, &mut target)?);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(HardwareBaseline { line_rtt, barrier, ring_rtt, huge_pages: shared.is_huge(), copies })
    })
}

/// Nanoseconds per repetition, in the median batch.
fn batches(mut one: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let batch = || {
        let start = Instant::now();
        (0..BATCH).try_for_each(|_| one())?;
        Ok(start.elapsed().as_secs_f64() * 1e9 / BATCH as f64)
    };
    let times = iter::repeat_with(batch).take(BATCHES).collect::<io::Result<_>>()?;
    Ok(median(times))
}

impl CopyBandwidths {
    fn measure(
        pair: &mut ProcessPair<'_>,
        bytes: usize,
        (sources, places): (usize, usize),
        source: &mut [u8],
        target: &mut [u8],
    ) -> io::Result<Self> {
        let messages = (VOLUME / bytes).max(places);
        let here = |message: usize| message % sources * bytes;
        let there = |message: usize| message % places * bytes;
        let (mut memcpy, mut readv, mut readable) = (Vec::new(), Vec::new(), true);
        for message in 0..messages {
            if !pair.is_first() {
                pair.shared.fill(here(message), bytes, message as u8);
            }
            pair.barrier()?;
            if pair.is_first() {
                let start = Instant::now();
                pair.shared.take(here(message), &mut target[there(message)..][..bytes]);
                memcpy.push(start.elapsed().as_secs_f64());
            }
            pair.barrier()?;
        }
        for message in 0..messages {
            let source = &mut source[here(message)..][..bytes];
            if !pair.is_first() {
                source.fill(message as u8);
            }
            pair.barrier()?;
            if pair.is_first() {
                let start = Instant::now();
                readable &= pair.read(source, &mut target[there(message)..][..bytes]);
                readv.push(start.elapsed().as_secs_f64());
            }
            pair.barrier()?;
        }
        let mut best = (0.0, 0, 0);
        let span = (SPAN / bytes).max(1);
        for (chunk, slots) in PIPELINES {
            pair.restart()?;
            // Messages overlap as in a stream, so time spans of several messages.
            let (mut spans, mut start) = (Vec::new(), Instant::now());
            for message in 0..messages {
                let first = pair.is_first();
                let private = if first { &mut target[there(message)..] } else { &mut source[here(message)..] };
                pair.two_copy(&mut private[..bytes], NonZeroUsize::new(chunk).unwrap_or(NonZeroUsize::MIN), slots)?;
                if (message + 1) % span == 0 {
                    spans.push(start.elapsed().as_secs_f64());
                    start = Instant::now();
                }
            }
            let speed = (span * bytes) as f64 / median(spans);
            best = if speed > best.0 { (speed, chunk, slots) } else { best };
        }
        let speed = |times| bytes as f64 / median(times);
        let (memcpy, readv) = (speed(memcpy), readable.then(|| speed(readv)));
        let (two_copy, chunk, slots) = best;
        Ok(Self { bytes, buffers: places, memcpy, readv, two_copy, chunk, slots })
    }

    fn to_json(&self) -> Value {
        json!({
            "bytes": self.bytes,
            "places": self.buffers,
            "memcpy_bytes_per_s": self.memcpy as u64,
            "readv_bytes_per_s": self.readv.map(|speed| speed as u64),
            "two_copy_bytes_per_s": self.two_copy as u64,
            "two_copy_chunk_bytes": self.chunk,
            "two_copy_chunks_under_way": self.slots,
        })
    }
}

impl HardwareBaseline {
    /// Prints a table or one object. The bandwidth at its top is that of the largest messages that stay in the caches.
    pub(super) fn print(&self, as_json: bool) {
        let Self { line_rtt, barrier, ring_rtt, huge_pages, copies } = self;
        let best = copies.iter().filter(|copies| copies.buffers == 1).max_by(|a, b| a.memcpy.total_cmp(&b.memcpy));
        if as_json {
            let object = json!({
                "bench": "floor", "device": "memory", "ranks": 2, "bytes": best.map_or(0, |best| best.bytes),
                "line_rtt_ns": line_rtt.round(), "barrier_ns": barrier.round(),
                "ring_rtt_ns": ring_rtt.round(),
                "memcpy_bytes_per_s": best.map_or(0, |best| best.memcpy as u64),
                "huge_pages": huge_pages,
                "copies": copies.iter().map(CopyBandwidths::to_json).collect::<Vec<_>>(),
            });
            println!("{object}");
            return;
        }
        println!(
            "floor cache-line round trip {line_rtt:.0} ns, 8-byte ring round trip {ring_rtt:.0} ns, barrier {barrier:.0} ns; copies in GB/s"
        );
        println!("{:>8} {:>7} {:>8} {:>8} {:>9}  of chunks", "message", "places", "memcpy", "readv", "two-copy");
        for CopyBandwidths { bytes, buffers: places, memcpy, readv, two_copy, chunk, slots } in copies {
            let readv = readv.map_or("refused".to_owned(), |speed| format!("{:.2}", speed / 1e9));
            let [message, chunk] = [*bytes, *chunk].map(|bytes| Bytes(bytes as u64).to_string());
            let (memcpy, two_copy) = (memcpy / 1e9, two_copy / 1e9);
            println!("{message:>8} {places:>7} {memcpy:>8.2} {readv:>8} {two_copy:>9.2}  {slots} × {chunk}");
        }
    }
}

/// The median; zero if there are no values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
