//! Deferred work: actions that messages ask for while the endpoint or a ring is borrowed, and that run once it is free.

use unisono_core::endpoint::GrantError;
use unisono_core::endpoint::operation::EnqueueError;
use unisono_core::ids::{RemoteKey, PeerId, PlacementId, ReceiveId};
use unisono_core::message::point_to_point::Action;
use unisono_shmem::am_header::MessageLocation;

use super::messages::failure;
use super::{Granted, Process, Use, put};
use crate::world::mailbox::{Errand, Fetched, Receiving, State, told};
use crate::world::request::{Failure, of_parcel};
use unisono_memory::region::Extent;

impl Process {
    #[inline(always)]
    pub(in crate::world) fn follow_if_needed(&mut self) {
        if self.mailbox.has_news() {
            self.follow_messages();
        }
    }

    /// Runs the deferred work and the matching machine's actions. Returns whether anything moved.
    pub(super) fn follow_messages(&mut self) -> bool {
        let now = self.latest;
        let mut moved = self.empty_outbox(now);
        while self.endpoint.can_grant()
            && let Some(errand) = self.mailbox.late_grants.pop_front()
        {
            moved = true;
            self.run(now, errand);
        }
        let mut left = self.mailbox.errands.len();
        while left > 0
            && let Some(errand) = self.mailbox.errands.pop_front()
        {
            left -= 1;
            moved = true;
            self.run(now, errand);
        }
        while let Some((parcel, failure)) = self.requests.read.pop_front() {
            moved = true;
            self.leave_parcel(parcel, failure);
        }
        while let Some(action) = self.mailbox.machine.poll_action() {
            moved = true;
            self.carry_out_action(action);
        }
        moved
    }

    fn carry_out_action(&mut self, action: Action) {
        match action {
            Action::Header { to, head } => self.carry_head(to, &head, None),
            Action::Eager { to, user, head, done } => {
                if let Some(parcel) = self.mailbox.parcels.get(user) {
                    parcel.is_over |= done;
                    parcel.is_asked = false;
                }
                // An abandoned send leaves as a header only: its receiver will not take the payload.
                self.carry_head(to, &head, Some(user));
                if done {
                    self.mailbox.parcels.forget(user);
                }
                self.end_parcel(user);
            }
            Action::Sent { user } => self.sent(user, None),
            Action::Pull { receive, user, from, at, .. } => {
                let near = at.filter(|_| self.is_near(from)).map(MessageLocation::from_word);
                let receiving = self.mailbox.receiving(user).copied();
                self.mailbox.errands.push_back(match (near, receiving) {
                    (Some(place), Some(Receiving { into, state: State::Met { bytes, .. }, .. })) => {
                        let into = Extent { bytes: into.bytes.min(bytes as usize), ..into };
                        let ends = Fetched::Message { receive, request: user };
                        Errand::Fetch { from, place, into, fetched: 0, ends }
                    }
                    _ => Errand::Grant { receive, request: user, from, granted: 0 },
                });
            }
        }
    }

    /// The peer no longer needs a message of this rank.
    fn sent(&mut self, parcel: u32, failure: Option<Failure>) {
        match self.mailbox.parcels.get(parcel) {
            Some(parcel) => {
                parcel.is_over = true;
                parcel.note(failure);
            }
            None => self.mailbox.parcels.forget(parcel),
        }
        self.end_parcel(parcel);
    }

    fn run(&mut self, now: u64, errand: Errand) {
        match errand {
            Errand::Grant { receive, request, from, granted } => self.grant(receive, request, from, granted),
            Errand::Fetch { .. } => self.fetch(errand),
            Errand::Sent { parcel, failure } => self.sent(parcel, failure),
            Errand::Place { to, parcel, placement, key, more } => {
                self.place_parcel(now, to, parcel, (placement, key), more);
            }
            Errand::GiveUp { peer } => {
                tracing::error!(rank = peer.0, "protocol violation by a peer");
                if self.is_near(peer) {
                    self.disown(peer);
                } else {
                    self.endpoint.fail(now, peer);
                }
            }
        }
    }

    /// Grants memory for a message that cannot be read directly: for all of it, or for the next part.
    fn grant(&mut self, receive: ReceiveId, request: u32, from: PeerId, granted: usize) {
        let Some(&mut Receiving { into, state: State::Met { bytes, .. }, .. }) = self.mailbox.receiving(request) else {
            return self.mailbox.machine.cancel_pull(receive);
        };
        let whole = into.bytes.min(bytes as usize);
        let again = Errand::Grant { receive, request, from, granted };
        let part = into.part(granted, self.grant_most.min(whole - granted.min(whole)));
        let more = granted + (part.bytes as usize) < whole;
        let (placement, key) = if from == self.rank.into() {
            (PlacementId(request), RemoteKey(0))
        } else if self.is_near(from) {
            let whole = Extent { bytes: whole, ..into };
            (PlacementId(self.open_placing(from, whole, request)), RemoteKey(0))
        } else if !self.endpoint.can_grant() {
            return self.mailbox.late_grants.push_back(again);
        } else {
            let key = RemoteKey(self.keys.next());
            match self.endpoint.grant(from, part, key) {
                Ok(placement) => {
                    put(&mut self.granted, placement.record() as u32, Granted { placement, to: from, request });
                    (placement, key)
                }
                Err(GrantError::Full) => return self.mailbox.late_grants.push_back(again),
                // The peer's failure is about to be reported.
                Err(GrantError::UnknownPeer) => return,
            }
        };
        let in_parts = more && !self.is_near(from) && from != self.rank.into();
        if let Some(receiving) = self.mailbox.receiving(request) {
            receiving.parts = receiving.parts.saturating_add(1);
            receiving.is_granted = !in_parts;
        }
        let machine = &mut self.mailbox.machine;
        let head =
            if in_parts { machine.grant_part(receive, placement, key) } else { machine.grant(receive, placement, key) };
        if let Some((to, head)) = head {
            self.carry_head(to, &head, None);
        }
        if in_parts {
            let granted = granted + part.bytes as usize;
            self.mailbox.errands.push_back(Errand::Grant { receive, request, from, granted });
        }
    }

    /// A peer granted memory for a message of this rank, or for its next part.
    fn place_parcel(&mut self, now: u64, to: PeerId, user: u32, (placement, key): (PlacementId, RemoteKey), more: bool) {
        let Some(parcel) = self.mailbox.parcels.get(user).filter(|parcel| parcel.to == to) else {
            if !more {
                self.mailbox.parcels.forget(user);
            }
            return;
        };
        let payload = parcel.payload;
        if to == self.rank.into() {
            parcel.is_over = true;
            self.place_own(placement.0, user);
            self.end_parcel(user);
            return;
        }
        if let Some(neighbour) = self.near.as_mut().and_then(|near| near.of(to)) {
            parcel.is_over = true;
            parcel.uses += 1;
            neighbour.stream(placement.0, payload, of_parcel(user));
            return;
        }
        let part = payload.part(parcel.granted, if more { self.grant_most } else { usize::MAX });
        match self.endpoint.place(now, to, placement, key, part) {
            Ok(operation) => {
                parcel.uses += 1;
                parcel.granted += part.bytes as usize;
                parcel.is_over |= !more;
                self.note(operation, Use::Request(of_parcel(user), to));
            }
            Err(EnqueueError::Full) => {
                self.mailbox.errands.push_back(Errand::Place { to, parcel: user, placement, key, more });
            }
            Err(error) => self.sent(user, Some(failure(error, to))),
        }
    }

    /// Copies a message to this rank itself into the receive that it matched.
    fn place_own(&mut self, request: u32, parcel: u32) {
        let Some(receiving @ Receiving { into, .. }) = self.mailbox.take(request) else { return };
        let Some(met) = receiving.met() else { return };
        let Some(payload) = self.mailbox.parcels.get(parcel).map(|parcel| parcel.payload) else { return };
        let regions = self.regions.get_mut();
        let from = regions.whole(payload);
        if let (Some((from, bytes)), Some((to, room))) = (from, regions.whole(into)) {
            // SAFETY: both are lent, or a copy; a sender that breaks the rules may name any bytes: they may overlap.
            unsafe { to.copy_from(from, bytes.min(room)) };
        }
        self.requests.finish(request, Ok(told(&met)));
    }
}
