//! An endpoint over the device: messages that arrive, once and in order.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use unisono_core::device::PeerId;
use unisono_core::span::{Region, Span};

use super::{DATAGRAMS, SHORT, Side, TRIPS, median, pin};
use crate::verbs::{End, Outcome};

/// Messages under way at most.
const UNDER_WAY: u32 = 512;
/// Nanoseconds without anything after which a turn has failed.
const SILENCE: u64 = 30_000_000_000;
/// Rounds without work that share a look at the clock: an emulated clock is behind a lock, and those who wait slow those who send.
const IDLE: u32 = 16;

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
        Ok(Self { sent: 0, done: 0, rounds: 0, now: 0, payload: Span { region, offset: 0, bytes } })
    }

    fn send(&mut self, end: &mut End, to: u32) -> bool {
        let now = end.now();
        // Time does not go back.
        self.rounds = 0;
        let taken = end.endpoint.send(now, PeerId(to), &[], Some(self.payload)).is_ok();
        self.sent += u32::from(taken);
        taken
    }

    fn drive(&mut self, end: &mut End) -> bool {
        if self.rounds == 0 {
            self.now = end.now();
            self.rounds = IDLE;
        }
        self.rounds -= 1;
        let moved = end.drive_at(self.now);
        while let Some(event) = end.endpoint.poll_event(self.now) {
            self.done += u32::from(matches!(event, unisono_core::endpoint::Event::Completed(..)));
        }
        if moved {
            self.rounds = 0;
        }
        moved
    }
}

/// Drives until `enough` or silence.
fn until(end: &mut End, stream: &mut Stream, enough: impl Fn(&End, &Stream) -> bool) -> Outcome<()> {
    let mut moved = end.now();
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
pub(super) fn latency(adapters: [&str; 2]) -> Outcome<f64> {
    pin(Side::Here)?;
    let [mut here, mut there] = End::pair(adapters)?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || -> Outcome<()> {
            pin(Side::There)?;
            let mut stream = Stream::new(&mut there, SHORT)?;
            for trip in 0..TRIPS {
                until(&mut there, &mut stream, |end, _| end.above.messages > trip)?;
                stream.send(&mut there, 0);
            }
            until(&mut there, &mut stream, |_, stream| stream.done == stream.sent)
        });
        let mut stream = Stream::new(&mut here, SHORT)?;
        let mut trips = Vec::new();
        for trip in 0..TRIPS {
            let started = Instant::now();
            stream.send(&mut here, 1);
            until(&mut here, &mut stream, |end, _| end.above.messages > trip)?;
            trips.push(started.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        while !echo.is_finished() {
            stream.drive(&mut here);
        }
        // The echo waits for the acknowledgement of its last answer.
        while !echo.is_finished() {
            stream.drive(&mut here);
        }
        echo.join().map_err(|_| "the echo panicked")??;
        Ok(median(&trips))
    })
}

/// Megabytes of payload delivered per second.
pub(super) fn rate(adapters: [&str; 2]) -> Outcome<f64> {
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
