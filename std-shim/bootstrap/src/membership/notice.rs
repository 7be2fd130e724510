//! What a process hears of others.

use crate::{
    entry::{Ending, Entry, Incarnation},
    link::LinkError,
    rank::Rank,
};

/// What happened to another process, or to the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A life of a rank is over.
    Died {
        /// The rank.
        rank: Rank,
        /// The life.
        incarnation: Incarnation,
        /// How.
        ending: Ending,
    },
    /// A rank has a new life. The table has its new line already.
    Met {
        /// The rank.
        rank: Rank,
        /// Its new line.
        entry: Entry,
    },
    /// The answer to [`Membership::ask`](super::Membership::ask).
    Liveness {
        /// The rank that was asked about.
        rank: Rank,
        /// What is known.
        liveness: Liveness,
    },
    /// A rank asked for the end of the job, or its death is to end the job: this process should end.
    Aborted {
        /// The rank.
        rank: Rank,
        /// The exit code to end with.
        code: i32,
    },
    /// The connection to the rendezvous server is gone: there will be no further notice, and a process that a launcher
    /// started should end.
    Lost(LinkError),
}

/// What an agent knows of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Liveness {
    /// Its process runs, whatever it computes.
    Alive,
    /// Its process is gone.
    Dead,
    /// Nobody answered within [`AGENT_SILENCE`](super::AGENT_SILENCE): to be taken for dead.
    Unanswered,
}
