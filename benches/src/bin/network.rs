//! UDP against the bare loop (issue 3, bar 6): delivered rate with the same batch, segmentation, socket buffers and one
//! copy, and ping-pong against a spinning one; in interleaved pairs, median ratio.
//!
//! Ours is once the device alone, checksums and placement included, and once the whole stack: `unisono run -n 2
//! --device udp --pin … -- unisono bench rate|latency`. Device and bare loop run on two threads pinned as the ranks
//! are. Both are measured by the same bars. Fails when one is missed.

use core::{error::Error, time::Duration};
use std::{io, process::ExitCode};

use clap::Parser;

use unisono_benches::{
    cache_line::CacheLineDistances,
    comparison::verdict::{Bar, ComparisonVerdict, load},
    contenders::unisono_command,
    fixtures::thread_pair::{bare_rate, bare_round_trip, device_rate, device_round_trip, median},
};
use unisono_core::message::point_to_point::MessageHeader;
use unisono_core::wire::HEADER;
use unisono_tests::harness::cpu_latency::CpuLatencyRequest;

/// Bytes of a datagram before and behind the payload of a message: header, message's head, checksum.
const OVERHEAD: u32 = (HEADER + MessageHeader::EAGER) as u32 + 4;

/// Bytes of a ping-pong message.
const BALL: u32 = 64;

/// Measures the UDP device and all of unisono over it against a bare loop.
#[derive(Parser, Debug)]
struct Options {
    /// Interleaved pairs
    #[arg(long, default_value_t = 20)]
    pairs: u64,
    /// How long each rate is measured
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration, default_value = "200ms")]
    time: Duration,
    /// One object per line
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Options { pairs, time, json: as_json } = Options::parse();
    let binary = unisono_command::binary()?;
    let _awake = CpuLatencyRequest::begin();
    let mut all_met = true;
    if !as_json {
        println!("{pairs} interleaved pairs of {} ms, load average {}", time.as_millis(), load());
    }
    for (bytes, gso, bar) in [(1024, false, 0.85), (8192, false, 0.85), (1024, true, 0.7), (8192, true, 0.7)] {
        let (mtu, size, period) =
            ((bytes + OVERHEAD).to_string(), bytes.to_string(), format!("{}ms", time.as_millis()));
        let options = ["--mtu", &mtu, "--gso", if gso { "on" } else { "off" }];
        let benchmark = ["rate", "--bytes", &size, "--for", &period];
        let stack = || unisono_command::measure(&binary, &options, &benchmark, "messages_per_s");
        let case = format!("{bytes} bytes{}", if gso { ", GSO" } else { "" });
        let bare = || bare_rate(bytes, gso, time);
        let race = |what: &str, ours: &dyn Fn() -> io::Result<f64>| {
            compare(format!("rate of the {what}, {case}"), "1/s", pairs, Bar::Least(bar), ours, bare, as_json)
        };
        all_met &= race("device", &|| device_rate(bytes, gso, time))?;
        all_met &= race("whole stack", &stack)?;
    }
    let size = BALL.to_string();
    let stack = || {
        let one_way =
            unisono_command::measure(&binary, &["--gso", "off"], &["latency", "--bytes", &size], "one_way_ns_p50")?;
        Ok(2.0 * one_way)
    };
    let bare = || bare_round_trip(BALL);
    let race = |what: &str, ours: &dyn Fn() -> io::Result<f64>| {
        let name = format!("round trip of the {what}, {BALL} bytes");
        compare(name, "ns", pairs, Bar::Most(1.25), ours, bare, as_json)
    };
    all_met &= race("device", &|| device_round_trip(BALL, false))?;
    all_met &= race("whole stack", &stack)?;
    if !as_json {
        println!("load average {}", load());
    }
    Ok(if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn compare(
    name: String,
    unit: &'static str,
    pairs: u64,
    bar: Bar,
    ours: impl Fn() -> io::Result<f64>,
    bare: impl Fn() -> io::Result<f64>,
    as_json: bool,
) -> io::Result<bool> {
    let (mut of_ours, mut of_bare, mut distances) = (Vec::new(), Vec::new(), CacheLineDistances::default());
    for _ in 0..pairs {
        let (bare, ours) = distances.measure(|| Ok((bare()?, ours()?)))?;
        of_bare.push(bare);
        of_ours.push(ours);
    }
    let ratio = median(of_ours.iter().zip(&of_bare).map(|(ours, bare)| ours / bare).collect());
    let verdict = ComparisonVerdict { name, unit, ours: median(of_ours), theirs: median(of_bare), ratio, bar };
    verdict.print(as_json);
    if !as_json {
        println!("{distances}");
    }
    Ok(verdict.is_met())
}
