//! Synchronization delay of collectives whose ranks enter at different times: from the last entering to the last
//! leaving.
//!
//! As measured by Mamidala, Liu, Panda (2004), §5. Times of different ranks are compared, so all ranks run on one host.

use core::error::Error;
use core::time::Duration;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use unisono::collective::SystemOperation;
use unisono::environment::{Override, OverrideError};
use unisono::{Communicator, Rank};
use unisono_core::collective::CollectiveKind;

use crate::{Bytes, buffer};

/// Time from the agreement on the start of a round until its start.
const LEAD: Duration = Duration::from_millis(2);
/// Untimed rounds at the start.
const WARM_UP: u32 = 3;
/// Every rank waits for the others there.
const ROOT: Rank = Rank(0);

/// The collectives that synchronize all ranks.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SkewCollective {
    /// A barrier
    Barrier,
    /// A sum of 64-bit integers
    Allreduce,
}

/// The ranks that enter late, the collective and its algorithm.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// Late ranks and how much later than the others they enter, such as 3:20ms
    #[arg(long, value_name = "RANK:DELAY", value_delimiter = ',', value_parser = parse_late)]
    pub(crate) late: Vec<(u32, Duration)>,
    /// Collective to measure
    #[arg(long, value_enum, default_value = "barrier")]
    pub(crate) collective: SkewCollective,
    /// Its algorithm: adaptive (token-tree), combining (combining-tree), pairwise (doubling), or as of `unisono run`;
    /// selected automatically if it is missing
    #[arg(long)]
    pub(crate) algorithm: Option<String>,
    /// Size of an allreduce in bytes
    #[arg(long, default_value = "8")]
    pub(crate) bytes: Bytes,
    /// Timed rounds
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rounds: u32,
}

fn parse_late(text: &str) -> Result<(u32, Duration), String> {
    let (rank, delay) = text.split_once(':').ok_or("expected a rank and its delay, such as 3:20ms")?;
    let rank = rank.parse().map_err(|_| format!("{rank:?} is no rank"))?;
    Ok((rank, humantime::parse_duration(delay).map_err(|error| error.to_string())?))
}

impl Options {
    /// The user's choice of the algorithm.
    pub(crate) fn wanted(&self) -> Result<Option<Override>, OverrideError> {
        let kind = match self.collective {
            SkewCollective::Barrier => CollectiveKind::Barrier,
            SkewCollective::Allreduce => CollectiveKind::Allreduce,
        };
        let name = self.algorithm.as_deref().map(|name| match name {
            "adaptive" => "token-tree",
            "combining" => "combining-tree",
            "pairwise" => "doubling",
            other => other,
        });
        name.map(|name| Override::new(kind, name)).transpose()
    }

    /// Bytes of the collective.
    pub(crate) const fn size(&self) -> Bytes {
        match self.collective {
            SkewCollective::Barrier => Bytes(0),
            SkewCollective::Allreduce => self.bytes,
        }
    }
}

/// The delays of all rounds in nanoseconds, sorted; none on other ranks than the first.
pub(crate) fn measure(on: &Communicator, options: &Options) -> Result<Vec<u64>, Box<dyn Error>> {
    let own = on.rank().0;
    let delay = options.late.iter().filter(|(rank, _)| *rank == own).map(|(_, delay)| *delay).max();
    let mut sums = buffer::zeroed::<u64>((options.size().0 as usize).div_ceil(8))?;
    let mut times = Vec::new();
    for round in 0..WARM_UP + options.rounds {
        let mut start = [now() + LEAD.as_nanos() as u64];
        on.broadcast_into(&mut start, ROOT)?;
        let [start] = start;
        let start = start.saturating_add(delay.unwrap_or_default().as_nanos() as u64);
        thread::sleep(Duration::from_nanos(start.saturating_sub(now())));
        let entered = now();
        match options.collective {
            SkewCollective::Barrier => on.barrier()?,
            SkewCollective::Allreduce => on.all_reduce_in_place(&mut sums, SystemOperation::sum())?,
        }
        if round >= WARM_UP {
            times.push([entered, now()]);
        }
    }
    let is_root = on.rank() == ROOT;
    let mut all = vec![[0_u64; 2]; if is_root { times.len() * on.size() as usize } else { 0 }];
    on.gather_into(&times, &mut all, ROOT)?;
    if !is_root {
        return Ok(Vec::new());
    }
    let of_round = |round: usize| {
        let times = || all.iter().skip(round).step_by(times.len().max(1));
        let last = |which: usize| times().filter_map(|times| times.get(which)).max().copied().unwrap_or(0);
        last(1).saturating_sub(last(0))
    };
    let mut delays: Vec<u64> = (0..times.len()).map(of_round).collect();
    delays.sort_unstable();
    Ok(delays)
}

/// The quartiles, as JSON and as a line.
pub(crate) fn report(options: &Options, ranks: u32, delays: &[u64]) -> (Value, String) {
    let at = |quarter: usize| delays.get(delays.len() * quarter / 4).or(delays.last()).copied().unwrap_or(0);
    let [least, median, most] = [1, 2, 3].map(at);
    let collective = options.collective.to_possible_value().map_or_else(String::new, |name| name.get_name().to_owned());
    let algorithm = options.algorithm.as_deref().unwrap_or("selected");
    let line = format!(
        "{collective} by {algorithm} of {ranks} ranks, {} late: {:.1} µs from the last in to the last out, quartiles {:.1} to {:.1} µs",
        options.late.len(),
        median as f64 / 1e3,
        least as f64 / 1e3,
        most as f64 / 1e3
    );
    let facts = json!({
        "collective": collective,
        "algorithm": algorithm,
        "sync_delay_ns": median,
        "sync_delay_ns_p25": least,
        "sync_delay_ns_p75": most,
    });
    (facts, line)
}

/// Nanoseconds of a clock that all processes of the host share.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
