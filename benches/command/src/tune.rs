//! `unisono tune`: a table of the calls of a job for which another algorithm is faster than the selected one, measured in
//! jobs that it launches.

mod candidate;
mod check;
mod crossover;
mod hosts;
mod record;
mod tables;

use core::error::Error;
use core::ops::RangeInclusive;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use unisono::environment::tuning::{COLLECTIVES, Carrier, JobSignature, MulticastUse, algorithm_names};
use unisono::environment::{Override, Settings, Tuning};
use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
use unisono_core::ids::Rank;

use super::bytes::Bytes;
use candidate::{Candidate, executed, mark_finalists, share_times};
use check::Check;
use hosts::Hosts;
use record::{Measurement, Record};
use tables::tables;

/// Options of `unisono tune`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Number of ranks of the jobs
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    ranks: u32,
    /// Divide this host into M nodes when measuring UDP [default: all messages use UDP]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(2..), conflicts_with = "with")]
    nodes: Option<u32>,
    /// Measure only this transport of messages [default: both; udp if options of `unisono run` are given]
    #[arg(long, conflicts_with = "with")]
    carrier: Option<CarrierArg>,
    /// Measure only these collectives, such as broadcast,allreduce
    #[arg(long, value_name = "COLLECTIVES", value_delimiter = ',', value_parser = collective)]
    only: Vec<CollectiveKind>,
    /// Largest size to measure
    #[arg(long, value_name = "BYTES", default_value = "1M")]
    most: Bytes,
    /// Number of measurements of each algorithm; the shortest time counts. The fastest ones and the selected one are then
    /// measured as often again
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write the table to this file. Measurements are kept in FILE.measured until it is complete: an interrupted run
    /// continues there [default: the standard output]
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
    /// Measure at sizes between those of tables, and print how much slower the selected algorithm is than the fastest: the
    /// one that this table selects, or without one the library by itself. Fails unless it takes at most 1.1 times as long
    /// for 90 % of the calls, and at most 1.5 times for all
    #[arg(long, value_name = "TABLE", num_args = 0..=1, require_equals = true, conflicts_with = "output")]
    check: Option<Option<PathBuf>>,
    /// Print every measurement as JSON instead of the table, one object per line
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Options of `unisono run` for the jobs, such as --hosts a:4,b:4: the messages between their ranks are measured
    #[arg(last = true, value_name = "OPTIONS")]
    with: Vec<String>,
}

fn collective(name: &str) -> Result<CollectiveKind, String> {
    let known = COLLECTIVES.iter().find(|(_, known, _)| *known == name);
    let expected = || format!("expected one of {}", COLLECTIVES.map(|(_, name, _)| name).join(", "));
    known.map(|(kind, ..)| *kind).ok_or_else(expected)
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

/// Sizes to check a table at.
const CHECKED_SIZES: [u64; 6] = [64, 1 << 10, 12 << 10, 96 << 10, 512 << 10, 2 << 20];

impl Options {
    /// Every valid algorithm of every collective, flat and over hosts if there are groups of them, and the selected one, for
    /// each size.
    fn candidates(&self, hosts: Option<&Hosts>) -> Result<Vec<Candidate>, Box<dyn Error>> {
        let mut all = Vec::new();
        let only = self.carrier.map(Carrier::from).or(if self.with.is_empty() { None } else { Some(Carrier::Udp) });
        let carriers = Carrier::ALL.into_iter().filter(|carrier| only.is_none_or(|only| only == *carrier));
        let kinds = COLLECTIVES.map(|(verb, ..)| verb).into_iter();
        let kinds: Vec<CollectiveKind> =
            kinds.filter(|kind| self.only.is_empty() || self.only.contains(kind)).collect();
        for (carrier, verb) in carriers.flat_map(|carrier| kinds.iter().map(move |kind| (carrier, *kind))) {
            let sizes = if self.check.is_some() { &CHECKED_SIZES[..] } else { &SIZES };
            let sizes: Vec<u64> = sizes.iter().copied().filter(|bytes| *bytes <= self.most.0).collect();
            for bytes in if verb == CollectiveKind::Barrier { vec![0] } else { sizes } {
                let candidate = |wanted| Candidate {
                    carrier,
                    verb,
                    bytes,
                    wanted,
                    time_ns: f64::INFINITY,
                    executed: String::new(),
                    is_finalist: false,
                };
                all.push(candidate(None));
                let plan = self.plan(verb, usize::try_from(bytes)?);
                for name in algorithm_names(verb) {
                    let wanted = Override::new(verb, name)?;
                    if is_valid(wanted, &plan, carrier) {
                        all.push(candidate(Some(wanted)));
                    }
                }
                if let Some(hosts) = hosts.filter(|_| carrier == Carrier::Udp) {
                    all.extend(hosts.schedules(&plan)?.into_iter().map(|wanted| candidate(Some(wanted))));
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

    /// The options of the jobs, without the algorithm.
    fn job(&self, carrier: Carrier) -> Vec<String> {
        let mut words = vec!["-n".to_owned(), self.ranks.to_string()];
        match (carrier, self.nodes) {
            _ if !self.with.is_empty() => words.extend(self.with.iter().cloned()),
            (Carrier::Udp, Some(nodes)) => words.extend(["--nodes".to_owned(), nodes.to_string()]),
            (Carrier::Udp, None) => words.extend(["--device", "udp"].map(str::to_owned)),
            (Carrier::Rings, _) => words.extend(["--device", "shm"].map(str::to_owned)),
        }
        words
    }

    /// Measures an algorithm in a job of its own.
    fn measure(&self, own: &Path, candidate: &Candidate) -> Result<Measurement, Box<dyn Error>> {
        let Candidate { carrier, verb, bytes, wanted, .. } = candidate;
        let mut job = Command::new(own);
        // "Selected" is what the library selects by itself.
        let tuned =
            COLLECTIVES.iter().map(|(.., variable)| *variable).chain(["TUNING", "HIERARCHY", "LEADERS", "PARTS"]);
        tuned.for_each(|variable| _ = job.env_remove(format!("UNISONO_{variable}")));
        job.arg("run").args(self.job(*carrier));
        match (wanted, COLLECTIVES.iter().find(|(kind, ..)| kind == verb), &self.check) {
            (Some(wanted), Some((_, option, _)), _) => _ = job.args([format!("--{option}"), wanted.to_string()]),
            (None, _, Some(Some(table))) => _ = job.arg("--tuning").arg(table),
            _ => {}
        }
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
            let device = facts.get("device")?.as_str()?.to_owned();
            let signature = facts.get("signature")?.as_str()?.parse().ok()?;
            let (time_ns, sharing) = (facts.get("time_ns")?.as_f64()?, facts.get("sharing")?.as_u64()?);
            let record = facts.get("record").and_then(Value::as_str).unwrap_or_default().to_owned();
            Some((Measurement { time_ns, sharing, signature, executed: executed(&record) }, device, record))
        };
        let failed = |said: &str| format!("{} by {} over {}: {said}", verb.name(), candidate.choice(), carrier.name());
        let measured = read(&output.stdout).filter(|_| output.status.success());
        let (measured, device, record) = measured.ok_or_else(|| failed(&String::from_utf8_lossy(&output.stderr)))?;
        if wanted.is_some() && record.contains("not the override") {
            return Err(failed(&record).into());
        }
        if (device == "shm") != (*carrier == Carrier::Rings) {
            return Err(format!(
                "the ranks of `unisono run {}` reach each other over {device}, not over {}, which is to be measured",
                self.job(*carrier).join(" "),
                carrier.name()
            )
            .into());
        }
        Ok(measured)
    }

    /// What an algorithm takes, as it was measured in this round or is measured now.
    fn measured(
        &self,
        (own, place): (&Path, &str),
        record: &mut Record,
        candidate: &Candidate,
        round: u32,
    ) -> Result<Measurement, Box<dyn Error>> {
        let Candidate { carrier, verb, bytes, .. } = candidate;
        let job = format!("{place}: {}", self.job(*carrier).join(" "));
        let what = format!("{} {} {bytes} {}", carrier.name(), verb.name(), candidate.choice());
        if let Some(known) = record.find(&job, &what, round) {
            return Ok(known);
        }
        let measured = self.measure(own, candidate)?;
        record.add(&job, &what, round, &measured)?;
        Ok(measured)
    }

    /// Refuses options that select algorithms.
    fn check(&self) -> Result<(), Box<dyn Error>> {
        let names = COLLECTIVES.iter().map(|(_, name, _)| *name).chain(["tuning", "hierarchy"]);
        let options: Vec<String> = names.map(|name| format!("--{name}")).collect();
        let is_one = |word: &&String| {
            let option = word.split_once('=').map_or(word.as_str(), |(option, _)| option);
            options.iter().any(|known| known == option)
        };
        match self.with.iter().find(is_one) {
            Some(word) => Err(format!("{word} selects an algorithm, which tune does").into()),
            None => Ok(()),
        }
    }
}

/// This host and the settings in the environment: what is measured elsewhere, or with other ones, is not comparable.
fn place() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut settings: Vec<String> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("UNISONO_") && !name.contains("SECRET"))
        .map(|(name, value)| format!(" {name}={}", value.to_string_lossy()))
        .collect();
    settings.sort_unstable();
    format!("{}{}", host.trim(), settings.concat())
}

/// Whether the algorithm can execute the call.
fn is_valid(wanted: Override, plan: &CollectiveSpec, carrier: Carrier) -> bool {
    let mut tuning = Tuning::default();
    tuning.set(wanted);
    tuning.decide(plan, false, carrier).is_ok_and(|decision| decision.override_error.is_none())
        || tuning.tree(plan, false, carrier).is_some()
        || tuning.multicast(plan, false, carrier, None, MulticastUse::OnRequest).is_some()
        || tuning.rdma(plan, false, carrier).is_some()
}

/// A run of measurements.
struct Session<'a> {
    options: &'a Options,
    own: PathBuf,
    place: String,
    record: Record,
    bar: ProgressBar,
    /// Ranks that share a processor, and the signatures of the jobs.
    sharing: u64,
    signatures: Vec<(Carrier, JobSignature)>,
}

impl<'a> Session<'a> {
    fn new(
        options: &'a Options,
        (own, place): (PathBuf, String),
        record: Record,
        candidates: usize,
    ) -> Result<Self, Box<dyn Error>> {
        // Drawn on the standard error if that is a terminal.
        let bar = ProgressBar::new(candidates as u64 * u64::from(options.rounds));
        bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} jobs, {eta} left: {msg}")?);
        Ok(Self { options, own, place, record, bar, sharing: 1, signatures: Vec::new() })
    }

    /// Measures some of the candidates, each once in each round.
    fn measure(
        &mut self,
        candidates: &mut [Candidate],
        rounds: RangeInclusive<u32>,
        is_measured: impl Fn(&Candidate) -> bool,
    ) -> Result<(), Box<dyn Error>> {
        let chosen = candidates.iter().filter(|one| is_measured(one)).count() as u64;
        let jobs = self.bar.position() + chosen * rounds.clone().count() as u64;
        self.bar.set_length(jobs);
        for round in rounds {
            for candidate in candidates.iter_mut().filter(|one| is_measured(one)) {
                let Candidate { carrier, verb, .. } = *candidate;
                self.bar.set_message(format!("{} by {}", verb.name(), candidate.choice()));
                let measured = self.options.measured((&self.own, &self.place), &mut self.record, candidate, round);
                match measured {
                    Ok(measured) => {
                        candidate.time_ns = candidate.time_ns.min(measured.time_ns);
                        candidate.executed = measured.executed;
                        self.sharing = measured.sharing;
                        self.check_signature(carrier, measured.signature)?;
                    }
                    Err(error) if candidate.wanted.is_some() => {
                        self.bar.suspend(|| eprintln!("unisono: not in the table: {error}"));
                    }
                    Err(error) => return Err(error),
                }
                self.bar.inc(1);
            }
        }
        Ok(())
    }

    /// The jobs over a transport have one signature.
    fn check_signature(&mut self, carrier: Carrier, signature: JobSignature) -> Result<(), String> {
        match self.signatures.iter().find(|(known, _)| *known == carrier) {
            None => self.signatures.push((carrier, signature)),
            Some((_, known)) if *known == signature => {}
            Some((_, known)) => {
                return Err(format!(
                    "the machine or the job changed during the measurements: {known} and then {signature}"
                ));
            }
        }
        Ok(())
    }
}

/// Runs the measurements and prints or writes the table, or prints every measurement, or what checks a table.
///
/// # Errors
/// A job fails, a file cannot be read or written, or a check finds that the selection is out of bounds.
pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    Settings::from_environment()?;
    options.check()?;
    let own = env::current_exe()?;
    let place = place();
    let mut record = match &options.output {
        Some(output) => Record::open(output)?,
        None => Record::default(),
    };
    // The first job reports the hosts of the ranks.
    let mut candidates = options.candidates(None)?;
    if let Some(first) = candidates.iter().find(|one| one.carrier == Carrier::Udp) {
        let Measurement { sharing, signature, .. } = options.measured((&own, &place), &mut record, first, 1)?;
        candidates = options.candidates(Hosts::of(options.ranks, &signature, sharing).as_ref())?;
    }
    let mut session = Session::new(options, (own, place), record, candidates.len())?;
    session.measure(&mut candidates, 1..=options.rounds, |_| true)?;
    share_times(&mut candidates);
    mark_finalists(&mut candidates);
    session.measure(&mut candidates, options.rounds + 1..=2 * options.rounds, |one| one.is_finalist)?;
    share_times(&mut candidates);
    let Session { record, bar, sharing, signatures, .. } = session;
    bar.finish_and_clear();
    if options.json {
        for candidate @ Candidate { carrier, verb, bytes, time_ns, .. } in &candidates {
            let (ranks, carrier, collective, choice) = (options.ranks, carrier.name(), verb.name(), candidate.choice());
            println!(
                "{}",
                json!({ "bench": "tune", "device": carrier, "ranks": ranks, "bytes": bytes, "collective": collective, "choice": choice, "time_ns": time_ns.round() })
            );
        }
    }
    if options.check.is_some() {
        let check = Check::new(&candidates);
        if !options.json {
            print!("{check}");
        }
        return Ok(check.verdict()?);
    }
    if options.json {
        return Ok(());
    }
    let table = tables(options.ranks, sharing, &signatures, &candidates)?.to_string();
    let mut jobs: Vec<String> = candidates.iter().map(|one| options.job(one.carrier).join(" ")).collect();
    jobs.dedup();
    let source = format!("# Measured by unisono {} in: unisono run {}", env!("CARGO_PKG_VERSION"), jobs.join("; "));
    let table = format!("{table}{source}\n");
    match &options.output {
        None => print!("{table}"),
        Some(output) => {
            let mut partial = output.as_os_str().to_owned();
            partial.push(".new");
            let written = fs::write(&partial, table).and_then(|()| fs::rename(&partial, output));
            written.map_err(|error| format!("{}: {error}", output.display()))?;
            record.remove()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::candidate::calls;
    use super::*;
    use unisono::environment::tuning::TableFile;

    fn options() -> Options {
        Options {
            ranks: 6,
            nodes: None,
            carrier: None,
            only: Vec::new(),
            most: Bytes(300),
            rounds: 1,
            output: None,
            check: None,
            json: false,
            with: Vec::new(),
        }
    }

    #[test]
    fn every_algorithm_that_can_be_is_measured() {
        let all = options().candidates(None).expect("candidates");
        let count = |carrier: Carrier, verb: CollectiveKind| {
            all.iter().filter(|one| (one.carrier, one.verb) == (carrier, verb)).count()
        };
        for carrier in Carrier::ALL {
            // Four schedules, two trees and the selection; and at two sizes two schedules and the selection.
            let counts = [CollectiveKind::Barrier, CollectiveKind::Gather, CollectiveKind::Exscan];
            assert_eq!(counts.map(|verb| count(carrier, verb)), [7, 6, 6]);
        }
        // At two sizes three schedules and the selection, and over datagrams multicast.
        assert_eq!(Carrier::ALL.map(|carrier| count(carrier, CollectiveKind::Broadcast)), [10, 8]);
        // Six is neither a power of two nor one of k + 1 for a number of ports.
        let doubles = |one: &Candidate| one.verb == CollectiveKind::Alltoall && one.choice() == "doubling";
        assert!(!all.iter().any(doubles));
    }

    #[test]
    fn what_is_measured_can_be_limited() {
        let all = options().candidates(None).expect("candidates");
        let rings = Options { carrier: Some(CarrierArg::Rings), ..options() }.candidates(None).expect("candidates");
        assert!(rings.len() < all.len() && rings.iter().all(|one| one.carrier == Carrier::Rings));
        let with = ["--hosts", "a:3,b:3"].map(str::to_owned).to_vec();
        for word in ["--allreduce", "--scan=ring", "--tuning", "--hierarchy"] {
            let with = [&with[..], &[word.to_owned()]].concat();
            let error = Options { with, ..options() }.check().expect_err("refused").to_string();
            assert_eq!(error, format!("{word} selects an algorithm, which tune does"));
        }
        let hosts = Options { with, only: vec![CollectiveKind::Scan], ..options() };
        assert_eq!(hosts.job(Carrier::Udp).join(" "), "-n 6 --hosts a:3,b:3");
        let hosts = hosts.candidates(None).expect("candidates");
        assert!(hosts.len() == 6 && hosts.iter().all(|one| one.carrier == Carrier::Udp));
    }

    #[test]
    fn schedules_over_hosts_are_measured_between_hosts() {
        let signature = "version=1 device=shm+udp processors=2 nodes=2 ranks-per-node=3".parse().expect("a signature");
        let hosts = Hosts::of(6, &signature, 3).expect("two hosts");
        let [flat, all] = [None, Some(&hosts)].map(|hosts| options().candidates(hosts).expect("candidates"));
        let composed: Vec<&Candidate> =
            all.iter().filter(|one| one.wanted.is_some_and(|wanted| wanted.hosts().is_some())).collect();
        assert_eq!(all.len(), flat.len() + composed.len());
        for (verb, ..) in COLLECTIVES {
            assert!(composed.iter().any(|one| one.verb == verb && one.carrier == Carrier::Udp), "{verb:?}");
        }
        assert!(composed.iter().all(|one| one.carrier == Carrier::Udp));
        let check = Options { check: Some(None), ..options() }.candidates(Some(&hosts)).expect("candidates");
        assert!(check.iter().any(|one| one.choice().starts_with("host:slots+")));
    }

    #[test]
    fn a_check_measures_at_other_sizes() {
        let options = Options { check: Some(None), only: vec![CollectiveKind::Scan], ..options() };
        let all = options.candidates(None).expect("candidates");
        assert!(!all.is_empty() && all.iter().all(|one| one.bytes == 64));
        assert!(CHECKED_SIZES.iter().all(|bytes| !SIZES.contains(bytes)));
    }

    #[test]
    fn the_fastest_and_the_selected_algorithm_are_measured_again() {
        let options = Options { only: vec![CollectiveKind::Scan], most: Bytes(8), ..options() };
        let finalists = |times: [f64; 3]| {
            let mut all = options.candidates(None).expect("candidates");
            all.retain(|one| one.carrier == Carrier::Udp);
            assert_eq!(all.len(), 3, "the selected one, dissemination and a ring");
            all.iter_mut().zip(times).for_each(|(one, time)| one.time_ns = time);
            mark_finalists(&mut all);
            let names: Vec<String> = all.iter().filter(|one| one.is_finalist).map(Candidate::choice).collect();
            // The first time of a finalist no longer counts, and those of the others never do.
            assert!(all.iter().all(|one| one.time_ns.is_infinite() == one.is_finalist));
            all.iter_mut().filter(|one| one.is_finalist).for_each(|one| one.time_ns = 9.0);
            let (selected, fastest) = calls(&all).next().expect("a call");
            (names.join(" "), (selected.time_ns, fastest.time_ns))
        };
        assert_eq!(finalists([2.0, 1.0, 3.0]), ("selected dissemination".to_owned(), (9.0, 9.0)));
        assert_eq!(finalists([1.0, 1.2, 1.0]), ("selected dissemination ring".to_owned(), (9.0, 9.0)));
        assert_eq!(finalists([1.0, 1.3, 2.0]), (String::new(), (1.0, 1.0)), "nothing is as fast");
    }

    #[test]
    fn candidates_that_execute_the_same_share_their_shortest_time() {
        let record = "scan of 8 bytes by ring:k=1,segments=1 over messages";
        assert_eq!(executed(&format!("{record}: table")), record);
        assert_eq!(executed(&format!("{record}: model; groups: model; means: rule")), record);
        assert_eq!(executed(""), "");
        let options = Options { only: vec![CollectiveKind::Scan], most: Bytes(8), ..options() };
        let mut all = options.candidates(None).expect("candidates");
        all.retain(|one| one.carrier == Carrier::Udp);
        for (one, (time_ns, executed)) in all.iter_mut().zip([(3.0, "ring"), (2.0, "dissemination"), (1.0, "ring")]) {
            (one.time_ns, one.executed) = (time_ns, executed.to_owned());
        }
        share_times(&mut all);
        assert_eq!(all.iter().map(|one| one.time_ns).collect::<Vec<_>>(), [1.0, 2.0, 1.0]);
        all.iter_mut().for_each(|one| one.executed.clear());
        all[0].time_ns = 3.0;
        share_times(&mut all);
        assert_eq!(all[0].time_ns, 3.0, "nothing is known of what was executed");
    }

    #[test]
    fn what_is_faster_than_the_selected_algorithm_is_kept() {
        let mut all = options().candidates(None).expect("candidates");
        let times = [
            (Carrier::Udp, CollectiveKind::Gather, 8, "knomial", 1.0),
            (Carrier::Udp, CollectiveKind::Gather, 256, "direct", 1.0),
            (Carrier::Udp, CollectiveKind::Barrier, 0, "token-tree", 1.0),
            (Carrier::Udp, CollectiveKind::Broadcast, 256, "multicast", 1.0),
            (Carrier::Rings, CollectiveKind::Gather, 8, "direct", 1.0),
            (Carrier::Rings, CollectiveKind::Gather, 256, "direct", 1.0),
            (Carrier::Rings, CollectiveKind::Scan, 8, "ring", 1.9),
        ];
        for one in &mut all {
            let is_its = |&&(carrier, verb, bytes, choice, _): &&(_, _, _, &str, f64)| {
                (carrier, verb, bytes, choice) == (one.carrier, one.verb, one.bytes, one.choice().as_str())
            };
            one.time_ns = times.iter().find(is_its).map_or(2.0, |known| known.4);
        }
        let signature = |device| {
            let text = format!("version=1 device={device} processors=2 nodes=1 ranks-per-node=6");
            text.parse::<JobSignature>().expect("a signature")
        };
        let signatures = [(Carrier::Udp, signature("udp")), (Carrier::Rings, signature("shm"))];
        let table = tables(6, 3, &signatures, &all).expect("tables").to_string();
        let lines = [
            "unisono tuning 3",
            "for version=1 device=udp processors=2 nodes=1 ranks-per-node=6",
            "udp/3 barrier 6 0- token-tree",
            "udp/3 broadcast 6 58- multicast",
            "udp/3 gather 6 0-131 knomial",
            "udp/3 gather 6 132- direct",
            "for version=1 device=shm processors=2 nodes=1 ranks-per-node=6",
            "rings/3 gather 6 0- direct",
            "end",
        ];
        assert_eq!(table.lines().collect::<Vec<_>>(), lines);
        assert_eq!(TableFile::parse(&table).expect("tables").to_string(), table);
    }
}
