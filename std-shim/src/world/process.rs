//! The state of one process of a job: endpoint, device, requests, matching, collectives and shared-memory peers, under
//! one lock.

pub(super) mod blocked;
pub(super) mod bounce_buffers;
pub(super) mod cancelled_sends;
mod checked_messages;
pub(super) mod collective_messages;
pub(super) mod collectives;
pub(super) mod contexts;
mod datagrams;
pub(super) mod deferred_work;
pub(super) mod dispatch;
mod dynamic_attach;
pub(super) mod failure_detection;
mod group_pool;
mod group_steps;
mod hang_reports;
pub(super) mod message_table;
pub(super) mod messages;
pub(super) mod messenger;
mod multicast_groups;
mod multicast_messages;
#[cfg_attr(not(feature = "verbs"), path = "process/native_access_absent.rs")]
pub(super) mod native_access;
pub(super) mod random_keys;
mod rdma_all_to_all;
mod release_multicasts;
pub(super) mod remote_access;
mod rma_machine;
mod shm_messages;
pub(super) mod shutdown;
mod token_tree_messages;
pub(super) mod transport;

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};

use unisono_core::device::{Armed, Device, DeviceQueue};
use unisono_core::endpoint::Event;
use unisono_core::ids::{PeerId, Rail};
use unisono_core::message::Context;
use unisono_core::message::point_to_point::MessageHeader;
use unisono_core::messenger::Class;
use unisono_core::progress::{make_progress, receive, transmit};
use unisono_core::wire::HEADER;
use unisono_shmem::am_header::EAGER_LIMIT;

use super::collective::engine::context::WORLD;
use super::collective::engine::group_names::GroupNames;
use super::collective::engine::progress_table::CollectiveTable;
use super::collective::engine::schedule::ScheduleCache;
use super::collective::intra_node::communicator_slots::CommunicatorSlots;
use super::datagram_transport::DatagramTransport;
use super::rails::{AddRailError, RailStats};
use super::request::{Failure, Requests};
use super::shm_transport::ShmTransport;
use crate::environment::tuning::MulticastUse;
use crate::environment::{HierarchyChoice, Integrity, RankLocation, Settings, Subgroups};
use crate::node::Node;
use crate::world::group::Group;
use blocked::BlockedReports;
use datagrams::{Datagrams, SendBatch};
use dispatch::{Dispatcher, SharedRegions};
use failure_detection::{FailureDetector, SilencePolicy};
use message_table::{Flush, MessageTable};
use remote_access::RemoteAccess;
use shutdown::Shutdown;
use transport::ProcessTransport;
use unisono_bootstrap::{Membership, PeerRecord, Rank};
use unisono_memory::endpoint_storage::{ProcessEndpoint, ProcessMessenger, grow_windows};
use unisono_memory::memory_regions::RegisterError;

/// Most datagrams that one round of progress receives and sends.
const POLL_BUDGET: u32 = 64;
/// Most rounds for which the progress thread receives before it sends.
const ROUNDS: u32 = 64;
/// Most payload bytes of an eager message that fit after its header in the endpoint's own record.
const INLINE_MAX: usize = unisono_core::wire::MESSAGE_HEADER_ROOM - MessageHeader::EAGER;
/// Nanoseconds between two checks of membership and watched peers.
const CHECK_INTERVAL: u64 = 20_000_000;
/// Most bytes of a message that one CTS grants memory for, unless the settings choose otherwise.
const GRANT_DEFAULT: usize = 1 << 31;
/// Bytes of batched sends that are flushed without being asked: a few GSO trains.
const BATCH_BYTES: usize = 1 << 18;

/// The user's choices that a process keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choices {
    /// A digest of the settings that must be equal on all ranks.
    pub(super) digest: u64,
    /// Subgroups.
    pub(super) hierarchy: HierarchyChoice,
}

pub(super) struct Process {
    pub(super) rank: Rank,
    pub(super) size: u32,
    pub(super) transport: ProcessTransport,
    pub(super) messenger: ProcessMessenger,
    pub(super) messages: MessageTable,
    pub(super) datagrams: Datagrams,
    pub(super) requests: Requests,
    /// `None` before this process has joined, and after it has finished.
    pub(super) membership: Option<Membership>,
    pub(super) choices: Choices,
    pub(super) aborted: Option<Failure>,
    /// The contexts of communicators that were revoked.
    revoked: Vec<Context>,
    pub(super) remote_access: RemoteAccess,
    pub(super) collectives: CollectiveTable,
    pub(super) blocked: BlockedReports,
    pub(super) detector: FailureDetector,
    shutdown: Shutdown,
}

impl Drop for Process {
    fn drop(&mut self) {
        // An adapter may still read what was posted.
        if self.datagrams.device.copies() {
            // SAFETY: the device has copied what was flushed, and nobody flushes or receives any more.
            unsafe { self.transport.regions.get_mut().free_all() };
        }
    }
}

impl Process {
    pub(super) fn new(
        rank_slot: (Rank, u32),
        endpoint: ProcessEndpoint,
        device: DatagramTransport,
        membership: Membership,
        silence: SilencePolicy,
        node: Option<Arc<Node>>,
        (settings, pool): (&Settings, usize),
    ) -> Result<Self, RegisterError> {
        let shm = node.and_then(ShmTransport::new);
        let mut regions = device.regions();
        let own = device.mtu();
        let trailer = own.saturating_sub(device.limits().mtu);
        let is_whole = shm.as_ref().is_some_and(|shm| shm.peer_count + 1 == rank_slot.1);
        let digests = settings.digests();
        let groups = device.lanes(Rail(0)).ok().and_then(|[local, _]| GroupNames::new(settings, local.ip()));
        let multicast = MulticastUse::of(device.limits().groups > 0, settings.transport.rails);
        let cache = |is_whole| ScheduleCache::new(settings.tuning.clone(), is_whole, multicast);
        let choices = [false, true].map(cache);
        let slots = CommunicatorSlots::new(shm.as_ref().map(|shm| shm.node.clone()));
        let limit = |peer: PeerId| {
            let neighbour = shm.as_ref().and_then(|shm| shm.peer(peer));
            let theirs = membership.table().get(peer.0 as usize).map_or(own, |entry| entry.mtu);
            collective_messages::eager_limit(neighbour, theirs.min(own).saturating_sub(trailer))
        };
        let messenger = messenger::messenger(rank_slot.1, pool, limit, &mut regions)?;
        let mut collectives = CollectiveTable::new(choices, slots);
        let hierarchy = settings.tuning.hierarchy_in_use();
        let located: Vec<RankLocation> = membership.table().iter().map(RankLocation::from).collect();
        let subgroups = Subgroups::new(hierarchy, &located).map(Arc::new);
        if let Some(reason) = settings.tuning.ignored_hosts(subgroups.as_deref()) {
            tracing::warn!("schedules over hosts, of an option or a table, are not used: {reason}");
        }
        collectives.open((WORLD, 0), Group::all(rank_slot.1), is_whole, subgroups);
        let grant_limit = settings.transport.grant.map_or(GRANT_DEFAULT, |bytes| bytes.get() as usize);
        let transport = ProcessTransport::new(rank_slot.0.into(), endpoint, shm, regions, (rank_slot.1, grant_limit));
        let mut process = Self {
            rank: rank_slot.0,
            size: rank_slot.1,
            transport,
            messenger,
            messages: MessageTable::default(),
            datagrams: Datagrams::new(device, settings.transport.integrity == Some(Integrity::Link)),
            requests: Requests::new(settings.transport.checks_types()),
            membership: None,
            choices: Choices { digest: u64::from(digests.tuning) << 32 | u64::from(digests.transport), hierarchy },
            aborted: None,
            revoked: Vec::new(),
            remote_access: RemoteAccess::new(rank_slot.1),
            collectives,
            blocked: BlockedReports::default(),
            detector: FailureDetector::new(silence),
            shutdown: Shutdown::default(),
        };
        let own = PeerId::from(process.rank);
        process.transport.set_eager_limit(own, EAGER_LIMIT as u32);
        let neighbours = process.transport.shm.iter().flat_map(|shm| shm.peers.iter()).flatten();
        let neighbours: Vec<(PeerId, u32)> = neighbours.map(|one| (one.peer, one.longest())).collect();
        for (peer, longest) in neighbours {
            let limit = longest.saturating_sub(MessageHeader::EAGER as u32).min(EAGER_LIMIT as u32);
            process.transport.set_eager_limit(peer, limit);
            process.remote_access.connect(peer, longest.saturating_add(HEADER as u32));
        }
        for (rank, entry) in membership.table().iter().enumerate() {
            process.add_peer(Rank(rank as u32), entry);
        }
        process.set_reliable(&settings.transport);
        process.membership = Some(membership);
        process.set_groups(groups, &settings.transport);
        Ok(process)
    }

    /// Reads the clock, in nanoseconds since this process joined.
    fn now(&mut self) -> u64 {
        self.transport.read_clock()
    }

    fn add_peer(&mut self, rank: Rank, entry: &PeerRecord) {
        if entry.checksums {
            // A process that joined later may be reached through another link.
            self.datagrams.device.set_checksums(true);
        }
        // Ranks of this node are connected through the shared segment, but members of groups are reached by datagrams,
        // wherever they are.
        let is_shm_peer = self.transport.shm.as_ref().is_some_and(|shm| shm.peer(rank.into()).is_some());
        let device = &mut self.datagrams.device;
        if rank == self.rank || is_shm_peer && device.limits().groups == 0 {
            return;
        }
        let path = device.set_paths(rank.into(), entry);
        if is_shm_peer {
            tracing::trace!(%rank, ?path, "path of a group's member");
            return;
        }
        if let Err(error) = path {
            tracing::error!(%rank, ?error, "no path");
            return;
        }
        let own = self.datagrams.device.mtu();
        let trailer = own.saturating_sub(self.datagrams.device.limits().mtu);
        let mtu = entry.mtu.min(own).saturating_sub(trailer);
        let now = self.now();
        self.transport.endpoint.add_peer(now, rank.into(), entry.incarnation, mtu);
        self.remote_access.connect(rank.into(), mtu);
        self.messenger.reconnect(rank.into());
        self.shutdown.finished_senders.retain(|finished| *finished != rank.into());
        self.shutdown.closed_receivers.retain(|closed| *closed != rank.into());
        self.collectives.status.asked.retain(|(asked, _)| *asked != rank.into());
        self.collectives.contexts.handle_new_incarnation(rank);
        self.transport.set_eager_limit(rank.into(), mtu.saturating_sub((HEADER + MessageHeader::EAGER) as u32));
    }

    /// What each rail carried.
    pub(super) fn rail_stats(&self) -> Vec<RailStats> {
        let Datagrams { device, rails, .. } = &self.datagrams;
        rails.stats(device.open_rails(), |rail| (device.local_on(rail), device.rail_counts(rail)))
    }

    /// Opens another rail at this address, and announces it to all ranks.
    pub(super) fn add_rail(&mut self, address: IpAddr) -> Result<Rail, AddRailError> {
        let Datagrams { device, rails, trusts_links, .. } = &mut self.datagrams;
        if device.integrity() == Integrity::Link && !*trusts_links && !address.is_loopback() {
            return Err(AddRailError::Unchecked(address));
        }
        let (rail, lanes) = device.open_rail(address)?;
        rails.open_later(rail);
        for rank in (0..self.size).map(Rank).filter(|rank| *rank != self.rank) {
            let entry = self.membership.as_ref().and_then(|membership| membership.table().get(rank.0 as usize));
            let lanes = entry.and_then(|entry| entry.further_rails.get(usize::from(rail.0).checked_sub(1)?));
            let mtu = entry.map_or(0, |entry| entry.mtu);
            self.datagrams.device.set_rail_path(rank.into(), rail, lanes.copied(), mtu);
        }
        if let Some(membership) = &mut self.membership {
            membership.add_rail(rail.0, lanes);
        }
        self.progress(false);
        Ok(rail)
    }

    /// A rank has opened a further rail.
    pub(super) fn handle_peer_rail(&mut self, now: u64, rank: Rank, rail: Rail, lanes: [SocketAddr; 2]) {
        let entry = self.membership.as_ref().and_then(|membership| membership.table().get(rank.0 as usize));
        let Some(mtu) = entry.filter(|_| rank != self.rank).map(|entry| entry.mtu) else { return };
        self.datagrams.device.set_rail_path(rank.into(), rail, Some(lanes), mtu);
        if rail.0 < self.datagrams.device.open_rails() {
            self.transport.endpoint.probe_rail(now, rank.into(), rail);
        }
    }

    /// Whether datagrams may be waiting. If not, a round of progress would only advance timers.
    pub(super) fn has_arrivals(&mut self) -> bool {
        self.datagrams.device.has_arrivals()
    }

    /// Receives what has arrived. Returns whether the rest of the round may be left to the next call, because nothing
    /// that others wait for follows.
    pub(super) fn receive_arrivals(&mut self) -> bool {
        let now = self.now();
        let (endpoint, device, regions, mut dispatcher) = self.dispatcher();
        receive(now, DeviceQueue::Polled, endpoint, device, &regions, &mut dispatcher, POLL_BUDGET);
        let collects = self.has_collective_work();
        let sends = self.transport.has_posted
            || self.messenger.has_queued(Class::PointToPoint)
            || self.transport.endpoint.has_to_transmit();
        // Others wait for these grants.
        let has_work = self.remote_access.has_work() || self.transport.reliable.has_work();
        !collects && !sends && !self.has_deferred() && !has_work
    }

    /// Makes one round of progress and runs the work that it deferred. With `interrupt`, also reads the interrupt
    /// queue, whose probes are answered only after everything that was sent before them has been taken off the polled
    /// queue. Returns whether anything moved.
    pub(super) fn progress(&mut self, interrupt: bool) -> bool {
        let now = self.now();
        let moved = self.progress_shm();
        self.datagrams.batch = SendBatch::default();
        // Without remote peers the endpoint has nothing to do.
        let moved =
            moved | if self.is_single_node() { self.handle_events(now) } else { self.progress_remote(now, interrupt) };
        self.datagrams.rails.note(&self.transport.endpoint);
        if now.wrapping_sub(self.detector.checked_at) >= CHECK_INTERVAL {
            self.detector.checked_at = now;
            self.datagrams.rails.note_round_trips(&self.transport.endpoint);
            self.check_timers(now);
        }
        moved
    }

    /// The endpoint, its device, and the handler of its messages.
    #[inline(always)]
    fn dispatcher(&mut self) -> (&mut ProcessEndpoint, &mut DatagramTransport, SharedRegions<'_>, Dispatcher<'_>) {
        let Self { transport, datagrams, requests, collectives, remote_access, messenger, .. } = self;
        collectives.multicast.now = transport.now;
        let Datagrams { device, counters, .. } = datagrams;
        #[cfg(feature = "verbs")]
        let reliable = &mut transport.reliable;
        let ProcessTransport { endpoint, regions, early_payloads, violators, .. } = transport;
        let regions = &*regions;
        let dispatcher = Dispatcher {
            requests,
            regions,
            early_payloads,
            violators,
            counters,
            collectives,
            messenger,
            remote_access,
            #[cfg(feature = "verbs")]
            reliable,
        };
        (endpoint, device, SharedRegions(regions), dispatcher)
    }

    fn progress_remote(&mut self, now: u64, interrupt: bool) -> bool {
        let (endpoint, device, regions, mut dispatcher) = self.dispatcher();
        let mut moved = false;
        if interrupt {
            moved = receive(now, DeviceQueue::Interrupt, endpoint, device, &regions, &mut dispatcher, POLL_BUDGET);
            let mut rounds = 0..ROUNDS;
            while rounds.next().is_some()
                && receive(now, DeviceQueue::Polled, endpoint, device, &regions, &mut dispatcher, POLL_BUDGET)
            {
                moved = true;
            }
        }
        grow_windows(endpoint, now);
        moved |= make_progress(now, DeviceQueue::Polled, endpoint, device, &regions, &mut dispatcher, POLL_BUDGET);
        moved |= self.handle_events(now);
        if core::mem::take(&mut self.transport.has_posted) {
            // Sends control messages now, since the next call may be long in coming.
            self.transmit(now);
        }
        moved | self.poll_collectives()
    }

    /// Advances collectives after a round, and transmits what they send.
    #[inline]
    fn poll_collectives(&mut self) -> bool {
        let now = self.transport.now;
        if !self.progress_collectives(now) {
            return false;
        }
        if !self.is_single_node() {
            self.transmit(now);
        }
        true
    }

    /// Transmits what is queued, without receiving.
    fn transmit(&mut self, now: u64) {
        self.datagrams.batch = SendBatch::default();
        let (endpoint, device, regions, mut dispatcher) = self.dispatcher();
        grow_windows(endpoint, now);
        transmit(now, DeviceQueue::Polled, endpoint, device, &regions, &mut dispatcher, POLL_BUDGET);
        self.handle_events(now);
    }

    /// A send of `bytes` bytes was queued: transmits at once, or when the batch is large enough.
    pub(super) fn maybe_flush(&mut self, flush: Flush, bytes: usize) {
        let batch = &mut self.datagrams.batch;
        if batch.sends == 0 {
            let most = BATCH_BYTES.checked_div(bytes).unwrap_or(usize::MAX);
            batch.max_sends =
                self.datagrams.device.batch_size(bytes.saturating_add(HEADER + MessageHeader::EAGER), most);
        }
        batch.sends += 1;
        batch.bytes = batch.bytes.saturating_add(bytes);
        if flush == Flush::Now || batch.sends >= batch.max_sends || batch.bytes >= BATCH_BYTES {
            // The caller may have computed since the clock was read.
            let now = if flush == Flush::Now { self.transport.now } else { self.now() };
            self.transmit(now);
        }
    }

    /// Transmits the batched sends.
    pub(super) fn flush(&mut self) {
        let now = self.now();
        self.transmit(now);
    }

    /// Handles the endpoint's events and runs deferred work.
    fn handle_events(&mut self, now: u64) -> bool {
        let mut moved = false;
        while let Some(event) = self.transport.endpoint.poll_event(now) {
            moved = true;
            self.handle_event(now, event);
        }
        moved |= self.progress_native(now);
        moved |= self.run_deferred();
        moved | self.progress_remote_access(now)
    }

    fn handle_event(&mut self, now: u64, event: Event) {
        match event {
            Event::Delivered(placement, bytes) if self.handle_remote_placed(placement, bytes) => {}
            Event::Completed(..) | Event::Delivered(..) => {
                if let Some((owner, is_ok)) = self.transport.handle_event(event) {
                    self.complete_remote(owner, is_ok);
                }
            }
            Event::PeerFailed(peer) => self.disconnect(peer, Failure::PeerFailed(peer.into()), true),
            Event::PeerFinished(peer) => self.disconnect(peer, Failure::PeerFinished(peer.into()), false),
            Event::PeerSilent(peer) => match (self.detector.silence, &mut self.membership) {
                (SilencePolicy::AskAgent, Some(membership)) => {
                    membership.query_liveness(peer.into());
                    self.note_silence(now, peer);
                }
                (SilencePolicy::AskAgent, None) => {}
                (SilencePolicy::Fail, _) => {
                    tracing::info!(rank = peer.0, "silent for too long");
                    self.transport.endpoint.fail(now, peer);
                }
            },
        }
    }

    /// Whether everything that was sent has arrived.
    pub(super) fn is_flushed(&mut self) -> bool {
        self.messenger.request_acks();
        self.messenger.open_sends().next().is_none()
            && self.messenger.receivers().next().is_none()
            && self.messenger.is_flushed()
            && self.collectives.is_flushed()
            && self.transport.is_flushed()
    }

    /// Nanoseconds until the endpoint, a tree or a stream must be polled again; `None`: no timer runs.
    pub(super) fn next_timeout(&mut self) -> Option<u64> {
        let now = self.now();
        let collectives = [self.collectives.trees.deadline, self.collectives.multicast.deadline];
        let timeouts = self.transport.endpoint.poll_timeout(now).into_iter().chain(collectives.into_iter().flatten());
        timeouts.min().map(|at| at.saturating_sub(now))
    }

    /// Nanoseconds until the next check of membership and watched peers.
    pub(super) fn next_check(&mut self) -> u64 {
        CHECK_INTERVAL.saturating_sub(self.now().wrapping_sub(self.detector.checked_at))
    }

    /// Enables the queue's notification. Returns false if something already waits there, or may come without one.
    pub(super) fn enable_notification(&mut self, lane: DeviceQueue) -> bool {
        let is_active = self.transport.reliable.is_active() || self.remote_access.native.has_failed();
        !is_active && self.datagrams.device.arm(lane) == Armed::Armed
    }
}
