//! The messages between clients (ranks and agents) and the rendezvous server, and their encoding.

use super::{
    ballot::{Ballot, RANGES_MAX, Verdict, WORDS_MAX},
    codec::{Reader, Writer},
    entry::{Ending, Entry, Incarnation, Offer},
    frame::{Frame, PAYLOAD_MAX},
};
use crate::rank::Rank;

/// Longest key of a stored value, in bytes.
pub const KEY_MAX: usize = 256;
/// Longest stored value, in bytes.
pub const VALUE_MAX: usize = 4096;
/// Most table lines in one frame.
pub(crate) const LINES_MAX: usize = 256;
const _: () = assert!(28 + 16 * RANGES_MAX + 8 * WORDS_MAX <= PAYLOAD_MAX);
const _: () = assert!(4 + LINES_MAX * Entry::BYTES <= PAYLOAD_MAX);

/// A message of unknown kind, or whose payload does not fit its kind. The session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message of kind {kind} is malformed")]
pub struct Malformed {
    pub(crate) kind: u8,
}

/// A message from a rank or an agent to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Say {
    /// The first message of a rank.
    Join { offer: Offer, pid: u32, node: Option<u32>, host: String },
    /// Queries whether a rank is alive. Answered by [`Tell::Liveness`].
    Ask(Rank),
    /// The rank has entered the next fence. Answered by [`Tell::Fenced`] once all have.
    Fence,
    /// Aborts the job with this exit code.
    Abort(i32),
    /// Stores a value. Answered by [`Tell::Stored`].
    Put { key: Vec<u8>, value: Vec<u8> },
    /// Looks up a value. Answered by [`Tell::Value`].
    Get { key: Vec<u8> },
    /// The rank has finished: its end is not a failure.
    Leave,
    /// From an agent: a rank of its node was started.
    Started { rank: Rank, pid: u32 },
    /// From an agent: a rank of its node has ended.
    Ended { rank: Rank, ending: Ending, reason: String },
    /// From an agent: the answer to [`Tell::Ask`].
    Liveness { rank: Rank, asker: Rank, alive: bool },
    /// The rank's vote in an agreement. Answered by [`Tell::Agreed`] once all members have voted or failed.
    Vote(Ballot),
}

/// A message from the server to a rank or an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Tell {
    /// The process may not join.
    Refused(Refusal),
    /// Records of the table from rank `first` on.
    Table { first: u32, lines: Vec<Entry> },
    /// A rank has failed.
    Died { rank: Rank, incarnation: Incarnation, ending: Ending },
    /// A rank has joined with a new incarnation.
    Met { rank: Rank, entry: Entry },
    /// The answer to [`Say::Ask`].
    Liveness { rank: Rank, alive: bool },
    /// All ranks have entered the fence.
    Fenced,
    /// Whether [`Say::Put`] stored its value; the store may be full.
    Stored(bool),
    /// The answer to [`Say::Get`].
    Value(Option<Vec<u8>>),
    /// A rank aborted the job.
    Aborted { rank: Rank, code: i32 },
    /// Acknowledges [`Say::Leave`].
    Farewell,
    /// To an agent: it is registered.
    Welcome,
    /// To an agent: send this signal to its ranks, or to one.
    Signal { rank: Option<Rank>, signal: i32 },
    /// To an agent: queries whether a rank of its node is alive.
    Ask { rank: Rank, asker: Rank },
    /// The answer to [`Say::Vote`].
    Agreed(Verdict),
}

/// Why a process may not join.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Its rank is not below the size of the job.
    NoSuchRank,
    /// Its rank is taken by another process.
    Taken,
    /// The job is ending, or can never be complete because a rank ended before it joined.
    Ending,
    /// Ranks were missing when the join timeout expired.
    Missing {
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
            Self::Taken => to.write_str("another process has joined with this rank"),
            Self::Ending => to.write_str("the job is ending, or a rank ended before it joined"),
            Self::Missing { count, first } => {
                write!(to, "{count} ranks did not join in time, the lowest is rank {first}")
            }
        }
    }
}

impl Say {
    /// Kind and payload.
    pub(crate) fn encode(&self) -> (u8, Vec<u8>) {
        let mut out = Writer::default();
        let kind = match self {
            Self::Join { offer, pid, node, host } => {
                out.u32(offer.incarnation.0).u32(offer.mtu).addresses(&offer.lanes).digests(offer.digests).u32(*pid);
                out.option(*node, |out, node| {
                    out.u32(node);
                })
                .text(host);
                1
            }
            Self::Ask(rank) => {
                out.u32(rank.0);
                2
            }
            Self::Fence => 3,
            Self::Abort(code) => {
                out.i32(*code);
                4
            }
            Self::Put { key, value } => {
                out.bytes(key).bytes(value);
                5
            }
            Self::Get { key } => {
                out.bytes(key);
                6
            }
            Self::Leave => 7,
            Self::Started { rank, pid } => {
                out.u32(rank.0).u32(*pid);
                8
            }
            Self::Ended { rank, ending, reason } => {
                out.u32(rank.0).ending(*ending).text(reason);
                9
            }
            Self::Liveness { rank, asker, alive } => {
                out.u32(rank.0).u32(asker.0).flag(*alive);
                10
            }
            Self::Vote(ballot) => {
                let Ballot { name, members, failed, most, words } = ballot;
                out.name(name).ranks(members).ranks(failed).u32(*most).words(words);
                11
            }
        };
        (kind, out.finish())
    }

    pub(crate) fn decode(frame: &Frame) -> Result<Self, Malformed> {
        let mut from = Reader::new(&frame.payload);
        let said = read_say(&mut from, frame.kind).filter(|_| from.rest().is_empty());
        said.ok_or(Malformed { kind: frame.kind })
    }
}

impl Tell {
    /// Kind and payload.
    pub(crate) fn encode(&self) -> (u8, Vec<u8>) {
        let mut out = Writer::default();
        let kind = match self {
            Self::Refused(refusal) => {
                let (number, count, first) = match *refusal {
                    Refusal::NoSuchRank => (0, 0, 0),
                    Refusal::Taken => (1, 0, 0),
                    Refusal::Ending => (2, 0, 0),
                    Refusal::Missing { count, first } => (3, count, first),
                };
                out.u32(number).u32(count).u32(first);
                64
            }
            Self::Table { first, lines } => {
                out.u32(*first);
                for entry in lines {
                    out.entry(entry);
                }
                65
            }
            Self::Died { rank, incarnation, ending } => {
                out.u32(rank.0).u32(incarnation.0).ending(*ending);
                66
            }
            Self::Met { rank, entry } => {
                out.u32(rank.0).entry(entry);
                67
            }
            Self::Liveness { rank, alive } => {
                out.u32(rank.0).flag(*alive);
                68
            }
            Self::Fenced => 69,
            Self::Stored(stored) => {
                out.flag(*stored);
                70
            }
            Self::Value(value) => {
                out.option(value.as_ref(), |out, value| {
                    out.bytes(value);
                });
                71
            }
            Self::Aborted { rank, code } => {
                out.u32(rank.0).i32(*code);
                72
            }
            Self::Farewell => 73,
            Self::Welcome => 74,
            Self::Signal { rank, signal } => {
                out.option(*rank, |out, rank| {
                    out.u32(rank.0);
                })
                .i32(*signal);
                75
            }
            Self::Ask { rank, asker } => {
                out.u32(rank.0).u32(asker.0);
                76
            }
            Self::Agreed(verdict) => {
                out.name(&verdict.name).ranks(&verdict.failed).u32(verdict.most).words(&verdict.words);
                77
            }
        };
        (kind, out.finish())
    }

    pub(crate) fn decode(frame: &Frame) -> Result<Self, Malformed> {
        let mut from = Reader::new(&frame.payload);
        let told = read_tell(&mut from, frame.kind).filter(|_| from.rest().is_empty());
        told.ok_or(Malformed { kind: frame.kind })
    }
}

fn read_say(from: &mut Reader<'_>, kind: u8) -> Option<Say> {
    Some(match kind {
        1 => {
            let (incarnation, mtu) = (Incarnation(from.u32()?), from.u32()?);
            let offer = Offer { incarnation, mtu, lanes: from.addresses()?, digests: from.digests()? };
            let (pid, node) = (from.u32()?, from.option(Reader::u32)?);
            Say::Join { offer, pid, node, host: from.text()? }
        }
        2 => Say::Ask(from.rank()?),
        3 => Say::Fence,
        4 => Say::Abort(from.i32()?),
        5 => Say::Put { key: from.bytes(KEY_MAX)?, value: from.bytes(VALUE_MAX)? },
        6 => Say::Get { key: from.bytes(KEY_MAX)? },
        7 => Say::Leave,
        8 => Say::Started { rank: from.rank()?, pid: from.u32()? },
        9 => Say::Ended { rank: from.rank()?, ending: from.ending()?, reason: from.text()? },
        10 => Say::Liveness { rank: from.rank()?, asker: from.rank()?, alive: from.flag()? },
        11 => {
            let (name, members, failed) = (from.name()?, from.ranks()?, from.ranks()?);
            Say::Vote(Ballot { name, members, failed, most: from.u32()?, words: from.words()? })
        }
        _ => return None,
    })
}

fn read_tell(from: &mut Reader<'_>, kind: u8) -> Option<Tell> {
    Some(match kind {
        64 => Tell::Refused(match (from.u32()?, from.u32()?, from.u32()?) {
            (0, 0, 0) => Refusal::NoSuchRank,
            (1, 0, 0) => Refusal::Taken,
            (2, 0, 0) => Refusal::Ending,
            (3, count, first) => Refusal::Missing { count, first },
            _ => return None,
        }),
        65 => {
            let first = from.u32()?;
            let mut lines = Vec::with_capacity(from.rest().len() / Entry::BYTES);
            while !from.rest().is_empty() {
                lines.push(from.entry()?);
            }
            Tell::Table { first, lines }
        }
        66 => {
            let (rank, incarnation) = (from.rank()?, Incarnation(from.u32()?));
            Tell::Died { rank, incarnation, ending: from.ending()? }
        }
        67 => Tell::Met { rank: from.rank()?, entry: from.entry()? },
        68 => Tell::Liveness { rank: from.rank()?, alive: from.flag()? },
        69 => Tell::Fenced,
        70 => Tell::Stored(from.flag()?),
        71 => Tell::Value(from.option(|from| from.bytes(VALUE_MAX))?),
        72 => Tell::Aborted { rank: from.rank()?, code: from.i32()? },
        73 => Tell::Farewell,
        74 => Tell::Welcome,
        75 => Tell::Signal { rank: from.option(Reader::rank)?, signal: from.i32()? },
        76 => Tell::Ask { rank: from.rank()?, asker: from.rank()? },
        77 => {
            let (name, failed) = (from.name()?, from.ranks()?);
            Tell::Agreed(Verdict { name, failed, most: from.u32()?, words: from.words()? })
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
