//! The UDP device against the bare loop, without a protocol: delivered rate and spinning ping-pong on loopback, in
//! interleaved pairs; and the cost of a datagram with sender and receiver in turns on one thread, which other load disturbs less.
//!
//! `udp [PAIRS [MILLISECONDS [CASE]]]`; a case is `64`, `64-gso`, `1024`, `1024-gso`, `8192`, `8192-gso`, `ping`, or one of
//! these followed by `-bare` or `-device` to run (and profile) one side only.

use core::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use std::{env, thread, time::Instant};

use unisono::{
    region::Regions,
    udp::{MTU_MAX, MTU_MIN, Options, Udp},
};
use unisono_benches::{
    bare::Bare,
    race::{BATCH, bare_rate, median, rate},
};
use unisono_core::{
    device::{Cause, Device, Lane, Memory, PeerId, Received, Token, Transmit},
    span::{Region, Span},
};

const HEAD: u8 = 32;
const PEER: PeerId = PeerId(0);

/// A device with memory to send from and to receive into.
struct Side {
    device: Udp,
    regions: Regions,
    source: Region,
    target: Region,
    bytes: u32,
    cursor: u32,
}

impl Side {
    fn pair(bytes: u32, gso: bool) -> Result<[Self; 2], Box<dyn Error>> {
        let options = Options { mtu: Some((bytes + 36).max(MTU_MIN)), gso, ..Options::new("127.0.0.1".parse()?, 1) };
        let side = || -> Result<Self, Box<dyn Error>> {
            let mut regions = Regions::new();
            let (source, target) =
                (regions.allocate(bytes as usize * BATCH)?, regions.allocate(bytes as usize * BATCH)?);
            Ok(Self { device: Udp::bind(&options)?, regions, source, target, bytes, cursor: 0 })
        };
        let (mut a, mut b) = (side()?, side()?);
        a.device.set_path(PEER, b.device.local()?, MTU_MAX)?;
        b.device.set_path(PEER, a.device.local()?, MTU_MAX)?;
        Ok([a, b])
    }

    /// Returns how many left: where the kernel cuts runs, a batch is of whole ones.
    fn send(&mut self, count: usize) -> usize {
        let mut sent = 0;
        for index in 0..count as u32 {
            let span = Span { region: self.source, offset: (index * self.bytes) as usize, bytes: self.bytes };
            let Some(mut token) = self.device.token(Lane::Polled) else { break };
            token.head().fill(index as u8);
            let transmit = Transmit {
                to: PEER,
                at: Lane::Polled,
                head: HEAD,
                payload: Some(span),
                solicited: false,
                cause: Cause::First,
            };
            token.post(&transmit, self.regions.address(span));
            sent += 1;
        }
        self.device.flush(Lane::Polled);
        sent
    }

    /// At most one batch.
    fn receive(&mut self) -> usize {
        let mut count = 0;
        for _ in 0..BATCH {
            let Some(datagram) = self.device.receive(Lane::Polled) else { break };
            let (slot, known) = (datagram.slot(), datagram.is_from(PEER) && datagram.head().len() > usize::from(HEAD));
            let span = Span { region: self.target, offset: (self.cursor * self.bytes) as usize, bytes: self.bytes };
            if let (true, Some(to)) = (known, self.regions.address(span)) {
                self.device.place(slot, HEAD.into(), self.bytes, to);
                count += 1;
            }
            self.cursor = (self.cursor + 1) % BATCH as u32;
            self.device.release(slot);
        }
        count
    }
}

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
    let [mut from, mut to] = Side::pair(bytes, gso)?;
    let tally = to.device.tally();
    let device = turns(time, || from.send(batch), || to.receive());
    let [(send, receive), (bare_send, bare_receive)] = [(device[0], device[1]), (bare[0], bare[1])];
    let count = tally.received.get();
    println!(
        "  in turns, ns: send {bare_send:.0} -> {send:.0}, receive {bare_receive:.0} -> {receive:.0} ({count} datagrams)"
    );
    Ok(())
}

/// Round trips in a second.
fn ping_pong(time: Duration, mut ping: impl FnMut() + Send, mut pong: impl FnMut(&AtomicBool) + Send) -> f64 {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| pong(&done));
        let (mut count, start) = (0_u64, Instant::now());
        while start.elapsed() < time {
            for _ in 0..64 {
                ping();
                count += 1;
            }
        }
        let rate = count as f64 / start.elapsed().as_secs_f64();
        done.store(true, Relaxed);
        ping();
        rate
    })
}

fn device_rate(bytes: u32, gso: bool, time: Duration) -> Result<f64, Box<dyn Error>> {
    let [mut from, mut to] = Side::pair(bytes, gso)?;
    Ok(rate(time, move || _ = from.send(BATCH), move || to.receive())?)
}

fn bare_ping(bytes: u32, _: bool, time: Duration) -> Result<f64, Box<dyn Error>> {
    let [mut from, mut to] = [Bare::new(bytes as usize, 1, false)?, Bare::new(bytes as usize, 1, false)?];
    let (here, there) = (from.local()?, to.local()?);
    let ping = move || {
        from.ping(there);
        from.wait();
    };
    let pong = move |done: &AtomicBool| {
        while !done.load(Relaxed) {
            to.wait();
            to.ping(here);
        }
    };
    Ok(ping_pong(time, ping, pong))
}

fn device_ping(bytes: u32, gso: bool, time: Duration) -> Result<f64, Box<dyn Error>> {
    let [mut from, mut to] = Side::pair(bytes, gso)?;
    let ping = move || {
        from.send(1);
        while from.receive() == 0 {}
    };
    let pong = move |done: &AtomicBool| {
        while !done.load(Relaxed) {
            while to.receive() == 0 {}
            to.send(1);
        }
    };
    Ok(ping_pong(time, ping, pong))
}

type Measure = fn(u32, bool, Duration) -> Result<f64, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |index: usize, default: u64| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (pairs, time) = (number(0, 20)?, Duration::from_millis(number(1, 100)?));
    let wanted = arguments.get(2).map(String::as_str).unwrap_or_default();
    let rates: (Measure, Measure) = (|bytes, gso, time| Ok(bare_rate(bytes, gso, time)?), device_rate);
    let cases = [
        ("64", 64, false, rates),
        ("64-gso", 64, true, rates),
        ("1024", 1024, false, rates),
        ("1024-gso", 1024, true, rates),
        ("8192", 8192, false, rates),
        ("8192-gso", 8192, true, rates),
        ("ping", 64, false, (bare_ping, device_ping)),
        ("ping-gso", 64, true, (bare_ping, device_ping)),
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
