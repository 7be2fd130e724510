//! One-sided operations that the adapter executes by itself, over reliable connections ([`connections`]): writes and
//! reads of windows. All others, and those that fail there, are requests to the target's processor.
//!
//! Updates are always executed by the target, so that those of one window are atomic with each other. An operation may
//! be executed again after it failed: a write writes the same bytes, and is not confirmed before.
//!
//! [`connections`]: crate::world::connections

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use unisono_core::device::Memory as _;
use unisono_core::ids::PeerId;
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::{RKey, Rights, RmaCall, RmaCompletion, RmaError, RmaOperationId, RmaStartError};
use unisono_core::span::Span;
use unisono_verbs::raw::{Data, RemoteMemory};
use unisono_verbs::rc::{RcAddress, RcCompletion, RcCompletions, RcConnection, RcOperation, RcOptions, RcRequest};
use unisono_verbs::ud::{Domain, QueueChoice, Registration};

use super::Process;
use super::bounce_buffers::BounceBuffer;
use super::remote_access::NativeMemory;
use crate::environment::TransportSettings;
use crate::world::connections::{ADDRESS, ConnectionEnd, ConnectionMessage, Connections};
use crate::world::datagram_transport::DatagramTransport;
use crate::world::window::memory::WindowMemory;

/// Outstanding operations of a connection.
const DEPTH: u32 = 64;

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

/// An operation of the adapter, until it has ended.
#[derive(Clone, Copy, Debug)]
struct NativeOperation {
    call: RmaCall,
    /// Where a read into memory that is not registered places its bytes first.
    staged: Option<(BounceBuffer, Span)>,
}

/// What a process does natively.
#[derive(Debug)]
pub(in crate::world) struct NativeAccess {
    connections: Connections<RcConnection>,
    // Dropped after the connections, which use it.
    completions: Option<RcCompletions>,
    /// The adapter; `None`: there is none, or no connection is wanted.
    domain: Option<Arc<Domain>>,
    limit: u32,
    /// Who writes the queues of connections.
    queues: QueueChoice,
    /// Memory of this process that peers may access, with what they need to know.
    exposed: HashMap<RKey, (Registration, NativeMemory)>,
    /// Memory of peers, and by how many windows and imports it is known.
    remote: HashMap<(PeerId, RKey), (NativeMemory, u32)>,
    operations: HashMap<u32, NativeOperation>,
    /// Operations that failed, to be requested of their targets.
    failed: VecDeque<RmaCall>,
    inbox: Vec<(PeerId, ConnectionMessage)>,
    /// Operations that were posted, and those of them that failed.
    posted: u64,
    returned: u64,
}

impl Default for NativeAccess {
    fn default() -> Self {
        Self {
            connections: Connections::new(0),
            completions: None,
            domain: None,
            limit: 0,
            queues: QueueChoice::Auto,
            exposed: HashMap::new(),
            remote: HashMap::new(),
            operations: HashMap::new(),
            failed: VecDeque::new(),
            inbox: Vec::new(),
            posted: 0,
            returned: 0,
        }
    }
}

impl NativeAccess {
    /// Over connections of the device's adapter.
    pub(super) fn new(device: &DatagramTransport, settings: &TransportSettings) -> Self {
        let (limit, queues) = (settings.rc_limit(), settings.queues.unwrap_or_default().into());
        let domain = device.domain().filter(|_| limit > 0).cloned();
        Self { connections: Connections::new(limit as usize), domain, limit, queues, ..Self::default() }
    }

    /// Lets connected peers write and read memory that they know by this key.
    ///
    /// # Safety
    /// The memory stays mapped, and nobody has a reference to it, until [`conceal`](Self::conceal) has returned.
    pub(super) unsafe fn expose(&mut self, key: RKey, memory: WindowMemory) {
        let Some(domain) = self.domain.as_ref().filter(|_| memory.bytes() > 0) else { return };
        // SAFETY: the caller promises that the memory stays mapped and unreferenced until it is concealed.
        match unsafe { domain.register_for_peers(memory.start(), memory.bytes(), Rights::READ | Rights::WRITE) } {
            Ok(registration) => {
                let address = memory.start().expose_provenance().get() as u64;
                let known = NativeMemory::new(address, registration.remote_key());
                self.exposed.insert(key, (registration, known));
            }
            Err(error) => tracing::warn!(%error, "cannot register memory for peers' adapters"),
        }
    }

    /// Ends the access to such memory.
    pub(super) fn conceal(&mut self, key: RKey) {
        self.exposed.remove(&key);
    }

    /// What peers need to know of exposed memory.
    pub(in crate::world) fn exposed(&self, key: RKey) -> NativeMemory {
        self.exposed.get(&key).map_or(NativeMemory::NONE, |(_, known)| *known)
    }

    /// Memory of a peer.
    pub(in crate::world) fn learn(&mut self, peer: PeerId, key: RKey, memory: NativeMemory) {
        if self.domain.is_some() && memory != NativeMemory::NONE {
            // Another import may have it of altered bytes: the first holds.
            self.remote.entry((peer, key)).or_insert((memory, 0)).1 += 1;
        }
    }

    /// Whether a connection may access a peer's memory.
    pub(in crate::world) fn reaches(&self, peer: PeerId, key: RKey) -> bool {
        self.remote.contains_key(&(peer, key))
    }

    /// Memory of a peer that is not accessed any more.
    pub(in crate::world) fn forget(&mut self, peer: PeerId, key: RKey) {
        if let Entry::Occupied(mut known) = self.remote.entry((peer, key)) {
            known.get_mut().1 -= 1;
            if known.get().1 == 0 {
                known.remove();
            }
        }
    }

    /// Whether an operation has not ended: its end raises no event.
    pub(super) fn is_active(&self) -> bool {
        !self.operations.is_empty() || !self.failed.is_empty()
    }

    /// Whether a write to a peer was posted, and has neither ended nor been requested of the peer.
    pub(super) fn is_writing(&self, peer: PeerId) -> bool {
        let is_its = |call: &RmaCall| call.to == peer && matches!(call.request, RmaRequest::Write { .. });
        self.operations.values().any(|operation| is_its(&operation.call)) || self.failed.iter().any(is_its)
    }

    /// Whether there is something to do for peers.
    pub(super) fn has_work(&self) -> bool {
        !self.inbox.is_empty() || !self.connections.outbox.is_empty()
    }

    /// Operations that were posted, and those of them that failed.
    pub(in crate::world) const fn counts(&self) -> [u64; 2] {
        [self.posted, self.returned]
    }

    /// Receives a message about a connection. `false`: it is none.
    pub(super) fn handle(&mut self, from: PeerId, head: &[u8]) -> bool {
        let message = ConnectionMessage::from_bytes(head);
        self.inbox.extend(message.map(|message| (from, message)));
        message.is_some()
    }

    /// A peer failed or finished.
    pub(super) fn disconnect(&mut self, peer: PeerId) {
        self.inbox.retain(|(from, _)| *from != peer);
        self.connections.disconnect(peer);
        self.remote.retain(|(of, _), _| *of != peer);
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
}

impl Process {
    /// Posts a write or a read to the adapter. `false`: it is to be requested of the target.
    pub(super) fn post_natively(&mut self, now: u64, call: &RmaCall) -> bool {
        let (operation, span) = match call.request {
            RmaRequest::Write { from, immediate: None } => (RcOperation::Write, from),
            RmaRequest::Read { into, stride: None } => (RcOperation::Read, into),
            _ => return false,
        };
        let NativeAccess { connections, completions, domain, limit, queues, remote, operations, posted, .. } =
            &mut self.remote_access.native;
        let Some((memory, _)) = remote.get(&(call.to, call.at.region)).filter(|_| span.bytes > 0) else { return false };
        let psn = self.transport.keys.next() as u32;
        let make = || NativeAccess::make(completions, (domain.as_ref(), *limit, *queues), psn);
        let Some(end) = connections.demand(now, call.to, make) else { return false };
        let (regions, buffers) = (self.transport.regions.get_mut(), &mut self.transport.bounce_buffers);
        let (staged, local) = match (regions.key(span.region), operation) {
            (Some(_), _) => (None, span),
            (None, RcOperation::Read) => match buffers.allocate(span.bytes as usize) {
                Some((buffer, place)) => (Some((buffer, place)), place),
                None => return false,
            },
            (None, _) => return false,
        };
        let start = regions.address(local).and_then(|address| address.adjacent());
        let data = start.zip(regions.key(local.region)).map(|(start, key)| Data {
            address: start.expose_provenance().get() as u64,
            bytes: local.bytes,
            key,
        });
        let remote = RemoteMemory { address: memory.address().wrapping_add(call.at.offset), key: memory.key() };
        let is_posted = data.is_some_and(|local| {
            // SAFETY: memory of a call, which its owner gives up, and a bounce buffer stay registered and are used by
            // nobody else until the call has ended.
            unsafe { end.post(&RcRequest { operation, local, remote }, call.user) }.is_ok()
        });
        if is_posted {
            connections.record_posted(call.to);
            operations.insert(call.user, NativeOperation { call: *call, staged });
            *posted += 1;
        } else if let Some((buffer, _)) = staged {
            buffers.release(buffer);
        }
        is_posted
    }

    /// Handles messages about connections and the ends of native operations. Returns whether anything moved.
    pub(super) fn progress_native(&mut self, now: u64) -> bool {
        let native = &mut self.remote_access.native;
        let mut moved = false;
        for (from, message) in core::mem::take(&mut native.inbox) {
            moved = true;
            let psn = self.transport.keys.next() as u32;
            let NativeAccess { connections, completions, domain, limit, queues, .. } = &mut *native;
            let make = || NativeAccess::make(completions, (domain.as_ref(), *limit, *queues), psn);
            connections.handle(now, from, message, make);
        }
        while let Some(ended) = self.remote_access.native.completions.as_mut().and_then(RcCompletions::poll) {
            moved = true;
            let RcCompletion::Operation { qpn, tag, result } = ended else { continue };
            let native = &mut self.remote_access.native;
            native.connections.handle_completed(now, qpn, result.is_ok());
            let Some(operation) = native.operations.remove(&tag) else { continue };
            if let Err(failure) = result {
                tracing::debug!(?failure, rank = operation.call.to.0, "a native operation failed");
            }
            self.end_native(operation, result.is_ok());
        }
        for (to, message) in core::mem::take(&mut self.remote_access.native.connections.outbox) {
            moved = true;
            self.send_control(to, &message.to_bytes());
        }
        moved | self.request_failed()
    }

    fn end_native(&mut self, NativeOperation { call, staged }: NativeOperation, is_ok: bool) {
        if let Some((buffer, place)) = staged {
            let regions = self.transport.regions.get_mut();
            if let (true, RmaRequest::Read { into, .. }) = (is_ok, call.request)
                && let (Some(from), Some(to)) = (regions.address(place), regions.address(into))
            {
                // SAFETY: a bounce buffer, and memory that the call uses, which has not ended: two live objects.
                unsafe { to.copy_from(from) };
            }
            self.transport.bounce_buffers.release(buffer);
        }
        if is_ok {
            self.end_call(&call, Ok(0));
        } else {
            self.remote_access.native.returned += 1;
            self.remote_access.native.failed.push_back(call);
        }
    }

    /// Requests of their targets what failed natively, after the message that makes them end their connections: they
    /// handle that before they answer. Returns whether anything was requested.
    fn request_failed(&mut self) -> bool {
        let mut moved = false;
        if self.has_control_messages() {
            return false;
        }
        while let Some(call) = self.remote_access.native.failed.pop_front() {
            match self.request_of_target(&call) {
                Ok(()) => self.remote_access.record_requested(&call),
                Err(RmaStartError::Full) => {
                    self.remote_access.native.failed.push_front(call);
                    break;
                }
                // A part may have been written.
                Err(_) if matches!(call.request, RmaRequest::Write { .. }) => {
                    self.end_call(&call, Err(RmaError::Partial));
                }
                Err(_) => self.end_call(&call, Err(RmaError::PeerFailed)),
            }
            moved = true;
        }
        moved
    }

    fn end_call(&mut self, call: &RmaCall, result: Result<u64, RmaError>) {
        let RmaCall { to: peer, user, .. } = *call;
        self.end_remote(RmaCompletion { operation: RmaOperationId::default(), user, peer, result, withdraw: None });
    }
}
