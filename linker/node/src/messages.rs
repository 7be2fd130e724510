//! Point-to-point messages with the other ranks of the node, processes and nodes alike: the ring protocol of
//! [`unisono_shmem::am_header`], with matching, flow control and rendezvous by the core ([`Messenger`]).
//!
//! Ranks are local ranks of the node; messages belong to the context of the World communicator. Either a call waits
//! until its message is complete ([`send`](Messages::send), [`receive`](Messages::receive)), or it starts a request
//! ([`start_send`](Messages::start_send), [`start_receive`](Messages::start_receive)), which ends while anything else
//! waits or [`poll`](Messages::poll) is called, and whose buffer comes back with its result
//! ([`take_completed`](Messages::take_completed)).
//!
//! No other rank reads a node's memory, and a node reads no memory of processes: a message that is too long for a ring
//! is sent in fragments into granted memory. A message in its sender's part of the segment (`World::allocate`) is
//! copied from there. With the feature `remote-access` a node can expose memory, which others access by requests in the
//! rings; they are executed and answered while anything waits or `poll` is called.
//!
//! # Bounds
//! [`MessageStorage`] bounds requests and queued headers. The unexpected messages of one peer are bounded as in every
//! job of the same size ([`unexpected_per_peer`](am_header::unexpected_per_peer)). One call of `poll` consumes at most
//! 64 entries of each ring.
//!
//! # Deaths
//! A peer has left or failed when its ring or its rank slot states so. When a process ends otherwise, the proxy process
//! of this node writes the failure into its slot. Messages sent before still arrive; then every operation that needs
//! the peer ends with an error.

mod channel;
mod memory;
mod receive;
#[cfg_attr(not(feature = "remote-access"), path = "messages/remote_access_absent.rs")]
pub mod remote_access;
mod rings;
mod storage;

use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point;
use unisono_core::message::{Context, Pattern, Tag, collective_transport};
use unisono_core::messenger::{
    Config, Event, Message, Messenger, Pools, ReceiveFailure, SendError, SendFailure, Stores,
};
use unisono_core::span::{Region, RegionRange};
use unisono_shmem::am_header::{self, MessageLocation};
use unisono_shmem::rank_slot::Occupancy;

use crate::Idle;
use crate::member::Member;
pub use channel::Channel;
use memory::{CallerBuffer, Memory, RequestBuffer, RequestState, Requests};
pub use memory::{Completed, Request};
use remote_access::RemoteAccess;
use rings::{RingTransport, Rings};
use storage::Records;
pub use storage::{MessageStorage, SLOT, StorageSlices};
pub use unisono_core::message::point_to_point::Mode;

/// Rounds between two checks whether the other ranks still take part.
const ROUNDS_PER_CHECK: u32 = 1024;

/// Rounds that move something between two calls of `idle`.
const ROUNDS_PER_IDLE: u32 = 64;
/// Context of the World communicator, the only one that a node takes part in.
const CONTEXT: Context = Context(0);

/// A message that was received or probed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Its sender.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// Its length in bytes.
    pub bytes: usize,
}

/// Why a message was not sent or received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// This rank has failed. A receive from any source reports it once if none waited when the rank failed.
    Failed(u32),
    /// This rank has left.
    PeerFinished(u32),
    /// This rank violated the protocol; its ring is ignored from now on.
    ProtocolViolation(u32),
    /// The words of this node were overwritten: its state cannot be trusted.
    Overwritten,
    /// The message is longer than the buffer, which may hold its beginning.
    Truncated {
        /// Bytes of the message.
        bytes: u64,
    },
    /// The message was longer than the buffer of its receive on this rank.
    RemoteTruncated(u32),
    /// There is no such rank.
    UnknownRank(u32),
    /// Every record or queue entry is in use: call `poll` first. From a waiting call: every record is one of the
    /// caller's own requests.
    Full,
    /// The request was completed before, or belongs to other messages.
    NoRequest,
}

/// The message endpoint of a node.
#[derive(Debug)]
pub struct Messages<'a> {
    messenger: Messenger<Records<'a>>,
    rings: Rings<'a>,
    memory: Memory<'a>,
    remote: RemoteAccess<'a>,
    rounds: u32,
    /// Why the latest rank ended.
    latest: MessageError,
    /// What this node wrote was overwritten.
    overwritten: bool,
}

impl<'a> Messages<'a> {
    /// Connects to all ranks of the node, which must have joined: see [`Member::is_complete`]. `None`: the storage is
    /// too small for the number of ranks, or the segment is too short.
    pub fn new(member: Member<'a>, storage: StorageSlices<'a>) -> Option<Self> {
        let StorageSlices { receives, messages, sends, peers, slots, buckets, .. } = storage;
        let ranks = usize::try_from(member.size()).ok()?;
        let channels = Channel::open(storage.channels, &member)?;
        let Some(Occupancy::Active(sitter)) = member.occupant(member.local()) else { return None };
        if storage.short_payloads.len() < messages.len() || storage.pool.len() < slots.len() {
            return None;
        }
        let peers = peers.get_mut(..ranks)?;
        let messages = point_to_point::Pools { receives, messages, sends, peers, slots, buckets };
        let [sends, receives, slots, headers] = [(); 4].map(|()| <&mut [_]>::default());
        let pools = Pools {
            messages,
            steps: collective_transport::Pools { peers: <&mut [_]>::default(), sends, receives, slots, headers },
            sends: [storage.send_ops, &mut []],
            receives: [storage.receive_ops, &mut []],
            outboxes: [storage.outbox, &mut []],
        };
        let [outgoing, incoming] = storage.fragments;
        let rings = Rings { member, channels, outgoing, incoming, broken: None };
        Some(Self {
            messenger: Messenger::new(config(&member, sitter.incarnation), pools)?,
            remote: RemoteAccess::new(storage.access, &rings, sitter.rank),
            rings,
            memory: Memory {
                requests: Requests(storage.requests),
                shorts: storage.short_payloads,
                slots: storage.pool,
            },
            rounds: 0,
            latest: MessageError::Overwritten,
            overwritten: false,
        })
    }

    /// The rank whose messages these are.
    pub const fn member(&self) -> &Member<'a> {
        &self.rings.member
    }

    /// Sends a message, and waits until its payload may be reused; in synchronous mode, until it is matched.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn send(
        &mut self,
        payload: &[u8],
        to: u32,
        tag: u32,
        mode: Mode,
        idle: &mut impl Idle,
    ) -> Result<(), MessageError> {
        self.expect_free()?;
        let request = loop {
            let begun = self.begin_send(RequestBuffer::Caller, payload.len(), to, tag, mode, |request| {
                CallerBuffer::Read(request, payload)
            });
            match begun {
                Err(MessageError::Full) => self.progress_or_idle(&mut CallerBuffer::Nothing, idle),
                begun => break begun?,
            }
        };
        self.wait(request, &mut CallerBuffer::Read(request, payload), idle).map(|_| ())
    }

    /// Receives a message. `None`: from any source, or with any tag.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn receive(
        &mut self,
        into: &mut [u8],
        source: Option<u32>,
        tag: Option<u32>,
        idle: &mut impl Idle,
    ) -> Result<Status, MessageError> {
        let room = into.len();
        let state = RequestState::Receiving(None);
        let request = self.memory.requests.take_free(RequestBuffer::Caller, state, source).ok_or(MessageError::Full)?;
        let mut held = CallerBuffer::Write(request, into);
        while let Err(error) = self.begin_receive(request, room, source, tag, &mut held) {
            if error != MessageError::Full {
                self.memory.requests.free(request);
                return Err(error);
            }
            self.progress_or_idle(&mut held, idle);
        }
        self.wait(request, &mut held, idle)
    }

    /// Starts to send a message, which borrows its payload until it completes.
    ///
    /// # Errors
    /// [`MessageError`]; then nothing was sent.
    pub fn start_send(&mut self, payload: &'a [u8], to: u32, tag: u32, mode: Mode) -> Result<Request, MessageError> {
        self.begin_send(RequestBuffer::Read(payload), payload.len(), to, tag, mode, |_| CallerBuffer::Nothing)
    }

    /// Starts to receive a message, which borrows the buffer until it completes; see [`receive`](Self::receive).
    ///
    /// # Errors
    /// [`MessageError`], and the buffer; then nothing was started.
    pub fn start_receive(
        &mut self,
        into: &'a mut [u8],
        source: Option<u32>,
        tag: Option<u32>,
    ) -> Result<Request, (MessageError, &'a mut [u8])> {
        let room = into.len();
        let state = RequestState::Receiving(None);
        let Some(request) = self.memory.requests.take_free(RequestBuffer::Nothing, state, source) else {
            return Err((MessageError::Full, into));
        };
        if let Some(record) = self.memory.requests.get(request) {
            record.buffer = RequestBuffer::Write(into);
        }
        match self.begin_receive(request, room, source, tag, &mut CallerBuffer::Nothing) {
            Ok(()) => Ok(request),
            Err(error) => Err((error, self.memory.requests.free(request).into_receive_buffer())),
        }
    }

    /// Handles arrivals and sends queued messages. Returns whether anything moved.
    pub fn poll(&mut self) -> bool {
        self.progress(&mut CallerBuffer::Nothing)
    }

    /// The result of a completed request, and its buffer. `None`: it has not completed.
    pub fn take_completed(&mut self, request: Request) -> Option<Completed<'a>> {
        let Some(record) = self.memory.requests.get(request) else {
            return Some(Completed { result: Err(MessageError::NoRequest), buffer: &mut [] });
        };
        let RequestState::Ended(result) = record.state else { return None };
        Some(Completed { result, buffer: self.memory.requests.free(request).into_receive_buffer() })
    }

    /// Cancels a receive that is not matched, and returns its buffer. `None`: it is matched, complete, or no receive.
    pub fn cancel(&mut self, request: Request) -> Option<&'a mut [u8]> {
        let RequestState::Receiving(Some(handle)) = self.memory.requests.get(request)?.state else { return None };
        self.messenger.cancel(handle)?;
        Some(self.memory.requests.free(request).into_receive_buffer())
    }

    /// The message that such a receive would match now. If only its sender holds the message's header, a repeated call
    /// returns it some rounds later.
    ///
    /// # Errors
    /// [`MessageError`]: no message can arrive from there.
    pub fn probe(&mut self, source: Option<u32>, tag: Option<u32>) -> Result<Option<Status>, MessageError> {
        self.progress(&mut CallerBuffer::Nothing);
        match self.messenger.probe(self.pattern(source, tag)?) {
            Some(status) => Ok(Some(status_of(&status))),
            None => self.receive_error(source).map_or(Ok(None), Err),
        }
    }

    /// Whether a rank takes part, to this node's knowledge.
    pub fn is_alive(&self, rank: u32) -> bool {
        self.rings.channel(rank).is_some_and(|channel| channel.ended.is_none())
    }

    /// Leaves: sends Bye to the other ranks once every sent message is in their rings. Unexpected messages and arrivals
    /// are lost.
    pub fn leave(mut self, idle: &mut impl Idle) {
        for place in 0..self.rings.channels.len() {
            while let Some(channel) = self.rings.channels.get_mut(place).filter(|channel| channel.ended.is_none()) {
                let is_sent = self.messenger.is_flushed() && self.remote.is_flushed();
                let is_said = is_sent && self.rings.outgoing.iter().all(Option::is_none);
                if is_said && channel.send_bye() {
                    break;
                }
                self.progress_or_idle(&mut CallerBuffer::Nothing, idle);
            }
        }
        self.rings.member.leave();
    }

    /// Fails if no record is free: only the caller frees records.
    fn expect_free(&self) -> Result<(), MessageError> {
        if self.memory.requests.has_free() { Ok(()) } else { Err(MessageError::Full) }
    }

    /// The rings as a transport, and the messenger.
    fn transport<'m, 'h>(
        &'m mut self,
        held: &'m mut CallerBuffer<'h>,
    ) -> (RingTransport<'m, 'a, 'h>, &'m mut Messenger<Records<'a>>) {
        (RingTransport { rings: &mut self.rings, memory: &mut self.memory, held }, &mut self.messenger)
    }

    fn pattern(&self, source: Option<u32>, tag: Option<u32>) -> Result<Pattern, MessageError> {
        if let Some(rank) = source.filter(|rank| *rank >= self.rings.member.size()) {
            return Err(MessageError::UnknownRank(rank));
        }
        Ok(Pattern { context: CONTEXT, source: source.map(PeerId), tag: tag.map(Tag) })
    }

    /// The error of a receive that no message can match any more.
    fn receive_error(&mut self, source: Option<u32>) -> Option<MessageError> {
        if self.overwritten {
            return Some(MessageError::Overwritten);
        }
        if let Some(rank) = source {
            let place = usize::try_from(rank).ok()?;
            let channel = self.rings.channels.get_mut(place)?;
            channel.ended.inspect(|_| channel.failure_is_unreported = false)
        } else {
            let unreported = self.rings.channels.iter_mut().find(|channel| channel.failure_is_unreported);
            if let Some(channel) = unreported {
                channel.failure_is_unreported = false;
                return channel.ended;
            }
            let all = self.all_peers_ended();
            self.rings.channels.iter().rev().find_map(|channel| channel.ended).filter(|_| all)
        }
    }

    fn all_peers_ended(&self) -> bool {
        let own = self.rings.member.local();
        (0..).zip(self.rings.channels.iter()).all(|(rank, channel)| rank == own || channel.ended.is_some())
    }

    /// Submits a message, of a waiting call if `held` returns its memory. It has to be passed to every later round.
    fn begin_send<'h>(
        &mut self,
        buffer: RequestBuffer<'a>,
        bytes: usize,
        to: u32,
        tag: u32,
        mode: Mode,
        held: impl FnOnce(Request) -> CallerBuffer<'h>,
    ) -> Result<Request, MessageError> {
        if self.overwritten {
            return Err(MessageError::Overwritten);
        }
        let channel = self.rings.channel(to).ok_or(MessageError::UnknownRank(to))?;
        channel.ended.map_or(Ok(()), Err)?;
        let request = self.memory.requests.take_free(buffer, RequestState::Sending, Some(to));
        let request = request.ok_or(MessageError::Full)?;
        let message = Message {
            to: PeerId(to),
            context: CONTEXT,
            tag: Tag(tag),
            mode,
            payload: RegionRange { region: memory::region_of(request), offset: 0, bytes },
            at: MessageLocation::Private(0).to_word(),
            eager: u32::MAX,
            borrowed: true,
            user: request.index,
        };
        let mut held = held(request);
        let (mut transport, messenger) = self.transport(&mut held);
        messenger.send(&mut transport, &message).map_err(|error| {
            self.memory.requests.free(request);
            match error {
                SendError::Full => MessageError::Full,
                SendError::UnknownPeer => MessageError::UnknownRank(to),
                SendError::PeerFailed => MessageError::Failed(to),
            }
        })?;
        self.drain(&mut held);
        Ok(request)
    }

    fn begin_receive(
        &mut self,
        request: Request,
        room: usize,
        source: Option<u32>,
        tag: Option<u32>,
        held: &mut CallerBuffer<'_>,
    ) -> Result<(), MessageError> {
        let (pattern, region) = (self.pattern(source, tag)?, memory::region_of(request));
        let into = RegionRange { region, offset: 0, bytes: room };
        let (mut transport, messenger) = self.transport(held);
        let handle = messenger.receive(&mut transport, pattern, into, request.index);
        let handle = handle.map_err(|_| MessageError::Full)?;
        if self.messenger.is_posted(handle)
            && let Some(error) = self.receive_error(source)
        {
            self.messenger.cancel(handle);
            return Err(error);
        }
        if let Some(record) = self.memory.requests.get(request) {
            record.state = RequestState::Receiving(Some(handle));
        }
        self.drain(held);
        Ok(())
    }

    /// Ends the requests that the messenger has completed.
    fn drain_events(&mut self) {
        while let Some(event) = self.messenger.poll_event() {
            let (user, result) = match event {
                Event::Sent { user, result, .. } => {
                    let peer = self.memory.requests.at(user).and_then(|record| record.peer).unwrap_or(u32::MAX);
                    let result = result.map(|()| Status { source: peer, tag: 0, bytes: 0 });
                    (
                        user,
                        result.map_err(|failure| match failure {
                            SendFailure::Truncated => MessageError::RemoteTruncated(peer),
                            SendFailure::PeerGone | SendFailure::Refused => self.latest,
                        }),
                    )
                }
                Event::Received { user, result, .. } => (
                    user,
                    result.map(|status| status_of(&status)).map_err(|failure| match failure {
                        ReceiveFailure::Truncated(status) => MessageError::Truncated { bytes: status.bytes },
                        ReceiveFailure::PeerGone | ReceiveFailure::Disagrees => self.latest,
                    }),
                ),
                Event::ProtocolViolation(PeerId(rank)) => {
                    self.rings.broken = Some(rank);
                    continue;
                }
            };
            if let Some(record) = self.memory.requests.at(user) {
                record.state = RequestState::Ended(result);
            }
        }
    }

    /// Handles the messenger's events, and the end of a rank whose ring is corrupted.
    fn drain(&mut self, held: &mut CallerBuffer<'_>) {
        self.drain_events();
        while let Some(rank) = self.rings.broken.take() {
            self.protocol_failure(rank, held);
        }
    }

    fn wait(
        &mut self,
        request: Request,
        held: &mut CallerBuffer<'_>,
        idle: &mut impl Idle,
    ) -> Result<Status, MessageError> {
        loop {
            if let Some(Completed { result, .. }) = self.take_completed(request) {
                return result;
            }
            self.progress_or_idle(held, idle);
        }
    }

    /// One round of progress, then the caller's idle work if nothing moved, and regularly otherwise: the heartbeat
    /// depends on it.
    fn progress_or_idle(&mut self, held: &mut CallerBuffer<'_>, idle: &mut impl Idle) {
        if !self.progress(held) || self.rounds.is_multiple_of(ROUNDS_PER_IDLE) {
            idle.idle();
        }
    }

    fn progress(&mut self, held: &mut CallerBuffer<'_>) -> bool {
        let mut moved = false;
        for place in 0..self.rings.channels.len() {
            moved |= self.receive_from(place, held);
        }
        let (mut transport, messenger) = self.transport(held);
        moved |= messenger.progress(&mut transport);
        moved |= transport.send_fragments(|token| messenger.handle_sent(token, Ok(())));
        moved |= self.remote.progress(&mut self.rings);
        self.drain(held);
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(ROUNDS_PER_CHECK) {
            self.check_peers(held);
        }
        moved
    }

    /// Checks that this node's words are intact and that the other ranks take part.
    fn check_peers(&mut self, held: &mut CallerBuffer<'_>) {
        let (own, ranks) = (self.rings.member.local(), self.rings.member.size());
        for (rank, place) in (0..ranks).zip(0..) {
            let living = self.rings.channels.get_mut(place).filter(|channel| channel.ended.is_none());
            if living.is_some_and(|channel| !channel.outward.is_tail_plausible()) {
                self.protocol_failure(rank, held);
            }
        }
        let living = self.rings.channels.iter_mut().filter(|channel| channel.ended.is_none());
        let is_intact = self.rings.member.is_intact() && living.into_iter().all(Channel::is_intact);
        if !is_intact && !self.overwritten {
            self.overwritten = true;
            self.rings.member.fail();
            for place in 0..self.rings.channels.len() {
                self.end_peer(place, MessageError::Overwritten, held);
            }
        }
        for (rank, place) in (0..ranks).zip(0..).filter(|(rank, _)| *rank != own) {
            let error = match self.rings.member.occupant(rank) {
                Some(Occupancy::Active(_) | Occupancy::Retired(_)) => continue,
                Some(Occupancy::Left(_)) => MessageError::PeerFinished(rank),
                Some(Occupancy::Failed(_)) => MessageError::Failed(rank),
                Some(Occupancy::Free | Occupancy::Corrupt) | None => MessageError::ProtocolViolation(rank),
            };
            self.mark_failed(place, error, held);
        }
    }
}

/// The constants of a node's messenger.
fn config(member: &Member<'_>, seed: u32) -> Config {
    Config {
        messages: point_to_point::Config {
            headers: am_header::unexpected_per_peer(member.size()),
            short: am_header::SHORT_BYTES as u32,
            slot: SLOT as u32,
            seed,
        },
        step_credit: 0,
        stores: Stores { short: memory::SHORTS, slots: memory::SLOTS, steps: Region::default(), step_bytes: 0 },
    }
}

/// The public status of a message.
fn status_of(status: &point_to_point::Status) -> Status {
    let point_to_point::Status { envelope, bytes } = *status;
    Status { source: envelope.source.0, tag: envelope.tag.0, bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }
}
