//! One rank: its endpoint and messenger in arrays, and its memory, of which each message has one value.

use alloc::collections::{BTreeMap, BTreeSet};

use unisono_core::counters::Counters;
use unisono_core::device::{DeviceQueue, HEADER_ROOM, Received, Slot, Ticket};
use unisono_core::endpoint::{Endpoint, Verdict};
use unisono_core::ids::{Incarnation, PeerId, Port, RemoteKey};
use unisono_core::message::collective_transport::{self, CollectivePeer, Entry, StepKey};
use unisono_core::message::matching::{self, PostedReceive, RecordData, Unexpected};
use unisono_core::message::point_to_point::{self, MessageBody, MessagePeer, Mode, ReceiveBody, SendRecord};
use unisono_core::message::{Context, Pattern, Tag};
use unisono_core::messenger::{
    Config, Event, Message, Messenger, MessengerHandler, MessengerStorage, Pools, QueuedMessage, ReceiveOp, SendOp,
    StepMessage, Stores,
};
use unisono_core::span::{Region, RegionRange, Span};
use unisono_core::transport::{EndpointHost, EndpointTransport, Fetch, Token, TokenTable};

use crate::models::small_endpoint::{Records, small_endpoint};

/// Bytes of the longest datagram: a header and the longest header of a message.
const MTU: u32 = 64;
/// Segments of a window, and bits of a sequence number.
const WINDOW: usize = 8;
const BITS: u32 = 5;
/// Operations of the endpoint: fewer than there are messages.
const OPERATIONS: usize = 1;
const PLACEMENTS: usize = 1;
const NOTICES: usize = 3;
/// Tokens of the device.
const TOKENS: u32 = 8;
const HOLDABLE: usize = 2;
/// Records of each kind, of each class.
const RECORDS: usize = 2;
const HEADERS: u16 = 1;
/// Most rounds of progress in one action: more than any needs that copies nothing.
const ROUNDS: u32 = 16;

type Tokens = TokenTable<[Token; OPERATIONS], [Token; PLACEMENTS]>;

/// The storage of a messenger.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Storage;

impl<R: RecordData, M: RecordData> matching::MatchingStorage<R, M> for Storage {
    type Receives = [PostedReceive<R>; RECORDS];
    type Messages = [Unexpected<M>; 2 * HEADERS as usize];
    type Buckets = [u32; 6];
}

impl point_to_point::MessageStorage for Storage {
    type Sends = [SendRecord; RECORDS];
    type Peers = [MessagePeer; 2];
    type Slots = [u32; 1];
}

impl MessengerStorage for Storage {
    type SendOps = [SendOp; RECORDS];
    type ReceiveOps = [ReceiveOp; RECORDS];
    type Outbox = [QueuedMessage; 3];
    type CollectivePeers = [CollectivePeer; 2];
    type CollectiveEntries = [Entry; 1];
}

/// Regions: early payloads, then the buffers of point-to-point messages and of the collective's.
const SHORT: u32 = 0;
const SLOTS: u32 = 1;
const STEPS: u32 = 2;
const MESSAGES: u32 = 3;
const STEP: u32 = 8;

/// The value that a buffer has after its send is complete.
const REUSED: u8 = 0xff;

/// A datagram: its bytes, all of its payload's being equal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Datagram(Vec<u8>);

/// An observation of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Observation {
    /// A datagram left.
    Sent(Datagram),
    /// A send or receive is complete, failed or was cancelled.
    Ended {
        /// It is the collective's.
        is_step: bool,
        /// Its number in its class.
        number: u32,
    },
    /// A rule is broken.
    Broken(&'static str),
}

/// Values by region and offset.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Memory {
    values: BTreeMap<(u32, usize), u8>,
    keys: u64,
    /// The peer's memory, while it can be read.
    reached: Option<BTreeMap<(u32, usize), u8>>,
    /// Copies that this action may still make.
    copies: u8,
    fetches: Fetches,
    /// Reads that have not ended.
    reads: Vec<Read>,
    /// Buffers whose receive has ended: they are their user's.
    released: BTreeSet<u32>,
    is_written_late: bool,
}

/// How a rank reads its peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fetches {
    /// It copies a part in each action, of as many bytes of a payload as this.
    Copied(usize),
    /// The transport reads a part at a time, and reports its end later.
    Started,
}

/// A part of a payload that is being read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Read {
    token: Token,
    into: RegionRange,
    at: u64,
    is_last: bool,
}

/// Bytes of a payload that are copied at a time.
const CHUNK: usize = 10;

impl Memory {
    fn read(&self, span: Span) -> u8 {
        self.values.get(&(span.region.index(), span.offset)).copied().unwrap_or(REUSED)
    }

    fn write(&mut self, region: Region, offset: usize, value: u8) {
        self.is_written_late |= self.released.contains(&region.index());
        self.values.insert((region.index(), offset), value);
    }
}

impl Default for Fetches {
    fn default() -> Self {
        Self::Copied(0)
    }
}

impl EndpointHost for Memory {
    fn next_key(&mut self) -> RemoteKey {
        self.keys += 1;
        RemoteKey(self.keys)
    }

    fn copy(&mut self, from: Span, into: RegionRange) {
        self.write(into.region, into.offset, self.read(from));
        // It is not read any more.
        self.values.remove(&(from.region.index(), from.offset));
    }

    fn fetch(&mut self, _: PeerId, at: u64, into: RegionRange, copied: usize, token: Token) -> Fetch {
        let Fetches::Copied(reach) = self.fetches else {
            let part = CHUNK.min(into.bytes - copied);
            self.reads.push(Read { token, into, at, is_last: copied + part == into.bytes });
            return Fetch::Started(part);
        };
        let Some(reached) = self.reached.as_ref().filter(|_| copied < reach) else { return Fetch::Unreachable };
        if self.copies == 0 {
            return Fetch::Copied(0);
        }
        self.copies -= 1;
        if copied + CHUNK < into.bytes {
            return Fetch::Copied(CHUNK);
        }
        // The last bytes of the payload have its value.
        let value = reached.get(&(at as u32, 0)).copied().unwrap_or(REUSED);
        self.write(into.region, into.offset, value);
        Fetch::Complete
    }

    fn abort_fetch(&mut self, token: Token) {
        self.reads.retain(|read| read.token != token);
    }
}

/// The rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Side {
    rank: u32,
    endpoint: Endpoint<Records<OPERATIONS, PLACEMENTS, NOTICES>, WINDOW, BITS>,
    messenger: Messenger<Storage>,
    tokens: Tokens,
    memory: Memory,
    held: [Option<Datagram>; HOLDABLE],
    is_peer_gone: bool,
}

const fn region(index: u32) -> Region {
    Region::new(index, 0)
}

const fn incarnation(rank: u32) -> Incarnation {
    Incarnation(20 + rank)
}

fn messenger() -> Messenger<Storage> {
    let pools = Pools {
        messages: point_to_point::Pools {
            receives: [PostedReceive::<ReceiveBody>::default(); RECORDS],
            messages: [Unexpected::<MessageBody>::default(); 2 * HEADERS as usize],
            sends: [SendRecord::FREE; RECORDS],
            peers: [MessagePeer::NEW; 2],
            slots: [0],
            buckets: [[0; 6]; 3],
        },
        steps: collective_transport::Pools {
            peers: [CollectivePeer::new(1); 2],
            sends: [Entry::FREE],
            receives: [Entry::FREE],
            slots: [Entry::FREE],
            headers: [Entry::FREE],
        },
        sends: [[SendOp::FREE; RECORDS]; 2],
        receives: [[ReceiveOp::FREE; RECORDS]; 2],
        outboxes: [[QueuedMessage::FREE; 3]; 2],
    };
    let config = Config {
        messages: point_to_point::Config { headers: HEADERS, short: 1, slot: 2, seed: 0 },
        step_credit: 1,
        stores: Stores { short: region(SHORT), slots: region(SLOTS), steps: region(STEPS), step_bytes: 1 },
    };
    Messenger::new(config, pools).expect("the storage is large enough")
}

impl Side {
    pub(super) fn new(rank: u32, fetches: Fetches) -> Self {
        let mut endpoint = small_endpoint(PeerId(rank), incarnation(rank), HOLDABLE);
        endpoint.add_peer((), PeerId(1 - rank), incarnation(1 - rank), MTU);
        Self {
            rank,
            endpoint,
            messenger: messenger(),
            tokens: TokenTable::new([Token::NOBODY; OPERATIONS], [Token::NOBODY; PLACEMENTS]),
            memory: Memory { fetches, ..Memory::default() },
            held: [const { None }; HOLDABLE],
            is_peer_gone: false,
        }
    }

    pub(super) fn waits_for_acknowledgement(&self) -> bool {
        self.endpoint.poll_timeout(()).is_some() && !self.endpoint.is_acknowledged()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.messenger.is_idle()
    }

    const fn other(&self) -> PeerId {
        PeerId(1 - self.rank)
    }

    fn with_transport<T>(
        &mut self,
        run: impl FnOnce(
            &mut Messenger<Storage>,
            &mut EndpointTransport<
                '_,
                Records<OPERATIONS, PLACEMENTS, NOTICES>,
                [Token; OPERATIONS],
                [Token; PLACEMENTS],
                Memory,
                WINDOW,
                BITS,
            >,
        ) -> T,
    ) -> T {
        let Self { endpoint, messenger, tokens, memory, .. } = self;
        run(messenger, &mut EndpointTransport { now: (), endpoint, tokens, host: memory })
    }

    /// Posts a send, if this is rank 0, or a receive. `None`: there is no room.
    pub(super) fn post(&mut self, is_step: bool, user: u32, bytes: usize) -> Option<()> {
        let (peer, sends) = (self.other(), self.rank == 0);
        // Distinct in both classes: a step is known by it.
        let user = if is_step { STEP } else { user };
        let buffer = RegionRange { region: region(if is_step { STEP } else { MESSAGES + user }), offset: 0, bytes };
        if sends {
            self.memory.write(buffer.region, 0, value(user));
        }
        let key = StepKey { context: 1, sequence: 1, step: 1 };
        let at = u64::from(buffer.region.index());
        let posted = self.with_transport(|messenger, transport| match (sends, is_step) {
            (true, true) => {
                let (payload, port) = (buffer.span(0, bytes), Port::ONLY);
                messenger.send_step(transport, &StepMessage { to: peer, key, payload, at, port, user }).is_ok()
            }
            (false, true) => messenger.receive_step(transport, peer, key, buffer.span(0, bytes), user).is_ok(),
            (true, false) => {
                let (context, tag, mode) = (Context(0), Tag(1), Mode::Standard);
                let (eager, borrowed) = (u32::MAX, true);
                let message = Message { to: peer, context, tag, mode, payload: buffer, at, eager, borrowed, user };
                messenger.send(transport, &message).is_ok()
            }
            (false, false) => {
                let pattern = Pattern { context: Context(0), source: None, tag: Some(Tag(1)) };
                messenger.receive(transport, pattern, buffer, user).is_ok()
            }
        });
        posted.then_some(())
    }

    /// The rank can read its peer's memory, and makes one copy, until [`leave`](Self::leave) is called.
    pub(super) fn reach(&mut self, peer: &Self) {
        if self.memory.fetches != Fetches::default() {
            self.memory.reached = Some(peer.memory.values.clone());
            self.memory.copies = 1;
        }
    }

    /// See [`reach`](Self::reach).
    pub(super) fn leave(&mut self) {
        (self.memory.reached, self.memory.copies) = (None, 0);
    }

    /// Whether a payload is being copied.
    pub(super) fn is_copying(&self) -> bool {
        matches!(self.memory.fetches, Fetches::Copied(1..)) && !self.messenger.is_idle()
    }

    /// The number of reads that have not ended.
    pub(super) const fn reads(&self) -> usize {
        self.memory.reads.len()
    }

    /// A read ends, after it has written: if it fails, perhaps a part, and anything.
    pub(super) fn end_read(&mut self, which: usize, is_ok: bool) {
        let Read { token, into, at, is_last } = self.memory.reads.remove(which);
        let reached = self.memory.reached.as_ref().and_then(|reached| reached.get(&(at as u32, 0)).copied());
        let value = reached.filter(|_| is_last && is_ok).unwrap_or(REUSED);
        self.memory.write(into.region, into.offset, value);
        self.messenger.handle_fetched(token, is_ok);
    }

    /// Cancels the collective's message. Its buffer is its user's, unless an event follows.
    pub(super) fn cancel(&mut self) -> Vec<Observation> {
        let mut is_cancelled = false;
        self.with_transport(|messenger, transport| {
            messenger.cancel_steps(transport, |user| user == STEP, |_| is_cancelled = true);
        });
        let mut seen = Vec::new();
        if is_cancelled {
            self.release(STEP, &mut seen);
        }
        seen.extend(self.progress());
        seen
    }

    /// The peer is gone.
    pub(super) fn disconnect(&mut self) -> Vec<Observation> {
        self.is_peer_gone = true;
        self.endpoint.fail((), self.other());
        self.handle_events();
        self.progress()
    }

    /// A message is complete, or nobody waits for it: its buffer is used again.
    fn release(&mut self, user: u32, seen: &mut Vec<Observation>) {
        let is_step = user == STEP;
        let buffer = region(if is_step { STEP } else { MESSAGES + user });
        if self.rank == 0 {
            self.memory.write(buffer, 0, REUSED);
        } else {
            self.memory.released.insert(buffer.index());
        }
        seen.push(Observation::Ended { is_step, number: if is_step { 0 } else { user } });
    }

    pub(super) fn progress(&mut self) -> Vec<Observation> {
        let (mut seen, mut rounds) = (Vec::new(), 0..ROUNDS);
        while rounds.next().is_some() {
            self.drain_events(&mut seen);
            let moved = self.with_transport(|messenger, transport| messenger.progress(transport));
            self.drain_events(&mut seen);
            if !self.transmit(&mut seen) && !moved {
                break;
            }
            self.handle_events();
        }
        self.endpoint.handle_round(());
        self.transmit(&mut seen);
        seen
    }

    pub(super) fn time_out(&mut self) -> Vec<Observation> {
        self.endpoint.handle_timeout(());
        self.progress()
    }

    /// A datagram arrives; what ended by it is known to the messenger.
    pub(super) fn deliver(&mut self, datagram: &Datagram) {
        let from = self.other();
        let Self { endpoint, messenger, memory, held, .. } = self;
        let mut handler = MessengerHandler { messenger, counters: &mut Counters::default() };
        endpoint.receive_batch((), &mut handler, |batch| {
            let cell = held.iter().position(Option::is_none).unwrap_or(HOLDABLE);
            let verdict = *batch.handle_datagram(&Arrival { datagram, slot: Slot(cell as u32), from });
            match verdict {
                Verdict::Hold => held[cell] = Some(datagram.clone()),
                verdict => place(memory, verdict, datagram),
            }
            while let Some(slot) = batch.poll_deferred() {
                let Some(datagram) = held[slot.0 as usize].take() else { break };
                let verdict = *batch.handle_held(&Arrival { datagram: &datagram, slot, from });
                place(memory, verdict, &datagram);
            }
        });
        self.handle_events();
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event(()) {
            self.with_transport(|messenger, transport| messenger.handle_endpoint_event(transport, event));
        }
    }

    fn drain_events(&mut self, seen: &mut Vec<Observation>) {
        while let Some(event) = self.messenger.poll_event() {
            let (user, is_ok) = match event {
                Event::Sent { user, result, .. } => (user, result.is_ok()),
                Event::Received { user, result, .. } => (user, result.is_ok()),
                Event::ProtocolViolation(_) => {
                    seen.push(Observation::Broken("a rank violates the protocol"));
                    continue;
                }
            };
            let buffer = region(if user == STEP { STEP } else { MESSAGES + user });
            let is_received = || self.memory.read(Span { region: buffer, offset: 0, bytes: 1 }) == value(user);
            if !is_ok && !self.is_peer_gone {
                seen.push(Observation::Broken("a message fails"));
            } else if is_ok && self.rank == 1 && !is_received() {
                seen.push(Observation::Broken("a receive completes without its payload"));
            }
            self.release(user, seen);
        }
        if self.memory.is_written_late {
            seen.push(Observation::Broken("a buffer is written after its receive has ended"));
        }
    }

    fn transmit(&mut self, seen: &mut Vec<Observation>) -> bool {
        let before = seen.len();
        let Self { endpoint, messenger, memory, .. } = self;
        let mut handler = MessengerHandler { messenger, counters: &mut Counters::default() };
        let posted = endpoint.transmit_batch((), DeviceQueue::Polled, &mut handler, |batch| {
            let mut posted = 0;
            while posted < TOKENS {
                let mut head = [0; HEADER_ROOM];
                let Some(transmit) = batch.poll_transmit(Ticket(posted), &mut head) else { break };
                let mut bytes = head[..usize::from(transmit.header_bytes)].to_vec();
                if let Some(payload) = transmit.payload {
                    bytes.resize(bytes.len() + payload.bytes as usize, memory.read(payload));
                }
                seen.push(Observation::Sent(Datagram(bytes)));
                posted += 1;
            }
            posted
        });
        if let Some(last) = posted.checked_sub(1) {
            endpoint.handle_completed((), DeviceQueue::Polled, Ticket(last));
        }
        seen.len() > before
    }
}

/// The value of a message.
const fn value(user: u32) -> u8 {
    user as u8 + 1
}

fn place(memory: &mut Memory, verdict: Verdict, datagram: &Datagram) {
    if let Verdict::Place { to, start } = verdict
        && let Some(value) = datagram.0.get(usize::from(start))
    {
        memory.write(to.region, to.offset, *value);
    }
}

struct Arrival<'a> {
    datagram: &'a Datagram,
    slot: Slot,
    from: PeerId,
}

impl Received for Arrival<'_> {
    fn slot(&self) -> Slot {
        self.slot
    }
    fn bytes(&self) -> u32 {
        self.datagram.0.len() as u32
    }
    fn prefix(&self) -> &[u8] {
        &self.datagram.0[..self.datagram.0.len().min(HEADER_ROOM)]
    }
    fn is_from(&self, peer: PeerId) -> bool {
        peer == self.from
    }
    fn age_ns(&self) -> Option<u32> {
        None
    }
}
