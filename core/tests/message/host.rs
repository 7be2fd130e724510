//! A simulated host: ranks exchange messages over ordered channels, and an oracle checks every result against MPI's
//! rules.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use unisono_core::ids::{MessageId, PeerId, PlacementId, ReceiveId, RemoteKey};
use unisono_core::message::matching::{self, Full};
use unisono_core::message::point_to_point::{
    Action, Config, HeaderCredit, Matched, MessageHeader, Mode, Outcome, Outgoing, PayloadStore, PointToPoint,
    ReceiveBody, ReceiveResult, SendAction, SendError, SendRecord, Status,
};
use unisono_core::message::{Context, Envelope, Pattern, Tag};

use crate::storage::{Boxes, Sizes, machine};

/// A message of the program, identified by its index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) envelope: Envelope,
    pub(crate) to: usize,
    pub(crate) bytes: u64,
    pub(crate) mode: Mode,
}

/// The next operation of a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Sends the message of that index.
    Send(usize),
    Receive(Pattern, u64),
    /// Repeats a probe until it finds a message; then receives it, by its envelope or by a matched probe.
    Probe(Pattern, bool),
    /// Cancels the n-th receive of this rank.
    Cancel(usize),
    /// Cancels the send of the message of that index.
    CancelSend(usize),
}

/// Kinds of headers.
const CANCEL: u8 = 13;
const CANCEL_REPLY: u8 = 14;
const WITHDRAWN: u8 = 15;
/// The flag of a reply to a cancellation: the message was removed.
const REMOVED: u8 = 32;

/// A channel's item: a header, and the payload of a message after it.
#[derive(Clone, Debug)]
struct Carried {
    head: Vec<u8>,
    payload: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waits,
    /// Matched with that message, whose payload has not arrived.
    Met(usize),
    Done(usize),
    Cancelled,
}

#[derive(Debug)]
struct Posted {
    pattern: Pattern,
    room: u64,
    id: Option<ReceiveId>,
    state: State,
}

#[derive(Debug)]
struct Rank {
    machine: PointToPoint<Boxes>,
    program: VecDeque<Step>,
    posted: Vec<Posted>,
    /// Stored unexpected payloads, by their place.
    kept: BTreeMap<(bool, u32), usize>,
    /// Messages taken by matched probes.
    matched: BTreeSet<usize>,
    fetches: bool,
    /// Numbers of receive and send records.
    records: [usize; 2],
}

#[derive(Debug)]
pub(crate) struct Job {
    messages: Vec<Message>,
    ranks: Vec<Rank>,
    channels: BTreeMap<(usize, usize), VecDeque<Carried>>,
    /// Payloads in flight to granted memory: message, receiver, its receive.
    placements: Vec<(usize, usize, usize)>,
    sent: Vec<bool>,
    done: Vec<bool>,
    truncated: Vec<bool>,
    taken: Vec<bool>,
    /// The numbers by which their senders cancel them; whether that was tried, and whether no receive will match them.
    numbers: Vec<u32>,
    cancelling: Vec<bool>,
    cancelled: Vec<bool>,
    /// The message that a rank is cancelling at another one.
    cancellations: BTreeMap<(usize, usize), usize>,
    eager: u32,
    short: u32,
    /// Parts granted before the last ones.
    pub(crate) parts: u32,
    /// Headers sent, by kind.
    pub(crate) kinds: [u32; 16],
}

impl Job {
    pub(crate) fn new(
        config: Config,
        sizes: Sizes,
        eager: u32,
        messages: Vec<Message>,
        programs: Vec<Vec<Step>>,
    ) -> Self {
        let ranks = programs.into_iter().enumerate().map(|(rank, program)| Rank {
            machine: machine(Config { seed: rank as u32, ..config }, sizes),
            program: program.into(),
            posted: Vec::new(),
            kept: BTreeMap::new(),
            matched: BTreeSet::new(),
            fetches: rank % 2 == 0,
            records: [sizes.receives, sizes.sends],
        });
        let flags = vec![false; messages.len()];
        Self {
            ranks: ranks.collect(),
            channels: BTreeMap::new(),
            placements: Vec::new(),
            sent: flags.clone(),
            done: flags.clone(),
            truncated: flags.clone(),
            taken: flags.clone(),
            numbers: vec![0; messages.len()],
            cancelling: flags.clone(),
            cancelled: flags,
            cancellations: BTreeMap::new(),
            messages,
            eager,
            short: config.short.min(eager),
            parts: 0,
            kinds: [0; 16],
        }
    }

    /// Performs one possible step, selected by `choice`. False: none is possible.
    pub(crate) fn step(&mut self, choice: usize) -> bool {
        let ranks = self.ranks.len();
        let full: Vec<(usize, usize)> =
            self.channels.iter().filter(|(_, queue)| !queue.is_empty()).map(|(way, _)| *way).collect();
        let ways = ranks * 2 + full.len() + usize::from(!self.placements.is_empty());
        // The first possible one, from the selected one on.
        (0..ways).any(|i| {
            let way = (choice + i) % ways;
            if way < ranks {
                self.act(way)
            } else if way < 2 * ranks {
                self.run(way - ranks)
            } else if let Some((from, to)) = full.get(way - 2 * ranks) {
                self.deliver(*from, *to)
            } else {
                self.place(choice)
            }
        })
    }

    /// Performs steps until none is possible.
    pub(crate) fn settle(&mut self) {
        for rank in 0..self.ranks.len() {
            while self.act(rank) {}
        }
        let mut choice = 0_usize;
        // A probe that finds nothing may have sent a match request.
        while self.step(choice) || self.step(choice) {
            choice = choice.wrapping_add(7);
            assert!(choice < 7 * 1_000_000, "it never ends");
        }
    }

    fn carry(&mut self, from: usize, to: PeerId, head: &[u8], payload: Option<usize>) {
        self.kinds[usize::from(head[0])] += 1;
        self.channels.entry((from, to.0 as usize)).or_default().push_back(Carried { head: head.to_vec(), payload });
    }

    /// Carries out the machine's next action. False: it has none.
    fn act(&mut self, rank: usize) -> bool {
        let machine = &mut self.ranks[rank].machine;
        let is_idle = machine.is_idle();
        let Some(action) = machine.poll_action() else { return false };
        assert!(!is_idle, "an idle machine requests {action:?}");
        match action {
            Action::Header { to, head } => {
                if head.as_ref().first() == Some(&WITHDRAWN) {
                    self.cancelled(rank, to.0 as usize);
                }
                self.carry(rank, to, head.as_ref(), None);
            }
            Action::Eager { to, user, head, done } => {
                self.carry(rank, to, head.as_ref(), Some(user as usize));
                if done {
                    self.end(user as usize, false);
                }
            }
            Action::Sent { user } => self.end(user as usize, false),
            Action::Pull { receive, user, from, at, bytes } => {
                let State::Met(message) = self.ranks[rank].posted[user as usize].state else {
                    panic!("{user} was not matched")
                };
                assert!(at.is_none_or(|at| at == message as u64), "another payload");
                assert!(!self.done[message], "its payload is still at its sender");
                assert_eq!((self.messages[message].bytes, from.0), (bytes, self.messages[message].envelope.source.0));
                let Rank { machine, fetches, .. } = &mut self.ranks[rank];
                if *fetches && at.is_some() {
                    machine.fetched(receive);
                    self.ranks[rank].posted[user as usize].state = State::Done(message);
                } else {
                    let placement = PlacementId(user);
                    if message.is_multiple_of(3) {
                        let (to, head) = machine
                            .grant_part(receive, placement, RemoteKey(message as u64))
                            .expect("it is being pulled");
                        self.carry(rank, to, head.as_ref(), None);
                    }
                    let machine = &mut self.ranks[rank].machine;
                    let (to, head) =
                        machine.grant(receive, placement, RemoteKey(message as u64)).expect("it is being pulled");
                    self.carry(rank, to, head.as_ref(), None);
                }
            }
        }
        true
    }

    /// No receive will match the message that a rank is cancelling.
    fn cancelled(&mut self, from: usize, to: usize) {
        let message = self.cancellations[&(from, to)];
        assert!(!self.taken[message], "a message is cancelled that was matched");
        (self.taken[message], self.cancelled[message]) = (true, true);
        self.ranks[to].kept.retain(|_, kept| *kept != message);
    }

    /// The answer that a rank will give to another one that cancels a message.
    fn will_remove(&self, rank: usize, of: usize) -> bool {
        let mut machine = self.ranks[rank].machine.clone();
        let mut actions = core::iter::from_fn(|| machine.poll_action());
        let answer = actions.find_map(|action| match action {
            Action::Header { to, head } if to.0 as usize == of && head.as_ref()[0] == CANCEL_REPLY => {
                Some(head.as_ref()[1] & REMOVED != 0)
            }
            _ => None,
        });
        answer.expect("it is answered")
    }

    /// Cancels a send. False: another one to the same rank is being cancelled.
    fn cancel_send(&mut self, rank: usize, message: usize) -> bool {
        if !self.sent[message] || self.cancelling[message] {
            return true;
        }
        let to = self.messages[message].to;
        if !self.end_cancellation(rank, to) {
            return false;
        }
        let accepted = self.ranks[rank].machine.cancel_send(PeerId(to as u32), self.numbers[message]);
        assert!(accepted, "the last one is over");
        self.cancelling[message] = true;
        self.cancellations.insert((rank, to), message);
        true
    }

    /// Takes the result of the send to a rank that another one is cancelling. False: there is none yet.
    fn end_cancellation(&mut self, rank: usize, to: usize) -> bool {
        let Some(message) = self.cancellations.get(&(rank, to)).copied() else { return true };
        let Some(is_cancelled) = self.ranks[rank].machine.take_cancel_result(PeerId(to as u32)) else { return false };
        assert_eq!(is_cancelled, self.cancelled[message], "message {message}");
        self.cancellations.remove(&(rank, to));
        true
    }

    fn end(&mut self, message: usize, truncated: bool) {
        assert!(!self.done[message], "a message completes twice");
        self.done[message] = true;
        self.truncated[message] = truncated;
        if self.messages[message].mode == Mode::Synchronous {
            assert!(self.taken[message], "a synchronous send completes before it is matched");
        }
    }

    /// Matches a receive with a message, and checks MPI's order.
    fn meet(&mut self, rank: usize, receive: usize, status: &Status) -> usize {
        let pattern = self.ranks[rank].posted[receive].pattern;
        assert!(pattern.matches(&status.envelope));
        // Of the messages from this source with this context, the first one that matches and was not taken.
        let first = self.first(rank, &pattern, status.envelope.source).expect("somebody sent it");
        assert_eq!(self.messages[first].envelope, status.envelope, "a message overtakes another one");
        assert_eq!(self.messages[first].bytes, status.bytes);
        let earlier = self.ranks[rank].posted[..receive].iter();
        let passed =
            earlier.filter(|other| other.state == State::Waits).any(|other| other.pattern.matches(&status.envelope));
        assert!(!passed, "a receive overtakes another one");
        self.taken[first] = true;
        self.ranks[rank].posted[receive].state = State::Met(first);
        first
    }

    fn first(&self, rank: usize, pattern: &Pattern, source: PeerId) -> Option<usize> {
        let mine = |i: &usize| self.sent[*i] && !self.taken[*i] && self.messages[*i].to == rank;
        let from =
            |i: &usize| self.messages[*i].envelope.source == source && pattern.matches(&self.messages[*i].envelope);
        (0..self.messages.len()).filter(mine).find(from)
    }

    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let Some(Carried { head, payload }) = self.channels.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        let bytes = head.len() as u64 + payload.map_or(0, |message| self.messages[message].bytes);
        let (peer, machine) = (PeerId(from as u32), &mut self.ranks[to].machine);
        // An inline message may be handled by its header's fields alone.
        let short = MessageHeader::parse_eager(&head).filter(|_| to % 2 == 1 && head[16..] == [0xff; 4]);
        let outcome = match short {
            Some((context, tag)) => {
                let freed = u16::from_le_bytes([head[2], head[3]]);
                let settled = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
                machine.handle_inline(
                    peer,
                    context,
                    tag,
                    HeaderCredit { freed, settled },
                    bytes as u32 - head.len() as u32,
                )
            }
            // On even ranks an expected message is tried first, which must change nothing if no receive matches.
            None if to.is_multiple_of(2) => {
                let before = machine.clone();
                match machine.handle_expected(peer, &head, bytes as u32) {
                    Some((user, tag, payload)) => {
                        let context = MessageHeader::parse_eager(&head).expect("it is short").0;
                        let status =
                            Status { envelope: Envelope { context, source: peer, tag }, bytes: u64::from(payload) };
                        Outcome::Into { user, start: MessageHeader::EAGER, status }
                    }
                    None => {
                        assert!(*machine == before, "the call changed the state");
                        machine.handle(peer, &head, bytes as u32)
                    }
                }
            }
            None => machine.handle(peer, &head, bytes as u32),
        };
        if head[0] == CANCEL && self.will_remove(to, from) {
            self.cancelled(from, to);
        }
        match outcome {
            Outcome::Nothing => {}
            Outcome::Into { user, start, status } => {
                assert_eq!(start, head.len());
                let message = self.meet(to, user as usize, &status);
                assert_eq!(payload, Some(message), "the payload of another message");
                self.ranks[to].posted[user as usize].state = State::Done(message);
            }
            Outcome::Store { place, .. } => {
                let key = key(place);
                assert!(
                    self.ranks[to].kept.insert(key, payload.expect("there is a payload")).is_none(),
                    "stored over another payload"
                );
            }
            Outcome::Pending { user, status } => {
                self.meet(to, user as usize, &status);
            }
            Outcome::Truncated { user, status } => {
                let message = self.meet(to, user as usize, &status);
                assert!(status.bytes > self.ranks[to].posted[user as usize].room);
                self.ranks[to].posted[user as usize].state = State::Done(message);
            }
            Outcome::Place { user, placement, key, more } => {
                if more {
                    self.parts += 1;
                    return true;
                }
                let message = user as usize;
                assert_eq!(key.0, user.into());
                self.placements.push((message, from, placement.0 as usize));
            }
            Outcome::Sent { user, truncated } => self.end(user as usize, truncated),
            Outcome::ProtocolViolation => panic!("{from} violates the protocol towards {to}: {head:?}"),
        }
        true
    }

    fn place(&mut self, choice: usize) -> bool {
        if self.placements.is_empty() {
            return false;
        }
        let (message, to, receive) = self.placements.swap_remove(choice % self.placements.len());
        assert_eq!(self.ranks[to].posted[receive].state, State::Met(message));
        self.ranks[to].posted[receive].state = State::Done(message);
        self.end(message, false);
        true
    }

    /// Runs the rank's next operation. False: there is none, or it is not done.
    fn run(&mut self, rank: usize) -> bool {
        let Some(step) = self.ranks[rank].program.front().copied() else { return false };
        let done = match step {
            Step::Send(message) => self.send(message),
            Step::Receive(pattern, room) => self.receive(rank, pattern, room, None),
            Step::Probe(pattern, takes) => self.probe(rank, pattern, takes),
            Step::CancelSend(message) => self.cancel_send(rank, message),
            Step::Cancel(which) => {
                let id = self.ranks[rank].posted.get(which).and_then(|posted| posted.id);
                let waits = self.ranks[rank].posted.get(which).is_some_and(|posted| posted.state == State::Waits);
                let cancelled = id.and_then(|id| self.ranks[rank].machine.cancel(id));
                assert_eq!(cancelled, waits.then_some(which as u32));
                if waits {
                    self.ranks[rank].posted[which].state = State::Cancelled;
                }
                true
            }
        };
        if done {
            self.ranks[rank].program.pop_front();
        }
        done
    }

    fn send(&mut self, message: usize) -> bool {
        let Message { envelope, to, bytes, mode } = self.messages[message];
        let outgoing = Outgoing {
            to: PeerId(to as u32),
            context: envelope.context,
            tag: envelope.tag,
            bytes,
            eager: self.eager,
            at: message as u64,
            mode,
            borrowed: message.is_multiple_of(2),
            user: message as u32,
        };
        let rank = envelope.source.0 as usize;
        self.numbers[message] = self.ranks[rank].machine.next_number(outgoing.to);
        let is_short = bytes <= u64::from(self.short) && mode != Mode::Synchronous;
        if is_short
            && message.is_multiple_of(2)
            && let Some(credit) = self.ranks[rank].machine.send_inline(outgoing.to)
        {
            self.sent[message] = true;
            self.carry(
                rank,
                outgoing.to,
                MessageHeader::inline(envelope.context, envelope.tag, credit).as_ref(),
                Some(message),
            );
            self.end(message, false);
            return true;
        }
        let leaves = match self.ranks[rank].machine.send(&outgoing) {
            Ok(leaves) => leaves,
            Err(SendError::Full) => return rank % 2 == 1 && add_sends(&mut self.ranks[rank]) && self.send(message),
            Err(error) => panic!("{error:?}"),
        };
        self.sent[message] = true;
        match leaves {
            SendAction::Eager { head, done } => {
                self.carry(rank, outgoing.to, head.as_ref(), Some(message));
                if done {
                    self.end(message, false);
                }
            }
            SendAction::Header(head) => self.carry(rank, outgoing.to, head.as_ref(), None),
        }
        true
    }

    fn receive(&mut self, rank: usize, pattern: Pattern, room: u64, matched: Option<(MessageId, usize)>) -> bool {
        let user = self.ranks[rank].posted.len();
        let machine = &mut self.ranks[rank].machine;
        let received = match matched {
            Some((message, _)) => {
                let outcome = machine.receive_matched(message, room, user as u32);
                outcome.map(|outcome| ReceiveResult::Matched(outcome.expect("it was taken")))
            }
            None if rank % 2 == 1 => match machine.receive_unexpected(&pattern, room, user as u32) {
                Ok(None) => machine.post(pattern, room, user as u32).map(ReceiveResult::Posted),
                outcome => outcome.map(|outcome| ReceiveResult::Matched(outcome.expect("one is kept"))),
            },
            None => machine.receive(pattern, room, user as u32),
        };
        let Ok(received) = received.map_err(|Full| ()) else {
            // Odd ranks add records when they are full.
            return rank % 2 == 1 && add_receives(&mut self.ranks[rank]) && self.receive(rank, pattern, room, matched);
        };
        self.ranks[rank].posted.push(Posted { pattern, room, id: None, state: State::Waits });
        let outcome = match received {
            ReceiveResult::Posted(id) => {
                self.ranks[rank].posted[user].id = Some(id);
                return true;
            }
            ReceiveResult::Matched(outcome) => outcome,
        };
        let (Matched::Unexpected { status, .. } | Matched::Pending(status) | Matched::Truncated(status)) = outcome;
        let message = match matched {
            Some((_, message)) => {
                self.ranks[rank].posted[user].state = State::Met(message);
                message
            }
            None => self.meet(rank, user, &status),
        };
        match outcome {
            Matched::Unexpected { message: id, place, .. } => {
                assert_eq!(self.ranks[rank].kept.remove(&key(place)), Some(message), "another payload is kept");
                self.ranks[rank].machine.release(id);
                self.ranks[rank].posted[user].state = State::Done(message);
            }
            Matched::Truncated(_) => self.ranks[rank].posted[user].state = State::Done(message),
            Matched::Pending(_) => {}
        }
        true
    }

    /// Repeats a probe: done when it has found a message and received it.
    fn probe(&mut self, rank: usize, pattern: Pattern, takes: bool) -> bool {
        if takes {
            let Some((id, status)) = self.ranks[rank].machine.matched_probe(pattern) else { return false };
            let first = self.first(rank, &pattern, status.envelope.source).expect("somebody sent it");
            assert_eq!(self.messages[first].envelope, status.envelope, "a probe finds a later message");
            self.taken[first] = true;
            self.ranks[rank].matched.insert(first);
            assert!(self.receive(rank, pattern, status.bytes, Some((id, first))), "there is a record");
            return true;
        }
        let Some(status) = self.ranks[rank].machine.probe(pattern) else { return false };
        let first = self.first(rank, &pattern, status.envelope.source).expect("somebody sent it");
        assert_eq!(self.messages[first].envelope, status.envelope, "a probe finds a later message");
        let Envelope { context, source, tag } = status.envelope;
        let exact = Pattern { context, source: Some(source), tag: Some(tag) };
        self.receive(rank, exact, status.bytes, None)
    }

    /// Checks the final state: nothing waits that could complete, and every completion was reported.
    pub(crate) fn judge(&mut self) {
        for rank in 0..self.ranks.len() {
            for peer in 0..self.ranks.len() {
                self.ranks[rank].machine.request_report(PeerId(peer as u32));
            }
        }
        self.settle();
        for (from, to) in self.cancellations.keys().copied().collect::<Vec<_>>() {
            assert!(self.end_cancellation(from, to), "{to} does not answer {from}, which cancels a message");
        }
        for (rank, state) in self.ranks.iter().enumerate() {
            assert!(
                !matches!(
                    state.program.front(),
                    Some(Step::Send(_) | Step::Receive(..) | Step::Cancel(_) | Step::CancelSend(_))
                ),
                "stuck"
            );
            if let Some(Step::Probe(pattern, _)) = state.program.front() {
                let found = (0..self.ranks.len()).find_map(|source| self.first(rank, pattern, PeerId(source as u32)));
                assert_eq!(found, None, "a probe does not find it");
            }
            for posted in &state.posted {
                assert!(!matches!(posted.state, State::Met(_)), "a payload does not come");
                if posted.state == State::Waits {
                    let sent = (0..self.messages.len()).filter(|i| self.sent[*i] && !self.taken[*i]);
                    let waits =
                        |i: &usize| self.messages[*i].to == rank && posted.pattern.matches(&self.messages[*i].envelope);
                    let missed: Vec<usize> = sent.filter(waits).collect();
                    assert!(missed.is_empty(), "rank {rank} waits for messages that were sent: {missed:?}");
                }
            }
        }
        for (message, of) in self.messages.iter().enumerate() {
            assert!(self.done[message] || !self.taken[message], "message {message} was taken and is not done");
            let too_long = |posted: &Posted| posted.state == State::Done(message) && posted.room < of.bytes;
            let cut = self.ranks.iter().flat_map(|rank| &rank.posted).any(too_long);
            assert_eq!(self.truncated[message], cut && of.bytes > u64::from(self.eager), "message {message}");
        }
    }

    /// Numbers of messages that were received, and that were cancelled.
    pub(crate) fn counts(&self) -> [usize; 2] {
        let [taken, cancelled] = [&self.taken, &self.cancelled].map(|all| all.iter().filter(|one| **one).count());
        [taken - cancelled, cancelled]
    }
}

const fn key(place: PayloadStore) -> (bool, u32) {
    match place {
        PayloadStore::Short(record) => (false, record),
        PayloadStore::Slot(slot) => (true, slot),
    }
}

pub(crate) fn envelope(context: u32, source: u32, tag: u32) -> Envelope {
    Envelope { context: Context(context), source: PeerId(source), tag: Tag(tag) }
}

fn add_sends(rank: &mut Rank) -> bool {
    rank.records[1] += 1;
    let sends = rank.records[1];
    rank.machine.grow_sends(vec![SendRecord::FREE; sends].into(), vec![0; sends * 4 + 8].into())
}

fn add_receives(rank: &mut Rank) -> bool {
    rank.records[0] += 1;
    let receives = rank.records[0];
    rank.machine.grow_receives(
        vec![matching::PostedReceive::<ReceiveBody>::default(); receives].into(),
        vec![0; receives * 4 + 8].into(),
    )
}
