//! `unisono bench tune`: a table of the fastest algorithm for each collective and size, measured in jobs that it
//! launches.

use core::error::Error;
use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use unisono::environment::Override;
use unisono::environment::tuning::{COLLECTIVES, Carrier, NumberRange, TuningTable, lines_from_fastest};
use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
use unisono_core::ids::Rank;
use unisono_core::schedule::{Constraints, algorithms, choose_with};

use super::bytes::Bytes;

/// The jobs to launch.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// Number of ranks of the jobs
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    ranks: u32,
    /// Divide this host into M nodes when measuring UDP [default: all messages use UDP]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(2..))]
    nodes: Option<u32>,
    /// Measure only this transport of messages [default: both]
    #[arg(long)]
    carrier: Option<CarrierArg>,
    /// Largest size to measure
    #[arg(long, value_name = "BYTES", default_value = "1M")]
    most: Bytes,
    /// Number of measurements of each algorithm; the shortest time counts
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// The transport of messages.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum CarrierArg {
    /// Datagrams, at least between nodes
    Udp,
    /// Shared-memory rings of one node
    Rings,
}

impl From<CarrierArg> for Carrier {
    fn from(carried: CarrierArg) -> Self {
        match carried {
            CarrierArg::Udp => Self::Udp,
            CarrierArg::Rings => Self::Rings,
        }
    }
}

/// Sizes to measure: from one to the next, few choices change.
const SIZES: [u64; 7] = [8, 256, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20];

/// An algorithm of a collective, and its measured time.
struct Candidate {
    carrier: Carrier,
    verb: CollectiveKind,
    option: &'static str,
    bytes: u64,
    wanted: Override,
    time_ns: f64,
}

impl Options {
    /// Every valid algorithm of every collective, for each size.
    fn candidates(&self) -> Result<Vec<Candidate>, Box<dyn Error>> {
        let mut all = Vec::new();
        let is_asked = |carrier: &Carrier| self.carrier.is_none_or(|only| Carrier::from(only) == *carrier);
        let carriers = Carrier::ALL.into_iter().filter(is_asked);
        for (carrier, (verb, option, _)) in carriers.flat_map(|carrier| COLLECTIVES.map(|verb| (carrier, verb))) {
            let sizes: Vec<u64> = SIZES.into_iter().filter(|bytes| *bytes <= self.most.0).collect();
            for bytes in if verb == CollectiveKind::Barrier { vec![0] } else { sizes } {
                for algorithm in algorithms(verb) {
                    let plan = self.plan(verb, usize::try_from(bytes)?);
                    if choose_with(&plan, false, &carrier.cost(1), &Constraints::only(*algorithm)).is_ok() {
                        let (wanted, time_ns) = (Override::new(verb, algorithm.name())?, f64::INFINITY);
                        all.push(Candidate { carrier, verb, option, bytes, wanted, time_ns });
                    }
                }
            }
        }
        Ok(all)
    }

    /// The call that `unisono bench collective` makes.
    const fn plan(&self, verb: CollectiveKind, bytes: usize) -> CollectiveSpec {
        let (rank, root, size) = (Rank(0), Rank(0), self.ranks);
        CollectiveSpec {
            collective: verb,
            rank,
            size,
            root,
            bytes,
            grain: 8,
            order: Order::Any,
            in_place: false,
            reduction_id: 0,
        }
    }

    /// Measures an algorithm in a job of its own: nanoseconds per call.
    fn measure(&self, own: &Path, candidate: &Candidate) -> Result<f64, Box<dyn Error>> {
        let Candidate { carrier, verb, option, bytes, wanted, .. } = candidate;
        let mut job = Command::new(own);
        job.args(["run", "-n", &self.ranks.to_string(), &format!("--{option}"), &wanted.to_string()]);
        match (carrier, self.nodes) {
            (Carrier::Udp, Some(nodes)) => job.args(["--nodes", &nodes.to_string()]),
            (Carrier::Udp, None) => job.args(["--device", "udp"]),
            (Carrier::Rings, _) => job.args(["--device", "shm"]),
        };
        job.arg("--").arg(own).arg("bench");
        if *carrier == Carrier::Rings {
            job.arg("--messages");
        }
        match verb {
            CollectiveKind::Barrier => job.arg("barrier"),
            _ => job.args(["collective", verb.name(), "--bytes", &bytes.to_string()]),
        };
        let output = job.arg("--json").stdin(Stdio::null()).output()?;
        let read = |output: &[u8]| {
            let facts: Value = serde_json::from_slice(output).ok()?;
            facts.get("time_ns")?.as_f64()
        };
        let said = || String::from_utf8_lossy(&output.stderr);
        let failed = || format!("{} by {wanted} over {}: {}", verb.name(), carrier.name(), said());
        read(&output.stdout).filter(|_| output.status.success()).ok_or_else(|| failed().into())
    }
}

/// The table of the fastest algorithm of each collective and size.
fn table(ranks: u32, processors: usize, measured: &[Candidate]) -> Result<TuningTable, Box<dyn Error>> {
    let sharing = u64::from(ranks).div_ceil(processors.max(1) as u64);
    let ranks = NumberRange::new(ranks.into(), ranks.into()).ok_or("no range of ranks")?;
    let mut lines = Vec::new();
    for (carrier, (verb, ..)) in Carrier::ALL.into_iter().flat_map(|carrier| COLLECTIVES.map(|verb| (carrier, verb))) {
        let of_verb = || measured.iter().filter(|candidate| (candidate.carrier, candidate.verb) == (carrier, verb));
        let mut sizes: Vec<u64> = of_verb().map(|candidate| candidate.bytes).collect();
        sizes.dedup();
        let quickest = |bytes: u64| {
            let of_size = of_verb().filter(|candidate| candidate.bytes == bytes);
            let best = of_size.min_by(|one, other| one.time_ns.total_cmp(&other.time_ns))?;
            Some((bytes, best.wanted))
        };
        let quickest: Vec<(u64, Override)> = sizes.into_iter().filter_map(quickest).collect();
        lines.extend(lines_from_fastest((carrier, NumberRange::new(sharing, sharing)), ranks, &quickest));
    }
    Ok(TuningTable::new(lines)?)
}

/// Runs the measurements and prints the table, or, as JSON, every measurement.
pub(super) fn run(options: Options, json: bool) -> Result<(), Box<dyn Error>> {
    let own = env::current_exe()?;
    let mut candidates = options.candidates()?;
    // Drawn on the standard error if that is a terminal.
    let bar = ProgressBar::new(candidates.len() as u64 * u64::from(options.rounds));
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} jobs, {eta} left: {msg}")?);
    for _ in 0..options.rounds {
        for candidate in &mut candidates {
            bar.set_message(format!("{} by {}", candidate.verb.name(), candidate.wanted));
            candidate.time_ns = candidate.time_ns.min(options.measure(&own, candidate)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if json {
        for Candidate { carrier, verb, bytes, wanted, time_ns, .. } in &candidates {
            let (ranks, carrier, collective, choice) = (options.ranks, carrier.name(), verb.name(), wanted.to_string());
            println!(
                "{}",
                json!({ "bench": "tune", "device": carrier, "ranks": ranks, "bytes": bytes, "collective": collective, "choice": choice, "time_ns": time_ns.round() })
            );
        }
    } else {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        print!("{}", table(options.ranks, processors, &candidates)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_that_can_be_is_measured_and_the_quickest_is_kept() {
        let options = Options { ranks: 6, nodes: None, carrier: None, most: Bytes(300), rounds: 1 };
        let mut all = options.candidates().expect("candidates");
        for carrier in Carrier::ALL {
            let count =
                |verb: CollectiveKind| all.iter().filter(|one| (one.carrier, one.verb) == (carrier, verb)).count();
            assert_eq!(
                (count(CollectiveKind::Barrier), count(CollectiveKind::Gather), count(CollectiveKind::Exscan)),
                (4, 4, 4)
            );
        }
        let only = Options { carrier: Some(CarrierArg::Rings), ..options }.candidates().expect("candidates");
        assert_eq!(2 * only.len(), all.len());
        assert!(only.iter().all(|one| one.carrier == Carrier::Rings));
        // Six is neither a power of two nor one of k + 1 for a number of ports.
        let doubles = |one: &Candidate| one.verb == CollectiveKind::Alltoall && one.wanted.to_string() == "doubling";
        assert!(!all.iter().any(doubles));
        let wanted = [
            (Carrier::Udp, CollectiveKind::Gather, 8, "knomial"),
            (Carrier::Udp, CollectiveKind::Gather, 256, "direct"),
            (Carrier::Udp, CollectiveKind::Barrier, 0, "knomial"),
            (Carrier::Rings, CollectiveKind::Gather, 8, "direct"),
            (Carrier::Rings, CollectiveKind::Gather, 256, "direct"),
        ];
        for one in &mut all {
            let is_wanted = wanted.contains(&(one.carrier, one.verb, one.bytes, one.wanted.to_string().as_str()));
            one.time_ns = if is_wanted { 1.0 } else { 2.0 };
        }
        let table = table(6, 2, &all).expect("a table").to_string();
        for line in [
            "udp/3 barrier 6 0- knomial",
            "udp/3 gather 6 0-45 knomial",
            "udp/3 gather 6 46- direct",
            "rings/3 gather 6 0- direct",
        ] {
            assert!(table.lines().any(|other| other == line), "{line}: {table}");
        }
        assert_eq!(TuningTable::parse(&table).expect("a table").to_string(), table);
    }
}
