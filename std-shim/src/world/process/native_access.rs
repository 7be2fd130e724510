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
use unisono_verbs::raw::RemoteMemory;
use unisono_verbs::rc::{RcOperation, RcRequest};
use unisono_verbs::ud::{Domain, Registration};

use super::Process;
use super::bounce_buffers::BounceBuffer;
use super::remote_access::NativeMemory;
use super::transport::payload_reads::registered;
use super::transport::read_queue::ReadUser;
use super::transport::reliable::{EndedOperation, OperationUser, Reliable};
use super::transport::{Completion, ProcessTransport};
use crate::environment::TransportSettings;
use crate::world::datagram_transport::DatagramTransport;
use crate::world::window::memory::WindowMemory;

/// An operation of the adapter, until it has ended.
#[derive(Clone, Copy, Debug)]
struct NativeOperation {
    call: RmaCall,
    /// Where a read into memory that is not registered places its bytes first.
    staged: Option<(BounceBuffer, Span)>,
}

/// What a process does natively.
#[derive(Debug, Default)]
pub(in crate::world) struct NativeAccess {
    /// The adapter; `None`: there is none, or no connection is wanted.
    domain: Option<Arc<Domain>>,
    /// Memory of this process that peers may access, with what they need to know.
    exposed: HashMap<RKey, (Registration, NativeMemory)>,
    /// Memory of peers, and by how many windows and imports it is known.
    remote: HashMap<(PeerId, RKey), (NativeMemory, u32)>,
    operations: HashMap<u32, NativeOperation>,
    /// Operations that failed, to be requested of their targets.
    failed: VecDeque<RmaCall>,
    /// Operations that were posted, and those of them that failed.
    posted: u64,
    returned: u64,
}

impl NativeAccess {
    /// By these connections.
    pub(super) fn new(reliable: &Reliable) -> Self {
        Self { domain: reliable.domain().cloned(), ..Self::default() }
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

    /// Whether an operation has failed that is still to be requested of its target.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Whether a write to a peer was posted, and has neither ended nor been requested of the peer.
    pub(super) fn is_writing(&self, peer: PeerId) -> bool {
        let is_its = |call: &RmaCall| call.to == peer && matches!(call.request, RmaRequest::Write { .. });
        self.operations.values().any(|operation| is_its(&operation.call)) || self.failed.iter().any(is_its)
    }

    /// Operations that were posted, and those of them that failed.
    pub(in crate::world) const fn counts(&self) -> [u64; 2] {
        [self.posted, self.returned]
    }

    /// A peer failed or finished.
    pub(super) fn disconnect(&mut self, peer: PeerId) {
        self.remote.retain(|(of, _), _| *of != peer);
    }
}

impl Process {
    /// Connects this process by its device's adapter.
    pub(super) fn set_reliable(&mut self, settings: &TransportSettings) {
        let reliable = Reliable::new(&self.datagrams.device, settings);
        self.remote_access.native = NativeAccess::new(&reliable);
        // Of several rails, the endpoint divides a payload among those that live.
        if reliable.domain().is_some() && matches!(self.datagrams.device, DatagramTransport::Verbs(_)) {
            self.transport.regions.get_mut().let_peers_read();
        }
        self.transport.reliable = reliable;
    }

    /// Posts a write or a read to the adapter. `false`: it is to be requested of the target.
    pub(super) fn post_natively(&mut self, now: u64, call: &RmaCall) -> bool {
        let (operation, span) = match call.request {
            RmaRequest::Write { from, immediate: None } => (RcOperation::Write, from),
            RmaRequest::Read { into, stride: None } => (RcOperation::Read, into),
            _ => return false,
        };
        let NativeAccess { remote, operations, posted, .. } = &mut self.remote_access.native;
        let ProcessTransport { reliable, regions, bounce_buffers: buffers, keys, .. } = &mut self.transport;
        let Some((memory, _)) = remote.get(&(call.to, call.at.region)).filter(|_| span.bytes > 0) else { return false };
        if !reliable.connect(now, call.to, || keys.next() as u32) {
            return false;
        }
        let regions = regions.get_mut();
        let (staged, local) = match (regions.key(span.region), operation) {
            (Some(_), _) => (None, span),
            (None, RcOperation::Read) => match buffers.allocate(span.bytes as usize) {
                Some((buffer, place)) => (Some((buffer, place)), place),
                None => return false,
            },
            (None, _) => return false,
        };
        let data = regions.address(local).and_then(registered);
        let remote = RemoteMemory { address: memory.address().wrapping_add(call.at.offset), key: memory.key() };
        let is_posted = data.is_some_and(|local| {
            // SAFETY: memory of a call, which its owner gives up, and a bounce buffer stay registered and are used by
            // nobody else until the call has ended.
            unsafe { reliable.post(call.to, &RcRequest { operation, local, remote }, call.user) }
        });
        if is_posted {
            operations.insert(call.user, NativeOperation { call: *call, staged });
            *posted += 1;
        } else if let Some((buffer, _)) = staged {
            buffers.release(buffer);
        }
        is_posted
    }

    /// Handles messages about connections and the ends of the adapter's operations. Returns whether anything moved.
    pub(super) fn progress_native(&mut self, now: u64) -> bool {
        let ProcessTransport { reliable, keys, .. } = &mut self.transport;
        let mut moved = reliable.handle_inbox(now, || keys.next() as u32);
        while let Some(EndedOperation { user, is_ok }) = self.transport.reliable.poll_ended(now) {
            moved = true;
            match user {
                OperationUser::Receive(ReadUser { token, .. }) => {
                    self.transport.completions.push(Completion::Fetched { token, is_ok });
                }
                OperationUser::Window(call) => {
                    if let Some(operation) = self.remote_access.native.operations.remove(&call) {
                        self.end_native(operation, is_ok);
                    }
                }
            }
        }
        for (to, message) in self.transport.reliable.take_outbox() {
            moved = true;
            self.send_control(to, &message.to_bytes());
        }
        moved | (self.remote_access.native.has_failed() && self.request_failed())
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
