//! The segments of mlx5's work queue entries. Layouts: `mlx5dv.h`, `mlx5_wqe_*_seg`.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::queue_memory::Unit;
use crate::raw::{Data, RemoteMemory};

/// The lkey of a data segment that ends a list.
const NO_KEY: u32 = 0x100;
/// Distinguishes an address vector with a global route from a short one.
const EXTENDED: u32 = 0x8000_0000;
/// A segment whose bytes follow.
pub(super) const INLINE: u32 = 0x8000_0000;
/// A queue pair number has 24 bits.
pub(super) const QPN_MASK: u32 = 0xff_ffff;

/// The control segment's flags.
pub(super) mod flag {
    /// Write a completion.
    pub(in super::super) const SIGNALLED: u8 = 2 << 2;
    /// Raise an event at the receiver.
    pub(in super::super) const SOLICITED: u8 = 1 << 1;
}

/// The control segment, which begins an entry: operation and length.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Control {
    /// Modifier 8, index of the first block 16, opcode 8.
    pub(super) what: U32,
    /// Queue pair 24, units 8.
    pub(super) whose: U32,
    pub(super) signature: u8,
    pub(super) stream: U16,
    pub(super) flags: u8,
    pub(super) immediate: [u8; 4],
}

impl Control {
    pub(super) const NONE: Self =
        Self { what: U32::ZERO, whose: U32::ZERO, signature: 0, stream: U16::ZERO, flags: 0, immediate: [0; 4] };

    pub(super) fn unit(self) -> Unit {
        transmute!(self)
    }
}

/// The datagram segment: the receiver's address vector, 48 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Datagram {
    qkey: U32,
    reserved: U32,
    qpn: U32,
    rate_and_level: u8,
    path_bits: u8,
    lid_or_port: U16,
    reserved_route: [u8; 4],
    mac: [u8; 6],
    traffic_class: u8,
    hop_limit: u8,
    /// GRH present 2 (bit 30), index of the own GID 8 (bit 20), flow label 20.
    route: U32,
    gid: [u8; 16],
}

/// A global route header's fields.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Grh {
    /// The receiver's GID.
    pub gid: [u8; 16],
    /// Which of our own GIDs to send from.
    pub gid_index: u8,
    /// 20 bits.
    pub flow_label: u32,
    /// Routers that may be passed.
    pub hop_limit: u8,
    /// Priority.
    pub traffic_class: u8,
}

/// The next hop on the adapter's link layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// A subnet with local identifiers.
    InfiniBand {
        /// The receiver's.
        lid: u16,
        /// Low bits of our own, 7 bits.
        path_bits: u8,
    },
    /// RoCE.
    Ethernet {
        /// The next hop's.
        mac: [u8; 6],
        /// The UDP source port of RoCE v2, see [`source_port`]; 0 for v1.
        source_port: u16,
    },
}

/// The port that a flow label's datagrams leave from (rdma-core, `ibv_flow_label_to_udp_sport`).
pub const fn source_port(flow_label: u32) -> u16 {
    ((flow_label & 0x3fff ^ flow_label >> 14 & 0x3f) | 0xc000) as u16
}

/// The path to a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// To the next hop.
    pub link: Link,
    /// 4 bits; 3 on Ethernet.
    pub service_level: u8,
    /// Static rate in the adapter's encoding; 0: the port's rate.
    pub rate: u8,
    /// Beyond the subnet; always on Ethernet.
    pub grh: Option<Grh>,
}

impl Datagram {
    /// The segment for that queue pair, which accepts this Q_Key.
    pub fn new(route: &Route, qpn: u32, qkey: u32) -> Self {
        let rate = route.rate << 4;
        let (rate_and_level, path_bits, lid_or_port, mac, on_link) = match route.link {
            Link::InfiniBand { lid, path_bits } => {
                (rate | route.service_level & 0xf, path_bits & 0x7f, lid, [0; 6], 1 << 30)
            }
            // RoCE datagrams always have a global route: the bit for it is reserved.
            Link::Ethernet { mac, source_port } => (rate | (route.service_level & 7) << 1, 0, source_port, mac, 0),
        };
        let grh = route.grh.unwrap_or_default();
        let present = if route.grh.is_some() { on_link } else { 0 };
        Self {
            qkey: U32::new(qkey),
            reserved: U32::ZERO,
            qpn: U32::new(qpn & QPN_MASK | EXTENDED),
            rate_and_level,
            path_bits,
            lid_or_port: U16::new(lid_or_port),
            reserved_route: [0; 4],
            mac,
            traffic_class: grh.traffic_class,
            hop_limit: grh.hop_limit,
            route: U32::new(present | u32::from(grh.gid_index) << 20 | grh.flow_label & 0xf_ffff),
            gid: grh.gid,
        }
    }

    /// The same path to another queue pair.
    #[must_use]
    pub fn to(mut self, qpn: u32) -> Self {
        self.qpn = U32::new(qpn & QPN_MASK | EXTENDED);
        self
    }

    /// The receiver's queue pair.
    pub fn qpn(&self) -> u32 {
        self.qpn.get() & QPN_MASK
    }

    pub(super) fn is_ethernet(&self) -> bool {
        self.mac != [0; 6]
    }

    pub(super) fn lid(&self) -> u16 {
        self.lid_or_port.get()
    }

    pub(super) const fn gid(&self) -> [u8; 16] {
        self.gid
    }

    pub(super) fn units(self) -> [Unit; 3] {
        transmute!(self)
    }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct DataSegment {
    bytes: U32,
    key: U32,
    address: U64,
}

/// Ends a list that is shorter than its room.
pub(super) const END: Data = Data { address: 0, bytes: 0, key: NO_KEY };

pub(super) fn data(data: Data) -> Unit {
    let segment = DataSegment { bytes: U32::new(data.bytes), key: U32::new(data.key), address: U64::new(data.address) };
    transmute!(segment)
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct RemoteSegment {
    address: U64,
    key: U32,
    reserved: U32,
}

/// The segment that names memory of the peer.
pub(super) fn remote(memory: RemoteMemory) -> Unit {
    let (address, key) = (U64::new(memory.address), U32::new(memory.key));
    transmute!(RemoteSegment { address, key, reserved: U32::ZERO })
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct AtomicSegment {
    swap_or_add: U64,
    compare: U64,
}

/// The operands of an atomic operation on 64 bits.
pub(super) fn operands(swap_or_add: u64, compare: u64) -> Unit {
    transmute!(AtomicSegment { swap_or_add: U64::new(swap_or_add), compare: U64::new(compare) })
}

const _: () = {
    assert!(size_of::<Control>() == 16);
    assert!(size_of::<Datagram>() == 48);
    assert!(core::mem::offset_of!(Control, flags) == 11);
    assert!(core::mem::offset_of!(Datagram, lid_or_port) == 14);
    assert!(core::mem::offset_of!(Datagram, mac) == 20);
    assert!(core::mem::offset_of!(Datagram, route) == 28);
};
