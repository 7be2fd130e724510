//! Bar 8: the cost of a poll grows with the active peers, not with the known ones.
//!
//! A process with four active peers polls: each sends it a message, and it sends each one, between them polls that find
//! nothing. Instructions are counted under callgrind in its polls only, once with 100 000 more peers that are idle.

extern crate alloc;

use alloc::rc::Rc;
use core::error::Error;
use std::process::ExitCode;

use clap::Parser;
use unisono_benches::callgrind::instructions_in;
use unisono_benches::fixtures::null_device::{NullDevice, NullMemory};
use unisono_core::device::{Device, DeviceQueue};
use unisono_core::endpoint::{Config, Handler, Verdict};
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::progress::make_progress;
use unisono_memory::endpoint_storage::{EndpointSizes, ProcessEndpoint};
use unisono_tests::harness::report::{Limit, Report};

const ACTIVE: u32 = 4;
const IDLE: u32 = 100_000;
const RING: usize = 64;
/// Polls for each exchange of messages.
const POLLS: u32 = 8;

/// Instructions of a poll with 100 000 idle peers and without.
#[derive(Parser)]
struct Options {
    /// Only polls, with this number of idle peers.
    #[arg(long, hide = true)]
    idle: Option<u32>,
    /// Exchanges of messages.
    #[arg(long, default_value_t = 500)]
    exchanges: u32,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Takes every message.
struct Sink(u64);

impl Handler for Sink {
    fn handle_eager(&mut self, _: PeerId, _: &[u8], _: u32) -> Verdict {
        self.0 += 1;
        Verdict::Release
    }
}

struct Process {
    rank: u32,
    endpoint: ProcessEndpoint,
    device: NullDevice,
    above: Sink,
}

impl Process {
    /// A process of a job with `ranks` ranks, to which the peers below `known` were added.
    fn new(rank: u32, ranks: u32, known: u32) -> Self {
        let source: Rc<[u8]> = Rc::new([]);
        let device = NullDevice::new(rank, 1468, RING, source, 0);
        let limits = device.limits();
        let config = Config::new(PeerId(rank), Incarnation(rank + 1), &limits);
        let mut endpoint = ProcessEndpoint::new(0, config, EndpointSizes::of_job(ranks as usize).pools());
        for peer in 0..known {
            endpoint.add_peer(0, PeerId(peer), Incarnation(peer + 1), limits.mtu);
        }
        Self { rank, endpoint, device, above: Sink(0) }
    }

    fn poll(&mut self, now: u64) {
        let Self { endpoint, device, above, .. } = self;
        make_progress(now, DeviceQueue::Polled, endpoint, device, &NullMemory { bytes: 0 }, above, RING as u32);
        while endpoint.poll_event(now).is_some() {}
    }

    fn send(&mut self, now: u64, to: u32) -> Result<(), Box<dyn Error>> {
        self.endpoint
            .send(now, PeerId(to), b"eight by", None)
            .map_err(|why| format!("{} to {to}: {why:?}", self.rank))?;
        Ok(())
    }
}

/// The counted function, selected by its name.
#[inline(never)]
fn poll_of_the_observed(process: &mut Process, now: u64) {
    process.poll(now);
}

fn work(idle: u32, exchanges: u32) -> Result<(), Box<dyn Error>> {
    let ranks = 1 + ACTIVE + idle;
    let mut observed = Process::new(0, ranks, ranks);
    let mut peers: Vec<Process> = (1..=ACTIVE).map(|rank| Process::new(rank, ranks.min(1 + ACTIVE), 1)).collect();
    let mut now = 1_000_000;
    for exchange in 0..exchanges {
        for peer in &mut peers {
            peer.send(now, 0)?;
            observed.send(now, peer.rank)?;
        }
        for _ in 0..POLLS {
            now += 2_000;
            for peer in &mut peers {
                peer.poll(now);
                peer.device.deliver_among(&mut [&mut observed.device]);
            }
            poll_of_the_observed(&mut observed, now);
            let mut devices: Vec<&mut NullDevice> = peers.iter_mut().map(|peer| &mut peer.device).collect();
            observed.device.deliver_among(&mut devices);
        }
        if observed.above.0 != u64::from((exchange + 1) * ACTIVE)
            || peers.iter().any(|peer| peer.above.0 != u64::from(exchange) + 1)
        {
            return Err(format!("messages are missing after exchange {exchange}").into());
        }
    }
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    if let Some(idle) = options.idle {
        work(idle, options.exchanges)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::new(8, options.json);
    let exchanges = options.exchanges.to_string();
    let count = |idle: u32| {
        instructions_in("*poll_of_the_observed*", &["--idle", &idle.to_string(), "--exchanges", &exchanges])
    };
    let polls = f64::from(options.exchanges * POLLS);
    let (alone, beside) = (count(0)? as f64 / polls, count(IDLE)? as f64 / polls);
    report.figure("instructions_per_poll", "4 active peers", alone, "instructions", Limit::Least(1.0));
    report.figure("instructions_per_poll", "4 active and 100000 idle peers", beside, "instructions", Limit::None);
    report.figure("ratio", "", beside / alone, "", Limit::Most(1.05));
    Ok(report.end())
}
