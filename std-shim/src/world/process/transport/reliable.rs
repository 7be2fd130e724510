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
use unisono_core::span::Region;
use unisono_core::transport::Token;
use unisono_verbs::rc::{RcAddress, RcCompletion, RcCompletions, RcConnection, RcOptions, RcRequest};
use unisono_verbs::ud::{Domain, QueueChoice};

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
    /// A receive, which reads into this region.
    Receive(Token, Region),
    /// Nobody: it was aborted.
    Nobody,
}

/// An outstanding operation.
#[derive(Clone, Copy, Debug)]
struct Operation {
    peer: PeerId,
    user: OperationUser,
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
    ended: VecDeque<EndedOperation>,
    /// Reads of payloads that were executed, and that failed.
    reads: [u64; 2],
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
            ended: VecDeque::new(),
            reads: [0; 2],
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
        !self.operations.is_empty() || !self.ended.is_empty()
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

    /// Posts an operation to a [connected](Self::connect) peer. Returns whether it was accepted; then
    /// [`poll_ended`](Self::poll_ended) returns its end, unless it is aborted.
    ///
    /// # Safety
    /// The local memory stays registered, and nobody else uses it, until the end was returned, or the operation was
    /// aborted; of a write, others may read it.
    pub(in crate::world) unsafe fn post(&mut self, peer: PeerId, request: &RcRequest, user: OperationUser) -> bool {
        let tag = self.next_tag;
        let Some(end) = self.connections.connected(peer) else { return false };
        // SAFETY: the caller answers for the memory.
        let is_posted = unsafe { end.post(request, tag) }.is_ok();
        if is_posted {
            self.next_tag = tag.wrapping_add(1);
            self.connections.record_posted(peer);
            self.operations.insert(tag, Operation { peer, user });
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
        if self.ended.is_empty() && !self.operations.is_empty() {
            self.poll(now);
        }
        self.ended.pop_front()
    }

    /// Takes the completions that are there. Returns whether there were any.
    fn poll(&mut self, now: u64) -> bool {
        let mut has_any = false;
        while let Some(completion) = self.completions.as_mut().and_then(RcCompletions::poll) {
            has_any = true;
            let RcCompletion::Operation { qpn, tag, result } = completion else { continue };
            // Of a queue pair that was dropped, otherwise.
            let Some(Operation { peer, user }) = self.operations.remove(&tag) else { continue };
            self.connections.handle_completed(now, qpn, result.is_ok());
            if let Err(failure) = result {
                tracing::debug!(?failure, rank = peer.0, "an operation of the adapter failed");
            }
            self.end(user, result.is_ok());
        }
        has_any
    }

    fn end(&mut self, user: OperationUser, is_ok: bool) {
        if let OperationUser::Receive(..) = user {
            let [executed, failed] = &mut self.reads;
            *if is_ok { executed } else { failed } += 1;
        }
        if user != OperationUser::Nobody {
            self.ended.push_back(EndedOperation { user, is_ok });
        }
    }

    /// Ends the operations of these users, and the connections that execute them. Afterwards the adapter uses their memory
    /// no more, and no end of them is returned.
    pub(in crate::world) fn abort(&mut self, now: u64, is: impl Fn(OperationUser) -> bool) {
        if !self.is_active() {
            return;
        }
        self.ended.retain(|ended| !is(ended.user));
        let mut peers = Vec::new();
        for operation in self.operations.values_mut().filter(|operation| is(operation.user)) {
            operation.user = OperationUser::Nobody;
            peers.push(operation.peer);
        }
        if peers.is_empty() {
            return;
        }
        for peer in &peers {
            self.connections.abort(now, *peer);
        }
        let started = Instant::now();
        while self.operations.values().any(|operation| operation.user == OperationUser::Nobody) {
            if !self.poll(now) {
                if started.elapsed() >= ABORT_TIMEOUT {
                    tracing::warn!("the adapter does not end an operation: dropping its queue pair");
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
            if let Some(Operation { user, .. }) = self.operations.remove(&tag) {
                self.end(user, false);
            }
        }
    }
}
