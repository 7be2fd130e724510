//! Release of sent segments: after their acknowledgement and after the device has completed their postings.

use crate::counters::{DropReason, Metric};
use crate::device::{DeviceQueue, Ticket};
use crate::endpoint::storage::Storage;
use crate::endpoint::{Endpoint, Handler, Now, Sender, SenderFlags};
use crate::ids::{Psn, Rail};
use crate::time::Time;
use crate::window::rails::Rails;
use crate::window::segment_ring::SegmentRef;
use crate::wire::{Acknowledgement, Header};

impl<T: Time, const W: usize, const BITS: u32> Sender<T, W, BITS> {
    /// Records whether a piggybacked acknowledgement arrived within the timeout, if that is known.
    #[inline]
    fn record_ack_timeliness(&mut self, is_prompt: Option<bool>) {
        match is_prompt {
            Some(true) => self.flags.insert(SenderFlags::TIMELY_ACK),
            Some(false) => self.flags.remove(SenderFlags::TIMELY_ACK),
            None => {}
        }
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// The device has completed every posting on the queue up to `upto`.
    pub fn handle_completed(&mut self, now: Now<S, W, BITS>, queue: DeviceQueue, upto: Ticket) {
        if !self.senders.has_posted() {
            return;
        }
        let mut left = self.senders.take_posted();
        while let Some(i) = self.senders.pop_posted(&mut left) {
            let Some(sender) = self.senders.get_mut(i) else { break };
            sender.window.handle_completed(queue, upto);
            let posted = sender.window.is_posted();
            if posted {
                self.senders.push_posted(i);
            } else {
                sender.flags.remove(SenderFlags::POSTING);
            }
            self.release(now, i);
        }
    }

    /// Handles an acknowledgement that came over a rail. Returns an error if it ended the peer.
    pub(in crate::endpoint) fn take_ack(
        &mut self,
        now: Now<S, W, BITS>,
        from: u32,
        ack: &Acknowledgement<BITS>,
        rail: Rail,
        handler: &mut impl Handler,
    ) -> Result<(), DropReason> {
        let Some(sender) = self.peers.as_ref().get(from as usize).map(|peer| u32::from(peer.sender())) else {
            return Ok(());
        };
        let is_queued = self.queued(from).is_some();
        let has_rails = self.has_rails();
        let Some((record, rails)) = self.senders.with_rails(sender) else { return Ok(()) };
        record.window.handle_sign_of_life();
        let mut rails = Rails::new(&mut record.path, rails);
        let outcome = record.window.handle_ack(now, ack, is_queued, rail, &mut rails);
        let died = if has_rails { rails.died() } else { 0 };
        if record.window.is_contradicted() {
            self.abort_peer(now, from);
            return Err(DropReason::Ended);
        }
        if outcome.stale {
            if has_rails {
                self.note_rails(died, Some(rail));
                self.update_sender(now, sender);
            }
            return Ok(());
        }
        if outcome.spurious {
            handler.record(Metric::Spurious);
        }
        if let Some(units) = outcome.round_trip {
            record.ack_requested = S::Time::stamp(now);
            handler.record(Metric::RoundTrip(units));
        }
        if has_rails {
            self.note_rails(died, Some(rail));
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
        rail: Rail,
        handler: &mut impl Handler,
    ) -> Result<(), DropReason> {
        if cfg!(feature = "optimize_for_size") {
            return self.take_ack(now, from, &Acknowledgement::piggybacked(header), rail, handler);
        }
        let Some(peer) = self.peers.as_ref().get(from as usize) else { return Ok(()) };
        let units = self.watch_interval(peer);
        if let Some(record) = self.senders.get_mut(u32::from(peer.sender()))
            && !record.flags.contains(SenderFlags::ORPHANED)
        {
            let cumulative = Psn::new(header.acknowledged);
            if record.window.is_redundant_ack(now, cumulative, header.credit, units) {
                return Ok(());
            }
            record.record_ack_timeliness(record.window.is_prompt(now, cumulative, &record.path));
        }
        self.take_ack(now, from, &Acknowledgement::piggybacked(header), rail, handler)
    }

    /// Releases completed segments of a window, and unblocks its queue.
    pub(in crate::endpoint) fn release(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let Some(record) = self.senders.get_mut(sender) else { return };
        // One by one with `optimize_for_size`.
        let most = if cfg!(feature = "optimize_for_size") { 1 } else { u32::MAX };
        while let Some((SegmentRef { operation, .. }, parts)) = record.window.release_parts(most) {
            let Some(finished) = self.operations.get_mut(operation) else { continue };
            finished.released = finished.released.wrapping_add(parts);
            if finished.released == finished.parts {
                self.operations.complete(operation);
            }
        }
        if record.flags.contains(SenderFlags::ORPHANED) {
            if record.window.is_empty() && !mutant!("orphan_kept") {
                self.free_sender(now, sender);
            }
            return;
        }
        self.update_sender(now, sender);
    }
}
