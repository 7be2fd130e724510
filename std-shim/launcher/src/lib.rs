//! The launcher: starts the processes of a job here and on other hosts, and sees them to their end.
//!
//! The launching process runs the rendezvous server and is the agent of its own host. On every other host the remote
//! shell starts an agent (`unisono agent`), which gets its order with the job's secret on its standard input and
//! connects back. Whatever dies, its children do not survive it: processes are bound to who started them, agents to
//! their connection.

extern crate alloc;

mod affinity;
pub mod agent;
pub mod bare_metal;
mod crew;
mod job;
mod layout;
mod order;
mod output;
mod remote;
mod rendezvous;
mod segments;
mod verdict;
mod watch;

pub use bare_metal::BareMetal;
pub use job::{Job, LaunchError};
pub use layout::{Berth, Layout, LayoutError};
pub use watch::run;
