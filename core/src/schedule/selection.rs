//! Selection of algorithm, ports, radix and segments: a pure function of values that are equal on all ranks.
//!
//! Of all algorithms of the collective that accept the specification, and all numbers of ports that save a round, it
//! selects the one that finishes first by the closed forms of the literature ([`cost`]): Qian & Afsahi 2008, equations
//! 1, 2, 3 and 5; Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (2005),
//! §4, for halving and ring.
//!
//! # Model
//! Hockney's model, plus the work of each rank: a message of b bytes arrives `latency + b·β` after it began, and
//! occupies its sender and its receiver for `overhead + b·β` each. A rank does one thing at a time: k concurrent
//! messages save rounds, not bytes, and an exchange takes the time of both directions; this holds where a process moves
//! the bytes itself (sockets, shared memory). Segments follow each other at the pace of the busiest rank: they pay if
//! its work for one segment is less than the work on the longest path, as in a chain. A k-nomial tree is bound by its
//! root, with or without segments. If ranks share processors, each also waits for the average work of the others on its
//! processor. If ranks of a host share its link, a collective takes at least the time that the link needs, at β per byte,
//! for their messages to other hosts: one rank can keep it busy. Messages within a host cost less per byte.

mod composition;
mod cost;
mod multicast;
mod slots;

use super::radix::Radix;
use super::spec::{check, check_step_count};
use super::{Algorithm, CollectiveKind, Order, Plan, Spec, Unsupported};
use crate::collective;
use cost::{Cost, Load};

pub use multicast::multicast_pays;
pub use slots::{GroupModel, SlotModel};

/// The cost of a message between any two ranks of a group. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkModel {
    /// Time from the start of an empty message to its completion at the receiver.
    pub latency_ns: u32,
    /// The part of it that occupies each of the two ranks.
    pub overhead_ns: u32,
    /// Picoseconds per byte: 1000 ÷ (bytes per nanosecond).
    pub ps_per_byte: u32,
    /// Ranks per processor; 0 and 1: no sharing.
    pub sharing: u16,
    /// Adjacent ranks of a host, which share its link; 0 and 1: each rank has its own.
    pub per_host: u16,
    /// Time of a byte of a message between ranks of a host, in picoseconds.
    pub ps_per_byte_within: u32,
}

/// Picoseconds to combine a byte: two reads and a write of memory, a typical value.
const COMBINE_PS_PER_BYTE: u32 = 150;

/// The most segments that are selected: more would hide at most 1/256 of the longest path.
const SEGMENTS: u32 = 256;

/// The selected algorithm and its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Concurrent messages that a rank sends and receives.
    pub ports: u8,
    /// Base of a k-nomial tree.
    pub radix: u8,
    /// Segments of each block.
    pub segments: u32,
    /// The order in which it combines, as given or [`Order::Rank`] instead of [`Order::Any`].
    pub order: Order,
}

impl Choice {
    /// The specification of a collective with this choice. `varying`: blocks differ in size.
    pub const fn spec(&self, plan: &collective::CollectiveSpec, varying: bool) -> Spec {
        Spec {
            collective: plan.collective,
            algorithm: self.algorithm,
            rank: plan.rank,
            size: plan.size,
            root: plan.root,
            ports: self.ports,
            radix: self.radix,
            segments: self.segments,
            order: self.order,
            in_place: plan.in_place,
            varying,
        }
    }

    /// The model's time until all ranks are done, in picoseconds; saturates.
    ///
    /// # Errors
    /// Those of [`Plan::new`].
    pub fn time_ps(
        &self,
        plan: &collective::CollectiveSpec,
        varying: bool,
        link: &LinkModel,
    ) -> Result<u64, Unsupported> {
        let call = self.spec(plan, varying);
        check(&call).and_then(|()| check_step_count(&call))?;
        Ok(time(&Cost::of(&call, link.per_host), plan, self.segments, link))
    }
}

/// Constraints on a choice. Unconstrained parameters are selected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Constraints {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Concurrent messages that a rank sends and receives.
    pub ports: Option<u8>,
    /// Base of a k-nomial tree.
    pub radix: Option<u8>,
    /// Segments of each block.
    pub segments: Option<u32>,
}

impl Constraints {
    /// Constrains only the algorithm.
    pub const fn only(algorithm: Algorithm) -> Self {
        Self { algorithm, ports: None, radix: None, segments: None }
    }
}

/// Selects the choice for a collective, the same on all ranks if `plan` differs only in the rank. [`Plan::new`] accepts
/// it, for any group that has a schedule.
///
/// `varying`: blocks differ in size. `plan.bytes` is then a value that all ranks know, such as the mean of an
/// allgather's blocks; it is ignored for collectives whose ranks do not know each other's blocks. O(log² size) per
/// algorithm.
pub fn choose(plan: &collective::CollectiveSpec, varying: bool, link: &LinkModel) -> Choice {
    let mut best = (u64::MAX, fallback(plan.collective, plan.order));
    let useful = useful_ports(plan.size);
    for &algorithm in algorithms(plan.collective) {
        if let Ok(quickest) = fastest(plan, varying, link, &Constraints::only(algorithm), useful)
            && quickest.0 < best.0
        {
            best = quickest;
        }
    }
    best.1
}

/// As [`choose`], of the choices that meet the constraints.
///
/// # Errors
/// [`Plan::new`] would reject every such choice: the same on all ranks.
pub fn choose_with(
    plan: &collective::CollectiveSpec,
    varying: bool,
    link: &LinkModel,
    given: &Constraints,
) -> Result<Choice, Unsupported> {
    let ports = given.ports.or(given.radix.map(|radix| radix.saturating_sub(1)));
    let useful = match ports {
        Some(ports) if !(1..=Plan::PORTS).contains(&ports) => return Err(Unsupported::Ports),
        Some(ports) => port_bit(ports),
        None => useful_ports(plan.size),
    };
    fastest(plan, varying, link, given, useful).map(|(_, choice)| choice)
}

/// The fastest choice that meets the constraints, with one of these numbers of ports, and its time.
fn fastest(
    plan: &collective::CollectiveSpec,
    varying: bool,
    link: &LinkModel,
    given: &Constraints,
    useful: u32,
) -> Result<(u64, Choice), Unsupported> {
    let private = varying
        && matches!(plan.collective, CollectiveKind::Gather | CollectiveKind::Scatter | CollectiveKind::Alltoall);
    let plan = &collective::CollectiveSpec { bytes: if private { 0 } else { plan.bytes }, ..*plan };
    let mut best = Err(Unsupported::Unavailable);
    let mut rounds = u32::MAX;
    for ports in (1..=Plan::PORTS).filter(|ports| useful & port_bit(*ports) != 0) {
        let radix = given.radix.unwrap_or(ports.wrapping_add(1));
        let (algorithm, segments) = (given.algorithm, given.segments.unwrap_or(1));
        let mut chosen = Choice { algorithm, ports, radix, segments, order: plan.order };
        chosen.order = order_of_parts(&chosen.spec(plan, varying), link);
        let call = chosen.spec(plan, varying);
        // `check` alone does not suffice: the given segments may make too many steps.
        if let Err(refused) = check(&call).and_then(|()| check_step_count(&call)) {
            best = best.or(Err(refused));
            continue;
        }
        let cost = Cost::of(&call, link.per_host);
        // More ports than that number of rounds needs only make more messages.
        if cost.rounds >= rounds {
            continue;
        }
        rounds = cost.rounds;
        let mut took = time(&cost, plan, chosen.segments, link);
        let most = if varying || given.segments.is_some() { 1 } else { most_segments(&cost, plan) };
        while let Some(segments) = chosen.segments.checked_mul(2).filter(|segments| *segments <= most) {
            let quicker = time(&cost, plan, segments, link);
            if quicker >= took {
                break;
            }
            (took, chosen) = (quicker, Choice { segments, ..chosen });
        }
        if best.is_err() || best.is_ok_and(|(time, _)| took < time) {
            best = Ok((took, chosen));
        }
    }
    best
}

/// The algorithms of a collective; of two with equal cost, the first is selected.
pub const fn algorithms(verb: CollectiveKind) -> &'static [Algorithm] {
    use Algorithm::{Bruck, Direct, Dissemination, Doubling, Halving, Knomial, Pairwise, Ring, StandardExchange};
    match verb {
        CollectiveKind::Barrier => &[Dissemination, Knomial, Doubling, StandardExchange],
        CollectiveKind::Broadcast => &[Knomial, Bruck, Ring],
        CollectiveKind::Reduce | CollectiveKind::ReduceScatter => &[Knomial, Halving, Ring],
        CollectiveKind::Allreduce => &[Doubling, StandardExchange, Knomial, Halving, Ring],
        CollectiveKind::Gather | CollectiveKind::Scatter => &[Direct, Knomial],
        CollectiveKind::Allgather => &[Direct, Doubling, StandardExchange, Bruck, Ring],
        CollectiveKind::Alltoall => &[Direct, Pairwise, Bruck, Doubling, StandardExchange],
        CollectiveKind::Scan | CollectiveKind::Exscan => &[Dissemination, Ring],
    }
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 9] = [
        Self::Knomial,
        Self::Dissemination,
        Self::Pairwise,
        Self::Doubling,
        Self::StandardExchange,
        Self::Halving,
        Self::Bruck,
        Self::Direct,
        Self::Ring,
    ];

    /// Its name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Knomial => "knomial",
            Self::Dissemination => "dissemination",
            Self::Pairwise => "pairwise",
            Self::Doubling => "doubling",
            Self::StandardExchange => "standard-exchange",
            Self::Halving => "halving",
            Self::Bruck => "bruck",
            Self::Direct => "direct",
            Self::Ring => "ring",
        }
    }
}

/// The order in which parts are exchanged that grow or shrink from round to round: if ranks of a host share a link, the one
/// that keeps the largest parts in the host.
fn order_of_parts(call: &Spec, link: &LinkModel) -> Order {
    let is_of_parts = match call.collective {
        CollectiveKind::Allgather => matches!(call.algorithm, Algorithm::Doubling | Algorithm::StandardExchange),
        CollectiveKind::Reduce | CollectiveKind::Allreduce | CollectiveKind::ReduceScatter => {
            call.algorithm == Algorithm::Halving
        }
        _ => false,
    };
    let in_rank_order = Spec { order: Order::Rank, ..*call };
    let is_better = || {
        let [rank, any] = [&in_rank_order, call].map(|call| Cost::of(call, link.per_host).crossing);
        check(&in_rank_order).is_ok() && rank < any
    };
    if link.per_host > 1 && call.order == Order::Any && is_of_parts && is_better() { Order::Rank } else { call.order }
}

/// The fewest ports for each number of rounds in base k + 1, up to the number of peers.
fn useful_ports(size: u32) -> u32 {
    let most = u8::try_from(size.saturating_sub(1)).unwrap_or(u8::MAX).clamp(1, Plan::PORTS);
    let mut levels = u32::MAX;
    (1..=most).fold(port_bit(most), |useful, ports| {
        let needs = Radix::new(u32::from(ports).wrapping_add(1)).log_up(size);
        let fewer = needs < levels;
        levels = needs;
        if fewer { useful | port_bit(ports) } else { useful }
    })
}

const fn port_bit(ports: u8) -> u32 {
    1_u32.wrapping_shl(ports as u32)
}

/// A choice that accepts any size, order and blocks: selected if all times saturate.
const fn fallback(verb: CollectiveKind, order: Order) -> Choice {
    let algorithm = match verb {
        CollectiveKind::Barrier | CollectiveKind::Scan | CollectiveKind::Exscan => Algorithm::Dissemination,
        CollectiveKind::Broadcast
        | CollectiveKind::Reduce
        | CollectiveKind::Allreduce
        | CollectiveKind::ReduceScatter => Algorithm::Knomial,
        CollectiveKind::Gather | CollectiveKind::Scatter | CollectiveKind::Allgather | CollectiveKind::Alltoall => {
            Algorithm::Direct
        }
    };
    Choice { algorithm, ports: 1, radix: 2, segments: 1, order }
}

/// Bytes of a block of a schedule, or of one of its segments, cut between elements.
fn block_bytes(cost: &Cost, plan: &collective::CollectiveSpec, segments: u32) -> usize {
    let grain = plan.grain.max(1);
    let cut = |bytes: usize, parts: u32| {
        let grains = bytes.div_ceil(grain).div_ceil((parts as usize).max(1));
        grains.saturating_mul(grain)
    };
    cut(cut(plan.bytes, cost.cut), segments)
}

/// The most segments that have at least one element, and whose steps can be counted in 32 bits.
fn most_segments(cost: &Cost, plan: &collective::CollectiveSpec) -> u32 {
    let grains = block_bytes(cost, plan, 1).checked_div(plan.grain.max(1)).unwrap_or(1);
    let steps = plan.size.saturating_mul(8).saturating_add(256);
    let counted = u32::MAX.checked_div(steps).unwrap_or(1);
    SEGMENTS.min(counted).min(u32::try_from(grains).unwrap_or(u32::MAX)).max(1)
}

/// Picoseconds until the last segment is done.
fn time(cost: &Cost, plan: &collective::CollectiveSpec, segments: u32, link: &LinkModel) -> u64 {
    let bytes = block_bytes(cost, plan, segments) as u64;
    let spent = |count: u32, each: u64| u64::from(count).saturating_mul(each);
    let (latency, overhead) = (ps(link.latency_ns), ps(link.overhead_ns));
    let moved = bytes.saturating_mul(u64::from(link.ps_per_byte));
    let folded = bytes.saturating_mul(u64::from(COMBINE_PS_PER_BYTE));
    let load = |load: &Load| {
        spent(load.messages, overhead)
            .saturating_add(spent(load.blocks, moved))
            .saturating_add(spent(load.folds, folded))
    };
    let saved = spent(cost.staying, moved.saturating_sub(bytes.saturating_mul(u64::from(link.ps_per_byte_within))));
    let waits = spent(cost.waits, latency.saturating_sub(overhead.saturating_mul(2)));
    let next = spent(segments.saturating_sub(1), 1).saturating_mul(load(&cost.busy).saturating_sub(saved));
    let path = waits.saturating_add(load(&cost.path).saturating_sub(saved)).saturating_add(next);
    // `mean` is in sixteenths.
    let other = (load(&cost.mean) >> 4).saturating_mul(u64::from(segments));
    let shared = path.saturating_add(other.saturating_mul(u64::from(link.sharing.saturating_sub(1))));
    let crossing = if link.per_host > 1 { cost.crossing } else { 0 };
    shared.max(spent(crossing, moved).saturating_mul(u64::from(segments)))
}

fn ps(ns: u32) -> u64 {
    u64::from(ns).saturating_mul(1000)
}
