//! Failure detection: deaths that the launcher or the endpoint reports, and what ends when a peer has failed or
//! finished.

use unisono_core::endpoint::peer::PeerState;
use unisono_core::ids::{PeerId, Rail};
use unisono_core::message::Pattern;
use unisono_core::messenger::SendFailure;

use super::Process;
use super::shutdown::ASK_AFTER;
use super::transport::Completion;
use crate::world::collective::engine::context::ALL_CONTEXTS;
use crate::world::collective::engine::progress_table::StatusEvent;
use crate::world::request::Failure;
use unisono_bootstrap::{Liveness, Membership, MembershipEvent, Rank};

/// How a peer's silence is interpreted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum SilencePolicy {
    /// The peer counts as failed: a thread answers even while its program computes, or the user set a silence limit.
    Fail,
    /// The peer may be computing, and no thread answers for it: its agent is asked whether it lives.
    AskAgent,
}

/// What a process watches, and what it has to report of failures.
#[derive(Debug)]
pub(in crate::world) struct FailureDetector {
    pub(super) silence: SilencePolicy,
    /// The peers that something waits for.
    pub(super) watched: Vec<PeerId>,
    /// When the timers were checked last.
    pub(super) checked_at: u64,
    /// Ranks that failed while no request depended on them and no receive accepted any source: the next such receive
    /// reports them.
    pub(super) unreported_failures: Vec<Rank>,
    /// Whether the server knows a rank because of which an operation of this one failed.
    pub(super) has_reported_cause: bool,
    /// Threads of this process that only make progress.
    pub(in crate::world) own_threads: usize,
}

impl FailureDetector {
    pub(super) const fn new(silence: SilencePolicy) -> Self {
        Self {
            silence,
            watched: Vec::new(),
            checked_at: 0,
            unreported_failures: Vec::new(),
            has_reported_cause: false,
            own_threads: 0,
        }
    }
}

impl Process {
    /// Handles the launcher's events.
    pub(in crate::world) fn poll_events(&mut self) {
        while let Some(notice) = self.membership.as_mut().and_then(Membership::poll) {
            let now = self.now();
            self.handle_membership_event(now, notice);
        }
    }

    /// Handles the launcher's events, ends what can no longer complete, and watches the peers that something waits for.
    pub(super) fn check_timers(&mut self, now: u64) {
        self.note_polling(now);
        self.poll_events();
        self.report_waits(now);
        self.query_silent_peers(now);
        if self.datagrams.device.is_closed() && !self.is_single_node() && self.aborted.is_none() {
            tracing::error!("{}", Failure::NoDevice);
            self.abort(Failure::NoDevice);
        }
        self.check_shm_peers(None);
        self.drop_revoked();
        self.answer_deferred(now);
        self.end_unsendable_receives(now);
        for peer in self.shutdown.closed_receivers.clone() {
            self.abandon_sends(peer, Failure::PeerFinished(peer.into()));
        }
        let open = self.messenger.open_sends().map(|(to, _)| to);
        let granted = self.transport.placements.granted_peers();
        let mut is_wanted = vec![false; self.size as usize];
        for peer in self.messenger.receivers().chain(self.messenger.senders()).chain(granted).chain(open) {
            if let Some(wanted) = is_wanted.get_mut(peer.0 as usize).filter(|_| peer != self.transport.own) {
                *wanted = true;
            }
        }
        let wanted = (0..).map(PeerId).zip(is_wanted).filter(|(_, is_wanted)| *is_wanted);
        let mut wanted: Vec<PeerId> = wanted.map(|(peer, _)| peer).collect();
        for peer in &wanted {
            // It was waited for at the previous check, too.
            if self.detector.watched.binary_search(peer).is_ok() {
                self.ask(*peer, ALL_CONTEXTS);
            }
        }
        // A member of another node may have failed, and the rank of this node that is waited for have given up.
        let waits_for_anyone = self.messenger.has_receives() || self.collectives.awaited().next().is_some();
        let is_watched = |peer: &PeerId| *peer != PeerId::from(self.rank) && !self.transport.is_shm_peer(*peer);
        let awaited = self.collectives.awaited().map(|awaited| awaited.peer).chain(self.remote_access.awaited());
        wanted.extend(awaited.chain(self.collectives.multicast.lagging()).filter(is_watched));
        self.check_collectives(now);
        if waits_for_anyone || !wanted.is_empty() {
            wanted.extend(self.next_live_rank());
        }
        wanted.sort_unstable();
        wanted.dedup();
        for peer in core::mem::take(&mut self.detector.watched) {
            if wanted.binary_search(&peer).is_err() {
                self.transport.endpoint.watch(now, peer, false);
            }
        }
        for peer in &wanted {
            // Without a free window, it is watched from a later check on.
            self.transport.endpoint.watch(now, *peer, true);
        }
        self.detector.watched = wanted;
    }

    /// An operation of this rank fails because of another one: reports it once, so that the launcher names the rank that
    /// failed first. Failures after this rank has closed are those of its end.
    #[cold]
    pub(in crate::world) fn record_cause(&mut self, cause: Option<Rank>) {
        let Some(cause) = cause.filter(|cause| *cause != self.rank) else { return };
        if self.shutdown.has_closed_receives || self.detector.has_reported_cause {
            return;
        }
        if let Some(membership) = &mut self.membership {
            tracing::debug!(rank = cause.0, "an operation failed because of the rank");
            membership.report_cause(cause);
            self.detector.has_reported_cause = true;
        }
    }

    /// Reports the cause of the first request that failed because of another rank.
    #[inline]
    pub(in crate::world) fn report_failures(&mut self) {
        if self.requests.cause.is_some() && !self.detector.has_reported_cause {
            self.record_cause(self.requests.cause);
        }
    }

    /// The next live rank that is not reached by shared memory, where a death is noticed without a watch.
    fn next_live_rank(&self) -> Option<PeerId> {
        let own = self.rank.0;
        let others = (own + 1..self.size).chain(0..own).map(PeerId);
        let is_remote = |peer: &PeerId| {
            !self.transport.is_shm_peer(*peer) && self.transport.endpoint.peer_state(*peer) == PeerState::Alive
        };
        others.into_iter().find(is_remote)
    }

    fn handle_membership_event(&mut self, now: u64, notice: MembershipEvent) {
        match notice {
            MembershipEvent::Failed { rank, incarnation, ending } => {
                let shm_peer = self.transport.shm.as_ref().and_then(|shm| shm.peer(rank.into()));
                let known = shm_peer.map(|shm_peer| shm_peer.incarnation);
                if known.or_else(|| self.transport.endpoint.incarnation(rank.into())) == Some(incarnation) {
                    tracing::info!(%rank, ?ending, "died");
                    self.fail_peer(now, rank.into());
                }
            }
            MembershipEvent::Joined { rank, entry } => self.add_peer(rank, &entry),
            MembershipEvent::Liveness { rank, liveness } => {
                if liveness != Liveness::Alive {
                    self.fail_peer(now, rank.into());
                }
            }
            MembershipEvent::Aborted { rank, code } => self.abort(Failure::Aborted { rank, code }),
            MembershipEvent::ConfirmWaits(round) => self.confirm_waits(now, round),
            MembershipEvent::PollingQuery { asker } => self.answer_polling(now, asker),
            MembershipEvent::Polling { rank, duration } => self.handle_polling(now, rank, duration),
            MembershipEvent::Rail { rank, rail, lanes, .. } => self.handle_peer_rail(now, rank, Rail(rail), lanes),
            MembershipEvent::Disconnected(error) => tracing::debug!(%error, "rendezvous server lost"),
        }
        self.handle_events(now);
    }

    /// A peer is known to have failed.
    pub(super) fn fail_peer(&mut self, now: u64, peer: PeerId) {
        if !self.mark_failed(peer, Failure::PeerFailed(peer.into())) {
            self.transport.endpoint.fail(now, peer);
        }
    }

    /// A peer has failed or finished: ends everything that needs it. If it failed, also ends receives from any source,
    /// since it may be the one that they wait for.
    pub(super) fn disconnect(&mut self, peer: PeerId, failure: Failure, anyone: bool) {
        self.remote_access.disconnect(peer);
        self.transport.reliable.disconnect(peer);
        self.end_messages(None);
        if let Some(shm_peer) = self.transport.shm.as_mut().and_then(|shm| shm.peer_mut(peer)) {
            for token in shm_peer.fail(failure) {
                let failure = Some(SendFailure::PeerGone);
                self.transport.completions.push(Completion::Sent { token, failure });
            }
        }
        self.transport.placements.disconnect(peer);
        self.messenger.disconnect_messages(&mut self.transport, peer, false);
        self.handle_completions();
        let mut ended = self.end_messages(Some(failure));
        if anyone {
            let may_be_its =
                |pattern: &Pattern| pattern.source.is_none() && self.is_member(pattern.context, peer.into());
            for handle in self.unmatched(may_be_its) {
                ended += usize::from(self.cancel_receive(handle, failure));
            }
        }
        self.collectives.queue_status(StatusEvent::Failed(peer));
        if ended == 0 && anyone {
            self.detector.unreported_failures.push(peer.into());
        }
        self.end_unsatisfiable_receives();
    }

    /// A peer has sent its last message, and all of them have arrived: ends receives from it that have matched none.
    /// What it received, and its part in collectives, stand.
    pub(super) fn handle_sends_done(&mut self, peer: PeerId) {
        if self.failure_of(peer.into()).is_some() {
            return;
        }
        if !self.shutdown.finished_senders.contains(&peer) {
            self.shutdown.finished_senders.push(peer);
        }
        let rank = Rank::from(peer);
        for handle in self.unmatched(|pattern| pattern.source == Some(peer)) {
            self.cancel_receive(handle, Failure::PeerFinished(rank));
        }
        self.end_unsendable_receives(self.transport.now);
    }

    /// Ends receives from any source that a thread has awaited for a while, when all other members have sent their last
    /// message and no other thread of this process may still send to this rank. The members are asked one after the
    /// other.
    pub(super) fn end_unsendable_receives(&mut self, now: u64) {
        let Some(since) = now.checked_sub(ASK_AFTER) else { return };
        for request in self.collectives.wait_registry.waiting_since(since) {
            let Some((handle, Pattern { source: None, context, .. })) = self.posted_receive(request) else { continue };
            let others = (0..self.size).map(Rank).filter(|rank| *rank != self.rank && self.is_member(context, *rank));
            let mut last = None;
            let sends = others.into_iter().find(|rank| {
                last = self.why_no_messages(*rank);
                last.is_none()
            });
            match (sends, last) {
                (Some(rank), _) => self.ask(rank.into(), ALL_CONTEXTS),
                (None, Some(failure)) if !self.has_other_threads() => _ = self.cancel_receive(handle, failure),
                (None, _) => {}
            }
        }
    }

    /// Whether the program has threads besides the one that waits; assumes so where the system does not say.
    fn has_other_threads(&self) -> bool {
        let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
        threads.map_or(true, |threads| threads > self.detector.own_threads + 1)
    }

    /// A peer receives no more messages, and has acknowledged all that it received from this rank: ends pending sends
    /// to it.
    pub(super) fn handle_receives_closed(&mut self, peer: PeerId) {
        self.run_deferred();
        if !self.shutdown.closed_receivers.contains(&peer) {
            self.shutdown.closed_receivers.push(peer);
        }
        self.abandon_sends(peer, Failure::PeerFinished(peer.into()));
    }

    /// Ends the sends to a peer that will not be received, except those that are still being transmitted.
    pub(super) fn abandon_sends(&mut self, to: PeerId, failure: Failure) {
        let mut abandoned = Vec::new();
        self.messenger.abandon_sends(to, |user| abandoned.push(user));
        for user in abandoned {
            tracing::debug!(rank = to.0, "dropped a message that the rank will not receive");
            self.end_send(user, Err(failure));
        }
    }

    /// Ends receives from any source that no member is left to satisfy, unless all members merely finished.
    fn end_unsatisfiable_receives(&mut self) {
        for handle in self.unmatched(|pattern| pattern.source.is_none()) {
            let context = self.messenger.posted(handle).map(|(_, pattern)| pattern.context);
            if let Some(failure) = context.and_then(|context| self.why_all_gone(context)) {
                self.cancel_receive(handle, failure);
            }
        }
    }

    /// Aborts: everything under way ends with `failure`, and the other ranks are notified.
    pub(in crate::world) fn abort(&mut self, failure: Failure) {
        self.aborted = Some(failure);
        self.transport.endpoint.abort();
        self.send_bye(true);
        self.requests.fail_all(failure);
        self.abort_collectives(failure);
    }
}
