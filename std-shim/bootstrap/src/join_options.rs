//! Which job a process joins, and why it could not.

use crate::auth::Secret;
use crate::host_port::HostPort;
use crate::message::Refusal;
use crate::on_death::OnDeath;
use crate::rank::{JobPosition, Rank};
use crate::stream::ConnectionError;
use core::time::Duration;
use std::io;

/// Which job a process joins, and as which of its ranks.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Which process this is.
    pub seat: JobPosition,
    /// The number of its node, if a launcher numbers the nodes.
    pub node: Option<u32>,
    /// The rendezvous server. `None`: a job of this process alone.
    pub rendezvous: Option<Rendezvous>,
    /// Time that the job has to assemble.
    pub assembly: Duration,
}

/// The rendezvous server of a job.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// Where it listens.
    pub place: HostPort,
    /// The job's key.
    pub secret: Secret,
    /// The job's name, empty if it has none.
    pub job: String,
    /// Whether rank 0 runs the server, since no launcher does.
    pub serve: bool,
    /// What rank 0 then does when a rank dies.
    pub on_death: OnDeath,
}

/// Why a process could not join its job.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// The rendezvous server's name cannot be resolved.
    #[error("{place} cannot be resolved: {reason}")]
    Resolve {
        /// Its name.
        place: HostPort,
        /// Why.
        reason: io::ErrorKind,
    },
    /// Rank 0 cannot serve there.
    #[error("rank 0 cannot listen at {place}: {reason}")]
    Listen {
        /// Where.
        place: HostPort,
        /// Why.
        reason: io::ErrorKind,
    },
    /// The rendezvous server could not be reached, or is not ours.
    #[error("the rendezvous server at {place}: {reason}")]
    Connect {
        /// Where.
        place: HostPort,
        /// Why, at the last attempt.
        reason: ConnectionError,
    },
    /// The server refused this process.
    #[error("the rendezvous server refuses rank {rank}: {refusal}")]
    Refused {
        /// This process.
        rank: Rank,
        /// Why.
        refusal: Refusal,
    },
    /// Another rank asked for the end of the job meanwhile.
    #[error("rank {rank} ended the job with code {code}")]
    Aborted {
        /// Who.
        rank: Rank,
        /// With which exit code.
        code: i32,
    },
}
