//! Hang reports: which ranks this one asks about operations that wait for too long, and how it answers other ranks.

use unisono_core::collective::{CollectiveKind, FailureCause};
use unisono_core::ids::PeerId;

use alloc::sync::Arc;

use super::Process;
use super::shutdown::ASK_AFTER;
use crate::world::collective::call_log::{CollectiveCall, SharedCallLog};
use crate::world::request::handle::RequestHandle;
use crate::world::watchdog::{
    BlockedOn, CollectiveRef, Mechanism, Participation, StuckCollective, WatchMessage, report,
};
use unisono_bootstrap::Rank;

impl Process {
    /// Examines the operations that have waited for longer than the threshold, and reports what it finds.
    pub(super) fn report_hangs(&mut self, now: u64) {
        let Some(patience) = self.collectives.wait_registry.threshold() else { return };
        let is_late = |stuck: &StuckCollective| now.saturating_sub(stuck.since) >= patience;
        let shown = self.collectives.wait_registry.published().iter().filter(|stuck| is_late(stuck)).cloned();
        let stuck: Vec<StuckCollective> = self.collectives.stuck().filter(is_late).chain(shown).collect();
        self.collectives.wait_registry.update_inquiries(now, self.rank, self.size, &stuck);
        self.ask_next(now);
        let is_under_way = |request| self.requests.result(request).is_none();
        while let Some(found) = self.collectives.wait_registry.poll_finding(now, is_under_way) {
            report(self.rank, &found);
        }
    }

    /// Asks each awaited rank once, after a while, whether it is in the same collective: where each takes the other for
    /// the root, neither would send.
    pub(super) fn ask_for_divergence(&mut self, now: u64) {
        let running = self.collectives.awaited().map(|awaited| (awaited.peer.into(), awaited.subject, awaited.since));
        let shown = self.collectives.wait_registry.published().iter();
        let shown = shown.filter(|shown| shown.subject.mechanism == Mechanism::Slots);
        let shown = shown.filter_map(|shown| Some((*shown.awaited.first()?, shown.subject, shown.since)));
        let current: Vec<(Rank, CollectiveRef, u64)> = running.chain(shown).collect();
        for (rank, subject, since) in &current {
            if now.wrapping_sub(*since) >= ASK_AFTER
                && self.collectives.wait_registry.mark_compared(*rank, *subject, &current)
            {
                self.send_question((*rank).into(), WatchMessage::Ask(*subject));
            }
        }
    }

    /// An awaited rank reports its part in a collective.
    fn handle_participation(&mut self, from: PeerId, subject: CollectiveRef, participation: Participation) {
        if !subject.is_contradicted_by(participation) {
            return;
        }
        if subject.mechanism == Mechanism::Slots {
            self.collectives.wait_registry.record_divergent(from.into(), subject);
        } else if self.collectives.awaited().any(|awaited| awaited.subject == subject && awaited.peer == from) {
            self.collectives.report_fault(from, subject.communicator(), FailureCause::Disagrees);
        }
    }

    /// Sends the questions of the open inquiries.
    fn ask_next(&mut self, now: u64) {
        while let Some((rank, subject)) = self.collectives.wait_registry.poll_question(now) {
            self.send_question(rank.into(), WatchMessage::Ask(subject));
        }
    }

    /// Answers the questions of other ranks, and continues the inquiries with their answers.
    pub(super) fn answer_questions(&mut self, now: u64) {
        for (from, question) in core::mem::take(&mut self.collectives.wait_registry.received) {
            match question {
                WatchMessage::Ask(subject) => {
                    let participation = self.participation(subject);
                    self.send_question(from, WatchMessage::Answer(subject, participation));
                }
                WatchMessage::AskCall { context, number } => {
                    let log = self.collectives.contexts.get(context).map(|context| context.log.clone());
                    let call = log.and_then(|log| log.lock_rarely().call(number));
                    self.send_question(from, WatchMessage::Call { context, number, call });
                }
                WatchMessage::Call { context, number, call } => {
                    self.collectives.wait_registry.answered_calls.push((context, number, call));
                }
                WatchMessage::Answer(subject, participation) => {
                    self.handle_participation(from, subject, participation);
                    self.collectives.wait_registry.handle_answer(now, from.into(), subject, participation);
                }
            }
        }
        self.ask_next(now);
    }

    /// Asks a rank for its call of this number on a communicator.
    pub(in crate::world) fn ask_call(&mut self, rank: Rank, context: u32, number: u32) {
        self.collectives.wait_registry.answered_calls.clear();
        let now = self.transport.now;
        self.send_question(rank.into(), WatchMessage::AskCall { context, number });
        self.poll_collectives();
        if !self.is_single_node() {
            self.transmit(now);
        }
    }

    /// Whether a rank has neither failed nor finished, to the knowledge of this one.
    pub(in crate::world) fn takes_part(&self, rank: Rank) -> bool {
        let peer = PeerId::from(rank);
        let is_closed =
            self.shutdown.closed_receivers.contains(&peer) || self.shutdown.finished_senders.contains(&peer);
        self.aborted.is_none() && self.failure_of(rank).is_none() && !is_closed
    }

    /// The answer, if it has arrived.
    pub(in crate::world) fn answered_call(&self, context: u32, number: u32) -> Option<Option<CollectiveCall>> {
        let mut answers = self.collectives.wait_registry.answered_calls.iter();
        answers.find(|(of, call, _)| (*of, *call) == (context, number)).map(|(.., call)| *call)
    }

    /// The log of the calls of a communicator that is being opened.
    pub(in crate::world) fn open_log(&mut self, context: u32) -> Arc<SharedCallLog> {
        self.collectives.contexts.get(context).map(|context| context.log.clone()).unwrap_or_default()
    }

    /// Has a prepared collective compare the calls of all ranks: it matches only those with the same digest.
    pub(in crate::world) fn compare_calls(&mut self, collective: u32, digest: u32) {
        if let Some(running) = self.collectives.get_mut(collective).filter(|_| digest != 0) {
            running.context ^= ((digest ^ digest >> 16) & 0xffff).max(1);
        }
    }

    fn send_question(&mut self, to: PeerId, words: WatchMessage) {
        self.send_control(to, &words.encode());
    }

    fn participation(&self, subject: CollectiveRef) -> Participation {
        match subject.mechanism {
            Mechanism::Messages => self.collectives.participation(subject),
            Mechanism::Slots | Mechanism::Barrier => {
                let mut shown = self.collectives.wait_registry.published().iter();
                shown.find(|shown| shown.subject.is_same_instance(subject)).map(|shown| {
                    if shown.subject == subject {
                        return Participation::entered(shown.awaited.iter().copied());
                    }
                    let (communicator, sequence) = (subject.communicator(), subject.sequence);
                    Participation::Absent(BlockedOn::Collective { verb: shown.verb, communicator, sequence })
                })
            }
        }
        .unwrap_or_else(|| {
            // Other mechanisms number their collectives separately.
            let elsewhere = Participation::Absent(self.blocked_on());
            if subject.is_contradicted_by(elsewhere) { Participation::Absent(BlockedOn::Nothing) } else { elsewhere }
        })
    }

    /// What a thread of this process waits for.
    fn blocked_on(&self) -> BlockedOn {
        let stuck =
            self.collectives.wait_registry.published().last().cloned().or_else(|| self.collectives.stuck().next());
        let collective = stuck.map(|StuckCollective { subject, verb, .. }| {
            let (communicator, sequence) = (subject.communicator(), subject.sequence);
            BlockedOn::Collective { verb, communicator, sequence }
        });
        let is_under_way = |request| self.requests.result(request).is_none();
        collective.or_else(|| self.collectives.wait_registry.awaited(is_under_way)).unwrap_or(BlockedOn::Nothing)
    }

    /// Records that a thread waits for a message or an agreement.
    pub(in crate::world) fn record_wait(&mut self, request: Option<u32>, what: BlockedOn) {
        let now = self.transport.now;
        self.collectives.wait_registry.record_wait(now, request, what);
    }

    /// As [`record_wait`](Self::record_wait), for a thread that waits for all of these requests, or for any one.
    pub(in crate::world) fn record_waits(&mut self, any: bool, requests: &[RequestHandle]) {
        let waits = requests.iter().map(|handle| (Some(handle.request), handle.blocked_on));
        self.collectives.wait_registry.record_waits(self.transport.now, any, waits);
    }

    /// Records that it no longer waits.
    pub(in crate::world) fn clear_wait(&mut self, request: Option<u32>, what: BlockedOn) {
        self.collectives.wait_registry.clear_wait(request, what);
    }

    /// Publishes that a thread waits for these ranks in a collective through shared memory.
    pub(in crate::world) fn publish_wait(
        &mut self,
        subject: CollectiveRef,
        verb: CollectiveKind,
        awaited: impl Iterator<Item = Rank>,
    ) {
        let now = self.transport.now;
        self.collectives.wait_registry.publish(now, subject, verb, awaited);
    }

    /// Withdraws what [`publish_wait`](Self::publish_wait) published.
    pub(in crate::world) fn withdraw_wait(&mut self, subject: CollectiveRef) {
        self.collectives.wait_registry.withdraw(subject);
    }
}
