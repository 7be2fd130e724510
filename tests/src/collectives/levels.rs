//! The time of collectives on a machine of three levels, sockets in hosts in a network, with flat schedules and with
//! schedules composed over its hosts, or over sockets and hosts.
//!
//! The model is Hockney's ([`super::hockney`]) with a cost for each level. A host has one adapter: bytes that leave it, and
//! bytes that enter it, follow each other.

use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
use unisono_core::ids::Rank;
use unisono_core::schedule::{
    Choice, HierarchicalPlan, Hierarchy, HierarchyOptions, Leaders, LinkModel, LowerTrees, Plan, Spec, Unsupported,
    choose,
};

use super::hockney::{Cost, LinkCost, Network, layout, simulate};

/// The trees below the leaders of hosts, as the library has them.
const LOWER: LowerTrees = LowerTrees { radix: 2, ports: 1 };

/// A machine whose ranks are numbered through its sockets and hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Hosts.
    pub hosts: u32,
    /// Sockets of a host.
    pub sockets: u32,
    /// Ranks of a socket.
    pub ranks: u32,
    /// The cost of a message within a socket, between sockets of a host, and between hosts.
    pub links: [LinkCost; 3],
    /// Whether the adapter moves messages between hosts by itself, so that a rank exchanges others in its host meanwhile.
    pub offloads: bool,
}

/// What a collective is composed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Composition {
    /// Nothing; selected as if each rank had a link of its own.
    Unaware,
    /// Nothing.
    Flat,
    /// The ranks of each host.
    Hosts,
    /// The ranks of each socket, in hosts.
    Sockets,
    /// The same; what arrives at the leaders of hosts goes down in parts.
    Parts,
    /// The ranks of each host, all of which lead.
    Leaders,
}

impl Machine {
    /// Its ranks.
    pub const fn size(&self) -> u32 {
        self.hosts * self.sockets * self.ranks
    }

    const fn socket(&self, rank: u32) -> u32 {
        rank / self.ranks
    }

    const fn host(&self, rank: u32) -> u32 {
        rank / self.ranks / self.sockets
    }

    /// The cost of a message between hosts as the selection knows it, with `per_host` ranks on each.
    const fn model(&self, per_host: u16) -> LinkModel {
        let [_, within, LinkCost { startup_ps, ps_per_byte }] = self.links;
        let latency_ns = (startup_ps / 1000) as u32;
        let (ps_per_byte, ps_per_byte_within) = (ps_per_byte as u32, within.ps_per_byte as u32);
        LinkModel { latency_ns, overhead_ns: latency_ns, ps_per_byte, sharing: 1, per_host, ps_per_byte_within }
    }

    /// The algorithm that the selection takes, and the cost of the collective. Each rank has `bytes` bytes, of an alltoall
    /// and a reduce-scatter for each other rank.
    ///
    /// # Errors
    /// The collective is not composed.
    pub fn time(
        &self,
        collective: CollectiveKind,
        bytes: usize,
        composition: Composition,
    ) -> Result<(Choice, Cost), Unsupported> {
        let (rank, root, size, order) = (Rank(0), Rank(0), self.size(), Order::Any);
        let call =
            CollectiveSpec { collective, rank, size, root, bytes, grain: 1, order, in_place: false, reduction_id: 0 };
        let network = MachineNetwork {
            machine: *self,
            sent: vec![0; self.hosts as usize],
            received: vec![0; self.hosts as usize],
        };
        let of_rank = |spec: &Spec, rank: u32| Spec { rank: Rank(rank), ..*spec };
        if matches!(composition, Composition::Unaware | Composition::Flat) {
            let per_host = if composition == Composition::Flat { self.sockets * self.ranks } else { 1 };
            let choice = choose(&call, false, &self.model(per_host as u16));
            let spec = choice.spec(&call, false);
            let plans: Vec<Plan> = (0..size).map(|rank| Plan::new(of_rank(&spec, rank))).collect::<Result<_, _>>()?;
            let blocks = plans.first().map_or(1, Plan::blocks);
            return Ok((choice, simulate(plans, layout(&spec, bytes, blocks), network)));
        }
        let hosts: Vec<u32> = (0..size).map(|rank| self.host(rank)).collect();
        let sockets: Vec<u32> = (0..size).map(|rank| self.socket(rank)).collect();
        let (groupings, options) = match composition {
            Composition::Parts => (&[&sockets[..], &hosts][..], HierarchyOptions { in_parts: true, ..LOWER.into() }),
            Composition::Leaders => (&[&hosts[..]][..], HierarchyOptions { leaders: Leaders::All, ..LOWER.into() }),
            Composition::Hosts => (&[&hosts[..]][..], LOWER.into()),
            _ => (&[&sockets[..], &hosts][..], LOWER.into()),
        };
        let table = vec![0; Hierarchy::<Vec<u32>>::table_len(size as usize, groupings.len())];
        let groups = Hierarchy::new(groupings, table).expect("a table of that length");
        let groups: Hierarchy<alloc::sync::Arc<[u32]>> = groups.map(alloc::sync::Arc::from);
        let choice = choose(&groups.leaders(&call), groups.leaders_vary(collective), &self.model(1));
        let spec = choice.spec(&call, false);
        let new = |rank: u32| HierarchicalPlan::new(of_rank(&spec, rank), options, groups.clone());
        let plans: Vec<_> = (0..size).map(new).collect::<Result<_, _>>()?;
        let blocks = plans.first().map_or(1, HierarchicalPlan::blocks);
        Ok((choice, simulate(plans, layout(&spec, bytes, blocks), network)))
    }
}

/// The messages of a machine, and until when each host's adapter is busy in each direction.
struct MachineNetwork {
    machine: Machine,
    sent: Vec<u64>,
    received: Vec<u64>,
}

impl Network for MachineNetwork {
    fn end(&mut self, now: u64, Rank(from): Rank, Rank(to): Rank, bytes: u64) -> u64 {
        let machine = &self.machine;
        let [in_socket, in_host, between] = machine.links;
        if machine.socket(from) == machine.socket(to) {
            return in_socket.clone().end(now, Rank(from), Rank(to), bytes);
        }
        let (source, target) = (machine.host(from), machine.host(to));
        if source == target {
            return in_host.clone().end(now, Rank(from), Rank(to), bytes);
        }
        let (sent, received) = (&mut self.sent[source as usize], &mut self.received[target as usize]);
        let starts = now.max(*sent);
        let transfer = between.ps_per_byte * bytes;
        *sent = starts + transfer;
        *received = (starts + between.startup_ps).max(*received) + transfer;
        *received
    }

    fn port(&self, Rank(from): Rank, Rank(to): Rank, port: u8) -> u8 {
        let is_within = self.machine.host(from) == self.machine.host(to);
        if self.machine.offloads && is_within { Plan::PORTS - 1 } else { port }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: u64 = 1_000_000;

    fn machine(hosts: u32, sockets: u32, ranks: u32) -> Machine {
        let link = |startup_ps, ps_per_byte| LinkCost { startup_ps, ps_per_byte };
        let links = [link(MICRO, 100), link(2 * MICRO, 100), link(10 * MICRO, 1000)];
        Machine { hosts, sockets, ranks, links, offloads: false }
    }

    #[test]
    fn a_message_takes_the_time_of_its_level() {
        for (at, startup, per_byte) in [((1, 1, 2), 1, 100), ((1, 2, 1), 2, 100), ((2, 1, 1), 10, 1000)] {
            let (hosts, sockets, ranks) = at;
            let (_, cost) =
                machine(hosts, sockets, ranks).time(CollectiveKind::Gather, 50, Composition::Flat).expect("a schedule");
            assert_eq!(cost.picoseconds, startup * MICRO + 50 * per_byte, "{at:?}");
        }
    }

    /// Both ranks of host 0 send 1000 bytes to host 1 at once: the second message waits for the first one's bytes.
    #[test]
    fn messages_of_a_host_share_its_adapter() {
        let machine = machine(2, 1, 2);
        let mut network = MachineNetwork { machine, sent: vec![0; 2], received: vec![0; 2] };
        assert_eq!(network.end(0, Rank(0), Rank(2), 1000), 11 * MICRO);
        assert_eq!(network.end(0, Rank(1), Rank(3), 1000), 12 * MICRO);
        assert_eq!(network.end(0, Rank(2), Rank(0), 1000), 11 * MICRO, "the other direction is free");
        assert_eq!(network.end(20 * MICRO, Rank(0), Rank(3), 1000), 31 * MICRO);
    }

    /// Two exchanges between hosts of 2 and 4 blocks take 10 µs + b·1 ns each. Without parts the group's ranks receive all
    /// 8 blocks after them; in parts only the last 4.
    #[test]
    fn parts_of_an_allgather_go_down_while_an_adapter_exchanges() {
        let machine = Machine { offloads: true, ..machine(4, 1, 2) };
        let time = |composition| {
            let (choice, cost) = machine.time(CollectiveKind::Allgather, 10_000, composition).expect("a schedule");
            assert_eq!(choice.algorithm, unisono_core::schedule::Algorithm::Doubling);
            cost.picoseconds
        };
        let before = (MICRO + 10_000 * 100) + (10 * MICRO + 20_000 * 1000) + (10 * MICRO + 40_000 * 1000);
        assert_eq!(time(Composition::Hosts), before + MICRO + 80_000 * 100);
        assert_eq!(time(Composition::Parts), before + MICRO + 40_000 * 100);
    }

    /// A barrier up and down a socket, a host, and between two hosts.
    #[test]
    fn a_composed_barrier_takes_the_times_of_its_levels() {
        let machine = machine(2, 2, 2);
        let (_, cost) = machine.time(CollectiveKind::Barrier, 0, Composition::Sockets).expect("a schedule");
        assert_eq!(cost.picoseconds, (1 + 2 + 10 + 2 + 1) * MICRO);
        let (_, cost) = machine.time(CollectiveKind::Broadcast, 8, Composition::Hosts).expect("a schedule");
        let within = 2 * MICRO + 800 + MICRO + 800;
        assert_eq!(cost.picoseconds, 10 * MICRO + 8000 + within);
    }
}
