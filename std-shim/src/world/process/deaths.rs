//! Failure detection: deaths that the launcher or the endpoint reports, and what ends when a peer has failed or
//! finished.

use unisono_core::endpoint::peer::PeerState;
use unisono_core::ids::PeerId;

use super::Process;
use super::retire::PATIENCE;
use crate::world::collective::context::EVERY;
use crate::world::collective::table::Leaving;
use crate::world::mailbox::{Receiving, State};
use crate::world::parcel::{Owner, Parcel};
use crate::world::request::{Failure, message_of};
use unisono_bootstrap::{Liveness, Membership, Notice, Rank};

impl Process {
    /// Handles the launcher's events.
    pub(in crate::world) fn hear(&mut self) {
        while let Some(notice) = self.membership.as_mut().and_then(Membership::poll) {
            let now = self.now();
            self.handle_notice(now, notice);
        }
    }

    /// Handles the launcher's events, ends what can no longer complete, and watches the peers that something waits for.
    pub(super) fn tend(&mut self, now: u64) {
        self.hear();
        if self.device.is_closed() && !self.is_whole() && self.aborted.is_none() {
            tracing::error!("{}", Failure::NoDevice);
            self.abort(Failure::NoDevice);
        }
        self.look_near(None);
        self.drop_revoked();
        self.answer_late(now);
        self.end_unsent(now);
        for deaf in self.deaf.clone() {
            self.abandon_parcels(deaf, Failure::Parted(deaf.into()));
        }
        let granted = self.granted.iter().flatten().map(|granted| granted.to);
        let sendings = self.sendings.iter().flatten().map(|sending| sending.to);
        let all = (0..self.size).map(PeerId).filter(|peer| *peer != PeerId::from(self.rank));
        let mut wanted: Vec<PeerId> =
            all.filter(|peer| self.mailbox.needs(*peer)).chain(granted).chain(sendings).collect();
        for peer in &wanted {
            // It was waited for at the previous check, too.
            if self.watched.binary_search(peer).is_ok() {
                self.ask(now, *peer, EVERY);
            }
        }
        wanted.extend(self.collectives.awaited().map(|awaited| awaited.peer).filter(|peer| !self.is_near(*peer)));
        self.tend_collectives(now);
        let waits_for_anyone = self.mailbox.receives();
        if waits_for_anyone || !wanted.is_empty() {
            wanted.extend(self.successor());
        }
        wanted.sort_unstable();
        wanted.dedup();
        for peer in core::mem::take(&mut self.watched) {
            if wanted.binary_search(&peer).is_err() {
                self.endpoint.watch(now, peer, false);
            }
        }
        for peer in &wanted {
            // Without a free window, it is watched from a later check on.
            self.endpoint.watch(now, *peer, true);
        }
        self.watched = wanted;
    }

    /// The next live rank.
    fn successor(&self) -> Option<PeerId> {
        let own = self.rank.0;
        let others = (own + 1..self.size).chain(0..own).map(PeerId);
        others.into_iter().find(|peer| self.endpoint.peer_state(*peer) == PeerState::Alive)
    }

    fn handle_notice(&mut self, now: u64, notice: Notice) {
        match notice {
            Notice::Died { rank, incarnation, ending } => {
                let near = self.near.as_ref().and_then(|near| near.at(rank.into()));
                let known = near.map(|neighbour| neighbour.incarnation);
                if known.or_else(|| self.endpoint.incarnation(rank.into())) == Some(incarnation) {
                    tracing::info!(%rank, ?ending, "died");
                    self.fail(now, rank.into());
                }
            }
            Notice::Met { rank, entry } => self.meet(rank, &entry),
            Notice::Liveness { rank, liveness } => {
                if liveness != Liveness::Alive {
                    self.fail(now, rank.into());
                }
            }
            Notice::Aborted { rank, code } => self.abort(Failure::Aborted { rank, code }),
            Notice::Lost(error) => tracing::debug!(%error, "rendezvous server lost"),
        }
        self.follow(now);
    }

    /// A peer is known to have failed.
    fn fail(&mut self, now: u64, peer: PeerId) {
        if !self.bury(peer, Failure::PeerFailed(peer.into())) {
            self.endpoint.fail(now, peer);
        }
    }

    /// A peer has failed or finished: ends everything that needs it. If it failed, also ends receives from any source,
    /// since it may be the one that they wait for.
    pub(super) fn lose(&mut self, peer: PeerId, failure: Failure, anyone: bool) {
        let mut ended = self.mailbox.lose(peer, false, failure);
        if anyone {
            let may_be_its =
                |receiving: &Receiving| receiving.source.is_none() && self.is_member(receiving.context, peer.into());
            let waiting = self.mailbox.waiting(may_be_its);
            ended.extend(
                waiting
                    .into_iter()
                    .filter(|(_, id)| self.mailbox.machine.cancel(*id).is_some())
                    .map(|(request, _)| request),
            );
        }
        for place in self.sendings.iter_mut() {
            if let Some(sending) = place.take_if(|sending| sending.to == peer) {
                ended.push(sending.request);
            }
        }
        for place in self.granted.iter_mut() {
            if let Some(granted) = place.take_if(|granted| granted.to == peer) {
                self.endpoint.withdraw(granted.placement);
                ended.push(granted.request);
            }
        }
        for place in self.placings.iter_mut() {
            if let Some(placing) = place.take_if(|placing| placing.from == peer) {
                ended.push(placing.request);
            }
        }
        if let Some(neighbour) = self.near.as_mut().and_then(|near| near.of(peer)) {
            for request in neighbour.end(failure) {
                // The send operation is released with it.
                self.requests.finish(request, Err(failure));
            }
        }
        self.collectives.handle_leaving(Leaving::Dead(peer));
        ended.extend(self.end_lost(peer));
        ended.sort_unstable();
        ended.dedup();
        // Transfers of collectives are reported by their collective.
        ended.retain(|request| {
            let message = message_of(*request);
            message.into_iter().for_each(|_| self.requests.finish(*request, Err(failure)));
            message.is_none()
        });
        if ended.is_empty() && anyone {
            self.untold.push(peer.into());
        }
        for request in ended {
            self.mailbox.take(request);
            self.requests.finish(request, Err(failure));
        }
        self.end_hopeless();
    }

    /// A peer has sent its last message, and all of them have arrived: ends receives from it that have matched none.
    /// What it received, and its part in collectives, stand.
    pub(super) fn handle_left(&mut self, peer: PeerId) {
        if self.ended(peer.into()).is_some() {
            return;
        }
        if !self.left.contains(&peer) {
            self.left.push(peer);
        }
        let rank = Rank::from(peer);
        for (request, id) in self.mailbox.waiting(|receiving| receiving.source == Some(peer)) {
            if self.mailbox.machine.cancel(id).is_some() {
                self.mailbox.take(request);
                self.requests.finish(request, Err(Failure::Parted(rank)));
            }
        }
        self.end_unsent(self.latest);
    }

    /// Ends receives from any source that a thread has awaited for a while, when all other members have sent their last
    /// message and no other thread of this process may still send to this rank. The members are asked one after the
    /// other.
    pub(super) fn end_unsent(&mut self, now: u64) {
        let Some(since) = now.checked_sub(PATIENCE) else { return };
        for request in self.collectives.watch.waited(since) {
            let Some(&mut Receiving { state: State::Waits(id), source: None, context, .. }) =
                self.mailbox.receiving(request)
            else {
                continue;
            };
            let others = (0..self.size).map(Rank).filter(|rank| *rank != self.rank && self.is_member(context, *rank));
            let mut last = None;
            let sends = others.into_iter().find(|rank| {
                last = self.why_silent(*rank);
                last.is_none()
            });
            match (sends, last) {
                (Some(rank), _) => self.ask(now, rank.into(), EVERY),
                (None, Some(failure)) if !self.has_other_threads() && self.mailbox.machine.cancel(id).is_some() => {
                    self.mailbox.take(request);
                    self.requests.finish(request, Err(failure));
                }
                (None, _) => {}
            }
        }
    }

    /// Whether the program has threads besides the one that waits; assumes so where the system does not say.
    fn has_other_threads(&self) -> bool {
        let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
        threads.map_or(true, |threads| threads > self.own_threads + 1)
    }

    /// A peer receives no more messages, and has acknowledged all that it received from this rank: ends pending sends
    /// to it.
    pub(super) fn handle_deaf(&mut self, peer: PeerId) {
        self.follow_messages();
        if !self.deaf.contains(&peer) {
            self.deaf.push(peer);
        }
        self.abandon_parcels(peer, Failure::Parted(peer.into()));
    }

    /// Ends the sends to a peer that will not be received, except those that are still being transmitted.
    pub(super) fn abandon_parcels(&mut self, to: PeerId, failure: Failure) {
        if !self.mailbox.parcels.are_towards(to) {
            return;
        }
        for parcel in self.mailbox.parcels.unread(to) {
            let Some(Parcel { owner, payload, .. }) = self.mailbox.parcels.abandon(parcel) else { continue };
            tracing::debug!(rank = to.0, "dropped a message that the rank will not receive");
            self.give_back(owner, payload);
            if let Owner::Request(request) = owner {
                self.requests.finish(request, Err(failure));
            }
        }
    }

    /// Ends receives from any source that no member is left to satisfy, unless all members merely finished.
    fn end_hopeless(&mut self) {
        for (request, id) in self.mailbox.waiting(|receiving| receiving.source.is_none()) {
            let context = self.mailbox.receiving(request).map(|receiving| receiving.context);
            if let Some(failure) = context.and_then(|context| self.left_alone(context))
                && self.mailbox.machine.cancel(id).is_some()
            {
                self.mailbox.take(request);
                self.requests.finish(request, Err(failure));
            }
        }
    }

    /// Ends the sends to a peer that is gone, unless something still reads their payload. Returns the requests that own
    /// the user buffers.
    fn end_lost(&mut self, peer: PeerId) -> Vec<u32> {
        while let Some((parcel, _)) = self.requests.read.pop_front() {
            if let Some(parcel) = self.mailbox.parcels.get(parcel) {
                parcel.uses = parcel.uses.saturating_sub(1);
            }
            self.end_parcel(parcel);
        }
        let lost = self.mailbox.parcels.iter().filter(|(_, parcel)| parcel.to == peer);
        let lost: Vec<(u32, Owner)> = lost.map(|(i, parcel)| (i, parcel.owner)).collect();
        let requests = lost.into_iter().filter_map(|(i, owner)| {
            // A payload that the device may still read ends when it was read.
            let ends = self.end_parcel(i);
            if let Owner::Request(request) = owner { ends.then_some(request) } else { None }
        });
        requests.collect()
    }

    /// Aborts: everything under way ends with `failure`, and the other ranks are notified.
    pub(in crate::world) fn abort(&mut self, failure: Failure) {
        self.aborted = Some(failure);
        self.endpoint.abort();
        self.part(true);
        self.requests.fail_all(failure);
        self.abort_collectives(failure);
    }
}
