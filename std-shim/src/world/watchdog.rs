//! Hang detection: which ranks are missing from a collective that makes no progress.
//!
//! A rank that has waited in a collective for longer than its threshold asks the ranks that it waits for. A rank that
//! takes part answers with the ranks that it waits for itself, which are asked next; a rank that takes no part, or does
//! not answer, is missing. The finding is reported once, on standard error. Every rank answers, also when its own
//! threshold is off.

mod inquiry;
mod wire;

use core::fmt::Write as _;
use std::io;
use std::io::Write as _;

use unisono_core::collective::CollectiveKind;
use unisono_core::ids::PeerId;

use super::collective::call_log::CollectiveCall;
use crate::environment::WatchdogTimeout;
pub(super) use inquiry::StuckCollective;
use inquiry::{Inquiry, seconds};
use unisono_bootstrap::{AgreementId, Rank};
pub(super) use wire::{BlockedOn, CollectiveRef, Mechanism, Participation, WatchMessage};

/// A thread's wait for something other than a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ThreadWait {
    /// `None`: it is no request.
    request: Option<u32>,
    blocked_on: BlockedOn,
    since: u64,
    is_reported: bool,
    /// The call that it belongs to, and whether that waits for one of several.
    call: (u32, bool),
}

/// What one thread waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WaitGroup {
    /// Whether it waits for one of these; otherwise for all.
    pub(super) any: bool,
    /// The requests, if they are any.
    pub(super) members: Vec<(Option<u32>, BlockedOn)>,
}

/// All waits of this process's threads, and the open inquiries about them.
#[derive(Debug, Default)]
pub(super) struct WaitRegistry {
    /// Nanoseconds of waiting after which it is examined; `None`: never.
    threshold: Option<u64>,
    inquiries: Vec<Inquiry>,
    waits: Vec<ThreadWait>,
    /// The number of the last call that waits.
    calls: u32,
    /// Waits that have ended.
    ended: u64,
    /// The agreements that threads wait for.
    agreements: Vec<AgreementId>,
    /// Collectives through shared memory that threads wait in.
    published: Vec<StuckCollective>,
    /// Ranks that were asked, once, whether they are in the same collective.
    compared: Vec<(Rank, CollectiveRef)>,
    /// Ranks that called something else than a collective through shared memory.
    divergent: Vec<(Rank, CollectiveRef)>,
    /// Calls that other ranks answered with: communicator, number and call.
    pub(super) answered_calls: Vec<(u32, u32, Option<CollectiveCall>)>,
    /// Questions and answers that have arrived.
    pub(super) received: Vec<(PeerId, WatchMessage)>,
}

impl WaitRegistry {
    /// Sets the threshold.
    pub(super) fn set_threshold(&mut self, patience: Option<WatchdogTimeout>) {
        self.threshold = patience.map(|time| u64::try_from(time.duration().as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) const fn threshold(&self) -> Option<u64> {
        self.threshold
    }

    /// Handles a rank's answer.
    pub(super) fn handle_answer(&mut self, now: u64, from: Rank, subject: CollectiveRef, participation: Participation) {
        let inquiry = self.inquiries.iter_mut().find(|inquiry| inquiry.is_about(subject));
        inquiry.into_iter().for_each(|inquiry| inquiry.handle_answer(now, from, participation));
    }

    /// Publishes that a thread waits in a collective through shared memory.
    pub(super) fn publish(
        &mut self,
        now: u64,
        subject: CollectiveRef,
        verb: CollectiveKind,
        awaited: impl Iterator<Item = Rank>,
    ) {
        match self.published.iter_mut().find(|shown| shown.subject == subject) {
            Some(shown) => {
                shown.awaited.clear();
                shown.awaited.extend(awaited);
            }
            None => self.published.push(StuckCollective { subject, verb, since: now, awaited: awaited.collect() }),
        }
    }

    /// Withdraws a wait.
    pub(super) fn withdraw(&mut self, subject: CollectiveRef) {
        self.ended = self.ended.wrapping_add(1);
        self.published.retain(|shown| shown.subject != subject);
        self.divergent.retain(|(_, other)| *other != subject);
    }

    /// Returns whether a rank is to be asked about this, once. `current`: everything that this rank waits for.
    pub(super) fn mark_compared(
        &mut self,
        rank: Rank,
        subject: CollectiveRef,
        current: &[(Rank, CollectiveRef, u64)],
    ) -> bool {
        self.compared.retain(|(_, about)| current.iter().any(|(_, current, _)| current == about));
        let is_new = !self.compared.contains(&(rank, subject));
        if is_new {
            self.compared.push((rank, subject));
        }
        is_new
    }

    /// Records a rank that called something else than the collective that this one waits in.
    pub(super) fn record_divergent(&mut self, rank: Rank, subject: CollectiveRef) {
        if self.published.iter().any(|shown| shown.subject == subject) {
            self.divergent.push((rank, subject));
        }
    }

    /// The rank that called something else than this collective, if any.
    pub(super) fn divergent_rank(&self, subject: CollectiveRef) -> Option<Rank> {
        self.divergent.iter().find(|(_, other)| *other == subject).map(|(rank, _)| *rank)
    }

    pub(super) fn published(&self) -> &[StuckCollective] {
        &self.published
    }

    /// Records that a thread waits for a message, an agreement or the end of the job, of which only the first two are
    /// reported when they take long.
    pub(super) fn record_wait(&mut self, now: u64, request: Option<u32>, what: BlockedOn) {
        self.record_waits(now, false, [(request, what)]);
    }

    /// As [`record_wait`](Self::record_wait), for a thread that waits for all of these, or for any one.
    pub(super) fn record_waits(
        &mut self,
        now: u64,
        any: bool,
        waits: impl IntoIterator<Item = (Option<u32>, BlockedOn)>,
    ) {
        self.calls = self.calls.wrapping_add(1);
        let call = (self.calls, any);
        let wait = |(request, what)| {
            let is_reported = matches!(what, BlockedOn::Finish | BlockedOn::Flush);
            ThreadWait { request, blocked_on: what, since: now, is_reported, call }
        };
        self.waits.extend(waits.into_iter().map(wait));
    }

    /// The waits of threads, by thread.
    pub(super) fn groups(&self) -> Vec<WaitGroup> {
        let by_call = self.waits.chunk_by(|one, next| one.call == next.call);
        by_call
            .filter_map(|waits| {
                let members = waits.iter().map(|wait| (wait.request, wait.blocked_on)).collect();
                Some(WaitGroup { any: waits.first()?.call.1, members })
            })
            .collect()
    }

    /// A thread waits for this agreement.
    pub(super) fn record_agreement(&mut self, id: AgreementId) {
        self.agreements.push(id);
    }

    /// It no longer does.
    pub(super) fn clear_agreement(&mut self, id: AgreementId) {
        self.agreements.retain(|known| *known != id);
    }

    /// The agreement of a communicator that a thread waits for.
    pub(super) fn agreement(&self, communicator: u32) -> Option<AgreementId> {
        self.agreements.iter().find(|id| id.context == communicator).copied()
    }

    /// Records that it no longer waits.
    pub(super) fn clear_wait(&mut self, request: Option<u32>, what: BlockedOn) {
        if let Some(over) = self.waits.iter().rposition(|wait| (wait.request, wait.blocked_on) == (request, what)) {
            self.waits.remove(over);
            self.ended = self.ended.wrapping_add(1);
        }
    }

    /// Number of waits that have ended.
    pub(super) const fn ended(&self) -> u64 {
        self.ended
    }

    /// Requests that threads have waited for since `since` or longer.
    pub(super) fn waiting_since(&self, since: u64) -> Vec<u32> {
        self.waits.iter().filter(|wait| wait.since <= since).filter_map(|wait| wait.request).collect()
    }

    /// What a thread waits for other than a collective; of several requests, a pending one.
    pub(super) fn awaited(&self, is_under_way: impl Fn(u32) -> bool) -> Option<BlockedOn> {
        let mut waits = self.waits.iter().rev();
        waits.find(|wait| wait.request.is_none_or(&is_under_way)).map(|wait| wait.blocked_on)
    }

    /// Updates the inquiries to what is stuck now: ends those about anything else, and continues the others.
    pub(super) fn update_inquiries(&mut self, now: u64, own: Rank, size: u32, stuck: &[StuckCollective]) {
        let Some(patience) = self.threshold else { return };
        self.inquiries.retain(|inquiry| stuck.iter().any(|stuck| inquiry.is_about(stuck.subject)));
        for stuck in stuck {
            match self.inquiries.iter_mut().find(|inquiry| inquiry.is_about(stuck.subject)) {
                Some(inquiry) => inquiry.repeat(now, patience, &stuck.awaited),
                None => self.inquiries.push(Inquiry::new(stuck, own, size)),
            }
        }
    }

    /// The next rank to ask, and the collective to ask about.
    pub(super) fn poll_question(&mut self, now: u64) -> Option<(Rank, CollectiveRef)> {
        self.inquiries.iter_mut().find_map(|inquiry| Some((inquiry.poll(now)?, inquiry.subject())))
    }

    /// The next finding, as a line for people; of several requests, it mentions the pending ones.
    pub(super) fn poll_finding(&mut self, now: u64, is_under_way: impl Fn(u32) -> bool) -> Option<String> {
        if let Some(found) = self.inquiries.iter_mut().find_map(|inquiry| inquiry.poll_finding(now)) {
            return Some(found);
        }
        let patience = self.threshold?;
        let late = |wait: &&mut ThreadWait| {
            !wait.is_reported && now.saturating_sub(wait.since) >= patience && wait.request.is_none_or(&is_under_way)
        };
        let wait = self.waits.iter_mut().find(late)?;
        wait.is_reported = true;
        Some(format!("{} since {}", wait.blocked_on, seconds(now.saturating_sub(wait.since))))
    }
}

/// Prints a line on standard error in one write, and ignores failure.
pub(super) fn report(rank: Rank, what: &str) {
    let mut line = String::new();
    let _ = writeln!(line, "unisono: rank {rank} {what}");
    let _ = io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::request::Tag;

    #[test]
    fn of_several_requests_only_pending_ones_are_reported() {
        let receive = |tag| BlockedOn::Receive { source: Some(Rank(1)), tag: Some(Tag(tag)) };
        let mut watch = WaitRegistry { threshold: Some(100), ..WaitRegistry::default() };
        (0..3).for_each(|request| watch.record_wait(7, Some(request), receive(request)));
        let is_under_way = |request| request == 1;
        assert_eq!(watch.awaited(is_under_way), Some(receive(1)));
        assert_eq!(watch.poll_finding(106, is_under_way), None, "not yet");
        let found = watch.poll_finding(107, is_under_way);
        assert_eq!(found, Some(format!("{} since 0.0 s", receive(1))));
        assert_eq!(watch.poll_finding(108, is_under_way), None, "once");
        assert!(watch.poll_finding(108, |_| true).is_some(), "the others, had they not ended");
        (0..3).rev().for_each(|request| watch.clear_wait(Some(request), receive(request)));
        assert_eq!((watch.awaited(|_| true), watch.waiting_since(9)), (None, vec![]));
    }
}
