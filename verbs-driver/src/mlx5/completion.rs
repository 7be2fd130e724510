//! mlx5's completion queue entries. Layouts: `mlx5dv.h`, `mlx5_cqe64` and `mlx5_err_cqe`. Untrusted: the caller checks
//! indices and lengths.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, transmute};

use super::segment::QPN_MASK;
use crate::queue_memory::Block;
use crate::raw::Failure;

/// Of an entry that was never written.
pub(super) const INVALID: u8 = 15;
const REQUEST: u8 = 0;
const SEND: u8 = 2;
const SEND_IMMEDIATE: u8 = 3;
const REQUEST_FAILED: u8 = 13;
const RESPONSE_FAILED: u8 = 14;

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Cqe {
    reserved: [u8; 22],
    lid: U16,
    /// GRH 2 (bit 28), service level 4, queue pair 24.
    source: U32,
    reserved_offload: [u8; 8],
    immediate: [u8; 4],
    reserved_tag: [u8; 4],
    bytes: U32,
    reserved_time: [u8; 6],
    vendor: u8,
    syndrome: u8,
    /// Opcode of the entry 8, queue pair 24.
    whose: U32,
    index: U16,
    signature: u8,
    /// Opcode 4, format 2, solicited 1, owner 1.
    kind: u8,
}

const _: () = assert!(size_of::<Cqe>() == 64 && core::mem::offset_of!(Cqe, bytes) == 44);

/// Which half of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueSide {
    /// Its send queue.
    Send,
    /// Its receive queue.
    Receive,
}

/// The failure for an adapter's syndrome.
const fn failure(syndrome: u8) -> Failure {
    match syndrome {
        1 => Failure::Length,
        2 => Failure::Operation,
        4 => Failure::Protection,
        5 => Failure::Flushed,
        0x12 => Failure::RemoteOperation,
        0x13 => Failure::RemoteAccess,
        0x15 => Failure::NoAnswer,
        other => Failure::Other(other as u32),
    }
}

/// A receive completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveCompletion {
    /// The receiving queue pair.
    pub qpn: u32,
    /// Index of its receive entry.
    pub index: u16,
    /// Bytes, the 40 of the global route header included, whether it has one or not.
    pub bytes: u32,
    /// The sender's queue pair.
    pub source: u32,
    /// The sender's local identifier, on InfiniBand.
    pub lid: u16,
    /// Whether the first 40 bytes are a global route header.
    pub grh: bool,
    /// Its service level.
    pub service_level: u8,
    /// The sender asked for an event.
    pub solicited: bool,
    /// Bytes beside the payload.
    pub immediate: Option<[u8; 4]>,
}

/// A completion queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Completion {
    /// The send entry of this index, and those before it, are done.
    Sent {
        /// Whose.
        qpn: u32,
        /// Of its first block.
        index: u16,
    },
    /// A datagram was received.
    Received(ReceiveCompletion),
    /// An entry failed, and its queue pair with it.
    Failed {
        /// Whose.
        qpn: u32,
        /// Which.
        index: u16,
        /// Of which queue.
        half: QueueSide,
        /// Why.
        failure: Failure,
        /// The vendor's error code.
        vendor: u8,
    },
    /// A kind that unreliable datagrams do not cause. Compressed entries and entries with inline payload must be
    /// disabled.
    Unknown {
        /// Opcode, format and flags.
        kind: u8,
    },
}

impl Completion {
    /// Reads an entry.
    pub fn parse(block: Block) -> Self {
        let layout: Cqe = transmute!(block);
        let (qpn, index) = (layout.whose.get() & QPN_MASK, layout.index.get());
        let failed = |half| Self::Failed { qpn, index, half, failure: failure(layout.syndrome), vendor: layout.vendor };
        let opcode = layout.kind >> 4;
        match (opcode, layout.kind >> 2 & 3) {
            (REQUEST_FAILED, _) => failed(QueueSide::Send),
            (RESPONSE_FAILED, _) => failed(QueueSide::Receive),
            (REQUEST, 0) => Self::Sent { qpn, index },
            (SEND | SEND_IMMEDIATE, 0) => Self::Received(ReceiveCompletion {
                qpn,
                index,
                bytes: layout.bytes.get(),
                source: layout.source.get() & QPN_MASK,
                lid: layout.lid.get(),
                grh: layout.source.get() >> 28 & 3 != 0,
                service_level: (layout.source.get() >> 24 & 0xf) as u8,
                solicited: layout.kind & 2 != 0,
                immediate: (opcode == SEND_IMMEDIATE).then_some(layout.immediate),
            }),
            _ => Self::Unknown { kind: layout.kind },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(fields: &[(usize, &[u8])]) -> Block {
        let mut block = [0xcc; 64];
        for (at, bytes) in fields {
            block[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        block
    }

    #[test]
    fn arrival_is_read() {
        let front: [(usize, &[u8]); 4] =
            [(22, &[0x12, 0x34]), (24, &[0x15, 0, 0x77, 0x88]), (36, &[1, 2, 3, 4]), (44, &[0, 0, 0x10, 0x28])];
        let arrival = |kind| {
            let back: [(usize, &[u8]); 3] = [(56, &[0, 0xab, 0xcd, 0xef]), (60, &[0xff, 0xfe]), (63, &[kind])];
            Completion::parse(block(&[&front[..], &back].concat()))
        };
        let expected = ReceiveCompletion {
            qpn: 0xab_cdef,
            index: 0xfffe,
            bytes: 0x1028,
            source: 0x7788,
            lid: 0x1234,
            grh: true,
            service_level: 5,
            solicited: true,
            immediate: Some([1, 2, 3, 4]),
        };
        assert_eq!(arrival(0x33), Completion::Received(expected));
        let plain = ReceiveCompletion { solicited: false, immediate: None, ..expected };
        assert_eq!(arrival(0x20), Completion::Received(plain));
        assert_eq!(arrival(0x2c), Completion::Unknown { kind: 0x2c }, "compressed");
        assert_eq!(arrival(0x24), Completion::Unknown { kind: 0x24 }, "with payload");
        assert_eq!(arrival(0x00), Completion::Sent { qpn: 0xab_cdef, index: 0xfffe });
    }

    #[test]
    fn failure_is_read() {
        let failed =
            |kind, syndrome| Completion::parse(block(&[(54, &[0x77, syndrome, 0x0a, 0, 0, 9, 0, 3]), (63, &[kind])]));
        let expected = |half, failure| Completion::Failed { qpn: 9, index: 3, half, failure, vendor: 0x77 };
        assert_eq!(failed(0xd1, 5), expected(QueueSide::Send, Failure::Flushed));
        assert_eq!(failed(0xe0, 4), expected(QueueSide::Receive, Failure::Protection));
        assert_eq!(failed(0xd1, 0x13), expected(QueueSide::Send, Failure::RemoteAccess));
        assert_eq!(failed(0xe0, 0x14), expected(QueueSide::Receive, Failure::Other(0x14)));
    }
}
