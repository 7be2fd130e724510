//! Random send requests, equal for equal seeds.

use core::iter::repeat_with;

use unisono_verbs::mlx5::{Datagram, Grh, Link, Route, source_port};
use unisono_verbs::raw::{Data, RemoteMemory};

use crate::mlx5::rdma_core::{Destination, Operation, Pieces, Post, Setup};

/// `ibv_rate`, and what the adapter calls it.
const RATES: [(u32, u8); 6] = [(0, 0), (2, 7), (3, 8), (7, 12), (16, 15), (21, 0)];
/// Bytes of an inline piece, mostly few.
const LONGEST: [usize; 3] = [20, 100, 400];

#[derive(Debug)]
pub(super) struct Random(fastrand::Rng);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(super) fn one_in(&mut self, count: u32) -> bool {
        self.0.u32(..count) == 0
    }

    pub(super) fn setup(&mut self) -> Setup {
        let random = &mut self.0;
        Setup {
            blocks: 16 << random.u32(..4),
            qpn: random.u32(..1 << 24),
            connected: random.bool(),
            flame_bytes: [0, 128, 256][random.usize(..3)],
            takes_entries: random.bool(),
            prefers: random.bool(),
            receive_entries: 1 << random.u32(2..7),
            receive_units: 1 << random.u32(..3),
        }
    }

    /// A completion queue entry that an unreliable datagram of the queue pair may cause, all else random: sent,
    /// received with or without immediate data, failed. Its owner is 0, and it belongs to no shared receive queue.
    pub(super) fn completion(&mut self, qpn: u32) -> [u8; 64] {
        let random = &mut self.0;
        let mut entry = [0; 64];
        random.fill(&mut entry);
        entry[33..36].fill(0);
        let kind = [0, 2, 3, 13, 14][random.usize(..5)];
        // SEND or SEND_IMM.
        let sent = [0x0a, 0x0b][random.usize(..2)];
        if random.bool() {
            entry[55] = random.u8(..0x24);
        }
        let [_, a, b, c] = qpn.to_be_bytes();
        entry[56..60].copy_from_slice(&[sent, a, b, c]);
        entry[63] = kind << 4 | u8::from(random.bool()) << 1;
        entry
    }

    /// Requests of one call, mostly one.
    pub(super) fn batch(&mut self) -> usize {
        if self.0.bool() { 1 } else { self.0.usize(1..8) }
    }

    /// A request; one that a connected queue pair can carry out, too, if `connected`.
    pub(super) fn post(&mut self, connected: bool) -> Post {
        let operation = match self.0.u32(..4) {
            _ if !connected => Operation::Write,
            0 => Operation::FetchAdd(self.0.u64(..)),
            1 => Operation::CompareSwap(self.0.u64(..), self.0.u64(..)),
            2 => Operation::Read,
            _ => Operation::Write,
        };
        let is_atomic = matches!(operation, Operation::FetchAdd(_) | Operation::CompareSwap(..));
        let is_write = matches!(operation, Operation::Write);
        let (count, inline) = (self.0.usize(..7), is_write && self.0.bool());
        let pieces = if inline {
            let longest = LONGEST[self.0.usize(..3)];
            let mut left = 900;
            let bytes = repeat_with(|| {
                let bytes = self.0.usize(..longest).min(left);
                left -= bytes;
                repeat_with(|| self.0.u8(..)).take(bytes).collect()
            });
            // Without a piece it would not count as inline.
            Pieces::Inline(bytes.take(count.max(1)).collect())
        } else if is_atomic {
            Pieces::Gather(vec![Data { bytes: 8, ..self.data() }])
        } else {
            Pieces::Gather(repeat_with(|| self.data()).take(count).collect())
        };
        Post {
            to: self.destination(),
            operation,
            remote: RemoteMemory { address: self.0.u64(..), key: self.0.u32(..) },
            pieces,
            signalled: self.0.bool(),
            solicited: self.0.bool(),
            immediate: (is_write && self.one_in(4)).then(|| self.0.u32(..).to_ne_bytes()),
        }
    }

    /// A piece of memory; now and then one without a byte.
    pub(super) fn data(&mut self) -> Data {
        let bytes = if self.one_in(8) { 0 } else { self.0.u32(1..1 << 31) };
        Data { address: self.0.u64(..), bytes, key: self.0.u32(..) }
    }

    fn destination(&mut self) -> Destination {
        let random = &mut self.0;
        let roce = random.u32(..3);
        Destination {
            roce,
            lid: random.u32(..1 << 16),
            path_bits: random.u32(..1 << 7),
            level: random.u32(..16),
            rate: RATES[random.usize(..RATES.len())].0,
            global: roce > 0 || random.bool(),
            gid_index: random.u32(..256),
            // 0 would have the provider draw a port.
            flow_label: random.u32(1..1 << 20),
            hop_limit: random.u32(..256),
            traffic_class: random.u32(..256),
            qpn: random.u32(..1 << 24),
            qkey: random.u32(..),
            gid: random.u128(..).to_ne_bytes(),
            mac: core::array::from_fn(|_| random.u8(..)),
        }
    }
}

/// The same destination, as our driver has it.
pub(super) fn datagram(to: &Destination) -> Datagram {
    let link = match to.roce {
        0 => Link::InfiniBand { lid: to.lid as u16, path_bits: to.path_bits as u8 },
        version => {
            let source_port = if version == 2 { source_port(to.flow_label) } else { 0 };
            Link::Ethernet { mac: to.mac, source_port }
        }
    };
    let grh = Grh {
        gid: to.gid,
        gid_index: to.gid_index as u8,
        flow_label: to.flow_label,
        hop_limit: to.hop_limit as u8,
        traffic_class: to.traffic_class as u8,
    };
    let rate = RATES.iter().find(|(rate, _)| *rate == to.rate).map_or(0, |(_, rate)| *rate);
    let route = Route { link, service_level: to.level as u8, rate, grh: to.global.then_some(grh) };
    Datagram::new(&route, to.qpn, to.qkey)
}
