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
    /// These ranks wait for each other, for ranks that were reported before, or for ranks that have ended: none of them
    /// can ever continue. Each is reported once.
    Stuck(Vec<StuckRank>),
    /// Every rank has finished or failed.
    Finished,
}

/// A rank that can never continue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StuckRank {
    /// The rank.
    pub rank: Rank,
    /// Its waits, for people; each text follows the rank's name.
    pub waits: Vec<String>,
}

/// Most ranks that are described.
const DESCRIBED_MAX: usize = 16;

impl StuckRank {
    /// Lines for people about all ranks that can never continue.
    pub fn describe(stuck: &[Self]) -> Vec<String> {
        let first = match stuck {
            [_] => "1 rank can never continue, since it waits for ranks that cannot or have ended:".to_owned(),
            _ => format!(
                "{} ranks can never continue, since they wait for ranks that cannot or have ended:",
                stuck.len()
            ),
        };
        let line = |Self { rank, waits }: &Self| format!("rank {rank} {}", waits.join("; "));
        let rest = stuck.len().saturating_sub(DESCRIBED_MAX);
        let rest = (rest > 0).then(|| format!("and {rest} more"));
        core::iter::once(first).chain(stuck.iter().take(DESCRIBED_MAX).map(line)).chain(rest).collect()
    }
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
