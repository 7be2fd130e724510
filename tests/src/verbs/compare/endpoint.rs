//! An endpoint over the device: messages that arrive, once and in order.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use unisono_core::device::{Lane, PeerId};
use unisono_core::span::{Region, Span};

use super::{DATAGRAMS, SHORT, Side, TRIPS, WARM, median, pin};
use crate::verbs::{Adapter, End, Outcome};

/// Messages under way at most.
const UNDER_WAY: u32 = 512;
/// Nanoseconds without anything after which a turn has failed.
const SILENCE: u64 = 30_000_000_000;
/// Looks for arrivals that share a look at the clock: an emulated clock is behind a lock, and those who wait slow those who send.
const IDLE: u32 = 32;

/// Messages that all have the same payload.
struct Stream {
    sent: u32,
    done: u32,
    rounds: u32,
    now: u64,
    payload: Span,
}

impl Stream {
    fn new(end: &mut End, bytes: u32) -> Outcome<Self> {
        let region: Region = end.regions.allocate(bytes as usize)?;
        Ok(Self { sent: 0, done: 0, rounds: 0, now: end.now(), payload: Span { region, offset: 0, bytes } })
    }

    fn send(&mut self, end: &mut End, to: u32) -> bool {
        // The next round lets it leave.
        (self.now, self.rounds) = (end.now(), 1);
        self.queue(end, to)
    }

    #[inline(always)]
    fn queue(&mut self, end: &mut End, to: u32) -> bool {
        let taken = end.endpoint.send(self.now, PeerId(to), &[], Some(self.payload)).is_ok();
        self.sent += u32::from(taken);
        taken
    }

    /// Answers at the time of the look that the message was found by, as a round does, and lets it leave at once. The clock is looked at
    /// behind it.
    fn post(&mut self, end: &mut End, to: u32) {
        self.queue(end, to);
        end.transmit_at(self.now);
        (self.now, self.rounds) = (end.now(), 1);
    }

    #[inline(always)]
    fn drive(&mut self, end: &mut End) -> bool {
        if self.rounds == 0 {
            self.now = end.now();
            self.rounds = IDLE;
        }
        self.rounds -= 1;
        // While the clock stands still and nothing arrives, there is nothing else to do. What follows from an arrival is done in the next
        // round, behind the answer.
        if self.rounds > 0 {
            let received = end.device.look(Lane::Polled) && end.receive_at(self.now);
            if received {
                self.rounds = 1;
            }
            return received;
        }
        self.round(end)
    }

    /// A whole round.
    #[inline(never)]
    fn round(&mut self, end: &mut End) -> bool {
        let moved = end.drive_at(self.now);
        while let Some(event) = end.endpoint.poll_event(self.now) {
            self.done += u32::from(matches!(event, unisono_core::endpoint::Event::Completed(..)));
        }
        moved
    }
}

/// Drives until `enough` or silence.
fn until(end: &mut End, stream: &mut Stream, enough: impl Fn(&End, &Stream) -> bool) -> Outcome<()> {
    let mut moved = stream.now;
    while !enough(end, stream) {
        if stream.drive(end) {
            moved = stream.now;
        } else if stream.now.saturating_sub(moved) > SILENCE {
            return Err("an end hears nothing any more".into());
        }
    }
    Ok(())
}

/// Microseconds one way, median.
pub(super) fn latency(adapters: [Adapter<'_>; 2]) -> Outcome<f64> {
    pin(Side::Here)?;
    let [mut here, mut there] = End::pair(adapters)?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || -> Outcome<()> {
            pin(Side::There)?;
            let mut stream = Stream::new(&mut there, SHORT)?;
            for trip in 0..=WARM + TRIPS {
                until(&mut there, &mut stream, |end, _| end.above.messages > trip)?;
                stream.post(&mut there, 0);
            }
            until(&mut there, &mut stream, |_, stream| stream.done == stream.sent)
        });
        let mut stream = Stream::new(&mut here, SHORT)?;
        let mut trips = Vec::new();
        let mut before = None;
        for trip in 0..=WARM + TRIPS {
            stream.post(&mut here, 1);
            // The answer is here when the next message leaves, as perftest counts.
            if let Some(before) = before.replace(stream.now) {
                trips.push((stream.now - before) as f64 / 2e3);
            }
            until(&mut here, &mut stream, |end, _| end.above.messages > trip)?;
        }
        // The echo waits for the acknowledgement of its last answer.
        while !echo.is_finished() {
            stream.drive(&mut here);
        }
        echo.join().map_err(|_| "the echo panicked")??;
        Ok(median(&trips[WARM as usize..]))
    })
}

/// Megabytes of payload delivered per second.
pub(super) fn rate(adapters: [Adapter<'_>; 2]) -> Outcome<f64> {
    pin(Side::Here)?;
    let [mut here, mut there] = End::pair(adapters)?;
    let payload = unisono_core::device::Device::limits(&here.device).mtu - unisono_core::wire::HEADER as u32;
    thread::scope(|scope| {
        let sink = scope.spawn(move || -> Outcome<Instant> {
            pin(Side::There)?;
            let mut stream = Stream::new(&mut there, 1)?;
            until(&mut there, &mut stream, |end, _| end.above.messages == DATAGRAMS)?;
            let ended = Instant::now();
            // Its last acknowledgements leave.
            while ended.elapsed() < Duration::from_millis(20) {
                stream.drive(&mut there);
            }
            Ok(ended)
        });
        let mut stream = Stream::new(&mut here, payload)?;
        let started = Instant::now();
        while stream.sent < DATAGRAMS {
            while stream.sent < DATAGRAMS && stream.sent - stream.done < UNDER_WAY && stream.send(&mut here, 1) {}
            stream.drive(&mut here);
        }
        while !sink.is_finished() {
            stream.drive(&mut here);
        }
        let ended = sink.join().map_err(|_| "the sink panicked")??;
        Ok(f64::from(DATAGRAMS) * f64::from(payload) / (ended - started).as_secs_f64() / 1e6)
    })
}
