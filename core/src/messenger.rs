//! The messages of a process, over any [`Transport`]: point-to-point and collective messages joined with the way to
//! each peer, and followed to their end.
//!
//! [`PointToPoint`] and [`CollectiveTransport`] decide what is sent eagerly, announced, matched and granted. The
//! messenger keeps a record of each send and receive, posts headers and payloads, moves announced payloads by one
//! rendezvous for both classes, and reports what is complete.
//!
//! # Rendezvous
//! The receiver of an announced message fetches the payload, if the transport reaches it, and sends a FIN. The transport
//! copies it at once, or starts to read it and reports the end. Otherwise, or if that fails, the receiver grants memory
//! part by part (CTS), and the sender places each part; the next part is granted when the last has arrived.
//!
//! # Classes
//! Point-to-point and collective messages have records, slots and credit of their own: as many messages as fit block no
//! collective.
//!
//! # Calling contract
//! - The host hands over every arrived message in the order of its peer ([`handle`](Messenger::handle)), and copies its
//!   payload as the result says before it polls events.
//! - It reports what the transport completed ([`handle_sent`](Messenger::handle_sent),
//!   [`handle_delivered`](Messenger::handle_delivered), [`handle_fetched`](Messenger::handle_fetched)) and which peers
//!   are gone ([`disconnect`](Messenger::disconnect)).
//! - After any of these and after posting it calls [`progress`](Messenger::progress) and drains
//!   [`poll_event`](Messenger::poll_event).
//!
//! # Costs
//! Each call takes constant expected time, except [`progress`](Messenger::progress), which visits the messages that
//! wait, and [`disconnect`](Messenger::disconnect), which visits all records. Memory is provided by the host.

mod arrival;
mod disconnect;
mod endpoint;
mod grow;
mod operations;
mod outbox;
mod own_sends;
mod post;
mod queries;
mod rendezvous;
mod steps;
#[cfg(test)]
mod tests;

use core::marker::PhantomData;

use crate::ids::{PeerId, Port};
use crate::message::Pattern;
use crate::message::collective_transport::{self, CollectivePeer, CollectiveTransport, Entry};
use crate::message::point_to_point::{self, Action, MessageStorage, PayloadStore, PointToPoint, Status};
use crate::pool::Pool;
use crate::span::{Region, Span};
use crate::transport::{Token, Transport};

pub use arrival::Payload;
pub use endpoint::MessengerHandler;
pub use operations::{ReceiveFailure, ReceiveOp, SendFailure, SendOp};
pub use outbox::QueuedMessage;
pub use post::{Message, SendError};
pub use queries::ExpectedMessage;
pub use steps::{StepError, StepMessage};

use operations::Operations;
use outbox::Outbox;

/// A class of messages, with records and credit of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Messages between two ranks.
    PointToPoint,
    /// Messages of collectives.
    Collective,
}

impl Class {
    const ALL: [Self; 2] = [Self::PointToPoint, Self::Collective];

    /// The token of an operation of this class. A host that runs a class by itself makes tokens of its own.
    pub const fn token(self, i: u32) -> Token {
        match self {
            Self::PointToPoint => Token(i << 1),
            Self::Collective => Token(i << 1 | 1),
        }
    }
}

impl Token {
    /// The class of an operation, and its number there.
    pub const fn parts(self) -> (Class, u32) {
        (if self.0 & 1 == 0 { Class::PointToPoint } else { Class::Collective }, self.0 >> 1)
    }
}

/// The memory of the records.
pub trait MessengerStorage: MessageStorage {
    /// Sends of a class.
    type SendOps: Pool<SendOp>;
    /// Receives of a class.
    type ReceiveOps: Pool<ReceiveOp>;
    /// Messages that wait for room in the transport.
    type Outbox: Pool<QueuedMessage>;
    /// Peers of the collective messages.
    type CollectivePeers: Pool<CollectivePeer>;
    /// Records of the collective messages.
    type CollectiveEntries: Pool<Entry>;
}

/// Where payloads are stored that arrive before their receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stores {
    /// Short payloads of point-to-point messages: as many bytes as [`short`](point_to_point::Config::short) for each
    /// record.
    pub short: Region,
    /// Slots of the pool: as many bytes as [`slot`](point_to_point::Config::slot) each.
    pub slots: Region,
    /// Slots of collective messages.
    pub steps: Region,
    /// Bytes of one of those.
    pub step_bytes: u32,
}

/// The constants of a messenger.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Of point-to-point messages.
    pub messages: point_to_point::Config,
    /// Eager messages of collectives that each peer may have here without a receive: the same on all ranks.
    pub step_credit: u8,
    /// Where early payloads are stored.
    pub stores: Stores,
}

/// The memory that the host provides; sends and receives for each class.
#[derive(Debug)]
pub struct Pools<S: MessengerStorage> {
    /// Of point-to-point matching.
    pub messages: point_to_point::Pools<S>,
    /// Of the matching of collective messages.
    pub steps: collective_transport::Pools<S::CollectivePeers, S::CollectiveEntries>,
    /// Sends of point-to-point messages, and of collectives.
    pub sends: [S::SendOps; 2],
    /// Receives, likewise.
    pub receives: [S::ReceiveOps; 2],
    /// Messages that wait for room, likewise.
    pub outboxes: [S::Outbox; 2],
}

/// A posted receive, until its event was polled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveHandle(u32);

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A send is complete: its payload is not needed any more.
    Sent {
        /// Its class.
        class: Class,
        /// Its `user` value.
        user: u32,
        /// Its destination.
        to: PeerId,
        /// Whether it succeeded.
        result: Result<(), SendFailure>,
    },
    /// A receive is complete.
    Received {
        /// Its class.
        class: Class,
        /// Its `user` value.
        user: u32,
        /// The message.
        result: Result<Status, ReceiveFailure>,
    },
    /// A peer violated the protocol.
    ProtocolViolation(PeerId),
}

/// The sends and receives of a class, and its messages that wait for room.
type Parts<'m, S> = (
    &'m mut Operations<<S as MessengerStorage>::SendOps, <S as MessengerStorage>::ReceiveOps>,
    &'m mut Outbox<<S as MessengerStorage>::Outbox>,
);

/// The messages of a process. See the [module](self) for the calling contract.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Messenger<S: MessengerStorage> {
    matching: PointToPoint<S>,
    steps: CollectiveTransport<S::CollectivePeers, S::CollectiveEntries>,
    messages: Operations<S::SendOps, S::ReceiveOps>,
    collective: Operations<S::SendOps, S::ReceiveOps>,
    outboxes: [Outbox<S::Outbox>; 2],
    config: Config,
    violator: Option<PeerId>,
    /// Makes the machine comparable if these records are.
    #[expect(clippy::type_complexity, reason = "the records of point-to-point matching")]
    records: PhantomData<(S::Receives, S::Messages, S::Buckets, S::Sends, S::Peers, S::Slots)>,
}

impl<S: MessengerStorage> Messenger<S> {
    /// Without messages. `None`: too few records or slots were provided.
    pub fn new(config: Config, pools: Pools<S>) -> Option<Self> {
        let Pools { messages, steps, sends: [sends, step_sends], receives: [receives, step_receives], outboxes } =
            pools;
        Some(Self {
            matching: PointToPoint::new(config.messages, messages)?,
            steps: CollectiveTransport::new(config.step_credit, steps).ok()?,
            messages: Operations::new(Class::PointToPoint, sends, receives),
            collective: Operations::new(Class::Collective, step_sends, step_receives),
            outboxes: outboxes.map(Outbox::new),
            config,
            violator: None,
            records: PhantomData,
        })
    }

    /// Does what waits: sends queued messages, places and grants, fetches payloads, polls the machines. Returns whether
    /// anything moved.
    pub fn progress(&mut self, transport: &mut impl Transport) -> bool {
        self.progress_class(transport, Class::PointToPoint) | self.progress_class(transport, Class::Collective)
    }

    /// As [`progress`](Self::progress), for one class.
    pub fn progress_class(&mut self, transport: &mut impl Transport, class: Class) -> bool {
        let mut moved = self.flush(transport, class);
        moved |= self.place_granted(transport, class);
        moved |= self.pull_matched(transport, class);
        moved
            | match class {
                Class::PointToPoint => self.run_actions(transport),
                Class::Collective => self.run_step_actions(transport),
            }
    }

    /// Carries out the actions of point-to-point matching while headers can be queued.
    fn run_actions(&mut self, transport: &mut impl Transport) -> bool {
        let mut moved = false;
        while !self.parts(Class::PointToPoint).1.is_full()
            && let Some(action) = self.matching.poll_action()
        {
            moved = true;
            match action {
                Action::Header { to, head } => {
                    self.post(transport, to, head.as_ref(), None, (Class::PointToPoint, Port::ONLY))
                }
                Action::Eager { to, user, head, done } => {
                    // The payload of an abandoned send is gone.
                    let payload = self.messages.reopen(user).then_some(user);
                    self.post(transport, to, head.as_ref(), payload, (Class::PointToPoint, Port::ONLY));
                    if done {
                        self.messages.finish_send(user, None);
                    }
                }
                Action::Sent { user } => self.messages.finish_send(user, None),
                Action::Pull { receive, user, at, .. } => self.pull_message(receive, user, at),
            }
        }
        moved
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        Class::ALL.into_iter().find_map(|class| self.poll_class_event(class))
    }

    /// As [`poll_event`](Self::poll_event), for one class; a violation of the protocol belongs to either.
    pub fn poll_class_event(&mut self, class: Class) -> Option<Event> {
        if let Some(peer) = self.violator.take() {
            return Some(Event::ProtocolViolation(peer));
        }
        let (operations, _) = self.parts(class);
        if let Some((user, to, result)) = operations.poll_sent() {
            return Some(Event::Sent { class, user, to, result });
        }
        operations.poll_received().map(|(user, result)| Event::Received { class, user, result })
    }

    /// Whether nothing is under way, except for messages whose acceptance is not yet reported.
    pub fn is_idle(&self) -> bool {
        self.is_flushed() && self.matching.is_idle() && self.messages.is_idle() && self.collective.is_idle()
    }

    /// Whether every header was given to the transport, and none is pending.
    pub fn is_flushed(&self) -> bool {
        let has_placements = !self.messages.placing.is_empty() || !self.collective.placing.is_empty();
        self.matching.has_no_action() && self.outboxes.iter().all(Outbox::is_empty) && !has_placements
    }

    /// The message that such a receive would match now: as [`PointToPoint::probe`].
    pub fn probe(&mut self, pattern: Pattern) -> Option<Status> {
        self.matching.probe(pattern)
    }

    /// The sends and receives of a class, and its messages that wait for room.
    fn parts(&mut self, class: Class) -> Parts<'_, S> {
        let [messages, steps] = &mut self.outboxes;
        match class {
            Class::Collective if !mutant!("pool_shared") => (&mut self.collective, steps),
            _ => (&mut self.messages, messages),
        }
    }

    /// Where an early payload of `bytes` bytes is stored.
    fn store(&self, place: PayloadStore, bytes: u32) -> Span {
        let Stores { short, slots, .. } = self.config.stores;
        let (region, index, each) = match place {
            PayloadStore::Short(index) => (short, index, self.config.messages.short),
            PayloadStore::Slot(index) => (slots, index, self.config.messages.slot),
        };
        Span { region, offset: (index as usize).saturating_mul(each as usize), bytes: bytes.min(each) }
    }

    /// Where an early payload of a collective is stored.
    fn store_step(&self, slot: u32, bytes: u32) -> Span {
        let Stores { steps: region, step_bytes, .. } = self.config.stores;
        Span { region, offset: (slot as usize).saturating_mul(step_bytes as usize), bytes: bytes.min(step_bytes) }
    }
}
