//! Model of one send window and one receive window, with everything that a network and a device may do to their
//! datagrams.
//!
//! The user sends messages of one segment without end. Datagrams are lost, doubled and reordered, and disappear when
//! more than a lifetime of messages was delivered since they can have been sent. The device finishes postings at any
//! later time. The receiver acknowledges at any time when an acknowledgement is due, grants any credit, and may lack a
//! window, or a cell to hold an early datagram. An idle sender may release its window and take a new one.
//!
//! Messages are numbered relative to the oldest one that is not released, sequence numbers likewise: so a finite number
//! of states stands for any number of messages, while a datagram of an old message that is taken for a new one is seen.

mod datagram;

use core::marker::PhantomData;

use unisono_core::device::{DeviceQueue, Posting, Slot, Ticket};
use unisono_core::ids::Rail;
use unisono_core::path::Path;
use unisono_core::window::rails::{RailChoice, Rails};
use unisono_core::window::receive_state::{ArrivalOrder, ReceiveState};
use unisono_core::window::receive_window::{Early, ReceiveWindow};
use unisono_core::window::segment_ring::SegmentRef;
use unisono_core::window::send_window::{Segment, SendWindow};

use self::datagram::number;
pub use self::datagram::{Datagram, Echoed, Message};
use super::clock::Clock;
use super::network::Network;
use crate::model_checker::Model;

/// The model. `W` segments, sequence numbers of `BITS` bits, `N` datagrams in flight.
#[derive(Clone, Copy, Debug)]
pub struct Window<T, const W: usize, const BITS: u32, const N: usize> {
    /// A datagram disappears when more messages than these were delivered since it can have been sent.
    pub lifetime: i8,
    /// The credits that an acknowledgement may carry.
    pub credits: &'static [u16],
    /// Other events that may happen.
    pub options: WindowOptions,
    /// The clock.
    pub clock: PhantomData<T>,
}

/// Events beside loss, duplication and reordering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowOptions {
    /// The device finishes postings later than it makes them.
    pub finish_late: bool,
    /// A probe leaves later than the deadline is noticed.
    pub probe_late: bool,
    /// No receive window, or no cell to hold a datagram, is free for an early arrival.
    pub lack_window: bool,
    /// An idle send window is released, and a new one taken.
    pub renew: bool,
    /// Segments are posted on either queue of the device; each queue finishes its own in order.
    pub both_queues: bool,
}

/// Both windows and the datagrams in flight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State<T: Clock, const W: usize, const BITS: u32, const N: usize> {
    sender: SendWindow<T, W, BITS>,
    path: Path<T>,
    inbound: ReceiveState<T, BITS>,
    receiver: Option<ReceiveWindow<W>>,
    /// Early messages in the cells of the receiver's device.
    held: [Option<Message>; W],
    network: Network<Datagram, N>,
    /// Messages of each queue's unfinished postings, oldest first.
    posted: [[Option<Message>; W]; 2],
    /// More is queued at the sender.
    queued: bool,
    /// The next message to be sent, and to be delivered.
    sent: Message,
    delivered: Message,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// The user has something to send.
    Queue,
    /// The next message is sent; nothing is queued behind it if it is the last.
    Send {
        /// Nothing is queued behind it.
        last: bool,
        /// The queue that it is posted on.
        on: DeviceQueue,
    },
    /// A lost segment is sent again.
    Resend(DeviceQueue),
    /// A probe is sent.
    Probe,
    /// The deadline is noticed.
    Timeout,
    /// Time passes.
    Tick,
    /// The device finishes the oldest posting of a queue.
    Finish(DeviceQueue),
    /// The idle window is released and another taken.
    Renew,
    /// The receiver acknowledges with this credit.
    Acknowledge(u16),
    /// The datagram at an index arrives.
    Arrive {
        /// The index.
        place: usize,
        /// The datagram.
        datagram: Datagram,
        /// It arrives once more later.
        doubled: bool,
        /// It finds no receive window.
        windowless: bool,
    },
    /// The datagram at an index is lost.
    Lose {
        /// The index.
        place: usize,
        /// The datagram.
        datagram: Datagram,
    },
}

impl<T: Clock, const W: usize, const BITS: u32, const N: usize> Model for Window<T, W, BITS, N> {
    type State = State<T, W, BITS, N>;
    type Action = Action;

    fn initial(&self) -> Self::State {
        State {
            sender: SendWindow::new(number(0)),
            path: T::path(),
            inbound: ReceiveState::new(number(0)),
            receiver: None,
            held: [None; W],
            network: Network::EMPTY,
            posted: [[None; W]; 2],
            queued: false,
            sent: 0,
            delivered: 0,
            broken: None,
        }
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Action>) {
        let mut path = state.path;
        if !state.queued {
            actions.push(Action::Queue);
        }
        for on in self.queues() {
            let has_token = state.postings(on)[W - 1].is_none();
            if state.queued && state.sender.has_room(&Rails::one(&mut path), RailChoice::ANY) && has_token {
                actions.extend([false, true].map(|last| Action::Send { last, on }));
            }
            if state.sender.has_lost() && has_token {
                actions.push(Action::Resend(on));
            }
            if state.postings(on)[0].is_some() {
                actions.push(Action::Finish(on));
            }
        }
        if state.sender.wants_probe(&Rails::one(&mut path)) {
            actions.push(Action::Probe);
        }
        if let Some(deadline) = state.sender.deadline() {
            if T::is_due(T::NOW, deadline) {
                actions.push(Action::Timeout);
            }
            actions.push(Action::Tick);
        }
        if self.options.renew && state.sender.is_empty() && !state.queued {
            actions.push(Action::Renew);
        }
        if state.inbound.is_pending() {
            actions.extend(self.credits.iter().map(|credit| Action::Acknowledge(*credit)));
        }
        for (place, datagram) in state.network.iter() {
            for doubled in [false, true] {
                actions.push(Action::Arrive { place, datagram, doubled, windowless: false });
                if self.options.lack_window && matches!(datagram, Datagram::Data { .. }) {
                    actions.push(Action::Arrive { place, datagram, doubled, windowless: true });
                }
            }
            actions.push(Action::Lose { place, datagram });
        }
    }

    fn next(&self, state: &Self::State, action: &Action) -> Option<Self::State> {
        let mut next = *state;
        match *action {
            Action::Queue => next.queued = true,
            Action::Send { last, on } => {
                let piece = segment_ref(next.sent);
                let segment = next.sender.push(
                    T::NOW,
                    piece,
                    next.posting(on),
                    &mut Rails::one(&mut next.path),
                    RailChoice::ANY,
                )?;
                next.queued = !last;
                if last && next.sender.is_credit_low() {
                    next.sender.return_credit(segment.psn);
                }
                next.sent += 1;
                self.post(&mut next, segment, on);
            }
            Action::Resend(on) => {
                let segment = next.sender.resend(T::NOW, next.posting(on), &mut Rails::one(&mut next.path))?;
                self.post(&mut next, segment, on);
            }
            Action::Probe => next.probe(),
            Action::Timeout => {
                next.sender.handle_timeout(T::NOW, &mut Rails::one(&mut next.path));
                if !self.options.probe_late {
                    next.probe();
                }
            }
            Action::Tick => next.sender = T::after_tick(&next.sender)?,
            Action::Finish(on) => next.finish(on),
            Action::Renew => (next.sender, next.path) = (SendWindow::new(next.sender.next()), T::path()),
            Action::Acknowledge(credit) => {
                let acknowledgement = next.inbound.acknowledge(T::NOW, credit, next.receiver.as_ref());
                next.network.send(Datagram::of::<T, BITS>(&acknowledgement, next.delivered));
            }
            Action::Arrive { place, datagram, doubled, windowless } => {
                if !doubled {
                    next.network.remove(place);
                }
                next.arrive(self.lifetime, datagram, windowless)?;
            }
            Action::Lose { place, .. } => next.network.remove(place),
        }
        next.settle();
        Some(next)
    }

    fn violation(&self, state: &Self::State) -> Option<&'static str> {
        if state.sent as usize > W {
            return Some("the window is overfull");
        }
        if state.sender.deadline().is_some_and(T::is_too_far_ahead) {
            return Some("a probe comes later than the longest probe interval");
        }
        if state.receiver.is_none() && state.held != [None; W] {
            return Some("a datagram is held for ever");
        }
        state.broken
    }

    /// Queueing more is optional: queued messages are sent eventually.
    fn counts(&self, action: &Action) -> bool {
        !matches!(action, Action::Queue)
    }

    /// Everything is delivered and released, and nothing is queued.
    fn finished(&self, state: &Self::State) -> bool {
        state.sent == 0 && state.delivered == 0 && !state.queued
    }
}

impl<T: Clock, const W: usize, const BITS: u32, const N: usize> Window<T, W, BITS, N> {
    fn queues(&self) -> impl Iterator<Item = DeviceQueue> + use<T, W, BITS, N> {
        let both = [DeviceQueue::Polled, DeviceQueue::Interrupt];
        both.into_iter().take(if self.options.both_queues { 2 } else { 1 })
    }

    fn post(&self, state: &mut State<T, W, BITS, N>, segment: Segment<BITS>, on: DeviceQueue) {
        let message = message_of(segment.reference);
        if segment.psn != number(message) {
            state.broken = Some("a message is sent under another number");
        }
        if state.is_posted(message) {
            state.broken = Some("a segment is posted again before its posting is finished");
        }
        if let Some(free) = state.posted[on as usize].iter_mut().find(|posted| posted.is_none()) {
            *free = Some(message);
        }
        state.network.send(Datagram::Data { message, count: segment.count });
        if !self.options.finish_late {
            state.finish(on);
        }
    }
}

impl<T: Clock, const W: usize, const BITS: u32, const N: usize> State<T, W, BITS, N> {
    /// The owner of a send window, after every change: removes released spans, and updates whether more is queued.
    fn settle(&mut self) {
        let mut released = 0;
        while let Some(piece) = self.sender.release() {
            self.check_release(message_of(piece), released);
            released += 1;
        }
        if self.queued {
            self.sender.handle_queued(T::NOW, &Rails::one(&mut self.path), RailChoice::ANY);
        }
        if released > 0 {
            self.renumber(released);
        }
    }

    /// Numbers count from another message on.
    fn renumber(&mut self, by: Message) {
        self.sender = self.sender.with_numbers(by as u32, |old| segment_ref(message_of(old) - by));
        self.inbound = self.inbound.with_numbers(by as u32);
        self.network.change(|datagram| datagram.renumbered(by));
        for message in self.held.iter_mut().chain(self.posted.as_flattened_mut()).flatten() {
            *message -= by;
        }
        self.sent -= by;
        self.delivered -= by;
    }

    const fn postings(&self, queue: DeviceQueue) -> &[Option<Message>; W] {
        &self.posted[queue as usize]
    }

    fn is_posted(&self, message: Message) -> bool {
        self.posted.as_flattened().contains(&Some(message))
    }

    /// The next posting on the queue: tickets count from its oldest unfinished one on.
    fn posting(&self, queue: DeviceQueue) -> Posting {
        Posting { queue, ticket: Ticket(self.postings(queue).iter().flatten().count() as u32) }
    }

    fn finish(&mut self, queue: DeviceQueue) {
        self.sender.handle_completed(queue, Ticket(0));
        self.sender = self.sender.with_tickets(queue, |ticket| Ticket(ticket.0.wrapping_sub(1)));
        let posted = &mut self.posted[queue as usize];
        posted.rotate_left(1);
        posted[W - 1] = None;
    }

    fn probe(&mut self) {
        if let Some(probe) = self.sender.probe(T::NOW, &mut Rails::one(&mut self.path)) {
            self.network.send(Datagram::Probe { next: self.sent, number: probe.number });
        }
    }

    fn check_release(&mut self, message: Message, expected: Message) {
        if message != expected {
            self.broken = Some("spans are released out of order");
        } else if message >= self.delivered && !self.held.contains(&Some(message)) {
            self.broken = Some("a span is released that has not arrived");
        } else if self.is_posted(message) {
            self.broken = Some("a span is released that the device still reads");
        }
    }

    fn deliver(&mut self, message: Message, lifetime: i8) {
        if message != self.delivered {
            self.broken = Some("a message is lost, doubled or misordered");
        }
        self.delivered += 1;
        let delivered = self.delivered;
        self.network.retain(|datagram| delivered <= datagram.sent_at::<W>() + lifetime);
    }

    /// A datagram arrives. `None` where lacking a window makes no difference.
    fn arrive(&mut self, lifetime: i8, datagram: Datagram, windowless: bool) -> Option<()> {
        match datagram {
            Datagram::Data { message, count } => {
                let order = self.inbound.classify(number(message), self.receiver.as_ref());
                if windowless && !matches!(order, ArrivalOrder::Early(_)) {
                    return None;
                }
                match order {
                    ArrivalOrder::Next => {
                        self.deliver(message, lifetime);
                        self.record(message, count);
                        self.advance_in_order(lifetime);
                    }
                    ArrivalOrder::Early(_) if windowless => self.inbound.handle_gap(),
                    ArrivalOrder::Early(distance) => {
                        let Some(free) = self.held.iter().position(Option::is_none) else {
                            self.broken = Some("more datagrams are held than can be early");
                            return Some(());
                        };
                        self.held[free] = Some(message);
                        let window = self.receiver.get_or_insert(ReceiveWindow::EMPTY);
                        if window.insert(distance, Early::Held(Slot(free as u32))) == Ok(true) {
                            self.inbound.handle_gap();
                        }
                        self.record(message, count);
                    }
                    ArrivalOrder::Duplicate => self.inbound.ack_immediately(),
                    ArrivalOrder::Outside => {}
                }
            }
            Datagram::Probe { next, number: probe } => self.inbound.handle_probe((), number(next), probe),
            Datagram::Acknowledge { .. } => {
                self.sender.handle_sign_of_life();
                if let Some(acknowledgement) = datagram.acknowledgement() {
                    let rails = &mut Rails::one(&mut self.path);
                    self.sender.handle_ack(T::NOW, &acknowledgement, self.queued, Rail(0), rails);
                }
            }
        }
        Some(())
    }

    /// With windows this small, every segment is acknowledged at once.
    fn record(&mut self, message: Message, count: u8) {
        self.inbound.record((), number(message), count);
        self.inbound.ack_immediately();
    }

    /// Advances the next expected message over the held ones.
    fn advance_in_order(&mut self, lifetime: i8) {
        while let Early::Held(Slot(cell)) = self.inbound.advance(self.receiver.as_mut()) {
            match self.held.get_mut(cell as usize).and_then(Option::take) {
                Some(message) => self.deliver(message, lifetime),
                None => self.broken = Some("a datagram is delivered that is not held"),
            }
        }
        self.receiver = self.receiver.filter(|window| !window.is_empty()).map(ReceiveWindow::with_ring_turned);
    }
}

const fn segment_ref(message: Message) -> SegmentRef {
    SegmentRef { operation: message as u32, part: 0 }
}

const fn message_of(piece: SegmentRef) -> Message {
    piece.operation as Message
}
