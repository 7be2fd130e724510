//! Model of one send window and one receive window that are connected by two rails.
//!
//! The user sends a few messages of one segment. Each rail keeps the order of its datagrams, and the two have none
//! between them. A few datagrams are lost; one rail is cut at any time, with all that it carries, and may come back;
//! the receiver's process may wait for a processor once, for any time. The timers of the rails and of the window expire
//! one by one: at any time, or, where they are longer than a round trip, only when nothing is in flight that could have
//! stopped them. In the latter case nothing may be sent again that has arrived, and no rail may die that is not cut.

use unisono_core::device::{DeviceQueue, Posting, Slot, Ticket};
use unisono_core::ids::{Psn, Rail};
use unisono_core::path::{Path, PathParameters};
use unisono_core::time::Time;
use unisono_core::window::congestion::CongestionControl;
use unisono_core::window::rails::{ALL_RAILS, RailChoice, RailLoad, RailRecords, RailState, Rails};
use unisono_core::window::receive_state::{ArrivalOrder, ReceiveState};
use unisono_core::window::receive_window::{Early, ReceiveWindow};
use unisono_core::window::segment_ring::SegmentRef;
use unisono_core::window::send_window::{Segment, SendWindow};
use unisono_core::wire::{Acknowledgement, Echo};

use crate::model_checker::Model;

const RAILS: usize = 2;
/// The rail that the peer may lack.
const LACKING: u8 = 0;
const BITS: u32 = 6;
const PATH: Path<Chosen> = Path::new(PathParameters {
    granularity: 1,
    max_probe_interval: 8,
    control: CongestionControl::Delay { target: 0 },
});

/// A clock without time: the model decides which deadline is reached, which is then `true`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Chosen;

impl Time for Chosen {
    type Instant = bool;
    type Stamp = ();
    const ZERO: () = ();
    const MAX_BACKOFF: u8 = 0;
    const MAX_UNANSWERED: u8 = 1;
    const DETECT_MISBEHAVIOUR: bool = false;

    fn stamp(_: bool) {}
    fn before(_: bool, _: u32) {}
    fn since(_: bool, (): ()) -> Option<u32> {
        None
    }
    fn after(_: bool, _: u32) -> bool {
        false
    }
    fn is_due(_: bool, deadline: bool) -> bool {
        deadline
    }
    fn tick(_: bool) -> u32 {
        0
    }
    fn at_tick(_: bool, _: u32) -> bool {
        false
    }
}

/// The model: windows of `W` segments, `N` datagrams in flight on each rail and direction.
#[derive(Clone, Copy, Debug)]
pub struct TwoRails<const W: usize, const N: usize> {
    /// Messages that are sent.
    pub messages: u8,
    /// Datagrams that may be lost.
    pub losses: u8,
    /// A rail may be cut.
    pub cut: bool,
    /// A cut rail may come back.
    pub restored: bool,
    /// Timers are longer than a round trip.
    pub patient: bool,
    /// The receiver may be suspended once, when nothing is in flight towards it.
    pub suspended: bool,
    /// Messages prefer the rails in turn.
    pub ports: bool,
    /// Both rails are full of segments to other peers.
    pub full: bool,
    /// The peer lacks a rail, which the sender knows: that rail is cut from the beginning, and unproven.
    pub lacking: bool,
}

impl<const W: usize, const N: usize> TwoRails<W, N> {
    /// Three messages, nothing happens; timers are longer than a round trip.
    pub const PATIENT: Self = Self {
        messages: 3,
        losses: 0,
        cut: false,
        restored: false,
        patient: true,
        suspended: false,
        ports: false,
        full: false,
        lacking: false,
    };
}

/// A datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Datagram {
    /// A message, by its number, and its transmission count.
    Data(u8, u8),
    /// A probe: the next unsent message, and its number.
    Probe(u8, u8),
    /// An acknowledgement.
    Acknowledge(Acknowledgement<BITS>),
}

/// Datagrams in the order in which they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Lane<const N: usize>([Option<Datagram>; N]);

impl<const N: usize> Lane<N> {
    const fn is_full(&self) -> bool {
        self.0[N - 1].is_some()
    }

    fn push(&mut self, datagram: Datagram) {
        if let Some(free) = self.0.iter_mut().find(|place| place.is_none()) {
            *free = Some(datagram);
        }
    }

    fn pop(&mut self) -> Option<Datagram> {
        let first = self.0[0].take();
        self.0.rotate_left(1);
        first
    }
}

/// Both windows and the datagrams in flight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State<const W: usize, const N: usize> {
    sender: SendWindow<Chosen, W, BITS>,
    rails: [RailState<Chosen>; RAILS],
    loads: [RailLoad<Chosen>; RAILS],
    inbound: ReceiveState<Chosen, BITS>,
    receiver: Option<ReceiveWindow<W>>,
    held: [Option<u8>; W],
    /// Towards the receiver, and back.
    lanes: [[Lane<N>; RAILS]; 2],
    cut: Option<u8>,
    was_cut: bool,
    losses: u8,
    /// The receiver does nothing; and has done nothing for a while.
    is_suspended: bool,
    was_suspended: bool,
    /// The rail that the latest data came over.
    reply: u8,
    sent: u8,
    delivered: u8,
    released: u8,
    broken: Option<&'static str>,
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// The next message is sent.
    Send,
    /// A lost segment is sent again.
    Resend,
    /// A probe is sent.
    Probe,
    /// The timer of a rail expires.
    Expire(usize),
    /// The window's timer expires.
    ExpireWindow,
    /// The receiver acknowledges.
    Acknowledge,
    /// The first datagram arrives: to the receiver (0) or back (1), over a rail.
    Arrive(usize, usize),
    /// The first datagram is lost.
    Lose(usize, usize),
    /// A rail is cut.
    Cut(u8),
    /// It comes back.
    Restore,
    /// The receiver is suspended.
    Suspend,
    /// It runs again.
    Resume,
}

impl<const W: usize, const N: usize> Model for TwoRails<W, N> {
    type State = State<W, N>;
    type Action = Action;

    fn initial(&self) -> Self::State {
        let (mut rails, mut loads) = ([RailState::FREE; RAILS], [RailLoad::IDLE; RAILS]);
        if self.full {
            loads = loads.map(|load| load.with_others(load.limit()));
        }
        let lacking = if self.lacking { 1 << LACKING } else { 0 };
        Rails::new(&mut { PATH }, RailRecords { states: &mut rails, loads: &mut loads })
            .start(PATH.parameters, lacking);
        State {
            sender: SendWindow::new(number(0)),
            rails,
            loads,
            inbound: ReceiveState::new(number(0)),
            receiver: None,
            held: [None; W],
            lanes: [[Lane([None; N]); RAILS]; 2],
            cut: self.lacking.then_some(LACKING),
            was_cut: false,
            losses: 0,
            is_suspended: false,
            was_suspended: false,
            reply: 0,
            sent: 0,
            delivered: 0,
            released: 0,
            broken: None,
        }
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Action>) {
        let (mut path, mut rails, mut loads) = (PATH, state.rails, state.loads);
        let rails = Rails::new(&mut path, RailRecords { states: &mut rails, loads: &mut loads });
        let has_token = !state.lanes[0].iter().any(Lane::is_full);
        if state.sent < self.messages && state.sender.has_room(&rails, self.choice(state.sent)) && has_token {
            actions.push(Action::Send);
        }
        if state.sender.has_lost() && has_token {
            actions.push(Action::Resend);
        }
        if state.sender.wants_probe(&rails) && has_token {
            actions.push(Action::Probe);
        }
        let quiet = |rail: usize| {
            let [there, back] = &state.lanes;
            let is_waiting = there[rail].0[0].is_some() || state.inbound.is_pending();
            !self.patient || back[rail].0[0].is_none() && (state.is_suspended || !is_waiting)
        };
        for rail in 0..RAILS {
            if state.rails[rail].deadline().is_some() && quiet(rail) {
                actions.push(Action::Expire(rail));
            }
        }
        if state.sender.deadline().is_some() && quiet(0) && quiet(1) {
            actions.push(Action::ExpireWindow);
        }
        if state.inbound.is_pending() && !state.is_suspended && !state.lanes[1][usize::from(state.reply)].is_full() {
            actions.push(Action::Acknowledge);
        }
        for way in 0..2 {
            for rail in 0..RAILS {
                if let Some(first) = state.lanes[way][rail].0[0] {
                    let is_probe = matches!(first, Datagram::Probe(..));
                    if way == 1 || !state.is_suspended && (!is_probe || !state.lanes[1][rail].is_full()) {
                        actions.push(Action::Arrive(way, rail));
                    }
                    if state.losses < self.losses {
                        actions.push(Action::Lose(way, rail));
                    }
                }
            }
        }
        if self.cut && !state.was_cut {
            actions.extend([Action::Cut(0), Action::Cut(1)]);
        }
        if self.restored && state.cut.is_some() {
            actions.push(Action::Restore);
        }
        if self.suspended && !state.was_suspended && state.lanes[0].iter().all(|lane| lane.0[0].is_none()) {
            actions.push(Action::Suspend);
        }
        if state.is_suspended {
            actions.push(Action::Resume);
        }
    }

    fn next(&self, state: &Self::State, action: &Action) -> Option<Self::State> {
        let mut next = *state;
        match *action {
            Action::Send => {
                let reference = SegmentRef { operation: u32::from(next.sent), part: 0 };
                let posting = Posting { queue: DeviceQueue::Polled, ticket: Ticket(0) };
                let choice = self.choice(next.sent);
                let segment = next.with_rails(|sender, rails| sender.push(false, reference, posting, rails, choice))?;
                let lives = |rail: usize| !next.rails[rail].is_dead() && choice.among & 1 << rail != 0;
                if choice.among & 1 << segment.rail.0 == 0 && (0..RAILS).any(lives) {
                    next.broken = Some("a segment leaves over another rail although the preferred one lives");
                }
                if self.lacking && segment.rail == Rail(LACKING) {
                    next.broken = Some("a segment leaves over a rail that the peer lacks");
                }
                if self.full && next.rails.iter().map(RailState::in_flight).sum::<u16>() > 1 {
                    next.broken = Some("more than one segment to this peer is in flight over full rails");
                }
                next.sent += 1;
                next.post(segment);
            }
            Action::Resend => {
                let posting = Posting { queue: DeviceQueue::Polled, ticket: Ticket(0) };
                let segment = next.with_rails(|sender, rails| sender.resend(false, posting, rails))?;
                let message = segment.reference.operation as u8;
                if self.patient && next.has_arrived(message) {
                    next.broken = Some("a segment is sent again that has arrived");
                }
                next.post(segment);
            }
            Action::Probe => {
                let probe = next.with_rails(|sender, rails| sender.probe(false, rails))?;
                next.transmit(0, probe.rail, Datagram::Probe(next.sent, probe.number));
            }
            Action::Expire(rail) => {
                next.rails[rail] = next.rails[rail].with_times(|_| true);
                next.with_rails(|sender, rails| sender.handle_timeout(false, rails));
            }
            Action::ExpireWindow => {
                next.sender = next.sender.with_times(|_| true);
                next.with_rails(|sender, rails| sender.handle_timeout(false, rails));
            }
            Action::Acknowledge => {
                let ack = next.inbound.acknowledge(false, W as u16, next.receiver.as_ref());
                next.transmit(1, Rail(next.reply), Datagram::Acknowledge(ack));
            }
            Action::Arrive(way, rail) => {
                let datagram = next.lanes[way][rail].pop()?;
                next.arrive(rail as u8, datagram, self.messages);
            }
            Action::Lose(way, rail) => {
                next.lanes[way][rail].pop()?;
                next.losses += 1;
            }
            Action::Cut(rail) => {
                (next.cut, next.was_cut) = (Some(rail), true);
                for lanes in &mut next.lanes {
                    lanes[usize::from(rail)] = Lane([None; N]);
                }
            }
            Action::Restore => next.cut = None,
            Action::Suspend => (next.is_suspended, next.was_suspended) = (true, true),
            Action::Resume => next.is_suspended = false,
        }
        let is_dead = |rail: usize| next.rails[rail].is_dead() && next.cut != Some(rail as u8);
        if self.patient && (is_dead(0) || is_dead(1)) {
            next.broken = Some("a rail is dead that is not cut");
        }
        next.settle(self.messages, self.choice(next.sent));
        next.renumber();
        Some(next)
    }

    fn violation(&self, state: &Self::State) -> Option<&'static str> {
        state.broken
    }

    fn finished(&self, state: &Self::State) -> bool {
        state.released == self.messages
    }
}

impl<const W: usize, const N: usize> TwoRails<W, N> {
    /// The rails that a message prefers, and whether it is bulk.
    const fn choice(&self, message: u8) -> RailChoice {
        let among = if self.ports { 1 << (message % RAILS as u8) } else { ALL_RAILS };
        RailChoice { among, is_bulk: self.full }
    }
}

impl<const W: usize, const N: usize> State<W, N> {
    fn with_rails<R>(&mut self, act: impl FnOnce(&mut SendWindow<Chosen, W, BITS>, &mut Rails<'_, Chosen>) -> R) -> R {
        let mut path = PATH;
        act(
            &mut self.sender,
            &mut Rails::new(&mut path, RailRecords { states: &mut self.rails, loads: &mut self.loads }),
        )
    }

    /// The numbers of the probes over each rail count from the latest one on.
    fn renumber(&mut self) {
        self.sender = self.sender.with_numbers_from_latest();
        for (rail, state) in self.rails.iter_mut().enumerate() {
            let latest;
            (*state, latest) = state.with_numbers_from_latest();
            let lanes = self.lanes.iter_mut().flat_map(|lanes| &mut lanes[rail].0);
            for datagram in lanes.flatten() {
                let number = match datagram {
                    Datagram::Probe(_, number) => number,
                    Datagram::Acknowledge(Acknowledgement { answers_probe: true, echo: Some(echo), .. }) => {
                        &mut echo.count
                    }
                    _ => continue,
                };
                *number = number.wrapping_sub(latest) & Chosen::COUNT_MASK;
            }
        }
    }

    fn transmit(&mut self, way: usize, rail: Rail, datagram: Datagram) {
        if self.cut != Some(rail.0) {
            self.lanes[way][usize::from(rail.0)].push(datagram);
        }
    }

    fn post(&mut self, segment: Segment<BITS>) {
        let message = segment.reference.operation as u8;
        if segment.psn != number(message) {
            self.broken = Some("a message is sent under another number");
        }
        self.transmit(0, segment.rail, Datagram::Data(message, segment.count));
        self.sender.handle_completed(DeviceQueue::Polled, Ticket(0));
    }

    fn has_arrived(&self, message: u8) -> bool {
        message < self.delivered || self.held.contains(&Some(message))
    }

    /// Released segments leave; if more is queued, the timer asks for credit.
    fn settle(&mut self, messages: u8, choice: RailChoice) {
        while let Some(reference) = self.sender.release() {
            if reference.operation as u8 != self.released || !self.has_arrived(self.released) {
                self.broken = Some("a segment is released out of order, or has not arrived");
            }
            self.released += 1;
        }
        if self.sent < messages {
            self.with_rails(|sender, rails| sender.handle_queued(false, rails, choice));
        }
    }

    fn arrive(&mut self, rail: u8, datagram: Datagram, messages: u8) {
        match datagram {
            Datagram::Data(message, count) => {
                self.reply = rail;
                match self.inbound.classify(number(message), self.receiver.as_ref()) {
                    ArrivalOrder::Next => {
                        self.deliver(message);
                        self.inbound.record((), number(message), count);
                        while let Early::Held(Slot(cell)) = self.inbound.advance(self.receiver.as_mut()) {
                            match self.held[cell as usize].take() {
                                Some(message) => self.deliver(message),
                                None => self.broken = Some("a datagram is delivered that is not held"),
                            }
                        }
                        self.receiver =
                            self.receiver.filter(|window| !window.is_empty()).map(ReceiveWindow::with_ring_turned);
                    }
                    ArrivalOrder::Early(distance) => {
                        let Some(free) = self.held.iter().position(Option::is_none) else {
                            self.broken = Some("more datagrams are held than can be early");
                            return;
                        };
                        self.held[free] = Some(message);
                        let window = self.receiver.get_or_insert(ReceiveWindow::EMPTY);
                        if window.insert(distance, Early::Held(Slot(free as u32))).is_err() {
                            self.broken = Some("a datagram arrives twice");
                        }
                        self.inbound.record((), number(message), count);
                    }
                    ArrivalOrder::Duplicate => self.inbound.ack_immediately(),
                    ArrivalOrder::Outside => self.broken = Some("a message is outside the window"),
                }
            }
            Datagram::Probe(next, probe) => {
                let ack = self.inbound.acknowledge(false, W as u16, self.receiver.as_ref());
                let echo = Some(Echo { psn: number(next), count: probe, hold: u32::MAX });
                let answer = Acknowledgement { echo, answers_probe: true, ..ack };
                self.transmit(1, Rail(rail), Datagram::Acknowledge(answer));
            }
            Datagram::Acknowledge(ack) => {
                let is_queued = self.sent < messages;
                self.sender.handle_sign_of_life();
                self.with_rails(|sender, rails| sender.handle_ack(false, &ack, is_queued, Rail(rail), rails));
            }
        }
    }

    fn deliver(&mut self, message: u8) {
        if message != self.delivered {
            self.broken = Some("a message is lost, doubled or misordered");
        }
        self.delivered += 1;
    }
}

fn number(message: u8) -> Psn<BITS> {
    Psn::new(u32::from(message))
}
