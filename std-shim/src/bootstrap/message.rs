//! What members and agents say to the rendezvous server, and what it tells them.

use super::{
    entry::{ADDRESS, Ending, Entry, Incarnation, Offer, address_from_bytes, address_to_bytes},
    frame::{Frame, PAYLOAD_MAX},
};
use crate::rank::Rank;
use core::net::SocketAddr;

/// Longest key of a stored value, in bytes.
pub const KEY_MAX: usize = 256;
/// Longest stored value, in bytes.
pub const VALUE_MAX: usize = 4096;
/// Longest host identity and longest reason, in bytes.
pub(crate) const TEXT_MAX: usize = 512;
/// Most table lines in one frame.
pub(crate) const LINES_MAX: usize = (PAYLOAD_MAX - 4) / Entry::BYTES;

/// A payload that its kind cannot have, or an unknown kind. The session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message of kind {kind} is malformed")]
pub struct Malformed {
    pub(crate) kind: u8,
}

/// From a member or an agent to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Say {
    /// First words of a member.
    Join { offer: Offer, pid: u32, node: Option<u32>, host: String },
    /// Is it alive? Answered by [`Tell::Liveness`].
    Ask(Rank),
    /// The member has reached the next fence. Answered by [`Tell::Fenced`] when all have.
    Fence,
    /// The whole job is to end with this code.
    Abort(i32),
    /// Stores a value. Answered by [`Tell::Stored`].
    Put { key: Vec<u8>, value: Vec<u8> },
    /// Asks for a value. Answered by [`Tell::Value`].
    Get { key: Vec<u8> },
    /// The member has finished: its end is no death.
    Leave,
    /// Agent: a rank of its node runs.
    Started { rank: Rank, pid: u32 },
    /// Agent: a rank of its node has ended.
    Ended { rank: Rank, ending: Ending, reason: String },
    /// Agent: the answer to [`Tell::Ask`].
    Liveness { rank: Rank, asker: Rank, alive: bool },
}

/// From the server to a member or an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Tell {
    /// No entry for this process.
    Refused(Refusal),
    /// Lines of the table from `first` on.
    Table { first: u32, lines: Vec<Entry> },
    /// A member is dead.
    Died { rank: Rank, incarnation: Incarnation, ending: Ending },
    /// A member has a new life.
    Met { rank: Rank, entry: Entry },
    /// The answer to [`Say::Ask`].
    Liveness { rank: Rank, alive: bool },
    /// Every member reached the fence.
    Fenced,
    /// Whether [`Say::Put`] found room.
    Stored(bool),
    /// The answer to [`Say::Get`].
    Value(Option<Vec<u8>>),
    /// A member asked for the end of the job.
    Aborted { rank: Rank, code: i32 },
    /// The server has taken note of [`Say::Leave`].
    Farewell,
    /// To an agent: it is known.
    Welcome,
    /// To an agent: send this signal to its ranks, or to one.
    Signal { rank: Option<Rank>, signal: i32 },
    /// To an agent: does its rank live?
    Ask { rank: Rank, asker: Rank },
}

/// Why a process may not join.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Its rank is not below the size of the job.
    NoSuchRank,
    /// Its rank is taken by another process.
    Taken,
    /// The job is ending, or cannot assemble any more because a rank ended before it joined.
    Ending,
    /// So many ranks had not come when the time to assemble was over.
    Missing {
        /// How many.
        count: u32,
        /// The lowest of them.
        first: u32,
    },
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoSuchRank => to.write_str("the job has no such rank"),
            Self::Taken => to.write_str("another process has this rank"),
            Self::Ending => to.write_str("the job is ending, or a rank ended before it joined"),
            Self::Missing { count, first } => write!(to, "{count} ranks did not come in time, rank {first} among them"),
        }
    }
}

impl Say {
    /// Kind and payload.
    pub(crate) fn encode(&self) -> (u8, Vec<u8>) {
        let mut out = Writer::default();
        let kind = match self {
            Self::Join { offer, pid, node, host } => {
                out.u32(offer.incarnation.0).u32(offer.mtu).addresses(&offer.lanes).u32(*pid);
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
        };
        (kind, out.0)
    }

    pub(crate) fn decode(frame: &Frame) -> Result<Self, Malformed> {
        let mut from = Reader(&frame.payload);
        let said = from.say(frame.kind).filter(|_| from.0.is_empty());
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
        };
        (kind, out.0)
    }

    pub(crate) fn decode(frame: &Frame) -> Result<Self, Malformed> {
        let mut from = Reader(&frame.payload);
        let told = from.tell(frame.kind).filter(|_| from.0.is_empty());
        told.ok_or(Malformed { kind: frame.kind })
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn i32(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn flag(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    /// Lengths are at most [`VALUE_MAX`], which callers ensure.
    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend(value.iter().take(usize::from(length)));
        self
    }

    /// Cut to [`TEXT_MAX`] bytes.
    fn text(&mut self, value: &str) -> &mut Self {
        let end = value.floor_char_boundary(TEXT_MAX);
        self.bytes(value.get(..end).unwrap_or_default().as_bytes())
    }

    fn addresses(&mut self, lanes: &[SocketAddr; 2]) -> &mut Self {
        for lane in lanes {
            self.0.extend_from_slice(&address_to_bytes(*lane));
        }
        self
    }

    fn entry(&mut self, entry: &Entry) -> &mut Self {
        self.u32(entry.incarnation.0).u32(entry.node).u32(entry.mtu).addresses(&entry.lanes)
    }

    fn ending(&mut self, ending: Ending) -> &mut Self {
        let (kind, number) = match ending {
            Ending::Exited(code) => (0, code),
            Ending::Signalled(signal) => (1, signal),
            Ending::NotStarted => (2, 0),
            Ending::Disconnected => (3, 0),
            Ending::NodeLost => (4, 0),
            Ending::Replaced => (5, 0),
        };
        self.u32(kind).i32(number)
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    fn rank(&mut self) -> Option<Rank> {
        self.u32().map(Rank)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.array()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    /// The outer `None` is malformed, the inner one absent.
    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    fn bytes(&mut self, limit: usize) -> Option<Vec<u8>> {
        let length = usize::from(self.array().map(u16::from_le_bytes)?);
        let (taken, rest) = self.0.split_at_checked(length).filter(|_| length <= limit)?;
        self.0 = rest;
        Some(taken.to_vec())
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes(TEXT_MAX)?).ok()
    }

    fn addresses(&mut self) -> Option<[SocketAddr; 2]> {
        let (polled, interrupt) = (self.array::<ADDRESS>()?, self.array::<ADDRESS>()?);
        Some([address_from_bytes(polled), address_from_bytes(interrupt)])
    }

    fn entry(&mut self) -> Option<Entry> {
        let (incarnation, node, mtu) = (Incarnation(self.u32()?), self.u32()?, self.u32()?);
        Some(Entry { incarnation, node, mtu, lanes: self.addresses()? })
    }

    fn ending(&mut self) -> Option<Ending> {
        Some(match (self.u32()?, self.i32()?) {
            (0, code) => Ending::Exited(code),
            (1, signal) => Ending::Signalled(signal),
            (2, 0) => Ending::NotStarted,
            (3, 0) => Ending::Disconnected,
            (4, 0) => Ending::NodeLost,
            (5, 0) => Ending::Replaced,
            _ => return None,
        })
    }

    fn say(&mut self, kind: u8) -> Option<Say> {
        Some(match kind {
            1 => {
                let (incarnation, mtu) = (Incarnation(self.u32()?), self.u32()?);
                let offer = Offer { incarnation, mtu, lanes: self.addresses()? };
                let (pid, node) = (self.u32()?, self.option(Self::u32)?);
                Say::Join { offer, pid, node, host: self.text()? }
            }
            2 => Say::Ask(self.rank()?),
            3 => Say::Fence,
            4 => Say::Abort(self.i32()?),
            5 => Say::Put { key: self.bytes(KEY_MAX)?, value: self.bytes(VALUE_MAX)? },
            6 => Say::Get { key: self.bytes(KEY_MAX)? },
            7 => Say::Leave,
            8 => Say::Started { rank: self.rank()?, pid: self.u32()? },
            9 => Say::Ended { rank: self.rank()?, ending: self.ending()?, reason: self.text()? },
            10 => Say::Liveness { rank: self.rank()?, asker: self.rank()?, alive: self.flag()? },
            _ => return None,
        })
    }

    fn tell(&mut self, kind: u8) -> Option<Tell> {
        Some(match kind {
            64 => Tell::Refused(match (self.u32()?, self.u32()?, self.u32()?) {
                (0, 0, 0) => Refusal::NoSuchRank,
                (1, 0, 0) => Refusal::Taken,
                (2, 0, 0) => Refusal::Ending,
                (3, count, first) => Refusal::Missing { count, first },
                _ => return None,
            }),
            65 => {
                let first = self.u32()?;
                let mut lines = Vec::with_capacity(self.0.len() / Entry::BYTES);
                while !self.0.is_empty() {
                    lines.push(self.entry()?);
                }
                Tell::Table { first, lines }
            }
            66 => {
                let (rank, incarnation) = (self.rank()?, Incarnation(self.u32()?));
                Tell::Died { rank, incarnation, ending: self.ending()? }
            }
            67 => Tell::Met { rank: self.rank()?, entry: self.entry()? },
            68 => Tell::Liveness { rank: self.rank()?, alive: self.flag()? },
            69 => Tell::Fenced,
            70 => Tell::Stored(self.flag()?),
            71 => Tell::Value(self.option(|from| from.bytes(VALUE_MAX))?),
            72 => Tell::Aborted { rank: self.rank()?, code: self.i32()? },
            73 => Tell::Farewell,
            74 => Tell::Welcome,
            75 => Tell::Signal { rank: self.option(Self::rank)?, signal: self.i32()? },
            76 => Tell::Ask { rank: self.rank()?, asker: self.rank()? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lanes() -> [SocketAddr; 2] {
        [SocketAddr::from(([10, 0, 0, 1], 7)), SocketAddr::from(([0; 16], 9))]
    }

    fn entry() -> Entry {
        Entry { incarnation: Incarnation(7), node: 3, mtu: 1472, lanes: lanes() }
    }

    fn every_say() -> Vec<Say> {
        let (rank, asker) = (Rank(5), Rank(6));
        let offer = Offer { incarnation: Incarnation(1), lanes: lanes(), mtu: 65507 };
        vec![
            Say::Join { offer, pid: 77, node: Some(2), host: "node7".to_owned() },
            Say::Join { offer, pid: 77, node: None, host: String::new() },
            Say::Ask(rank),
            Say::Fence,
            Say::Abort(-3),
            Say::Put { key: b"k".to_vec(), value: vec![1; VALUE_MAX] },
            Say::Get { key: vec![2; KEY_MAX] },
            Say::Leave,
            Say::Started { rank, pid: 9 },
            Say::Ended { rank, ending: Ending::Signalled(11), reason: "why".to_owned() },
            Say::Liveness { rank, asker, alive: true },
        ]
    }

    fn every_tell() -> Vec<Tell> {
        let (rank, asker) = (Rank(5), Rank(6));
        vec![
            Tell::Refused(Refusal::NoSuchRank),
            Tell::Refused(Refusal::Taken),
            Tell::Refused(Refusal::Ending),
            Tell::Refused(Refusal::Missing { count: 2, first: 1 }),
            Tell::Table { first: 3, lines: vec![entry(); LINES_MAX] },
            Tell::Died { rank, incarnation: Incarnation(9), ending: Ending::Exited(-1) },
            Tell::Met { rank, entry: entry() },
            Tell::Liveness { rank, alive: false },
            Tell::Fenced,
            Tell::Stored(true),
            Tell::Value(None),
            Tell::Value(Some(vec![3; 10])),
            Tell::Aborted { rank, code: 4 },
            Tell::Farewell,
            Tell::Welcome,
            Tell::Signal { rank: Some(rank), signal: 15 },
            Tell::Signal { rank: None, signal: 2 },
            Tell::Ask { rank, asker },
        ]
    }

    #[test]
    fn every_message_survives_the_wire_and_fits_a_frame() {
        for said in every_say() {
            let (kind, payload) = said.encode();
            assert!(payload.len() <= PAYLOAD_MAX);
            assert_eq!(Say::decode(&Frame { kind, payload }), Ok(said));
        }
        for told in every_tell() {
            let (kind, payload) = told.encode();
            assert!(payload.len() <= PAYLOAD_MAX);
            assert_eq!(Tell::decode(&Frame { kind, payload }), Ok(told));
        }
    }

    #[test]
    fn cut_or_longer_messages_are_refused() {
        for (kind, payload) in every_say().iter().map(Say::encode) {
            let longer = [payload.as_slice(), &[0]].concat();
            assert_eq!(Say::decode(&Frame { kind, payload: longer }), Err(Malformed { kind }));
            if let Some((_, shorter)) = payload.split_last() {
                assert_eq!(Say::decode(&Frame { kind, payload: shorter.to_vec() }), Err(Malformed { kind }));
            }
        }
        for (kind, payload) in every_tell().iter().map(Tell::encode) {
            let longer = [payload.as_slice(), &[0]].concat();
            assert_eq!(Tell::decode(&Frame { kind, payload: longer }), Err(Malformed { kind }));
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_letter() {
        let host = "é".repeat(TEXT_MAX);
        let offer = Offer { incarnation: Incarnation(1), lanes: lanes(), mtu: 1 };
        let (kind, payload) = Say::Join { offer, pid: 1, node: None, host }.encode();
        match Say::decode(&Frame { kind, payload }) {
            Ok(Say::Join { host, .. }) => assert_eq!(host, "é".repeat(TEXT_MAX / 2)),
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(kind in 0_u8..90, payload in prop::collection::vec(any::<u8>(), 0..600)) {
            let frame = Frame { kind, payload };
            if let Ok(said) = Say::decode(&frame) {
                prop_assert_eq!(said.encode(), (kind, frame.payload.clone()));
            }
            if let Ok(told) = Tell::decode(&frame) {
                prop_assert_eq!(told.encode(), (kind, frame.payload.clone()));
            }
        }
    }
}
