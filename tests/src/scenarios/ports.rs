//! A direct allgather on several ports over rails of equal rate: which rail carries the messages of which port.

use alloc::rc::Rc;
use core::cell::RefCell;
use core::num::NonZeroU64;
use std::collections::HashMap;

use unisono_core::collective::CollectiveKind;
use unisono_core::device::TxReason;
use unisono_core::ids::{Rail, Rank};
use unisono_core::message::collective_transport::header::TransportKind;
use unisono_core::schedule::{Algorithm, Plan, Spec, StepOperation};
use unisono_core::wire::{DatagramKind, HEADER, Header};

use super::schedules::{Outcome, Workload, run_with};
use crate::sim::{Config, DatagramFate, DatagramTrace, Link, Network, NodeId};

/// An allgather of equal blocks.
#[derive(Clone, Copy, Debug)]
pub struct PortScenario {
    /// Ranks, each a node of its own.
    pub ranks: u32,
    /// Ports of the schedule.
    pub ports: u8,
    /// Rails.
    pub rails: u8,
    /// Bits per second of each rail.
    pub bits_per_s: u64,
    /// Elements of a block, three bytes each.
    pub elements: usize,
    /// When a rail is cut between all nodes.
    pub cut: Option<(u64, Rail)>,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortOutcome {
    /// The collective's.
    pub job: Outcome,
    /// First transmissions over the rail of their port, and over another although that rail was not cut.
    pub placed: u64,
    /// See `placed`.
    pub misplaced: u64,
}

/// Runs the allgather.
pub fn run(scenario: &PortScenario, seed: u64) -> PortOutcome {
    let PortScenario { ranks, ports, rails, bits_per_s, elements, cut } = *scenario;
    let spec = Spec::new(CollectiveKind::Allgather, Algorithm::Direct, ranks, ports);
    let rate = NonZeroU64::new(bits_per_s / 8);
    let link = Link { ingress_bytes_per_s: rate, egress_bytes_per_s: rate, queue: 512, ..Link::default() };
    let network = Network::new(seed, Config { rails, link, receive_slots: 1024, holdable: 512, ..Config::default() });
    let ports = ports_of(&spec);
    let counts = Rc::new(RefCell::new(PortOutcome::default()));
    let seen = Rc::clone(&counts);
    network.watch(move |trace| {
        let Some(port) = is_of_schedule(trace).then(|| ports[&(trace.from.0, trace.to.0)]) else { return };
        let expected = Rail(port % rails);
        let is_cut = cut.is_some_and(|(at, rail)| trace.at >= at && rail == expected);
        let mut seen = seen.borrow_mut();
        seen.placed += u64::from(trace.rail == expected);
        seen.misplaced += u64::from(trace.rail != expected && !is_cut);
    });
    let mut pending = cut;
    let job = run_with(&network, &[Workload { call: spec, elements }], 1, 64, |now| {
        if let Some((_, rail)) = pending.take_if(|(at, _)| now >= *at) {
            for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
                network.cut_rail(NodeId(from), NodeId(to), rail);
            }
        }
    });
    PortOutcome { job, ..*counts.borrow() }
}

/// The port of the only message between each two ranks.
fn ports_of(spec: &Spec) -> HashMap<(u32, u32), u8> {
    let mut ports = HashMap::new();
    for rank in 0..spec.size {
        let plan = Plan::new(Spec { rank: Rank(rank), ..*spec }).expect("a schedule");
        for step in (0..plan.steps()).filter_map(|i| plan.step(i)) {
            if let StepOperation::Send { to, port, .. } = step.operation {
                assert_eq!(ports.insert((rank, to.0), port.number()), None, "one message");
            }
        }
    }
    ports
}

/// Whether a datagram is the first transmission of a message of the schedule: no grant, and no credit.
fn is_of_schedule(trace: &DatagramTrace<'_>) -> bool {
    let is_first = trace.what == DatagramFate::Sent && trace.cause == Some(TxReason::First);
    let Ok(header) = Header::<32>::parse(trace.head) else { return false };
    let step = trace.head.get(HEADER).copied();
    let is_sent = [TransportKind::Eager, TransportKind::Rts].iter().any(|kind| step == Some(*kind as u8));
    is_first && (matches!(header.kind, DatagramKind::Open | DatagramKind::Segment) || is_sent)
}
