//! The job that a process joins, and the errors of joining.

use crate::auth::Secret;
use crate::host_port::HostPort;
use crate::message::Refusal;
use crate::on_death::OnDeath;
use crate::rank::{JobPosition, Rank};
use crate::stream::ConnectionError;
use core::time::Duration;
use std::io;

/// The job that a process joins, and the process's rank.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The rank of this process and the size of its job.
    pub position: JobPosition,
    /// The number of its node, if a launcher numbers the nodes.
    pub node: Option<u32>,
    /// The rendezvous server. `None`: a job of this process alone.
    pub rendezvous: Option<Rendezvous>,
    /// Join timeout: time from the first rank to the last.
    pub assembly: Duration,
}

/// The rendezvous server of a job.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// The address it listens at.
    pub place: HostPort,
    /// The job's secret.
    pub secret: Secret,
    /// The job's name, empty if it has none.
    pub job: String,
    /// Whether rank 0 runs the server, since no launcher does.
    pub serve: bool,
    /// The policy when a rank fails, if rank 0 runs the server.
    pub on_death: OnDeath,
}

/// Why a process could not join its job.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// The rendezvous server's name cannot be resolved.
    #[error("the rendezvous server's address {place} cannot be resolved ({reason}): check UNISONO_BOOTSTRAP")]
    Resolve {
        /// The address.
        place: HostPort,
        /// Why.
        reason: io::ErrorKind,
    },
    /// Rank 0 cannot listen at the address.
    #[error("rank 0 cannot listen at {place} for the rendezvous ({reason}): check UNISONO_BOOTSTRAP")]
    Listen {
        /// The address.
        place: HostPort,
        /// Why.
        reason: io::ErrorKind,
    },
    /// The rendezvous server could not be reached, or is of another job.
    #[error("cannot join through the rendezvous server at {place}: {reason}")]
    Connect {
        /// The address.
        place: HostPort,
        /// The error of the last attempt.
        reason: ConnectionError,
    },
    /// The server refused this process.
    #[error("rank {rank} may not join the job: {refusal}")]
    Refused {
        /// This process.
        rank: Rank,
        /// Why.
        refusal: Refusal,
    },
    /// Another rank aborted the job meanwhile.
    #[error("rank {rank} aborted the job with exit code {code}")]
    Aborted {
        /// The rank that aborted.
        rank: Rank,
        /// The exit code of the job.
        code: i32,
    },
}
