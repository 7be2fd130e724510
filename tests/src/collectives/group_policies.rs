//! The effective latency of broadcasts over groups that are made by each of the three policies, in simulated time, and its
//! closed form.
//!
//! Source: Mamidala's dissertation (2008), §5.2: the effective latency is the time of creating a communicator and of its
//! broadcasts, per broadcast. A broadcast takes until its last member has it; the next one begins then. What creations
//! agree on (contexts, the offers of the pool) takes no time here, with any policy.

use unisono_core::collective::CollectiveKind;
use unisono_core::ids::{GroupId, Rank};
use unisono_core::multicast::{
    BroadcastPath, GroupKey, GroupPolicy, GroupTest, Offer, SEGMENT_HEADER, SlotSet, TestState,
};
use unisono_core::schedule::{Algorithm, Plan, Spec};

use super::broadcast_job::{BroadcastJob, BroadcastPlan, Host, Message, pool_group};
use super::group_parameters::GroupParameters;
use crate::sim::Network;

/// Bytes of a probe, a report without gaps and a message without data.
const CONTROL_BYTES: u32 = 32;
/// The device's number of the first group that is not of the pool.
const OWN_GROUP: u32 = 100;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyRun {
    /// How groups are made.
    pub policy: GroupPolicy,
    /// Ranks of the job.
    pub world: u32,
    /// Ranks of a communicator, the first ones.
    pub members: u32,
    /// Broadcasts of a communicator.
    pub broadcasts: u32,
    /// Bytes of a broadcast.
    pub bytes: u32,
    /// Between creation and broadcasts; not counted.
    pub computation_ns: u64,
    /// Communicators, each created after the broadcasts of the one before.
    pub creations: u32,
    /// Communicators that exist at a time.
    pub alive: u32,
    /// Groups of the pool that are ready or being made.
    pub target: u32,
    /// The rank of the pool's root, whose messages to all ranks delay what else it sends.
    pub pool_root: u32,
}

impl PolicyRun {
    /// One communicator of a job of 64 ranks, with broadcasts of 1 KiB as in the source.
    pub const fn new(policy: GroupPolicy, members: u32, broadcasts: u32) -> Self {
        let (world, bytes, computation_ns) = (64, 1024, 0);
        let (creations, alive, target, pool_root) = (1, 1, 2, world - 1);
        Self { policy, world, members, broadcasts, bytes, computation_ns, creations, alive, target, pool_root }
    }
}

/// What came of a run. Times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyTimes {
    /// Until the pool was full, before the first creation.
    pub fill_ns: u64,
    /// All creations and broadcasts.
    pub total_ns: u64,
    /// Broadcasts by multicast.
    pub multicasts: u32,
    /// Broadcasts by the schedule.
    pub scheduled: u32,
    /// Communicators with a group of the pool.
    pub pooled: u32,
    /// From the creation of one communicator until the pool was full again, if that is after its broadcasts.
    pub refill_ns: u64,
}

impl PolicyTimes {
    /// Creation and broadcasts, per broadcast.
    pub fn effective_ns(&self) -> f64 {
        self.total_ns as f64 / f64::from(self.multicasts + self.scheduled)
    }
}

/// Hosts of one rank.
struct OneRank;

impl Host for OneRank {
    fn handle_received(&mut self, _: &mut BroadcastJob, _: usize, _: u32) {}
    fn handle_copy(&mut self, _: &mut BroadcastJob, _: usize, _: u32, _: u64) {}
}

/// A communicator: its group, and the group's place if it is of the pool.
#[derive(Clone, Copy)]
struct Communicator {
    group: GroupId,
    slot: Option<u8>,
}

struct Measurement {
    run: PolicyRun,
    job: BroadcastJob,
}

/// Runs it in the simulated network.
///
/// # Panics
/// A broadcast or the pool never completes, or data arrives changed.
pub fn measure(run: PolicyRun, parameters: &GroupParameters) -> PolicyTimes {
    let network = Network::new(1, parameters.network());
    let mut job = BroadcastJob::new(network, *parameters, run.world, 1, run.bytes);
    for rank in 0..run.members {
        let spec = Spec::new(CollectiveKind::Broadcast, Algorithm::Knomial, run.members, 1);
        let plan = Plan::new(Spec { rank: Rank(rank), ..spec }).expect("a schedule");
        job.set_plan(rank as usize, BroadcastPlan::Flat(Box::new(plan)));
    }
    let mut measurement = Measurement { run, job };
    let mut times = PolicyTimes::default();
    if run.policy == GroupPolicy::Pool {
        measurement.job.open_pool(run.pool_root, run.target);
        measurement.fill();
        times.fill_ns = measurement.job.network.now();
    }
    let mut alive = Vec::new();
    let mut computed = 0;
    let start = measurement.job.network.now();
    for creation in 0..run.creations {
        if alive.len() == run.alive as usize {
            measurement.free(alive.remove(0));
        }
        let communicator = measurement.create(creation);
        times.pooled += u32::from(communicator.slot.is_some());
        alive.push(communicator);
        if run.policy == GroupPolicy::Basic {
            measurement.wait_for_group();
        }
        let now = measurement.job.network.now();
        measurement.job.run_to(&mut OneRank, now + run.computation_ns);
        computed += run.computation_ns;
        for call in 0..run.broadcasts {
            let path = measurement.broadcast(creation * run.broadcasts + call);
            *(if path == BroadcastPath::Multicast { &mut times.multicasts } else { &mut times.scheduled }) += 1;
        }
    }
    let end = measurement.job.network.now();
    times.total_ns = end - start - computed;
    if run.policy == GroupPolicy::Pool && run.creations == 1 {
        measurement.fill();
        times.refill_ns = measurement.job.network.now() - start;
    }
    times
}

impl Measurement {
    /// Runs until the pool is full at all ranks.
    fn fill(&mut self) {
        let target = self.run.target;
        let is_full = |job: &mut BroadcastJob| job.ranks.iter().all(|of| of.pool.ready().0.count_ones() >= target);
        assert!(self.job.run_until(&mut OneRank, is_full), "the pool is never full");
    }

    /// Creates a communicator: the ranks take a group of the pool, or make one.
    fn create(&mut self, number: u32) -> Communicator {
        let slot = if self.run.policy == GroupPolicy::Pool { self.take() } else { None };
        let group = slot.map_or(GroupId(OWN_GROUP + number), pool_group);
        let key = GroupKey { group, epoch: 0xfeed_0000 + u64::from(number) };
        let members: Vec<u32> = (0..self.run.members).collect();
        let now = self.job.network.now();
        self.job.ranks[0].test = slot.is_none().then(|| {
            let probes = self.job.parameters.test();
            GroupTest::new(now, Rank(0), self.run.members, probes)
        });
        for &rank in &members {
            let is_member = slot.is_some() || self.job.join(rank as usize, group);
            assert!(is_member, "the device has a free group");
            self.job.open_stream(rank as usize, rank, &members, key);
            if slot.is_none() && rank > 0 {
                self.job.send(rank as usize, 0, rank, Message::Joined);
            }
        }
        Communicator { group, slot }
    }

    /// All ranks take part in a creation whose communicator is that of the first ranks.
    fn take(&mut self) -> Option<u8> {
        let ranks = &mut self.job.ranks;
        let offers: Vec<Option<Offer>> = ranks.iter_mut().map(|of| of.pool.offer()).collect();
        let slots = |offer: &Option<Offer>| offer.as_ref().map_or(SlotSet::EMPTY, Offer::slots);
        let agreed = offers.iter().map(slots).fold(SlotSet::ALL, SlotSet::and);
        let mut taken = None;
        for ((rank, of), offer) in (0..).zip(ranks).zip(offers) {
            let own = (rank < self.run.members).then_some(0);
            let slot = offer.and_then(|offer| of.pool.take(offer, agreed, 1, own));
            taken = taken.or(slot);
        }
        // Those that leave do so at once.
        (0..self.job.ranks.len()).for_each(|rank| self.job.drive(rank, &mut OneRank));
        taken
    }

    /// Frees a communicator at all its members.
    fn free(&mut self, Communicator { group, slot }: Communicator) {
        for rank in 0..self.run.members as usize {
            match slot {
                Some(slot) => self.job.ranks[rank].pool.release(slot),
                None => self.job.leave(rank, group),
            }
            self.job.drive(rank, &mut OneRank);
        }
    }

    fn path(job: &BroadcastJob, policy: GroupPolicy) -> BroadcastPath {
        policy.path(job.ranks[0].test.as_ref().map_or(TestState::Passed, GroupTest::state))
    }

    fn wait_for_group(&mut self) {
        let policy = self.run.policy;
        let is_decided = |job: &mut BroadcastJob| Self::path(job, policy) != BroadcastPath::Wait;
        assert!(self.job.run_until(&mut OneRank, is_decided), "the test never ends");
    }

    /// One broadcast, until its last member has it.
    fn broadcast(&mut self, call: u32) -> BroadcastPath {
        let path = Self::path(&self.job, self.run.policy);
        if path == BroadcastPath::Multicast {
            let has_room =
                |job: &mut BroadcastJob| job.ranks[0].stream.as_ref().is_some_and(|stream| stream.room() > 0);
            assert!(self.job.run_until(&mut OneRank, has_room), "the window stays full");
            assert!(self.job.begin_multicast(call, &mut OneRank), "it has room");
        } else {
            self.job.begin_schedule(call, &mut OneRank);
        }
        let members = self.run.members as usize;
        let is_over = |job: &mut BroadcastJob| job.ranks[..members].iter().all(|of| of.received > call);
        assert!(self.job.run_until(&mut OneRank, is_over), "broadcast {call} does not end");
        path
    }
}

/// The closed forms of a run, of one communicator, from its parameters. Times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct ClosedForm {
    /// The parameters.
    pub parameters: GroupParameters,
    /// The run.
    pub run: PolicyRun,
}

impl ClosedForm {
    /// A broadcast by multicast: one message, as long as the acknowledgements of its members take no longer in the root's
    /// adapter.
    pub fn multicast(&self) -> u64 {
        let acknowledgements = u64::from(self.run.members - 1) * self.parameters.adapter(CONTROL_BYTES);
        self.parameters.hop(self.run.bytes).max(acknowledgements)
    }

    /// A broadcast by the schedule: a message per level of the binomial tree.
    pub fn schedule(&self) -> u64 {
        u64::from(self.run.members.next_power_of_two().ilog2()) * self.parameters.hop(self.run.bytes)
    }

    /// Until the switches forward to all of `size` members that request at once.
    pub const fn routed(&self, size: u32) -> u64 {
        let subnet = self.parameters.subnet;
        subnet.request_ns + subnet.create_ns + (size as u64 - 1) * subnet.join_ns + subnet.route_ns
    }

    /// Until the test has passed: all of `size` members have reported at `first`, the probes follow each other, and the
    /// answers to the first one after `routed` do in the root's adapter.
    fn tested(&self, size: u32, first: u64, routed: u64) -> u64 {
        let GroupParameters { latency_ns, probe_ns, .. } = self.parameters;
        let adapter = self.parameters.adapter(CONTROL_BYTES);
        let probe = first + routed.saturating_sub(first).div_ceil(probe_ns) * probe_ns;
        probe + 2 * latency_ns + 3 * adapter + u64::from(size - 1) * adapter
    }

    /// Until the group of a new communicator may be used.
    pub fn ready(&self) -> u64 {
        let size = self.run.members;
        let adapter = self.parameters.adapter(SEGMENT_HEADER as u32);
        let first = adapter + self.parameters.latency_ns + u64::from(size - 1) * adapter;
        self.tested(size, first, self.routed(size))
    }

    /// Until a new pool is full: a group after the other, of all ranks.
    pub fn fill(&self) -> u64 {
        u64::from(self.run.target) * self.made(0)
    }

    /// Until the pool is full again after a creation: those that leave are handled first.
    pub fn refill(&self) -> u64 {
        let leaving = u64::from(self.run.world - self.run.members);
        self.made(leaving * self.parameters.subnet.leave_ns)
    }

    /// Until a group of the pool is ready at all ranks, after other requests.
    fn made(&self, requests: u64) -> u64 {
        let size = self.run.world;
        let adapter = self.parameters.adapter(SEGMENT_HEADER as u32);
        let sent = u64::from(size - 1) * adapter + adapter + self.parameters.latency_ns;
        let first = sent + 2 * adapter + self.parameters.latency_ns;
        self.tested(size, first, requests + self.routed(size)) + sent
    }

    /// The time of creation and broadcasts.
    pub fn total(&self) -> u64 {
        let broadcasts = u64::from(self.run.broadcasts);
        let scheduled = match self.run.policy {
            GroupPolicy::Basic => return self.ready() + broadcasts * self.multicast(),
            GroupPolicy::Pool => 0,
            GroupPolicy::Lazy => {
                let left = self.ready().saturating_sub(self.run.computation_ns);
                left.div_ceil(self.schedule()).min(broadcasts)
            }
        };
        scheduled * self.schedule() + (broadcasts - scheduled) * self.multicast()
    }

    /// The time per broadcast.
    pub fn effective(&self) -> f64 {
        self.total() as f64 / f64::from(self.run.broadcasts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::group_parameters::default_file;
    use super::*;

    fn form(run: PolicyRun) -> (PolicyTimes, ClosedForm) {
        let parameters = GroupParameters::read(&default_file()).expect("well-formed");
        (measure(run, &parameters), ClosedForm { parameters, run })
    }

    #[test]
    fn policies_differ_in_what_is_waited_for_and_what_goes_by_multicast() {
        let (basic, form_of_basic) = form(PolicyRun::new(GroupPolicy::Basic, 8, 4));
        assert_eq!((basic.multicasts, basic.scheduled), (4, 0));
        assert!(basic.total_ns >= form_of_basic.routed(8));
        let (lazy, form_of_lazy) = form(PolicyRun::new(GroupPolicy::Lazy, 8, 4));
        assert_eq!((lazy.multicasts, lazy.scheduled), (0, 4));
        assert_eq!(lazy.total_ns, 4 * form_of_lazy.schedule());
        let pool = PolicyRun { world: 12, pool_root: 11, ..PolicyRun::new(GroupPolicy::Pool, 8, 4) };
        let (pool, form_of_pool) = form(pool);
        assert_eq!((pool.multicasts, pool.pooled), (4, 1));
        let expected = 4 * form_of_pool.multicast();
        assert!((expected..expected + expected / 20).contains(&pool.total_ns), "{pool:?}, {expected} ns expected");
    }

    #[test]
    fn lazy_group_is_used_when_its_test_has_passed_meanwhile() {
        let run = PolicyRun { computation_ns: 20_000_000, ..PolicyRun::new(GroupPolicy::Lazy, 8, 4) };
        assert_eq!(form(run).0.multicasts, 4);
    }

    #[test]
    fn exhausted_pool_falls_back_to_schedules_and_completes() {
        let run = PolicyRun {
            world: 12,
            pool_root: 11,
            creations: 4,
            alive: 4,
            target: 2,
            ..PolicyRun::new(GroupPolicy::Pool, 8, 3)
        };
        let (times, _) = form(run);
        assert_eq!((times.pooled, times.multicasts, times.scheduled), (2, 6, 6));
    }
}
