//! The UDP device against the bare loop, without a protocol: delivered rate and spinning ping-pong on loopback, in
//! interleaved pairs; and the cost of a datagram with sender and receiver in turns on one thread, which other load
//! disturbs less.
//!
//! `udp [PAIRS [MILLISECONDS [CASE]]]`; a case is `64`, `64-gso`, `1024`, `1024-gso`, `8192`, `8192-gso`, `ping`, or
//! one of these followed by `-bare` or `-device` to run (and profile) one side only.

use core::{error::Error, time::Duration};
use std::{env, io, time::Instant};

use unisono_benches::{
    contenders::bare_udp::Bare,
    fixtures::thread_pair::{BATCH, bare_rate, bare_round_trip, device_rate, device_round_trip, median},
    fixtures::udp_pair::UdpEnd,
};

/// Median nanoseconds per datagram to send and to receive a batch, in turns on one thread: no loss, no empty calls.
fn turns(time: Duration, mut send: impl FnMut() -> usize, mut receive: impl FnMut() -> usize) -> [f64; 2] {
    let (mut sending, mut receiving, begin) = (Vec::new(), Vec::new(), Instant::now());
    while begin.elapsed() < time {
        let start = Instant::now();
        let batch = send();
        let sent = Instant::now();
        let mut count = 0;
        while count < batch && begin.elapsed() < time {
            count += receive();
        }
        receiving.push(sent.elapsed().as_nanos() as f64 / batch as f64);
        sending.push((sent - start).as_nanos() as f64 / batch as f64);
    }
    [median(sending), median(receiving)]
}

fn compare_turns(
    bytes: u32,
    gso: bool,
    batch: usize,
    time: Duration,
    side: Option<&str>,
) -> Result<(), Box<dyn Error>> {
    let bare = || Bare::new(bytes as usize, BATCH, gso && batch > 1);
    let [mut from, mut to] = [bare()?, bare()?];
    let address = to.local()?;
    let bare_time = if side == Some("-device") { Duration::ZERO } else { time };
    let bare = match batch {
        1 => {
            let ping = || {
                from.ping(address);
                1
            };
            turns(bare_time, ping, || to.wait())
        }
        _ => turns(bare_time, || from.send(address), || to.receive()),
    };
    let [mut from, mut to] = UdpEnd::pair(bytes, gso)?;
    let device = turns(time, || from.send(batch), || to.receive());
    let [(send, receive), (bare_send, bare_receive)] = [(device[0], device[1]), (bare[0], bare[1])];
    let count = to.received();
    println!(
        "  in turns, ns: send {bare_send:.0} -> {send:.0}, receive {bare_receive:.0} -> {receive:.0} ({count} datagrams)"
    );
    Ok(())
}

/// Datagrams or round trips in a second.
type Measure = fn(u32, bool, Duration) -> io::Result<f64>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |index: usize, default: u64| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (pairs, time) = (number(0, 20)?, Duration::from_millis(number(1, 100)?));
    let wanted = arguments.get(2).map(String::as_str).unwrap_or_default();
    let rates: (Measure, Measure) = (bare_rate, device_rate);
    let trips: (Measure, Measure) =
        (|bytes, _, _| Ok(1e9 / bare_round_trip(bytes)?), |bytes, gso, _| Ok(1e9 / device_round_trip(bytes, gso)?));
    let cases = [
        ("64", 64, false, rates),
        ("64-gso", 64, true, rates),
        ("1024", 1024, false, rates),
        ("1024-gso", 1024, true, rates),
        ("8192", 8192, false, rates),
        ("8192-gso", 8192, true, rates),
        ("ping", 64, false, trips),
        ("ping-gso", 64, true, trips),
    ];
    for (name, bytes, gso, (bare, device)) in cases {
        let side = wanted.strip_prefix(name);
        if !wanted.is_empty() && !matches!(side, Some("" | "-bare" | "-device")) {
            continue;
        }
        let (mut of_bare, mut of_device) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            if side != Some("-device") {
                of_bare.push(bare(bytes, gso, time)?);
            }
            if side != Some("-bare") {
                of_device.push(device(bytes, gso, time)?);
            }
        }
        let ratio = median(of_device.iter().zip(&of_bare).map(|(device, bare)| device / bare).collect());
        println!("{name:9} bare {:9.0}/s  device {:9.0}/s  ratio {ratio:.3}", median(of_bare), median(of_device));
        let batch = if name.starts_with("ping") { 1 } else { BATCH };
        compare_turns(bytes, gso, batch, time, side)?;
    }
    Ok(())
}
