//! Wire format of hang detection's questions and answers, which travel among the messages of collectives.
//!
//! ```text
//! question  48  means  0     0     context  sequence
//! answer    49  means  what  verb  context  sequence  four words
//! ask call  50  0      0     0     context  number
//! call      51  0      known verb  context  number    root  bytes (64 bits)  type
//!
//! what      four words
//! entered   ranks that it waits for; 2³² − 1: no more
//! done      –
//! nothing   –
//! collective  communicator  sequence
//! receive   source, or 2³² − 1: any rank  tag   1: with this tag only
//! send      to                           tag
//! probe     as of a receive
//! agreement  communicator
//! finish    –
//! flush     –
//! ```
//! Numbers are little-endian. The context, as in the key of a collective's message, holds the communicator and a digest
//! of the call.

use core::fmt;

use unisono_core::collective::CollectiveKind;

use crate::world::collective::call_log::{CALL_WORDS, CollectiveCall};
use crate::world::request::Tag;
use unisono_bootstrap::Rank;

/// First bytes of the messages, which differ from the kinds of `unisono_core::message::collective_transport`.
const QUESTION: u8 = 48;
const ANSWER: u8 = 49;
const ASK_CALL: u8 = 50;
const CALL: u8 = 51;
/// Kinds of answers.
const ENTERED: u8 = 0;
const DONE: u8 = 1;
const NOTHING: u8 = 2;
const COLLECTIVE: u8 = 3;
const RECEIVE: u8 = 4;
const SEND: u8 = 5;
const PROBE: u8 = 6;
const AGREEMENT: u8 = 7;
const FINISH: u8 = 8;
const FLUSH: u8 = 9;
/// No rank.
const NOBODY: u32 = u32::MAX;
/// Most ranks in an answer.
pub(super) const AWAITED_MAX: usize = 4;
/// Bytes of the longest message.
const MESSAGE_BYTES: usize = 28;

/// The mechanism that carries a collective; each numbers its collectives separately.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::world) enum Mechanism {
    /// Messages.
    Messages,
    /// Slots in shared memory.
    Slots,
    /// The barrier's words in shared memory.
    Barrier,
}

/// Identifies a collective in a question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::world) struct CollectiveRef {
    pub(in crate::world) mechanism: Mechanism,
    /// Communicator (upper 16 bits) and digest of the call.
    pub(in crate::world) context: u32,
    pub(in crate::world) sequence: u32,
}

impl CollectiveRef {
    pub(in crate::world) const fn communicator(self) -> u32 {
        self.context >> 16
    }

    /// Whether both have the same place in the sequence of one communicator, though ranks may have called different
    /// collectives there.
    pub(in crate::world) fn is_same_instance(self, other: Self) -> bool {
        let place = |of: Self| (of.mechanism, of.communicator(), of.sequence);
        place(self) == place(other)
    }

    /// Whether a rank with this participation called something else there.
    pub(in crate::world) fn is_contradicted_by(self, participation: Participation) -> bool {
        let Participation::Absent(BlockedOn::Collective { communicator, sequence, .. }) = participation else {
            return false;
        };
        self.mechanism != Mechanism::Barrier && (communicator, sequence) == (self.communicator(), self.sequence)
    }
}

/// What a thread is blocked on, other than the collective that was asked about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::world) enum BlockedOn {
    /// It is in no call that waits.
    Nothing,
    Collective {
        verb: CollectiveKind,
        communicator: u32,
        sequence: u32,
    },
    Receive {
        source: Option<Rank>,
        tag: Option<Tag>,
    },
    Send {
        to: Rank,
        tag: Tag,
    },
    Probe {
        source: Option<Rank>,
        tag: Option<Tag>,
    },
    Agreement {
        communicator: u32,
    },
    /// It has finished, and waits for the other ranks.
    Finish,
    /// It finishes, and waits until everything that it sent is received.
    Flush,
}

/// A rank's part in a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::world) enum Participation {
    /// It takes part, and waits for these ranks itself.
    Entered([Option<Rank>; AWAITED_MAX]),
    /// It has done its part.
    Done,
    Absent(BlockedOn),
}

impl Participation {
    /// It waits for these ranks, of which the first few are recorded.
    pub(in crate::world) fn entered(awaited: impl Iterator<Item = Rank>) -> Self {
        let mut ranks = [None; AWAITED_MAX];
        ranks.iter_mut().zip(awaited).for_each(|(place, rank)| *place = Some(rank));
        Self::Entered(ranks)
    }
}

/// A question or an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::world) enum WatchMessage {
    Ask(CollectiveRef),
    Answer(CollectiveRef, Participation),
    /// Asks for the call of this number on a communicator.
    AskCall {
        context: u32,
        number: u32,
    },
    /// That call, if it is known.
    Call {
        context: u32,
        number: u32,
        call: Option<CollectiveCall>,
    },
}

impl WatchMessage {
    pub(in crate::world) fn encode(self) -> [u8; MESSAGE_BYTES] {
        let (kind, subject, what, verb, words) = match self {
            Self::Ask(subject) => (QUESTION, subject, 0, None, [0; 4]),
            Self::Answer(subject, participation) => {
                let (what, verb, words) = answer(participation);
                (ANSWER, subject, what, verb, words)
            }
            Self::AskCall { context, number } => (ASK_CALL, of_call(context, number), 0, None, [0; 4]),
            Self::Call { context, number, call } => {
                let [kind, words @ ..] = call.map_or([0; CALL_WORDS], |call| call.words());
                let verb = CollectiveKind::ALL.into_iter().find(|verb| *verb as u32 == kind);
                (CALL, of_call(context, number), call.is_some().into(), verb, words)
            }
        };
        let verb = verb.map_or(0, |verb: CollectiveKind| verb as u8);
        let first = u32::from_le_bytes([kind, subject.mechanism as u8, what, verb]);
        let [a, b, c, d] = words;
        let mut bytes = [0; MESSAGE_BYTES];
        let words = [first, subject.context, subject.sequence, a, b, c, d];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(into, word)| into.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// Parses a message. `None`: it is neither.
    pub(in crate::world) fn decode(head: &[u8]) -> Option<Self> {
        let word = |at: usize| head.get(4 * at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let [kind @ QUESTION..=CALL, means, what, verb] = *head.first_chunk()? else { return None };
        let means = [Mechanism::Messages, Mechanism::Slots, Mechanism::Barrier].get(usize::from(means)).copied()?;
        let subject = CollectiveRef { mechanism: means, context: word(1)?, sequence: word(2)? };
        match kind {
            QUESTION => Some(Self::Ask(subject)),
            ASK_CALL => Some(Self::AskCall { context: subject.context, number: subject.sequence }),
            CALL => {
                let words = [u32::from(verb), word(3)?, word(4)?, word(5)?, word(6)?];
                let call = if what == 0 { None } else { Some(CollectiveCall::from_words(words)?) };
                Some(Self::Call { context: subject.context, number: subject.sequence, call })
            }
            ANSWER => {
                let words = [word(3)?, word(4)?, word(5)?, word(6)?];
                Some(Self::Answer(subject, participation(what, verb, words)?))
            }
            _ => None,
        }
    }
}

/// The fields of a message about a call.
const fn of_call(context: u32, number: u32) -> CollectiveRef {
    CollectiveRef { mechanism: Mechanism::Messages, context, sequence: number }
}

fn answer(participation: Participation) -> (u8, Option<CollectiveKind>, [u32; 4]) {
    let number = |rank: Option<Rank>| rank.map_or(NOBODY, |rank| rank.0);
    let pattern = |source, tag: Option<Tag>| [number(source), tag.map_or(0, |tag| tag.0), tag.is_some().into(), 0];
    match participation {
        Participation::Entered(awaited) => (ENTERED, None, awaited.map(number)),
        Participation::Done => (DONE, None, [0; 4]),
        Participation::Absent(BlockedOn::Nothing) => (NOTHING, None, [0; 4]),
        Participation::Absent(BlockedOn::Collective { verb, communicator, sequence }) => {
            (COLLECTIVE, Some(verb), [communicator, sequence, 0, 0])
        }
        Participation::Absent(BlockedOn::Receive { source, tag }) => (RECEIVE, None, pattern(source, tag)),
        Participation::Absent(BlockedOn::Probe { source, tag }) => (PROBE, None, pattern(source, tag)),
        Participation::Absent(BlockedOn::Send { to, tag }) => (SEND, None, [to.0, tag.0, 0, 0]),
        Participation::Absent(BlockedOn::Agreement { communicator }) => (AGREEMENT, None, [communicator, 0, 0, 0]),
        Participation::Absent(BlockedOn::Finish) => (FINISH, None, [0; 4]),
        Participation::Absent(BlockedOn::Flush) => (FLUSH, None, [0; 4]),
    }
}

fn participation(what: u8, verb: u8, words: [u32; 4]) -> Option<Participation> {
    let source = |word: u32| (word != NOBODY).then_some(Rank(word));
    let [a, b, c, _] = words;
    Some(match what {
        ENTERED => Participation::Entered(words.map(source)),
        DONE => Participation::Done,
        NOTHING => Participation::Absent(BlockedOn::Nothing),
        COLLECTIVE => {
            let verb = *CollectiveKind::ALL.iter().find(|known| **known as u8 == verb)?;
            Participation::Absent(BlockedOn::Collective { verb, communicator: a, sequence: b })
        }
        RECEIVE => Participation::Absent(BlockedOn::Receive { source: source(a), tag: (c != 0).then_some(Tag(b)) }),
        PROBE => Participation::Absent(BlockedOn::Probe { source: source(a), tag: (c != 0).then_some(Tag(b)) }),
        AGREEMENT => Participation::Absent(BlockedOn::Agreement { communicator: a }),
        FINISH => Participation::Absent(BlockedOn::Finish),
        FLUSH => Participation::Absent(BlockedOn::Flush),
        SEND => Participation::Absent(BlockedOn::Send { to: Rank(a), tag: Tag(b) }),
        _ => return None,
    })
}

impl fmt::Display for BlockedOn {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => to.write_str("is in no call that waits"),
            Self::Collective { verb, communicator, sequence } => {
                write!(to, "waits in {} {sequence} of communicator {communicator}", verb.name())
            }
            Self::Receive { source, tag } | Self::Probe { source, tag } => {
                let is_probe = matches!(self, Self::Probe { .. });
                to.write_str(if is_probe { "probes for a message from " } else { "waits for a message from " })?;
                match source {
                    Some(rank) => write!(to, "rank {rank}")?,
                    None => to.write_str("any rank")?,
                }
                tag.map_or(Ok(()), |tag| write!(to, " with tag {tag}"))
            }
            Self::Agreement { communicator } => write!(to, "waits in an agreement of communicator {communicator}"),
            Self::Finish => to.write_str("waits for the other ranks to finish"),
            Self::Flush => to.write_str("finishes, and waits for its messages to be received"),
            Self::Send { to: rank, tag } => write!(to, "waits for rank {rank} to receive a message with tag {tag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        let (four, two) = ([0, 1, 2, 3].map(|rank| Some(Rank(rank))), [Some(Rank(7)), Some(Rank(0)), None, None]);
        let doings = [
            BlockedOn::Nothing,
            BlockedOn::Collective { verb: CollectiveKind::Exscan, communicator: 3, sequence: u32::MAX },
            BlockedOn::Receive { source: None, tag: None },
            BlockedOn::Receive { source: Some(Rank(4)), tag: Some(Tag(0)) },
            BlockedOn::Send { to: Rank(9), tag: Tag(u32::MAX) },
            BlockedOn::Probe { source: Some(Rank(2)), tag: None },
            BlockedOn::Agreement { communicator: 0xfffe },
            BlockedOn::Finish,
            BlockedOn::Flush,
        ];
        let standings = [Participation::Entered(four), Participation::Entered(two), Participation::Done];
        for means in [Mechanism::Messages, Mechanism::Slots, Mechanism::Barrier] {
            let subject = CollectiveRef { mechanism: means, context: 0xfedc_ba98, sequence: 17 };
            let answers = standings.into_iter().chain(doings.map(Participation::Absent));
            let all = answers
                .map(|participation| WatchMessage::Answer(subject, participation))
                .chain([WatchMessage::Ask(subject)]);
            for question in all {
                assert_eq!(WatchMessage::decode(&question.encode()), Some(question));
                assert_eq!(WatchMessage::decode(&question.encode()[..11]), None);
            }
        }
        assert_eq!(Participation::entered((0..9).map(Rank)), Participation::Entered(four));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), kind in 46_u8..54) {
            let mut bytes = bytes;
            bytes.first_mut().into_iter().for_each(|first| *first = kind);
            if let Some(question) = WatchMessage::decode(&bytes) {
                prop_assert_eq!(WatchMessage::decode(&question.encode()), Some(question));
            }
        }
    }
}
