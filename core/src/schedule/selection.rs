//! Which algorithm, on how many ports, in how many segments: a pure function of values that are equal on all ranks.
//!
//! Of every algorithm of the verb that takes this call, and every number of ports that saves a round, the one that is done
//! first by the closed forms of the literature ([`cost`]): Qian & Afsahi 2008, equations 1, 2, 3 and 5; Thakur, Rabenseifner,
//! Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), §4, for halving and ring.
//!
//! # Model
//! Hockney's, with what one rank has to do beside: a message of b bytes arrives `latency + b·β` after it began, and occupies
//! its sender, and its receiver, for `overhead + b·β` each. A rank does one thing at a time: k messages at a time save rounds,
//! not bytes, and an exchange takes both ways' time; so it is where a process moves the bytes itself (sockets, shared memory).
//! Segments follow each other at the pace of the busiest rank: they pay where what it does for one segment is less than what
//! is done on the longest path, as in a chain. A k-nomial tree is bound by its root, segments or not. Where ranks share processors,
//! each waits for what the others on its own do on average.

mod cost;

use super::radix::Radix;
use super::spec::{check, counted};
use super::{Algorithm, Call, Plan, Refused, Verb};
use crate::collective;
use cost::{Cost, Load};

/// What one message costs between any two ranks of a group. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Link {
    /// From the begin of a message without bytes to its end at the receiver.
    pub latency_ns: u32,
    /// Of it, what occupies each of the two ranks.
    pub overhead_ns: u32,
    /// Picoseconds per byte: 1000 ÷ (bytes per nanosecond).
    pub ps_per_byte: u32,
    /// Ranks that share a processor; 1 and 0: none do.
    pub sharing: u16,
}

/// Picoseconds in which a rank combines a byte: two reads and a write of memory, of that order on any machine.
const COMBINE_PS_PER_BYTE: u32 = 150;

/// The most segments that are chosen: more hide no more than 1/256 of the longest path.
const SEGMENTS: u32 = 256;

/// How a collective is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Messages that a rank sends and receives at a time.
    pub ports: u8,
    /// Base of a k-nomial tree.
    pub radix: u8,
    /// Parts that each block is cut into.
    pub segments: u32,
}

impl Choice {
    /// The call that it makes of a collective. `varying`: blocks differ in size.
    pub const fn call(&self, plan: &collective::Plan, varying: bool) -> Call {
        Call {
            verb: plan.verb,
            algorithm: self.algorithm,
            rank: plan.rank,
            size: plan.size,
            root: plan.root,
            ports: self.ports,
            radix: self.radix,
            segments: self.segments,
            order: plan.order,
            in_place: plan.in_place,
            varying,
        }
    }

    /// Time until all are done, by the model, in picoseconds; saturates.
    ///
    /// # Errors
    /// The call's.
    pub fn time_ps(&self, plan: &collective::Plan, varying: bool, link: &Link) -> Result<u64, Refused> {
        let call = self.call(plan, varying);
        check(&call).and_then(|()| counted(&call))?;
        Ok(time(&Cost::of(&call), plan, self.segments, link))
    }
}

/// What of a choice is given. The rest is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Given {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Messages that a rank sends and receives at a time.
    pub ports: Option<u8>,
    /// Base of a k-nomial tree.
    pub radix: Option<u8>,
    /// Parts that each block is cut into.
    pub segments: Option<u32>,
}

impl Given {
    /// Nothing but the algorithm.
    pub const fn only(algorithm: Algorithm) -> Self {
        Self { algorithm, ports: None, radix: None, segments: None }
    }
}

/// The choice for a collective, the same on all ranks where `plan` differs in the rank only: one that [`Plan::new`] takes, of
/// any group that has a schedule.
///
/// `varying`: blocks differ in size. `plan.bytes` is then a value that all ranks know, such as the mean of an allgather's; of
/// verbs whose ranks do not know one another's blocks it is not looked at. O(log² size) per algorithm.
pub fn choose(plan: &collective::Plan, varying: bool, link: &Link) -> Choice {
    let mut best = (u64::MAX, fallback(plan.verb));
    let useful = useful_ports(plan.size);
    for &algorithm in algorithms(plan.verb) {
        if let Ok(quickest) = quickest(plan, varying, link, &Given::only(algorithm), useful)
            && quickest.0 < best.0
        {
            best = quickest;
        }
    }
    best.1
}

/// As [`choose`], of the choices that have what is given.
///
/// # Errors
/// [`Plan::new`] would not take it for this call: the same on all ranks.
pub fn choose_given(plan: &collective::Plan, varying: bool, link: &Link, given: &Given) -> Result<Choice, Refused> {
    let ports = given.ports.or(given.radix.map(|radix| radix.saturating_sub(1)));
    let useful = match ports {
        Some(ports) if !(1..=Plan::PORTS).contains(&ports) => return Err(Refused::Ports),
        Some(ports) => port_bit(ports),
        None => useful_ports(plan.size),
    };
    quickest(plan, varying, link, given, useful).map(|(_, choice)| choice)
}

/// The quickest choice that has what is given, on one of these numbers of ports, and its time.
fn quickest(
    plan: &collective::Plan,
    varying: bool,
    link: &Link,
    given: &Given,
    useful: u32,
) -> Result<(u64, Choice), Refused> {
    let private = varying && matches!(plan.verb, Verb::Gather | Verb::Scatter | Verb::Alltoall);
    let plan = &collective::Plan { bytes: if private { 0 } else { plan.bytes }, ..*plan };
    let mut best = Err(Refused::Unavailable);
    let mut rounds = u32::MAX;
    for ports in (1..=Plan::PORTS).filter(|ports| useful & port_bit(*ports) != 0) {
        let radix = given.radix.unwrap_or(ports.wrapping_add(1));
        let mut chosen = Choice { algorithm: given.algorithm, ports, radix, segments: given.segments.unwrap_or(1) };
        let call = chosen.call(plan, varying);
        // Not only `check`: given segments may make too many steps.
        if let Err(refused) = check(&call).and_then(|()| counted(&call)) {
            best = best.or(Err(refused));
            continue;
        }
        let cost = Cost::of(&call);
        // More ports than are needed for so many rounds only make more messages.
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

/// The algorithms of a verb; of two that cost the same, the first is chosen.
pub const fn algorithms(verb: Verb) -> &'static [Algorithm] {
    use Algorithm::{Bruck, Direct, Dissemination, Doubling, Halving, Knomial, Pairwise, Ring, StandardExchange};
    match verb {
        Verb::Barrier => &[Dissemination, Knomial, Doubling, StandardExchange],
        Verb::Broadcast => &[Knomial, Bruck, Ring],
        Verb::Reduce | Verb::ReduceScatter => &[Knomial, Halving, Ring],
        Verb::Allreduce => &[Doubling, StandardExchange, Knomial, Halving, Ring],
        Verb::Gather | Verb::Scatter => &[Direct, Knomial],
        Verb::Allgather => &[Direct, Doubling, StandardExchange, Bruck, Ring],
        Verb::Alltoall => &[Direct, Pairwise, Bruck, Doubling, StandardExchange],
        Verb::Scan | Verb::Exscan => &[Dissemination, Ring],
    }
}

impl Algorithm {
    /// All of them.
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

    /// Its name, as users write it.
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

/// The fewest ports for each number of rounds in base k + 1, and the most that a rank has peers for.
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

/// What takes any size, order and blocks: chosen where all times saturate.
const fn fallback(verb: Verb) -> Choice {
    let algorithm = match verb {
        Verb::Barrier | Verb::Scan | Verb::Exscan => Algorithm::Dissemination,
        Verb::Broadcast | Verb::Reduce | Verb::Allreduce | Verb::ReduceScatter => Algorithm::Knomial,
        Verb::Gather | Verb::Scatter | Verb::Allgather | Verb::Alltoall => Algorithm::Direct,
    };
    Choice { algorithm, ports: 1, radix: 2, segments: 1 }
}

/// Bytes of a block of a schedule, or of one of its segments, cut between elements.
fn block_bytes(cost: &Cost, plan: &collective::Plan, segments: u32) -> usize {
    let grain = plan.grain.max(1);
    let cut = |bytes: usize, parts: u32| {
        let grains = bytes.div_ceil(grain).div_ceil((parts as usize).max(1));
        grains.saturating_mul(grain)
    };
    cut(cut(plan.bytes, cost.cut), segments)
}

/// Segments that have an element, and whose steps are counted in 32 bits.
fn most_segments(cost: &Cost, plan: &collective::Plan) -> u32 {
    let grains = block_bytes(cost, plan, 1).checked_div(plan.grain.max(1)).unwrap_or(1);
    let steps = plan.size.saturating_mul(8).saturating_add(256);
    let counted = u32::MAX.checked_div(steps).unwrap_or(1);
    SEGMENTS.min(counted).min(u32::try_from(grains).unwrap_or(u32::MAX)).max(1)
}

/// Picoseconds until the last segment is through.
fn time(cost: &Cost, plan: &collective::Plan, segments: u32, link: &Link) -> u64 {
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
    let waits = spent(cost.waits, latency.saturating_sub(overhead.saturating_mul(2)));
    let next = spent(segments.saturating_sub(1), 1).saturating_mul(load(&cost.busy));
    let path = waits.saturating_add(load(&cost.path)).saturating_add(next);
    // Sixteenths.
    let other = (load(&cost.mean) >> 4).saturating_mul(u64::from(segments));
    path.saturating_add(other.saturating_mul(u64::from(link.sharing.saturating_sub(1))))
}

fn ps(ns: u32) -> u64 {
    u64::from(ns).saturating_mul(1000)
}
