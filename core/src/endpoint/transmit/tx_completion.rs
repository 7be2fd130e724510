//! Release of sent segments: after their acknowledgement and after the device has completed their postings.

use crate::counters::{DropReason, Metric};
use crate::device::{DeviceQueue, Ticket};
use crate::endpoint::storage::Storage;
use crate::endpoint::{DeferredAck, Endpoint, Handler, Now, ORPHANED, Sender, TIMELY_ACK, Verdict};
use crate::ids::{PeerId, Psn};
use crate::list::NONE;
use crate::time::Time;
use crate::window::send_window::SegmentRef;
use crate::wire::{Acknowledgement, Header};

/// A handler that counts nothing; nothing is delivered to it.
struct DiscardingHandler;

impl Handler for DiscardingHandler {
    fn handle_eager(&mut self, _: PeerId, _: &[u8], _: u32) -> Verdict {
        Verdict::Release
    }
}

impl<T: Time, const W: usize, const BITS: u32> Sender<T, W, BITS> {
    /// Records whether a piggybacked acknowledgement arrived within the timeout, if that is known.
    #[inline]
    const fn record_ack_timeliness(&mut self, is_prompt: Option<bool>) {
        match is_prompt {
            Some(true) => self.flags |= TIMELY_ACK,
            Some(false) => self.flags &= !TIMELY_ACK,
            None => {}
        }
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// The device has completed every posting on the queue up to `upto`.
    pub fn handle_completed(&mut self, now: Now<S, W, BITS>, queue: DeviceQueue, upto: Ticket) {
        self.process_deferred_ack(now);
        if self.posted.is_empty() {
            return;
        }
        let mut left = core::mem::replace(&mut self.posted, crate::list::List::EMPTY);
        while let Some(i) = left.pop(self.senders.as_mut(), |sender| &mut sender.posted_link) {
            let Some(sender) = self.senders.as_mut().get_mut(i as usize) else { break };
            sender.window.handle_completed(queue, upto);
            let posted = sender.window.is_posted();
            if posted {
                self.posted.push(self.senders.as_mut(), i, |sender| &mut sender.posted_link);
            } else {
                sender.flags &= !crate::endpoint::POSTING;
            }
            self.release(now, i);
        }
    }

    /// Handles an acknowledgement. Returns an error if it ended the peer.
    pub(in crate::endpoint) fn take_ack(
        &mut self,
        now: Now<S, W, BITS>,
        from: u32,
        ack: &Acknowledgement<BITS>,
        handler: &mut impl Handler,
    ) -> Result<(), DropReason> {
        let pace = self.path_parameters();
        let Some(sender) = self.peers.as_ref().get(from as usize).map(|peer| u32::from(peer.sender())) else {
            return Ok(());
        };
        let Some(record) = self.senders.as_mut().get_mut(sender as usize) else { return Ok(()) };
        record.window.handle_sign_of_life();
        let outcome = record.window.handle_ack(now, ack, &pace);
        if record.window.is_contradicted() {
            self.abort_peer(now, from);
            return Err(DropReason::Ended);
        }
        if outcome.stale {
            return Ok(());
        }
        if outcome.spurious {
            handler.record(Metric::Spurious);
        }
        if let Some(units) = outcome.round_trip {
            record.ack_requested = S::Time::stamp(now);
            handler.record(Metric::RoundTrip(units));
        }
        self.release(now, sender);
        Ok(())
    }

    /// As [`take_ack`](Self::take_ack), for a piggybacked acknowledgement, which mostly contains nothing new.
    #[inline]
    pub(in crate::endpoint) fn take_piggybacked(
        &mut self,
        now: Now<S, W, BITS>,
        from: u32,
        header: &Header<BITS>,
        handler: &mut impl Handler,
    ) -> Result<(), DropReason> {
        if cfg!(feature = "optimize_for_size") {
            return self.take_ack(now, from, &Acknowledgement::piggybacked(header), handler);
        }
        let Some(peer) = self.peers.as_ref().get(from as usize) else { return Ok(()) };
        let (units, pace) = (self.watch_interval(peer), self.path_parameters());
        if let Some(record) = self.senders.as_mut().get_mut(usize::from(peer.sender()))
            && record.flags & ORPHANED == 0
        {
            let cumulative = Psn::new(header.acknowledged);
            if record.window.is_redundant_ack(now, cumulative, header.credit, units) {
                return Ok(());
            }
            record.record_ack_timeliness(record.window.is_prompt(now, cumulative, &pace));
        }
        self.take_ack(now, from, &Acknowledgement::piggybacked(header), handler)
    }

    /// Defers a piggybacked acknowledgement that is new, if nothing waits for it: no operation is queued, and the
    /// window has room for more. Returns whether it did.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub(in crate::endpoint) fn defer_ack(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) -> bool {
        if cfg!(feature = "optimize_for_size") {
            return false;
        }
        let Some(peer) = self.peers.as_ref().get(header.rank as usize) else { return false };
        let Some(record) = self.senders.as_ref().get(usize::from(peer.sender())) else { return false };
        let waits = peer.queue != NONE || record.flags & ORPHANED != 0 || record.window.burst_room() < 2;
        // A PSN that is unsent now might be sent when the acknowledgement is processed.
        let newest = Psn::<BITS>::new(header.acknowledged).since(record.window.base()).wrapping_sub(1);
        if waits || newest >= record.window.next().since(record.window.base()) {
            return false;
        }
        let Header { rank: from, incarnation, acknowledged, credit, .. } = *header;
        self.deferred_ack = DeferredAck { from, incarnation, acknowledged, credit, at: Some(now) };
        true
    }

    /// Processes the deferred acknowledgement, if there is one.
    #[inline]
    pub(in crate::endpoint) fn process_deferred_ack(&mut self, now: Now<S, W, BITS>) {
        if !cfg!(feature = "optimize_for_size") && self.deferred_ack.from != NONE {
            self.apply_deferred_ack(now);
        }
    }

    /// Processes the deferred acknowledgement if this window can send no more although operations are queued. Returns
    /// whether it did.
    #[inline]
    pub(in crate::endpoint) fn unblock_by_deferred_ack(&mut self, now: Now<S, W, BITS>, sender: u32) -> bool {
        if cfg!(feature = "optimize_for_size") || self.deferred_ack.from == NONE {
            return false;
        }
        let record = self.senders.as_ref().get(sender as usize);
        let peer = record.and_then(|record| self.peers.as_ref().get(record.peer as usize));
        let waits = peer.is_some_and(|peer| peer.queue != NONE);
        if waits {
            self.apply_deferred_ack(now);
        }
        waits
    }

    #[inline(never)]
    fn apply_deferred_ack(&mut self, now: Now<S, W, BITS>) {
        let DeferredAck { from, incarnation, acknowledged, credit, at } =
            core::mem::replace(&mut self.deferred_ack, DeferredAck::NONE);
        let pace = self.path_parameters();
        let Some(peer) = self.peers.as_ref().get(from as usize) else { return };
        if !peer.is_alive() || peer.incarnation != incarnation {
            return;
        }
        if let Some(record) = self.senders.as_mut().get_mut(usize::from(peer.sender())) {
            // Segments sent meanwhile are newer than those it acknowledges.
            record.record_ack_timeliness(at.and_then(|at| record.window.is_prompt(at, Psn::new(acknowledged), &pace)));
        }
        let ack = Acknowledgement::cumulative(Psn::new(acknowledged), credit);
        // Without an echo there is no event to count. If the acknowledgement ended the peer, an event reports that.
        let _ = self.take_ack(now, from, &ack, &mut DiscardingHandler);
    }

    /// Releases completed segments of a window, and unblocks its queue.
    pub(in crate::endpoint) fn release(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let Some(record) = self.senders.as_mut().get_mut(sender as usize) else { return };
        let operations = self.operations.as_mut();
        // One by one with `optimize_for_size`.
        let most = if cfg!(feature = "optimize_for_size") { 1 } else { u32::MAX };
        while let Some((SegmentRef { operation, .. }, parts)) = record.window.release_parts(most) {
            let Some(finished) = operations.get_mut(operation as usize) else { continue };
            finished.released = finished.released.wrapping_add(parts);
            if finished.released == finished.parts {
                self.completed.push(operations, operation, |operation| &mut operation.link);
            }
        }
        if record.flags & ORPHANED != 0 {
            #[cfg(not(mutant = "orphan_kept"))]
            if record.window.is_empty() {
                self.free_sender(now, sender);
            }
            return;
        }
        self.update_sender(now, sender);
    }
}
