//! The launcher: starts the processes of a job here and on other hosts, and sees them to their end.
//!
//! The launching process runs the rendezvous server and is the agent of its own host. On every other host the remote
//! shell starts an agent (`unisono agent`), which gets its order with the job's secret on its standard input and
//! connects back. Whatever dies, its children do not survive it: processes are bound to who started them, agents to
//! their connection.

mod affinity;
pub mod agent;
mod crew;
mod layout;
mod order;
mod output;
mod remote;
mod verdict;
mod watch;

pub use layout::{Berth, HostList, HostListError, Layout, LayoutError};
pub use watch::{LaunchError, run};

use crate::{
    environment::{PREFIX, Settings},
    rank::Rank,
};
use core::time::Duration;
use std::ffi::OsString;

/// Time between SIGTERM and SIGKILL unless said otherwise.
const GRACE: Duration = Duration::from_secs(2);

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, looked for as the shell does. `unisono` stands for this program if there is no other.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Which rank runs where.
    pub layout: Layout,
    /// What the ranks are told, and how they are launched.
    pub settings: Settings,
}

/// What begins every line of a rank.
fn mark(rank: Rank) -> String {
    format!("[{rank}] ")
}

/// The settings that one process gets, with their whole names.
fn variables(settings: &Settings) -> Vec<(String, String)> {
    settings.variables().into_iter().map(|(name, value)| (format!("{PREFIX}{name}"), value)).collect()
}
