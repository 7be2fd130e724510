//! Deferred work: actions that messages ask for while the endpoint or a ring is borrowed, and that run once it is free.

use unisono_core::endpoint::GrantError;
use unisono_core::endpoint::operation::EnqueueError;
use unisono_core::ids::{PeerId, PlacementId, ReceiveId, RemoteKey};
use unisono_core::message::point_to_point::Action;
use unisono_shmem::am_header::MessageLocation;

use super::Process;
use super::matching_store::{Deferred, FetchTarget, ReceiveRecord, ReceiveState, to_status};
use super::messages::failure;
use super::records::{GrantedPlacement, OperationOwner, put};
use crate::world::request::{Failure, id_of_send};
use unisono_memory::memory_regions::RegionRange;

impl Process {
    #[inline(always)]
    pub(in crate::world) fn run_deferred_if_any(&mut self) {
        if self.matching.has_work() {
            self.run_deferred();
        }
    }

    /// Runs the deferred work and the matching machine's actions. Returns whether anything moved.
    pub(super) fn run_deferred(&mut self) -> bool {
        let now = self.last_now;
        let mut moved = self.empty_outbox(now);
        while self.endpoint.can_grant()
            && let Some(errand) = self.matching.late_grants.pop_front()
        {
            moved = true;
            self.run_one(now, errand);
        }
        let mut left = self.matching.deferred.len();
        while left > 0
            && let Some(errand) = self.matching.deferred.pop_front()
        {
            left -= 1;
            moved = true;
            self.run_one(now, errand);
        }
        while let Some((parcel, failure)) = self.requests.finished_reads.pop_front() {
            moved = true;
            self.release_send(parcel, failure);
        }
        while let Some(action) = self.matching.machine.poll_action() {
            moved = true;
            self.carry_out_action(action);
        }
        moved
    }

    fn carry_out_action(&mut self, action: Action) {
        match action {
            Action::Header { to, head } => self.route_header(to, &head, None),
            Action::Eager { to, user, head, done } => {
                if let Some(parcel) = self.matching.sends.get(user) {
                    parcel.is_final |= done;
                    parcel.is_ack_requested = false;
                }
                // An abandoned send leaves as a header only: its receiver will not take the payload.
                self.route_header(to, &head, Some(user));
                if done {
                    self.matching.sends.free_abandoned(user);
                }
                self.complete_send(user);
            }
            Action::Sent { user } => self.handle_sent(user, None),
            Action::Pull { receive, user, from, at, .. } => {
                let shm = at.filter(|_| self.is_shm_peer(from)).map(MessageLocation::from_word);
                let receiving = self.matching.posted(user).copied();
                self.matching.deferred.push_back(match (shm, receiving) {
                    (Some(place), Some(ReceiveRecord { into, state: ReceiveState::Matched { bytes, .. }, .. })) => {
                        let into = RegionRange { bytes: into.bytes.min(bytes as usize), ..into };
                        let ends = FetchTarget::Message { receive, request: user };
                        Deferred::Fetch { from, place, into, fetched: 0, ends }
                    }
                    _ => Deferred::Grant { receive, request: user, from, granted: 0 },
                });
            }
        }
    }

    /// The peer no longer needs a message of this rank.
    fn handle_sent(&mut self, parcel: u32, failure: Option<Failure>) {
        match self.matching.sends.get(parcel) {
            Some(parcel) => {
                parcel.is_final = true;
                parcel.record_failure(failure);
            }
            None => self.matching.sends.free_abandoned(parcel),
        }
        self.complete_send(parcel);
    }

    fn run_one(&mut self, now: u64, deferred: Deferred) {
        match deferred {
            Deferred::Grant { receive, request, from, granted } => self.grant(receive, request, from, granted),
            Deferred::Fetch { .. } => self.fetch(deferred),
            Deferred::Sent { parcel, failure } => self.handle_sent(parcel, failure),
            Deferred::Place { to, parcel, placement, key, more } => {
                self.place_send(now, to, parcel, (placement, key), more);
            }
            Deferred::ProtocolViolation { peer } => {
                tracing::error!(rank = peer.0, "protocol violation by a peer");
                if self.is_shm_peer(peer) {
                    self.protocol_failure(peer);
                } else {
                    self.endpoint.fail(now, peer);
                }
            }
        }
    }

    /// Grants memory for a message that cannot be read directly: for all of it, or for the next part.
    fn grant(&mut self, receive: ReceiveId, request: u32, from: PeerId, granted: usize) {
        let Some(&mut ReceiveRecord { into, state: ReceiveState::Matched { bytes, .. }, .. }) =
            self.matching.posted(request)
        else {
            return self.matching.machine.cancel_pull(receive);
        };
        let whole = into.bytes.min(bytes as usize);
        let again = Deferred::Grant { receive, request, from, granted };
        let part = into.span(granted, self.grant_max.min(whole - granted.min(whole)));
        let more = granted + (part.bytes as usize) < whole;
        let (placement, key) = if from == self.rank.into() {
            (PlacementId(request), RemoteKey(0))
        } else if self.is_shm_peer(from) {
            let whole = RegionRange { bytes: whole, ..into };
            (PlacementId(self.open_rendezvous(from, whole, request)), RemoteKey(0))
        } else if !self.endpoint.can_grant() {
            return self.matching.late_grants.push_back(again);
        } else {
            let key = RemoteKey(self.keys.next());
            match self.endpoint.grant(from, part, key) {
                Ok(placement) => {
                    put(
                        &mut self.granted_placements,
                        placement.record() as u32,
                        GrantedPlacement { placement, to: from, request },
                    );
                    (placement, key)
                }
                Err(GrantError::Full) => return self.matching.late_grants.push_back(again),
                // The peer's failure is about to be reported.
                Err(GrantError::UnknownPeer) => return,
            }
        };
        let in_parts = more && !self.is_shm_peer(from) && from != self.rank.into();
        if let Some(receiving) = self.matching.posted(request) {
            receiving.parts = receiving.parts.saturating_add(1);
            receiving.is_fully_granted = !in_parts;
        }
        let machine = &mut self.matching.machine;
        let head =
            if in_parts { machine.grant_part(receive, placement, key) } else { machine.grant(receive, placement, key) };
        if let Some((to, head)) = head {
            self.route_header(to, &head, None);
        }
        if in_parts {
            let granted = granted + part.bytes as usize;
            self.matching.deferred.push_back(Deferred::Grant { receive, request, from, granted });
        }
    }

    /// A peer granted memory for a message of this rank, or for its next part.
    fn place_send(&mut self, now: u64, to: PeerId, user: u32, (placement, key): (PlacementId, RemoteKey), more: bool) {
        let Some(parcel) = self.matching.sends.get(user).filter(|parcel| parcel.to == to) else {
            if !more {
                self.matching.sends.free_abandoned(user);
            }
            return;
        };
        let payload = parcel.payload;
        if to == self.rank.into() {
            parcel.is_final = true;
            self.place_to_self(placement.0, user);
            self.complete_send(user);
            return;
        }
        if let Some(shm_peer) = self.shm.as_mut().and_then(|shm| shm.peer_mut(to)) {
            parcel.is_final = true;
            parcel.uses += 1;
            shm_peer.stream(placement.0, payload, id_of_send(user));
            return;
        }
        let part = payload.span(parcel.granted, if more { self.grant_max } else { usize::MAX });
        match self.endpoint.place(now, to, placement, key, part) {
            Ok(operation) => {
                parcel.uses += 1;
                parcel.granted += part.bytes as usize;
                parcel.is_final |= !more;
                self.record_operation(operation, OperationOwner::Request(id_of_send(user), to));
            }
            Err(EnqueueError::Full) => {
                self.matching.deferred.push_back(Deferred::Place { to, parcel: user, placement, key, more });
            }
            Err(error) => self.handle_sent(user, Some(failure(error, to))),
        }
    }

    /// Copies a message to this rank itself into the receive that it matched.
    fn place_to_self(&mut self, request: u32, parcel: u32) {
        let Some(receiving @ ReceiveRecord { into, .. }) = self.matching.remove(request) else { return };
        let Some(matched) = receiving.matched() else { return };
        let Some(payload) = self.matching.sends.get(parcel).map(|parcel| parcel.payload) else { return };
        let regions = self.regions.get_mut();
        // SAFETY: both are borrowed, or a copy; a sender that breaks the rules may name any bytes: they may overlap.
        unsafe { regions.copy(payload, into) };
        self.requests.finish(request, Ok(to_status(&matched)));
    }
}
