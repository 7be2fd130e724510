//! The settings of a process of a job, or of the launcher, from `UNISONO_*` variables: the same names and values as the
//! command-line options. An unknown name is an error, so that a mistyped variable is not silently ignored.

mod acks;
pub mod catalogue;
mod choice;
mod duration;
mod eager_pool;
mod group_means;
mod groups;
pub mod hierarchy;
mod host_list;
mod link_speed;
mod location;
mod multicast;
mod rails;
pub mod tuning;

pub use acks::{AcksChoice, AcksChoiceError};
pub use choice::{
    ChoiceError, DeviceChoice, GroupMeans, InheritedSegment, InheritedSegmentError, Integrity, LeaderChoice, Mtu,
    MtuError, PartsChoice, Progress, QueuesChoice, SubgroupRule, Switch,
};
pub use duration::{
    AttachThreshold, BoundedDuration, DurationError, JoinTimeout, KillTimeout, SilenceTimeout, StuckTimeout,
    UnreachableTimeout, WatchdogTimeout,
};
pub use eager_pool::{EagerPool, EagerPoolError};
pub use groups::{GroupsChoice, GroupsChoiceError};
pub use hierarchy::{HierarchyChoice, HierarchyError, Nested, RankLocation, SubgroupChoice, Subgroups};
pub use link_speed::{LinkSpeed, LinkSpeedError};
pub use location::{Location, LocationError, UnitCounts, own_location};
pub use multicast::{GroupBase, InterfaceName, MulticastChoice, MulticastChoiceError};
pub use rails::{RailPlace, RailPlaceError, RailsChoice, RailsChoiceError, RailsMax, RailsMaxError};
pub use tuning::{Override, OverrideError, Tuning};

pub use host_list::{HostList, HostListError};
pub use unisono_bootstrap::{HostPort, HostPortError, OnDeath, OnDeathError, Secret, SecretError};
pub use unisono_bootstrap::{JobPosition, SIZE_MAX};

use crate::node::processors;
use core::{fmt, net::IpAddr, num::NonZero, str::FromStr, time::Duration};
use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};
use unisono_bootstrap::{Digests, JoinOptions, Rank, Rendezvous};
use unisono_udp::fault_injection::Faults;

/// The offset basis of FNV-1a (Fowler, Noll, Vo), 32 bits.
const FNV_OFFSET: u32 = 0x811c_9dc5;

/// FNV-1a: continues the hash `before` with a text and a terminating zero byte.
fn fnv(before: u32, text: &str) -> u32 {
    text.bytes().chain([0]).fold(before, |digest, byte| (digest ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The prefix of every variable.
pub const PREFIX: &str = "UNISONO_";
/// The position of this process on its node, if the launcher provides it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Locality {
    /// Number of the node: equal for processes that share memory.
    pub node: Option<u32>,
    /// Number among the ranks of the node.
    pub rank: Option<u32>,
    /// Ranks of the node.
    pub size: Option<u32>,
    /// The node's shared-memory segment. `None`: the ranks of the node create one themselves.
    pub segment: Option<InheritedSegment>,
    /// Where the process runs, where that is given.
    pub location: Location,
}

/// Most reliable connections of a rank.
pub const RC_LIMIT_MAX: u16 = 256;
const RC_LIMIT_DEFAULT: u32 = 64;

/// The settings of message transport.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TransportSettings {
    /// The device.
    pub device: DeviceChoice,
    /// The progress mode.
    pub progress: Progress,
    /// Largest datagram. `None`: from the link.
    pub mtu: Option<Mtu>,
    /// Whether to use segmentation offload (GSO). `None`: if the kernel supports it.
    pub gso: Option<Switch>,
    /// The rails.
    pub rails: RailsChoice,
    /// Rails that there is room for, including those that are added later. `None`: for those of `rails`.
    pub rails_max: Option<RailsMax>,
    /// What finds corrupted datagrams. `None`: CRC-32C, unless all ranks are reached through the loopback.
    pub integrity: Option<Integrity>,
    /// How work queues of an RDMA adapter are written. `None`: the default.
    pub queues: Option<QueuesChoice>,
    /// Reliable connections of a rank at a time, over which an RDMA adapter accesses windows of other ranks and reads
    /// payloads: up to [`RC_LIMIT_MAX`]; 0: none. `None`: 64.
    pub rc_limit: Option<u16>,
    /// Memory for unexpected messages. `None`: 1 MiB.
    pub eager_pool: Option<EagerPool>,
    /// Faults injected into outgoing datagrams.
    pub faults: Faults,
    /// The policy when a rank fails.
    pub on_death: OnDeath,
    /// Silence of a peer after which it is considered failed. `None`: its process's liveness is queried instead.
    pub silence: Option<SilenceTimeout>,
    /// Time in a collective after which the missing ranks are reported. `None`: never.
    pub watchdog: Option<WatchdogTimeout>,
    /// Time without progress after which a blocked rank reports its waits, so that the launcher finds ranks that wait for
    /// each other. `None`: 10 s.
    pub stuck: Option<StuckTimeout>,
    /// Time without a datagram from a peer that makes progress after which it is considered failed. `None`: 30 s.
    pub unreachable: Option<UnreachableTimeout>,
    /// Where multicast groups are.
    pub multicast: MulticastChoice,
    /// When they are made.
    pub groups: GroupsChoice,
    /// Who acknowledges multicasts to whom.
    pub multicast_acks: AcksChoice,
    /// Mean wait for a late leader from which on a rank joins a multicast group itself. `None`: it never does.
    pub attach: Option<AttachThreshold>,
    /// Whether a message that is received as another type than was sent is an error. `None`: no.
    pub check: Option<Switch>,
    /// Bytes of a rendezvous message that one clear-to-send grants. `None`: 2³¹. For tests; no variable sets it.
    pub grant: Option<NonZero<u32>>,
}

impl TransportSettings {
    /// The time without progress after which a blocked rank reports its waits.
    ///
    /// ```
    /// use core::time::Duration;
    /// use unisono::Settings;
    ///
    /// assert_eq!(Settings::default().transport.stuck_timeout(), Duration::from_secs(10));
    /// ```
    pub fn stuck_timeout(&self) -> Duration {
        self.stuck.map_or(Duration::from_secs(10), BoundedDuration::duration)
    }

    /// The time without a datagram from a peer that makes progress after which it is considered failed.
    ///
    /// ```
    /// use core::time::Duration;
    /// use unisono::Settings;
    ///
    /// assert_eq!(Settings::default().transport.unreachable_timeout(), Duration::from_secs(30));
    /// ```
    pub fn unreachable_timeout(&self) -> Duration {
        self.unreachable.map_or(Duration::from_secs(30), BoundedDuration::duration)
    }

    /// Reliable connections of a rank at a time.
    ///
    /// ```
    /// assert_eq!(unisono::Settings::default().transport.rc_limit(), 64);
    /// ```
    pub fn rc_limit(&self) -> u32 {
        self.rc_limit.map_or(RC_LIMIT_DEFAULT, u32::from)
    }

    /// Whether a message that is received as another type than was sent is an error.
    ///
    /// ```
    /// assert!(!unisono::Settings::default().transport.checks_types());
    /// ```
    pub fn checks_types(&self) -> bool {
        self.check.is_some_and(Switch::is_on)
    }

    /// Whether `ranks` ranks of a node share memory, in a job of `size` ranks. With fault injection they do so only if
    /// there are other nodes, since faults apply to datagrams only.
    ///
    /// ```
    /// let transport = unisono::Settings::default().transport;
    /// assert!(transport.shares_memory(4, 4) && !transport.shares_memory(1, 4));
    /// ```
    pub fn shares_memory(&self, ranks: usize, size: usize) -> bool {
        match self.device {
            DeviceChoice::Auto => ranks > 1 && (self.faults.is_none() || ranks < size),
            DeviceChoice::Shm => ranks > 0,
            DeviceChoice::Udp | DeviceChoice::Verbs => false,
        }
    }

    /// Whether datagrams from and to a process at these addresses need checksums.
    pub fn needs_checksums(&self, locals: &[IpAddr]) -> bool {
        match self.integrity {
            Some(integrity) => integrity == Integrity::Crc32c,
            None => self.faults.corrupt.value() > 0.0 || !locals.iter().all(IpAddr::is_loopback),
        }
    }

    /// Checks that the settings are consistent.
    ///
    /// ```
    /// assert!(unisono::Settings::default().transport.check().is_ok());
    /// ```
    ///
    /// # Errors
    /// The device is set explicitly, and other settings apply to another device.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.integrity == Some(Integrity::Link) && self.faults.corrupt.value() > 0.0 {
            let (name, value) = (VariableName("INTEGRITY"), Integrity::Link.to_string());
            let reason = "the corruption that is injected is found by crc32c only".to_owned();
            return Err(SettingsError::Invalid { name, value, reason });
        }
        if !matches!(self.device, DeviceChoice::Shm | DeviceChoice::Verbs) {
            return Ok(());
        }
        let faults = !self.faults.is_none() || self.faults.seed != 0;
        let reason = match (faults, self.mtu, self.gso) {
            (true, ..) => "fault injection applies to the device udp",
            (_, Some(_), _) => "the MTU applies to the device udp",
            (.., Some(_)) => "segmentation offload (GSO) applies to the device udp",
            _ if !self.has_rails_of_device() => "these rails apply to the device udp",
            _ if self.rails_max.is_some() => "room for more rails applies to the device udp",
            _ if self.integrity.is_some() => "the choice of integrity applies to the device udp",
            (false, None, None) => return Ok(()),
        };
        let reason = format!("{reason}, not to this one");
        Err(SettingsError::Invalid { name: VariableName("DEVICE"), value: self.device.to_string(), reason })
    }
}

impl TransportSettings {
    /// Whether the rails are ones that the device can have.
    fn has_rails_of_device(&self) -> bool {
        match (&self.rails, self.device) {
            (rails, DeviceChoice::Shm) => rails.is_default(),
            (RailsChoice::Places(places), DeviceChoice::Verbs) => {
                places.iter().flatten().all(|place| place.port().is_some())
            }
            _ => true,
        }
    }
}

/// The settings that only the launcher reads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LauncherSettings {
    /// Whether to pin each rank to processors of its own.
    pub pin: Option<Switch>,
    /// Whether to prefix every line of output with its rank.
    pub tag_output: Option<Switch>,
    /// The remote shell that starts a command on another host. `None`: `ssh`.
    pub rsh: Option<String>,
    /// Time between SIGTERM and SIGKILL.
    pub kill_timeout: Option<KillTimeout>,
    /// Number of ranks.
    pub ranks: Option<u32>,
    /// Whether the program was compiled for the standard ABI of MPI.
    pub mpi: Option<Switch>,
    /// Number of nodes that this host is treated as.
    pub nodes: Option<u32>,
    /// The switches, sockets and caches that ranks are divided among.
    pub units: UnitCounts,
    /// The hosts to run on. `None`: this one.
    pub hosts: Option<HostList>,
    /// Number of bare-metal ranks; they are the last ranks of the job.
    pub bare_metal: Option<u32>,
    /// The image that the bare-metal ranks run.
    pub image: Option<PathBuf>,
    /// The emulator that runs the image.
    pub emulator: Option<String>,
}

/// All settings of a process.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The rank of this process. `None`: a job of one process.
    pub position: Option<JobPosition>,
    /// The address of the rendezvous server. Without a launcher, rank 0 runs it.
    pub bootstrap: Option<HostPort>,
    /// Whether rank 0 runs the rendezvous server. A launcher that runs it itself sets `off`.
    pub serve: Option<Switch>,
    /// The job's secret.
    pub secret: Option<Secret>,
    /// The job's name, empty if it has none.
    pub job: JobName,
    /// The position of this process on its node.
    pub locality: Locality,
    /// The settings of message transport.
    pub transport: TransportSettings,
    /// The algorithm choices of collectives over messages.
    pub tuning: Tuning,
    /// The settings that only the launcher reads.
    pub launcher: LauncherSettings,
    /// Join timeout: time from the first rank to the last.
    pub join_timeout: Option<JoinTimeout>,
    /// Whether each rank prints what it did, at its end.
    pub stats: Option<Switch>,
    /// The file to which each rank appends that, as a JSON object in a line.
    pub stats_file: Option<PathBuf>,
}

impl Settings {
    /// Reads this process's environment, and the file that `UNISONO_SECRET_FILE` names.
    ///
    /// ```
    /// let settings = unisono::Settings::from_environment()?;
    /// println!("device {}", settings.transport.device);
    /// # Ok::<(), unisono::SettingsError>(())
    /// ```
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::from_variables(env::vars_os())
    }

    /// Reads variables; ignores those without the [`PREFIX`].
    ///
    /// ```
    /// use unisono::Settings;
    ///
    /// let settings = Settings::from_variables([("UNISONO_DEVICE".into(), "udp".into())])?;
    /// assert_eq!(settings.transport.device.to_string(), "udp");
    /// assert!(Settings::from_variables([("UNISONO_DEVISE".into(), "udp".into())]).is_err());
    /// # Ok::<(), unisono::SettingsError>(())
    /// ```
    pub fn from_variables(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, SettingsError> {
        let mut reading = SettingsReader::default();
        for (name, value) in variables {
            if name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                reading.read_variable(&name, &value)?;
            }
        }
        reading.finish()
    }

    /// The variables, without prefix, that give another process these settings.
    ///
    /// ```
    /// let variables = unisono::Settings::default().variables();
    /// assert!(variables.contains(&("DEVICE", "auto".to_owned())));
    /// ```
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let Self {
            position,
            bootstrap,
            serve,
            secret,
            job,
            locality,
            transport,
            tuning,
            launcher: launching,
            join_timeout: assembly,
            stats,
            stats_file,
        } = self;
        let faults = &transport.faults;
        let injected = !faults.is_none();
        let probability = |value: f64| injected.then(|| value.to_string());
        let text = |name, value: &dyn fmt::Display| Some((name, value.to_string()));
        [
            position.and_then(|position| text("RANK", &position.rank)),
            position.and_then(|position| text("SIZE", &position.size)),
            bootstrap.as_ref().and_then(|place| text("BOOTSTRAP", place)),
            serve.and_then(|switch| text("SERVE", &switch)),
            secret.as_ref().and_then(|secret| text("SECRET", &secret.expose())),
            if job.0.is_empty() { None } else { text("JOB", job) },
            locality.node.and_then(|node| text("NODE", &node)),
            locality.rank.and_then(|rank| text("LOCAL_RANK", &rank)),
            locality.size.and_then(|size| text("LOCAL_SIZE", &size)),
            locality.segment.and_then(|segment| text("SEGMENT", &segment)),
            if locality.location == Location::default() { None } else { text("LOCATION", &locality.location) },
            text("DEVICE", &transport.device),
            text("PROGRESS", &transport.progress),
            transport.mtu.and_then(|mtu| text("MTU", &mtu)),
            transport.gso.and_then(|switch| text("GSO", &switch)),
            if transport.rails.is_default() { None } else { text("RAILS", &transport.rails) },
            transport.rails_max.and_then(|most| text("RAILS_MAX", &most)),
            transport.integrity.and_then(|integrity| text("INTEGRITY", &integrity)),
            transport.queues.and_then(|queues| text("QUEUES", &queues)),
            transport.rc_limit.and_then(|limit| text("RC_LIMIT", &limit)),
            transport.eager_pool.and_then(|pool| text("EAGER_POOL", &pool)),
            probability(faults.loss.value()).map(|value| ("LOSS", value)),
            probability(faults.reorder.value()).map(|value| ("REORDER", value)),
            probability(faults.duplicate.value()).map(|value| ("DUP", value)),
            probability(faults.corrupt.value()).map(|value| ("CORRUPT", value)),
            faults.cut.and_then(|cut| text("CUT", &cut)),
            if faults.seed == 0 { None } else { text("SEED", &faults.seed) },
            text("ON_DEATH", &transport.on_death),
            transport.silence.and_then(|silence| text("SILENCE", &silence)),
            transport.watchdog.and_then(|watchdog| text("WATCHDOG", &watchdog)),
            transport.stuck.and_then(|stuck| text("STUCK", &stuck)),
            transport.unreachable.and_then(|unreachable| text("UNREACHABLE", &unreachable)),
            transport.check.and_then(|check| text("CHECK", &check)),
            if transport.multicast == MulticastChoice::Auto { None } else { text("MULTICAST", &transport.multicast) },
            if transport.groups == GroupsChoice::Lazy { None } else { text("GROUPS", &transport.groups) },
            if transport.multicast_acks == AcksChoice::Basic {
                None
            } else {
                text("MULTICAST_ACKS", &transport.multicast_acks)
            },
            transport.attach.and_then(|threshold| text("ATTACH", &threshold)),
            launching.pin.and_then(|switch| text("PIN", &switch)),
            launching.tag_output.and_then(|switch| text("TAG_OUTPUT", &switch)),
            launching.rsh.as_ref().and_then(|rsh| text("RSH", rsh)),
            launching.kill_timeout.and_then(|grace| text("GRACE", &grace)),
            launching.ranks.and_then(|ranks| text("RANKS", &ranks)),
            launching.mpi.and_then(|switch| text("MPI", &switch)),
            launching.nodes.and_then(|nodes| text("NODES", &nodes)),
            launching.units.switches.and_then(|switches| text("SWITCHES", &switches)),
            launching.units.sockets.and_then(|sockets| text("SOCKETS", &sockets)),
            launching.units.caches.and_then(|caches| text("CACHES", &caches)),
            launching.hosts.as_ref().and_then(|hosts| text("HOSTS", hosts)),
            launching.bare_metal.and_then(|ranks| text("BARE_METAL", &ranks)),
            launching.image.as_ref().and_then(|image| text("IMAGE", &image.display())),
            launching.emulator.as_ref().and_then(|emulator| text("EMULATOR", emulator)),
            assembly.and_then(|assembly| text("ASSEMBLY", &assembly)),
            stats.and_then(|switch| text("STATS", &switch)),
            stats_file.as_ref().and_then(|file| text("STATS_FILE", &file.display())),
        ]
        .into_iter()
        .flatten()
        .chain(tuning.variables())
        .collect()
    }

    /// How this process joins its job.
    ///
    /// ```
    /// let alone = unisono::Settings::default().join_options()?;
    /// assert_eq!(alone.position.size, 1);
    /// # Ok::<(), unisono::SettingsError>(())
    /// ```
    ///
    /// # Errors
    /// There is a rendezvous server, but no secret.
    pub fn join_options(&self) -> Result<JoinOptions, SettingsError> {
        let rendezvous = |place: &HostPort| {
            let missing = SettingsError::Missing { name: VariableName("BOOTSTRAP"), needs: VariableName("SECRET") };
            Ok(Rendezvous {
                place: place.clone(),
                secret: self.secret.clone().ok_or(missing)?,
                job: self.job.as_str().to_owned(),
                serve: self.serve != Some(Switch::Off),
                on_death: self.transport.on_death,
            })
        };
        Ok(JoinOptions {
            position: self.position.unwrap_or(JobPosition { rank: Rank(0), size: 1 }),
            node: self.locality.node,
            rendezvous: self.bootstrap.as_ref().map(rendezvous).transpose()?,
            assembly: self.join_timeout(),
        })
    }

    /// Where this process runs: the units that are given, and, if collectives are composed over them, those that the
    /// system reports.
    ///
    /// ```
    /// use unisono::Settings;
    ///
    /// let settings = Settings::from_variables([("UNISONO_LOCATION".into(), "switch=3".into())])?;
    /// assert_eq!(settings.location().switch, Some(3));
    /// # Ok::<(), unisono::SettingsError>(())
    /// ```
    pub fn location(&self) -> Location {
        let given = self.locality.location;
        if self.tuning.hierarchy().needs_processors() { given.or(own_location()) } else { given }
    }

    /// Digests of the settings that must be equal on all ranks.
    ///
    /// ```
    /// use unisono::Settings;
    ///
    /// let other = Settings::from_variables([("UNISONO_DEVICE".into(), "udp".into())])?;
    /// assert!(other.digests() != Settings::default().digests());
    /// # Ok::<(), unisono::SettingsError>(())
    /// ```
    pub fn digests(&self) -> Digests {
        let tuning = fnv(FNV_OFFSET, &self.tuning.digest().to_string());
        // The table of a job depends on the processors.
        let tuning = if self.tuning.has_table() { fnv(tuning, &processors().to_string()) } else { tuning };
        let TransportSettings { device, progress, silence, grant, multicast, groups, multicast_acks, .. } =
            &self.transport;
        let silence = silence.map(|silence| silence.to_string()).unwrap_or_default();
        let grant = grant.map(|grant| grant.to_string()).unwrap_or_default();
        let (multicast, check) = (multicast.to_string(), if self.transport.checks_types() { "check" } else { "" });
        let transport = [
            env!("CARGO_PKG_VERSION"),
            &device.to_string(),
            &progress.to_string(),
            &silence,
            &grant,
            &multicast,
            &groups.to_string(),
            &multicast_acks.to_string(),
            check,
        ];
        Digests { tuning, transport: transport.into_iter().fold(FNV_OFFSET, fnv) }
    }

    /// The join timeout: one minute by default.
    ///
    /// ```
    /// assert_eq!(unisono::Settings::default().join_timeout().as_secs(), 60);
    /// ```
    pub fn join_timeout(&self) -> Duration {
        self.join_timeout.map_or(Duration::from_secs(60), BoundedDuration::duration)
    }
}

/// A job's name: up to 64 alphanumeric characters, `.`, `_` and `-`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct JobName(String);

impl JobName {
    /// As text; empty for a job without a name.
    ///
    /// ```
    /// assert_eq!("night-run".parse::<unisono::environment::JobName>()?.as_str(), "night-run");
    /// # Ok::<(), unisono::environment::JobNameError>(())
    /// ```
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JobName {
    type Err = JobNameError;

    fn from_str(text: &str) -> Result<Self, JobNameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let good = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
        if good { Ok(Self(text.to_owned())) } else { Err(JobNameError) }
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The text is not a job name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a name of 1 to 64 alphanumeric characters, `.`, `_` and `-`")]
pub struct JobNameError;

/// The name of a variable. Its text, also as an error of `main` shows it, is the whole name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VariableName(
    /// The name without prefix.
    pub &'static str,
);

impl fmt::Display for VariableName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{PREFIX}{}", self.0)
    }
}

impl fmt::Debug for VariableName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

/// Why the settings cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// A `UNISONO_*` variable that does not exist.
    #[error("{name} is not a setting of unisono{}", like.map(|like| format!("; did you mean {like}?")).unwrap_or_default())]
    Unknown {
        /// The whole name.
        name: String,
        /// A similar name that exists.
        like: Option<VariableName>,
    },
    /// A value that is not valid for its setting.
    #[error("{name}={value}: {reason}")]
    Invalid {
        /// The setting.
        name: VariableName,
        /// Its value.
        value: String,
        /// The expected values.
        reason: String,
    },
    /// The secret cannot be used. Its value is not shown.
    #[error("{name}: {reason}")]
    Secret {
        /// `SECRET` or `SECRET_FILE`.
        name: VariableName,
        /// The error.
        reason: SecretError,
    },
    /// A setting that needs another one, which is not set.
    #[error("{name} needs {needs}, which is not set")]
    Missing {
        /// The setting.
        name: VariableName,
        /// The setting that it needs.
        needs: VariableName,
    },
    /// Two settings that exclude each other.
    #[error("{name} and {other} cannot both be set")]
    Conflict {
        /// One of the two.
        name: VariableName,
        /// The other.
        other: VariableName,
    },
}

#[derive(Default)]
struct SettingsReader {
    settings: Settings,
    rank: Option<u32>,
    size: Option<u32>,
    secret_file: Option<OsString>,
}

impl SettingsReader {
    /// Variables that launchers set for ranks: not suggested for mistyped names, since users do not set them.
    const SET_BY_LAUNCHERS: [&str; 6] = ["SERVE", "NODE", "LOCAL_RANK", "LOCAL_SIZE", "SEGMENT", "SHARING"];

    fn read_variable(&mut self, whole: &OsStr, value: &OsStr) -> Result<(), SettingsError> {
        let unknown = || {
            let whole = whole.to_string_lossy();
            let given = whole.strip_prefix(PREFIX).unwrap_or(&whole);
            let is_similar =
                |name: &&str| !Self::SET_BY_LAUNCHERS.contains(name) && strsim::damerau_levenshtein(given, name) <= 2;
            let like = names().filter(is_similar).min_by_key(|name| strsim::damerau_levenshtein(given, name));
            SettingsError::Unknown { name: whole.clone().into_owned(), like: like.map(VariableName) }
        };
        let given = whole.to_str().and_then(|name| name.strip_prefix(PREFIX)).ok_or_else(unknown)?;
        let name = names().find(|name| *name == given).ok_or_else(unknown)?;
        if name == "SECRET_FILE" {
            self.secret_file = Some(value.to_owned());
            return Ok(());
        }
        let invalid = |reason: &dyn fmt::Display| SettingsError::Invalid {
            name: VariableName(name),
            value: if name == "SECRET" { "…".to_owned() } else { value.to_string_lossy().into_owned() },
            reason: reason.to_string(),
        };
        let value = value.to_str().ok_or_else(|| invalid(&"expected UTF-8 text"))?;
        let Settings {
            bootstrap,
            serve,
            secret,
            job,
            locality,
            transport,
            tuning,
            launcher: launching,
            join_timeout: assembly,
            stats,
            stats_file,
            ..
        } = &mut self.settings;
        let faults = &mut transport.faults;
        let refused = match name {
            "RANK" => store(&mut self.rank, value),
            "SIZE" => store(&mut self.size, value),
            "BOOTSTRAP" => store(bootstrap, value),
            "SERVE" => store(serve, value),
            "SECRET" => {
                let read =
                    Secret::new(value).map_err(|reason| SettingsError::Secret { name: VariableName(name), reason })?;
                *secret = Some(read);
                None
            }
            "JOB" => replace(job, value),
            "NODE" => store(&mut locality.node, value),
            "LOCAL_RANK" => store(&mut locality.rank, value),
            "LOCAL_SIZE" => store(&mut locality.size, value),
            "SEGMENT" => store(&mut locality.segment, value),
            "LOCATION" => replace(&mut locality.location, value),
            "DEVICE" => replace(&mut transport.device, value),
            "PROGRESS" => replace(&mut transport.progress, value),
            "MTU" => store(&mut transport.mtu, value),
            "GSO" => store(&mut transport.gso, value),
            "RAILS" => replace(&mut transport.rails, value),
            "RAILS_MAX" => store(&mut transport.rails_max, value),
            "INTEGRITY" => store(&mut transport.integrity, value),
            "QUEUES" => store(&mut transport.queues, value),
            "RC_LIMIT" => match value.parse() {
                Ok(limit @ ..=RC_LIMIT_MAX) => {
                    transport.rc_limit = Some(limit);
                    None
                }
                _ => Some(format!("expected a number of connections from 0 to {RC_LIMIT_MAX}")),
            },
            "EAGER_POOL" => store(&mut transport.eager_pool, value),
            "LOSS" => replace(&mut faults.loss, value),
            "REORDER" => replace(&mut faults.reorder, value),
            "DUP" => replace(&mut faults.duplicate, value),
            "CORRUPT" => replace(&mut faults.corrupt, value),
            "CUT" => store(&mut faults.cut, value),
            "SEED" => replace(&mut faults.seed, value),
            "ON_DEATH" => replace(&mut transport.on_death, value),
            "SILENCE" => store(&mut transport.silence, value),
            "WATCHDOG" => store(&mut transport.watchdog, value),
            "STUCK" => store(&mut transport.stuck, value),
            "UNREACHABLE" => store(&mut transport.unreachable, value),
            "CHECK" => store(&mut transport.check, value),
            "MULTICAST" => replace(&mut transport.multicast, value),
            "GROUPS" => replace(&mut transport.groups, value),
            "MULTICAST_ACKS" => replace(&mut transport.multicast_acks, value),
            "ATTACH" => store(&mut transport.attach, value),
            "PIN" => store(&mut launching.pin, value),
            "TAG_OUTPUT" => store(&mut launching.tag_output, value),
            "RSH" => store(&mut launching.rsh, value),
            "GRACE" => store(&mut launching.kill_timeout, value),
            "RANKS" => store(&mut launching.ranks, value),
            "MPI" => store(&mut launching.mpi, value),
            "NODES" => store(&mut launching.nodes, value),
            "SWITCHES" => store(&mut launching.units.switches, value),
            "SOCKETS" => store(&mut launching.units.sockets, value),
            "CACHES" => store(&mut launching.units.caches, value),
            "HOSTS" => store(&mut launching.hosts, value),
            "BARE_METAL" => store(&mut launching.bare_metal, value),
            "IMAGE" => store(&mut launching.image, value),
            "EMULATOR" => store(&mut launching.emulator, value),
            "ASSEMBLY" => store(assembly, value),
            "STATS" => store(stats, value),
            "STATS_FILE" => store(stats_file, value),
            "SHARING" => match value.parse() {
                Ok(ranks @ 1..) => {
                    tuning.set_sharing(ranks);
                    None
                }
                _ => Some("expected a number of ranks from 1 to 65535".to_owned()),
            },
            "LINK_SPEED" => match value.parse() {
                Ok(speed) => {
                    tuning.set_link_speed(speed);
                    None
                }
                Err(reason) => Some(LinkSpeedError::to_string(&reason)),
            },
            "HIERARCHY" => match value.parse() {
                Ok(choice) => {
                    tuning.set_hierarchy(choice);
                    None
                }
                Err(reason) => Some(HierarchyError::to_string(&reason)),
            },
            "LEADERS" => match value.parse() {
                Ok(choice) => {
                    tuning.set_leaders(choice);
                    None
                }
                Err(reason) => Some(ChoiceError::to_string(&reason)),
            },
            "PARTS" => match value.parse() {
                Ok(choice) => {
                    tuning.set_parts(choice);
                    None
                }
                Err(reason) => Some(ChoiceError::to_string(&reason)),
            },
            "TUNING" => tuning.load_table(value).err().map(|reason| reason.to_string()),
            // Read when logging is initialized.
            "LOG" => None,
            _ => match tuning::collective_of(name).map(|verb| Override::new(verb, value)) {
                Some(Ok(wanted)) => {
                    tuning.set(wanted);
                    None
                }
                Some(Err(reason)) => Some(reason.to_string()),
                None => None,
            },
        };
        refused.map_or(Ok(()), |reason| Err(invalid(&reason)))
    }

    fn finish(self) -> Result<Settings, SettingsError> {
        let Self { mut settings, rank, size, secret_file } = self;
        settings.position = match (rank, size) {
            (None, None) => None,
            (Some(_), None) => {
                return Err(SettingsError::Missing { name: VariableName("RANK"), needs: VariableName("SIZE") });
            }
            (None, Some(_)) => {
                return Err(SettingsError::Missing { name: VariableName("SIZE"), needs: VariableName("RANK") });
            }
            (Some(rank), Some(size)) => Some(job_position(rank, size)?),
        };
        if let Some(path) = secret_file {
            if settings.secret.is_some() {
                return Err(SettingsError::Conflict {
                    name: VariableName("SECRET"),
                    other: VariableName("SECRET_FILE"),
                });
            }
            let read = Secret::read(Path::new(&path));
            settings.secret =
                Some(read.map_err(|reason| SettingsError::Secret { name: VariableName("SECRET_FILE"), reason })?);
        }
        if settings.position.is_some_and(|position| position.size > 1) && settings.bootstrap.is_none() {
            return Err(SettingsError::Missing { name: VariableName("SIZE"), needs: VariableName("BOOTSTRAP") });
        }
        if settings.bootstrap.is_some() && settings.secret.is_none() {
            return Err(SettingsError::Missing { name: VariableName("BOOTSTRAP"), needs: VariableName("SECRET") });
        }
        if settings.launcher.hosts.is_some() && settings.launcher.nodes.is_some() {
            return Err(SettingsError::Conflict { name: VariableName("HOSTS"), other: VariableName("NODES") });
        }
        settings.transport.check()?;
        Ok(settings)
    }
}

/// The names of all variables.
fn names() -> impl Iterator<Item = &'static str> {
    catalogue::VARIABLES.iter().map(|variable| variable.name)
}

fn job_position(rank: u32, size: u32) -> Result<JobPosition, SettingsError> {
    if !(1..=SIZE_MAX).contains(&size) {
        let reason = format!("expected 1 to {SIZE_MAX} ranks");
        return Err(SettingsError::Invalid { name: VariableName("SIZE"), value: size.to_string(), reason });
    }
    let refused = || {
        let reason = format!("expected a rank below {PREFIX}SIZE={size}");
        SettingsError::Invalid { name: VariableName("RANK"), value: rank.to_string(), reason }
    };
    JobPosition::new(Rank(rank), size).ok_or_else(refused)
}

/// Parses the value into `to`. Returns the error message if it is not valid.
fn replace<T: FromStr<Err: fmt::Display>>(to: &mut T, value: &str) -> Option<String> {
    match value.parse() {
        Ok(parsed) => {
            *to = parsed;
            None
        }
        Err(reason) => Some(reason.to_string()),
    }
}

fn store<T: FromStr<Err: fmt::Display>>(to: &mut Option<T>, value: &str) -> Option<String> {
    match value.parse() {
        Ok(parsed) => {
            *to = Some(parsed);
            None
        }
        Err(reason) => Some(reason.to_string()),
    }
}

#[cfg(test)]
mod tests;
