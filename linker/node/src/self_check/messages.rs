//! A message exchange that checks itself, run by processes and nodes alike: in every burst each rank sends [`BURST`]
//! messages of all lengths, tags and modes to each other rank before it receives any, and receives them in one of five
//! orders. Each message is a function of burst, sender, receiver and number, so that every rank knows the messages to
//! expect and their order.

use unisono_shmem::am_header::SHORT_BYTES;

use crate::Idle;
use crate::messages::{MessageError, Messages, Mode, Request};

/// Messages from each rank to each other one in a burst.
pub const BURST: u32 = 16;
/// Bytes of the longest message.
pub const LONGEST: usize = 1 << 20;
/// Bytes of the pattern that contains every payload.
pub const PATTERN_BYTES: usize = LONGEST + PATTERN_OFFSETS;
/// Most ranks.
pub const RANKS: usize = 8;
/// Receives posted at a time.
pub const POSTED: usize = 4;
/// Bytes of the longest message among those.
pub const POSTED_LONGEST: usize = 1 << 16;

const PATTERN_OFFSETS: usize = 1 << 16;
const TAGS: u32 = 5;
/// Lengths around the limits of an entry (with a header and without), of buffered and of eager messages.
const LENGTHS: [usize; 32] = [
    0, 1, 4, 8, 27, 28, 29, 40, 44, 45, 48, 49, 64, 100, 200, 500, 1000, 1003, 1004, 1023, 1024, 1025, 2000, 4095,
    4096, 4097, 16_383, 16_384, 16_385, 32_768, 32_769, 65_536,
];

/// A message of the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TestMessage {
    /// Its tag.
    pub tag: u32,
    /// Its length in bytes.
    pub bytes: usize,
    /// Its offset in the pattern.
    pub at: usize,
    /// Its send mode.
    pub mode: Mode,
}

impl TestMessage {
    /// Its payload.
    pub fn payload(self, pattern: &[u8]) -> &[u8] {
        pattern.get(self.at..self.at.wrapping_add(self.bytes)).unwrap_or_default()
    }
}

const fn mix(word: u32) -> u32 {
    let mixed = (word ^ word >> 16).wrapping_mul(0x7feb_352d);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x846c_a68b);
    mixed ^ mixed >> 16
}

/// The message of this number from one rank to another.
pub fn test_message(burst: u32, from: u32, to: u32, number: u32) -> TestMessage {
    let pair = from.wrapping_mul(31).wrapping_add(to).wrapping_mul(BURST).wrapping_add(number);
    let dice = mix(burst.wrapping_mul(0x9e37_79b9) ^ mix(pair));
    let mode = match dice >> 28 {
        0 | 1 => Mode::Synchronous,
        2 | 3 => Mode::Ready,
        _ => Mode::Standard,
    };
    // Short ones are three in four; the longest comes once in 64 bursts.
    let choice = dice >> 8 & 31;
    let choice = if dice >> 13 & 3 == 0 { choice } else { choice >> 1 };
    let usual = LENGTHS.get(choice as usize).copied().unwrap_or(0);
    let bytes = if burst % 64 == 63 && number == 3 { LONGEST } else { usual };
    TestMessage { tag: dice.checked_rem(TAGS).unwrap_or(0), bytes, at: mix(dice) as usize % PATTERN_OFFSETS, mode }
}

/// The pattern.
pub fn fill_pattern(pattern: &mut [u8]) {
    for (word, number) in pattern.chunks_mut(4).zip(0..) {
        for (into, byte) in word.iter_mut().zip(mix(number).to_le_bytes()) {
            *into = byte;
        }
    }
}

/// Source and tag of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveSpec {
    /// Source; `None`: any.
    pub source: Option<u32>,
    /// Tag; `None`: any.
    pub tag: Option<u32>,
}

/// The order of receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReceiveOrder {
    Anyone,
    BySource,
    ByTag,
    Exactly,
    /// Several at a time, each exactly.
    Posted,
}

/// The messages of a burst that a rank has not received yet.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedMessages {
    burst: u32,
    own: u32,
    ranks: u32,
    order: ReceiveOrder,
    /// By sender, a bit for each.
    missing: [u32; RANKS],
}

impl ExpectedMessages {
    /// All are missing.
    pub fn new(burst: u32, own: u32, ranks: u32) -> Self {
        let order = match burst.wrapping_add(own) % 5 {
            0 => ReceiveOrder::Anyone,
            1 => ReceiveOrder::BySource,
            2 => ReceiveOrder::ByTag,
            3 => ReceiveOrder::Exactly,
            _ => ReceiveOrder::Posted,
        };
        let mut missing = [0; RANKS];
        for (rank, of) in (0..ranks).zip(&mut missing) {
            *of = if rank == own { 0 } else { (1_u32 << BURST).wrapping_sub(1) };
        }
        Self { burst, own, ranks, order, missing }
    }

    /// Whether several receives are posted at a time.
    pub fn is_posted(&self) -> bool {
        self.order == ReceiveOrder::Posted
    }

    /// Whether each message is probed before it is received.
    pub fn is_probed(&self) -> bool {
        self.burst / 5 % 2 == 1
    }

    fn remaining(&self) -> impl DoubleEndedIterator<Item = (u32, u32, TestMessage)> + '_ {
        (0..self.ranks).flat_map(move |from| {
            let missing = usize::try_from(from).ok().and_then(|from| self.missing.get(from)).copied().unwrap_or(0);
            let numbers = (0..BURST).filter(move |number| missing >> number & 1 == 1);
            numbers.map(move |number| (from, number, test_message(self.burst, from, self.own, number)))
        })
    }

    /// The next receive. `None`: all messages were received.
    pub fn next(&self) -> Option<ReceiveSpec> {
        let tags =
            |of: u32| self.remaining().filter(move |(from, ..)| *from == of).map(|(.., message)| message.tag).max();
        Some(match self.order {
            ReceiveOrder::Anyone => self.remaining().next().map(|_| ReceiveSpec { source: None, tag: None })?,
            ReceiveOrder::BySource => ReceiveSpec { source: Some(self.remaining().next_back()?.0), tag: None },
            ReceiveOrder::ByTag => {
                ReceiveSpec { source: None, tag: Some(self.remaining().map(|(.., message)| message.tag).max()?) }
            }
            ReceiveOrder::Exactly => {
                let (source, ..) = self.remaining().next()?;
                ReceiveSpec { source: Some(source), tag: Some(tags(source)?) }
            }
            ReceiveOrder::Posted => {
                let (source, _, message) = self.remaining().min_by_key(|(from, number, _)| (*number, *from))?;
                ReceiveSpec { source: Some(source), tag: Some(message.tag) }
            }
        })
    }

    /// Removes and returns the message that such a receive matches if it comes from `source`. `None`: there is none.
    pub fn take(&mut self, wanted: ReceiveSpec, source: u32) -> Option<TestMessage> {
        let fits = |(from, _, message): &(u32, u32, TestMessage)| {
            *from == source
                && wanted.source.is_none_or(|of| of == source)
                && wanted.tag.is_none_or(|tag| tag == message.tag)
        };
        let (_, number, message) = self.remaining().find(fits)?;
        let missing = usize::try_from(source).ok().and_then(|source| self.missing.get_mut(source))?;
        *missing &= !(1 << number);
        Some(message)
    }
}

/// Why an exchange failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExchangeError {
    /// A message failed.
    Message(MessageError),
    /// An unexpected message arrived in this burst.
    Wrong(u32),
}

impl From<MessageError> for ExchangeError {
    fn from(error: MessageError) -> Self {
        Self::Message(error)
    }
}

/// The buffers of a node's exchange.
#[derive(Debug)]
pub struct ExchangeBuffers<'a> {
    /// [`PATTERN_BYTES`] bytes, filled by [`fill_pattern`].
    pub pattern: &'a [u8],
    /// [`LONGEST`] bytes.
    pub into: &'a mut [u8],
    /// [`POSTED_LONGEST`] bytes each.
    pub posted: [&'a mut [u8]; POSTED],
}

/// Runs a burst on a node. A barrier has to separate it from the next one, so that receives from any source match none
/// of its messages. Returns the number of received messages. Needs a request record for each message to the others, and
/// [`POSTED`] more.
///
/// # Errors
/// [`ExchangeError`].
pub fn exchange<'a>(
    messages: &mut Messages<'a>,
    buffers: &mut ExchangeBuffers<'a>,
    burst: u32,
    idle: &mut impl Idle,
) -> Result<u32, ExchangeError> {
    let (own, ranks) = (messages.member().local(), messages.member().size());
    let mut sent = [None; BURST as usize * RANKS];
    let mut places = sent.iter_mut();
    for number in 0..BURST {
        for to in (0..ranks).filter(|to| *to != own) {
            let TestMessage { tag, bytes, mode, .. } = test_message(burst, own, to, number);
            let payload = test_message(burst, own, to, number).payload(buffers.pattern);
            if burst.is_multiple_of(2) && bytes <= SHORT_BYTES && mode != Mode::Synchronous {
                messages.send(payload, to, tag, mode, idle)?;
                continue;
            }
            let request = loop {
                match messages.start_send(payload, to, tag, mode) {
                    Err(MessageError::Full) => progress_or_idle(messages, idle),
                    started => break started?,
                }
            };
            if let Some(place) = places.next() {
                *place = Some(request);
            }
        }
    }
    let come = receive_all(messages, buffers, ExpectedMessages::new(burst, own, ranks), idle)?;
    for request in sent.into_iter().flatten() {
        wait(messages, request, idle)?;
    }
    Ok(come)
}

fn receive_all<'a>(
    messages: &mut Messages<'a>,
    buffers: &mut ExchangeBuffers<'a>,
    mut inbox: ExpectedMessages,
    idle: &mut impl Idle,
) -> Result<u32, ExchangeError> {
    let (mut come, wrong) = (0_u32, ExchangeError::Wrong(inbox.burst));
    while let Some(wanted) = inbox.next() {
        if inbox.is_posted() {
            come = come.wrapping_add(receive_several(messages, buffers, &mut inbox, idle)?);
            continue;
        }
        let mut status = messages.probe(wanted.source, wanted.tag)?;
        while inbox.is_probed() && status.is_none() {
            progress_or_idle(messages, idle);
            status = messages.probe(wanted.source, wanted.tag)?;
        }
        let room = status.filter(|_| inbox.is_probed()).map_or(buffers.into.len(), |status| status.bytes);
        let found = buffers.into.get_mut(..room).ok_or(wrong)?;
        let asked = if inbox.is_probed() { status.map(|status| status.source) } else { wanted.source };
        let status = messages.receive(found, asked, wanted.tag, idle)?;
        let message = inbox.take(wanted, status.source).ok_or(wrong)?;
        if (status.tag, status.bytes) != (message.tag, message.bytes)
            || found.get(..status.bytes) != Some(message.payload(buffers.pattern))
        {
            return Err(wrong);
        }
        come = come.wrapping_add(1);
    }
    Ok(come)
}

fn receive_several<'a>(
    messages: &mut Messages<'a>,
    buffers: &mut ExchangeBuffers<'a>,
    inbox: &mut ExpectedMessages,
    idle: &mut impl Idle,
) -> Result<u32, ExchangeError> {
    let (mut come, wrong, mut posted) = (0_u32, ExchangeError::Wrong(inbox.burst), [None; POSTED]);
    for (place, buffer) in posted.iter_mut().zip(&mut buffers.posted) {
        let Some(wanted) = inbox.next() else { break };
        let message = wanted.source.and_then(|source| inbox.take(wanted, source)).ok_or(wrong)?;
        if message.bytes > buffer.len() {
            // The others of its kind follow.
            let status = messages.receive(buffers.into, wanted.source, wanted.tag, idle)?;
            if status.bytes != message.bytes
                || buffers.into.get(..status.bytes) != Some(message.payload(buffers.pattern))
            {
                return Err(wrong);
            }
            come = come.wrapping_add(1);
            continue;
        }
        match messages.start_receive(core::mem::take(buffer), wanted.source, wanted.tag) {
            Ok(request) => *place = Some((request, message)),
            Err((error, back)) => {
                *buffer = back;
                return Err(error.into());
            }
        }
    }
    let mut result = Ok(());
    for (place, buffer) in posted.into_iter().zip(&mut buffers.posted) {
        let Some((request, message)) = place else { continue };
        let ended = loop {
            match messages.take_completed(request) {
                Some(ended) => break ended,
                None => progress_or_idle(messages, idle),
            }
        };
        *buffer = ended.buffer;
        let is_right = ended.result.map(|status| {
            let seen = buffer.get(..status.bytes);
            status.tag == message.tag && seen == Some(message.payload(buffers.pattern))
        });
        result = result.and(match is_right {
            Ok(true) => Ok(()),
            Ok(false) => Err(wrong),
            Err(error) => Err(error.into()),
        });
        come = come.wrapping_add(1);
    }
    result.map(|()| come)
}

fn wait(messages: &mut Messages<'_>, request: Request, idle: &mut impl Idle) -> Result<(), MessageError> {
    loop {
        match messages.take_completed(request) {
            Some(ended) => return ended.result.map(|_| ()),
            None => progress_or_idle(messages, idle),
        }
    }
}

fn progress_or_idle(messages: &mut Messages<'_>, idle: &mut impl Idle) {
    if !messages.poll() {
        idle.idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_receives_every_message_once() {
        for burst in 0..10 {
            let mut inbox = ExpectedMessages::new(burst, 1, 3);
            let mut come = 0;
            while let Some(wanted) = inbox.next() {
                let sources = wanted.source.map_or([0, 2], |source| [source; 2]);
                let taken = sources.into_iter().find_map(|source| inbox.take(wanted, source));
                assert!(taken.is_some(), "burst {burst}: {wanted:?}");
                come += 1;
            }
            assert_eq!(come, 2 * BURST, "burst {burst}");
        }
    }

    #[test]
    fn messages_are_of_every_length_and_mode() {
        let all = || (0..640).flat_map(|burst| (0..BURST).map(move |number| test_message(burst, 0, 1, number)));
        assert!(LENGTHS.iter().chain([&LONGEST]).all(|bytes| all().any(|message| message.bytes == *bytes)));
        assert!(
            [Mode::Standard, Mode::Synchronous, Mode::Ready]
                .iter()
                .all(|mode| all().any(|message| message.mode == *mode))
        );
        assert!((0..TAGS).all(|tag| all().any(|message| message.tag == tag)));
        assert!(all().all(|message| message.at + message.bytes <= PATTERN_BYTES));
    }
}
