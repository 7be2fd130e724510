//! The launcher: starts the processes of a job on this host and on others, forwards signals and output, and collects
//! their exit codes.
//!
//! The launching process runs the rendezvous server and acts as the agent of its own host. On every other host the
//! remote shell starts an agent (`unisono agent`), which reads its launch specification, with the job's secret, from
//! its standard input and connects back. No child outlives its parent: processes are killed with the process that
//! started them, and agents end with their connection.

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
