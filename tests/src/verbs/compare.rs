//! An endpoint over UD against perftest's bare UD loop, in the same machine, turn by turn.

use core::time::Duration;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use unisono_core::device::PeerId;
use unisono_core::span::{Region, Span};

use super::{End, Outcome};

/// Round trips of a turn.
const TRIPS: u32 = 1000;
/// Bytes of a message there and back.
const SHORT: u32 = 64;
/// Datagrams of a turn, as large as the link takes.
const DATAGRAMS: u32 = 5000;
/// Messages under way at most.
const UNDER_WAY: u32 = 512;
/// Without anything for so long, a turn has failed.
const SILENCE: Duration = Duration::from_secs(30);

/// Figures of all turns.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Microseconds one way, median of each turn: ours, and perftest's.
    pub latency_us: [Vec<f64>; 2],
    /// Megabytes (10⁶) delivered per second: ours counts payload only, perftest whole datagrams.
    pub rate: [Vec<f64>; 2],
}

/// Measures both, `turns` times.
///
/// # Errors
/// One of them does not finish, or perftest prints something else than a table.
pub fn compare(adapters: [&str; 2], turns: usize) -> Outcome<Comparison> {
    let mut comparison = Comparison::default();
    for _ in 0..turns {
        comparison.latency_us[0].push(latency(adapters)?);
        comparison.latency_us[1].push(perftest("ib_send_lat", adapters, &[&TRIPS.to_string(), &SHORT.to_string()], 4)?);
        comparison.rate[0].push(rate(adapters)?);
        // Its megabytes are 2²⁰ bytes.
        let theirs = perftest("ib_send_bw", adapters, &[&DATAGRAMS.to_string(), "4096", "-t", "64", "-r", "2048"], 3)?;
        comparison.rate[1].push(theirs * 1.048_576);
    }
    Ok(comparison)
}

/// The value in the middle.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Messages that all have the same payload.
struct Stream {
    sent: u32,
    done: u32,
    payload: Span,
}

impl Stream {
    fn new(end: &mut End, bytes: u32) -> Outcome<Self> {
        let region: Region = end.regions.allocate(bytes as usize)?;
        Ok(Self { sent: 0, done: 0, payload: Span { region, offset: 0, bytes } })
    }

    fn send(&mut self, end: &mut End, to: u32) -> bool {
        let now = end.now();
        let taken = end.endpoint.send(now, PeerId(to), &[], Some(self.payload)).is_ok();
        self.sent += u32::from(taken);
        taken
    }

    fn drive(&mut self, end: &mut End) -> bool {
        let moved = end.drive();
        while let Some(event) = end.event() {
            self.done += u32::from(matches!(event, unisono_core::endpoint::Event::Completed(..)));
        }
        moved
    }
}

/// Drives until `enough` or silence.
fn until(end: &mut End, stream: &mut Stream, enough: impl Fn(&End, &Stream) -> bool) -> Outcome<()> {
    let mut moved = Instant::now();
    while !enough(end, stream) {
        if stream.drive(end) {
            moved = Instant::now();
        } else if moved.elapsed() > SILENCE {
            return Err("an end hears nothing any more".into());
        }
    }
    Ok(())
}

/// Microseconds one way, median.
fn latency(adapters: [&str; 2]) -> Outcome<f64> {
    let [mut here, mut there] = End::pair(adapters)?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || -> Outcome<()> {
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
        // The echo waits for the acknowledgement of its last answer.
        while !echo.is_finished() {
            stream.drive(&mut here);
        }
        echo.join().map_err(|_| "the echo panicked")??;
        Ok(median(&trips))
    })
}

/// Megabytes of payload delivered per second.
fn rate(adapters: [&str; 2]) -> Outcome<f64> {
    let [mut here, mut there] = End::pair(adapters)?;
    let payload = unisono_core::device::Device::limits(&here.device).mtu - unisono_core::wire::HEADER as u32;
    thread::scope(|scope| {
        let sink = scope.spawn(move || -> Outcome<Instant> {
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

/// One figure of a perftest run: the `column`-th of the line that begins with the size. Of a rate, what the receiver says.
fn perftest(program: &str, [here, there]: [&str; 2], how: &[&str], column: usize) -> Outcome<f64> {
    let run = |adapter: &str, more: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(["-c", "UD", "-x", "1", "-F", "-d", adapter, "-n", how[0], "-s", how[1]])
            .args(&how[2..])
            .args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let server = run(there, &[]).spawn()?;
    thread::sleep(Duration::from_millis(700));
    let client = run(here, &["127.0.0.1"]).output()?;
    let server = server.wait_with_output()?;
    let output = if program.ends_with("bw") { server } else { client };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().map(str::split_whitespace).find(|words| words.clone().next() == Some(how[1]));
    let figure = line.and_then(|mut words| words.nth(column)?.parse().ok());
    figure
        .ok_or_else(|| format!("{program} printed no table:\n{text}{}", String::from_utf8_lossy(&output.stderr)).into())
}
