//! What the roll wants done, and what it says happened.

use super::LinkId;
use crate::{entry::Ending, message::Tell, rank::Rank};

/// What happened, for who runs the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// Every rank has joined.
    Assembled,
    /// A rank that had joined died.
    Died {
        /// The rank.
        rank: Rank,
        /// How.
        ending: Ending,
    },
    /// A rank asked for the end of the job.
    Aborted {
        /// The rank.
        rank: Rank,
        /// With this exit code.
        code: i32,
    },
    /// A node's agent is connected.
    AgentHere(u32),
    /// A node's agent is gone, and so are its ranks.
    AgentLost(u32),
    /// An agent started a rank.
    Started {
        /// The rank.
        rank: Rank,
        /// Its process on that node.
        pid: u32,
    },
    /// An agent's rank ended.
    Ended {
        /// The rank.
        rank: Rank,
        /// How.
        ending: Ending,
        /// Why it did not start, if it did not.
        reason: String,
    },
    /// No rank is left that could speak.
    Finished,
}

/// What the server is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Tell one link.
    Tell(LinkId, Tell),
    /// Tell every member.
    TellAll(Tell),
    /// Send the whole table, from the first line on.
    SendTable(LinkId),
    /// Close a link, after what it is still to be told.
    Close(LinkId),
    /// Say what happened.
    Report(Report),
}
