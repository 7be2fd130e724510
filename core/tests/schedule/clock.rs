//! The model's time of choices, against simulated ranks that do one thing at a time: a message occupies its sender for
//! `overhead + b·β`, and its receiver for the same time, from `latency − overhead` after its start on. Ranks that share
//! a processor take turns; ranks of a host share its link, through which bytes pass one after the other.

use crate::group::Group;
use alloc::collections::{BTreeMap, VecDeque};
use std::collections::HashMap;
use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, CollectiveSpec, Order, Poll};
use unisono_core::ids::{Rank, StepId};
use unisono_core::schedule::{Choice, LinkModel, StepOperation, algorithms, choose};

const LINK: LinkModel = LinkModel {
    latency_ns: 10_000,
    overhead_ns: 2_000,
    ps_per_byte: 500,
    sharing: 1,
    per_host: 1,
    ps_per_byte_within: 500,
};
/// The constant of `unisono_core`.
const COMBINE_PS_PER_BYTE: u64 = 150;

/// The activity that occupies a rank.
#[derive(Clone, Copy)]
enum Job {
    Send { step: StepId, to: usize, key: u32, bytes: u64 },
    Receive { step: StepId, of: usize, bytes: u64 },
    Reduce { step: StepId, bytes: u64 },
}

enum Event {
    Ended(usize, Job),
    Arrived { from: usize, to: usize, key: u32 },
}

/// Where ranks run.
#[derive(Clone, Copy)]
pub(crate) struct Machine<'m> {
    /// Ranks of a processor.
    pub(crate) sharing: usize,
    /// The cost of a message from one rank to another.
    pub(crate) links: &'m dyn Fn(usize, usize) -> LinkModel,
    /// The host of each rank, the ranks of which share its link. Empty: each has its own.
    pub(crate) hosts: &'m [u32],
}

struct Clock<'m> {
    machine: Machine<'m>,
    /// Until when each host's link sends and receives.
    shared_links: Vec<[u64; 2]>,
    now: u64,
    number: u64,
    events: BTreeMap<(u64, u64), Event>,
    jobs: Vec<VecDeque<Job>>,
    /// Whether each processor is busy.
    busy: Vec<bool>,
    /// Messages that wait for their receive, and receives for their message.
    arrived: HashMap<(usize, usize, u32), ()>,
    posted: HashMap<(usize, usize, u32), Job>,
}

impl Clock<'_> {
    fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.insert((time, self.number), event);
    }

    /// When the first byte of a message that is sent now arrives.
    fn arrival(&mut self, link: LinkModel, from: usize, to: usize, bytes: u64) -> u64 {
        let travels = u64::from(link.latency_ns - link.overhead_ns) * 1000;
        let (Some(source), Some(target)) = (self.machine.hosts.get(from), self.machine.hosts.get(to)) else {
            return self.now + travels;
        };
        if source == target {
            return self.now + travels;
        }
        let passes = bytes * u64::from(link.ps_per_byte);
        let leaves = self.now.max(self.shared_links[*source as usize][0]);
        self.shared_links[*source as usize][0] = leaves + passes;
        let arrives = (leaves + travels).max(self.shared_links[*target as usize][1]);
        self.shared_links[*target as usize][1] = arrives + passes;
        arrives
    }

    fn begin(&mut self, rank: usize) {
        let processor = rank % self.busy.len();
        if self.busy[processor] {
            return;
        }
        let Some(job) = self.jobs[rank].pop_front() else { return };
        self.busy[processor] = true;
        let message =
            |link: LinkModel, bytes: u64| u64::from(link.overhead_ns) * 1000 + bytes * u64::from(link.ps_per_byte);
        let takes = match job {
            Job::Send { to, key, bytes, .. } => {
                let link = (self.machine.links)(rank, to);
                let arrives = self.arrival(link, rank, to, bytes);
                self.at(arrives, Event::Arrived { from: rank, to, key });
                message(link, bytes)
            }
            Job::Receive { of, bytes, .. } => message((self.machine.links)(of, rank), bytes),
            Job::Reduce { bytes, .. } => bytes * COMBINE_PS_PER_BYTE,
        };
        self.at(self.now + takes, Event::Ended(rank, job));
    }
}

/// Picoseconds until all ranks are done, with blocks of `bytes` bytes.
pub(crate) fn run(group: &Group, bytes: u64, machine: Machine<'_>) -> u64 {
    let size = group.size();
    let mut executors = group.executors();
    let mut clock = Clock {
        machine,
        shared_links: vec![[0; 2]; machine.hosts.iter().max().map_or(0, |last| *last as usize + 1)],
        now: 0,
        number: 0,
        events: BTreeMap::new(),
        jobs: vec![VecDeque::new(); size],
        busy: vec![false; size.div_ceil(machine.sharing)],
        arrived: HashMap::new(),
        posted: HashMap::new(),
    };
    loop {
        for (rank, executor) in executors.iter_mut().enumerate() {
            while let Poll::Request(step, operation) = executor.poll() {
                let bytes = bytes * u64::from(operation.blocks());
                match operation {
                    StepOperation::Send { to, key, .. } => {
                        clock.jobs[rank].push_back(Job::Send { step, to: to.0 as usize, key, bytes });
                    }
                    StepOperation::Receive { of, key, .. } => {
                        let message = (of.0 as usize, rank, key);
                        let job = Job::Receive { step, of: of.0 as usize, bytes };
                        match clock.arrived.remove(&message) {
                            Some(()) => clock.jobs[rank].push_back(job),
                            None => {
                                clock.posted.insert(message, job);
                            }
                        }
                    }
                    StepOperation::Reduce { .. } => clock.jobs[rank].push_back(Job::Reduce { step, bytes }),
                    StepOperation::Copy { .. } => executor.handle_done(step),
                    StepOperation::Group(_) => unreachable!("groups use messages"),
                }
            }
            clock.begin(rank);
        }
        let Some(((time, _), event)) = clock.events.pop_first() else { break };
        clock.now = time;
        match event {
            Event::Ended(rank, job) => {
                let processors = clock.busy.len();
                clock.busy[rank % processors] = false;
                let (Job::Send { step, .. } | Job::Receive { step, .. } | Job::Reduce { step, .. }) = job;
                executors[rank].handle_done(step);
            }
            Event::Arrived { from, to, key } => match clock.posted.remove(&(from, to, key)) {
                Some(job) => clock.jobs[to].push_back(job),
                None => {
                    clock.arrived.insert((from, to, key), ());
                }
            },
        }
    }
    assert!(executors.iter_mut().all(|executor| executor.poll() == Poll::Complete), "{:?}", group.call);
    clock.now
}

/// The simulated time of a choice, and the model's.
fn times(choice: Choice, plan: &CollectiveSpec, link: &LinkModel) -> Option<(u64, u64)> {
    let group = Group::new(choice.spec(plan, false)).ok()?;
    let vector = matches!(
        plan.collective,
        CollectiveKind::Broadcast
            | CollectiveKind::Reduce
            | CollectiveKind::Allreduce
            | CollectiveKind::Scan
            | CollectiveKind::Exscan
    );
    let cut = if vector { group.plans[0].blocks() as usize } else { 1 };
    let block = plan.bytes.div_ceil(cut).div_ceil(choice.segments as usize);
    Some((
        run(&group, block as u64, Machine { sharing: link.sharing.into(), links: &|_, _| LINK, hosts: &[] }),
        choice.time_ps(plan, false, link).expect("not refused"),
    ))
}

/// The model's times are close to simulated ones, and no other choice is much faster than the selected one.
#[test]
fn schedules_take_the_time_that_choices_say() {
    for (verb, size) in CollectiveKind::ALL.into_iter().flat_map(|verb| [2, 4, 5, 9, 16].map(|size| (verb, size))) {
        for bytes in if verb == CollectiveKind::Barrier { vec![0] } else { vec![0, 2000, 1 << 20] } {
            let (rank, root) = (Rank(0), Rank(0));
            let plan = CollectiveSpec {
                collective: verb,
                rank,
                size,
                root,
                bytes,
                grain: 1,
                order: Order::Any,
                in_place: false,
                reduction_id: 0,
            };
            let mut best = u64::MAX;
            for &algorithm in algorithms(verb) {
                for (ports, segments) in [1, 2, 3, 15].into_iter().flat_map(|k| [(k, 1), (k, 8)]) {
                    let choice = Choice { algorithm, ports, radix: ports + 1, segments, order: Order::Any };
                    let Some((took, says)) = times(choice, &plan, &LINK) else { continue };
                    let tolerated = says * 45 / 100..=says * 140 / 100;
                    assert!(tolerated.contains(&took), "{plan:?}: {choice:?} takes {took} ps, not {says}");
                    best = best.min(took);
                }
            }
            let chosen = choose(&plan, false, &LINK);
            let (took, _) = times(chosen, &plan, &LINK).expect("not refused");
            assert!(took <= best * 135 / 100, "{plan:?}: {chosen:?} takes {took} ps, another {best}");
        }
    }
}

/// The same holds if ranks share processors.
#[test]
fn schedules_that_share_processors_are_chosen_by_their_work() {
    for (verb, size, sharing) in
        CollectiveKind::ALL.into_iter().flat_map(|verb| [(4, 2), (8, 4), (9, 9)].map(|(n, s)| (verb, n, s)))
    {
        let link = LinkModel { sharing, ..LINK };
        for bytes in if verb == CollectiveKind::Barrier { vec![0] } else { vec![8, 1 << 18] } {
            let (rank, root) = (Rank(0), Rank(0));
            let plan = CollectiveSpec {
                collective: verb,
                rank,
                size,
                root,
                bytes,
                grain: 1,
                order: Order::Any,
                in_place: false,
                reduction_id: 0,
            };
            let mut best = u64::MAX;
            for &algorithm in algorithms(verb) {
                for ports in [1, 2, 3] {
                    let choice = Choice { algorithm, ports, radix: ports + 1, segments: 1, order: Order::Any };
                    let Some((took, says)) = times(choice, &plan, &link) else { continue };
                    let tolerated = says * 45 / 100..=says * 220 / 100;
                    assert!(tolerated.contains(&took), "{plan:?}, {sharing}: {choice:?} takes {took} ps, not {says}");
                    best = best.min(took);
                }
            }
            let (took, _) = times(choose(&plan, false, &link), &plan, &link).expect("not refused");
            assert!(took <= best * 135 / 100, "{plan:?}, {sharing}: the choice takes {took} ps, another {best}");
        }
    }
}

/// Adjacent ranks share the link of their host; a message within a host costs a quarter per byte, and less latency.
#[test]
fn schedules_on_hosts_are_chosen_by_what_leaves_them() {
    let link = LinkModel { ps_per_byte: 2000, per_host: 4, ..LINK };
    let intra = LinkModel { latency_ns: 1_000, overhead_ns: 400, ps_per_byte: 500, ..LINK };
    let of_parts = [CollectiveKind::Allgather, CollectiveKind::Allreduce, CollectiveKind::ReduceScatter];
    for (verb, size) in of_parts.into_iter().flat_map(|verb| [8, 16].map(|size| (verb, size))) {
        let hosts: Vec<u32> = (0..size).map(|rank| rank / 4).collect();
        let links = |from: usize, to: usize| if hosts[from] == hosts[to] { intra } else { link };
        let (rank, root, bytes) = (Rank(0), Rank(0), 1 << 18);
        let (order, in_place, reduction_id, grain) = (Order::Any, false, 0, 1);
        let plan = CollectiveSpec { collective: verb, rank, size, root, bytes, grain, order, in_place, reduction_id };
        let time = |choice: Choice| {
            let group = Group::new(choice.spec(&plan, false)).ok()?;
            let cut = if verb == CollectiveKind::Allreduce { group.plans[0].blocks() as usize } else { 1 };
            let block = bytes.div_ceil(cut).div_ceil(choice.segments as usize) as u64;
            Some(run(&group, block, Machine { sharing: 1, links: &links, hosts: &hosts }))
        };
        let chosen = choose(&plan, false, &link);
        let took = time(chosen).expect("a schedule");
        let others = algorithms(verb).iter().flat_map(|&algorithm| {
            [Order::Any, Order::Rank].map(|order| Choice { algorithm, ports: 1, radix: 2, segments: 1, order })
        });
        let best = others.filter_map(time).min().expect("a schedule");
        assert!(took <= best * 135 / 100, "{verb:?} of {size}: {chosen:?} takes {took} ps, another {best}");
        let far = time(Choice { order: Order::Any, ..chosen }).expect("a schedule");
        assert!(
            chosen.order == Order::Rank && took * 2 < far,
            "{verb:?} of {size}: {took} ps, {far} in the other order"
        );
    }
}
