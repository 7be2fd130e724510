//! One sender's window, one receiver's, and all that a network and a device may do to what they exchange.
//!
//! The user offers a number of messages, one segment each. Datagrams are lost, doubled and reordered, and die when more
//! than a lifetime of messages was delivered since they were sent. The device finishes postings as late as it likes. The
//! receiver acknowledges whenever it owes it, grants as much credit as it likes, and may lack a window for what comes
//! early. An idle sender may give its window back and take a new one.

use core::fmt::Debug;

use unisono_core::bitmap::Bitmap;
use unisono_core::device::{Slot, Ticket};
use unisono_core::inbound::{Inbound, Order};
use unisono_core::psn::Psn;
use unisono_core::receive_window::{Early, ReceiveWindow};
use unisono_core::send_window::{Piece, Segment, SendWindow};
use unisono_core::wire::{Acknowledgement, Echo};

use super::clock::Clock;
use super::network::Network;
use crate::explore::Model;

/// What is explored. `W` segments, PSNs of `BITS` bits, `N` datagrams in flight.
#[derive(Clone, Copy, Debug)]
pub struct Window<T, const W: usize, const BITS: u32, const N: usize> {
    /// Messages that are sent.
    pub messages: u8,
    /// A datagram dies when more messages than these were delivered since it was sent.
    pub lifetime: u8,
    /// The credits that an acknowledgement may carry.
    pub credits: &'static [u16],
    /// What else may happen.
    pub may: May,
    /// The clock.
    pub clock: core::marker::PhantomData<T>,
}

/// What may happen beside loss, doubling and reordering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct May {
    /// The device finishes postings later than it makes them.
    pub finish_late: bool,
    /// A probe leaves later than the deadline is noticed.
    pub probe_late: bool,
    /// There is no receive window, or no cell to hold a datagram, for what comes early.
    pub lack_window: bool,
    /// An idle send window is given back, and a new one taken.
    pub renew: bool,
    /// The queue runs empty for a while: the sender gives its grant back.
    pub drain: bool,
}

/// A datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Datagram {
    /// A segment; the message's number is its payload, and numbers its PSN.
    Data {
        /// The message.
        message: u8,
        /// Its transmission count.
        count: u8,
    },
    /// A probe.
    Probe {
        /// Messages sent before it.
        sent: u8,
        /// Its number.
        number: u8,
    },
    /// A pure acknowledgement.
    Acknowledge {
        /// Messages delivered before it.
        delivered: u8,
        /// Datagrams granted beyond it.
        credit: u8,
        /// The bitmap.
        beyond: u8,
        /// What it echoes.
        echo: Echoed,
    },
}

/// What an acknowledgement echoes, so far as a sender looks at it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Echoed {
    /// Nothing, or a segment while counts have no bits.
    Nothing,
    /// A segment.
    Segment {
        /// Its PSN.
        psn: u8,
        /// Its transmission count.
        count: u8,
    },
    /// A probe of this number.
    Probe(u8),
}

impl Datagram {
    /// The number of messages that had been delivered when it was sent, at the latest: a message is sent again until the
    /// window has moved past it, a probe when the window is empty.
    fn sent_before(self, window: usize) -> u8 {
        match self {
            Self::Data { message, .. } => message + window as u8,
            Self::Probe { sent, .. } => sent,
            Self::Acknowledge { delivered, .. } => delivered,
        }
    }
}

/// Both windows and what is between them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State<T: Clock, const W: usize, const BITS: u32, const N: usize> {
    sender: SendWindow<T, W, BITS>,
    inbound: Inbound<T, BITS>,
    receiver: Option<ReceiveWindow<W>>,
    network: Network<Datagram, N>,
    /// Messages of unfinished postings, oldest first; one more than a window, so that a posting too many is seen.
    posted: [Option<u8>; W],
    sent: u8,
    released: u8,
    delivered: u8,
    broken: Option<&'static str>,
}

/// Something that can happen.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// The next message is sent; nothing is queued behind it when `drained`.
    Send {
        /// The sender gives its grant back if it is scarce.
        drained: bool,
    },
    /// A lost segment is sent again.
    Resend,
    /// A probe is sent.
    Probe,
    /// The deadline is noticed.
    Timeout,
    /// Time passes.
    Tick,
    /// The device finishes its oldest posting.
    Finish,
    /// The idle window is given back and another taken.
    Renew,
    /// The receiver acknowledges with so much credit.
    Acknowledge(u16),
    /// What is in flight at a place arrives.
    Arrive {
        /// The place.
        place: usize,
        /// What it is.
        datagram: Datagram,
        /// It arrives once more later.
        doubled: bool,
        /// It finds no receive window.
        windowless: bool,
    },
    /// What is in flight at a place is lost.
    Lose {
        /// The place.
        place: usize,
        /// What it is.
        datagram: Datagram,
    },
}

/// The PSN of a message: the first ones run to the end of the number space.
fn psn<const BITS: u32>(message: u8) -> Psn<BITS> {
    Psn::new(u32::from(message)).back(3)
}

impl<T: Clock, const W: usize, const BITS: u32, const N: usize> Model for Window<T, W, BITS, N> {
    type State = State<T, W, BITS, N>;
    type Action = Action;

    fn initial(&self) -> Self::State {
        let mut state = State {
            sender: SendWindow::new(psn(0)),
            inbound: Inbound::new(psn(0)),
            receiver: None,
            network: Network::EMPTY,
            posted: [None; W],
            sent: 0,
            released: 0,
            delivered: 0,
            broken: None,
        };
        self.settle(&mut state);
        state
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Action>) {
        let has_token = state.posted[W - 1].is_none();
        if state.sent < self.messages && state.sender.has_room() && has_token {
            actions.push(Action::Send { drained: false });
            if self.may.drain && state.sender.is_scarce() {
                actions.push(Action::Send { drained: true });
            }
        }
        if state.sender.has_lost() && has_token {
            actions.push(Action::Resend);
        }
        if state.sender.wants_probe() {
            actions.push(Action::Probe);
        }
        if let Some(deadline) = state.sender.deadline() {
            if T::is_due(T::NOW, deadline) {
                actions.push(Action::Timeout);
            }
            actions.push(Action::Tick);
        }
        if state.posted[0].is_some() {
            actions.push(Action::Finish);
        }
        if self.may.renew && state.sender.is_empty() {
            actions.push(Action::Renew);
        }
        if state.inbound.is_pending() {
            actions.extend(self.credits.iter().map(|credit| Action::Acknowledge(*credit)));
        }
        for (place, datagram) in state.network.iter() {
            for doubled in [false, true] {
                actions.push(Action::Arrive { place, datagram, doubled, windowless: false });
                if self.may.lack_window && state.receiver.is_none() && matches!(datagram, Datagram::Data { .. }) {
                    actions.push(Action::Arrive { place, datagram, doubled, windowless: true });
                }
            }
            actions.push(Action::Lose { place, datagram });
        }
    }

    fn next(&self, state: &Self::State, action: &Action) -> Option<Self::State> {
        let mut next = *state;
        match *action {
            Action::Send { drained } => {
                let ticket = next.ticket();
                let piece = Piece { operation: u32::from(next.sent), part: 0 };
                let segment = next.sender.push(T::NOW, piece, ticket, &T::PACE)?;
                if drained {
                    next.sender.drain(segment.psn);
                }
                next.sent += 1;
                self.post(&mut next, segment);
            }
            Action::Resend => {
                let ticket = next.ticket();
                let segment = next.sender.resend(T::NOW, ticket)?;
                self.post(&mut next, segment);
            }
            Action::Probe => next.probe(),
            Action::Timeout => {
                next.sender.handle_timeout(T::NOW, &T::PACE);
                if !self.may.probe_late {
                    next.probe();
                }
            }
            Action::Tick => next.sender = T::later(&next.sender)?,
            Action::Finish => next.finish(),
            Action::Renew => next.sender = SendWindow::new(next.sender.next()),
            Action::Acknowledge(credit) => {
                let acknowledgement = next.inbound.acknowledge(T::NOW, credit, next.receiver.as_ref());
                next.network.send(Datagram::of::<T, BITS>(&acknowledgement, next.delivered));
            }
            Action::Arrive { place, datagram, doubled, windowless } => {
                if !doubled {
                    next.network.remove(place);
                }
                if next.arrive(self, datagram, windowless).is_none() {
                    return None;
                }
            }
            Action::Lose { place, .. } => next.network.remove(place),
        }
        self.settle(&mut next);
        Some(next)
    }

    fn violation(&self, state: &Self::State) -> Option<&'static str> {
        if usize::from(state.sent - state.released) > W {
            return Some("the window is overfull");
        }
        if state.sender.deadline().is_some_and(T::is_beyond) {
            return Some("a probe comes later than the longest time between two");
        }
        state.broken
    }

    fn finished(&self, state: &Self::State) -> bool {
        state.delivered == self.messages && state.released == self.messages
    }
}

impl<T: Clock, const W: usize, const BITS: u32, const N: usize> Window<T, W, BITS, N> {
    /// What the owner of a send window does after every change: takes out what is released, says whether more waits.
    fn settle(&self, state: &mut State<T, W, BITS, N>) {
        while let Some(piece) = state.sender.release() {
            state.check_release(piece);
        }
        state.sender.set_waiting(T::NOW, state.sent < self.messages, &T::PACE);
    }

    fn post(&self, state: &mut State<T, W, BITS, N>, segment: Segment<BITS>) {
        let message = segment.piece.operation as u8;
        if segment.psn != psn(message) {
            state.broken = Some("a message is sent under another number");
        }
        if let Some(free) = state.posted.iter_mut().find(|posted| posted.is_none()) {
            *free = Some(message);
        }
        state.network.send(Datagram::Data { message, count: segment.count });
        if !self.may.finish_late {
            state.finish();
        }
    }
}

impl<T: Clock, const W: usize, const BITS: u32, const N: usize> State<T, W, BITS, N> {
    /// Tickets count from the oldest unfinished posting on.
    fn ticket(&self) -> Ticket {
        Ticket(self.posted.iter().flatten().count() as u32)
    }

    fn probe(&mut self) {
        if let Some(probe) = self.sender.probe() {
            self.network.send(Datagram::Probe { sent: self.sent, number: probe.number });
        }
    }

    fn finish(&mut self) {
        self.sender.handle_completed(Ticket(0));
        self.sender = self.sender.with_tickets(|ticket| Ticket(ticket.0.wrapping_sub(1)));
        self.posted.rotate_left(1);
        self.posted[W - 1] = None;
    }

    fn check_release(&mut self, piece: Piece) {
        let message = piece.operation as u8;
        let held = (1..W as u32).filter(|distance| self.receiver.is_some_and(|window| window.contains(*distance)));
        let arrived = message < self.delivered || held.into_iter().any(|distance| self.delivered + distance as u8 == message);
        if message != self.released {
            self.broken = Some("spans are released in another order than they were lent");
        } else if !arrived {
            self.broken = Some("a span is released that has not arrived");
        } else if self.posted.contains(&Some(message)) {
            self.broken = Some("a span is released that the device still reads");
        }
        self.released = self.released.wrapping_add(1);
    }

    fn deliver(&mut self, message: u32, lifetime: u8) {
        if message != u32::from(self.delivered) {
            self.broken = Some("a message is lost, doubled or misordered");
        }
        self.delivered = self.delivered.wrapping_add(1);
        let delivered = self.delivered;
        self.network.retain(|datagram| delivered <= datagram.sent_before(W) + lifetime);
    }

    /// A datagram arrives. `None` where lacking a window makes no difference.
    fn arrive(&mut self, model: &Window<T, W, BITS, N>, datagram: Datagram, windowless: bool) -> Option<()> {
        match datagram {
            Datagram::Data { message, count } => {
                let psn = psn(message);
                let order = self.inbound.order(psn, self.receiver.as_ref());
                if windowless && !matches!(order, Order::Early(_)) {
                    return None;
                }
                match order {
                    Order::Next => {
                        self.deliver(u32::from(message), model.lifetime);
                        self.inbound.note((), psn, count);
                        self.inbound.hurry();
                        self.pass(model.lifetime);
                    }
                    Order::Early(_) if windowless => self.inbound.handle_gap(),
                    Order::Early(distance) => {
                        let window = self.receiver.get_or_insert(ReceiveWindow::EMPTY);
                        if window.insert(distance, Early::Held(Slot(u32::from(message)))) == Ok(true) {
                            self.inbound.handle_gap();
                        }
                        self.inbound.note((), psn, count);
                        self.inbound.hurry();
                    }
                    Order::Duplicate => self.inbound.hurry(),
                    Order::Outside => {}
                }
            }
            Datagram::Probe { sent, number } => self.inbound.handle_probe((), psn(sent), number),
            Datagram::Acknowledge { .. } => {
                self.sender.handle_heard();
                if let Some(acknowledgement) = datagram.acknowledgement() {
                    self.sender.handle_ack(T::NOW, &acknowledgement, &T::PACE);
                }
            }
        }
        Some(())
    }

    /// The turn has passed, and comes to what is held.
    fn pass(&mut self, lifetime: u8) {
        while let Early::Held(slot) = self.inbound.advance(self.receiver.as_mut()) {
            self.deliver(slot.0, lifetime);
        }
        self.receiver = self.receiver.filter(|window| !window.is_empty());
    }
}

impl Datagram {
    /// The NACK mark only hurries the receiver: no sender looks at it.
    fn of<T: Clock, const BITS: u32>(acknowledgement: &Acknowledgement<BITS>, delivered: u8) -> Self {
        let echo = match acknowledgement.echo {
            Some(echo) if acknowledgement.answers => Echoed::Probe(echo.count),
            Some(echo) if T::COUNTS > 0 => Echoed::Segment { psn: echo.psn.get() as u8, count: echo.count },
            _ => Echoed::Nothing,
        };
        Self::Acknowledge {
            delivered,
            credit: acknowledgement.credit as u8,
            beyond: acknowledgement.beyond.words().next().unwrap_or(0) as u8,
            echo,
        }
    }

    fn acknowledgement<const BITS: u32>(self) -> Option<Acknowledgement<BITS>> {
        let Self::Acknowledge { delivered, credit, beyond, echo } = self else { return None };
        let (psn_echoed, count) = match echo {
            Echoed::Nothing => (None, 0),
            Echoed::Segment { psn, count } => (Some(Psn::new(u32::from(psn))), count),
            Echoed::Probe(number) => (Some(psn(delivered)), number),
        };
        Some(Acknowledgement {
            cumulative: psn(delivered),
            credit: u16::from(credit),
            beyond: Bitmap::from_words([u32::from(beyond)]),
            echo: psn_echoed.map(|psn| Echo { psn, count, hold: u32::MAX }),
            answers: matches!(echo, Echoed::Probe(_)),
            nack: false,
        })
    }
}
