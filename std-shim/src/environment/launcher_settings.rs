//! The settings that only the launcher reads.

use super::{HostList, KillTimeout, Switch, UnitCounts};
use std::path::PathBuf;

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
