//! Settings from the variables of an environment.

use super::{
    ChoiceError, HierarchyError, JobPosition, LinkSpeedError, Override, PREFIX, RC_LIMIT_MAX, SIZE_MAX, Secret,
    Settings, SettingsError, VariableName, catalogue, tuning,
};
use core::{fmt, str::FromStr};
use std::{
    ffi::{OsStr, OsString},
    path::Path,
};
use unisono_bootstrap::Rank;

/// Reads variables one by one.
#[derive(Default)]
pub(super) struct SettingsReader {
    settings: Settings,
    rank: Option<u32>,
    size: Option<u32>,
    secret_file: Option<OsString>,
}

impl SettingsReader {
    /// Variables that launchers set for ranks: not suggested for mistyped names, since users do not set them.
    const SET_BY_LAUNCHERS: [&str; 6] = ["SERVE", "NODE", "LOCAL_RANK", "LOCAL_SIZE", "SEGMENT", "SHARING"];

    pub(super) fn read_variable(&mut self, whole: &OsStr, value: &OsStr) -> Result<(), SettingsError> {
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

    /// What they say together.
    pub(super) fn finish(self) -> Result<Settings, SettingsError> {
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
