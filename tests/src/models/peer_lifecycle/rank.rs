//! One rank: its endpoint, the held datagrams and postings of its device, and the knowledge of its user.

use unisono_core::device::{DeviceQueue, HEADER_ROOM, Received, Slot, Ticket};
use unisono_core::endpoint::peer::PeerState;
use unisono_core::endpoint::{Endpoint, Event, Handler, PoolUsage, ReceiveBatch, Verdict};
use unisono_core::ids::{OperationId, PeerId};

use super::datagram::{Datagram, Message, nth_incarnation};
use super::peer;
use crate::models::small_endpoint::{Records, small_endpoint};

const HOLDABLE: usize = 1;
const NOTICES: usize = 3;

/// Datagrams that arrive together, in this order.
pub type Arrivals = [Option<Datagram>; 3];

/// An action at a rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step<A = Arrivals> {
    /// Datagrams arrive.
    Receive(A),
    /// The endpoint transmits while there are tokens.
    Transmit {
        /// The device finishes postings at once.
        finish: bool,
    },
    /// The device finishes its postings.
    Finish,
    /// A timer fires.
    Timeout,
    /// Bootstrap announces the other rank's next incarnation.
    AddPeer,
    /// Messages are sent.
    Send {
        /// How many.
        messages: u8,
    },
    /// The other rank is declared dead.
    Fail,
    /// The rank leaves.
    Leave,
}

impl Step {
    /// The same step, with another description of what arrives.
    pub(super) fn map_arrivals<A>(self, map: impl FnOnce(Arrivals) -> A) -> Step<A> {
        match self {
            Self::Receive(arrivals) => Step::Receive(map(arrivals)),
            Self::Transmit { finish } => Step::Transmit { finish },
            Self::Finish => Step::Finish,
            Self::Timeout => Step::Timeout,
            Self::AddPeer => Step::AddPeer,
            Self::Send { messages } => Step::Send { messages },
            Self::Fail => Step::Fail,
            Self::Leave => Step::Leave,
        }
    }
}

/// An observation of a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Observation {
    /// A datagram left.
    Sent(Datagram),
    /// A message arrived.
    Delivered(Message),
    /// A message completes: its memory may be reused, and without an error the peer has received it.
    Completed {
        /// The message.
        message: Message,
        /// Without an error.
        ok: bool,
    },
    /// A rule is broken that needs no knowledge of the other rank.
    Broken(&'static str),
}

/// The rank, with at most `M` messages under way and `M` postings unfinished.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct RankState<const W: usize, const BITS: u32, const M: usize> {
    endpoint: Endpoint<Records<M, 0, NOTICES>, W, BITS>,
    rank: u8,
    incarnation: u8,
    /// Incarnations of the other rank that bootstrap has announced or skipped.
    announced: u8,
    left: bool,
    /// Messages sent to each incarnation of the other rank.
    sent: [u8; 2],
    /// Messages delivered from each incarnation of the other rank.
    delivered: [u8; 2],
    /// The messages of operations under way, by record.
    under_way: [Option<Message>; M],
    /// Messages, if any, of unfinished postings.
    posted: [Option<Message>; M],
    tickets: u8,
    held: [Option<Datagram>; HOLDABLE],
}

impl<const W: usize, const BITS: u32, const M: usize> RankState<W, BITS, M> {
    /// A new incarnation of a rank.
    pub(super) fn new(rank: u8, incarnation: u8, announced: u8) -> Self {
        Self {
            endpoint: small_endpoint(peer(rank), nth_incarnation(rank, incarnation), HOLDABLE),
            rank,
            incarnation,
            announced,
            left: false,
            sent: [0; 2],
            delivered: [0; 2],
            under_way: [None; M],
            posted: [None; M],
            tickets: 0,
            held: [None; HOLDABLE],
        }
    }

    pub(super) const fn incarnation(&self) -> u8 {
        self.incarnation
    }

    pub(super) const fn announced(&self) -> u8 {
        self.announced
    }

    pub(super) const fn has_left(&self) -> bool {
        self.left
    }

    pub(super) fn is_gone(&self) -> bool {
        self.endpoint.is_closed()
    }

    pub(super) const fn has_postings(&self) -> bool {
        self.tickets > 0
    }

    pub(super) fn has_timer(&self) -> bool {
        self.endpoint.poll_timeout(()).is_some()
    }

    /// Messages that this incarnation sent.
    pub(super) const fn sent(&self) -> u8 {
        self.sent[0] + self.sent[1]
    }

    pub(super) const fn sent_to(&self, incarnation: u8) -> u8 {
        self.sent[incarnation as usize]
    }

    const fn other(&self) -> PeerId {
        peer(1 - self.rank)
    }

    pub(super) fn peer_state(&self) -> PeerState {
        self.endpoint.peer_state(self.other())
    }

    /// The other rank's incarnation that this rank believes alive.
    pub(super) fn believed_incarnation(&self) -> Option<u8> {
        let known = self.endpoint.incarnation(self.other())?;
        (0..2).find(|incarnation| nth_incarnation(1 - self.rank, *incarnation) == known)
    }

    /// Whether nothing is in progress, and every record not needed by a peer is free.
    pub(super) fn is_clean(&self) -> bool {
        let in_use = PoolUsage { control_messages: 0, ..self.endpoint.pool_usage() };
        let over = !matches!(self.peer_state(), PeerState::Alive);
        self.under_way == [None; M]
            && in_use.operations == 0
            && (!over || in_use == PoolUsage::default() && self.held == [None; HOLDABLE])
    }

    /// Performs a step; `None` when it is impossible.
    pub(super) fn step(&mut self, step: Step, seen: &mut Vec<Observation>) -> Option<()> {
        match step {
            Step::Receive(arrivals) => self.receive(&arrivals, seen),
            Step::Transmit { finish } => self.transmit(finish, seen)?,
            Step::Finish => self.finish(),
            Step::Timeout => self.endpoint.handle_timeout(()),
            Step::AddPeer => {
                let next = nth_incarnation(1 - self.rank, self.announced);
                self.announced += 1;
                self.endpoint.add_peer((), self.other(), next, 64);
            }
            Step::Send { messages } => (0..messages).try_for_each(|_| self.send())?,
            Step::Fail => self.endpoint.fail((), self.other()),
            Step::Leave => {
                self.left = true;
                self.endpoint.shutdown();
            }
        }
        self.take_held(seen);
        self.check_order(seen);
        self.endpoint.handle_round(());
        while let Some(event) = self.endpoint.poll_event(()) {
            if let Event::Completed(operation, result) = event {
                self.complete(operation, result.is_ok(), seen);
            }
        }
        Some(())
    }

    fn check_order(&mut self, seen: &mut Vec<Observation>) {
        for i in 0..seen.len() {
            let Observation::Delivered(message) = seen[i] else { continue };
            let next = &mut self.delivered[usize::from(message.from_incarnation & 1)];
            if message.number != *next {
                seen.push(Observation::Broken("a message is lost, doubled or misordered"));
            }
            *next = message.number.wrapping_add(1);
            if message.to_incarnation != self.incarnation {
                seen.push(Observation::Broken("a message for another incarnation is delivered"));
            }
        }
    }

    fn send(&mut self) -> Option<()> {
        let to_life = self.believed_incarnation()?;
        let number = self.sent[usize::from(to_life)];
        let message = Message { from_incarnation: self.incarnation, to_incarnation: to_life, number };
        let operation = self.endpoint.send((), self.other(), &message.bytes(self.rank), None).ok()?;
        self.sent[usize::from(to_life)] += 1;
        self.under_way[operation.0 as usize] = Some(message);
        Some(())
    }

    fn complete(&mut self, operation: OperationId, ok: bool, seen: &mut Vec<Observation>) {
        let Some(message) = self.under_way[operation.0 as usize].take() else {
            return seen.push(Observation::Broken("an operation completes twice"));
        };
        if self.posted.contains(&Some(message)) {
            seen.push(Observation::Broken("an operation completes whose span the device still reads"));
        }
        seen.push(Observation::Completed { message, ok });
    }

    /// Datagrams arrive in one batch.
    fn receive(&mut self, arrivals: &Arrivals, seen: &mut Vec<Observation>) {
        let (from, mut broken) = (self.other(), None);
        let mut inbox = Inbox { from: 1 - self.rank, incarnation: self.believed_incarnation(), observations: seen };
        let Self { endpoint, held, .. } = self;
        endpoint.receive_batch((), &mut inbox, |batch| {
            let mut arrivals = arrivals.iter().copied().flatten().peekable();
            while let Some(datagram) = arrivals.next() {
                let cell = held.iter().position(Option::is_none).unwrap_or(HOLDABLE);
                match batch.handle_datagram(&Arrival { datagram, slot: Slot(cell as u32), from }) {
                    Verdict::Hold => match held.get_mut(cell) {
                        Some(cell) => *cell = Some(datagram),
                        None => broken = Some("more datagrams are held than can be"),
                    },
                    Verdict::Release => {}
                    Verdict::Place { .. } => broken = Some("bytes are placed that nobody granted"),
                }
                // The step ends with a batch for those that are held after the last arrival.
                if arrivals.peek().is_some() {
                    broken = broken.or(deliver_held(batch, held, from));
                }
            }
        });
        seen.extend(broken.map(Observation::Broken));
    }

    /// Handles held datagrams that are due, and releases those not needed any more.
    fn take_held(&mut self, seen: &mut Vec<Observation>) {
        let from = self.other();
        let mut inbox = Inbox { from: 1 - self.rank, incarnation: self.believed_incarnation(), observations: seen };
        let Self { endpoint, held, .. } = self;
        let broken = endpoint.receive_batch((), &mut inbox, |batch| deliver_held(batch, held, from));
        seen.extend(broken.map(Observation::Broken));
    }

    /// Transmits in batches of as many datagrams as there are tokens.
    fn transmit(&mut self, finish: bool, seen: &mut Vec<Observation>) -> Option<()> {
        let before = self.clone();
        loop {
            let sent = self.transmit_batch(seen);
            if !finish || !sent {
                break;
            }
            self.finish();
            if seen.len() >= 4 {
                break;
            }
        }
        (*self != before).then_some(())
    }

    fn transmit_batch(&mut self, seen: &mut Vec<Observation>) -> bool {
        let before = seen.len();
        let mut inbox = Inbox { from: 1 - self.rank, incarnation: None, observations: &mut Vec::new() };
        let Self { endpoint, posted, tickets, .. } = self;
        endpoint.transmit_batch((), DeviceQueue::Polled, &mut inbox, |batch| {
            while usize::from(*tickets) < M {
                let mut head = [0; HEADER_ROOM];
                let Some(transmit) = batch.poll_transmit(Ticket(u32::from(*tickets)), &mut head) else { break };
                let Some(datagram) = Datagram::of(&head[..usize::from(transmit.header_bytes)]) else {
                    seen.push(Observation::Broken("a datagram is longer than any kind is"));
                    break;
                };
                seen.push(Observation::Sent(datagram));
                posted[usize::from(*tickets)] = datagram.message();
                *tickets += 1;
            }
        });
        seen.len() > before
    }

    fn finish(&mut self) {
        let Some(last) = self.tickets.checked_sub(1) else { return };
        self.posted = [None; M];
        self.tickets = 0;
        self.endpoint.handle_completed((), DeviceQueue::Polled, Ticket(u32::from(last)));
    }
}

impl<const W: usize, const BITS: u32, const M: usize> core::fmt::Debug for RankState<W, BITS, M> {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { rank, incarnation, left, sent, under_way, posted, held, .. } = self;
        write!(to, "rank {rank} life {incarnation}")?;
        write!(
            to,
            "{}",
            if self.is_gone() {
                " gone"
            } else if *left {
                " leaving"
            } else {
                ""
            }
        )?;
        write!(to, ", believes {:?} {:?}, sent {sent:?}", self.believed_incarnation(), self.peer_state())?;
        write!(to, ", under way {:?}", under_way.iter().flatten().collect::<Vec<_>>())?;
        write!(to, ", {} posted {:?}", self.tickets, posted.iter().flatten().collect::<Vec<_>>())?;
        write!(to, ", held {:?}, {:?}", held.iter().flatten().collect::<Vec<_>>(), self.endpoint.pool_usage())
    }
}

/// Handles the held datagrams that the batch names. Returns the rule that it breaks.
fn deliver_held<const W: usize, const BITS: u32, const M: usize>(
    batch: &mut ReceiveBatch<'_, Records<M, 0, NOTICES>, Inbox<'_>, W, BITS>,
    held: &mut [Option<Datagram>; HOLDABLE],
    from: PeerId,
) -> Option<&'static str> {
    while let Some(slot) = batch.poll_deferred() {
        let Some(datagram) = held.get_mut(slot.0 as usize).and_then(Option::take) else {
            return Some("a datagram is requested that is not held");
        };
        batch.handle_held(&Arrival { datagram, slot, from });
    }
    None
}

/// The message handler.
struct Inbox<'s> {
    from: u8,
    incarnation: Option<u8>,
    observations: &'s mut Vec<Observation>,
}

impl Handler for Inbox<'_> {
    fn handle_eager(&mut self, _: PeerId, head: &[u8], bytes: u32) -> Verdict {
        let rule = match Message::parse(head) {
            Some((rank, message)) if rank == self.from && bytes as usize == Message::BYTES => {
                self.observations.push(Observation::Delivered(message));
                (self.incarnation != Some(message.from_incarnation))
                    .then_some("a message of another incarnation is delivered")
            }
            _ => Some("a message is delivered that nobody sent"),
        };
        self.observations.extend(rule.map(Observation::Broken));
        Verdict::Release
    }
}

struct Arrival {
    datagram: Datagram,
    slot: Slot,
    from: PeerId,
}

impl Received for Arrival {
    fn slot(&self) -> Slot {
        self.slot
    }
    fn bytes(&self) -> u32 {
        u32::from(self.datagram.length)
    }
    fn prefix(&self) -> &[u8] {
        self.datagram.head()
    }
    fn is_from(&self, peer: PeerId) -> bool {
        peer == self.from
    }
    fn age_ns(&self) -> Option<u32> {
        None
    }
}
