//! The pool of multicast groups: how its messages are sent, its groups joined and left, and how a communicator takes one.

use unisono_core::device::{Destination, Device as _, DeviceQueue, Token as _, Transmit, TxReason};
use unisono_core::ids::{GroupId, PeerId, Rank as Member};
use unisono_core::multicast::{Offer, POOL_MESSAGE, PoolMessage, SlotSet, UNRELIABLE_HEADER};

use super::Process;
use crate::world::collective::engine::job_pool::{JobPool, ROOT, encode, group_number};

impl Process {
    /// Begins this rank's part in a creation: the groups that it offers. `None`: none.
    pub(in crate::world) fn offer_groups(&mut self) -> Option<Offer> {
        self.collectives.multicast.pool.as_mut()?.member.offer()
    }

    /// Ends its part in a creation that makes no communicator here.
    pub(in crate::world) fn decline_groups(&mut self, offer: Offer) {
        let multicast = &mut self.collectives.multicast;
        if let Some(pool) = &mut multicast.pool {
            pool.member.decline(offer);
            multicast.has_work = true;
        }
    }

    /// Ends its part in a creation of this number of communicators, of which this rank is in the `own`-th. Returns the
    /// slot of its group.
    pub(in crate::world) fn take_group(
        &mut self,
        offer: Offer,
        agreed: SlotSet,
        communicators: u32,
        own: Option<u32>,
    ) -> Option<u8> {
        let multicast = &mut self.collectives.multicast;
        let pool = multicast.pool.as_mut()?;
        multicast.has_work = true;
        let taken = pool.member.take(offer, agreed, communicators, own);
        pool.taken += u64::from(taken.is_some());
        taken
    }

    /// Groups that communicators of this rank have taken.
    pub(in crate::world) fn groups_taken(&self) -> u64 {
        self.collectives.multicast.pool.as_ref().map_or(0, |pool| pool.taken)
    }

    /// Advances the pool: leaves the groups of communicators that are over, handles what has arrived, and sends.
    pub(super) fn progress_pool(&mut self, now: u64) {
        let Some(mut pool) = self.collectives.multicast.pool.take() else { return };
        let multicast = &self.collectives.multicast;
        pool.freed.retain(|(context, slot)| {
            // Its last segments are still repaired by multicast.
            let is_busy = multicast.busy_contexts().any(|busy| busy == *context);
            if !is_busy {
                pool.member.release(*slot);
            }
            is_busy
        });
        self.join_and_leave(&mut pool);
        while self.advance_pool(now, &mut pool) {}
        self.collectives.multicast.pool = Some(pool);
    }

    /// Handles or sends one message. Returns whether there was one.
    fn advance_pool(&mut self, now: u64, pool: &mut JobPool) -> bool {
        if let Some((from, message)) = pool.arrivals.pop_front() {
            // A rank that takes the root's place has no part in its groups.
            let is_root = from == ROOT && !self.collectives.failed.contains(&ROOT);
            match &mut pool.root {
                _ if message.body.is_of_root() && !is_root => {}
                _ if message.body.is_of_root() => {
                    pool.member.handle_message(message);
                    self.join_and_leave(pool);
                }
                Some(root) => root.machine.handle_message(now, Member(from.0), message),
                None => {}
            }
            return true;
        }
        if let Some(root) = &mut pool.root {
            if root.machine.poll_timeout().is_some_and(|at| now >= at) {
                root.machine.handle_timeout(now);
            }
            if let Some(message) = root.machine.poll_transmit(now) {
                for peer in &root.peers {
                    self.send_control(*peer, &encode(message));
                }
                pool.arrivals.push_back((ROOT, message));
                return true;
            }
            if let Some(probe) = root.machine.poll_probe() {
                self.probe_group(pool, probe);
                return true;
            }
        }
        let Some(message) = pool.member.poll_transmit() else { return false };
        if PeerId::from(self.rank) == ROOT {
            pool.arrivals.push_back((ROOT, message));
        } else if !self.collectives.failed.contains(&ROOT) {
            self.send_control(ROOT, &encode(message));
        }
        true
    }

    /// Has the device join and leave groups.
    fn join_and_leave(&mut self, pool: &mut JobPool) {
        let (names, device) = (&self.collectives.multicast.names, &mut self.datagrams.device);
        while let Some(slot) = pool.member.poll_join() {
            let number = group_number(slot);
            let address = names.as_ref().map(|names| names.address(number));
            let joined = address.map(|address| device.join_at(GroupId(number), address));
            tracing::debug!(slot, ?joined, "group of the pool");
            pool.member.handle_joined(slot, joined == Some(Ok(())));
        }
        while let Some(slot) = pool.member.poll_leave() {
            let left = device.leave(GroupId(group_number(slot)));
            tracing::debug!(slot, ?left, "left a group of the pool");
        }
    }

    /// Sends a probe to the group that is being tested. It is lost where there is no room for it.
    fn probe_group(&mut self, pool: &JobPool, probe: PoolMessage) {
        let (device, queue) = (&mut self.datagrams.device, DeviceQueue::Polled);
        if let Some(header) = pool.probe_header(probe.slot)
            && let Some(mut token) = device.token(queue)
        {
            let (first, rest) = token.header_room().split_at_mut(UNRELIABLE_HEADER);
            first.copy_from_slice(&header.encode());
            rest.iter_mut().zip(probe.encode()).for_each(|(to, from)| *to = from);
            let transmit = Transmit {
                to: Destination::Group(header.key.group),
                queue,
                header_bytes: (UNRELIABLE_HEADER + POOL_MESSAGE) as u8,
                payload: None,
                solicited: false,
                reason: TxReason::Probe,
            };
            token.post(&transmit, None);
            device.flush(queue);
        }
    }
}
