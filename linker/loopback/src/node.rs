//! One process of the exchange: an endpoint, its device, its memory and its message handler.
//!
//! Each node sends [`MESSAGES`] eager messages, each with a header and a piece of its source, and grants the other its
//! bulk memory, which the other fills from its own source by placement. Then it leaves.

use unisono_core::counters::{Counters, Metric};
use unisono_core::device::Device;
use unisono_core::endpoint::operation::{EnqueueError, Operation};
use unisono_core::endpoint::peer::Peer;
use unisono_core::endpoint::placement::Placement;
use unisono_core::endpoint::storage::Arrays;
use unisono_core::endpoint::{Config, Endpoint, Event, Handler, Pools, Sender, Verdict};
use unisono_core::ids::{Incarnation, PeerId, PlacementId, RemoteKey};
use unisono_core::progress::make_progress;
use unisono_core::span::{Region, Span};
use unisono_core::time::{Micros, Time as _};
use unisono_core::window::receive_window::ReceiveWindow;

use crate::device::{LoopbackDevice, MTU};
use crate::pattern;
use crate::regions::{Bytes, Regions};

/// Eager messages per node.
pub const MESSAGES: u32 = 500;
/// Payload bytes of one.
pub const PIECE: u32 = 100;
/// Bytes that the messages carry from a node's source to the other's inbox.
pub const STREAM: usize = (MESSAGES * PIECE) as usize;
/// Bytes that are placed, from a node's source to the other's bulk memory.
pub const BULK: usize = 64 << 10;
/// Bytes of a source: the messages' and the placement's.
pub const SOURCE: usize = STREAM + BULK;

/// Segments per window.
const WINDOW: usize = 32;
/// Datagrams received and sent in one round at most.
const BUDGET: u32 = 16;
const PEERS: usize = 2;
const WINDOWS: usize = 1;
const OPERATIONS: usize = 8;
const PLACEMENTS: usize = 1;
const NOTICES: usize = 16;
const REGIONS: usize = 3;

type Core = Endpoint<Arrays<Micros, PEERS, WINDOWS, OPERATIONS, PLACEMENTS, NOTICES>, WINDOW, 32>;

/// Header of a message: its number, and the sender's grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MessageHeader {
    number: u32,
    placement: PlacementId,
    key: RemoteKey,
}

impl MessageHeader {
    const BYTES: u16 = 16;

    fn emit(self) -> [u8; Self::BYTES as usize] {
        let mut bytes = [0; Self::BYTES as usize];
        let words = self.number.to_le_bytes().into_iter().chain(self.placement.0.to_le_bytes());
        for (to, from) in bytes.iter_mut().zip(words.chain(self.key.0.to_le_bytes())) {
            *to = from;
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (placement, rest) = rest.split_first_chunk()?;
        let (key, _) = rest.split_first_chunk()?;
        Some(Self {
            number: u32::from_le_bytes(*number),
            placement: PlacementId(u32::from_le_bytes(*placement)),
            key: RemoteKey(u64::from_le_bytes(*key)),
        })
    }
}

/// The message handler: places each message in the inbox by its number.
#[derive(Debug)]
struct Inbox {
    region: Region,
    delivered: u32,
    misordered: u32,
    /// The peer's grant, until it is used.
    granted: Option<(PlacementId, RemoteKey)>,
    counters: Counters,
}

impl Handler for Inbox {
    fn handle_eager(&mut self, _: PeerId, head: &[u8], bytes: u32) -> Verdict {
        let whole = bytes == PIECE.saturating_add(MessageHeader::BYTES.into());
        let Some(head) = MessageHeader::parse(head).filter(|head| whole && head.number == self.delivered) else {
            self.misordered = self.misordered.saturating_add(1);
            return Verdict::Release;
        };
        if self.delivered == 0 {
            self.granted = Some((head.placement, head.key));
        }
        self.delivered = self.delivered.saturating_add(1);
        Verdict::Place { to: message_span(self.region, head.number), start: MessageHeader::BYTES }
    }

    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }
}

/// The place of a message's payload, in the sender's source and in the receiver's inbox.
fn message_span(region: Region, number: u32) -> Span {
    let offset = usize::try_from(number.wrapping_mul(PIECE)).unwrap_or(usize::MAX);
    Span { region, offset, bytes: PIECE }
}

/// Progress of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Messages handed to the endpoint.
    pub sent: u32,
    /// Operations that completed without an error.
    pub completed: u32,
    /// Bytes that the other node placed.
    pub placed: u32,
    /// Events that should not be: failed operations, a failed or silent peer, a refused grant.
    pub failures: u32,
}

/// A node.
#[derive(Debug)]
pub struct Node<'d, 'm> {
    endpoint: Core,
    device: &'d mut LoopbackDevice<'m>,
    memory: Regions<'m, REGIONS>,
    /// Source, inbox and bulk memory.
    bytes: [Bytes<'m>; REGIONS],
    source: Region,
    inbox: Inbox,
    progress: Progress,
    peer: PeerId,
    grant: (PlacementId, RemoteKey),
}

impl<'d, 'm> Node<'d, 'm> {
    /// The node of rank 0 or 1, with [`SOURCE`], [`STREAM`] and [`BULK`] bytes of memory. It knows the other's
    /// incarnation from the start, as if from bootstrap, and has granted it the bulk memory.
    pub fn new(
        now: u32,
        rank: u32,
        device: &'d mut LoopbackDevice<'m>,
        source: Bytes<'m>,
        inbox: Bytes<'m>,
        bulk: Bytes<'m>,
    ) -> Self {
        let peer = PeerId(1_u32.wrapping_sub(rank));
        device.attach(PeerId(rank), PEERS as u32);
        pattern::fill(source, rank);
        let config = Config::new(PeerId(rank), incarnation(PeerId(rank)), &device.limits());
        let pools = Pools {
            peers: [Peer::UNKNOWN; PEERS],
            senders: [Sender::FREE; WINDOWS],
            rails: [],
            receivers: [ReceiveWindow::EMPTY; WINDOWS],
            operations: [Operation::FREE; OPERATIONS],
            placements: [Placement::FREE; PLACEMENTS],
            control_messages: [unisono_core::endpoint::ControlMessage::FREE; NOTICES],
        };
        let mut endpoint = Core::new(now, config, pools);
        endpoint.add_peer(now, peer, incarnation(peer), MTU as u32);
        let mut memory = Regions::new();
        // The table has room for all three.
        let mut region = |bytes| memory.make(bytes).unwrap_or_default();
        let (from, into, filled) = (region(source), region(inbox), region(bulk));
        let key = RemoteKey(u64::from(rank) << 32 | 0x5eed);
        let granted = endpoint.grant(peer, Span { region: filled, offset: 0, bytes: BULK as u32 }, key);
        let progress = Progress { failures: u32::from(granted.is_err()), ..Progress::default() };
        Self {
            endpoint,
            device,
            memory,
            bytes: [source, inbox, bulk],
            source: from,
            inbox: Inbox { region: into, delivered: 0, misordered: 0, granted: None, counters: Counters::default() },
            progress,
            peer,
            grant: (granted.unwrap_or_default(), key),
        }
    }

    /// The device at this node's end of the wire.
    pub fn device(&mut self) -> &mut LoopbackDevice<'m> {
        self.device
    }

    /// Its progress.
    pub const fn progress(&self) -> Progress {
        self.progress
    }

    /// Counters of its endpoint.
    pub const fn counters(&self) -> &Counters {
        &self.inbox.counters
    }

    /// Messages that arrived in their order, and those that did not.
    pub const fn delivered(&self) -> (u32, u32) {
        (self.inbox.delivered, self.inbox.misordered)
    }

    /// Whether it has left.
    pub fn has_left(&self) -> bool {
        self.endpoint.is_closed()
    }

    /// Bytes of inbox and bulk memory that are not the other's.
    pub fn wrong_bytes(&self) -> u32 {
        let [_, inbox, bulk] = self.bytes;
        // The source's seed is the sender's rank; the bulk's bytes follow the stream's.
        let seed = self.peer.0;
        pattern::wrong(inbox, seed).saturating_add(pattern::wrong(bulk, seed.wrapping_add(STREAM as u32)))
    }

    /// Microseconds until its next timeout. `None`: no timer runs.
    pub fn idle_time(&self, now: u32) -> Option<u32> {
        let at = self.endpoint.poll_timeout(now)?;
        Some(if Micros::is_due(now, at) { 0 } else { at.wrapping_sub(now) })
    }

    /// One round: submits operations, lets the endpoint send and receive, handles its events. Returns whether anything
    /// moved.
    pub fn step(&mut self, now: u32) -> bool {
        self.submit(now);
        let Self { endpoint, device, memory, inbox: above, .. } = self;
        let mut moved = make_progress(
            now,
            unisono_core::device::DeviceQueue::Polled,
            endpoint,
            &mut **device,
            memory,
            above,
            BUDGET,
        );
        while let Some(event) = self.endpoint.poll_event(now) {
            moved = true;
            match event {
                Event::Completed(_, Ok(())) => self.progress.completed = self.progress.completed.saturating_add(1),
                Event::Delivered(_, bytes) => self.progress.placed = self.progress.placed.saturating_add(bytes),
                Event::PeerFinished(_) => {}
                Event::Completed(_, Err(_)) | Event::PeerFailed(_) | Event::PeerSilent(_) => self.fail(),
            }
        }
        moved
    }

    fn fail(&mut self) {
        self.progress.failures = self.progress.failures.saturating_add(1);
    }

    fn submit(&mut self, now: u32) {
        let (placement, key) = self.grant;
        while self.progress.sent < MESSAGES {
            let head = MessageHeader { number: self.progress.sent, placement, key }.emit();
            match self.endpoint.send(now, self.peer, &head, Some(message_span(self.source, self.progress.sent))) {
                Ok(_) => self.progress.sent = self.progress.sent.saturating_add(1),
                Err(EnqueueError::Full) => break,
                Err(_) => return self.fail(),
            }
        }
        if let Some((placement, key)) = self.inbox.granted {
            let from = Span { region: self.source, offset: STREAM, bytes: BULK as u32 };
            match self.endpoint.place(now, self.peer, placement, key, from) {
                Ok(_) => self.inbox.granted = None,
                Err(EnqueueError::Full) => {}
                Err(_) => self.fail(),
            }
        }
        // Everything of ours is acknowledged and everything of the peer's is here.
        if self.progress.completed == MESSAGES + 1
            && self.progress.placed == BULK as u32
            && self.inbox.delivered == MESSAGES
        {
            self.endpoint.shutdown();
        }
    }
}

/// The incarnation of a rank's process. A real job uses fresh random bits, exchanged through bootstrap.
const fn incarnation(rank: PeerId) -> Incarnation {
    Incarnation(rank.0.wrapping_mul(0x9E37_79B9).wrapping_add(0x1234_5678))
}
