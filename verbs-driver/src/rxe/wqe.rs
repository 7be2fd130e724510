//! Soft-RoCE's work queue and completion queue entries. Layouts: `rxe_send_wqe`, `rxe_recv_wqe`, `ib_uverbs_wc`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::queue_memory::{Block, UNIT, Unit};
use crate::raw::{Data, Failure, RemoteMemory};
use crate::rc::{EndedWork, RcOperation, RcRequest};

/// Bytes of a send entry in front of its pieces or inline bytes.
pub const SEND_WQE: usize = 208;
/// Bytes of a receive entry in front of its pieces.
pub const RECEIVE_WQE: usize = 40;
/// Bytes of a completion.
pub const CQE: usize = 48;

/// Bytes of a send entry of a reliable connection, its piece included.
pub(super) const RELIABLE_WQE: usize = SEND_WQE + UNIT;

/// `ibv_wr_opcode` and `ibv_send_flags`.
const OPCODE_WRITE: u32 = 0;
const OPCODE_WRITE_IMMEDIATE: u32 = 1;
pub(super) const OPCODE_SEND: u32 = 2;
const OPCODE_READ: u32 = 4;
const OPCODE_COMPARE_SWAP: u32 = 5;
const OPCODE_FETCH_ADD: u32 = 6;
pub(super) const SIGNALLED: u32 = 1 << 1;
pub(super) const SOLICITED: u32 = 1 << 2;
pub(super) const INLINE: u32 = 1 << 3;
/// The unit of a send entry that its flags lie in.
pub(super) const FLAGS: usize = 1;
/// `RXE_NETWORK_TYPE_*`.
pub(super) const NETWORK: [u8; 2] = [1, 2];
/// `ib_wc_flags`, and `ib_wc_opcode` of a write with immediate that has arrived.
const WITH_GRH: u32 = 1;
const ARRIVED_IMMEDIATE: u32 = 129;

/// Payload bytes in a send entry of this size.
pub const fn send_room(entry: usize) -> usize {
    entry.saturating_sub(SEND_WQE)
}

/// The adapter's progress through the pieces (`rxe_dma_info`).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Default, Debug)]
#[repr(C)]
pub(super) struct Progress {
    length: u32,
    left: u32,
    piece: u32,
    pieces: u32,
    offset: u32,
    reserved: u32,
}

impl Progress {
    const fn new(length: u32, pieces: u32) -> Self {
        Self { length, left: length, piece: 0, pieces, offset: 0, reserved: 0 }
    }
}

/// The address vector of a receiver (`rxe_av`).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(super) struct AddressVector {
    pub(super) port: u8,
    pub(super) network: u8,
    pub(super) mac: [u8; 6],
    pub(super) gid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) gid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) padding: u8,
    pub(super) from: [u8; 28],
    pub(super) to: [u8; 28],
}

/// The front of a send entry (`rxe_send_wqe` of an unreliable datagram).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct SendWqe {
    tag: u64,
    reserved: u32,
    opcode: u32,
    flags: u32,
    immediate: [u8; 4],
    qpn: u32,
    qkey: u32,
    partition: u16,
    reserved_handle: u16,
    /// 0: the address vector is in the entry.
    handle: u32,
    reserved_way: [u32; 4],
    way: AddressVector,
    kernel: [u32; 10],
    progress: Progress,
}

/// Units at either end of a send entry's front that differ for each datagram, and the units between them, which only
/// depend on the path.
pub(super) const OWN_UNITS: usize = 2;
pub(super) const COMMON_UNITS: usize = SEND_WQE / UNIT - 2 * OWN_UNITS;
/// The units that all entries on the same path have in common.
pub(super) type CommonUnits = [Unit; COMMON_UNITS];

impl SendWqe {
    /// The entry of an empty datagram without flags.
    pub(super) fn new(qkey: u32, way: AddressVector) -> Self {
        Self {
            tag: 0,
            reserved: 0,
            opcode: OPCODE_SEND,
            flags: 0,
            immediate: [0; 4],
            qpn: 0,
            qkey,
            partition: 0,
            reserved_handle: 0,
            handle: 0,
            reserved_way: [0; 4],
            way,
            kernel: [0; 10],
            progress: Progress::new(0, 0),
        }
    }

    /// The units that only depend on the path.
    pub(super) fn front(self) -> CommonUnits {
        let units: [Unit; SEND_WQE / UNIT] = transmute!(self);
        let [_, _, front @ .., _, _] = units;
        front
    }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Tagged {
    tag: u64,
    reserved: u32,
    opcode: u32,
}

/// The units of one datagram before the common ones.
#[inline]
pub(super) fn own_first(tag: u32, flagged: Unit) -> [Unit; OWN_UNITS] {
    [transmute!(Tagged { tag: tag.into(), reserved: 0, opcode: OPCODE_SEND }), flagged]
}

/// The units of one datagram after the common ones.
#[inline]
pub(super) fn own_last(length: u32, pieces: u32) -> [Unit; OWN_UNITS] {
    // Two words of the kernel precede the progress.
    let Progress { length, left, piece, pieces, offset, reserved } = Progress::new(length, pieces);
    transmute!([0, 0, length, left, piece, pieces, offset, reserved])
}

/// The unit at [`FLAGS`].
#[inline]
pub(super) fn flagged(flags: u32, (qpn, qkey): (u32, u32)) -> Unit {
    transmute!([flags, 0, qpn, qkey])
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Piece {
    address: u64,
    bytes: u32,
    key: u32,
}

impl From<Data> for Piece {
    fn from(Data { address, bytes, key }: Data) -> Self {
        Self { address, bytes, key }
    }
}

pub(super) fn piece(data: Data) -> Unit {
    transmute!(Piece::from(data))
}

/// A send entry of a reliable connection (`rxe_send_wqe`), and its piece.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ReliableWqe {
    tag: u64,
    reserved: u32,
    opcode: u32,
    flags: u32,
    immediate: [u8; 4],
    remote: u64,
    /// Of atomics two operands of 64 bits, then the key; of others the key.
    operands: [u32; 28],
    kernel: [u32; 2],
    /// The remote address again, which the kernel advances.
    place: u64,
    more_of_kernel: [u32; 4],
    /// Its number among all of the queue.
    number: u32,
    last_of_kernel: u32,
    progress: Progress,
    piece: Piece,
}

/// The units of an operation, which is signalled.
pub(super) fn reliable(request: &RcRequest, tag: u32, number: u32) -> [Unit; RELIABLE_WQE / UNIT] {
    let RcRequest { operation, local, remote: RemoteMemory { address, key } } = *request;
    let mut operands = [0; 28];
    let mut atomic = |compare_or_add: u64, swap: u64| {
        let low_first = |value: u64| [value as u32, (value >> 32) as u32];
        let [a, b, c, d, of_key, ..] = &mut operands;
        ([*a, *b], [*c, *d], *of_key) = (in_memory(low_first(compare_or_add)), in_memory(low_first(swap)), key);
    };
    let (opcode, immediate) = match operation {
        RcOperation::Write => (OPCODE_WRITE, 0),
        RcOperation::WriteImmediate(value) => (OPCODE_WRITE_IMMEDIATE, value),
        RcOperation::Read => (OPCODE_READ, 0),
        RcOperation::FetchAdd(add) => {
            atomic(add, 0);
            (OPCODE_FETCH_ADD, 0)
        }
        RcOperation::CompareSwap { compare, swap } => {
            atomic(compare, swap);
            (OPCODE_COMPARE_SWAP, 0)
        }
    };
    if !operation.is_atomic() {
        let [of_key, ..] = &mut operands;
        *of_key = key;
    }
    transmute!(ReliableWqe {
        tag: tag.into(),
        reserved: 0,
        opcode,
        flags: SIGNALLED,
        immediate: immediate.to_be_bytes(),
        remote: address,
        operands,
        kernel: [0; 2],
        place: address,
        more_of_kernel: [0; 4],
        number,
        last_of_kernel: 0,
        progress: Progress::new(local.bytes, (local.bytes > 0).into()),
        piece: local.into(),
    })
}

/// The halves of a value, low half first, in the order in which they lie in memory.
const fn in_memory([low, high]: [u32; 2]) -> [u32; 2] {
    if cfg!(target_endian = "little") { [low, high] } else { [high, low] }
}

/// A receive entry of one piece, padded to whole units.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ReceiveWqe {
    tag: u64,
    reserved: [u32; 2],
    progress: Progress,
    piece: Piece,
    padding: u64,
}

pub(super) fn receive(data: Data, tag: u64) -> [Unit; 4] {
    let progress = Progress::new(data.bytes, (data.bytes > 0).into());
    transmute!(ReceiveWqe { tag, reserved: [0; 2], progress, piece: data.into(), padding: 0 })
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Cqe {
    tag: u64,
    status: u32,
    opcode: u32,
    vendor: u32,
    bytes: u32,
    immediate: [u8; 4],
    qpn: u32,
    source: u32,
    flags: u32,
    partition: u16,
    lid: u16,
    level: u8,
    path_bits: u8,
    port: u8,
    reserved: u8,
    padding: [u8; 16],
}

/// A completion. Untrusted: every value is checked by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Completion {
    /// `None`: the driver posts no such tag.
    pub(super) tag: Option<u32>,
    pub(super) failure: Option<Failure>,
    pub(super) bytes: u32,
    pub(super) source: u32,
    pub(super) grh: bool,
}

impl Completion {
    pub(super) fn parse(block: Block) -> Self {
        let layout: Cqe = transmute!(block);
        Self {
            tag: u32::try_from(layout.tag).ok(),
            failure: Failure::of(layout.status),
            bytes: layout.bytes,
            source: layout.source,
            grh: layout.flags & WITH_GRH != 0,
        }
    }
}

/// A completion of a reliable connection.
pub(super) fn ended(block: Block) -> EndedWork {
    let Cqe { tag, status, opcode, bytes, immediate, qpn, .. } = transmute!(block);
    let immediate = (opcode == ARRIVED_IMMEDIATE).then_some(u32::from_be_bytes(immediate));
    EndedWork { tag, result: Failure::of(status).map_or(Ok(()), Err), qpn, immediate, bytes }
}

const _: () = {
    use core::mem::offset_of;

    assert!(size_of::<ReliableWqe>() == RELIABLE_WQE && offset_of!(ReliableWqe, remote) == 24);
    assert!(offset_of!(ReliableWqe, place) == 152 && offset_of!(ReliableWqe, number) == 176);
    assert!(offset_of!(ReliableWqe, progress) == 184 && offset_of!(Cqe, qpn) == 28);

    assert!(offset_of!(SendWqe, opcode) == offset_of!(Tagged, opcode));
    assert!(size_of::<SendWqe>() == SEND_WQE && size_of::<AddressVector>() == 88 && size_of::<ReceiveWqe>() == 64);
    assert!(offset_of!(SendWqe, flags) == 16 && offset_of!(SendWqe, qpn) == 24 && offset_of!(SendWqe, handle) == 36);
    assert!(offset_of!(SendWqe, way) == 56 && offset_of!(SendWqe, progress) == 184);
    assert!(
        offset_of!(AddressVector, gid_index) == 28
            && offset_of!(AddressVector, from) == 32
            && offset_of!(AddressVector, to) == 60
    );
    assert!(offset_of!(ReceiveWqe, piece) == RECEIVE_WQE);
    assert!(offset_of!(Cqe, bytes) == 20 && offset_of!(Cqe, flags) == 36);
    assert!(offset_of!(Cqe, padding) == CQE);
};
