//! `unisono info --collectives`: the algorithm of each collective of a job, and what selected it.

use crate::memory;
use crate::refusal::Refusal;
use crate::tuning::Overrides;
use crate::units::Units;
use clap::Args;
use serde::Serialize;
use std::{io::Write, thread};
use unisono::environment::{
    DeviceChoice, HierarchyChoice, RankLocation, Settings, Subgroups, Tuning, UnitCounts,
    tuning::{COLLECTIVES, Carrier, Composed, Decision, JobSignature, MulticastUse, SelectedBy, rdma_name, tree_name},
};
use unisono_bench::Bytes;
use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
use unisono_core::ids::Rank;
use unisono_core::schedule::{Algorithm, Choice, GroupLevels, HierarchicalPlan, LinkModel};
use unisono_launcher::{JobPlacement, RankPlacement};
use unisono_shmem::collective_area::CollectiveAreas;
use unisono_shmem::layout::{COMMUNICATOR_SLOTS, RANKS_MAX, SegmentLayout, SegmentSizes, WaitMode};
use unisono_shmem::slot_collectives::selection::select;

/// The job whose collectives are shown.
#[derive(Args, Clone, Debug)]
pub(super) struct JobOptions {
    /// Number of ranks of the job
    #[arg(short = 'n', value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..), requires = "collectives")]
    ranks: u32,
    /// Number of nodes of the job
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), requires = "collectives")]
    nodes: u32,
    /// Size in bytes; may be repeated [default: 8 1K 16K 256K 4M]
    #[arg(long, value_name = "BYTES", requires = "collectives")]
    bytes: Vec<Bytes>,
    /// Number of ranks that share a processor [default: as if all ranks were on this host]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u16).range(1..), requires = "collectives")]
    sharing: Option<u16>,
    /// Reductions with an operation that does not commute
    #[arg(long, requires = "collectives")]
    ordered: bool,
    /// Reductions whose results have the same bits in every run
    #[arg(long, requires = "collectives", conflicts_with = "ordered")]
    reproducible: bool,
    #[command(flatten)]
    units: Units,
    #[command(flatten)]
    overrides: Overrides,
}

const BYTES: [u64; 5] = [8, 1 << 10, 16 << 10, 256 << 10, 4 << 20];

/// The algorithm of one collective and size.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Row {
    collective: &'static str,
    ranks: u32,
    nodes: u32,
    /// Per rank; of an alltoall and a reduce-scatter per pair; of reductions and scans the vector.
    bytes: usize,
    /// The transport: `shared memory` or `messages`.
    means: &'static str,
    algorithm: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    radix: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<u32>,
    /// Of a tree: most children of a rank, and the tokens that its root's can be divided into.
    #[serde(skip_serializing_if = "Option::is_none")]
    degree: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    units: Option<u8>,
    /// Subgroups of the last level, whose leaders use the algorithm.
    #[serde(skip_serializing_if = "Option::is_none")]
    leaders: Option<u32>,
    /// Whether all ranks of those subgroups lead, each a part of the vector, and whether blocks go down to them in parts.
    all_lead: bool,
    in_parts: bool,
    /// Whether the ranks of an innermost subgroup exchange their parts in shared memory.
    group_slots: bool,
    /// What selected that the collective is composed over subgroups, and the means within the innermost ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    means_by: Option<&'static str>,
    /// Predicted by the model, for messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_ns: Option<u64>,
    /// What selected it: `override`, `table` (the user's table), `built in` (the built-in table), `model`, `only algorithm`,
    /// or within a node `rule`.
    decided_by: &'static str,
    /// Why an override is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    override_refused: Option<String>,
}

impl Row {
    /// The algorithm in the syntax of the options of `unisono run`.
    fn option_text(&self) -> String {
        let radix = self.radix.filter(|radix| self.ports.is_none_or(|ports| *radix != ports + 1));
        let segments = self.segments.filter(|segments| *segments != 1);
        let ports = self.ports.map(|ports| format!(":k={ports}"));
        let radix = radix.map(|radix| format!(",radix={radix}"));
        let segments = segments.map(|segments| format!(",segments={segments}"));
        let degree = self.degree.map(|degree| format!(":degree={degree}"));
        let units = self.units.map(|units| format!(",units={units}"));
        [ports, radix, segments, degree, units]
            .into_iter()
            .flatten()
            .fold(self.algorithm.to_owned(), |said, option| said + &option)
    }

    fn shown(&self) -> String {
        let groups = if self.all_lead { "groups, all lead" } else { "leaders" };
        let leaders = self.leaders.map_or_else(String::new, |leaders| format!(" of {leaders} {groups}"));
        let parts = if self.in_parts { ", in parts" } else { "" };
        self.option_text() + &leaders + parts + if self.group_slots { ", slots" } else { "" }
    }

    fn why(&self) -> String {
        let composed = self.groups_by.zip(self.means_by);
        let composed = composed.map(|(groups, means)| format!("; groups: {groups}; means: {means}"));
        let refused = self.override_refused.as_ref().map(|reason| format!("; not the override: {reason}"));
        [composed, refused].into_iter().flatten().fold(self.decided_by.to_owned(), |said, more| said + &more)
    }
}

/// The transport of a job's collectives.
enum CollectiveTransport {
    /// Shared memory: its collective area, whether ranks can read each other's memory (CMA), and the chunk size of a
    /// communicator slot in bytes, if there are such slots.
    Shared(Box<CollectiveAreas>, bool, Option<usize>),
    /// Datagrams, at least between nodes, and whether the ranks of a node share memory.
    Messages(MulticastUse, bool),
}

impl JobOptions {
    pub(super) fn is_tuned(&self) -> bool {
        let mut tuning = Tuning::default();
        let is_divided = self.units.or(UnitCounts::default()) != UnitCounts::default();
        is_divided || self.overrides.apply_to(&mut tuning).is_err() || tuning != Tuning::default()
    }

    /// Writes a line for every collective and size.
    pub(super) fn print(self, json: bool, to: &mut impl Write) -> Result<(), Refusal> {
        let Settings { mut tuning, transport, launcher, .. } = Settings::from_environment().map_err(Refusal::usage)?;
        self.overrides.apply_to(&mut tuning)?;
        let located = self.located(launcher.units, tuning.hierarchy())?;
        let processors = thread::available_parallelism().map_or(1, usize::from);
        match self.sharing {
            Some(ranks) => tuning.set_sharing(ranks),
            None => tuning.set_default_sharing(self.ranks, processors),
        }
        let shares_memory =
            |ranks: usize| ranks <= RANKS_MAX as usize && transport.shares_memory(ranks, self.ranks as usize);
        let nodes: Vec<u32> = located.iter().map(|at| at.node).collect();
        let datagrams = if transport.device == DeviceChoice::Verbs { DeviceChoice::Verbs } else { DeviceChoice::Udp };
        let signature = JobSignature::here(&nodes, shares_memory, datagrams);
        let fits = tuning.select_table(&signature);
        fits.map_err(|reason| Refusal::usage(format_args!("--tuning (UNISONO_TUNING): {reason}")))?;
        let shared = self.nodes == 1 && shares_memory(self.ranks as usize);
        let means = if shared {
            CollectiveTransport::of_node(self.ranks)?
        } else {
            let on_node = nodes.chunk_by(|one, other| one == other).map(<[u32]>::len).max().unwrap_or(0);
            let multicast = MulticastUse::of(transport.multicast.is_on(), transport.rails);
            CollectiveTransport::Messages(multicast, shares_memory(on_node))
        };
        let rows = self.rows(&tuning, &means, &located)?;
        if json {
            for row in &rows {
                writeln!(to, "{}", serde_json::to_string(row).map_err(Refusal::failed)?).map_err(Refusal::failed)?;
            }
            return Ok(());
        }
        if let Some(reason) = tuning.ignored_hosts(Subgroups::new(tuning.hierarchy(), &located).as_ref()) {
            writeln!(to, "schedules over hosts, of an option or the table, are not used: {reason}")
                .map_err(Refusal::failed)?;
        }
        write_table(&self, &means, &tuning, &rows, to).map_err(Refusal::failed)
    }

    /// Where the ranks are, as `unisono run` places them on one host; `units`: of the environment.
    fn located(&self, units: UnitCounts, hierarchy: HierarchyChoice) -> Result<Vec<RankLocation>, Refusal> {
        let placement = JobPlacement::on_this_host(self.ranks, self.nodes).map_err(Refusal::usage)?;
        let units = self.units.or(units);
        if hierarchy.needs_processors() && units.sockets.or(units.caches).is_none() {
            return Err(Refusal::usage(format_args!(
                "--hierarchy {hierarchy}: the processors of the ranks are not known here: give --sockets or --caches"
            )));
        }
        let placement = placement.divided(units);
        let located = |placed: &RankPlacement| RankLocation { node: placed.node, location: placed.location };
        Ok(placement.ranks().iter().map(located).collect())
    }

    fn rows(
        &self,
        tuning: &Tuning,
        means: &CollectiveTransport,
        located: &[RankLocation],
    ) -> Result<Vec<Row>, Refusal> {
        let bytes: Vec<u64> =
            if self.bytes.is_empty() { BYTES.to_vec() } else { self.bytes.iter().map(|bytes| bytes.0).collect() };
        let subgroups = Subgroups::new(tuning.hierarchy(), located);
        let mut rows = Vec::new();
        for (verb, collective, _) in COLLECTIVES {
            let bytes = if verb == CollectiveKind::Barrier { &[0][..] } else { &bytes };
            for bytes in bytes {
                let bytes = usize::try_from(*bytes).map_err(Refusal::usage)?;
                let plan = self.plan(verb, bytes);
                rows.push(self.row(collective, &plan, tuning, means, subgroups.as_ref()).map_err(Refusal::usage)?);
            }
        }
        Ok(rows)
    }

    /// The call as a World makes it; reductions are of doubles.
    fn plan(&self, verb: CollectiveKind, bytes: usize) -> CollectiveSpec {
        let combines = verb.combines();
        let order = match (combines, self.ordered, self.reproducible) {
            (true, true, _) => Order::Rank,
            (true, _, true) => Order::Fixed,
            _ => Order::Any,
        };
        let (rank, root, size) = (Rank(0), Rank(0), self.ranks);
        let grain = if combines { 8 } else { 1 };
        CollectiveSpec { collective: verb, rank, size, root, bytes, grain, order, in_place: false, reduction_id: 0 }
    }

    fn row(
        &self,
        collective: &'static str,
        plan: &CollectiveSpec,
        tuning: &Tuning,
        means: &CollectiveTransport,
        subgroups: Option<&Subgroups>,
    ) -> Result<Row, unisono_core::schedule::Unsupported> {
        let row = Row {
            collective,
            ranks: self.ranks,
            nodes: self.nodes,
            bytes: plan.bytes,
            means: "messages",
            algorithm: "",
            ports: None,
            radix: None,
            segments: None,
            degree: None,
            units: None,
            leaders: None,
            all_lead: false,
            in_parts: false,
            group_slots: false,
            groups_by: None,
            means_by: None,
            predicted_ns: None,
            decided_by: SelectedBy::Rule.name(),
            override_refused: None,
        };
        let (carrier, multicast) = match means {
            CollectiveTransport::Shared(areas, pulls, _) if plan.order != Order::Fixed => {
                let unused =
                    tuning.get(plan.collective).map(|_| "blocking calls within a node use shared memory".to_owned());
                return Ok(Row {
                    means: "shared memory",
                    algorithm: select(plan, areas, *pulls).name(),
                    decided_by: SelectedBy::in_slots(plan.collective).name(),
                    override_refused: unused,
                    ..row
                });
            }
            CollectiveTransport::Shared(..) => (Carrier::Rings, MulticastUse::Unavailable),
            CollectiveTransport::Messages(multicast, _) => (Carrier::Udp, *multicast),
        };
        let shares_memory = matches!(means, CollectiveTransport::Messages(_, true));
        let levels = |over: &Subgroups| if shares_memory { over.slot_levels() } else { GroupLevels::NONE };
        if let Some((shape, reason)) = tuning.tree(plan, false, carrier) {
            let (algorithm, degree) = (tree_name(shape), Some(shape.degree));
            let units = Some(shape.units).filter(|units| *units > 0);
            let composed = subgroups.filter(|_| !shape.is_multicast);
            let composed = composed.and_then(|of| tuning.compose_over_tree(plan, false, of, levels(of)));
            let leaders = composed.as_ref().map(HierarchicalPlan::leaders);
            let group_slots = subgroups.is_some_and(|of| levels(of) != GroupLevels::NONE) && leaders.is_some();
            return Ok(Row { algorithm, degree, units, leaders, group_slots, decided_by: reason.name(), ..row });
        }
        if let Some((native_steps, reason)) = tuning.rdma(plan, false, carrier) {
            return Ok(Row { algorithm: rdma_name(native_steps), decided_by: reason.name(), ..row });
        }
        if let Some(reason) = tuning.multicast(plan, false, carrier, subgroups, multicast) {
            let leaders = subgroups.map(|over| over.leaders(plan.root).count() as u32);
            return Ok(Row { algorithm: "multicast", leaders, decided_by: reason.name(), ..row });
        }
        let composed = subgroups.and_then(|over| tuning.compose(plan, false, carrier, over, 1, levels(over)));
        let interconnect = subgroups.map_or(carrier.into(), |over| over.interconnect(carrier));
        let leaders = composed.as_ref().map(|composed| composed.schedule.leaders());
        let group_slots = composed.as_ref().is_some_and(|composed| composed.schedule.has_group_steps());
        let all_lead = composed.as_ref().is_some_and(|composed| composed.schedule.all_lead());
        let in_parts = composed.as_ref().is_some_and(|composed| composed.schedule.is_in_parts());
        let composition = composed.as_ref().map(|composed| composed.composition);
        let Decision { choice, selected_by: reason, override_error: refused } = match composed {
            Some(Composed { decision, .. }) => decision,
            None => tuning.decide(plan, false, interconnect)?,
        };
        let Choice { algorithm, ports, radix, segments, .. } = choice;
        let decided_by = reason.name();
        Ok(Row {
            algorithm: algorithm.name(),
            ports: Some(ports),
            radix: (algorithm == Algorithm::Knomial).then_some(radix),
            segments: Some(segments),
            leaders,
            all_lead,
            in_parts,
            group_slots,
            groups_by: composition.map(|composition| composition.selected_by.name()),
            means_by: composition.map(|composition| composition.means_by.name()),
            predicted_ns: match leaders {
                Some(_) => None,
                None => Some(choice.time_ps(plan, false, &tuning.cost(interconnect))? / 1000),
            },
            decided_by,
            override_refused: refused.map(|refused| refused.to_string()),
            ..row
        })
    }
}

impl CollectiveTransport {
    fn of_node(ranks: u32) -> Result<Self, Refusal> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let sizes = SegmentSizes::of_node(ranks, WaitMode::of(ranks as usize, processors));
        let layout = SegmentLayout::new(sizes).map_err(Refusal::failed)?;
        let room = CollectiveAreas::in_communicator_slot(&layout, 0, &[0]).map(|areas| areas.chunk);
        Ok(Self::Shared(Box::new(CollectiveAreas::of(&layout)), memory::can_be_read(), room))
    }
}

fn write_table(
    job: &JobOptions,
    means: &CollectiveTransport,
    tuning: &Tuning,
    rows: &[Row],
    to: &mut impl Write,
) -> std::io::Result<()> {
    let JobOptions { ranks, nodes, .. } = job;
    match means {
        CollectiveTransport::Shared(areas, pulls, room) => {
            writeln!(
                to,
                "{ranks} ranks on one node, shared memory: ranks {}, and {} each other's memory",
                if areas.oversubscribed { "share processors" } else { "have a processor each" },
                if *pulls { "read" } else { "cannot read" }
            )?;
            match room {
                Some(chunk) => writeln!(
                    to,
                    "other communicators: shared memory for {COMMUNICATOR_SLOTS} per rank, up to a few chunks of {chunk} bytes; else messages"
                )?,
                None => writeln!(to, "other communicators: messages")?,
            }
        }
        CollectiveTransport::Messages(..) => {
            let LinkModel { latency_ns, overhead_ns, ps_per_byte, .. } = tuning.cost(Carrier::Udp.into());
            let sharing = tuning.sharing();
            writeln!(
                to,
                "{ranks} ranks on {nodes} {}, {sharing} per processor, messages: {latency_ns} ns latency, {overhead_ns} ns overhead, {ps_per_byte} ps per byte",
                if *nodes == 1 { "node" } else { "nodes" }
            )?;
        }
    }
    writeln!(to, "{:14} {:>6}  {:44} {:>12}  decided by", "collective", "bytes", "algorithm", "predicted")?;
    for row in rows {
        let predicted = row.predicted_ns.map_or_else(|| "–".to_owned(), |ns| format!("{:.1} µs", ns as f64 / 1e3));
        let bytes = Bytes(row.bytes as u64).to_string();
        writeln!(to, "{:14} {bytes:>6}  {:44} {predicted:>12}  {}", row.collective, row.shown(), row.why())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use unisono::environment::{LeaderChoice, PartsChoice};

    #[derive(Parser)]
    struct Line {
        #[arg(long)]
        collectives: bool,
        #[command(flatten)]
        job: JobOptions,
    }

    fn rows(line: &str) -> Vec<Row> {
        let parsed = Line::try_parse_from(["info", "--collectives"].into_iter().chain(line.split_whitespace()));
        let job = parsed.expect("good").job;
        let mut tuning = Tuning::default();
        job.overrides.apply_to(&mut tuning).expect("a table");
        let means = if job.nodes == 1 {
            CollectiveTransport::of_node(job.ranks).expect("a layout")
        } else {
            CollectiveTransport::Messages(MulticastUse::Automatic, true)
        };
        let located = job.located(UnitCounts::default(), tuning.hierarchy()).expect("a placement");
        job.rows(&tuning, &means, &located).expect("rows")
    }

    #[test]
    fn every_collective_and_size_has_a_line() {
        let all = rows("-n 6 --nodes 2");
        assert_eq!(all.len(), 10 * BYTES.len() + 1);
        assert!(all.iter().all(|row| row.decided_by == "model" && row.predicted_ns.is_some() == row.leaders.is_none()));
        assert_eq!(rows("-n 6 --nodes 2 --bytes 8 --bytes 64K").len(), 21);
        assert!(rows("-n 3").iter().all(|row| row.means == "shared memory" && row.predicted_ns.is_none()));
    }

    #[test]
    fn the_leaders_of_subgroups_are_shown() {
        let shown = |line: &str| -> Vec<_> {
            rows(line).into_iter().filter(|row| row.leaders.is_some()).map(|row| row.collective).collect()
        };
        assert_eq!(shown("-n 6 --nodes 2 --bytes 8").len(), 11);
        assert_eq!(shown("-n 8 --nodes 2 --bytes 1M"), ["barrier", "broadcast"]);
        assert!(!shown("-n 6 --nodes 2 --bytes 8 --broadcast ring").contains(&"broadcast"));
        assert_eq!(shown("-n 8 --nodes 2 --bytes 1M --hierarchy host").len(), 11);
        assert!(shown("-n 6 --nodes 2 --hierarchy off").is_empty() && shown("-n 3 --nodes 3").is_empty());
        let mut sharing = Tuning::default();
        sharing.set_sharing(2);
        let job = Line::try_parse_from(["info", "--collectives", "-n", "6", "--nodes", "2"]).expect("good").job;
        let located = job.located(UnitCounts::default(), sharing.hierarchy()).expect("a placement");
        let shared =
            job.rows(&sharing, &CollectiveTransport::Messages(MulticastUse::Automatic, true), &located).expect("rows");
        assert!(shared.iter().all(|row| row.leaders.is_none()), "ranks share processors");
        let ring = |hierarchy: &str| {
            let line = format!("-n 6 --nodes 3 --bytes 64K --hierarchy {hierarchy} --allreduce ring:segments=1");
            rows(&line).into_iter().find(|row| row.collective == "allreduce").expect("a row")
        };
        assert_eq!(ring("host:messages").shown(), "ring:k=1 of 3 groups, all lead");
        assert_eq!(ring("host:slots").shown(), "ring:k=1 of 3 groups, all lead, slots");
        assert_eq!(ring("host:slots").why(), "override; groups: override; means: override");
        assert_eq!(ring("4,2").shown(), "ring:k=1 of 2 leaders, slots");
        assert_eq!(ring("4,2").why(), "override; groups: override; means: rule");
        let cached = rows("-n 8 --nodes 2 --sockets 2 --caches 2 --bytes 8 --hierarchy socket,cache");
        assert!(cached.iter().any(|row| row.leaders == Some(4)), "one of each socket");
    }

    #[test]
    fn leaders_of_parts_and_blocks_in_parts_are_shown() {
        let mut tuning = Tuning::default();
        tuning.set_leaders(LeaderChoice::All);
        tuning.set_parts(PartsChoice::On);
        tuning.set_hierarchy("host:slots".parse().expect("a choice"));
        let line = ["info", "--collectives", "-n", "6", "--nodes", "2", "--bytes", "8K"];
        let job = Line::try_parse_from(line).expect("good").job;
        let located = job.located(UnitCounts::default(), tuning.hierarchy()).expect("a placement");
        let means = CollectiveTransport::Messages(MulticastUse::Automatic, true);
        let rows = job.rows(&tuning, &means, &located).expect("rows");
        let shown = |name| rows.iter().find(|row| row.collective == name).expect("a row").shown();
        assert!(shown("allreduce").ends_with(" of 2 groups, all lead, slots"), "{}", shown("allreduce"));
        assert!(shown("allgather").ends_with(" of 2 leaders, in parts, slots"), "{}", shown("allgather"));
        assert!(shown("barrier").ends_with(" of 2 leaders, slots"), "{}", shown("barrier"));
    }

    #[test]
    fn overrides_and_why_they_are_not_used_are_shown() {
        let find = |rows: Vec<Row>, name| rows.into_iter().find(|row| row.collective == name).expect("a row");
        let line = "-n 6 --nodes 2 --bytes 8 --reduce ring --allgather bruck:k=2,segments=3";
        let bruck = find(rows(line), "allgather");
        assert_eq!((bruck.option_text().as_str(), bruck.why().as_str()), ("bruck:k=2,segments=3", "override"));
        assert_eq!(find(rows(line), "reduce").algorithm, "ring");
        let ordered = find(rows(&format!("{line} --ordered")), "reduce");
        let why = "model; groups: model; means: rule; not the override: this algorithm needs a commutative operation";
        assert_eq!(ordered.why(), why);
        let fixed = rows("-n 6 --bytes 8 --reduce knomial:radix=3 --scan dissemination:k=1 --reproducible");
        let said = |name| find(fixed.clone(), name).option_text();
        assert_eq!((said("reduce"), said("scan")), ("knomial:k=1".into(), "dissemination:k=1".into()));
        assert!(
            find(fixed.clone(), "reduce").why().starts_with("only algorithm; not the override: what is reproducible")
        );
        assert_eq!(
            (find(fixed.clone(), "gather").means, find(fixed, "allreduce").means),
            ("shared memory", "messages")
        );
        let table = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(
            table.path(),
            "unisono tuning 3\nfor any\nudp reduce 6 0- halving:k=2\nudp scan 6 9- ring\nend\n",
        )
        .expect("written");
        let tuned = rows(&format!("-n 6 --nodes 2 --bytes 8 --gather direct --tuning {}", table.path().display()));
        let why = |name| find(tuned.clone(), name).why();
        let by_model = "model; groups: model; means: rule";
        assert_eq!((why("reduce"), why("scan"), why("gather")), ("table".into(), by_model.into(), "override".into()));
        assert_eq!(find(tuned.clone(), "reduce").option_text(), "halving:k=2");
        let intra_node = find(rows("-n 6 --bytes 8 --reduce ring"), "reduce");
        assert_eq!(intra_node.why(), "rule; not the override: blocking calls within a node use shared memory");
        let multicast = find(rows("-n 6 --nodes 3 --bytes 8 --broadcast multicast"), "broadcast");
        assert_eq!((multicast.shown().as_str(), multicast.why().as_str()), ("multicast of 3 leaders", "override"));
        let tree = find(rows("-n 6 --nodes 3 --bytes 8 --gather knomial:k=2,radix=5"), "gather");
        assert_eq!(tree.option_text(), "knomial:k=2,radix=5");
    }
}
