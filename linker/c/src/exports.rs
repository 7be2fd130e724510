//! The functions of `unisono_core.h`.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};

use unisono_core::device::{Device as _, DeviceQueue};
use unisono_core::endpoint::operation::{EnqueueError, OperationError};
use unisono_core::endpoint::peer::PeerState;
use unisono_core::endpoint::{Config, Endpoint, Event, GrantError, Handler, Verdict};
use unisono_core::ids::{Incarnation, OperationId, PeerId, PlacementId, RemoteKey};
use unisono_core::progress::make_progress;

use crate::arena::{Arena, Lent, OPERATIONS, WINDOW, bytes};
use crate::device::{Arriving, Buffers, NO_DATAGRAM, TableDevice, span};

/// Datagrams that one round of progress receives or sends.
const BUDGET: u32 = 64;
/// Bytes of a message's header: its tag.
const TAG: usize = 4;

/// A received datagram, as the header describes it.
#[repr(C)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct unisono_core_datagram {
    /// Its bytes.
    pub bytes: *const c_void,
    /// How many.
    pub length: u32,
    /// The rank whose address it came from.
    pub from: u32,
    /// Its slot.
    pub slot: u32,
}

/// The table of functions, as the header describes it.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct unisono_core_device {
    /// Passed to all functions.
    pub context: *mut c_void,
    /// Largest datagram.
    pub mtu: u32,
    /// Receive slots.
    pub slots: u32,
    /// Shortest useful timeout in nanoseconds.
    pub granularity_ns: u32,
    /// Sends a datagram.
    pub send: Option<unsafe extern "C" fn(*mut c_void, u32, *const c_void, usize, *const c_void, usize)>,
    /// Receives a datagram.
    pub receive: Option<unsafe extern "C" fn(*mut c_void, *mut unisono_core_datagram) -> bool>,
    /// Frees a slot.
    pub release: Option<unsafe extern "C" fn(*mut c_void, u32)>,
    /// Provides memory for a message.
    pub provide: Option<unsafe extern "C" fn(*mut c_void, u32, u32, usize) -> *mut c_void>,
    /// Reports a message.
    pub arrived: Option<unsafe extern "C" fn(*mut c_void, u32, u32, *mut c_void, usize)>,
}

/// An event, as the header describes it.
#[repr(C)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct unisono_core_event {
    /// What happened.
    pub kind: u32,
    /// The peer, or the placement.
    pub peer: u32,
    /// 0, or why the operation failed.
    pub error: i32,
    /// The program's value of the operation.
    pub user: u64,
}

const OK: i32 = 0;
const ARGUMENT: i32 = 1;
const FULL: i32 = 2;
const TOO_LONG: i32 = 3;
const UNKNOWN_PEER: i32 = 4;
const PEER_FAILED: i32 = 5;
const PEER_FINISHED: i32 = 6;
const REFUSED: i32 = 7;

const SENT: u32 = 1;
const DELIVERED: u32 = 2;
const FAILED: u32 = 3;
const FINISHED: u32 = 4;
const SILENT: u32 = 5;

/// An endpoint with its device, in lent memory.
pub struct Core {
    endpoint: Endpoint<Lent, WINDOW, 32>,
    device: TableDevice,
    handler: Deliver,
    /// The program's values, by operation.
    users: &'static mut [u64],
}

/// Asks the program where messages go.
struct Deliver {
    table: unisono_core_device,
    arriving: &'static Cell<Option<Arriving>>,
}

impl Handler for Deliver {
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        let (Some(tag), Some(payload)) = (head.first_chunk::<TAG>(), bytes.checked_sub(TAG as u32)) else {
            return Verdict::Release;
        };
        let (tag, context, payload) = (u32::from_le_bytes(*tag), self.table.context, payload as usize);
        let Some(provide) = self.table.provide else { return Verdict::Release };
        // SAFETY: a function of the program, with its context.
        let into = unsafe { provide(context, from.0, tag, payload) };
        if into.is_null() {
            return Verdict::Release;
        }
        if payload == 0 {
            if let Some(arrived) = self.table.arrived {
                // SAFETY: a function of the program, with its context.
                unsafe { arrived(context, from.0, tag, into, 0) };
            }
            return Verdict::Release;
        }
        self.arriving.set(Some(Arriving { from: from.0, tag, into, bytes: payload }));
        Verdict::Place { to: span(into, payload as u32), start: TAG as u16 }
    }
}

/// A lent pointer as a reference, or an error.
macro_rules! lent {
    ($core:ident) => {
        // SAFETY: the program passes what `unisono_core_init` returned, from one thread at a time.
        match unsafe { $core.as_mut() } {
            Some(core) => core,
            None => return ARGUMENT,
        }
    };
}

const fn code(error: EnqueueError) -> i32 {
    match error {
        EnqueueError::UnknownPeer => UNKNOWN_PEER,
        EnqueueError::PeerFailed => PEER_FAILED,
        EnqueueError::PeerFinished => PEER_FINISHED,
        EnqueueError::Full => FULL,
        EnqueueError::TooLong => TOO_LONG,
    }
}

/// Bytes that [`unisono_core_init`] needs.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_core_bytes(ranks: u32, slots: u32) -> usize {
    bytes(ranks as usize, slots as usize)
}

/// Makes an endpoint in lent memory. NULL: an argument is wrong, or the memory too small.
///
/// # Safety
/// The memory is the program's, and used by nobody else as long as the endpoint is used; the table is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_init(
    memory: *mut c_void,
    size: usize,
    rank: u32,
    ranks: u32,
    incarnation: u32,
    device: *const unisono_core_device,
    now: u64,
) -> *mut Core {
    // SAFETY: the caller answers for the pointer.
    let (Some(table), Some(start)) = (unsafe { device.as_ref() }, NonNull::new(memory.cast())) else {
        return null_mut();
    };
    let is_complete = table.send.is_some() && table.receive.is_some() && table.release.is_some() && rank < ranks;
    if !is_complete || table.slots < 8 || table.slots > 1 << 16 || incarnation == 0 {
        return null_mut();
    }
    // SAFETY: the caller lends these bytes.
    let mut arena = unsafe { Arena::new(start, size) };
    let mut build = || {
        let slots = arena.many(table.slots as usize, &NO_DATAGRAM)?;
        let arriving = &*arena.one(Cell::new(None))?;
        let device = TableDevice::new(*table, slots, arriving);
        let config = Config::new(PeerId(rank), Incarnation(incarnation), &device.limits());
        let endpoint = Endpoint::new(now, config, arena.pools(ranks as usize)?);
        let users = arena.many(OPERATIONS, &0)?;
        arena.one(Core { endpoint, device, handler: Deliver { table: *table, arriving }, users })
    };
    build().map_or(null_mut(), core::ptr::from_mut)
}

/// Adds a rank: its incarnation, and the largest datagram on the way to it.
///
/// # Safety
/// `core` is an endpoint or NULL, as in all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_add_peer(
    core: *mut Core,
    now: u64,
    peer: u32,
    incarnation: u32,
    mtu: u32,
) -> i32 {
    let core = lent!(core);
    core.endpoint.add_peer(now, PeerId(peer), Incarnation(incarnation), mtu);
    if core.endpoint.peer_state(PeerId(peer)) == PeerState::Unknown { UNKNOWN_PEER } else { OK }
}

/// Bytes of the longest message to a rank.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_longest(core: *mut Core, peer: u32) -> u32 {
    // SAFETY: the caller passes null or a core of `unisono_core_new`, and no other thread uses it.
    unsafe { core.as_mut() }.map_or(0, |core| core.endpoint.longest_message(PeerId(peer)).saturating_sub(TAG as u32))
}

/// Sends a message of one datagram.
///
/// # Safety
/// As of all functions; the buffer stays valid and unchanged until its event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_send(
    core: *mut Core,
    now: u64,
    to: u32,
    tag: u32,
    buffer: *const c_void,
    bytes: u32,
    user: u64,
) -> i32 {
    let core = lent!(core);
    if buffer.is_null() && bytes > 0 {
        return ARGUMENT;
    }
    let payload = (bytes > 0).then(|| span(buffer, bytes));
    match core.endpoint.send(now, PeerId(to), &tag.to_le_bytes(), payload) {
        Ok(operation) => core.record(operation, user),
        Err(error) => code(error),
    }
}

/// Lets a rank write to a buffer once, under a key.
///
/// # Safety
/// As of all functions; the buffer is used by nobody else until its event, or until it is withdrawn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_grant(
    core: *mut Core,
    peer: u32,
    buffer: *mut c_void,
    bytes: u32,
    key: u64,
    placement: *mut u32,
) -> i32 {
    let core = lent!(core);
    // SAFETY: the caller answers for the pointer.
    let Some(placement) = (unsafe { placement.as_mut() }).filter(|_| !buffer.is_null()) else { return ARGUMENT };
    match core.endpoint.grant(PeerId(peer), span(buffer, bytes), RemoteKey(key)) {
        Ok(granted) => {
            *placement = granted.0;
            OK
        }
        Err(GrantError::Full) => FULL,
        Err(GrantError::UnknownPeer) => UNKNOWN_PEER,
    }
}

/// Withdraws a grant.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_withdraw(core: *mut Core, placement: u32) -> i32 {
    if lent!(core).endpoint.withdraw(PlacementId(placement)) { OK } else { ARGUMENT }
}

/// Writes a buffer of any length to memory that a rank has granted.
///
/// # Safety
/// As of [`unisono_core_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_place(
    core: *mut Core,
    now: u64,
    to: u32,
    placement: u32,
    key: u64,
    buffer: *const c_void,
    bytes: u32,
    user: u64,
) -> i32 {
    let core = lent!(core);
    if buffer.is_null() {
        return ARGUMENT;
    }
    match core.endpoint.place(now, PeerId(to), PlacementId(placement), RemoteKey(key), span(buffer, bytes)) {
        Ok(operation) => core.record(operation, user),
        Err(error) => code(error),
    }
}

impl Core {
    fn record(&mut self, operation: OperationId, user: u64) -> i32 {
        if let Some(place) = self.users.get_mut(operation.0 as usize) {
            *place = user;
        }
        OK
    }
}

/// One round of progress. Returns whether anything moved.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_progress(core: *mut Core, now: u64) -> bool {
    // SAFETY: the caller passes null or a core of `unisono_core_new`, and no other thread uses it.
    let Some(Core { endpoint, device, handler, .. }) = (unsafe { core.as_mut() }) else { return false };
    make_progress(now, DeviceQueue::Polled, endpoint, device, &Buffers, handler, BUDGET)
}

/// Nanoseconds until the next timer, at most `most`.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_rest(core: *mut Core, now: u64, most: u64) -> u64 {
    // SAFETY: the caller passes null or a core of `unisono_core_new`, and no other thread uses it.
    let next = unsafe { core.as_ref() }.and_then(|core| core.endpoint.poll_timeout(now));
    next.map_or(most, |at| at.saturating_sub(now).min(most))
}

/// The next event.
///
/// # Safety
/// As of all functions; the event is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_poll_event(core: *mut Core, now: u64, event: *mut unisono_core_event) -> bool {
    // SAFETY: the caller passes null or a core of `unisono_core_new`, and no other thread uses it.
    let (Some(core), Some(into)) = (unsafe { core.as_mut() }, NonNull::new(event)) else { return false };
    let Some(polled) = core.endpoint.poll_event(now) else { return false };
    let of = |kind, peer| unisono_core_event { kind, peer, error: OK, user: 0 };
    let event = match polled {
        Event::Completed(operation, result) => {
            let error = match result {
                Ok(()) => OK,
                Err(OperationError::PeerFailed) => PEER_FAILED,
                Err(OperationError::PeerFinished) => PEER_FINISHED,
                Err(OperationError::Refused) => REFUSED,
            };
            let user = core.users.get(operation.0 as usize).copied().unwrap_or(0);
            unisono_core_event { error, user, ..of(SENT, u32::MAX) }
        }
        Event::Delivered(placement, _) => of(DELIVERED, placement.0),
        Event::PeerFailed(peer) => of(FAILED, peer.0),
        Event::PeerFinished(peer) => of(FINISHED, peer.0),
        Event::PeerSilent(peer) => of(SILENT, peer.0),
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { into.write(event) };
    true
}

/// Declares a rank failed.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_fail(core: *mut Core, now: u64, peer: u32) -> i32 {
    lent!(core).endpoint.fail(now, PeerId(peer));
    OK
}

/// Ends this endpoint's part.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_shutdown(core: *mut Core) -> i32 {
    lent!(core).endpoint.shutdown();
    OK
}

/// Whether the end was announced to all ranks.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_core_is_closed(core: *mut Core) -> bool {
    // SAFETY: the caller passes null or a core of `unisono_core_new`, and no other thread uses it.
    unsafe { core.as_ref() }.is_some_and(|core| core.endpoint.is_closed())
}
