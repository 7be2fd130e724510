//! An endpoint over the device: messages that arrive, once and in order.

use core::error::Error;
use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;
use core::time::Duration;
use std::env;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use unisono_core::device::{Device as _, DeviceQueue};
use unisono_core::ids::PeerId;
use unisono_core::span::{Region, Span};
use unisono_core::wire::HEADER;
use unisono_verbs::ud::{Gid, Path};

use super::{Contender, DATAGRAMS, Measure, Processor, SHORT, TRIPS, WARM, median, pin};
use crate::verbs::{Adapter, Outcome, VerbsEnd};

/// Messages under way at most.
const UNDER_WAY: u32 = 512;
/// Nanoseconds without anything after which a turn has failed.
const SILENCE: u64 = 30_000_000_000;
/// Looks for arrivals that share a look at the clock: an emulated clock is behind a lock, and those who wait slow those
/// who send.
const IDLE: u32 = 256;
/// How long who took all messages stays for its acknowledgements.
const LINGER: Duration = Duration::from_millis(20);
/// Between two looks whether the other end has ended.
const GLANCE: Duration = Duration::from_millis(1);

/// Messages that all have the same payload.
struct Stream {
    sent: u32,
    done: u32,
    rounds: u32,
    now: u64,
    payload: Span,
}

impl Stream {
    fn new(end: &mut VerbsEnd, bytes: u32) -> Outcome<Self> {
        let region: Region = end.regions.allocate(bytes as usize)?;
        Ok(Self { sent: 0, done: 0, rounds: 0, now: end.now(), payload: Span { region, offset: 0, bytes } })
    }

    fn send(&mut self, end: &mut VerbsEnd, to: u32) -> bool {
        // The next round lets it leave.
        (self.now, self.rounds) = (end.now(), 1);
        self.queue(end, to)
    }

    #[inline(always)]
    fn queue(&mut self, end: &mut VerbsEnd, to: u32) -> bool {
        let taken = end.endpoint.send(self.now, PeerId(to), &[], Some(self.payload)).is_ok();
        self.sent += u32::from(taken);
        taken
    }

    /// Answers at the time of the look that the message was found by, as a round does, and lets it leave at once. The
    /// clock is looked at behind it.
    fn post(&mut self, end: &mut VerbsEnd, to: u32) {
        self.queue(end, to);
        end.transmit_at(self.now);
        (self.now, self.rounds) = (end.now(), 1);
    }

    #[inline(always)]
    fn drive(&mut self, end: &mut VerbsEnd) -> bool {
        if self.rounds == 0 {
            self.now = end.now();
            self.rounds = IDLE;
        }
        self.rounds -= 1;
        // While the clock stands still and nothing arrives, there is nothing else to do. What follows from an arrival
        // is done in the next round, behind the answer.
        if self.rounds > 0 {
            let received = end.device.poll(DeviceQueue::Polled) && end.receive_at(self.now);
            if received {
                self.rounds = 1;
            }
            return received;
        }
        self.round(end)
    }

    /// A whole round.
    #[inline(never)]
    fn round(&mut self, end: &mut VerbsEnd) -> bool {
        let moved = end.drive_at(self.now);
        while let Some(event) = end.endpoint.poll_event(self.now) {
            self.done += u32::from(matches!(event, unisono_core::endpoint::Event::Completed(..)));
        }
        moved
    }
}

/// Drives until `enough` or silence.
fn until(end: &mut VerbsEnd, stream: &mut Stream, enough: impl Fn(&VerbsEnd, &Stream) -> bool) -> Outcome<()> {
    let mut moved = stream.now;
    while !enough(end, stream) {
        if stream.drive(end) {
            moved = stream.now;
        } else if stream.now.saturating_sub(moved) > SILENCE {
            return Err("an end receives nothing any more".into());
        }
    }
    Ok(())
}

/// Microseconds one way, median.
pub(super) fn latency(contender: Contender, [here, there]: [Adapter<'_>; 2]) -> Outcome<f64> {
    pin(Processor::Here)?;
    let (mut here, mut other) = OtherEnd::start(contender, Measure::Latency, [here, there])?;
    let mut stream = Stream::new(&mut here, SHORT)?;
    let mut trips = Vec::new();
    let mut before = None;
    for trip in 0..=WARM + TRIPS {
        stream.post(&mut here, 1);
        // The answer is here when the next message leaves, as perftest counts.
        if let Some(before) = before.replace(stream.now) {
            trips.push((stream.now - before) as f64 / 2e3);
        }
        until(&mut here, &mut stream, |end, _| end.counter.messages > trip)?;
    }
    other.finish(&mut here, &mut stream)?;
    Ok(median(&trips[WARM as usize..]))
}

/// Megabytes of payload delivered per second: until the last is acknowledged.
pub(super) fn rate(contender: Contender, [here, there]: [Adapter<'_>; 2]) -> Outcome<f64> {
    pin(Processor::Here)?;
    let (mut here, mut other) = OtherEnd::start(contender, Measure::Rate, [here, there])?;
    let payload = here.device.limits().mtu - HEADER as u32;
    let mut stream = Stream::new(&mut here, payload)?;
    let started = Instant::now();
    while stream.sent < DATAGRAMS {
        while stream.sent < DATAGRAMS && stream.sent - stream.done < UNDER_WAY && stream.send(&mut here, 1) {}
        stream.drive(&mut here);
    }
    until(&mut here, &mut stream, |_, stream| stream.done == stream.sent)?;
    let time = started.elapsed();
    other.finish(&mut here, &mut stream)?;
    Ok(f64::from(DATAGRAMS) * f64::from(payload) / time.as_secs_f64() / 1e6)
}

/// The other end: answers every message, or consumes them.
pub(super) fn answer(measure: Measure, adapter: Adapter<'_>) -> Outcome<()> {
    pin(Processor::There)?;
    let mut there = VerbsEnd::new(1, 2, adapter, Instant::now())?;
    println!("{}", EndAddress(there.device.local()));
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    there.connect(0, line.parse::<EndAddress>()?.0)?;
    let bytes = if measure == Measure::Latency { SHORT } else { 1 };
    let mut stream = Stream::new(&mut there, bytes)?;
    match measure {
        Measure::Latency => {
            for trip in 0..=WARM + TRIPS {
                until(&mut there, &mut stream, |end, _| end.counter.messages > trip)?;
                stream.post(&mut there, 0);
            }
            until(&mut there, &mut stream, |_, stream| stream.done == stream.sent)
        }
        Measure::Rate => {
            until(&mut there, &mut stream, |end, _| end.counter.messages == DATAGRAMS)?;
            let ended = Instant::now();
            // Its last acknowledgements leave.
            while ended.elapsed() < LINGER {
                stream.drive(&mut there);
            }
            Ok(())
        }
    }
}

/// The other end, in a process of its own, as for all contenders.
struct OtherEnd(Child);

impl OtherEnd {
    /// Starts it, and makes this end; they know each other then.
    fn start(contender: Contender, measure: Measure, [here, there]: [Adapter<'_>; 2]) -> Outcome<(VerbsEnd, Self)> {
        let mut end = VerbsEnd::new(0, 2, here, Instant::now())?;
        let mut other = Command::new(env::current_exe()?)
            .args(["answer", contender.name(), measure.name(), there.name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (mut to, from) = (other.stdin.take().ok_or("no pipe")?, other.stdout.take().ok_or("no pipe")?);
        writeln!(to, "{}", EndAddress(end.device.local()))?;
        let mut line = String::new();
        BufReader::new(from).read_line(&mut line)?;
        end.connect(1, line.parse::<EndAddress>()?.0)?;
        Ok((end, Self(other)))
    }

    /// Answers it until it has ended.
    fn finish(&mut self, end: &mut VerbsEnd, stream: &mut Stream) -> Outcome<()> {
        let status = loop {
            if let Some(status) = self.0.try_wait()? {
                break status;
            }
            let looked = Instant::now();
            while looked.elapsed() < GLANCE {
                stream.drive(end);
            }
        };
        if status.success() { Ok(()) } else { Err(format!("the other end ended with {status}").into()) }
    }
}

impl Drop for OtherEnd {
    fn drop(&mut self) {
        // Of one that has ended, nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Address of an end as a line of text: GID and both queue pair numbers.
struct EndAddress(Path);

impl fmt::Display for EndAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Path { gid, polled, interrupt }) = self;
        write!(to, "{gid} {polled} {interrupt}")
    }
}

impl FromStr for EndAddress {
    type Err = Box<dyn Error + Send + Sync>;

    fn from_str(line: &str) -> Outcome<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        let [gid, polled, interrupt] = words[..] else {
            return Err(format!("not an address of an end: {line}").into());
        };
        let gid = Gid(gid.parse::<Ipv6Addr>()?.octets());
        Ok(Self(Path { gid, polled: polled.parse()?, interrupt: interrupt.parse()? }))
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;

    #[test]
    fn address_of_an_end_round_trips() {
        for gid in [Gid::from(IpAddr::from([10, 0, 0, 1])), Gid([7; 16])] {
            let path = Path { gid, polled: 17, interrupt: 0xff_fffe };
            assert_eq!(EndAddress(path).to_string().parse::<EndAddress>().map(|card| card.0).ok(), Some(path));
        }
        assert!("::1 17".parse::<EndAddress>().is_err());
        assert!("".parse::<EndAddress>().is_err());
    }
}
