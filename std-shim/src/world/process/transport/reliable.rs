//! The operations that the adapter executes by itself over reliable connections ([`connections`]): those of windows, and
//! reads of announced payloads.
//!
//! [`connections`]: crate::world::connections

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::time::Duration;
use std::collections::HashMap;
use std::time::Instant;

use unisono_core::ids::PeerId;
use unisono_verbs::rc::{RcAddress, RcCompletion, RcCompletions, RcConnection, RcOptions, RcRequest};
use unisono_verbs::ud::{Domain, QueueChoice};

use super::read_queue::{PayloadRead, ReadQueue, ReadUser};
use crate::environment::TransportSettings;
use crate::world::connections::{ADDRESS, ConnectionEnd, ConnectionMessage, Connections};
use crate::world::datagram_transport::DatagramTransport;

/// Outstanding operations of a connection.
const DEPTH: u32 = 64;
/// How long an aborted operation is waited for. An adapter that has not ended it by then loses the queue pair.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

const _: () = assert!(ADDRESS == RcAddress::BYTES);

impl ConnectionEnd for RcConnection {
    fn number(&self) -> u32 {
        self.address().qpn
    }

    fn address(&self) -> [u8; ADDRESS] {
        self.address().to_bytes()
    }

    fn connect(&self, to: &[u8; ADDRESS]) -> bool {
        let connected = RcAddress::from_bytes(to).map(|address| self.connect(&address));
        if let Some(Err(error)) = &connected {
            tracing::warn!(%error, "cannot connect a queue pair");
        }
        matches!(connected, Some(Ok(())))
    }

    fn fail(&self) {
        // The adapter may be closed, which ends them, too.
        let _ = self.fail();
    }
}

/// Whose an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum OperationUser {
    /// A call of a window, by its number.
    Window(u32),
    /// A receive.
    Receive(ReadUser),
}

/// What an operation of the adapter is a part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Window(u32),
    /// As many bytes of a payload.
    Read(ReadUser, u32),
    /// It was aborted.
    Nothing(u32),
}

/// An outstanding operation.
#[derive(Clone, Copy, Debug)]
struct Operation {
    peer: PeerId,
    purpose: Purpose,
}

/// An operation that has ended, or failed.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct EndedOperation {
    pub(in crate::world) user: OperationUser,
    pub(in crate::world) is_ok: bool,
}

/// The reliable connections of a process.
#[derive(Debug)]
pub(in crate::world) struct Reliable {
    connections: Connections<RcConnection>,
    // Dropped after the connections, which use it.
    completions: Option<RcCompletions>,
    /// The adapter; `None`: there is none, or no connection is wanted.
    domain: Option<Arc<Domain>>,
    limit: u32,
    /// Who writes the queues of connections.
    queues: QueueChoice,
    inbox: Vec<(PeerId, ConnectionMessage)>,
    /// By tag.
    operations: HashMap<u32, Operation>,
    next_tag: u32,
    queue: ReadQueue,
    ended: VecDeque<EndedOperation>,
    /// Reads of payloads that were executed, and that failed.
    reads: [u64; 2],
    /// The adapter did not end an aborted operation in time, and has ended none since.
    is_stuck: bool,
}

impl Default for Reliable {
    fn default() -> Self {
        Self {
            connections: Connections::new(0),
            completions: None,
            domain: None,
            limit: 0,
            queues: QueueChoice::Auto,
            inbox: Vec::new(),
            operations: HashMap::new(),
            next_tag: 0,
            queue: ReadQueue::default(),
            ended: VecDeque::new(),
            reads: [0; 2],
            is_stuck: false,
        }
    }
}

impl Reliable {
    /// Over connections of the device's adapter.
    pub(in crate::world) fn new(device: &DatagramTransport, settings: &TransportSettings) -> Self {
        let (limit, queues) = (settings.rc_limit(), settings.queues.unwrap_or_default().into());
        let domain = device.domain().filter(|_| limit > 0).cloned();
        Self { connections: Connections::new(limit as usize), domain, limit, queues, ..Self::default() }
    }

    /// The adapter; `None`: there is none, or no connection is wanted.
    pub(in crate::world) const fn domain(&self) -> Option<&Arc<Domain>> {
        self.domain.as_ref()
    }

    /// Whether an operation has not ended: its end raises no event.
    pub(in crate::world) fn is_active(&self) -> bool {
        !self.operations.is_empty() || !self.queue.is_empty() || !self.ended.is_empty()
    }

    /// Whether there is something to do for peers.
    pub(in crate::world) fn has_work(&self) -> bool {
        !self.inbox.is_empty() || !self.connections.outbox.is_empty()
    }

    /// Reads of announced payloads that were executed, and that failed.
    pub(in crate::world) const fn reads(&self) -> [u64; 2] {
        self.reads
    }

    /// Receives a message about a connection. `false`: it is none.
    pub(in crate::world) fn handle(&mut self, from: PeerId, head: &[u8]) -> bool {
        let message = ConnectionMessage::from_bytes(head);
        self.inbox.extend(message.map(|message| (from, message)));
        message.is_some()
    }

    /// The next message about a connection to be sent.
    pub(in crate::world) fn take_outbox(&mut self) -> Vec<(PeerId, ConnectionMessage)> {
        core::mem::take(&mut self.connections.outbox)
    }

    /// A peer failed or finished: what is outstanding with it fails.
    pub(in crate::world) fn disconnect(&mut self, peer: PeerId) {
        self.inbox.retain(|(from, _)| *from != peer);
        self.connections.disconnect(peer);
    }

    /// Makes an end.
    fn make(
        completions: &mut Option<RcCompletions>,
        (domain, limit, queues): (Option<&Arc<Domain>>, u32, QueueChoice),
        psn: u32,
    ) -> Option<RcConnection> {
        let domain = domain?;
        let made = match completions {
            Some(completions) => RcConnection::new(completions, DEPTH, psn),
            None => {
                let operations = limit.saturating_mul(DEPTH);
                RcCompletions::new(domain, &RcOptions { operations, receives: 0, atomics: false, queues })
                    .inspect(|made| {
                        if let Some(error) = made.refused() {
                            tracing::warn!(%error, "cannot map the queues of connections, using libibverbs");
                        }
                        tracing::info!("queues of connections {}", made.writer());
                    })
                    .and_then(|made| RcConnection::new(completions.insert(made), DEPTH, psn))
            }
        };
        made.inspect_err(|error| tracing::warn!(%error, "cannot make a reliable connection")).ok()
    }

    /// Whether a peer is connected. If not, a connection is offered, if that is possible now; `psn` is that of its first
    /// packet.
    pub(in crate::world) fn connect(&mut self, now: u64, peer: PeerId, psn: impl FnOnce() -> u32) -> bool {
        let Self { connections, completions, domain, limit, queues, .. } = self;
        domain.is_some()
            && connections
                .demand(now, peer, || Self::make(completions, (domain.as_ref(), *limit, *queues), psn()))
                .is_some()
    }

    /// Posts an operation of a window's call to a [connected](Self::connect) peer. Returns whether it was accepted; then
    /// [`poll_ended`](Self::poll_ended) returns its end.
    ///
    /// # Safety
    /// The local memory stays registered, and nobody else uses it, until the end was returned; of a write, others may read
    /// it.
    pub(in crate::world) unsafe fn post(&mut self, peer: PeerId, request: &RcRequest, call: u32) -> bool {
        // SAFETY: the caller answers for the memory.
        unsafe { self.post_part(peer, request, Purpose::Window(call)) }
    }

    /// Reads a payload of a [connected](Self::connect) peer, in parts. [`poll_ended`](Self::poll_ended) returns its end,
    /// unless it is aborted.
    ///
    /// # Safety
    /// The local memory stays registered, and nobody else uses it, until the end was returned, or the read was aborted.
    pub(in crate::world) unsafe fn read(&mut self, read: PayloadRead) {
        self.queue.push(read);
        self.post_reads();
    }

    /// Posts the parts of reads for which there is room.
    fn post_reads(&mut self) {
        let mut full = Vec::new();
        while let Some((peer, user, request)) = self.queue.next(&full) {
            if self.connections.connected(peer).is_none() {
                self.queue.fail(peer);
                self.end_failed_reads();
                continue;
            }
            let bytes = request.local.bytes;
            // SAFETY: who asked for the read answers for its memory until its end was returned, or it was aborted: both
            // follow the ends of its parts.
            if unsafe { self.post_part(peer, &request, Purpose::Read(user, bytes)) } {
                self.queue.begin(user, bytes);
            } else if self.operations.values().any(|operation| operation.peer == peer) {
                // There is room when one of them ends.
                full.push(peer);
            } else {
                self.queue.fail(peer);
                self.end_failed_reads();
            }
        }
    }

    /// # Safety
    /// The local memory stays registered, and nobody else uses it, until the operation has ended; of a write, others may
    /// read it.
    unsafe fn post_part(&mut self, peer: PeerId, request: &RcRequest, purpose: Purpose) -> bool {
        let tag = self.next_tag;
        let Some(end) = self.connections.connected(peer) else { return false };
        // SAFETY: the caller answers for the memory.
        let is_posted = unsafe { end.post(request, tag) }.is_ok();
        if is_posted {
            self.next_tag = tag.wrapping_add(1);
            self.connections.record_posted(peer);
            self.operations.insert(tag, Operation { peer, purpose });
        }
        is_posted
    }

    /// Handles the messages that have arrived; `psn` is that of the first packet of a connection. Returns whether there
    /// were any.
    pub(in crate::world) fn handle_inbox(&mut self, now: u64, mut psn: impl FnMut() -> u32) -> bool {
        let arrived = core::mem::take(&mut self.inbox);
        let has_any = !arrived.is_empty();
        for (from, message) in arrived {
            let Self { connections, completions, domain, limit, queues, .. } = self;
            let make = || Self::make(completions, (domain.as_ref(), *limit, *queues), psn());
            connections.handle(now, from, message, make);
        }
        has_any
    }

    /// The next operation that has ended.
    pub(in crate::world) fn poll_ended(&mut self, now: u64) -> Option<EndedOperation> {
        if self.ended.is_empty() && self.is_active() {
            self.poll(now);
            self.post_reads();
        }
        self.ended.pop_front()
    }

    /// Takes the completions that are there. Returns whether there were any.
    fn poll(&mut self, now: u64) -> bool {
        let mut has_any = false;
        while let Some(completion) = self.completions.as_mut().and_then(RcCompletions::poll) {
            has_any = true;
            self.is_stuck = false;
            let RcCompletion::Operation { qpn, tag, result } = completion else { continue };
            // Of a queue pair that was dropped, otherwise.
            let Some(Operation { peer, purpose }) = self.operations.remove(&tag) else { continue };
            self.connections.handle_completed(now, qpn, result.is_ok());
            if let Err(failure) = result {
                tracing::debug!(?failure, rank = peer.0, "an operation of the adapter failed");
            }
            self.end(purpose, result.is_ok());
        }
        has_any
    }

    fn end(&mut self, purpose: Purpose, is_ok: bool) {
        match purpose {
            Purpose::Window(call) => self.ended.push_back(EndedOperation { user: OperationUser::Window(call), is_ok }),
            Purpose::Read(user, bytes) => {
                if let Some(is_ok) = self.queue.end(user, bytes, is_ok) {
                    self.end_read(user, is_ok);
                }
            }
            Purpose::Nothing(bytes) => self.queue.end_aborted(bytes),
        }
    }

    fn end_read(&mut self, user: ReadUser, is_ok: bool) {
        let [executed, failed] = &mut self.reads;
        *if is_ok { executed } else { failed } += 1;
        self.ended.push_back(EndedOperation { user: OperationUser::Receive(user), is_ok });
    }

    /// Ends the reads that have failed, and of which no part is outstanding.
    fn end_failed_reads(&mut self) {
        while let Some(user) = self.queue.take_failed() {
            self.end_read(user, false);
        }
    }

    /// Ends the reads of these receives, and the connections that execute them. Afterwards the adapter uses their memory no
    /// more, and no end of them is returned.
    pub(in crate::world) fn abort(&mut self, now: u64, is: impl Fn(ReadUser) -> bool) {
        if !self.is_active() {
            return;
        }
        self.ended.retain(|ended| !matches!(ended.user, OperationUser::Receive(user) if is(user)));
        self.queue.remove(&is);
        let mut peers = Vec::new();
        for Operation { peer, purpose } in self.operations.values_mut() {
            if let Purpose::Read(user, bytes) = *purpose
                && is(user)
            {
                *purpose = Purpose::Nothing(bytes);
                peers.push(*peer);
            }
        }
        for peer in &peers {
            self.connections.abort(now, *peer);
        }
        let started = Instant::now();
        while self.operations.values().any(|operation| matches!(operation.purpose, Purpose::Nothing(_))) {
            if !self.poll(now) {
                if self.is_stuck || started.elapsed() >= ABORT_TIMEOUT {
                    tracing::warn!("the adapter does not end an operation: dropping its queue pair");
                    self.is_stuck = true;
                    return peers.into_iter().for_each(|peer| self.drop_end(peer));
                }
                std::thread::yield_now();
            }
        }
    }

    /// Drops the queue pair to a peer: what is outstanding there has failed.
    fn drop_end(&mut self, peer: PeerId) {
        self.connections.drop_end(peer);
        let lost: Vec<u32> = self.operations.iter().filter(|(_, one)| one.peer == peer).map(|(tag, _)| *tag).collect();
        for tag in lost {
            if let Some(Operation { purpose, .. }) = self.operations.remove(&tag) {
                self.end(purpose, false);
            }
        }
    }
}
