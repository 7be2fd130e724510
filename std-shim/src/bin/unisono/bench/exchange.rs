//! The main job: every rank sends to the next one round the ring, and rank 0 tells how it went.

use indicatif::HumanBytes;
use std::time::Instant;
use unisono::rank::Rank;
use unisono::world::{Failure, Tag, World};
use unisono_core::counters::Reason;
use unisono_core::device::Cause;

use super::{latency, pattern};

const DATA: Tag = Tag(3);
const REPORT: Tag = Tag(4);
/// Bytes of one message.
const MESSAGE: usize = 1 << 20;
/// Numbers in a rank's report.
const NUMBERS: usize = 8;

/// Exchanges `bytes` bytes per rank. Returns whether every byte was what it should be.
pub(super) fn run(world: &World, bytes: usize, as_json: bool) -> Result<bool, Failure> {
    let (rank, size) = (world.rank().0, world.size());
    let (next, previous) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
    let data = pattern::data(rank, bytes);
    let mut arrived = vec![0_u8; bytes];
    let started = Instant::now();
    world.scope(|scope| {
        let mut requests = Vec::new();
        for (there, here) in data.chunks(MESSAGE).zip(arrived.chunks_mut(MESSAGE)) {
            requests.push(scope.immediate_receive_into(here, previous, DATA)?);
            requests.push(scope.immediate_send(there, next, DATA)?);
        }
        requests.into_iter().try_for_each(|request| request.wait().map(|_| ()))
    })?;
    let time = started.elapsed();
    let right = pattern::hash(&arrived) == pattern::hash(&pattern::data(previous.0, bytes));
    let latency = if size > 1 { latency::ring(world, 8, 200)? } else { 0 };
    let counters = world.counters();
    let report: [u64; NUMBERS] = [
        (bytes as f64 / time.as_secs_f64()) as u64,
        latency,
        counters.data_sent(),
        counters.sent_for(Cause::ResentNack),
        counters.sent_for(Cause::ResentProbe),
        counters.duplicates,
        world.tally().bad_checksum.get(),
        u64::from(right),
    ];
    if rank != 0 {
        world.send(&report, Rank(0), REPORT)?;
        return Ok(right);
    }
    let mut all = true;
    if as_json {
        for from in 0..size {
            let theirs = report_of(world, from, report)?;
            all &= theirs[NUMBERS - 1] == 1;
            println!("{}", as_object(&super::device(world), from, size, bytes, theirs));
        }
        return Ok(all);
    }
    println!("{size} processes, {} each to the next one round the ring\n", HumanBytes(bytes as u64));
    println!(
        "{:>4}  {:>12}  {:>11}  {:>9}  {:>11}  {:>12}  {:>10}  {:>9}  data",
        "rank", "bandwidth", "latency", "datagrams", "resent:nack", "resent:probe", "duplicates", "corrupted"
    );
    for from in 0..size {
        let theirs = report_of(world, from, report)?;
        let [bandwidth, latency, sent, nack, probe, duplicates, corrupt, right] = theirs;
        all &= right == 1;
        println!(
            "{from:>4}  {:>10}/s  {:>8.1} µs  {sent:>9}  {nack:>11}  {probe:>12}  {duplicates:>10}  {corrupt:>9}  {}",
            HumanBytes(bandwidth).to_string(),
            latency as f64 / 1000.0,
            if right == 1 { "equal" } else { "DIFFERENT" }
        );
    }
    let strange = counters.dropped_for(Reason::Malformed) + counters.dropped_for(Reason::Refused);
    println!(
        "\n{}",
        if all && strange == 0 { "every byte arrived as it was sent" } else { "DATA WERE LOST OR CHANGED" }
    );
    Ok(all)
}

/// The report of a rank, at rank 0, whose own is `own`.
fn report_of(world: &World, from: u32, own: [u64; NUMBERS]) -> Result<[u64; NUMBERS], Failure> {
    let mut theirs = own;
    if from != 0 {
        world.receive_into(&mut theirs, Rank(from), REPORT)?;
    }
    Ok(theirs)
}

fn as_object(device: &str, rank: u32, ranks: u32, bytes: usize, report: [u64; NUMBERS]) -> serde_json::Value {
    let [bandwidth, latency, sent, nack, probe, duplicates, corrupt, right] = report;
    serde_json::json!({
        "bench": "exchange", "device": device, "ranks": ranks, "bytes": bytes, "rank": rank,
        "bytes_per_s": bandwidth, "one_way_ns_p50": latency, "data_sent": sent, "resent_nack": nack,
        "resent_probe": probe, "duplicates": duplicates, "corrupted": corrupt, "equal": right == 1,
    })
}
