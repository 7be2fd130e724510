//! A process's handle on its job: joining it, its rank and size, and the communicator of all ranks.
//!
//! ```no_run
//! use unisono::{Rank, Tag, World};
//!
//! let world = World::join()?;
//! if world.rank() == Rank(0) {
//!     world.send(&[1.0_f64, 2.0], Rank(1), Tag(7))?;
//! } else {
//!     let mut values = [0.0_f64; 2];
//!     let status = world.receive_into(&mut values, Rank(0), Tag(7))?;
//!     assert_eq!(status.bytes, 16);
//! }
//! world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A World may be used from several threads at once, and a request may be completed by another thread than the one that
//! started it: one lock guards the process state and is held while a call makes progress. Only collectives must be
//! started by one thread at a time, since all ranks start them in the same order.

pub mod collective;
mod communicator;
#[cfg(any(test, feature = "verbs"))]
mod connections;
mod datagram_transport;
mod event_source;
mod group;
mod process;
mod progress;
mod rails;
mod region;
mod request;
mod shm_transport;
mod singleton_guard;
mod started;
mod statistics;
mod stats;
mod watchdog;
mod window;

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ops::Deref;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::net::UdpSocket;
use std::thread::JoinHandle;
use std::time::Instant;

use unisono_core::counters::Counters;
use unisono_core::device::{Device, DeviceQueue};
use unisono_core::endpoint::{Config, Endpoint};
use unisono_core::ids::Rail;
use unisono_core::time::units;
use unisono_shmem::layout::{RANKS_MAX, WaitMode};

#[doc(hidden)]
pub use collective::raw::{RawBlocks, RawCollective};
pub use communicator::Communicator;
use communicator::ContextLease;
pub use communicator::attributes::AttributeKey;
pub use communicator::cartesian::{Cartesian, CartesianError, Grid};
#[doc(hidden)]
pub use communicator::create::ProposalBytes;
pub use communicator::create::{CreateError, SplitType};
pub use communicator::graph::{Graph, Neighbour};
pub use communicator::neighbourhood::Neighbourhood;
pub use communicator::peer::Peer;
pub use communicator::probe::Message;
#[doc(hidden)]
pub use communicator::raw::{Channel, RawMessage, RawRequest};
pub use communicator::recover::{AgreeError, Agreement};
pub use communicator::send_buffer::SendBuffer;
pub use event_source::EventSource;
pub use group::{Group, GroupError};
pub use process::cancelled_sends::SentMessage;
pub use rails::{AddRailError, RailStats};
pub use region::{RKey, Region, RemoteRegion, Rights};
pub use request::any_request::{AnyPersistent, AnyRequest, start_all};
pub use request::exchange::{ExchangeRequest, PersistentExchange};
pub use request::persistent_message::PersistentMessage;
pub use request::scope::{OpenScope, RecvRequest, Request, Scope};
pub use request::wait_many::{test_all, test_any, test_some, wait_all, wait_any, wait_some};
pub use request::{Failure, RequestError, RequestFailed, Status, Tag, TypeCode};
pub use shm_transport::{AllocateError, Buffer};
pub use statistics::{Snapshot, Statistic, StatisticTopic, statistics};
pub use window::blocks::{WindowBlocks, WindowReads};
pub use window::raw::RawUpdate;
pub use window::{ATTACHED_MAX, AccumulateOperation, GetRequest, LockKind, PutRequest, Window, WindowError};

use crate::environment::tuning::{JobSignature, SignatureMismatch};
use crate::environment::{
    DeviceChoice, EagerPool, LinkSpeed, Location, Progress, RailPlaceError, Settings, SettingsError,
};
use crate::node::{Node, NodeError, processors};
use collective::call_log::CallLog;
use collective::engine::context::{WORLD, message_context};
use collective::intra_node::IntraNodeGroup;
use communicator::SHUTDOWN_TIMEOUT;
use datagram_transport::{DatagramTransport, OpenError};
use process::Process;
use process::blocked::BlockedReports;
use process::failure_detection::SilencePolicy;
use progress::user_threads::UserThreads;
use progress::{SharedProcess, WaitFor};
use singleton_guard::SingletonGuard;
use stats::Stats;
use unisono_bootstrap::{
    ConnectionError, Digests, FenceDifference, JoinError, LocalRecord, Membership, PeerRecord, Rank, fresh_incarnation,
};
use unisono_memory::endpoint_storage::EndpointSizes;
use unisono_memory::memory_regions::RegisterError;
use unisono_starter::{Starter, StarterError};
use unisono_udp::{BindError, UdpCounters};
use watchdog::{BlockedOn, report};

/// How long a dropped World delivers what it has sent, and how long it then announces its end. The launcher waits
/// longer for a rank that others name as the cause of their failure.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
const DEPART_TIMEOUT: Duration = Duration::from_millis(250);

/// Why a process could not join its job.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// This process has joined the job as this rank already, and has not finished.
    #[error("this process has joined its job already: finish the first World before joining again")]
    Joined,
    /// An environment variable is malformed.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The selected device was not compiled in.
    #[error("this program was built without unisono's feature {0}: rebuild with it (docs/verbs.md)")]
    Device(DeviceChoice),
    /// No socket could be bound.
    #[error("cannot open the datagram device: {0}")]
    Bind(#[from] BindError),
    /// No RDMA adapter was found, or it cannot be used.
    #[cfg(feature = "verbs")]
    #[error("cannot open the RDMA device: {0}")]
    Adapter(#[from] unisono_verbs::ud::OpenError),
    /// Ranks of this host exchange datagrams, and its loopback interface is down.
    #[error(
        "this host's loopback interface is down, through which its ranks exchange datagrams: enable it \
         (ip link set lo up), or use shared memory (--device auto)"
    )]
    NoLoopback,
    /// Fault injection is requested on a device that does not support it.
    #[error("the verbs device cannot inject faults: use --device udp")]
    Faults,
    /// The operating system refuses a socket or random bytes.
    #[error("the operating system refuses a resource: {0}")]
    System(#[from] std::io::Error),
    /// The operating system refuses the memory for messages, or the adapter cannot register it.
    #[error("this rank has no memory for its messages: {0}")]
    Memory(#[from] RegisterError),
    /// The operating system refuses the thread that the progress mode needs.
    #[error("cannot start the progress thread: {0}: raise the limit (ulimit -u), or use the progress mode engine")]
    Thread(std::io::Error),
    /// Another starter started this process, and it cannot join the starter's other tasks.
    #[error(transparent)]
    Starter(#[from] StarterError),
    /// The job could not be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Ranks were started with different settings.
    #[error("rank {rank} was started with {what} that differ from this rank's: start all ranks alike")]
    Differs {
        /// A rank whose settings differ.
        rank: Rank,
        /// Which settings differ.
        what: &'static str,
    },
    /// The user's table of measurements was measured in other jobs, or on another machine.
    #[error("--tuning (UNISONO_TUNING): {0}")]
    Tuning(#[from] SignatureMismatch),
    /// This host has not all of the rails.
    #[error(transparent)]
    Rails(#[from] RailPlaceError),
    /// Ranks start with different numbers of rails, or have room for different numbers.
    #[error(
        "rank {rank} starts with {} rails of at most {}, and this rank with {} of at most {}: start all ranks with as \
         many (--rails, UNISONO_RAILS), and with as much room for more (--rails-max, UNISONO_RAILS_MAX)",
        theirs[0], theirs[1], own[0], own[1]
    )]
    RailsDiffer {
        /// A rank with other numbers.
        rank: Rank,
        /// Its rails when it joined, and those that it has room for.
        theirs: [u8; 2],
        /// This rank's.
        own: [u8; 2],
    },
    /// The node's shared memory cannot be used.
    #[error(transparent)]
    Node(#[from] NodeError),
}

impl From<OpenError> for WorldError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Bind(error) => Self::Bind(error),
            #[cfg(feature = "verbs")]
            OpenError::Adapter(error) => Self::Adapter(error),
            #[cfg(feature = "verbs")]
            OpenError::Faults => Self::Faults,
            #[cfg(feature = "verbs")]
            OpenError::Rail(error) => Self::Rails(error),
        }
    }
}

/// A job that this process is a rank of, until it [finishes](Self::finish). Dropping it leaves the job unfinished, as an
/// error that `main` returns does: operations of other ranks that need this one fail and name it, what this rank has
/// sent is delivered for at most one second, and no other rank is waited for.
///
/// It dereferences to the [`Communicator`] of all ranks.
pub struct World {
    communicator: Communicator,
    thread: Option<JoinHandle<()>>,
    udp_counters: Arc<UdpCounters>,
    finished: bool,
    /// Another starter that waits for this process.
    starter: Option<Starter>,
    /// Settings of the statistics, which are published at the end.
    settings: Settings,
    signature: JobSignature,
    /// Released last, after everything else has shut down.
    _singleton: SingletonGuard,
}

impl Deref for World {
    type Target = Communicator;

    #[inline]
    fn deref(&self) -> &Communicator {
        &self.communicator
    }
}

impl World {
    /// Joins the job that the environment (`UNISONO_*`) describes; without these variables, the job of another starter
    /// that this process is a task of, by PMI-1 (`mpiexec.hydra`, `srun --mpi=pmi2`) or PMIx (`prterun`,
    /// `srun --mpi=pmix`), or else a job of this process alone.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// println!("rank {} of {}", world.rank(), world.size());
    /// world.finish()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WorldError`].
    pub fn join() -> Result<Self, WorldError> {
        Self::join_as(&Settings::from_environment()?)
    }

    /// Joins the job that the settings describe; if they describe none, as [`join`](Self::join).
    ///
    /// ```
    /// use unisono::prelude::*;
    /// use unisono::Settings;
    ///
    /// let mut settings = Settings::from_environment()?;
    /// settings.transport.check = Some(unisono::environment::Switch::On);
    /// let world = World::join_as(&settings)?;
    /// assert!(world.rank().0 < world.size());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WorldError`].
    pub fn join_as(settings: &Settings) -> Result<Self, WorldError> {
        let (started, starter) = started::find(settings)?.unzip();
        let settings = started.as_ref().unwrap_or(settings);
        let transport = &settings.transport;
        if !transport.device.is_built() {
            return Err(WorldError::Device(transport.device));
        }
        let singleton = SingletonGuard::acquire(settings).ok_or(WorldError::Joined)?;
        let size = settings.position.map_or(1, |position| position.size);
        // The rails of adapters have no addresses of interfaces.
        let locals = match transport.device {
            DeviceChoice::Verbs => vec![local_address(settings)],
            _ => transport.rails.addresses(|| local_address(settings))?,
        };
        let mut device = DatagramTransport::open(settings, &locals)?;
        let incarnation = fresh_incarnation().map_err(std::io::Error::from)?;
        let offer = LocalRecord {
            incarnation,
            addresses: device.lanes(Rail(0))?,
            further_rails: device.further_lanes()?,
            rails_max: device.limits().rails,
            mtu: device.mtu(),
            checksums: transport.needs_checksums(&locals),
            location: settings
                .location()
                .or(Location { rail: device.first_rail(locals.first()), ..Location::default() }),
            link_megabits: link_speed(transport.device, &locals).map_or(0, LinkSpeed::megabits),
            digests: settings.digests(),
        };
        let mut membership = Membership::join(&settings.join_options()?, offer.clone())?;
        check_digests(offer.digests, membership.table())?;
        check_rails([offer.rails(), offer.rails_max], membership.table())?;
        let mut tuned = settings.clone();
        let slowest = membership.table().first().and_then(|entry| LinkSpeed::from_megabits(entry.link_megabits));
        if let (None, Some(speed)) = (settings.tuning.link_speed(), slowest) {
            tracing::debug!(%speed, "links of the hosts");
            tuned.tuning.set_link_speed(speed);
        }
        let signature = signature(settings, membership.table(), device.device_choice());
        // A process alone communicates with nobody.
        if membership.table().len() > 1 {
            tuned.tuning.select_table(&signature)?;
        }
        let settings = &tuned;
        if !membership.table().iter().any(|entry| entry.checksums) {
            device.set_checksums(false);
        }
        let node = Node::join(settings, &mut membership)?.map(Arc::new);
        if size > 1 && node.as_ref().is_none_or(|node| node.size() < size) {
            expect_loopback(&offer)?;
        }
        let rank = settings.position.map_or(Rank(0), |position| position.rank);
        let mut config = Config::new(rank.into(), incarnation, &device.limits());
        if let Some(silence) = transport.silence {
            config.silence = units(silence.duration().as_nanos() as u64);
        }
        let progress = transport.progress;
        if progress == Progress::Hybrid {
            config.probe_queue = DeviceQueue::Interrupt;
        }
        let answered = progress != Progress::Engine || transport.silence.is_some();
        let silence = if answered { SilencePolicy::Fail } else { SilencePolicy::AskAgent };
        let mut endpoint =
            Endpoint::new(0, config, EndpointSizes::growing(size as usize).with_rails(device.limits().rails).pools());
        // Rails that are not open yet are as good as down.
        while let Some(event) = device.poll_event() {
            endpoint.handle_device_event(0, event);
        }
        let (tally, bells) =
            (device.udp_counters(), [device.waiter(DeviceQueue::Polled), device.waiter(DeviceQueue::Interrupt)]);
        let pool = transport.eager_pool.map_or(process::messenger::POOL_BYTES, EagerPool::bytes);
        let mut process =
            Process::new((rank, size), endpoint, device, membership, silence, node.clone(), (settings, pool))?;
        process.collectives.wait_registry.set_threshold(transport.watchdog);
        let oversubscribed = match &node {
            Some(node) => node.waiting() == WaitMode::Oversubscribed,
            None => match settings.tuning.explicit_sharing() {
                Some(ranks) => ranks > 1,
                None => settings.locality.size.is_none_or(|ranks| ranks > processors()),
            },
        };
        // Set before any message can arrive: the end of the World closes the barriers of these areas.
        // The ranks of a node decide alike, without a message: each that has attached to its memory has waited until all
        // others had attached or could not. Only one that is started again, before it had a slot, may attach after that.
        let shares_node = process.shares_its_node();
        let on_node = node.as_ref().filter(|_| shares_node).and_then(|node| IntraNodeGroup::new(node, size));
        if let Some(world) = process.collectives.contexts.get_mut(WORLD) {
            world.barrier_mode = on_node.as_ref().map(IntraNodeGroup::barrier_mode);
            world.areas = on_node.as_ref().map(IntraNodeGroup::areas);
        }
        if on_node.is_none() && shares_node {
            process.open_world_lanes();
        }
        let users = UserThreads::default();
        process.blocked = BlockedReports::new(transport, users.clone());
        let shared = Arc::new(SharedProcess::new(process, users, bells, oversubscribed && size > 1));
        let log = shared.lock().open_log(WORLD);
        let thread = progress::start(&shared, progress).map_err(WorldError::Thread)?;
        shared.lock().detector.own_threads = thread.iter().count();
        let communicator = Communicator {
            lease: ContextLease::new(&shared, WORLD),
            shared,
            node,
            intra_node: on_node,
            context: WORLD,
            message_context: message_context(WORLD, 0),
            members: Group::all(size),
            agreement_rounds: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            log,
            attributes: parking_lot::Mutex::default(),
            rank,
            size,
        };
        let settings =
            Settings { stats: settings.stats, stats_file: settings.stats_file.clone(), ..Settings::default() };
        Ok(Self {
            communicator,
            thread,
            udp_counters: tally,
            finished: false,
            starter,
            settings,
            signature,
            _singleton: singleton,
        })
    }

    /// The memory that this process shares with the other ranks of its node, if there is any.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Some(node) = world.node() {
    ///     println!("{} ranks share memory", node.size());
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    /// The signature of the job, by which its measurements are found in tuning tables.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert!(world.signature().to_string().ends_with("nodes=1 ranks-per-node=1"));
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn signature(&self) -> &JobSignature {
        &self.signature
    }

    /// The endpoint's counters since the start.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.barrier()?;
    /// println!("{} data datagrams sent", world.counters().data_sent());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn counters(&self) -> Counters {
        self.shared.lock().datagrams.counters
    }

    /// The counters of the UDP device.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.udp_counters().bad_checksum.get(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn udp_counters(&self) -> &UdpCounters {
        &self.udp_counters
    }

    /// The device that carries messages to a rank: `shm`, or the datagram device.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// for rank in (0..world.size()).map(Rank) {
    ///     println!("{} to rank {rank}", world.device_to(rank));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn device_to(&self, rank: Rank) -> DeviceChoice {
        if self.shares_memory_with(rank) {
            DeviceChoice::Shm
        } else {
            self.shared.lock().datagrams.device.device_choice()
        }
    }

    /// Bytes of the largest datagram, checksum excluded.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert!(world.max_datagram_bytes() > 500);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn max_datagram_bytes(&self) -> usize {
        self.shared.lock().datagrams.device.limits().mtu as usize
    }

    /// Makes progress once, and returns whether everything that was sent has arrived.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&[1_u8], world.rank(), Tag(1))?;
    /// while !world.is_flushed() {}
    /// # world.receive::<u8>(None, None)?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_flushed(&self) -> bool {
        let mut process = self.shared.lock();
        self.shared.progress(&mut process);
        process.is_flushed()
    }

    /// Ends this process's part in the job. Waits until everything that it sent has arrived, or its receiver has failed
    /// or receives no more, and until every live rank has called this. From the start of the call, whatever other
    /// threads start on its communicators fails with [`Failure::Finished`], and so do their receives that have matched
    /// no message.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.barrier()?;
    /// world.finish()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::Aborted`] when the job was aborted meanwhile; [`Failure::Disagrees`] when a rank of this node named
    /// itself the root of a collective of which this rank was the root. A rank's failure is reported only by the
    /// requests that it ends.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), Failure> {
        self.close(None);
        self.publish_stats();
        let aborted = self.shared.lock().aborted;
        let fenced = if aborted.is_none() && self.size > 1 { self.fence() } else { Ok(None) };
        // All ranks have called everything. A collective that failed has reported why.
        let has_failed = self.shared.lock().collectives.contexts.get(WORLD).is_none_or(|world| world.failed.is_some());
        let checks = fenced.is_ok() && !has_failed;
        let rival = self.intra_node.as_ref().filter(|_| checks).and_then(IntraNodeGroup::rival_root);
        let mut process = self.shared.lock();
        // The job may have been aborted meanwhile.
        self.shared.with_wakeup(&mut process, Process::poll_events);
        process.transport.endpoint.shutdown();
        process.send_bye(false);
        drop(process);
        self.depart(SHUTDOWN_TIMEOUT);
        if let Some(membership) = self.shared.lock().membership.take() {
            let left = membership.finish(SHUTDOWN_TIMEOUT);
            tracing::debug!(?left, "left");
        }
        let aborted = self.shared.with_process(|process| {
            let aborted = process.aborted;
            process.close();
            aborted
        });
        // A process that leaves without it makes its starter end the job.
        if aborted.is_none()
            && let Some(starter) = self.starter.take()
        {
            starter.finalize();
        }
        match (aborted, fenced) {
            (Some(failure), _) => Err(failure),
            (None, Err(error)) => {
                tracing::debug!(%error, "no fence");
                Ok(())
            }
            (None, Ok(difference)) => {
                let disagreeing = difference.map(|difference| self.report_difference(&difference));
                disagreeing
                    .or_else(|| rival.map(|(rank, ..)| Rank(rank.0)))
                    .map_or(Ok(()), |rank| Err(Failure::Disagrees(rank)))
            }
        }
    }

    /// Asks another starter, if one started this process, to end the job with this exit code.
    #[doc(hidden)]
    pub fn abort_at_starter(&self, code: i32) {
        if let Some(starter) = &self.starter {
            starter.abort(code);
        }
    }

    /// Prints what this rank did, if the settings ask for it.
    fn publish_stats(&self) {
        let counts = self.raw_statistics();
        let process = self.shared.lock();
        let (rails, integrity) = (process.rail_stats(), process.datagrams.device.integrity());
        drop(process);
        Stats { rank: self.rank, counts: &counts, rails: &rails, integrity }.publish(&self.settings);
    }

    /// Starts nothing more, and waits until everything that was sent has arrived, at most until the deadline. Returns
    /// whether it has.
    fn close(&mut self, deadline: Option<Instant>) -> bool {
        self.finished = true;
        // Ranks that wait for this one in a collective stop waiting, so that they do not hold it up at the fence.
        if let Some(node) = &self.node {
            node.retire();
        }
        self.shared.with_process(Process::close_receives);
        let is_flushed = self.shared.wait_until_recorded(WaitFor::AnyRank, BlockedOn::Flush, |process| {
            let is_flushed = process.is_flushed();
            let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
            (process.aborted.is_some() || is_flushed || is_late()).then_some(is_flushed)
        });
        self.shared.with_process(Process::announce_sends_done);
        is_flushed
    }

    /// Leaves the job without finishing it: reports that, then delivers for at most [`LEAVE_TIMEOUT`] what was sent, and
    /// waits for no other rank.
    fn leave(&mut self) {
        // First of all, so that the launcher knows it before a rank fails because of this one.
        self.shared.with_process(|process| {
            if let Some(membership) = &mut process.membership {
                membership.leave();
            }
        });
        let is_flushed = self.close(Some(Instant::now() + LEAVE_TIMEOUT));
        self.publish_stats();
        self.shared.with_process(|process| {
            // A rank that never met this one may wait for it.
            process.transport.endpoint.contact_all();
            if is_flushed {
                process.transport.endpoint.shutdown();
            } else {
                tracing::debug!("dropped messages that were not received in time");
                process.transport.endpoint.abort();
            }
            process.send_bye(!is_flushed);
        });
        self.depart(DEPART_TIMEOUT);
        self.shared.with_process(|process| {
            process.membership = None;
            process.close();
        });
    }

    /// Waits until the other ranks know that this process has ended its part, at most for this time, and takes no part
    /// any more.
    fn depart(&mut self, timeout: Duration) {
        self.wait_until_departed(timeout);
        self.stop();
        if let Some(node) = &self.node {
            node.depart();
        }
    }

    /// Waits until all other ranks have reached the fence, and answers them meanwhile. Needs no thread: the system may
    /// give none.
    fn fence(&self) -> Result<Option<FenceDifference>, ConnectionError> {
        let records = self.log.lock().open_records();
        self.shared.with_process(|process| {
            if let Some(membership) = &mut process.membership {
                membership.enter_fence(records);
            }
        });
        let what = BlockedOn::Finish;
        self.shared.wait_until_recorded(WaitFor::Notification, what, |process| {
            match (&mut process.membership, process.aborted) {
                (Some(membership), None) => membership.fence_outcome(),
                (_, Some(_)) | (None, _) => Some(Ok(None)),
            }
        })
    }

    /// Prints the first collective in which two ranks differ, on the higher one of the two. Returns one of the two that
    /// differs from this rank.
    fn report_difference(&self, difference: &FenceDifference) -> Rank {
        let FenceDifference { ranks: [lowest, other], records } = difference;
        let [first, second] = records.map(|record| record.and_then(CallLog::from_record));
        if self.rank == *other {
            let what = match (first, second) {
                (Some((number, one)), Some((_, two))) if one == two => {
                    format!("{} {number} is repeated differently at rank {lowest}", one.name())
                }
                (Some((number, one)), Some((_, two))) => {
                    let (there, here) = one.contrast(&two);
                    format!("{} {number} has {here} here and {there} at rank {lowest}", two.name())
                }
                (Some((number, one)), None) => format!("rank {lowest} called {} {number}", one.name()),
                (None, Some((number, two))) => format!("rank {lowest} did not call {} {number}", two.name()),
                (None, None) => format!("rank {lowest} called others"),
            };
            report(self.rank, &format!("does not call the same collectives as rank {lowest}: {what}"));
        }
        let own = self.log.lock().open_records().unwrap_or_default();
        let [first, second] = records.map(|record| record.is_some_and(|record| own.contains(&record)));
        if self.rank == *other || second && !first { *lowest } else { *other }
    }

    fn stop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            let joined = thread.join();
            debug_assert!(joined.is_ok(), "the progress thread panicked");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if std::thread::panicking() {
            self.abort();
            self.stop();
        } else {
            self.leave();
        }
    }
}

/// The speed of the interfaces with these addresses. `None`: it is not known, or the device does not use them.
fn link_speed(device: DeviceChoice, locals: &[IpAddr]) -> Option<LinkSpeed> {
    if device == DeviceChoice::Verbs { None } else { LinkSpeed::of_interfaces(locals) }
}

/// The signature of the job of these ranks.
fn signature(settings: &Settings, table: &[PeerRecord], datagrams: DeviceChoice) -> JobSignature {
    let nodes: Vec<u32> = table.iter().map(|entry| entry.node).collect();
    let shares_memory = |ranks| ranks <= RANKS_MAX as usize && settings.transport.shares_memory(ranks, nodes.len());
    JobSignature::here(&nodes, shares_memory, datagrams)
}

/// Compares the settings of all ranks with this rank's. If any differ, every rank finds one that differs from its own.
fn check_digests(own: Digests, table: &[PeerRecord]) -> Result<(), WorldError> {
    let other = (0..).zip(table).find(|(_, entry)| entry.digests != own);
    other.map_or(Ok(()), |(rank, entry)| {
        let is_tuning = entry.digests.tuning != own.tuning;
        let what = if is_tuning { "algorithms of collectives" } else { "a device, progress, silence or version" };
        Err(WorldError::Differs { rank: Rank(rank), what })
    })
}

/// Compares the number of rails that each rank joined with, and the number that it has room for, with this rank's. If any
/// differ, every rank finds one that differs from its own.
fn check_rails(own: [u8; 2], table: &[PeerRecord]) -> Result<(), WorldError> {
    let numbers = |entry: &PeerRecord| [entry.initial_rails, entry.rails_max];
    let other = (0..).map(Rank).zip(table).find(|(_, entry)| numbers(entry) != own);
    other.map_or(Ok(()), |(rank, entry)| Err(WorldError::RailsDiffer { rank, theirs: numbers(entry), own }))
}

/// Datagrams to a loopback interface that is down would be lost without a word.
fn expect_loopback(own: &LocalRecord) -> Result<(), WorldError> {
    let is_down = |address: &SocketAddr| address.ip().is_loopback() && source_address(*address).is_none();
    if own.addresses.iter().any(is_down) { Err(WorldError::NoLoopback) } else { Ok(()) }
}

/// The address at which the other ranks reach this process: the source address of its route to the rendezvous server.
fn local_address(settings: &Settings) -> IpAddr {
    let Some(place) = settings.bootstrap.as_ref().filter(|place| !place.is_local()) else {
        return Ipv4Addr::LOCALHOST.into();
    };
    let reached = place.resolve().ok().and_then(|addresses| addresses.into_iter().find_map(source_address));
    reached.unwrap_or(Ipv4Addr::UNSPECIFIED.into())
}

/// The source address of datagrams to `there`; sends nothing.
fn source_address(there: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if there.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { core::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(there).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}
