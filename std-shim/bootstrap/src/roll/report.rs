//! The outputs of the job's state: effects for the server loop, and reports for the owner of the server.

use super::LinkId;
use crate::{entry::Ending, message::Tell, rank::Rank};

/// An event for the owner of the server (the launcher, or rank 0).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// Every rank has joined.
    Assembled,
    /// A rank that had joined has failed.
    Died {
        /// The rank.
        rank: Rank,
        /// How it ended.
        ending: Ending,
    },
    /// A rank aborted the job.
    Aborted {
        /// The rank.
        rank: Rank,
        /// The exit code of the job.
        code: i32,
    },
    /// A node's agent is connected.
    AgentHere(u32),
    /// A node's agent is lost, and its ranks with it.
    AgentLost(u32),
    /// An agent started a rank.
    Started {
        /// The rank.
        rank: Rank,
        /// Its process ID on that node.
        pid: u32,
    },
    /// An agent's rank ended.
    Ended {
        /// The rank.
        rank: Rank,
        /// How it ended.
        ending: Ending,
        /// Why it did not start; empty if it did.
        reason: String,
    },
    /// Every rank has finished or failed.
    Finished,
}

/// An effect for the server loop to carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Send a message to one connection.
    Tell(LinkId, Tell),
    /// Send a message to every rank that has joined.
    TellAll(Tell),
    /// Send the whole table.
    SendTable(LinkId),
    /// Close a connection after its queued messages are sent.
    Close(LinkId),
    /// Report an event to the owner.
    Report(Report),
}
