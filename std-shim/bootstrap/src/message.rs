//! The messages between clients (ranks and agents) and the rendezvous server, in postcard's wire format.

use super::{
    agreement::{AgreementOutcome, RANGES_MAX, Vote, WORDS_MAX},
    frame::{Frame, PAYLOAD_MAX},
    peer_record::{Ending, Incarnation, IncarnationOnWire, LocalRecord, PeerRecord},
};
use crate::{
    fence::{FENCE_RECORDS_MAX, FenceDifference, FenceRecord},
    rank::Rank,
    version::Version,
    waits::WaitReport,
};
use core::net::SocketAddr;
use serde::{Deserialize, Serialize, Serializer, de::DeserializeOwned};

/// Longest key of a stored value, in bytes.
pub const KEY_MAX: usize = 256;
/// Longest stored value, in bytes.
pub const VALUE_MAX: usize = 4096;
/// Longest host identity and longest error text, in bytes.
const TEXT_MAX: usize = 512;
/// Most table records per frame.
pub(crate) const RECORDS_MAX: usize = 128;
// A number of 32 bits takes five bytes at most, one of 64 bits ten.
const _: () = assert!(64 + 2 * 10 * RANGES_MAX + 10 * WORDS_MAX <= PAYLOAD_MAX);
const _: () = assert!(16 + RECORDS_MAX * PeerRecord::BYTES <= PAYLOAD_MAX);

/// A message of unknown kind, or whose payload does not fit its kind. The session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message of kind {kind} is malformed")]
pub struct Malformed {
    pub(crate) kind: u8,
}

/// A message from a rank or an agent to the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ClientMessage {
    /// The first message of a rank.
    Join {
        version: Version,
        offer: LocalRecord,
        pid: u32,
        node: Option<u32>,
        #[serde(serialize_with = "cut")]
        host: String,
    },
    /// Queries whether a rank is alive. Answered by [`ServerMessage::Liveness`].
    QueryLiveness(Rank),
    /// The rank has entered the next fence, with records that are compared; `None`: they are not. Answered by
    /// [`ServerMessage::Fenced`] once all have.
    Fence(Option<Vec<FenceRecord>>),
    /// Aborts the job with this exit code.
    Abort(i32),
    /// Stores a value. Answered by [`ServerMessage::Stored`].
    Put { key: Vec<u8>, value: Vec<u8> },
    /// Looks up a value. Answered by [`ServerMessage::Value`].
    Get { key: Vec<u8> },
    /// The rank has finished: its end is not a failure.
    Finish,
    /// From an agent: a rank of its node was started.
    Started { rank: Rank, pid: u32 },
    /// From an agent: a rank of its node has ended.
    Ended {
        rank: Rank,
        ending: Ending,
        #[serde(serialize_with = "cut")]
        reason: String,
    },
    /// From an agent: the answer to [`ServerMessage::QueryLiveness`].
    Liveness { rank: Rank, asker: Rank, alive: bool },
    /// The rank's vote in an agreement. Answered by [`ServerMessage::Agreed`] once all members have voted or failed.
    Vote(Vote),
    /// An operation of the rank failed because of another rank.
    Cause(Rank),
    /// The rank leaves the job without finishing it: other ranks may fail because of this one.
    Leave,
    /// The rank is blocked, or is so no longer.
    Waits(WaitReport),
    /// Queries for how long a rank has made progress. Answered by [`ServerMessage::Polling`] once it makes progress.
    QueryPolling(Rank),
    /// The answer to [`ServerMessage::QueryPolling`].
    Polling { asker: Rank, milliseconds: u64 },
    /// The rank has opened a further rail, counted from 1: the addresses of its queues there.
    Rail { rail: u8, lanes: [SocketAddr; 2] },
}

/// A message from the server to a rank or an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ServerMessage {
    /// The process may not join.
    Refused(Refusal),
    /// Records of the table from rank `first` on.
    Table { first: u32, lines: Vec<PeerRecord> },
    /// A rank has failed.
    Failed {
        rank: Rank,
        #[serde(with = "IncarnationOnWire")]
        incarnation: Incarnation,
        ending: Ending,
    },
    /// A rank has joined with a new incarnation.
    Joined { rank: Rank, entry: PeerRecord },
    /// The answer to [`ClientMessage::QueryLiveness`].
    Liveness { rank: Rank, alive: bool },
    /// All ranks have entered the fence; the first difference of their records.
    Fenced(Option<FenceDifference>),
    /// Whether [`ClientMessage::Put`] stored its value; the store may be full.
    Stored(bool),
    /// The answer to [`ClientMessage::Get`].
    Value(Option<Vec<u8>>),
    /// A rank aborted the job.
    Aborted { rank: Rank, code: i32 },
    /// Acknowledges [`ClientMessage::Finish`].
    FinishAck,
    /// To an agent: it is registered.
    Welcome,
    /// To an agent: send this signal to its ranks, or to one.
    Signal { rank: Option<Rank>, signal: i32 },
    /// To an agent: queries whether a rank of its node is alive.
    QueryLiveness { rank: Rank, asker: Rank },
    /// The answer to [`ClientMessage::Vote`].
    Agreed(AgreementOutcome),
    /// The rank is to report its waits again, with this number.
    ConfirmWaits(u32),
    /// Queries for how long the rank has made progress.
    QueryPolling { asker: Rank },
    /// The answer to [`ClientMessage::QueryPolling`].
    Polling { rank: Rank, milliseconds: u64 },
    /// A rank has opened a further rail, counted from 1: the addresses of its queues there.
    Rail {
        rank: Rank,
        #[serde(with = "IncarnationOnWire")]
        incarnation: Incarnation,
        rail: u8,
        lanes: [SocketAddr; 2],
    },
}

/// Why a process may not join.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// Its rank is not below the size of the job.
    NoSuchRank,
    /// Its rank is taken by another process.
    RankTaken,
    /// The job is ending, or can never be complete because a rank ended before it joined.
    Ending,
    /// Its version of unisono is not that of the launcher, or of rank 0.
    Version {
        /// Its version.
        own: Version,
        /// The other one.
        server: Version,
    },
    /// Ranks were missing when the join timeout expired.
    MissingRanks {
        /// Number of missing ranks.
        count: u32,
        /// The lowest missing rank.
        first: u32,
    },
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoSuchRank => to.write_str("the job has no such rank: check UNISONO_RANK and UNISONO_SIZE"),
            Self::RankTaken => to.write_str("another process has joined with this rank"),
            Self::Ending => to.write_str("the job is ending, or a rank ended before it joined"),
            Self::Version { own, server } => write!(
                to,
                "it was built with unisono {own}, and the launcher (or rank 0) with {server}: build both with one version"
            ),
            Self::MissingRanks { count, first } => {
                write!(to, "{count} ranks did not join in time, the lowest is rank {first}")
            }
        }
    }
}

impl ClientMessage {
    /// The payload of a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(crate) fn decode(frame: &Frame) -> Result<Self, Malformed> {
        decode(frame, |message| match message {
            Self::Join { host: text, offer, .. } => text.len() <= TEXT_MAX && offer.is_bounded(),
            Self::Ended { reason: text, .. } => text.len() <= TEXT_MAX,
            Self::Put { key, value } => key.len() <= KEY_MAX && value.len() <= VALUE_MAX,
            Self::Get { key } => key.len() <= KEY_MAX,
            Self::Vote(Vote { members, failed, words, .. }) => {
                members.is_bounded() && failed.is_bounded() && words.len() <= WORDS_MAX
            }
            Self::Waits(report) => report.is_bounded(),
            Self::Fence(records) => records.as_ref().is_none_or(|records| records.len() <= FENCE_RECORDS_MAX),
            _ => true,
        })
    }
}

impl ServerMessage {
    /// The payload of a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(crate) fn decode(frame: &Frame) -> Result<Self, Malformed> {
        decode(frame, |message| match message {
            Self::Table { lines, .. } => lines.len() <= RECORDS_MAX && lines.iter().all(PeerRecord::is_bounded),
            Self::Joined { entry, .. } => entry.is_bounded(),
            Self::Value(Some(value)) => value.len() <= VALUE_MAX,
            Self::Agreed(AgreementOutcome { failed, words, .. }) => failed.is_bounded() && words.len() <= WORDS_MAX,
            _ => true,
        })
    }
}

/// Encodes a message. Only an allocation could fail, which aborts the process.
fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).unwrap_or_default()
}

/// Decodes a payload that is exactly one message, with all parts within their limits. The frame bounds the payload;
/// serde reserves at most 1 MiB for a list with a false length.
fn decode<M: DeserializeOwned>(frame: &Frame, is_bounded: impl FnOnce(&M) -> bool) -> Result<M, Malformed> {
    match postcard::take_from_bytes(&frame.payload) {
        Ok((message, [])) if is_bounded(&message) => Ok(message),
        _ => Err(Malformed { kind: frame.kind() }),
    }
}

/// Truncates texts to [`TEXT_MAX`] bytes.
fn cut<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text.get(..text.floor_char_boundary(TEXT_MAX)).unwrap_or_default())
}

#[cfg(test)]
mod tests;
