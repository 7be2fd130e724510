//! Broadcasts between hosts of several ranks, in simulated time: by a multicast to the leaders of hosts and copies within
//! them, by a multicast to all ranks, and by schedules; and a rank that attaches to the group of its late leader.
//!
//! Source: Mamidala's dissertation (2008), §6.3. The ranks of a host share its adapter: two datagrams to it follow each
//! other, a multicast to two of its ranks counts as two.

use alloc::sync::Arc;

use unisono_core::collective::CollectiveKind;
use unisono_core::ids::{GroupId, Rank};
use unisono_core::multicast::{AttachChange, DynamicAttach, GroupKey};
use unisono_core::schedule::{Algorithm, HierarchicalPlan, Hierarchy, LowerTrees, Plan, Spec};
use unisono_core::time::units;

use super::broadcast_job::{BroadcastJob, BroadcastPlan, Host, Local, Message, RANKS, member};
use super::group_parameters::GroupParameters;
use crate::sim::Network;

const GROUP: GroupId = GroupId(7);
const KEY: GroupKey = GroupKey { group: GROUP, epoch: 0xfeed };
/// The trees below the leaders of hosts, as the library has them.
const LOWER: LowerTrees = LowerTrees { radix: 2, ports: 1 };
/// The late leader and the other rank of its host.
const LATE: usize = 2;
const OTHER: usize = 3;

/// How broadcasts go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BroadcastMeans {
    /// By multicast to one rank per host, which copies within its host.
    Leaders,
    /// By multicast to every rank.
    Flat,
    /// By the binomial tree over all ranks.
    Schedule,
    /// By the binomial tree over the leaders, then within each host.
    ComposedSchedule,
}

/// Hosts whose leaders copy what they get by multicast, and a rank that may attach itself.
struct Leaders {
    copies: bool,
    per_host: usize,
    attach: Option<DynamicAttach>,
    /// Of the other rank of the late leader's host, by broadcast.
    waits: Vec<u64>,
    /// The broadcasts after which it attached and left.
    changes: Vec<(u32, AttachChange)>,
}

impl Host for Leaders {
    fn handle_received(&mut self, job: &mut BroadcastJob, rank: usize, call: u32) {
        let of = &job.ranks[rank];
        let wait = of.received_at.saturating_sub(of.entered);
        if rank == OTHER {
            self.waits.push(wait);
        }
        if self.copies && rank.is_multiple_of(self.per_host) {
            (rank + 1..rank + self.per_host).for_each(|to| job.send_local(to, Local::Copy(call, wait)));
        }
    }

    fn handle_copy(&mut self, job: &mut BroadcastJob, rank: usize, call: u32, leader_wait: u64) {
        let Some(attach) = self.attach.as_mut().filter(|_| rank == OTHER) else { return };
        let own = job.network.now().saturating_sub(job.ranks[rank].entered);
        let Some(change) = attach.record(units(own), units(leader_wait)) else { return };
        self.changes.push((call, change));
        let number = RANKS as u32 / 2 + rank as u32;
        if change == AttachChange::Attach {
            let members: Vec<u32> = (0..job.ranks.len() as u32).step_by(self.per_host).collect();
            assert!(job.join(rank, GROUP), "the device has a free group");
            job.open_stream(rank, number, &members, KEY);
            let now = job.network.now();
            let stream = job.ranks[rank].stream.as_mut().expect("opened");
            stream.add_member(now, Rank(number), member(rank as u32));
            // The call returns when the adapter is attached.
            job.network.busy(job.ranks[rank].id, now + job.parameters.attach_ns);
            job.send(rank, 0, number, Message::Attached);
        } else {
            job.leave(rank, GROUP);
            job.ranks[rank].stream = None;
            job.send(rank, 0, number, Message::Detached);
        }
    }
}

/// A job over groups that all members have joined.
fn job(parameters: &GroupParameters, hosts: u32, per_host: u32, bytes: u32, means: BroadcastMeans) -> BroadcastJob {
    let config = crate::sim::Config { subnet: None, join_ns: 0, ..parameters.network() };
    let size = hosts * per_host;
    let mut job = BroadcastJob::new(Network::new(1, config), *parameters, size, per_host as usize, bytes);
    let of_rank =
        |rank: u32| Spec { rank: Rank(rank), ..Spec::new(CollectiveKind::Broadcast, Algorithm::Knomial, size, 1) };
    match means {
        BroadcastMeans::Leaders | BroadcastMeans::Flat => {
            let step = if means == BroadcastMeans::Flat { 1 } else { per_host as usize };
            let members: Vec<u32> = (0..size).step_by(step).collect();
            for (own, &rank) in (0..).zip(&members) {
                assert!(job.join(rank as usize, GROUP), "the device has a free group");
                job.open_stream(rank as usize, own, &members, KEY);
            }
        }
        BroadcastMeans::Schedule => {
            for rank in 0..size {
                let plan = Plan::new(of_rank(rank)).expect("a schedule");
                job.set_plan(rank as usize, BroadcastPlan::Flat(Box::new(plan)));
            }
        }
        BroadcastMeans::ComposedSchedule => {
            let host_of: Vec<u32> = (0..size).map(|rank| rank / per_host).collect();
            let table = vec![0; Hierarchy::<Vec<u32>>::table_len(size as usize, 1)];
            let groups = Hierarchy::new(&[&host_of], table).expect("a table of that length");
            let groups: Hierarchy<Arc<[u32]>> = groups.map(Arc::from);
            for rank in 0..size {
                let plan = HierarchicalPlan::new(of_rank(rank), LOWER, groups.clone()).expect("a schedule");
                job.set_plan(rank as usize, BroadcastPlan::Composed(Box::new(plan)));
            }
        }
    }
    job
}

/// Times of a broadcast, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BroadcastTimes {
    /// Until the last rank has it.
    pub latency_ns: u64,
    /// Until the root has all acknowledgements; without multicast as `latency_ns`.
    pub acknowledged_ns: u64,
}

/// One broadcast between idle hosts.
///
/// # Panics
/// It does not end.
pub fn broadcast(
    parameters: &GroupParameters,
    (hosts, per_host): (u32, u32),
    bytes: u32,
    means: BroadcastMeans,
) -> BroadcastTimes {
    let mut job = job(parameters, hosts, per_host, bytes, means);
    let copies = means == BroadcastMeans::Leaders;
    let (waits, changes) = (Vec::new(), Vec::new());
    let mut host = Leaders { copies, per_host: per_host as usize, attach: None, waits, changes };
    if matches!(means, BroadcastMeans::Leaders | BroadcastMeans::Flat) {
        assert!(job.begin_multicast(0, &mut host), "the window is empty");
    } else {
        job.begin_schedule(0, &mut host);
    }
    let is_over = |job: &mut BroadcastJob| job.ranks.iter().all(|of| of.received == 1);
    assert!(job.run_until(&mut host, is_over), "{means:?} does not end");
    let latency_ns = job.network.now();
    let is_idle = |job: &mut BroadcastJob| job.ranks[0].stream.as_ref().is_none_or(|stream| stream.is_idle());
    assert!(job.run_until(&mut host, is_idle), "{means:?} is not acknowledged");
    BroadcastTimes { latency_ns, acknowledged_ns: job.network.now() }
}

/// What a late leader costs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LateLeader {
    /// How long the other rank of the leader's host waits, by broadcast, in nanoseconds.
    pub waits_ns: Vec<u64>,
    /// The broadcasts after which that rank attached and left.
    pub changes: Vec<(u32, AttachChange)>,
}

impl LateLeader {
    /// The median wait of some broadcasts.
    ///
    /// # Panics
    /// There are none.
    pub fn median_ns(&self, broadcasts: core::ops::Range<usize>) -> u64 {
        let mut waits = self.waits_ns[broadcasts].to_vec();
        waits.sort_unstable();
        waits[waits.len() / 2]
    }
}

/// Broadcasts to the leaders of hosts of two ranks. One leader enters the first `late.1` of them `late.0` nanoseconds after
/// the others, and the rest with them.
///
/// # Panics
/// A broadcast does not end.
pub fn late_leader(
    parameters: &GroupParameters,
    hosts: u32,
    bytes: u32,
    broadcasts: u32,
    late: (u64, u32),
    attaches: bool,
) -> LateLeader {
    let mut job = job(parameters, hosts, 2, bytes, BroadcastMeans::Leaders);
    let attach = attaches.then(|| DynamicAttach::new(parameters.attach()));
    let mut host = Leaders { copies: true, per_host: 2, attach, waits: Vec::new(), changes: Vec::new() };
    // Longer than a broadcast and an attachment.
    let period = late.0 + parameters.attach_ns + 100 * parameters.hop(bytes);
    for call in 0..broadcasts {
        let start = job.network.now();
        job.ranks.iter_mut().for_each(|of| of.entered = start);
        if call < late.1 && late.0 > 0 {
            job.ranks[LATE].entered = start + late.0;
            job.network.busy(job.ranks[LATE].id, start + late.0);
        }
        assert!(job.begin_multicast(call, &mut host), "the window has room");
        job.run_to(&mut host, start + period);
        assert!(job.ranks.iter().all(|of| of.received == call + 1), "broadcast {call} does not end");
    }
    LateLeader { waits_ns: host.waits, changes: host.changes }
}

#[cfg(test)]
mod tests {
    use super::super::group_parameters::default_file;
    use super::*;

    fn parameters() -> GroupParameters {
        GroupParameters::read(&default_file()).expect("well-formed")
    }

    #[test]
    fn leaders_cost_a_copy_and_flat_multicast_a_second_datagram_of_each_host() {
        let parameters = parameters();
        let latency = |means| broadcast(&parameters, (4, 2), 1000, means).latency_ns;
        assert_eq!(latency(BroadcastMeans::Leaders), parameters.hop(1000) + parameters.copy(1000));
        assert_eq!(latency(BroadcastMeans::Flat), parameters.hop(1000) + parameters.adapter(1036));
        // To another host twice, then within each; the composed schedule has the same tree here.
        let hops = 2 * parameters.hop(1000) + parameters.copy(1000);
        assert_eq!(latency(BroadcastMeans::Schedule), hops);
        assert_eq!(latency(BroadcastMeans::ComposedSchedule), hops);
    }

    #[test]
    fn attached_rank_waits_for_the_network_alone_and_leaves_when_its_leader_is_in_time() {
        let parameters = parameters();
        let late = (2 * parameters.threshold_ns, 50);
        let follows = late_leader(&parameters, 4, 1000, 120, late, false);
        assert!(follows.changes.is_empty() && follows.median_ns(20..50) >= late.0);
        let attaches = late_leader(&parameters, 4, 1000, 120, late, true);
        assert!(attaches.waits_ns[..15].iter().all(|wait| *wait >= late.0), "not before the warmup");
        // After the datagram of its leader.
        assert_eq!(attaches.median_ns(20..50), parameters.hop(1000) + parameters.adapter(1036));
        let [(first, AttachChange::Attach), (last, AttachChange::Detach)] = attaches.changes[..] else {
            panic!("{:?}", attaches.changes)
        };
        assert!(first == 15 && last >= 50 + 15, "{:?}", attaches.changes);
    }

    #[test]
    fn rank_whose_leader_is_late_by_less_than_the_threshold_follows() {
        let parameters = parameters();
        let late = (parameters.threshold_ns / 2, 60);
        assert!(late_leader(&parameters, 4, 1000, 60, late, true).changes.is_empty());
    }
}
