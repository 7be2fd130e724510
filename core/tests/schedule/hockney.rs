//! Rounds and costs under Hockney's model: a message of b blocks takes t_s + b·l_m·τ and occupies one port of its
//! sender and one of its receiver meanwhile (Qian & Afsahi §3.2). Copies and reductions take no time.
//!
//! `cargo test -p unisono-core --test schedule hockney -- --nocapture` prints the table of docs/schedules.md.

use crate::group::Group;
use alloc::collections::BTreeMap;
use std::collections::HashMap;
use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Poll};
use unisono_core::ids::{Rank, StepId};
use unisono_core::schedule::{Algorithm, Plan, Spec, StepOperation};

/// t_s, in units of l_m·τ: larger than any number of blocks here, so that a time splits into startups and blocks.
const STARTUP: u64 = 1 << 20;

/// Startups and blocks on the longest path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cost {
    startups: u64,
    blocks: u64,
}

#[derive(Clone, Copy, Default)]
struct Port {
    sending: bool,
    receiving: bool,
}

/// Sender, its step, receiver, its step, port.
type Message = (usize, StepId, usize, StepId, usize);

pub(crate) fn time(group: &Group, startup: u64, block: u64) -> u64 {
    let size = group.size();
    let mut executors = group.executors();
    let mut ports = vec![[Port::default(); Plan::PORTS as usize]; size];
    let mut sends: Vec<BTreeMap<StepId, StepOperation>> = vec![BTreeMap::new(); size];
    let mut receives: HashMap<(u32, u32, u32), StepId> = HashMap::new();
    // Messages in flight, by their arrival time.
    let mut ends: BTreeMap<u64, Vec<Message>> = BTreeMap::new();
    let mut now = 0;
    loop {
        for (rank, executor) in executors.iter_mut().enumerate() {
            while let Poll::Request(i, operation) = executor.poll() {
                match operation {
                    StepOperation::Send { .. } => {
                        sends[rank].insert(i, operation);
                    }
                    StepOperation::Receive { of, key, .. } => {
                        receives.insert((of.0, rank as u32, key), i);
                    }
                    _ => executor.handle_done(i),
                }
            }
        }
        for (rank, sends) in sends.iter_mut().enumerate() {
            sends.retain(|i, send| {
                let StepOperation::Send { to, port, key, from } = *send else { return false };
                let Some(j) = receives.get(&(rank as u32, to.0, key)) else { return true };
                let (receiver, port) = (to.0 as usize, usize::from(port.number()));
                let busy = ports[rank][port].sending || ports[receiver][port].receiving;
                if !busy {
                    ports[rank][port].sending = true;
                    ports[receiver][port].receiving = true;
                    let end = now + startup + block * u64::from(from.blocks.len());
                    ends.entry(end).or_default().push((rank, *i, receiver, *j, port));
                }
                busy
            });
        }
        let Some((end, messages)) = ends.pop_first() else { break };
        now = end;
        for (sender, i, receiver, j, port) in messages {
            executors[sender].handle_done(i);
            executors[receiver].handle_done(j);
            ports[sender][port].sending = false;
            ports[receiver][port].receiving = false;
        }
    }
    assert!(executors.iter_mut().all(|executor| executor.poll() == Poll::Complete), "{:?}", group.call);
    now
}

fn cost(group: &Group) -> Cost {
    let time = time(group, STARTUP, 1);
    Cost { startups: time / STARTUP, blocks: time % STARTUP }
}

fn group(verb: CollectiveKind, algorithm: Algorithm, size: u32, ports: u8) -> Group {
    Group::new(Spec::new(verb, algorithm, size, ports)).expect("not refused")
}

/// ⌈log_{k+1} N⌉.
fn log_up(size: u32, ports: u8) -> u64 {
    (0..).find(|m| (u32::from(ports) + 1).pow(*m) >= size).expect("a power") as u64
}

fn powers(ports: u8) -> impl Iterator<Item = (u32, u64)> {
    (1..).map(move |m| ((u32::from(ports) + 1).pow(m), u64::from(m))).take_while(|(size, _)| *size <= 125)
}

fn received(group: &Group, rank: usize) -> u32 {
    let receives = group.steps[rank].iter().filter(|step| matches!(step.operation, StepOperation::Receive { .. }));
    receives.map(|step| step.operation.blocks()).sum()
}

#[test]
fn schedules_cost_what_equations_1_3_and_5_say_at_powers() {
    for ports in 1..=4 {
        let k = u64::from(ports);
        for (size, m) in powers(ports) {
            let n = u64::from(size);
            let collected = Cost { startups: m, blocks: (n - 1) / k };
            let exchanged = Cost { startups: m, blocks: n / (k + 1) * m };
            for (equation, verb, algorithm, want) in [
                (1, CollectiveKind::Gather, Algorithm::Knomial, collected),
                (1, CollectiveKind::Scatter, Algorithm::Knomial, collected),
                (1, CollectiveKind::Allgather, Algorithm::Bruck, collected),
                (3, CollectiveKind::Allgather, Algorithm::StandardExchange, collected),
                (5, CollectiveKind::Alltoall, Algorithm::StandardExchange, exchanged),
                (5, CollectiveKind::Alltoall, Algorithm::Bruck, exchanged),
            ] {
                let got = cost(&group(verb, algorithm, size, ports));
                assert_eq!(got, want, "equation {equation}: {verb:?} {algorithm:?} of {size} on {ports} ports");
            }
        }
    }
}

#[test]
fn direct_schedules_cost_what_equation_2_says() {
    for (size, ports) in
        (2..=17_u32).chain([31, 32, 33, 48, 64]).flat_map(|size| (1..=4).map(move |ports| (size, ports)))
    {
        let rounds = u64::from((size - 1).div_ceil(u32::from(ports)));
        for verb in
            [CollectiveKind::Gather, CollectiveKind::Scatter, CollectiveKind::Allgather, CollectiveKind::Alltoall]
        {
            let got = cost(&group(verb, Algorithm::Direct, size, ports));
            assert_eq!(got, Cost { startups: rounds, blocks: rounds }, "{verb:?} of {size} on {ports} ports");
        }
    }
}

#[test]
fn bruck_schedules_take_the_fewest_rounds_and_blocks_at_any_size() {
    for (size, ports) in (2..=64_u32).flat_map(|size| (1..=4).map(move |ports| (size, ports))) {
        let gather = group(CollectiveKind::Allgather, Algorithm::Bruck, size, ports);
        assert_eq!(cost(&gather).startups, log_up(size, ports), "{size} on {ports} ports");
        for rank in 0..gather.size() {
            assert_eq!(received(&gather, rank), size - 1, "{size} on {ports} ports");
        }
        let alltoall = group(CollectiveKind::Alltoall, Algorithm::Bruck, size, ports);
        assert_eq!(cost(&alltoall).startups, log_up(size, ports), "{size} on {ports} ports");
    }
}

/// If blocks cost nothing, the time is the number of rounds.
#[test]
fn schedules_take_the_rounds_that_they_say() {
    for (size, ports) in (2..=20).chain([27, 31, 48, 64]).flat_map(|size| (1..=4).map(move |ports| (size, ports))) {
        for (verb, algorithm) in
            CollectiveKind::ALL.iter().flat_map(|verb| Algorithm::ALL.map(|algorithm| (*verb, algorithm)))
        {
            let call = Spec::new(verb, algorithm, size, ports);
            for root in if verb.is_rooted() { vec![0, size / 2] } else { vec![0] } {
                let Ok(group) = Group::new(Spec { root: Rank(root), ..call }) else { continue };
                let took = time(&group, 1, 0);
                let says = u64::from(group.plans.iter().map(Plan::rounds).max().unwrap_or(0));
                let fits = match (verb, algorithm) {
                    // The ranks that have their part of the scatter begin to gather while others still scatter.
                    (CollectiveKind::Broadcast, Algorithm::Bruck) => took <= says + log_up(size, ports),
                    // A root that leads its group need not wait for the last correction step.
                    (CollectiveKind::Reduce, Algorithm::Halving) => took == says || took + 1 == says,
                    _ => took == says,
                };
                assert!(
                    fits,
                    "{verb:?} {algorithm:?} of {size} on {ports} ports, root {root}: {took} rounds, not {says}"
                );
            }
        }
    }
}

/// A tree with fewer ports than children per level takes at most the stated rounds.
#[test]
fn trees_of_schedules_on_one_port_take_at_most_the_rounds_that_they_say() {
    for (size, radix) in (2..=64).flat_map(|size| (3..=5).map(move |radix| (size, radix))) {
        for verb in [CollectiveKind::Broadcast, CollectiveKind::Reduce, CollectiveKind::Gather, CollectiveKind::Barrier]
        {
            let call = Spec { radix, ..Spec::new(verb, Algorithm::Knomial, size, 1) };
            let group = Group::new(call).expect("not refused");
            let (took, says) = (time(&group, 1, 0), u64::from(group.plans[0].rounds()));
            assert!(took <= says, "{verb:?} of {size} in base {radix}: {took} rounds, not {says}");
        }
    }
}

/// The table of docs/schedules.md. No cell is below the minimum of rounds, or of blocks per port.
#[test]
fn table_of_schedules() {
    const COLUMNS: [(&str, CollectiveKind, Algorithm); 7] = [
        ("gather k-nomial", CollectiveKind::Gather, Algorithm::Knomial),
        ("allgather standard exchange", CollectiveKind::Allgather, Algorithm::StandardExchange),
        ("allgather Bruck", CollectiveKind::Allgather, Algorithm::Bruck),
        ("allgather direct", CollectiveKind::Allgather, Algorithm::Direct),
        ("alltoall standard exchange", CollectiveKind::Alltoall, Algorithm::StandardExchange),
        ("alltoall Bruck", CollectiveKind::Alltoall, Algorithm::Bruck),
        ("alltoall direct", CollectiveKind::Alltoall, Algorithm::Direct),
    ];
    let kept = include_str!("../../../docs/schedules.md");
    let print = |line: &str| {
        println!("{line}");
        assert!(kept.lines().any(|other| other == line), "docs/schedules.md lacks: {line}");
    };
    print(&format!("| N | {} |", COLUMNS.map(|column| column.0).join(" | ")));
    print(&format!("|---|{}", "---|".repeat(COLUMNS.len())));
    for size in 2..=64_u32 {
        let cells = COLUMNS.map(|(_, verb, algorithm)| {
            let costs = [1, 2, 3, 4].map(|ports| match Group::new(Spec::new(verb, algorithm, size, ports)) {
                Ok(group) => {
                    let Cost { startups, blocks } = cost(&group);
                    let least = u64::from((size - 1).div_ceil(u32::from(ports)));
                    assert!(startups >= log_up(size, ports) && blocks >= least, "{verb:?} {algorithm:?} of {size}");
                    format!("{startups}+{blocks}")
                }
                Err(_) => "–".into(),
            });
            costs.join(", ")
        });
        print(&format!("| {size} | {} |", cells.join(" | ")));
    }
}

/// Segments follow each other at the distance of one round.
#[test]
fn segments_of_schedules_are_pipelined() {
    for (size, segments) in [(2, 5), (8, 3), (16, 8), (17, 30)] {
        let call = Spec { segments, ..Spec::new(CollectiveKind::Scan, Algorithm::Ring, size, 1) };
        let chain = Group::new(call).expect("not refused");
        assert_eq!(time(&chain, 1, 0), u64::from(size - 1 + segments - 1), "a chain of {size}, {segments} segments");
        // The root of a binomial tree sends all the time; the last segment's path down is hidden except for its last
        // hop.
        let tree = Group::new(Spec { collective: CollectiveKind::Broadcast, algorithm: Algorithm::Knomial, ..call })
            .expect("not refused");
        let children = log_up(size, 1);
        assert!(time(&tree, 1, 0) < u64::from(segments) * children + children, "a tree of {size}, {segments} segments");
    }
}
