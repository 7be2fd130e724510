//! The self-checking message exchange (`unisono_node::self_check::messages`) of a process, with other processes and
//! with nodes without an operating system.

use core::convert::Infallible;

use unisono::{Buffer, Communicator, Failure, Rank, Scope, Tag, World};
use unisono_node::messages::Mode;
use unisono_node::self_check::messages::{
    BURST, ExpectedMessages, LONGEST, PATTERN_BYTES, POSTED, POSTED_LONGEST, ReceiveSpec, TestMessage, fill_pattern,
    test_message,
};
use unisono_shmem::am_header::SHORT_BYTES;

/// The buffers of an exchange.
#[derive(Debug)]
pub struct ExchangeBuffers {
    pattern: Vec<u8>,
    /// The pattern, in shared memory.
    shared: Buffer<u8>,
    into: Vec<u8>,
    posted: [Vec<u8>; POSTED],
}

/// Why an exchange failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExchangeError {
    /// A message failed.
    Message(Failure),
    /// An unexpected message arrived.
    Wrong {
        /// The burst.
        burst: u32,
        /// The receive.
        wanted: ReceiveSpec,
        /// The expected message.
        message: Option<TestMessage>,
        /// Source, tag and bytes of the message.
        found: (u32, u32, usize),
    },
}

impl From<Failure> for ExchangeError {
    fn from(failure: Failure) -> Self {
        Self::Message(failure)
    }
}

impl core::fmt::Display for ExchangeError {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Message(failure) => failure.fmt(to),
            Self::Wrong { burst, wanted, message, found } => {
                write!(to, "burst {burst}: receive {wanted:?} got {found:?} instead of {message:?}, or wrong bytes")
            }
        }
    }
}

impl ExchangeBuffers {
    /// Buffers for this rank.
    ///
    /// # Errors
    /// There is too little shared memory.
    pub fn new(world: &World) -> Result<Self, String> {
        let (mut quarry, mut shared) =
            (vec![0; PATTERN_BYTES], world.allocate(PATTERN_BYTES).map_err(|error| format!("no memory: {error}"))?);
        fill_pattern(&mut quarry);
        shared.copy_from_slice(&quarry);
        Ok(Self {
            pattern: quarry,
            shared,
            into: vec![0; LONGEST],
            posted: [(); POSTED].map(|()| vec![0; POSTED_LONGEST]),
        })
    }

    /// Runs a burst, and returns the number of received messages. All ranks of the job take part, and separate it from
    /// the next one by a barrier. `trouble` must not return: a rank that completed its started operations might wait
    /// for other failing ranks.
    pub fn exchange(&mut self, world: &World, burst: u32, trouble: impl FnOnce(ExchangeError) -> Infallible) -> u32 {
        let Self { pattern: quarry, shared, into, posted } = self;
        // Every third burst sends long payloads from shared memory.
        let from: &[u8] = if burst % 3 == 2 { shared } else { quarry };
        world.scope(|scope| {
            let come = run_burst(scope, world, burst, BurstBuffers { from, pattern: quarry, into, posted });
            come.unwrap_or_else(|reason| match trouble(reason) {})
        })
    }
}

/// Source, reference pattern and receive buffers of a burst.
struct BurstBuffers<'m> {
    from: &'m [u8],
    pattern: &'m [u8],
    into: &'m mut [u8],
    posted: &'m mut [Vec<u8>; POSTED],
}

fn run_burst<'s>(
    scope: &'s Scope<'s, '_>,
    world: &World,
    burst: u32,
    memory: BurstBuffers<'s>,
) -> Result<u32, ExchangeError> {
    let (own, ranks, BurstBuffers { from, pattern: quarry, into, posted }) = (world.rank().0, world.size(), memory);
    for number in 0..BURST {
        for to in (0..ranks).filter(|to| *to != own) {
            let message = test_message(burst, own, to, number);
            let (payload, to, tag) = (message.payload(from), Rank(to), Tag(message.tag));
            match message.mode {
                Mode::Synchronous => scope.immediate_synchronous_send(payload, to, tag).map(drop)?,
                _ if burst.is_multiple_of(2) && message.bytes <= SHORT_BYTES => world.send(payload, to, tag)?,
                Mode::Ready => scope.immediate_ready_send(payload, to, tag).map(drop)?,
                Mode::Standard => scope.immediate_send(payload, to, tag).map(drop)?,
            }
        }
    }
    let (mut inbox, mut come) = (ExpectedMessages::new(burst, own, ranks), 0);
    let mut free = posted.each_mut().map(|buffer| Some(buffer.as_mut_slice()));
    while let Some(wanted) = inbox.next() {
        let (source, tag) = (wanted.source.map(Rank), wanted.tag.map(Tag));
        if !inbox.is_posted() {
            let probed = if inbox.is_probed() { Some(world.probe(source, tag)?) } else { None };
            let room = probed.map_or(into.len(), |status| status.bytes);
            let source = probed.map_or(source, |status| Some(status.source));
            let found = receive(world, into.get_mut(..room).unwrap_or_default(), source, tag)?;
            let message = inbox.take(wanted, found.0);
            check_message(burst, wanted, message, found, into, quarry)?;
            come += 1;
            continue;
        }
        let mut loans = Vec::new();
        for place in &mut free {
            let Some(wanted) = inbox.next() else { break };
            let message = wanted.source.and_then(|source| inbox.take(wanted, source));
            let (source, tag) = (wanted.source.map(Rank), wanted.tag.map(Tag));
            if message.is_some_and(|message| message.bytes > POSTED_LONGEST) {
                let found = receive(world, into, source, tag)?;
                check_message(burst, wanted, message, found, into, quarry)?;
                come += 1;
            } else if let Some(buffer) = place.take() {
                loans.push((scope.immediate_receive_returning(buffer, source, tag)?, place, wanted, message));
            }
        }
        for (loan, place, wanted, message) in loans {
            let (ended, buffer) = loan.wait();
            let status = ended?;
            let found = (status.source.0, status.tag.0, status.bytes);
            check_message(burst, wanted, message, found, buffer, quarry)?;
            *place = Some(buffer);
            come += 1;
        }
    }
    Ok(come)
}

/// Receives a message. Returns its source, tag and bytes.
fn receive(
    world: &Communicator,
    into: &mut [u8],
    source: Option<Rank>,
    tag: Option<Tag>,
) -> Result<(u32, u32, usize), Failure> {
    let status = match (source, tag) {
        (Some(source), Some(tag)) => world.receive_into(into, source, tag)?,
        (None, tag) => world.receive_any_into(into, tag)?,
        (source, tag) => world.scope(|scope| scope.immediate_receive_into(into, source, tag)?.wait())?,
    };
    Ok((status.source.0, status.tag.0, status.bytes))
}

fn check_message(
    burst: u32,
    wanted: ReceiveSpec,
    message: Option<TestMessage>,
    found: (u32, u32, usize),
    bytes: &[u8],
    pattern: &[u8],
) -> Result<(), ExchangeError> {
    let is_it = |message: &TestMessage| (message.tag, message.bytes) == (found.1, found.2);
    let is_whole = |message: &TestMessage| bytes.get(..found.2) == Some(message.payload(pattern));
    if message.as_ref().is_some_and(|message| is_it(message) && is_whole(message)) {
        return Ok(());
    }
    Err(ExchangeError::Wrong { burst, wanted, message, found })
}
