//! `unisono bench`: measurements that a job makes of itself.

extern crate alloc;

mod buffer;
mod bytes;
mod collective;
mod counters;
mod device;
mod exchange;
mod hardware_baseline;
mod latency;
mod one_sided;
mod overlap;
pub mod plot;
pub mod programs;
mod skew;
mod stream;
mod sweep;
mod transfer;
pub mod tune;
mod verification;

pub use bytes::{Bytes, BytesError};

use core::time::Duration;
use device::device;
use one_sided::OneSided;
use serde_json::json;
use stream::Buffers;
use unisono::collective::CollectiveRecord;
use unisono::environment::Settings;
use unisono::{Communicator, Rank, World};
use unisono_shmem::layout::COMMUNICATOR_SLOTS;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::Write as _;

/// The measurement.
#[derive(Subcommand, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Measure {
    /// Send position-dependent data from rank 0 to rank 1, and compare hashes of both sides
    Transfer(SizeArgs),
    /// One-way latency between ranks 0 and 1: half the round-trip time of a ping-pong
    Latency(SizeArgs),
    /// Bandwidth from rank 0 to rank 1: bytes per second of a stream of messages
    Bandwidth(BandwidthArgs),
    /// Message rate from rank 0 to rank 1: messages per second
    Rate(StreamArgs),
    /// Time of a get, a put and an 8-byte fetch-and-op of a window of rank 1, against a round trip of messages
    OneSided(SizeArgs),
    /// Send data from every rank to the next one in a ring, verify them, and print a table of bandwidth, latency and
    /// repaired losses
    Exchange(SizeArgs),
    /// Baseline of the hardware: cache-line round trip, memory copies and a bare barrier between two processes; needs
    /// no launcher
    Floor(hardware_baseline::Options),
    /// Time of a barrier, in nanoseconds
    Barrier,
    /// Time of a collective, in nanoseconds
    Collective(CollectiveArgs),
    /// Synchronization delay of a barrier or allreduce with late ranks: from the last entering to the last leaving
    Skew(skew::Options),
    /// Part of an immediate collective's time that a computation as long as the collective hides
    Overlap(overlap::Options),
    /// Measure against message sizes: a table with quartiles, as CSV and as a plot; needs no launcher
    Sweep(sweep::Options),
}

/// A collective and its size.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CollectiveArgs {
    /// Collective to measure
    #[arg(value_enum)]
    pub(crate) name: collective::CollectiveName,
    #[command(flatten)]
    pub(crate) sized: SizeArgs,
    /// Leave the input as it is from call to call, as OSU's benchmarks do [default: every call has new data]
    #[arg(long)]
    pub(crate) unchanged: bool,
}

/// The size of a message.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizeArgs {
    /// Size of a message in bytes, such as 8, 64K or 1G
    #[arg(long)]
    pub(crate) bytes: Bytes,
}

/// The size of a message and the duration of the stream.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    pub(crate) sized: SizeArgs,
    /// Duration of the stream, such as 200ms
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration, default_value = "1s")]
    pub(crate) time: Duration,
}

/// The size of a message, the duration of the stream and the sender's buffers.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BandwidthArgs {
    #[command(flatten)]
    pub(crate) streamed: StreamArgs,
    /// Where the sender's data is stored: in its private memory, or in the shared-memory segment of sender and receiver
    #[arg(long, value_name = "WHERE", default_value = "private")]
    pub(crate) buffers: Buffers,
}

/// Options of `unisono bench`.
#[derive(Parser, Clone, PartialEq, Eq, Debug)]
pub struct Options {
    #[command(subcommand)]
    pub(crate) measure: Measure,
    /// Print JSON, one object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Measure collectives and barriers of a duplicate of the World instead of the World
    #[arg(long, global = true)]
    pub(crate) duplicate: bool,
    /// Measure collectives and barriers of a communicator without shared-memory resources: they use messages within a
    /// node, too
    #[arg(long, global = true, conflicts_with = "duplicate")]
    pub(crate) messages: bool,
    /// Print every rank's counters to the standard error at the end, one JSON object per line
    #[arg(long, global = true)]
    pub(crate) counters: bool,
}

/// Round trips of a ping-pong.
const ROUNDS: usize = 10_000;

/// Runs the measurement. Returns whether the received data were correct.
pub fn run(options: Options) -> Result<bool, Box<dyn core::error::Error>> {
    let (name, size, needed) = match &options.measure {
        Measure::Transfer(sized) => ("transfer", sized.bytes, 2),
        Measure::Latency(sized) => ("latency", sized.bytes, 2),
        Measure::Bandwidth(buffered) => ("bandwidth", buffered.streamed.sized.bytes, 2),
        Measure::Rate(streamed) => ("rate", streamed.sized.bytes, 2),
        Measure::OneSided(sized) => ("one-sided", sized.bytes, 2),
        Measure::Exchange(sized) => ("exchange", sized.bytes, 1),
        Measure::Floor(which) => {
            Settings::from_environment()?;
            hardware_baseline::measure(*which)?.print(options.json);
            return Ok(true);
        }
        Measure::Sweep(sweep) => {
            Settings::from_environment()?;
            sweep::run(sweep, options.json)?;
            return Ok(true);
        }
        Measure::Barrier => ("barrier", Bytes(0), 1),
        Measure::Collective(named) => ("collective", named.sized.bytes, 1),
        Measure::Skew(skewed) => ("skew", skewed.size(), 1),
        Measure::Overlap(overlapped) => ("overlap", overlapped.bytes, 1),
    };
    let mut settings = Settings::from_environment()?;
    if let Measure::Skew(skewed) = &options.measure
        && let Some(wanted) = skewed.wanted()?
    {
        settings.tuning.set(wanted);
    }
    let world = World::join_as(&settings)?;
    if world.size() < needed {
        return Err(format!(
            "{name} needs {needed} ranks: start it with `unisono run -n {needed} -- unisono bench {name} …`"
        )
        .into());
    }
    let bytes = usize::try_from(size.0)?;
    let first = world.rank() == Rank(0);
    // As many duplicates as there are communicator slots occupy all of them.
    let duplicates = if options.messages { COMMUNICATOR_SLOTS + 1 } else { u32::from(options.duplicate) };
    let duplicates = (0..duplicates).map(|_| world.duplicate()).collect::<Result<Vec<_>, _>>()?;
    let on: &Communicator = duplicates.last().unwrap_or(&world);
    let mut right = true;
    // Ranks 0 and 1 run the measurements that need two ranks.
    let device = if needed == 2 { world.device_to(Rank(1)).to_string() } else { device(&world) };
    let sharing = settings.tuning.sharing();
    let mut facts = json!({
        "bench": name, "device": device, "ranks": world.size(), "sharing": sharing, "bytes": bytes,
        "signature": world.signature().to_string(),
    });
    let mut line = String::new();
    match options.measure {
        Measure::Transfer(_) if first => {
            let transfer = transfer::send(&world, Rank(1), bytes)?;
            right = transfer.hash_sent == transfer.hash_received;
            let rate = per_second(transfer.bytes as u64, transfer.time);
            merge(
                &mut facts,
                json!({
                    "bytes_per_s": rate,
                    "hash_sent": format!("{:016x}", transfer.hash_sent),
                    "hash_received": format!("{:016x}", transfer.hash_received),
                    "data_sent": transfer.data_sent,
                    "data_minimum": transfer.data_minimum,
                    "resent_nack": transfer.resent_nack,
                    "resent_probe": transfer.resent_probe,
                    "resent_spurious": transfer.resent_spurious,
                }),
            );
            line = format!(
                "{size} in {:.2} s, {:.0} MB/s; {} data datagrams, {:.4} of the minimum; resent {} by nack, {} by probe, {} spuriously; {}",
                transfer.time.as_secs_f64(),
                rate as f64 / 1e6,
                transfer.data_sent,
                transfer.data_sent as f64 / transfer.data_minimum.max(1) as f64,
                transfer.resent_nack,
                transfer.resent_probe,
                transfer.resent_spurious,
                if right { "hashes equal" } else { "HASHES DIFFER" },
            );
        }
        Measure::Transfer(_) if world.rank() == Rank(1) => transfer::receive(&world, Rank(0), bytes)?,
        Measure::Transfer(_) | Measure::Floor(_) | Measure::Sweep(_) | Measure::Skew(_) => {}
        Measure::Latency(_) => {
            let (times, steady) = latency::ping_pong(&world, bytes, ROUNDS)?;
            let [p50, p99] = [0.5, 0.99].map(|share| latency::percentile(&times, share));
            merge(&mut facts, json!({ "one_way_ns": steady, "one_way_ns_p50": p50, "one_way_ns_p99": p99 }));
            line = format!("{size}: {:.2} µs one way, 99 % within {:.2} µs", p50 as f64 / 1e3, p99 as f64 / 1e3);
        }
        Measure::Bandwidth(BandwidthArgs { streamed, buffers: _ }) | Measure::Rate(streamed) => {
            let (buffers, reuse) = match options.measure {
                Measure::Bandwidth(buffered) => (buffered.buffers, stream::Reuse::Window),
                _ => (Buffers::Private, stream::Reuse::Arrival),
            };
            let (messages, time) = stream::stream(&world, bytes, streamed.time, buffers, reuse)?;
            let (rate, speed) = (per_second(messages, time), per_second(messages * size.0, time));
            let bandwidth = matches!(options.measure, Measure::Bandwidth(_));
            merge(
                &mut facts,
                if bandwidth {
                    json!({ "bytes_per_s": speed, "buffers": if buffers == Buffers::Segment { "segment" } else { "private" } })
                } else {
                    json!({ "messages_per_s": rate })
                },
            );
            line = format!("{size}: {:.1} MB/s, {:.3} million messages/s", speed as f64 / 1e6, rate as f64 / 1e6);
        }
        Measure::OneSided(_) => {
            let OneSided { messages, get, put, fetch_and_op, put_in_stream } = one_sided::measure(&world, bytes)?;
            let stream = per_second(size.0, Duration::from_nanos(put_in_stream));
            merge(
                &mut facts,
                json!({
                    "messages_ns": messages,
                    "get_ns": get,
                    "put_ns": put,
                    "fetch_and_op_ns": fetch_and_op,
                    "put_bytes_per_s": stream,
                }),
            );
            let [messages, get, put, fetch_and_op] = [messages, get, put, fetch_and_op].map(|ns| ns as f64 / 1e3);
            line = format!(
                "{size}: 8 bytes there and {size} back {messages:.2} µs; get {get:.2} µs, put {put:.2} µs, fetch-and-op \
                 {fetch_and_op:.2} µs; puts, 64 at a time, {:.1} MB/s",
                stream as f64 / 1e6
            );
        }
        Measure::Exchange(_) => right = exchange::run(&world, bytes, options.json)?,
        Measure::Barrier => {
            let time = collective::barrier(on)?;
            merge(&mut facts, json!({ "time_ns": time.round(), "record": record(on.last_collective()) }));
            line = format!("of {} ranks: {time:.0} ns", world.size());
        }
        Measure::Collective(CollectiveArgs { name, unchanged, .. }) => {
            let (time, last) = collective::collective(on, name, bytes, unchanged)?;
            let name = name.to_possible_value().map_or_else(String::new, |name| name.get_name().to_owned());
            merge(&mut facts, json!({ "collective": name, "time_ns": time.round(), "record": record(last) }));
            line = format!("{name} of {size} and {} ranks: {time:.0} ns", world.size());
        }
        Measure::Overlap(overlapped) => {
            let measured = overlap::measure(on, &overlapped)?;
            let (more, of) = overlap::report(&overlapped, world.size(), &measured);
            merge(&mut facts, more);
            line = of;
        }
    }
    if let Measure::Skew(skewed) = &options.measure {
        let delays = skew::measure(on, skewed)?;
        let (more, of) = skew::report(skewed, world.size(), &delays);
        merge(&mut facts, more);
        line = of;
    }
    if options.counters {
        // One write, so that lines of several ranks do not mix.
        std::io::stderr().write_all(format!("{}\n", counters::all_counters(&world)).as_bytes())?;
    }
    world.finish()?;
    if first {
        match options.measure {
            Measure::Exchange(_) => {}
            _ if options.json => println!("{facts}"),
            _ => println!("{name} {line}"),
        }
    }
    Ok(right)
}

/// Which algorithm executed the last call, and what selected it.
fn record(of: Option<CollectiveRecord>) -> Option<String> {
    of.map(|record| record.to_string())
}

fn per_second(count: u64, time: Duration) -> u64 {
    (count as f64 / time.as_secs_f64().max(1e-9)) as u64
}

fn merge(into: &mut serde_json::Value, more: serde_json::Value) {
    if let (Some(into), serde_json::Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words = core::iter::once("bench").chain(line.split(' '));
        Options::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_grammar_of_the_design_is_understood() {
        let sized = |bytes| SizeArgs { bytes: Bytes(bytes) };
        let streamed = |bytes, time| StreamArgs { sized: sized(bytes), time: Duration::from_millis(time) };
        let buffered = |buffers| Measure::Bandwidth(BandwidthArgs { streamed: streamed(65536, 1000), buffers });
        for (line, measure) in [
            ("transfer --bytes 1G", Measure::Transfer(sized(1 << 30))),
            ("latency --bytes 8", Measure::Latency(sized(8))),
            ("bandwidth --bytes 64K", buffered(Buffers::Private)),
            ("bandwidth --bytes 64K --buffers segment", buffered(Buffers::Segment)),
            ("rate --bytes 64 --for 200ms", Measure::Rate(streamed(64, 200))),
            ("one-sided --bytes 4K", Measure::OneSided(sized(4096))),
            ("exchange --bytes 1M", Measure::Exchange(sized(1 << 20))),
            ("floor", Measure::Floor(hardware_baseline::Options { bytes: None })),
            ("floor --bytes 64K", Measure::Floor(hardware_baseline::Options { bytes: Some(Bytes(65536)) })),
            ("barrier", Measure::Barrier),
            (
                "skew --late 3:20ms,0:1us --algorithm adaptive",
                Measure::Skew(skew::Options {
                    late: vec![(3, Duration::from_millis(20)), (0, Duration::from_micros(1))],
                    collective: skew::SkewCollective::Barrier,
                    algorithm: Some("adaptive".to_owned()),
                    bytes: Bytes(8),
                    rounds: 50,
                }),
            ),
            (
                "collective all_to_all --bytes 4K",
                Measure::Collective(CollectiveArgs {
                    name: collective::CollectiveName::AllToAll,
                    sized: sized(4096),
                    unchanged: false,
                }),
            ),
            (
                "overlap allreduce --bytes 1M --rounds 7",
                Measure::Overlap(overlap::Options {
                    name: overlap::OverlapCollective::AllReduce,
                    bytes: Bytes(1 << 20),
                    rounds: 7,
                }),
            ),
        ] {
            assert_eq!(
                parse(line),
                Ok(Options {
                    measure: measure.clone(),
                    json: false,
                    duplicate: false,
                    messages: false,
                    counters: false
                }),
                "{line}"
            );
            assert_eq!(
                parse(&format!("{line} --json")),
                Ok(Options { measure, json: true, duplicate: false, messages: false, counters: false }),
                "{line}"
            );
        }
        for line in [
            "",
            "transfer",
            "latency --bytes",
            "dance --bytes 8",
            "bandwidth --bytes 8 --buffers elsewhere",
            "barrier --bytes 8",
            "collective dance --bytes 8",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
