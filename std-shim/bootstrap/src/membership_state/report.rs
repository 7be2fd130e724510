//! The outputs of the job's state: effects for the server loop, and reports for the owner of the server.

use super::ConnectionId;
use crate::{message::ServerMessage, peer_record::Ending, rank::Rank};

/// An event for the owner of the server (the launcher, or rank 0).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerReport {
    /// Every rank has joined.
    AllJoined,
    /// A rank that had joined has failed.
    Failed {
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
    AgentConnected(u32),
    /// A node's agent is lost, and its ranks with it.
    AgentLost(u32),
    /// An agent started a rank.
    Started {
        /// The rank.
        rank: Rank,
        /// Its process ID on that node.
        pid: u32,
    },
    /// The process of a rank ended, or did not start.
    Ended {
        /// The rank.
        rank: Rank,
        /// How it ended.
        ending: Ending,
        /// Its part in the job until then.
        participation: Participation,
        /// Why it did not start; empty if it did.
        reason: String,
    },
    /// A rank left the job without finishing it.
    Left(Rank),
    /// An operation of a rank failed because of another rank.
    Cause {
        /// The rank whose operation failed.
        rank: Rank,
        /// The rank that its error names.
        cause: Rank,
    },
    /// Every rank has finished or failed.
    Finished,
}

/// The part that a process had in its job when it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Participation {
    /// It had not joined.
    None,
    /// It had joined, and neither finished nor left.
    Unfinished,
    /// It had finished or left.
    Over,
}

/// An effect for the server loop to carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Send a message to one connection.
    Send(ConnectionId, ServerMessage),
    /// Send a message to every rank that has joined.
    Broadcast(ServerMessage),
    /// Send the whole table.
    SendTable(ConnectionId),
    /// Close a connection after its queued messages are sent.
    Close(ConnectionId),
    /// Report an event to the owner.
    Report(ServerReport),
}
