//! The launcher: starts the processes of a job here and on other hosts, and sees them to their end.
//!
//! The launching process runs the rendezvous server and is the agent of its own host. On every other host the remote
//! shell starts an agent (`unisono agent`), which gets its order with the job's secret on its standard input and
//! connects back. Whatever dies, its children do not survive it: processes are bound to who started them, agents to
//! their connection.

extern crate alloc;

mod affinity;
pub mod agent;
mod event_loop;
mod exit_policy;
mod job;
mod launch_spec;
mod local_processes;
mod output;
mod placement;
pub mod proxy;
mod remote_agent;
mod rendezvous;
mod shm_setup;

pub use event_loop::run;
pub use job::{Job, LaunchError};
pub use placement::{JobPlacement, PlacementError, RankPlacement};
pub use proxy::BareMetalRanks;
