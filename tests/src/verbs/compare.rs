//! Our device and our endpoint against perftest's bare UD loop, UCX and libfabric, in the same machine, in turns.

mod bare;
mod endpoint;
mod program;

use core::time::Duration;
use std::thread;

use rustix::thread::{CpuSet, sched_setaffinity};

use unisono_verbs::ud::{QueueChoice, Writer};

use super::{Adapter, Outcome, device};

/// Round trips of a round: few, since processors may be moved meanwhile, after which everything takes another time.
const TRIPS: u32 = 1000;
/// Round trips before those that count: an emulator translates what runs for the first time. perftest has no such
/// option.
const WARM: u32 = 100;
/// Bytes of a message there and back.
const SHORT: u32 = 64;
/// Datagrams of a rate, as large as the link takes.
const DATAGRAMS: u32 = 5000;

/// Between two wakings of a processor.
const WAKE_INTERVAL: Duration = Duration::from_millis(10);

/// The processor of a contender's end.
#[derive(Clone, Copy, Debug)]
enum Processor {
    Here = 0,
    There = 1,
}

/// A measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Messages there and back.
    Latency,
    /// Messages one way, as many as possible.
    Rate,
}

impl Measure {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Latency, Self::Rate];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Rate => "rate",
        }
    }
}

/// A contender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    /// Our UD device by itself, as it is made by default: datagrams that may be lost, as perftest's may.
    Device,
    /// As above, with libibverbs' queues.
    LibraryDevice,
    /// As above, with queues that are posted directly.
    RawDevice,
    /// An endpoint over the device of the default: every message arrives, once and in order.
    Endpoint,
    /// As above, over the device with libibverbs' queues.
    LibraryEndpoint,
    /// As above, over the raw device.
    RawEndpoint,
    /// `ib_send_lat` and `ib_send_bw -c UD`.
    Perftest,
    /// `ucx_perftest`, active messages of its protocol layer over `ud_verbs`.
    Ucx,
    /// `fi_pingpong` over `verbs;ofi_rxd`. Debian has no program for its rate.
    Libfabric,
}

impl Contender {
    /// All of them, in the order of a round: compared ones are close to each other.
    pub const ALL: [Self; 9] = [
        Self::RawDevice,
        Self::Device,
        Self::Perftest,
        Self::LibraryDevice,
        Self::LibraryEndpoint,
        Self::Endpoint,
        Self::Ucx,
        Self::RawEndpoint,
        Self::Libfabric,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::LibraryDevice => "library-device",
            Self::RawDevice => "raw-device",
            Self::Endpoint => "endpoint",
            Self::LibraryEndpoint => "library-endpoint",
            Self::RawEndpoint => "raw-endpoint",
            Self::Perftest => "perftest",
            Self::Ucx => "ucx",
            Self::Libfabric => "libfabric",
        }
    }

    /// The requested implementation of its queues. `None`: it is not ours.
    const fn queues(self) -> Option<QueueChoice> {
        match self {
            Self::Device | Self::Endpoint => Some(QueueChoice::Auto),
            Self::LibraryDevice | Self::LibraryEndpoint => Some(QueueChoice::Library),
            Self::RawDevice | Self::RawEndpoint => Some(QueueChoice::Raw),
            Self::Perftest | Self::Ucx | Self::Libfabric => None,
        }
    }

    fn on(self, adapters: [&str; 2]) -> [Adapter<'_>; 2] {
        adapters.map(|name| Adapter { name, queues: self.queues().unwrap_or_default() })
    }

    /// The implementation of its queues on that adapter: `library` or `raw`. Others' programs all go through
    /// libibverbs.
    ///
    /// # Errors
    /// There is no device of that kind.
    pub fn writer(self, adapter: &str) -> Outcome<&'static str> {
        let Some(queues) = self.queues() else { return Ok("library") };
        Ok(match device(Adapter { name: adapter, queues }, 1)?.writer() {
            Writer::Library => "library",
            Writer::Raw(_) => "raw",
        })
    }

    /// Runs an endpoint's other end on that adapter: answers, or consumes, the messages of the first one, whose address
    /// it reads from the standard input.
    ///
    /// # Errors
    /// It is no endpoint, or receives nothing any more.
    pub fn serve(self, measure: Measure, adapter: &str) -> Outcome<()> {
        match self {
            Self::Endpoint | Self::LibraryEndpoint | Self::RawEndpoint => {
                let queues = self.queues().unwrap_or_default();
                endpoint::answer(measure, Adapter { name: adapter, queues })
            }
            _ => Err(format!("{} is no endpoint", self.name()).into()),
        }
    }

    /// Microseconds one way of 64 bytes, the median of the round trips (of libfabric's, the mean).
    ///
    /// # Errors
    /// It does not finish, or prints something else than a table.
    pub fn latency(self, adapters: [&str; 2]) -> Outcome<f64> {
        match self {
            Self::Device | Self::LibraryDevice | Self::RawDevice => bare::latency(self.on(adapters)),
            Self::Endpoint | Self::LibraryEndpoint | Self::RawEndpoint => endpoint::latency(self, self.on(adapters)),
            Self::Perftest => program::perftest_latency(adapters),
            Self::Ucx => program::ucx_latency(adapters),
            Self::Libfabric => program::libfabric_latency(adapters),
        }
    }

    /// Megabytes (10⁶) of payload that arrive per second, in datagrams as large as the link takes. `None`: it does not
    /// report it.
    ///
    /// # Errors
    /// As [`latency`](Self::latency).
    pub fn rate(self, adapters: [&str; 2]) -> Outcome<Option<f64>> {
        Ok(Some(match self {
            Self::Device | Self::LibraryDevice | Self::RawDevice => bare::rate(self.on(adapters))?,
            Self::Endpoint | Self::LibraryEndpoint | Self::RawEndpoint => endpoint::rate(self, self.on(adapters))?,
            Self::Perftest => program::perftest_rate(adapters)?,
            Self::Ucx => program::ucx_rate(adapters)?,
            Self::Libfabric => return Ok(None),
        }))
    }
}

/// Pins a polling thread to its own processor: two on one would wait for the scheduler.
fn pin(side: Processor) -> Outcome<()> {
    let mut only = CpuSet::new();
    only.set(side as usize);
    Ok(sched_setaffinity(None, &only)?)
}

/// Wakes up on both processors again and again: QEMU's translator fits the size of a processor's table of addresses to
/// what is used only when that is flushed, as it is when another process runs. A process that polls alone keeps the
/// size that it found, and is slowed by it at random.
///
/// # Errors
/// A processor is not there.
pub fn wake_processors() -> Outcome<()> {
    let other = thread::spawn(|| tick(Processor::There));
    tick(Processor::Here)?;
    other.join().map_err(|_| "a thread panicked")?
}

fn tick(side: Processor) -> Outcome<()> {
    pin(side)?;
    loop {
        thread::sleep(WAKE_INTERVAL);
    }
}

/// The value in the middle, or the mean of two.
pub fn median(figures: &[f64]) -> f64 {
    let (sorted, count) = (sorted(figures), figures.len());
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    (at(count.saturating_sub(1) / 2) + at(count / 2)) / 2.0
}

/// Between which of the values the median of many more such would lie, with 95 % confidence if they are independent: as
/// many to either side of the middle as the sign test says. `None`: there are too few.
pub fn interval(figures: &[f64]) -> Option<[f64; 2]> {
    let count = figures.len();
    // A binomial distribution's, as a normal one.
    let below = (count as f64 / 2.0 - 0.98 * (count as f64).sqrt()).round();
    let sorted = sorted(figures);
    (below >= 1.0).then(|| below as usize - 1).and_then(|at| Some([*sorted.get(at)?, *sorted.get(count - 1 - at)?]))
}

fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_what_the_sign_test_says() {
        let numbers = |count: u32| (1..=count).rev().map(f64::from).collect::<Vec<_>>();
        assert_eq!(interval(&numbers(5)), None);
        // Fewer than 2 heads of 10 throws: 1.1 %; fewer than 10 of 30: 2.1 %.
        assert_eq!(interval(&numbers(10)), Some([2.0, 9.0]));
        assert_eq!(interval(&numbers(30)), Some([10.0, 21.0]));
        assert_eq!([median(&numbers(30)), median(&numbers(9))], [15.5, 5.0]);
    }
}
