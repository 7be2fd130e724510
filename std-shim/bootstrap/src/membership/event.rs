//! Events about other processes of the job that the rendezvous server reports.

use crate::{
    peer_record::{Ending, Incarnation, PeerRecord},
    rank::Rank,
    stream::ConnectionError,
};
use core::{net::SocketAddr, time::Duration};

/// An event about another process, or about the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MembershipEvent {
    /// A rank has failed.
    Failed {
        /// The rank.
        rank: Rank,
        /// The failed incarnation.
        incarnation: Incarnation,
        /// How it ended.
        ending: Ending,
    },
    /// A rank has joined with a new incarnation. The table already holds its new record.
    Joined {
        /// The rank.
        rank: Rank,
        /// Its new record.
        entry: PeerRecord,
    },
    /// The answer to [`Membership::query_liveness`](super::Membership::query_liveness).
    Liveness {
        /// The queried rank.
        rank: Rank,
        /// Its state.
        liveness: Liveness,
    },
    /// A rank aborted the job, or its failure ends the job: this process should exit.
    Aborted {
        /// The rank.
        rank: Rank,
        /// The exit code of the job.
        code: i32,
    },
    /// This process is to report its waits again, with this number
    /// ([`Membership::report_waits`](super::Membership::report_waits)).
    ConfirmWaits(u32),
    /// A rank queries for how long this process has made progress
    /// ([`Membership::answer_polling`](super::Membership::answer_polling)).
    PollingQuery {
        /// The rank.
        asker: Rank,
    },
    /// The answer to [`Membership::query_polling`](super::Membership::query_polling).
    Polling {
        /// The queried rank.
        rank: Rank,
        /// For how long it has made progress without a pause, until it answered.
        duration: Duration,
    },
    /// A rank has opened a further rail. The table already holds it.
    Rail {
        /// The rank.
        rank: Rank,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The rail, from 1.
        rail: u8,
        /// The addresses of its polled and its interrupt queue there.
        lanes: [SocketAddr; 2],
    },
    /// The connection to the rendezvous server is lost: there will be no further event, and a process that a launcher
    /// started should exit.
    Disconnected(ConnectionError),
}

/// The answer of an agent or the server to a liveness query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Liveness {
    /// The process is running, responsive or not.
    Alive,
    /// The process has ended.
    Dead,
    /// No answer within [`AGENT_SILENCE`](super::AGENT_SILENCE): treat the process as failed.
    Unanswered,
}
