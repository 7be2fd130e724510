//! What this rank reports while it is blocked, and which peers it can no longer reach.
//!
//! A rank is blocked while every thread that uses its World waits in a call. After some time without progress it reports
//! its waits to the rendezvous server, which finds the ranks that can never continue. A peer is unreachable if nothing
//! has arrived from it for long, although both it and this rank made progress all the time.

use core::time::Duration;

use unisono_core::counters::Counters;
use unisono_core::ids::PeerId;
use unisono_core::multicast::StreamCounters;
use unisono_core::wire::DatagramKind;

use super::Process;
use crate::environment::TransportSettings;
use crate::world::progress::user_threads::UserThreads;
use crate::world::watchdog::{BlockedOn, StuckCollective, WaitGroup, report};
use unisono_bootstrap::{CONDITIONS_MAX, RANGES_MAX, Rank, RankRanges, WAITS_MAX, Wait, WaitCondition, WaitReport};

/// Nanoseconds without a check of the timers after which progress counts as paused.
const PAUSE: u64 = 500_000_000;
/// Nanoseconds between two queries about a peer that seems unreachable.
const QUERY_INTERVAL: u64 = 500_000_000;
/// Ranks that a description names.
const NAMED_MAX: usize = 4;

/// A peer that does not answer.
#[derive(Clone, Copy, Debug)]
struct SilentPeer {
    peer: PeerId,
    /// Since when.
    since: u64,
    /// When its progress was last queried.
    queried_at: Option<u64>,
}

/// The collectives that one thread waits for at once, as one of several requests or all of them.
#[derive(Debug)]
struct AttendedCollectives {
    /// Their places in the progress table.
    places: Vec<u32>,
    /// Whether the thread waits for messages, too, which are recorded as its wait.
    beside_messages: bool,
}

/// The state of reports about waits and unreachable peers. Times are in nanoseconds.
#[derive(Debug, Default)]
pub(in crate::world) struct BlockedReports {
    /// Time without progress after which waits are reported.
    threshold: u64,
    /// Time without an answer after which a peer may be unreachable.
    unreachable: u64,
    users: UserThreads,
    /// The progress counter, and when it last changed or the rank was not blocked.
    progress: u64,
    since: u64,
    /// When the server last got waits; `None`: it takes this rank for not blocked.
    reported_at: Option<u64>,
    /// The last check, and since when there was no pause between two checks.
    checked_at: u64,
    polling_since: u64,
    silent: Vec<SilentPeer>,
    attended: Vec<AttendedCollectives>,
}

impl BlockedReports {
    pub(in crate::world) fn new(settings: &TransportSettings, users: UserThreads) -> Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (threshold, unreachable) = (settings.stuck_timeout(), settings.unreachable_timeout());
        Self { threshold: nanoseconds(threshold), unreachable: nanoseconds(unreachable), users, ..Self::default() }
    }
}

impl Process {
    /// Records that a thread waits for these collectives and, as the caller records, for messages.
    pub(in crate::world) fn record_collective_waits(&mut self, places: &[u32], beside_messages: bool) {
        if places.is_empty() {
            return;
        }
        let now = self.transport.now;
        for place in places {
            if let Some(running) = self.collectives.get_mut(*place) {
                running.start.waited_since.get_or_insert(now);
            }
        }
        self.blocked.attended.push(AttendedCollectives { places: places.to_vec(), beside_messages });
    }

    /// Records that it no longer waits.
    pub(in crate::world) fn clear_collective_waits(&mut self, places: &[u32]) {
        let Some(over) = self.blocked.attended.iter().rposition(|attended| attended.places == places) else { return };
        self.blocked.attended.swap_remove(over);
        for place in places {
            if let Some(running) = self.collectives.get_mut(*place) {
                running.start.waited_since = None;
            }
        }
    }

    /// Number of collectives of these that are under way.
    fn pending_of(&self, attended: &AttendedCollectives) -> usize {
        attended.places.iter().filter(|place| !self.has_ended(**place)).count()
    }

    /// Notes that this process makes progress.
    pub(super) fn note_polling(&mut self, now: u64) {
        let blocked = &mut self.blocked;
        if now.saturating_sub(blocked.checked_at) >= PAUSE {
            blocked.polling_since = now;
        }
        blocked.checked_at = now;
    }

    /// Reports the waits of a rank that has made no progress for a while, now and then; or that it continues.
    pub(super) fn report_waits(&mut self, now: u64) {
        let progress = self.progress_counter();
        let is_same = core::mem::replace(&mut self.blocked.progress, progress) == progress;
        if !is_same || !self.is_blocked() {
            self.blocked.since = now;
            if self.blocked.reported_at.take().is_some()
                && let Some(membership) = &mut self.membership
            {
                membership.report_waits(WaitReport::default());
            }
            return;
        }
        let BlockedReports { threshold, since, polling_since, reported_at, .. } = self.blocked;
        let is_late = |at: u64| now.saturating_sub(at) >= threshold;
        if is_late(since.max(polling_since)) && reported_at.is_none_or(is_late) {
            self.send_waits(now, 0);
        }
    }

    /// Answers the server's request to confirm the waits.
    pub(super) fn confirm_waits(&mut self, now: u64, round: u32) {
        if self.blocked.reported_at.is_some() && self.is_blocked() {
            self.send_waits(now, round);
        }
    }

    fn send_waits(&mut self, now: u64, round: u32) {
        let report = WaitReport {
            round,
            progress: self.progress_counter(),
            in_flight: self.has_in_flight(),
            waits: self.described_waits(),
        };
        if let Some(membership) = &mut self.membership
            && !report.waits.is_empty()
        {
            self.blocked.reported_at = Some(now);
            membership.report_waits(report);
        }
    }

    /// Changes with every operation and every wait that ends, every step of a collective and every accepted segment, and
    /// every new one of a multicast.
    fn progress_counter(&self) -> u64 {
        let Counters { accepted, .. } = &self.datagrams.counters;
        let segments = accepted.get(DatagramKind::Segment as usize).copied().unwrap_or(0);
        let ended = self.collectives.wait_registry.ended();
        let StreamCounters { sent, placed, .. } = self.collectives.multicast.counters();
        let all = [self.requests.finished(), self.requests.steps(), segments, ended, sent, placed];
        all.into_iter().fold(0, u64::wrapping_add)
    }

    /// Whether every thread that uses the World waits in a call.
    fn is_blocked(&self) -> bool {
        let registry = &self.collectives.wait_registry;
        // A thread that waits for several requests is one thread.
        let pending = || self.blocked.attended.iter().map(|attended| (attended, self.pending_of(attended)));
        let alone = self.collectives.stuck().count().saturating_sub(pending().map(|(_, pending)| pending).sum());
        let together = pending().filter(|(attended, pending)| !attended.beside_messages && *pending > 0).count();
        let waiting = registry.groups().len() + registry.published().len() + alone + together;
        waiting > 0 && waiting >= self.blocked.users.count() as usize
    }

    /// Whether something that this rank has sent may not have arrived.
    fn has_in_flight(&self) -> bool {
        !(self.messenger.is_flushed() && self.transport.is_flushed())
    }

    /// The waits of all threads, and the collectives under way that no thread waits for; none if there are too many.
    fn described_waits(&self) -> Vec<Wait> {
        let mut budget = Budget { size: self.size, conditions: CONDITIONS_MAX, ranges: RANGES_MAX };
        let registry = &self.collectives.wait_registry;
        let beside_messages = |attended: &&AttendedCollectives| attended.beside_messages;
        let is_mixed =
            self.blocked.attended.iter().filter(beside_messages).any(|attended| self.pending_of(attended) > 0);
        let is_pending = |(request, _): &(Option<u32>, BlockedOn)| {
            request.is_none_or(|request| self.requests.result(request).is_none())
        };
        // Of a thread whose messages have ended, the collectives are left, which are described below.
        let is_left = |group: &&WaitGroup| !is_mixed || group.any || group.members.iter().any(is_pending);
        let groups = registry.groups();
        let mut waits: Vec<Wait> =
            groups.iter().filter(is_left).map(|group| self.described_group(group, &mut budget)).collect();
        for StuckCollective { subject, verb, awaited, .. } in registry.published() {
            // It needs the part of every rank.
            let conditions = awaited.iter().map_while(|rank| budget.any_of(vec![*rank])).collect();
            let what = describe_collective(verb.name(), subject.communicator(), awaited);
            waits.push(Wait { what, conditions });
        }
        // One message may let this rank pass on what another rank needs.
        for StuckCollective { subject, verb, awaited, .. } in self.collectives.stuck() {
            let what = describe_collective(verb.name(), subject.communicator(), &awaited);
            waits.push(Wait { what, conditions: budget.any_of(awaited).into_iter().collect() });
        }
        for awaited in self.collectives.unattended() {
            waits.push(Wait { what: String::new(), conditions: budget.any_of(awaited).into_iter().collect() });
        }
        if waits.len() > WAITS_MAX { Vec::new() } else { waits }
    }

    /// The wait of a thread for one of several requests, or for all of them.
    fn described_group(&self, group: &WaitGroup, budget: &mut Budget) -> Wait {
        let is_pending = |request: &Option<u32>| request.is_none_or(|request| self.requests.result(request).is_none());
        let pending: Vec<(Option<u32>, BlockedOn)> =
            group.members.iter().filter(|(request, _)| is_pending(request)).copied().collect();
        let texts: Vec<String> = pending.iter().take(NAMED_MAX).map(|(_, what)| what.to_string()).collect();
        let what = texts.join(if group.any { " or " } else { " and " });
        if group.any && pending.len() == group.members.len() {
            let all = pending.iter().flat_map(|(request, what)| self.awaited_ranks(*request, *what)).collect();
            return Wait { what, conditions: budget.any_of(all).into_iter().collect() };
        }
        if group.any {
            // One has ended: the thread continues.
            return Wait { what, conditions: Vec::new() };
        }
        let needed = |(request, what): (Option<u32>, BlockedOn)| match what {
            BlockedOn::Finish => vec![WaitCondition::Fence],
            BlockedOn::Agreement { communicator } => {
                let id = self.collectives.wait_registry.agreement(communicator);
                id.map(WaitCondition::Agreement).into_iter().collect()
            }
            BlockedOn::Flush => {
                let receivers = self.awaited_ranks(request, what).into_iter();
                receivers.map_while(|rank| budget.any_of(vec![rank])).collect()
            }
            _ => budget.any_of(self.awaited_ranks(request, what)).into_iter().collect(),
        };
        let mut conditions: Vec<WaitCondition> = pending.into_iter().flat_map(needed).collect();
        conditions.truncate(CONDITIONS_MAX / WAITS_MAX * 2);
        Wait { what, conditions }
    }

    /// The ranks of which one must act for this.
    fn awaited_ranks(&self, request: Option<u32>, what: BlockedOn) -> Vec<Rank> {
        match what {
            BlockedOn::Receive { source: Some(rank), .. }
            | BlockedOn::Probe { source: Some(rank), .. }
            | BlockedOn::Send { to: rank, .. } => vec![rank],
            BlockedOn::Receive { source: None, .. } => {
                let posted = request.and_then(|request| self.posted_receive(request));
                let context = posted.map(|(_, pattern)| pattern.context);
                let is_source = |rank: &Rank| context.is_none_or(|context| self.is_member(context, *rank));
                (0..self.size).map(Rank).filter(is_source).collect()
            }
            BlockedOn::Flush => self.unfinished_receivers(),
            BlockedOn::Probe { source: None, .. }
            | BlockedOn::Nothing
            | BlockedOn::Collective { .. }
            | BlockedOn::Agreement { .. }
            | BlockedOn::Finish => (0..self.size).map(Rank).collect(),
        }
    }

    /// The ranks that have not received everything that was sent to them.
    fn unfinished_receivers(&self) -> Vec<Rank> {
        let announced = self.messenger.open_sends().map(|(to, _)| to);
        let sends = self.messenger.receivers();
        let mut ranks: Vec<Rank> = announced.chain(sends).map(Rank::from).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// A peer did not answer for the configured silence, though its process may be computing.
    pub(super) fn note_silence(&mut self, now: u64, peer: PeerId) {
        if !self.blocked.silent.iter().any(|silent| silent.peer == peer) {
            self.blocked.silent.push(SilentPeer { peer, since: now, queried_at: None });
        }
    }

    /// Asks whether the peers that have not answered for long make progress.
    pub(super) fn query_silent_peers(&mut self, now: u64) {
        if self.blocked.silent.is_empty() {
            return;
        }
        let endpoint = &self.transport.endpoint;
        self.blocked.silent.retain(|silent| endpoint.is_unanswered(silent.peer));
        let BlockedReports { unreachable, polling_since, .. } = self.blocked;
        for silent in &mut self.blocked.silent {
            let is_due = |at: u64, period: u64| now.saturating_sub(at) >= period;
            if is_due(silent.since.max(polling_since), unreachable)
                && silent.queried_at.is_none_or(|at| is_due(at, QUERY_INTERVAL))
                && let Some(membership) = &mut self.membership
            {
                silent.queried_at = Some(now);
                membership.query_polling(silent.peer.into());
            }
        }
    }

    /// A rank queries for how long this one has made progress.
    pub(super) fn answer_polling(&mut self, now: u64, asker: Rank) {
        let duration = now.saturating_sub(self.blocked.polling_since);
        if let Some(membership) = &mut self.membership {
            membership.answer_polling(asker, Duration::from_nanos(duration));
        }
    }

    /// A queried rank has made progress for this long: it is unreachable if nothing has arrived from it meanwhile.
    pub(super) fn handle_polling(&mut self, now: u64, rank: Rank, duration: Duration) {
        let BlockedReports { unreachable, ref silent, .. } = self.blocked;
        let peer = PeerId::from(rank);
        let is_silent = |silent: &SilentPeer| {
            silent.peer == peer
                && now.saturating_sub(silent.since) >= unreachable
                && self.transport.endpoint.is_unanswered(peer)
        };
        if !silent.iter().any(is_silent) || duration < Duration::from_nanos(unreachable) {
            return;
        }
        let time = humantime::format_duration(Duration::from_millis(unreachable / 1_000_000));
        report(
            self.rank,
            &format!(
                "cannot reach rank {rank}, which counts as failed: for {time} no datagram has arrived from it, \
                 although it makes progress: check the network between the two"
            ),
        );
        self.blocked.silent.retain(|silent| silent.peer != peer);
        self.fail_peer(now, peer);
    }
}

/// What a report has room for.
struct Budget {
    size: u32,
    conditions: usize,
    ranges: usize,
}

impl Budget {
    /// The condition that one of these ranks acts, or where there is no room for its ranges, that any rank does.
    fn any_of(&mut self, mut ranks: Vec<Rank>) -> Option<WaitCondition> {
        self.conditions = self.conditions.checked_sub(1)?;
        ranks.sort_unstable();
        ranks.dedup();
        let fits = |ranges: &RankRanges| ranges.range_count() <= self.ranges.saturating_sub(self.conditions);
        let ranges = RankRanges::new(ranks).filter(fits);
        let ranges = ranges.or_else(|| RankRanges::new((0..self.size).map(Rank)))?;
        self.ranges = self.ranges.saturating_sub(ranges.range_count());
        Some(WaitCondition::AnyOf(ranges))
    }
}

fn describe_collective(name: &str, communicator: u32, awaited: &[Rank]) -> String {
    let named: Vec<String> = awaited.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = if awaited.len() > NAMED_MAX { ", …" } else { "" };
    let ranks = if awaited.len() == 1 { "rank" } else { "ranks" };
    format!("waits in {name} of communicator {communicator} for {ranks} {}{more}", named.join(", "))
}
