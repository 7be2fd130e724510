//! `unisono bench exchange`: every rank sends data to the next one in a ring, and rank 0 prints a table of all ranks'
//! results.

use core::error::Error;
use indicatif::HumanBytes;
use std::time::Instant;
use unisono::{Failure, Rank, Tag, World};
use unisono_core::counters::DropReason;
use unisono_core::device::TxReason;

use super::{buffer, device::device, latency, verification};

const DATA: Tag = Tag(3);
const REPORT: Tag = Tag(4);
/// Size of one message in bytes.
const MESSAGE: usize = 1 << 20;
/// Numbers in a rank's report.
const NUMBERS: usize = 9;

/// Exchanges `bytes` bytes per rank. Returns whether every byte was correct.
pub(super) fn run(world: &World, bytes: usize, as_json: bool) -> Result<bool, Box<dyn Error>> {
    let (rank, size) = (world.rank().0, world.size());
    let (next, previous) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
    let data = verification::data(rank, bytes)?;
    let mut arrived = buffer::zeroed::<u8>(bytes)?;
    let started = Instant::now();
    world.scope(|scope| -> Result<(), Failure> {
        let mut requests = Vec::new();
        for (there, here) in data.chunks(MESSAGE).zip(arrived.chunks_mut(MESSAGE)) {
            requests.push(scope.immediate_receive_into(here, previous, DATA)?);
            requests.push(scope.immediate_send(there, next, DATA)?);
        }
        requests.into_iter().try_for_each(|request| request.wait().map(|_| ()))
    })?;
    let time = started.elapsed();
    let right = verification::hash(&arrived) == verification::hash(&verification::data(previous.0, bytes)?);
    let latency = if size > 1 { latency::ring(world, 8, 200)? } else { 0 };
    let counters = world.counters();
    let report: [u64; NUMBERS] = [
        (bytes as f64 / time.as_secs_f64()) as u64,
        latency,
        counters.data_sent(),
        counters.sent_for(TxReason::ResentNack),
        counters.sent_for(TxReason::ResentProbe),
        counters.duplicates,
        world.udp_counters().bad_checksum.get(),
        counters.dropped_for(DropReason::Malformed) + counters.dropped_for(DropReason::Refused),
        u64::from(right),
    ];
    if rank != 0 {
        world.send(&report, Rank(0), REPORT)?;
        return Ok(right);
    }
    let reports = (0..size).map(|from| report_of(world, from, report)).collect::<Result<Vec<_>, _>>()?;
    let (all, sentence) = summary(&reports);
    if as_json {
        for (from, theirs) in (0..).zip(&reports) {
            println!("{}", as_object(&device(world), from, size, bytes, *theirs));
        }
        return Ok(all);
    }
    println!("{size} ranks, {} from each to the next one in a ring\n", HumanBytes(bytes as u64));
    println!(
        "{:>4}  {:>12}  {:>11}  {:>9}  {:>11}  {:>12}  {:>10}  {:>9}  data",
        "rank", "bandwidth", "latency", "datagrams", "resent:nack", "resent:probe", "duplicates", "corrupted"
    );
    for (from, theirs) in reports.iter().enumerate() {
        let [bandwidth, latency, sent, nack, probe, duplicates, corrupt, _, right] = *theirs;
        println!(
            "{from:>4}  {:>10}/s  {:>8.1} µs  {sent:>9}  {nack:>11}  {probe:>12}  {duplicates:>10}  {corrupt:>9}  {}",
            HumanBytes(bandwidth).to_string(),
            latency as f64 / 1000.0,
            if right == 1 { "equal" } else { "DIFFERENT" }
        );
    }
    println!("\n{sentence}");
    Ok(all)
}

/// Whether every rank received the sent data, and a sentence that states it. Refused datagrams are not losses: the
/// job's own are sent again.
fn summary(reports: &[[u64; NUMBERS]]) -> (bool, String) {
    let all = reports.iter().all(|report| report[NUMBERS - 1] == 1);
    let refused: u64 = reports.iter().map(|report| report[NUMBERS - 2]).sum();
    let said = if all { "every byte arrived as it was sent" } else { "DATA WERE LOST OR CHANGED" };
    let others =
        if refused > 0 { format!("; {refused} datagrams from outside the job were refused") } else { String::new() };
    (all, format!("{said}{others}"))
}

/// The report of a rank, at rank 0, whose own report is `own`.
fn report_of(world: &World, from: u32, own: [u64; NUMBERS]) -> Result<[u64; NUMBERS], Failure> {
    let mut theirs = own;
    if from != 0 {
        world.receive_into(&mut theirs, Rank(from), REPORT)?;
    }
    Ok(theirs)
}

fn as_object(device: &str, rank: u32, ranks: u32, bytes: usize, report: [u64; NUMBERS]) -> serde_json::Value {
    let [bandwidth, latency, sent, nack, probe, duplicates, corrupt, refused, right] = report;
    serde_json::json!({
        "bench": "exchange", "device": device, "ranks": ranks, "bytes": bytes, "rank": rank,
        "bytes_per_s": bandwidth, "one_way_ns_p50": latency, "data_sent": sent, "resent_nack": nack,
        "resent_probe": probe, "duplicates": duplicates, "corrupted": corrupt, "refused": refused, "equal": right == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_is_that_of_the_exit_code() {
        let report = |refused, right| [1, 1, 1, 0, 0, 0, 0, refused, right];
        assert_eq!(summary(&[report(0, 1); 2]), (true, "every byte arrived as it was sent".to_owned()));
        let (right, said) = summary(&[report(3, 1), report(0, 1)]);
        assert!(
            right && said.starts_with("every byte") && said.ends_with("3 datagrams from outside the job were refused")
        );
        let (right, said) = summary(&[report(0, 1), report(0, 0)]);
        assert!(!right && said == "DATA WERE LOST OR CHANGED");
    }
}
