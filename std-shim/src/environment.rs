//! The settings of a process of a job, or of the launcher, from `UNISONO_*` variables: the same names and values as the
//! command-line options. An unknown name is an error, so that a mistyped variable is not silently ignored.

mod acks;
pub mod catalogue;
mod choice;
mod duration;
mod eager_pool;
mod error;
mod group_means;
mod groups;
pub mod hierarchy;
mod host_list;
mod job_name;
mod launcher_settings;
mod link_speed;
mod location;
mod multicast;
mod rails;
mod reader;
mod transport_settings;
pub mod tuning;

pub use acks::{AcksChoice, AcksChoiceError};
pub use choice::{
    ChoiceError, DeviceChoice, GroupMeans, InheritedSegment, InheritedSegmentError, Integrity, LeaderChoice,
    LeaderMeans, Mtu, MtuError, PartsChoice, Progress, QueuesChoice, SubgroupRule, Switch,
};
pub use duration::{
    AttachThreshold, BoundedDuration, DurationError, JoinTimeout, KillTimeout, SilenceTimeout, StuckTimeout,
    UnreachableTimeout, WatchdogTimeout,
};
pub use eager_pool::{EagerPool, EagerPoolError};
pub use error::{SettingsError, VariableName};
pub use groups::{GroupsChoice, GroupsChoiceError};
pub use hierarchy::{HierarchyChoice, HierarchyError, Nested, RankLocation, SubgroupChoice, Subgroups};
pub use host_list::{HostList, HostListError};
pub use job_name::{JobName, JobNameError};
pub use launcher_settings::LauncherSettings;
pub use link_speed::{LinkSpeed, LinkSpeedError};
pub use location::{Location, LocationError, UnitCounts, own_location};
pub use multicast::{GroupBase, InterfaceName, MulticastChoice, MulticastChoiceError};
pub use rails::{RailPlace, RailPlaceError, RailsChoice, RailsChoiceError, RailsMax, RailsMaxError};
pub use transport_settings::{RC_LIMIT_MAX, TransportSettings};
pub use tuning::{Override, OverrideError, Tuning};
pub use unisono_bootstrap::{HostPort, HostPortError, OnDeath, OnDeathError, Secret, SecretError};
pub use unisono_bootstrap::{JobPosition, SIZE_MAX};

use crate::node::processors;
use core::{fmt, time::Duration};
use reader::SettingsReader;
use std::{env, ffi::OsString, path::PathBuf};
use unisono_bootstrap::{Digests, JoinOptions, Rank, Rendezvous};

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
            if job.as_str().is_empty() { None } else { text("JOB", job) },
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

/// The offset basis of FNV-1a (Fowler, Noll, Vo), 32 bits.
const FNV_OFFSET: u32 = 0x811c_9dc5;

/// FNV-1a: continues the hash `before` with a text and a terminating zero byte.
fn fnv(before: u32, text: &str) -> u32 {
    text.bytes().chain([0]).fold(before, |digest, byte| (digest ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
