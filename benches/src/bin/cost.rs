//! Bar 5: cost of the core per segment of 64 bytes, over a device of negligible cost.
//!
//! One placement goes from one endpoint to the other in batches of 16: send, receive, placement, and the
//! acknowledgement of each batch, with the loop that drives both and the device. Instructions are the difference of two
//! runs under callgrind, so that what happens once does not count.

extern crate alloc;

use alloc::rc::Rc;
use core::{error::Error, hint::black_box};
use std::{process::ExitCode, time::Instant};

use clap::Parser;
use unisono_benches::callgrind::instructions;
use unisono_benches::fixtures::null_device::{NullDevice, NullMemory};
use unisono_core::counters::{Counters, Metric};
use unisono_core::device::{Device, DeviceQueue};
use unisono_core::endpoint::{Config, Event, Handler, Verdict};
use unisono_core::ids::{Incarnation, PeerId, RemoteKey};
use unisono_core::progress::make_progress;
use unisono_core::span::Span;
use unisono_core::wire::SEGMENT_HEADER;
use unisono_memory::endpoint_storage::{EndpointSizes, ProcessEndpoint};
use unisono_tests::harness::report::{Limit, Report};

const SEGMENT: u32 = 64;
const BATCH: u32 = 16;
/// Segments of one placement: 1 MiB, which stays in the cache.
const SEGMENTS: u32 = 1 << 14;

/// Core cost per 64-byte segment, in instructions and nanoseconds.
#[derive(Parser)]
struct Options {
    /// Only performs the work: this number of placements.
    #[arg(long, hide = true)]
    placements: Option<u32>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// A handler that only counts, as every user does.
struct Silent(Counters);

impl Handler for Silent {
    fn handle_eager(&mut self, _: PeerId, _: &[u8], _: u32) -> Verdict {
        Verdict::Release
    }

    #[inline(always)]
    fn record(&mut self, what: Metric) {
        self.0.count(what);
    }

    #[inline(always)]
    fn record_all(&mut self, what: Metric, times: u32) {
        self.0.count_all(what, times);
    }
}

struct Side {
    endpoint: ProcessEndpoint,
    device: NullDevice,
    above: Silent,
}

impl Side {
    fn new(rank: u32, source: &Rc<[u8]>) -> Self {
        let bytes = (SEGMENT * SEGMENTS) as usize;
        let device = NullDevice::new(rank, SEGMENT + SEGMENT_HEADER as u32, BATCH as usize, Rc::clone(source), bytes);
        let limits = device.limits();
        let config = Config::new(PeerId(rank), Incarnation(rank + 1), &limits);
        let mut endpoint = ProcessEndpoint::new(0, config, EndpointSizes::of_job(2).pools());
        endpoint.add_peer(0, PeerId(1 - rank), Incarnation(2 - rank), limits.mtu);
        Self { endpoint, device, above: Silent(Counters::default()) }
    }

    fn drive(&mut self, now: u64, memory: &NullMemory) {
        make_progress(now, DeviceQueue::Polled, &mut self.endpoint, &mut self.device, memory, &mut self.above, BATCH);
    }
}

/// Sends `placements` placements of `SEGMENTS` segments; returns the number of sent segments, and nanoseconds per
/// segment.
fn work(placements: u32) -> Result<(u64, f64), Box<dyn Error>> {
    let bytes = SEGMENT * SEGMENTS;
    let source: Rc<[u8]> = (0..bytes).map(|i| (i ^ i >> 8) as u8).collect();
    let memory = NullMemory { bytes: bytes as usize };
    let span = Span { region: NullMemory::REGION, offset: 0, bytes };
    let (mut from, mut to) = (Side::new(0, &source), Side::new(1, &source));
    let mut now = 1_000_000_u64;
    let started = Instant::now();
    for number in 0..placements {
        let key = RemoteKey(u64::from(number));
        let placement = to.endpoint.grant(PeerId(0), span, key).map_err(|why| format!("{why:?}"))?;
        let place = from.endpoint.place(now, PeerId(1), placement, key, span);
        place.map_err(|why| format!("{why:?}"))?;
        let mut left = 2;
        while left > 0 {
            // A batch takes about 500 ns.
            now += 500;
            from.drive(now, &memory);
            from.device.deliver(&mut to.device);
            to.drive(now, &memory);
            to.device.deliver(&mut from.device);
            left -= from.endpoint.poll_event(now).map_or(0, counted) + to.endpoint.poll_event(now).map_or(0, counted);
        }
    }
    let ns = started.elapsed().as_nanos() as f64;
    if black_box(&to.device.target)[..] != source[..] {
        return Err("the received bytes differ from the sent ones".into());
    }
    let sent = from.above.0.data_sent();
    if sent != u64::from(placements) * u64::from(SEGMENTS + 1) {
        return Err(format!("{sent} datagrams were sent: some were resent").into());
    }
    Ok((sent, ns / sent as f64))
}

fn counted(event: Event) -> u32 {
    u32::from(matches!(event, Event::Completed(_, Ok(())) | Event::Delivered(..)))
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    if let Some(placements) = options.placements {
        work(placements)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::new(5, options.json);
    let (few, many) = (instructions(&["--placements", "4"])?, instructions(&["--placements", "12"])?);
    let each = (many - few) as f64 / f64::from(8 * (SEGMENTS + 1));
    report.figure("instructions", "per 64-byte segment", each, "instructions", Limit::Most(250.0));
    let mut times: Vec<f64> = (0..15).map(|_| work(20).map(|(_, ns)| ns)).collect::<Result<_, _>>()?;
    times.sort_by(f64::total_cmp);
    let middle = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
    report.figure("time_p50", "per 64-byte segment", middle, "ns", Limit::Most(40.0));
    report.figure("time_least", "per 64-byte segment", times.first().copied().unwrap_or(f64::NAN), "ns", Limit::None);
    Ok(report.end())
}
