//! A round of messages on one rank, and its comparison with the serial order.

use alloc::collections::VecDeque;
use std::collections::HashMap;

use fastrand::Rng;
use unisono::collective::{CollectiveError, SystemOperation};
use unisono::{Communicator, Rank, Request, Status, Tag, World, wait_all, wait_some};

use super::program::{Message, Overlap, OverlapKind, ReceiveMode, Round, SendMode, Start};

/// One rank's part in a round.
pub(super) struct MessageRound<'a> {
    round: &'a Round,
    number: u32,
    /// The communicators of this rank that the round uses, by their numbers in the program.
    communicators: HashMap<usize, &'a Communicator>,
    /// Messages to this rank, by communicator, with their numbers in the round.
    incoming: Vec<(usize, Vec<(usize, Message)>)>,
}

/// A posted receive: its communicator, its pattern and its buffer.
struct Receive {
    on: usize,
    source: Option<Rank>,
    tag: Option<Tag>,
    into: Vec<u8>,
}

/// An immediate collective's buffers.
struct Beside {
    overlap: Overlap,
    given: Vec<u32>,
    into: Vec<u32>,
}

impl<'a> MessageRound<'a> {
    pub(super) fn new(round: &'a Round, number: u32, on: &dyn Fn(usize) -> Option<&'a Communicator>) -> Self {
        let used = |start: &Start| match start {
            Start::Message(message) => message.on,
            Start::Overlap(overlap) => overlap.on,
        };
        let communicators: HashMap<usize, &Communicator> =
            round.starts.iter().map(used).filter_map(|id| Some((id, on(id)?))).collect();
        let mut incoming: Vec<(usize, Vec<(usize, Message)>)> = Vec::new();
        let mut ids: Vec<usize> = communicators.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let own = communicators[&id].rank().0;
            let to_this = round.starts.iter().enumerate().filter_map(|(i, start)| match start {
                Start::Message(message) if message.on == id && message.to == own => Some((i, *message)),
                _ => None,
            });
            incoming.push((id, to_this.collect()));
        }
        Self { round, number, communicators, incoming }
    }

    /// Runs and compares the round; then a barrier where a wildcard could match a message of a later round.
    pub(super) fn run(self, world: &World) -> Result<u64, String> {
        let rng = &mut Rng::with_seed(self.round.order ^ u64::from(world.rank().0));
        let (mut receives, mut compared) = (self.receives(rng), 0);
        let statuses = self.exchange(world, &mut receives, rng, &mut compared)?;
        let posts = |on: usize| self.receive_mode(on) != ReceiveMode::Probe;
        for (on, incoming) in self.incoming.iter().filter(|(on, _)| posts(*on)) {
            let posted = receives.iter().zip(&statuses).filter(|(receive, _)| receive.on == *on);
            compared += self.compare(*on, incoming, posted.map(|(receive, status)| (*status, &receive.into[..])))?;
        }
        for (on, _) in &self.incoming {
            let wildcards = self.round.receives.iter().any(|(of, _, mode)| of == on && mode.has_any_source());
            if wildcards {
                self.communicators[on].barrier().map_err(|error| error.to_string())?;
            }
        }
        Ok(compared)
    }

    /// The receives that are posted before anything is sent, in a random order.
    fn receives(&self, rng: &mut Rng) -> Vec<Receive> {
        let mut receives = Vec::new();
        for (on, incoming) in &self.incoming {
            let mode = self.receive_mode(*on);
            let longest = incoming.iter().map(|(_, message)| message.bytes).max().unwrap_or(0);
            if mode != ReceiveMode::Probe {
                receives.extend(incoming.iter().map(|(_, message)| Receive {
                    on: *on,
                    source: (!mode.has_any_source()).then_some(Rank(message.from)),
                    tag: (!mode.has_any_tag()).then_some(Tag(message.tag)),
                    into: vec![0; longest],
                }));
            }
        }
        rng.shuffle(&mut receives);
        receives
    }

    fn receive_mode(&self, on: usize) -> ReceiveMode {
        self.round.receive_mode(on, self.communicators[&on].rank().0)
    }

    /// Posts, sends, probes and waits. Returns the status of each receive.
    fn exchange(
        &self,
        world: &World,
        receives: &mut [Receive],
        rng: &mut Rng,
        compared: &mut u64,
    ) -> Result<Vec<Status>, String> {
        let outgoing: Vec<Option<Vec<u8>>> =
            (0..).zip(&self.round.starts).map(|(i, start)| self.payload_from_here(i, start)).collect();
        let mut beside: Vec<Option<Beside>> = self.round.starts.iter().map(|start| self.beside(start)).collect();
        let patterns: Vec<_> = receives.iter().map(|receive| (receive.on, receive.source, receive.tag)).collect();
        let statuses = world.scope(|scope| {
            let mut posted: Vec<Request<'_>> = Vec::new();
            for (receive, (on, source, tag)) in receives.iter_mut().zip(patterns) {
                let scope = scope.on(self.communicators[&on]);
                posted.push(scope.immediate_receive_into(&mut receive.into[..], source, tag).map_err(text)?);
            }
            let (mut sends, mut collectives) = (Vec::new(), Vec::new());
            for ((start, payload), beside) in self.round.starts.iter().zip(&outgoing).zip(&mut beside) {
                match (start, payload, beside) {
                    (Start::Message(message), Some(payload), _) => {
                        let (to, tag) = (Rank(message.to), Tag(message.tag));
                        let communicator = self.communicators[&message.on];
                        let scope = scope.on(communicator);
                        match message.mode {
                            SendMode::Standard => communicator.send(&payload[..], to, tag).map_err(text)?,
                            SendMode::Synchronous => {
                                communicator.synchronous_send(&payload[..], to, tag).map_err(text)?;
                            }
                            SendMode::Immediate => {
                                sends.push(scope.immediate_send(&payload[..], to, tag).map_err(text)?);
                            }
                            SendMode::ImmediateSynchronous => {
                                sends.push(scope.immediate_synchronous_send(&payload[..], to, tag).map_err(text)?);
                            }
                        }
                    }
                    (Start::Overlap(overlap), _, Some(Beside { given, into, .. })) => {
                        let scope = scope.on(self.communicators[&overlap.on]);
                        let started = match overlap.kind {
                            OverlapKind::Barrier => scope.immediate_barrier(),
                            OverlapKind::Broadcast(root) => scope.immediate_broadcast_into(&mut into[..], Rank(root)),
                            OverlapKind::Allreduce => {
                                scope.immediate_all_reduce_into(&given[..], &mut into[..], SystemOperation::sum())
                            }
                            OverlapKind::Allgather => scope.immediate_all_gather_into(&given[..], &mut into[..]),
                        };
                        collectives.push(started.map_err(|error: CollectiveError| error.to_string())?);
                    }
                    _ => {}
                }
            }
            scope.flush();
            *compared += self.probe()?;
            rng.shuffle(&mut collectives);
            for collective in collectives {
                collective.wait().map_err(|error| error.to_string())?;
            }
            let statuses = wait_in_some_way(&posted, rng)?;
            wait_all(&sends).map_err(|error| error.to_string())?;
            Ok::<_, String>(statuses)
        })?;
        for beside in beside.iter().flatten() {
            self.compare_overlap(beside)?;
            *compared += 1;
        }
        Ok(statuses)
    }

    /// Receives by matched probes, where this rank does.
    fn probe(&self) -> Result<u64, String> {
        let mut compared = 0;
        for (on, incoming) in self.incoming.iter().filter(|(on, _)| self.receive_mode(*on) == ReceiveMode::Probe) {
            let mut received = Vec::new();
            for _ in incoming {
                let message = self.communicators[on].matched_probe(None, None).map_err(text)?;
                let probed = message.status();
                let mut into = vec![0_u8; probed.bytes];
                let status = message.receive_into(&mut into[..]).map_err(text)?;
                if status != probed {
                    return Err(format!("a probe reported {probed:?}, the receive {status:?}"));
                }
                received.push((status, into));
            }
            compared += self.compare(*on, incoming, received.iter().map(|(status, into)| (*status, &into[..])))?;
        }
        Ok(compared)
    }

    /// Compares the received messages of a communicator, in the order of their receives, with those that were sent:
    /// messages of one source do not overtake each other.
    fn compare<'r>(
        &self,
        on: usize,
        incoming: &[(usize, Message)],
        received: impl Iterator<Item = (Status, &'r [u8])>,
    ) -> Result<u64, String> {
        let by_tag = !self.receive_mode(on).has_any_tag();
        let key = |source: u32, tag: u32| (source, if by_tag { tag } else { 0 });
        let mut sent: HashMap<(u32, u32), VecDeque<&(usize, Message)>> = HashMap::new();
        for message in incoming {
            sent.entry(key(message.1.from, message.1.tag)).or_default().push_back(message);
        }
        let mut compared = 0;
        for (status, data) in received {
            let next = sent.get_mut(&key(status.source.0, status.tag.0)).and_then(VecDeque::pop_front);
            let Some((i, message)) = next else { return Err(format!("{status:?} was not sent on {on}")) };
            if status != (Status { source: Rank(message.from), tag: Tag(message.tag), bytes: message.bytes }) {
                return Err(format!("{status:?} instead of {message:?}"));
            }
            if data.get(..message.bytes) != Some(&payload(self.number, *i, message.bytes)[..]) {
                return Err(format!("wrong data of {message:?}"));
            }
            compared += 1;
        }
        if compared == incoming.len() as u64 {
            Ok(compared)
        } else {
            Err(format!("{compared} of {} messages on {on}", incoming.len()))
        }
    }

    fn payload_from_here(&self, i: usize, start: &Start) -> Option<Vec<u8>> {
        let Start::Message(message) = start else { return None };
        let is_here = self.communicators.get(&message.on)?.rank().0 == message.from;
        is_here.then(|| payload(self.number, i, message.bytes))
    }

    fn beside(&self, start: &Start) -> Option<Beside> {
        let Start::Overlap(overlap) = *start else { return None };
        let communicator = self.communicators.get(&overlap.on)?;
        let (rank, size) = (communicator.rank().0, communicator.size() as usize);
        let own = || (0..overlap.length).map(|i| self.element(rank, i)).collect::<Vec<u32>>();
        let (given, into) = match overlap.kind {
            OverlapKind::Barrier => (Vec::new(), Vec::new()),
            OverlapKind::Broadcast(root) if root == rank => (Vec::new(), own()),
            OverlapKind::Broadcast(_) => (Vec::new(), vec![0; overlap.length]),
            OverlapKind::Allreduce => (own(), vec![0; overlap.length]),
            OverlapKind::Allgather => (own(), vec![0; overlap.length * size]),
        };
        Some(Beside { overlap, given, into })
    }

    fn compare_overlap(&self, Beside { overlap, into, .. }: &Beside) -> Result<(), String> {
        let size = self.communicators[&overlap.on].size();
        let expected = |at: usize| match overlap.kind {
            OverlapKind::Barrier => 0,
            OverlapKind::Broadcast(root) => self.element(root, at),
            OverlapKind::Allreduce => (0..size).fold(0, |sum: u32, rank| sum.wrapping_add(self.element(rank, at))),
            OverlapKind::Allgather => self.element((at / overlap.length) as u32, at % overlap.length),
        };
        match into.iter().enumerate().find(|(at, found)| **found != expected(*at)) {
            Some((at, found)) => Err(format!("{overlap:?}: element {at} is {found}, not {}", expected(at))),
            None => Ok(()),
        }
    }

    /// An element of a rank's contribution to a collective.
    fn element(&self, rank: u32, at: usize) -> u32 {
        (rank + 1).wrapping_mul(0x9e37_79b9).wrapping_add(self.number).rotate_left(at as u32 % 31) ^ at as u32
    }
}

/// Waits for the requests: all at once, some at a time, or one after the other in a random order.
fn wait_in_some_way(posted: &[Request<'_>], rng: &mut Rng) -> Result<Vec<Status>, String> {
    match rng.u8(0..3) {
        0 => wait_all(posted).map_err(|error| error.to_string()),
        1 => {
            let mut statuses = vec![Status::EMPTY; posted.len()];
            loop {
                let ended = wait_some(posted).map_err(|error| error.to_string())?;
                if ended.is_empty() {
                    return Ok(statuses);
                }
                for (i, status) in ended {
                    statuses[i] = status;
                }
            }
        }
        _ => {
            let mut order: Vec<usize> = (0..posted.len()).collect();
            rng.shuffle(&mut order);
            let mut statuses = vec![Status::EMPTY; posted.len()];
            for i in order {
                statuses[i] = wait_all([&posted[i]]).map_err(|error| error.to_string())?[0];
            }
            Ok(statuses)
        }
    }
}

/// The payload of message `i` of a round.
fn payload(round: u32, i: usize, bytes: usize) -> Vec<u8> {
    let start = round.wrapping_mul(0x85eb_ca6b) ^ (i as u32).wrapping_mul(0x9e37_79b9);
    (0..bytes as u32).map(|at| (start.wrapping_add(at.wrapping_mul(0x0101_6b2d)) >> 13) as u8).collect()
}

fn text(failure: unisono::Failure) -> String {
    failure.to_string()
}
